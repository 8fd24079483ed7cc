"""The numerics session on the CPU: right devices pass, every seeded fault is caught.

Needs torch, so it is skipped where that is not installed (this project does not depend on torch);
the integration tests run it inside the image, and `nox -s verify -- --here --selftest` anywhere.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.seeding.mutations import ON_TENSORS, MutationTally  # noqa: E402
from kernels.seeding.networks import _in_results, seed_pass_faults  # noqa: E402

from warpfront_checks.models import modes  # noqa: E402
from warpfront_checks.models.families import NETWORKS, Family  # noqa: E402
from warpfront_checks.models.judging import first_over  # noqa: E402
from warpfront_checks.models.modes import (  # noqa: E402
    Proving,
    judge_mode,
    record_numerics,
    run_eager,
)
from warpfront_checks.models.passes import (  # noqa: E402
    Precision,
    layers_of,
    make_specimen,
)
from warpfront_checks.precision import DTYPES, probe  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

MLP, CONVOLUTION, ATTENTION = NETWORKS
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.name)
# Every network and every dtype once.
A_FEW = [(MLP, "float16"), (ATTENTION, "bfloat16"), (CONVOLUTION, "float32")]
SWEPT = [
    pytest.param(network, dtype, marks=pytest.mark.exhaustive)
    for network in NETWORKS
    for dtype in DTYPES
    if (network, dtype) not in A_FEW
]


@EVERY_NETWORK
def test_a_correct_device_passes_with_other_seeds(network: Family) -> None:
    for dtype in DTYPES:
        assert first_over(judge_mode(network, dtype, Proving(device="cpu", seed=1))) is None


@pytest.mark.parametrize(
    ("network", "dtype"), [*A_FEW, *SWEPT], ids=lambda one: getattr(one, "name", one)
)
def test_every_seeded_fault_is_caught(network: Family, dtype: str) -> None:
    ledger = MutationTally()
    seed_pass_faults(network, dtype, "cpu", 0, ledger)
    assert ledger.missed == []
    assert ledger.seeded > 60


def test_faults_are_seeded_on_each_output_and_on_each_gradient() -> None:
    specimen = make_specimen(MLP, Precision(dtype=torch.float32))
    model, clean = run_eager(specimen, Proving(device="cpu"))
    seeded = [(place, name) for name, place, _ in _in_results(clean, MutationTally())]
    outputs = {f"output of {name}" for name in layers_of(model)}
    gradients = {f"gradient of {name}" for name, _ in model.named_parameters()}
    assert {place for place, _ in seeded} == outputs | gradients
    for gradient in gradients:
        assert (gradient, "dropped gradient") in seeded
    wide = [name for place, name in seeded if place == "output of body.2"]
    assert wide == list(ON_TENSORS)


def test_a_fault_in_the_middle_is_named_where_it_is_made() -> None:
    def tamper(model: Any) -> None:
        model.body[1].register_forward_hook(lambda _, __, output: output * 1.01)

    first = first_over(judge_mode(MLP, "float32", Proving(device="cpu", tamper=tamper)))
    assert first is not None
    assert first.fault_by().startswith("body.1 (GELU): output: RMS error")
    assert " allowed" in first.fault


def test_inputs_are_the_same_every_time_and_differ_between_seeds() -> None:
    how = Precision(dtype=torch.float32)
    first, again, other = (make_specimen(MLP, how, seed).inputs[1] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_dtype_counts_as_computed_only_after_a_right_product() -> None:
    assert [probe(dtype, "cpu") for dtype in DTYPES.values()] == ["", "", ""]
    assert "Error" in probe(torch.float32, "meta")


def record(folder: Path) -> dict[str, dict[str, Any]]:
    recorder = Recorder(session="numerics", target="cpu", folder=folder)
    record_numerics(CPU, recorder)
    recorder.finish()
    document = json.loads((folder / "numerics.json").read_text())
    assert document["planned"] == [check["name"] for check in document["checks"]]
    return {check["name"]: check for check in document["checks"]}


def test_the_session_passes_on_the_cpu_and_says_how_close_it_was(tmp_path: Path) -> None:
    checks = record(tmp_path)
    assert {check["outcome"] for check in checks.values()} == {"passed"}
    assert list(checks)[:3] == ["dtypes", "mlp float32", "convolution float32"]
    assert 0 < checks["attention float32"]["details"]["layers"]["body.attention.attend"] < 1


def test_a_device_that_computes_wrong_fails_and_one_that_breaks_down_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest goes on."""

    def tamper(model: Any) -> None:
        if len(model.body) == 2:
            return
        if len(model.body) == 4:
            raise RuntimeError("device lost")
        model.body[2].register_forward_hook(lambda _, __, output: output * 1.03)

    monkeypatch.setattr(modes, "Proving", partial(Proving, tamper=tamper))
    checks = record(tmp_path)
    assert checks["mlp float32"]["outcome"] == "failed"
    said = str(checks["mlp float32"]["reason"])
    assert said.startswith("mlp float32 on cpu, seed 0: body.2 (Linear): output: RMS error")
    assert checks["convolution float32"]["outcome"] == "error"
    assert checks["attention float32"]["outcome"] == "passed"
