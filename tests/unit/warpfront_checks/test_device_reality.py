"""The check `device` and what stands in for hardware: each sign by itself is `emulated`, what could
not be looked at is `undetermined`, and recorded hardware passes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warpfront.cli.sessions import claims_for_target
from warpfront_checks import claimed_device
from warpfront_checks.claimed_device import (
    Answering,
    computes,
    emulators,
    judge_reality,
    known_to_kernel,
    preloads,
)
from warpfront_checks.hardware import Hardware, read_hardware
from warpfront_checks.hardware.kernel_view import KernelView, read_kernel
from warpfront_checks.hardware.recording import Recorded
from warpfront_checks.results import CheckFinding
from warpfront_checks.torch_devices import Device, TorchFacts

RECORDINGS = Path(__file__).parents[2] / "detect"
SOURCE = Path(claimed_device.__file__).parents[1]
STAND_IN = Path(__file__).with_name("stand_in_interposer.c")
VENDORS = {"sm_90": "nvidia", "gfx942": "amd", "gfx90a": "amd", "gfx1100": "amd", "gaudi3": "gaudi"}
BUILDS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu"}


def torch_reports(target: str, count: int = 1, **visibility: str) -> TorchFacts:
    devices = tuple(
        Device(index=i, name="X", arch=target, memory_bytes=0, multiprocessors=1)
        for i in range(count)
    )
    build = BUILDS[VENDORS[target]]
    return TorchFacts(build=build, devices=devices, obstacle="", visibility=visibility, nodes=())


def judged(
    machine: str,
    target: str,
    *,
    facts: TorchFacts | None = None,
    kernel: dict[str, Any] | None = None,
    **answering: Any,
) -> CheckFinding | None:
    """Judge a recorded machine; `kernel` changes what its files show, to every process."""
    hardware: Hardware = read_hardware(Recorded(RECORDINGS / machine))
    vendor = VENDORS[target]
    view = replace(hardware.kernel[vendor], **(kernel or {}))
    hardware = replace(hardware, kernel={**hardware.kernel, vendor: view})
    found = Answering(**{"apart": view, **answering})
    claims = claims_for_target(target)
    return judge_reality(claims, facts or torch_reports(target), hardware, found)


@pytest.mark.parametrize(
    ("machine", "target", "count"),
    [
        ("h100", "sm_90", 1),
        ("nvidia-h200-x2", "sm_90", 2),
        ("mi300x-x8", "gfx942", 8),
        ("mi250x-x8", "gfx90a", 2),
        ("gfx1100", "gfx1100", 1),
        ("gaudi3-x8", "gaudi3", 2),
    ],
)
def test_a_recorded_machine_is_hardware(machine: str, target: str, count: int) -> None:
    assert judged(machine, target, facts=torch_reports(target, count)) is None


def test_a_cpu_is_judged_by_no_device() -> None:
    hardware = read_hardware(Recorded(RECORDINGS / "none"))
    facts = TorchFacts(build="cpu", devices=(), obstacle="", visibility={}, nodes=())
    assert judge_reality(claims_for_target("cpu"), facts, hardware, Answering()) is None


NOTHING = {"nodes": (), "drivers": (), "boards": ()}
PCI = {"unseen": (), "lists_pci": True}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"emulators": ("/opt/rj/lib/librocjitsu.so",)}, "emulator is in this process: /opt/rj"),
        ({"emulators": ("ROCJITSU_INVOCATION_DIR",)}, "this process: ROCJITSU_INVOCATION_DIR"),
        ({"foreign": ("hsa_init is answered by /x/libanswers.so (preloaded)",)}, "libanswers.so"),
        ({"invented": ("/dev/kfd",)}, "sees /dev/kfd, which the kernel does not know"),
        ({"kernel": NOTHING}, "the kernel has no device node of their driver"),
        ({"kernel": {**NOTHING, **PCI, "nodes": ("/dev/kfd",)}}, "neither their driver nor such a"),
        ({"apart": KernelView()}, "without preloaded libraries does not see /dev/kfd"),
        ({"kernel": {"boards": ("kfd 1 gfx1100",)}}, "gfx942, the kernel's topology gfx1100"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_each_sign_by_itself_is_an_emulated_device(changed: dict[str, Any], said: str) -> None:
    found = judged("mi300x-x8", "gfx942", **changed)
    assert found is not None
    assert found.outcome == "emulated"
    assert said in found.reason
    assert computes(found)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"unread": ("/proc/self/maps cannot be read",)}, "maps cannot be read"),
        ({"unread": ("a second process could not look",), "apart": None}, "could not look"),
        ({"calls": ("ioctl is answered by /lib/libeatmydata.so",)}, "libeatmydata.so"),
        ({"kernel": {"drivers": (), "boards": ()}}, "neither driver nor board can be seen"),
        ({"kernel": {**NOTHING, "shared": ("/dev/dxg",)}}, "/dev/dxg serves the device (WSL2)"),
        ({"kernel": {**NOTHING, "unseen": ("/dev", "/sys/bus")}}, "/dev cannot be listed"),
        ({"facts": torch_reports("sm_90", 3)}, "torch reports 3 devices, the kernel 1"),
    ],
)
def test_what_could_not_be_looked_at_is_not_determined_and_never_emulated(
    changed: dict[str, Any], said: str
) -> None:
    found = judged("h100", "sm_90", **changed)
    assert found is not None
    assert found.outcome == "undetermined"
    assert said in found.reason
    assert computes(found)


def test_an_arch_by_a_variable_is_not_the_claimed_device() -> None:
    facts = torch_reports("gfx942", HSA_OVERRIDE_GFX_VERSION="9.4.2")
    found = judged("gfx1100", "gfx942", facts=facts)
    assert found is not None
    assert found.outcome == "unavailable"
    assert "the device here is gfx1100; HSA_OVERRIDE_GFX_VERSION=9.4.2" in found.reason
    assert not computes(found)


def test_libraries_that_are_loaded_first_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "ld.so.preload"
    file.write_text("/usr/local/vgpu/libvgpu.so # of a scheduler\n")
    environment = {"LD_PRELOAD": "libjemalloc.so.2:/a/b.so /c.so", "LD_AUDIT": "/d.so"}
    assert list(preloads(environment, file)) == [
        "libjemalloc.so.2",
        "/a/b.so",
        "/c.so",
        "/d.so",
        "/usr/local/vgpu/libvgpu.so",
    ]
    assert list(preloads({}, tmp_path / "none")) == []


def test_emulators_are_known_by_their_libraries_names() -> None:
    named = [
        "/opt/rocm/lib/librocjitsu.so.0.2",
        "/x/librocjitsu_kmd.so",
        "/x/libzluda.so",
        "/usr/lib/libgpgpu-sim.so",
    ]
    others = [
        "/opt/mirage-app/lib/libfoo.so",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
        "/opt/rocm/lib/libamdhip64.so.7",
        "/venv/lib/python3.12/site-packages/torch/lib/libtorch_hip.so",
    ]
    assert list(emulators({}, [*others, *named])) == named


def test_emulators_are_known_by_the_variables_of_their_launchers() -> None:
    environment = {"MIRAGE_SESSION": "1", "ROCJITSU_INVOCATION_DIR": "/t", "ROCM_PATH": "/opt/rocm"}
    assert list(emulators(environment, [])) == ["MIRAGE_SESSION", "ROCJITSU_INVOCATION_DIR"]


def test_entry_points_belong_to_files_with_the_vendors_own_names() -> None:
    definers = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04": "cuInit",
        "/.singularity.d/libs/libnvidia-ml.so.1": "nvmlInit_v2",
        "/usr/local/vgpu/libvgpu.so": "cuInit",
    }
    preloaded = ["/usr/local/vgpu/libvgpu.so"]
    foreign, doubtful = claimed_device.entry_points("nvidia", definers, preloaded)
    assert foreign == ("cuInit is answered by /usr/local/vgpu/libvgpu.so (preloaded)",)
    assert doubtful == ()


def test_the_kernel_is_asked_past_every_library() -> None:
    assert known_to_kernel("/dev/null")
    assert not known_to_kernel("/dev/there-is-no-such-node")


# What a session does first, of a torch that reports one gfx942 or one sm_90.
PROGRAM = """
import json, sys
from pathlib import Path
from types import SimpleNamespace as N
from warpfront.cli.sessions import claims_for_target
from warpfront_checks.claimed_device import find_device
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.results import Recorder
target = sys.argv[1]
amd = target.startswith("gfx")
one = N(name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=0,
        total_memory=206141652992, multi_processor_count=304)
