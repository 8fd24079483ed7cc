"""Cases of a model's layers: a call of a pass, from the numbers that the device itself had, and the
same call of other numbers for a script of torch alone.

In a script the operators stand that the layer called, so it needs no library but torch.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from warpfront_checks.cases.bounds import Bound, Verdict, judge_by_all
from warpfront_checks.cases.case import Argument, Case
from warpfront_checks.cases.measured import ByPeer, Limits
from warpfront_checks.cases.report import described, least_sizes
from warpfront_checks.cases.run import (
    CaseResults,
    Reference,
    compared,
    execute,
    names_of,
    reference_of,
)
from warpfront_checks.cases.session import fault_of
from warpfront_checks.executing import converted, tensors_in
from warpfront_checks.models.families import Function
from warpfront_checks.models.passes import Call, Pass, Region, Specimen, tensors_of

HALF = (torch.float16, torch.bfloat16)
# Their parameters belong to the second axis of what comes back, all others' to the last.
OF_CHANNELS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Conv1d, nn.Conv2d, nn.GroupNorm)
_PLACE = re.compile(r"device\(type='\w+'(, index=\d+)?\)")


@dataclass(frozen=True, kw_only=True)
class LayerCall:
    """A layer's call in a pass. The `layer` is the CPU's, as it was sent to the device."""

    call: Call
    layer: nn.Module
    specimen: Specimen

    @property
    def kind(self) -> str:
        """Return the layer's class, or its function."""
        made_by = self.layer.function if isinstance(self.layer, Function) else type(self.layer)
        return str(made_by.__name__)

    @property
    def gradient(self) -> Tensor | None:
        """Return the gradient of the output. Of more calls those of parameters are not apart."""
        return self.call.gradient_out if self.call.times == 1 else None

    @property
    def _state(self) -> dict[str, Tensor]:
        return {**dict(self.layer.named_parameters()), **dict(self.layer.named_buffers())}

    @cached_property
    def tensors(self) -> dict[str, tuple[str, Tensor]]:
        """Return by its name in the case the label and the numbers of each tensor."""
        call = self.call
        labels = {id(x): label for label, x in tensors_of(call.arguments, call.options).items()}
        tensors = enumerate(tensors_in((call.arguments, call.options)))
        named = {labels.get(id(x), f"inner {n}"): x for n, x in tensors}
        named |= self._state
        return {re.sub(r"\W", "_", label): (label, x) for label, x in named.items()}

    def case(self) -> Case:
        """Return the case with the device's own numbers."""
        assert self.call.output is not None
        names, output = tuple(self.tensors), self.call.output
        return Case(
            operation=self.kind,
            code=f"layer({', '.join(names)})",
            definition=f"exact({', '.join(names)})",
            arguments=tuple(map(self._argument, names)),
            dtype=str(output.dtype).removeprefix("torch."),
            device=min(self.call.places),
            fed="cotangent.to(right.dtype)",
            made={
                "taken": {name: x.detach() for name, (_, x) in self.tensors.items()},
                "cotangent": self.gradient,
                "layer": self._function(self.specimen.precision.autocast),
                "exact": self._function(lambda _: self.specimen.wide()),
            },
        )

    def _argument(self, name: str) -> Argument:
        label, x = self.tensors[name]
        real, shape, dtype = x.is_floating_point(), tuple(x.shape), str(x.dtype)[len("torch.") :]
        is_leaf = label in self.call.wanted or (isinstance(x, nn.Parameter) and x.requires_grad)
        return Argument(
            name=name,
            shape=shape,
            drawn=shape,
            values=f"taken[{name!r}].to(torch.{'float64' if real else dtype}, copy=True)",
            floating=real,
            dtype=dtype if real else "",
            leaf=is_leaf and self.gradient is not None,
        )

    def _function(self, region_on: Callable[[str], Region]) -> Callable[..., Tensor]:
        """Return the layer's call in a region as a function of its tensors, its own last."""
        layer, state, call = copy.deepcopy(self.layer), tuple(self._state), self.call

        def function(*tensors: Tensor) -> Tensor:
            numbers = iter(tensors)
            arguments, options = converted((call.arguments, call.options), lambda _: next(numbers))
            of_layer = dict(zip(state, numbers, strict=True))
            with region_on(next((x.device.type for x in tensors), "cpu")):
                output = functional_call(layer, of_layer, arguments, options)
            first: Tensor = output[0] if isinstance(output, tuple) else output
            return first

        return function

    def verdicts(self, passed: Pass) -> Iterator[Verdict]:
        """Yield the verdicts on the device's output and on each gradient of it."""
        case = self.case()
        reference = reference_of(case, self.specimen.wide())
        labels = [self.tensors[leaf.name][0] for leaf in case.leaves]
        gradients = {**self.call.gradients_in}
        for name, _ in self.layer.named_parameters():
            if (gradient := passed.gradients.get(f"{self.call.layer}.{name}")) is not None:
                gradients[name] = gradient
        results = CaseResults(
            case=case,
            reference=reference,
            actual=[x for x in [self.call.output] if x is not None],
            gradients=[gradients.get(label) for label in labels],
            after={},
        )
        judged = compared(results, self.bounds(case, reference))
        for label, verdict in zip(["", *labels], judged, strict=False):
            name = f"gradient of {label}" if label else "output"
            missing = verdict.fault and label and label not in gradients
            fault = "missing" if missing else verdict.fault
            row = replace(verdict, name=name, layer=self.call.layer, kind=self.kind, fault=fault)
            yield replace(row, describe=partial(self.describe, row)) if fault else row

    def bounds(self, case: Case, reference: Reference) -> LayerBounds:
        # The CPU's own result is the layer's in its dtype.
        return LayerBounds(replace(case, definition=case.code), reference, self)

    def describe(self, verdict: Verdict) -> Mapping[str, object]:
        """Return the call of other numbers made small, as lines, and its script."""

        def fails(case: Case) -> Verdict | None:
            return fault_of(case, bounds=self.bounds, oracle=self.specimen.wide())

        try:
            case = self._drawn()
            case = least_sizes(case, fails) if fails(case) else case
            worst = fails(case)
            report = [*described(case, worst or verdict)]
            alike = "with numbers drawn alike it is right: it needs the pass's own"
            report += [] if worst else [alike]
            script = repr(replace(case, setup=tuple(self._script(case))))
        except Exception as error:  # noqa: BLE001 - what a library's layer refuses with
            return {"report": [f"it has no script: {type(error).__name__}: {error}"[:300]]}
        return {"report": report, "script": script.splitlines()}

    def _drawn(self) -> Case:
        """Return the case with numbers of the same mean and deviation."""
        case, tensors = self.case(), self.tensors
        arguments = [replace(a, values=_like(tensors[a.name][1])) for a in case.arguments]
        fed = "few" if self.gradient is None else _like(self.gradient)
        return replace(case, arguments=tuple(arguments), fed=fed)

    def _script(self, case: Case) -> Iterator[str]:
        """Yield the definitions of both functions, by the operators that they called."""
        from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415 - takes seconds

        names = names_of(case)
        execute(case.inputs(), names)
        arguments = [argument.name for argument in case.arguments]

        def text(function: str) -> str:
            code = make_fx(case.made[function])(*map(names.get, arguments)).code.strip()
            code = re.sub(r"arg(\d+)_1", lambda match: arguments[int(match[1])], code)
            code = _PLACE.sub(f"{arguments[0]}.device", re.sub(r";  .*", "", code))
            return code.replace("forward(self, ", f"{function}(")

        yield f"from math import inf, nan\n{(exact := text('exact'))}\n"
        execute(case.sent(), names)
        layer = text("layer")
        yield "layer = exact" if layer == exact.replace("exact(", "layer(", 1) else layer


