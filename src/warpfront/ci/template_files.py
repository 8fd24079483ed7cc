"""Files that are made from templates of data/ci: scripts of jobs and machines, configuration of the
robots that move pins, and machines of a cluster from the same table; and the actions and images
that they name, pinned. Pure.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
from packaging.version import Version

from warpfront.ci.flow import FOLDERS, HEADER, Flow
from warpfront.matrix.runners import CACHE_VARIABLE, Runner
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import plain_values
from warpfront.system.packaged import packaged_text, packaged_toml

DEPENDABOT = ".github/dependabot.yml"
RENOVATE = ".github/renovate.json"
_KUBERNETES = "ci/kubernetes"
_UNIT = "warpfront-runner@.service"
_PIP = ".venv/bin/python -m pip install --quiet"


def rendered(name: str, values: Mapping[str, Any]) -> str:
    """Return a template's text: `<<` and `>>` enclose values, which `tojson` quotes."""
    return _template(name).render(values)


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(  # noqa: S701 - YAML
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        variable_start_string="<<",
        variable_end_string=">>",
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment.from_string(packaged_text("ci", name))


def document_of(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping that a template of YAML describes."""
    document: dict[str, Any] = plain_values(rendered(name, values))
    return document


def scripts(flow: Flow) -> dict[str, str]:
    """Return the entry points of the jobs, by path."""
    installs = "\n".join(f"{_PIP} {words}" for words in flow.installs)
    calls = _calls("jobs", repository=flow.project.repository, installs=installs)
    return {f"ci/{name}.sh": text for name, text in calls.items()}


def machine_scripts(source: str) -> dict[str, str]:
    """Return what sets up a machine of one's own, by path. `source` is the project's address."""
    api = source.replace("https://github.com/", "https://api.github.com/repos/")
    calls = _calls("machine", repository="", installs="")
    return {
        **{f"ci/runner/{name}.sh": text for name, text in calls.items()},
        f"ci/runner/{_UNIT}": rendered(_UNIT, {"forge": api}),
    }


def _calls(table: str, **words: str) -> dict[str, str]:
    """Return the scripts of a table of scripts.toml.j2, by name."""
    words |= {**FOLDERS, "cache_variable": CACHE_VARIABLE}
    calls = tomllib.loads(rendered("scripts.toml.j2", words))[table]
    head = calls.pop("head")
    return {name: f"{head}{call}\n" for name, call in calls.items()}


def robot_files(requirements: str) -> dict[str, str]:
    """Return both, by path. They move the pins of actions, in the workflows, and of what jobs
    install, in `requirements`; Renovate also the digests of bases, which Dependabot does not read.
    """
    folder, pattern = requirements.rpartition("/")[0], requirements.replace(".", "[.]")
    return {
        DEPENDABOT: HEADER + rendered("dependabot.yml", {"folder": folder}),
        RENOVATE: rendered("renovate.json", {"pattern": pattern}),
    }


def kubernetes_files(runners: Iterable[Runner], *, source: str) -> dict[str, str]:
    """Return values of the chart `gha-runner-scale-set` for each scale set, at most `count` pods of
    one job and one device each, and manifests of BuildKit; by path.
    https://github.com/actions/actions-runner-controller
    """
    files, images = {}, pinned_images()
    for runner in (runner for runner in runners if runner.scale_set):
        resource = VENDORS[runner.vendor].kubernetes_resource if runner.vendor else ""
        selector = {f"warpfront.dev/{target}": "true" for target in runner.targets}
        values = {"row": runner, "images": images, "source": source, "resource": resource}
        text = rendered("scale-set.values.yaml", {**values, "selector": selector})
        files[f"{_KUBERNETES}/{runner.name}.values.yaml"] = HEADER + text
    if files:
        manifests = rendered("buildkit.yaml", {"images": images})
        files[f"{_KUBERNETES}/buildkit.yaml"] = HEADER + manifests
    return files


def pinned_actions() -> Mapping[str, tuple[str, str]]:
    """Return `owner/action@commit` by name, each with the version of the commit."""
    rows = packaged_toml("actions.toml")
    return {name: (row["uses"], row["version"]) for name, row in rows.items()}


_PIN = re.compile(
    r"^[ \t]*(?:- )?uses: ([\w./-]+)@([0-9a-f]{40}) # v(\d+(?:\.\d+)*)\s*?$", re.MULTILINE
)


def kept_pins(
    packaged: Mapping[str, tuple[str, str]], texts: Iterable[str]
) -> Mapping[str, tuple[str, str]]:
    """Return the pins of `packaged`, each replaced by a newer one in a project's own workflows:
    a commit with a version comment, as Dependabot and Renovate write them.
    """
    pins = dict(packaged)
    names = {uses.partition("@")[0]: name for name, (uses, _) in packaged.items()}
    for text in texts:
        for action, commit, version in _PIN.findall(text):
            name = names.get(action)
            if name and Version(version) > Version(pins[name][1]):
                pins[name] = (f"{action}@{commit}", f"v{version}")
    return pins


def pinned_images() -> Mapping[str, str]:
    """Return the images of pods by their purpose, each pinned by digest."""
    return {name: row["image"] for name, row in packaged_toml("pods.toml").items()}
