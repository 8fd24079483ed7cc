"""An architecture on a device: built small, fed, judged layer by layer and end to end."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from warpfront_checks.architectures.feeding import feeds
from warpfront_checks.architectures.float64_mode import float64_region
from warpfront_checks.architectures.roster import Architecture
from warpfront_checks.architectures.shrinking import MANNERS
from warpfront_checks.architectures.small_models import Built, NotBuiltError, build
from warpfront_checks.architectures.watched import Answering, Layers, observed_layers
from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.models.replaying import first_line, judge_ends, judge_layers, judge_places
from warpfront_checks.models.specimens import Precision, Specimen
from warpfront_checks.models.watching import Pass, watch

_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class FedModel:
    """An architecture that the CPU can run: model, inputs, and which layers can be judged."""

    built: Built
    specimen: Specimen
    layers: Layers
    fed: Mapping[str, tuple[int, ...]]


@dataclass
class PassJudgement:
    """A pass on the device. `left_out` are layers that ran unjudged, with their reasons."""

    rows: list[Verdict] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    layers: int = 0
    whole: str = ""


def prepare(architecture: Architecture, seed: int, patience: float = 60.0) -> FedModel:
    """Return the first small model and the first inputs that the CPU computes forward and backward.

    Raises `NotBuiltError` with the library's messages on the others.
    """
    indices: dict[str, int] = {}
    # Processor seconds: wall time on a loaded machine does not measure a model.
    until = time.process_time() + patience
    for manner in MANNERS:
        try:
            built = build(architecture, manner, seed)
        except Exception as error:  # noqa: BLE001 - any refusal; the next manner is tried
            indices[first_line(error)] = len(indices)
            continue
        for feed in feeds(built.model, built.config, seed):
            if time.process_time() > until:
                raise NotBuiltError(f"nothing ran in {patience:g} s: {'; '.join(indices)}")
            try:
                model, inputs = Answering(built.model, tuple(feed)), tuple(feed.values())
                _, loss = model(*inputs)
                loss.backward()
                model.zero_grad(set_to_none=True)
                how = Precision(dtype=torch.float32)
                return FedModel(
                    built=built,
                    specimen=Specimen(
                        model=model, inputs=inputs, precision=how, wide=float64_region
                    ),
                    layers=observed_layers(model, inputs),
                    fed={name: tuple(value.shape) for name, value in feed.items()},
                )
            except Exception as error:  # noqa: BLE001 - any refusal; the next inputs are tried
                indices[first_line(error)] = len(indices)
    last = "; ".join(list(indices)[:_REASONS]) or "the class takes nothing that is known here"
    raise NotBuiltError(last)


def in_dtype(fed_model: FedModel, dtype: torch.dtype) -> Specimen:
    """Return the same model and inputs, rounded to what is sent."""
    if dtype == torch.float32:
        return fed_model.specimen
    specimen = fed_model.specimen
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in specimen.inputs)
    model = copy.deepcopy(specimen.model).to(dtype)
    return replace(specimen, model=model, inputs=inputs, precision=Precision(dtype=dtype))


def judge_pass(
    fed_model: FedModel, device: str, dtype: torch.dtype = torch.float32
) -> PassJudgement:
    """Forward and backward: every layer from its own inputs, then from end to end."""
    specimen, observed = in_dtype(fed_model, dtype), fed_model.layers
    model, inputs = specimen.sent(device)
    # In 16 bits a choice by number may fall either way.
    unclear = set() if dtype == torch.float32 else observed.choosing
    names = [name for name in observed.judged if name not in unclear]
    modules, references = (dict(each.named_modules()) for each in (model, specimen.model))
    passed = watch(model, inputs, {name: modules[name] for name in names}, specimen.scale)
    judged = PassJudgement(left_out=dict(observed.refused))

    def keeps(layer: str, tensor: str) -> bool:
        # Weights of what was chosen add up to one: of such a sum little but rounding comes back.
        given_up = layer in observed.choosing
        given_up = given_up or observed.is_lent(layer, tensor.removeprefix("gradient of "))
        return tensor == "output" or not given_up

    layers = {name: references[name] for name in names}
    rows = judge_layers(
        passed.calls, layers, passed, specimen, keeps=keeps, left_out=judged.left_out
    )
    judged.layers = sum(row.name == "output" for row in rows)
    whole = _whole_rows(passed, specimen, fed_model, judged)
    judged.rows = [*judge_places(passed, device), *rows, *whole]
    judged.unused = tuple(
        name.removeprefix("body.")
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and name not in passed.gradients
    )
    return judged


def _whole_rows(
    passed: Pass, specimen: Specimen, fed_model: FedModel, judged: PassJudgement
) -> Iterator[Verdict]:
    if fed_model.layers.random:
        judged.whole = "the model draws random numbers"
        return
    if fed_model.layers.choosing and specimen.precision.dtype != torch.float32:
        judged.whole = "the model chooses by number"
        return
    try:
        _ = specimen.exact, specimen.same_dtype
    except Exception as error:  # noqa: BLE001 - a model's refusal of float64 is reported
        judged.whole = f"not computed in float64: {first_line(error)}"
        return
    yield from judge_ends(passed, specimen)


def document_of(fed_model: FedModel, judged: PassJudgement) -> dict[str, Any]:
    """Return the part of a results file for a pass."""
    first = next((row for row in judged.rows if row.fault), None)
    used = [row.used for row in judged.rows]
    return {
        "manner": fed_model.built.manner,
        "model": fed_model.built.architecture.model,
        "parameters": fed_model.built.parameters,
        "fed": {name: list(shape) for name, shape in fed_model.fed.items()},
        "layers": judged.layers,
        "tensors": len(judged.rows),
        "largest_share": float(f"{max(used, default=0.0):.3g}"),
        "fault": first.fault_by().replace("body.", "") if first else "",
        "first_over": first.layer.removeprefix("body.") if first else "",
        "unused": list(judged.unused),
        "left_out": {k.removeprefix("body."): v for k, v in judged.left_out.items()},
        "whole_left_out": judged.whole,
    }
