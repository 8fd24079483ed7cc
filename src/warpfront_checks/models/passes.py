"""A model with its inputs, and its passes: watched on a device with all that its layers took and
gave, and on the CPU in float64 and in kind.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from warpfront_checks.cases.rounding import RoundedSteps
from warpfront_checks.executing import converted
from warpfront_checks.models.families import Family, Pick


@dataclass(kw_only=True, eq=False)
class Call:
    """A layer's work, copied to the CPU: inputs, outputs, and the gradients of both.

    `arguments` are by position or name; `wanted` names those with a requested gradient, which
    `gradients_in` has. `times` is how often the layer was called in the pass: gradients of
    parameters are separate only if once.
    """

    layer: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    wanted: tuple[str, ...]
    output: Tensor | None = None
    times: int = 1
    gradient_out: Tensor | None = None
    gradients_in: dict[str, Tensor] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A whole pass. `places` are the device types that outputs and gradients were found on."""

    logits: Tensor
    loss: float
    gradients: Mapping[str, Tensor]
    places: frozenset[str]
    calls: tuple[Call, ...] = ()


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules without children: every computation of our families is in one of them.
    And whole attentions, where models that are not ours compute between their children; of these
    only the output is judged.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if (not list(module.children()) and not isinstance(module, nn.Identity))
        or type(module).__name__.endswith("Attention")
    }


def watch(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    layers: Mapping[str, nn.Module],
    scale: float = 1.0,
) -> Pass:
    """Run `model(*inputs)`, which gives logits and loss, forward and backward, and copy everything.

    `scale` multiplies the loss before the backward pass, and so every gradient.
    """
    calls: list[Call] = []
    handles = [handle for name, layer in layers.items() for handle in _hooks(name, layer, calls)]
    try:
        passed = run_plainly(model, model, inputs, scale)
    finally:
        for handle in handles:
            handle.remove()
    for call in calls:
        call.times = sum(other.layer == call.layer for other in calls)
    places = passed.places.union(*(call.places for call in calls))
    return replace(passed, calls=tuple(calls), places=places)


def run_plainly(
    run: Callable[..., tuple[Tensor, Tensor]],
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    scale: float = 1.0,
) -> Pass:
    """A pass without hooks, for what wraps a model (compiled, exported, checkpointed)."""
    model.zero_grad(set_to_none=True)
    logits, loss = run(*inputs)
    (loss * scale).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return Pass(
        logits=logits.detach().cpu(),
        loss=float(loss.detach()),
        gradients={name: _copied(gradient) for name, gradient in gradients.items()},
        places=frozenset(t.device.type for t in (logits, loss, *gradients.values())),
    )


