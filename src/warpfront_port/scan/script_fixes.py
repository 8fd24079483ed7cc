"""Edits of scripts and Dockerfiles that change a command for AMD and keep NVIDIA's. Pure.

`pip install .` installs the project's requirements, and with them PyPI's torch, which is the one
for CUDA. Where torch is ROCm's the project alone is installed. An install from a list of
requirements is unchanged: without its own requirements the project would not run.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath

from warpfront_port.scan import structured
from warpfront_port.scan.findings import SIDES, Context, Gate, Match, SourceText
from warpfront_port.scan.fix import Fix

_RULE = "DP318"
_ASKED = "python3 -c 'import torch; assert torch.version.hip' 2>/dev/null"
_OF_A_PROJECT = re.compile(
    r"(?:\S+\s+)*?install(?:\s+(?:-e|--editable|--[\w-]+(?:=\S+)?|-[vqU]+|\.{1,2}(?:/\S*)?(?:\[[\w,-]+\])?|/\S+))+"
)
_BEFORE = re.compile(r"(?:\A|[\n;&|]|\bRUN|\bthen|\belse|\bdo)[^\S\n]*\Z")
_AFTER = re.compile(r"[^\S\n]*(?:\n|\Z|&&|;|\|\|)")


def fixes_scripts(path: PurePosixPath) -> bool:
    """Return true if a file of this name is a script or a Dockerfile."""
    return structured.kind_of(path) in ("shell", "dockerfile")


def fix_script(source: SourceText, context: Context) -> Fix | None:
    """Return the script with its installs of a project behind a test for ROCm's torch.

    The result is None without an install, or where an edit would change the script on other
    devices. Text in a here-document is never edited, since it may belong to another program.
    """
    if "<<" in source.text:
        return None
    after = source.text
    places = {
        (match.start, match.end)
        for match in structured.rule_matches(source, context)
        if _is_open(match)
    }
    for start, end in sorted(places, reverse=True):
        command = after[start:end]
        alone = _BEFORE.search(after[:start]) and _AFTER.match(after, end)
        if alone and _OF_A_PROJECT.fullmatch(command):
            amds = re.sub(r"(?<=\s)install(?=\s)", "install --no-deps", command, count=1)
            text = f"if {_ASKED}; then {amds}; else {command}; fi"
            after = after[:start] + text + after[end:]
    edited = SourceText(path=source.path, text=after)
    mended = _found(source, context) - _found(edited, context)
    new = _found(edited, context) - _found(source, context)
    if after == source.text or not mended[_RULE] or new:
        return None
    rules = (_RULE,) * mended[_RULE]
    return Fix(path=source.path, before=source.text, after=after, rules=rules)


def _is_open(match: Match) -> bool:
    return match.rule == _RULE and match.gate is Gate.OPEN and match.sides == frozenset(SIDES)


def _found(source: SourceText, context: Context) -> Counter[str]:
    matches = structured.rule_matches(source, context)
    return Counter(match.rule for match in matches if "amd" in match.sides)
