"""Which samples of torch's are asked: few, far apart, and each option at least once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from kernels.kernel import WrongKernel, seeded  # noqa: E402

from warpfront_checks.cases.bounds import Tally, Verdict  # noqa: E402
from warpfront_checks.cases.case import Case  # noqa: E402
from warpfront_checks.cases.run import execute, names_of  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.opinfo import adapter, sweep  # noqa: E402
from warpfront_checks.opinfo.adapter import Entry, load_database, numbers_of, spread, with_options  # noqa: E402
from warpfront_checks.opinfo.provider import (  # noqa: E402
    EVERY_SECOND,
    cases_of_sample,
    memory_forms,
)
from warpfront_checks.opinfo.sweep import Exclusion  # noqa: E402

# A correction that of var_mean's samples those alone have that are there for their options.
HALF = 0.5


def sample(*shape: int, args: tuple[Any, ...] = (), **kwargs: Any) -> Any:
    return SimpleNamespace(input=torch.ones(shape), args=args, kwargs=kwargs)


def test_samples_are_as_far_apart_as_they_can_be() -> None:
    assert spread(list(range(24)), 8) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert spread(list(range(9)), 8) == [0, 2, 4, 6, 8]
    assert spread([1, 2], 8) == [1, 2]
    assert spread([], 8) == []


def test_what_has_an_option_or_a_form_that_none_before_has_is_asked_and_nothing_else() -> None:
    plain, other_numbers = sample(2, 3), sample(4, 5)
    axis, other_axis, deep = sample(2, 3, dim=0), sample(2, 3, dim=1), sample(2, 3, 4)
    empty, two, both = sample(0, 3), sample(2, 3, args=(1,)), sample(2, 3, dim=1, keepdim=True)
    listed = sample(2, 3, args=([torch.ones(1), torch.ones(2)],))
    double = sample(2, 3)
    double.input = double.input.double()
    asked = [other_numbers, axis, other_axis, axis, deep, empty, two, both, listed, double, deep]
    found = list(with_options(asked, [plain]))
    assert found == [axis, other_axis, deep, empty, two, both, listed, double]
    assert list(with_options(asked, asked)) == []


def test_every_option_of_the_first_samples_is_asked_where_right_kernels_were_seen() -> None:
    entry = next(one for one in load_database() if one.name == "var_mean")
    said: dict[str, set[str]] = {}
    for device in ("cpu", "hpu"):
        one = sweep.Sweep(dtype="float32", device=device, effort=CheckOptions())
        own = list(sweep.samples_for(entry, torch.float32, one))
        said[device] = {repr(sorted(one.raw.kwargs.items())) for one in own}
        quick = replace(one, effort=CheckOptions(quick=True))
        assert len(list(sweep.samples_for(entry, torch.float32, quick))) == 1
    everything = entry.samples("cpu", torch.float32, limit=160, backward=False, among=160)
    values = {item for one in everything for item in map(repr, one.raw.kwargs.items())}
    asked = "".join(said["cpu"])
    assert all(value in asked for value in values)
    assert said["hpu"] < said["cpu"]


def test_samples_with_options_alone_can_be_left_out_and_the_others_stay() -> None:
    left = Exclusion(name="corrcoef", reason="it is odd", what="options", dtypes=("float32",))
    how: dict[str, Any] = {"backward": True}
    assert left.covers("corrcoef", "float32", "cuda", options=True, **how)
    assert not left.covers("corrcoef", "float32", "cuda", **how)
    assert not left.covers("corrcoef", "bfloat16", "cuda", options=True, **how)
    assert not left.covers("cov", "float32", "cuda", options=True, **how)
    back = replace(left, what="options backward")
    assert back.covers("corrcoef", "float32", "cuda", options=True, **how)
    assert not back.covers("corrcoef", "float32", "cuda", options=True, backward=False)


def test_an_option_that_the_spread_samples_lack_catches_who_does_not_heed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = next(one for one in load_database() if one.name == "var_mean")

    def deaf(right: Any, *args: Any, correction: Any = None, **more: Any) -> Any:
        return right(*args, correction=0 if correction == HALF else correction, **more)

    own = sweep.Sweep(dtype="float32", device="cpu", effort=CheckOptions())
    with seeded(WrongKernel("deaf", ("var_mean.correction",), deaf), "cpu"):
        assert sweep.sweep_entries([entry], own).faults
        monkeypatch.setattr(sweep, "OPTIONS_AMONG", 0)
        assert not sweep.sweep_entries([entry], own).faults


def test_each_entry_is_in_one_part_of_the_database_for_every_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("abs", "add", "erf", "exp", "mul", "sin", "sub", "tanh")
    few = [one for one in load_database() if one.name in names]
    asked: dict[str, list[str]] = {}

    def swept(entries: list[Entry], one: sweep.Sweep) -> Tally:
        asked.setdefault(one.name, []).extend(entry.name for entry in entries)
        return Tally()

    monkeypatch.setattr(sweep, "load_database", lambda: few)
    monkeypatch.setattr(sweep, "sweep_entries", swept)
    sweeps = [one.name for one in sweep.sweeps_of("cpu", CheckOptions())]
    for part in range(3):
        sweep.find_part(names=sweeps, device="cpu", part=part, count=3, effort=CheckOptions())
    assert [*asked] == sweeps
    assert all(sorted(each) == sorted(one.name for one in few) for each in asked.values())


def test_rows_limited_by_max_norm_are_asked_of_the_cpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = next(one for one in load_database() if one.name == "nn.functional.embedding")
    monkeypatch.setattr(sweep, "computes_float64", lambda _: True)
    asked: dict[str, list[bool]] = {}

    def judged(case: Case, *_: Any, **__: Any) -> list[Any]:
        asked.setdefault(case.device, []).append("max_norm" in case.code)
        return []

    monkeypatch.setattr(sweep, "verdicts_of", judged)
    for device in ("cpu", "cuda"):
        own = sweep.Sweep(dtype="float32", device=device, effort=CheckOptions())
        swept = sweep.sweep_entries([entry], own)
        assert (sweep.TWICE in swept.excluded) == (device == "cuda")
    assert any(asked["cpu"])
    assert asked["cuda"]
    assert not any(asked["cuda"])


@pytest.mark.parametrize(("name", "kept"), [("linalg.eig", 0), ("linalg.svd", 1)])
def test_a_matrix_that_torch_itself_writes_over_is_not_judged_afterwards(
    monkeypatch: pytest.MonkeyPatch, name: str, kept: int
) -> None:
    entry = next(one for one in load_database() if one.name == name)
    monkeypatch.setattr(sweep, "computes_float64", lambda _: True)
    changed = Verdict.failed("argument t0 afterwards", "other numbers")
    monkeypatch.setattr(sweep, "verdicts_of", lambda *_, **__: [changed])
    own = sweep.Sweep(dtype="float32", device="cuda", effort=CheckOptions(quick=True))
    swept = sweep.sweep_entries([entry], own)
    assert bool(swept.faults) == kept
    assert (sweep.OVERWRITTEN in swept.excluded) != kept


def test_a_second_tensor_with_gaps_beside_one_without_is_seen_to_be_read_as_if_it_had_none() -> (
    None
):
    entry = next(one for one in load_database() if one.name == "sub")

    def wrong(right: Any, x: Any, y: Any, **more: Any) -> Any:
        apart = x.is_contiguous() and not y.is_contiguous()
        return right(x, y * 2 if apart else y, **more)

    own = sweep.Sweep(dtype="float32", device="cpu", effort=CheckOptions())
    assert sweep.sweep_entries([entry], own).faults == []
    with seeded(WrongKernel("apart", ("sub.Tensor",), wrong), "cpu"):
        assert sweep.sweep_entries([entry], own).faults
    known = [form for n in range(4) for form in memory_forms(entry, n, "float32")]
    assert known == ["", "gaps", "transposed", "offset", "gaps", EVERY_SECOND, "gaps"]


def test_a_case_of_the_database_is_a_script_of_torch_alone_and_draws_the_same_sample() -> None:
    entry = next(one for one in load_database() if one.name == "addmm")
    samples = list(entry.samples("cpu", torch.float32, limit=4, backward=True, options_among=160))
    how: dict[str, Any] = {"dtype": "float32", "device": "cpu", "seed": 3}
    case = next(cases_of_sample(entry, samples[-1], **how))[0]
    assert "warpfront" not in repr(case)
    own, alone = names_of(case), names_of(replace(case, made={}))
    for names in (own, alone):
        execute(case.inputs() + case.oracle() + case.sent() + case.call(), names)
    for name in ("found", "right", "gradients", "rights"):
        assert own[name]
        pairs = zip(own[name], alone[name], strict=True)
        assert all(torch.equal(x, y) for x, y in pairs)


def test_a_sample_of_more_numbers_than_a_case_may_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = next(one for one in load_database() if one.name == "sub")
    how: dict[str, Any] = {"limit": 8, "backward": False}
    every = [numbers_of(one.raw) for one in entry.samples("cpu", torch.float32, **how)]
    monkeypatch.setattr(adapter, "NUMBERS", max(every) - 1)
    fewer = [numbers_of(one.raw) for one in entry.samples("cpu", torch.float32, **how)]
    assert fewer
    assert max(fewer) < max(every)
