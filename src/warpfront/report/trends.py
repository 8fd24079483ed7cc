"""Times over many nights as lines that a page draws without a script. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

WIDTH, HEIGHT = 240, 48
_LEAST_SPAN = 0.1
"""A line that only trembles looks as if it did: less than this, up and down, fills no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A series: `times` of nights `at`, relative to the usual time. `change` is the first night
    of a lasting change or None; `said` describes it.
    """

    cell_id: str
    target: str
    name: str
    place: str
    at: tuple[str, ...]
    times: tuple[float, ...]
    change: int | None
    said: str

    @property
    def line(self) -> str:
        """Return `points` of an SVG line: the slower, the higher."""
        pairs = (
            f"{self._x(index):.1f},{self._y(time):.1f}" for index, time in enumerate(self.times)
        )
        return " ".join(pairs)

    @property
    def levels(self) -> tuple[tuple[str, str, str], ...]:
        """(from, to, height): the median before a change and after it."""
        edges = (0, *((self.change,) if self.change is not None else ()), len(self.times))
        return tuple(
            (
                f"{self._x(begin):.1f}",
                f"{self._x(end - 1):.1f}",
                f"{self._y(median(self.times[begin:end])):.1f}",
            )
            for begin, end in pairwise(edges)
        )

    @property
    def change_x(self) -> str:
        return f"{self._x(self.change - 0.5):.1f}" if self.change is not None else ""

    def _x(self, night: float) -> float:
        return WIDTH * night / max(1, len(self.times) - 1)

    def _y(self, time: float) -> float:
        low, high = min(self.times), max(self.times)
        middle, span = (low + high) / 2, max(high - low, _LEAST_SPAN)
        return HEIGHT * (0.5 - 0.9 * (time - middle) / span)
