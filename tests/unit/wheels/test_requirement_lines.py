"""Lines of requirements files: joined, bare, and each where it stands."""

from __future__ import annotations

import pytest

from warpfront.wheels.core_metadata import read_lines, wheel_name, without_options

TEXT = "\ufeff# all of it\n  torch==2.7 \\\n    --hash=sha256:ab  # why\n\n-rbase.txt\neinops \\"


def test_a_line_knows_where_it_stands() -> None:
    first, include, last = read_lines(TEXT)
    assert (first.start, first.end, first.source) == (2, 3, "  torch==2.7 \\")
    assert TEXT[first.at :].startswith(first.source)
    assert without_options(first.text) == "torch==2.7"
    assert (include.start, include.option) == (5, ("-r", "base.txt"))
    assert (last.start, last.end, last.text) == (6, 6, "einops")


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("torch", ("", "")),
        ("--pre", ("--pre", "")),
        ("-e ./lib", ("-e", "./lib")),
        ("--index-url=https://one.test", ("--index-url", "https://one.test")),
        ("-r 'a b.txt'", ("-r", "a b.txt")),
    ],
)
def test_an_option_is_a_name_and_a_value(line: str, option: tuple[str, str]) -> None:
    assert [one.option for one in read_lines(line)] == [option]


def test_a_wheel_says_its_name_and_nothing_else_does() -> None:
    assert wheel_name("https://one.test/Lib_X-1.0%2Bcpu-py3-none-any.whl") == "lib-x"
    assert wheel_name("https://one.test/lib-1.0.tar.gz") == ""
