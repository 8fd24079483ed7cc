"""Every session on a stand-in for Gaudi: `torch.hpu` over the host's memory, hl-smi's answer, the
vendor's names. What it shows is that the way to the device is walked; nothing of the device itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.claims import Claims  # noqa: E402
from warpfront_checks.results import write_json  # noqa: E402

pytestmark = [pytest.mark.exhaustive, pytest.mark.process, pytest.mark.timeout(3600)]

STAND_IN = Path(__file__).parents[1] / "stand_in_hpu"
SMOKE = {
    "name": "device",
    "run": [
        sys.executable,
        "-c",
        "import habana_frameworks.torch.core, torch; print(torch.ones(1, device='hpu').device)",
    ],
    "needs": "device",
    "prints": "^hpu:0$",
}
CLAIMS = Claims(
    cell="here",
    target="gaudi2",
    vendor="gaudi",
    device="hpu",
    smoke=(SMOKE,),
    image=False,
)
# Refused on this device: torch's composition of attention in float32, step by step, has rounding
# errors of scores that its kernels have not; and the stand-in's new memory is not filled with NaN
# where torch is told to be deterministic.
KNOWN = {("operators", "far out"), ("operators", "determinism")}
if importlib.util.find_spec("coverage"):  # what looks for mutants brings it, with a file of its own
    KNOWN.add(("stack", "what begins with Python"))
# Entries whose float64 is made inside an operation, where it is not seen, and sparse numbers.
OF_THE_STAND_IN = {
    "linalg.pinv",
    "linalg.pinv.hermitian",
    "linalg.pinv.singular",
    "to_sparse",
}
COMPILED = """
import habana_frameworks.torch.core, torch
from warpfront_checks.models import modes
from warpfront_checks.models.families import FAMILIES
assert modes.missing_compiler("hpu") == ""
asked = []
compile = torch.compile
torch.compile = lambda *args, **own: asked.append(own["backend"]) or compile(*args, **own)
family = next(one for one in FAMILIES if one.name == "gpt")
rows = modes.judge_mode(family, "compiled", modes.Proving(device="hpu"))
print(f"{asked[0]}: {sum(bool(row.fault) for row in rows)} faults")
"""
QUICK = ("--quick", "--run", "0")
BESIDE = ("numerics", "golden")
SESSIONS: Mapping[str, tuple[str, ...]] = {
    "load": QUICK,
    "numerics": QUICK,
    "operators": QUICK,
    "models": QUICK,
    "attention": QUICK,
    "golden": QUICK,
    "devices": QUICK,
    "stack": QUICK,
    "opinfo": QUICK,
    "bench": ("--preset", "tiny", "--matmul"),
}


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """With the stand-in built for this torch; it takes 20 s of a processor, once a change of it."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to build the stand-in with")
    source = STAND_IN / "device.cpp"
    known = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:12]
    library = tmp_path_factory.getbasetemp().parent / f"stand-in-hpu-{known}.so"
    root = Path(torch.__file__).parent
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        include = root / "include"
        subprocess.run(
            [
                compiler,
                "-std=c++20",
                "-O0",
                "-fPIC",
                "-shared",
                str(source),
                "-o",
                str(made),
                f"-I{include}",
                f"-I{include}/torch/csrc/api/include",
                f"-L{root}/lib",
                "-ltorch_cpu",
                "-lc10",
            ],
            check=True,
        )
        made.replace(library)
    found = [str(STAND_IN), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, found)),
        "PATH": f"{STAND_IN / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "STAND_IN_HPU_LIBRARY": str(library),
        "OMP_NUM_THREADS": "1",
        "PT_HPU_LAZY_MODE": "0",
    }


