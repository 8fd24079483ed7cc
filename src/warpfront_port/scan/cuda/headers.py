"""Facts of a tree that apply to each of its files. Pure.

They are names with a meaning on AMD, macros that one side alone gets, and those that no side gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from warpfront_port.scan.cuda.conditions import MacroRow, is_named, named, table_row
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import HEADERS, NAME, View, portable_names
from warpfront_port.scan.findings import SIDES, Context, SourceText
from warpfront_port.scan.hipify_names import hipify_names
from warpfront_port.scan.reach import INCLUDE, SOURCE

_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")
_TESTS = re.compile(r"(?m)^[ \t]*#[ \t]*(?:el)?if(.*)")
_NAME = re.compile(r"\b[A-Za-z_]\w*(?:CUDA|HIP|ROCM)\w*|\b(?:CUDA|HIP|ROCM)_\w+")
_CONDITION = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?:(?:el)?if(?:n?def)?|else|endif)\b((?:[^\n\\]|\\\r?\n|\\.)*)"
)
# A compiler's own, a library's version, an answer about the machine: no source has to define these.
_GIVEN = re.compile(r"_|NDEBUG\Z|HAVE_|HAS_|.*(?:VERSION|MAJOR|MINOR)")
_BEGINNING = re.compile(r"(?<!\w)D?(\w+_)(?:[$@{%]|[\"']\s*[+.(])")
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


def undefined_macros(texts: Mapping[str, str], others: Iterable[str]) -> frozenset[str]:
    """Return the macros that conditions test, and that nothing else in the tree names: no code, no
    comment, build, list, document or script. `others` are further texts that may name them.

    Those of a header from outside, by the first word of its name, may be defined there.
    """
    code = {path: text for path, text in texts.items() if SOURCE.search(path)}
    tested = {n for text in code.values() for c in _CONDITION.findall(text) for n in named(c)}
    undefined = {n for n in tested if not (_GIVEN.match(n) or {*SIDES} & table_row(n).keys())}
    table, included = hipify_names(), set[str]()
    undefined -= table.twins.keys() | table.twinless
    for text in code.values() if undefined else ():
        undefined.difference_update(NAME.findall(_CONDITION.sub("", text)))
        included.update(INCLUDE.findall(text))
    files = {path.rpartition("/")[2] for path in code}
    outside = (h for h in included - {*table.headers} if h.rpartition("/")[2] not in files)
    words = {word for header in outside for word in re.findall("[a-z0-9]+", header.lower())}
    for text in (*(text for path, text in texts.items() if path not in code), *others):
        names = set(NAME.findall(text)) if undefined else set[str]()
        undefined -= names | {name[1:] for name in names}  # `-DNAME`
        beginnings = tuple(_BEGINNING.findall(text)) if undefined else ()
        undefined = {name for name in undefined if not name.startswith(beginnings)}
    libraries = " ".join(f" {word}" for word in words if not word.startswith("cuda"))
    return frozenset(n for n in undefined if f" {n.partition('_')[0].lower()}" not in libraries)
