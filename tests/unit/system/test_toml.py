"""What is written as TOML is read as the same, and locks keep their bytes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from warpfront.system.toml import dump_toml

LOCKS = Path(__file__).parents[3] / "images" / "locks"
KEYS = st.text(min_size=1, max_size=5)
PLAIN = st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.just('a\x7f\x00"\\\n')
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_as_the_same(document: dict[str, Any]) -> None:
    assert tomllib.loads(dump_toml(document)) == document


def test_the_locks_of_this_repository_are_written_as_tomli_w_writes_them() -> None:
    for path in LOCKS.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert dump_toml(tomllib.loads(text)) == tomli_w.dumps(tomllib.loads(text)) == text
