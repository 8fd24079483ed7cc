"""Deliberate faults: the errors of faulty devices in a tensor, and the ledger of the caught ones.

A fault that cannot be told from a correct result is declared in `exemptions.json` with its reason,
and counted; everything else that is seeded has to be caught.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.run import Bounds, CaseResults, compared
from warpfront_checks.check_options import STRICT
from warpfront_checks.results import CheckFinding, failed, passed
from warpfront_checks.tolerance_profiles import counted

EXEMPTIONS = Path(__file__).with_name("exemptions.json")
UNCHANGED = "it changes nothing here (zeros, one element, integers, or below the dtype's rounding)"
SHOWN = 200
Mutate = Callable[[Tensor], Tensor]


def _scaled(factor: float) -> Mutate:
    return lambda tensor: (tensor * factor).to(tensor.dtype)


def stale_lanes(tensor: Tensor, half: int = 32) -> Tensor:
    """The second half of every wavefront repeats the first: what a kernel written for warps of 32
    does on 64.
    """
    flat = tensor.flatten().clone()
    lanes = torch.arange(flat.numel(), device=flat.device)
    stale = lanes % (2 * half) >= half
    return flat[torch.where(stale, lanes - half, lanes)].reshape(tensor.shape)


def _one_element(tensor: Tensor) -> Tensor:
    """Change one element by a fifth of the root mean square, or the last bit of an integer."""
    wrong = tensor.clone().flatten()
    if not wrong.numel():
        return tensor
    middle = wrong.numel() // 2
    if tensor.dtype == torch.bool:
        wrong[middle] = ~wrong[middle]
    elif tensor.is_floating_point() or tensor.is_complex():
        values = tensor.detach()
        finite = torch.where(values.isfinite(), values, torch.zeros_like(values))
        size = finite.abs().double().square().mean().sqrt()
        wrong[middle] += (0.2 * size).to(tensor.dtype)
    else:
        wrong.view(torch.uint8)[middle * wrong.element_size()] ^= 1
    return wrong.reshape(tensor.shape)


def _one_row_negated(tensor: Tensor) -> Tensor:
    """The row with the largest numbers changes its sign; a truth value is denied."""
    if not tensor.numel():
        return tensor
    if tensor.dtype == torch.bool:
        return ~tensor
    signed = tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()
    if not tensor.dim():
        return (-signed).to(tensor.dtype)
    wrong = signed.clone()
    row = int(signed.abs().double().reshape(len(tensor), -1).sum(1).argmax())
    wrong[row] = -wrong[row]
    return wrong.to(tensor.dtype)


def _not_a_number(tensor: Tensor) -> Tensor:
    if not tensor.numel() or not tensor.is_floating_point():
        return tensor
    wrong = tensor.clone().flatten()
    wrong[0] = float("nan")
    return wrong.reshape(tensor.shape)


def _wider(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.to(torch.complex64)


DROPPED = "dropped gradient"
SLIGHT = "0.1 percent too large"
# The slightest fault that is demanded, in a record's own bounds.
CLEAR, SLIGHTEST = 4.0, 0.001
WIDER = "the record's bound is wider: a fault of 4 times it is demanded instead"
ON_TENSORS: Mapping[str, Mutate] = {
    "3 percent too large": _scaled(1.03),
    SLIGHT: _scaled(1 + SLIGHTEST),
    "all zeros": torch.zeros_like,
    "one wrong element": _one_element,
    "one row negated": _one_row_negated,
    "upper half of every wavefront stale": stale_lanes,
    "a NaN": _not_a_number,
    "wider dtype than asked": _wider,
    "one row missing": lambda tensor: tensor[:-1] if tensor.dim() and len(tensor) else tensor,
}


@contextmanager
def tf32() -> Iterator[None]:
    """The hardware's own shortcut: products of 10-bit mantissas."""
    backends: Any = torch.backends
    parts = [backends.cuda.matmul, backends.cudnn.conv]
    for part in parts:
        part.fp32_precision = "tf32"
    try:
        yield
    finally:
        for part in parts:
            part.fp32_precision = "ieee"


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """A mutation that need not be caught in some places. An empty field means all; a place may
    be whole or its first word.
    """

    mutation: str
    reason: str
    suites: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def covers(self, seed: Seeded) -> bool:
        filters = (
            (self.suites, {seed.suite}),
            (self.dtypes, {seed.dtype}),
            (self.checks, {seed.check}),
            (self.places, {seed.place, seed.place.partition(" ")[0]}),
            (self.devices, {seed.device}),
        )
        return self.mutation in {"", seed.mutation} and all(not e or f & {*e} for e, f in filters)


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """One fault: its mutation, the check and suite, and the tensor of the results."""

    mutation: str
    suite: str
    check: str
    dtype: str
    device: str
    place: str = "all"

    def __str__(self) -> str:
        return f"{self.mutation}: {self.check} {self.dtype}, {self.place}"


