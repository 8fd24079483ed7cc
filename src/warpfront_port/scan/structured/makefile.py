"""Makefiles: flags word by word, the commands of recipes, and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from warpfront_port.scan.findings import Match, Side
from warpfront_port.scan.structured.command_rules import (
    script_rule_matches,
    word_rule_matches,
)
from warpfront_port.scan.structured.commands import Arms, Word

_REFERENCE = re.compile(r"\$[({]([\w.-]+)(?::[^(){}]*)?[)}]")
_RECIPE = re.compile(r"(?m)(?:^\t.*(?:\\\n.*)*\n?)+")
_HIPCC = re.compile(r"(?m)^[^#\n]*\bhipcc\b")
# To ask for nvcc compiles nothing.
_NVCC = re.compile(r"(?<![\w.-])(?<!which )(?<!command -v )nvcc(?![\w.-])")
_RUNS_NVCC = re.compile(rf"(?:\$[({{]NVCC[)}}]|{_NVCC.pattern})(?!\s+(?:--version|-V)\b)")
_CONDITION = re.compile(
    r"[^\S\n]*(?P<word>endif|else|(?=if))\b[^\S\n]*(?P<test>ifn?def|ifn?eq)?\b(?P<text>.*)"
)
# The second value of `ifeq ($(CUDA),)`, `ifeq ($(CUDA),0)`, `ifeq "$(CUDA)" ""`.
_VALUE = re.compile(r"""(?:,|["'][^\S\n]+["'])([^,()"']*)[)"']?[^\S\n]*\Z""")


class _Line(NamedTuple):
    """A line: its place and text, its sides, and whether a condition is around."""

    start: int
    text: str
    sides: frozenset[Side]
    conditional: bool


_FALSE = frozenset({"", "0", "no", "NO", "OFF", "off", "false", "False"})


def make_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches in a makefile, without its comments.

    The first line that compiles with nvcc, where no line knows hipcc, is one (BL217). With hipcc,
    what nvcc runs with is NVIDIA's.
    """
    beside_hipcc = _HIPCC.search(text) is not None
    nvcc_alone = not beside_hipcc and "nvcc" in text
    for start, line, sides, conditional in _lines(text, beside_hipcc=beside_hipcc):
        nvcc = _RUNS_NVCC.search(line) if nvcc_alone else None
        if nvcc is not None:
            nvcc_alone = False
            yield Word.found(nvcc, offset=start).match("BL217", shift=-int(conditional))
        for word in re.finditer(r"\S+", line):
            placed = replace(Word.found(word, offset=start), sides=sides)
            yield from word_rule_matches(placed)
    for match in _RECIPE.finditer(text):
        words = _REFERENCE.sub(lambda m: "_" * len(m[0]), match[0])
        recipe = re.sub(r"(?m)^\t[@-]", "\t ", words)
        for rule_match in script_rule_matches(recipe, match.start()):
            if rule_match.rule.startswith("DP3") or rule_match.rule == "CT402":
                yield rule_match


def _lines(text: str, *, beside_hipcc: bool) -> Iterator[_Line]:
    """Yield the lines without comments and conditions."""
    arms, depth = Arms(), 0
    for line in re.finditer(r"(?m)^[^#\n]+", text):
        condition = _CONDITION.match(line[0])
        if condition is None:
            nvccs = beside_hipcc and _RUNS_NVCC.search(line[0])
            sides = arms.sides & {"nvidia"} if nvccs else arms.sides
            yield _Line(line.start(), line[0], sides, depth > 0)
        elif condition["word"] == "endif":
            arms.close()
            depth -= 1
        else:
            value = _VALUE.search(condition["text"])
            negated = (condition["test"] or "").startswith("ifn")
            negated ^= value is not None and value[1].strip() in _FALSE
            if condition["word"] == "else":
                arms.next(condition["text"], negated=negated)
            else:
                arms.open(condition["text"], negated=negated)
                depth += 1