cuda = N(is_available=lambda: True, init=lambda: None, get_arch_list=list,
         device_count=lambda: 1, get_device_properties=lambda index: one)
torch = N(__version__="2.13.0", cuda=cuda, _C=N(),
          version=N(cuda=None if amd else "13.0", hip="7.2" if amd else None))
recorder = Recorder(session="numerics", target=target, folder=Path(sys.argv[2]))
print(find_device(claims_for_target(target), recorder, torch, read_hardware(Machine())))
"""


def built(folder: Path, name: str, define: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler for the stand-in interposer")
    library = folder / name
    argv = [compiler, "-shared", "-fPIC", f"-D{define}", "-o", str(library), str(STAND_IN), "-ldl"]
    subprocess.run(argv, check=True)
    return library


def checked(folder: Path, target: str, **environment: str) -> dict[str, Any]:
    path = os.pathsep.join([str(SOURCE), *filter(None, sys.path)])
    argv = [sys.executable, "-c", PROGRAM, target, str(folder)]
    given = {**os.environ, "PYTHONPATH": path, **environment}
    ended = subprocess.run(argv, env=given, check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "True", "an emulated device computes"
    document = json.loads((folder / "numerics.json").read_text())
    (check,) = document["checks"]
    assert document["environment"]["variables"].get("LD_PRELOAD", "") == environment.get(
        "LD_PRELOAD", ""
    )
    assert isinstance(check, dict)
    return check


def kernel_tree(root: Path) -> Path:
    """What the stand-in shows in the place of the kernel's files: a recorded MI300X."""
    shutil.copytree(RECORDINGS / "mi300x-x8/files", root)
    (root / "dev").mkdir()
    (root / "dev/kfd").symlink_to("/dev/null")
    return root