@cache
def exemptions() -> tuple[Exemption, ...]:
    rows = json.loads(EXEMPTIONS.read_text(encoding="utf-8"))["exemptions"]
    return tuple(
        Exemption(
            mutation=row["mutation"],
            reason=row["reason"],
            **{
                name: tuple(row.get(name, ()))
                for name in ("suites", "dtypes", "checks", "places", "devices")
            },
        )
        for row in rows
    )


def exemption_of(seed: Seeded) -> str:
    """Return the reason why this fault need not be caught, or nothing."""
    return next((exemption.reason for exemption in exemptions() if exemption.covers(seed)), "")


def _undefined(tensor: Tensor) -> Tensor:
    return tensor.ne(tensor)


def changes(tensor: Tensor, mutated: Tensor) -> bool:
    """Return whether a mutation made any difference."""
    if tensor.dtype != mutated.dtype or tensor.shape != mutated.shape:
        return True
    same = (tensor == mutated) | (_undefined(tensor) & _undefined(mutated))
    return not bool(same.all())


@dataclass(kw_only=True)
class MutationTally:
    """The seeded faults and their outcomes, per mutation. `asked` and `overlooked` are per
    mutation and profile: the number of faults with a tolerance, and of those that it lets pass.
    """

    caught: Counter[str] = field(default_factory=Counter)
    exempt: dict[str, Counter[str]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    overlooked: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def seeded(self) -> int:
        return sum(self.caught.values()) + len(self.missed)

    def excuse(self, mutation: str, reason: str) -> None:
        self.exempt.setdefault(mutation, Counter())[reason] += 1

    def enter(
        self,
        seed: Seeded,
        *,
        caught: bool,
        said: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        """Enter a fault and each profile's opinion of the tensors. One that is declared and
        caught all the same counts as caught.
        """
        ours = said.get(STRICT, Counter[str]())
        # A fault in whole numbers, or in the shape, is no question of tolerance.
        for profile, counts in said.items() if ours["refused"] or not caught else ():
            key = (seed.mutation, profile)
            self.asked[key] += bool(counts["refused"] or counts["accepted"])
            self.overlooked[key] += not counts["refused"] and bool(counts["accepted"])
        reason = "" if caught else exemption_of(seed)
        if caught:
            self.caught[seed.mutation] += 1
        elif reason:
            self.excuse(seed.mutation, reason)
        else:
            self.missed.append(str(seed))

    def document(self) -> dict[str, dict[str, object]]:
        """Per mutation: caught, missed, and not demanded for which reason how often."""
        missed = Counter(text.partition(": ")[0] for text in self.missed)
        names = sorted({*self.caught, *self.exempt, *missed})
        return {
            name: {
                "caught": self.caught[name],
                "missed": missed[name],
                "not demanded": dict(self.exempt.get(name, {})),
                "asked": {p: n for (m, p), n in self.asked.items() if m == name},
                "overlooked": {p: n for (m, p), n in self.overlooked.items() if m == name},
            }
            for name in names
        }


def mutated(
    parts: Mapping[str, Tensor],
    ledger: MutationTally,
    told: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[tuple[str, str, Tensor]]:
    """Yield each mutation of each part: its name, the part's, and what became of it. `told` has
    the least share by which each part is seen to be too large. Where 0.1 percent is less than
    `CLEAR` times that, the slightest fault is so much larger; the coarse ones stay as they are.
    """
    for place, tensor in parts.items():
        slight = max(SLIGHTEST, CLEAR * told.get(place, 0.0))
        for name, fixed in ON_TENSORS.items():
            mutate = _scaled(1 + slight) if name == SLIGHT else fixed
            if name == SLIGHT and slight > SLIGHTEST:
                ledger.excuse(name, WIDER)
            wrong = mutate(tensor)
            if changes(tensor, wrong):
                yield name, place, wrong
            else:
                ledger.excuse(name, UNCHANGED)


class _JudgedOnce:
    """Bounds that judge a tensor once: of a hundred parts, each fault changes one."""

    def __init__(self, bounds: Bounds) -> None:
        self.judge = bounds.judge
        self._verdict = bounds.verdict
        self._known: dict[tuple[int, int], tuple[Tensor, Verdict]] = {}

    def verdict(
        self, name: str, place: int, actual: Tensor, copy: Tensor, expected: Tensor
    ) -> Verdict:
        key = place, id(actual)
        if key not in self._known:
            # With the tensor, so that no other has its id.
            self._known[key] = actual, self._verdict(name, place, actual, copy, expected)
        return self._known[key][1]


def seed_results(
    clean: CaseResults,
    bounds: Bounds,
    of: Seeded,
    ledger: MutationTally,
    told: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Each mutation of each output and gradient of a case, and each gradient dropped. `told` as in
    `mutated`.
    """
    once: Any = _JudgedOnce(bounds)
    if any(verdict.fault for verdict in compared(clean, once)):
        ledger.missed.append(f"clean: {of.check} {of.dtype}")
        return
    parts = parts_of(clean.actual, clean.gradients)
    wrong: list[tuple[str, str, Tensor | None]] = [*mutated(parts, ledger, told)]
    for place in (place for place in parts if place.startswith("gradient")):
        if bool(parts[place].any()):
            wrong.append((DROPPED, place, None))
        else:
            ledger.excuse(DROPPED, UNCHANGED)
    for name, place, tensor in wrong:
        changed = {**parts, place: tensor}
        actual: Any = [changed[f"output {i}"] for i in range(len(clean.actual))]
        gradients = [changed.get(f"gradient {i}") for i in range(len(clean.gradients))]
        faulty = replace(clean, actual=actual, gradients=gradients)
        verdicts = list(compared(faulty, once))
        caught = any(verdict.fault for verdict in verdicts)
        said = counted(verdict.profiles for verdict in verdicts)
        ledger.enter(replace(of, mutation=name, place=place), caught=caught, said=said)


def parts_of(outputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """Return the results of a case by name."""
    parts = {f"output {i}": x for i, x in enumerate(outputs)}
    return parts | {f"gradient {i}": x for i, x in enumerate(gradients) if x is not None}


def finding_of_faults(ledger: MutationTally) -> CheckFinding:
    """Return passed if faults were seeded and all of them caught."""
    details: dict[str, object] = {"seeded": ledger.seeded, "mutations": ledger.document()}
    if ledger.missed:
        reason = f"{len(ledger.missed)} of {ledger.seeded} not caught: {ledger.missed[0]}"
        return failed(reason, missed=ledger.missed[:SHOWN], **details)
    if not ledger.seeded:
        return failed("no fault could be seeded", **details)
    return passed(f"{ledger.seeded} seeded faults caught", **details)
