"""What forges are told, held to rules: each rule finds its fault when one is seeded."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import make_project
from ruamel.yaml import YAML

from warpfront.ci.flow import (
    Flow,
    make_flow,
    packaged_limits,
    unable_to_pull,
    yaml_text,
)
from warpfront.ci.github_workflows import MATCHERS, workflows
from warpfront.ci.gitlab import PARENT, child_pipeline, gitlab_files
from warpfront.ci.schedule import SCOPES, Schedule, schedule
from warpfront.ci.template_files import (
    DEPENDABOT,
    RENOVATE,
    kept_pins,
    pinned_actions,
    robot_files,
    scripts,
)
from warpfront.commands.workflows import (
    ci_files,
    flow_of,
    require_hashes,
    stale,
    write,
)
from warpfront.errors import InputError, LockError, MatrixError, Problem
from warpfront.matrix.compat import packaged
from warpfront.matrix.language import CiOptions
from warpfront.matrix.reading import read_matrix
from warpfront.pipeline.workspace import open_workspace
from warpfront.release.origin import PUBLISH_WORKFLOW

ROOT = Path(__file__).resolve().parents[3]
MATRIX = read_matrix(
    (ROOT / "matrix.yaml").read_text(encoding="utf-8"), path="matrix.yaml", compat=packaged()
)
Workflow = dict[str, Any]


def the_flow(repository: str = "ghcr.io/warpfront") -> Flow:
    project = dataclasses.replace(MATRIX.project, repository=repository)
    matrix = dataclasses.replace(MATRIX, project=project)
    return make_flow(matrix, ("--editable .",), releases=True)


LIMITS = packaged_limits()
FILES = workflows(the_flow(), pinned_actions(), LIMITS)
RENDERED = {
    p: yaml.load(t, yaml.CSafeLoader)
    for p, t in FILES.items()
    if p.startswith(".github/workflows/")
}
BY_HAND = {
    str(path.relative_to(ROOT)): yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}


def jobs_of(workflow: Workflow) -> list[Workflow]:
    return list(workflow["jobs"].values())


def steps_of(workflow: Workflow) -> Iterator[Workflow]:
    for job in jobs_of(workflow):
        yield from job.get("steps", ())


# --- the rules: each yields what breaks it ---


def unpinned(workflow: Workflow) -> Iterator[str]:
    known = {uses for uses, _ in pinned_actions().values()}
    for step in steps_of(workflow):
        if "uses" in step and step["uses"] not in known:
            yield step["uses"]


def powerful(workflow: Workflow) -> Iterator[str]:
    if workflow.get("permissions") != {}:
        yield "the whole workflow"
    for name, job in workflow["jobs"].items():
        given = job.get("permissions")
        writes = [] if given is None else [p for p, how in given.items() if how != "read"]
        may = name in {
            "release",
            "pages",
            "prune",
            "findings",
            "notify",
            "queue",
            "compat",
        } or name.startswith(("candidate", "publish"))
        if given is None or (writes and not may):
            yield name


def writing_for_a_request(workflow: Workflow) -> Iterator[str]:
    """Jobs that may write, and are not kept from pull requests."""
    if set(started_by(workflow)) == {"schedule"}:
        return
    for name, job in workflow["jobs"].items():
        writes = "write" in (job.get("permissions") or {}).values()
        kept = (
            "github.event_name != 'pull_request'",
            "(github.event_name == 'schedule' || github.event_name == 'workflow_dispatch')",
            "startsWith(github.ref, 'refs/tags/",
        )
        if writes and not any(one in str(job.get("if")) for one in kept):
            yield name


def started_by(workflow: Workflow) -> list[str]:
    return list(workflow.get("on") or workflow[True])  # type: ignore[index]  # as YAML 1.1 has it


REFS = "(github.ref == 'refs/heads/main' || startsWith(github.ref, 'refs/tags/v'))"


def publishing_from_anywhere(workflow: Workflow) -> Iterator[str]:
    """Jobs that may push or sign, and do not demand a ref that publishes."""
    for name, job in workflow["jobs"].items():
        powers = {power for power, how in (job.get("permissions") or {}).items() if how == "write"}
        sends = powers & {"packages", "id-token", "attestations"}
        if sends and REFS not in str(job.get("if")) and "startsWith(github.ref" not in str(job):
            yield name


def injectable(workflow: Workflow) -> Iterator[str]:
    for step in steps_of(workflow):
        if "${{" in step.get("run", ""):
            yield step["run"]


def leaving_credentials(workflow: Workflow) -> Iterator[str]:
    for step in steps_of(workflow):
        fetches = step.get("uses", "").startswith("actions/checkout@")
        if fetches and step["with"].get("persist-credentials") is not False:
            yield step["uses"]


def endless(workflow: Workflow) -> Iterator[str]:
    for name, job in workflow["jobs"].items():
        if "uses" not in job and "timeout-minutes" not in job:
            yield name


def giving_up_early(workflow: Workflow) -> Iterator[str]:
    for name, job in workflow["jobs"].items():
        if job.get("strategy", {"fail-fast": False})["fail-fast"]:
            yield name


def open_to_forks(workflow: Workflow) -> Iterator[str]:
    """Jobs on machines of our own whose condition does not keep forks out."""
    own = {label for one in MATRIX.runners if one.trust == "self-hosted" for label in one.labels}
    for name, job in workflow["jobs"].items():
        place = json.dumps([job.get("runs-on", ""), job.get("uses", "")])
        used = "-own.yml" in place or any(label in place for label in own)
        guard = "head.repo.full_name == github.repository"
        if used and guard not in str(job.get("if", "")):
            yield name


def publishing_cancelled(workflow: Workflow) -> Iterator[str]:
    for name, job in workflow["jobs"].items():
        if (
            "environment" in job
            and job.get("concurrency", {}).get("cancel-in-progress") is not False
        ):
            yield name


def holding_secrets(workflow: Workflow) -> Iterator[str]:
    for name, job in workflow["jobs"].items():
        kept = "environment" in job or "uses" in job
        # A login to read, which no pull request reaches, is no secret of an environment.
        reads = "write" not in (job.get("permissions") or {}).values()
        steps = [
            step
            for step in job.get("steps", ())
            if not (reads and "github.event_name != 'pull_request'" in str(step.get("if")))
        ]
        # A token that reads how jobs ended, or ends runs of a workflow that only the clock starts.
        asks = reads and name == "required"
        harmless = asks or started_by(workflow) == ["schedule"]
        said = str({**job, "steps": steps})
        said = said.replace("github.event_name != 'pull_request' && secrets.RUNNERS_TOKEN", "")
        held = re.search(r"secrets\." if harmless else r"secrets\.|github\.token", said)
        if not kept and held:
            yield name


def handing_secrets(workflow: Workflow) -> Iterator[str]:
    """Calls that give secrets by more than their names, or where a pull request may reach them."""
    for name, job in workflow["jobs"].items():
        given = job.get("secrets", {}) if "uses" in job else {}
        named = isinstance(given, dict) and all(
            text == f"${{{{ secrets.{secret} }}}}" for secret, text in given.items()
        )
        reads = set(given) == {"REGISTRY_READ_TOKEN"} if isinstance(given, dict) else False
        kept = reads or "github.event_name != 'pull_request'" in job.get("if", "")
        if given and not (named and kept):
            yield name


def started_by_strangers(workflow: Workflow) -> Iterator[str]:
    yield from {"pull_request_target", "workflow_run", "issue_comment"} & set(started_by(workflow))


RULES = (
    unpinned,
    powerful,
    writing_for_a_request,
    publishing_from_anywhere,
    injectable,
    leaving_credentials,
    endless,
    giving_up_early,
    open_to_forks,
    publishing_cancelled,
    holding_secrets,
    handing_secrets,
    started_by_strangers,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", sorted({*RENDERED, *BY_HAND}))
def test_a_workflow_keeps_the_rule(path: str, rule: Callable[[Workflow], Iterator[str]]) -> None:
    for found in (RENDERED, BY_HAND):
        if path in found:
            assert list(rule(found[path])) == []


MAIN = ".github/workflows/warpfront.yml"
OWN = ".github/workflows/warpfront-verify-own.yml"
PUBLISH = ".github/workflows/warpfront-publish.yml"


def seeded(path: str, place: str, value: object) -> Workflow:
    """The workflow with one value of it another: `jobs.plan.steps.0.uses`."""
    workflow: Workflow = copy.deepcopy(RENDERED[path])
    at: Any = workflow
    *way, last = place.split(".")
    for part in way:
        at = at[int(part) if isinstance(at, list) else part]
    at[last] = value
    return workflow


@pytest.mark.parametrize(
    ("rule", "workflow"),
    [
        (unpinned, seeded(MAIN, "jobs.plan.steps.0.uses", "actions/checkout@v7")),
        (powerful, seeded(MAIN, "permissions", "write-all")),
        (powerful, seeded(MAIN, "jobs.plan.permissions", {"contents": "write"})),
        (powerful, seeded(MAIN, "jobs.plan.permissions", None)),
        (writing_for_a_request, seeded(MAIN, "jobs.candidate-cpu.if", "${{ !cancelled() }}")),
        (writing_for_a_request, seeded(MAIN, "jobs.pages.if", "${{ always() }}")),
        (writing_for_a_request, seeded(PUBLISH, "jobs.publish.if", "${{ always() }}")),
        (injectable, seeded(OWN, "jobs.verify-own.steps.1.run", "echo ${{ matrix.name }}")),
        (leaving_credentials, seeded(MAIN, "jobs.plan.steps.0.with", {})),
        (endless, {"jobs": {"x": {"steps": []}}}),
        (giving_up_early, seeded(OWN, "jobs.verify-own.strategy.fail-fast", "true")),
        (open_to_forks, seeded(MAIN, "jobs.verify-nvidia-own.if", "${{ !cancelled() }}")),
        (open_to_forks, seeded(OWN, "jobs.verify-own.if", "${{ always() }}")),
        (publishing_cancelled, seeded(PUBLISH, "jobs.publish.concurrency", {})),
        (holding_secrets, seeded(OWN, "jobs.verify-own.env", {"A": "${{ secrets.TOKEN }}"})),
        (holding_secrets, seeded(OWN, "jobs.verify-own.steps.3.if", "${{ always() }}")),
        (handing_secrets, seeded(MAIN, "jobs.publish-cpu.secrets", "inherit")),
        (handing_secrets, seeded(MAIN, "jobs.publish-cpu.if", "${{ always() }}")),
        (publishing_from_anywhere, seeded(MAIN, "jobs.publish-amd.if", "${{ !cancelled() }}")),
        (publishing_from_anywhere, seeded(MAIN, "jobs.candidate-cpu.if", "${{ always() }}")),
        (publishing_from_anywhere, seeded(MAIN, "jobs.prune.if", "${{ always() }}")),
        (publishing_from_anywhere, seeded(PUBLISH, "jobs.publish.if", "${{ always() }}")),
        (started_by_strangers, seeded(MAIN, "on", {"pull_request_target": {}})),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rule_finds_its_fault(
    rule: Callable[[Workflow], Iterator[str]], workflow: Workflow
) -> None:
    assert len(list(rule(workflow))) == 1


def test_every_action_is_a_commit_with_its_version_beside_it() -> None:
    for uses, version in pinned_actions().values():
        assert re.fullmatch(r"[\w-]+(/[\w-]+)+@[0-9a-f]{40}", uses)
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version)
    used = [line for text in FILES.values() for line in text.splitlines() if "uses: " in line]
    assert used
    for line in used:
        assert re.search(r"uses: (\./\S+|\S+@[0-9a-f]{40} # v[\d.]+)$", line), line


def test_a_run_is_cancelled_by_a_newer_push_and_by_nothing_else() -> None:
    concurrency = RENDERED[MAIN]["concurrency"]
    assert concurrency["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    assert "github.run_id" in concurrency["group"]


def test_a_job_is_one_call() -> None:
    for workflow in RENDERED.values():
        for job in jobs_of(workflow):
            calls = [step["run"] for step in job.get("steps", ()) if "run" in step]
            assert len([one for one in calls if one not in {"ci/setup.sh", "ci/login.sh"}]) <= 1
            assert set(calls) <= scripts(the_flow()).keys()
    for path, text in scripts(the_flow()).items():
        lines = [line for line in text.splitlines()[4:] if line and "SOURCE_DATE" not in line]
        assert len(lines) <= 2, path
        assert not re.search(r"\b(if|for|while|case)\b", "\n".join(lines))


def test_the_required_check_always_runs_and_hears_how_the_others_ended() -> None:
    required = RENDERED[MAIN]["jobs"]["required"]
    assert required["if"] == "${{ always() }}"
    ends = {"required", "report", "pages", "prune", "notify"}
    others = set(RENDERED[MAIN]["jobs"])
    assert set(required["needs"]) == others - ends
    assert {"publish-cpu", "publish-nvidia", "publish-amd"} <= others
    (call,) = [step for step in required["steps"] if step.get("id") == "call"]
    assert call["env"] == {
        "PLANNED": "${{ needs.plan.result }}",
        "ENDED": "${{ join(needs.*.result) }}",
        "PLAN_DIGEST": "${{ needs.plan.outputs.plan }}",
        "API_TOKEN": "${{ github.token }}",
    }
    assert required["permissions"] == {"contents": "read", "actions": "read"}


def test_publishing_waits_for_machines_of_its_own_vendor_only() -> None:
    jobs = RENDERED[MAIN]["jobs"]
    for vendor, verify in (("cpu", "cpu"), ("nvidia", "nvidia-own"), ("amd", "amd-own")):
        needs = jobs[f"publish-{vendor}"]["needs"]
        assert [name for name in needs if name.startswith("verify-")] == [f"verify-{verify}"]
        assert jobs[f"publish-{vendor}"]["uses"] == f"./{PUBLISH}"


def test_one_workflow_signs_and_it_is_the_one_that_signatures_have_to_name() -> None:
    """Called ones count: a certificate names the called file, with the ref."""
    own = [dataclasses.replace(one, trust="self-hosted") for one in MATRIX.runners]
    for runners in (MATRIX.runners, own):
        files = workflows(a_flow(runners=tuple(runners)), pinned_actions(), LIMITS)
        signs = [path for path, text in files.items() if "sigstore/cosign-installer" in text]
        assert signs == [PUBLISH_WORKFLOW] == [PUBLISH]


def a_flow(*, releases: bool = True, **how: Any) -> Flow:
    return make_flow(dataclasses.replace(MATRIX, **how), ("x",), releases=releases)


def test_a_merge_and_a_release_tag_start_a_run() -> None:
    parsed: dict[Any, Any] = RENDERED[MAIN]  # YAML 1.1 reads `on` as true
    started = parsed.get("on") or parsed[True]
    assert started["push"] == {"branches": ["main"], "tags": ["v*"]}
    project = dataclasses.replace(MATRIX.project, branch="trunk", release_tags="rel-")
    flow = a_flow(project=project, releases=False)
    files = workflows(flow, pinned_actions(), LIMITS)
    main = yaml.load(files[MAIN], yaml.CSafeLoader)
    assert (main.get("on") or main[True])["push"] == {"branches": ["trunk"]}
    assert "startsWith(github.ref, 'refs/tags/rel-')" in main["jobs"]["publish-cpu"]["if"]
    rules = yaml.load(gitlab_files(flow)[PARENT], yaml.CSafeLoader)["plan"]["rules"]
    assert "release" not in {rule["variables"]["SCOPE"] for rule in rules[1:]}


def test_a_red_run_after_the_merge_is_told_where_the_table_wants_it() -> None:
    notify = RENDERED[MAIN]["jobs"]["notify"]
    assert notify["if"] == f"${{{{ always() && github.event_name != 'pull_request' && {REFS} }}}}"
    assert notify["permissions"] == {"contents": "read", "actions": "read", "issues": "write"}
    assert "required" in notify["needs"]
    silent = a_flow(ci=CiOptions(notify=()))
    assert "notify" not in workflows(silent, pinned_actions(), LIMITS)[MAIN]


def test_only_where_machines_are_ours_does_a_clock_end_what_waits_for_one() -> None:
    hosted = a_flow(runners=tuple(one for one in MATRIX.runners if one.trust == "hosted"))
    assert ".github/workflows/warpfront-queue.yml" not in workflows(
        hosted, pinned_actions(), LIMITS
    )
    queue = RENDERED[".github/workflows/warpfront-queue.yml"]["jobs"]["queue"]
    assert queue["runs-on"] == "ubuntu-24.04"
    assert queue["permissions"] == {"contents": "read", "actions": "write"}


def matched(line: str) -> tuple[str, ...] | None:
    """What the first matcher that fits makes of a line: whose, file, line, message."""
    for one in json.loads(FILES[MATCHERS])["problemMatcher"]:
        (pattern,) = one["pattern"]
        if found := re.match(pattern["regexp"], line):
            said = (found[pattern[name]] for name in ("file", "line", "message"))
            return (one["owner"], *said)
    return None


def test_problems_are_read_off_what_is_printed_and_a_program_s_own_lines_are_none() -> None:
    problem = Problem(path="matrix.yaml", line=7, message="`x` is: no target")
    for text in (f"error: {MatrixError((problem, problem)).message}", str(problem)):
        first = ("warpfront", "matrix.yaml", "7", "`x` is: no target")
        assert [matched(line) for line in text.splitlines()] == [first] * len(text.splitlines())
    place = "  src/kernel one.cu:3:9: warpSize is 64"
    assert matched(place) == ("warpfront-scan", "src/kernel one.cu", "3", "warpSize is 64")
    others = (
        "/opt/venv/lib/python3.11/site-packages/torch/x.py:12: UserWarning: old",
        "kernel.cu:3:9: error: expected ;",
        "    hint: matrix.yaml:7 has another",
        "12:30:01: done",
        "error: workflows are stale",
    )
    assert [matched(line) for line in others] == [None] * len(others)


def test_no_empty_matrix_reaches_a_forge() -> None:
    for name, job in RENDERED[MAIN]["jobs"].items():
        if "strategy" in job:
            assert f"needs.plan.outputs.{name} != '[]'" in job["if"]


def test_another_registry_is_logged_into_with_what_its_environment_holds() -> None:
    files = workflows(the_flow("registry.example.com/mine"), pinned_actions(), LIMITS)
    assert "secrets.REGISTRY_TOKEN" in files[PUBLISH]
    assert "REGISTRY_TOKEN: ${{ github.token }}" not in files[PUBLISH]
    calls = yaml.load(files[MAIN], yaml.CSafeLoader)["jobs"]
    told = {name for name, job in calls.items() if "REGISTRY_TOKEN" in job.get("secrets", {})}
    assert {one.partition("-")[0] for one in told} == {"candidate", "publish"}
    # What verifies logs in to read, with a token that can do no more.
    read = {name for name, job in calls.items() if "REGISTRY_READ_TOKEN" in job.get("secrets", {})}
    assert read == {name for name in calls if name.startswith(("verify-", "bench-"))}
    assert "secrets.REGISTRY_TOKEN" not in files[OWN]


def test_the_same_flow_gives_the_same_bytes() -> None:
    assert workflows(the_flow(), pinned_actions(), LIMITS) == FILES


def nightly() -> Schedule:
    return schedule(
        MATRIX.cells,
        scope=SCOPES["nightly"],
        runners=MATRIX.runners,
        now=dict.fromkeys((cell.id for cell in MATRIX.cells), "x"),
        before=None,
        blocked={},
    )


def test_gitlab_runs_the_same_calls_of_the_same_jobs() -> None:
    planned = nightly()
    child = yaml.load(child_pipeline(the_flow(), planned, LIMITS, "d1")[0], yaml.CSafeLoader)
    jobs = {name: body for name, body in child.items() if name not in {"stages", "planned"}}
    kinds = (planned.build, planned.verify, planned.bench)
    works = [work for each in kinds for of_row in each.values() for work in of_row]
    ends = {"report", "prune", "required", "notify"}
    assert jobs.keys() == {work.name for work in (*works, *planned.publish)} | ends
    for name, body in jobs.items():
        assert set(body["script"]) <= scripts(the_flow()).keys()
        sends = any(kind in body["script"][-1] for kind in ("candidate", "publish", "prune"))
        logs_in = sends or any(kind in body["script"][-1] for kind in ("verify", "bench"))
        assert ("ci/login.sh" in body["script"]) == logs_in
        assert ("REGISTRY" in body.get("variables", {})) == logs_in
        assert (sends or name == "notify") == ("environment" in body)
        assert body["timeout"].endswith("minutes")
        assert body["tags"]
        assert name.startswith("publish-") == (not body["interruptible"])
        assert name.startswith("publish-") == ("resource_group" in body)
    h100 = [body for body in jobs.values() if "h100" in body["tags"]]
    assert {body["script"][-1] for body in h100} == {"ci/verify.sh", "ci/bench.sh"}
    allowed = [name for name, body in jobs.items() if body.get("allow_failure")]
    assert allowed == ["prune"]
    assert jobs["required"]["variables"]["PLAN_DIGEST"] == "d1"
    for work in (*works, *planned.publish):
        body = jobs[work.name]
        if work.name.startswith("publish-"):
            (rule,) = body["rules"]
            assert rule["when"] == "always"
            assert rule["if"].startswith('$CI_COMMIT_REF_PROTECTED == "true" && ')
            assert body["needs"] == list(work.after)
        else:
            assert body["when"] == "always"


def test_gitlab_is_told_what_starts_a_run() -> None:
    parent = yaml.load(gitlab_files(the_flow())[PARENT], yaml.CSafeLoader)
    weekly, *rules = parent["plan"]["rules"]
    scopes = [rule["variables"]["SCOPE"] for rule in rules]
    assert sorted(scopes) == sorted(SCOPES)
    assert parent["cells"]["trigger"]["strategy"] == "depend"
    by_scope = {rule["variables"]["SCOPE"]: rule["if"] for rule in rules}
    assert by_scope["release"] == "$CI_COMMIT_TAG =~ /^v/"
    assert by_scope["merged"] == '$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == "main"'
    # The weekly schedule runs its own job, and no other.
    assert parent["compat"]["rules"] == [{"if": weekly["if"]}]
    assert parent["compat"]["script"] == ["ci/setup.sh", "ci/compat.sh"]
    assert (
        parent["cells"]["rules"][0] == weekly == {**parent["compat"]["rules"][0], "when": "never"}
    )


def test_what_is_committed_is_what_would_be_written() -> None:
    assert stale(ci_files(open_workspace(ROOT)), ROOT) == ""


INSTALL = f"""
install:
  wheel: https://example.test/warpfront-0.1.0-py3-none-any.whl
  sha256: {"ab" * 32}
