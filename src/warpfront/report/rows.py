"""The report as values: one row per cell and target, from the results of the steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront.errors import FailureKind
from warpfront.images.built import BuiltImage
from warpfront.matrix.cell import Cell
from warpfront.release.ledger import Publication, Stage
from warpfront.step_results import Blocked, Failed, repeat_line
from warpfront.system.texts import counted, readable_size
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of
from warpfront_checks.check_options import stored_options

NOT_RUN = "-"
BUILT = frozenset({"built", "reused"})
"""What `build` says of an image that is there."""
STRICT = "strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A cell on one target.

    `lock` is `fresh` or the reason; `relaxed` are the packages whose demands on the torch stack the
    matrix waives. `build` is `built`, `reused`, `failed`, `blocked` or `-`; `verify` is an outcome
    or `-`. `check_options` is empty for all checks by our own bounds, else `quick`, a profile, or
    both, and how many sessions an interrupted verification of the same image had proven. Sizes are
    bytes; `-` never means a pass. `published` are the tags of this image and their bytes, "" for
    none. Of a failure, `kind` is its kind and `repeat` the line that repeats it; else both are "".
    """

    cell_id: str
    target: str
    lock: str
    relaxed: tuple[str, ...]
    build: str
    verify: str
    check_options: str
    size_bytes: int | None
    build_seconds: float | None
    verify_seconds: float | None
    checks_passed: int
    checks: int
    reason: str
    published: str = ""
    kind: str = ""
    repeat: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """Results of one cell: its lock's state ("" = fresh) or the error of the last `lock`, what
    it relaxes, its build, its verifications by target, its publication, and by target why a
    job verified nothing.
    """

    cell: Cell
    lock: str
    build: BuiltImage | Blocked | Failed | None
    verifications: Mapping[str, Verification]
    relaxed: tuple[str, ...] = ()
    publication: Publication | Blocked | Failed | None = None
    not_locked: Blocked | Failed | None = None
    not_run: Mapping[str, Failed] = field(default_factory=dict)

    @property
    def unmade(self) -> Blocked | Failed | None:
        """Return why the cell has no image, if a step recorded it."""
        if isinstance(self.build, Blocked | Failed):
            return self.build
        return self.not_locked if self.build is None and self.lock else None


def report_rows(facts: Iterable[CellFacts], *, target: str = "") -> tuple[ReportRow, ...]:
    """Return a row for every cell and every target it serves, or for `target` alone."""
    return tuple(
        _row(fact, served)
        for fact in facts
        for served in ((target,) if target in fact.cell.targets else fact.cell.targets)
    )


def _row(fact: CellFacts, target: str) -> ReportRow:
    build = fact.build if isinstance(fact.build, BuiltImage) else None
    verification = fact.verifications.get(target)
    if not build or (verification and verification.content_hash != build.content_hash):
        verification = None  # an older image's does not count
    checks = verification.checks if verification else ()
    reasons = [fact.unmade.reason] if fact.unmade else []
    bad = (check for check in checks if check.outcome is not Outcome.PASSED)
    reasons += (f"{check.session}/{check.name}: {check.reason}" for check in bad)
    if verification is None and target in fact.not_run:
        reasons.append(fact.not_run[target].reason)
    if isinstance(fact.publication, Blocked | Failed):
        reasons.append(f"not published: {fact.publication.reason}")
    words = {Blocked: "blocked", Failed: "failed", type(None): NOT_RUN}
    built = "reused" if build and build.reused else "built"
    return ReportRow(
        cell_id=fact.cell.id,
        target=target,
        lock=fact.lock or "fresh",
        relaxed=fact.relaxed,
        build=words.get(type(fact.build), built),
        verify=outcome_of(verification).value if verification else NOT_RUN,
        check_options=_options(verification) if verification else "",
        size_bytes=build.size_bytes if build else None,
        build_seconds=build.seconds if build else None,
        verify_seconds=verification.seconds if verification else None,
        checks_passed=sum(check.outcome is Outcome.PASSED for check in checks),
        checks=len(checks),
        reason=next(filter(None, reasons), ""),
        published=_published(fact.publication, build),
        **_failure(fact, target, verification),
    )


def _published(publication: Publication | Blocked | Failed | None, build: BuiltImage | None) -> str:
    """Return the tags of this very image, with the bytes that were sent and those there already."""
    if (
        not isinstance(publication, Publication)
        or publication.stage is not Stage.DONE
        or not build
        or publication.image_id != build.image_id
    ):
        return ""
    indexes = (index.tag for index in publication.indexes if index.digest)
    tags = " ".join([*(tag.tag for tag in publication.tags), *indexes])
    sent, present = map(readable_size, (publication.sent_bytes, publication.present_bytes))
    signature = "signed" if publication.signed_by else "unsigned"
    return f"{publication.channel}: {tags} ({signature}; {sent} sent, {present} there)"


def _options(verification: Verification) -> str:
    options = stored_options(verification.environment)
    if options is None:
        return ""
    words = (["quick"] if options.get("quick") else []) + [str(options.get("profile"))]
    before = verification.environment.get("proven before")
    note = f"{counted(len(before), 'session')} proven before" if isinstance(before, Mapping) else ""
    words_text = " ".join(word for word in words if word != STRICT)
    return ", ".join(filter(None, (words_text, note)))


def _failure(fact: CellFacts, target: str, verification: Verification | None) -> dict[str, str]:
    """Its kind, and how to repeat it."""
    if isinstance(fact.unmade, Failed):
        return {"kind": str(fact.unmade.kind), "repeat": fact.unmade.repeat}
    if isinstance(fact.unmade, Blocked):
        repeat = repeat_line(fact.unmade.step, fact.cell.id)
        return {"kind": FailureKind.INFRASTRUCTURE.value, "repeat": repeat}
    outcome = outcome_of(verification) if verification else Outcome.PASSED
    if outcome is Outcome.PASSED:
        return {}
    gone = outcome is Outcome.UNAVAILABLE
    kind = FailureKind.INFRASTRUCTURE if gone else FailureKind.VERDICT
    return {"kind": kind.value, "repeat": repeat_line("verify", fact.cell.id, target)}