class LayerBounds(ByPeer):
    """Bounds of a layer's tensors by what the CPU is off by in the same dtype."""

    def __init__(self, case: Case, reference: Reference, of: LayerCall) -> None:
        super().__init__(case, reference)
        self.of = of

    def fault_of_form(self, place: int, actual: Tensor, _expected: Tensor) -> str:
        peer = self.peers[place]
        return "" if peer is None else self.of.specimen.precision.fault_of(actual, peer)

    def compared(self, actual: Tensor, expected: Tensor, bound: Bound) -> Verdict:
        return judge_by_all(actual, expected, bound, actual.dtype)

    def limits(self, place: int, actual: Tensor, expected: Tensor, peer: Tensor) -> Limits:
        kind, sums = self.of.specimen.precision.kind(peer), {}
        gradient, layer = self.of.gradient, self.of.layer
        owned = place and isinstance(
            self.of.tensors[self.case.leaves[place - 1].name][1], nn.Parameter
        )
        if gradient is not None and owned and expected.dim() == 1:
            # The gradient that was added up to a vector's.
            sums["added"] = float(gradient.double().abs().sum()) / expected.numel()
            sums["stored"] = _walk(gradient, expected, layer) / 2 if kind in HALF else 0.0
        return Limits.by_cpu(actual, expected, peer, kind, **sums)


def _like(x: Tensor) -> str:
    """Return the expression of numbers like a tensor's."""
    if x.dtype == torch.bool:
        return f"torch.rand({{shape}}, generator=g) < {float(x.double().mean()):.2g}"
    if not x.is_floating_point():
        return f"torch.randint({int(x.min())}, {int(x.max()) + 1}, {{shape}}, generator=g)"
    numbers = x.detach().double().nan_to_num(0.0, 0.0, 0.0)
    spread = float(numbers.std()) if x.numel() > 1 else 0.0
    drawn = "torch.randn({shape}, generator=g, dtype=torch.float64)"
    return f"({drawn} * {spread:.3g} + {float(numbers.mean()):.3g}).to({x.dtype}).double()"


def _walk(gradient: Tensor, exact: Tensor, layer: nn.Module) -> float:
    """Return for a vector of parameters the largest partial sum of the additions to one of them.
    GPUs that store partial sums of a norm in 16 bits round those, however small the result is; the
    worst error is where the most was added. Additions of one sample have mostly one sign, and only
    different samples are a random walk.
    """
    axis = 1 if isinstance(layer, OF_CHANNELS) else -1
    if gradient.shape[axis] != exact.numel():
        return 0.0
    terms = gradient.double().movedim(axis, 0)
    samples = terms.flatten(2).sum(2) if terms.dim() > 2 else terms
    sizes = (each.flatten(1).square().sum(1) for each in (terms, samples))
    return float(torch.maximum(*sizes).sqrt().max())
