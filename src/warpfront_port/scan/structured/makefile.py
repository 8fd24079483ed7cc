"""Makefiles: flags word by word, the commands of recipes, and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.command_rules import (
    script_rule_matches,
    variable_rule_matches,
    word_rule_matches,
)
from warpfront_port.scan.structured.commands import Arms, Word

_REFERENCE = re.compile(r"\$[({](\w+)[)}]")
_VARIABLE = re.compile(r"(?m)^(?:export\s+|override\s+)?([A-Za-z_]\w*)[^\S\n]*[:?+]?=[^\S\n]*(.*)$")
_RECIPE = re.compile(r"(?m)(?:^\t.*(?:\\\n.*)*\n?)+")
_PROGRAMS = {"pip": "pip", "pip3": "pip", "python": "python", "python3": "python", "py": "python"}
_HIPCC = re.compile(r"(?m)^[^#\n]*\bhipcc\b")
_NVCC = re.compile(r"(?<![\w.-])nvcc(?![\w.-])")
_CONDITION = re.compile(
    r"[^\S\n]*(?P<word>endif|else|(?=if))\b[^\S\n]*(?P<test>ifn?def|ifn?eq)?\b(?P<text>.*)"
)
# The second value of `ifeq ($(CUDA),)`, `ifeq ($(CUDA),0)`, `ifeq "$(CUDA)" ""`.
_VALUE = re.compile(r"""(?:,|["'][^\S\n]+["'])([^,()"']*)[)"']?[^\S\n]*\Z""")
_FALSE = frozenset({"", "0", "no", "NO", "OFF", "off", "false", "False"})


def make_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches in a makefile, without its comments.

    The first line that compiles with nvcc, where no line knows hipcc, is one (BL217).
    """
    nvcc_alone = _HIPCC.search(text) is None
    for start, line, arms in _lines(text):
        nvcc = _NVCC.search(line) if nvcc_alone else None
        if nvcc is not None:
            nvcc_alone = False
            place = Word(text="nvcc", start=start + nvcc.start(), end=start + nvcc.end())
            yield place.match("BL217", shift=-int(arms.conditional))
        for word in re.finditer(r"\S+", line):
            begin, end = start + word.start(), start + word.end()
            yield from word_rule_matches(Word(text=word[0], start=begin, end=end, sides=arms.sides))
    for match in _VARIABLE.finditer(text):
        assigned = Word(text=match[2], start=match.start(2), end=match.end(2))
        yield from variable_rule_matches(match[1], match[2].strip(), assigned)
    for match in _RECIPE.finditer(text):
        recipe = re.sub(r"(?m)^\t[@-]", "\t ", _REFERENCE.sub(_as_word, match[0]))
        for rule_match in script_rule_matches(recipe, match.start()):
            if rule_match.rule.startswith("DP3") or rule_match.rule == "CT402":
                yield rule_match


def _as_word(reference: re.Match[str]) -> str:
    """Return a reference to a variable as a word of its length: `$(PIP)` is pip."""
    program = _PROGRAMS.get(reference[1].lower())
    filler = "_" if program is None else " "
    return (program or "").ljust(len(reference[0]), filler)


def _lines(text: str) -> Iterator[tuple[int, str, Arms]]:
    """Yield the lines without comments and conditions, each with its place and the arms around."""
    arms = Arms()
    for line in re.finditer(r"(?m)^[^#\n]+", text):
        condition = _CONDITION.match(line[0])
        if condition is None:
            yield line.start(), line[0], arms
        elif condition["word"] == "endif":
            arms.close()
        else:
            value = _VALUE.search(condition["text"])
            negated = (condition["test"] or "").startswith("ifn")
            negated ^= value is not None and value[1].strip() in _FALSE
            following = arms.next if condition["word"] == "else" else arms.open
            following(condition["text"], negated=negated)
