"""Files that are made from templates of data/ci: scripts of jobs and machines, configuration of the
robots that move pins, and machines of a cluster from the same table. Pure.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

from warpfront.ci.flow import FOLDERS, HEADER, Flow
from warpfront.matrix.runners import CACHE_VARIABLE, Runner
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import plain_values

DEPENDABOT = ".github/dependabot.yml"
RENOVATE = ".github/renovate.json"
_KUBERNETES = "ci/kubernetes"
_UNIT = "warpfront-runner@.service"
_PIP = ".venv/bin/python -m pip install --quiet"


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return a template's text: `<<` and `>>` enclose values, which `tojson` quotes."""
    return _compiled(template).render(values)


@functools.cache
def _compiled(template: str) -> jinja2.Template:
    environment = jinja2.Environment(  # noqa: S701 - YAML
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        variable_start_string="<<",
        variable_end_string=">>",
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment.from_string(template)


def document_of(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping that a template of YAML describes."""
    document: dict[str, Any] = plain_values(rendered(template, values))
    return document


def scripts(flow: Flow, templates: Mapping[str, str]) -> dict[str, str]:
    """Return the entry points of the jobs, by path."""
    installs = "\n".join(f"{_PIP} {words}" for words in flow.installs)
    calls = _calls(templates, "jobs", repository=flow.repository, installs=installs)
    return {f"ci/{name}.sh": text for name, text in calls.items()}


def machine_scripts(source: str, templates: Mapping[str, str]) -> dict[str, str]:
    """Return what sets up a machine of one's own, by path. `source` is the project's address."""
    api = source.replace("https://github.com/", "https://api.github.com/repos/")
    calls = _calls(templates, "machine", repository="", installs="")
    return {
        **{f"ci/runner/{name}.sh": text for name, text in calls.items()},
        f"ci/runner/{_UNIT}": rendered(templates[_UNIT], {"forge": api}),
    }


def _calls(templates: Mapping[str, str], table: str, **words: str) -> dict[str, str]:
    """Return the scripts of a table of scripts.toml.j2, by name."""
    words |= {**FOLDERS, "cache_variable": CACHE_VARIABLE}
    calls = tomllib.loads(rendered(templates["scripts.toml.j2"], words))[table]
    head = calls.pop("head")
    return {name: f"{head}{call}\n" for name, call in calls.items()}


def robot_files(templates: Mapping[str, str], *, requirements: str) -> dict[str, str]:
    """Return both, by path. They move the pins of actions, in the workflows, and of what jobs
    install, in `requirements`; Renovate also the digests of bases, which Dependabot does not read.
    """
    folder, pattern = requirements.rpartition("/")[0], requirements.replace(".", "[.]")
    return {
        DEPENDABOT: HEADER + rendered(templates["dependabot.yml"], {"folder": folder}),
        RENOVATE: rendered(templates["renovate.json"], {"pattern": pattern}),
    }


def kubernetes_files(
    runners: Iterable[Runner],
    images: Mapping[str, str],
    templates: Mapping[str, str],
    *,
    source: str,
) -> dict[str, str]:
    """Return values of the chart `gha-runner-scale-set` for each scale set, at most `count` pods of
    one job and one device each, and manifests of BuildKit; by path.
    https://github.com/actions/actions-runner-controller
    """
    files = {}
    for runner in (runner for runner in runners if runner.scale_set):
        resource = VENDORS[runner.vendor].kubernetes_resource if runner.vendor else ""
        selector = {f"warpfront.dev/{target}": "true" for target in runner.targets}
        values = {"row": runner, "images": images, "source": source, "resource": resource}
        text = rendered(templates["scale-set.values.yaml"], {**values, "selector": selector})
        files[f"{_KUBERNETES}/{runner.name}.values.yaml"] = HEADER + text
    if files:
        manifests = rendered(templates["buildkit.yaml"], {"images": images})
        files[f"{_KUBERNETES}/buildkit.yaml"] = HEADER + manifests
    return files