def left(
    session: str,
    environment: Mapping[str, str],
    folder: Path,
    claims: Claims = CLAIMS,
    beside: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """What a session leaves, and where others may read it: STAND_IN_HPU_RESULTS."""
    folder = Path(environment.get("STAND_IN_HPU_RESULTS") or folder)
    write_json(folder / "claims.json", claims.document())
    argv = ["--claims", str(folder / "claims.json"), "--results", str(folder), *SESSIONS[session]]
    done = subprocess.run(
        [sys.executable, "-m", "warpfront_checks", session, *beside, *argv],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr[-2000:]
    document: Mapping[str, Any] = json.loads((folder / f"{session}.json").read_text())
    return document


def only_the_device_is_emulated(found: Mapping[str, Any]) -> bool:
    """Everything else passed: a stand-in computes, and is no hardware."""
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    return outcomes.pop("device") == "emulated" and set(outcomes.values()) == {"passed"}


@pytest.mark.parametrize("session", [name for name in SESSIONS if name not in {"bench", "opinfo"}])
def test_a_session_runs_on_the_stand_in_and_says_that_it_is_one(
    session: str, environment: Mapping[str, str], tmp_path: Path
) -> None:
    found = left(session, environment, tmp_path)
    bad = {
        check["name"]: check["reason"]
        for check in found["checks"]
        if check["outcome"] != "passed" and (session, check["name"]) not in KNOWN
    }
    if session != "load":
        assert "no device node of their driver" in bad.pop("device")
    assert bad == {}
    own = found["environment"]
    assert [device["name"] for device in own["devices"]] == ["GAUDI2 (stand-in)"]
    assert own["devices"][0]["memory_bytes"] == 102106132480
    assert own["build"] == "hpu"
    assert own["variables"]["PT_HPU_LAZY_MODE"] == "0"


def test_it_is_timed_by_the_hosts_clock(environment: Mapping[str, str], tmp_path: Path) -> None:
    found = left("bench", environment, tmp_path)
    assert found["environment"]["device_name"] == "GAUDI2 (stand-in)"
    assert all(one["median_seconds"] > 0 for one in found["results"] if "median_seconds" in one)
    assert found["results"]


def test_two_pass_numbers_to_each_other_by_hccl(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    found = left("devices", {**environment, "STAND_IN_HPU_DEVICES": "2"}, tmp_path)
    assert only_the_device_is_emulated(found)
    names = {check["name"] for check in found["checks"]}
    assert {"all_reduce (hccl)", "send and receive (hccl)", "copy hpu:0 to hpu:1"} <= names


def test_processes_that_hold_one_card_each_pass_numbers_too(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "held").mkdir()
    held = {"STAND_IN_HPU_DEVICES": "2", "STAND_IN_HPU_HELD": str(tmp_path / "held")}
    found = left("devices", {**environment, **held}, tmp_path)
    assert only_the_device_is_emulated(found)
    names = {check["name"] for check in found["checks"]}
    assert {"all_reduce (hccl)", "device hpu:0"} <= names
    assert not any("hpu:1" in name for name in names)
    assert "a process has one Gaudi" in json.dumps(found)


def test_sessions_of_one_run_take_turns_on_the_one_card(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "held").mkdir()
    held = {"STAND_IN_HPU_HELD": str(tmp_path / "held")}
    found = left("models", {**environment, **held}, tmp_path, beside=BESIDE)
    every = [found, *(json.loads((tmp_path / f"{name}.json").read_text()) for name in BESIDE)]
    assert all(map(only_the_device_is_emulated, every))


def test_a_model_is_compiled_by_the_vendors_compiler(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["hpu_backend: 0 faults"], done.stderr[-2000:]


def test_torchs_database_is_swept_but_for_what_asks_for_float64(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    checks = {one["name"]: one for one in left("opinfo", environment, tmp_path)["checks"]}
    details = checks["float32"]["details"]
    assert details["samples"] > 500
    assert {fault.split(",")[0] for fault in details["faults"]} <= OF_THE_STAND_IN
    assert details["excluded"]["it asks for float64, which this device does not compute"] >= 5


def test_it_is_detected_and_migration_is_a_fact(environment: Mapping[str, str]) -> None:
    argv = [sys.executable, "-m", "warpfront_checks", "detect", "--json"]
    migrating = {**environment, "PT_HPU_GPU_MIGRATION": "1"}
    done = subprocess.run(argv, env=migrating, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    answer = found["answer"]
    assert (answer["vendor"], answer["arch"], answer["torch_build"]) == ("gaudi", "gaudi2", "hpu")
    assert found["torch"]["variables"]["PT_HPU_GPU_MIGRATION"] == "1"
    assert found["dtypes"]["bfloat16"] == "computed"
    assert "no Double" in found["dtypes"]["float64"]


def test_another_gaudi_than_claimed_is_not_taken_for_it(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    other = Claims(cell="here", target="gaudi3", vendor="gaudi", device="hpu", image=False)
    (device,) = left("numerics", environment, tmp_path, other)["checks"]
    assert device["outcome"] == "unavailable"
    hidden = {**environment, "STAND_IN_HPU_DEVICES": "0"}
    (device,) = left("numerics", hidden, tmp_path)["checks"]
    assert device["outcome"] == "unavailable"
