"""YAML at the edge of trust: what is refused, where, and how fast."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import MatrixError
from warpfront.system.document import (
    DEPTH_LIMIT,
    NODE_LIMIT,
    SIZE_LIMIT_CHARACTERS,
    Unquoted,
    checked,
    read_document,
)
from warpfront.system.strict_values import strict_dataclass

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
# Each level is an alias of the one before; values of a duplicate key are not read where they are.
NESTED = "a: &a0 [x]\n" + "".join(f"a: &a{n} [*a{n - 1}]\n" for n in range(1, 1000)) + "b: *a999\n"


def refusal(text: str) -> str:
    """Why `text` is refused, or "" if it is not."""
    try:
        return read_document(text, path="f.yaml").error.message
    except MatrixError as error:
        return error.message


def test_values_and_their_lines_are_read() -> None:
    document = read_document("a: 1\nb:\n  - x\n  - {c: true}\n", path="f.yaml")
    assert document.value == {"a": 1, "b": ["x", {"c": True}]}
    assert document.problems == []
    assert document.line(("b", 1, "c")) == 4
    assert document.line(("b", 0, "missing", "deeper")) == 3


def test_windows_line_ends_are_read() -> None:
    assert read_document("a: x\r\nb: y\r\n", path="f.yaml").value == {"a": "x", "b": "y"}


@pytest.mark.parametrize(
    ("scalar", "kind"),
    [
        ("12.9", "float"),
        ("3.10", "float"),
        ("9e1", "str"),
        ("1_000", "int"),
        ("010", "int"),
        ("0x1F", "int"),
        ("12:30", "int"),
        ("no", "bool"),
        ("on", "bool"),
        ("2026-11-21", "timestamp"),
        ("~", "null"),
        ("", "null"),
    ],
)
def test_what_yaml_reads_as_something_else_is_no_string(scalar: str, kind: str) -> None:
    value = read_document(f"a: {scalar}\n", path="f.yaml").value
    expected = scalar if kind == "str" else Unquoted(text=scalar, kind=kind)
    assert value == {"a": expected}


def test_a_key_that_yaml_calls_a_boolean_is_named_as_it_was_written() -> None:
    assert read_document("on: torch\n", path="f.yaml").value == {"on": "torch"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: duplicate key `a` (first on line 1)"),
        ("a: {b: 1,\n b: 2}\n", "f.yaml:2: duplicate key `b` (first on line 1)"),
        ("x:\n  3.10: y\n", "f.yaml:2: key `3.10` is not read as a string"),
        ("a:\n  ? [b]\n  : c\n", "f.yaml:2: a key must be a string"),
        ("a: &a {b: c}\nd:\n  <<: *a\n", "f.yaml:3: merge keys (<<) are not read"),
        ("a: !!python/name:os.system x\n", "f.yaml:1: tag !!python/name:os.system is not read"),
        ("\na: !mine x\n", "f.yaml:2: tag !mine is not read"),
        ("a: !!set {b}\n", "f.yaml:1: tag !!set is not read"),
        ("", "f.yaml:1: empty file"),
        ("# only words\n", "f.yaml:1: empty file"),
        ("a: [\n", "f.yaml:2: a bracket is not closed"),
        ("a: x\n---\nb: y\n", "f.yaml:2: a second document begins after `---`"),
        ("a: *b\n", "f.yaml:1: `*` names no anchor of the file"),
        ("a: x\nb: \x00\n", "f.yaml:2: character U+0000"),
        ("a: x\n\nb: \x1b[31m\n", "f.yaml:3: character U+001B"),
        ("\ufeffa: x\n", "f.yaml:1: character U+FEFF"),
        ("a: \ud800\n", "f.yaml:1: character U+D800"),
        ("a: x\u2028y\n", "f.yaml:1: character U+2028"),
        ("a: x\rb: y\n", "f.yaml:1: character U+000D"),
        ("[" * 5000, f"f.yaml:1: nested deeper than {DEPTH_LIMIT} levels"),
        ("a: " + "{b: " * 5000, f"f.yaml:1: nested deeper than {DEPTH_LIMIT} levels"),
        ("- " * 5000 + "x", f"f.yaml:1: nested deeper than {DEPTH_LIMIT} levels"),
        ("a: &a [*a]\n", "f.yaml:1: an alias (*name) contains itself"),
        (BOMB, f"more than {NODE_LIMIT} values once aliases expand"),
        (NESTED, f"f.yaml:984: nested deeper than {DEPTH_LIMIT} levels once aliases expand"),
        ("a: &a x\nb: [" + "*a, " * NODE_LIMIT + "]\n", f"more than {NODE_LIMIT} values"),
        ("#" * (SIZE_LIMIT_CHARACTERS + 1), "f.yaml: 524289 characters are more than"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_a_hostile_or_mistaken_file_is_refused_at_once(text: str, message: str) -> None:
    start = time.process_time()
    assert message in refusal(text)
    assert time.process_time() - start < 1.0


def test_a_file_within_the_limits_is_read() -> None:
    deep = "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT
    aliases = "a: &a x\nb: [" + ", ".join(["*a"] * 70) + "]\n"
    assert read_document(deep, path="f.yaml").problems == []
    assert read_document(aliases, path="f.yaml").problems == []


@strict_dataclass
class Inner:
    version: str
    other: str = ""


@strict_dataclass
class Outer:
    inner: Inner
    many: tuple[Inner, ...] = ()


def test_all_problems_of_a_file_come_at_once_in_the_order_of_lines() -> None:
    text = """\
inner:
  version: 12.9
  ohter: x
many:
  - version: "1"
    version: "2"
  - other: x
  - text
surplus: 1
"""
    with pytest.raises(MatrixError) as caught:
        checked(read_document(text, path="f.yaml"), Outer)
    assert [(p.line, p.message, p.hint) for p in caught.value.problems] == [
        (2, "`12.9` is a float to YAML, not a string", 'quote versions and strings: "12.9"'),
        (3, "unknown key `ohter`", "did you mean `other`?"),
        (6, "duplicate key `version` (first on line 5)", "keep one of them"),
        (7, "`version` is missing in many", "write `version: ...`"),
        (8, "an entry of `many` is no mapping", "write the entry as `- name: value`"),
        (9, "unknown key `surplus`", "known here: inner, many"),
    ]


@pytest.mark.parametrize("text", ["text", "- a\n", "7", "true", "~"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(MatrixError) as caught:
        checked(read_document(text, path="f.yaml"), Outer)
    assert caught.value.problems[0].line == 1


@given(st.text(max_size=200))
def test_no_text_ends_in_another_error(text: str) -> None:
    message = refusal(text)
    assert message == "" or message.startswith("f.yaml")


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("rows:\n\t- a\n", "a tab at the start of the line", "indent with spaces: `  - a`"),
        (
            "a:\n  b: 1\n c: 2\n",
            "the indentation of `c: 2` fits no line above",
            "indent the keys of one mapping alike",
        ),
        ('a: "x\n', "a quote is not closed", "close it"),
        ("a: b: c\n", "a second `: ` in one line", 'quote the value: a: "b: c"'),
    ],
)
def test_a_line_that_is_no_yaml_is_named_by_its_fault_with_what_to_write(
    text: str, problem: str, hint: str
) -> None:
    said = refusal(text)
    assert problem in said
    assert hint in said
