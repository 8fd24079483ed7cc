"""Device flags, end to end: fake CDI devices of an engine of our own arrive in the container in
which an image is verified. They compute nothing, so the verdict stays `unavailable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from projects import Project, unique_image, wait_until, write_project
from stand_in_torch import torch_files, triton_files
from standins import rocm64_stand_ins, serve_index, stand_in_wheel

from warpfront.images.engine import connect, embedded
from warpfront.inside.checks.effort import SESSIONS
from warpfront.system.process import environment

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def cuda_stand_ins(folder: Path) -> Path:
    """torch 2.14.1+cu130 and its triton."""
    torch = torch_files("2.14.1+cu130", cuda="13.0", archs=["sm_80", "sm_90"])
    requires = ["triton==3.8.0"]
    stand_in_wheel(folder, "torch", "2.14.1+cu130", requires=requires, files=torch)
    stand_in_wheel(folder, "triton", "3.8.0", files=triton_files("3.8.0"))
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A vendor's device: its kind for CDI, its node and the variable that comes with it."""

    kind: str
    node: str
    variable: str
    index: str
    row: dict[str, object]
    make: Callable[[Path], Path]

    @property
    def target(self) -> str:
        return str(self.row["targets"])

    def specification(self) -> str:
        """CDI 0.6.0 (github.com/cncf-tags/container-device-interface), made of /dev/null."""
        edits = {
            "env": [f"{self.variable}=7"],
            "deviceNodes": [{"path": self.node, "hostPath": "/dev/null"}],
        }
        devices = [{"name": name, "containerEdits": edits} for name in ("0", "all")]
        return json.dumps({"cdiVersion": "0.6.0", "kind": self.kind, "devices": devices})


NVIDIA = Case(
    kind="nvidia.com/gpu",
    node="/dev/nvidiactl",
    variable="CUDA_VISIBLE_DEVICES",
    index="cu130",
    row={"vendor": "nvidia", "toolkit": "13.0", "targets": "sm_90", "torch": "2.14.1"},
    make=cuda_stand_ins,
)
AMD = Case(
    kind="amd.com/gpu",
    node="/dev/kfd",
    variable="ROCR_VISIBLE_DEVICES",
    index="rocm6.4",
    row={"vendor": "amd", "toolkit": "6.4", "targets": "gfx942", "torch": "2.8.0"},
    make=rocm64_stand_ins,
)


@pytest.fixture(params=[NVIDIA, AMD], ids=["nvidia", "amd"])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def project(case: Case, tmp_path: Path, alone: dict[str, str]) -> Iterator[Project]:
    """One cell of the case's vendor, on an index of its stand-ins."""
    with serve_index(case.make(tmp_path / "wheels"), name=case.index) as served:
        root = write_project(
            tmp_path / "project",
            rows=[{**case.row, "index": case.index}],
            images={unique_image(): {"template": "torch", "title": "A test"}},
            indexes={case.index: served.url},
        )
        yield Project(root=root, environment={**alone, "PIP_INDEX_URL": served.url})


@pytest.mark.usefixtures("toolbox")
def test_the_vendors_devices_arrive_where_its_image_is_verified(
    case: Case, project: Project, own_engine: embedded.EnginePlace
) -> None:
    project.environment["DOCKER_HOST"] = own_engine.host
    (cell,) = project.invoke("build", "--json").expect(0).json
    assert seen(project, cell, case) == ([], {})
    specification = own_engine.cdi / f"{case.kind.replace('/', '-')}.json"
    specification.write_text(case.specification(), encoding="utf-8")
    engine = connect({**environment(), "DOCKER_HOST": own_engine.host})
    wait_until(lambda: f"{case.kind}=all" in engine.host_devices().cdi)
    assert seen(project, cell, case) == ([case.node], {case.variable: "7"})
    findings = project.invoke("doctor", "--json").expect(0).json
    (devices,) = [one for one in findings if one["subject"] == f"devices of {case.row['vendor']}"]
    assert (devices["outcome"], devices["text"]) == ("passed", f"{case.kind}=all")


def seen(project: Project, cell: str, case: Case) -> tuple[list[str], dict[str, str]]:
    """(device nodes, visibility variables) that the checks found inside the container, each of
    which says unavailable, and that the image loads.
    """
    project.invoke("verify").expect(11)
    checks = project.checks(cell, case.target)
    assert {outcome for (session, _), (outcome, _) in checks.items() if session == "load"} == {
        "passed"
    }
    computing = {key: outcome for key, (outcome, _) in checks.items() if key[0] != "load"}
    assert computing == dict.fromkeys(((one, "device") for one in SESSIONS[1:]), "unavailable")
    found = project.result(cell, f"verify-{case.target}")["environment"]
    nodes, visibility = found["nodes"], found["visibility"]
    return nodes, visibility
