"""Architectures of a library: right ones pass, a kernel that is wrong is named in its type and
layer, and what crashes or refuses costs its own type only. The library is a stand-in.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels import kernel as seeding  # noqa: E402

from warpfront_checks.architectures import registered, runs  # noqa: E402
from warpfront_checks.architectures.roster import (  # noqa: E402
    Library,
    architectures,
    chosen,
)
from warpfront_checks.architectures.runs import NotBuiltError  # noqa: E402
from warpfront_checks.architectures.shrinking import MANNERS  # noqa: E402
from warpfront_checks.architectures.watched import PreserveFloat64  # noqa: E402
from warpfront_checks.cases.bounds import Verdict  # noqa: E402
from warpfront_checks.children import HUNG, Returned  # noqa: E402
from warpfront_checks.models import modes  # noqa: E402
from warpfront_checks.models.judging import judge_ends  # noqa: E402
from warpfront_checks.models.passes import (  # noqa: E402
    Precision,
    Specimen,
    run_plainly,
)
from warpfront_checks.results import (  # noqa: E402
    PASSED,
    CheckFinding,
    Checks,
    Recorder,
    passed,
)

STAND_IN = Path(__file__).parents[1] / "stand_in_library"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in, here and in children; afterwards whatever was there."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_library(name)}
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=":")
    yield
    for name in [name for name in sys.modules if _is_library(name)]:
        del sys.modules[name]
    sys.modules.update(kept)


def _is_library(name: str) -> bool:
    return name == "transformers" or name.startswith("transformers.")


def tried(name: str) -> runs.FedModel:
    (one,), _ = chosen(architectures(), (name,), ())
    return runs.prepare(one, 0)


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """The file that is written for an architecture, as a module."""
    pytest.importorskip("pydantic", reason="it is written by warpfront, which no image has")
    from warpfront.commands.model_writing import write_model_test

    path = write_model_test("lending", tmp_path / "written.py")
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["written"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_a_written_file_tells_a_causal_model_so_whatever_its_class_is_called(written: Any) -> None:
    """As bert's, BertLMHeadModel, which would look ahead."""
    model, config = written.small_model(written.MANNERS[0])
    assert (type(model).__name__, config.is_decoder) == ("LendingLMHeadModel", True)


