"""What forges are told, held to rules: each rule finds its fault when one is seeded."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from warpfront.ci.actions import pinned_actions
from warpfront.ci.flow import Flow, PublishingRefs, make_flow, scripts, yaml_text
from warpfront.ci.github_workflows import MATCHERS, QUEUE, workflows
from warpfront.ci.gitlab import PARENT, child_pipeline, gitlab_files
from warpfront.ci.schedule import SCOPES, schedule
from warpfront.errors import InputError, MatrixError, Problem
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.scaffold import make_project
from warpfront.model import CiOptions
from warpfront.pipeline.beside.workflows import ci_files, flow_of, stale, write
from warpfront.pipeline.workspace import open_workspace
from warpfront.release.origin import PUBLISH_WORKFLOW

ROOT = Path(__file__).resolve().parents[3]
MATRIX = read_matrix(
    (ROOT / "matrix.yaml").read_text(encoding="utf-8"), path="matrix.yaml", compat=packaged()
)
Workflow = dict[str, Any]


def the_flow(repository: str = "ghcr.io/warpfront") -> Flow:
    return make_flow(MATRIX.runners, installs=("--editable", "."), repository=repository)


FILES = workflows(the_flow(), pinned_actions())
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
        may = name in {"publish", "release", "pages", "prune", "findings", "notify", "queue"}
        may = may or name.startswith(("candidate-", "publish-"))
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
        labels = job.get("runs-on", name.partition("-")[2])
        labels = labels["labels"] if isinstance(labels, dict) else labels
        used = set(labels if isinstance(labels, list) else [labels])
        called = any(
            name == f"verify-{one.name}" for one in MATRIX.runners if one.trust != "hosted"
        )
        guard = "head.repo.full_name == github.repository"
        if (used & own or called) and guard not in str(job.get("if", "")):
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
        # A token that writes nothing, or ends runs of a workflow that only the clock starts.
        writes = {p for p, how in (job.get("permissions") or {}).items() if how == "write"}
        harmless = not writes or started_by(workflow) == ["schedule"]
        said = str(job).replace("github.event_name != 'pull_request' && secrets.RUNNERS_TOKEN", "")
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
        if given and (not named or "github.event_name != 'pull_request'" not in job["if"]):
            yield name


def started_by_strangers(workflow: Workflow) -> Iterator[str]:
    yield from {"pull_request_target", "workflow_run", "issue_comment"} & set(started_by(workflow))


RULES = (
    *(
        unpinned,
        powerful,
        writing_for_a_request,
        publishing_from_anywhere,
        injectable,
        leaving_credentials,
        endless,
        giving_up_early,
    ),
    *(open_to_forks, publishing_cancelled, holding_secrets, handing_secrets, started_by_strangers),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", sorted({*RENDERED, *BY_HAND}))
def test_a_workflow_keeps_the_rule(path: str, rule: Callable[[Workflow], Iterator[str]]) -> None:
    for found in (RENDERED, BY_HAND):
        if path in found:
            assert list(rule(found[path])) == []


MAIN = ".github/workflows/warpfront.yml"
OWN = ".github/workflows/warpfront-verify-h100.yml"
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
        (writing_for_a_request, seeded(MAIN, "jobs.candidate-ubuntu.if", "${{ !cancelled() }}")),
        (writing_for_a_request, seeded(MAIN, "jobs.pages.if", "${{ always() }}")),
        (writing_for_a_request, seeded(PUBLISH, "jobs.publish.if", "${{ always() }}")),
        (injectable, seeded(OWN, "jobs.verify-h100.steps.1.run", "echo ${{ matrix.name }}")),
        (leaving_credentials, seeded(MAIN, "jobs.plan.steps.0.with", {})),
        (endless, {"jobs": {"x": {"steps": []}}}),
        (giving_up_early, seeded(OWN, "jobs.verify-h100.strategy.fail-fast", "true")),
        (open_to_forks, seeded(MAIN, "jobs.verify-h100.if", "${{ !cancelled() }}")),
        (open_to_forks, seeded(OWN, "jobs.verify-h100.if", "${{ always() }}")),
        (publishing_cancelled, seeded(PUBLISH, "jobs.publish.concurrency", {})),
        (holding_secrets, seeded(OWN, "jobs.verify-h100.env", {"A": "${{ secrets.TOKEN }}"})),
        (handing_secrets, seeded(MAIN, "jobs.publish-cpu.secrets", "inherit")),
        (handing_secrets, seeded(MAIN, "jobs.publish-cpu.if", "${{ always() }}")),
        (publishing_from_anywhere, seeded(MAIN, "jobs.publish-amd.if", "${{ !cancelled() }}")),
        (publishing_from_anywhere, seeded(MAIN, "jobs.candidate-ubuntu.if", "${{ always() }}")),
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
        lines = [line for line in text.splitlines()[4:] if line]
        assert len(lines) <= 2, path
        assert not re.search(r"\b(if|for|while|case)\b", "\n".join(lines))


def test_the_required_check_always_runs_and_hears_how_the_others_ended() -> None:
    required = RENDERED[MAIN]["jobs"]["required"]
    assert required["if"] == "${{ always() }}"
    others = set(RENDERED[MAIN]["jobs"]) - {"required", "report", "notify", "pages", "prune"}
    assert set(required["needs"]) == others
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
    for vendor, runner in (("cpu", "ubuntu"), ("nvidia", "h100"), ("amd", "mi300")):
        needs = jobs[f"publish-{vendor}"]["needs"]
        assert [name for name in needs if name.startswith("verify-")] == [f"verify-{runner}"]
        assert jobs[f"publish-{vendor}"]["uses"] == f"./{PUBLISH}"


def test_one_workflow_signs_and_it_is_the_one_that_signatures_have_to_name() -> None:
    """Called ones count: a certificate names the called file, with the ref."""
    signs = [
        path
        for path, workflow in RENDERED.items()
        if any("cosign-installer" in step.get("uses", "") for step in steps_of(workflow))
    ]
    assert signs == [PUBLISH_WORKFLOW] == [PUBLISH]


def test_a_merge_and_a_release_tag_start_a_run() -> None:
    started = RENDERED[MAIN].get("on") or RENDERED[MAIN][True]  # type: ignore[index]
    assert started["push"] == {"branches": ["main"], "tags": ["v*"]}
    refs = PublishingRefs(branch="trunk", release_tags="rel-", releases=False)
    flow = make_flow(MATRIX.runners, installs=("x",), repository="ghcr.io/x", publishes=refs)
    files = workflows(flow, pinned_actions())
    main = yaml.load(files[MAIN], yaml.CSafeLoader)
    assert (main.get("on") or main[True])["push"] == {"branches": ["trunk"]}
    assert "startsWith(github.ref, 'refs/tags/rel-')" in main["jobs"]["publish-cpu"]["if"]
    rules = yaml.load(gitlab_files(flow)[PARENT], yaml.CSafeLoader)["plan"]["rules"]
    assert "release" not in {rule["variables"]["SCOPE"] for rule in rules}


def test_a_red_run_after_the_merge_is_told_where_the_table_wants_it() -> None:
    notify = RENDERED[MAIN]["jobs"]["notify"]
    assert notify["if"] == f"${{{{ always() && github.event_name != 'pull_request' && {REFS} }}}}"
    assert notify["permissions"] == {"contents": "read", "actions": "read", "issues": "write"}
    assert "required" in notify["needs"]
    silent = make_flow(
        MATRIX.runners, installs=("x",), repository="ghcr.io/x", options=CiOptions(notify=())
    )
    assert "notify" not in workflows(silent, pinned_actions())[MAIN]


def test_only_where_machines_are_ours_does_a_clock_end_what_waits_for_one() -> None:
    hosted = [one for one in MATRIX.runners if one.trust == "hosted"]
    flow = make_flow(hosted, installs=("x",), repository="ghcr.io/x")
    assert f".github/workflows/{QUEUE}" not in workflows(flow, pinned_actions())
    queue = RENDERED[f".github/workflows/{QUEUE}"]["jobs"]["queue"]
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
    files = workflows(the_flow("registry.example.com/mine"), pinned_actions())
    assert "secrets.REGISTRY_TOKEN" in files[PUBLISH]
    assert "REGISTRY_TOKEN: ${{ github.token }}" not in files[PUBLISH]
    calls = yaml.load(files[MAIN], yaml.CSafeLoader)["jobs"]
    told = {name for name, job in calls.items() if "REGISTRY_TOKEN" in job.get("secrets", {})}
    assert told == {"candidate-ubuntu", "publish-cpu", "publish-nvidia", "publish-amd"}


def test_the_same_flow_gives_the_same_bytes() -> None:
    assert workflows(the_flow(), pinned_actions()) == FILES


def test_gitlab_runs_the_same_calls_of_the_same_jobs() -> None:
    planned = schedule(
        MATRIX.cells,
        scope=SCOPES["nightly"],
        runners=MATRIX.runners,
        now=dict.fromkeys((cell.id for cell in MATRIX.cells), "x"),
        before=None,
        blocked={},
    )
    child = yaml.load(child_pipeline(the_flow(), planned, "d1"), yaml.CSafeLoader)
    jobs = {name: body for name, body in child.items() if name not in {"stages", "planned"}}
    kinds = (planned.build, planned.verify, planned.bench)
    works = [work for each in kinds for of_row in each.values() for work in of_row]
    works += [work for of_vendor in planned.publish.values() for work in of_vendor]
    ends = {"report", "prune", "required", "notify"}
    assert jobs.keys() == {work.name for work in works} | ends
    for name, body in jobs.items():
        assert set(body["script"]) <= scripts(the_flow()).keys()
        sends = any(kind in body["script"][-1] for kind in ("candidate", "publish", "prune"))
        assert (
            ("ci/login.sh" in body["script"]) == sends == ("REGISTRY" in body.get("variables", {}))
        )
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
    for work in works:
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
    scopes = [rule["variables"]["SCOPE"] for rule in parent["plan"]["rules"]]
    assert sorted(scopes) == sorted(SCOPES)
    assert parent["cells"]["trigger"]["strategy"] == "depend"
    by_scope = {rule["variables"]["SCOPE"]: rule["if"] for rule in parent["plan"]["rules"]}
    assert by_scope["release"] == "$CI_COMMIT_TAG =~ /^v/"
    assert by_scope["merged"] == '$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == "main"'


def test_what_is_committed_is_what_would_be_written() -> None:
    assert stale(ci_files(open_workspace(ROOT)), ROOT) == ""


RUNNERS = """
runners:
  ubuntu: {labels: ubuntu-24.04, trust: hosted, builds: true, vendor: cpu, targets: x86_64}
  h100: {group: lab, labels: [gpu], trust: self-hosted, vendor: nvidia, targets: sm_90}
