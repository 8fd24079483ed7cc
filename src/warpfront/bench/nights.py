"""Nightly benches, a line each in a file that only grows, and the lasting changes of
their times. Pure.

Nights are independent of each other, so a change is tested by permutations of all of them. The
statistic is the largest difference of ranks before and after a night, weighted by their
numbers (Pettitt's test, without its blindness at both ends). Holm's correction covers all
operations of a file: of files without a change, at most the share `FALSE_ALARMS` names an
operation (a test checks it).

A nightly image and the last release of its cell are timed on one machine in one job. Processes
differ by more than their repetitions show: operations are slower only if they are so twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import geometric_mean, median

from warpfront.bench.compare import NOISE_OF_OPERATIONS
from warpfront.bench.records import (
    Bench,
    Comparison,
    ComparisonOutcome,
    Divisor,
    Measurement,
    Training,
)
from warpfront.bench.statistics import holm, ranks
from warpfront.report.history import Trend, read_value_lines
from warpfront.system.strict_values import extended
from warpfront.system.texts import counted

FEWEST = 4
"""Nights before a change and after it: with fewer, no permutation is rare enough for many cases."""
MOST_NIGHTS = 200
"""The newest nights of a place; older ones are not tested."""
FALSE_ALARMS = 0.05
_ENOUGH = 10
_SEED = 20250103

Place = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The medians of one bench, in seconds by operation, and what they are of."""

    at: str
    cell_id: str
    target: str
    device: str
    runner: str
    image_digest: str
    content_hash: str
    seconds: Mapping[str, Divisor]

    @property
    def place(self) -> Place:
        """Return the facts that have to be the same for two nights to be compared."""
        return self.cell_id, self.target, self.device, self.runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A lasting change of an operation's time from the night `at` on, when the
    image was `image_digest`.

    Seconds are medians of the nights before and after.
    """

    place: Place
    case: str
    at: str
    image_digest: str
    before_seconds: float
    after_seconds: float
    p_value: float

    @property
    def ratio(self) -> float:
        return self.after_seconds / self.before_seconds


def night_of(bench: Bench, *, runner: str = "") -> Night:
    """Return the night of a bench. `runner` distinguishes machines whose devices have one name."""
    timed: tuple[Measurement | Training, ...] = (*bench.results, *bench.training)
    seconds = {each.id: each.median_seconds for each in timed if each.median_seconds is not None}
    device = str(bench.environment.get("device_name") or "unknown device")
    return extended(Night, bench, device=device, runner=runner, seconds=seconds)


def read_nights(text: str) -> tuple[tuple[Night, ...], int]:
    """Return the nights of a file in the order of their times, and the number of unreadable lines.
    A night that was written twice counts once.
    """
    read, unread = read_value_lines(Night, text.splitlines())
    nights = {(night.place, night.at): night for night in read}
    return tuple(sorted(nights.values(), key=lambda night: night.at)), unread


def places_of(nights: Iterable[Night]) -> dict[Place, list[Night]]:
    """Return the newest nights of each place, oldest first."""
    nights_by_place: dict[Place, list[Night]] = {}
    for night in nights:
        nights_by_place.setdefault(night.place, []).append(night)
    return {place: each[-MOST_NIGHTS:] for place, each in nights_by_place.items()}


def shifts_of(nights: Iterable[Night]) -> tuple[Shift, ...]:
    """Return the lasting changes of operations' times: the largest of each place and case."""
    series = [
        (place, case, [night for night in each if case in night.seconds])
        for place, each in places_of(nights).items()
        for case in dict.fromkeys(case for night in each for case in night.seconds)
    ]
    long_enough = [case_series for case_series in series if len(case_series[2]) >= 2 * FEWEST]
    shifts = []
    for place, case, each in long_enough:
        values = [night.seconds[case] for night in each]
        strength, index = _strongest(ranks(values))
        most = math.ceil(2 * len(long_enough) / FALSE_ALARMS)
        shift = Shift(
            place=place,
            case=case,
            at=each[index].at,
            image_digest=each[index].image_digest,
            before_seconds=median(values[:index]),
            after_seconds=median(values[index:]),
            p_value=_chance(values, strength, most=most),
        )
        shifts.append(shift)
    stands = holm([shift.p_value for shift in shifts], FALSE_ALARMS)
    significant = (shift for shift, stand in zip(shifts, stands, strict=True) if stand)
    return tuple(shift for shift in significant if abs(shift.ratio - 1) > NOISE_OF_OPERATIONS)


def _strongest(ordered: Sequence[float]) -> tuple[float, int]:
    """Return the largest difference of mean ranks before and from a point on, and the point."""
    count = len(ordered)
    sums = list(accumulate(ordered))
    return max(
        (abs(sums[index - 1]) / math.sqrt(index * (count - index)), index)
        for index in range(FEWEST, count - FEWEST + 1)
    )


def _chance(values: Sequence[float], strength: float, *, most: int) -> float:
    """Return the share of shuffled nights that reach a strength, its p-value.

    Shuffling stops once that is clearly common, or after `most` shuffles, which the smallest
    p-value needs (Besag and Clifford, 1991).
    """
    random = Random(_SEED)  # noqa: S311 - permutations
    shuffled = ranks(values)
    reached = 0
    for shuffles in range(1, most + 1):
        random.shuffle(shuffled)
        reached += _strongest(shuffled)[0] >= strength * (1 - 1e-12)
        if reached == _ENOUGH:
            return reached / shuffles
    return (reached + 1) / (most + 1)


