"""How an image of this night stands beside the last release of its cell, both timed on one machine
in one job: what is slower than may be, for certain. Pure.

One process differs from the next by more than its repetitions say, so that what is slower counts
when it was so twice, in turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from warpfront.bench.records import Comparison, ComparisonOutcome, Interval

EVERYTHING = "all operations together"
_SHOWN = 5
_NOISY = "noisy: "


@dataclass(frozen=True, slots=True, kw_only=True)
class NightStanding:
    """An image on a target beside `release`, a digest, "" for none. `slower` are operations with
    their ratios, `gone` those that only the release did; `reason` is why nothing was compared,
    `noise` what else the machine did while it looked slower.
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
        """What speaks against the image; "" for nothing."""
        on = f" on a busy machine ({self.noise})" if self.noise else ""
        reasons = [
            f"slower than the last release{on}: {_listed(self.slower)}" if self.slower else "",
            f"done by the last release alone: {_listed(self.gone)}" if self.gone else "",
            f"not held against the last release: {self.reason}" if self.reason else "",
        ]
        return "; ".join(filter(None, reasons))

    @property
    def text(self) -> str:
        """In one line, whatever it is."""
        beside = f"beside {self.release}" if self.release else "no release to hold it against"
        return f"timed on {self.target}: {self.wrong or 'nothing slower'}, {beside}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join([*names[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def slower_in(comparison: Comparison) -> dict[str, Interval]:
    """What took longer than the limit with all of its interval, by operation, the worst first."""
    if comparison.limit is None or comparison.times is None:
        return {}
    every = {case.id: case.ratio for case in comparison.cases if case.changed} | {
        EVERYTHING: comparison.times
    }
    limit = comparison.limit
    beyond = {name: ratio for name, ratio in every.items() if ratio.low > limit}
    return dict(sorted(beyond.items(), key=lambda item: -item[1].value))


def _noise_of(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """What a bench found its machine to do besides."""
    for comparison in comparisons:
        for finding in comparison.findings:
            if finding.message.startswith(_NOISY):
                yield finding.message.removeprefix(_NOISY)


def standing_of(
    cell_id: str, target: str, release: str, comparisons: Iterable[Comparison]
) -> NightStanding:
    """From all comparisons of the two, A the release: each time beyond the limit, or not slower.
    Where one looks slower on a machine that did something else, that is said.
    """
    every = list(comparisons)
    refused = next(
        (
            comparison
            for comparison in every
            if comparison.verdict is ComparisonOutcome.NOT_COMPARABLE
        ),
        None,
    )
    first, *more = [slower_in(comparison) for comparison in every]
    slower = {
        name: ratio
        for name, ratio in first.items()
        if all(name in comparison for comparison in more)
    }
    return NightStanding(
        cell_id=cell_id,
        target=target,
        release=release,
        slower=tuple(
            f"{name} {ratio.value:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"
            for name, ratio in slower.items()
        ),
        gone=tuple(name for name in every[0].only_in_a if all(name in c.only_in_a for c in every)),
        reason="; ".join(refused.reasons) if refused else "",
        noise=next(_noise_of(every), "") if slower else "",
    )
