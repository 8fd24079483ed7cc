"""The flow as GitHub's workflows: one that says when, and one for each kind of job that is spread
over cells, which it calls in shards. Pure.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.ci.flow import HANDOVER, HEADER, LABEL, SITE, Flow, Job, yaml_text
from warpfront.matrix.runners import Runner

FOLDER = ".github/workflows"
MAIN = "warpfront"
QUEUE = f"{MAIN}-queue.yml"
MATCHERS = ".github/warpfront-problems.json"
"""How a forge reads problems off what is printed: `add-matcher` names it."""
PYTHON = "3.11"
Actions = Mapping[str, tuple[str, str]]

# Only files in which problems are ours: a warning of Python's is `path.py:12: ...`, too.
_PROBLEM = r"^(?:error: )?([\w@./-]+\.(?:ya?ml|toml|txt|j2|json)):(\d+): (.+)$"
_FINDING = r"^  ([^\s:][^:]*):(\d+):(\d+): (.+)$"
_READS = {"contents": "read"}
_POWERS = {
    "packages": "images are pushed",
    "contents": "a line is added to the history of runs",
    "pages": "the page is published",
    "id-token": "signatures, and who publishes the page, name this workflow",
    "attestations": "provenance is kept beside the image",
    "issues": "one issue names what is red",
    "actions": "runs that wait in vain are ended",
}
_READING = {"actions": "how the run's jobs ended"}
_KEY_SECRETS = ("COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD")
"""For `COSIGN_KEY: env://COSIGN_PRIVATE_KEY`; all are empty where nobody signs with a key."""
_ZIZMOR = """\
rules:
  # `./` is what every version of the forge, actionlint and act resolve; `$/` is not, yet.
  self-repository:
    disable: true"""
_OWN = """\
  self-hosted-runner:
    # No fork reaches them: a job's `if` says so, there and where it is called.
"""
_RUNNERS_TOKEN = f"""\
  secrets-outside-env:
    # `plan` reads which machines are online, by a token that reads nothing else. It runs before any
    # environment, and never with the token in a pull request.
    ignore:
      - {MAIN}.yml"""
_GROUPED = "    # A group may be GitHub's own machines, too, which it throws away after each job.\n"
_NO_FORK = "github.event.pull_request.head.repo.full_name == github.repository"
_OURS = (
    f"github.event_name != 'pull_request' || ({_NO_FORK} && "
    f"contains(github.event.pull_request.labels.*.name, '{LABEL}'))"
)
_SAME_REPOSITORY = f"github.event_name != 'pull_request' || {_NO_FORK}"
_HOSTED = "ubuntu-24.04"
_NIGHTS = (
    "!cancelled() && needs.plan.result == 'success' && vars.{wanted} == 'yes' && "
    "(github.event_name == 'schedule' || github.event_name == 'workflow_dispatch')"
)
_NO_REQUEST = "github.event_name != 'pull_request'"
_TRIGGERS: dict[str, Any] = {
    "pull_request": {"types": ["opened", "synchronize", "reopened", "labeled"]},
    "merge_group": {"types": ["checks_requested"]},
    "push": {},
    "schedule": [{"cron": "17 2 * * *"}],
    "workflow_dispatch": {
        "inputs": {
            "scope": {
                "description": "how far it goes",
                "type": "choice",
                "options": ["nightly", "release"],
                "default": "nightly",
            }
        }
    },
}


def workflows(flow: Flow, actions: Actions) -> dict[str, str]:
    """Every file of the flow that is GitHub's, by path."""
    made = {f"{FOLDER}/{MAIN}.yml": _main(flow, actions)}
    for job in flow.jobs:
        if job.spread:
            made[_called_file(job)] = _called(flow, job, actions)
    if _has_own_machines(flow):
        made[f"{FOLDER}/{QUEUE}"] = _queue(flow, actions)
    files = {path: _text(document, actions) for path, document in made.items()}
    labels = _text(_labels(flow), actions)
    files[MATCHERS] = json.dumps(_matchers(), indent=2) + "\n"
    return {**files, ".github/actionlint.yaml": labels, ".github/zizmor.yml": _zizmor(flow)}


def _has_own_machines(flow: Flow) -> bool:
    return any(one.trust == "self-hosted" for one in flow.runners)


def _called_file(job: Job) -> str:
    return f"{FOLDER}/{MAIN}-{job.workflow or job.name}.yml"


def _may_publish(flow: Flow) -> str:
    """The refs that publish, also where a run is started by hand."""
    refs = flow.publishes
    branch = f"github.ref == 'refs/heads/{refs.branch}'"
    return f"({branch} || startsWith(github.ref, 'refs/tags/{refs.release_tags}'))"


