"""Facts of a tree that apply to each of its files. Pure.

They are names with a meaning on AMD, and macros that one side alone gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront_port.scan.cuda.conditions import MacroRow, is_named, table_row
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import HEADERS, View, portable_names
from warpfront_port.scan.findings import SIDES, Context, SourceText

_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """The facts of a file that apply to other files.

    `reaches` maps each macro that a header defines to the sides that get a definition.
    """

    portable: frozenset[str] = frozenset()
    reaches: Mapping[str, Reach] = field(default_factory=dict)


def header_facts(source: SourceText) -> HeaderFacts:
    """Return the facts of a file that apply to other files. Macros of a `.cu` are private to it."""
    header = source.path.suffix.lower() in HEADERS
    if not _VENDOR.search(source.text):
        return HeaderFacts()
    view = View(source=source, context=Context())
    directives = view.directives
    guards = {d.body for index, d in enumerate(directives) if is_guard(directives, index)}
    reaches: dict[str, Reach] = {
        name: frozenset().union(*(view.region(define.start).reach for define in defined))
        for name, defined in (view.macros.items() if header else ())
        if name not in guards
    }
    portable = portable_names(view)
    if header and view.is_hip:
        portable |= reaches.keys()
        reaches = dict.fromkeys(reaches, frozenset({"amd"}))
    return HeaderFacts(portable=portable, reaches=reaches)


def vendor_macros(facts: Iterable[HeaderFacts]) -> dict[str, MacroRow]:
    """Return the macros that are unset on some side, by name.

    No header defines these for that side. Macros that the table knows keep their value there.
    """
    reaches: dict[str, Reach] = {}
    for fact in facts:
        for name, reach in fact.reaches.items():
            reaches[name] = reaches.get(name, frozenset()) | reach
    rows: dict[str, MacroRow] = {}
    for name, reach in reaches.items():
        values = {side: table_row(name).get(side) for side in SIDES}
        missing = EVERYWHERE - reach
        is_known = is_named(name) or all(values[side] is not None for side in missing)
        if reach and not is_known:
            rows[name] = {
                side: "unset" if value is None else value
                for side, value in values.items()
                if side in missing or value is not None
            }
    return rows
