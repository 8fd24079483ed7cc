"""State that calls write in place: running statistics, optimizer state, hidden states, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    Answer,
    CaseContext,
    HazardClass,
    array,
    rows,
)

STEPS = 4
Numbers = Any


def _running(ground: CaseContext) -> Iterator[Answer]:
    """Check mean, variance (without bias) and count after three batches, then
    evaluation with them.
    """
    shapes = ((4, 5, 7, 9), (16, 33), (3, 6, 17))
    for shape, momentum, last in product(shapes, (0.1, None, 1.0), (False, True)):
        if last and len(shape) != 4:
            continue
        module = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](
            shape[1], momentum=momentum
        )
        module = module.to(ground.device, torch.float32 if ground.half else ground.dtype)
        axes = tuple(i for i in range(len(shape)) if i != 1)
        mean, variance = np.zeros(shape[1]), np.ones(shape[1])
        for step in range(1, 4):
            x = ground.whole(*shape) + step
            on_device = ground.send(x)
            module(on_device.contiguous(memory_format=torch.channels_last) if last else on_device)
            rate = 1 / step if momentum is None else momentum
            mean = (1 - rate) * mean + rate * array(x).mean(axes)
            variance = (1 - rate) * variance + rate * array(x).var(axes, ddof=1)
        label = f"{shape}, momentum {momentum}, channels_last {last}"
        yield Answer(f"mean, {label}", module.running_mean, mean, ulps=16, slack=1e-6)
        # One sum after another. Few squares are different, and equal ones are rounded the same way,
        # so that their errors add up.
        worst = 32 + math.prod(shape) // shape[1] // 2
        actual = module.running_var
        yield Answer(f"variance, {label}", actual, variance, ulps=worst, slack=1e-6)
        yield Answer(f"count, {label}", module.num_batches_tracked, 3)
        module.eval()
        x = ground.whole(*shape)
        along = [-1 if i == 1 else 1 for i in range(len(shape))]
        expected = (array(x) - mean.reshape(along)) / np.sqrt(variance.reshape(along) + 1e-5)
        actual = module(ground.send(x))
        yield Answer(f"evaluation, {label}", actual, expected, ulps=32, slack=8 * ground.eps)


def _fused_with_statistics(ground: CaseContext) -> Iterator[Answer]:
    """Check running statistics that the caller provides, and those of instances."""
    x = ground.whole(4, 5, 33) + 2
    mean, variance = ground.send(torch.zeros(5)), ground.send(torch.ones(5))
    functional.batch_norm(ground.send(x), mean, variance, training=True, momentum=0.5)
    expected = array(x).mean((0, 2)) / 2
    yield Answer("mean", mean, expected, ulps=8)
    expected = 0.5 + array(x).var((0, 2), ddof=1) / 2
    yield Answer("variance", variance, expected, ulps=32)
    mean, variance = ground.send(torch.zeros(5)), ground.send(torch.ones(5))
    functional.instance_norm(ground.send(x), mean, variance, use_input_stats=True, momentum=0.5)
    expected = array(x).mean(2).mean(0) / 2
    yield Answer("instances' mean", mean, expected, ulps=32)
    expected = 0.5 + array(x).var(2, ddof=1).mean(0) / 2
    yield Answer("instances' variance", variance, expected, ulps=32)


INPLACE: dict[str, tuple[Callable[..., Tensor], Callable[..., Numbers]]] = {
    "add_": (lambda x, y: x.add_(y), lambda a, b: a + b),
    "add_ of twice": (lambda x, y: x.add_(y, alpha=2), lambda a, b: a + 2 * b),
    "sub_": (lambda x, y: x.sub_(y), lambda a, b: a - b),
    "mul_": (lambda x, y: x.mul_(y), lambda a, b: a * b),
    "addcmul_": (lambda x, y: x.addcmul_(y, y, value=2), lambda a, b: a + 2 * b * b),
    "addcdiv_": (lambda x, y: x.addcdiv_(y, torch.full_like(y, 2)), lambda a, b: a + b / 2),
    "lerp_": (lambda x, y: x.lerp_(y, 0.5), lambda a, b: a + (b - a) / 2),
    "relu_": (lambda x, _: x.relu_(), lambda a, _: np.maximum(a, 0)),
    "clamp_": (lambda x, _: x.clamp_(-1, 2), lambda a, _: a.clip(-1, 2)),
    "neg_": (lambda x, _: x.neg_(), lambda a, _: -a),
    "abs_": (lambda x, _: x.abs_(), lambda a, _: np.abs(a)),
    "fill_": (lambda x, _: x.fill_(3), lambda a, _: np.full_like(a, 3)),
    "zero_": (lambda x, _: x.zero_(), lambda a, _: np.zeros_like(a)),
    "copy_": (lambda x, y: x.copy_(y), lambda _, b: b),
    "masked_fill_": (lambda x, y: x.masked_fill_(y > 0, 7), lambda a, b: np.where(b > 0, 7, a)),
    "where into itself": (
        lambda x, y: x.copy_(torch.where(y > 0, x, y)),
        lambda a, b: np.where(b > 0, a, b),
    ),
    "triu_": (lambda x, _: x.triu_(2), lambda a, _: np.triu(a, 2)),
    "cumsum_": (lambda x, _: x.cumsum_(1), lambda a, _: a.cumsum(1)),
    "index_add_": (
        lambda x, y: x.index_add_(0, torch.arange(4, device=x.device), y[:4], alpha=2),
        lambda a, b: np.concatenate([a[:4] + 2 * b[:4], a[4:]]),
    ),
    "index_copy_": (
        lambda x, y: x.index_copy_(0, torch.arange(3, -1, -1, device=x.device), y[:4]),
        lambda a, b: np.concatenate([b[3::-1], a[4:]]),
    ),
    "index_fill_": (
        lambda x, _: x.index_fill_(1, torch.tensor([0, 5], device=x.device), 9),
        lambda a, _: _filled(a, [0, 5]),
    ),
    "put_": (
        lambda x, y: x.put_(
            torch.tensor([0, 10, 100], device=x.device), y.flatten()[:3], accumulate=True
        ),
        lambda a, b: _put(a, [0, 10, 100], b.flatten()[:3]),
    ),
    "slice assigned": (lambda x, y: _assigned(x, y), lambda a, b: _assigned(a.copy(), b)),
    "part of itself": (lambda x, _: _doubled(x), lambda a, _: _doubled(a.copy())),
    "addmm_": (
        lambda x, y: x[:7, :7].clone().addmm_(y[:7, :9], y[:9, :7], beta=2, alpha=0.5),
        lambda a, b: 2 * a[:7, :7] + b[:7, :9] @ b[:9, :7] / 2,
    ),
    "baddbmm_": (
        lambda x, y: x[None, :7, :7].clone().baddbmm_(y[None, :7, :9], y[None, :9, :7], beta=0),
        lambda _, b: (b[:7, :9] @ b[:9, :7])[None],
    ),
}


def _filled(a: Numbers, columns: list[int]) -> Numbers:
    wrong = a.copy()
    wrong[:, columns] = 9
    return wrong


def _put(a: Numbers, places: list[int], values: Numbers) -> Numbers:
    flat = a.flatten()
    flat[places] += values
    return flat.reshape(a.shape)


def _assigned(x: Any, y: Any) -> Any:
    x[2:9:3, 1::2] = y[:3, ::2][:, : x[2:9:3, 1::2].shape[1]]
    return x


def _doubled(x: Any) -> Any:
    x[1:5] += x[10:14]
    return x


def _inplace(name: str, ground: CaseContext) -> Iterator[Answer]:
    call, numbers = INPLACE[name]
    x, y = ground.whole(17, 33), ground.whole(17, 33)
    expected = numbers(array(x).copy(), array(y))
    yield Answer("plain", call(ground.send(x), ground.send(y)), expected, ulps=1)
    if name in {"baddbmm_", "addmm_", "put_"}:
        return
    wide = ground.send(torch.full((19, 70), 99.0))
    view = wide[1:18, 2:68:2]
    view.copy_(ground.send(x))
    actual = call(view, ground.send(y))
    yield Answer("a view", actual, expected, ulps=1)
    wide[1:18, 2:68:2] = 99
    yield Answer("around the view", wide, np.full((19, 70), 99.0))


def _reduce(ground: CaseContext) -> Iterator[Answer]:
    """Reduce several numbers to one index."""
    x, index = ground.whole(9, 5), ground.index(3, 9)
    indices = index.to(ground.device)[:, None].expand(-1, 5)
    for name, whole in (
        ("amax", np.max),
        ("amin", np.min),
        ("sum", np.sum),
        ("mean", np.mean),
        ("prod", np.prod),
    ):
        start = ground.send(torch.zeros(3, 5))
        actual = start.scatter_reduce(0, indices, ground.send(x), reduce=name, include_self=False)
        expected = np.zeros((3, 5))
        for place in range(3):
            if (array(index) == place).any():
                expected[place] = whole(array(x)[array(index) == place], 0)
        # In 16 bits a product is rounded step by step.
        yield Answer(name, actual, expected, ulps=8 if name == "prod" else 2)


RATE, DECAY = 0.1, 0.1
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD of Nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": partial(torch.optim.Adam, lr=RATE, weight_decay=DECAY),
    "Adam, amsgrad": partial(torch.optim.Adam, lr=0.1, amsgrad=True),
    "AdamW": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.1),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.1, momentum=0.5, centered=True),
    "Adamax": partial(torch.optim.Adamax, lr=0.1),
    "RAdam": partial(torch.optim.RAdam, lr=0.1),
    "NAdam": partial(torch.optim.NAdam, lr=0.1),
    "SGD, damped": partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5, maximize=True),
    "SGD, decayed": partial(torch.optim.SGD, lr=0.1, weight_decay=0.1, maximize=True),
    "Adam, maximized": partial(
        torch.optim.Adam, lr=0.1, betas=(0.5, 0.75), eps=0.25, maximize=True
    ),
    "AdamW, amsgrad": partial(
        torch.optim.AdamW, lr=0.1, weight_decay=0.1, amsgrad=True, maximize=True
    ),
    "Adagrad, decayed": partial(
        torch.optim.Adagrad, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5
    ),
    "RMSprop, plain": partial(torch.optim.RMSprop, lr=0.1, alpha=0.5, eps=0.25, weight_decay=0.1),
    "Adadelta": partial(torch.optim.Adadelta, lr=0.5, weight_decay=0.1),
    "ASGD": partial(torch.optim.ASGD, lr=0.1, weight_decay=0.1),
    "Rprop": partial(torch.optim.Rprop, lr=0.1),
}
WAYS: tuple[dict[str, bool], ...] = ({"foreach": False}, {"foreach": True}, {"fused": True})
FUSED = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})


def _optimizer(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Step one tensor at a time, all at once, and fused, against one at a time in float64 on
    the CPU. Parameters have odd sizes, and one has no gradient.
    """
    sizes = ((3,), (33, 5), (1025,), (65, 65), (), (70_001,))
    starts = [ground.normal(*size) for size in sizes]
    gradients = [[ground.normal(*size) for size in sizes] for _ in range(STEPS)]
    expected, expected_state = _optimized(
        name, starts, gradients, torch.float64, "cpu", {"foreach": False}
    )
    cancelled = [
        _cancelled(array(start), [array(step[place]) for step in gradients], ground.eps / 2)
        if name == "Adam"
        else {}
        for place, start in enumerate(starts)
    ]
    for way in WAYS:
        if "fused" in way and name.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0] not in FUSED:
            continue
        try:
            actual, state = _optimized(name, starts, gradients, ground.dtype, ground.device, way)
        except RuntimeError as error:
            # Some devices lack some fused ones, and raise.
            if "fused=True" not in str(error):
                raise
            continue
        for place, (x, exact) in enumerate(zip(actual, expected, strict=True)):
            slack = 64 * ground.eps * (1 + np.abs(array(exact)))
            if place < len(cancelled):
                slack = slack + cancelled[place].get("parameter", 0.0)
            yield Answer(f"parameter {place}, {way}", x, array(exact), slack=slack)
        for key, value in expected_state.items():
            quantity, _, which = key.rpartition(" of ")
            slack = 64 * ground.eps * (1 + float(value.abs().max()))
            slack = slack + cancelled[int(which)].get(quantity, 0.0)
            mine = state[key].to(ground.dtype) if state[key].is_floating_point() else state[key]
            yield Answer(f"{key}, {way}", mine, array(value), slack=slack)


