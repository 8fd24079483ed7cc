"""The case engine: right kernels pass, wrong ones are seen, and a failure prints its own script."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import runpy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from kernels.kernel import WrongKernel, seeded  # noqa: E402
from kernels.seeding.dispatched import cases_of, operation_faults  # noqa: E402

from warpfront_checks.cases import (  # noqa: E402
    known_defects,
    session,
)
from warpfront_checks.cases.axes import (  # noqa: E402
    SCALES,
    Drawing,
    assignments_of,
    axes_of,
    build,
    in_domain,
    laid_out,
)
from warpfront_checks.cases.bounds import Bound, Verdict, judge  # noqa: E402
from warpfront_checks.cases.case import Argument, Case, fed_as  # noqa: E402
from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS  # noqa: E402
from warpfront_checks.cases.known_defects import KnownDefect, defects_of, thread_of  # noqa: E402
from warpfront_checks.cases.operation import HALF_SIZE, Operation  # noqa: E402
from warpfront_checks.cases.oracle import Independent, oracle_for  # noqa: E402
from warpfront_checks.cases.run import (  # noqa: E402
    LackingError,
    NoOracleError,
    execute,
    names_of,
    reference_of,
    run_case,
)
from warpfront_checks.cases.session import (  # noqa: E402
    SEEN_ON,
    claimed_operations,
    find_operation,
    finding_of,
    judge_operation,
)
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.explaining import UnexplainedError, explained  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16", "float64")
WHOLE = CheckOptions()
QUICK = CheckOptions(quick=True)
# Terms of a sum: each range is another kernel of some library.
TERMS = ((8, 64), (64, 1100), (1100, 4096), (4096, 65_536), (65_536, 10**9))


def to_bfloat16(x: Any) -> Any:
    return x.bfloat16().float()


def to_tf32(x: Any) -> Any:
    """Ten bits of the fraction, rounded to the nearest."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) >> 13 << 13).view(torch.float32).view(x.shape)


def rounding(shorter: Callable[[Any], Any], least: int, most: int, *overloads: str) -> WrongKernel:
    """A float32 product that rounds its operands, for sums of so many terms."""

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        operands = tensors[-2:]
        if operands[0].dtype == torch.float32 and least <= operands[0].shape[-1] < most:
            args = tuple(shorter(x) if any(x is o for o in operands) else x for x in args)
        return right(*args, **kwargs)

    return WrongKernel("operands rounded", overloads, wrong)


# The quick verification of the CPU image judges every topic that the CPU claims, by this function
# (integration/test_cpu_path.py). The sweep has all of them, and those that it does not claim.
REPRESENTATIVE = "matrices"
ASKED = [
    pytest.param(topic, marks=[] if topic == REPRESENTATIVE else [pytest.mark.exhaustive])
    for topic in TOPICS
]


@pytest.mark.parametrize("topic", ASKED)
def test_right_kernels_pass_a_quick_run(topic: str) -> None:
    operations = TOPICS[topic]
    found = {one.name: judge_operation(one, "cpu", QUICK) for one in operations}
    assert {name: tally.faults[:1] for name, tally in found.items() if tally.faults} == {}
    assert [name for name, tally in found.items() if not tally.cases] == []


# Who sees that 13 bits of a fraction are dropped sees that 16 are: each number is further off.
@pytest.mark.parametrize(
    "shorter", [pytest.param(to_bfloat16, marks=pytest.mark.exhaustive), to_tf32]
)
@pytest.mark.parametrize("name", ["mm", "addmm", "bmm"])
def test_rounded_operands_are_seen_for_sums_of_any_length(
    name: str, shorter: Callable[[Any], Any]
) -> None:
    for least, most in TERMS:
        with seeded(rounding(shorter, least, most, name, f"{name}.out"), "cpu"):
            assert judge_operation(CATALOGUE[name], "cpu", WHOLE).faults, (least, most)


def test_rounded_operands_are_seen_in_gradients_and_in_convolutions() -> None:
    with seeded(rounding(to_tf32, 8, 10**9, "mm", "mm.out"), "cpu"):
        faults = judge_operation(CATALOGUE["linear without bias"], "cpu", WHOLE).faults
    assert any("gradient of a" in fault for fault in faults)
    assert any("gradient of b" in fault for fault in faults)

    def forward(right: Any, x: Any, w: Any, *rest: Any) -> Any:
        narrow = x.dtype == torch.float32
        return right(to_bfloat16(x) if narrow else x, to_bfloat16(w) if narrow else w, *rest)

    def backward(right: Any, grad: Any, x: Any, w: Any, *rest: Any) -> Any:
        narrow = grad.dtype == torch.float32
        x, w = (to_bfloat16(t) if narrow else t for t in (x, w))
        return right(grad, x, w, *rest)

    for wrong, overloads, part in (
        (forward, ("convolution", "mkldnn_convolution"), ": result"),
        (backward, ("convolution_backward",), "gradient of"),
    ):
        fault = WrongKernel("operands rounded", overloads, wrong)
        with seeded(fault, "cpu"):
            faults = judge_operation(CATALOGUE["conv2d"], "cpu", WHOLE).faults
        assert any(part in one for one in faults), overloads


