"""Which samples of torch's are asked: few, far apart, and each option at least once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.executing import Computed  # noqa: E402
from warpfront_checks.opinfo import sweep  # noqa: E402
from warpfront_checks.opinfo.adapter import Entry, Sample, load_database  # noqa: E402
from warpfront_checks.opinfo.choosing import spread, with_options  # noqa: E402
from warpfront_checks.opinfo.entry_verdicts import (  # noqa: E402
    EVERY_SECOND,
    execute_entry,
    sent,
)
from warpfront_checks.opinfo.expecting import Exclusion  # noqa: E402

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
        how: dict[str, Any] = {"device": device, "how": "", "quick": False}
        own = list(sweep.samples_for(entry, torch.float32, **how))
        said[device] = {repr(sorted(one.kwargs.items())) for one in own}
        again = sweep.samples_for(entry, torch.float32, **{**how, "quick": True})
        assert len(list(again)) == 1
    everything = entry.samples("cpu", torch.float32, limit=160, backward=False, among=160)
    values = {item for one in everything for item in map(repr, one.kwargs.items())}
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

    def run(entry: Entry, asked: Sample, *more: Any) -> Computed:
        deaf = {**asked.kwargs, "correction": 0}
        wrong = replace(asked, kwargs=deaf) if asked.kwargs.get("correction") == HALF else asked
        return execute_entry(entry, wrong, *more)

    own = sweep.Sweep(dtype="float32", how="", device="cpu", effort=CheckOptions(), run=run)
    assert sweep.sweep_entries([entry], own).faults
    monkeypatch.setattr(sweep, "OPTIONS_AMONG", 0)
    assert not sweep.sweep_entries([entry], own).faults


def test_parts_of_the_database_begin_apart_and_ask_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("abs", "add", "erf", "exp", "mul", "sin", "sub", "tanh")
    few = [one for one in load_database() if one.name in names]
    asked: dict[str, list[str]] = {}

    def swept(entries: list[Entry], one: sweep.Sweep) -> sweep.Swept:
        asked.setdefault(one.name, []).extend(entry.name for entry in entries)
        return sweep.Swept()

    monkeypatch.setattr(sweep, "load_database", lambda: few)
    monkeypatch.setattr(sweep, "sweep_entries", swept)
    for one in sweep._sweeps("cpu", CheckOptions(), execute_entry):
        for part in range(sweep.PARTS):
            sweep.find_part(name=one.name, device="cpu", part=part, effort=CheckOptions())
    assert {tuple(sorted(each)) for each in asked.values()} == {names}
    assert len({each[0] for each in asked.values()}) == len(names)


def test_rows_limited_by_max_norm_are_asked_of_the_cpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = next(one for one in load_database() if one.name == "nn.functional.embedding")
    monkeypatch.setattr(sweep, "computes_float64", lambda _: True)
    # Nothing of this "cuda" can be described: it is the CPU under another name.
    monkeypatch.setattr(sweep, "describe_sample", lambda *_, **__: [])
    asked: dict[str, list[object]] = {}

    def run(entry: Entry, sample: Sample, _: object, device: str) -> Computed:
        asked.setdefault(device, []).append(sample.kwargs.get("max_norm"))
        return execute_entry(entry, sample, None, "cpu")

    for device in ("cpu", "cuda"):
        own = sweep.Sweep(dtype="float32", device=device, effort=CheckOptions(), run=run)
        swept = sweep.sweep_entries([entry], own)
        assert (sweep.TWICE in swept.excluded) == (device == "cuda")
    assert any(asked["cpu"])
    assert asked["cuda"]
    assert not any(asked["cuda"])


def test_a_second_tensor_with_gaps_beside_one_without_is_seen_to_be_read_as_if_it_had_none() -> (
    None
):
    entry = next(one for one in load_database() if one.name == "sub")

    def run(entry: Entry, sample: Sample, *more: Any) -> Computed:
        lies = sent(sample, "cpu", backward=False)
        first, second = lies.input, lies.args[0]
        if first.is_contiguous() and not second.is_contiguous():
            return execute_entry(entry, replace(sample, args=(second * 2,), memory=""), *more)
        return execute_entry(entry, sample, *more)

    own = sweep.Sweep(dtype="float32", device="cpu", effort=CheckOptions(), run=run)
    assert sweep.sweep_entries([entry], own).faults
    some = next(entry.samples("cpu", torch.float32, limit=1, backward=False))
    known = [one.memory for n in range(4) for one in sweep.asked_as(entry, some, n, torch.float32)]
    assert known == ["", "gaps", "turned", "offset", "gaps", EVERY_SECOND, "gaps"]