"""
RUNNERS = f"""{INSTALL}
runners:
  ubuntu: {{labels: ubuntu-24.04, trust: hosted, builds: true, vendor: cpu, targets: x86_64}}
  h100: {{group: lab, labels: [gpu], trust: self-hosted, vendor: nvidia, targets: sm_90}}
"""
NVIDIA = """
  - vendor: nvidia
    toolkit: "12.8"
    targets: [sm_90]
    torch: "2.11.0"
"""


def a_project(folder: Path, runners: str, rows: str = NVIDIA) -> Path:
    """A new project with these machines, and rows above its own."""
    make_project(folder)
    path = folder / "matrix.yaml"
    path.write_text(path.read_text().replace("\nrows:\n", f"\nrows:{rows}") + runners)
    return path


def test_what_is_stale_is_shown_and_written_and_what_is_left_over_goes(tmp_path: Path) -> None:
    matrix = a_project(tmp_path, RUNNERS)
    files = ci_files(open_workspace(tmp_path))
    assert "+jobs:" in stale(files, tmp_path)
    assert set(write(files, tmp_path)) == set(files)
    assert (tmp_path / "ci" / "plan.sh").stat().st_mode & 0o111
    assert (stale(files, tmp_path), write(files, tmp_path)) == ("", ())
    h100 = next(line for line in RUNNERS.splitlines() if "h100:" in line)
    matrix.write_text(matrix.read_text().replace(f"{h100}\n", ""))
    files = ci_files(open_workspace(tmp_path))
    old = ".github/workflows/warpfront-verify-own.yml"
    assert files[old] is None
    assert f"--- {old}" in stale(files, tmp_path)
    assert old in write(files, tmp_path)
    assert not (tmp_path / old).exists()
    assert stale(ci_files(open_workspace(tmp_path)), tmp_path) == ""


OWN_BUILDER = f"""{INSTALL}
runners:
  mine:
    group: Lab 1
    labels: ["1e3", x64]
    trust: self-hosted
    builds: true
    vendor: cpu
    targets: x86_64