class Generating(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model that generates as the library's do: what is forced is a token's and no logit's, and
    positions are given from 0, wherever the model itself counts from. With `forgets`, it is wrong:
    its second word is computed without the first.
    """

    def __init__(self, *, forced: int | None = None, first: int = 0, forgets: bool = False) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(9, 8), torch.nn.Embedding(32, 8)
        self.head = torch.nn.Linear(8, 9)
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.generation_config = SimpleNamespace(eos_token_id=forced, forced_eos_token_id=forced)
        self.first, self.forgets = first, forgets

    def can_generate(self) -> bool:
        return True

    def forward(self, input_ids: Any, position_ids: Any = None, **_: Any) -> Any:
        if position_ids is None:
            position_ids = self.first + torch.arange(input_ids.shape[1])[None]
        seen = (self.words(input_ids) + self.places(position_ids)).cumsum(1)
        return SimpleNamespace(logits=self.head(seen))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def generate(self, input_ids: Any, *, max_new_tokens: int, **_: Any) -> Any:
        own, logits = self.generation_config, []
        for step in range(max_new_tokens):
            places = torch.arange(input_ids.shape[1])[None]
            held = input_ids[:, step:] if self.forgets else input_ids
            logits.append(self(held, places[:, -held.shape[1] :]).logits[:, -1])
            last = step == max_new_tokens - 1 and own.forced_eos_token_id is not None
            word = torch.full((1,), own.forced_eos_token_id) if last else logits[-1].argmax(-1)
            input_ids = torch.cat([input_ids, word[:, None]], 1)
        return SimpleNamespace(sequences=input_ids, logits=logits)


@pytest.mark.parametrize(
    ("odd", "right"),
    [({}, True), ({"forced": 3}, True), ({"first": 2}, True), ({"forgets": True}, False)],
    ids=["plain", "its end is forced, as bart's", "counts from 2, as roberta", "wrong"],
)
def test_a_written_file_takes_an_odd_way_to_generate_for_right_and_a_wrong_one_not(
    written: Any, odd: Mapping[str, Any], *, right: bool
) -> None:
    torch.manual_seed(0)
    prepared = Generating(**odd), {"input_ids": torch.tensor([[1, 2, 5]])}
    greedy = written.test_greedy_tokens_are_those_of_one_pass
    with contextlib.nullcontext() if right else pytest.raises(AssertionError):
        greedy("cpu", prepared)


def test_a_right_model_passes_layer_by_layer_and_what_it_never_uses_is_named() -> None:
    own = tried("plain")
    finding = runs.judge_pass(own, "cpu")
    assert finding.outcome == PASSED, finding.reason
    found: Any = finding.details
    # One layer of each kind that its configuration has, each with its parts, and head and tokens.
    assert found["layers"] == 2 + 2 * 5
    assert found["unused"] == ["never_used.weight", "never_used.bias"]
    assert own.parameters < 100_000
    assert found["left_out"] == {}
    assert runs.judge_pass(own, "cpu", torch.bfloat16).outcome == PASSED
    assert runs.train(own, "cpu").outcome == "passed"


def test_a_parameter_that_others_use_is_judged_by_the_whole_and_not_by_its_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tried("lending")
    assert own.layers.is_lent("body.embed", "weight")
    assert not own.layers.is_lent("body.layers.0.up", "weight")
    rows: list[Verdict] = []

    def judge_whole(*arguments: Any) -> list[Verdict]:
        rows[:] = judge_ends(*arguments)
        return rows

    monkeypatch.setattr(runs, "judge_ends", judge_whole)
    finding = runs.judge_pass(own, "cpu")
    assert finding.outcome == PASSED, finding.reason
    assert "gradient of body.embed.weight" in {row.name for row in rows}
    monkeypatch.setattr(type(own.layers), "is_lent", lambda *_: False)
    found = runs.judge_pass(own, "cpu").details
    assert found["first_over"] == "embed", "as if all of it came back through the layer"


@pytest.mark.parametrize("reference", [False, True], ids=["device", "float64 too"])
@pytest.mark.parametrize(
    ("operator", "layer"),
    [("silu", "layers.0.act_fn"), ("gelu", "layers.1.act_fn"), ("addmm", "layers.0.up")],
)
def test_a_wrong_kernel_under_the_dispatcher_is_named_by_its_layer(
    operator: str, layer: str, *, reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reference:
        # Wrong in float64 as well: the judge must not be made of the kernel that it judges.
        monkeypatch.setattr(seeding, "_is_reference", lambda _: False)
    fault = seeding.WrongKernel(
        name="a tenth of a percent too large",
        operators=(operator,),
        wrong=lambda right, *args, **options: right(*args, **options) * 1.001,
    )
    own = tried("plain")
    with seeding.seeded(fault, "cpu"):
        finding = runs.judge_pass(own, "cpu")
    assert finding.details["first_over"] == layer
    assert finding.reason.startswith(f"{layer} (")


def test_what_was_cast_to_float32_in_the_middle_stays_float64() -> None:
    x = torch.full((3,), 1 / 3, dtype=torch.float64)
    with PreserveFloat64():
        assert torch.equal(x.to(torch.float32), x)
        assert torch.equal(x.float(), x)
        assert torch.softmax(x, 0, dtype=torch.float32).dtype == torch.float64
        assert (x[None] @ torch.ones(3, 1)).dtype == torch.float64
        assert x.half().dtype == torch.float16
        assert torch.ones(2).to(torch.bfloat16).dtype == torch.bfloat16


def test_a_model_that_takes_nothing_says_what_it_asks_for() -> None:
    with pytest.raises(NotBuiltError, match="asks for a moon"):
        tried("refusing")


def test_what_holds_others_and_has_no_default_is_built_of_its_classs_own_configuration() -> None:
    (holding,), _ = chosen(architectures(), ("holding",), ())
    model, config, _ = runs.build(holding, MANNERS[0], 0)
    assert isinstance(config, model.config_class)


def test_a_type_that_hangs_is_an_error_of_its_own() -> None:
    ended = Returned(
        item={}, place=0, outcome=HUNG, seconds=90.0, document={}, reason="no answer in 90 s"
    )
    found = ended.finding()
    assert (found.outcome, found.reason) == ("error", "hung: no answer in 90 s")


@pytest.mark.process
def test_each_type_has_a_check_and_a_child_of_its_own_and_the_count_cannot_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: dict[str, Any] = {"values": [], "usual": [], "excluded": [], "floors": []}
    data["floors"] = [{"version": "5.0.0", "counts": {"causal": 4}}]
    monkeypatch.setattr(registered, "exceptions", lambda: data)
    recorder = Recorder(session="architectures", target="cpu", folder=tmp_path)
    asked = Library(library="transformers", modes=("float32",), workers=1, limit_seconds=60)
    registered.record_architectures(CPU, recorder, asked)
    assert not recorder.finish()
    found = {one["name"]: one for one in json.loads(recorder.path.read_text())["checks"]}
    assert found["architecture causal plain"]["outcome"] == "passed"
    assert found["architecture causal refusing"]["outcome"] == "unavailable"
    assert "asks for a moon" in found["architecture causal refusing"]["reason"]
    assert found["architecture causal dying"]["outcome"] == "error"
    assert "SIGSEGV" in found["architecture causal dying"]["reason"]
    assert found["count of causal"]["outcome"] == "failed"
    assert found["count of causal"]["reason"] == "3 of 5 run; with 5.0.0 it was 4"


@pytest.mark.parametrize(
    ("device", "order"),
    [
        ("cuda", ["begun", "families", "a type", "ended"]),
        ("hpu", ["begun", "a type", "ended", "families"]),
    ],
)
def test_types_are_run_beside_the_families_but_on_a_gaudi_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, order: list[str]
) -> None:
    seen: list[str] = []

    def begin(*_: object) -> tuple[Checks, Callable[[], None]]:
        def find() -> CheckFinding:
            seen.append("a type")
            return passed("it runs")

        seen.append("begun")
        return {"architecture a": find}, lambda: seen.append("ended")

    def families(_: object, recorder: Recorder, *__: object, **___: object) -> None:
        assert recorder.planned == ("architecture a",)
        seen.append("families")

    monkeypatch.setattr(modes, "begin_usual", begin)
    monkeypatch.setattr(modes, "record_models", families)
    recorder = Recorder(session="models", target=device, folder=tmp_path)
    modes.record_model_session(replace(CPU, device=device), recorder)
    assert seen == order
    assert recorder.finish()


def test_what_the_library_lacks_is_unavailable_and_what_is_left_out_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"kind": "causal", "reason": "it is odd", "dated": "2026-11-22"}
    left_out = [
        {**said, "name": name} for name in ("plain", "lending", "holding", "refusing", "dying")
    ]
    data: dict[str, Any] = {"values": [], "usual": [], "excluded": left_out, "floors": []}
    monkeypatch.setattr(registered, "exceptions", lambda: data)
    recorder = Recorder(session="architectures", target="cpu", folder=tmp_path)
    asked = Library(library="transformers", architectures=("nosuch",))
    registered.record_architectures(CPU, recorder, asked)
    assert [outcome for _, outcome in recorder.found] == ["unavailable"]
    registered.record_architectures(CPU, recorder, replace(asked, architectures=("all",)))
    document = json.loads(recorder.path.read_text())
    assert {one["reason"] for one in document["unclaimed"]} == {"it is odd (2026-11-22)"}


def test_the_floors_of_the_data_file_are_of_releases_and_hold_the_goal() -> None:
    data = runs.exceptions()
    assert all(one["reason"] and one["dated"] for one in (*data["values"], *data["excluded"]))
    least, since = registered.floor_of("causal", "5.23.0")
    assert (least >= 175, since) == (True, "5.23.0")
    assert registered.floor_of("causal", "5.24.1") == (least, since)
    assert registered.floor_of("causal", "4.1") == (0, "no release")


class Cancelling(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Of what comes back to its weight hardly anything is left."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, x: Any) -> Any:
        little = self.weight * x.exp() - self.weight * (x + 2.0**-13).exp()
        return little, little.sum()


def test_who_is_off_by_roundings_is_right_even_if_the_cpu_was_lucky() -> None:
    """An H100's gradient of a query's bias was 9.4 times as far off as the CPU's."""
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(0))
    how = Precision(dtype=torch.float32)
    specimen = Specimen(model=Cancelling(), inputs=(drawn,), precision=how)
    exact, found = specimen.exact, specimen.same_dtype
    narrow = {name: gradient.float() for name, gradient in exact.gradients.items()}
    lucky = replace(exact, logits=exact.logits.float(), gradients=narrow)
    own = replace(specimen)
    vars(own)["same_dtype"] = lucky
    by_luck = {row.name: row.fault for row in judge_ends(found, unrounded(own))}
    assert "times what is allowed" in by_luck["gradient of weight"]

    for times, right in ((1.0, True), (30.0, False)):
        off = {n: g + (times - 1) * (g - narrow[n]) for n, g in found.gradients.items()}
        rows = judge_ends(replace(found, gradients=off), own)
        faults = {row.name: row.fault for row in rows}
        assert bool(faults["gradient of weight"]) != right
        assert not faults["logits"]


