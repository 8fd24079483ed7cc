"""The error family: one exit code per cause, and the docs say which."""

from __future__ import annotations

from pathlib import Path

from warpfront import errors
from warpfront.errors import WarpfrontError

DOCS = Path(__file__).parents[2] / "docs"


def family() -> list[type[WarpfrontError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, WarpfrontError)
    ]


def test_every_cause_has_an_exit_code_of_its_own() -> None:
    codes = [error.exit_code for error in family()]
    codes += [errors.INTERRUPTED_EXIT_CODE, errors.UNREAD_EXIT_CODE, errors.BUG_EXIT_CODE]
    assert len(codes) == len(set(codes))


def test_the_docs_list_every_exit_code() -> None:
    text = (DOCS / "exit-codes.md").read_text()
    for error in family():
        if error is not WarpfrontError:
            assert f"| {error.exit_code} | `{error.__name__}` |" in text
