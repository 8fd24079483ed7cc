"""Tries to get a red cell green, or an unproven image public. Each goes through `required` and
through publishing, by the functions that the jobs call; docs/results/tries.md lists them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders import FULL, a_check, an_outcome
from runs import ENDED, MINE, OTHER, SESSIONS, TARGET, TOKEN, VARIABLES, CiRun

from warpfront.ci.flow import HANDOVER
from warpfront.ci.handover import MANIFEST
from warpfront.commands.ci_runs import _judged_again
from warpfront.images.labels import BASE_SOURCE
from warpfront.release.ledger import Stage
from warpfront.verify.results import Outcome

PAGE = Path(__file__).parents[3] / "docs" / "results" / "tries.md"
BEGIN, END = "<!-- tries: begin -->\n", "<!-- tries: end -->"
Act = Callable[[CiRun], object]
FAILED = (a_check(), a_check(Outcome.FAILED, session="numerics", name="mm"))
OLD = "2020-01-01T00:00:00+00:00"
PASSING = tuple(a_check(session=session) for session in SESSIONS)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try. `before` comes between verifying and publishing, `after` between publishing and the
    check. `checks` is what the verification truly found, `says` a part of the reason. `alone`:
    the check is red for it also where nothing is published.
    """

    kind: str
    title: str
    says: str
    before: Act = lambda _run: None
    after: Act = lambda _run: None
    checks: tuple[Any, ...] = ()
    labels: dict[str, str] | None = None
    run: dict[str, Any] | None = None
    alone: bool = True


def passed(document: dict[str, Any]) -> None:
    for check in document["checks"]:
        check["outcome"] = "passed"


def without(index: int) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["checks"].pop(index)


def setting(**changes: Any) -> Act:
    return lambda run: run.edit(lambda document: document.update(changes))


def forging(**changes: Any) -> Act:
    return lambda run: run.forge(**changes)


def steps(*acts: Act) -> Act:
    """One after the other."""

    def act(run: CiRun) -> None:
        for one in acts:
            one(run)

    return act


def outcomes(*found: str) -> Act:
    """A sealed result whose checks came to these words."""

    def act(run: CiRun) -> None:
        checks = [
            dataclasses.replace(
                a_check(session=SESSIONS[-1]), name=f"check {n}", outcome=an_outcome(word)
            )
            for n, word in enumerate(found)
        ]
        run.forge(checks=(a_check(), *checks))

    return act


def ended(name: str, how: str | None) -> Act:
    def act(run: CiRun) -> None:
        run.states.pop(name)
        run.states |= {} if how is None else {name: how}

    return act


def of_run(**changes: Any) -> dict[str, Any]:
    """The same changes to both witnesses, as the forge would have them."""
    variables = dataclasses.replace(VARIABLES, **changes)
    token = {name: one for name, one in changes.items() if name != "default_branch"}
    return {
        "plan_origin": variables,
        "origins": (variables, dataclasses.replace(TOKEN, **token)),
    }


def of_token(**changes: Any) -> dict[str, Any]:
    """Variables that a step has set right, and a token that a step cannot set."""
    return {"origins": (VARIABLES, dataclasses.replace(TOKEN, **changes))}


def copied(source: CiRun, cell: str) -> bytes:
    place = source.root / HANDOVER / f"verify-{cell}-{TARGET}" / "build" / cell
    return (place / f"verify-{TARGET}.json").read_bytes()


def swap(run: CiRun) -> None:
    mine, other = copied(run, MINE.id), copied(run, OTHER.id)
    run.rewrite(lambda _: other)
    theirs = run.root / HANDOVER / f"verify-{OTHER.id}-{TARGET}" / "build" / OTHER.id
    run.rewrite(lambda _: mine, theirs / f"verify-{TARGET}.json")


def of_an_older_image(run: CiRun) -> None:
    """The result that the image before had, which was proven; the new one was found wrong."""
    older = run.verified(MINE)
    run.world.build(MINE, content="c", says="mine")
    run.hand_over("build", MINE)
    run.world.store.save(MINE.id, f"verify-{TARGET}", older)
    run.hand_over(f"verify-{TARGET}", MINE, name=f"verify-{MINE.id}-{TARGET}")


def twice(run: CiRun) -> None:
    """A second hand-over with another result of the same name."""
    first = run.result.parents[2]
    shutil.copytree(first, first.parent / "another")
    path = first.parent / "another" / "build" / MINE.id / f"verify-{TARGET}.json"
    run.edit(lambda document: document.update(seconds=9.0), path)


