"""The workflows, run: from the plan to the one check that counts, by `act` on this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import action_standins
import pytest
import yaml
from acting import REPOSITORY_NAME, commit, with_forge
from fixed_seeds import run_options
from projects import REPOSITORY, Project, cell_id, copy_project, small_project, unique_image
from standins import Index

from warpfront.ci.flow import Limits, packaged_limits
from warpfront.ci.schedule import Schedule, Work, outputs
from warpfront.commands.workflows import flow_of
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix

CPU_CELL = "cpu-x86_64-py311-torch2130-torch"
UBUNTU = {
    "labels": "ubuntu-24.04",
    "trust": "hosted",
    "builds": True,
    "vendor": "cpu",
    "targets": "x86_64",
}
GPU_WORK = Work(name="verify-x", cells=("x",), vendor="nvidia", target="sm_90", after=("build-x",))
GPU_ROW = {"vendor": "nvidia", "toolkit": "12.8", "targets": ["sm_90"], "torch": "2.11.0"}
H100 = {"labels": "h100", "trust": "self-hosted", "vendor": "nvidia", "targets": "sm_90"}
REAL = 'exec "$PYTHON" "$@"\n'
# act ends a whole run with the first called workflow that fails; a forge goes on.
GOING_ON = 'case "$*" in *" job "*) "$PYTHON" "$@" || echo "ENDED WITH $?"; exit 0 ;; esac\n'


def checking(*options: str) -> str:
    """Return the line that gives jobs which verify these options and the seeds of tests."""
    words = " ".join((*options, *run_options()))
    return f'case "$*" in *"--step verify"*) set -- "$@" {words} ;; esac\n'


def pull_request(
    *, base: str = "", repository: str = REPOSITORY_NAME, label: str = ""
) -> dict[str, object]:
    """What a forge says of one."""
    asked = {
        "number": 7,
        "base": {"sha": base},
        "head": {"repo": {"full_name": repository}},
        "labels": [{"name": label}],
    }
    return {"pull_request": asked, "repository": {"full_name": REPOSITORY_NAME}}


def add_runners(root: Path, **runners: object) -> Path:
    """A table of machines, and an installation that needs no network."""
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    more = {"runners": runners, "install": {"requirements": "ci/locked.txt"}}
    path.write_text(yaml.safe_dump({**matrix, **more}, sort_keys=False))
    (root / "ci").mkdir(exist_ok=True)
    (root / "ci" / "locked.txt").write_text(f"warpfront==0.1.0 --hash=sha256:{'0' * 64}\n")
    Project(root=root, environment=dict(os.environ)).invoke("ci", "--write").expect(0)
    return root


@pytest.fixture
def planless(tmp_path: Path) -> Path:
    """A project whose cells were never locked: there is nothing to build anywhere."""
    root = small_project(tmp_path / "project", "http://127.0.0.1:9/cpu", names=("torch",))
    matrix = yaml.safe_load((root / "matrix.yaml").read_text())
    matrix["rows"].append(GPU_ROW)
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    return add_runners(root, ubuntu=UBUNTU, h100=H100)


def told(planned: Schedule, root: Path, folder: Path, limits: Limits | None = None) -> str:
    """A program that plans what it is told to, and does nothing else."""
    text = (root / "matrix.yaml").read_text()
    matrix = read_matrix(text, path="matrix.yaml", compat=packaged())
    said = folder / "outputs"
    said.parent.mkdir(parents=True, exist_ok=True)
    texts = outputs(planned, flow_of(matrix, root).jobs, limits or packaged_limits())
    said.write_text("".join(f"{n}={t}\n" for n, t in texts.items()))
    plans = f'cat {said} >>"$GITHUB_OUTPUT"; mkdir -p left/plan; echo {{}} >left/plan/plan.json'
    # Whatever a job is called with, it leaves something under its name.
    works = 'echo "DID $*"; mkdir -p "left/${NAME:-x}"; echo {} >"left/${NAME:-x}/manifest.json"'
    return f'case "$*" in *--plan*) {plans} ;; *) {works} ;; esac\n'


def built(count: int, root: Path, folder: Path, limits: Limits | None = None) -> set[str]:
    """The cells that were built, of so many that were planned."""
    works = tuple(
        Work(name=f"build-cell-{n}", cells=(f"cell-{n}",), vendor="cpu") for n in range(count)
    )
    planned = Schedule(scope="nightly", channel="", build={"ubuntu": works}, verify={})
    ran = with_forge(root, folder, told(planned, root, folder, limits)).run("schedule", timeout=800)
    assert "build-cpu 2" in ran.expect(0).said
    did = [line for line in ran.said.splitlines() if "--step build" in line and "DID" in line]
    return {line.split("--cells ")[1].split()[0] for line in did}


@pytest.mark.process
def test_what_is_too_much_for_one_matrix_is_built_in_shards(planless: Path, tmp_path: Path) -> None:
    few = {**packaged_limits(), "jobs_per_matrix": 2}
    assert built(3, planless, tmp_path / "forge", few) == {f"cell-{n}" for n in range(3)}


@pytest.mark.process
@pytest.mark.exhaustive
def test_300_cells_are_built_in_two_shards(planless: Path, tmp_path: Path) -> None:
    assert built(300, planless, tmp_path / "forge") == {f"cell-{n}" for n in range(300)}


@pytest.mark.process
@pytest.mark.parametrize(
    ("repository", "label", "reached"),
    [(REPOSITORY_NAME, "gpu", True), (REPOSITORY_NAME, "docs", False), ("else/mine", "gpu", False)],
    ids=["labelled", "not labelled", "fork"],
)
def test_only_a_labelled_pull_request_of_our_own_reaches_our_machines(
    planless: Path, tmp_path: Path, repository: str, label: str, *, reached: bool
) -> None:
    """Whatever its plan says."""
    work = GPU_WORK
    planned = Schedule(scope="labelled", channel="", build={}, verify={"h100": (work,)})
    forge = with_forge(planless, tmp_path / "forge", told(planned, planless, tmp_path / "forge"))
    ran = forge.run("pull_request", pull_request(repository=repository, label=label)).expect(0)
    assert ("DID -m invoke job --step verify" in ran.said) == reached
    assert any("verify-x" in job for job in ran.jobs) == reached


@pytest.mark.process
def test_a_fork_gets_no_secret_and_no_job_of_ours_whatever_the_repository_holds(
    planless: Path, tmp_path: Path
) -> None:
    """The plan says that everything is to be published, as a changed program might."""
    folder, canary = tmp_path / "forge", "a canary that no stranger hears"
    works = (Work(name="build-x", cells=("x",), vendor="nvidia"),)
    verify = (GPU_WORK,)
    planned = Schedule(
        scope="release",
        channel="release",
        build={"ubuntu": works},
        verify={"h100": verify},
        publish=(Work(name="publish-x", cells=("x",), vendor="nvidia", after=("build-x",)),),
    )
    told_all = told(planned, planless, folder) + "env | sed 's/canary/CANARY/;t;d'\n"
    forge = dataclasses.replace(
        with_forge(planless, folder, told_all),
        secrets=dict.fromkeys(("COSIGN_PASSWORD", "COSIGN_PRIVATE_KEY"), canary),
    )
    ran = forge.run("pull_request", pull_request(repository="else/mine")).expect(0)
    assert set(ran.jobs) == {"plan", "report", "required"}
    assert "CANARY" not in ran.said
    ran = forge.run("schedule").expect(0)
    assert "DID -m invoke job --step publish" in ran.said
    assert "COSIGN_PASSWORD=" in ran.said


@pytest.mark.process
def test_workflows_that_are_not_what_the_table_says_are_refused_before_anything(
    planless: Path, tmp_path: Path
) -> None:
    forge = with_forge(planless, tmp_path / "forge", REAL)
    matrix = planless / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("labels: h100", "labels: h200"))
    commit(planless)
    ran = forge.run("pull_request", pull_request()).expect(1)
    # act goes no further after a plan without outputs; tests/integration/test_expressions.py does.
    assert ran.jobs == {"plan": "failed"}
    assert "error: workflows are stale" in ran.said
    assert "warpfront ci write" in ran.said


@pytest.mark.process
def test_nothing_changed_means_no_job_and_green_in_each_attempt(
    planless: Path, tmp_path: Path
) -> None:
    """ "Re-run all jobs": two artifacts of each name, of which the newer counts."""
    forge = with_forge(planless, tmp_path / "forge", REAL)
    (planless / "README.md").write_text("Words only.\n")
    event = pull_request(base=commit(planless))
    ran = forge.run("pull_request", event).expect(0)
    assert set(ran.jobs) == {"plan", "report", "required"}
    # One artifact matched the pattern: the real action extracts it into the folder itself.
    assert "Total of 1 artifact(s) downloaded" in ran.said
    again = forge.run("pull_request", event, attempt=2).expect(0)
    for attempt in (ran, again):
        assert "green: 0 failed" in attempt.said
        assert attempt.artifacts == {"plan", "report"}


def handing_on(root: Path, folder: Path, *, verifies: str) -> tuple[str, Schedule]:
    """A program that builds and verifies nothing, and hands over as a job does: through the real
    `leave`, `taken` and `demand`. `verifies` is what it does where it verifies.
    """
    work = Work(name="build-c", cells=("c",), vendor="cpu", images=("c",))
    verify = Work(name="verify-c", cells=("c",), vendor="cpu", target="x86_64", after=("build-c",))
    planned = Schedule(
        scope="merge_queue", channel="", build={"ubuntu": (work,)}, verify={"ubuntu": (verify,)}
    )
    hands = folder / "hands.py"
    program = told(planned, root, folder)
    hands.write_text(_HANDS)
    works = f'*"--step build"*) $PYTHON {hands} build "$@" ;; *"--step verify"*) {verifies} '
    works += f'$PYTHON {hands} verify "$@" ;;'
    return program.replace('*) echo "DID', f'{works} *) echo "DID'), planned


_HANDS = """
import sys
from pathlib import Path
from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.handover import demand, handed_over, leave, merge
from warpfront.errors import WarpfrontError
step, *words = sys.argv[1:]
given = dict(zip(words, words[1:]))
found = handed_over(Path(HANDOVER), Path(LEFT))
try:
    demand(filter(None, given.get("--after", "").split(",")), found.values())
    merge(found, Path("build"))
