"""The jobs of CI and what each needs, leaves and may do: one value, which the renderer of each CI
service writes in its own form; and the limits of the services. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import yaml

from warpfront.matrix.runners import Runner
from warpfront.system.packaged import packaged_toml

if TYPE_CHECKING:
    from warpfront.matrix.language import Project
    from warpfront.matrix.reading import Matrix

HANDOVER = "handover"
"""The folder in which a job finds what others left, each in a folder of its own."""
LEFT = "left"
"""The folder in which a job leaves what it made, in a folder of its own name. The artifact is this
folder, so that what it holds is the same whether a forge adds a folder of its name or none.
"""
IMAGES = "images"
"""How the artifacts begin that hold images, and the folder that they are in."""
HEADER = "# Made by `warpfront ci write` from `runners:` of matrix.yaml: change that, not this.\n"
OWN_REGISTRIES = ("ghcr.io", "registry.gitlab.com")
"""Where a job's own token logs in."""
READ_TOKEN = "REGISTRY_READ_TOKEN"  # noqa: S105 - the name of one
"""Of the repository: what machines that verify log in with, to any other registry."""
LABEL = "gpu"
"""What a maintainer puts on a pull request so that it may reach machines of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A kind of job. `runners` are the rows that it may run on, all of one `trust`. `tells` are the
    facts of a work that it receives as variables. A job that is `spread` has works of one `vendor`,
    and the output of `plan` that lists them has its name.

    `takes` are the artifacts that it downloads: those of its work, or all. `environment` has its
    secrets; `channel`: it publishes, and its environment is the channel's. `powers` are its token's
    permissions besides reading, `reads` its permissions to read besides the repository. `pulls`: it
    reads the registry of candidates; `history`: it compares with earlier commits.

    `alerts`: it runs at the end of each run that no pull request starts. A job that is not spread
    runs after the others in any case. If it is `wanted`, it runs at night where the variable of
    that name is `yes`.
    """

    name: str
    runners: tuple[Runner, ...]
    minutes: int
    kind: str = ""
    vendor: str = ""
    needs: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()
    spread: bool = False
    takes: Literal["", "work", "all"] = ""
    leaves: bool = True
    environment: str = ""
    channel: bool = False
    powers: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    alerts: bool = False
    pulls: bool = False
    history: bool = False
    wanted: str = ""

    @property
    def script(self) -> str:
        """Return the path of its one call."""
        return f"ci/{self.kind or self.name}.sh"

    @property
    def runner(self) -> Runner:
        """Return the runner of a job that is not spread."""
        return self.runners[0]

    @property
    def is_own(self) -> bool:
        """Return whether it runs on self-hosted machines."""
        return self.runners[0].trust == "self-hosted"

    @property
    def file(self) -> str:
        """Return the name of the called workflow: one for each kind and trust, however many
        rows. A publishing job is one file on any machine, which keyless signatures name.
        """
        return f"{self.kind}-own" if self.is_own and not self.channel else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The jobs, each after those that it needs. `installs` are the calls of pip that install
    the program; tags of `project` start a run only where it `releases`.
    """

    jobs: tuple[Job, ...]
    installs: tuple[str, ...]
    project: Project
    runners: tuple[Runner, ...]
    releases: bool

    @property
    def registry(self) -> str:
        """Return the host of the images."""
        return self.project.repository.partition("/")[0]


def make_flow(matrix: Matrix, installs: tuple[str, ...], *, releases: bool) -> Flow:
    """Return the flow: plan -> build -> verify -> publish for each vendor, bench at night, then
    report; `required`, the check that counts, and the alert of a red run. Jobs of one vendor wait
    for no job of another.
    """
    runners = matrix.runners
    builders = (runner for runner in runners if runner.builds)
    home = min(builders, key=lambda runner: runner.trust != "hosted")
    machines: dict[str, set[str]] = {}
    for cell in matrix.cells:
        machines.setdefault(cell.vendor, set()).add(cell.machine)
    chains = [_of_vendor(vendor, machines[vendor], runners, home) for vendor in sorted(machines)]
    spread = tuple(job for chain in chains for job in chain)
    judged = ("plan", *(job.name for job in spread if job.kind != "publish"))
    published = tuple(job.name for job in spread if job.kind == "publish")
    report = job_of("report", (home,), needs=(*judged, *published))
    jobs = (
        job_of("plan", (home,)),
        *spread,
        report,
        job_of("pages", (home,), needs=(*report.needs, "report")),
        job_of("prune", (home,), needs=("plan", *published)),
        job_of("required", (home,), needs=report.needs),
    )
    alert = job_of("notify", (home,), needs=(*report.needs, "required"))
    return Flow(
        jobs=(*jobs, alert) if matrix.ci.notify else jobs,
        installs=installs,
        project=matrix.project,
        runners=runners,
        releases=releases,
    )


def job_of(kind: str, runners: tuple[Runner, ...], /, **facts: Any) -> Job:
    """Return a job of a kind of flow.toml."""
    return Job(**{"name": kind, "runners": runners, **_kinds()[kind], **facts})


@cache
def _kinds() -> Mapping[str, Mapping[str, Any]]:
    return {
        kind: {key: tuple(fact) if isinstance(fact, list) else fact for key, fact in row.items()}
        for kind, row in packaged_toml("ci", "flow.toml").items()
    }


def builder_of(machine: str, runners: Iterable[Runner], *, trusted: bool) -> Runner | None:
    """Return the row that builds for `machine`: a hosted one first, our own only if `trusted`."""
    fits = [runner for runner in runners if runner.builds and runner.machine == machine]
    usable = [fit for fit in fits if trusted or fit.trust == "hosted"]
    return min(usable, key=lambda runner: runner.trust != "hosted") if usable else None


def unable_to_pull(flow: Flow, can_read: str) -> str:
    """Return which rows cannot pull their images from a private registry, "" if all can.
    `can_read` is whether the token for reading is there: `true`, `false`, or "" where that is not
    known. A job logs in to GitHub's and GitLab's own registries by itself.
    """
    rows = dict.fromkeys(row.name for job in flow.jobs if job.pulls for row in job.runners)
    if flow.registry in OWN_REGISTRIES or not rows or can_read == "true":
        return ""
    needs = "which is not set" if can_read == "false" else "if it is private"
    unable = f"{', '.join(rows)} cannot pull from {flow.registry}"
    return f"{unable} without the secret {READ_TOKEN}, {needs}"


def _of_vendor(
    vendor: str, machines: Iterable[str], runners: tuple[Runner, ...], home: Runner
) -> tuple[Job, ...]:
    builder_rows = (builder_of(machine, runners, trusted=True) for machine in sorted(machines))
    builders = tuple(dict.fromkeys(builder for builder in builder_rows if builder))

    def spread(kind: str, rows: tuple[Runner, ...], needs: tuple[str, ...]) -> Job:
        suffix = "-own" if rows[0].trust == "self-hosted" and kind != "publish" else ""
        name = f"{kind}-{vendor}{suffix}"
        return job_of(kind, rows, name=name, kind=kind, vendor=vendor, needs=needs, spread=True)

    builds = [
        spread(kind, rows, ("plan",))
        for rows in _by_trust(builders)
        for kind in ("build", "candidate")
    ]
    targets = [runner for runner in runners if runner.targets and runner.vendor == vendor]
    needs = ("plan", *(job.name for job in builds))
    verifies = [spread("verify", rows, needs) for rows in _by_trust(targets)]
    benches = [  # on the machine of the verification, with its results
        spread("bench", rows, (*job.needs, job.name))
        for job in verifies
        if (rows := tuple(runner for runner in job.runners if runner.bench))
    ]
    publish = spread("publish", (home,), (*needs, *(job.name for job in verifies)))
    return (*builds, *verifies, *benches, *([publish] if builds else []))


def _by_trust(runners: Iterable[Runner]) -> list[tuple[Runner, ...]]:
    """Return hosted rows, then those of our own; neither if it would be empty."""
    runners = tuple(runners)
    parts = (tuple(r for r in runners if r.trust == trust) for trust in ("hosted", "self-hosted"))
    return [rows for rows in parts if rows]


# What YAML 1.2 takes for a number, and PyYAML, which is of 1.1, writes as if it were none.
_NUMBER = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")


class _Quoting(yaml.SafeDumper):
    """Writes texts so that readers of either version of YAML have them as texts."""


_Quoting.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="'" if _NUMBER.fullmatch(text) else None
    ),
)


def yaml_text(*documents: object) -> str:
    """Return YAML for people and CI services: in the order of its keys, no line broken."""
    return yaml.dump_all(
        documents, Dumper=_Quoting, sort_keys=False, width=10_000, allow_unicode=True
    )


FOLDERS = {"handover": HANDOVER, "images": IMAGES, "left": LEFT, "site": "site"}


Limits = Mapping[str, int]
"""The limits of GitHub and GitLab by name: data/limits.toml has their meanings and sources."""


def packaged_limits() -> Limits:
    """Return the limits that this version of warpfront knows."""
    services = packaged_toml("limits.toml").values()
    return {name: row["value"] for service in services for name, row in service.items()}