def built_as(run: CiRun) -> None:
    """build.json names the image of another cell, which was proven, under this cell's name."""
    place = run.root / HANDOVER / "build-mine" / "build" / MINE.id / "build.json"
    theirs = run.root / HANDOVER / "build-other" / "build" / OTHER.id / "build.json"
    other = json.loads(theirs.read_text())["value"]
    run.edit(lambda document: document.update(image_id=other["image_id"]), place)
    run.forge(image_id=other["image_id"])


def rerun(run: CiRun) -> None:
    """The job again after it failed: the same image passes now."""
    failed = run.verified(MINE, *FAILED)
    now = run.verified(MINE)
    _judged_again(now, failed, run.world.store)
    run.hand_over(f"verify-{TARGET}", MINE, name=f"verify-{MINE.id}-{TARGET}")


def plan_without_the_cell(run: CiRun) -> None:
    path = run.root / HANDOVER / "plan" / "plan.json"
    document = json.loads(path.read_text())
    value = document["value"]
    value["publish"] = [one for one in value["publish"] if "mine" not in one["cells"]]
    for works in (value["build"], value["verify"]):
        for name in works:
            works[name] = [one for one in works[name] if "mine" not in one["cells"]]
    path.write_text(json.dumps(document))


def publication_said_done(run: CiRun) -> None:
    """A publication that failed, with a result that says it did not."""
    place = run.root / HANDOVER / "publish-other" / "build" / OTHER.id / "publish.json"
    mine = run.root / HANDOVER / "publish-mine" / "build" / MINE.id / "publish.json"
    run.rewrite(lambda _: place.read_bytes(), mine)
    run.edit(lambda document: document.update(cell_id="mine"), mine)


def broke_off(run: CiRun) -> None:
    mine = run.root / HANDOVER / "publish-mine" / "build" / MINE.id / "publish.json"
    run.edit(lambda document: document.update(stage=Stage.PROVEN.value), mine)


def gone(run: CiRun) -> None:
    shutil.rmtree(run.result.parents[2])


def link(run: CiRun) -> None:
    content = run.result.read_bytes()
    target = run.root / "elsewhere.json"
    target.write_bytes(content)
    run.result.unlink()
    run.result.symlink_to(target)


def fifo(run: CiRun) -> None:
    run.result.unlink()
    os.mkfifo(run.result)


def outside(run: CiRun) -> None:
    folder = run.result.parents[2]
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["build/mine/../../../build.json"] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(manifest))


def lax(run: CiRun) -> None:
    """A channel that allows the skip publishes it; this one is asked for."""
    run.verified(MINE, a_check(), a_check(Outcome.SKIPPED, session="numerics"))


