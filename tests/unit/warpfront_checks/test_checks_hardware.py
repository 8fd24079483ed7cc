"""Detection without torch, on recorded machines: what each is, and what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_cell

from warpfront.cli.sessions import claims_for_target
from warpfront.commands.machine import examine_drivers, examine_hardware
from warpfront.matrix.cell import Toolkit
from warpfront.matrix.compat import packaged
from warpfront.verify.results import Outcome
from warpfront_checks.claimed_device import judge_presence
from warpfront_checks.detection import detect, disagreements
from warpfront_checks.hardware import Hardware, Machine, read_hardware
from warpfront_checks.hardware.device_errors import mishaps, read_health
from warpfront_checks.hardware.intel_devices import gaudi_arch
from warpfront_checks.hardware.kernel_view import decode_gfx, read_properties
from warpfront_checks.hardware.machine_reader import ProgramOutput
from warpfront_checks.hardware.recording import Recorded, Recording, RecordingError
from warpfront_checks.hardware.values import resolve_visibility
from warpfront_checks.torch_devices import Device, TorchFacts

RECORDINGS = Path(__file__).parents[2] / "detect"
ALL = sorted(folder.name for folder in RECORDINGS.iterdir())


def recorded(name: str) -> Hardware:
    return read_hardware(Recorded(RECORDINGS / name))


@pytest.mark.parametrize("name", ALL)
def test_a_recording_says_where_it_is_from_and_whether_it_is_a_stand_in(name: str) -> None:
    machine = Recorded(RECORDINGS / name)
    assert len(machine.source) > 20
    assert machine.stand_in == machine.source.startswith("Stand-in")


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("mi300x-x8", 8, ("amd", "gfx942", "AMD Instinct MI300X", 304, 19456, 64, 206141652992)),
        ("mi250x-x8", 8, ("amd", "gfx90a", "AMD Instinct MI250X", 110, 7040, 64, 68702699520)),
        ("gfx1100", 1, ("amd", "gfx1100", "Radeon RX 7900 XTX", 96, 6144, 32, 25753026560)),
        ("nvidia-h200-x2", 2, ("nvidia", "sm_90", "NVIDIA H200", 132, 16896, 32, 150754820096)),
        ("h100", 1, ("nvidia", "sm_90", "NVIDIA H100 80GB HBM3", 132, 16896, 32, 85520809984)),
        ("gaudi3-x8", 8, ("gaudi", "gaudi3", "HL-325L", 64, None, None, 131072 * 2**20)),
    ],
)
def test_each_device_of_a_machine_is_known_in_full(
    name: str, count: int, expected: tuple[object, ...]
) -> None:
    hardware = recorded(name)
    found = {
        (one.vendor, one.arch, one.name, one.units, one.cores, one.wave, one.memory_bytes)
        for one in hardware.accelerators
    }
    assert found == {expected}
    assert [one.index for one in hardware.accelerators] == list(range(count))
    assert all(one.usable for one in hardware.accelerators)
    assert hardware.problems == ()
    assert hardware.drivers


@pytest.mark.parametrize(
    ("name", "toolkits"),
    [
        ("mi300x-x8", {"rocm": "7.2.0"}),
        ("h100", {"cuda": "13.0", "cuda driver": "13.0"}),
        ("both-vendors", {"cuda": "12.9.1", "cuda driver": "12.9", "rocm": "7.2.0"}),
    ],
)
def test_toolkits_are_those_installed_and_those_a_driver_serves(
    name: str, toolkits: dict[str, str]
) -> None:
    assert recorded(name).toolkits == toolkits


def test_no_accelerator_is_an_answer_with_every_source_that_was_asked() -> None:
    hardware = recorded("none")
    assert hardware.accelerators == ()
    assert hardware.problems == ()
    assert hardware.processor.name == "AMD EPYC 9534 64-Core Processor"
    assert hardware.processor.features == ("avx2", "avx512f", "avx512_bf16")
    assert (hardware.processor.machine, hardware.processor.threads) == ("x86_64", 4)
    asked = {one.source.split()[0]: one.said for one in hardware.evidence}
    assert {
        asked[tool] for tool in ("nvidia-smi", "amd-smi", "rocm-smi", "rocminfo", "hl-smi")
    } == {"not found"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("amd-no-permission", "/dev/kfd may not be opened by this user"),
        (
            "amd-container-without-devices",
            "there is no /dev/kfd here: the container was given none",
        ),
        ("amd-tools-disagree", "KFD shows 2 GPUs, amd-smi 1"),
        ("amd-variables-contradict", "HIP_VISIBLE_DEVICES=1 and CUDA_VISIBLE_DEVICES=0 differ"),
        ("amd-variables-contradict", "GPU_DEVICE_ORDINAL=0 differ"),
        ("amd-variables-contradict", "HSA_OVERRIDE_GFX_VERSION=11.0.0"),
        ("nvidia-smi-fails", "Failed to initialize NVML: Driver/library version mismatch"),
        ("nvidia-smi-hangs", "does not answer: no answer in 20 s"),
        ("gaudi3-no-tool", "8 Gaudi device nodes, but hl-smi does not list any"),
        ("both-vendors", "devices of more than one vendor: nvidia, amd"),
        ("both-vendors", "CUDA_VISIBLE_DEVICES='-1' hides all 1 devices"),
    ],
)
def test_what_is_wrong_with_a_machine_is_said(name: str, problem: str) -> None:
    assert any(problem in one for one in recorded(name).problems), recorded(name).problems


def test_devices_that_may_not_be_opened_are_there_and_not_usable() -> None:
    for name in ("amd-no-permission", "amd-container-without-devices"):
        hardware = recorded(name)
        assert hardware.accelerators
        assert not any(one.usable for one in hardware.accelerators)


def test_a_name_is_no_evidence_and_may_be_missing() -> None:
    devices = recorded("amd-empty-name").accelerators
    assert {(one.name, one.arch, one.wave) for one in devices} == {("", "gfx942", 64)}


def test_an_unknown_arch_is_named_and_its_cores_are_not_guessed() -> None:
    (device,) = recorded("amd-unknown-gfx").accelerators
    assert (device.arch, device.wave, device.units, device.cores) == ("gfx1300", 32, 128, None)


def test_a_driver_whose_tool_fails_still_shows_its_gpus() -> None:
    (device,) = recorded("nvidia-smi-fails").accelerators
    assert (device.name, device.arch) == ("NVIDIA H100 80GB HBM3", "")
    assert recorded("nvidia-smi-fails").drivers == {"nvidia": "575.57.08"}


def test_another_vendors_accelerator_node_is_not_a_gaudi() -> None:
    assert len(recorded("gaudi3-no-tool").accelerators) == 8


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (130000, "gfx1300"),
        (90012, "gfx90c"),
    ],
)
def test_the_kernels_number_is_decoded(version: int, name: str) -> None:
    assert decode_gfx(version) == name


def test_hostile_properties_are_read_without_an_exception() -> None:
    text = "simd_count 12 13\nsimd_count x\n\n gfx_target_version \nsimd_per_cu -4\nok 1"
    assert read_properties(text) == {"ok": 1}


@pytest.mark.parametrize(
    ("name", "arch"),
    [("HL-325L", "gaudi3"), ("HL-225H", "gaudi2"), ("HL-205", "gaudi"), ("GAUDI3", "gaudi3")],
)
def test_gaudi_boards_are_known_by_their_number(name: str, arch: str) -> None:
    assert gaudi_arch(name) == arch
    assert gaudi_arch("HL-999") == ""


@pytest.mark.parametrize(
    ("vendor", "environment", "winner", "visible"),
    [
        ("nvidia", {}, "", (0, 1, 2, 3)),
        ("nvidia", {"NVIDIA_VISIBLE_DEVICES": "none"}, "", (0, 1, 2, 3)),
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "2,0"}, "CUDA_VISIBLE_DEVICES", (2, 0)),
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "1,9,0"}, "CUDA_VISIBLE_DEVICES", (1,)),
        ("nvidia", {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES", ()),
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "GPU-1f"}, "CUDA_VISIBLE_DEVICES", None),
        ("amd", {"CUDA_VISIBLE_DEVICES": "3"}, "CUDA_VISIBLE_DEVICES", (3,)),
        (
            "amd",
            {"CUDA_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "3"},
            "HIP_VISIBLE_DEVICES",
            (3,),
        ),
        (
            "amd",
            {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"},
            "ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES",
            (3,),
        ),
        (
            "amd",
            {"ROCR_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "3"},
            "ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES",
            (),
        ),
        ("gaudi", {"HABANA_VISIBLE_MODULES": "0,3"}, "HABANA_VISIBLE_MODULES", (0, 3)),
        ("intel", {"ZE_AFFINITY_MASK": "1"}, "ZE_AFFINITY_MASK", (1,)),
        ("intel", {"ZE_AFFINITY_MASK": "0.1"}, "ZE_AFFINITY_MASK", None),
    ],
)
def test_the_variable_that_wins_is_named(
    vendor: str, environment: dict[str, str], winner: str, visible: tuple[int, ...] | None
) -> None:
    found = resolve_visibility(vendor, environment, 4)
    assert (found.winner, found.visible) == (winner, visible)
    assert found.variables == environment


def test_more_hip_entries_than_rocr_leaves_are_refused_by_torch() -> None:
    environment = {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0,1"}
    problems = resolve_visibility("amd", environment, 8).problems
    assert "names more devices than ROCR_VISIBLE_DEVICES=0 leaves" in problems[0]


def torch_facts(build: str, *archs: str, obstacle: str = "", memory: int = 0) -> TorchFacts:
    devices = tuple(
        Device(index=i, name="X", arch=arch, memory_bytes=memory, multiprocessors=1)
        for i, arch in enumerate(archs)
    )
    return TorchFacts(build=build, devices=devices, obstacle=obstacle, visibility={}, nodes=())


@pytest.mark.parametrize(
    ("name", "target", "facts", "outcome", "words"),
    [
        ("h100", "sm_90", torch_facts("cpu"), "failed", "torch is a cpu build"),
        ("h100", "sm_90", torch_facts("rocm"), "failed", "torch is a rocm build"),
        ("h100", "sm_90", torch_facts("cuda", obstacle="old"), "failed", "would run on the CPU"),
        ("none", "sm_90", torch_facts("cuda", obstacle="no NVIDIA"), "unavailable", "no NVIDIA"),
        ("none", "sm_90", torch_facts("cpu"), "failed", "would run on the CPU"),
        ("h100", "sm_100", torch_facts("cuda", "sm_90"), "unavailable", "sm_90 (X), not sm_100"),
        ("amd-no-permission", "gfx942", torch_facts("rocm"), "unavailable", "/dev/kfd may not"),
        (
            "amd-container-without-devices",
            "gfx942",
            torch_facts("rocm"),
            "unavailable",
            "given none",
        ),
        ("both-vendors", "sm_90", torch_facts("cuda"), "unavailable", "hidden by CUDA_VISIBLE"),
        ("mi300x-x8", "gfx942", torch_facts("rocm"), "failed", "8 gfx942 devices are here"),
    ],
)
def test_a_claimed_device_that_torch_would_not_compute_on_is_never_a_pass(
    name: str, target: str, facts: TorchFacts, outcome: str, words: str
) -> None:
    finding = judge_presence(claims_for_target(target), facts, recorded(name))
    assert finding is not None
    assert finding.outcome == outcome
    assert words in finding.reason
    assert "hardware" in finding.details


def test_the_right_device_is_present_and_the_cpu_always_is() -> None:
    right = torch_facts("rocm", "gfx942")
    assert judge_presence(claims_for_target("gfx942"), right, recorded("mi300x-x8")) is None
    features = torch_facts("cuda", "sm_90")
    assert judge_presence(claims_for_target("sm_90"), features, recorded("h100")) is None
    assert judge_presence(claims_for_target("cpu"), torch_facts("cpu"), recorded("none")) is None


def test_torch_and_the_machine_are_held_against_each_other() -> None:
    said = disagreements(recorded("mi300x-x8"), torch_facts("cpu"))
    assert "8 devices of amd are here, and torch is a cpu build" in said[0]
    said = disagreements(recorded("mi250x-x8"), torch_facts("rocm", "gfx90a", "gfx90a"))
    assert said == ("1 of 8 devices of amd should be visible, torch sees 2",)
    said = disagreements(recorded("h100"), torch_facts("cuda", "sm_80", memory=2**30))
    assert said[0] == "device 0 is sm_90, torch says sm_80"
    assert "torch says 1073741824" in said[1]
    right = torch_facts("cuda", "sm_90", memory=85_000_000_000)
    assert disagreements(recorded("h100"), right) == ()


def test_the_one_answer_names_vendor_arch_and_what_won() -> None:
    answer = detect(Recorded(RECORDINGS / "mi250x-x8"), with_torch=False)["answer"]
    assert answer["vendor"] == "amd"
    assert answer["arch"] == "gfx90a"
    assert answer["devices"] == 8
    assert answer["visibility"] == "ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES"


def test_a_recording_of_a_recording_is_detected_alike(tmp_path: Path) -> None:
    for name in ALL:
        again = Recording(Recorded(RECORDINGS / name))
        before = read_hardware(again)
        again.save(tmp_path / name, "copied by a test, from the one in tests/detect")
        after = read_hardware(Recorded(tmp_path / name))
        assert replace(after, evidence=()) == replace(before, evidence=())
        assert [one.source for one in after.evidence] == [one.source for one in before.evidence]


def test_a_recording_holds_no_serial_numbers_and_no_other_variables(tmp_path: Path) -> None:
    class Told(Machine):
        environment = {"HIP_VISIBLE_DEVICES": "0", "HOME": "/secret", "GPU_TOKEN": "x"}  # noqa: RUF012

        def text(self, path: str) -> str | None:  # noqa: ARG002 - the same for every file
            return "unique_id 123\nGPU UUID: GPU-0123abcd-0123-0123-0123-0123456789ab\n"

    recording = Recording(Told())
    recording.text("/somewhere")
    recording.save(tmp_path, "a test")
    assert (tmp_path / "files/somewhere").read_text() == (
        "unique_id 0\nGPU UUID: GPU-00000000-0000-0000-0000-000000000000\n"
    )
    document = json.loads((tmp_path / "recording.json").read_text())
    assert document["environment"] == {"HIP_VISIBLE_DEVICES": "0"}


def test_a_broken_recording_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"recording\.json"):
        Recorded(tmp_path)
    (tmp_path / "recording.json").write_text("[]")
    with pytest.raises(RecordingError, match="not of schema 1"):
        Recorded(tmp_path)


@pytest.mark.process
def test_this_machine_is_read_without_an_exception() -> None:
    hardware = read_hardware(Machine())
    assert hardware.processor.threads >= 1
    assert hardware.processor.memory_bytes


def test_doctor_names_the_devices_and_what_stands_in_their_way() -> None:
    (line,) = examine_hardware(recorded("mi300x-x8"))
    assert line.outcome is Outcome.PASSED
    assert "8 x AMD Instinct MI300X (gfx942)" in line.text
    locked, problem = examine_hardware(recorded("amd-no-permission"))
    assert {locked.outcome, problem.outcome} == {Outcome.UNAVAILABLE}
    assert "/dev/kfd may not be opened" in problem.text
    assert list(examine_hardware(recorded("none"))) == []


@pytest.mark.parametrize(
    ("driver", "toolkit", "outcome", "words"),
    [
        ("580.65.06", "13.0", Outcome.PASSED, "580.65.06 is here, 580 or later"),
        ("570.133.20", "13.0", Outcome.UNAVAILABLE, "570.133.20 is here, 580 or later"),
        ("570.133.20", "12.8", Outcome.PASSED, "525.60.13 or later"),
        ("unknown", "13.0", Outcome.UNAVAILABLE, "not determined: 'unknown' is no version"),
    ],
)
def test_doctor_holds_the_driver_against_the_lowest_of_each_toolkit(
    driver: str, toolkit: str, outcome: Outcome, words: str
) -> None:
    cell = replace(a_cell(), vendor="nvidia", toolkit=Toolkit(name="cuda", version=toolkit))
    here = replace(recorded("none"), drivers={"nvidia": driver})
    (found,) = examine_drivers([cell, cell], packaged(), here)
    assert (found.subject, found.outcome) == (f"driver for cuda{toolkit}", outcome)
    assert words in found.text
    assert list(examine_drivers([cell], packaged(), recorded("none"))) == []


XIDS = """\
[   11.5] NVRM: loading NVIDIA UNIX Open Kernel Module
[  812.2] NVRM: Xid (PCI:0000:41:00): {code}, pid=4711, name=python3, GPU has fallen off the bus.
"""


class Altered(Recorded):
    """A recorded machine to which something has happened: a program says or a file has another
    thing.
    """

    def __init__(self, name: str, **happened: str | None) -> None:
        super().__init__(RECORDINGS / name)
        self.happened = happened

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        if argv[0] not in self.happened:
            return super().run(argv)
        said = self.happened[argv[0]]
        return ProgramOutput(status=15 if said is None else 0, output=said or "")

    def names(self, path: str) -> tuple[str, ...]:
        below = (one.removeprefix(f"{path}/") for one in self.happened if one.startswith(path))
        return tuple(sorted({one.split("/")[0] for one in below})) or super().names(path)

    def text(self, path: str) -> str | None:
        return self.happened.get(path) or super().text(path)


RAS = "/sys/class/drm/card1/device/ras/umc_err_count"
ONE_ROW = "0, NVIDIA H200, 9.0, 580.0, 143771\n"


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("nvidia-h200-x2", {}, {"nvidia-smi": ONE_ROW}, "1 of 2 devices no longer answers"),
        (
            "nvidia-h200-x2",
            {},
            {"nvidia-smi": None, "warpfront-nvml": None},
            "2 of 2 devices no longer answers",
        ),
        (
            "h100",
            {"dmesg": ""},
            {"dmesg": XIDS.format(code=79)},
            "Xid (PCI:0000:41:00): 79, pid=4711, name=python3, GPU has fallen off the bus.",
        ),
        # What a wrong kernel does by itself, and what was there before.
        ("h100", {}, {"dmesg": XIDS.format(code=31)}, ""),
        ("h100", {"dmesg": XIDS.format(code=79)}, {"dmesg": XIDS.format(code=79)}, ""),
        ("h100", {}, {}, ""),
        (
            "mi300x-x8",
            {RAS: "ue: 1\nce: 4\n"},
            {RAS: "ue: 3\nce: 9\n"},
            "2 uncorrected errors in card1 umc",
        ),
        ("mi300x-x8", {RAS: "ue: 1\nce: 4\n"}, {RAS: "ue: 1\nce: 9\n"}, ""),
    ],
)
def test_what_befell_a_device_is_told_from_what_a_program_did(
    name: str, before: dict[str, str], after: dict[str, str | None], expected: str
) -> None:
    vendor = "amd" if name.startswith("mi") else "nvidia"
    found = (read_health(Altered(name, **one), vendor) for one in (before, after))
    assert "; ".join(mishaps(*found)) == expected


def test_where_drivers_do_not_tell_nothing_is_known() -> None:
    assert read_health(Machine(), "cpu") is None
    assert mishaps(None, None) == ()
