"""Seeded faults in models: one layer at a time computes wrong, and that very layer must be named;
and in the networks of `numerics` every kind of fault in every result.

Part of the `selftest` session. In models faults take turns over the layers, so that every layer
gets one forward and one backward, and every kind of fault gets layers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.executing import converted
from warpfront_checks.models.families import FAMILIES, Family
from warpfront_checks.models.judging import first_over
from warpfront_checks.models.modes import (
    Proving,
    Tamper,
    judge_eager,
    judge_found,
    run_eager,
)
from warpfront_checks.models.passes import Pass, Precision, Specimen, layers_of, make_specimen
from warpfront_checks.precision import DTYPES
from warpfront_checks.results import CheckFinding, Recorder, failed, passed
from warpfront_checks.tolerance_profiles import counted

from .mutations import ON_TENSORS, Mutate, MutationTally, Seeded, mutated, stale_lanes, tf32

# Every class of layer is in one of these.
SEEDED = ("resnet", "gpt", "moe", "t5", "whisper")
STALE_SEED = 999
COMPUTING = (
    functional.linear,
    functional.conv2d,
    functional.gelu,
    functional.silu,
    functional.layer_norm,
    functional.batch_norm,
    functional.scaled_dot_product_attention,
)


def _stale_half(tensor: Tensor) -> Tensor:
    """A tensor that fills no wavefront repeats its own first half."""
    count = tensor.numel()
    return stale_lanes(tensor, 32 if count > 32 else (count + 1) // 2)


# Forward, a gradient has to reach what came before: these keep the graph.
FORWARD: dict[str, Mutate] = {
    "3 percent too large": ON_TENSORS["3 percent too large"],
    "one wrong element": ON_TENSORS["one wrong element"],
    "all zeros": lambda x: x * 0,
    "upper half of every wavefront stale": _stale_half,
    "rounded to bfloat16": lambda x: x + (x.detach().bfloat16().to(x.dtype) - x.detach()),
    "a NaN": ON_TENSORS["a NaN"],
}
BACKWARD: dict[str, Mutate] = {
    **{
        name: ON_TENSORS[name] for name in ("3 percent too large", "one wrong element", "all zeros")
    },
    "rounded to bfloat16": lambda g: g.bfloat16().to(g.dtype),
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A layer, what is done to its output or to the gradients it makes, and by which means."""

    layer: str
    name: str
    tamper: Tamper


def faults_of(family: Family) -> Iterator[Fault]:
    """Return one forward and one backward fault for every layer without children. A loss is one
    number: it has no lanes, and is larger or not.
    """
    layers = layers_of(family.build())
    forward, backward = itertools.cycle(FORWARD.items()), itertools.cycle(BACKWARD.items())
    for name, layer in layers.items():
        if list(layer.children()):
            continue
        if type(layer).__name__ == "Pick":
            yield Fault(
                layer=name,
                name="forward: one choice too far",
                tamper=_mutating_output(name, _shifted),
            )
            continue
        kind, mutate = next(forward)
        if name == "loss":
            kind, mutate = "3 percent too large", FORWARD["3 percent too large"]
        yield Fault(layer=name, name=f"forward: {kind}", tamper=_mutating_output(name, mutate))
        kind, mutate = next(backward)
        yield Fault(layer=name, name=f"backward: {kind}", tamper=_mutating_gradient(name, mutate))


def missed_faults(family: Family, faults: Iterable[Fault], device: str) -> tuple[int, list[str]]:
    """Return the number of seeded faults, and those not caught, or attributed to another layer."""
    specimen = make_specimen(family, Precision(dtype=torch.float32))
    missed, count = [], 0
    for fault in faults:
        count += 1
        first = first_over(judge_eager(specimen, Proving(device=device, tamper=fault.tamper)))
        if first is None:
            missed.append(f"{fault.layer}: {fault.name}: not caught")
        elif first.layer != fault.layer:
            missed.append(f"{fault.layer}: {fault.name}: {first.layer} was named")
    return count, missed


def record_model_faults(
    claims: Claims, recorder: Recorder, effort: CheckOptions | None = None
) -> None:
    """Record one check per family, passed if every fault was caught and attributed to its layer."""
    seeded = SEEDED[1:2] if effort and effort.quick else SEEDED
    names = [family.name for family in FAMILIES if family.name in seeded]

    def find(name: str) -> CheckFinding:
        family = next(family for family in FAMILIES if family.name == name)
        count, missed = missed_faults(family, faults_of(family), claims.device)
        if missed:
            reason = f"{len(missed)} of {count} not caught or misnamed: {missed[0]}"
            return failed(reason, missed=missed, seeded=count)
        return passed(f"{count} seeded faults caught and named by layer", seeded=count)

    recorder.run({f"model {name}": functools.partial(find, name) for name in names})


