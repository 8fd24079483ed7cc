"""Losses over classes with all one may ask of them: ignored targets, weights, smoothing, places."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    Answer,
    CaseContext,
    HazardClass,
    array,
    rows,
)

Numbers = Any
IGNORED = -100


def _log_probabilities(a: Numbers) -> Numbers:
    """Return logarithms of probabilities over axis 1, the classes."""
    shifted = a - a.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def _loss(
    a: Numbers, target: Numbers, weight: Numbers, smoothing: float, reduction: str
) -> tuple[Numbers, Numbers]:
    """Return the loss and its gradient, by the definition. Classes are axis 1 of
    (n, classes, places).
    """
    classes = a.shape[1]
    logs, counted = _log_probabilities(a), target != IGNORED
    hit = np.zeros_like(a)
    for c in range(classes):
        hit[:, c] = target == c
    soft = (1 - smoothing) * hit + smoothing / classes * counted[:, None]
    weighted = soft * weight[None, :, None]
    each = -(weighted * logs).sum(1)
    slope = weighted.sum(1, keepdims=True) * np.exp(logs) - weighted
    if reduction == "none":
        return each, slope
    count = (hit * weight[None, :, None]).sum() if reduction == "mean" else 1.0
    return each.sum() / count, slope / count


def _cross_entropy(ground: CaseContext) -> Iterator[Answer]:
    for classes, places, smoothing, weighted, reduction, hidden in product(
        (5, 67), (0, 6), (0.0, 0.1), (False, True), ("none", "sum", "mean"), ("none", "some")
    ):
        x = ground.whole(7, classes, max(1, places), most=3)
        target = ground.index(classes, 7, max(1, places))
        if hidden == "some":
            target[::3] = IGNORED
        weight = (
            torch.arange(1, classes + 1).double().remainder(4) + 1
            if weighted
            else torch.ones(classes).double()
        )
        expected, slope = _loss(array(x), array(target), array(weight), smoothing, reduction)
        leaf = ground.send(x if places else x[..., 0]).requires_grad_()
        actual = functional.cross_entropy(
            leaf,
            (target if places else target[:, 0]).to(ground.device),
            weight=ground.send(weight) if weighted else None,
            label_smoothing=smoothing,
            reduction=reduction,
        )
        setting = f"smoothing {smoothing}, weights {weighted}, {reduction}, ignored {hidden}"
        label = f"{classes} classes, {places} places, {setting}"
        expected = expected if places or reduction != "none" else expected[:, 0]
        slope = slope if places else slope[..., 0]
        off = 16 if ground.half else 64
        yield Answer(
            label,
            actual,
            expected,
            ulps=4,
            slack=off * ground.eps * (1 + np.abs(expected).max()),
        )
        actual.sum().backward()
        slack = 4 * off * ground.eps * np.abs(slope).max()
        yield Answer(f"gradient, {label}", leaf.grad, slope, ulps=4, slack=slack)


def _soft_targets(ground: CaseContext) -> Iterator[Answer]:
    for smoothing, reduction in product((0.0, 0.2), ("none", "sum", "mean")):
        x = ground.whole(7, 9, most=3)
        shares = torch.zeros(7, 9).double()
        shares[:, 2], shares[:, 5] = 0.25, 0.75
        soft = (1 - smoothing) * array(shares) + smoothing / 9
        each = -(soft * _log_probabilities(array(x))).sum(1)
        expected = {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]
        actual = functional.cross_entropy(
            ground.send(x), ground.send(shares), label_smoothing=smoothing, reduction=reduction
        )
        slack = 16 * ground.eps * np.abs(expected).max()
        yield Answer(
            f"smoothing {smoothing}, {reduction}",
            actual,
            expected,
            ulps=4,
            slack=slack,
        )


def _likelihood(ground: CaseContext) -> Iterator[Answer]:
    """Check nll_loss of integers: exact except for the mean."""
    for shape, weighted, reduction, ignored in product(
        ((7, 5), (3, 5, 4, 6), (1, 1025, 3)), (False, True), ("none", "sum", "mean"), (IGNORED, 2)
    ):
        x = ground.whole(*shape)
        target = ground.index(shape[1], shape[0], *shape[2:])
        target.flatten()[::3] = ignored
        target.flatten()[1] = 1  # at least one counts: of none there is no mean
        weight = (
            torch.arange(shape[1]).double().remainder(3) + 1
            if weighted
            else torch.ones(shape[1]).double()
        )
        counted = array(target) != ignored
        safe = np.where(counted, array(target), 0)
        w = np.where(counted, array(weight)[safe], 0.0)
        chosen = np.take_along_axis(array(x), np.expand_dims(safe, 1), 1)[:, 0]
        each = -w * chosen
        expected = {"none": each, "sum": each.sum(), "mean": each.sum() / w.sum()}[reduction]
        leaf = ground.send(x).requires_grad_()
        actual = functional.nll_loss(
            leaf,
            target.to(ground.device),
            weight=ground.send(weight) if weighted else None,
            ignore_index=ignored,
            reduction=reduction,
        )
        label = f"{shape}, weights {weighted}, {reduction}, ignored {ignored}"
        slack = (
            8
            * ground.eps
            * (np.abs(each).sum() if reduction != "none" else 0.0)
            / (w.sum() if reduction == "mean" else 1)
        )
        yield Answer(label, actual, expected, ulps=2, slack=slack)
        actual.sum().backward()
        slope = np.zeros(shape)
        np.put_along_axis(slope, np.expand_dims(safe, 1), -np.expand_dims(w, 1), 1)
        slope /= w.sum() if reduction == "mean" else 1.0
        yield Answer(f"gradient, {label}", leaf.grad, slope, ulps=4)


def _padded_rows(ground: CaseContext) -> Iterator[Answer]:
    """Check that an embedding's padding gets no gradient, and frequent rows get all of theirs."""
    few, many = torch.tensor([[0, 3, 3, 1], [1, 1, 0, 3]]), ground.index(4, 13, 90)
    for index, padding, scaled in product((few, many), (None, 1), (False, True)):
        weight = ground.send(ground.whole(5, 33)).requires_grad_()
        grad_output = ground.whole(*few.shape, 33) * 6 if index is few else ground.few(13, 90, 33)
        actual = functional.embedding(
            index.to(ground.device), weight, padding_idx=padding, scale_grad_by_freq=scaled
        )
        actual.backward(ground.send(grad_output))
        expected = np.zeros((5, 33))
        np.add.at(expected, array(index).flatten(), array(grad_output).reshape(-1, 33))
        if scaled:
            expected /= np.maximum(1, np.bincount(array(index).flatten(), minlength=5))[:, None]
        if padding is not None:
            expected[padding] = 0
        yield Answer(
            f"{index.numel()} rows, padding {padding}, scaled {scaled}",
            weight.grad,
            expected,
            ulps=2,
            slack=8 * ground.eps * scaled,
        )


