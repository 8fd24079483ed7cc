"""Run one case: the oracle on the CPU, the call on the device, and their comparison."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.cases.case import COMPLEX, Case
from warpfront_checks.cases.oracle import oracle_for

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
Oracle = AbstractContextManager[object]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A compared tensor of a case: its name, and the verdict."""

    name: str
    verdict: Verdict

    @classmethod
    def raised(cls, error: Exception) -> Judged:
        """Return an exception of the judged call as a fault."""
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        fault = f"{type(error).__name__}: {first}"
        return cls(name="raised", verdict=Verdict(fault=fault, share=1e300))


# In words: a refusal of a memory format, or of a size for want of a block's memory, is loud, and no
# wrong number.
REFUSED = re.compile(r"memory format|(must|has to|should) be contiguous|shared ?mem", re.IGNORECASE)


def execute(lines: list[str], names: dict[str, Any]) -> None:
    """Execute statements of a case among its names."""
    exec("\n".join(lines), names)  # noqa: S102 - statements of the catalogue


def names_of() -> dict[str, Any]:
    """Return the names that a script begins with."""
    return {"torch": torch, "F": torch.nn.functional, "math": math}


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


def lacks_kernel(error: Exception) -> bool:
    """Return whether an error means that torch has no kernel for a dtype or a device, not
    that one broke.
    """
    text = str(error)
    return isinstance(error, NotImplementedError) or any(
        phrase in text
        for phrase in (
            "not implemented for",
            "not supported",
            "Unsupported",
            "mismatch in dtype",
            "Tensors of supported devices",  # fused optimizers
            "missing kernel for",  # DispatchStub, of a device that registers itself
        )
    )


def run_case(
    case: Case, oracle: Oracle | None = None, function: Callable[..., Any] | None = None
) -> Iterator[Judged]:
    """Compare each output and gradient of a case, then each argument with its value before the
    call. `oracle` is entered while the reference computes (default: `oracle_for` the device).
    `function` of the arguments is judged in the place of the case's own call.
    Raises `NoOracleError`, `LackingError`, and any error of the judged call.
    """
    names: dict[str, Any] = names_of()
    expected, rights, actual, gradients = results_of(case, oracle, function, names)
    yield from compared(case, actual, gradients, expected, rights)
    changed = {"a"} if case.destination == "in place" or case.changes else set()
    for argument in case.arguments:
        if argument.name not in changed:
            after = judge(names[argument.name], names["before"][argument.name], Bound())
            yield Judged(name=f"argument {argument.name} afterwards", verdict=after)


Results = tuple[list[Tensor], list[Any], list[Tensor], list[Any]]


def results_of(
    case: Case,
    oracle: Oracle | None = None,
    function: Callable[..., Any] | None = None,
    names: dict[str, Any] | None = None,
) -> Results:
    """Return expected results and gradients, then the actual ones. Arguments remain in `names`,
    and as they were, in its `before`.
    """
    names = names_of() if names is None else names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(case.inputs(), names)
        before = {argument.name: names[argument.name].clone() for argument in case.arguments}
        try:
            with oracle or oracle_for(case.device):
                execute(case.oracle(), names)
        except REFUSALS as error:
            raise NoOracleError(f"{type(error).__name__}: {error}") from error
        expected, rights = listed(names["right"]), list(names.get("rights", ()))
        if case.destination == "in place" and expected[0].shape != names["a"].shape:
            raise NoOracleError("the result has another shape than the argument that it changes")
        names |= {**before, "before": before}
        execute(case.sent(), names)
        call = case
        if function is not None:
            names["function"] = function
            arguments = ", ".join(argument.name for argument in case.arguments)
            call = replace(case, code=f"function({arguments})")
        try:
            execute(call.call(), names)
        except (RuntimeError, NotImplementedError) as error:
            if lacks_kernel(error) or REFUSED.search(str(error)):
                raise LackingError(str(error).strip().splitlines()[0]) from error
            raise
    return expected, rights, listed(names["found"]), list(names.get("gradients", ()))


def compared(
    case: Case,
    actual: list[Tensor],
    gradients: list[Any],
    expected: list[Tensor],
    rights: list[Any],
) -> Iterator[Judged]:
    """Compare results and gradients with the expected ones."""
    yield from _outputs(case, actual, expected)
    for leaf, mine, reference in zip(case.leaves, gradients, rights, strict=True):
        none = torch.zeros(leaf.shape, dtype=torch.float64)
        pair = [none if x is None else x for x in (mine, reference)]
        both = mine is not None and reference is not None
        fault = _form(case, mine, reference, "") if both else ""
        verdict = Verdict(fault=fault, share=1e300) if fault else _judged(case, *pair)
        yield Judged(name=f"gradient of {leaf.name}", verdict=verdict)


def _outputs(case: Case, actual: list[Tensor], expected: list[Tensor]) -> Iterator[Judged]:
    if len(actual) != len(expected):
        fault = f"{len(actual)} results, expected {len(expected)}"
        yield Judged(name="results", verdict=Verdict(fault=fault, share=1e300))
        return
    if case.destination == "in place":
        kind = getattr(torch, case.dtype)
        wide = torch.float64 if kind.is_floating_point else kind
        expected = [x if x.is_floating_point() or x.is_complex() else x.to(wide) for x in expected]
    for place, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
        name = f"result {place}" if len(actual) > 1 else "result"
        if fault := _form(case, mine, reference, case.code):
            yield Judged(name=name, verdict=Verdict(fault=fault, share=1e300))
        else:
            yield Judged(name=name, verdict=_judged(case, mine, reference))


def _form(case: Case, mine: Tensor, expected: Tensor, code: str) -> str:
    """Return how a result is of another device or dtype than it should be, or nothing. A dtype
    that the code names is the result's.
    """
    if mine.device.type != case.device:
        return f"on {mine.device.type}, expected on {case.device}"
    wide = str(expected.dtype).removeprefix("torch.")
    kind = getattr(torch, case.narrowed.get(wide, wide))
    kind = expected.dtype if f"torch.{wide}" in code else kind
    return "" if mine.dtype == kind else f"{mine.dtype}, expected {kind}"


def bound_of(case: Case) -> Bound:
    """Return the bound of every result and gradient of a case."""
    unit = getattr(torch, COMPLEX.get(case.dtype, case.dtype))
    if case.relative:
        slack = case.roundings * case.least * torch.finfo(unit).eps
        return Bound(ulps=case.ulps, slack=slack)
    return Bound(ulps=case.ulps, roundings=case.roundings, least=case.least, unit=unit)


def _judged(case: Case, actual: Tensor, expected: Tensor) -> Verdict:
    return judge(actual, expected.detach(), bound_of(case))


def listed(actual: Any) -> list[Tensor]:
    if isinstance(actual, Tensor):
        return [actual]
    return list(actual.values() if isinstance(actual, Mapping) else actual)