"""


def test_where_every_machine_is_ours_a_fork_is_judged_on_one_of_github_s(tmp_path: Path) -> None:
    """Not at all would count as passed; tests/integration/test_expressions.py fills it in."""
    a_project(tmp_path, OWN_BUILDER)
    jobs = yaml.safe_load(ci_files(open_workspace(tmp_path))[MAIN] or "")["jobs"]
    for name in ("plan", "report", "required"):
        assert "head.repo.full_name == github.repository" in jobs[name]["runs-on"], name
        assert "|| '\"ubuntu-24.04\"'" in jobs[name]["runs-on"]
    for name, job in jobs.items():
        if job.get("runs-on") == {"group": "Lab 1", "labels": ["1e3", "x64"]}:
            assert name in {"pages", "prune"}


@pytest.mark.parametrize("text", ["1e3", "-.5", "0o17", "0x1F", "7.", "on", "null", "~", "12:30"])
def test_a_text_is_a_text_to_readers_of_either_version_of_yaml(text: str) -> None:
    written = yaml_text({"labels": [text]})
    assert yaml.load(written, yaml.CSafeLoader) == {"labels": [text]}
    assert YAML(typ="safe", pure=True).load(written) == {"labels": [text]}


def test_a_group_is_named_beside_its_labels(tmp_path: Path) -> None:
    a_project(tmp_path, RUNNERS)
    text = ci_files(open_workspace(tmp_path))[OWN]
    (job,) = yaml.load(text or "", yaml.CSafeLoader)["jobs"].values()
    assert job["runs-on"] == {"group": "lab", "labels": ["gpu"]}


def test_without_machines_there_is_nothing_to_write(tmp_path: Path) -> None:
    make_project(tmp_path)
    with pytest.raises(InputError, match="no `runners:`"):
        flow_of(open_workspace(tmp_path).matrix, tmp_path)


def test_no_number_of_rows_meets_the_limit_of_called_workflows(tmp_path: Path) -> None:
    """Thirty rows of our own: with one workflow a row, GitHub would start none."""
    rows = "".join(
        f"  gpu{n}: {{labels: gpu{n}, trust: self-hosted, vendor: nvidia, targets: sm_90}}\n"
        for n in range(30)
    )
    a_project(tmp_path, RUNNERS + rows)
    files = ci_files(open_workspace(tmp_path))
    main = yaml.load(files[MAIN] or "", yaml.CSafeLoader)
    called = {job["uses"] for job in main["jobs"].values() if "uses" in job}
    assert len(called) <= 9 < LIMITS["called_workflows"]
    (job,) = yaml.load(files[OWN] or "", yaml.CSafeLoader)["jobs"].values()
    assert all(f"matrix.runner == 'gpu{n}'" in job["runs-on"] for n in range(30))
    assert job["strategy"]["max-parallel"] == 31


def test_more_called_workflows_than_the_limit_are_refused() -> None:
    few = {**LIMITS, "called_workflows": 3}
    with pytest.raises(InputError, match="called workflows, and GitHub starts none with more"):
        workflows(the_flow(), pinned_actions(), few)


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [("child_bytes", 9, "bytes, and GitLab reads 9"), ("needs_per_job", 1, "needs 2 jobs")],
)
def test_what_gitlab_would_not_start_is_refused(limit: str, value: int, said: str) -> None:
    limits = {**LIMITS, limit: value}
    with pytest.raises(InputError, match=said):
        child_pipeline(the_flow(), nightly(), limits)


def test_a_request_for_another_branch_starts_nothing() -> None:
    """It may be green for a base that has the change already; a changed base starts no run."""
    assert RENDERED[MAIN]["on"]["pull_request"]["branches"] == ["main"]
    parent = yaml.load(gitlab_files(the_flow())[PARENT], yaml.CSafeLoader)
    rules = [rule["if"] for job in ("plan", "cells") for rule in parent[job]["rules"]]
    requests = [one for one in rules if "merge_request_event" in one]
    assert len(requests) == 6
    assert all('$CI_MERGE_REQUEST_TARGET_BRANCH_NAME == "main"' in one for one in requests)


def test_a_pipeline_with_more_jobs_than_the_smallest_plan_is_noted_and_written() -> None:
    """A project's plan decides: no job can read it, and paid plans and own instances take more."""
    few = {**LIMITS, "jobs_per_pipeline": 9}
    text, crowded = child_pipeline(the_flow(), nightly(), few)
    assert "gitlab.com starts 9 on the Free tier" in crowded
    assert (text, "") == child_pipeline(the_flow(), nightly(), LIMITS)