@pytest.mark.parametrize("operator", ["mse_loss", "softplus"])
def test_a_kernel_that_reads_slices_as_if_they_were_whole_is_seen(operator: str) -> None:
    """By the slices alone: what is contiguous it computes right."""

    def as_whole(right: Any, x: Any, *rest: Any) -> Any:
        return right(x.as_strided(x.shape, x.new_empty(x.shape).stride()), *rest)

    with seeded(WrongKernel("slices as if whole", (operator,), as_whole), "cpu"):
        faults = judge_operation(CATALOGUE[operator], "cpu", WHOLE).faults
    assert faults
    assert all("memory " in each or "operands interleaved" in each for each in faults)


@pytest.mark.parametrize(
    ("operation", "overloads"),
    [
        ("exp", ("exp", "exp.out", "exp_")),
        ("sum", ("sum.dim_IntList", "sum.IntList_out")),
        ("mm", ("mm", "mm.out")),
        ("softmax", ("_softmax", "_softmax.out")),
        ("layer_norm", ("native_layer_norm",)),
        ("index_select", ("index_select", "index_select.out")),
        ("conv2d", ("convolution", "mkldnn_convolution")),
        ("mse_loss", ("mse_loss", "mse_loss.out")),
    ],
)
def test_a_fault_in_every_dtype_is_seen_on_the_cpu(
    operation: str, overloads: tuple[str, ...]
) -> None:
    """The oracle is another than the judged float64 kernel."""

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        found = right(*args, **kwargs)
        first = found[0] if isinstance(found, tuple) else found
        if first.numel() > 1:
            first.view(-1)[-1].add_(3) if first.is_contiguous() else first.add_(3)
        return found

    fault = WrongKernel("one number too large", overloads, wrong)
    with seeded(fault, "cpu", everywhere=True):
        found = judge_operation(CATALOGUE[operation], "cpu", WHOLE)
    assert found.faults


def test_the_oracle_calls_no_kernel_of_these_topics() -> None:
    """What it does call for others is named in docs/verification.md."""
    called: set[str] = set()
    for operation in (*TOPICS["matrices"][:11], *TOPICS["norms"][:3]):
        for case in itertools.islice(cases_of(operation, ("float64",), "cpu", 0), 3):
            names, mode = names_of(), Independent()
            execute(case.inputs(), names)
            with mode:
                execute(case.oracle(), names)
            called |= mode.kernels
    assert called <= {"randint", "full_like", "scalar_tensor", "iota", "addbmm", "_trilinear"}


def test_frequent_operators_have_an_oracle_without_a_decomposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aten, nan = torch.ops.aten, torch.full((2, 3), torch.nan).double()
    x, y, z = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 3), (2, 4), (4, 3)))
    calls: list[tuple[Any, ...]] = [
        (aten.addmm, (x, y, z), {"beta": 0.5, "alpha": 2}, 0.5 * x + 2 * (y @ z)),
        (aten.addmm, (nan, y, z), {"beta": 0}, y @ z),
        (aten.sigmoid_backward, (x, x.sigmoid()), {}, x * x.sigmoid() * (1 - x.sigmoid())),
        (aten.tanh_backward, (x, x.tanh()), {}, x / x.cosh() ** 2),
    ]
    monkeypatch.setattr(Independent, "_decomposed", lambda *_: pytest.fail("decomposed"))
    for function, arguments, options, right in calls:
        with Independent():
            found = function(*arguments, **options)
        torch.testing.assert_close(found, right)


def test_an_accelerator_is_not_judged_by_the_cpus_transforms() -> None:
    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        return right(*args, **kwargs) + 1

    x = torch.randn(6, dtype=torch.complex128)
    expected = torch.from_numpy(np.fft.fft(x.numpy()))
    fault = WrongKernel("one too large", ("_fft_c2c",), wrong)
    with seeded(fault, "cpu", everywhere=True):
        assert not torch.allclose(torch.fft.fft(x), expected)
        with oracle_for("cuda"):
            assert torch.allclose(torch.fft.fft(x), expected)


def test_long_filters_reach_an_image_of_one_place_in_some_window() -> None:
    """Where none does, oneDNN before 3.14 ends the process (pytorch#195394)."""
    operation = CATALOGUE["conv1d of long filters"]
    first = next(iter(assignments_of(operation, DTYPES, 0)))
    for taps, stride, dilation in itertools.product((1, 2, 64, 131), (1, 2), (1, 2)):
        assignment = first | {
            "lengths": {"b": 1, "c": 1, "x": 1, "o": 1, "t": taps},
            "option stride": stride,
            "option dilation": dilation,
        }
        names = names_of() | {name: torch.ones(1, 1, 1) for name in "ac"}
        names |= {"b": torch.ones(1, 1, taps), "c": torch.zeros(1)}
        execute([f"right = {build(operation, assignment, 'cpu').code}"], names)
        assert names["right"].any()


def test_another_seed_has_other_sizes_and_other_crossings() -> None:
    seen = [
        {
            (tuple(one["lengths"].items()), one["memory a"], one["destination"])
            for one in assignments_of(CATALOGUE["mm"], DTYPES, seed)
        }
        for seed in (0, 1, 0)
    ]
    assert seen[0] == seen[2]
    assert len(seen[0] & seen[1]) < len(seen[0]) / 4


def test_torch_decides_where_results_may_go() -> None:
    for code, destinations in (
        ("torch.mm(a, b)", ("", "out")),
        ("torch.add(a, b, alpha={alpha})", ("", "in place", "out")),
        ("torch.cat([a, b], {dim})", ("", "out")),
        ("torch.sum(a, {dim})", ("", "out")),
        # The overload with `out` needs an axis; and these have none that Python reaches.
        ("torch.sum(a)", ("",)),
        ("torch.roll(a, 1)", ("",)),
        ("torch.exp(a * 2)", ("",)),
        ("F.relu(a)", ("",)),
        ("[a, b", ("",)),
    ):
        assert Operation(name="", code=code).destinations == destinations, code