def _told(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check that a fused step divides by `grad_scale`, and does nothing if `found_inf` is set,
    even for unscaled gradients.
    """
    x, gradient = ground.normal(1025), ground.normal(1025)
    for scale, infinite in product((None, 4.0), (0.0, 1.0)):
        weight = nn.Parameter(ground.send(x))
        weight.grad = ground.send(gradient * (scale or 1.0))
        try:
            optimizer: Any = OPTIMIZERS[name]([weight], fused=True)
        except RuntimeError as error:
            if "fused=True" not in str(error):
                raise
            return
        optimizer.found_inf = ground.send(torch.tensor(infinite))
        optimizer.grad_scale = None if scale is None else ground.send(torch.tensor(scale))
        optimizer.step()
        stepped, _ = _optimized(name, [x], [[gradient]], torch.float64, "cpu", {"foreach": False})
        expected = x if infinite else stepped[0]
        slack = 64 * ground.eps * (1 + np.abs(array(expected)))
        yield Answer(f"scale {scale}, infinite {infinite}", weight, array(expected), slack=slack)


def _cancelled(start: Numbers, gradients: list[Numbers], unit: float) -> dict[str, Numbers]:
    """Return the error bound of Adam's parameter and moments where a gradient and its decay cancel.

    The remainder, g + DECAY * p, has the roundings of both. The step divides it by its own running
    mean, RATE * m / (sqrt(v) + eps), so that these roundings are divided by the remainder. m and
    sqrt(v) are means of the remainders so far: neither is off by more than the worst of these.
    """
    first, second = 0.9, 0.999
    p, m, v = start, np.zeros_like(start), np.zeros_like(start)
    off, worst, most = np.zeros_like(start), np.zeros_like(start), np.zeros_like(start)
    for step, gradient in enumerate(gradients, 1):
        remainder = gradient + DECAY * p
        rounded = unit * (2 * DECAY * np.abs(p) + np.abs(remainder)) + DECAY * off
        worst, most = np.maximum(worst, rounded), np.maximum(most, np.abs(remainder))
        m, v = first * m + (1 - first) * remainder, second * v + (1 - second) * remainder**2
        size = np.sqrt(v / (1 - second**step)) + 1e-8
        off = off + 2 * RATE * worst / size
        p = p - RATE * m / (1 - first**step) / size
    return {"parameter": off, "exp_avg": worst, "exp_avg_sq": worst * (2 * most + worst)}


def _optimized(
    name: str,
    starts: list[Tensor],
    grads: list[list[Tensor]],
    dtype: torch.dtype,
    device: str,
    way: dict[str, bool],
) -> tuple[list[Tensor], dict[str, Tensor]]:
    parameters = [nn.Parameter(x.to(device, dtype, copy=True)) for x in starts]
    idle = nn.Parameter(torch.ones(7, device=device, dtype=dtype))
    optimizer = OPTIMIZERS[name]([*parameters, idle], **way)
    for gradients in grads:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.to(device, dtype, copy=True)
        optimizer.step()
    state = {
        f"{key} of {place}": value.detach().cpu()
        for place, parameter in enumerate(parameters)
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }
    return [*(p.detach() for p in parameters), idle.detach()], state


FOREACH: dict[str, tuple[Callable[..., Any], Callable[..., Numbers]]] = {
    "add": (lambda xs, ys: torch._foreach_add(xs, ys, alpha=2), lambda a, b: a + 2 * b),
    "mul": (lambda xs, ys: torch._foreach_mul(xs, ys), lambda a, b: a * b),
    "sub": (lambda xs, ys: torch._foreach_sub(xs, ys), lambda a, b: a - b),
    "addcmul": (lambda xs, ys: torch._foreach_addcmul(xs, ys, ys, 2), lambda a, b: a + 2 * b * b),
    "lerp": (lambda xs, ys: torch._foreach_lerp(xs, ys, 0.5), lambda a, b: a + (b - a) / 2),
    "maximum": (lambda xs, ys: torch._foreach_maximum(xs, ys), np.maximum),
    "neg": (lambda xs, _: torch._foreach_neg(xs), lambda a, _: -a),
    "abs": (lambda xs, _: torch._foreach_abs(xs), lambda a, _: np.abs(a)),
    "square root": (
        lambda xs, _: torch._foreach_sqrt(torch._foreach_abs(xs)),
        lambda a, _: np.sqrt(np.abs(a)),
    ),
    "norm": (lambda xs, _: torch._foreach_norm(xs), lambda a, _: np.sqrt((a * a).sum())),
    "infinite norm": (
        lambda xs, _: torch._foreach_norm(xs, float("inf")),
        lambda a, _: np.abs(a).max(),
    ),
}


def _foreach(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check lists of tensors in one kernel: of many sizes, more tensors than one launch takes."""
    call, numbers = FOREACH[name]
    sizes = [(1,), (33,), (1025,), (65_537,), (3, 5), (128, 128), *[(7,)] * 130]
    xs, ys = [ground.whole(*s) for s in sizes], [ground.whole(*s) for s in sizes]
    actual = call([ground.send(x) for x in xs], [ground.send(y) for y in ys])
    expected = [
        np.asarray(numbers(array(x), array(y))).ravel() for x, y in zip(xs, ys, strict=True)
    ]
    together = torch.cat([tensor.flatten() for tensor in actual])
    yield Answer("all", together, np.concatenate(expected), ulps=4)


def _unscaled(ground: CaseContext) -> Iterator[Answer]:
    """Check gradients divided by the scale, and that an infinite one is detected at any index."""
    unscale = torch._amp_foreach_non_finite_check_and_unscale_
    for wrong in (None, float("inf"), float("nan")):
        gradients = [ground.whole(33), ground.whole(1025), ground.whole(65_537)]
        if wrong is not None:
            gradients[2][65_000] = wrong
        on_device = [ground.send(g, torch.float32) for g in gradients]
        found_inf = torch.zeros(1, device=ground.device)
        unscale(on_device, found_inf, torch.full((1,), 0.5, device=ground.device))
        yield Answer(f"found, {wrong}", found_inf, np.array([float(wrong is not None)]))
        yield Answer(f"unscaled, {wrong}", on_device[1], array(gradients[1]) / 2)


def _recurrent(kind: str, ground: CaseContext) -> Iterator[Answer]:
    """Check two layers in both directions with initial states, against the same in float64
    on the CPU.
    """
    kwargs = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    exact, device_module = ground.module(lambda: getattr(nn, kind)(7, 9, **kwargs))
    x = ground.normal(3, 13, 7)
    state = ground.normal(4, 3, 9)
    outputs, grad_output = [], ground.normal(3, 13, 18)
    for net, values, hidden in (
        (exact, x.clone().requires_grad_(), state),
        (device_module, ground.send(x).requires_grad_(), ground.send(state)),
    ):
        y, last = net(values, (hidden, hidden.clone()) if kind == "LSTM" else hidden)
        y.backward(grad_output.to(y.device, y.dtype))
        final = last[0] if kind == "LSTM" else last
        outputs.append((y, final, values.grad, net.weight_hh_l0.grad, net.bias_ih_l1_reverse.grad))
    for label, expected, actual in zip(
        ("output", "state", "gradient", "weight's", "bias's"), *outputs, strict=True
    ):
        # Errors walk through 13 steps of two layers.
        slack = 64 * math.sqrt(26) * ground.eps * (1 + float(expected.abs().max()))
        yield Answer(label, actual, array(expected), slack=slack)


RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM of one layer": ("LSTM", {"bias": False}),
    "LSTM of one direction": ("LSTM", {"num_layers": 2, "batch_first": True}),
    "LSTM, projected": ("LSTM", {"proj_size": 5}),
    "GRU of one layer": ("GRU", {"bias": False}),
    "GRU of both directions": ("GRU", {"bidirectional": True}),
    "RNN of ReLU": ("RNN", {"nonlinearity": "relu", "bias": False}),
}


