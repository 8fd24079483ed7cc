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
_RAW = (
    r"(?:(?<=\bR)|(?<=\b[uUL]R)|(?<=\bu8R))"
    r'"(?P<fence>[^()\\\s]{0,16})\((?>[\s\S]*?\)(?P=fence)"|[\s\S]*)'
)
_DIRECTIVE = re.compile(
    rf"(?:\#|%:)(?:[^\n\\/\"']++|{_ESCAPED}|{_BLOCK_COMMENT}|{_LINE_COMMENT}|{_STRING}|'|/)*+"
)
_HIDING = re.compile(rf"{_LINE_COMMENT}|{_BLOCK_COMMENT}|{_RAW}|{_STRING}|{_CHARACTER}|\#|%:")
_NUMBER_BEFORE = re.compile(r"(?<![\w'])\d[\w']*\Z")
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


def blank(text: str) -> tuple[str, tuple[Directive, ...]]:
    """Return the code of a file, and its directives in order.

    The code is as long as the text, with its line ends; bodies of macros stay in it.
    """
    parts: list[str] = []
    directives: list[Directive] = []
    position = 0
    while (match := _HIDING.search(text, position)) is not None:
        (start, end), hidden = match.span(), match[0]
        if hidden in ("#", "%:"):
            before = text[text.rfind("\n", 0, start) + 1 : start].rstrip()
            if not before or before.endswith("*/"):
                whole = _DIRECTIVE.match(text, start)
                assert whole is not None, "the expression begins with the # that was found"
                end, hidden = whole.end(), whole[0]
                line = _SPLICE.sub(" ", _without_comments(hidden))
                name = _DIRECTIVE_NAME.match(line)
                assert name is not None, "every part of the name may be empty"
                body = line[name.end() :].strip()
                directives.append(Directive(name=name[1], body=body, start=start, end=end))
                if name[1] == "define":  # its body is code that some line will become
                    hidden = _LITERAL.sub(lambda m: _quoted(m[0]), _without_comments(hidden))
                    hidden = _SPLICE.sub(lambda m: " " + m[0][1:], hidden)
                else:
                    hidden = _spaces(hidden)
        elif hidden[0] == "'" and _NUMBER_BEFORE.search(text, max(0, start - 20), start):
            end, hidden = start + 1, "'"
        elif hidden[0] in "'\"":
            hidden = _quoted(hidden)
        else:
            hidden = _spaces(hidden)
        parts += (text[position:start], hidden)
        position = end
    parts.append(text[position:])
    return "".join(parts), tuple(directives)


def _spaces(text: str) -> str:
    """Return as many spaces as `text` has characters, with its line ends."""
    if "\n" not in text and "\r" not in text:
        return " " * len(text)
    return _NOT_NEWLINE.sub(" ", text)


def _quoted(literal: str) -> str:
    """Return the literal with spaces between its first and its last character."""
    return literal[:1] + _spaces(literal[1:-1]) + literal[-1:] if len(literal) > 1 else literal


def _without_comments(text: str) -> str:
    """Return `text` with its comments as spaces. Strings are unchanged."""
    return _COMMENT_OR_STRING.sub(lambda m: m[0] if m[0][0] == '"' else _spaces(m[0]), text)