def test_operands_of_two_dtypes_and_of_one_memory_are_crossed() -> None:
    drawn = [
        build(operation, one, "cpu")
        for operation in (CATALOGUE["maximum"], CATALOGUE["cat"])
        for seed in range(3)
        for one in assignments_of(operation, DTYPES, seed)
    ]
    mixed = [case for case in drawn if len({argument.dtype for argument in case.arguments}) > 1]
    assert {case.dtype for case in mixed} >= {"float32"}
    for case in mixed:
        wide = [x for x in case.arguments if x.shape and x.dtype == "float32"]
        assert bool(wide) == (case.dtype == "float32")
        assert list(run_case(case))
    shared = [case for case in drawn if case.interleaved]
    assert any(case.interleaved == ("a", "b") for case in shared)
    names = names_of()
    execute(shared[0].inputs() + shared[0].oracle() + shared[0].sent(), names)
    a, b = names["a"], names["b"]
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def read_as_the_first(right: Any, x: Any, y: Any, *rest: Any) -> Any:
    """Take the second operand to have the strides, or the dtype, of the first."""
    if x.dtype != y.dtype and y.numel():
        y = y.view(x.dtype).flatten()[:1].expand(y.shape)
    elif x.shape == y.shape and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
        y = x
    return right(x, y, *rest)


def test_running_sums_in_16_bits_are_the_cpu_s_and_moves_in_them_are_long() -> None:
    assert CATALOGUE["cumsum"].dtypes_on("cuda", DTYPES) == ("float32", "float64")
    longest = max(
        max(drawn["lengths"].values())
        for seed in range(6)
        for drawn in assignments_of(CATALOGUE["cat of many"], ("float32", "bfloat16"), seed)
        if drawn["dtype"] == "bfloat16" and not drawn["mixed"]
    )
    assert longest > 256


def test_an_operand_without_axes_has_numbers_that_both_dtypes_have() -> None:
    bare = [
        drawn
        for seed in range(160)
        for drawn in assignments_of(CATALOGUE["mul"], ("float32", "bfloat16"), seed)
        if drawn["mixed"] == "b" and not CATALOGUE["mul"].arguments(drawn["rank"])[1][1]
    ]
    assert {drawn["values"] for drawn in bare} == {"eighths"}


@pytest.mark.parametrize("crossing", ["mixed", "operands interleaved"])
def test_a_kernel_that_is_wrong_for_one_crossing_of_operands_is_seen(crossing: str) -> None:
    with seeded(WrongKernel("as the first", ("maximum",), read_as_the_first), "cpu"):
        faults = [
            fault
            for seed in range(8)
            for fault in judge_operation(
                CATALOGUE["maximum"], "cpu", CheckOptions(seeds=(seed,))
            ).faults
        ]
    assert any(crossing in fault for fault in faults)


def pairs_of(assignment: Mapping[str, Any]) -> set[Any]:
    named = [(axis, str(value)) for axis, value in assignment.items()]
    drawn = [one for one in named if one[0] not in {"lengths", "seed", "wide"}]
    return {*itertools.combinations(sorted(drawn), 2)}


def test_a_seed_covers_more_pairs_than_chance_and_each_further_seed_others() -> None:
    operation = CATALOGUE["addmm"]
    covered: set[Any] = set()
    counts = []
    for seed in range(5):
        ones = list(assignments_of(operation, DTYPES, seed))
        covered |= set().union(*map(pairs_of, ones))
        counts.append(len(covered))
    assert counts == sorted(set(counts))
    # Each covers so many of them that four more add a quarter.
    assert counts[4] > 1.25 * counts[0]


@functools.cache
def pairs_drawn(name: str, *, quick: bool) -> set[Any]:
    ones = assignments_of(CATALOGUE[name], DTYPES, 0, quick=quick)
    return set().union(*map(pairs_of, ones))


def share_of_pairs(operations: list[Operation], *families: str, quick: bool = False) -> float:
    """Return the share of all pairs of values of two kinds of axes that the seed 0 draws."""
    drawn, possible = 0, 0
    for operation in operations:
        pairs = pairs_drawn(operation.name, quick=quick)
        axes = {**axes_of(operation, DTYPES), "scale": list(SCALES)}
        chosen = [[a for a in axes if a.split()[0] == family] for family in families]
        for one, other in itertools.product(*chosen):
            values = itertools.product(axes[one], axes[other])
            every = {tuple(sorted([(one, str(x)), (other, str(y))])) for x, y in values}
            drawn, possible = drawn + len(every & pairs), possible + len(every)
    return drawn / possible


@pytest.mark.parametrize(
    ("one", "other", "whole", "quick"),
    [
        ("destination", "scale", 0.6, 0.12),
        ("destination", "memory", 0.65, 0.09),
        ("destination", "dtype", 0.6, 0.12),
        ("absent", "values", 0.8, 0.15),
        ("option", "values", 0.8, 0.15),
        ("option", "scale", 0.6, 0.1),
        ("memory", "dtype", 0.45, 0.06),
    ],
)
def test_a_seed_covers_pairs_of_each_two_kinds_of_axes(
    one: str, other: str, whole: float, quick: float
) -> None:
    some = list(CATALOGUE.values())[::11]
    assert share_of_pairs(some, one, other) > whole
    assert share_of_pairs(some, one, other, quick=True) > quick


