"""C, C++, CUDA and HIP text with comments and literals blanked, for rules to search. Pure.

`blank` returns code of the same length with comments, the insides of literals and
preprocessor lines as spaces. An offset in it is therefore an offset in the file. It takes one
pass of expressions with possessive or atomic alternatives, so a character is read a bounded
number of times.

Trigraphs, and identifiers that a backslash splits over two lines, are not joined. Compilers warn
about the first, and the second is not used in practice by any project.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Span = tuple[int, int]

# A backslash takes the next character with it, a line end too; what is never closed runs to the
# end of the line or, for a block comment and a raw string, of the file.
_ESCAPED = r"\\(?:\r?\n|[^\r\n])?+"
_LINE_COMMENT = rf"//(?:[^\n\\]++|{_ESCAPED})*+"
_BLOCK_COMMENT = r"/\*(?>[\s\S]*?\*/|[\s\S]*)"
_STRING = rf'"(?:[^"\\\n]++|{_ESCAPED})*+"?+'
_CHARACTER = rf"'(?:[^'\\\n]++|{_ESCAPED})*+'?+"
_RAW = r'R"(?P<fence>[^()\\\s]{0,16})\((?>[\s\S]*?\)(?P=fence)"|[\s\S]*)'
_DIRECTIVE = (
    rf"(?:\#|%:)(?:[^\n\\/\"']++|{_ESCAPED}|{_BLOCK_COMMENT}|{_LINE_COMMENT}|{_STRING}|'|/)*+"
)

_HIDING = re.compile(rf"{_LINE_COMMENT}|{_BLOCK_COMMENT}|[\"'#]|%:")
_OPENED = {"#": _DIRECTIVE, "%:": _DIRECTIVE, '"': _STRING, "'": _CHARACTER, "R": _RAW}
_CLOSED = {opening: re.compile(pattern) for opening, pattern in _OPENED.items()}
_RAW_PREFIX = re.compile(r"(?:u8|[uUL])?R\Z")
_WORD_BEFORE = re.compile(r"[\w']*\Z")
_DIRECTIVE_NAME = re.compile(r"(?:\#|%:)\s*+(\w*+)")
_NOT_NEWLINE = re.compile(r"[^\r\n]")
_SPLICE = re.compile(r"\\\r?\n")
_COMMENT_OR_STRING = re.compile(rf"{_LINE_COMMENT}|{_BLOCK_COMMENT}|{_STRING}")
_LITERAL = re.compile(rf"{_STRING}|(?<![0-9A-Fa-f]){_CHARACTER}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """A preprocessor line with continuation lines joined and comments removed.

    `name` is without the #, `body` is the text after it; `start` and `end` are file offsets.
    """

    name: str
    body: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blanked:
    """`code` is as long as the text, with its line ends; bodies of macros stay in it. `literals`
    are the offsets of strings and characters, quotes included.
    """

    code: str
    directives: tuple[Directive, ...]
    literals: tuple[Span, ...]


def blank(text: str) -> Blanked:
    """Return the code of a file, its directives in order, and the spans of its literals."""
    parts: list[str] = []
    directives: list[Directive] = []
    literals: list[Span] = []
    position = 0
    line_is_empty = True
    while (match := _HIDING.search(text, position)) is not None:
        start, end = match.span()
        before = text[position:start]
        line_is_empty = not before.rpartition("\n")[2].strip() and (line_is_empty or "\n" in before)
        opening = match[0]
        if opening in ("#", "%:") and line_is_empty:
            directives.append(read_directive(text, start))
            end = directives[-1].end
            hidden = blank_directive(text, directives[-1])
        elif opening in ("'", '"'):
            end = (string_end if opening == '"' else character_end)(text, start)
            literals.append((start, end))
            hidden = quoted(text[start:end])
        else:
            hidden = opening if len(opening) <= 2 and opening[0] != "/" else spaces(opening)
        line_is_empty = line_is_empty and opening.startswith("/")
        parts += (before, hidden)
        position = end
    parts.append(text[position:])
    return Blanked(code="".join(parts), directives=tuple(directives), literals=tuple(literals))


def spaces(text: str) -> str:
    """Return as many spaces as `text` has characters, with its line ends."""
    if "\n" not in text and "\r" not in text:
        return " " * len(text)
    return _NOT_NEWLINE.sub(" ", text)


def quoted(literal: str) -> str:
    """Return the literal with spaces between its first and its last character."""
    return literal[:1] + spaces(literal[1:-1]) + literal[-1:] if len(literal) > 1 else literal


def string_end(text: str, start: int) -> int:
    """Return the end of the string that opens at `start`. A raw one has no escapes."""
    if text[start - 1 : start] == "R":
        prefix = _WORD_BEFORE.search(text, max(0, start - 20), start)
        raw = _CLOSED["R"].match(text, start - 1)
        if raw is not None and prefix is not None and _RAW_PREFIX.fullmatch(prefix[0]):
            return raw.end()
    match = _CLOSED['"'].match(text, start)
    assert match is not None, "the expression begins with the quote that was found"
    return match.end()


def character_end(text: str, start: int) -> int:
    """Return the end of the character that opens at `start`. The quote in 1'000 opens none."""
    before = _WORD_BEFORE.search(text, max(0, start - 20), start)
    if before is not None and before[0][:1].isdigit():
        return start + 1
    match = _CLOSED["'"].match(text, start)
    assert match is not None, "the expression begins with the quote that was found"
    return match.end()


def read_directive(text: str, start: int) -> Directive:
    """Return the preprocessor line with its # at `start`."""
    match = _CLOSED["#"].match(text, start)
    assert match is not None, "the expression begins with the # that was found"
    line = _SPLICE.sub(" ", without_comments(match[0]))
    name = _DIRECTIVE_NAME.match(line)
    assert name is not None, "every part of the name may be empty"
    return Directive(name=name[1], body=line[name.end() :].strip(), start=start, end=match.end())


def blank_directive(text: str, directive: Directive) -> str:
    """Blank a directive, except the body of a macro, which is code that some line will become."""
    line = text[directive.start : directive.end]
    if directive.name != "define":
        return spaces(line)
    code = _LITERAL.sub(lambda match: quoted(match[0]), without_comments(line))
    return _SPLICE.sub(lambda match: " " + match[0][1:], code)


def without_comments(text: str) -> str:
    """Return `text` with its comments as spaces. Strings are unchanged."""
    if "/" not in text:
        return text
    return _COMMENT_OR_STRING.sub(
        lambda match: match[0] if match[0][0] == '"' else spaces(match[0]), text
    )