"""


def test_what_is_stale_is_shown_and_written_and_what_is_left_over_goes(tmp_path: Path) -> None:
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text() + RUNNERS)
    files = ci_files(open_workspace(tmp_path))
    assert "warpfront==" in (files["ci/setup.sh"] or "")
    assert "+jobs:" in stale(files, tmp_path)
    assert set(write(files, tmp_path)) == set(files)
    assert (tmp_path / "ci" / "plan.sh").stat().st_mode & 0o111
    assert (stale(files, tmp_path), write(files, tmp_path)) == ("", ())
    matrix.write_text(matrix.read_text().replace("  h100:", "  h200:"))
    files = ci_files(open_workspace(tmp_path))
    old = ".github/workflows/warpfront-verify-h100.yml"
    assert files[old] is None
    assert f"--- {old}" in stale(files, tmp_path)
    assert old in write(files, tmp_path)
    assert not (tmp_path / old).exists()
    assert stale(ci_files(open_workspace(tmp_path)), tmp_path) == ""


OWN_BUILDER = """
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
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text() + OWN_BUILDER)
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
    assert yaml.safe_load(written) == {"labels": [text]}
    assert YAML(typ="safe", pure=True).load(written) == {"labels": [text]}


def test_a_group_is_named_beside_its_labels(tmp_path: Path) -> None:
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text() + RUNNERS)
    text = ci_files(open_workspace(tmp_path))[OWN]
    (job,) = yaml.load(text or "", yaml.CSafeLoader)["jobs"].values()
    assert job["runs-on"] == {"group": "lab", "labels": ["gpu"]}


def test_without_machines_there_is_nothing_to_write(tmp_path: Path) -> None:
    make_project(tmp_path)
    with pytest.raises(InputError, match="no `runners:`"):
        flow_of(open_workspace(tmp_path).matrix, tmp_path)
