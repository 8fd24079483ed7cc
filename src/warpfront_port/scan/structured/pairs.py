"""Files of names and values: JSON, INI, .env and systemd's units. Pure.

Their settings and commands are read pair by pair, whatever the purpose of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from warpfront_port.scan.findings import Match
from warpfront_port.scan.setting_rules import WORDS
from warpfront_port.scan.structured.command_rules import script_rule_matches, variable_rule_matches
from warpfront_port.scan.structured.commands import Word

_JSON = re.compile(
    r"\"(?P<name>[\w.\-]{1,80})\"\s*:\s*(?:\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|(?P<bare>[\w.+-]+))"
)
_LINE = re.compile(
    r"(?m)^[^\S\n]*(?:export\s+|Environment=\"?)?(?P<name>[A-Za-z_][\w.\-]*)[^\S\n]*[=:][^\S\n]*"
    r"(?:\"(?P<text>[^\"\n]*)\"|(?P<bare>[^\"\n]*))"
)
_FORMS = {"json": _JSON, "lines": _LINE}
_COMMAND = re.compile(r"(?i).*(?:command|script|cmd|commands|install_command)\Z|run|commands_pre")
_INTERESTING = re.compile(r"(?i)alloc_conf|torchinductor|\bpip\b|/whl/cu|" + "|".join(WORDS))


def pair_rule_matches(text: str, *, form: Literal["json", "lines"]) -> Iterator[Match]:
    """Yield the matches in pairs of JSON text, or of a file with one pair a line."""
    if _INTERESTING.search(text) is None:
        return
    for match in _FORMS[form].finditer(text):
        kind = "bare" if match["text"] is None else "text"
        value = Word(text=match[kind], start=match.start(kind), end=match.end(kind))
        yield from variable_rule_matches(match["name"], value.text.strip(), value)
        if _COMMAND.fullmatch(match["name"]):
            yield from script_rule_matches(value.text, value.start)