except WarpfrontError as error:
    sys.exit(f"error: {error.message}")
cell = Path("build/c")
cell.mkdir(parents=True, exist_ok=True)
if step == "verify":
    assert (cell / "build.json").read_text() == "built"
    image = list(Path("handover").glob("**/images-build-c/images.tar.gz"))
    assert [one.read_text() for one in image] == ["the image"], image
(cell / f"{step}.json").write_text({"build": "built"}.get(step, "verified"))
leave(Path("build"), ["c"], step, Path("left") / given["--name"])
if step == "build":
    Path("images/images-build-c").mkdir(parents=True)
    Path("images/images-build-c/images.tar.gz").write_text("the image")
print("HANDED OVER", step)
"""


@pytest.mark.process
def test_a_verification_gets_its_image_or_is_red_by_the_name_of_what_is_missing(
    planless: Path, tmp_path: Path
) -> None:
    """One artifact and one image: without a folder of their own inside, nothing would be found.
    Then the artifact is past its retention: the job builds nothing in its place.
    """
    program, _ = handing_on(planless, tmp_path / "forge", verifies="")
    forge = with_forge(planless, tmp_path / "forge", program)
    first = forge.run("merge_group").expect(0)
    assert {"HANDED OVER build", "HANDED OVER verify"} <= set(
        re.findall(r"HANDED OVER \w+", first.said)
    )
    assert {"build-c", "verify-c", "images-build-c"} <= first.artifacts
    shutil.rmtree(action_standins.artifact(first.store, "build-c").folder)
    again = forge.run_again("merge_group", None, first, "verify-c").expect(1)
    assert "error: no artifact build-c: the job of that name left none" in again.said
    assert "HANDED OVER" not in again.said


@pytest.mark.process
def test_failed_jobs_run_again_alone_with_what_the_others_left(
    planless: Path, tmp_path: Path
) -> None:
    """The verification breaks off once; its second attempt has the build of the first."""
    folder = tmp_path / "forge"
    once = f'if [ ! -e {folder}/once ]; then touch {folder}/once; echo "LOST"; exit 1; fi;'
    program, _ = handing_on(planless, folder, verifies=once)
    forge = with_forge(planless, folder, program)
    first = forge.run("merge_group").expect(1)
    assert "LOST" in first.said
    assert "verify-c" not in first.artifacts
    again = forge.run_again("merge_group", None, first, "verify-c").expect(0)
    assert "HANDED OVER verify" in again.said
    assert "HANDED OVER build" not in again.said
    assert "verify-c" in again.artifacts


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_a_cell_that_fails_makes_the_required_check_red(
    alone: dict[str, str], index: Index, tmp_path: Path
) -> None:
    """The stand-in for torch builds, and computes nothing."""
    image = unique_image()
    root = small_project(tmp_path / "project", index.url, names=(image,))
    add_runners(root, ubuntu=UBUNTU)
    Project(root=root, environment=alone).invoke("lock").expect(0)
    forge = with_forge(
        root,
        tmp_path / "forge",
        checking() + GOING_ON + REAL,
        installs=False,
        logs_in=False,
        **alone,
    )
    ran = forge.run("pull_request", pull_request()).expect(1)
    assert ran.jobs["required"] == "failed"
    assert "ENDED WITH 7" in ran.said
    assert f"{cell_id(image)} on x86_64: error" in ran.said
    assert "red: 1 failed" in ran.said


@pytest.mark.docker
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_cpu_cell_goes_from_plan_to_green(
    here: dict[str, str], cpu_image: str, tmp_path: Path
) -> None:
    assert cpu_image
    root = copy_project(tmp_path / "project")
    matrix = yaml.safe_load((REPOSITORY / "matrix.yaml").read_text())
    row = {**matrix["rows"][0], "images": ["torch"]}
    matrix |= {"rows": [row], "ci": {"notify": []}}
    nightly = matrix["release"]["nightly"]  # what `required` demands where nothing is published
    nightly["allow"] = sorted({*nightly["allow"], "quick"})
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False), encoding="utf-8")
    add_runners(root, ubuntu=UBUNTU)
    forge = with_forge(
        root, tmp_path / "forge", checking("--quick") + REAL, installs=False, logs_in=False, **here
    )
    ran = forge.run("merge_group", {"merge_group": {"base_sha": ""}}, timeout=1500).expect(0)
    assert set(ran.jobs.values()) == {"succeeded"}
    assert "green: 0 failed, 0 unavailable, 1 passed" in ran.said
    name = f"verify-{CPU_CELL}-x86_64"
    left = json.loads((ran.artifact(name) / name / "manifest.json").read_text())
    assert f"build/{CPU_CELL}/verify-x86_64.json" in left["files"]