EDITED = "the verification was changed after it was made"
TRIES: tuple[Try, ...] = (
    # --- results that were edited, whose seal is of what they were ---
    Try(
        kind="edited",
        title="a failed check says passed",
        checks=FAILED,
        before=lambda run: run.edit(passed),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="the failed check is taken out",
        checks=FAILED,
        before=lambda run: run.edit(without(1)),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="the failed check is turned into another session's",
        checks=FAILED,
        before=lambda run: run.edit(lambda document: document["checks"][1].update(session="x")),
        says=EDITED,
    ),
    Try(kind="edited", title="the seal is stripped", before=setting(seal=""), says=EDITED),
    Try(
        kind="edited",
        title="the seal is not there at all",
        before=lambda run: run.edit(lambda document: document.pop("seal")),
        says=EDITED,
    ),
    Try(
        kind="edited", title="a seal of something else", before=setting(seal="0" * 64), says=EDITED
    ),
    Try(
        kind="edited",
        title="an old result is dated today",
        before=steps(forging(ended=OLD), setting(ended=ENDED)),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="a quick verification says it was whole",
        before=steps(
            forging(environment={"check_options": {**FULL, "quick": True}}),
            setting(environment={"check_options": FULL}),
        ),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="it is said to be of this image",
        before=steps(
            forging(image_id="sha256:" + "1" * 64),
            lambda run: setting(image_id=run.verified(MINE).image_id)(run),
            setting(seal="1" * 64),
        ),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="it is said to be of this target",
        before=setting(target="gfx942"),
        says=EDITED,
    ),
    Try(
        kind="edited",
        title="a file that its manifest has another sha256 of",
        before=lambda run: run.result.write_bytes(run.result.read_bytes() + b" "),
        says="is not what was handed over",
    ),
    # --- results with a seal made anew: whoever can run the program can make one ---
    Try(
        kind="forged",
        title="of another image of the same content",
        before=forging(image_id="sha256:" + "1" * 64),
        says="verified was another image",
    ),
    Try(
        kind="forged",
        title="of another content",
        before=forging(content_hash="1" * 64),
        says="verified was another content",
    ),
    Try(
        kind="forged",
        title="of another target",
        before=forging(target="sm_90"),
        says="verified was mine on sm_90",
    ),
    Try(
        kind="forged",
        title="of another cell",
        before=forging(cell_id="other"),
        says="verified was other",
    ),
    Try(
        kind="forged",
        title="of no image (`verify --here`)",
        before=forging(where="here"),
        says="(here)",
    ),
    Try(kind="forged", title="of the year 2020", before=forging(ended=OLD), says="48 h at most"),
    Try(
        kind="forged",
        title="older than the channel takes",
        before=forging(ended="2026-11-20T11:00:00+00:00"),
        says="verified 49 h ago",
    ),
    Try(
        kind="forged",
        title="of the future",
        before=forging(ended="2026-11-22T13:00:00+00:00"),
        says="of the future",
    ),
    Try(kind="forged", title="without a date", before=forging(ended=""), says="does not say when"),
    Try(
        kind="forged",
        title="with a date of no time zone",
        before=forging(ended="2026-11-22T11:00:00"),
        says="does not say when",
    ),
    Try(
        kind="forged",
        title="of one session only",
        before=forging(checks=(a_check(),), sessions=("load",)),
        says="numerics: not run",
    ),
    Try(
        kind="forged",
        title="that lists a session without any check of it",
        before=forging(checks=(a_check(),), sessions=SESSIONS),
        says="numerics: not run",
    ),
    Try(
        kind="forged",
        title="without any check",
        before=forging(checks=(), sessions=()),
        says="load: not run",
    ),
    Try(
        kind="forged",
        title="by quick checks",
        before=forging(environment={"check_options": {**FULL, "quick": True}}),
        says="quick checks only",
    ),
    Try(
        kind="forged",
        title="by loose tolerances",
        before=forging(environment={"check_options": {**FULL, "profile": "loose"}}),
        says="the tolerances of loose",
    ),
    Try(
        kind="forged",
        title="that does not say how much was checked",
        before=forging(environment={}),
        says="does not say how much was checked",
    ),
    Try(
        kind="forged",
        title="that does not say what the image holds",
        before=forging(environment={"check_options": FULL}),
        says="does not say what the image holds",
    ),
    Try(
        kind="forged",
        title="of an outcome that nobody knows",
        before=outcomes("wonderful"),
        says="wonderful",
    ),
    Try(
        kind="forged",
        title="of a check that an emulator answered",
        before=outcomes("emulated"),
        says="emulated",
    ),
    # --- honest results that are no pass ---
    Try(kind="red", title="a failed check", checks=FAILED, says="numerics/mm: failed"),
    Try(
        kind="red",
        title="a failed check of a session that nobody demands",
        checks=(*PASSING, a_check(Outcome.FAILED, session="golden", name="torch")),
        says="golden/torch: failed",
    ),
    Try(
        kind="red",
        title="a check that broke off",
        checks=(a_check(), a_check(Outcome.ERROR, session="numerics")),
        says="error",
    ),
    Try(
        kind="red",
        title="no such device",
        checks=(a_check(), a_check(Outcome.UNAVAILABLE, session="numerics")),
        says="unavailable",
    ),
    Try(
        kind="red",
        title="a skipped check that another channel allows",
        before=lax,
        says="numerics/torch imports: skipped",
    ),
    Try(
        kind="red",
        title="a bootstrapped base that another channel allows",
        labels={BASE_SOURCE: "bootstrap"},
        alone=False,
        says="its base was made by a bootstrap",
    ),
    Try(
        kind="red",
        title="nobody who signs",
        run={"signs": False},
        says="no key to sign it with",
        alone=False,
    ),
    # --- hand-overs ---
    Try(kind="handed over", title="no result at all", before=gone, says="not verified"),
    Try(
        kind="handed over",
        title="a result that is cut off",
        before=lambda run: run.rewrite(lambda content: content[: len(content) // 2]),
        says="verify-x86_64.json",
    ),
    Try(
        kind="handed over",
        title="a result that is no JSON",
        before=lambda run: run.rewrite(lambda _: b"\x00\xff passed"),
        says="verify-x86_64.json",
    ),
    Try(
        kind="handed over",
        title="a result of 100,000 levels",
        before=lambda run: run.rewrite(lambda _: b"[" * 100_000),
        says="verify-x86_64.json",
    ),
    Try(
        kind="handed over",
        title="a link in the place of a result",
        before=link,
        says="verify-x86_64.json",
    ),
    Try(
        kind="handed over",
        title="a FIFO in the place of a result",
        before=fifo,
        says="verify-x86_64.json",
    ),
    Try(
        kind="handed over",
        title="two results of one name",
        before=twice,
        says="have different files",
    ),
    Try(
        kind="handed over",
        title="a file that is in no manifest",
        before=lambda run: (run.result.parent / "build.json").write_text("{}"),
        says="is in no manifest",
    ),
    Try(
        kind="handed over",
        title="a place outside the build folder",
        before=outside,
        says="is no place",
    ),
    Try(
        kind="handed over",
        title="another cell's result under this one's name",
        before=lambda run: run.rewrite(lambda _: copied(run, OTHER.id)),
        says="verified was other",
    ),
    Try(
        kind="handed over",
        title="two cells' results swapped",
        before=swap,
        says="verified was other",
    ),
    Try(
        kind="handed over",
        title="build.json names an image that was proven",
        before=built_as,
        says="content hash",
        alone=False,
    ),
    # --- replayed ---
    Try(
        kind="replayed",
        title="the result of the image before",
        before=of_an_older_image,
        says="another content",
    ),
    Try(
        kind="replayed",
        title="a result of a job that this run does not have",
        before=ended(f"verify-mine-{TARGET}", None),
        says="the run has no job that verified it",
    ),
    # --- how jobs ended ---
    Try(
        kind="jobs",
        title="the verifying job failed, its results passed",
        before=ended(f"verify-mine-{TARGET}", "failure"),
        says="its job ended with failure, and its results say passed",
    ),
    Try(
        kind="jobs",
        title="the same on GitLab, whose jobs once were allowed to fail",
        before=ended(f"verify-mine-{TARGET}", "failed"),
        says="its job ended with failed",
    ),
    Try(
        kind="jobs",
        title="the verifying job was cancelled, an earlier result lies there",
        before=ended(f"verify-mine-{TARGET}", "cancelled"),
        says="its job ended with cancelled",
    ),
    Try(
        kind="jobs",
        title="the verifying job was cancelled before it left a result",
        before=steps(gone, ended(f"verify-mine-{TARGET}", "cancelled")),
        says="not verified",
    ),
    Try(
        kind="jobs",
        title="the verifying job is still in the queue",
        before=ended(f"verify-mine-{TARGET}", "queued"),
        says="its job ended with queued",
    ),
    Try(
        kind="jobs",
        title="the verifying job was skipped",
        before=ended(f"verify-mine-{TARGET}", "skipped"),
        says="its job ended with skipped",
    ),
    Try(kind="jobs", title="run again until it passes", before=rerun, says="flips on one digest"),
    # --- another ref, event, repository or workflow ---
    Try(
        kind="ref",
        title="another branch",
        run=of_run(ref="refs/heads/feature"),
        says="neither the branch main",
    ),
    Try(
        kind="ref",
        title="a branch that is called as a release tag",
        run=of_run(ref="refs/heads/v1"),
        says="neither the branch main",
    ),
    Try(
        kind="ref",
        title="a tag that is none of a release",
        run=of_run(ref="refs/tags/x1"),
        says="nor a tag v*",
    ),
    Try(
        kind="ref",
        title="a release tag that anybody may set",
        run=of_run(ref="refs/tags/v1", protected=False),
        says="refs/tags/v1 is not protected",
    ),
    Try(
        kind="ref",
        title="a default branch that anybody may push to",
        run=of_run(protected=False),
        says="is not protected",
    ),
    Try(
        kind="ref",
        title="a pull request",
        run=of_run(event="pull_request"),
        says="`pull_request` publishes nothing",
    ),
    Try(
        kind="ref",
        title="a fork's pull request with the rights of the repository",
        run=of_run(event="pull_request_target"),
        says="`pull_request_target` publishes nothing",
    ),
    Try(
        kind="ref",
        title="a run that another workflow started",
        run=of_run(event="workflow_run"),
        says="`workflow_run` publishes nothing",
    ),
    Try(
        kind="ref",
        title="a fork",
        run=of_run(repository="https://github.com/else/mine"),
        says="the run is of https://github.com/else/mine",
    ),
    Try(
        kind="ref",
        title="a plan of another branch that lies",
        run={**of_run(ref="refs/heads/feature"), "plan_lies": True},
        alone=False,
        says="neither the branch main",
    ),
    Try(
        kind="ref",
        title="another branch whose steps set GITHUB_REF",
        run=of_token(ref="refs/heads/feature"),
        says="the job's OIDC token: refs/heads/feature",
    ),
    Try(
        kind="ref",
        title="another workflow of the repository",
        run=of_token(workflow="me/mine/.github/workflows/other.yml@refs/heads/main"),
        says="the workflow is me/mine/.github/workflows/other.yml",
    ),
    Try(
        kind="ref",
        title="the workflow as another branch has it",
        run=of_token(workflow=TOKEN.workflow.replace("main", "feature")),
        says="the workflow is",
    ),
    Try(
        kind="ref",
        title="a token that cannot be read",
        run=of_token(fault="the forge gives no token"),
        says="the forge gives no token",
    ),
    Try(
        kind="ref",
        title="a merge request of GitLab whose branch is called main",
        run=of_run(forge="gitlab", event="merge_request_event", ref=""),
        says="`merge_request_event` publishes nothing",
    ),
)
LATE: tuple[Try, ...] = (
    Try(
        kind="after publishing",
        title="the plan loses the cell",
        after=plan_without_the_cell,
        says="is not what the job `plan` left",
    ),
    Try(
        kind="after publishing",
        title="the job `plan` has no digest of its plan",
        after=lambda run: setattr(run, "words", dataclasses.replace(run.words, plan_digest="")),
        says="is not what the job `plan` left",
    ),
    Try(
        kind="after publishing",
        title="the publishing job failed, as GitLab once allowed",
        after=ended("publish-mine", "failed"),
        says="some ended with failed",
    ),
    Try(
        kind="after publishing",
        title="a failed publication has another's result",
        after=publication_said_done,
        says="another image",
    ),
    Try(
        kind="after publishing",
        title="a publication that broke off",
        after=broke_off,
        says="it broke off at proven",
    ),
    Try(
        kind="after publishing",
        title="a publishing job without a result",
        after=lambda run: shutil.rmtree(run.root / HANDOVER / "publish-mine"),
        says="no job left a result",
    ),
    Try(
        kind="after publishing",
        title="a building job that was cancelled",
        after=ended("build-mine", "cancelled"),
        says="some ended with cancelled",
    ),
    Try(
        kind="after publishing",
        title="no plan",
        after=lambda run: shutil.rmtree(run.root / HANDOVER / "plan"),
        says="nothing was planned",
    ),
)


def ran(one: Try, folder: Path) -> CiRun:
    run = CiRun(root=folder, **(one.run or {}))
    run.make(*one.checks, labels=one.labels)
    one.before(run)
    run.publish()
    return run


def test_what_nobody_touched_is_public_and_green(tmp_path: Path) -> None:
    """The control: without it every row below would pass for the wrong reason."""
    run = ran(Try(kind="control", title="untouched", says=""), tmp_path)
    assert (run.reasons, run.required()) == ([], None)
    assert len(run.public) == 1


@pytest.mark.parametrize("one", TRIES, ids=[one.title for one in TRIES])
def test_no_try_gets_an_unproven_image_public_or_a_red_cell_green(one: Try, tmp_path: Path) -> None:
    run = ran(one, tmp_path)
    assert run.public == []
    assert run.reasons
    assert one.says in run.reasons[0], run.reasons
    assert run.required() is not None


ALONE = [
    one for one in TRIES if one.alone and (one.kind != "ref" or "plan_origin" in (one.run or {}))
]


@pytest.mark.parametrize("one", ALONE, ids=[one.title for one in ALONE])
def test_the_check_is_red_by_itself_where_nothing_is_published(one: Try, tmp_path: Path) -> None:
    """What publishing would refuse, `required` refuses too: it believed such results once."""
    facts = {**(one.run or {}), "publishes": False}
    run = ran(dataclasses.replace(one, run=facts), tmp_path)
    error = run.required()
    assert error is not None
    assert one.kind == "ref" or one.says in error.message, error.message


@pytest.mark.parametrize("one", LATE, ids=[one.title for one in LATE])
def test_no_try_after_publishing_makes_the_check_green(one: Try, tmp_path: Path) -> None:
    run = ran(one, tmp_path)
    one.after(run)
    error = run.required()
    assert error is not None
    assert one.says in error.message


def test_the_page_lists_every_try(request: pytest.FixtureRequest) -> None:
    lines = ["| | try | why not |", "|---|---|---|"]
    lines += [f"| {one.kind} | {one.title} | {one.says} |" for one in (*TRIES, *LATE)]
    table = "\n".join([*lines, ""])
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    written = f"{head}{BEGIN}{table}{END}{tail}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(written, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == written
    assert len(TRIES) >= 40