def test_no_vendor_waits_for_another() -> None:
    """An offline H100 holds back what needs one, and no release for CPUs."""
    jobs = RENDERED[MAIN]["jobs"]
    for vendor in ("amd", "cpu", "nvidia"):
        for kind in ("verify", "bench", "publish"):
            for name in (f"{kind}-{vendor}", f"{kind}-{vendor}-own"):
                needs = set(jobs.get(name, {}).get("needs", ())) - {"plan"}
                assert all(one.split("-")[1] == vendor for one in needs), name


def test_only_its_own_label_starts_the_labelled_run_and_no_label_another() -> None:
    assert RENDERED[MAIN]["on"]["pull_request"]["types"] == ["opened", "synchronize", "reopened"]
    labelled = RENDERED[".github/workflows/warpfront-gpu.yml"]
    assert labelled["on"] == {"pull_request": {"branches": ["main"], "types": ["labeled"]}}
    mine = "github.event.label.name == 'gpu'"
    # Another label makes a group of its own, so that it cancels nothing.
    assert f"{mine} && github.event.pull_request.number || github.run_id" in str(
        labelled["concurrency"]["group"]
    )
    for name, job in labelled["jobs"].items():
        assert mine in job["if"] or "needs.plan.result == 'success'" in job["if"], name
        assert "write" not in job["permissions"].values()


