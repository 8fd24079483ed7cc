"""Run one case: the oracle on the CPU, the call on the device, and their comparison."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge, numbers_of
from warpfront_checks.cases.case import COMPLEX, Case
from warpfront_checks.cases.oracle import oracle_for
from warpfront_checks.cases.rounding import (
    LargestStep,
    RoundedSteps,
    differentiable,
    disturbed,
    rms_of,
)
from warpfront_checks.executing import converted, on_cpu, tensors_in

REFUSALS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
Oracle = AbstractContextManager[object]
# One draw may by chance leave a result of few numbers where it was. After two none moves it so many
# times as far.
DRAWS, FAR = 8, 8.0
# The dtype of these roundings: kernels for 16 bits add up in it, and float64 has no room below it.
# A share of one is drawn, whose effect is that much smaller but where it decides: it is not to.
DRAWN, SHARE, DECISION = torch.float32, 2.0**-16, 2.0**-12

# Of no kernel; also of fused optimizers, and of a device that registers itself.
LACKING = re.compile(
    "not implemented for|not supported|Unsupported|mismatch in dtype|Tensors of supported devices"
    "|missing kernel for"
)
# In words: a refusal of a memory format, or of a size for want of a block's memory, is loud, and no
# wrong number.
REFUSED = re.compile(r"memory format|(must|has to|should) be contiguous|shared ?mem", re.IGNORECASE)
# torch's class for an error of the device's runtime (2.8): a kernel has run, whatever the words.
RUNTIME_ERROR = "AcceleratorError"


def execute(lines: Sequence[str], names: dict[str, Any]) -> None:
    """Execute statements of a case among its names. A block of more than a line is one text."""
    text = "\n".join(lines)
    for statement in [text] if "\n " in text else lines:
        exec(_compiled(statement), names)  # noqa: S102 - statements of the catalogue


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Any:
    return compile(text, "<case>", "exec")


def names_of(case: Case | None = None) -> dict[str, Any]:
    """Return the names that a script begins with, and what a case's own first statements make."""
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": math}
    if case is not None:
        names |= case.made
        if not case.made:
            execute(case.setup, names)
    return names


class NoOracleError(Exception):
    """The reference refuses a case; such a crossing is no call."""


class LackingError(Exception):
    """The device has no such kernel, or none for this layout."""


class ContextEndedError(Exception):
    """The device computes nothing more for this process; the message names the case."""


def has_context(device: str) -> bool:
    """Return whether the device still computes for this process, after an error."""
    try:
        return int(torch.ones(2, device=device).sum()) == 2
    except RuntimeError:
        return False


def refuses(error: Exception) -> bool:
    refused = REFUSED.search(str(error)) and type(error).__name__ != RUNTIME_ERROR
    return bool(refused) or lacks_kernel(error)


def lacks_kernel(error: Exception) -> bool:
    """Return whether an error means a missing kernel for a dtype or device, not a broken one."""
    lacking = LACKING.search(str(error)) and type(error).__name__ != RUNTIME_ERROR
    return bool(lacking) or isinstance(error, NotImplementedError)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The exact results and gradients of a case. `drawn` has the numbers of its arguments, the
    gradient that is `fed` back, and the results as they were returned (`right`). `changed` are the
    arguments that the call is to change.
    """

    expected: list[Tensor]
    rights: list[Any]
    drawn: Mapping[str, Any]
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class CaseResults:
    """Results and gradients of a case's call, its arguments `after` it, and the reference."""

    case: Case
    reference: Reference
    actual: list[Tensor]
    gradients: list[Any]
    after: Mapping[str, Tensor]

    @cached_property
    def copies(self) -> Mapping[int, Tensor]:
        """Return the tensors on the CPU, by their identity: the device's work is awaited once."""
        tensors = [*self.actual, *tensors_in(self.gradients), *self.after.values()]
        return dict(zip(map(id, tensors), on_cpu(tensors), strict=True))


