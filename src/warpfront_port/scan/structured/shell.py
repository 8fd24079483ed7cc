"""Shell text as commands with offsets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import Gate
from warpfront_port.scan.structured.commands import Arms, Command, Word

_TOKEN = re.compile(
    r"""(?xs)
    (?P<splice>\\\r?\n)
    |(?P<space>[^\S\n]+)
    |(?P<comment>(?<![^\s;&|()`])\#[^\n]*)
    |(?P<break>\|\||&&|;;|[;&|\n()`{}]|\$\()
    |(?P<word>(?:[^\s\\'\"`;&|()#$]|\\.|'[^']*'?|\"(?:[^\"\\]|\\.)*+\"?|\$(?!\()|(?<=\S)\#)+)
    |(?P<other>.)
    """
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\((?!\()((?:[^()]|\([^()]*\))*)\)?|`([^`]*)`?")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "in"})
_PREFIXES = frozenset(
    {"sudo", "time", "exec", "nohup", "env", "then", "do", "else", "!", "eval", "-E"}
)
_EXPORTS = frozenset({"export", "declare", "set", "setenv", "ENV", "local", "readonly"})
_DEPTH = 4


def read_commands(text: str, offset: int = 0, depth: int = 0) -> Iterator[Command]:
    """Yield the simple commands of shell text, those inside `$(...)` too.

    `offset` is the place of the text in its file.
    """
    arms, condition = Arms(), ""  # the condition of an `if` while it is read
    for split_words, ending in _split(text, offset):
        words = split_words
        while words and words[0].text in _KEYWORDS:
            condition = _after(arms, words[0].text, condition)
            words = words[1:]
        if words:
            gate = Gate.AVAILABILITY if condition or ending == "||" else Gate.OPEN
            placed = [replace(word, sides=arms.sides, gate=gate) for word in words]
            yield from _commands_of(placed, depth)
            condition += "".join(f"{word.text} " for word in words) if condition else ""


def _after(arms: Arms, keyword: str, condition: str) -> str:
    """Return the condition after a keyword: a space where one begins, "" outside of one."""
    if keyword == "if":
        arms.open()
    elif keyword == "fi":
        arms.close()
    elif keyword == "then" and condition:
        arms.next(condition.strip())
    elif keyword in {"else", "elif"}:
        arms.next()
    return " " if keyword in {"if", "elif"} else condition * (keyword not in {"then", "else", "fi"})


def _split(source: str, offset: int) -> Iterator[tuple[list[Word], str]]:
    words: list[Word] = []
    for token in _TOKEN.finditer(source):
        kind = token.lastgroup
        if kind == "word":
            text = token[0]
            if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
                text = text[1:-1]
            else:
                text = re.sub(r"""(?<!\\)['"]""", "", text).replace("\\\n", "")
            words.append(Word(text=text, start=token.start() + offset, end=token.end() + offset))
        elif kind == "break":
            yield words, token[0]
            words = []
    yield words, "\n"


def _commands_of(words: list[Word], depth: int) -> Iterator[Command]:
    exporting = words[0].text in _EXPORTS
    assignments = [w for w in words[1:] if exporting and ASSIGNMENT.fullmatch(w.text)]
    rest = words
    while rest and not exporting:
        if ASSIGNMENT.fullmatch(rest[0].text):
            assignments.append(rest[0])
        elif rest[0].text not in _PREFIXES:
            break
        rest = rest[1:]
    yield Command(
        name=rest[0].text.rsplit("/", 1)[-1] if rest else "",
        words=tuple(rest),
        start=words[0].start,
        sides=words[0].sides,
        assignments=tuple(assignments),
    )
    for word in words if depth < _DEPTH else ():
        for inner in _SUBSTITUTION.finditer(word.text):
            command = inner[1] or inner[2] or ""
            yield from read_commands(command, word.start + inner.start(), depth + 1)
