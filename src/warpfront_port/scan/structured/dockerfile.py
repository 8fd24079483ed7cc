"""Dockerfiles: bases, variables, and the shell text of RUN. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import Match
from warpfront_port.scan.structured.command_rules import script_rule_matches, variable_rule_matches
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import NVIDIA_IMAGE

# Lines that a backslash continues, with comments and empty lines between them.
_INSTRUCTION = re.compile(
    r"(?m)^[^\S\n]*(?P<name>[A-Za-z]+)(?=[\s\\])"
    r"(?P<body>(?:[^\n]*\\[^\S\n]*\n(?:[^\S\n]*(?:#[^\n]*)?\n)*)*[^\n]*\n?)"
)
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\\]*)")
_FROM = re.compile(r"(?:\s+--\S+)*\s+(\S+)(?:(?i:\s+AS\s+)(\S+))?")
_USED = re.compile(r"\$\{?(\w+)")
_COMMENT_LINE = re.compile(r"(?m)(?<=\n)[^\S\n]*#[^\n]*(?=\n)")


def read_instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the name in capitals of each instruction, its body, and where that begins.

    A body has its continuation lines; comment lines are blanked.
    """
    for match in _INSTRUCTION.finditer(text):
        body = _COMMENT_LINE.sub(lambda m: " " * (len(m[0]) - 1) + "\\", match["body"])
        yield match["name"].upper(), body, match.start("body")


def dockerfile_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in a Dockerfile."""
    stages: set[str] = set()
    arguments: dict[str, Word] = {}
    for name, body, start in read_instructions(text):
        image: re.Match[str] | None = None
        if name == "FROM" and (image := _FROM.match(body)):
            stages.add(image[2] or "")
            used = (arguments.pop(name, None) for name in _USED.findall(image[1]))
            yield from (word.match("CT401") for word in used if word)
        elif name in {"ENV", "ARG"}:
            for pair in _PAIR.finditer(body):
                value = Word.found(pair, offset=start)
                value = replace(value, text=pair[2].strip("\"'\n \t"))
                yield from variable_rule_matches(pair[1], value.text, value)
                if name == "ARG" and NVIDIA_IMAGE.fullmatch(value.text):
                    arguments[pair[1]] = value
        elif name in {"RUN", "CMD", "ENTRYPOINT"}:
            listed = body.lstrip().startswith("[")  # the list form: its words are the same
            script = re.sub(r"[\[\],\"]", " ", body) if listed else body
            yield from script_rule_matches(script, start)
        if image is not None and image[1] not in stages and NVIDIA_IMAGE.fullmatch(image[1]):
            yield Word.found(image, 1, start).match("CT401")
