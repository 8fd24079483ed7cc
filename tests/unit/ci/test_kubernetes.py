"""Machines of a cluster, held to Kubernetes' own schemas, strictly, in several of its versions."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from cluster import cluster

from warpfront.ci.template_files import kubernetes_files, pinned_images
from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.runners import Runner

ROOT = Path(__file__).resolve().parents[3]
OWN_IMAGE = f"registry.example.com/engine@sha256:{'a' * 64}"
SETS = f"""
runners:
  ubuntu: {{labels: ubuntu-24.04, trust: hosted, builds: true}}
  h100: {{scale_set: h100s, trust: self-hosted, vendor: nvidia, targets: [sm_90], count: 8,
         image: "{OWN_IMAGE}"}}
  mi300: {{scale_set: mi300s, trust: self-hosted, vendor: amd, targets: gfx942}}
  gaudi: {{scale_set: gaudis, trust: self-hosted, vendor: gaudi, targets: gaudi3}}
  pods: {{scale_set: pods, trust: self-hosted, builds: true, vendor: cpu, targets: x86_64}}
"""
RUNS_JOBS = {"warpfront.dev/runs": "jobs"}
# Sidecars that start before a container, and profiles of AppArmor as fields: since 1.30.
VERSIONS = ("1.30", "1.32", "1.34", "1.37")


def read_runners(text: str) -> tuple[Runner, ...]:
    own = (ROOT / "matrix.yaml").read_text(encoding="utf-8").partition("\nrunners:")[0]
    return read_matrix(f"{own}\n{text}", path="matrix.yaml", compat=packaged()).runners


FILES = kubernetes_files(
    read_runners(SETS),
    source="https://github.com/me/mine",
)
VALUES = {
    name: yaml.load(FILES[f"ci/kubernetes/{name}.values.yaml"], yaml.CSafeLoader)
    for name in ("h100", "mi300", "gaudi", "pods")
}
MANIFESTS = list(yaml.load_all(FILES["ci/kubernetes/buildkit.yaml"], yaml.CSafeLoader))


def as_template(values: Any) -> dict[str, Any]:
    """The pod of a scale set as an object of its own, which Kubernetes has a schema of."""
    metadata = {"name": values["runnerScaleSetName"]}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": metadata,
        "template": values["template"],
    }


OBJECTS = [*MANIFESTS, *(as_template(values) for values in VALUES.values())]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_what_the_schemas_say_and_has_nothing_else(version: str) -> None:
    for one in OBJECTS:
        assert kubernetes_validate.validate(one, version, strict=True) == version


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("spec", "replicas"), "two"),
        (("spec", "replica"), 2),
        (("spec", "template", "spec", "containers", 0, "resource"), {}),
        (("spec", "template", "spec", "containers", 0, "ports"), [{"port": 1}]),
    ],
)
def test_a_seeded_fault_is_found(way: tuple[Any, ...], value: object) -> None:
    (broken,) = (copy.deepcopy(one) for one in MANIFESTS if one["kind"] == "StatefulSet")
    at = broken
    for part in way[:-1]:
        at = at[part]
    at[way[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_a_row_asks_for_one_device_of_its_vendor_where_the_job_s_containers_are() -> None:
    asked = {}
    for name, values in VALUES.items():
        spec = values["template"]["spec"]
        (engine,) = spec["initContainers"]
        assert engine["restartPolicy"] == "Always"
        asked[name] = engine["resources"]["limits"]
        assert "limits" not in spec["containers"][0]["resources"]
        assert spec["automountServiceAccountToken"] is False
    assert asked == {
        "h100": {"nvidia.com/gpu": 1},
        "mi300": {"amd.com/gpu": 1},
        "gaudi": {"habana.ai/gaudi": 1},
        "pods": {},
    }
    h100 = VALUES["h100"]
    assert (h100["runnerScaleSetName"], h100["maxRunners"], h100["minRunners"]) == ("h100s", 8, 0)
    assert h100["template"]["spec"]["nodeSelector"] == {"warpfront.dev/sm_90": "true"}
    assert h100["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert h100["template"]["spec"]["initContainers"][0]["image"] == OWN_IMAGE


def test_every_image_is_a_tag_and_its_digest_and_no_secret_stands_here() -> None:
    for text in FILES.values():
        images = re.findall(r"image: (\S+)", text)
        assert images
        assert all(re.search(r"@sha256:[0-9a-f]{64}$", one) for one in images)
        assert "&id" not in text
    for image in pinned_images().values():
        assert re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image)
    assert {values["githubConfigSecret"] for values in VALUES.values()} == {"warpfront-runners"}


def test_only_pods_that_run_jobs_reach_buildkit_and_only_with_a_certificate() -> None:
    kinds = {one["kind"]: one for one in MANIFESTS}
    (rule,) = kinds["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": RUNS_JOBS}}]
    assert all(v["template"]["metadata"]["labels"] == RUNS_JOBS for v in VALUES.values())
    pod = kinds["StatefulSet"]["spec"]["template"]
    selector = kinds["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert selector == pod["metadata"]["labels"] == kinds["Service"]["spec"]["selector"]
    assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selector
    (container,) = pod["spec"]["containers"]
    assert {"--tlscacert", "--tlscert", "--tlskey"} <= {
        one.partition("=")[0] for one in container["args"]
    }
    assert container["securityContext"]["runAsUser"] != 0
    assert kinds["StatefulSet"]["spec"]["replicas"] == 1


def test_without_a_scale_set_and_pods_there_is_no_file() -> None:
    runners = read_runners("runners:\n  u: {labels: x, trust: hosted, builds: true}\n")
    assert kubernetes_files(runners, source="x") == {}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (f"{{labels: x, trust: hosted, builds: true, image: '{OWN_IMAGE}'}}", "has no pods"),
        (
            "{scale_set: x, trust: self-hosted, builds: true, image: 'docker:dind'}",
            "is not an image with its digest",
        ),
    ],
)
def test_an_image_without_pods_or_without_a_digest_is_refused(row: str, said: str) -> None:
    with pytest.raises(MatrixError, match=said):
        read_runners(f"runners:\n  u: {row}\n")


@pytest.mark.process
def test_kubectl_takes_every_object(tmp_path: Path) -> None:
    """Its own decoding, with nothing but a list of kinds from a server; nothing is sent."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    with cluster() as server:
        words = [kubectl, "create", "--dry-run=client", "--validate=false", "--output=name"]
        ran = subprocess.run(
            [*words, f"--server={server.address}", f"--filename={tmp_path / 'all.yaml'}"],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == len(OBJECTS)
    assert "statefulset.apps/buildkit" in ran.stdout
    assert not [one for one in server.asked if one.startswith("POST")], json.dumps(server.asked)
