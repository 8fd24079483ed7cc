"""Files of names and values: JSON, INI, .env and systemd's units. Pure.

They are read for the settings that they give and the commands that they hold, pair by pair; what a
file is otherwise about is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront.port.scan.findings import Sighting
from warpfront.port.scan.setting_rules import WORDS
from warpfront.port.scan.structured.shell import Word, script_sightings, variable_sightings

_JSON = re.compile(
    r"\"(?P<name>[\w.\-]{1,80})\"\s*:\s*(?:\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|(?P<bare>[\w.+-]+))"
)
_LINE = re.compile(
    r"(?m)^[^\S\n]*(?:export\s+|Environment=\"?)?(?P<name>[A-Za-z_][\w.\-]*)[^\S\n]*[=:][^\S\n]*"
    r"(?:\"(?P<text>[^\"\n]*)\"|(?P<bare>[^\"\n]*))"
)
_COMMAND = re.compile(r"(?i).*(?:command|script|cmd|commands|install_command)\Z|run|commands_pre")
_INTERESTING = re.compile(r"(?i)alloc_conf|torchinductor|\bpip\b|/whl/cu|" + "|".join(WORDS))


def json_sightings(text: str) -> Iterator[Sighting]:
    """The pairs of JSON text."""
    yield from _pairs(text, _JSON)


def line_sightings(text: str) -> Iterator[Sighting]:
    """The pairs of a file that has one a line."""
    yield from _pairs(text, _LINE)


def _pairs(text: str, form: re.Pattern[str]) -> Iterator[Sighting]:
    if _INTERESTING.search(text) is None:
        return
    for match in form.finditer(text):
        kind = "bare" if match["text"] is None else "text"
        value = Word(text=match[kind], start=match.start(kind), end=match.end(kind))
        yield from variable_sightings(match["name"], value.text.strip(), value, whole=text)
        if _COMMAND.fullmatch(match["name"]):
            yield from script_sightings(value.text, value.start, whole=text)
