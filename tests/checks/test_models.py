"""Whole models on the CPU: right ones pass, a fault is named by its layer.

Needs torch, so it is skipped where that is not installed; the integration tests run it inside the
image.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.seeding.networks import (  # noqa: E402
    BACKWARD,
    FORWARD,
    SEEDED,
    Fault,
    faults_of,
    missed_faults,
)

from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.models import modes  # noqa: E402
from warpfront_checks.models.families import FAMILIES, Family, Pick  # noqa: E402
from warpfront_checks.models.judging import (  # noqa: E402
    RATE,
    first_over,
    judge_layers,
    judge_loss,
    judge_places,
    judge_training,
)
from warpfront_checks.models.modes import Proving, judge_mode, record_models  # noqa: E402
from warpfront_checks.models.passes import (  # noqa: E402
    DECIDED,
    Precision,
    UndecidedError,
    layers_of,
    make_specimen,
    watch,
)
from warpfront_checks.precision import require_full_precision  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

ON_CPU = Proving(device="cpu")
BY_NAME = {family.name: family for family in FAMILIES}
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
LOW = ("bfloat16", "float16", "mixed bfloat16", "mixed float16", "training")


def test_sums_of_samples_may_be_rounded_on_their_way_to_a_bias() -> None:
    """On an H200 the gradients of norms' biases were 4.0 to 4.3 roundings of a random walk off, in
    4 of 103 seeds; what one sample adds to a bias is no random walk.
    """
    how = Precision(dtype=torch.float16)
    specimen = make_specimen(BY_NAME["resnet"], how, 85900395)
    model, inputs = specimen.sent("cpu")
    passed = watch(model, inputs, layers_of(model), specimen.scale)
    name = "body.block2.norm1"
    (call,) = (call for call in passed.calls if call.layer == name)
    assert call.gradient_out is not None
    samples = call.gradient_out.double().sum((2, 3))
    worst = 2.0**-11 * samples.abs().sum(0)
    worst[worst < worst.max()] = 0.0
    for times, right in ((1.0, True), (12.0, False)):
        off = {**passed.gradients, f"{name}.bias": samples.sum(0) + times * worst}
        off[f"{name}.bias"] = off[f"{name}.bias"].half()
        rows = judge_layers(
            layers_of(model), replace(passed, gradients=off, calls=(call,)), specimen
        )
        assert [row.name for row in rows if row.fault] == ([] if right else ["gradient of bias"])


@EVERY_FAMILY
def test_a_correct_device_passes(family: Family) -> None:
    rows = judge_mode(family, "float32", ON_CPU)
    assert first_over(rows) is None
    assert len(rows) > 20


@pytest.mark.parametrize("mode", LOW)
@pytest.mark.parametrize("name", ["mlp", "resnet", "moe"])
def test_a_correct_device_passes_in_less_precision_and_in_training(name: str, mode: str) -> None:
    assert first_over(judge_mode(BY_NAME[name], mode, Proving(device="cpu", seed=1))) is None


def test_precision_is_agreed_on_also_where_torchs_own_tests_were_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They forbid its switches from then on."""
    require_full_precision()
    flags = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", False)  # noqa: FBT003
    assert torch.backends.flags_frozen()
    modes.agree_on_precision()
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("name", ["mlp", "resnet", "gpt"])
@pytest.mark.parametrize("mode", ["checkpointed", "exported"])
def test_a_wrapped_model_computes_the_same(name: str, mode: str) -> None:
    assert first_over(judge_mode(BY_NAME[name], mode, ON_CPU)) is None


USUAL = ("mlp", "resnet", "gpt", "moe")


def kind_of(layer: Any) -> str:
    """The class of a layer, or its function."""
    return str(getattr(layer, "function", type(layer)).__name__)


def by_class(family: Family) -> dict[str, Fault]:
    """The first fault of each class of layer."""
    layers = layers_of(family.build())
    faults = reversed(list(faults_of(family)))
    return {kind_of(layers[fault.layer]): fault for fault in faults}


def representative(name: str) -> list[Fault]:
    """One in every class of layer that no family before it has; in the first, of every kind too."""
    before = {of_layer for one in USUAL[: USUAL.index(name)] for of_layer in by_class(BY_NAME[one])}
    chosen = [
        fault for of_layer, fault in by_class(BY_NAME[name]).items() if of_layer not in before
    ]
    if not before:
        chosen += {fault.name: fault for fault in reversed(list(faults_of(BY_NAME[name])))}.values()
    return list({(fault.layer, fault.name): fault for fault in chosen}.values())


