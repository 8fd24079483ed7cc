"""Random generators: mean, variance, range, independence, and that a seed repeats them.

Every bound of a statistic is 6 of its standard deviations: a correct generator is rejected once in
5 * 10^8 tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.special.rows import (
    CaseContext,
    Table,
    array,
    holds,
    rows,
    verdict_of,
)
from warpfront_checks.documents import packaged

SIGMAS = 6.0
COUNT = 300_007
Numbers = Any


def _seeded(ground: CaseContext, offset: int = 0) -> None:
    torch.manual_seed(ground.seed + offset)


def _about(label: str, value: Any, expected: float, deviation: float) -> Verdict:
    actual = torch.tensor(float(value), dtype=torch.float64)
    return verdict_of(label, actual, expected, slack=SIGMAS * deviation)


# The call, the mean and the variance of each distribution, as expressions.
_PACKAGED = packaged("cases/special/distributions.json")
DISTRIBUTIONS: Mapping[str, tuple[str, str, str]] = _PACKAGED["distributions"]


def _drawn(code: str, ground: CaseContext) -> Tensor:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, device=ground.device, dtype=ground.dtype)

    names = {"n": COUNT, "d": ground.device, "t": ground.dtype, "empty": empty}
    names |= {"x": torch.zeros(COUNT, device=ground.device), "F": functional, "torch": torch}
    numbers: Tensor = eval(code, names)  # noqa: S307 - an expression of our own file
    return numbers


def _distribution(name: str, ground: CaseContext) -> Iterator[Verdict]:
    code, *moments = DISTRIBUTIONS[name]
    mean, variance = (float(eval(text, {"exp": math.exp})) for text in moments)  # noqa: S307
    _seeded(ground)
    first, second = _drawn(code, ground), _drawn(code, ground)
    _seeded(ground)
    again = _drawn(code, ground)
    right = first.cpu().double() if first.is_floating_point() else first
    yield verdict_of("the same seed", again, right)
    _seeded(ground, 1)
    other = _drawn(code, ground)
    a, b, c = (array(x.cpu().double()) for x in (first, second, other))
    count = len(a)
    # 16 bits round the numbers drawn.
    coarse = ground.eps * (abs(mean) + math.sqrt(variance)) if ground.half else 0.0
    yield _about("mean", a.mean(), mean, math.sqrt(variance / count) + coarse / SIGMAS)
    squares = (a - mean) ** 2
    kurtosis = float(((squares - variance) ** 2).mean())
    deviation = math.sqrt(kurtosis / count) + 4 * coarse / SIGMAS
    yield _about("variance", squares.mean(), variance, deviation)
    if len(np.unique(a[:4096])) > 3000:
        yield holds("numbers that come again", np.isin(b[:4096], a).mean() < 0.5)
    standard = [(x - mean) / math.sqrt(variance) for x in (a, b, c)]
    yield from _independent(standard, coarse / math.sqrt(variance))


def _independent(samples: list[Numbers], coarse: float) -> Iterator[Verdict]:
    """Check that standardised numbers, the next call's and another seed's are uncorrelated."""
    z, following, other = samples
    count = len(z)
    # Across vectors, lanes, waves and blocks, and in parts of the whole.
    for lag in (*(2**k for k in range(17)), count // 4, count // 3, count // 2):
        deviation = (count - lag) ** -0.5 * 1.2 + coarse
        yield _about(f"correlation at {lag}", (z[:-lag] * z[lag:]).mean(), 0.0, deviation)
    for label, x in (("the next call", following), ("another seed", other)):
        with_it = float((z * x).mean())
        yield _about(f"correlation with {label}", with_it, 0.0, count**-0.5 * 1.2 + coarse)
    half = count // 2
    for place, part in enumerate((z[:half], z[half:], z[::2], z[1::2], z[-5000:])):
        deviation = min(len(part), half) ** -0.5 + coarse
        yield _about(f"mean of part {place}", part.mean(), 0.0, deviation)


def _quartiles(ground: CaseContext) -> Iterator[Verdict]:
    """Check quartiles of Cauchy's distribution, which has no mean."""
    for median, sigma in ((0.0, 1.0), (2.0, 3.0)):
        _seeded(ground)
        x = array(_drawn(f"empty(n).cauchy_({median}, {sigma})", ground).double().cpu())
        for share, place in ((0.25, -1), (0.5, 0), (0.75, 1)):
            below = float((x < median + place * sigma).mean())
            deviation = math.sqrt(share * (1 - share) / COUNT)
            yield _about(f"{share} of {median}, {sigma}", below, share, deviation)


