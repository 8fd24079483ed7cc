"""Which jobs a run has, and what every cell without one is told."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from builders import a_cell, a_child

from warpfront.ci.flow import make_flow, packaged_limits
from warpfront.ci.schedule import (
    SCOPES,
    Schedule,
    Work,
    outputs,
    schedule,
    shards,
)
from warpfront.errors import InputError, StaleError
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import Project
from warpfront.matrix.reading import Matrix
from warpfront.matrix.runners import Runner

UBUNTU = Runner(
    name="ubuntu",
    trust="hosted",
    labels=("ubuntu-24.04",),
    group="",
    machine="x86_64",
    builds=True,
    vendor="cpu",
    targets=("x86_64",),
    count=20,
    engine="theirs",
)
H100 = dataclasses.replace(
    UBUNTU,
    name="h100",
    trust="self-hosted",
    labels=("h100",),
    builds=False,
    vendor="nvidia",
    targets=("sm_90",),
)
CPU = a_cell(targets=("x86_64",))
SERVE = a_child(CPU)
GPU = a_cell(id="gpu", vendor="nvidia", targets=("sm_80", "sm_90"))
CELLS = (CPU, SERVE, GPU)


def made(scope: str = "nightly", cells: tuple[Cell, ...] = CELLS, **changes: Any) -> Schedule:
    facts: dict[str, Any] = {
        "runners": (UBUNTU, H100),
        "now": {cell.id: f"now-{cell.id}" for cell in cells},
        "before": None,
        "blocked": {},
    }
    return schedule(cells, scope=SCOPES[scope], **{**facts, **changes})


LIMITS = packaged_limits()


def told_by(planned: Schedule, *runners: Runner) -> dict[str, str]:
    """What `plan` gives to the jobs of these machines' flow."""
    project = Project(
        name="mine",
        source="https://example.test/mine",
        licenses="Apache-2.0",
        repository="registry.test/mine",
    )
    matrix = Matrix(project=project, cells=CELLS, warnings=(), runners=runners)
    flow = make_flow(matrix, (), releases=True)
    return outputs(planned, flow.jobs, LIMITS)


def test_a_chain_of_images_is_one_job_and_each_cell_and_target_another() -> None:
    planned = made()
    assert planned.build == {
        "ubuntu": (
            Work(name=f"build-{CPU.id}", cells=(CPU.id, SERVE.id), vendor="cpu"),
            Work(name="build-gpu", cells=("gpu",), vendor="nvidia"),
        )
    }
    assert [work.name for work in planned.verify["ubuntu"]] == [
        f"verify-{CPU.id}-x86_64",
        f"verify-{SERVE.id}-x86_64",
    ]
    assert [work.after for work in planned.verify["ubuntu"]] == [(f"build-{CPU.id}",)] * 2
    assert [work.target for work in planned.verify["h100"]] == ["sm_90"]


def test_what_nobody_has_is_unavailable_and_said() -> None:
    (missing,) = made().unavailable
    assert (missing.cell_id, missing.target) == ("gpu", "sm_80")
    assert missing.reason == "no runner of the table has sm_80"


def test_a_pull_request_reaches_hosted_machines_only_and_says_what_comes_later() -> None:
    planned = made("pull_request")
    assert set(planned.verify) == {"ubuntu"}
    assert {one.target for one in planned.later} == {"sm_80", "sm_90"}
    assert planned.unavailable == ()
    assert planned.publish == ()
    assert planned.building == (CPU.id, SERVE.id, "gpu")


def test_nobody_of_ours_builds_for_a_pull_request() -> None:
    own = dataclasses.replace(UBUNTU, trust="self-hosted")
    assert made("pull_request", runners=(own,)).build == {}
    assert set(made("merge_queue", runners=(own,)).build) == {"ubuntu"}


def test_an_unchanged_cell_makes_no_job() -> None:
    before = {cell.id: f"now-{cell.id}" for cell in CELLS} | {SERVE.id: "another"}
    planned = made("merge_queue", before=before)
    assert planned.building == (SERVE.id,)
    assert planned.selected == ((SERVE.id, "x86_64"),)
    assert planned.unchanged == (CPU.id, "gpu")
    assert made("nightly", before=before).unchanged == ()


def test_what_can_be_made_nowhere_is_unavailable_until_it_is_not_new() -> None:
    (blocked, *_) = made(blocked={"gpu": "its lock: never built"}).unavailable
    assert (blocked.cell_id, blocked.reason) == ("gpu", "its lock: never built")
    same = {cell.id: f"now-{cell.id}" for cell in CELLS}
    assert made("merge_queue", before=same, blocked={"gpu": "x"}).unavailable == ()


def test_another_machine_needs_a_builder_of_its_own() -> None:
    arm = a_cell(id="arm", machine="aarch64", targets=("aarch64",))
    (missing,) = made(cells=(arm,)).unavailable
    assert "builds for aarch64" in missing.reason


def test_a_cell_that_no_machine_verifies_has_no_job_that_publishes_it() -> None:
    planned = made("release", runners=(UBUNTU,))
    assert planned.publishing == (CPU.id, SERVE.id)
    assert {one.cell_id for one in planned.unavailable} == {"gpu"}


