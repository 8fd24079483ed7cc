"""Facts of a tree that apply to each of its files. Pure.

They are names with a meaning on AMD, and macros that one side alone gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from warpfront_port.scan.cuda.conditions import MacroRow, is_named, table_row
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import HEADERS, View, portable_names
from warpfront_port.scan.findings import SIDES, Context, SourceText

_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")
_TESTS = re.compile(r"(?m)^[ \t]*#[ \t]*(?:el)?if(.*)")
_NAME = re.compile(r"\b[A-Za-z_]\w*(?:CUDA|HIP|ROCM)\w*|\b(?:CUDA|HIP|ROCM)_\w+")
_NEGATED = re.compile(r"![ \t]*(?:defined[ \t(]*)?\w+")


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


def vendor_macros(facts: Iterable[HeaderFacts], twins: Iterable[str] = ()) -> dict[str, MacroRow]:
    """Return the macros that are unset on some side, by name.

    These are macros that no header defines for that side, and those of CUDA's that have one of
    HIP's as `twins`. Macros that the table knows keep their value there.
    """
    reaches: dict[str, Reach] = dict.fromkeys(twins, frozenset({"nvidia"}))
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


def twin_macros(texts: Collection[str]) -> frozenset[str]:
    """Return the macros of CUDA's that conditions test, and whose twins of HIP's they test too.

    One that a condition wants together with its twin, or with the twin's absence, excludes nothing.
    """
    lines = [line[1] for text in texts for line in _TESTS.finditer(text)]
    tested = {name for line in lines for name in _NAME.findall(line)}
    joined = [({*_NAME.findall(_NEGATED.sub("", x))}, x) for x in lines if "&&" in x]
    twins = ((name, name.replace("CUDA", other)) for name in tested for other in ("HIP", "ROCM"))
    return frozenset(
        name
        for name, twin in twins
        if twin != name
        and twin in tested
        and not any(name in wanted and twin in line for wanted, line in joined)
    )
