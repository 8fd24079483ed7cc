"""The modules that a program did not find, from the traceback that it ended with, and the
distributions that bring them: by an option, by the project's own files, or by the table. No name is
guessed, because an index may give a module's name to another project. Pure.

Only the last exception counts: a library may try an import and do without it. Python prints a
chain of exceptions in one piece, the first above, so that "install einops" after a failed import
is still that import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.system.packaged import packaged_toml
from warpfront_port.preflight.declared import DeclaredRequirement, Kind
from warpfront_port.trying.trial import Miss, MissAnswer

_TRACEBACK = "Traceback (most recent call last):"
# torchrun, accelerate and ray put the rank before each line.
_PREFIX = re.compile(
    r"^\s*(?:\[[^\]\n]{1,40}\]:?\s?|\([^)\n]{1,40}\)\s)+(?=Traceback|\s*File |\w+(?:\.\w+)*Error)"
)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_NO_METADATA = re.compile(
    r"^importlib\.metadata\.PackageNotFoundError: No package metadata was found for (?P<name>\S+)"
)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>[0-9]{1,9})\b')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def read_misses(output: str) -> tuple[Miss, ...]:
    """Return the modules that the last traceback of `output` reports as missing, each once."""
    misses: dict[str, Miss] = {}
    frame: Mapping[str, str] = {}
    is_traceback = is_chained = False
    for line in (_PREFIX.sub("", line) for line in output.splitlines()):
        text = line.strip()
        if text == _TRACEBACK:
            misses = misses if is_chained else {}  # with those whose handling raised it
            is_traceback, is_chained = True, False
        elif text.startswith(_CHAINED):
            is_chained = True
        elif match := _FRAME.match(line):
            frame = match.groupdict()
        elif is_traceback and (match := _MISSING.match(text) or _NO_METADATA.match(text)):
            named = match.groupdict()
            miss = Miss(
                module=named.get("module", ""),
                distribution=canonicalize_name(named.get("name", "")),
                path=frame.get("path", ""),
                line=int(frame.get("line", 0)),
            )
            misses.setdefault(miss.top or miss.distribution, miss)
    return tuple(misses.values())


def provider(
    miss: Miss,
    declared_requirements: Iterable[DeclaredRequirement],
    provides: Mapping[str, str] | None = None,
) -> MissAnswer:
    """Return the requirement that brings a missing module, and its source; "" for an unknown one.

    Versions come from a line of the project's files; the first line wins where two name it.
    """
    if requirement := (provides or {}).get(miss.asked):
        return MissAnswer(miss=miss, requirement=requirement, said_by="--provides")
    declared: dict[str, DeclaredRequirement] = {}
    for line in declared_requirements:
        if line.kind is Kind.REQUIREMENT and line.requirement.url is None:
            declared.setdefault(line.name, line)
    # A program's output is not trusted: a distribution has to be known, too.
    table = packaged_toml("providers.toml", package="warpfront_port")
    same, another = table["same_name"]["names"], table["another_name"]
    if miss.top:
        usual = canonicalize_name(miss.top)
        named = another.get(miss.top) or (usual if usual in same else "")
    else:
        named = miss.distribution if miss.distribution in {*same, *another.values()} else ""
    for name in (named, canonicalize_name(miss.top or miss.distribution)):
        if name in declared:
            line = declared[name]
            return MissAnswer(miss=miss, requirement=line.text, said_by=line.where)
    said_by = "the table of modules" if named else ""
    return MissAnswer(miss=miss, requirement=named, said_by=said_by)


def read_provides(texts: Iterable[str]) -> dict[str, str]:
    """Read options of the form `module=requirement`. Raise `InputError` for any other."""
    provides = {}
    for text in texts:
        module, _, requirement = text.partition("=")
        if not module.isidentifier() or not requirement:
            raise InputError(f"--provides {text!r} is not module=distribution")
        provides[module] = requirement
    return provides
