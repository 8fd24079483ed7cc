"""What is read of devices through libraries that are not here: NVML and torch, as stand-ins; and
the script that starts nox inside an image.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from warpfront_checks import enter
from warpfront_checks.hardware import nvml
from warpfront_checks.hardware.intel_devices import intel_arch, read_intel
from warpfront_checks.hardware.machine_reader import Machine, ProgramOutput
from warpfront_checks.hardware.nvml import NvmlError, read_nvml
from warpfront_checks.hardware.values import Detected
from warpfront_checks.torch_devices import (
    build_of,
    read_arch_list,
    read_facts,
    telling_variables,
)


def library(*, code: int = 0) -> Any:
    """An NVML with two H200s; with a code, its devices cannot be asked for their memory."""
    ended: list[bool] = []

    def named(text: bytes) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            arguments[-2].value = text
            return 0

        return call

    def numbered(*values: int) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            for argument, value in zip(arguments[-len(values) :], values, strict=True):
                argument._obj.value = value
            return 0

        return call

    def memory(_: Any, found: Any) -> int:
        found._obj.total = 150_754_820_096
        return code

    memory.__name__ = "nvmlDeviceGetMemoryInfo"
    return SimpleNamespace(
        ended=ended,
        nvmlInit_v2=lambda: 0,
        nvmlShutdown=lambda: ended.append(True),
        nvmlSystemGetDriverVersion=named(b"580.159.04"),
        nvmlSystemGetCudaDriverVersion_v2=numbered(13020),
        nvmlDeviceGetCount_v2=numbered(2),
        nvmlDeviceGetHandleByIndex_v2=lambda *_: 0,
        nvmlDeviceGetName=named(b"NVIDIA H200"),
        nvmlDeviceGetCudaComputeCapability=numbered(9, 0),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetNumGpuCores=numbered(16896),
    )


def test_nvml_says_driver_cuda_and_devices_and_is_closed() -> None:
    asked = library()
    found = read_nvml(asked)
    assert (found["driver"], found["cuda"]) == ("580.159.04", "13.2")
    expected = {"arch": "sm_90", "cores": 16896, "memory_bytes": 150754820096}
    assert found["devices"] == [
        {"index": index, "name": "NVIDIA H200", **expected} for index in (0, 1)
    ]
    assert asked.ended == [True]


def test_a_call_that_nvml_refuses_is_named_and_nvml_is_closed() -> None:
    asked = library(code=15)
    with pytest.raises(NvmlError, match="nvmlDeviceGetMemoryInfo returned 15"):
        read_nvml(asked)
    assert asked.ended == [True]


def test_the_child_prints_json_or_fails_with_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library())
    assert nvml.main([]) == 0
    assert json.loads(capsys.readouterr().out)["cuda"] == "13.2"

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert nvml.main([]) == 1
    assert capsys.readouterr().err.startswith("libnvidia-ml.so.1: cannot open")


def a_torch(properties: Any = None, **version: str) -> Any:
    """A torch of one build that sees one device, or none."""
    cuda = SimpleNamespace(
        is_available=lambda: properties is not None,
        device_count=lambda: 1,
        get_device_properties=lambda _: properties,
        get_arch_list=list,
        init=lambda: None,
    )
    return SimpleNamespace(
        __version__="2.14.1",
        version=SimpleNamespace(**{"cuda": None, "hip": None, **version}),
        cuda=cuda,
        accelerator=SimpleNamespace(current_accelerator=lambda **_: "cuda"),
        _C=SimpleNamespace(),
    )


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ({"hip": "7.2", "cuda": "13.0"}, "rocm"),
        ({"cuda": "13.0"}, "cuda"),
        ({"xpu": "2025"}, "xpu"),
        ({}, "cpu"),
    ],
)
def test_hip_is_asked_before_cuda_as_rocm_answers_to_both(
    version: dict[str, str], build: str
) -> None:
    assert build_of(a_torch(**version)) == build


@pytest.mark.parametrize(
    ("properties", "version", "expected"),
    [
        (
            {"name": "NVIDIA H100", "major": 9, "minor": 0, "multi_processor_count": 132},
            {"cuda": "13.0"},
            ("sm_90", 132, 32, 16896),
        ),
        (
            {
                "name": "",
                "major": 9,
                "minor": 4,
                "multi_processor_count": 304,
                "gcnArchName": "gfx942:sramecc+:xnack-",
                "warp_size": 64,
            },
            {"hip": "7.2"},
            ("gfx942", 304, 64, 19456),
        ),
    ],
    ids=["NVIDIA", "AMD without a name"],
)
def test_a_device_is_what_torch_says_of_it(
    properties: dict[str, Any], version: dict[str, str], expected: tuple[object, ...]
) -> None:
    facts = read_facts(a_torch(SimpleNamespace(total_memory=1 << 36, **properties), **version))
    (device,) = facts.devices
    assert (device.arch, device.multiprocessors, device.wave, device.cores) == expected
    assert device.memory_bytes == 1 << 36
    assert facts.accelerator == "cuda"


def gaudi(monkeypatch: pytest.MonkeyPatch, *, loads: bool) -> Any:
    """torch beside a habana_frameworks that loads, or breaks."""
    right = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: n if n == "habana_frameworks" else right(n)
    )
    if loads:
        for name in (
            "habana_frameworks",
            "habana_frameworks.torch",
            "habana_frameworks.torch.core",
        ):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    torch = a_torch()
    torch.hpu = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_name=lambda _: "GAUDI3",
        get_device_properties=lambda _: "(sramSize=50331648, dramSize=137438953472, fd=20)",
    )
    return torch


def test_a_gaudi_is_seen_through_its_own_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read_facts(gaudi(monkeypatch, loads=True))
    assert facts.build == "hpu"
    assert [(one.index, one.name, one.arch, one.memory_bytes) for one in facts.devices] == [
        (0, "GAUDI3", "gaudi3", 128 << 30),
        (1, "GAUDI3", "gaudi3", 128 << 30),
    ]


def test_what_decides_about_numbers_is_told_with_its_slashes_and_without_secrets() -> None:
    environ = {
        "PT_HPU_LAZY_MODE": "0",
        "HL_LOGS_TYPE": "a",
        "AITER_JIT_DIR": "/var/cache/aiter",
        "NVTE_FUSED_ATTN": "1",
        "TRITON_CACHE_DIR": "https://somebody:secret@example.org/x",
        "OMP_NUM_THREADS": "2",
        "TORCH_TOKEN": "secret",
        "HOME": "/home/somebody",
    }
    found = telling_variables(environ)
    assert found["AITER_JIT_DIR"] == "/var/cache/aiter"
    assert found["TRITON_CACHE_DIR"] == "https://***@example.org/x"
    assert found["TORCH_TOKEN"] == "***"
    assert set(environ) - set(found) == {"HOME"}
    assert "secret" not in json.dumps(found)


def test_frameworks_that_do_not_load_are_the_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read_facts(gaudi(monkeypatch, loads=False))
    assert facts.devices == ()
    assert facts.obstacle.startswith("ModuleNotFoundError: No module named 'habana_frameworks'")


def test_nox_gets_sessions_claims_and_options_and_its_folder_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[str]] = {}
    nox = ModuleType("nox.__main__")
    nox.main = lambda: seen.update(argv=sys.argv[1:], path=list(sys.path))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nox.__main__", nox)
    monkeypatch.setitem(sys.modules, "nox", ModuleType("nox"))
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [str(Path(enter.__file__).parent), *sys.path])
    enter.main(["load", "golden", "--", "--quick"], root=tmp_path, results=tmp_path / "out")
    divided = seen["argv"].index("--")
    assert seen["argv"][seen["argv"].index("--sessions") + 1 : divided] == ["load", "golden"]
    assert seen["argv"][-1] == "--quick"
    assert str(tmp_path / "claims.json") in seen["argv"][divided:]
    assert seen["argv"][seen["argv"].index("--together") + 1] == "load,golden"
    ours = tmp_path / "src" / "warpfront" / "cli" / "sessions.py"
    assert seen["argv"][seen["argv"].index("--noxfile") + 1] == str(ours)
    assert seen["path"][-2:] == [str(tmp_path / "src"), str(tmp_path / "toolbox")]
    assert str(Path(enter.__file__).parent) not in seen["path"]
    with pytest.raises(SystemExit, match=r"usage: enter\.py SESSION"):
        enter.main(["--", "--quick"], root=tmp_path, results=tmp_path)


def test_an_xpu_is_known_by_the_number_of_its_core() -> None:
    properties = SimpleNamespace(
        name="Intel(R) Arc(TM) B580 Graphics",
        architecture=0x500400400,
        total_memory=12 * 2**30,
        max_compute_units=160,
        sub_group_sizes=[16, 32],
    )
    torch = a_torch(xpu="20250301")
    torch.xpu = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda _: properties,
        get_arch_list=lambda: ["pvc", "bmg"],
    )
    (device,) = read_facts(torch).devices
    assert (device.arch, device.multiprocessors, device.wave) == ("bmg", 160, 32)
    assert read_arch_list(torch) == ("pvc", "bmg")
    torch.xpu.is_available = lambda: False
    assert read_facts(torch).obstacle == "torch.xpu.is_available() is False"
    assert [intel_arch(number) for number in (0x30F000700, 0x30DC00800, 0x501000400, 7)] == [
        "pvc",
        "dg2",
        "lnl-m",
        "",
    ]


class Cards(Machine):
    """A machine of which only its graphics cards are known: (vendor, device) by card."""

    def __init__(self, **cards: tuple[str, str]) -> None:
        self._files = {
            f"/sys/class/drm/{card}/device/{name}": f"{number}\n"
            for card, numbers in cards.items()
            for name, number in zip(("vendor", "device"), numbers, strict=True)
        }
        self.opens = True

    environment: Mapping[str, str] = MappingProxyType({})

    def text(self, path: str) -> str | None:
        return self._files.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        if path == "/sys/class/drm":
            return ("card0", "card0-DP-1", "card1", "card10", "renderD128", "version")
        if path.endswith("/device/drm"):
            return ("card0", "renderD128")
        return ("drivers",) if path == "/sys/module/xe" else ()

    def access(self, path: str) -> bool | None:
        return self.opens if path == "/dev/dri/renderD128" else None

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        raise AssertionError(argv)


def test_intels_cards_are_found_and_a_processors_own_gpu_is_not() -> None:
    machine = Cards(card0=("0x8086", "0xe20b"), card1=("0x8086", "0x7d55"))
    found = read_intel(machine)
    assert [(one.arch, one.index, one.usable) for one in found.accelerators] == [("bmg", 0, True)]
    assert (dict(found.drivers), found.problems) == ({"xe": "the kernel's own"}, ())
    machine.opens = False
    assert "may not be opened" in read_intel(machine).problems[0]
    assert read_intel(Cards(card0=("0x10de", "0x2330"))) == Detected()
