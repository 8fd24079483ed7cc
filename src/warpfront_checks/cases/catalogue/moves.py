"""Operations that move numbers: indices, scatters, joins and orders of memory."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.case import INTEGERS
from warpfront_checks.cases.catalogue.record import DIM, PLACES, exact, rounded
from warpfront_checks.cases.catalogue.record import moved as moved_floats
from warpfront_checks.cases.known_defects import KnownDefect
from warpfront_checks.cases.operation import Operation

# A row that is looked up twice is scaled twice: 5,029 of 219,680 times on an H200 that others used
# as well (2.11), never in 103,200 on one that was alone.
LIMITED_TWICE = KnownDefect(thread="pytorch#85377", device="cuda")
# The stride of rows is taken for their length: numbers past the last row are read and scaled.
MEASURED_WHOLE = KnownDefect(thread="pytorch#195208", device="cuda", unsafe=True)
LINES = "a k b | m n | n | a b c d e"
moved = partial(moved_floats, kinds=(*INTEGERS, "bool", "complex64"))
_along = partial(moved, shapes=LINES, dim=DIM)
_made = partial(moved, values=("zeros",), backward=False)
_few = partial(exact, values=("small", "few"), halves="cpu")
_bag = partial(_few, least_size=2, roundings=64.0, walk=1 / 16, least=1.0)
# Sums at one index, exact in any order.
_added = partial(exact, values=("small", "few", "wide"), kinds=(*INTEGERS, "complex64"))
INDEXED: tuple[Operation, ...] = (
    moved("gather", "torch.gather(a, 1, b)", "a k b, @k a n b | m n, @n m k | m n, @n m n"),
    moved("take_along_dim", "torch.take_along_dim(a, b, 1)", "a k b, @k a n b | m n, @n m k"),
    moved("take", "torch.take(a, b % a.numel())", "a k, @k n | m n, @n a b"),
    moved("index_select", "torch.index_select(a, 0, b)", "k b, &k n | k, &k n | k a b, &k n"),
    moved("index_select of the last", "torch.index_select(a, -1, b)", "b k, &k n | a b k, &k n"),
    moved("indices", "a[b]", "k b, @k n | k a b, @k n m | k, @k n"),
    moved("indices of the second axis", "a[:, b]", "a k b, @k n | a k, @k n m"),
    moved("two indices", "a[b, c]", "k m, @k n, @m n | k m b, @k n, @m n | k m, @k n 1, @m d"),
    moved("indices apart", "a[b, :, c]", "k b m, @k n, @m n"),
    moved("indices from the end", "a[b - {k}, c - {m}]", "k m, @k n, @m n | k m, @k n a, @m n a"),
    moved("a mask", "a[b]", "m n, ?m n | m n, ?m | a k b, ?a k"),
    moved("masked_select", "torch.masked_select(a, b)", "m n, ?m n | m n, ?n | m n, ?m 1"),
    _added(
        "index_add",
        "torch.index_add(a, {dim}, b, c, alpha={alpha})",
        "k b, &k n, n b | k, &k n, n | k a b, &k n, n a b",
        dim=(0,),
        # By a power of 2 a sum in 16 bits stays as exact.
        alpha=(1, 2),
    ),
    _added("index_add to the last", "torch.index_add(a, -1, b, c)", "b k, &k n, b n"),
    _added(
        "scatter_add",
        "torch.scatter_add(a, {dim}, b, c)",
        "k b, @k n b, n b | k, @k n, n | k 7, @k n 5, n 6",
        dim=(0,),
    ),
    _added("scatter_add to the last", "torch.scatter_add(a, -1, b, c)", "b k, @k b n, b n"),
    _added(
        "index_put of sums", "a.index_put((b,), c, accumulate=True)", "k b, @k n, n b | k, @k n, n"
    ),
    # Equal numbers add up: long ones, or many in 16 bits, beyond what the dtype represents.
    _added(
        "index_put of one row's sums",
        "a.index_put((b,), c, accumulate=True)",
        "k b, @k n, b",
        values=("small", "few"),
        halves=False,
    ),
    _added(
        "index_put of sums of places",
        "a.index_put((b, c), d, accumulate=True)",
        "k m, @k n, @m n, n | k m b, @k n, @m n, n b",
    ),
    *(
        exact(
            f"{name}, {reduction}",
            f"torch.{name}(a, {{dim}}, b, c, {reduction!r}, include_self={{own}})",
            shapes,
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
    moved("scatter", "torch.scatter(a, {dim}, b, c)", "m n, %m n, m n | n, %n, n", dim=(-1,)),
    moved("scatter of a number", "torch.scatter(a, {dim}, b, 7)", "m n, %m n | n, %n", dim=(-1,)),
    moved("index_copy", "torch.index_copy(a, -1, b, c)", "m n, %n, m n | n, %n, n"),
    moved("index_copy of rows", "torch.index_copy(a, 0, b, c)", "n m, %n, n m | n a b, %n, n a b"),
    moved("index_fill", "torch.index_fill(a, {dim}, b, 7)", "n n, @n m | n, @n m", n=(9, 600)),
    moved("index_put", "a.index_put((b,), c)", "n m, %n, n m | n, %n, n | n a b, %n, n a b"),
    moved("put", "torch.put(a, b, c)", "n, %n, n | 1 n, %n, n"),
    moved("masked_scatter", "torch.masked_scatter(a, b, c)", "m n, ?m n, m n | m n, ?n, m n"),
    moved(
        "embedding",
        "F.embedding(b, a, padding_idx={padding}, scale_grad_by_freq={scaled})",
        "k d, &k n | k d, &k n m",
        padding=PLACES,
        k=(5, 8191),
        values=("small", "few"),
        least_size=2,
        ulps=4.0,
        roundings=64.0,
        least=0.125,
        halves="cpu",
    ),
    *(
        rounded(
            f"embedding of limited rows{of}",
            f"F.embedding(b, {rows}, max_norm={{limit}}, norm_type={{norm}})",
            "k d, &k n | k d, &k n m",
            limit=(0.75, 100.0),
            norm=(1.0, 2.0),
            k=(5, 1031),
            halves="cpu",
            backward=False,
            changes=bool(of),
            defects=(defect,),
        )
        for of, rows, defect in (
            ("", "a.clone()", LIMITED_TWICE),
            (" of a slice", "a[:, ::2]", MEASURED_WHOLE),
        )
    ),
    moved_floats(
        "embedding in 16 bits", "F.embedding(b, a)", "k d, &k n | k d, &k n m", backward=False
    ),
    *(
        _bag(
            f"embedding_bag, {mode}",
            f"F.embedding_bag(b, a, mode={mode!r}, padding_idx={{padding}})",
            "k d, &k n m",
            padding=PLACES,
            values=("small", "few") if mode != "max" else ("distinct",),
            ulps=4.0,
        )
        for mode in ("sum", "mean", "max")
    ),
    # The first bag is empty.
    _bag(
        "embedding_bag by starts",
        "F.embedding_bag(b, a, torch.tensor([0, *range(0, {n}, 3), *[{n}] * {last}],"
        " device=b.device), mode={mode}, include_last_offset={last}, padding_idx={padding})",
        "k d, @k n",
        mode=("sum", "mean"),
        last=(False, True),
        padding=PLACES,
    ),
    _few(
        "weighted embedding_bag",
        "F.embedding_bag(b, a, mode='sum', per_sample_weights=c)",
        "k d, @k n m, n m",
        roundings=4.0,
    ),
    moved_floats(
        "one_hot", "F.one_hot(a, {k})", "@k n | @k n m", backward=False, values=("small",)
    ),
)
JOINED: tuple[Operation, ...] = (
    moved(
        "cat",
        "torch.cat([a, b, a], {dim})",
        "m n, m n | n, n | a k b, a k b | b c y x, b c y x",
        promotes=True,
    ),
    moved("cat of other lengths", "torch.cat([a, b], 1)", "m n, m k | a n b, a k b"),
    moved("cat of many", "torch.cat(a.unbind(0), {dim})", "n a b | n b", n=(9, 1031)),
    moved(
        "stack", "torch.stack([a, b, a], {dim})", "m n, m n | n, n | a k b, a k b", dim=(0, 1, -1)
    ),
    moved(
        "stack of many",
        "torch.stack(a.unbind({dim}), -1)",
        "n a b",
        dim=(0, 1),
        n=(9, 1031),
        a=(5, 1031),
    ),
    _along(
        "split",
        "torch.cat([x * 2 for x in a.split(2, {dim})][::-1], {dim})",
        **dict.fromkeys("abcdekmn", (5, 600)),
    ),
    _along("chunks", "torch.cat(a.chunk(3, {dim})[::-1], {dim})"),
    _along(
        "unbound",
        "torch.stack(a.unbind({dim})[::-1], {dim})",
        **dict.fromkeys("abcdekmn", (5, 600)),
    ),
    _along("narrow", "a.narrow({dim}, a.shape[{dim}] // 2, 1) * 2"),
    _along("flip", "torch.flip(a, [{dim}])"),
    moved("flip of two axes", "torch.flip(a, [0, -1])", "m n | a k b | a b c d e"),
    _along("roll", "torch.roll(a, {shift}, {dim})", shift=(1, -3, 65_537)),
    moved("roll of two axes", "torch.roll(a, ({shift}, 2), (0, -1))", "m n | a k b", shift=(1, -9)),
    moved(
        "rot90",
        "torch.rot90(a, {k}, (0, {dim}))".replace("{k}", "{turns}"),
        "m n | a k b",
        turns=(-1, 1, 2, 3),
        dim=(1, -1),
    ),
    _along("repeat_interleave", "torch.repeat_interleave(a, {count}, {dim})", count=(1, 2, 3)),
    moved(
        "repeat_interleave by counts",
        "torch.repeat_interleave(a, b, 0)",
        "n m, @4 n | n, @4 n | n a b, @4 n",
    ),
    moved("tile", "torch.tile(a, (2, 1, 2))", "a k b | m n | n"),
    moved(
        "expand",
        "a.unsqueeze({dim}).expand(*({{0: (4,) + tuple(a.shape), -1: tuple(a.shape) +"
        " (4,)}}[{dim}])) * 2",
        LINES,
        dim=DIM[:2],
    ),
    moved(
        "permute", "a.permute(*range(a.dim())[::-1]).contiguous() * 2", "a k b | m n | a b c d e"
    ),
    moved("movedim", "a.movedim({dim}, 0).contiguous() * 2", LINES),
    moved("transposed copy", "a.mT.contiguous() * 2", "m n | a k b | a b c d e"),
    moved("reshape", "a.mT.reshape(-1) * 2", "m n | a k b"),
    moved(
        "copy",
        "torch.empty_like(a).copy_(b)",
        "m n, m n | a k b, a k b | m n, n | a k b, 1",
        backward=False,
    ),
    moved("clone", "a.clone()", "m n | a k b | a b c d e | b c y x"),
    moved("steps", "a[..., ::{step}].clone() * 2", LINES, step=(2, 3)),
    _along(
        "unfold of an axis",
        "a.unfold({dim}, {window}, {step}) * 2",
        window=(1, 2, 3),
        step=(1, 2, 3),
        domain="shape[dim] >= window",
    ),
    *(
        moved(n, f"torch.{n}(a, {{diagonal}})", "m n | b m n", diagonal=(-2, 0, 3))
        for n in ("tril", "triu")
    ),
    moved(
        "diagonal",
        "torch.diagonal(a, {offset}, -2, -1) * 2",
        "m n | b m n",
        offset=(-2, 0, 2),
        m=7,
        n=7,
    ),
    moved("diag", "torch.diag(a)", "m n | n", n=(5, 1031)),
    moved(
        "diag_embed",
        "torch.diag_embed(a, {offset})",
        "b n | n",
        offset=(-1, 0, 2),
        n=(5, 600),
        b=(3, 9),
    ),
    moved("fill_diagonal", "a.clone().fill_diagonal_(40)", "m n | n n", n=(9, 600), backward=False),
    moved(
        "padded",
        "F.pad(a, ({left}, {right}), value=7.0)",
        LINES,
        left=(1, 0, -1),
        right=(2, -1),
        least_size=3,
    ),
    moved("padded on all sides", "F.pad(a, (1, 2) * a.dim(), value=7.0)", "m n | a k b | n"),
    _made(
        "arange",
        "torch.arange({start}, {n}, {step}, device=a.device, dtype=a.dtype) + a[:1]",
        "n",
        start=(0, -3),
        step=(1, 3),
        halves=False,
        kinds=(),
    ),
    _made("full", "torch.full(({m}, {n}), 3.5, device=a.device, dtype=a.dtype) + a", "m n"),
    _made("eye", "torch.eye({m}, {n}, device=a.device, dtype=a.dtype) + a", "m n"),
    moved(
        "meshgrid",
        "torch.cat([x.flatten() for x in torch.meshgrid(a, b, indexing={order})])",
        "m, n",
        order=("ij", "xy"),
    ),
    _made(
        "tril_indices",
        "torch.tril_indices({m}, {n}, {offset}, device=a.device) + 0 * a[:1, :1].long()",
        "m n",
        offset=(-1, 0, 2),
        halves="cpu",
        kinds=(),
    ),
)
MOVES: tuple[Operation, ...] = (*INDEXED, *JOINED)
