"""Makefiles: flags word by word, the commands of recipes, and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.arms import Arms
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
    for line, arms in _lines(text):
        for word in re.finditer(r"\S+", line[0]):
            start = line.start() + word.start()
            variable = Word(text=word[0], start=start, end=start + len(word[0]))
            for rule_match in word_rule_matches(variable, None):
                yield replace(rule_match, sides=rule_match.sides & arms.sides)
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
    for line, arms in _lines(text):
        match = _NVCC.search(line[0])
        if match is not None:
            start, end = line.start() + match.start(), line.start() + match.end()
            shift = -1 if arms.conditional else 0
            yield Match(rule="BL217", start=start, end=end, what="nvcc", shift=shift)
            return


def _lines(text: str) -> Iterator[tuple[re.Match[str], Arms]]:
    """Yield the lines without comments and conditions, each with the arms around it."""
    arms = Arms()
    for line in re.finditer(r"(?m)^[^#\n]+", text):
        condition = _CONDITION.match(line[0])
        if condition is None:
            yield line, arms
        elif condition["word"] == "endif":
            arms.close()
        else:
            negated = (condition["test"] or "").startswith("ifn")
            value = _VALUE.search(condition["text"])
            negated ^= value is not None and value[1].strip() in _FALSE
            if condition["word"] == "else":
                arms.next(condition["text"], negated=negated)
            else:
                arms.open(condition["text"], negated=negated)


_HIPCC = re.compile(r"(?m)^[^#\n]*\bhipcc\b")
_NVCC = re.compile(r"(?<![\w.-])nvcc(?![\w.-])")
_CONDITION = re.compile(
    r"[^\S\n]*(?P<word>endif|else|(?=if))\b[^\S\n]*(?P<test>ifn?def|ifn?eq)?\b(?P<text>.*)"
)
# The second value of `ifeq ($(CUDA),)`, `ifeq ($(CUDA),0)`, `ifeq "$(CUDA)" ""`.
_VALUE = re.compile(r"""(?:,|["'][^\S\n]+["'])([^,()"']*)[)"']?[^\S\n]*\Z""")
_FALSE = frozenset({"", "0", "no", "NO", "OFF", "off", "false", "False"})