def _ranges(ground: CaseContext) -> Iterator[Verdict]:
    _seeded(ground)
    x = torch.rand(4_000_000, device=ground.device, dtype=ground.dtype)
    yield holds("rand below 1", (x < 1).all())
    yield holds("rand not below 0", (x >= 0).all())
    yield holds("rand near 1", x.amax() > 0.99)
    y = torch.empty(1_000_000, device=ground.device, dtype=ground.dtype).uniform_(2, 3)
    yield holds("uniform_ in range", ((y >= 2) & (y <= 3)).all())
    e = torch.empty(1_000_000, device=ground.device, dtype=ground.dtype).exponential_()
    yield holds("exponential_ above 0", (e > 0).all())
    n = array(torch.randn(4_000_000, device=ground.device, dtype=ground.dtype).cpu().double())
    for bound, share in ((1.0, 0.3173105), (2.0, 0.0455003), (3.0, 0.0026998), (4.0, 6.334e-5)):
        beyond = float((np.abs(n) > bound).mean())
        coarse = 0.01 * share if ground.half else 0.0
        yield _about(f"normal beyond {bound}", beyond, share, math.sqrt(share / len(n)) + coarse)
    yield holds("normal is finite", np.isfinite(n).all())
    deviation = math.sqrt(15 / len(n)) + (0.01 if ground.half else 0)
    yield _about("normal's skew", (n**3).mean(), 0.0, deviation)