@pytest.mark.parametrize("name", ["cumsum", "layer_norm", "add", "sort's values"])
def test_two_calls_of_one_oracle_are_judged_as_those_of_their_own(name: str) -> None:
    ones = list(assignments_of(CATALOGUE[name], DTYPES, 0))
    last: list[Any] = []
    for one in ones[:12]:
        case = build(CATALOGUE[name], one, "cpu")
        own, found = reference_of(case), session._reference_of(case, last)
        assert all(map(same, own.expected, found.expected))
        assert len(own.rights) == len(found.rights)
        assert all(map(same, own.rights, found.rights))
    pairs = zip(ones[:12:2], ones[1:12:2], strict=True)
    assert any(one["memory a"] != other["memory a"] for one, other in pairs)


def same(x: Any, y: Any) -> bool:
    return x is y or bool(torch.equal(x.nan_to_num(), y.nan_to_num()))


def test_an_absent_operand_is_none_and_has_no_gradient() -> None:
    operation = CATALOGUE["layer_norm"]
    drawn = [one for seed in range(2) for one in assignments_of(operation, DTYPES, seed)]
    assert {one["absent"] for one in drawn} == {"", "b", "c", "b c"}
    for one in (one for one in drawn if one["absent"] == "c"):
        case = build(operation, one, "cpu")
        assert ", b, None, " in case.code
        assert [argument.name for argument in case.arguments] == ["a", "b"]

    def ignoring(right: Any, x: Any, shape: Any, *weights_and_eps: Any) -> Any:
        weight, bias, eps = weights_and_eps
        return right(x, shape, None if bias is None else weight, bias, eps)

    with seeded(WrongKernel("weight with the bias", ("native_layer_norm",), ignoring), "cpu"):
        faults = judge_operation(operation, "cpu", WHOLE).faults
    assert faults
    assert all("absent c" in fault for fault in faults)


def test_every_size_class_and_option_is_crossed_within_the_budget() -> None:
    ones = list(assignments_of(CATALOGUE["addmm"], DTYPES, 0))
    assert len(ones) == CATALOGUE["addmm"].cases
    assert {one["size k"] for one in ones} > {"one", "tile", "past a block", "past a grid"}
    more = [*ones, *assignments_of(CATALOGUE["addmm"], DTYPES, 1)]
    assert {(one["option beta"], one["destination"]) for one in more} == {
        (beta, put) for beta in (1, 0, 2) for put in ("", "in place", "out")
    }
    assert {one["gradient"] for one in ones if not one["destination"]} >= {
        "all",
        "a",
        "b",
        "c",
    }


def test_16_bits_are_drawn_on_the_kind_of_device_that_a_record_names() -> None:
    operation = replace(CATALOGUE["exp"], halves="cpu")
    for device in ("cpu", "cuda"):
        drawn = {case.dtype for case in cases_of(operation, DTYPES, device, 0)}
        assert (drawn >= {"float16", "bfloat16"}) == (device == "cpu")
        assert "float32" in drawn


def test_a_record_may_have_no_gradients_in_16_bits() -> None:
    for judged in (True, False):
        operation = replace(CATALOGUE["addmm"], half_backward=judged)
        drawn = list(cases_of(operation, DTYPES, "cpu", 0))
        assert any(case.leaves for case in drawn if case.dtype == "float32")
        assert any(case.leaves for case in drawn if "float16" in case.dtype) == judged


def test_float64_and_operands_of_one_memory_are_drawn_seldom() -> None:
    for name in ("addcmul", "conv2d"):
        drawn = [one for seed in range(8) for one in assignments_of(CATALOGUE[name], DTYPES, seed)]
        few = len(drawn) // 4
        assert 0 < sum(one["dtype"] == "float64" for one in drawn) < few
        assert sum(one["dtype"] == "float32" for one in drawn) > few
        # Of the calls of one oracle all have them, or none.
        oracles = {one["seed"]: bool(one["operands"] or one["mixed"]) for one in drawn}
        assert sum(oracles.values()) < len(oracles) / 3


def test_a_form_of_memory_is_one_that_the_operand_s_rank_has() -> None:
    operation = CATALOGUE["linear"]
    for one in (one for seed in range(4) for one in assignments_of(operation, DTYPES, seed)):
        dims = len(operation.arguments(one["rank"])[0][1])
        assert dims > 2 or one["memory a"] not in {"last", "reversed", "some of the last"}