def tensors_of(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among a call's own arguments, named `input 0` or `input name`."""
    named = {f"input {place}": value for place, value in enumerate(arguments)}
    named.update({f"input {name}": value for name, value in options.items()})
    return {name: value for name, value in named.items() if isinstance(value, Tensor)}


def _hooks(name: str, layer: nn.Module, calls: list[Call]) -> list[Any]:
    """Replace every input by a view of itself: the gradient of that view is this layer's share
    of the gradient, whatever else uses the tensor.
    """
    whole = not list(layer.children())

    def keep(call: Call, key: str, gradient: Tensor) -> None:
        """Store the gradient of an input, or of the output, which has no name."""
        call.places.add(gradient.device.type)
        if key:
            call.gradients_in[key] = _copied(gradient)
        else:
            call.gradient_out = _copied(gradient)

    def view(value: Any) -> Any:
        return value.view_as(value) if isinstance(value, Tensor) and value.requires_grad else value

    def before(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        views = tuple(map(view, args)), {key: view(x) for key, x in options.items()}
        tensors = tensors_of(*views)
        keys = tuple(key for key, x in tensors.items() if whole and x.requires_grad)
        copies = converted(views, _copied)
        calls.append(Call(layer=name, arguments=copies[0], options=copies[1], wanted=keys))
        for key in keys:
            tensors[key].register_hook(functools.partial(keep, calls[-1], key))
        return views

    def after(_: nn.Module, __: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        call = next(c for c in reversed(calls) if c.layer == name and c.output is None)
        call.output = _copied(first)
        # In the order in which they end: what is inside another comes before it.
        calls.remove(call)
        calls.append(call)
        call.places.add(first.device.type)
        if first.requires_grad and whole:
            first.register_hook(functools.partial(keep, call, ""))

    first = layer.register_forward_pre_hook(before, with_kwargs=True)
    return [first, layer.register_forward_hook(after)]


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


# In float16 gradients would be too small to be normal numbers, so the loss is scaled; by a power of
# 2, which rounds nothing.
LOSS_SCALE = 1024.0
ROUNDED_DRAWS = 3
# Where a model chooses by number, the closest choice is this far from a tie (in standard deviations
# of what it chooses by): closer, and two correct devices may choose differently.
DECIDED = 0.1
_TRIES = 500


Region = contextlib.AbstractContextManager[object]


class UndecidedError(Exception):
    """No inputs were found whose choices are far enough from ties."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The precision of a pass: `dtype` of tensors (pure), or of the autocast region (`mixed`)."""

    dtype: torch.dtype
    mixed: bool = False

    def autocast(self, device: str) -> Region:
        region: Region = contextlib.nullcontext()
        return torch.autocast(device, dtype=self.dtype) if self.mixed else region

    def kind(self, cpu: Tensor) -> torch.dtype:
        """Return the dtype that a value is judged as: of a mixed pass, that of its products."""
        return self.dtype if self.mixed else cpu.dtype

    def fault_of(self, actual: Tensor, cpu: Tensor) -> str:
        """Return how a dtype is another than the CPU's, or nothing. Which layers autocast leaves in
        float32 is the device type's own list.
        """
        right = actual.dtype == cpu.dtype or (self.mixed and actual.is_floating_point())
        return "" if right else f"{actual.dtype}, expected {cpu.dtype}"

    @property
    def parameters(self) -> torch.dtype:
        return torch.float32 if self.mixed else self.dtype


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A model and inputs on the CPU, as sent, never computed with; its results are cached. `wide`
    is a region in which the model's code stays in float64.
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    precision: Precision
    wide: Callable[[], Region] = contextlib.nullcontext

    @property
    def scale(self) -> float:
        return LOSS_SCALE if self.precision.dtype == torch.float16 else 1.0

    def sent(self, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Return a fresh copy on a device, its floating inputs with gradients."""
        return copy.deepcopy(self.model).to(device), self._inputs(lambda x: x.to(device))

    @cached_property
    def exact(self) -> Pass:
        """The pass in float64, from the same rounded numbers."""
        return self._in_float64(contextlib.nullcontext())

    @cached_property
    def rounded(self) -> list[Pass]:
        """Passes in float64 whose steps are rounded to the dtype by chance."""
        dtype = self.precision.dtype
        return [self._in_float64(RoundedSteps(dtype, draw)) for draw in range(ROUNDED_DRAWS)]

    def _in_float64(self, mode: Region) -> Pass:
        model = copy.deepcopy(self.model).double()
        inputs = self._inputs(lambda x: x.double() if x.is_floating_point() else x.clone())
        with self.wide(), mode:
            return run_plainly(model, model, inputs, self.scale)

    @cached_property
    def same_dtype(self) -> Pass:
        """The pass on the CPU, as the device has to compute it."""
        model, inputs = self.sent("cpu")
        with self.precision.autocast("cpu"):
            return run_plainly(model, model, inputs, self.scale)

    def _inputs(self, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        copies = tuple(change(x).detach().clone() for x in self.inputs)
        return tuple(x.requires_grad_() if x.is_floating_point() else x for x in copies)


def make_specimen(family: Family, precision: Precision, seed: int = 0) -> Specimen:
    """Return the same numbers on every machine, rounded to what is sent.

    Raises `UndecidedError` if every set of inputs comes too close to a tie.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = family.build()
    dtype = precision.parameters
    model = model.to(dtype)
    exact = copy.deepcopy(model).double()
    gaps: list[float] = []

    def note_gap(pick: Pick, arguments: tuple[Tensor, ...]) -> None:
        """Note the distance of the last chosen and the first rejected score of an expert."""
        ranked = arguments[0].sort(dim=0, descending=True).values
        between = ranked[pick.capacity - 1] - ranked[pick.capacity]
        gaps.append(float(between.min() / arguments[0].std()))

    picks = [module for module in exact.modules() if isinstance(module, Pick)]
    for pick in picks:
        pick.register_forward_pre_hook(note_gap)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_TRIES):
        gaps.clear()
        values = family.inputs(generator)
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in values)
        if picks:
            with torch.no_grad():
                exact(*(x.double() if x.is_floating_point() else x for x in inputs))
        if all(gap > DECIDED for gap in gaps):
            return Specimen(model=model, inputs=inputs, precision=precision)
    raise UndecidedError(f"{family.name}: {_TRIES} sets of inputs are all close to a tie")