def _other_recurrent(name: str, ground: CaseContext, *, states: bool = False) -> Iterator[Answer]:
    """Check other forms in training and evaluation, with an initial state and without. With
    `states`, the last states contribute gradients too.
    """
    kind, kwargs = RECURRENT[name]
    exact, device_module = ground.module(lambda: getattr(nn, kind)(7, 9, **kwargs))
    x, layers = (
        ground.normal(11, 3, 7),
        kwargs.get("num_layers", 1) * (1 + ("bidirectional" in kwargs)),
    )
    x = x.transpose(0, 1).contiguous() if "batch_first" in kwargs else x
    initial_states = [
        ground.normal(layers, 3, kwargs.get("proj_size", 9)),
        ground.normal(layers, 3, 9),
    ]
    state: Any = tuple(initial_states) if kind == "LSTM" else initial_states[0]
    for with_state, trained in product((False, True), (False, True)):
        initial = state if with_state else None
        actual = _recurred(device_module.train(trained), ground.send(x), initial, states=states)
        expected = _recurred(exact.train(trained), x, initial, states=states)
        for place, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
            slack = 64 * math.sqrt(22) * ground.eps * (1 + float(reference.abs().max()))
            label = f"{place}, state {with_state}, trained {trained}"
            yield Answer(label, mine, array(reference), slack=slack)


