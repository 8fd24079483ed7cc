"""Tables fit their width, and no word of them is on two lines."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from warpfront.system.texts import fitted, wrapped

WORD = st.from_regex(r"[a-z0-9_./:=-]{1,40}", fullmatch=True)
FACT = st.one_of(st.just(""), WORD, st.lists(WORD, max_size=6).map(" ".join))
ROWS = st.lists(st.tuples(WORD, FACT, FACT, FACT), min_size=1, max_size=5)
HEAD = ("operation", "median ms", "of peak", "kernel")


@given(rows=ROWS, width=st.integers(20, 160))
def test_a_table_fits_or_has_one_word_that_does_not(
    rows: list[tuple[str, ...]], width: int
) -> None:
    head, *blocks = fitted(HEAD, rows, width, aligned={"of peak"})
    assert len(blocks) == len(rows)
    for row, lines in zip(rows, blocks, strict=True):
        assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
        words = {word for line in lines for word in line.split()}
        words |= {word.removesuffix(",") for word in words}
        assert {word for fact in row for word in fact.split()} <= words
    assert all(len(line) <= width for line in head)


@given(text=st.lists(WORD, max_size=40).map(" ".join), width=st.integers(20, 160))
def test_a_text_is_wrapped_at_spaces_alone(text: str, width: int) -> None:
    lines = wrapped(text, width, 4)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    assert all(line.startswith("    ") for line in lines)


def test_columns_or_facts_below_each_name() -> None:
    head, rows = ("name", "note", "size"), (("a-b", "", "1 MB"), ("c-d-e", "", "?"))
    assert fitted(head, rows, 11, aligned={"size"}) == (
        ("name   size",),
        ("a-b    1 MB",),
        ("c-d-e     ?",),
    )
    assert fitted(head, rows, 10) == ((), ("a-b", "    size 1", "    MB"), ("c-d-e", "    size ?"))
