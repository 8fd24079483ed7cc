"""Device flags, end to end: fake CDI devices of an engine of our own arrive in the container in
which an image is verified. They compute nothing, so the verdict stays `unavailable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from projects import Project, unique_image, wait_until, write_project
from stand_in_torch import torch_files, triton_files
from standins import rocm64_stand_ins, serve_index, stand_in_wheel

from warpfront.images.engine import embedded
from warpfront.images.engine.protocol import connect
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


CASES = {"nvidia": NVIDIA, "amd": AMD}
Seen = dict[str, tuple[list[str], dict[str, str]]]


@pytest.fixture
def project(tmp_path: Path, alone: dict[str, str]) -> Iterator[Project]:
    """A cell of each vendor, each on an index of its stand-ins."""
    with ExitStack() as stack:
        indexes = {
            case.index: stack.enter_context(
                serve_index(case.make(tmp_path / vendor), name=case.index)
            ).url
            for vendor, case in CASES.items()
        }
        root = write_project(
            tmp_path / "project",
            rows=[{**case.row, "index": case.index} for case in CASES.values()],
            images={unique_image(): {"template": "torch", "title": "A test"}},
            indexes=indexes,
        )
        yield Project(root=root, environment=alone)


@pytest.mark.usefixtures("toolbox")
def test_the_vendors_devices_arrive_where_its_image_is_verified_and_no_others(
    project: Project, own_engine: embedded.EnginePlace
) -> None:
    project.environment["DOCKER_HOST"] = own_engine.host
    built = project.invoke("build", "--json").expect(0).json
    cells = {cell.partition("-")[0]: cell for cell in built}
    assert seen(project, cells, ("load", "numerics")) == dict.fromkeys(CASES, ([], {}))
    for case in CASES.values():
        specification = own_engine.cdi / f"{case.kind.replace('/', '-')}.json"
        specification.write_text(case.specification(), encoding="utf-8")
    engine = connect({**environment(), "DOCKER_HOST": own_engine.host})
    wanted = {f"{case.kind}=all" for case in CASES.values()}
    wait_until(lambda: wanted <= set(engine.host_devices().cdi))
    assert seen(project, cells, ("load", "numerics")) == {
        vendor: ([case.node], {case.variable: "7"}) for vendor, case in CASES.items()
    }
    findings = project.invoke("doctor", "--json").expect(0).json
    for vendor, case in CASES.items():
        (devices,) = [one for one in findings if one["subject"] == f"devices of {vendor}"]
        assert (devices["outcome"], devices["text"]) == ("passed", f"{case.kind}=all")


def seen(project: Project, cells: Mapping[str, str], sessions: tuple[str, ...]) -> Seen:
    """Of each vendor (device nodes, visibility variables) that the checks found inside the
    container, each of which says unavailable, and that the image loads.
    """
    project.verify(sessions).expect(11)
    found = {}
    for vendor, case in CASES.items():
        checks = project.checks(cells[vendor], case.target)
        loads = {outcome for (session, _), (outcome, _) in checks.items() if session == "load"}
        assert loads == {"passed"}
        computing = {key: outcome for key, (outcome, _) in checks.items() if key[0] != "load"}
        assert computing == dict.fromkeys(((one, "device") for one in sessions[1:]), "unavailable")
        said = project.result(cells[vendor], f"verify-{case.target}")["environment"]
        found[vendor] = (said["nodes"], said["visibility"])
    return found
