"""gather: what the jobs of a run left, in one build folder, and the verdict on the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.handover import handed_over, merge
from warpfront.ci.judging import Judgement, judge
from warpfront.ci.schedule import Schedule
from warpfront.pipeline.beside.against_release import kept_standing
from warpfront.report.rows import ReportRow
from warpfront.system.store import Store

PLAN = "plan"


def keep_plan(planned: Schedule, root: Path) -> None:
    """For the jobs after: left/plan/plan.json."""
    Store(root / LEFT).save(PLAN, PLAN, planned)


def kept_plan(root: Path) -> Schedule | None:
    """The plan of this run, as its job left it or as it was taken from there."""
    for folder in (HANDOVER, LEFT):
        found: Schedule | None = Store(root / folder).load(PLAN, PLAN, (Schedule,))
        if found is not None:
            return found
    return None


def taken(root: Path) -> dict[Path, str]:
    """The hand-overs here, each with its name: what was downloaded, and what jobs left."""
    return handed_over(root / HANDOVER, root / LEFT)


def gather(folders: Iterable[Path], store: Store) -> tuple[str, ...]:
    """Merge hand-overs into the build folder."""
    return merge(folders, store.folder)


def judge_run(
    root: Path,
    store: Store,
    report: Callable[[], tuple[ReportRow, ...]],
    *,
    plan_ended: str,
    ended: Iterable[str],
) -> Judgement:
    """Whether everything that was planned has passed. `report` says what the build folder holds,
    once the hand-overs are in it.
    """
    planned = kept_plan(root)
    gather(taken(root), store)
    if planned is None:
        return judge(None, (), plan_ended=plan_ended, ended=ended)
    found = (kept_standing(store, *one) for one in planned.timed)
    standings = [one for one in found if one is not None]
    return judge(planned, report(), plan_ended=plan_ended, ended=ended, standings=standings)