class Bounds:
    """Bounds of a record, for each result and gradient, and `of_arguments` that it leaves."""

    of_arguments = Bound()

    def __init__(self, case: Case, reference: Reference) -> None:
        self.case, self.reference = case, reference
        self._drawn: list[Sequence[Any]] = []

    def fault_of_form(self, place: int, actual: Tensor, expected: Tensor) -> str:
        """Return how a result is of another device or dtype than it should be, or nothing. A dtype
        that the code names is the result's. Gradients have the places after the results.
        """
        code = self.case.code if place < len(self.reference.expected) else ""
        if self.case.device not in {actual.device.type, str(actual.device)}:
            return f"on {actual.device}, expected on {self.case.device}"
        wide = str(expected.dtype).removeprefix("torch.")
        kind = getattr(torch, self.case.narrowed.get(wide, wide))
        kind = expected.dtype if f"torch.{wide}" in code else kind
        return "" if actual.dtype == kind else f"{actual.dtype}, expected {kind}"

    def judge(self, place: int, actual: Tensor, expected: Tensor) -> Verdict:
        """Return the verdict on one result by the record's bound, eased where terms cancel. Raises
        `NoOracleError` for infinity where a step of the call itself leaves the range of the dtype.
        """
        case, bound = self.case, bound_of(self.case)
        verdict = judge(actual, expected, bound)
        infinite = bool(verdict.fault) and bool(actual.isinf().any())
        # Where a result itself leaves the range, other infinities are wrong all the same.
        overflow = infinite and not _overflows(expected, actual.dtype)
        if overflow and self._leaves_range(actual.dtype):
            raise NoOracleError(f"a step of it is no number of {actual.dtype}")
        if not (verdict.fault and case.summed and differentiable(actual)) or case.relative:
            return verdict
        exact, change = numbers_of(expected), torch.zeros(())
        for draw in range(DRAWS if actual.shape == expected.shape else 0):
            change = change.maximum(self._effect(draw, place, exact))
            slack = (case.roundings * (rms_of(change) + change)).maximum(bound.allowed(exact))
            verdict = judge(actual, expected, Bound(ulps=case.ulps, slack=slack))
            if not verdict.fault or (draw and verdict.share > FAR):
                break
        return verdict

    def _leaves_range(self, dtype: torch.dtype) -> bool:
        """Return whether a step of the reference is too large a number for a dtype.

        A composed call, such as cross entropy with smoothed labels, stores sums in its dtype.
        """
        mode = LargestStep()
        self.again(oracle_for(self.case.device), mode)
        return mode.largest > float(torch.finfo(dtype).max)

    def _effect(self, draw: int, place: int, exact: Tensor) -> Tensor:
        """Return how far a result moves where operands and each step are off by a rounding."""
        while len(self._drawn) <= draw:
            self._drawn.append(self._rounded_again(len(self._drawn)))
        moved = self._drawn[draw][place] if self._drawn[draw] else None
        apart = torch.zeros_like(exact) if moved is None else (numbers_of(moved) - exact).abs()
        kind = getattr(torch, COMPLEX.get(self.case.dtype, self.case.dtype))
        unit = min(1.0, torch.finfo(kind).eps / torch.finfo(DRAWN).eps)
        most = float(exact.abs().max()) if exact.numel() else 0.0
        decided = ~(apart <= DECISION * (self.case.least + most))
        return torch.where(decided, 0.0, apart) * (unit / SHARE)

    def _rounded_again(self, draw: int) -> Sequence[Any]:
        """Return results and gradients of operands and steps that are off by a rounding."""
        seed = self.case.seed + draw
        generator = torch.Generator().manual_seed(seed)
        move = partial(disturbed, dtype=DRAWN, generator=generator, integers=True, share=SHARE)
        modes = oracle_for(self.case.device), RoundedSteps(DRAWN, seed, SHARE)
        return self.again(*modes, move=move)

    def again(self, *modes: Oracle, move: Callable[[Tensor], Tensor] = lambda x: x) -> list[Any]:
        """Return the reference's results and gradients, run again; nothing where it refuses."""
        names = results_again(self.case, self.reference, self.case.again(), *modes, move=move)
        return [*listed(names["right"]), *names.get("rights", ())] if names else []

    def verdict(
        self, name: str, place: int, actual: Tensor, copy: Tensor, expected: Tensor
    ) -> Verdict:
        """Return the verdict on a result's form, then on the numbers of its copy on the CPU."""
        if fault := self.fault_of_form(place, actual, expected):
            return Verdict.failed(name, fault)
        return replace(self.judge(place, copy, expected.detach()), name=name)