def _bag_slopes(mode: str, weight: Numbers, index: Numbers, grad_output: Numbers) -> Numbers:
    """Return each row's part of the output's gradient: all of it, its share, or where it
    is the largest.
    """
    slope = np.zeros_like(weight)
    for bag, places in enumerate(np.split(index, [3, 3, 5])):
        if mode == "max" and len(places):
            first = places[weight[places].argmax(0)]
            slope[first, np.arange(33)] += grad_output[bag]
            continue
        for place in places:
            slope[place] += grad_output[bag] / (len(places) if mode == "mean" else 1)
    return slope


def _bags(ground: CaseContext) -> Iterator[Answer]:
    """Check bags of rows, one of them empty."""
    # No two rows are equal at any position, so that there is one largest.
    index, offsets = torch.tensor([3, 0, 4, 4, 1, 2, 0]), torch.tensor([0, 3, 3, 5])
    weight = torch.argsort(ground.normal(5, 33), 0).double() + 1
    parts = np.split(array(weight)[array(index)], [3, 3, 5])
    for mode, whole in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        leaf = ground.send(weight).requires_grad_()
        actual = functional.embedding_bag(
            index.to(ground.device), leaf, offsets.to(ground.device), mode=mode
        )
        expected = np.stack([whole(part, 0) if len(part) else np.zeros(33) for part in parts])
        yield Answer(mode, actual, expected, ulps=1)
        grad_output = ground.whole(4, 33)
        actual.backward(ground.send(grad_output))
        slope = _bag_slopes(mode, array(weight), array(index), array(grad_output))
        yield Answer(f"gradient of {mode}", leaf.grad, slope, ulps=4, slack=4 * ground.eps)
    leaf = ground.send(weight).requires_grad_()
    shares = ground.send(torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]))
    actual = functional.embedding_bag(
        index.to(ground.device),
        leaf,
        offsets.to(ground.device),
        mode="sum",
        per_sample_weights=shares,
    )
    scaled = array(weight)[array(index)] * array(shares.cpu().double())[:, None]
    yield Answer(
        "weighted",
        actual,
        np.stack([p.sum(0) for p in np.split(scaled, [3, 3, 5])]),
        ulps=1,
    )
    actual.sum().backward()
    expected = np.zeros((5, 33))
    np.add.at(expected, array(index), array(shares.cpu().double())[:, None] * np.ones(33))
    yield Answer("its gradient", leaf.grad, expected, ulps=1)