def _triggers(flow: Flow) -> dict[str, Any]:
    refs = flow.publishes
    tags = {"tags": [f"{refs.release_tags}*"]} if refs.releases else {}
    return {**_TRIGGERS, "push": {"branches": [refs.branch], **tags}}


def _queue(flow: Flow, actions: Actions) -> dict[str, Any]:
    """Ends runs that wait for a machine of one's own: GitHub itself does so after a day or two."""
    machine = dataclasses.replace(
        flow.runners[0], trust="hosted", labels=(_HOSTED,), group="", scale_set=False
    )
    job = Job(
        name="queue",
        runner=machine,
        script="ci/queue.sh",
        minutes=20,
        leaves=False,
        powers=("actions",),
    )
    return {
        "name": f"{MAIN}-queue",
        "on": {"schedule": [{"cron": "41 * * * *"}]},
        "permissions": {},
        "concurrency": {"group": f"{MAIN}-queue", "cancel-in-progress": False},
        "jobs": {"queue": _whole(flow, job, actions)},
    }


def _matchers() -> dict[str, Any]:
    """https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md: problems of files of
    the project, and findings of `scan` and `preflight`.
    """
    problem = {"regexp": _PROBLEM, "file": 1, "line": 2, "message": 3}
    finding = {"regexp": _FINDING, "file": 1, "line": 2, "column": 3, "message": 4}
    return {
        "problemMatcher": [
            {"owner": MAIN, "severity": "error", "pattern": [problem]},
            {"owner": f"{MAIN}-scan", "severity": "warning", "pattern": [finding]},
        ]
    }


def _text(document: object, actions: Actions) -> str:
    """YAML with the version beside each commit, which PyYAML cannot write."""
    text = yaml_text(document)
    for uses, version in actions.values():
        text = text.replace(f"uses: {uses}\n", f"uses: {uses} # {version}\n")
    for how, reasons in (("write", _POWERS), ("read", _READING)):
        for power, reason in reasons.items():
            text = text.replace(f" {power}: {how}\n", f" {power}: {how} # {reason}\n")
    return HEADER + text


def _zizmor(flow: Flow) -> str:
    """What its strictest persona may go on saying, with the reason."""
    said_of = [job for job in flow.jobs if job.runner.trust == "self-hosted" or job.runner.group]
    called = dict.fromkeys(_called_file(job) for job in said_of if job.spread)
    files = [f"      - {path.removeprefix(f'{FOLDER}/')}" for path in called]
    if any(not job.spread and (job.wanted or job.runner.group) for job in said_of):
        files.append(f"      - {MAIN}.yml")
    if not files:
        return f"{HEADER}{_ZIZMOR}\n"
    grouped = any(job.runner.trust == "hosted" for job in said_of)
    reason = _OWN + (_GROUPED if grouped else "")
    asks = [_RUNNERS_TOKEN] if _has_own_machines(flow) else []
    return "\n".join([HEADER + _ZIZMOR, f"{reason}    ignore:", *files, *asks, ""])


def _labels(flow: Flow) -> dict[str, Any]:
    """What actionlint has to know: GitHub's larger machines have names of one's own, too."""
    every = {label for one in flow.runners for label in one.labels}
    return {"self-hosted-runner": {"labels": sorted(every)}}


def _main(flow: Flow, actions: Actions) -> dict[str, Any]:
    pull_request = "github.event_name == 'pull_request'"
    return {
        "name": MAIN,
        "on": _triggers(flow),
        "permissions": {},
        "concurrency": {
            "group": f"{MAIN}-${{{{ github.event.pull_request.number || github.run_id }}}}",
            "cancel-in-progress": f"${{{{ {pull_request} }}}}",
        },
        "jobs": {
            job.name: _calling(flow, job) if job.spread else _whole(flow, job, actions)
            for job in flow.jobs
        },
    }


def _calling(flow: Flow, job: Job) -> dict[str, Any]:
    """The call of a job's own workflow, once for each shard."""
    planned = f"needs.plan.outputs.{job.spread}"
    conditions = ["!cancelled()", "needs.plan.result == 'success'", f"{planned} != '[]'"]
    conditions += _guards(flow, job)
    given = {"jobs": "${{ toJSON(matrix.jobs) }}"}
    if job.channel:
        given["channel"] = "${{ needs.plan.outputs.channel }}"
    return {
        "name": f"{job.name} ${{{{ matrix.shard }}}}",
        "needs": list(job.needs),
        "if": f"${{{{ {' && '.join(conditions)} }}}}",
        "strategy": {
            "fail-fast": False,
            "matrix": {"include": f"${{{{ fromJSON({planned}) }}}}"},
        },
        "permissions": _permissions(job),
        "uses": f"./{_called_file(job)}",
        "with": given,
        **_given_secrets(flow, job),
    }