def _integers(ground: CaseContext) -> Iterator[Verdict]:
    """Check that every bit of an integer is fair, also for ranges that are no power of 2."""
    _seeded(ground)
    x = array(torch.randint(0, 2**31, (COUNT,), device=ground.device))
    for bit in range(31):
        yield _about(f"bit {bit}", ((x >> bit) & 1).mean(), 0.5, 0.5 * COUNT**-0.5)
    wide = array(torch.randint(-(2**62), 2**62, (COUNT,), device=ground.device))
    for bit in (0, 7, 31, 32, 33, 61):
        yield _about(f"bit {bit} of 64", ((wide >> bit) & 1).mean(), 0.5, 0.5 * COUNT**-0.5)
    for count in (3 * 2**20, 3 * 2**30, 3 * 2**40):
        among = array(torch.randint(0, count, (COUNT,), device=ground.device))
        for third in range(3):
            share = float((among // (count // 3) == third).mean())
            yield _about(f"part {third} of {count}", share, 1 / 3, math.sqrt(2 / 9 / COUNT))
    odd = array(torch.randint(-3, 4, (COUNT,), device=ground.device))
    for value in range(-3, 4):
        yield _about(f"share of {value}", (odd == value).mean(), 1 / 7, math.sqrt(6 / 49 / COUNT))
    yield verdict_of("range", torch.tensor([odd.min(), odd.max()]), np.array([-3, 3]))
    choices = torch.multinomial(torch.ones(40, device=ground.device), 20)
    yield holds("without replacement", choices.unique().numel() == 20)
    shares = torch.tensor([0.0, 1.0, 0.0, 3.0], device=ground.device)
    never = torch.multinomial(shares, 100_000, replacement=True)
    yield verdict_of("never what has no share", ((never == 0) | (never == 2)).sum(), 0)


def _never_drawn(ground: CaseContext) -> Iterator[Verdict]:
    every_other = torch.arange(40, device=ground.device).remainder(2).float().expand(4096, 40)
    for count in (1, 3):
        choices = every_other.multinomial(count)
        yield verdict_of(f"what has no share, among {count}", (choices % 2 == 0).sum(), 0)


def _drawn_once(ground: CaseContext) -> Iterator[Verdict]:
    """Draw one of four, and two, without replacement, each as often as its weight implies."""
    weights = np.array([1.0, 2.0, 3.0, 2.0]) / 8
    rows, places = 30_000, range(4)
    of_two = [
        weights[i] * (1 + sum(weights[j] / (1 - weights[j]) for j in places if j != i))
        for i in places
    ]
    probabilities = torch.tensor(weights, device=ground.device, dtype=ground.dtype).expand(rows, 4)
    for count, expected in ((1, weights), (2, of_two)):
        _seeded(ground)
        choices = array(torch.multinomial(probabilities, count))
        for i in places:
            share, sigma = expected[i], math.sqrt(expected[i] * (1 - expected[i]) / rows)
            share_of = float((choices == i).any(1).mean())
            yield _about(f"{i} among {count}", share_of, share, sigma)


def _permutations(ground: CaseContext) -> Iterator[Verdict]:
    for count in (10, 1000, 30_011, 200_003):
        _seeded(ground)
        x = torch.randperm(count, device=ground.device)
        yield verdict_of(f"each of {count} once", x.sort().values, np.arange(count))
        a = array(x).astype(float)
        z = (a - a.mean()) / a.std()
        place = np.arange(count) - (count - 1) / 2
        together = (z * place / place.std()).mean()
        yield _about(f"place and value of {count}", together, 0.0, count**-0.5)
        yield _about(f"neighbours of {count}", (z[1:] * z[:-1]).mean(), -1 / count, count**-0.5)
    firsts = np.zeros(8)
    for seed in range(800):
        torch.manual_seed(ground.seed * 1000 + seed)
        firsts[int(torch.randperm(8, device=ground.device)[0])] += 1
    for value in range(8):
        yield _about(f"{value} comes first", firsts[value] / 800, 1 / 8, math.sqrt(7 / 64 / 800))


def _dropped(ground: CaseContext) -> Iterator[Verdict]:
    """Check that backward drops what forward dropped, and no more; survivors are scaled."""
    for share in (0.1, 0.5, 0.9):
        _seeded(ground)
        x = ground.send(torch.ones(1025, 257)).requires_grad_()
        y = functional.dropout(x, share)
        y.backward(torch.ones_like(y))
        yield verdict_of(f"gradient at {share}", x.grad, y.detach().cpu().double())
        survivors = (y != 0).cpu().double()
        yield verdict_of(f"survivors at {share}", y, survivors / (1 - share), ulps=2)
        spread, unit = math.sqrt(share * (1 - share)), survivors.numel() ** -0.5
        yield _about(f"kept at {share}", survivors.mean(), 1 - share, spread * unit)
        for axis in (0, 1):
            means = survivors.mean(axis)
            sigma = spread * survivors.shape[axis] ** -0.5
            deviation = sigma / math.sqrt(2 * len(means)) * 1.2
            yield _about(f"spread along {axis} at {share}", means.std(), sigma, deviation)
        other = functional.dropout(x.detach(), share) != 0
        together = float((survivors * other.cpu().double()).mean())
        yield _about(f"the next mask at {share}", together, (1 - share) ** 2, 0.5 * unit)
    y = functional.dropout(ground.send(torch.ones(999)), 0.5, training=False)
    yield verdict_of("nothing in evaluation", y, np.ones(999))


def _into_views(ground: CaseContext) -> Iterator[Verdict]:
    """Check that random numbers fill a view completely, and nothing outside it."""
    for fill, (where, view) in product(_PACKAGED["fills"], _PACKAGED["views"].items()):
        memory = torch.full((10_000,), -4096.0, device=ground.device, dtype=ground.dtype)
        selected = torch.zeros(10_000, device=ground.device, dtype=torch.bool)
        eval(view, {"x": selected}).fill_(True)  # noqa: S307 - of our own file
        eval(fill, {"x": eval(view, {"x": memory}), "torch": torch})  # noqa: S307 - the same
        written = memory != -4096
        yield verdict_of(f"{fill} into {where}", written, selected)
        several = memory[selected].unique().numel() > 1
        yield holds(f"{fill} into {where}, not one number", several)


def _spread_out(ground: CaseContext) -> Iterator[Verdict]:
    """Check means and deviations of one number expanded to many: each element draws for itself."""
    mean = ground.send(torch.arange(4.0).double() * 64)
    for where, (means, deviations) in {
        "rows": (mean[:, None].expand(4, 4096), torch.ones_like(mean)[:, None].expand(4, 4096)),
        "columns": (mean.expand(4096, 4), torch.ones_like(mean).expand(4096, 4)),
    }.items():
        for name, samples in (
            ("normal", torch.normal(means, deviations)),
            ("normal of means", torch.normal(means, 1.0)),
            ("normal of deviations", torch.normal(0.0, deviations) + means),
            ("bernoulli", torch.bernoulli(deviations / 2)),
            ("poisson", torch.poisson(deviations * 8)),
        ):
            axis = int(where == "rows")
            several = samples.std(axis, correction=0) > 0
            yield verdict_of(f"{name} of {where}", several, np.ones(4, dtype=bool))
    # Chances of 0 and 1 leave nothing to chance, in any memory.
    certain = ground.send(torch.tensor([0.0, 1.0, 1.0, 0.0]).double())
    table = certain.expand(4096, 4)
    for where, chances in {
        "a row": certain,
        "rows": certain[:, None],
        "expanded rows": table.mT,
        "turned rows": table.contiguous().mT,
    }.items():
        shape = (4096, 4) if where == "a row" else (4, 4096)
        sample = torch.full(shape, 7.0, device=ground.device, dtype=ground.dtype)
        expected = array(chances.expand(shape).double().cpu())
        yield verdict_of(f"bernoulli_ of {where}", sample.bernoulli_(chances), expected)


def _states(ground: CaseContext) -> Iterator[Verdict]:
    """Check a saved and restored state, a separate generator, and a fork that leaves no trace."""
    if ground.device == "cuda":
        keep: Callable[[], Tensor] = torch.cuda.get_rng_state
        give: Callable[[Tensor], None] = torch.cuda.set_rng_state
    else:
        keep, give = torch.get_rng_state, torch.set_rng_state
    rand = partial(torch.rand, device=ground.device)
    _seeded(ground)
    rand(1000)
    state = keep()
    first = rand(1000).cpu().double()
    give(state)
    yield verdict_of("given back", rand(1000), first)
    generator = torch.Generator(device=ground.device).manual_seed(ground.seed)
    alone = rand(1000, generator=generator).cpu().double()
    generator.manual_seed(ground.seed)
    yield verdict_of("one's own", rand(1000, generator=generator), alone)
    give(state)
    with torch.random.fork_rng(devices=[0] if ground.device == "cuda" else []):
        rand(77)
    yield verdict_of("fork", rand(1000), first)
    # Two calls differ from one call of both sizes, but no number repeats.
    give(state)
    parts = torch.cat([rand(500) for _ in range(2)])
    yield holds("all different", parts.unique().numel() > 990)


RANDOM_NUMBERS: Table = (
    *rows({name: partial(_distribution, name) for name in DISTRIBUTIONS}),
    *rows({"quartiles": _quartiles, "never drawn": _never_drawn}),
    *rows({"ranges": _ranges}, ("float32", "bfloat16")),
    *rows(
        {
            "whole numbers": _integers,
            "drawn once": _drawn_once,
            "permutations": _permutations,
            "dropout's mask": _dropped,
            "into views": _into_views,
            "spread out": _spread_out,
            "states": _states,
        }
    ),
)
