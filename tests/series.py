"""Series of times as machines give them."""

from __future__ import annotations

from itertools import accumulate
from random import Random


def noisy(
    count: int, seed: int, level: float = 1.0, *, noise: float = 0.01, phi: float = 0.0
) -> list[float]:
    """A series around a level, whose neighbours correlate by `phi`."""
    random = Random(seed)
    shocks = (random.gauss(0, noise * (1 - phi * phi) ** 0.5) for _ in range(count))
    return [level * (1 + one) for one in accumulate(shocks, lambda last, new: phi * last + new)]
