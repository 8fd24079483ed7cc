"""A failure as a script: it repeats the failure where the fault is, and passes where not."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from result_files import results_document  # noqa: E402

from warpfront_checks import explaining  # noqa: E402
from warpfront_checks.check_options import CheckOptions, drawn_seeds  # noqa: E402
from warpfront_checks.edge_cases import hazard_checks  # noqa: E402
from warpfront_checks.edge_cases.answers import HazardClass  # noqa: E402
from warpfront_checks.edge_cases.hazard_table import HAZARDS  # noqa: E402
from warpfront_checks.edge_cases.kernel_faults import KERNEL_FAULTS  # noqa: E402
from warpfront_checks.edge_cases.seeding import seeded  # noqa: E402
from warpfront_checks.explaining import Shaken, UnexplainedError, explained  # noqa: E402
from warpfront_checks.operators import trials  # noqa: E402
from warpfront_checks.operators.table import operators  # noqa: E402
from warpfront_checks.opinfo import sweep  # noqa: E402
from warpfront_checks.opinfo.adapter import load_database  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

CASE, DOT = "float32 width 64", "scaled_dot_product_attention"
EFFORT = CheckOptions(quick=True, run="explained", seeds=drawn_seeds("explained", 1))


def ran(script: str) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(script, "script", "exec"), {"__name__": "__main__"})
    return said.getvalue().splitlines()


def fault(name: str) -> Any:
    return next(one for one in KERNEL_FAULTS if one.name == name)


def record(
    session: str, folder: Path, kind: Any, device: Any, *, effort: CheckOptions = EFFORT
) -> Path:
    recorder = Recorder(session=session, target="cpu", folder=folder)
    with device:
        kind(CPU, recorder, effort)
    recorder.finish()
    return recorder.path


def numbers_of_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    chosen = tuple(one for one in operators() if one.name == name)
    monkeypatch.setattr(trials, "operators", lambda: chosen)
    monkeypatch.setattr(trials, "PATTERNS", ())


def only_class(monkeypatch: pytest.MonkeyPatch, name: str, row: str) -> None:
    own = hazard_checks.class_named(name)
    rows = tuple(one for one in own.hazards if one.name == row)
    cut = type(own)(name=name, asks="", hazards=rows)
    monkeypatch.setattr(hazard_checks, "HAZARDS", (cut,))


@pytest.mark.parametrize(
    ("session", "check", "wrong"),
    [
        ("operators", "tanh", "tanh by exponentials"),
        ("operators", "far out", "tanh by exponentials"),
        ("operators", "eight bits", "int8 products held to few bits"),
        ("operators", "shapes", "products of two turned operands"),
        ("operators", "attention kernels", "causal attention of more queries than keys"),
        ("operators", "linear algebra", "the last inverse of a batch"),
        ("operators", "transforms", "irfft of odd length"),
        ("operators", "memory formats", "bicubic's gradient of the first sample only"),
        ("opinfo", "float32", "erf saturates early"),
        ("opinfo", "float32 otherwise", "erf saturates early"),
    ],
)
@pytest.mark.process  # torch's test package looks for GPUs
def test_a_script_fails_under_the_wrong_kernel_and_passes_without(
    session: str, check: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fault(wrong)
    if check in {one.name for one in HAZARDS}:
        only_class(monkeypatch, check, kernel.rows[0])
        kind: Any = hazard_checks.record_hazards
    elif session == "opinfo":
        few = [one for one in load_database() if one.name == "erf"]
        monkeypatch.setattr(sweep, "load_database", lambda: few)
        kind = sweep.record_opinfo
    else:
        numbers_of_one(monkeypatch, check)
        kind = trials.record_values
    effort = replace(EFFORT, quick=not check.endswith("otherwise"))
    path = record(session, tmp_path, kind, seeded(kernel, "cpu"), effort=effort)
    script = explained(path, check)
    assert "warpfront" not in script.partition("\n")[2]
    with seeded(kernel, "cpu"):
        assert ran(script)[-1] == "failed: True"
    assert ran(script)[-1] == "failed: False"


def written(folder: Path, session: str, check: str, fault: str, outcome: str = "failed") -> Path:
    path = folder / f"{session}.json"
    path.write_text(json.dumps(results_document(session, check, fault, outcome)))
    return path


@pytest.mark.parametrize(
    ("session", "check", "fault"),
    [
        ("operators", "matmul + bias + relu", "bfloat16, 67x129x65, seed 5: gradient 0: x"),
        ("numerics", "mlp bfloat16", "seed 7: body.2 (Linear): output: worst element"),
        ("models", "mlp training", "seed 7: optimizer: x"),
        ("attention", "tier sdpa math", f"{CASE}, mask, grouped, backward: wrong: q: worst"),
    ],
)
def test_networks_and_patterns_are_scripts_too(
    session: str, check: str, fault: str, tmp_path: Path
) -> None:
    script = explained(written(tmp_path, session, check, fault), check)
    assert ran(script)[-1] == "failed: False"


@pytest.mark.parametrize(
    ("failure", "name"),
    [
        (("attention", "tier sdpa flash", f"{CASE}, causal, equal heads, forward: wrong: x"), DOT),
        (("golden", "cpu-x86_64: linear float32", "out: this device is off by 3"), "linear"),
        (("devices", "device cpu", "cpu: linear float32 grad/1: 3.1 times its budget"), "linear"),
    ],
)
def test_a_way_of_attention_and_a_golden_case_are_scripts_that_see_a_wrong_kernel(
    failure: tuple[str, str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = explained(written(tmp_path, *failure), failure[1])
    assert ran(script)[-1] == "failed: False"
    right = getattr(torch.nn.functional, name)

    def wrong(*args: Any, **options: Any) -> Any:
        found = right(*args, **options)
        return found * 1.01 if found.dtype == torch.float32 else found

    monkeypatch.setattr(torch.nn.functional, name, wrong)
    assert ran(script)[-1] == "failed: True"


@pytest.mark.parametrize(
    ("session", "check", "outcome", "said"),
    [
        ("operators", "matmul", "passed", "matmul is passed: no case of it failed"),
        ("operators", "repeats", "failed", "operators: repeats: no script repeats 'sum'"),
        ("load", "versions", "failed", "load: versions: no script repeats 'sum'"),
    ],
)
def test_what_no_script_can_repeat_is_said(
    session: str, check: str, outcome: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, session, check, "sum: 3 runs differ", outcome)
    with pytest.raises(UnexplainedError, match=said):
        explained(path, check)
    with pytest.raises(UnexplainedError, match="has no check 'other'\nhint: it has"):
        explained(path, "other")


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("cpu", "cpu"),
        ("x86_64", "cpu"),
        ("sm_90", "cuda"),
        ("gfx942", "cuda"),
        ("gaudi3", "hpu"),
        ("bmg", "xpu"),
    ],
)
def test_a_script_is_for_the_device_that_was_judged(target: str, device: str) -> None:
    """A CPU's cells have its machine for a target."""
    assert explaining._device({"machine": "x86_64"}, target) == device


@pytest.mark.parametrize("one", HAZARDS, ids=lambda one: one.name)
def test_every_class_of_hazards_has_names_that_one_script_can_hold(one: HazardClass) -> None:
    row = one.hazards[0].name
    root = explaining._root("operators", one.name, f"{row}, float32, seed 0: x", "cpu")
    assert any(Shaken().script(root.wanted))


def test_the_dtypes_of_explain_are_torch_s_and_all_that_a_row_names() -> None:
    assert {type(getattr(torch, name)) for name in explaining.DTYPES} == {torch.dtype}
    named = {name for one in HAZARDS for row in one.hazards for name in row.dtypes}
    named |= {name for one in operators() for name in one.dtypes}
    assert named <= set(explaining.DTYPES)
