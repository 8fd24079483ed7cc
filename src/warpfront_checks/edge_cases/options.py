"""Combinations of options."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Options = Mapping[str, Sequence[Any]]


def combined(options: Options, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield every combination of values; in a quick run, the first values, and the second ones."""
    values: Iterator[Any] = itertools.product(*options.values())
    if quick:
        values = (tuple(some[i % len(some)] for some in options.values()) for i in range(2))
    for chosen in values:
        yield dict(zip(options, chosen, strict=True))
