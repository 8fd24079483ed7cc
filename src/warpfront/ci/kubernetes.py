"""Machines of a cluster, from the same table: a scale set of GitHub's runners for each row that is
one, and pods of BuildKit for builders. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from warpfront.ci.flow import HEADER, filled
from warpfront.matrix.runners import Runner
from warpfront.matrix.vendors import VENDORS

FOLDER = "ci/kubernetes"
RUNS_JOBS = {"warpfront.dev/runs": "jobs"}
"""The label of pods that may send builds to BuildKit."""


def kubernetes_files(
    runners: Iterable[Runner],
    images: Mapping[str, str],
    templates: Mapping[str, str],
    *,
    source: str,
    pods: int,
) -> dict[str, str]:
    """Return values of the chart `gha-runner-scale-set` for each scale set, and manifests of so
    many `pods` of BuildKit; by path. https://github.com/actions/actions-runner-controller
    """
    sets = [runner for runner in runners if runner.scale_set]
    text = templates["scale-set.values.yaml"]
    files = {
        f"{FOLDER}/{runner_set.name}.values.yaml": HEADER
        + filled(text, **_values(runner_set, images, source))
        for runner_set in sets
    }
    if sets or pods:
        manifests = filled(
            templates["buildkit.yaml"], buildkit=images["buildkit"], pods=str(max(pods, 1))
        )
        files[f"{FOLDER}/buildkit.yaml"] = HEADER + manifests
    return files


def _values(runner: Runner, images: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the values of a runner set: one pod per job, `count` at most, each with one device
    of the vendor.
    """
    resource = VENDORS[runner.vendor].kubernetes_resource if runner.vendor else ""
    tolerated = {"key": resource, "operator": "Exists", "effect": "NoSchedule"}
    return {
        "source": json.dumps(source),
        "name": json.dumps(runner.labels[0]),
        "count": str(runner.count),
        "selector": json.dumps({f"warpfront.dev/{target}": "true" for target in runner.targets}),
        "engine": runner.image or images["engine"],
        "runner": images["runner"],
        "limits": json.dumps({resource: 1} if resource else {}),
        "tolerations": json.dumps([tolerated] if resource else []),
    }