def test_a_row_without_a_machine_online_makes_no_job_and_says_so() -> None:
    asleep = {"h100": "no machine of the row `h100` (h100) is online"}
    planned = made("nightly", offline=asleep)
    assert set(planned.verify) == {"ubuntu"}
    reasons = {one.target: one.reason for one in planned.unavailable}
    assert reasons["sm_90"] == asleep["h100"]
    assert "no runner of the table has sm_80" in reasons["sm_80"]


def test_a_run_after_the_merge_has_what_changed_and_publishes_nothing() -> None:
    before = {cell.id: f"now-{cell.id}" for cell in CELLS} | {"gpu": "another"}
    planned = made("merged", before=before)
    assert planned.building == ("gpu",)
    assert (planned.channel, planned.publish) == ("", ())
    assert set(planned.verify) == {"h100"}


def test_a_release_publishes_what_was_made() -> None:
    planned = made("release")
    assert planned.channel == "release"
    assert [work.cells for work in planned.publish] == [(CPU.id,), (SERVE.id,), ("gpu",)]


def test_a_night_times_the_first_image_of_each_chain_where_it_was_verified() -> None:
    row = dataclasses.replace(UBUNTU, bench="tiny")
    planned = made(runners=(row, H100))
    (work,) = planned.bench["ubuntu"]
    assert (work.name, work.target) == (f"bench-{CPU.id}-x86_64", "x86_64")
    assert work.after == (f"build-{CPU.id}", f"verify-{CPU.id}-x86_64")
    assert planned.timed == ((CPU.id, "x86_64"),)
    told = json.loads(told_by(planned, row, H100)["bench-cpu"])
    assert told[0]["jobs"][0]["after"] == ",".join(work.after)
    for scope in ("release", "merge_queue", "labelled"):
        assert made(scope, runners=(row, H100)).bench == {}


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (256, [256]), (300, [256, 44])])
def test_no_matrix_has_more_jobs_than_a_forge_takes(count: int, sizes: list[int]) -> None:
    works = [("ubuntu", Work(name=f"build-{n}", cells=(str(n),))) for n in range(count)]
    made_of_them = shards(works, LIMITS["jobs_per_matrix"])
    assert [len(one["jobs"]) for one in made_of_them] == sizes  # type: ignore[arg-type]
    assert LIMITS["jobs_per_matrix"] == 256


def test_an_empty_plan_is_an_empty_list_for_every_job() -> None:
    told = told_by(made(cells=()), UBUNTU, H100)
    assert told.pop("channel") == "nightly"
    assert set(told.values()) == {"[]"}
    kinds = ("build", "candidate", "publish")
    both = {f"{kind}-{vendor}" for kind in kinds for vendor in ("cpu", "nvidia")}
    assert told.keys() == both | {"verify-cpu", "verify-nvidia-own"}


def test_what_is_published_is_sent_to_the_registry_as_it_is_built() -> None:
    nightly, queue = (told_by(made(scope), UBUNTU, H100) for scope in ("nightly", "merge_queue"))
    assert nightly["build-cpu"] == queue["candidate-cpu"] == "[]"
    sent, kept = (json.loads(one) for one in (nightly["candidate-cpu"], queue["build-cpu"]))
    # What no registry gets goes to the jobs that verify it as a file.
    assert sent[0]["jobs"][0]["cells"] == kept[0]["jobs"][0]["images"] == f"{CPU.id} {SERVE.id}"
    assert "images" not in sent[0]["jobs"][0]


def test_images_that_no_job_verifies_are_not_handed_on() -> None:
    """In a pull request without the label a GPU's image is built, and verified nowhere."""
    works = {work.name: work for each in made("pull_request").build.values() for work in each}
    assert works["build-gpu"].images == ()
    assert works[f"build-{CPU.id}"].images == (CPU.id, SERVE.id)


def test_a_publication_is_given_its_own_build_and_verifications_and_no_others() -> None:
    found = {work.name: work.after for work in made("release").publish}
    assert found[f"publish-{SERVE.id}"] == (f"build-{CPU.id}", f"verify-{SERVE.id}-x86_64")
    assert found["publish-gpu"] == ("build-gpu", "verify-gpu-sm_90")


def test_a_work_that_no_job_of_the_workflows_does_is_an_error() -> None:
    planned = dataclasses.replace(made(), build={"ubuntu": (Work(name="lost", cells=("x",)),)})
    with pytest.raises(StaleError, match="no job of the workflows does lost"):
        told_by(planned, UBUNTU, H100)


def test_outputs_are_json_on_one_line_each() -> None:
    told = told_by(made(), UBUNTU, H100)
    (shard,) = json.loads(told["verify-nvidia-own"])
    (job,) = shard["jobs"]
    assert job.pop("name") == "verify-gpu-sm_90"
    assert job == {"cells": "gpu", "runner": "h100", "target": "sm_90", "after": "build-gpu"}
    assert not [text for text in told.values() if "\n" in text]


def test_outputs_that_a_forge_would_refuse_are_an_error_before_it_does() -> None:
    works = tuple(Work(name="n" * 500, cells=(str(n),), vendor="cpu") for n in range(2000))
    planned = dataclasses.replace(made(), build={"ubuntu": works})
    with pytest.raises(InputError, match=str(LIMITS["output_bytes"])):
        told_by(planned, UBUNTU, H100)
