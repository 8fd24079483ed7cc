"""Steps of optimizers by every implementation, and what scales their gradients.

A step depends on the state of those before it, so three steps judge that state as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import each, exact, rounded
from warpfront_checks.cases.operation import Operation

# Many weights of two axes, a long one, and one without elements, as a part of a sharded model is.
_SHAPES = "n j k, n j k, m, m"
_LIST = ("[*a.unbind(0), c, c[:0]]", "[*b.unbind(0), d, d[:0]]")
# Each element is by itself, so the reference has one weight in the place of many.
_FEW = ("[a[0], a[1:], c]", "[b[0], b[1:], d]")
# Gradients change their sign and size, and lie in memory as the weights do, as autograd's. Where
# each weight counts its steps, the first has no gradient in the first one.
_STEPPED = (
    "(lambda w, y: (lambda o: ([([setattr(p, 'grad', torch.zeros_like(p).copy_(x * way)) for p, x"
    " in list(zip(w, y))[first:]], o.step()) for way, first in ((1, LATE), (-2, 0), (0.5, 0))],"
    " [p.detach() for p in w])[1])(torch.optim.NAME(w, lr=0.125, REST)))"
    "([torch.nn.Parameter(x.clone()) for x in WEIGHTS], SLOPES)"
)
_MOMENTS: Mapping[str, Sequence[Any]] = {
    "betas": ((0.9, 0.999), (0.5, 0.75)),
    "eps": (1e-8, 0.5),
    "amsgrad": (False, True),
    "weight_decay": (0.125, 0.0),
    "maximize": (False, True),
}
_OPTIONS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "SGD": {
        "momentum": (0.75, 0.0),
        "dampening": (0.0, 0.5),
        "nesterov": (False, True),
        "weight_decay": (0.125, 0.0),
        "maximize": (False, True),
    },
    "Adam": _MOMENTS,
    "AdamW": _MOMENTS,
    "Adagrad": {
        "lr_decay": (0.25, 0.0),
        "eps": (1e-10, 0.5),
        "weight_decay": (0.125, 0.0),
        "initial_accumulator_value": (0.0, 0.5),
        "maximize": (False, True),
    },
    "RMSprop": {
        "alpha": (0.99, 0.5),
        "momentum": (0.75, 0.0),
        "centered": (False, True),
        "weight_decay": (0.125, 0.0),
    },
    "Adadelta": {"rho": (0.9, 0.5), "weight_decay": (0.125, 0.0), "maximize": (False, True)},
    "Adamax": {"weight_decay": (0.125, 0.0), "maximize": (False, True)},
    "NAdam": {"momentum_decay": (0.004, 0.25), "decoupled_weight_decay": (False, True)},
    "RAdam": {"weight_decay": (0.125, 0.0), "decoupled_weight_decay": (False, True)},
    "ASGD": {"weight_decay": (0.125, 0.0), "maximize": (False, True)},
    "Rprop": {"maximize": (False, True)},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
# All of one sign: a gradient does not cancel with what decays, nor a moment with a gradient.
_stepped = partial(
    rounded,
    fit="{x}.abs().clamp(max=2) / 4 + 0.5",
    values=("eighths", "normal"),
    halves="cpu",
    backward=False,
    roundings=64.0,
    half_roundings=8.0,
    walk=0.0,
    n=(3, 127),
    j=(3, 67),
    k=(4, 67),
    cases=30,
)


def _optimizer(name: str, options: Mapping[str, Sequence[Any]]) -> Operation:
    """Return the record of an optimizer, with all of its options."""
    rest = "".join(f"{key}={{{key}}}, " for key in options)
    late = "0" if name == "SGD" else "1"
    stepped = _STEPPED.replace("NAME", name).replace("LATE", late).replace("REST", rest + "WAY")

    def called(weights: str, slopes: str, way: str) -> str:
        whole = stepped.replace("WEIGHTS", weights).replace("SLOPES", slopes)
        return whole.replace("WAY", way)

    ways = [("foreach", False), ("foreach", True), *[("fused", True)] * (name in FUSED)]
    return _stepped(
        called(*_LIST, "**dict([{way}])"),
        _SHAPES,
        name=name,
        definition=(
            f"(lambda x, y, z: [x, *y.unbind(0), z, z[:0]])(*{called(*_FEW, 'foreach=False')})"
        ),
        # What shows most comes first.
        way=ways[::-1],
        # Its foreach implementation keeps rates in float32.
        doubles=name != "ASGD",
        domain="not nesterov or momentum and not dampening" if name == "SGD" else "",
        **options,
    )


_SCALED = (
    "(lambda p: (lambda o: (setattr(p, 'grad', torch.zeros_like(p).copy_(b * ({scale} or 1))),"
    " setattr(o, 'found_inf', torch.full((), {infinite}, device=a.device)), setattr(o, 'grad_scale'"
    ", {scale} and torch.full((), {scale}, device=a.device)), o.step(), p.detach())[-1])"
    "(torch.optim.$([p], lr=0.125, weight_decay={weight_decay}, fused=True)))"
    "(torch.nn.Parameter(a.clone()))"
)
_PLAIN = (
    "a if {infinite} else (lambda p: (setattr(p, 'grad', b), torch.optim.$([p], lr=0.125,"
    " weight_decay={weight_decay}, foreach=False).step(), p.detach())[-1])"
    "(torch.nn.Parameter(a.clone()))"
)
_UNSCALED = "(lambda x, f: (torch._amp_foreach_non_finite_check_and_unscale_(x, f, torch.full((1,),"
_UNSCALED += " 0.5, device=a.device)), [f, *x])[1])([*a.clone().unbind(0), b.clone()],"
_UNSCALED += " torch.zeros(1, device=a.device))"
_GROWN = (
    "(lambda s, n: (torch._amp_update_scale_(s, n, torch.full((1,), {infinite}, device=a.device),"
    " 2.0, 0.5, {interval}), [s, n])[1])(torch.full((1,), {scale}, device=a.device), torch.full("
    "(1,), {steps}, dtype=torch.int32, device=a.device))"
)
# A scale never becomes infinite.
_GROWN_RIGHT = (
    "[torch.tensor([{scale} / 2 if {infinite} else {scale} * 2 if {steps} + 1 == {interval} and"
    " {scale} < 1e38 else {scale}], dtype=torch.float32), torch.tensor([0 if {infinite} or {steps}"
    " + 1 == {interval} else {steps} + 1], dtype=torch.int32)]"
)
OPTIMIZERS: tuple[Operation, ...] = (
    *(_optimizer(name, options) for name, options in _OPTIONS.items()),
    *each(
        # Torch 2.11 has no fused one there.
        {"SGD Adam AdamW": {}, "Adagrad": {"unseen": ("cuda",)}},
        _stepped,
        _SCALED,
        "j k, j k",
        name="$ of scaled gradients",
        definition=_PLAIN,
        infinite=(0.0, 1.0),
        scale=(4.0, None),
        weight_decay=(0.125, 0.0),
    ),
    exact(
        _UNSCALED,
        "n k, m",
        name="unscaled gradients",
        definition="[(~torch.cat([a.flatten(), b]).isfinite()).any().float()[None],"
        " *(a / 2).unbind(0), b / 2]",
        # An overflow is an infinity, without NaN.
        values=("small", "non-finite", "rare"),
        n=(3, 259),
        halves="cpu",
        doubles=False,
        backward=False,
    ),
    exact(
        _GROWN,
        "m",
        name="scale of gradients",
        definition=_GROWN_RIGHT,
        scale=(8.0, 3e38),
        infinite=(0.0, 1.0),
        steps=(0, 1),
        interval=(2, 1),
        domain="steps < interval",
        doubles=False,
        halves="cpu",
        backward=False,
        cases=11,
    ),
)
