"""Losses, with their reductions, weights and ignored targets."""

from __future__ import annotations

from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import USUAL, Fields, each, rounded
from warpfront_checks.cases.operation import Operation

# Some squares of differences leave the range of float16.
LARGE = ("quarters", "normal", "large")
PAIR = "m n, m n | n, n | a k b, a k b"


def _loss(code: str, *shapes: str, **fields: Any) -> Operation:
    """Return the record of a loss, whose last argument is the reduction if the code names none."""
    call = code if "{reduction}" in code else f"{code[:-1]}, reduction={{reduction}})"
    usual = {"shapes": PAIR, "values": ("quarters", "normal"), "reduction": USUAL["reduction"]}
    return rounded(call, *shapes, **{**usual, **fields})


# Which of two numbers a kink lies between is a rounding's to decide in 16 bits.
_smooth = partial(_loss, values=LARGE, half_backward=False, least=4.0)
_classes = partial(_loss, c=(7, 8191), halves="cpu")
WEIGHT = "c.abs() + 0.5 if {weighted} else None"
# A third of the targets.
IGNORED = "torch.where(b % 3 == 1, {ignored}, b)"
_TARGETS: Fields = {
    "rows": {"shapes": "n c, @c n, !c"},
    "places": {"shapes": "n c x, @c n x, !c"},
    "images": {"shapes": "n c y x, @c n y x, !c"},
}
LOSSES: tuple[Operation, ...] = (
    _loss("F.mse_loss(a, b)", least=4.0),
    _loss("F.l1_loss(a, b + 9)", values=LARGE, least=12.0),
    _smooth("F.smooth_l1_loss(a, b, beta={beta})", beta=(0.3, 2.1)),
    _smooth("F.huber_loss(a, b, delta={delta})", delta=(0.3, 2.1)),
    _loss(
        "F.kl_div(a, b.log_softmax(-1), log_target=True)",
        "m n, m n | a k b, a k b",
        reduction=("none", "sum", "batchmean", "mean"),
        least=4.0,
    ),
    _loss("F.kl_div(a, b.softmax(-1))", "m n, m n", name="kl_div of shares", least=4.0),
    _loss("F.binary_cross_entropy(a.sigmoid(), b.to(a.dtype))", "m n, ?m n | n, ?n", halves="cpu"),
    _loss(
        "F.binary_cross_entropy((a > 0).to(a.dtype), b.to(a.dtype))",
        "m n, ?m n | n, ?n",
        name="binary_cross_entropy of certainties",
        backward=False,
        least=100.0,
    ),
    _loss(
        "F.binary_cross_entropy(a.sigmoid(), b.to(a.dtype), c.abs())",
        "m n, ?m n, !m n | m n, ?m n, !n",
        name="weighted binary_cross_entropy",
        halves="cpu",
    ),
    _loss(
        "F.binary_cross_entropy_with_logits(a, b.to(a.dtype) * {hard} + 0.5 - {hard} / 2,"
        " c.abs().clamp(max=4), pos_weight=d.abs().clamp(max=4) + 1)",
        "m n, ?m n, !n, !n | n, ?n, !n, !n",
        values=LARGE,
        hard=(1, 0.5),
        least=4.0,
    ),
    _loss("F.soft_margin_loss(a, b.to(a.dtype) * 2 - 1)", "m n, ?m n | n, ?n"),
    _classes(
        "F.multi_margin_loss(a, b, p={p}, margin={margin})",
        "n c, @c n",
        p=(1, 2),
        margin=(0.3, 1.6),
        half_backward=False,
        # The true class adds up equal numbers.
        walk=0.5,
    ),
    _classes(
        "F.multilabel_margin_loss(a, torch.where("
        "torch.arange({c}, device=b.device) < {labels}, b, -1))",
        "n c, %n c",
        labels=(0, 2, 5),
        c=(7, 600),
        values=("quarters",),
        # CUDA's differs from the CPU's in a few places of a thousand (2.11).
        backward=False,
    ),
    *each(
        _TARGETS,
        _classes,
        f"F.nll_loss(a, {IGNORED}, {WEIGHT}, ignore_index={{ignored}})",
        name="nll_loss of $",
        weighted=(True, False),
        ignored=(-100, 0, 1, 2**32),
    ),
    *each(
        _TARGETS,
        _classes,
        f"F.cross_entropy(a, {IGNORED}, {WEIGHT}, ignore_index={{ignored}},"
        " label_smoothing={smoothing})",
        name="cross_entropy of $",
        weighted=(True, False),
        ignored=(-100, 0, 1),
        smoothing=(0.0, 0.2),
        halves=True,
    ),
    _classes(
        "F.cross_entropy(a, b)", "n c, @c n", halves=True, values=("quarters", "normal", "large")
    ),
    _classes(
        "F.cross_entropy(a, b.softmax(1), label_smoothing={smoothing})",
        "n c, !n c | n c x, !n c x",
        name="cross_entropy of shares",
        smoothing=(0.0, 0.2),
        halves=True,
    ),
    _classes(
        # Utterances of other lengths than the batch.
        "F.ctc_loss(a.log_softmax(2), b + (not {blank}), a.shape[0] - torch.arange({n}) % {uneven},"
        " torch.arange({n}) % 3, blank={blank}, reduction={reduction},"
        " zero_infinity={infinite})",
        "t n 9, @8 n 3",
        t=(9, 259),
        n=(5, 67),
        uneven=(1, 4),
        blank=(0, 8),
        roundings=16.0,
        walk=0.0,
        least=1000.0,
        strided=False,
    ),
)