def unrounded(specimen: Specimen) -> Specimen:
    """The specimen without passes whose steps are rounded."""
    alone = replace(specimen)
    vars(alone).update(vars(specimen), rounded=[])
    return alone


class TruncatedAttention(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """As kernels compute it that keep their output: by sums that are cut off, not rounded."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        wide = [x.double() for x in (q, k, v)]
        weights = (wide[0] @ wide[1].mT / q.shape[-1] ** 0.5).softmax(-1)
        exact = weights @ wide[2]
        output = exact.float()
        cut = torch.where(output.abs() > exact.abs(), output.nextafter(output * 0), output)
        ctx.save_for_backward(*wide, weights, cut)
        return cut

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        q, k, v, weights, output = ctx.saved_tensors
        given = gradient.double()
        kept = (given * output).sum(-1, keepdim=True)
        scores = weights * (given @ v.mT - kept) / q.shape[-1] ** 0.5
        return (scores @ k).float(), (scores.mT @ q).float(), (weights.mT @ given).float()


class AlikeKeys(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(16))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        taken = (q + self.bias, k, v)
        if q.dtype == torch.float32 and getattr(self, "truncates", False):
            found = TruncatedAttention.apply(*taken)
        else:
            found = torch.nn.functional.scaled_dot_product_attention(*taken)
        return found, found.sum()


def test_a_fused_attention_may_cut_off_what_it_takes_its_gradients_from() -> None:
    """On an H200 the gradient of a query's bias was 11.8 times as far off as the CPU's."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 512, 16, generator=generator) for _ in range(3))
    inputs = (q, 1 + k / 64, 1 + v / 64)
    how = Precision(dtype=torch.float32)
    specimen = Specimen(model=AlikeKeys(), inputs=inputs, precision=how)
    model, sent = specimen.sent("cpu")
    model.truncates = True
    found, exact = run_plainly(model, model, sent), specimen.exact
    # The error of the CPU's own attention is another one for each instruction set.
    rounded = {name: gradient.float() for name, gradient in exact.gradients.items()}
    lucky = replace(exact, logits=exact.logits.float(), gradients=rounded)
    vars(specimen)["same_dtype"] = lucky
    beside = judge_ends(found, unrounded(specimen))
    assert any("gradient of bias" in row.fault_by() for row in beside)
    assert not any(row.fault for row in judge_ends(found, specimen))
    off = {n: g + 30 * (g - exact.gradients[n]).float() for n, g in found.gradients.items()}
    assert any(row.fault for row in judge_ends(replace(found, gradients=off), specimen))
