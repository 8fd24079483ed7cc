"""Makefiles: flags word by word, the commands of recipes, and variables. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import SIDES, Match, Side
from warpfront_port.scan.structured.cmake import BuildArm
from warpfront_port.scan.structured.shell import (
    Word,
    script_rule_matches,
    variable_rule_matches,
    word_rule_matches,
)

_REFERENCE = re.compile(r"\$[({](\w+)[)}]")
_VARIABLE = re.compile(r"(?m)^(?:export\s+|override\s+)?([A-Za-z_]\w*)[^\S\n]*[:?+]?=[^\S\n]*(.*)$")
_RECIPE = re.compile(r"(?m)(?:^\t.*(?:\\\n.*)*\n?)+")
_PROGRAMS = {"pip": "pip", "pip3": "pip", "python": "python", "python3": "python", "py": "python"}


def make_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches in a makefile, without its comments."""
    yield from _nvcc_alone(text)
    arms = _arms(text)
    for match in _rule_matches(text):
        yield replace(match, sides=match.sides & _sides_at(arms, match.start))


def _arms(text: str) -> list[tuple[int, frozenset[Side]]]:
    """Return the offset of each conditional directive, and the sides that reach the lines after it.

    `ifeq ($(USE_HIP),)` and `ifneq ($(USE_CUDA),1)` are negated conditions.
    """
    open_arms: list[BuildArm] = []
    starts = [(0, frozenset(SIDES))]
    for line in _DIRECTIVE.finditer(text):
        word, condition = line["word"], line["condition"]
        negated = word in {"ifneq", "ifndef"} or (word == "ifeq" and _IS_OFF.search(condition))
        if word and not line["otherwise"]:
            open_arms.append(BuildArm())
        if word and open_arms:
            open_arms[-1].enter(f"NOT {condition}" if negated else condition)
        elif line["otherwise"] and open_arms:
            open_arms[-1].sides = open_arms[-1].left
        elif line["end"] and open_arms:
            open_arms.pop()
        sides = frozenset(SIDES).intersection(*(arm.sides for arm in open_arms))
        starts.append((line.end(), sides))
    return starts


_DIRECTIVE = re.compile(
    r"(?m)^[ ]*(?:(?P<end>endif)|(?P<otherwise>else))?[ \t]*"
    r"(?:(?P<word>if(?:eq|neq|def|ndef))\b(?P<condition>[^\n#]*))?$"
)
_IS_OFF = re.compile(r"(?i),[ \t]*\"?(?:0|no|off|false|)\"?[ \t]*\)|\([ \t]*,")


def _sides_at(arms: list[tuple[int, frozenset[Side]]], offset: int) -> frozenset[Side]:
    return arms[bisect_right(arms, offset, key=lambda arm: arm[0]) - 1][1]


def _rule_matches(text: str) -> Iterator[Match]:
    for match in re.finditer(r"(?m)^[^#\n]+", text):
        for word in re.finditer(r"\S+", match[0]):
            start = match.start() + word.start()
            variable = Word(text=word[0], start=start, end=start + len(word[0]))
            yield from word_rule_matches(variable, None)
    for match in _VARIABLE.finditer(text):
        assigned = Word(text=match[2], start=match.start(2), end=match.end(2))
        yield from variable_rule_matches(match[1], match[2].strip(), assigned)
    for match in _RECIPE.finditer(text):
        recipe = re.sub(r"(?m)^\t[@-]", "\t ", _REFERENCE.sub(_as_word, match[0]))
        for rule_match in script_rule_matches(recipe, match.start(), whole=text):
            if rule_match.rule.startswith("DP3") or rule_match.rule in ("HP609", "CT402"):
                yield rule_match


def _as_word(reference: re.Match[str]) -> str:
    """Return a reference to a variable as a word of its length: `$(PIP)` is pip."""
    program = _PROGRAMS.get(reference[1].lower())
    filler = "_" if program is None else " "
    return (program or "").ljust(len(reference[0]), filler)


def _nvcc_alone(text: str) -> Iterator[Match]:
    """Yield the first line that compiles with nvcc, where no line knows hipcc (BL217)."""
    if _HIPCC.search(text):
        return
    depth = 0
    for line in re.finditer(r"(?m)^[^#\n]+", text):
        depth += bool(_CONDITION.match(line[0])) - line[0].lstrip().startswith("endif")
        match = _NVCC.search(line[0])
        if match is not None:
            start, end = line.start() + match.start(), line.start() + match.end()
            shift = -1 if depth > 0 else 0
            yield Match(rule="BL217", start=start, end=end, what="nvcc", shift=shift)
            return


_HIPCC = re.compile(r"(?m)^[^#\n]*\bhipcc\b")
_NVCC = re.compile(r"(?<![\w.-])nvcc(?![\w.-])")
_CONDITION = re.compile(r"\s*(?:ifdef|ifndef|ifeq|ifneq)\b")