def seed_pass_faults(
    network: Family, dtype: str, device: str, seed: int, ledger: MutationTally
) -> None:
    """Seed every fault in a network. A refused clean run is missed, too: as `clean`."""
    specimen = make_specimen(network, Precision(dtype=DTYPES[dtype]), seed)
    _, clean = run_eager(specimen, Proving(device=device))
    first = first_over(judge_found(specimen, clean, device))
    ledger.missed += [f"clean: {network.name} {dtype}: {first.fault}"] if first else []
    for name, place, faulty in (*_in_results(clean, ledger), *_in_runs(network, specimen, device)):
        rows = judge_found(specimen, faulty, device)
        fault = Seeded(
            mutation=name,
            suite="numerics",
            check=network.name,
            dtype=dtype,
            device=device,
            place=place,
        )
        tallies = counted(row.profiles for row in rows)
        ledger.enter(fault, caught=first_over(rows) is not None, said=tallies)


def _in_results(clean: Pass, ledger: MutationTally) -> Iterator[tuple[str, str, Pass]]:
    """Yield each mutation of each layer's output and of each parameter's gradient, and each
    dropped; with the calls of that layer alone, for what is judged of the others has not changed.
    """
    outputs = {f"output of {call.layer}": call for call in clean.calls}
    parts = {place: call.output for place, call in outputs.items() if call.output is not None}
    parts |= {f"gradient of {name}": gradient for name, gradient in clean.gradients.items()}
    for name, place, wrong in mutated(parts, ledger):
        if call := outputs.get(place):
            yield name, place, replace(clean, calls=(replace(call, output=wrong),))
        else:
            parameter_name = place.removeprefix("gradient of ")
            yield name, place, _with_gradient(clean, parameter_name, wrong)
    for name in clean.gradients:
        yield "dropped gradient", f"gradient of {name}", _with_gradient(clean, name, None)


def _with_gradient(clean: Pass, name: str, gradient: Tensor | None) -> Pass:
    """Replace or remove one parameter's gradient."""
    calls = tuple(call for call in clean.calls if call.layer == name.rpartition(".")[0])
    remaining = {key: value for key, value in clean.gradients.items() if key != name}
    changed = remaining if gradient is None else {**remaining, name: gradient}
    return replace(clean, calls=calls, gradients=changed)


def _in_runs(
    network: Family, specimen_used: Specimen, device: str
) -> Iterator[tuple[str, str, Pass]]:
    """Devices that are wrong as a whole."""
    other = make_specimen(network, specimen_used.precision, STALE_SEED)
    stale = replace(specimen_used, inputs=other.inputs)
    tries: dict[str, tuple[Specimen, str, contextlib.AbstractContextManager[object]]] = {
        "answers of the run before": (stale, device, contextlib.nullcontext())
    }
    if device != "cpu":
        tries["computed on the CPU instead"] = specimen_used, "cpu", contextlib.nullcontext()
    if specimen_used.precision.dtype == torch.float32:
        tries["low precision inside"] = specimen_used, device, _Narrowly()
    if specimen_used.precision.dtype == torch.float32 and device == "cuda":
        tries["TF32 inside"] = specimen_used, device, tf32()
    for name, (specimen, place, region) in tries.items():
        with region:
            _, faulty = run_eager(specimen, Proving(device=place))
        yield name, "all", faulty


class _Narrowly(TorchFunctionMode):
    """A mode that computes layers in bfloat16 and returns their usual dtype."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def narrow(x: Tensor) -> Tensor:
            return x.bfloat16() if x.is_floating_point() else x

        if function not in COMPUTING:
            return function(*args, **(kwargs or {}))
        return function(*converted(args, narrow), **converted(kwargs or {}, narrow)).float()


def _mutating_output(name: str, mutate: Mutate) -> Tamper:
    def tamper(model: nn.Module) -> None:
        layer = model.get_submodule(name)
        layer.register_forward_hook(lambda _, __, output: mutate(output))

    return tamper


def _shifted(output: Tensor) -> Tensor:
    return output.roll(1, 0)


def _mutating_gradient(name: str, mutate: Mutate) -> Tamper:
    """The layer's own gradients: of a parameter, and where it has none, of the first input
    that has one.
    """

    def tamper(model: nn.Module) -> None:
        layer = model.get_submodule(name)
        parameters = list(layer.parameters(recurse=False))
        if parameters:
            parameters[0].register_hook(mutate)
            return
        forward: Any = layer.forward

        def wrong(*arguments: Any) -> Any:
            place = next(n for n, x in enumerate(arguments) if x.requires_grad)
            changed = _Wrong.apply(arguments[place], mutate)
            return forward(*arguments[:place], changed, *arguments[place + 1 :])

        layer.forward = wrong

    return tamper


class _Wrong(torch.autograd.Function):
    """Identity, whose gradient is changed."""

    @staticmethod
    def forward(context: Any, x: Tensor, mutate: Mutate) -> Tensor:
        context.mutate = mutate
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return context.mutate(gradients[0]), None