def test_what_waits_for_another_publication_is_not_cancelled_by_a_third() -> None:
    (job,) = RENDERED[PUBLISH]["jobs"].values()
    assert job["concurrency"]["queue"] == "max"
    assert job["concurrency"]["cancel-in-progress"] is False


def test_a_job_that_takes_artifacts_names_those_of_its_work() -> None:
    """Not all of the run's: n publications would download n artifacts each."""
    (job,) = RENDERED[PUBLISH]["jobs"].values()
    (take,) = [step for step in job["steps"] if step["name"] == "take"]
    assert take["with"]["pattern"] == "{${{ matrix.after }},${{ matrix.name }}}"
    assert take["with"]["merge-multiple"] is True


def test_what_builds_does_so_at_the_moment_of_its_commit_and_with_earlier_layers() -> None:
    for path in ("ci/build.sh", "ci/candidate.sh"):
        text = scripts(the_flow())[path]
        assert 'SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"' in text
        assert (
            "export SOURCE_DATE_EPOCH WARPFRONT_BUILD_CACHE=ghcr.io/warpfront/build-cache" in text
        )


# --- installing ---


def installing(folder: Path, install: str) -> dict[str, str | None]:
    """What is written for an `install:`, with a resolver that repeats what it was given."""
    a_project(folder, RUNNERS.replace(INSTALL, install))
    (folder / "ci").mkdir()
    (folder / "ci/mine.txt").write_text(f"warpfront==0.1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    return dict(ci_files(open_workspace(folder), "\n".join))


def test_without_a_source_of_warpfront_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no `install:`"):
        installing(tmp_path, "")


@pytest.mark.parametrize(
    ("install", "calls", "wanted"),
    [
        (
            INSTALL,
            ["--require-hashes --requirement ci/requirements.txt"],
            (
                "warpfront[layers,port,publish] @"
                " https://example.test/warpfront-0.1.0-py3-none-any.whl#sha256=abab"
            ),
        ),
        (
            f"\ninstall: {{git: https://example.test/w, commit: {'c' * 40}}}\n",
            [
                "--require-hashes --requirement ci/requirements.txt",
                f'--no-build-isolation "warpfront @ git+https://example.test/w@{"c" * 40}"',
            ],
            "hatchling",
        ),
        (
            "\ninstall: {requirements: ci/mine.txt}\n",
            ["--require-hashes --requirement ci/mine.txt"],
            "",
        ),
    ],
    ids=["wheel", "git", "requirements"],
)
def test_jobs_install_by_hash_and_commit_and_never_by_a_bare_name(
    install: str, calls: list[str], wanted: str, tmp_path: Path
) -> None:
    files = installing(tmp_path, install)
    lines = [line for line in (files["ci/setup.sh"] or "").splitlines() if "pip install" in line]
    assert len(lines) == len(calls)
    assert all(call in line for call, line in zip(calls, lines, strict=True))
    assert wanted in (files.get("ci/requirements.txt") or "")
    assert not re.search(r"pip install[^\n]* warpfront(==|\s|$)", files["ci/setup.sh"] or "")


def test_this_repository_installs_its_checkout_and_all_else_by_hash() -> None:
    files = ci_files(open_workspace(ROOT))
    assert "--no-deps --no-build-isolation --editable ." in (files["ci/setup.sh"] or "")
    locked = files["ci/requirements.txt"] or ""
    pins = re.findall(r"^([\w.-]+)==\S+(.*)$", locked, re.MULTILINE)
    assert {"hatchling", "docker", "pydantic", "uv"} <= {name for name, _ in pins}
    assert locked.count("--hash=sha256:") >= len(pins)
    assert "://" not in locked


@pytest.mark.parametrize(
    "install",
    [
        "{wheel: https://example.test/warpfront-0.1.0-py3-none-any.whl}",
        "{git: https://example.test/w, commit: main}",
        "{git: https://example.test/w}",
        "{requirements: a.txt, git: https://example.test/w}",
        "{wheel: https://example.test/other-0.1.0-py3-none-any.whl, sha256: " + "a" * 64 + "}",
        "warpfront",
    ],
)
def test_an_installation_that_is_not_pinned_is_refused(install: str, tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="install"):
        installing(tmp_path, f"\ninstall: {install}\n")


def test_a_wheel_of_another_hash_than_was_named_is_refused(tmp_path: Path) -> None:
    a_project(tmp_path, RUNNERS)
    with pytest.raises(LockError, match="is not the wheel of sha256"):
        ci_files(open_workspace(tmp_path), lambda _wanted: "warpfront --hash=sha256:00")


def test_a_file_of_hashes_stays_until_what_it_is_for_changes(tmp_path: Path) -> None:
    files = installing(tmp_path, INSTALL)
    write(files, tmp_path)
    path = tmp_path / "ci/requirements.txt"
    path.write_text(path.read_text() + "\n# moved by a robot\n")
    assert stale(ci_files(open_workspace(tmp_path)), tmp_path) == ""
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("0.1.0-py3", "0.2.0-py3"))
    assert "ci/requirements.txt" in stale(ci_files(open_workspace(tmp_path)), tmp_path)


