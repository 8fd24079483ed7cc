"""Receivers of progress. Words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Line = Callable[[str], None]
"""Gets each line of a program's output while it runs."""


class Watch(Protocol):
    """A receiver of progress."""

    def say(self, text: str) -> None:
        """Show one line."""

    def advance(self, transfer: str, done_bytes: int, total_bytes: int) -> None:
        """A transfer moved on. `done_bytes == total_bytes` ends it; a total of 0 is a failure."""

    def step(self, cell_id: str, text: str) -> None:
        """A cell is now doing `text`; "" = it is done."""

    def line(self, cell_id: str, text: str) -> None:
        """The latest line of what the cell's step prints."""