@pytest.mark.parametrize("name", USUAL)
def test_a_fault_in_a_layer_is_named_as_that_layer(name: str) -> None:
    chosen = representative(name)
    count, missed = missed_faults(BY_NAME[name], chosen, "cpu")
    assert missed == []
    assert count == len(chosen) >= 3


def test_every_kind_of_fault_is_tried_in_the_first_family() -> None:
    names = {fault.name for fault in representative(USUAL[0])}
    assert names == {fault.name for fault in faults_of(BY_NAME[USUAL[0]])}
    assert len(names) >= len(BACKWARD) + len(FORWARD) - 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SEEDED)
def test_every_fault_in_a_layer_is_named_as_that_layer(name: str) -> None:
    count, missed = missed_faults(BY_NAME[name], faults_of(BY_NAME[name]), "cpu")
    assert missed == []
    assert count >= 2 * len(layers_of(BY_NAME[name].build())) - 10


def test_every_layer_gets_a_fault_forward_and_one_backward() -> None:
    for family in FAMILIES:
        without = {"Pick", "cross_entropy"}
        for name, layer in layers_of(family.build()).items():
            if list(layer.children()) or kind_of(layer) in without:
                continue
            ways = [f.name.split(":")[0] for f in faults_of(family) if f.layer == name]
            assert ways == ["forward", "backward"], (family.name, name)


def test_every_kind_of_fault_is_seeded_somewhere() -> None:
    names = {fault.name for family in FAMILIES for fault in faults_of(family)}
    assert {f"forward: {name}" for name in FORWARD} <= names
    assert {f"backward: {name}" for name in BACKWARD} <= names


def test_layers_that_only_inherit_an_error_are_not_accused() -> None:
    def tamper(model: Any) -> None:
        layer = model.body.blocks[0].feed.up
        layer.register_forward_hook(lambda _, __, output: output * 1.03)

    rows = judge_mode(BY_NAME["gpt"], "float32", Proving(device="cpu", tamper=tamper))
    over = {row.layer for row in rows if row.fault}
    assert over == {"body.blocks.0.feed.up", "whole model", "loss"}


@pytest.mark.parametrize("mode", ["mixed bfloat16", "float16"])
def test_a_fault_in_low_precision_is_named(mode: str) -> None:
    def tamper(model: Any) -> None:
        layer = model.body.blocks[1].norm2
        layer.register_forward_hook(lambda _, __, output: output * 1.05)

    first = first_over(judge_mode(BY_NAME["bert"], mode, Proving(device="cpu", tamper=tamper)))
    assert first is not None
    assert first.layer == "body.blocks.1.norm2"


@pytest.mark.parametrize("mode", ["checkpointed", "exported"])
def test_a_fault_inside_a_wrapped_model_is_caught(mode: str) -> None:
    first = first_over(judge_mode(BY_NAME["mlp"], mode, Proving(device="cpu", tamper=tamper_head)))
    assert first is not None
    assert first.layer == "whole model"


def tamper_head(model: Any) -> None:
    """The last linear layer of the MLP, a thousandth too large."""
    model.body.layers[-1].register_forward_hook(lambda _, __, output: output * 1.001)


def test_a_gradient_that_is_missing_is_a_fault() -> None:
    def tamper(model: Any) -> None:
        model.body.blocks[0].attention.v.bias.requires_grad_(requires_grad=False)

    first = first_over(judge_mode(BY_NAME["gpt"], "float32", Proving(device="cpu", tamper=tamper)))
    assert first is not None
    assert first.fault_by().startswith(
        "body.blocks.0.attention.v (Linear): gradient of bias: missing"
    )


def test_a_parameter_that_arrived_changed_is_a_fault() -> None:
    def tamper(model: Any) -> None:
        with torch.no_grad():
            model.body.norm.weight[0] += 1

    first = first_over(judge_mode(BY_NAME["gpt"], "float32", Proving(device="cpu", tamper=tamper)))
    assert first is not None
    assert "differs from what was sent" in first.fault


