"""What the headers of a tree tell its other files: names with a meaning on AMD, macros that one
side alone gets, namespaces of its own. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from warpfront.port.scan.cuda.conditions import macro_table
from warpfront.port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront.port.scan.cuda.view import View, portable_names
from warpfront.port.scan.findings import SIDES, Side

_HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl"})
_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip/")
_NAMESPACE = re.compile(r"\bnamespace\s+((?:\w+\s*::\s*)*\w+)\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """Of one file: `reaches` says of each macro that a header defines who gets a definition."""

    portable: frozenset[str]
    reaches: Mapping[str, Reach]
    namespaces: frozenset[str]


def facts_of(view: View) -> HeaderFacts:
    """What other files may take from this one. Macros of a `.cu` are its own business."""
    namespaces = frozenset(
        name.strip() for found in _NAMESPACE.findall(view.code) for name in found.split("::")
    )
    if not _VENDOR.search(view.source.text):
        return HeaderFacts(portable=frozenset(), reaches={}, namespaces=namespaces)
    header = view.source.path.suffix.lower() in _HEADERS
    reaches = dict(_macro_reaches(view)) if header else {}
    portable = portable_names(view)
    if header and view.is_hip:
        portable |= reaches.keys()
        reaches = dict.fromkeys(reaches, frozenset({"amd"}))
    return HeaderFacts(portable=portable, reaches=reaches, namespaces=namespaces)


def _macro_reaches(view: View) -> Iterator[tuple[str, Reach]]:
    directives = view.directives
    guards = {d.body for at, d in enumerate(directives) if is_guard(directives, at)}
    for name, defined in view.macros.items():
        if name not in guards:
            yield name, frozenset().union(*(view.region(one.start).reach for one in defined))


def vendor_macros(facts: Iterable[HeaderFacts]) -> dict[str, Mapping[Side, Literal["unset"]]]:
    """The macros that no header defines for some side, by name: unset there. Those that the table
    knows stay as they are there.
    """
    reaches: dict[str, Reach] = {}
    for one in facts:
        for name, reach in one.reaches.items():
            reaches[name] = reaches.get(name, frozenset()) | reach
    table = macro_table()
    return {
        name: dict.fromkeys(sorted(EVERYWHERE - reach), "unset")
        for name, reach in reaches.items()
        if reach and reach != EVERYWHERE and all(table.known(name, side) is None for side in SIDES)
    }