def test_a_case_prints_a_script_of_torch_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Test_explaining.py starts one in a Python of its own."""
    case = next(iter(cases_of(CATALOGUE["layer_norm"], DTYPES, "cpu", 0)))
    script = tmp_path / "case.py"
    script.write_text(repr(case), encoding="utf-8")
    runpy.run_path(str(script))
    assert "largest difference" in capsys.readouterr().out
    assert "warpfront" not in repr(case)


def off_by_one(right: Any, *args: Any, **kwargs: Any) -> Any:
    found = right(*args, **kwargs)
    return found if found.dtype == torch.float64 else found.add_(1)


def test_a_failure_is_made_small_and_described_and_explained(tmp_path: Path) -> None:
    fault = WrongKernel("one too large", ("mm", "mm.out"), off_by_one)
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    with seeded(fault, "cpu"):
        recorder.run({"mm, cases": partial(find_operation, "mm", "cpu", QUICK)})
    recorder.finish()
    document = json.loads((tmp_path / "operators.json").read_text(encoding="utf-8"))
    (check,) = document["checks"]
    assert check["outcome"] == "failed"
    assert set(check["details"]["case"]["assignment"]["lengths"].values()) == {1}
    report = check["details"]["report"]
    text = "\n".join(report)
    assert 9 <= len(report) <= 25
    for part in (torch.__version__, "call: ", "shape (1, 1)", "right is", "aten.mm"):
        assert part in text
    script = explained(tmp_path / "operators.json", "mm, cases")
    assert script.startswith("# mm: result is wrong on cpu")
    space: dict[str, Any] = {}
    exec(compile(script, "explained", "exec"), space)
    assert space["found"].shape == (1, 1)
    document["checks"][0]["details"]["case"]["assignment"]["lengths"] = {"m": "print(1)"}
    (tmp_path / "operators.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UnexplainedError, match="is no number"):
        explained(tmp_path / "operators.json", "mm, cases")


def test_a_case_that_raises_is_a_fault_and_no_case_at_all_fails() -> None:
    broken = Operation(name="broken", code="torch.nothing_of_the_kind(a)")
    assert not judge_operation(broken, "cpu", QUICK).cases
    finding = finding_of(judge_operation(broken, "cpu", QUICK), broken, "cpu")
    assert finding.outcome == "failed"

    def raises(right: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].dtype != torch.float64:
            raise ValueError("device lost")
        return right(*args, **kwargs)

    with seeded(WrongKernel("raises", ("exp", "exp.out", "exp_"), raises), "cpu"):
        found = find_operation("exp", "cpu", QUICK)
    assert found.outcome == "failed"
    assert "ValueError: device lost" in found.reason


def test_no_case_is_drawn_where_rounding_decides_the_result() -> None:
    for name in ("resized to a size, nearest-exact", "var"):
        operation = CATALOGUE[name]
        drawn = [one for seed in range(20) for one in assignments_of(operation, DTYPES, seed)]
        assert all(in_domain(operation, one) for one in drawn)
        free = replace(operation, domain="")
        drawn = [one for seed in range(20) for one in assignments_of(free, DTYPES, seed)]
        assert not all(in_domain(operation, one) for one in drawn)


def test_sizes_of_a_case_never_fall_below_the_least() -> None:
    for operation in CATALOGUE.values():
        # Where the least is one, a seed has every size that could be less.
        seeds = range(9 if operation.least_size > 1 else 1)
        for one in itertools.chain.from_iterable(
            assignments_of(operation, ("float32",), seed, quick=True) for seed in seeds
        ):
            for name, size in one["lengths"].items():
                usual = operation.usual.get(name, 3)
                assert size >= min(usual, operation.least_of(name)), operation.name
    pool = CATALOGUE["max_pool2d"]
    assert [pool.least_of(name) for name in "bcyx"] == [1, 1, 6, 6]


def test_a_case_that_an_unsafe_defect_of_torch_would_end_is_counted_and_not_run() -> None:
    defect = KnownDefect(
        thread="torch#1", device="cpu", where={"memory a": ("offset",)}, unsafe=True
    )
    operation = Operation(name="unsafe", code="torch.nothing_of_the_kind(a)", definition="a * 2")
    every = judge_operation(operation, "cpu", WHOLE)
    tally = judge_operation(replace(operation, defects=(defect,)), "cpu", WHOLE)
    assert tally.defects["torch#1"] > 0
    # Others are drawn in their place.
    assert tally.cases == every.cases == operation.cases
    elsewhere = replace(defect, device="cuda")
    assert not judge_operation(replace(operation, defects=(elsewhere,)), "cpu", WHOLE).defects
    fixed = replace(defect, before=(2, 0))
    assert not judge_operation(replace(operation, defects=(fixed,)), "cpu", WHOLE).defects


def test_a_case_is_not_made_as_small_as_a_defect_of_torch_needs() -> None:
    defect = KnownDefect(thread="torch#1", device="cpu", sizes="m == 1", unsafe=True)
    operation = Operation(name="wrong", code="a + 1", definition="a + 2", defects=(defect,))
    smallest = []
    for one in (operation, replace(operation, defects=())):
        finding = finding_of(judge_operation(one, "cpu", QUICK), one, "cpu")
        case: Any = finding.details["case"]
        smallest.append(case["assignment"]["lengths"]["m"])
    assert smallest[0] > smallest[1] == 1


def test_the_sizes_of_a_defect_are_lengths_and_not_the_names_of_their_classes() -> None:
    (alone,) = (one for one in defects_of("adaptive_avg_pool2d") if one.sizes)
    small = {"memory a": "reversed", "size x": "usual", "lengths": {"b": 9, "c": 1, "x": 1}}
    assert alone.affects(small, "cuda")
    assert not alone.affects({**small, "lengths": {"b": 9, "c": 1, "x": 2}}, "cuda")
    assert not alone.affects({"memory a": "reversed"}, "cuda")
    _, rows = defects_of("layer_norm")
    two = {"absent": "b", "lengths": {"m": 257, "n": 257, "k": 1}}
    assert rows.affects(two, "cuda")
    assert not rows.affects({"absent": "b", "lengths": {"n": 257, "k": 1}}, "cuda")
    case = next(iter(cases_of(CATALOGUE["layer_norm"], ("float32",), "cpu", 0)))
    assert case.axes["lengths"] == case.lengths != {}


def test_defects_of_misaligned_memory_have_the_sizes_that_they_need() -> None:
    pools = [d for d in defects_of("max_pool1d's indices") if d.sizes == "c == 1"]
    alone = {"memory a": "transposed", "dtype": "float64", "lengths": {"b": 3, "c": 1, "x": 2}}
    assert [d.affects(alone, "cuda") for d in pools] == [True]
    assert not pools[0].affects({**alone, "lengths": {"b": 3, "c": 3, "x": 2}}, "cuda")
    (conv,) = (d for d in defects_of("conv2d of 7") if d.device == "cuda")
    fed = {"layout": "offset", "option stride": 2, "dtype": "float32", "gradient": "b"}
    assert conv.affects({**fed, "lengths": {"o": 128, "b": 2}}, "cuda")
    for other in ({"lengths": {"o": 64, "b": 2}}, {"lengths": {"o": 128, "b": 1}}):
        assert not conv.affects({**fed, **other}, "cuda")


def test_a_defect_of_instructions_is_one_of_processors_that_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (half, amx) = (d for d in defects_of("conv3d of long filters") if d.device == "cpu")
    padded = {"dtype": "float16", "option padding": 1, "option dilation": (2, 1, 2)}
    monkeypatch.setattr(known_defects, "_features", lambda: ("avx512_fp16",))
    assert half.unsafe
    assert half.affects(padded, "cpu")
    for otherwise in ({"dtype": "float32"}, {"option padding": 0}, {"option dilation": 1}):
        assert not half.affects({**padded, **otherwise}, "cpu")
    for flags, affected in ((("avx512f", "amx_bf16"), True), (("avx512f",), False)):
        monkeypatch.setattr(known_defects, "_features", lambda flags=flags: flags)
        assert amx.affects({"dtype": "bfloat16"}, "cpu") == affected
        assert not amx.affects({"dtype": "float32"}, "cpu")


def test_a_filter_that_leaves_another_plan_behind_is_not_run() -> None:
    (plan,) = (d for d in defects_of("conv2d of pixels") if d.device != "cpu")
    last = {"memory b": "some of the last", "lengths": {"c": 1, "o": 2}}
    assert plan.unsafe
    assert plan.affects(last, "cuda")
    assert not plan.affects({**last, "memory b": "last"}, "cuda")
    assert not plan.affects({**last, "lengths": {"c": 2, "o": 2}}, "cuda")


@pytest.mark.parametrize(("wrong", "known"), [("2 of 4", True), ("2 of 6", False)])
def test_nonzero_into_a_square_of_memory_is_a_known_defect(wrong: str, *, known: bool) -> None:
    label = f"result: element [0, 1] is 0, right is 3 ({wrong} are wrong) torch.nonzero(a)"
    defects = defects_of("nonzero")
    assert bool(thread_of(defects, label, "cuda", {"destination": "out"})) == known
    assert not thread_of(defects, label, "cuda", {"destination": ""})


def test_a_block_of_a_case_is_executed_as_one_text() -> None:
    names = names_of()
    execute(["def more(x):", "    return x + 1", "y = more(2)"], names)
    assert names["y"] == 3


def test_what_is_changed_in_place_is_not_expanded() -> None:
    for name in ("add", "cumsum", "addmm"):
        drawn = (o for seed in range(8) for o in assignments_of(CATALOGUE[name], DTYPES, seed))
        changed = [one for one in drawn if one["destination"] == "in place"]
        assert changed
        assert all(one["memory a"] != "expanded" for one in changed), name


def test_a_case_without_a_kernel_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def first_lack(case: Case, **options: Any) -> Any:
        if next(calls) < 4:
            raise LackingError("no kernel")
        return run_case(case, **options)

    monkeypatch.setattr(session, "run_case", first_lack)
    tally = judge_operation(CATALOGUE["exp"], "cpu", QUICK)
    assert (tally.cases, len(tally.lacking), tally.faults) == (3, 4, [])


def test_a_result_past_its_dtype_has_no_judged_gradient() -> None:
    operation = Operation(name="large", code="torch.sum(a * {by})", options={"by": (1, 60000)})
    judged = {}
    for by in operation.options["by"]:
        drawing = Drawing(operation, ("float16",), random.Random(0))
        first = {axis: values[0] for axis, values in drawing.axes.items()}
        chosen = {**first, "dtype": "float16", "values": "ones", "option by": by}
        assignment = drawing.constrained(chosen) | {"seed": 0, "wide": 0}
        judged[by] = [each.name for each in run_case(build(operation, assignment, "cpu"))]
    assert judged[1] == ["result", "gradient of a", "argument a afterwards"]
    assert judged[60000] == ["result", "argument a afterwards"]


def test_a_case_without_a_fault_has_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "warpfront_checks.cases.session._label"
    monkeypatch.setattr(name, lambda _: pytest.fail("a label of no fault"))
    assert not judge_operation(CATALOGUE["abs"], "cpu", QUICK).faults


@pytest.mark.parametrize("words", ["misaligned address", "operation not supported on an address"])
def test_a_context_that_ends_is_one_finding_with_its_case(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[bool] = []

    def raises(right: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].dtype != torch.float64:
            raised.append(True)
            raise torch.AcceleratorError(f"CUDA error: {words}")
        return right(*args, **kwargs)

    monkeypatch.setattr(session, "has_context", lambda _: not raised)
    monkeypatch.setattr(session, "leave_after_this", lambda: None)
    with seeded(WrongKernel("raises", ("exp", "exp.out", "exp_"), raises), "cpu"):
        first = find_operation("exp", "cpu", QUICK)
    assert first.outcome == "failed"
    assert first.reason.startswith("the device's context ended in torch.exp(a)")
    assert len(raised) == 1
    assert find_operation("mm", "cpu", QUICK).outcome == "undetermined"


def test_the_bound_of_a_composition_is_the_largest_of_its_parts() -> None:
    conv, norm = CATALOGUE["conv2d"], CATALOGUE["batch_norm"]
    assert CATALOGUE["conv + relu + max pool"].roundings == conv.roundings > 0
    both = CATALOGUE["conv + batch norm + silu"]
    assert (both.roundings, both.walk) == (conv.roundings, norm.walk)


def test_what_was_not_seen_to_be_right_on_a_device_is_not_claimed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    monkeypatch.setattr(torch.version, "hip", None)
    for device in ("cpu", "cuda"):
        topics = [topic for topic, devices in SEEN_ON.items() if device in devices]
        names = set(claimed_operations(device, recorder))
        among = [one for topic in topics for one in TOPICS[topic]]
        unsafe = {"embedding of limited rows of a slice"} if device == "cuda" else set()
        assert names == {one.name for one in among if device not in one.unseen} - unsafe
    recorder.finish()
    unclaimed = json.loads((tmp_path / "operators.json").read_text())["unclaimed"]
    assert [one["name"] for one in unclaimed if "pytorch#195208" in one["reason"]] == [
        "embedding of limited rows of a slice, cases"
    ]
    on_cuda = set(claimed_operations("cuda", recorder))
    assert on_cuda.isdisjoint({"prod", "prod of all", "cumprod"})
    monkeypatch.setattr(torch.version, "hip", "6.4.1")
    assert claimed_operations("cuda", recorder) == []


@pytest.mark.parametrize(
    ("found", "right", "bound", "fault"),
    [
        ([1.0, 2.0], [1.0, 2.0], Bound(), ""),
        ([1.0, 2.0], [1.0, 2.1], Bound(), "element [1] is 2.0"),
        ([1.0, 2.0], [1.0, 2.1], Bound(slack=0.2), ""),
        ([1.0], [1.0, 2.0], Bound(), "shape (1,), expected (2,)"),
        ([float("nan")], [1.0], Bound(slack=9.0), "element [0] is nan"),
        ([1.0, 5.0, 2.5], [1.0, 2.0, 2.0], Bound(), "element [1] is 5.0"),
        ([1.0 + 2**-20], [1.0], Bound(roundings=16, unit=torch.float32), ""),
        ([1.0 + 2**-18], [1.0], Bound(roundings=16, unit=torch.float32), "element [0]"),
    ],
)
def test_one_judge_compares_with_one_bound(
    found: list[float], right: list[float], bound: Bound, fault: str
) -> None:
    verdict = judge(torch.tensor(found), torch.tensor(right).double(), bound)
    assert verdict.fault.startswith(fault)
    assert bool(verdict.fault) is bool(fault)


def test_names_are_unique_and_each_record_is_complete() -> None:
    assert sum(map(len, TOPICS.values())) == len(CATALOGUE)
    for operation in CATALOGUE.values():
        one = next(iter(assignments_of(operation, ("float32",), 0)))
        assert isinstance(build(operation, one, "cpu"), Case)


@pytest.mark.parametrize(
    ("shape", "drawn"),
    [((2, 3, 5), (2, 1, 1)), ((2, 3, 4), (2, 1, 4)), ((1, 6), (1, 6)), ((7,), (7,)), ((), ())],
)
def test_an_expanded_operand_is_repeated_along_one_axis_or_all_but_one(
    shape: tuple[int, ...], drawn: tuple[int, ...]
) -> None:
    operand = Argument(name="a", shape=shape, drawn=shape, values="small")
    assert laid_out(operand, "expanded").drawn == drawn


@pytest.mark.parametrize(
    ("layout", "shape", "strides"),
    [
        ("last", (2, 3, 4), (12, 1, 3)),
        ("last", (4,), (1,)),
        ("expanded", (2, 1, 4), (4, 0, 1)),
        ("window", (2, 3, 4), (35, 7, 1)),
        ("window", (), ()),
    ],
)
def test_the_gradient_of_a_result_has_forms_of_memory(
    layout: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    fed = torch.rand(shape)
    found = torch.zeros(2, 3, 4) if len(shape) > 1 else torch.zeros(shape)
    names = {"fed": fed, "found": found, "F": torch.nn.functional, "torch": torch}
    laid = eval(fed_as(layout, "fed", "found"), names)
    assert laid.stride() == strides
    assert torch.equal(laid, fed.expand_as(found))


def test_a_gradient_that_is_repeated_is_that_of_the_oracle_too() -> None:
    operation = CATALOGUE["log_softmax"]
    drawn = [build(operation, one, "cpu") for one in assignments_of(operation, DTYPES, 0)]
    repeated = [case for case in drawn if case.layout == "expanded" and case.leaves]
    assert repeated
    fed = [reference_of(case).drawn["fed"].numel() for case in repeated]
    assert fed != [math.prod(case.arguments[0].shape) for case in repeated]
    assert not [each.fault for case in repeated for each in run_case(case) if each.fault]


def test_a_batch_may_have_no_element() -> None:
    operation = CATALOGUE["softplus"]
    empty = [one for one in assignments_of(operation, DTYPES, 0) if 0 in one["lengths"].values()]
    assert len(empty) in {2, 3}
    drawn = [build(operation, one, "cpu") for one in empty]
    assert not [each.fault for case in drawn for each in run_case(case) if each.fault]


def test_a_call_that_refuses_to_have_no_element_lacks_a_kernel() -> None:
    refusing = Operation(name="odd", code="a + 1 // a.numel()", definition="a + 1", shapes="n")
    one = next(assignments_of(refusing, ("float32",), 0)) | {"lengths": {"n": 0}}
    with pytest.raises(LackingError, match="zero"):
        list(run_case(build(refusing, one, "cpu")))


def test_a_long_sum_in_16_bits_leaves_what_they_count() -> None:
    for seed in range(3):
        drawn = assignments_of(CATALOGUE["mm"], DTYPES, seed)
        long = [one for one in drawn if one["lengths"]["k"] > 1024 and "16" in one["dtype"]]
        assert any(one["values"] == "ones" for one in long), seed


def test_a_rounded_sum_in_16_bits_is_long() -> None:
    ones = assignments_of(CATALOGUE["nll_loss of rows"], DTYPES, 0)
    halves = [one for one in ones if "16" in one["dtype"]]
    long = [one for one in halves if max(one["lengths"].values()) > HALF_SIZE]
    assert len(long) >= 2


def _infinite(code: str, count: int = 0) -> list[Verdict]:
    """Judge infinity as the result of a call of 2,000 numbers from 1 to 100 in float16."""
    operation = Operation(name="total", code=code, shapes="n", values=("above",), backward=False)
    one = next(assignments_of(operation, ("float16",), 0))
    one |= {"lengths": {"n": 2000}, "values": "above", "destination": ""}
    infinity = torch.full((count,) if count else (), math.inf, dtype=torch.float16)
    return list(run_case(build(operation, one, "cpu"), function=lambda _: infinity))


def test_infinity_is_wrong_unless_a_step_of_the_call_leaves_the_range() -> None:
    assert "inf" in _infinite("torch.mean(a)")[0].fault
    with pytest.raises(NoOracleError, match="float16"):
        _infinite("torch.sum(a) / {n}")
    # The right result of another is infinite itself.
    assert _infinite("torch.stack([torch.sum(a), torch.sum(a) / {n}])", 2)[0].fault


def test_a_long_sum_in_16_bits_has_a_dtype_that_the_call_names() -> None:
    drawn = [o for seed in range(6) for o in assignments_of(CATALOGUE["sum"], DTYPES, seed)]
    long = [one for one in drawn if "16" in one["dtype"] and max(one["lengths"].values()) > 1024]
    assert {one["mixed"] for one in long if one["values"] == "ones"} == {"", "dtype"}


def test_all_operands_of_some_calls_have_channels_last() -> None:
    drawn = [o for seed in range(4) for o in assignments_of(CATALOGUE["conv2d"], DTYPES, seed)]
    formatted = [
        one for one in drawn if one["memory a"] == one["memory b"] == one["layout"] == "last"
    ]
    assert len(formatted) > len(drawn) / 12


def test_weights_learn_without_the_input() -> None:
    def first_layer(right: Any, grad: Any, x: Any, *rest: Any) -> Any:
        results = right(grad, x, *rest)
        alone = list(rest[-1]) == [False, True, True] and x.dtype != torch.float64
        return (results[0], results[1], results[2] * 2) if alone else results

    fault = WrongKernel("first_layer", ("convolution_backward",), first_layer)
    faults = [list(operation_faults(fault, "cpu", "conv2d", str(seed))) for seed in range(3)]
    assert any(faults)


def test_equal_terms_of_a_gradient_may_round_to_one_side() -> None:
    operation, count = CATALOGUE["grid_sample, bicubic"], 65_901
    one = next(assignments_of(operation, ("float32",), 0)) | {"gradient": "a", "rank": 0}
    one["lengths"] = {"b": 1, "c": 1, "y": 2, "x": 1, "p": 1, "q": count}
    one |= dict.fromkeys(("memory a", "memory b"), "contiguous")
    apart, alike = (
        build(operation, {**one, "layout": layout}, "cpu").roundings
        for layout in ("contiguous", "expanded")
    )
    assert apart < count / 4 < alike


def test_no_place_in_16_bits_is_rounded_into_another_pixel() -> None:
    for name in ("grid_sample, bilinear", "grid_sample of volumes, bilinear"):
        drawn = (o for s in range(3) for o in assignments_of(CATALOGUE[name], DTYPES, s))
        halves = [one for one in drawn if "16" in one["dtype"]]
        assert halves
        assert all(one["lengths"].get(axis, 0) <= 31 for one in halves for axis in "xyz"), name


def test_most_calls_share_the_oracle_of_the_call_before() -> None:
    for name in ("norm of 2", "bitwise_and", "add"):
        operation = CATALOGUE[name]
        drawn = [build(operation, one, "cpu") for one in assignments_of(operation, DTYPES, 1)]
        pairs = itertools.pairwise(drawn)
        shared = sum(one.statements() == other.statements() for one, other in pairs)
        assert shared > 0.4 * len(drawn), name


@pytest.mark.parametrize("name", ["topk's values", "kthvalue"])
def test_a_selection_is_judged_by_another_one_on_the_cpu(name: str) -> None:
    """Its own kernel would be the oracle of whole numbers."""

    def signed(right: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.is_floating_point():
            return right(x, *args, **kwargs)
        values, places = right(-x.double(), *args, **kwargs)
        return -values.to(x.dtype), places

    overloads = ("topk", "topk.values") if "topk" in name else ("kthvalue", "kthvalue.values")
    with seeded(WrongKernel(name, overloads, signed), "cpu"):
        assert judge_operation(CATALOGUE[name], "cpu", WHOLE).faults