# --- pins ---

NEWER = "a" * 40


def test_a_pin_that_a_robot_moved_stays_and_an_older_one_does_not(tmp_path: Path) -> None:
    """As Dependabot and Renovate write it: the commit, and the version beside it."""
    a_project(tmp_path, RUNNERS)
    write(ci_files(open_workspace(tmp_path)), tmp_path)
    uses, version = pinned_actions()["checkout"]
    for path in (tmp_path / ".github/workflows").glob("*.yml"):
        text = path.read_text().replace(uses, f"actions/checkout@{NEWER}")
        path.write_text(text.replace(f"{NEWER} # {version}", f"{NEWER} # v99.1"))
    assert stale(ci_files(open_workspace(tmp_path)), tmp_path) == ""
    assert write(ci_files(open_workspace(tmp_path)), tmp_path) == ()
    main = tmp_path / MAIN
    assert f"actions/checkout@{NEWER} # v99.1" in main.read_text()
    for path in (tmp_path / ".github/workflows").glob("*.yml"):
        path.write_text(path.read_text().replace("# v99.1", "# v0.1"))
    assert "-      uses: actions/checkout@aaaa" in stale(
        ci_files(open_workspace(tmp_path)), tmp_path
    )
    write(ci_files(open_workspace(tmp_path)), tmp_path)
    assert f"{uses} # {version}" in main.read_text()


