"""Dockerfiles: bases, variables, and the shell text of RUN. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.shell import Word, script_rule_matches, variable_rule_matches
from warpfront_port.scan.words import GFX, NVIDIA_IMAGE

_INSTRUCTION = re.compile(r"[^\S\n]*(?P<name>[A-Za-z]+)(?P<body>[^\S\n][^\n]*)?")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\\]*)")
_OLD_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s+(.*)", re.DOTALL)
_FROM = re.compile(r"(?:\s+--\S+)*\s+(\S+)")
_ARCH_NAME = re.compile(r"(?i).*(?:ARCH|GFX|TARGET)\w*\Z")
_COMMENT_LINE = re.compile(r"[^\S\n]*#[^\n]*\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """`name` in capitals; `body` as written, comment lines blanked, at `start` of the file."""

    name: str
    body: str
    start: int


def read_instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, including continuation lines and here-documents."""
    offset = 0
    while offset < len(text):
        match = _INSTRUCTION.match(text, offset)
        if match is None:
            offset = _line_end(text, offset)
            continue
        end = _instruction_end(text, offset)
        start = match.end("name")
        yield Instruction(name=match["name"].upper(), body=_body(text[start:end]), start=start)
        offset = end


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end + 1


def _instruction_end(text: str, offset: int) -> int:
    end = _line_end(text, offset)
    while end < len(text):
        line = text[offset:end]
        if line.rstrip("\r\n \t").endswith("\\") or _COMMENT_LINE.fullmatch(line):
            offset, end = end, _line_end(text, end)
            continue
        break
    heredoc = _HEREDOC.search(text, offset, end)
    while heredoc is not None and end < len(text):
        offset, end = end, _line_end(text, end)
        if text[offset:end].strip() == heredoc[1]:
            break
    return end


def _body(text: str) -> str:
    """Return the body without comment lines between continued lines; lengths stay."""
    lines = text.splitlines(keepends=True)
    body = lines[:1]
    for line in lines[1:]:
        comment = _COMMENT_LINE.fullmatch(line)
        body.append(" " * (len(line) - 2) + "\\\n" if comment and len(line) > 2 else line)
    return "".join(body)


def dockerfile_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in a Dockerfile."""
    stages: set[str] = set()
    for instruction in read_instructions(text):
        body, start = instruction.body, instruction.start
        if instruction.name == "FROM":
            yield from _base(body, start, stages)
        elif instruction.name in {"ENV", "ARG"}:
            yield from _variables(instruction)
        elif instruction.name in {"RUN", "CMD", "ENTRYPOINT"}:
            building = instruction.name == "RUN"
            script = re.sub(r"--(?:mount|network|security)=\S+", lambda m: " " * len(m[0]), body)
            if script.lstrip().startswith("["):
                script = re.sub(r"[\[\],\"]", " ", script)  # the list form: its words are the same
            yield from script_rule_matches(script, start, whole=text, building=building)
        elif instruction.name in {"COPY", "ADD"}:
            copied = re.search(r"--from=(\S+)", body)
            if copied is not None and NVIDIA_IMAGE.fullmatch(copied[1]):
                yield _rule_match("CT401", start + copied.start(1), copied[1])


def _base(body: str, start: int, stages: set[str]) -> Iterator[Match]:
    match = _FROM.match(body)
    if match is None:
        return
    named = re.search(r"(?i)\sAS\s+(\S+)", body)
    if match[1] not in stages and NVIDIA_IMAGE.fullmatch(match[1]):
        yield _rule_match("CT401", start + match.start(1), match[1])
    if named is not None:
        stages.add(named[1])


def _variables(instruction: Instruction) -> Iterator[Match]:
    body, start = instruction.body, instruction.start
    pairs = list(_PAIR.finditer(body))
    if not pairs and instruction.name == "ENV":
        pairs = list(_OLD_PAIR.finditer(body))
    for pair in pairs:
        name, value = pair[1], pair[2].strip("\"'\n \t")
        word = Word(text=pair[0], start=start + pair.start(), end=start + pair.end())
        yield from variable_rule_matches(name, value, word)
        if instruction.name == "ARG" and NVIDIA_IMAGE.fullmatch(value):
            yield _rule_match("CT401", word.start, value)
        if instruction.name == "ENV" and _ARCH_NAME.match(name) and GFX.search(value):
            yield _rule_match("BL203", word.start, pair[0].strip())


def _rule_match(rule: str, start: int, snippet: str) -> Match:
    return Match(rule=rule, start=start, end=start + len(snippet), what=snippet[:100])