def run_case(
    case: Case,
    oracle: Oracle | None = None,
    function: Callable[..., Any] | None = None,
    *,
    reference: Reference | None = None,
    bounds: Callable[[Case, Reference], Bounds] = Bounds,
) -> Iterator[Verdict]:
    """Compare each output and gradient of a case, then each argument with its value before the
    call. `oracle` is entered while the reference computes (default: `oracle_for` the device).
    `function` of the arguments is judged in the place of the case's own call. A `reference` is that
    of a case with the same statements for it.
    Raises `NoOracleError`, `LackingError`, and any error of the judged call.
    """
    reference = reference or reference_of(case, oracle)
    results, limits = results_of(case, reference, function), bounds(case, reference)
    yield from compared(results, limits)
    changed = {"a"} if case.destination == "in place" else set()
    for name, x in results.after.items():
        if name not in {*changed, *reference.changed}:
            after = judge(results.copies[id(x)], reference.drawn[name], limits.of_arguments)
            yield replace(after, name=f"argument {name} afterwards")


def reference_of(case: Case, oracle: Oracle | None = None) -> Reference:
    """Return the exact results of a case. Raises `NoOracleError`."""
    names = names_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            execute(case.inputs(), names)
            inputs = {argument.name: names[argument.name].clone() for argument in case.arguments}
            with oracle or oracle_for(case.device):
                execute(case.oracle(), names)
        except REFUSALS as error:
            raise NoOracleError(f"{type(error).__name__}: {error}") from error
    expected = listed(names["right"])
    if case.destination == "in place" and expected[0].shape != names["a"].shape:
        raise NoOracleError("the result has another shape than the argument that it changes")
    changed = frozenset(name for name, x in inputs.items() if not equal_numbers(x, names[name]))
    inputs |= {name: names[name] for name in ("right", "fed") if name in names}
    rights = list(names.get("rights", ()))
    return Reference(expected=expected, rights=rights, drawn=inputs, changed=changed)


def results_again(
    case: Case,
    reference: Reference,
    lines: Sequence[str],
    *modes: AbstractContextManager[object],
    move: Callable[[Tensor], Tensor] = lambda x: x,
) -> dict[str, Any]:
    """Return the names after statements of a case with its drawn numbers, which may be moved;
    nothing where they are refused.
    """
    names = names_of(case)
    for name, x in reference.drawn.items():
        names[name] = converted(x, lambda each: move(each.detach().clone()))
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in modes:
            stack.enter_context(mode)
        try:
            execute(lines, names)
        except REFUSALS:
            return {}
    return names


def reference_again(case: Case, other: Case, reference: Reference) -> Reference | None:
    """Return the reference of another case for one that has the same oracle, or nothing."""
    names = [leaf.name for leaf in other.leaves]
    leaves = [leaf.name for leaf in case.leaves]
    changed = case.destination == "in place"
    if changed and reference.expected[0].shape != reference.drawn["a"].shape:
        return None
    if case.statements() != other.statements() or not {*leaves} <= {*names}:
        return None
    rights = [reference.rights[names.index(name)] for name in leaves]
    # Without the others it may have no gradient at all, which no call computes.
    unused = any(right is None for right in rights) and len(leaves) < len(names)
    return None if unused else replace(reference, rights=rights)


