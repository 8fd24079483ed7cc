"""A small model of one architecture with random weights: configuration, exceptions, model. Edge."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from warpfront_checks.architectures.roster import Architecture
from warpfront_checks.architectures.shrinking import Manner, small_values
from warpfront_checks.documents import packaged

# Larger than this, a model was not made small.
MOST_PARAMETERS = 30_000_000
# What a library adds to weights that it begins at 0 or 1, so that no branch is closed by its gate.
_STIRRED = 0.1


class NotBuiltError(Exception):
    """No way of making it small gave a model; the message has each one's reason."""


def exceptions() -> Mapping[str, Any]:
    """Return the data file: values by type, exclusions with reasons, and how many have to run."""
    return packaged("architectures/exceptions.json")


def build(architecture: Architecture, manner: Manner, seed: int) -> tuple[nn.Module, Any, int]:
    """Return a model made small in a manner, on the CPU in float32, with its configuration and the
    number of its parameters. Raise whatever the library refuses the sizes with.
    """
    library: Any = importlib.import_module("transformers")
    model_class = getattr(library, architecture.model)
    config = small_config(architecture, model_class, manner)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in model_class(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise NotBuiltError(f"{parameters:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = model_class(config)
        with torch.no_grad():
            for parameter in model.parameters():
                # Zeros and ones that a library begins with would hide what is behind them.
                flat = parameter.is_floating_point() and parameter.numel() > 1
                if flat and float(parameter.std()) == 0.0:
                    parameter.add_(torch.randn_like(parameter), alpha=_STIRRED)
    return model.float().eval(), config, parameters


def small_config(architecture: Architecture, model_class: Any, manner: Manner) -> Any:
    """Return the configuration that the class takes, which may be a part of its type's."""
    automatic: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    config_class = automatic.CONFIG_MAPPING[architecture.name]
    config_classes = getattr(model_class, "config_class", None)
    # Arguments of its default configuration, and changes to the small one.
    entries = (entry for entry in exceptions()["values"] if entry["name"] == architecture.name)
    entry: Mapping[str, Any] = next(entries, {})
    arguments, changed = entry.get("default", {}), entry.get("values", {})
    try:
        default = config_class(**arguments)
    except Exception:  # whatever a library refuses with
        # A composite has no default of its own: the configuration of the class is one of its parts.
        if config_classes in (None, config_class):
            raise
        config_class, default = config_classes, config_classes()
    small = small_values(default, manner)
    values = _merged(_merged(arguments, small), changed)
    if architecture.kind == "causal" and not values.get("is_encoder_decoder"):
        values["is_decoder"] = True
    config = config_class(**values)
    if config_classes is None or isinstance(config, config_classes):
        return config
    parts = [part for part in vars(config).values() if isinstance(part, config_classes)]
    return parts[0] if parts else config


def _merged(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, value in changed.items():
        current = merged.get(name)
        if isinstance(current, dict) and isinstance(value, Mapping) and value:
            value = _merged(current, value)  # noqa: PLW2901 - both have parts
        merged[name] = value
    return merged
