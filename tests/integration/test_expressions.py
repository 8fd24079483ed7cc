"""Every expression of the workflows, evaluated by GitHub's own library for what starts them: which
jobs run, where, with which secrets.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from acting import REPOSITORY_NAME
from node_packages import Expressions, expressions

from warpfront.ci.flow import LABEL, Flow, make_flow, packaged_limits
from warpfront.ci.github_workflows import FOLDER, MAIN, workflows
from warpfront.ci.schedule import SCOPES, Schedule, outputs, schedule
from warpfront.ci.template_files import pinned_actions
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import Matrix, read_matrix
from warpfront.system.provenance import read_forge

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
TOLD = tomllib.loads((ROOT / "tests/forge/events.toml").read_text(encoding="utf-8"))
SECRETS = {
    name: f"the secret {name}"
    for name in (
        "REGISTRY_TOKEN",
        "REGISTRY_READ_TOKEN",
        "COSIGN_PRIVATE_KEY",
        "COSIGN_PASSWORD",
    )
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Expressions]:
    with expressions() as started:
        yield started


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """This repository's cells, on the machines of the table."""
    own = (ROOT / "matrix.yaml").read_text(encoding="utf-8").partition("\nrunners:")[0]
    return read_matrix(f"{own}\n{TOLD['runners']}", path="matrix.yaml", compat=packaged())


