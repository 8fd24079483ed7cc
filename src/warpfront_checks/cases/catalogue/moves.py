"""Operations that move numbers: indices, scatters, joins and orders of memory."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.case import INTEGERS
from warpfront_checks.cases.catalogue.record import DIM, PLACES, each, exact, rounded
from warpfront_checks.cases.catalogue.record import moved as moved_floats
from warpfront_checks.cases.operation import Operation

LINES = "a k b | m n | n | a b c d e"
moved = partial(moved_floats, kinds=(*INTEGERS, "bool", "complex64"))
_along = partial(moved, shapes=LINES, dim=DIM)
_short = partial(_along, **dict.fromkeys("abcdekmn", (5, 600)))
_made = partial(moved, values=("zeros",), backward=False)
_few = partial(exact, values=("small", "few"), halves="cpu")
_bag = partial(_few, least_size=2, roundings=64.0, walk=1 / 16, least=1.0)
_limited = partial(
    rounded,
    shapes="k d, &k n | k d, &k n m",
    name="embedding of limited rows",
    limit=(0.75, 100.0),
    norm=(1.0, 2.0),
    k=(5, 1031),
    halves="cpu",
    backward=False,
)
# Sums at one index, exact in any order.
_added = partial(exact, values=("small", "few", "wide"), kinds=(*INTEGERS, "complex64"))
INDEXED: tuple[Operation, ...] = (
    moved("torch.gather(a, 1, b)", "a k b, @k a n b | m n, @n m k | m n, @n m n"),
    moved("torch.take_along_dim(a, b, 1)", "a k b, @k a n b | m n, @n m k"),
    moved("torch.take(a, b % a.numel())", "a k, @k n | m n, @n a b"),
    moved("torch.index_select(a, 0, b)", "k b, &k n | k, &k n | k a b, &k n"),
    moved(
        "torch.index_select(a, -1, b)", "b k, &k n | a b k, &k n", name="index_select of the last"
    ),
    moved("a[b]", "k b, @k n | k a b, @k n m | k, @k n", name="indices"),
    moved("a[:, b]", "a k b, @k n | a k, @k n m", name="indices of the second axis"),
    moved("a[b, c]", "k m, @k n, @m n | k m b, @k n, @m n | k m, @k n 1, @m d", name="two indices"),
    moved("a[b, :, c]", "k b m, @k n, @m n", name="indices apart"),
    moved(
        "a[b - {k}, c - {m}]", "k m, @k n, @m n | k m, @k n a, @m n a", name="indices from the end"
    ),
    moved("a[b]", "m n, ?m n | m n, ?m | a k b, ?a k", name="a mask"),
    moved("torch.masked_select(a, b)", "m n, ?m n | m n, ?n | m n, ?m 1"),
    _added(
        "torch.index_add(a, {dim}, b, c, alpha={alpha})",
        "k b, &k n, n b | k, &k n, n | k a b, &k n, n a b",
        dim=(0,),
        # By a power of 2 a sum in 16 bits stays as exact.
        alpha=(1, 2),
    ),
    _added("torch.index_add(a, -1, b, c)", "b k, &k n, b n", name="index_add to the last"),
    _added(
        "torch.scatter_add(a, {dim}, b, c)",
        "k b, @k n b, n b | k, @k n, n | k 7, @k n 5, n 6",
        dim=(0,),
    ),
    _added("torch.scatter_add(a, -1, b, c)", "b k, @k b n, b n", name="scatter_add to the last"),
    _added(
        "a.index_put((b,), c, accumulate=True)",
        "k b, @k n, n b | k, @k n, n",
        name="index_put of sums",
    ),
    # Equal numbers add up: long ones, or many in 16 bits, beyond what the dtype represents.
    _added(
        "a.index_put((b,), c, accumulate=True)",
        "k b, @k n, b",
        name="index_put of one row's sums",
        values=("small", "few"),
        halves=False,
    ),
    _added(
        "a.index_put((b, c), d, accumulate=True)",
        "k m, @k n, @m n, n | k m b, @k n, @m n, n b",
        name="index_put of sums of places",
    ),
    *(
        exact(
            f"torch.{name}(a, {{dim}}, b, c, {reduction!r}, include_self={{own}})",
            shapes,
            name=f"{name}, {reduction}",
            dim=(0,),
            own=(True, False),
            values=("signs",) if reduction == "prod" else ("small", "few"),
            backward=reduction == "sum",
            halves="cpu",
            ulps=4.0,
            # A count of more than 127 rows is none of 8 bits.
            kinds=INTEGERS[:3] if reduction == "mean" else INTEGERS,
            n=(9, 1031) if reduction == "prod" else (9, most),
        )
        for name, shapes, most, reductions in (
            ("scatter_reduce", "k b, @k n b, n b | k, @k n, n | k 7, @k n 5, n 6", 8191, "sum "),
            ("index_reduce", "k b, @k n, n b | k, @k n, n | k a b, @k n, n a b", 1031, ""),
        )
        for reduction in f"{reductions}prod amax amin mean".split()
    ),
    # Each place once: of two that are put to one place either may win.
    moved("torch.scatter(a, {dim}, b, c)", "m n, %m n, m n | n, %n, n", dim=(-1,)),
    moved(
        "torch.scatter(a, {dim}, b, 7)", "m n, %m n | n, %n", name="scatter of a number", dim=(-1,)
    ),
    moved("torch.index_copy(a, -1, b, c)", "m n, %n, m n | n, %n, n"),
    moved(
        "torch.index_copy(a, 0, b, c)", "n m, %n, n m | n a b, %n, n a b", name="index_copy of rows"
    ),
    moved("torch.index_fill(a, {dim}, b, 7)", "n n, @n m | n, @n m", n=(9, 600)),
    moved("a.index_put((b,), c)", "n m, %n, n m | n, %n, n | n a b, %n, n a b"),
    moved("torch.put(a, b, c)", "n, %n, n | 1 n, %n, n"),
    moved("torch.masked_scatter(a, b, c)", "m n, ?m n, m n | m n, ?n, m n"),
    moved(
        "F.embedding(b, a, padding_idx={padding}, scale_grad_by_freq={scaled})",
        "k d, &k n | k d, &k n m",
        padding=PLACES,
        k=(5, 8191),
        values=("small", "few"),
        least_size=2,
        ulps=4.0,
        roundings=64.0,
        # Scaled gradients of a row are shares that add up. Equal ones, of at most half of the
        # look-ups, round to one side: n/4 roundings of n terms.
        walk=1 / 8,
        least=0.125,
        halves="cpu",
    ),
    _limited("F.embedding(b, a.clone(), max_norm={limit}, norm_type={norm})"),
    _limited(
        "F.embedding(b, (a + 0)[:, ::2], max_norm={limit}, norm_type={norm})",
        name="embedding of limited rows of a slice",
    ),
    moved_floats(
        "F.embedding(b, a)", "k d, &k n | k d, &k n m", name="embedding in 16 bits", backward=False
    ),
    *each(
        {"sum mean": {}, "max": {"values": ("distinct",)}},
        _bag,
        "F.embedding_bag(b, a, mode='$', padding_idx={padding})",
        "k d, &k n m",
        name="embedding_bag, $",
        padding=PLACES,
        ulps=4.0,
    ),
    # The first bag is empty.
    _bag(
        "F.embedding_bag(b, a, torch.tensor([0, *range(0, {n}, 3), *[{n}] * {last}],"
        " device=b.device), mode={mode}, include_last_offset={last}, padding_idx={padding})",
        "k d, @k n",
        name="embedding_bag by starts",
        mode=("sum", "mean"),
        last=(False, True),
        padding=PLACES,
    ),
    _few(
        "F.embedding_bag(b, a, mode='sum', per_sample_weights=c)",
        "k d, @k n m, n m",
        name="weighted embedding_bag",
        roundings=4.0,
    ),
    moved_floats("F.one_hot(a, {k})", "@k n | @k n m", backward=False, values=("small",)),
)
JOINED: tuple[Operation, ...] = (
    moved(
        "torch.cat([a, b, a], {dim})",
        "m n, m n | n, n | a k b, a k b | b c y x, b c y x",
        promotes=True,
    ),
    moved("torch.cat([a, b], 1)", "m n, m k | a n b, a k b", name="cat of other lengths"),
    moved("torch.cat(a.unbind(0), {dim})", "n a b | n b", name="cat of many", n=(9, 1031)),
    moved("torch.stack([a, b, a], {dim})", "m n, m n | n, n | a k b, a k b", dim=(0, 1, -1)),
    moved(
        "torch.stack(a.unbind({dim}), -1)",
        "n a b",
        name="stack of many",
        dim=(0, 1),
        n=(9, 1031),
        a=(5, 1031),
    ),
    _short("torch.cat([x * 2 for x in a.split(2, {dim})][::-1], {dim})", name="split"),
    _along("torch.cat(a.chunk(3, {dim})[::-1], {dim})", name="chunks"),
    _along("a.narrow({dim}, a.shape[{dim}] // 2, 1) * 2"),
    _along("torch.flip(a, [{dim}])"),
    moved("torch.flip(a, [0, -1])", "m n | a k b | a b c d e", name="flip of two axes"),
    _along("torch.roll(a, {shift}, {dim})", shift=(1, -3, 65_537)),
    moved(
        "torch.roll(a, ({shift}, 2), (0, -1))",
        "m n | a k b",
        name="roll of two axes",
        shift=(1, -9),
    ),
    moved("torch.rot90(a, {turns}, (0, {dim}))", "m n | a k b", turns=(-1, 1, 2, 3), dim=(1, -1)),
    _along("torch.repeat_interleave(a, {count}, {dim})", count=(1, 2, 3)),
    moved(
        "torch.repeat_interleave(a, b, 0)",
        "n m, @4 n | n, @4 n | n a b, @4 n",
        name="repeat_interleave by counts",
    ),
    moved("torch.tile(a, (2, 1, 2))", "a k b | m n | n"),
    moved(
        "a.unsqueeze({dim}).expand(*({{0: (4,) + tuple(a.shape), -1: tuple(a.shape) +"
        " (4,)}}[{dim}])) * 2",
        LINES,
        name="expand",
        dim=DIM[:2],
    ),
    moved("a.permute(*range(a.dim())[::-1]).contiguous() * 2", "a k b | m n | a b c d e"),
    moved("a.mT.contiguous() * 2", "m n | a k b | a b c d e", name="transposed copy"),
    moved("a.mT.reshape(-1) * 2", "m n | a k b"),
    moved(
        "torch.empty_like(a).copy_(b)",
        "m n, m n | a k b, a k b | m n, n | a k b, 1",
        name="copy",
        backward=False,
    ),
    moved("a.clone()", "m n | a k b | a b c d e | b c y x"),
    moved("a[..., ::{step}].clone() * 2", LINES, name="steps", step=(2, 3)),
    _along(
        "a.unfold({dim}, {window}, {step}) * 2",
        name="unfold of an axis",
        window=(1, 2, 3),
        step=(1, 2, 3),
        domain="shape[dim] >= window",
    ),
    *each("tril triu", moved, "torch.$(a, {diagonal})", "m n | b m n", diagonal=(-2, 0, 3)),
    moved("torch.diagonal(a, {offset}, -2, -1) * 2", "m n | b m n", offset=(-2, 0, 2), m=7, n=7),
    moved("torch.diag(a)", "m n | n", n=(5, 1031)),
    moved("torch.diag_embed(a, {offset})", "b n | n", offset=(-1, 0, 2), n=(5, 600), b=(3, 9)),
    moved(
        "a.clone().fill_diagonal_(40)",
        "m n | n n",
        name="fill_diagonal",
        n=(9, 600),
        backward=False,
    ),
    moved(
        "F.pad(a, ({left}, {right}), value=7.0)",
        LINES,
        name="padded",
        left=(1, 0, -1),
        right=(2, -1),
        least_size=3,
    ),
    moved("F.pad(a, (1, 2) * a.dim(), value=7.0)", "m n | a k b | n", name="padded on all sides"),
    _made(
        "torch.arange({start}, {n}, {step}, device=a.device, dtype=a.dtype) + a[:1]",
        "n",
        start=(0, -3),
        step=(1, 3),
        halves=False,
        kinds=(),
    ),
    _made("torch.full(({m}, {n}), 3.5, device=a.device, dtype=a.dtype) + a", "m n"),
    _made("torch.eye({m}, {n}, device=a.device, dtype=a.dtype) + a", "m n"),
    moved(
        "torch.cat([x.flatten() for x in torch.meshgrid(a, b, indexing={order})])",
        "m, n",
        name="meshgrid",
        order=("ij", "xy"),
    ),
    _made(
        "torch.tril_indices({m}, {n}, {offset}, device=a.device) + 0 * a[:1, :1].long()",
        "m n",
        offset=(-1, 0, 2),
        halves="cpu",
        kinds=(),
    ),
)
MOVES: tuple[Operation, ...] = (*INDEXED, *JOINED)
