"""The numerics session on the CPU: right devices pass, every seeded fault is caught.

Needs torch, so it is skipped where that is not installed (this project does not depend on torch);
the integration tests run it inside the image, and `nox -s verify -- --here --selftest` anywhere.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402

from warpfront.inside.checks import block_faults  # noqa: E402
from warpfront.inside.checks.blocks import (  # noqa: E402
    ATTENTION,
    BLOCKS,
    CONVOLUTION,
    MLP,
    Block,
    Inputs,
    Trace,
    execute,
    make_inputs,
)
from warpfront.inside.checks.claims import Claims  # noqa: E402
from warpfront.inside.checks.judge import judge, make_baseline  # noqa: E402
from warpfront.inside.checks.mutations import MutationTally  # noqa: E402
from warpfront.inside.checks.numerics import (  # noqa: E402
    judge_block,
    record_numerics,
)
from warpfront.inside.checks.precision import DTYPES, probe  # noqa: E402
from warpfront.inside.checks.results import Recorder  # noqa: E402

EVERY_BLOCK = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)


@EVERY_BLOCK
@EVERY_DTYPE
def test_a_correct_device_passes_with_other_seeds(block: Block, dtype: Any) -> None:
    for seed in range(2):
        assert judge_block(block, dtype, "cpu", seed=seed).faults == ()


# Every block and every dtype once.
A_FEW = [(MLP, torch.float16), (ATTENTION, torch.bfloat16), (CONVOLUTION, torch.float32)]
SWEPT = [
    pytest.param(block, dtype, marks=pytest.mark.exhaustive)
    for block in BLOCKS
    for dtype in DTYPES.values()
    if (block, dtype) not in A_FEW
]


@pytest.mark.parametrize(
    ("block", "dtype"), [*A_FEW, *SWEPT], ids=lambda one: getattr(one, "name", str(one))
)
def test_every_seeded_fault_is_caught(block: Block, dtype: Any) -> None:
    ledger = MutationTally()
    block_faults.seed_block_faults(block, dtype, "cpu", 0, ledger)
    assert ledger.missed == []
    assert ledger.seeded > 30


def test_faults_are_seeded_on_the_output_and_on_each_gradient() -> None:
    places = {
        case.name.partition(": ")[2] for case in block_faults.cases(MLP, torch.float32, "cpu")
    }
    assert {"y", *(f"grad:{leaf}" for leaf in MLP.leaves)} <= places


def test_a_fault_in_the_middle_is_named_where_it_is_made() -> None:
    def run(block: Block, inputs: Inputs, device: str) -> Trace:
        trace = execute(block, inputs, device)
        return replace(trace, values={**trace.values, "active": trace.values["active"] * 1.01})

    found = judge_block(MLP, torch.float32, "cpu", run=run).faults
    assert found[0].startswith("active (pointwise): worst element [")
    assert "over the bound" in found[0]


def test_a_result_on_another_device_is_a_fault() -> None:
    inputs = make_inputs(MLP, torch.float32, 0)
    verdict = judge(MLP, inputs, execute(MLP, inputs, "cpu"), make_baseline(MLP, inputs), "cuda")
    assert verdict.faults[0] == "x: on cpu, expected on cuda"


def test_inputs_are_the_same_every_time_and_differ_between_seeds() -> None:
    first, again, other = (make_inputs(MLP, torch.float32, seed).cotangent for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_dtype_counts_as_computed_only_after_a_right_product() -> None:
    assert [probe(dtype, "cpu") for dtype in DTYPES.values()] == ["", "", ""]
    assert "Error" in probe(torch.float32, "meta")


def record(folder: Path, claims: Claims, **options: object) -> dict[str, dict[str, object]]:
    recorder = Recorder(session="numerics", target=claims.target, folder=folder)
    record_numerics(claims, recorder, **options)  # type: ignore[arg-type]
    recorder.finish()
    document = json.loads((folder / "numerics.json").read_text())
    assert document["planned"] == [check["name"] for check in document["checks"]]
    return {check["name"]: check for check in document["checks"]}


def test_the_session_passes_on_the_cpu_and_says_how_close_it_was(tmp_path: Path) -> None:
    checks = record(tmp_path, CPU)
    assert {check["outcome"] for check in checks.values()} == {"passed"}
    details = checks["attention float32"]["details"]
    assert isinstance(details, dict)
    assert 0 < max(details["budget_used"].values()) < 1


def test_a_device_that_computes_wrong_fails_and_is_named(tmp_path: Path) -> None:
    def run(block: Block, inputs: Inputs, device: str) -> Trace:
        trace = execute(block, inputs, device)
        return replace(trace, values={**trace.values, "y": trace.values["y"] * 1.03})

    checks = record(tmp_path, CPU, run=run)
    failed = [check for name, check in checks.items() if name not in {"device", "dtypes"}]
    assert {check["outcome"] for check in failed} == {"failed"}
    assert str(failed[0]["reason"]).startswith("mlp in float32 on cpu: seed 0: y (linear): worst")


def test_a_device_that_breaks_down_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    def run(block: Block, inputs: Inputs, device: str) -> Trace:
        if block is MLP:
            raise RuntimeError("device lost")
        return execute(block, inputs, device)

    checks = record(tmp_path, CPU, run=run)
    assert checks["mlp float32"]["outcome"] == "error"
    assert checks["attention float32"]["outcome"] == "passed"
