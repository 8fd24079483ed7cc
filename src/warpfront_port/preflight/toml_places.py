"""The place of a value in a TOML text: `tomllib` reads values and drops their lines. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.errors import InputError

_LINE = re.compile(r"\(at line (\d+)")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*',
    re.DOTALL,
)
_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*([^\]\n]+?)[ \t]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlPlace:
    """A value's line (1-based), that line's text, and the value as written."""

    line: int
    end_line: int
    source: str
    literal: str


class TomlText:
    """A TOML document that knows where its strings are. Raises `InputError` for broken TOML."""

    def __init__(self, text: str, *, path: str) -> None:
        self.path = path
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        try:
            self.values: Mapping[str, Any] = tomllib.loads(text)
        except ValueError as error:  # a number of 5,000 digits is one, too
            # tomllib quotes keys and characters of the file: only the place is passed on.
            match = _LINE.search(str(error))
            where = f"{path}:{match[1]}" if match else path
            raise InputError(f"{where}: broken TOML") from None
        except RecursionError:
            raise InputError(f"{path}: nested too deeply to be read") from None
        self._text = text
        self._lines = text.split("\n")
        self._headers = [(match.start(), _bare(match[1])) for match in _HEADER.finditer(text)]
        self._strings = [
            (match.start(), match.end(), _value(match[0]))
            for match in _TOKEN.finditer(text)
            if not match[0].startswith("#")
        ]
        self._used: set[int] = set()

    def string(self, value: str, *, table: str) -> TomlPlace:
        """Return the next string `value` at or below `[table]`; the file where it is unclear."""
        begin = self._begin(table)
        for start, end, text in self._strings:
            if start >= begin and start not in self._used and text == value:
                self._used.add(start)
                return self._place(start, end)
        return TomlPlace(line=1, end_line=1, source=self._lines[0], literal="")

    def key(self, name: str, *, table: str) -> TomlPlace:
        """Return the line where `name` gets its value in `[table]`, or its own `[table.name]`."""
        begin = self._begin(table)
        quoted = re.escape(name)
        pattern = (
            rf"^[ \t]*[\"']?{quoted}[\"']?[ \t]*[.=][^\n]*|^\[+{re.escape(table)}\.{quoted}\]+"
        )
        match = re.compile(pattern, re.MULTILINE).search(self._text, begin)
        if match is None:
            return TomlPlace(line=1, end_line=1, source=self._lines[0], literal="")
        return self._place(match.start(), match.end())

    def _begin(self, table: str) -> int:
        """Return the beginning of `[table]` or of the nearest table above it."""
        bare_name = _bare(table)
        while bare_name:
            for start, name in self._headers:
                if name == bare_name:
                    return start
            bare_name = bare_name.rpartition(".")[0]
        return 0

    def _place(self, start: int, end: int) -> TomlPlace:
        line = self._text.count("\n", 0, start) + 1
        return TomlPlace(
            line=line,
            end_line=self._text.count("\n", 0, end) + 1,
            source=self._lines[line - 1],
            literal=self._text[start:end],
        )


def _bare(header: str) -> str:
    return re.sub(r"[\"'\s]", "", header)


def _value(literal: str) -> str:
    try:
        return str(tomllib.loads(f"x = {literal}")["x"])
    except tomllib.TOMLDecodeError:
        return literal
