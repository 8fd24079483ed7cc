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
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.oracle import oracle_for
from warpfront_checks.operators.verdicts import lacks_kernel

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
Oracle = AbstractContextManager[object]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One compared tensor of a case: its name, and the verdict."""

    name: str
    verdict: Verdict

    @classmethod
    def raised(cls, error: Exception) -> Judged:
        """Return an exception of the judged call as a fault."""
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        fault = f"{type(error).__name__}: {first}"
        return cls(name="raised", verdict=Verdict(fault=fault, share=1e300))


# In words: a refusal of a memory format is loud, and no wrong number.
LAYOUT_REFUSED = re.compile(r"memory format|(must|has to|should) be contiguous", re.IGNORECASE)


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
    """Compare each output and gradient of a case, then each argument with what it was before.

    `oracle` is entered while the reference computes (`oracle_for` the device if not given). Raises
    `NoOracleError`, `LackingError`, and whatever the judged call raises.
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
        right, rights = listed(names["right"]), list(names.get("rights", ()))
        for name, x in before.items():
            names[name] = x
        execute(case.sent(), names)
        try:
            execute(case.call(), names)
        except (RuntimeError, NotImplementedError) as error:
            if lacks_kernel(error) or LAYOUT_REFUSED.search(str(error)):
                raise LackingError(str(error).strip().splitlines()[0]) from error
            raise
    found, gradients = listed(names["found"]), list(names.get("gradients", ()))
    yield from _outputs(case, found, right)
    for leaf, mine, its in zip(case.leaves, gradients, rights, strict=True):
        none = torch.zeros(leaf.shape, dtype=torch.float64)
        pair = [none if x is None else x for x in (mine, its)]
        yield Judged(name=f"gradient of {leaf.name}", verdict=_judged(case, *pair))
    changed = {"a"} if case.destination == "in place" or case.changes else set()
    for argument in case.arguments:
        if argument.name not in changed:
            after = judge(names[argument.name], before[argument.name], Bound())
            yield Judged(name=f"argument {argument.name} afterwards", verdict=after)


def _outputs(case: Case, found: list[Tensor], right: list[Tensor]) -> Iterator[Judged]:
    if len(found) != len(right):
        fault = f"{len(found)} results, expected {len(right)}"
        yield Judged(name="results", verdict=Verdict(fault=fault, share=1e300))
        return
    if case.destination == "in place":
        right = [x if x.is_floating_point() else x.double() for x in right]
    for place, (mine, its) in enumerate(zip(found, right, strict=True)):
        name = f"result {place}" if len(found) > 1 else "result"
        if fault := _form(case, mine, its):
            yield Judged(name=name, verdict=Verdict(fault=fault, share=1e300))
        else:
            yield Judged(name=name, verdict=_judged(case, mine, its))


def _form(case: Case, mine: Tensor, its: Tensor) -> str:
    """Return how a result is of another device or dtype than it should be, or nothing."""
    if mine.device.type != case.device:
        return f"on {mine.device.type}, expected on {case.device}"
    kind = getattr(torch, case.dtype) if its.dtype == torch.float64 else its.dtype
    fixed = f"torch.{its.dtype}".removeprefix("torch.") in case.code or "dtype=" in case.code
    return "" if mine.dtype == kind or fixed else f"{mine.dtype}, expected {kind}"


def _judged(case: Case, found: Tensor, right: Tensor) -> Verdict:
    unit = getattr(torch, case.dtype)
    bound = Bound(ulps=case.ulps, roundings=case.roundings, least=case.least, unit=unit)
    return judge(found, right.detach(), bound)


def listed(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return list(found.values() if isinstance(found, Mapping) else found)