@dataclass(kw_only=True)
class Forge:
    """GitHub, as far as it decides what runs: it evaluates, and runs nothing."""

    evaluator: Expressions
    files: Mapping[str, Any]
    github: Mapping[str, Any]
    outputs: Mapping[str, str]
    status: str = "success"
    plan_ended: str = "success"
    environments: set[str] = field(default_factory=set)
    vars: Mapping[str, str] = field(default_factory=dict)
    runs: dict[str, list[Any]] = field(default_factory=dict)

    def decide(self) -> Forge:
        """The jobs that run: each with every text of it filled in."""
        main = self.files[f"{FOLDER}/{MAIN}.yml"]
        ended = {"result": "success", "outputs": {}}
        needs = dict.fromkeys(main["jobs"], ended)
        needs["plan"] = {"result": self.plan_ended, "outputs": dict(self.outputs)}
        given = {"github": self.github, "needs": needs, "vars": self.vars, "secrets": SECRETS}
        for name, job in main["jobs"].items():
            if self._runs(job, given):
                self._add(name, job, given)
        return self

    def _runs(self, job: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
        """A job without a condition of its own needs the success of those before it."""
        text = job.get("if", "${{ success() }}").removeprefix("${{").removesuffix("}}")
        return bool(self.evaluator.value(text.strip(), given, status=self.status))

    def _add(self, name: str, job: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        if "uses" not in job:
            steps = {"call": {"outputs": dict(self.outputs)}}
            filled = self.evaluator.filled(dict(job), {**given, "steps": steps})
            self.runs[name] = [filled]
            if "environment" in filled:
                self.environments.add(filled["environment"])
            return
        for shard in self.evaluator.filled(job["strategy"]["matrix"], given)["include"]:
            called = self.evaluator.filled(
                {key: job[key] for key in ("name", "with", "secrets") if key in job},
                {**given, "matrix": shard},
            )
            self._call(name, job["uses"].removeprefix("./"), called)

    def _call(self, name: str, path: str, called: Mapping[str, Any]) -> None:
        """A called workflow sees its inputs, and of the secrets what it was given."""
        ((_, job),) = self.files[path]["jobs"].items()
        given = {
            "github": self.github,
            "inputs": called["with"],
            "vars": {},
            "secrets": called.get("secrets", {}),
        }
        if not self._runs(job, given):
            return
        for one in self.evaluator.filled(job["strategy"]["matrix"], given)["include"]:
            full = {**given, "matrix": one}
            steps = [step for step in job["steps"] if self._runs(step, full)]
            filled = self.evaluator.filled({**job, "steps": steps}, full)
            self.runs.setdefault(name, []).append(filled)
            if "environment" in filled:
                self.environments.add(filled["environment"])


def the_flow(matrix: Matrix) -> Flow:
    project = dataclasses.replace(matrix.project, repository="registry.example.com/mine")
    return make_flow(dataclasses.replace(matrix, project=project), ("x",), releases=True)


def planned(matrix: Matrix, scope: str) -> Schedule:
    fingerprints = {cell.id: "x" for cell in matrix.cells}
    return schedule(
        matrix.cells,
        scope=SCOPES[scope],
        runners=matrix.runners,
        now=fingerprints,
        before=None,
        blocked={},
    )


def a_forge(
    matrix: Matrix, evaluator: Expressions, event: Mapping[str, Any], plan: Schedule, **how: Any
) -> Forge:
    payload = json.loads(event["payload"])
    github = {
        "event_name": event["name"],
        "event": payload,
        "ref": event.get("ref", "refs/heads/main"),
        "repository": REPOSITORY_NAME,
        "run_id": 1234,
        "actor": "somebody",
        "token": "the job's token",
    }
    files = workflows(the_flow(matrix), pinned_actions(), packaged_limits())
    return Forge(
        evaluator=evaluator,
        files={path: yaml.safe_load(text) for path, text in files.items()},
        github=github,
        outputs=outputs(plan, the_flow(matrix).jobs, packaged_limits()),
        **how,
    ).decide()


def scope_of(event: Mapping[str, Any], folder: Path) -> str:
    (folder / "event.json").write_text(event["payload"], encoding="utf-8")
    environment = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_EVENT_NAME": event["name"],
        "GITHUB_REPOSITORY": REPOSITORY_NAME,
    }
    return read_forge(environment, label=LABEL).scope


def secrets_in(value: object) -> bool:
    return any(secret in str(value) for secret in SECRETS.values())


@pytest.mark.parametrize("event", TOLD["event"], ids=lambda event: event["title"])
def test_what_starts_a_run_decides_which_jobs_there_are(
    matrix: Matrix, evaluator: Expressions, event: Mapping[str, Any], tmp_path: Path
) -> None:
    assert scope_of(event, tmp_path) == event["scope"]
    plan = planned(matrix, event["scope"])
    forge = a_forge(matrix, evaluator, event, plan)
    assert set(forge.runs) == set(event["expected"])
    assert forge.environments == set(event.get("environments", ()))
    rows = {"ubuntu": "cpu", "h100": "nvidia-own", "arc": "amd-own"}
    for runner, works in plan.verify.items():
        name = f"verify-{rows[runner]}"
        jobs = forge.runs.get(name, [])
        assert len(jobs) == (len(works) if name in event["expected"] else 0)
    with_secrets = {name for name, jobs in forge.runs.items() if secrets_in(jobs)}
    kinds = ("candidate-", "publish-", *(("verify-", "bench-") if plan.channel else ()))
    assert with_secrets == {name for name in event["expected"] if name.startswith(kinds)}


@pytest.mark.parametrize(
    "event",
    [one for one in TOLD["event"] if one["scope"] == "pull_request"],
    ids=lambda e: e["title"],
)
def test_a_plan_that_lies_brings_no_stranger_to_our_machines(
    matrix: Matrix, evaluator: Expressions, event: Mapping[str, Any]
) -> None:
    """The plan is made by the pull request's own commit, which may have changed the program."""
    forge = a_forge(matrix, evaluator, event, planned(matrix, "release"))
    assert set(forge.runs) <= {*event["expected"]}
    assert not secrets_in(forge.runs)
    places = {str(job["runs-on"]) for jobs in forge.runs.values() for job in jobs}
    assert places == {"ubuntu-24.04"}


@pytest.mark.parametrize(
    ("how", "runs"),
    [
        ({"status": "cancelled"}, {"report", "required"}),
        ({"plan_ended": "failure", "status": "failure"}, {"report", "required"}),
        (
            {"status": "failure"},
            {"candidate-cpu", "verify-nvidia-own", "publish-cpu", "required"},
        ),
    ],
    ids=["cancelled", "no plan", "a job failed"],
)
def test_a_run_that_goes_wrong_is_still_judged(
    matrix: Matrix, evaluator: Expressions, how: dict[str, str], runs: set[str]
) -> None:
    """One failure stops nobody else, and `required` hears of each."""
    event = next(one for one in TOLD["event"] if one["scope"] == "release")
    forge = a_forge(matrix, evaluator, event, planned(matrix, "release"), **how)
    found = set(forge.runs) - {"plan"}
    assert runs <= found
    assert ("publish-cpu" in found) == ("publish-cpu" in runs)
    (required,) = forge.runs["required"]
    (call,) = [step for step in required["steps"] if step.get("id") == "call"]
    assert call["env"]["PLANNED"] == how.get("plan_ended", "success")
    assert how.get("plan_ended", "success") in call["env"]["ENDED"].split(",")


def test_the_page_and_clearing_up_are_of_nights_and_releases_where_they_are_wanted(
    matrix: Matrix, evaluator: Expressions
) -> None:
    wanted = {"vars": {"PAGES": "yes", "PRUNE": "yes"}}
    for event in TOLD["event"]:
        forge = a_forge(matrix, evaluator, event, planned(matrix, event["scope"]), **wanted)
        late = (
            event["name"] in {"schedule", "workflow_dispatch"} and "another" not in event["title"]
        )
        assert forge.runs.keys() & {"pages", "prune"} == ({"pages", "prune"} if late else set())


def test_where_every_machine_is_ours_a_fork_is_judged_elsewhere_and_reaches_none_of_them(
    matrix: Matrix, evaluator: Expressions
) -> None:
    own = tuple(
        dataclasses.replace(one, trust="self-hosted", group="lab") for one in matrix.runners
    )
    mine = dataclasses.replace(matrix, runners=own)
    for event in TOLD["event"]:
        forge = a_forge(mine, evaluator, event, planned(mine, event["scope"]))
        places = {str(job["runs-on"]) for jobs in forge.runs.values() for job in jobs}
        of_a_fork = "fork" in event["title"]
        assert (places == {"ubuntu-24.04"}) == of_a_fork, event["title"]
        assert forge.runs.keys() >= {"plan", "report", "required"}
        (required,) = forge.runs["required"]
        machine = {"group": "lab", "labels": ["ubuntu-24.04"]}
        assert required["runs-on"] == ("ubuntu-24.04" if of_a_fork else machine)


def test_nothing_to_do_makes_no_job(matrix: Matrix, evaluator: Expressions) -> None:
    nothing = Schedule(scope="pull_request", channel="", build={}, verify={})
    for event in TOLD["event"]:
        forge = a_forge(matrix, evaluator, event, nothing)
        assert set(forge.runs) - {"notify"} == {"plan", "report", "required"}


def test_a_guard_that_is_lost_is_found(matrix: Matrix, evaluator: Expressions) -> None:
    event = next(one for one in TOLD["event"] if "fork's" in one["title"])
    forge = a_forge(matrix, evaluator, event, planned(matrix, "release"))
    assert "verify-nvidia-own" not in forge.runs
    files = json.loads(json.dumps(forge.files))
    files[f"{FOLDER}/{MAIN}.yml"]["jobs"]["verify-nvidia-own"]["if"] = "${{ !cancelled() }}"
    files[f"{FOLDER}/{MAIN}-verify-own.yml"]["jobs"]["verify-own"].pop("if")
    forge.runs, forge.files = {}, files
    assert "verify-nvidia-own" in forge.decide().runs


def test_of_a_pull_request_the_newest_push_counts_and_nothing_else_is_cancelled(
    matrix: Matrix, evaluator: Expressions
) -> None:
    found = {}
    for event in TOLD["event"]:
        forge = a_forge(matrix, evaluator, event, planned(matrix, "pull_request"))
        concurrency = forge.files[f"{FOLDER}/{MAIN}.yml"]["concurrency"]
        found[event["name"]] = evaluator.filled(concurrency, {"github": forge.github})
    assert found["pull_request"] == {"group": f"{MAIN}-7", "cancel-in-progress": True}
    assert {str(one) for name, one in found.items() if name != "pull_request"} == {
        str({"group": f"{MAIN}-1234", "cancel-in-progress": False})
    }
