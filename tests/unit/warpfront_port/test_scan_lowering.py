"""Python of 3.12 to 3.14 is read by an older one, and what is found stands where it is written."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.python import rule_matches
from warpfront_port.scan.python.lowering import parsed

NEW = {
    "an alias": "type Pair[T] = tuple[T, T]\n",
    "parameters": "def f[T: (int, str), *Ts](a: T, *b: *Ts) -> T:\n    return a\n",
    "a class": "class A[T](B):\n    x: list[T] = []\n",
    "nested quotes": 'x = f"{a["k"]} and {", ".join(f"{y}" for y in z)}"\n',
    "lines and a comment": 'x = f"{\n    a  # why\n} é"\n',
    "a backslash": "x = f\"{'\\n'.join(a)}\"\n",
    "a template": 'x = t"hello {name}"\n',
    "no brackets": "try:\n    f()\nexcept ValueError, TypeError:\n    pass\n",
}


@pytest.mark.parametrize("name", NEW)
def test_what_follows_new_syntax_is_seen_in_its_place(name: str) -> None:
    text = f"{NEW[name]}import pynvml\n"
    (seen,) = rule_matches(SourceText(path=PurePosixPath("m.py"), text=text), Context())
    assert seen.rule == "PY014"
    assert text[seen.start : seen.end] == "import pynvml"


def test_a_handler_of_two_without_brackets_forgives_like_one_with() -> None:
    text = "try:\n    import pynvml\nexcept ImportError, OSError:\n    pynvml = None\n"
    (seen,) = rule_matches(SourceText(path=PurePosixPath("m.py"), text=text), Context())
    assert seen.gate == "availability"


def test_what_no_python_reads_is_refused_as_it_was() -> None:
    with pytest.raises(SyntaxError, match="line 1"):
        parsed("def f[T](:\n")
    with pytest.raises(SyntaxError):
        parsed("print 'old'\n")


def test_text_that_this_python_reads_is_left_alone() -> None:
    text = "x = f'{a}'\ntry:\n    pass\nexcept (A, B):\n    pass\n"
    assert ast.dump(parsed(text)) == ast.dump(ast.parse(text))
