"""Operations along an axis: reductions, scans, orders and counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.case import INTEGERS
from warpfront_checks.cases.catalogue.record import DIM, each, exact, moved, rounded
from warpfront_checks.cases.operation import ROUNDED, Operation

LINES = "a k b | m n | n | a b c d e"
_sum = partial(
    exact,
    shapes=LINES,
    values=("small", "few", "sparse", "non-finite", "ones", "rare"),
    kinds=(*INTEGERS, "bool", "complex64"),
)
# Numbers of which no two are alike have one largest and one order.
_order = partial(
    exact, shapes=LINES, values=("distinct",), ulps=0.0, halves="cpu", kinds=INTEGERS[:2]
)
# In 16 bits numbers are equal.
_apart = partial(_order, halves=False)
# Of two numbers and a divisor of 0, rounding decides whether the result is infinite or NaN.
SPREAD = "not 1 < (math.prod(shape) if dim is None else shape[dim]) <= correction"
# Of equal numbers the first is documented.
TIES = ("distinct", "small", "equal", "non-finite")
_first = partial(_order, values=TIES, backward=False)
_with_nan = partial(_order, values=("non-finite",), backward=False, kinds=())
EXTREMES = "max min cummax cummin"
_nearly = partial(rounded, shapes=LINES, values=("quarters", "normal", "equal"))
_boolean = partial(
    exact,
    shapes=LINES,
    backward=False,
    values=("few", "small", "zeros", "non-finite"),
    ulps=0.0,
    kinds=("int64", "int32", "int16", "int8", "bool"),
)
LOGITS = ("quarters", "normal", "equal", "large", "masked", "shifted", "peak")
HIGH = ("quarters", "normal", "equal", "high")
WITH_NAN = ("distinct", "non-finite")
MIDDLE = "(a.shape[{dim}] + 1) // 2"
_of_one_sign = partial(
    moved, shapes=LINES, dim=DIM, values=("above", "below", "non-finite"), backward=False
)
TOPK = "torch.topk(a, min({count}, a.shape[{dim}]), {dim}, largest={largest})"
TAKEN: Mapping[str, Any] = {"largest": (True, False), "count": (1, 3, 40, 1100)}


def _placed(name: str, call: str, **options: Any) -> Operation:
    """Return a record of the numbers at the indices of a call, which differ from each other. Which
    of equal numbers an index names is not determined.
    """
    code = "(lambda i: [torch.gather(a, {dim}, i), i.sort({dim}).values.diff(dim={dim}) > 0])"
    return _first(f"{code}({call})", name=name, dim=DIM, **options)


_square = "{x}.abs() + 0.125"
# Each factor is exact in float32, and each product rounds once: half an eps a factor. The product
# of 500,000 equal ones stays within its range, and nothing cancels.
_multiplied = partial(
    _nearly,
    fit="1 + {x} / 2 ** 14",
    unseen=("cuda",),
    values=("quarters",),
    walk=0.5,
    cancels=False,
    halves="cpu",
)
_distance = partial(rounded, halves="cpu", d=(3, 67))
REDUCTIONS: tuple[Operation, ...] = (
    _sum("torch.sum(a, {dim}, keepdim={keepdim})"),
    _sum("torch.sum(a)", name="sum of all"),
    _sum("torch.sum(a, (0, -1))", "a k b | m n | a b c d e", name="sum of two axes"),
    _sum("torch.nansum(a, {dim})", kinds=INTEGERS),
    # CUDA keeps running sums of 16 bits in them.
    _sum("torch.cumsum(a, {dim})", halves="cpu"),
    _sum("torch.count_nonzero(a, {dim})", backward=False),
    _sum("torch.trace(a)", "m n"),
    # Partial sums of n numbers about 1 reach the root of n: the mean is off by an eps of 1.
    _nearly("torch.mean(a, {dim}, keepdim={keepdim})", values=HIGH, least=1 / 64),
    _nearly("torch.mean(a)", name="mean of all", values=HIGH, least=1 / 64),
    *each(
        "sum mean",
        _sum,
        "torch.$(a, {dim}, dtype=torch.float32)",
        name="$ of bytes",
        definition="torch.$(a.double(), {dim}).float()",
        ulps=2.0,
        floats=False,
        kinds=("int8", "uint8"),
        backward=False,
    ),
    _multiplied("torch.prod(a, {dim}, keepdim={keepdim})"),
    _multiplied("torch.prod(a)", name="prod of all"),
    _multiplied("torch.cumprod(a, {dim})"),
    *each(
        "prod cumprod",
        moved,
        "torch.$(a, {dim})",
        LINES,
        name="$ of integers",
        values=("signs",),
        kinds=INTEGERS,
        ulps=1.0,
        # Where a factor is 0, the gradient takes as many steps as the square of the length.
        backward=False,
    ),
    *each(
        {"var": {}, "std": {"values": ("quarters", "normal"), "backward": False}},
        _nearly,
        "torch.$(a, {dim}, correction={correction})",
        dim=(*DIM, None),
        correction=(0, 1, 2),
        domain=SPREAD,
        kinds=("complex64",),
    ),
    _nearly(
        "torch.var_mean(a, {dim}, correction={correction})[0]",
        dim=DIM,
        correction=(0, 1),
        least_size=2,
    ),
    # One pass loses a rounding for each deviation that the mean is away, and walks.
    _nearly(
        "torch.var(a, {dim}, correction={correction})",
        name="var far from 0",
        dim=DIM,
        correction=(0, 1),
        values=("away",),
        halves="cpu",
        walk=0.0,
        roundings=50_000.0,
        **dict.fromkeys("abcdekmn", (5, 1031)),
        backward=False,
        least_size=2,
    ),
    _nearly(
        "torch.linalg.vector_norm(a, {ord}, {dim})",
        name="norm",
        dim=(*DIM, None),
        fit=_square,
        roundings=512.0,
        # A sum of equal roots, squared.
        walk=1.0,
        ord=(1, 2, 3, 0.5, math.inf, -math.inf),
        kinds=("complex64",),
        values=(*ROUNDED, "spike"),
        backward=False,
    ),
    _nearly(
        "torch.linalg.vector_norm(a, 2, {dim})",
        name="norm of 2",
        values=(*HIGH, "spike"),
        dim=(*DIM, None),
        fit=_square,
    ),
    _nearly(
        "torch.renorm(a, {p}, {dim}, 1.5)", "m n | a k b", p=(1, 2), fit=_square, backward=False
    ),
    _nearly(
        "torch.logsumexp(a, {dim}, keepdim={keepdim})",
        values=("quarters", "normal", "equal", "masked", "peak"),
    ),
    _nearly("torch.logcumsumexp(a, {dim})", values=("quarters", "normal", "equal", "masked")),
    *each("softmax softmin", _nearly, "F.$(a, {dim})", values=LOGITS),
    # The sum of a logarithm and a number far from 0 rounds as that number does.
    _nearly("F.log_softmax(a, {dim})", values=LOGITS, least=1000.0),
    # Each is far below 1, so that the bound is of the number itself.
    *each(
        "softmax softmin",
        moved,
        "F.$(a, {dim})",
        LINES,
        name="$ of long rows in 16 bits",
        values=("quarters",),
        floats=False,
        kinds=("bfloat16", "float16"),
        half_size=8191,
        exact=False,
        ulps=2.0,
        backward=False,
    ),
    _nearly(
        "F.log_softmax(a, {dim})", name="log_softmax of differences", values=("afar",), halves=False
    ),
    *each("amax amin", _of_one_sign, "torch.$(a, {dim})", name="$ of one sign"),
    *each("max min", _of_one_sign, "torch.$(a)", name="$ of one sign"),
    *(
        _of_one_sign(f"torch.{n}.values", name=f"{n.partition('(')[0]} of one sign", **fields)
        for n, fields in (
            (f"kthvalue(a, {MIDDLE}, {{dim}})", {}),
            ("median(a.contiguous(), {dim})", {}),
            # An H200 sorted negative NaN first, in one of twelve seeds (torch 2.11).
            ("sort(a, {dim})", {"unseen": ("cuda",)}),
            ("topk(a, min(5, a.shape[{dim}]), {dim})", {}),
            ("cummax(a, {dim})", {}),
        )
    ),
    *each("amax amin", _order, "torch.$(a, {dim}, keepdim={keepdim})", values=WITH_NAN),
    *each("argmax argmin", _first, "torch.$(a, {dim}, keepdim={keepdim})"),
    *each({"max min": {}, "median": {"backward": False}}, _order, "torch.$(a)", name="$ of all"),
    *each("argmax argmin", _first, "torch.$(a)", name="$ of all"),
    *each(EXTREMES, _order, "torch.$(a, {dim}).values", name="$'s values", values=WITH_NAN),
    *each("median nanmedian", _order, "torch.$(a, {dim}).values", name="$'s values"),
    # Of expanded memory the CPU reads beyond its end (2.13).
    *each(
        "median nanmedian", _with_nan, "torch.$(a.contiguous(), {dim}).values", name="$ with NaN"
    ),
    _order("torch.mode(a, {dim}).values", name="mode's values"),
    *each("max min median nanmedian", _with_nan, "torch.$(a)", name="$ of all with NaN"),
    # Of equal numbers a running extreme has the last.
    *each(EXTREMES, _first, "torch.$(a, {dim})", name="$'s indices"),
    *each("median nanmedian sort", _apart, "torch.$(a, {dim})", name="$'s indices", backward=False),
    # Its gradient is torch's since 2.12 (pytorch/pytorch#175215).
    _order("torch.aminmax(a, dim={dim})[1]", backward=False),
    _order("torch.sort(a, {dim}, {down}).values", name="sort's values", values=WITH_NAN),
    _first(
        "torch.sort(a, dim={dim}, descending={down}, stable=True)[1]", name="stable sort's indices"
    ),
    _placed("argsort", "torch.argsort(a, {dim}, {down})"),
    _order(f"torch.kthvalue(a, {MIDDLE}, {{dim}})[0]"),
    _placed("kthvalue's index", f"torch.kthvalue(a, {MIDDLE}, {{dim}}, keepdim=True)[1]"),
    _order(f"{TOPK}[0]", name="topk's values", dim=DIM, values=WITH_NAN, **TAKEN),
    _placed("topk's indices", f"{TOPK}[1]", **TAKEN),
    _order(
        f"torch.topk(a, {MIDDLE}, {{dim}}, sorted=False).values.sort({{dim}}).values",
        name="unsorted topk",
        backward=False,
    ),
    rounded(
        "torch.quantile(a, 0.3137, {dim}, interpolation={how})",
        LINES,
        dim=DIM,
        how=("linear", "lower", "higher", "midpoint"),
        values=("distinct",),
        backward=False,
        halves=False,
    ),
    # What is no number is found behind all numbers.
    _first(
        "torch.searchsorted(a.nan_to_num().sort(-1).values, b, right={right}, out_int32={narrow})",
        "a k, a n",
    ),
    _first(
        "torch.searchsorted(a, b, side={side}, sorter=a.argsort(-1))",
        "a k, a n",
        name="searchsorted by a sorter",
        side=("left", "right"),
    ),
    _first("torch.bucketize(a, b.nan_to_num().sort().values, right={right})", "m n, k"),
    *each("all any", _boolean, "torch.$(a, {dim})"),
    *each("all any", _boolean, "torch.$(a)", name="$ of all"),
    *each("all any", _boolean, "torch.$(a > -4, {dim})", name="$ of few"),
    _boolean("torch.nonzero(a)", values=("few", "small", "zeros")),
    _boolean("torch.argwhere(a > 0)", values=("few", "small")),
    _boolean("torch.isin(a, b, invert={invert})", "m n, k", values=("small", "wide", "quarters")),
    _boolean(
        "torch.unique(a, return_inverse=True, return_counts=True)[{part}]",
        part=(0, 1, 2),
        values=("small",),
    ),
    _boolean(
        "torch.unique(a, dim={dim}, return_inverse=True, return_counts=True)[{part}]",
        "m n",
        name="unique along an axis",
        dim=DIM,
        part=(0, 1, 2),
        values=("few", "small"),
    ),
    _boolean(
        "torch.unique_consecutive(a, return_counts=True)[{part}]",
        part=(0, 1),
        values=("few", "small"),
    ),
    _boolean("torch.bincount(a, minlength={minimum})", "@k n", k=(5, 70_001), minimum=(0, 9)),
    # So many draws leave out a class once in 10^25 times.
    exact(
        "torch.zeros_like(a).scatter(-1, torch.multinomial(a + (a.sum(-1, keepdim=True) == 0),"
        " 64 * {k}, True), 1.0)",
        "m k | k",
        name="multinomial's classes",
        definition="(a + (a.sum(-1, keepdim=True) == 0)).clamp(max=1)",
        values=("ones",),
        m=(3, 31),
        k=(5, 259),
        halves="cpu",
        backward=False,
    ),
    exact(
        "torch.bincount(a, b)",
        "@k n, n",
        name="weighted bincount",
        k=(5, 70_001),
        backward=False,
        halves=False,
    ),
    _boolean(
        "torch.histc(a, {bins}, {low}, {high})",
        "n",
        bins=(4, 16, 259),
        low=(-4.5, 0),
        high=(4.5, 3),
        values=("small",),
        halves=False,
    ),
    _distance(
        "torch.cdist(a, b + {apart}, p={p})",
        "m d, n d | b m d, b n d",
        apart=(9,),
        p=(0.0, 1.0, 2.0, 3.0, math.inf),
        values=("quarters",),
        backward=False,
    ),
    _distance(
        "torch.cdist(a, b + 9, p={p})",
        "m d, n d | b m d, b n d",
        name="cdist's gradient",
        p=(1.0, 2.0, 3.0),
        values=("quarters", "normal"),
    ),
    _distance(
        "torch.pdist(a + 4 * torch.arange({m}, device=a.device)[:, None])",
        "m d",
        m=(3, 600),
        least_size=2,
        values=("quarters",),
    ),
    rounded(
        "torch.linalg.matrix_norm(a, {ord})",
        "m n | b m n",
        name="matrix norms",
        ord=("fro", 1, -1, math.inf),
        backward=False,
    ),
    rounded("torch.diff(a, dim={dim})", LINES, walk=0.0),
)