def _secrets(flow: Flow, job: Job) -> tuple[str, ...]:
    """What a job's environment may hold for it: GitHub's own registry takes the job's token."""
    token = ("REGISTRY_TOKEN",) if "packages" in job.powers and not _of_github(flow) else ()
    return (*token, *(_KEY_SECRETS if job.channel else ()))


def _of_github(flow: Flow) -> bool:
    return flow.repository.partition("/")[0] == "ghcr.io"


def _given_secrets(flow: Flow, job: Job) -> dict[str, Any]:
    """A called workflow sees no secret that its caller does not name, not even those of its own
    environment: https://github.com/actions/runner/issues/1490.
    """
    names = _secrets(flow, job)
    return {"secrets": {name: f"${{{{ secrets.{name} }}}}" for name in names}} if names else {}


def _guards(flow: Flow, job: Job) -> list[str]:
    """What keeps forks from a job, and other branches from publishing, whatever the plan says."""
    ours = [f"({_OURS})"] if job.runner.trust == "self-hosted" else []
    return [*ours, *([_NO_REQUEST, _may_publish(flow)] if job.powers else [])]


def _called(flow: Flow, job: Job, actions: Actions) -> dict[str, Any]:
    """The workflow of one kind of job. A runner group can be opened to this file alone."""
    names = ("jobs", "channel") if job.channel else ("jobs",)
    called: dict[str, Any] = {
        "inputs": {name: {"type": "string", "required": True} for name in names}
    }
    if secrets := _secrets(flow, job):
        called["secrets"] = {name: {"required": False} for name in secrets}
    body: dict[str, Any] = {"name": "${{ matrix.name }}"}
    if guards := _guards(flow, job):
        body["if"] = f"${{{{ {' && '.join(guards)} }}}}"
    if job.environment:
        body["environment"] = job.environment
        body["concurrency"] = {"group": "${{ matrix.name }}", "cancel-in-progress": False}
    if job.channel:
        body["environment"] = "${{ inputs.channel }}"
        body["concurrency"] = {
            "group": "${{ inputs.channel }}-${{ matrix.name }}",
            "cancel-in-progress": False,
        }
    name = job.workflow or job.name
    return {
        "name": f"{MAIN}-{name}",
        "on": {"workflow_call": called},
        "permissions": {},
        "jobs": {
            name: {
                **body,
                "strategy": {
                    "fail-fast": False,
                    "max-parallel": job.runner.count,
                    "matrix": {"include": "${{ fromJSON(inputs.jobs) }}"},
                },
                **_whole(flow, job, actions),
            }
        },
    }


def _whole(flow: Flow, job: Job, actions: Actions) -> dict[str, Any]:
    """A job with its steps: fetch, set up, take what others left, one call, leave what it made."""
    body: dict[str, Any] = {} if job.spread else {"name": job.name}
    if job.needs and not job.spread:
        body["needs"] = list(job.needs)
        body["if"] = f"${{{{ {_condition(flow, job)} }}}}"
    if job.environment and not job.spread:
        alone = {"group": job.name, "cancel-in-progress": False}
        body |= {"environment": job.environment, "concurrency": alone}
    body |= {
        "runs-on": _runs_on(job.runner) if job.spread or job.wanted else _for_anybody(job.runner),
        "timeout-minutes": job.minutes,
        "permissions": _permissions(job),
    }
    if job.name == "plan":
        body["outputs"] = {
            name: f"${{{{ steps.call.outputs.{name} }}}}"
            for name in (*(one.spread for one in flow.jobs if one.spread), "channel", "plan")
        }
    return {**body, "steps": _Steps(flow=flow, job=job, actions=actions).all()}


def _condition(flow: Flow, job: Job) -> str:
    """When a job at the end of a run runs: always, or where it may write, of runs that publish."""
    if job.wanted:
        return f"{_NIGHTS.format(wanted=job.wanted)} && {_may_publish(flow)}"
    return f"always() && {_NO_REQUEST} && {_may_publish(flow)}" if job.alerts else "always()"


def _permissions(job: Job) -> dict[str, str]:
    reads = {**_READS, **dict.fromkeys(job.reads, "read")}
    return {**reads, **dict.fromkeys(job.powers, "write")}


def _runs_on(runner: Runner) -> object:
    """One label as a text, which is also how a scale set is named."""
    if runner.group:
        return {"group": runner.group, "labels": list(runner.labels)}
    return runner.labels[0] if len(runner.labels) == 1 else list(runner.labels)