def results_of(
    case: Case, reference: Reference, function: Callable[..., Any] | None = None
) -> CaseResults:
    """Return the results of a case's call. Raises `LackingError`, and any error of the call."""
    names = {**names_of(case), **reference.drawn}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(case.sent(), names)
        call = case
        if function is not None:
            names["function"] = function
            arguments = ", ".join(argument.name for argument in case.arguments)
            call = replace(case, code=f"function({arguments})")
        try:
            execute(call.call(), names)
        except REFUSALS as error:
            # Without any number a refusal is loud, too.
            empty = not all(math.prod(argument.shape) for argument in case.arguments)
            if empty or (isinstance(error, RuntimeError) and refuses(error)):
                raise LackingError(str(error).strip().splitlines()[0]) from error
            raise
    return CaseResults(
        case=case,
        reference=reference,
        actual=listed(names["found"]),
        gradients=list(names.get("gradients", ())),
        after={argument.name: names[argument.name] for argument in case.arguments},
    )


def compared(results: CaseResults, bounds: Bounds) -> Iterator[Verdict]:
    """Compare results and gradients with the expected ones."""
    case, expected = results.case, results.reference.expected
    if len(results.actual) != len(expected):
        fault = f"{len(results.actual)} results, expected {len(expected)}"
        yield Verdict.failed("results", fault)
        return
    if case.destination == "in place":
        kind = getattr(torch, case.dtype)
        wide = torch.float64 if kind.is_floating_point else kind
        expected = [x if x.is_floating_point() or x.is_complex() else x.to(wide) for x in expected]
    for place, (mine, exact) in enumerate(zip(results.actual, expected, strict=True)):
        name = f"result {place}" if len(expected) > 1 else "result"
        yield bounds.verdict(name, place, mine, results.copies[id(mine)], exact)
    if case.leaves and any(
        _overflows(x, mine.dtype) for x, mine in zip(expected, results.actual, strict=True)
    ):
        return
    pairs = zip(case.leaves, results.gradients, results.reference.rights, strict=True)
    for place, (leaf, mine, exact) in enumerate(pairs, len(expected)):
        name = f"gradient of {leaf.name}"
        if mine is None or exact is None:
            # No gradient is one of zeros.
            none = torch.zeros(leaf.shape, dtype=torch.float64)
            pair = [none if x is None else x.detach() for x in (mine, exact)]
            yield replace(bounds.judge(place, *pair), name=name)
        else:
            yield bounds.verdict(name, place, mine, results.copies[id(mine)], exact)


def _overflows(exact: Tensor, dtype: torch.dtype) -> bool:
    """Return whether a finite result is infinite in the judged dtype, where it has no slope."""
    if not (dtype.is_floating_point and exact.is_floating_point() and exact.numel()):
        return False
    most, (low, high) = torch.finfo(dtype).max, torch.aminmax(exact.detach())
    if -most <= low and high <= most:
        return False
    return bool((exact.isfinite() & (exact.abs() > most)).any())


def equal_numbers(x: Tensor, y: Tensor) -> bool:
    """Return whether two tensors have the same numbers; NaN is equal to itself."""
    if x.layout != torch.strided or torch.equal(x, y):
        return True
    return x.shape == y.shape and bool(((x == y) | (x.isnan() & y.isnan())).all())


def bound_of(case: Case) -> Bound:
    """Return the bound of every result and gradient of a case."""
    unit = getattr(torch, COMPLEX.get(case.dtype, case.dtype))
    if case.relative:
        slack = case.roundings * case.least * torch.finfo(unit).eps
        return Bound(ulps=case.ulps, slack=slack)
    return Bound(ulps=case.ulps, roundings=case.roundings, least=case.least, unit=unit)


def listed(actual: Any) -> list[Tensor]:
    if isinstance(actual, Tensor):
        return [actual]
    return list(actual.values() if isinstance(actual, Mapping) else actual)
