"""The same model, wrapped: checkpointed, exported, compiled. Judged from end to end only."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Run = Callable[..., tuple[Tensor, Tensor]]

# Who compiles where Inductor does not.
BACKENDS = {"hpu": "hpu_backend"}


def agree_on_precision() -> None:
    """Give the old switch for TF32 convolutions the new ones' value: `torch.export` reads the old
    one, and torch refuses to answer while they differ.
    """
    conv: Any = getattr(torch.backends.cudnn, "conv", None)
    if getattr(conv, "fp32_precision", "") == "ieee":
        # Who has loaded torch's operator database may not set the switch by its public name.
        torch._C._set_cudnn_allow_tf32(False)  # noqa: SLF001, FBT003
        conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "ieee"


def run_checkpointed(model: nn.Module) -> Run:
    """Run a model that repeats its forward pass during the backward pass, from the inputs alone."""

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = checkpoint(model.predict, *inputs[:-1], use_reentrant=False)
        return logits, model.loss(logits, inputs[-1])

    return run


def export(model: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """Return the graph that `torch.export` finds, as a module with the model's parameter names."""
    agree_on_precision()
    exported: Any = torch.export.export(model, inputs, strict=False)
    module: nn.Module = exported.module()
    return module


def run_compiled(model: nn.Module, device: str, *, whole: bool = True) -> Run:
    """`torch.compile` in its default mode: the others may use graph capture, which is no
    question of numerics. `whole` allows no break of the graph.
    """
    torch.compiler.reset()
    backend = BACKENDS.get(device, "inductor")
    compiled: Run = torch.compile(model, fullgraph=whole, dynamic=False, backend=backend)
    return compiled


def missing_compiler(device: str) -> str:
    """Why `torch.compile` cannot work here, or nothing. Inductor writes C++ for the CPU and Triton
    for GPUs, and Triton builds its launcher with a C compiler; Gaudi's is registered by its bridge.
    """
    if device in BACKENDS:
        backends = torch.compiler.list_backends(exclude_tags=())
        return "" if BACKENDS[device] in backends else f"there is no {BACKENDS[device]}"
    names = ("CXX", "g++", "c++", "clang++") if device == "cpu" else ("CC", "gcc", "cc", "clang")
    compiler = os.environ.get(names[0]) or next(filter(shutil.which, names[1:]), "")
    if not compiler:
        return f"no {'C++' if device == 'cpu' else 'C'} compiler in this image"
    if device != "cpu" and importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    return ""