def _many_at_once(kind: str, ground: CaseContext) -> Iterator[Answer]:
    """Check more sequences than a tile has rows, and the gradients of their initial states."""
    exact, device_module = ground.module(lambda: getattr(nn, kind)(7, 9))
    x, grad_output = ground.normal(4, 141, 7), ground.normal(4, 141, 9)
    initial_states = [ground.normal(1, 141, 9) for _ in range(2 if kind == "LSTM" else 1)]

    def tried(net: Any, numbers: list[Tensor], back: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in numbers]
        state = tuple(leaves[1:]) if kind == "LSTM" else leaves[1]
        output = net(leaves[0], state)[0]
        with torch.no_grad():
            alone = net(leaves[0], state)[0]
        return [output.detach(), alone, *torch.autograd.grad(output, leaves, back)]

    actual = tried(
        device_module, [ground.send(t) for t in (x, *initial_states)], ground.send(grad_output)
    )
    for place, (mine, reference) in enumerate(
        zip(actual, tried(exact, [x, *initial_states], grad_output), strict=True)
    ):
        slack = 64 * math.sqrt(22) * ground.eps * (1 + float(reference.abs().max()))
        yield Answer(f"{place}", mine, array(reference.detach()), slack=slack)


def _recurred(net: Any, x: Tensor, state: Any, *, states: bool) -> list[Tensor]:
    """Return output and last states, and in training the gradients of the input and
    of every parameter.
    """
    if isinstance(state, tuple):
        state = tuple(tensor.to(x) for tensor in state)
    elif state is not None:
        state = state.to(x)
    leaf = x.clone().requires_grad_(net.training)
    with torch.set_grad_enabled(net.training):
        y, last = net(leaf, state)
    results = [y, *(last if isinstance(last, tuple) else (last,))]
    if not net.training:
        return results
    used = results if states else [y]
    grad_output = [
        torch.arange(tensor.numel(), device=y.device)
        .remainder(5)
        .sub(2)
        .to(y.dtype)
        .view(tensor.shape)
        for tensor in used
    ]
    gradients = torch.autograd.grad(used, [leaf, *net.parameters()], grad_output)
    return [x.detach() for x in (*results, *gradients)]


