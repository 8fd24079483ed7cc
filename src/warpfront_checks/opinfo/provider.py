"""Cases of the operator database: torch's own samples, crossed with memory forms and the gradient
of one tensor alone.

A case draws its sample again, by torch alone: `setup` has the statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from warpfront_checks.cases.axes import laid_out
from warpfront_checks.cases.case import Argument, Case, fed_as, sent_to
from warpfront_checks.opinfo.adapter import SEED, Entry, Sample

MOST_ALONE = 4
HALVES = ("bfloat16", "float16")
# The first, third ... argument as it is, the others with gaps: kernels of several tensors may take
# the strides of one for all.
EVERY_SECOND = "every second with gaps"
_LISTED = (
    "listed = lambda x: [y if y.layout == torch.strided else y.to_dense()"
    " for y in torch.utils._pytree.tree_leaves(x) if isinstance(y, torch.Tensor)]"
)


@dataclass(frozen=True, kw_only=True)
class SampleTensor(Argument):
    """A tensor of a sample; `values` is the expression of its numbers."""

    def draw(self, dtype: str) -> str:  # noqa: ARG002 - the sample has its dtype
        wide = "complex128" if self.dtype.startswith("complex") else "float64"
        return f"({self.values}).detach(){f'.to(torch.{wide})' if self.floating else '.clone()'}"


@dataclass(frozen=True, kw_only=True)
class SampleCase(Case):
    """A sample as a case: `code` lists each tensor of its results; several may have gradients."""

    def _gradients(self, name: str, results: str, send: str) -> list[str]:
        if not self.leaves:
            return []
        leaves = ", ".join(leaf.name for leaf in self.leaves)
        lines = [f"ends = [x for x in {name} if x.requires_grad]"]
        back = "fed"
        if send:
            each = fed_as(self.layout, sent_to(self.device, "fed.to(x.dtype)"))
            back = f"[{each} for fed, x in zip(fed, ends)]"
        else:
            # Rounded to the dtype, and no more; a real call has no complex gradient.
            kind = f"torch.{self.dtype}"
            if self.dtype.startswith("complex"):
                kind = "torch.complex64 if x.is_complex() else torch.float32"
            real = f"torch.randn(x.shape, generator=g, dtype=x.dtype).to({kind}).to(x.dtype)"
            lines.append(f"fed = [{real} for x in ends]")
        grad = f"torch.autograd.grad(ends, [{leaves}], {back}, allow_unused=True)"
        return [
            *lines,
            f"{results} = {grad} if ends else [None] * {len(self.leaves)}",
            f"{results} = [x if x is None else listed(x)[0] for x in {results}]",
        ]


def cases_of_sample(
    entry: Entry, sample: Sample, *, dtype: str, device: str, seed: int
) -> Iterator[tuple[Case, ...]]:
    """Yield the cases of a sample, together those with one reference: in its memory forms, and with
    the gradient of one tensor alone.
    """
    first = _plain_case(entry, sample, dtype=dtype, device=device, seed=seed)
    yield tuple(with_memory(first, form) for form in memory_forms(entry, sample.number, dtype))
    if dtype == "float32" and not sample.number and 1 < len(first.leaves) <= MOST_ALONE:
        for leaf in first.leaves:
            alone = [replace(a, leaf=a.name == leaf.name) for a in first.arguments]
            yield (replace(first, arguments=tuple(alone)),)


def memory_forms(entry: Entry, number: int, dtype: str) -> list[str]:
    """Return the memory forms of a sample. Every second sample is strided, and its gradient as
    well. In float32 every second of the others is strided in some of its tensors only. The first
    sample, often the only one of its kind, is in exact dtypes transposed too. In float32 it is also
    strided and offset from the start of its memory, as no other sample is.
    """
    if not entry.takes_strides:
        return [""]
    if number:
        some = EVERY_SECOND if dtype == "float32" and number % 4 == 2 else ""
        return ["gaps" if number % 2 else some]
    if dtype in HALVES:
        return [""]
    memory = ["transposed"] if entry.takes_order else ["gaps"]
    if dtype == "float32":
        memory = [*dict.fromkeys(["gaps", *memory]), "offset"]
    return ["", *memory]


def with_memory(case: Case, form: str) -> Case:
    """Return a case with its arguments, and the gradient that is fed back, in a memory form."""
    forms = ("", "gaps") if form == EVERY_SECOND else (form,)
    arguments = tuple(_in_form(a, forms[i % len(forms)]) for i, a in enumerate(case.arguments))
    layout = form if form in {"gaps", "offset", "transposed"} else "contiguous"
    label = (("memory", form),) if form else ()
    return replace(case, arguments=arguments, layout=layout, labels=(*case.labels, *label))


def _in_form(argument: Argument, form: str) -> Argument:
    dims = len(argument.shape)
    if not form or "sparse" in argument.fit:
        return argument
    if form == "transposed":
        return laid_out(argument, "reversed" if dims > 2 else form)
    return laid_out(argument, "offset" if form == "gaps" and not dims else form)


def _plain_case(entry: Entry, sample: Sample, *, dtype: str, device: str, seed: int) -> Case:
    raw = sample.raw
    tensors = [x for x in tree_leaves([raw.input, raw.args, raw.kwargs]) if isinstance(x, Tensor)]
    arguments = [_argument(f"t{n}", n, x, dtype) for n, x in enumerate(tensors)]
    if not sample.number and tensors and tensors[0] is raw.input:
        arguments[0] = _as_table(entry, arguments[0])
    names = {id(x): a.name for x, a in zip(tensors, arguments, strict=True)}
    call = partial_text(entry, raw, names)
    return SampleCase(
        operation=entry.name,
        code=call(device),
        definition=call("cpu"),
        arguments=tuple(arguments),
        dtype=dtype,
        device=device,
        seed=seed,
        by_matrix=entry.by_matrix,
        labels=(("sample", sample.number),),
        setup=setup_of(entry, sample, dtype),
        made={
            "listed": _listed,
            "sample": raw,
            "entry": entry.raw,
            "settle": raw.output_process_fn_grad,
            "tensors": tensors,
        },
    )


def setup_of(entry: Entry, sample: Sample, dtype: str) -> tuple[str, ...]:
    """Return the statements that draw a sample as `Entry.samples` does."""
    name = (entry.raw.name, entry.raw.variant_test_name)
    module = "torch.testing._internal.common_methods_invocations"
    leaves = "torch.utils._pytree.tree_leaves([sample.input, sample.args, sample.kwargs])"
    arguments = f"entry, 'cpu', torch.{dtype}, {sample.backward}"
    return (
        "import random, numpy",
        f"from {module} import op_db",
        f"entry = next(one for one in op_db if (one.name, one.variant_test_name) == {name!r})",
        f"samples = iter(entry.sample_inputs_func({arguments}))",
        f"for _ in range({sample.place + 1}):",
        f"    torch.manual_seed({SEED}); random.seed({SEED}); numpy.random.seed({SEED})",
        "    sample = next(samples)",
        "settle = sample.output_process_fn_grad",
        f"tensors = [x for x in {leaves} if isinstance(x, torch.Tensor)]",
        _LISTED,
    )


def partial_text(entry: Entry, raw: Any, names: dict[int, str]) -> Callable[[str], str]:
    """Return the call of a sample in words of Python, for a device. Functions that create tensors,
    or move them, receive the device as an argument.
    """
    values = [_text(raw.input, "sample.input", names)]
    values += [_text(x, f"sample.args[{n}]", names) for n, x in enumerate(raw.args)]
    keyed = {key: _text(x, f"sample.kwargs[{key!r}]", names) for key, x in raw.kwargs.items()}
    placed = "device" in raw.kwargs or getattr(entry.raw, "is_factory_function", False)

    def call(device: str) -> str:
        named = {**keyed, "device": repr(device)} if placed else keyed
        keywords = [f"**{{{key!r}: {value}}}" for key, value in named.items() if not _plain(key)]
        keywords = [f"{key}={value}" for key, value in named.items() if _plain(key)] + keywords
        return f"listed(settle(entry({', '.join([*values, *keywords])})))"

    return call


def _plain(key: str) -> bool:
    return key.isidentifier() and key not in {"from", "lambda", "in"}


def _text(x: Any, path: str, names: dict[int, str]) -> str:
    """Return an argument in words: its name if it is a tensor, its literal, or else its path."""
    if isinstance(x, Tensor):
        return names[id(x)]
    if type(x) in {list, tuple} and any(isinstance(y, Tensor) for y in tree_leaves(x)):
        inner = ", ".join(_text(y, f"{path}[{n}]", names) for n, y in enumerate(x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner},)"
    literal = isinstance(x, (bool, int, str, slice, type(None), torch.dtype, torch.layout))
    literal = literal or (isinstance(x, float) and math.isfinite(x))
    plain = literal or (type(x) in {list, tuple} and all(type(y) in {int, bool} for y in x))
    return repr(x) if plain and type(x).__module__ in {"builtins", "torch"} else path


def _argument(name: str, number: int, x: Tensor, dtype: str) -> Argument:
    own_dtype = str(x.dtype).removeprefix("torch.")
    floating = x.is_floating_point() or x.is_complex() or own_dtype == dtype
    return SampleTensor(
        name=name,
        shape=tuple(x.shape),
        drawn=tuple(x.shape),
        values=f"tensors[{number}]",
        fit="{x}" if x.layout == torch.strided else "sparse",
        floating=floating,
        dtype=own_dtype if floating else "",
        leaf=x.requires_grad,
    )


def _as_table(entry: Entry, argument: Argument) -> Argument:
    """Return a row as a table, so that its memory layout can vary."""
    row = type(entry.raw).__name__ == "UnaryUfuncInfo" and len(argument.shape) == 1
    if not row or not argument.shape[0] or argument.shape[0] % 4 or argument.fit == "sparse":
        return argument
    shape = (4, argument.shape[0] // 4)
    return replace(argument, shape=shape, drawn=shape, values=f"{argument.values}.reshape{shape}")


def _listed(value: Any) -> list[Tensor]:
    tensors = (x for x in tree_leaves(value) if isinstance(x, Tensor))
    return [x if x.layout == torch.strided else x.to_dense() for x in tensors]