@pytest.mark.process
def test_a_stand_in_interposer_that_answers_for_the_kernel_is_named(tmp_path: Path) -> None:
    root, library = kernel_tree(tmp_path / "root"), built(tmp_path, "libone.so", "ANSWERS_FILES")
    check = checked(tmp_path, "gfx942", LD_PRELOAD=str(library), STAND_IN_ROOT=str(root))
    assert check["outcome"] == "emulated"
    signs = " ".join(check["details"]["signs"])
    assert "a process without preloaded libraries does not see /dev/kfd" in signs
    assert "sees /dev/kfd, /sys/module/amdgpu" in signs
    assert "which the kernel does not know" in signs
    # It shows what a recorded MI300X shows: nothing else gives it away.
    assert "no device node" not in signs
    assert any(str(library) in one for one in check["details"]["not determined"])


@pytest.mark.process
def test_a_stand_in_that_answers_for_the_driver_is_named(tmp_path: Path) -> None:
    library = built(tmp_path, "libanswers.so", "ANSWERS_THE_DRIVER")
    check = checked(tmp_path, "sm_90", LD_PRELOAD=str(library))
    assert check["outcome"] == "emulated"
    assert f"cuInit is answered by {library} (preloaded)" in check["details"]["signs"]


@pytest.mark.process
def test_a_device_that_no_kernel_has_is_emulated(tmp_path: Path) -> None:
    if read_kernel_here("amd").nodes:
        pytest.skip("this machine has AMD's driver")
    check = checked(tmp_path, "gfx942")
    assert check["outcome"] == "emulated"
    assert check["details"]["signs"] == [
        "torch reports 1 devices, and the kernel has no device node of their driver"
    ]


def read_kernel_here(vendor: str) -> KernelView:
    from warpfront_checks.hardware import Machine

    return read_kernel(Machine(), vendor)


def test_a_preloaded_file_with_the_driver_s_name_is_not_determined() -> None:
    definers = {"/opt/compat/libcuda.so.1": "cuInit", "/usr/lib/libnvidia-ml.so.1": "nvmlInit_v2"}
    foreign, doubtful = claimed_device.entry_points(
        "nvidia", definers, ["/opt/compat/libcuda.so.1"]
    )
    assert foreign == ()
    assert doubtful == ("cuInit is answered by /opt/compat/libcuda.so.1, which is preloaded",)