@pytest.mark.parametrize("pin", ["v99", "main", "aaaa # v99.0.0", f"{NEWER}"])
def test_what_is_no_pin_is_not_kept(pin: str) -> None:
    text = f"    - uses: actions/checkout@{pin}\n"
    assert kept_pins(pinned_actions(), [text]) == pinned_actions()


@pytest.mark.timeout(20)
def test_pins_are_read_from_a_long_workflow_in_time() -> None:
    assert kept_pins(pinned_actions(), [" \n" * 100_000]) == pinned_actions()


def test_robots_move_the_pins_of_actions_of_hashes_and_of_bases() -> None:
    """Renovate's expression, on this repository's matrix.yaml: a digest that it moves is read."""
    files = robot_files("ci/requirements.txt")
    found = yaml.load(files[DEPENDABOT], yaml.CSafeLoader)["updates"]
    places = {one["package-ecosystem"]: one["directory"] for one in found}
    assert places == {"github-actions": "/", "pip": "/ci"}
    (manager,) = json.loads(files[RENOVATE])["customManagers"]
    (bases_of,) = manager["matchStrings"]
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    parts = re.compile(bases_of.replace("(?<", "(?P<"))
    bases = {one["depName"]: one for one in parts.finditer(text)}
    assert {"docker.io/library/python"} <= bases.keys()
    base = next(parts.finditer(text))
    moved = text.replace(base["currentDigest"], "sha256:" + "9" * 64)
    cells = read_matrix(moved, path="matrix.yaml", compat=packaged()).cells
    assert "sha256:" + "9" * 64 in {cell.base.digest for cell in cells}
    local = f"reference: localhost:5000/a/b:1\n  digest: sha256:{'0' * 64}"
    assert [one["depName"] for one in parts.finditer(local)] == ["localhost:5000/a/b"]