def _turned(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def _distances(ground: CaseContext) -> Iterator[Answer]:
    """Check losses of differences, with each reduction, forward and backward."""
    x, y = ground.whole(7, 33), ground.whole(7, 33)
    d = array(x - y)
    table = {
        "mse_loss": (d**2, 2 * d),
        "l1_loss": (np.abs(d), np.sign(d)),
        "smooth_l1_loss": (np.where(np.abs(d) < 1, d * d / 2, np.abs(d) - 0.5), d.clip(-1, 1)),
        "huber_loss": (np.where(np.abs(d) < 1, d * d / 2, np.abs(d) - 0.5), d.clip(-1, 1)),
    }
    for (name, (each, slope)), reduction in product(table.items(), ("none", "sum", "mean")):
        leaf = ground.send(x).requires_grad_()
        actual = getattr(functional, name)(leaf, _turned(ground.send(y)), reduction=reduction)
        expected = {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]
        yield Answer(
            f"{name}, {reduction}",
            actual,
            expected,
            ulps=2,
            slack=8 * ground.eps * ground.half * np.abs(expected).max(),
        )
        actual.sum().backward()
        scale = d.size if reduction == "mean" else 1
        yield Answer(f"gradient of {name}, {reduction}", leaf.grad, slope / scale, ulps=4)


def _ignored_afar(ground: CaseContext) -> Iterator[Answer]:
    """Check an ignored class beyond 32 bits that no target has."""
    x, target = ground.whole(33, 5), ground.index(5, 33)
    expected = -array(x)[np.arange(33), array(target)]
    for ignored in (1 << 32, -(1 << 32), (1 << 32) + 1):
        leaf = ground.send(x).requires_grad_()
        actual = functional.nll_loss(
            leaf, target.to(ground.device), ignore_index=ignored, reduction="none"
        )
        yield Answer(f"ignored {ignored}", actual, expected)
        actual.sum().backward()
        yield Answer(f"gradient, ignored {ignored}", leaf.grad, -np.eye(5)[array(target)])


CLASS_TARGETS = HazardClass(
    name="targets",
    asks="are losses right with ignored targets, weights, smoothing, places and every reduction",
    hazards=(
        *rows(
            {
                "cross_entropy": _cross_entropy,
                "soft targets": _soft_targets,
                "nll_loss": _likelihood,
                "embedding": _padded_rows,
                "embedding_bag": _bags,
                "distances": _distances,
            },
            FLOATS,
        ),
        *rows({"ignored afar": _ignored_afar}, FLOATS, devices=("cpu",)),
    ),
)
