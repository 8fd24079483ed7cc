"""The jobs of CI and what each needs, leaves and may do: one value, which every forge's renderer
says in its own words. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import yaml

from warpfront.ci.schedule import verified_vendors
from warpfront.matrix.runners import Runner
from warpfront.model import CiOptions

HANDOVER = "handover"
"""The folder in which a job finds what others left, and leaves what it made: one folder a job."""
HEADER = "# Made by `invoke ci --write` from `runners:` of matrix.yaml: change that, not this.\n"
SITE = "site"
HISTORY = "warpfront-history"
"""The branch whose file of runs only grows."""
LABEL = "gpu"
"""What a maintainer puts on a pull request so that it may reach machines of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kind of job. `runner` is where it runs; `script` is all that it does there, told by
    `tells` (names of `Work`'s facts, as variables). `spread` is the output of `plan` that it is
    spread over. `takes` is whose hand-overs it is given: a work's `after` and its own from before,
    or `all`. `environment` holds its secrets; `channel`: it publishes, and its environment is the
    channel's, after somebody's approval. `powers` are what its token may do beside reading, `reads`
    what it may read beside the repository. `workflow` is the file that it is called by, if that is
    not its own name. `alerts`: it runs at the end of each run that no pull request starts.
    `history` that it compares with earlier commits. What is spread runs where the plan has work for
    it; what is not, and needs others, runs however those ended, or, where it is `wanted`, at night
    where the variable of that name is `yes`.
    """

    name: str
    runner: Runner
    script: str
    minutes: int
    needs: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()
    spread: str = ""
    takes: Literal["", "work", "all"] = ""
    leaves: bool = True
    environment: str = ""
    channel: bool = False
    powers: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    workflow: str = ""
    alerts: bool = False
    history: bool = False
    wanted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """All jobs, each after those that it needs. `installs` are the words for pip that bring the
    program; `repository` is where images go.
    """

    jobs: tuple[Job, ...]
    installs: tuple[str, ...]
    repository: str
    runners: tuple[Runner, ...]
    publishes: PublishingRefs


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingRefs:
    """The refs that publish: a branch, and tags that begin so where there is a channel for them."""

    branch: str = "main"
    release_tags: str = "v"
    releases: bool = True


def make_flow(
    runners: Iterable[Runner],
    *,
    installs: tuple[str, ...],
    repository: str,
    publishes: PublishingRefs | None = None,
    options: CiOptions | None = None,
) -> Flow:
    """plan -> build -> verify -> publish, at night bench beside it, then report; `required`, the
    check that counts; and whoever is to learn of it.
    """
    options = options or CiOptions()
    runners = tuple(runners)
    builders = [one for one in runners if one.builds]
    home = min(builders, key=lambda one: one.trust != "hosted")
    builds = tuple(job for one in builders for job in (_building(one), _sending(one)))
    verifies = tuple(_verifying(one, builds) for one in runners if one.targets)
    benches = tuple(_benching(job) for job in verifies if job.runner.bench)
    made = ("plan", *(job.name for job in (*builds, *verifies)))
    judged = (*made, *(job.name for job in benches))
    publishing = tuple(
        _publishing(vendor, home, ("plan", *_names(builds), *_of_vendor(verifies, vendor)))
        for vendor in verified_vendors(runners)
    )
    ends = (*judged, *_names(publishing))
    report = Job(
        name="report",
        runner=home,
        script="ci/report.sh",
        minutes=20,
        needs=ends,
        takes="all",
    )
    required = dataclasses.replace(
        report, name="required", script="ci/required.sh", leaves=False, reads=("actions",)
    )
    plan = Job(name="plan", runner=home, script="ci/plan.sh", minutes=20, history=True)
    afterwards = (
        report,
        _publishing_the_page(report),
        _clearing_up(report, _names(publishing)),
        required,
        *((_alerting(required),) if options.notify else ()),
    )
    return Flow(
        jobs=(plan, *builds, *verifies, *benches, *publishing, *afterwards),
        installs=installs,
        repository=repository,
        runners=runners,
        publishes=publishes or PublishingRefs(),
    )


def _names(jobs: Iterable[Job]) -> tuple[str, ...]:
    return tuple(job.name for job in jobs)


def _of_vendor(verifies: Iterable[Job], vendor: str) -> tuple[str, ...]:
    return tuple(job.name for job in verifies if job.runner.vendor == vendor)


def _publishing(vendor: str, home: Runner, needs: tuple[str, ...]) -> Job:
    """Of each vendor by itself: a machine that is switched off holds up its own vendor's images and
    no other's. All are one workflow, which signatures name.
    """
    name = f"publish-{vendor}"
    return Job(
        name=name,
        runner=home,
        script="ci/publish.sh",
        minutes=180,
        needs=needs,
        tells=("name", "cells"),
        spread=name,
        takes="all",
        channel=True,
        powers=("packages", "id-token", "attestations"),
        reads=("actions",),
        workflow="publish",
    )


def _alerting(required: Job) -> Job:
    """Once `required` has judged a run that no pull request shows."""
    return dataclasses.replace(
        required,
        name="notify",
        script="ci/notify.sh",
        needs=(*required.needs, "required"),
        environment="alerts",
        powers=("issues",),
        alerts=True,
    )


def _publishing_the_page(report: Job) -> Job:
    """The report once more, with the runs before it, where people look at it."""
    return dataclasses.replace(
        report,
        name="pages",
        script="ci/pages.sh",
        needs=(*report.needs, "report"),
        leaves=False,
        environment="github-pages",
        powers=("contents", "pages", "id-token"),
        wanted="PAGES",
    )


def _clearing_up(report: Job, publishing: tuple[str, ...]) -> Job:
    """Old candidates and old nightlies: said first, then removed."""
    return dataclasses.replace(
        report,
        name="prune",
        script="ci/prune.sh",
        needs=("plan", *publishing),
        takes="",
        leaves=False,
        environment="nightly",
        powers=("packages",),
        wanted="PRUNE",
    )


def _building(runner: Runner) -> Job:
    name = f"build-{runner.name}"
    return Job(
        name=name,
        runner=runner,
        script="ci/build.sh",
        minutes=240,
        needs=("plan",),
        tells=("name", "cells"),
        spread=name,
    )


def _sending(runner: Runner) -> Job:
    """As a build, of what is to be published: its images go to the registry, by digest, and the
    very same are verified and published.
    """
    name = f"candidate-{runner.name}"
    return dataclasses.replace(
        _building(runner),
        name=name,
        spread=name,
        script="ci/candidate.sh",
        environment="candidates",
        powers=("packages",),
    )


def _verifying(runner: Runner, builds: Iterable[Job]) -> Job:
    name = f"verify-{runner.name}"
    return Job(
        name=name,
        runner=runner,
        script="ci/verify.sh",
        minutes=180,
        needs=("plan", *(job.name for job in builds)),
        tells=("name", "cells", "target"),
        spread=name,
        takes="work",
    )


def _benching(verifying: Job) -> Job:
    """Where it was verified, and with what that said of it."""
    name = f"bench-{verifying.runner.name}"
    return dataclasses.replace(
        verifying,
        name=name,
        spread=name,
        script="ci/bench.sh",
        needs=(*verifying.needs, verifying.name),
    )


# What YAML 1.2 takes for a number, and PyYAML, which is of 1.1, writes as if it were none.
_NUMBER = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")


class _Quoting(yaml.SafeDumper):
    """Writes texts so that readers of either version of YAML have them as texts."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Quoting.add_representer(str, _quoted)


def yaml_text(*documents: object) -> str:
    """For people and forges: in the order of its keys, no line broken."""
    return yaml.dump_all(
        documents,
        Dumper=_Quoting,
        sort_keys=False,
        width=10_000,
        allow_unicode=True,
    )


_HEAD = """\
#!/usr/bin/env bash
# Made by `invoke ci --write`; `invoke ci --check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"""
_MACHINE = """\
#!/usr/bin/env bash
# Made by `invoke ci --write`; docs/ci.md, A machine of one's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
"""
_PACKAGES = "ca-certificates git python3 python3-venv"
_UNIT = """\
# Made by `invoke ci --write`. One machine of the row %i, one registration a job. The project is in
# /opt/warpfront, the agent in /opt/agent; the token is a credential that only this service sees:
#   systemd-creds encrypt --name=token - /etc/credstore.encrypted/token
[Unit]
Description=warpfront takes CI jobs as %i
Wants=network-online.target
After=network-online.target

[Service]
Environment=FORGE={forge}
LoadCredentialEncrypted=token
ExecStart=/opt/warpfront/ci/runner/serve.sh %i ${{FORGE}} /opt/agent %d/token
Restart=always
RestartSec=30

[Install]
WantedBy=multi-user.target
"""
_CALL = 'exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke'
_PRUNED = "release --prune nightly"
_PRUNE = f"{_CALL.removeprefix('exec ')} {_PRUNED}"
_PAGE = f"{HANDOVER}/report/index.html"
_WORK = '--name "$NAME" --cells "$CELLS" --runner "$RUNNER"'


def scripts(flow: Flow) -> dict[str, str]:
    """The entry points of the jobs, by path: one call each."""
    calls = {
        "ci/plan.sh": f'{_CALL} ci --check ci --plan --scope "${{SCOPE:-}}" --since "${{SINCE:-}}"',
        "ci/build.sh": f"{_CALL} job --step build {_WORK}",
        "ci/candidate.sh": f"{_CALL} job --step build --to {flow.repository} {_WORK}",
        "ci/verify.sh": f'{_CALL} job --step verify --on "$TARGET" {_WORK}',
        "ci/bench.sh": f'{_CALL} job --step bench --on "$TARGET" {_WORK}',
        "ci/publish.sh": f'{_CALL} job --step publish --channel "$CHANNEL" {_WORK}',
        "ci/report.sh": f"{_CALL} merge --below {HANDOVER} report --html {_PAGE}",
        "ci/pages.sh": f"{_CALL} merge --below {HANDOVER} report --html {SITE}/index.html "
        f"--history-branch {HISTORY}",
        "ci/prune.sh": f"{_PRUNE} --dry-run\n{_CALL} {_PRUNED} --yes",
        "ci/required.sh": f"{_CALL} ci --judge",
        "ci/notify.sh": f"{_CALL} ci --notify",
        "ci/queue.sh": f"{_CALL} ci --queue",
        "ci/login.sh": 'docker login "$REGISTRY" --username "$REGISTRY_USER" --password-stdin '
        '<<<"$REGISTRY_TOKEN"',
        "ci/setup.sh": "python3 -m venv .venv\n.venv/bin/python -m pip install --quiet "
        + " ".join(flow.installs),
    }
    return {path: f"{_HEAD}{call}\n" for path, call in calls.items()}


def machine_scripts(source: str) -> dict[str, str]:
    """What a machine of one's own is set up by, by path. `source` is the project's address."""
    runner = f'{_CALL} runner --row "$1"'
    calls = {
        "setup": f"apt-get update --quiet=2\napt-get install --quiet=2 --yes "
        f"--no-install-recommends {_PACKAGES}\nci/setup.sh\n{runner} --prepare",
        "serve": f'{runner} --serve --forge "$2" --agent "$3" --token "${{4:--}}"',
        "tidy": f"{runner} --tidy",
    }
    api = source.replace("https://github.com/", "https://api.github.com/repos/")
    return {
        **{f"ci/runner/{name}.sh": f"{_MACHINE}{call}\n" for name, call in calls.items()},
        "ci/runner/warpfront-runner@.service": _UNIT.format(forge=api),
    }