def test_an_optimizer_that_steps_wrong_is_named() -> None:
    def wrong(model: Any) -> Any:
        return torch.optim.AdamW(model.parameters(), lr=RATE * 1.01, weight_decay=0.01)

    specimen = make_specimen(BY_NAME["mlp"], Precision(dtype=torch.float32))
    first = first_over(judge_training(specimen, "cpu", lambda _: None, wrong))
    assert first is not None
    assert first.layer == "optimizer"
    assert "after step 1" in first.fault_by()


def test_a_model_that_does_not_learn_is_seen_by_its_loss() -> None:
    def frozen(model: Any) -> Any:
        return torch.optim.AdamW(model.parameters(), lr=0.0)

    specimen = make_specimen(BY_NAME["mlp"], Precision(dtype=torch.float32))
    faults = [r.fault_by() for r in judge_training(specimen, "cpu", lambda _: None, frozen)]
    assert any(fault.startswith("loss: step 2") for fault in faults)


def test_the_band_of_the_loss_widens_with_every_step() -> None:
    how = Precision(dtype=torch.bfloat16)
    assert judge_loss(1.006, 1.0, how, step=1).fault
    assert not judge_loss(1.006, 1.0, how, step=2).fault
    assert judge_loss(float("nan"), 1.0, how, step=9).fault


def test_computed_elsewhere_is_a_fault() -> None:
    specimen = make_specimen(BY_NAME["mlp"], Precision(dtype=torch.float32))
    model, inputs = specimen.sent("cpu")
    found = watch(model, inputs, layers_of(model))
    (row,) = judge_places(found, "cuda")
    assert row.fault == "computed on cpu, not on cuda"


def test_choices_close_to_a_tie_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpfront_checks.models.passes._TRIES", 3)
    monkeypatch.setattr("warpfront_checks.models.passes.DECIDED", 100 * DECIDED)
    with pytest.raises(UndecidedError, match="moe: 3 sets of inputs"):
        make_specimen(BY_NAME["moe"], Precision(dtype=torch.float32))


def test_equal_tokens_may_be_chosen_in_any_order() -> None:
    scores = torch.tensor([[3.0], [1.0], [3.0], [2.0]])
    assert Pick(2)(scores).tolist() == Pick(2)(scores.flip(0).flip(0)).tolist() == [[0, 2]]


def record(folder: Path, **options: Any) -> dict[str, Any]:
    recorder = Recorder(session="models", target="cpu", folder=folder)
    record_models(CPU, recorder, **options)
    recorder.finish()
    document: dict[str, Any] = json.loads((folder / "models.json").read_text())
    assert document["planned"] == [check["name"] for check in document["checks"]]
    return document


@pytest.mark.process
def test_the_quick_session_passes_and_says_how_close_each_layer_was(tmp_path: Path) -> None:
    document = record(tmp_path, effort=CheckOptions(quick=True))
    checks = {check["name"]: check for check in document["checks"]}
    assert {check["outcome"] for check in checks.values()} == {"passed"}
    assert 0 < checks["gpt float32"]["details"]["layers"]["body.blocks.0.attention.attend"] < 1


@pytest.mark.process
def test_a_faulty_device_fails_the_session_and_the_layer_is_in_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes, "Proving", partial(Proving, tamper=_tamper_any))
    document = record(tmp_path, effort=CheckOptions(quick=True))
    check = next(c for c in document["checks"] if c["name"] == "mlp float32")
    assert check["outcome"] == "failed"
    assert check["details"]["first_over"] == "body.layers.2"
    assert "body.layers.2 (Linear): output: RMS error" in check["reason"]
    assert check["details"]["profiles"]["strict"]["refused"] > 0
    assert check["details"]["profiles"]["five-percent"]["refused"] == 0


@pytest.mark.process
def test_by_five_percent_a_device_that_is_three_percent_off_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effort = CheckOptions(quick=True, profile="five-percent")
    monkeypatch.setattr(modes, "Proving", partial(Proving, tamper=_tamper_any))
    document = record(tmp_path, effort=effort)
    check = next(c for c in document["checks"] if c["name"] == "mlp float32")
    assert check["outcome"] == "passed"


def _tamper_any(model: Any) -> None:
    """The MLP's second linear layer; other families are left alone."""
    if hasattr(model.body, "layers"):
        model.body.layers[2].register_forward_hook(lambda _, __, output: output * 1.03)


def test_without_a_compiler_nothing_is_claimed_of_compiled_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CXX", raising=False)
    assert modes.missing_compiler("cpu") == "no C++ compiler in this image"
    assert modes.missing_compiler("cuda") == "no C compiler in this image"