def _for_anybody(runner: Runner) -> object:
    """Where what every request starts runs: a fork's on GitHub's own machine, if all of the table's
    are ours. Skipped, it would count as passed: a required check that is skipped does.
    """
    machine = _runs_on(runner)
    if runner.trust == "hosted":
        return machine
    own, theirs = json.dumps(machine), json.dumps(_HOSTED)
    return f"${{{{ fromJSON(({_SAME_REPOSITORY}) && '{own}' || '{theirs}') }}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps of one job."""

    flow: Flow
    job: Job
    actions: Actions

    def all(self) -> list[dict[str, Any]]:
        fetch = {"persist-credentials": False, **({"fetch-depth": 0} if self.job.history else {})}
        steps = [self._uses("fetch", "checkout", fetch)]
        if self.job.runner.trust == "hosted" or self.job.runner.scale_set:
            steps.append(self._uses("Python", "setup-python", {"python-version": PYTHON}))
        steps.append({"name": "set up", "run": "ci/setup.sh"})
        if self.job.channel:
            steps.append(self._uses("cosign", "cosign-installer", {}))
        if "packages" in self.job.powers:
            steps.append(self._login())
        if self.job.takes:
            steps.append(self._take())
        steps.append(self._call())
        if self.job.leaves:
            steps.append(self._leave())
        if "pages" in self.job.powers:
            steps.append(self._uses("site", "upload-pages-artifact", {"path": SITE}))
            steps.append(self._uses("publish", "deploy-pages", {}))
        return steps

    def _uses(self, name: str, action: str, given: Mapping[str, object]) -> dict[str, Any]:
        uses = {"name": name, "uses": self.actions[action][0]}
        return {**uses, "with": dict(given)} if given else uses

    def _login(self) -> dict[str, Any]:
        """GitHub's registry takes the job's own token; another one those of the environment."""
        registry, of_github = self.flow.repository.partition("/")[0], _of_github(self.flow)
        user = "${{ github.actor }}" if of_github else "${{ vars.REGISTRY_USER }}"
        token = "github.token" if of_github else "secrets.REGISTRY_TOKEN"
        return {
            "name": "log in",
            "env": {
                "REGISTRY": registry,
                "REGISTRY_USER": user,
                "REGISTRY_TOKEN": f"${{{{ {token} }}}}",
            },
            "run": "ci/login.sh",
        }

    def _take(self) -> dict[str, Any]:
        """Each hand-over in a folder of its own, which a pattern makes also where one matches."""
        of_work = "{${{ matrix.after }},${{ matrix.name }}}"
        pattern = of_work if self.job.takes == "work" else "*"
        return self._uses("take", "download-artifact", {"pattern": pattern, "path": HANDOVER})

    def _call(self) -> dict[str, Any]:
        told = {name.upper(): f"${{{{ matrix.{name} }}}}" for name in self.job.tells}
        if self.job.spread:
            told["RUNNER"] = self.job.runner.name
        if self.job.channel:
            told["CHANNEL"] = "${{ inputs.channel }}"
            told["COSIGN_KEY"] = "${{ vars.COSIGN_KEY }}"
            told |= {name: f"${{{{ secrets.{name} }}}}" for name in _KEY_SECRETS}
        if "contents" in self.job.powers:
            told["HISTORY_TOKEN"] = "${{ github.token }}"  # noqa: S105 - an expression
        if self.job.name in {"required", "notify"}:
            told |= {
                "PLANNED": "${{ needs.plan.result }}",
                "ENDED": "${{ join(needs.*.result) }}",
                "PLAN_DIGEST": "${{ needs.plan.outputs.plan }}",
            }
        if "actions" in {*self.job.reads, *self.job.powers}:
            told["API_TOKEN"] = "${{ github.token }}"  # noqa: S105 - an expression
        if self.job.name == "plan" and _has_own_machines(self.flow):
            told["RUNNERS_TOKEN"] = f"${{{{ {_NO_REQUEST} && secrets.RUNNERS_TOKEN || '' }}}}"
        if self.job.alerts:
            told["WARPFRONT_WEBHOOK"] = "${{ secrets.WARPFRONT_WEBHOOK }}"
        step = {"name": self.job.name, "id": "call", "env": told, "run": self.job.script}
        return step if told else {key: value for key, value in step.items() if key != "env"}

    def _leave(self) -> dict[str, Any]:
        name = "${{ matrix.name }}" if self.job.spread else self.job.name
        given: dict[str, object] = {
            "name": name,
            "path": f"{HANDOVER}/{name}",
            "overwrite": True,
            "retention-days": 14,
        }
        return {"if": "${{ always() }}", **self._uses("leave", "upload-artifact", given)}
