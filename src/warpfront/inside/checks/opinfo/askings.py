"""Asks an operator of the database otherwise than its samples do: in more dtypes, at the sizes
where kernels change, from memory that lies otherwise, with other numbers, in place, and into memory
that is there. Needs torch.

Every asking is drawn from the run's seed, the operator's name and a number, so that a few nights
ask everything of everything. What is right is still the float64 result on the CPU; whole numbers
and truths are computed there as well, and wrapped.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from warpfront.inside.checks.effort import Effort
from warpfront.inside.checks.executing import Computed, computed, tensors_in
from warpfront.inside.checks.operators.verdicts import lacks_kernel
from warpfront.inside.checks.opinfo.adapter import Entry, Sample
from warpfront.inside.checks.opinfo.entry_verdicts import (
    arranged,
    convert_sample,
    sent,
)
from warpfront.inside.checks.opinfo.expecting import (
    REFUSALS,
    Expected,
    excluded,
    expect_sample,
)
from warpfront.inside.checks.results import CheckFinding, judged

OTHERWISE = "asked otherwise"
# Where right kernels were refused nothing in 60 seeds that no rule was made for: nowhere yet.
SEEN_ON: tuple[str, ...] = ()
SHOWN = 50
LEFT_OUT = Path(__file__).with_name("askings.json")
ASKINGS = 8
# Draws until one is found that the reference takes.
TRIES = 4
DRAWN = 24
LARGEST = 4_200
SIZES = (0, 1, 2, 3, 7, 31, 32, 33, 63, 65, 127, 129, 255, 257, 513, 1023, 1025, 2049, 4097)
MEMORY = ("gaps", "turned", "offset", "repeated", "last")
NUMBERS = ("broken", "noughts", "above", "below", "far", "repeated")
# In these every number is by itself, so that equal ones mean nothing to the others.
APART = ("UnaryUfuncInfo", "BinaryUfuncInfo", "ShapeFuncInfo")
# One of each in turn.
KINDS = (
    ("float32",),
    ("bfloat16", "float16", "complex64"),
    ("uint8",),
    ("float32",),
    ("bool",),
    ("int64", "int32", "int16"),
    ("float32",),
    ("int8",),
)
# The asking whose numbers are always broken, where they may be.
BROKEN_AT = 3
BROKEN = (math.nan, 0.0, math.inf, -math.inf)
UNTOUCHED = 77
# Whole numbers from here on float64 does not hold.
EXACT = 2.0**53
# What torch says of arguments that it does not take, of some dtypes and memory only.
REFUSED = re.compile("ZeroDivisionError|view size is not compatible|does not support the out kwarg")
# Of the bounds of samples: those were set on the samples, these numbers nobody chose.
TIMES = 16.0


@dataclass(frozen=True, kw_only=True)
class OneAsking:
    """One call, and where its result goes: nowhere in particular, in place, or into memory."""

    sample: Sample
    expected: Expected
    dtype: torch.dtype
    backward: bool
    goes: str
    said: str


@cache
def left_out() -> dict[str, dict[str, str]]:
    """By entry what it is not asked, and why."""
    text = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    return {
        name: {what: text["reasons"][reason] for what, reason in row.items()}
        for name, row in text["entries"].items()
    }


def find_answers(entries: Sequence[Entry], device: str, effort: Effort) -> CheckFinding:
    """Ask every entry, some times."""
    answers, faults = 0, []
    for entry in entries:
        for seed in effort.seeds:
            for number in numbers_of(seed, quick=effort.quick):
                for said, fault in ask(entry, number, seed, device):
                    answers += 1
                    label = f"{entry.name}, asking {number}, seed {seed}"
                    faults += [f"{label}: {said}: {fault}"] if fault else []
    details = {"answers": answers, **({"faults": faults[:SHOWN]} if faults else {})}
    return judged(faults, f"{answers} answers", **details)


def numbers_of(seed: int, *, quick: bool) -> range:
    """Every second asking, one quickly; the other half is that of every second seed."""
    first = seed % ASKINGS if quick else seed % 2
    return range(first, first + 1 if quick else ASKINGS, 2)


def ask(entry: Entry, number: int, seed: int, device: str) -> Iterator[tuple[str, str]]:
    """Ask once: what was asked, and each thing that is wrong with the answer (or nothing)."""
    draw = random.Random(f"{seed} {entry.name} {number}")  # noqa: S311 - drawn to be drawn again
    asking = _drawn(entry, number, draw, device)
    if asking is None:
        return
    with torch.random.fork_rng(devices=[]):
        try:
            found, spoilt = _plainly(entry, asking, device)
            yield asking.said, spoilt or _wrong(asking, found, device)
            if asking.goes:
                answer = _placed(entry, asking, found, device)
                yield f"{asking.said}, {asking.goes}", answer
        except REFUSALS as error:
            if REFUSED.search(str(error)) or lacks_kernel(error):
                return
            yield asking.said, f"{type(error).__name__}: {str(error).strip()[:200]}"


def _drawn(entry: Entry, number: int, draw: random.Random, device: str) -> OneAsking | None:
    """An asking that the reference takes."""
    dtype = _dtype(entry, number, draw)
    without = left_out().get(entry.name, {})
    if not dtype or excluded(entry.name, dtype, backward=False) or {"all", dtype} & set(without):
        return None
    kind = getattr(torch, dtype)
    forward_only = (
        not kind.is_floating_point
        or kind not in entry.backward_dtypes(device)
        or bool(excluded(entry.name, dtype, backward=True))
    )
    for _ in range(TRIES):
        forward = _numbers(entry, dtype, without, backward=False)
        broken = number % len(KINDS) == BROKEN_AT and "broken" in forward
        backward = not (broken or forward_only or "backward" in without) and draw.random() < 0.5
        samples = _samples(entry, dtype, backward=not forward_only)
        if not samples:
            return None
        asked = ["broken"] if broken else _numbers(entry, dtype, without, backward=backward)
        chosen = _folded(entry, draw.choice(samples))
        sample, said = _changed(chosen, kind, asked, draw, without)
        expected = _expected(entry, sample, kind, draw.randrange(2**31), backward=backward)
        if expected is None:
            continue
        if entry.takes_strides and "memory" not in without and draw.random() < 0.8:
            sample = replace(sample, memory=draw.choice(MEMORY))
        said = ", ".join(filter(None, (dtype, said, sample.memory and f"memory {sample.memory}")))
        goes = "" if backward else _goes(entry, without, draw)
        said = f"{said}, backward" if backward else said
        return OneAsking(
            sample=sample, expected=expected, dtype=kind, backward=backward, goes=goes, said=said
        )
    return None


def _dtype(entry: Entry, number: int, draw: random.Random) -> str:
    known = {str(one).removeprefix("torch.") for one in entry.dtypes("cpu")}
    here = [name for name in KINDS[number % len(KINDS)] if name in known]
    return draw.choice(here or sorted({"float32"} & known) or [""])


@lru_cache(maxsize=8)
def _samples(entry: Entry, dtype: str, *, backward: bool) -> list[Sample]:
    try:
        kind = getattr(torch, dtype)
        return list(entry.samples("cpu", kind, limit=DRAWN, backward=backward, among=DRAWN))
    except REFUSALS:
        return []


def _numbers(entry: Entry, dtype: str, without: Mapping[str, str], *, backward: bool) -> list[str]:
    """A derivative far out is a difference of what is nearly equal, and none is defined at what is
    no number; what 16 bits make of infinity in between depends on the step.
    """
    if "numbers" in without:
        return []
    hard = {"broken", "far"} if backward or dtype != "float32" else set()
    alike = set() if type(entry.raw).__name__ in APART else {"repeated"}
    return [name for name in NUMBERS if name not in {*without, *hard, *alike}]


def _changed(
    sample: Sample,
    dtype: torch.dtype,
    asked: Sequence[str],
    draw: random.Random,
    without: Mapping[str, str],
) -> tuple[Sample, str]:
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    said = []
    if "sizes" not in without and draw.random() < 0.6:
        sample, size = _resized(sample, draw, generator)
        said += [size] if size else []
    if asked == ["broken"] or (asked and draw.random() < 0.5):
        numbers = draw.choice(asked)
        sample = _renumbered(sample, numbers, dtype, generator)
        said += [numbers]
    return sample, ", ".join(said)


def _resized(sample: Sample, draw: random.Random, generator: torch.Generator) -> tuple[Sample, str]:
    """An axis of one tensor is made longer or shorter, and with it the same axis of the others that
    are as long there, or every axis that is.
    """
    tensors = [x for x in tensors_in([sample.input, sample.args, sample.kwargs]) if x.dim()]
    if not tensors:
        return sample, ""
    chosen = draw.choice(tensors)
    axis = draw.randrange(-chosen.dim(), 0)
    length, everywhere = chosen.shape[axis], draw.random() < 0.5

    def shape(x: Tensor, size: int) -> list[int]:
        alike = [n == length and (everywhere or d - x.dim() == axis) for d, n in enumerate(x.shape)]
        return [size if one else n for one, n in zip(alike, x.shape, strict=True)]

    fitting = [n for n in SIZES if all(math.prod(shape(x, n)) <= LARGEST for x in tensors)]
    size = draw.choice(fitting or [length])

    def resize(x: Tensor) -> Tensor:
        wanted = shape(x, size) if x.dim() and x.layout == torch.strided else list(x.shape)
        if wanted == list(x.shape) or not x.numel():
            return x
        at = torch.randint(x.numel(), (math.prod(wanted),), generator=generator)
        drawn = x.detach().flatten()[at].view(wanted)
        if x.is_floating_point() or x.is_complex():
            # No two alike, and none beyond the largest: what is 1 at most stays so.
            drawn = (drawn * (1 - torch.rand(wanted, generator=generator) / 8)).to(x.dtype)
        return drawn.requires_grad_(x.requires_grad)

    return convert_sample(sample, resize), f"{length} for {size}" if size != length else ""


def _folded(entry: Entry, sample: Sample) -> Sample:
    """A row as a table, so that it can lie in memory otherwise."""
    x = sample.input
    row = type(entry.raw).__name__ == "UnaryUfuncInfo" and x.dim() == 1 and x.numel() % 4 == 0
    if not row or not x.numel() or x.layout != torch.strided:
        return sample
    folded = x.detach().reshape(4, -1).clone().requires_grad_(x.requires_grad)
    return replace(sample, input=folded)


def _renumbered(
    sample: Sample, numbers: str, dtype: torch.dtype, generator: torch.Generator
) -> Sample:
    def change(x: Tensor) -> Tensor:
        if x.layout != torch.strided or not x.numel():
            return x
        kept = x.detach().clone(memory_format=torch.contiguous_format)
        if numbers == "repeated" and x.dim():
            kept = kept[:1].expand(x.shape).clone()
        elif x.dtype == dtype and dtype != torch.bool:
            at = torch.randint(x.numel(), (max(1, x.numel() // 8),), generator=generator)
            kept = _other_numbers(kept, numbers, at)
        return kept.requires_grad_(x.requires_grad)

    return convert_sample(sample, change)


def _other_numbers(x: Tensor, numbers: str, at: Tensor) -> Tensor:
    if numbers == "noughts":
        x.view(-1)[at] = 0
    elif numbers == "above":
        x = x.abs() + 1
    elif numbers == "below" and x.dtype != torch.uint8:
        x = -x.abs() - 1
    elif numbers == "far" and x.is_floating_point():
        x *= 64
    elif numbers == "broken" and x.is_floating_point():
        x.view(-1)[at[: len(BROKEN)]] = torch.tensor(BROKEN[: len(at)]).to(x.dtype)
    return x


def _expected(
    entry: Entry, sample: Sample, dtype: torch.dtype, seed: int, *, backward: bool
) -> Expected | None:
    if dtype.is_floating_point or dtype.is_complex:
        return expect_sample(entry, sample, dtype, seed, backward=backward)

    if any(isinstance(x, float) for x in (*sample.args, *sample.kwargs.values())):
        return None

    def widened(x: Tensor) -> Tensor:
        return x.double() if x.dtype == dtype else x

    return expect_sample(
        entry, convert_sample(sample, widened), torch.float32, seed, backward=False
    )


def _goes(entry: Entry, without: Mapping[str, str], draw: random.Random) -> str:
    ways = [""]
    if entry.raw.supports_out and "into" not in without:
        ways += ["into gaps", "into nothing"]
    if entry.raw.inplace_variant is not None and "in place" not in without:
        ways += ["in place"]
    return draw.choice(ways)


def _plainly(entry: Entry, asking: OneAsking, device: str) -> tuple[Computed, str]:
    """The call, and what it did to what it was given."""
    moved = sent(asking.sample, device, backward=asking.backward)
    given = list(tensors_in([moved.input, moved.args, moved.kwargs]))
    before = [x.detach().clone() for x in given]
    leaves = [x for x in given if x.requires_grad]
    fed = asking.expected.cotangents
    back = fed and [arranged(x.to(device), asking.sample.memory) for x in fed]
    found = computed(lambda: entry(moved, device), leaves, back)
    for number, (x, kept) in enumerate(zip(given, before, strict=True)):
        if "afterwards" not in left_out().get(entry.name, {}) and not _same(x.detach(), kept):
            return found, f"tensor {number} of what was given is another afterwards"
    return found, ""


def _same(x: Tensor, y: Tensor) -> bool:
    if x.layout != torch.strided:
        return True
    return x.shape == y.shape and bool(((x == y) | (x.isnan() & y.isnan())).all())


def _placed(entry: Entry, asking: OneAsking, found: Computed, device: str) -> str:
    """The same call in place, or into memory that is there; nothing, where it has no such form."""
    moved = sent(asking.sample, device, backward=False)
    if asking.goes == "in place":
        return _in_place(entry, asking, moved, found, device)
    gaps = asking.goes == "into gaps"
    shapes = [(*x.shape, 2) if gaps else (0,) for x in found.outputs]
    rooms = [
        torch.full(shape, UNTOUCHED, dtype=x.dtype, device=device)
        for shape, x in zip(shapes, found.outputs, strict=True)
    ]
    outs = [room[..., 1] if gaps else room for room in rooms]
    try:
        out = outs[0] if len(outs) == 1 else tuple(outs)
        gave = computed(lambda: entry.into(moved, out), (), None)
    except TypeError:
        # What it returns is settled, or no tensor: it cannot be told what to write.
        return ""
    between = [room[..., ::2] for room in rooms] if gaps else []
    if any(not _same(x, torch.full_like(x, UNTOUCHED)) for x in between):
        return "memory between the results was written to"
    written = replace(gave, outputs=tuple(x.detach().cpu() for x in outs))
    return _wrong(asking, written, device) if len(gave.outputs) == len(outs) else ""


def _in_place(entry: Entry, asking: OneAsking, moved: Sample, found: Computed, device: str) -> str:
    there = moved.input
    if not isinstance(there, Tensor) or len(found.outputs) != 1 or 0 in there.stride():
        return ""
    if (found.outputs[0].shape, found.outputs[0].dtype) != (there.shape, there.dtype):
        return ""
    gave = computed(lambda: entry.in_place(moved), (), None)
    written = replace(gave, outputs=(there.detach().cpu(),))
    return _wrong(asking, gave, device) or _wrong(asking, written, device)


def _wrong(asking: OneAsking, found: Computed, device: str) -> str:
    if asking.dtype.is_floating_point or asking.dtype.is_complex:
        return "; ".join(asking.expected.judge(found, device, times=TIMES).faults[:1])
    exact = asking.expected.exact
    if len(found.all) != len(exact.all):
        return f"{len(found.all)} results, expected {len(exact.all)}"
    for x, reference in zip(found.all, exact.all, strict=True):
        if x is None or reference is None:
            continue
        if x.shape != reference.shape:
            return f"shape {tuple(x.shape)}, expected {tuple(reference.shape)}"
        if reference.numel() and float(reference.abs().max()) >= EXACT:
            continue
        right = x if x.is_floating_point() or x.is_complex() else _wrapped(reference, x.dtype)
        if not torch.equal(x, right) and not x.is_floating_point() and not x.is_complex():
            return f"{int((x != right).sum())} numbers are wrong"
    return ""


def _wrapped(x: Tensor, dtype: torch.dtype) -> Tensor:
    if torch.bool in {dtype, x.dtype}:
        return (x != 0).to(dtype)
    return x.to(torch.int64).to(dtype)
