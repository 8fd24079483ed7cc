"""Commands and settings inside other text: Markdown, JSON, INI and .env. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.findings import Match
from warpfront_port.scan.setting_rules import WORDS
from warpfront_port.scan.structured.command_rules import script_rule_matches, variable_rule_matches
from warpfront_port.scan.structured.commands import Word

_BLOCK = re.compile(
    r"(?ms)^[ \t]*```[ \t]*(?:bash|sh|shell|zsh|console|shell-session)?[ \t]*\n(.*?)^[ \t]*```"
)
_PROMPT = re.compile(r"(?m)^([ \t]*)[$%>#](?= )")
JSON = re.compile(
    r"\"(?P<name>[\w.\-]{1,80})\"\s*:\s*(?:\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|(?P<bare>[\w.+-]+))"
)
LINES = re.compile(
    r"(?m)^[^\S\n]*(?:export\s+|Environment=\"?)?(?P<name>[A-Za-z_][\w.\-]*)[^\S\n]*[=:][^\S\n]*"
    r"(?:\"(?P<text>[^\"\n]*)\"|(?P<bare>[^\"\n]*))"
)
_COMMAND = re.compile(r"(?i).*(?:command|script|cmd|commands|install_command)\Z|run|commands_pre")
_INTERESTING = re.compile(r"(?i)alloc_conf|torchinductor|\bpip\b|/whl/cu|" + "|".join(WORDS))


def markdown_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches in blocks of shell commands, with or without prompts."""
    for block in _BLOCK.finditer(text):
        yield from script_rule_matches(_PROMPT.sub(r"\1 ", block[1]), block.start(1))


def pair_rule_matches(text: str, form: re.Pattern[str]) -> Iterator[Match]:
    """Yield the matches in pairs of a name and a value, which `form` finds."""
    for match in form.finditer(text) if _INTERESTING.search(text) else ():
        kind = "bare" if match["text"] is None else "text"
        value = Word.found(match, kind)
        yield from variable_rule_matches(match["name"], value.text.strip(), value)
        if _COMMAND.fullmatch(match["name"]):
            yield from script_rule_matches(value.text, value.start)
