"""A case: one call with every argument fixed. Its `repr` is a script of torch alone, and the engine
executes the same statements that the script has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# Numbers on the CPU in float64, by a generator `g`: each expression has a shape and a dtype.
VALUES = {
    "small": "torch.randint(-4, 5, {shape}, generator=g).double()",
    "quarters": "torch.randint(-8, 9, {shape}, generator=g).double() / 4",
    "eighths": "torch.randint(-15, 16, {shape}, generator=g).double() / 8",
    # Mostly 0, else 1 or -1: sums of many thousands stay exact in every dtype.
    "few": "torch.tensor([1.0] + [0] * 14 + [-1]).double()"
    "[torch.randint(0, 16, {shape}, generator=g)]",
    # Integers of 12 bits: rounding to bfloat16 (8 bits) or TF32 (11 bits) changes them.
    "wide": "torch.randint(-4095, 4096, {shape}, generator=g).double()",
    # A sum of 65,000 of these stays exact in float32.
    "sparse": "torch.randint(-2047, 2048, {shape}, generator=g).double()"
    " * (torch.randint(0, 8, {shape}, generator=g) == 0)",
    "distinct": "torch.randperm({numel}, generator=g).view({shape}).double() - {numel} // 2",
    # The largest number of every line is its last, or its first.
    "rising": "torch.arange({numel}).view({shape}).double() - {numel} // 2",
    "falling": "{numel} // 2 - torch.arange({numel}).view({shape}).double()",
    # What decides lies far up, and at the far end of every line.
    "peak": "(lambda x: [x, x[-1:].fill_(150), x[..., -1:].fill_(150)][0])("
    "torch.randint(-8, 9, {shape}, generator=g).double() / 4)",
    # The same, where a square leaves float16's range.
    "spike": "(lambda x: [x, x[-1:].fill_(300), x[..., -1:].fill_(300)][0])("
    "torch.randint(-8, 9, {shape}, generator=g).double() / 4)",
    "normal": "torch.randn({shape}, generator=g, dtype=torch.float64).to(torch.{dtype}).double()",
    # Complex numbers that are half the transform of real ones of an odd length.
    "spectrum": "torch.randn({shape}, generator=g, dtype=torch.float64).to(torch.{dtype}).double()"
    " * (torch.arange({shape}[-1]) > 0)",
    # Of some magnitude, past the range of exp: up to 128, 256 or 512.
    "large": "torch.randint(-8, 9, {shape}, generator=g).double()"
    " * 2.0 ** torch.randint(4, 7, (), generator=g)",
    # Of one sign: what pads a block shows, and sums of many leave the range of 16 bits.
    "ones": "torch.randint(0, 2, {shape}, generator=g).double()",
    "above": "torch.randint(1, 101, {shape}, generator=g).double()",
    "below": "-torch.randint(0, 101, {shape}, generator=g).double()",
    "whole": "torch.randint(-999, 1000, {shape}, generator=g).to(torch.{dtype}).double()",
    # Zeros of both signs, and what is rounded to them.
    "signed": "torch.tensor([-0.0, 0.0, -0.25, 0.25, -1.0, 1.0]).double()"
    "[torch.randint(0, 6, {shape}, generator=g)]",
    # Few bits and many exponents: halfway between neighbours of eight bits.
    "short": "torch.randint(-31, 32, {shape}, generator=g).double()"
    " * 2.0 ** torch.randint(-18, 12, {shape}, generator=g)",
    # All alike but for the last bits, so that results of their differences have every digit.
    "afar": "torch.randint(-4, 5, {shape}, generator=g).double() + 2**16",
    "signs": "torch.tensor([1.0, -1.0] * 31 + [0.0, 1.0]).double()"
    "[torch.randint(0, 64, {shape}, generator=g)]",
    "equal": "torch.full({shape}, 2.0).double()",
    "zeros": "torch.zeros({shape}).double()",
    "non-finite": "torch.tensor([float('nan'), float('inf'), -float('inf'), 0.0, -0.0, 1.5, -2.0])"
    ".double()[torch.randint(0, 7, {shape}, generator=g)]",
    # Infinities of one sign.
    "rare": "torch.where(torch.rand({shape}, generator=g) < 0.01, math.inf *"
    " (2 * torch.randint(0, 2, (1,), generator=g) - 1),"
    " torch.randint(-4, 5, {shape}, generator=g).double())",
    # Rows of logits: some far from 0, half of the numbers masked.
    "masked": "torch.where(torch.rand({shape}, generator=g) < 0.5, -math.inf, "
    "torch.randint(-8, 9, {shape}, generator=g).double() / 4)",
    "shifted": "(torch.randn({shape}, generator=g, dtype=torch.float64) + 1000 *"
    " torch.randint(-30, 31, (1,), generator=g)).to(torch.{dtype}).double()",
    # Sums and squares of these leave the range of float16.
    "high": "torch.randint(4, 9, {shape}, generator=g).double() * 2048",
    "away": "torch.randint(-4, 5, {shape}, generator=g).double() + 4096",
    # Over the range of the dtype.
    "far": "(torch.randn({shape}, generator=g, dtype=torch.float64) * 2.0 **"
    " torch.randint(-{far}, {far} + 1, {shape}, generator=g)).to(torch.{dtype}).double()",
    # Of integers alone.
    "bits": "torch.randint(-2**62, 2**62, {shape}, generator=g).to(torch.{dtype})",
    "ends": "torch.tensor([n for k in (0, 1, 2, 7) for n in (torch.iinfo(torch.{dtype}).max - k,"
    " torch.iinfo(torch.{dtype}).min + k, k)])[torch.randint(0, 12, {shape}, generator=g)]",
    "neighbours": "torch.iinfo(torch.{dtype}).max"
    " - torch.randperm({numel}, generator=g).view({shape})",
    "truth": "torch.randint(0, 3, {shape}, generator=g) > 0",
    "permutation": "torch.rand({shape}, generator=g).argsort(-1)",
}
INDEX = "torch.randint(0, {below}, {shape}, generator=g)"
NAMES = "abcdefgh"
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
# Each copy that is waited for is a turn among the processes of a GPU.
UNAWAITED = "non_blocking=True"
# The dtype of the parts.
COMPLEX = {"complex64": "float32", "complex128": "float64"}
# The complex dtype that a real one's results have; bfloat16 has none of its width.
COMPLEX_OF = {"float16": "complex32", "bfloat16": "complex64", "float32": "complex64"}
FAR = {"float16": 12, "float64": 900}


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor. Its numbers are drawn in the shape `drawn`, transformed by `fit`, laid out with
    `strides` from `offset` in a larger memory (None: contiguous), then expanded to `shape`.
    """

    name: str
    shape: tuple[int, ...]
    values: str
    drawn: tuple[int, ...]
    fit: str = "{x}"
    # The argument that some of the numbers are equal to.
    like: str = ""
    strides: tuple[int, ...] | None = None
    offset: int = 0
    floating: bool = True
    leaf: bool = False
    # Of another width than the case's.
    dtype: str = ""

    @property
    def length(self) -> int:
        """Return the number of elements of the memory that the strides reach."""
        pairs = zip(self.drawn, self.strides or (), strict=True)
        return self.offset + 1 + sum((n - 1) * step for n, step in pairs)

    def draw(self, dtype: str) -> str:
        dtype = self.dtype or dtype
        real = COMPLEX.get(dtype, dtype)
        fields = {"shape": self.drawn, "numel": math.prod(self.drawn), "dtype": real}
        text = VALUES.get(self.values, self.values).format(**fields, far=FAR.get(real, 100))
        if self.floating and self.fit != "{x}":
            text = self.fit.format(x=f"({text})")
            # Numbers that are rounded to one width and used in another are those of the first.
            text = f"({text}).to(torch.{real}).double()" if self.dtype else text
        if self.floating and dtype in COMPLEX:
            text = f"torch.complex({text}, {text})"
        elif self.floating and dtype == "bool":
            text = f"({text}) > 0"
        elif self.floating and dtype in INTEGERS:
            absolute = ".abs()" if dtype == "uint8" and self.values == "small" else ""
            text = f"({text}){absolute}.to(torch.{dtype})"
        if self.like:
            text = f"torch.where(torch.rand({self.drawn}, generator=g) < 0.5, {self.like}, {text})"
        return text if self.drawn == self.shape else f"({text}).expand({self.shape}).contiguous()"

    def send(self, dtype: str, device: str) -> str:
        """Return the expression that copies the numbers to a device, as they are to lie there."""
        dtype = self.dtype or dtype
        kind = f"torch.{dtype}" if self.floating else f"{self.name}.dtype"
        pairs = zip(self.drawn, self.shape, strict=True)
        first = ", ".join(":1" if one != whole else ":" for one, whole in pairs)
        part = self.name if self.drawn == self.shape else f"{self.name}[{first}]"
        text = f"{part}.to({kind}, copy=True)"
        if self.strides is None:
            text = sent_to(device, text)
        else:
            filled = f"torch.full(({self.length},), 9, dtype={kind}, device={device!r})"
            if not self.floating:
                filled = f"torch.zeros({self.length}, dtype={kind}, device={device!r})"
            memory = f"{filled}.as_strided({self.drawn}, {self.strides}, {self.offset})"
            text = f"{memory}.copy_({text}, {UNAWAITED})"
        if self.drawn != self.shape:
            text = f"{text}.expand({self.shape})"
        return f"{text}.detach().requires_grad_()" if self.leaf else text


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call. `destination` is "" (a new result), "in place" or "out". `out` and `fed` are the
    layouts of the output tensor and of the output's gradient. Arguments that are `interleaved` are
    slices of one memory. `setup` are statements before all others; `made` has the names that they
    make, where its provider executed them. A `by_matrix` call decomposes matrices. Numbers are of
    the case's dtype, or `rounded` to another. The bound is `ulps` units in the last place, and
    `roundings` of the largest number and of `least`. Where `summed` terms may cancel, each may also
    have the effect that a rounding of operands and steps has. `definition` is the reference.
    """

    operation: str
    code: str
    definition: str
    arguments: tuple[Argument, ...]
    dtype: str
    device: str = "cpu"
    seed: int = 0
    destination: str = ""
    interleaved: tuple[str, ...] = ()
    layout: str = "contiguous"
    fed: str = "few"
    ulps: float = 0.0
    roundings: float = 0.0
    least: float = 0.0
    relative: bool = False
    summed: bool = False
    labels: tuple[tuple[str, object], ...] = field(default=(), compare=False)
    lengths: Mapping[str, int] = field(default_factory=dict, compare=False)
    by_matrix: bool = False
    rounded: str = ""
    setup: tuple[str, ...] = ()
    made: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def axes(self) -> Mapping[str, object]:
        """Return the labelled values of its axes, and the `lengths` of its sizes."""
        return {**dict(self.labels), "lengths": self.lengths}

    @property
    def leaves(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.leaf)

    def inputs(self) -> list[str]:
        """Return the statements that draw the numbers."""
        lines = [f"g = torch.Generator().manual_seed({self.seed})"]
        return lines + [
            f"{argument.name} = {argument.draw(self.rounded or self.dtype)}"
            for argument in self.arguments
        ]

    def oracle(self) -> list[str]:
        """Return the statements of the reference: float64 on the CPU, contiguous."""
        lines = [f"{leave.name}.requires_grad_()" for leave in self.leaves]
        return [*lines, f"right = {self.definition}", *self._gradients("right", "rights", "")]

    def statements(self) -> list[str]:
        """Return what decides the numbers and results of the reference, but for its leaves."""
        fed = f"{self.fed}, {self.layout == 'expanded'}, {self.dtype in COMPLEX}"
        return [*self.setup, *self.inputs(), self.definition, fed]

    def again(self) -> list[str]:
        """Return the same for a gradient that is `fed` already."""
        return [line for line in self.oracle() if not line.startswith("fed = ")]

    def sent(self) -> list[str]:
        lines = [
            f"{argument.name} = {argument.send(self.dtype, self.device)}"
            for argument in self.arguments
        ]
        if self.interleaved:
            names = ", ".join(self.interleaved)
            lines.append(f"{names} = torch.stack([{names}], -1).detach().unbind(-1)")
        return lines

    def call(self) -> list[str]:
        """Return the statements that are judged."""
        if self.destination == "in place":
            return [self.code_in_place, "found = a"]
        if self.destination == "out":
            return [f"out = {self._outs()}", f"{self.code[:-1]}, out=out)", "found = out"]
        kind = "found.dtype" if self.dtype in COMPLEX else f"torch.{self.dtype}"
        send = sent_to(self.device, f".to({kind})")
        return [f"found = {self.code}", *self._gradients("found", "gradients", send)]

    @property
    def code_in_place(self) -> str:
        """Return the call of the method that changes `a`, made of the functional one."""
        name, _, rest = self.code.partition("(")
        name = name.rpartition(".")[2]
        return f"a.{name}_({rest.removeprefix('a').removeprefix(', ')}"

    @property
    def narrowed(self) -> Mapping[str, str]:
        """Return the dtype that a result has on the device, by that of the oracle."""
        if self.dtype in INTEGERS:
            return {}
        real = COMPLEX.get(self.dtype, self.dtype)
        return {"float64": real, "complex128": COMPLEX_OF.get(real, "complex128")}

    def _outs(self) -> str:
        """Return the memory that results are put into; it is laid out like a gradient."""
        # A dtype that the code names is the result's.
        narrowed = {a: b for a, b in self.narrowed.items() if f"torch.{a}" not in self.code}
        kind = f"{{{', '.join(f'torch.{a}: torch.{b}' for a, b in narrowed.items())}}}"
        kind = f"{kind}.get(x.dtype, x.dtype)"
        layout = "contiguous" if self.layout == "expanded" else self.layout
        memory = f"torch.ones_like(x, dtype={kind}, device={self.device!r})"
        expression = fed_as(layout, memory, like="x")
        if layout == "empty":
            expression = memory.replace("ones_like(x", "empty(0")
        several = "[right] if isinstance(right, torch.Tensor) else right"
        return f"[{expression} for x in ({several})]; out = out[0] if len(out) == 1 else tuple(out)"

    def _gradients(self, name: str, results: str, send: str) -> list[str]:
        if not self.leaves:
            return []
        leaves = ", ".join(leave.name for leave in self.leaves)
        lines = []
        if not send:
            shape = "tuple(right.shape)"
            if self.layout == "expanded":
                # All alike, as below a sum, or along some axes.
                whole = f"{self.seed} >> i + 1 & 1" if self.seed % 2 else "False"
                shape = f"tuple(n if {whole} else 1 for i, n in enumerate(right.shape))"
            expression = VALUES.get(self.fed, self.fed).format(
                shape=shape, dtype=self.dtype, numel=""
            )
            lines = [f"fed = {expression}"]
            if self.dtype in COMPLEX:
                lines = [f"fed = ({expression}) * (1 + 2j if right.is_complex() else 1)"]
        layout = self.layout if send or self.layout == "expanded" else "contiguous"
        back = fed_as(layout, f"fed{send}", name)
        grad = f"torch.autograd.grad({name}, [{leaves}], {back}, allow_unused=True)"
        return [*lines, f"{results} = {grad}"]

    def __repr__(self) -> str:
        return "\n".join(
            [
                "import math, torch",
                "import torch.nn.functional as F",
                *self.setup,
                *self.inputs(),
                *self.oracle(),
                *self.sent(),
                *self.call(),
                *_SHOWN,
            ]
        )


# Numbers of the shape of a tensor `like`, in other memory.
_FED = {
    "contiguous": "{x}",
    "empty": "{x}",
    "gaps": "torch.stack([{x}, {x}], -1)[..., 0]",
    "offset": "torch.cat([{x}.new_zeros(3), {x}.flatten()])[3:].view({like}.shape)",
    # As a part of what was joined.
    "window": "F.pad({x}, (0, 3, 0, 2)[: 2 * {like}.dim()])[tuple(map(slice, {like}.shape))]",
    "transposed": "{x}.permute(tuple(range({like}.dim()))[::-1]).contiguous()"
    ".permute(tuple(range({like}.dim()))[::-1])",
    # The second axis, or the only one, lies last.
    "last": "{x}.movedim(min(1, {like}.dim() - 1), -1).contiguous()"
    ".movedim(-1, min(1, {like}.dim() - 1))",
    "expanded": "{x}.expand_as({result})",
}
LAYOUTS = tuple(_FED)


def sent_to(device: str, numbers: str) -> str:
    """Return the expression of numbers on a device. The CPU has rounded them to their dtype: a copy
    that is not awaited is rounded by the device that is judged.
    """
    return f"{numbers}.to({device!r}, {UNAWAITED})"


def fed_as(layout: str, sent: str, result: str = "", like: str = "fed") -> str:
    """Return the expression of a result's gradient in a layout; `sent` is that on the device."""
    return _FED[layout].format(x=sent, like=like, result=result)


_SHOWN = (
    "listed = lambda x: [x] if isinstance(x, torch.Tensor) else list(x)",
    "all_found = listed(found) + listed(globals().get('gradients', []))",
    "pairs = zip(all_found, listed(right) + listed(globals().get('rights', [])))",
    "for x, y in ((x, y) for x, y in pairs if x is not None):",
    "    off = (x.detach().cpu().to(torch.complex128) - y.detach().to(torch.complex128)).abs()",
    "    print(tuple(x.shape), x.dtype, 'largest difference', off.max() if off.numel() else 0)",
)
