"""Makefiles: flags word by word, the commands of recipes, and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.shell import (
    Word,
    script_rule_matches,
    variable_rule_matches,
    word_rule_matches,
)
from warpfront_port.scan.words import OWN_PART

_REFERENCE = re.compile(r"\$[({](\w+)[)}]")
_VARIABLE = re.compile(r"(?m)^(?:export\s+|override\s+)?([A-Za-z_]\w*)[^\S\n]*[:?+]?=[^\S\n]*(.*)$")
_RECIPE = re.compile(r"(?m)(?:^\t.*(?:\\\n.*)*\n?)+")
_PROGRAMS = {"pip": "pip", "pip3": "pip", "python": "python", "python3": "python", "py": "python"}


def make_rule_matches(text: str) -> Iterator[Match]:
    """Everything in a makefile that a rule is about; comments are left out."""
    for match in re.finditer(r"(?m)^[^#\n]+", text):
        for word in re.finditer(r"\S+", match[0]):
            start = match.start() + word.start()
            found = Word(text=word[0], start=start, end=start + len(word[0]))
            yield from word_rule_matches(found, None)
    for match in _VARIABLE.finditer(text):
        given = Word(text=match[2], start=match.start(2), end=match.end(2))
        yield from variable_rule_matches(match[1], match[2].strip(), given, whole=text)
    for match in _RECIPE.finditer(text):
        recipe = re.sub(r"(?m)^\t[@-]", "\t ", _REFERENCE.sub(_as_word, match[0]))
        for one in script_rule_matches(recipe, match.start(), whole=text):
            if one.rule.startswith("DP3") or one.rule in ("HP609", "CT402"):
                yield one


def own_parts(text: str) -> Iterator[Match]:
    """Where the makefile of a project without HIP names its part for CUDA (BL217): one a line."""
    for line in re.finditer(r"(?m)^[^#\n]+", text):
        found = OWN_PART.search(line[0])
        if found is not None and not _NO_PART.search(line[0]):
            start, end = line.start() + found.start(), line.start() + found.end()
            yield Match(rule="BL217", start=start, end=end, what=line[0].strip()[:60])


_NO_PART = re.compile(
    r"(?i)=\s*(?:false|off|no|0)\s*$|\.(?:py|patch|md)\b|CUDA_VERSION|--build-arg"
)
"""A switch that is off, a name in a list of files that no compiler reads, what an image takes."""


def _as_word(reference: re.Match[str]) -> str:
    """A reference to a variable as a word of its length: `$(PIP)` is pip."""
    program = _PROGRAMS.get(reference[1].lower())
    filler = "_" if program is None else " "
    return (program or "").ljust(len(reference[0]), filler)
