"""Sparse tensors: converted, summed and multiplied, against the same of dense ones."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.catalogue.record import exact
from warpfront_checks.cases.known_defects import KnownDefect
from warpfront_checks.cases.operation import Operation

# The algorithms of cuSPARSE that torch chooses add atomically, in each format. Torch chooses no
# other, and raises nothing, where deterministic algorithms are demanded (H200, torch 2.11).
ADDED_ATOMICALLY = KnownDefect(thread="cupy#9323", device="cuda", label="runs on the same inputs")

_table = partial(
    exact, values=("few", "small"), halves="cpu", cases=16, m=7, n=5, k=3, backward=False
)
LAYOUTS = ("", "_csr", "_csc")
SPARSE: tuple[Operation, ...] = (
    *(
        _table(
            f"to_sparse{first} to_sparse{second}",
            f"a.to_sparse{first}().to_sparse{second}().to_dense()",
            definition="a.clone()",
        )
        for first in LAYOUTS
        for second in LAYOUTS
        if first != second
    ),
    *(
        _table(
            f"{name} by to_sparse{layout}",
            code.format(x=f"a.to_sparse{layout}()"),
            shapes,
            definition=definition,
            defects=(ADDED_ATOMICALLY,),
        )
        for layout in LAYOUTS
        for name, code, shapes, definition in (
            ("product", "{x} @ b", "m n, n k", "a @ b"),
            ("product with a vector", "{x} @ b", "m n, n", "a @ b"),
            (
                "addmm",
                "torch.addmm(c, {x}, b, beta=2, alpha=3)",
                "m n, n k, m k",
                "2 * c + 3 * a @ b",
            ),
        )
    ),
    _table("sum of sparse", "torch.sparse.sum(a.to_sparse(), 0).to_dense()", definition="a.sum(0)"),
    _table(
        "sparse added",
        "(a.to_sparse() + 2 * b.to_sparse()).to_dense()",
        "m n, m n",
        definition="a + 2 * b",
    ),
    _table("sparse transposed", "a.to_sparse().mT.to_dense()", definition="a.mT.clone()"),
    _table(
        "coalesce",
        "torch.sparse_coo_tensor(torch.stack([b, c]), a, ({m}, {n})).coalesce().to_dense()",
        "p, @m p, @n p",
        definition="torch.zeros({m}, {n}, dtype=a.dtype).index_put((b, c), a, accumulate=True)",
        p=40,
    ),
    _table(
        "gradient of a sparse product",
        "torch.sparse.mm(a.to_sparse(), b)",
        "m n, n k",
        definition="(a * (a != 0)) @ b",
        backward=True,
        defects=(ADDED_ATOMICALLY,),
    ),
    _table(
        "gradient of a sparse embedding",
        "F.embedding(b, a, sparse=True)",
        "m n, @m p",
        definition="F.embedding(b, a)",
        p=9,
    ),
    *(
        _table(
            f"blocks of {size}, {layout}",
            f"a.to_sparse_{layout}({size}).to_dense()",
            "6 10",
            definition="a.clone()",
        )
        for size in ((2, 2), (3, 5), (1, 10))
        for layout in ("bsr", "bsc")
    ),
)
