"""A forward and backward pass of a model, with all inputs and outputs of its layers stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from warpfront_checks.executing import converted


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

    calls: tuple[Call, ...]
    logits: Tensor
    loss: float
    gradients: Mapping[str, Tensor]
    places: frozenset[str]


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
        model.zero_grad(set_to_none=True)
        logits, loss = model(*inputs)
        (loss * scale).backward()
    finally:
        for handle in handles:
            handle.remove()
    for call in calls:
        call.times = sum(other.layer == call.layer for other in calls)
    return _passed(model, logits, loss, calls)


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
    return _passed(model, logits, loss)


def _passed(model: nn.Module, logits: Tensor, loss: Tensor, calls: Sequence[Call] = ()) -> Pass:
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    places = {t.device.type for t in (logits, loss, *gradients.values())}
    return Pass(
        calls=tuple(calls),
        logits=logits.detach().cpu(),
        loss=float(loss.detach()),
        gradients={name: _copied(gradient) for name, gradient in gradients.items()},
        places=frozenset(places.union(*(call.places for call in calls))),
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

    def before(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        views = tuple(map(_own_view, args)), {key: _own_view(x) for key, x in options.items()}
        tensors = tensors_of(*views)
        wanted = tuple(key for key, x in tensors.items() if whole and x.requires_grad)
        copies = converted(views, _copied)
        calls.append(Call(layer=name, arguments=copies[0], options=copies[1], wanted=wanted))
        for key in wanted:
            tensors[key].register_hook(functools.partial(_keep, calls[-1], key))
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
            first.register_hook(functools.partial(_keep, call, ""))

    first = layer.register_forward_pre_hook(before, with_kwargs=True)
    return [first, layer.register_forward_hook(after)]


def _own_view(value: Any) -> Any:
    return value.view_as(value) if isinstance(value, Tensor) and value.requires_grad else value


def _keep(call: Call, name: str, gradient: Tensor) -> None:
    """Store the gradient of an input, or of the output, which has no name."""
    call.places.add(gradient.device.type)
    if name:
        call.gradients_in[name] = _copied(gradient)
    else:
        call.gradient_out = _copied(gradient)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()
