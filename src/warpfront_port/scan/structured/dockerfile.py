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


def dockerfile_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in a Dockerfile.

    An argument is an image where a stage begins with it.
    """
    stages: set[str] = set()
    arguments: dict[str, Word] = {}
    for match in _INSTRUCTION.finditer(text):
        name, start = match["name"].upper(), match.start("body")
        body = _COMMENT_LINE.sub(lambda m: " " * (len(m[0]) - 1) + "\\", match["body"])
        if name == "FROM" and (begun := _FROM.match(body)):
            bases = [arguments.pop(n) for n in _USED.findall(begun[1]) if n in arguments]
            bases += () if begun[1] in stages else (Word.found(begun, 1, start),)
            images = (base for base in bases if NVIDIA_IMAGE.fullmatch(base.text))
            yield from (image.match("CT401") for image in images)
            stages.add(begun[2] or "")
        elif name in {"ENV", "ARG"}:
            for pair in _PAIR.finditer(body):
                word = Word.found(pair, offset=start)
                value = replace(word, text=pair[2].strip("\"'\n \t"))
                yield from variable_rule_matches(pair[1], value.text, word)
                arguments |= {pair[1]: value} if name == "ARG" else {}
        elif name in {"RUN", "CMD", "ENTRYPOINT"}:
            listed = body.lstrip().startswith("[")  # the list form: its words are the same
            script = re.sub(r"[\[\],\"]", " ", body) if listed else body
            yield from script_rule_matches(script, start)