def _packed(kind: str, ground: CaseContext) -> Iterator[Answer]:
    """Check packed sequences of several lengths, in no order: each equals its result alone."""
    exact, device_module = ground.module(lambda: getattr(nn, kind)(7, 9, bidirectional=True))
    x, lengths = ground.normal(13, 4, 7), torch.tensor([5, 13, 1, 8])
    on_device = ground.send(x).requires_grad_()
    pack = nn.utils.rnn.pack_padded_sequence(on_device, lengths, enforce_sorted=False)
    actual, _ = nn.utils.rnn.pad_packed_sequence(device_module(pack)[0])
    actual.sum().backward()
    for place, length in enumerate(lengths.tolist()):
        alone = x[:length, place : place + 1].clone().requires_grad_()
        expected = exact(alone)[0]
        expected.sum().backward()
        for label, mine, reference in (
            ("output", actual, expected),
            ("gradient", on_device.grad, alone.grad),
        ):
            padded = np.zeros((13, reference.shape[-1]))
            padded[:length] = array(reference.detach())[:, 0]
            slack = 64 * math.sqrt(13) * ground.eps * (1 + np.abs(padded).max())
            yield Answer(f"{label} of {length}", mine[:, place], padded, slack=slack)


def _scaled(ground: CaseContext) -> Iterator[Answer]:
    """Check that a step with infinite gradients is skipped and halves the scale, and two good
    ones double it.
    """
    weight = nn.Parameter(torch.ones(3, device=ground.device))
    sgd = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(ground.device, init_scale=8.0, growth_interval=2)
    scales, weights = [], []
    for good in (True, True, True, False, True, True):
        sgd.zero_grad()
        scaler.scale((weight * (1.0 if good else math.inf)).sum()).backward()
        scaler.step(sgd)
        scaler.update()
        scales.append(scaler.get_scale())
        weights.append(weight.detach().clone())
    yield Answer("scale", torch.tensor(scales), np.array([8, 16, 16, 8, 8, 16.0]))
    most = torch.full((1,), 3e38, device=ground.device)
    steps, actual = most.int() * 0, most * 0
    grown = torch._amp_update_scale_(most.clone(), steps, actual, 2.0, 0.5, 1)
    yield Answer("scale that cannot grow", grown, array(most))
    expected = np.array([0, -1, -2, -2, -3, -4.0])[:, None].repeat(3, 1)
    yield Answer("weight", torch.stack(weights), expected)