def trends_of(nights: Iterable[Night], shifts: Sequence[Shift]) -> tuple[Trend, ...]:
    """Return the curves of a page: lasting changes, the worst first, and all of each place."""
    places = places_of(nights)
    worst = sorted(shifts, key=lambda shift: -shift.ratio)
    changed = [_trend(shift.place, places[shift.place], shift) for shift in worst]
    together = [_trend(place, each) for place, each in places.items() if len(each) > 1]
    return (*changed, *together)


def _trend(place: Place, nights: Sequence[Night], shift: Shift | None = None) -> Trend:
    """Return times over their usual ones: of the operation that changed, or the mean of all."""
    cases = dict.fromkeys(case for night in nights for case in night.seconds)
    chosen = [shift.case] if shift else list(cases)
    usual = {}
    for case in chosen:
        usual[case] = median(night.seconds[case] for night in nights if case in night.seconds)
    timed = [night for night in nights if not usual.keys().isdisjoint(night.seconds)]
    times = []
    for night in timed:
        shares = (night.seconds[case] / usual[case] for case in chosen if case in night.seconds)
        times.append(geometric_mean(shares))
    if shift:
        image = shift.image_digest.removeprefix("sha256:")[:12] or "none"
        summary = f"{shift.ratio:.3f} times its time since {shift.at}, image {image}"
    else:
        last = f"; the last night {times[-1]:.3f} times what is usual" if times else ""
        summary = f"{counted(len(cases), 'operation')} of {counted(len(timed), 'night')}{last}"
    dates = tuple(night.at for night in timed)
    return Trend(
        cell_id=place[0],
        target=place[1],
        name=shift.case if shift else "all operations",
        place=" ".join(filter(None, place)),
        at=dates,
        times=tuple(times),
        change=dates.index(shift.at) if shift else None,
        said=summary,
    )


def too_few_nights(nights: Sequence[Night]) -> tuple[str, ...]:
    """Return a sentence for each device and runner whose history is too short to show a change."""
    if not nights:
        return ("the history has no night",)
    return tuple(
        f"{' '.join(filter(None, place))}: {counted(len(each), 'night')};"
        f" a change needs {2 * FEWEST}"
        for place, each in places_of(nights).items()
        if len(each) < 2 * FEWEST
    )


def shifts_text(nights: Sequence[Night], shifts: Sequence[Shift]) -> str:
    """Return the changes, the worst first, and the number of nights they are from."""
    places = places_of(nights)
    lines = [
        f"{' '.join(filter(None, place))}: {counted(len(each), 'night')}, "
        f"{counted(len({case for night in each for case in night.seconds}), 'operation')}"
        + ("" if len(each) >= 2 * FEWEST else f"; {2 * FEWEST} are needed to see a change")
        for place, each in places.items()
    ]
    lines += [
        f"{shift.case}: {shift.ratio:.3f} times its time since {shift.at} "
        f"({1000 * shift.before_seconds:.4g} to {1000 * shift.after_seconds:.4g} ms, "
        f"p {shift.p_value:.1g}), image {shift.image_digest or 'none'}; {' '.join(shift.place)}"
        for shift in sorted(shifts, key=lambda shift: -shift.ratio)
    ]
    if not shifts:
        judged = any(len(each) >= 2 * FEWEST for each in places.values())
        lines.append("no change for good" if judged else "not determined: too few nights")
    return "\n".join(lines) + "\n"


_SHOWN = 5
_NOISY = "noisy: "


@dataclass(frozen=True, slots=True, kw_only=True)
class NightStanding:
    """The result for an image on a target against `release`, a digest, "" for none.

    `slower` are operations with their ratios, `gone` those that only the release did. `reason` is
    why nothing was compared, `noise` the other load of the machine while the image looked slower.
    """

    cell_id: str
    target: str
    release: str = ""
    slower: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    reason: str = ""
    noise: str = ""

    @property
    def wrong(self) -> str:
        """Return the reasons against the image; "" for none."""
        on = f" on a busy machine ({self.noise})" if self.noise else ""
        reasons = [
            f"slower than the last release{on}: {_listed(self.slower)}" if self.slower else "",
            f"done by the last release alone: {_listed(self.gone)}" if self.gone else "",
            f"not held against the last release: {self.reason}" if self.reason else "",
        ]
        return "; ".join(filter(None, reasons))

    @property
    def text(self) -> str:
        """Return the result in one line."""
        beside = f"beside {self.release}" if self.release else "no release to hold it against"
        return f"timed on {self.target}: {self.wrong or 'nothing slower'}, {beside}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join([*names[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def standing_of(
    cell_id: str, target: str, release: str, comparisons: Iterable[Comparison]
) -> NightStanding:
    """Return the result of all comparisons of the two, A the release.

    An operation is slower if each comparison puts it above the limit. `noise` has the other load of
    the machine where one looks slower.
    """
    every = list(comparisons)
    refused = (c.reasons for c in every if c.verdict is ComparisonOutcome.NOT_COMPARABLE)
    messages = (remark.message for comparison in every for remark in comparison.findings)
    # The other load of the machine that a bench met.
    loads = (text.removeprefix(_NOISY) for text in messages if text.startswith(_NOISY))
    first, *more = [comparison.slower for comparison in every]
    slower = {name: ratio for name, ratio in first.items() if all(name in later for later in more)}
    return NightStanding(
        cell_id=cell_id,
        target=target,
        release=release,
        slower=tuple(
            f"{name} {ratio.value:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"
            for name, ratio in slower.items()
        ),
        gone=tuple(name for name in every[0].only_in_a if all(name in c.only_in_a for c in every)),
        reason="; ".join(next(refused, ())),
        noise=next(loads, "") if slower else "",
    )