def test_a_configuration_that_a_project_has_of_its_own_stays(tmp_path: Path) -> None:
    a_project(tmp_path, RUNNERS)
    (tmp_path / ".github").mkdir()
    (tmp_path / DEPENDABOT).write_text("version: 2\nupdates: []\n")
    files = ci_files(open_workspace(tmp_path))
    assert DEPENDABOT not in files
    assert RENOVATE in files
    write(files, tmp_path)
    assert DEPENDABOT not in ci_files(open_workspace(tmp_path))
    assert stale(ci_files(open_workspace(tmp_path)), tmp_path) == ""


@pytest.mark.parametrize(
    ("repository", "can_read", "said"),
    [
        ("ghcr.io/me", "", ""),
        ("registry.gitlab.com/me", "false", ""),
        ("registry.example.com/me", "true", ""),
        ("registry.example.com/me", "false", "which is not set"),
        ("registry.example.com/me", "", "if it is private"),
    ],
)
def test_rows_that_cannot_pull_are_named(repository: str, can_read: str, said: str) -> None:
    found = unable_to_pull(the_flow(repository), can_read)
    assert bool(found) == bool(said)
    assert said in found
    if said:
        assert found.startswith("mi300, ubuntu, h100 cannot pull from registry.example.com")


def test_what_verifies_logs_in_where_it_pulls_and_never_for_a_pull_request() -> None:
    for path in (OWN, ".github/workflows/warpfront-bench-own.yml"):
        (job,) = RENDERED[path]["jobs"].values()
        (login,) = [step for step in job["steps"] if step["name"] == "log in"]
        assert login["if"] == "${{ inputs.channel != '' && github.event_name != 'pull_request' }}"
        assert job["permissions"] == {"contents": "read", "packages": "read"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("warpfront==0.1.0\n", "no hash for warpfront==0.1.0"),
        ("warpfront==0.1.0 --hash=sha256:00\nother\n", "no hash for other"),
        ("# warpfront\nother --hash=sha256:00\n", "no line for warpfront"),
        ("", "no line for warpfront"),
    ],
)
def test_a_file_of_ones_own_without_a_hash_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=f"ci/mine.txt: {said}"):
        require_hashes("ci/mine.txt", text)