KEPT_STATE = HazardClass(
    name="kept state",
    asks="is what is written in place and kept right: statistics, optimizers, hidden states",
    hazards=(
        *rows(
            {"running statistics": _running, "given statistics": _fused_with_statistics},
            ("float32", "float64"),
        ),
        *rows({f"in place {name}": partial(_inplace, name) for name in INPLACE}, FLOATS),
        *rows({"scatter_reduce": _reduce}, FLOATS, each_seed=True),
        *rows({name: partial(_optimizer, name) for name in OPTIMIZERS}),
        *rows({f"{name} that is told": partial(_told, name) for name in sorted(FUSED)}),
        *rows({f"foreach {name}": partial(_foreach, name) for name in FOREACH}, FLOATS),
        *rows({"unscaling": _unscaled}),
        # torch's scaler computes the scale's reciprocal in float64, which a Gaudi does not have.
        *rows({"scale": _scaled}, devices=("cpu", "cuda", "rocm", "xpu")),
        *rows(
            {f"packed {kind}": partial(_packed, kind) for kind in ("LSTM", "GRU", "RNN")},
            each_seed=True,
        ),
        *rows({name: partial(_other_recurrent, name) for name in RECURRENT}),
        *rows(
            {
                f"last states of {name}": partial(_other_recurrent, name, states=True)
                for name in RECURRENT
            },
        ),
        *rows({kind: partial(_recurrent, kind) for kind in ("LSTM", "GRU", "RNN")}, each_seed=True),
        *rows(
            {f"{kind} of many": partial(_many_at_once, kind) for kind in ("LSTM", "GRU", "RNN")},
            devices=("cpu",),
        ),
    ),
)
