"""Several verifications of one digest, as one: a check that does not come to the same each time is
a finding, never a pass. Pure.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import outcome_of, worst_of

Named = tuple[str, str]


def together(runs: Sequence[Verification]) -> Verification:
    """Return the last run, with its flips as failures; what failed each time has failed. Raise
    `ValueError` for runs of more than one digest, which say nothing about each other.
    """
    about = {(run.cell_id, run.target, run.where, run.content_hash, run.image_id) for run in runs}
    if len(about) != 1:
        raise ValueError(f"{len(about)} images, cells or targets are not verified again but each")
    checks_of_runs = [{(check.session, check.name): check for check in run.checks} for run in runs]
    names: dict[Named, None] = {name: None for each in checks_of_runs for name in each}
    checks = tuple(_judged(name, [each.get(name) for each in checks_of_runs]) for name in names)
    flipped = [f"{check.session}: {check.name}" for check in checks if "outcomes" in check.details]
    again = {"times": len(runs), "outcomes": [outcome_of(run).value for run in runs]}
    return dataclasses.replace(
        runs[-1],
        sessions=tuple(dict.fromkeys(name for run in runs for name in run.sessions)),
        checks=checks,
        seconds=round(sum(run.seconds for run in runs), 2),
        environment={**runs[-1].environment, "again": {**again, "flips": flipped}},
    )


def _judged(name: Named, results: Sequence[CheckResult | None]) -> CheckResult:
    """Return one check of all runs. A missing one is an error."""
    outcomes = [Outcome.ERROR if result is None else result.outcome for result in results]
    present = [result for result in results if result is not None]
    if len(set(outcomes)) == 1:
        return present[-1]
    worst = worst_of(outcomes)
    counts = ", ".join(f"{result.value} {count}" for result, count in Counter(outcomes).items())
    of_worst = next((result for result in present if result.outcome is worst), present[-1])
    why = of_worst.reason if of_worst.outcome is worst else "it was not made"
    return CheckResult(
        session=name[0],
        name=name[1],
        outcome=Outcome.FAILED,
        reason=f"flips on one digest ({counts} of {len(results)} times): {why}",
        seconds=round(sum(result.seconds for result in present), 4),
        details={**of_worst.details, "outcomes": [outcome.value for outcome in outcomes]},
    )
