"""The time, commit and CI run of a build: the one place that asks the clock and git for it, and the
one reader of a CI job's environment and outputs. Edge.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warpfront.errors import CommandFailedError, InputError
from warpfront.system.process import Command, Run, environment
from warpfront.system.store import append_text, read_text
from warpfront.system.tree_files import Provenance


def read_provenance(root: Path, run: Run) -> Provenance:
    """Now (or `SOURCE_DATE_EPOCH`, https://reproducible-builds.org/specs/source-date-epoch/) and
    the commit checked out at `root`; the revision is "" where there is no repository.
    """
    created = fixed_moment() or datetime.now(UTC).isoformat(timespec="seconds")
    revision = ""
    with contextlib.suppress(CommandFailedError):
        git = run(Command(argv=("git", "rev-parse", "HEAD"), cwd=root, timeout_seconds=10))
        revision = git.stdout.strip() if git.returncode == 0 else ""
    return Provenance(created=created, revision=revision)


def fixed_moment() -> str:
    """Return `SOURCE_DATE_EPOCH` as RFC 3339; "" if it is not set."""
    epoch = environment().get("SOURCE_DATE_EPOCH", "")
    if not re.fullmatch(r"[0-9]{1,11}", epoch):
        return ""
    return datetime.fromtimestamp(int(epoch), UTC).isoformat(timespec="seconds")


def now() -> str:
    """Return the current time as RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """The current job. `scope` is the event that started its run, `since` the commit to compare
    with. `planned` and `ended` are the ends of the jobs before this one. `plan_digest` is that of
    the plan as its job wrote it, `url` the run's page, `head` the newest commit of a pull request
    of the repository itself. All are empty on a laptop.
    """

    scope: str = ""
    since: str = ""
    planned: str = ""
    ended: tuple[str, ...] = ()
    plan_digest: str | None = None
    url: str = ""
    head: str = ""
    summary: Path | None = None
    outputs: Path | None = None

    def say_outputs(self, outputs: Mapping[str, str]) -> None:
        """Write each output on one line: none contains a line's end."""
        if self.outputs is not None:
            append_text(self.outputs, "".join(f"{name}={text}\n" for name, text in outputs.items()))

    def say_summary(self, markdown: str) -> None:
        """Append to the summaries of earlier steps on the run's page."""
        if self.summary is not None:
            append_text(self.summary, markdown)


def read_forge(environment: Mapping[str, str], *, label: str) -> Forge:
    """`label` is what a maintainer puts on a pull request for machines of our own."""
    digest = environment.get("PLAN_DIGEST")
    if environment.get("GITLAB_CI") == "true":
        return Forge(plan_digest=digest, url=environment.get("CI_PIPELINE_URL", ""))
    if environment.get("GITHUB_ACTIONS") != "true":
        return Forge()
    event = read_event(environment.get("GITHUB_EVENT_PATH", ""))
    summary, outputs = environment.get("GITHUB_STEP_SUMMARY"), environment.get("GITHUB_OUTPUT")
    name = environment.get("GITHUB_EVENT_NAME", "")
    places = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (environment.get(place, "") for place in places)
    ends = event.get("pull_request", {}).get("head", {})
    is_own = (ends.get("repo") or {}).get("full_name") == repository
    head = str(ends.get("sha", "")) if is_own else ""
    scope, since = _of_event(name, event, head, label)
    return Forge(
        scope=scope,
        since=since,
        planned=environment.get("PLANNED", ""),
        ended=tuple(part for part in environment.get("ENDED", "").split(",") if part),
        plan_digest=digest,
        url=f"{server}/{repository}/actions/runs/{run}",
        head=head,
        summary=Path(summary) if summary else None,
        outputs=Path(outputs) if outputs else None,
    )


def read_event(path: str) -> Any:
    """Return the event that started the run, as GitHub wrote it. Raise `InputError`."""
    text = read_text(Path(path), missing_ok=True) if path else None
    try:
        return json.loads(text or "{}")
    except ValueError as error:
        raise InputError(f"{path}: not the JSON of an event: {error}") from None


def _of_event(name: str, event: Any, head: str, label: str) -> tuple[str, str]:
    """(scope, since). A pull request of a fork stays one, whatever its labels say."""
    if name == "pull_request":
        pull_request = event.get("pull_request", {})
        labels = {label_entry.get("name") for label_entry in pull_request.get("labels", ())}
        scope = "labelled" if head and label in labels else "pull_request"
        return scope, pull_request.get("base", {}).get("sha", "")
    if name == "merge_group":
        return "merge_queue", event.get("merge_group", {}).get("base_sha", "")
    if name == "push":
        if str(event.get("ref", "")).startswith("refs/tags/"):
            return "release", ""
        before = str(event.get("before", ""))
        return "merged", before if before.strip("0") else ""  # zeros: the branch is new
    if name == "workflow_dispatch":
        return (event.get("inputs") or {}).get("scope", "") or "nightly", ""
    return "nightly", ""


def read_invocation(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the CI run of this process, as SLSA provenance names it: the address of a workflow or
    runner, and that of its run; both "" outside CI. The forms are those of GitHub's attestations
    (https://docs.github.com/actions/reference/workflows-and-actions/variables) and of GitLab's
    (https://docs.gitlab.com/ci/pipeline_security/slsa/provenance_v1).
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        names = ["SERVER_URL", "REPOSITORY", "WORKFLOW_REF", "RUN_ID"]
        values = [environment.get(f"GITHUB_{name}", "") for name in names]
        server, repository, workflow, run = values
        attempt = environment.get("GITHUB_RUN_ATTEMPT", "") or "1"
        builder = f"{server}/{workflow}"
        invocation = f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"
    elif environment.get("GITLAB_CI") == "true":
        names = ["CI_PROJECT_URL", "CI_RUNNER_ID", "CI_JOB_URL"]
        values = [environment.get(name, "") for name in names]
        builder, invocation = f"{values[0]}/-/runners/{values[1]}", values[2]
    else:
        return "", ""
    return (builder, invocation) if all(values) else ("", "")
