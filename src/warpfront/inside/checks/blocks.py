"""Small networks as lists of operations, run forward and backward with every intermediate kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from warpfront.inside.checks.operations import Attention, Multilinear, Norm, Operation, Pointwise


class Node(NamedTuple):
    """One operation: its name is the name of its output; `inputs` are names of leaves
    or earlier nodes.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...]


class Leaf(NamedTuple):
    """An input or parameter: normal numbers of mean `mean` and deviation `scale`."""

    shape: tuple[int, ...]
    scale: float = 1.0
    mean: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """A network. The last node is its output, of shape `output`."""

    name: str
    leaves: Mapping[str, Leaf]
    nodes: tuple[Node, ...]
    output: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The leaves' values and the gradient fed into the output, on the CPU in the tested dtype."""

    leaves: Mapping[str, Tensor]
    cotangent: Tensor


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Everything one run computed, copied to the CPU: values and gradients of leaves and nodes.

    `devices` is the device type that each value, and each gradient (`grad:NAME`), was found on.
    """

    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    devices: Mapping[str, str]


def make_inputs(block: Block, dtype: torch.dtype, seed: int) -> Inputs:
    """The same numbers on every machine: made on the CPU (generators differ between
    devices), then rounded.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = {
        name: (torch.randn(leaf.shape, generator=generator) * leaf.scale + leaf.mean).to(dtype)
        for name, leaf in block.leaves.items()
    }
    return Inputs(leaves=leaves, cotangent=torch.randn(block.output, generator=generator).to(dtype))


def execute(block: Block, inputs: Inputs, device: str) -> Trace:
    """Run a block forward and backward on a device. This is the seam that tests put
    faulty devices into.
    """
    values = {
        name: leaf.detach().to(device).requires_grad_() for name, leaf in inputs.leaves.items()
    }
    for node in block.nodes:
        output = node.operation(*(values[name] for name in node.inputs))
        output.retain_grad()
        values[node.name] = output
    values[block.nodes[-1].name].backward(inputs.cotangent.to(device))
    gradients = {name: value.grad for name, value in values.items() if value.grad is not None}
    places = {name: value.device.type for name, value in values.items()}
    places.update({f"grad:{name}": gradient.device.type for name, gradient in gradients.items()})
    return Trace(
        values={name: value.detach().cpu() for name, value in values.items()},
        gradients={name: gradient.detach().cpu() for name, gradient in gradients.items()},
        devices=places,
    )


def _linear(*names: str) -> tuple[Operation, tuple[str, ...]]:
    return Multilinear(kind="linear", function=functional.linear), names


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def _convolution(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv2d(x, weight, padding=1)


def _convolution_stride_2(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.conv2d(x, weight, bias, padding=1, stride=2)


# No bias before a batch norm and none for keys: their gradients are zero but for rounding, which
# proves nothing. 67 rows: no multiple of a warp (32), a wavefront (64) or a tile.
MLP = Block(
    name="mlp",
    leaves={
        "x": Leaf((67, 256)),
        "w1": Leaf((384, 256), 256**-0.5),
        "b1": Leaf((384,), 0.5),
        "w2": Leaf((128, 384), 384**-0.5),
        "b2": Leaf((128,), 0.5),
    },
    nodes=(
        Node("hidden", *_linear("x", "w1", "b1")),
        Node("active", Pointwise(function=functional.gelu), ("hidden",)),
        Node("y", *_linear("active", "w2", "b2")),
    ),
    output=(67, 128),
)
CONVOLUTION = Block(
    name="convolution",
    leaves={
        "x": Leaf((3, 16, 17, 17)),
        "w1": Leaf((48, 16, 3, 3), 144**-0.5),
        "gamma": Leaf((48,), 0.2, 1.0),
        "beta": Leaf((48,), 0.5),
        "w2": Leaf((40, 48, 3, 3), 432**-0.5),
        "b2": Leaf((40,), 0.5),
    },
    nodes=(
        Node("features", Multilinear(kind="convolution", function=_convolution), ("x", "w1")),
        Node(
            "normal",
            Norm(kind="batch norm", function=_batch_norm, over=(0, 2, 3), along=(1,)),
            ("features", "gamma", "beta"),
        ),
        Node("active", Pointwise(function=functional.silu), ("normal",)),
        Node(
            "y",
            Multilinear(kind="convolution", function=_convolution_stride_2),
            ("active", "w2", "b2"),
        ),
    ),
    output=(3, 40, 9, 9),
)
ATTENTION = Block(
    name="attention",
    leaves={
        "x": Leaf((2, 67, 128)),
        "gamma": Leaf((128,), 0.2, 1.0),
        "beta": Leaf((128,), 0.2),
        "wq": Leaf((128, 128), 128**-0.5),
        "bq": Leaf((128,), 0.2),
        "wk": Leaf((128, 128), 128**-0.5),
        "wv": Leaf((128, 128), 128**-0.5),
        "bv": Leaf((128,), 0.2),
        "wo": Leaf((128, 128), 128**-0.5),
        "bo": Leaf((128,), 0.2),
    },
    nodes=(
        Node(
            "normal",
            Norm(kind="layer norm", function=_layer_norm, over=(2,), along=(2,)),
            ("x", "gamma", "beta"),
        ),
        Node("q", *_linear("normal", "wq", "bq")),
        Node("k", *_linear("normal", "wk")),
        Node("v", *_linear("normal", "wv", "bv")),
        Node("mixed", Attention(heads=4), ("q", "k", "v")),
        Node("y", *_linear("mixed", "wo", "bo")),
    ),
    output=(2, 67, 128),
)
BLOCKS = (MLP, CONVOLUTION, ATTENTION)
