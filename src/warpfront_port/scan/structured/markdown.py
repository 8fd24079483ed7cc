"""Pages that tell how a project is built and run: the commands in their blocks of code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.command_rules import script_rule_matches

_BLOCK = re.compile(
    r"(?ms)^[ \t]*```[ \t]*(?:bash|sh|shell|zsh|console|shell-session)?[ \t]*\n(.*?)^[ \t]*```"
)
_PROMPT = re.compile(r"(?m)^([ \t]*)[$%>#](?= )")


def markdown_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches in blocks of shell commands, with or without prompts."""
    for block in _BLOCK.finditer(text):
        yield from script_rule_matches(_PROMPT.sub(r"\1 ", block[1]), block.start(1))
