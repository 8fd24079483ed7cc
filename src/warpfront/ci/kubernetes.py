"""Machines of a cluster, from the same table: a scale set of GitHub's runners for each row that is
one, and pods of BuildKit for builders. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from warpfront.ci.flow import HEADER, yaml_text
from warpfront.matrix.runners import Runner
from warpfront.matrix.vendors import VENDORS

FOLDER = "ci/kubernetes"
SECRET = "warpfront-runners"  # noqa: S105 - the name of one
BUILDKIT = "buildkit"
PORT = 1234
RUNS_JOBS = {"warpfront.dev/runs": "jobs"}
_DOCKER_GROUP = "123"
"""Of GitHub's runner image."""
_ROOTLESS = 1000
"""The user of BuildKit's rootless image."""
_GIB = "Gi"
Images = Mapping[str, str]


def kubernetes_files(
    runners: Iterable[Runner], images: Images, *, source: str, pods: int
) -> dict[str, str]:
    """Values of the chart `gha-runner-scale-set` for each scale set, and manifests of so many
    `pods` of BuildKit; by path. https://github.com/actions/actions-runner-controller
    """
    sets = [one for one in runners if one.scale_set]
    files = {
        f"{FOLDER}/{one.name}.values.yaml": _text([scale_set(one, images, source=source)])
        for one in sets
    }
    if sets or pods:
        files[f"{FOLDER}/{BUILDKIT}.yaml"] = _text(buildkit(images, pods=max(pods, 1)))
    return files


def _text(documents: Iterable[object]) -> str:
    plain = json.loads(json.dumps(list(documents)))  # no anchors: each place says what it has
    return HEADER + yaml_text(*plain)


def scale_set(runner: Runner, images: Images, *, source: str) -> dict[str, Any]:
    """As many pods as there are jobs, `count` at most; each takes one job and goes."""
    return {
        "githubConfigUrl": source,
        "githubConfigSecret": SECRET,
        "runnerScaleSetName": runner.labels[0],
        "minRunners": 0,
        "maxRunners": runner.count,
        "template": {"metadata": {"labels": RUNS_JOBS}, "spec": _pod(runner, images)},
    }


def _pod(runner: Runner, images: Images) -> dict[str, Any]:
    """The runner, beside an engine of its own that has the device. What a job leaves in either of
    them goes with the pod.
    """
    resource = VENDORS[runner.vendor].kubernetes_resource if runner.vendor else ""
    shared = [
        {"name": "work", "mountPath": "/home/runner/_work"},
        {"name": "socket", "mountPath": "/var/run"},
    ]
    body: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "nodeSelector": {f"warpfront.dev/{target}": "true" for target in runner.targets},
        "initContainers": [_engine(runner, images, shared, resource)],
        "containers": [
            {
                "name": "runner",
                "image": images["runner"],
                "command": ["/home/runner/run.sh"],
                "env": [
                    {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"},
                    {"name": "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS", "value": "120"},
                ],
                "resources": {"requests": {"cpu": "2", "memory": f"8{_GIB}"}},
                "volumeMounts": shared,
            }
        ],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {"name": "socket", "emptyDir": {}},
            {"name": "images", "emptyDir": {"sizeLimit": f"100{_GIB}"}},
        ],
    }
    if resource:
        body["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    return body


def _engine(
    runner: Runner, images: Images, shared: list[dict[str, str]], resource: str
) -> dict[str, Any]:
    """A sidecar, up before the runner and gone after it; it has the device, for containers of jobs
    are its children.
    """
    limits = {resource: 1} if resource else {}
    return {
        "name": "engine",
        "image": runner.image or images["engine"],
        "restartPolicy": "Always",
        "args": [
            "dockerd",
            "--host=unix:///var/run/docker.sock",
            f"--group={_DOCKER_GROUP}",
            "--feature=containerd-snapshotter=true",
        ],
        "securityContext": {"privileged": True},
        "startupProbe": {
            "exec": {"command": ["docker", "info"]},
            "periodSeconds": 5,
            "failureThreshold": 24,
        },
        "resources": {"requests": {"cpu": "2", "memory": f"16{_GIB}"}, "limits": limits},
        "volumeMounts": [*shared, {"name": "images", "mountPath": "/var/lib/docker"}],
    }


def buildkit(images: Images, *, pods: int) -> list[dict[str, Any]]:
    """BuildKit for buildx's driver `remote`: without root, its cache on a disk of its own, to be
    talked to by who has a certificate.
    """
    labels = {"app.kubernetes.io/name": BUILDKIT, "app.kubernetes.io/part-of": "warpfront"}
    settings = "[worker.oci]\n  gc = true\n  reservedSpace = '20GB'\n  maxUsedSpace = '80GB'\n"
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": BUILDKIT, "labels": labels},
            "data": {"buildkitd.toml": settings},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": BUILDKIT, "labels": labels},
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "ports": [{"name": "grpc", "port": PORT, "targetPort": "grpc"}],
            },
        },
        _set_of_pods(labels, images["buildkit"], pods),
        _only_runners(labels),
    ]


def _set_of_pods(labels: Mapping[str, str], image: str, pods: int) -> dict[str, Any]:
    """`buildkit-0`, `buildkit-1`: names that last, so that a cell finds its layers again."""
    claim = {
        "metadata": {"name": "cache"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"100{_GIB}"}},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"fsGroup": _ROOTLESS},
        "containers": [_buildkitd(image)],
        "volumes": [
            {"name": "settings", "configMap": {"name": BUILDKIT}},
            {"name": "certificates", "secret": {"secretName": f"{BUILDKIT}-certificates"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": BUILDKIT, "labels": dict(labels)},
        "spec": {
            "serviceName": BUILDKIT,
            "replicas": pods,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
            "volumeClaimTemplates": [claim],
        },
    }


def _buildkitd(image: str) -> dict[str, Any]:
    folder = "/certificates"
    known = ["buildctl", "debug", "workers"]
    return {
        "name": "buildkitd",
        "image": image,
        "args": [
            "--config=/settings/buildkitd.toml",
            "--oci-worker-no-process-sandbox",
            "--addr=unix:///run/user/1000/buildkit/buildkitd.sock",
            f"--addr=tcp://0.0.0.0:{PORT}",
            f"--tlscacert={folder}/ca.pem",
            f"--tlscert={folder}/cert.pem",
            f"--tlskey={folder}/key.pem",
        ],
        "ports": [{"name": "grpc", "containerPort": PORT}],
        "readinessProbe": {"exec": {"command": known}, "periodSeconds": 30},
        "livenessProbe": {"exec": {"command": known}, "periodSeconds": 30},
        # What rootless BuildKit needs: docs/rootless.md of moby/buildkit.
        "securityContext": {
            "runAsUser": _ROOTLESS,
            "runAsGroup": _ROOTLESS,
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
        "resources": {"requests": {"cpu": "2", "memory": f"8{_GIB}"}},
        "volumeMounts": [
            {"name": "cache", "mountPath": "/home/user/.local/share/buildkit"},
            {"name": "settings", "mountPath": "/settings", "readOnly": True},
            {"name": "certificates", "mountPath": folder, "readOnly": True},
        ],
    }


def _only_runners(labels: Mapping[str, str]) -> dict[str, Any]:
    """Who builds runs whatever it is sent: only the runners of this namespace may send."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": BUILDKIT, "labels": dict(labels)},
        "spec": {
            "podSelector": {"matchLabels": dict(labels)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": {"matchLabels": RUNS_JOBS}}],
                    "ports": [{"port": PORT, "protocol": "TCP"}],
                }
            ],
        },
    }
