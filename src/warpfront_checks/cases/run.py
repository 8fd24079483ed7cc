"""Run one case: the oracle on the CPU, the call on the device, and their comparison."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.cases.case import COMPLEX, Case
from warpfront_checks.cases.oracle import oracle_for
from warpfront_checks.operators.verdicts import lacks_kernel

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


def run_case(case: Case, oracle: Oracle | None = None) -> Iterator[Judged]:
    """Compare each output and gradient of a case, then each argument with its value before the
    call. `oracle` is entered while the reference computes (default: `oracle_for` the device).
    Raises `NoOracleError`, `LackingError`, and any error of the judged call.
    """
    oracle = oracle or oracle_for(case.device)
    names = names_of()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(case.inputs(), names)
        before = {argument.name: names[argument.name].clone() for argument in case.arguments}
        try:
            with oracle:
                execute(case.oracle(), names)
        except REFUSALS as error:
            raise NoOracleError(f"{type(error).__name__}: {error}") from error
        expected, rights = listed(names["right"]), list(names.get("rights", ()))
        for name, x in before.items():
            names[name] = x
        execute(case.sent(), names)
        try:
            execute(case.call(), names)
        except (RuntimeError, NotImplementedError) as error:
            if lacks_kernel(error) or REFUSED.search(str(error)):
                raise LackingError(str(error).strip().splitlines()[0]) from error
            raise
    actual, gradients = listed(names["found"]), list(names.get("gradients", ()))
    yield from _outputs(case, actual, expected)
    for leaf, mine, reference in zip(case.leaves, gradients, rights, strict=True):
        none = torch.zeros(leaf.shape, dtype=torch.float64)
        pair = [none if x is None else x for x in (mine, reference)]
        yield Judged(name=f"gradient of {leaf.name}", verdict=_judged(case, *pair))
    changed = {"a"} if case.destination == "in place" or case.changes else set()
    for argument in case.arguments:
        if argument.name not in changed:
            after = judge(names[argument.name], before[argument.name], Bound())
            yield Judged(name=f"argument {argument.name} afterwards", verdict=after)


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
        if fault := _form(case, mine, reference):
            yield Judged(name=name, verdict=Verdict(fault=fault, share=1e300))
        else:
            yield Judged(name=name, verdict=_judged(case, mine, reference))


def _form(case: Case, mine: Tensor, expected: Tensor) -> str:
    """Return how a result is of another device or dtype than it should be, or nothing."""
    if mine.device.type != case.device:
        return f"on {mine.device.type}, expected on {case.device}"
    wide = str(expected.dtype).removeprefix("torch.")
    kind = getattr(torch, case.narrowed.get(wide, wide))
    fixed = f"torch.{wide}" in case.code or "dtype=" in case.code
    return "" if mine.dtype == kind or fixed else f"{mine.dtype}, expected {kind}"


def _judged(case: Case, actual: Tensor, expected: Tensor) -> Verdict:
    unit = getattr(torch, COMPLEX.get(case.dtype, case.dtype))
    bound = Bound(ulps=case.ulps, roundings=case.roundings, least=case.least, unit=unit)
    if case.relative:
        slack = case.roundings * case.least * torch.finfo(unit).eps
        bound = Bound(ulps=case.ulps, slack=slack)
    return judge(actual, expected.detach(), bound)


def listed(actual: Any) -> list[Tensor]:
    if isinstance(actual, Tensor):
        return [actual]
    return list(actual.values() if isinstance(actual, Mapping) else actual)
