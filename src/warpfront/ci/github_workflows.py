"""The flow as GitHub's workflows: one with the triggers, and one for each kind of job, which it
calls in shards for each vendor. Their form is a template of data/ci. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from warpfront.ci.flow import FOLDERS, HEADER, LABEL, Flow, Job, Limits, job_of, yaml_text
from warpfront.ci.template_files import document_of, rendered
from warpfront.errors import InputError
from warpfront.matrix.runners import Runner
from warpfront.system.packaged import packaged_text, packaged_toml

FOLDER = ".github/workflows"
MAIN = "warpfront"
LABELLED = f"{MAIN}-{LABEL}"
"""The workflow that the label starts. It alone hears of labels, so that no other label restarts or
cancels a run.
"""
MATCHERS = ".github/warpfront-problems.json"
"""How a forge reads problems off what is printed: `add-matcher` names it.
https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md: problems of files of the
project, and findings of `scan` and `preflight`. A warning of Python's is `path.py:12: ...`, too.
"""
Actions = Mapping[str, tuple[str, str]]

_HOSTED = "ubuntu-24.04"


def workflows(flow: Flow, actions: Actions, limits: Limits) -> dict[str, str]:
    """Return GitHub's files by path. Raises `InputError` for more workflows than it starts."""
    rows: dict[str, dict[Runner, None]] = {}
    kinds: dict[str, Job] = {}
    for job in flow.jobs:
        if job.spread:
            rows.setdefault(job.file, {}).update(dict.fromkeys(job.runners))
            kinds.setdefault(job.file, job)
    if len(kinds) > limits["called_workflows"]:
        raise InputError(
            f"{len(kinds)} called workflows, and GitHub starts none with more than "
            f"{limits['called_workflows']}",
            hint="fewer kinds of machines in `runners:`",
        )
    spread = [dataclasses.replace(job, runners=tuple(rows[file])) for file, job in kinds.items()]
    values = {**_values(flow), "actions": actions, "kinds": spread}
    documents = document_of("github.yml.j2", values)
    # For actionlint: GitHub's larger machines have custom names, too.
    every = sorted({label for runner in flow.runners for label in runner.labels})
    documents[".github/actionlint.yaml"] = {"self-hosted-runner": {"labels": every}}
    reasons = packaged_toml("ci", "permissions.toml")
    files = {path: _text(document, actions, reasons) for path, document in documents.items()}
    files[".github/zizmor.yml"] = HEADER + rendered("zizmor.yml.j2", values)
    return {**files, MATCHERS: packaged_text("ci", "warpfront-problems.json")}


def _values(flow: Flow) -> dict[str, Any]:
    """Return what the templates take from the flow."""
    jobs = [job for job in flow.jobs if job.is_own or any(runner.group for runner in job.runners)]
    reached = [*dict.fromkeys(f"{MAIN}-{job.file}.yml" for job in jobs if job.spread)]
    if any(not job.spread for job in jobs):
        reached += [f"{MAIN}.yml", f"{LABELLED}.yml"]
    # Those of a labelled pull request write nothing, at no night.
    labelled = [job for job in flow.jobs if not job.powers and job.kind != "bench"]
    names = {job.name for job in labelled}
    machine = dataclasses.replace(
        flow.runners[0], trust="hosted", labels=(_HOSTED,), group="", scale_set=""
    )
    return {
        **FOLDERS,
        "compat": job_of("compat", (machine,)),
        "flow": flow,
        "grouped": any(not job.is_own for job in jobs),
        "hosted": _HOSTED,
        "jobs": flow.jobs,
        "label": LABEL,
        "labelled_jobs": [
            dataclasses.replace(job, needs=tuple(need for need in job.needs if need in names))
            for job in labelled
        ],
        "own_machines": any(runner.trust == "self-hosted" for runner in flow.runners),
        "queue": job_of("queue", (machine,)),
        "reached": reached,
    }


def _text(document: object, actions: Actions, reasons: Mapping[str, Mapping[str, str]]) -> str:
    """Return YAML with comments: a version after each commit, a reason after each permission."""
    text = yaml_text(document)
    for uses, version in actions.values():
        text = text.replace(f"uses: {uses}\n", f"uses: {uses} # {version}\n")
    for access, by_power in reasons.items():
        for power, reason in by_power.items():
            text = text.replace(f" {power}: {access}\n", f" {power}: {access} # {reason}\n")
    return HEADER + text
