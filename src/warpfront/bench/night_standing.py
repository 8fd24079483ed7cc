"""The comparison of a nightly image with the last release of its cell, both timed on one
machine in one job. Pure.

Processes differ by more than their repetitions show. Operations are therefore slower only if they
are so twice, in turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from warpfront.bench.records import Comparison, ComparisonOutcome

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


def _noise_of(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """Yield the other load of the machine that a bench found."""
    for comparison in comparisons:
        for finding in comparison.findings:
            if finding.message.startswith(_NOISY):
                yield finding.message.removeprefix(_NOISY)


def standing_of(
    cell_id: str, target: str, release: str, comparisons: Iterable[Comparison]
) -> NightStanding:
    """Return the result of all comparisons of the two, A the release.

    An operation is slower if each comparison puts it above the limit. `noise` has the other load of
    the machine where one looks slower.
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
        reason="; ".join(refused.reasons) if refused else "",
        noise=next(_noise_of(every), "") if slower else "",
    )
