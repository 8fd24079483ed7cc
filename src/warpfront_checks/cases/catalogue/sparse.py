"""Sparse tensors: converted, summed and multiplied, against the same of dense ones."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.catalogue.record import exact
from warpfront_checks.cases.operation import Operation

_table = partial(
    exact, values=("few", "small"), halves="cpu", cases=22, m=7, n=5, k=3, backward=False
)
_ADDED = "torch.addmm(c, {x}, b, beta=2, alpha=3)"
LAYOUTS = ("", "_csr", "_csc")
SPARSE: tuple[Operation, ...] = (
    *(
        _table(
            f"a.to_sparse{first}().to_sparse{second}().to_dense()",
            name=f"to_sparse{first} to_sparse{second}",
            definition="a.clone()",
        )
        for first in LAYOUTS
        for second in LAYOUTS
        if first != second
    ),
    *(
        _table(
            code.format(x=f"a.to_sparse{layout}()"),
            shapes,
            name=f"{name} by to_sparse{layout}",
            definition=definition,
        )
        for layout in LAYOUTS
        for name, code, shapes, definition in (
            ("product", "{x} @ b", "m n, n k", "a @ b"),
            ("product with a vector", "{x} @ b", "m n, n", "a @ b"),
            ("addmm", _ADDED, "m n, n k, m k", "2 * c + 3 * a @ b"),
        )
    ),
    _table(
        "torch.sparse.sum(a.to_sparse(), 0).to_dense()", name="sum of sparse", definition="a.sum(0)"
    ),
    _table(
        "(a.to_sparse() + 2 * b.to_sparse()).to_dense()",
        "m n, m n",
        name="sparse added",
        definition="a + 2 * b",
    ),
    _table("a.to_sparse().mT.to_dense()", name="sparse transposed", definition="a.mT.clone()"),
    _table(
        "torch.sparse_coo_tensor(torch.stack([b, c]), a, ({m}, {n})).coalesce().to_dense()",
        "p, @m p, @n p",
        name="coalesce",
        definition="torch.zeros({m}, {n}, dtype=a.dtype).index_put((b, c), a, accumulate=True)",
        p=40,
    ),
    _table(
        "torch.sparse.mm(a.to_sparse(), b)",
        "m n, n k",
        name="gradient of a sparse product",
        definition="(a * (a != 0)) @ b",
        backward=True,
    ),
    _table(
        "F.embedding(b, a, sparse=True)",
        "m n, @m p",
        name="gradient of a sparse embedding",
        definition="F.embedding(b, a)",
        p=9,
    ),
    *(
        _table(
            f"a.to_sparse_{layout}({size}).to_dense()",
            "6 10",
            name=f"blocks of {size}, {layout}",
            definition="a.clone()",
        )
        for size in ((2, 2), (3, 5), (1, 10))
        for layout in ("bsr", "bsc")
    ),
)
