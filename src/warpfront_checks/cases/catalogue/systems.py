"""Linear algebra: each solution is put back into its equation, and factors are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import PARTS, rounded
from warpfront_checks.cases.operation import Operation

_ONE = "torch.eye({n}, device=h.device, dtype=h.dtype)"
_BROAD = "0 * h[..., :1, :1]"
# Matrices made of drawn numbers `x`: far from singular, in an order that needs pivots; positive
# definite; of half the rank; and with a row of zeros.
DOMINANT = f"(lambda h: (h / (8 * {{n}}) + 2 * {_ONE}).roll(1, -1))"
POSITIVE = f"(lambda h: h @ h.mH / (16 * {{n}}) + {_ONE})"
DEFICIENT = "(lambda h: h[..., : {n} // 2] @ h[..., : {n} // 2].mH / (4 * {n}))"
SINGULAR = f"(lambda h: {DOMINANT}(h) * (torch.arange({{n}}, device=h.device) != 1)[:, None])"
_SIDES = "b n n, b n m | n n, n m | n n, b n m | b n n, n m"
_system = partial(
    rounded,
    values=("normal", "quarters"),
    halves=False,
    roundings=64.0,
    walk=1.0,
    least=2.0,
    # One side of all has as many axes as a batch of vectors: sizes tell them apart.
    b=2,
    n=(3, 259),
    m=(4, 4099),
    least_size=3,
    numbers=500_000,
    cases=28,
    backward=False,
)
_TRIANGLE = "(torch.triu if {upper} else torch.tril)"
# The other triangle is not read.
_OTHER = "(torch.tril if {upper} else torch.triu)"
_HALF = f"({_TRIANGLE}(h) + {_OTHER}(torch.full_like(h, 7.5), -1 if {{upper}} else 1))"
_FACTOR = "torch.linalg.cholesky(h, upper={upper})"
_SPOILED = _HALF.replace("(h)", f"({_FACTOR})")
_UNSOLVED = f"y + {_BROAD}"
_SAME = f"{_ONE} + {_BROAD}"
# Jacobi's iteration, by which NVIDIA finds them, ends some roundings a row before the last.
_ITERATED: dict[str, Any] = {"roundings": 1024.0, "walk": 16.0}
# Name, matrix, call of `h` and of the right side `y`, its definition, and options.
_CALLS: tuple[tuple[str, str, str, str, Mapping[str, Any]], ...] = (
    ("solve", DOMINANT, "h @ torch.linalg.solve(h, y)", _UNSOLVED, {}),
    (
        "solve from the right",
        DOMINANT,
        "torch.linalg.solve(h, y.mT, left=False) @ h",
        f"y.mT + {_BROAD}",
        {},
    ),
    ("inverse", DOMINANT, "h @ torch.linalg.inv(h)", _SAME, {}),
    ("lu", DOMINANT, "(lambda p, l, u: p @ l @ u)(*torch.linalg.lu(h))", "h", {}),
    # CUDA's kernels for batches stop at a factor that is zero (2.11 on an H200).
    (
        "lu of singular",
        SINGULAR,
        "(lambda p, l, u: p @ l @ u)(*torch.linalg.lu(h))",
        "h",
        {"unseen": ("cuda",)},
    ),
    (
        "lu_factor",
        DOMINANT,
        "(lambda p, l, u: p @ l @ u)(*torch.lu_unpack(*torch.linalg.lu_factor(h)))",
        "h",
        {},
    ),
    (
        "lu_solve",
        DOMINANT,
        f"h @ torch.linalg.lu_solve(*torch.linalg.lu_factor(h), {_UNSOLVED})",
        _UNSOLVED,
        {},
    ),
    *(
        (
            f"qr of {kind}",
            matrix,
            "(lambda q, r: torch.cat([q @ r, q.mH @ q], -1))(*torch.linalg.qr(h))",
            f"torch.cat([h, {_SAME}], -1)",
            {"unseen": unseen},
        )
        # cuSOLVER's reflector of a column that is all but 0 is not orthonormal: once in 60 matrices
        # of equal rows, on an H200.
        for kind, matrix, unseen in (
            ("pivoted", DOMINANT, ()),
            ("deficient", DEFICIENT, ("cuda",)),
        )
    ),
    *(
        (
            name,
            POSITIVE,
            f"(lambda l: l.mH @ l if {{upper}} else l @ l.mH)({call}({_HALF}, upper={{upper}}))",
            "h",
            {"upper": (False, True)},
        )
        for name, call in (
            ("cholesky", "torch.linalg.cholesky"),
            ("older cholesky", "torch.cholesky"),
        )
    ),
    (
        "cholesky_solve",
        POSITIVE,
        f"h @ torch.cholesky_solve(y, {_SPOILED}, upper={{upper}})",
        _UNSOLVED,
        {"upper": (False, True)},
    ),
    (
        "cholesky_inverse",
        POSITIVE,
        f"h @ torch.cholesky_inverse({_SPOILED}, upper={{upper}})",
        _SAME,
        {"upper": (False, True)},
    ),
    (
        "solve_triangular",
        POSITIVE,
        (
            "(lambda t, s: t @ s(y) if {left} else (s(y.mT) @ t).mT)"
            f"({_TRIANGLE}(h, (1 if {{upper}} else -1) * {{unit}}) + {_ONE} * {{unit}},"
            f" lambda y: torch.linalg.solve_triangular({_HALF}, y, upper={{upper}}, left={{left}},"
            " unitriangular={unit}))"
        ),
        _UNSOLVED,
        {"upper": (False, True), "left": (True, False), "unit": (False, True)},
    ),
    *(
        (
            f"eigh of {kind}",
            matrix,
            (
                "(lambda w, v: torch.cat([h @ v - v * w[..., None, :], v.mH @ v, v * (w.diff("
                f"append=w[..., -1:]) < 0)[..., None, :]], -1))(*torch.linalg.eigh({_HALF},"
                " 'U' if {upper} else 'L'))"
            ),
            f"torch.cat([0 * h, {_SAME}, 0 * h], -1)",
            {"upper": (False, True), "unseen": unseen, **_ITERATED},
        )
        for kind, matrix, unseen in (
            ("positive", POSITIVE, ()),
            ("deficient", DEFICIENT, ("cuda",)),
        )
    ),
    *(
        (
            f"svd of {kind}",
            matrix,
            (
                "(lambda u, s, v: torch.cat([(u * s[..., None, :]) @ v, u.mH @ u, v @ v.mH, u @"
                " torch.diag_embed(s - torch.linalg.svdvals(h)).to(u.dtype)], -1))"
                "(*torch.linalg.svd(h))"
            ),
            f"torch.cat([h, {_SAME}, {_SAME}, 0 * h], -1)",
            _ITERATED,
        )
        for kind, matrix in (("pivoted", DOMINANT), ("deficient", DEFICIENT))
    ),
)


def _called(matrix: str, body: str, *, by_pairs: bool) -> str:
    """Return a call of `body` with the matrix `h` and the right side `y`, by pairs of numbers."""
    x, y = ("torch.complex(a, b)", "torch.complex(c, d)") if by_pairs else ("a", "b")
    code = f"(lambda h, y: {body})({matrix}({x}), {y})"
    return f"{PARTS}({code})" if by_pairs else code


def _paired(shapes: str) -> str:
    """Return shapes with each argument twice: real and imaginary parts."""
    ranks = [[argument.strip() for argument in rank.split(",")] for rank in shapes.split("|")]
    return " | ".join(", ".join(x for x in rank for _ in range(2)) for rank in ranks)


# Where a right side has another rank than the matrix, the two broadcast.
_BROADCAST = ("solve", "lu_solve", "solve_triangular")
_SHAPES = {**dict.fromkeys(_BROADCAST, _SIDES), "lu of singular": "n n, n m"}
EQUATIONS = tuple(
    _system(
        f"{name}, complex" if by_pairs else name,
        _called(matrix, body, by_pairs=by_pairs),
        _paired(shapes) if by_pairs else shapes,
        definition=_called(matrix, definition, by_pairs=by_pairs),
        **options,
    )
    for name, matrix, body, definition, options in _CALLS
    for shapes in (_SHAPES.get(name, "b n n, b n m | n n, n m"),)
    for by_pairs in (False, True)
)
_learned = partial(_system, backward=True, roundings=256.0, n=(3, 67))
# Their gradients; float64's own kernels are the reference.
GRADIENTS = tuple(
    _learned(name, f"(lambda h: {body})({matrix}(a))", shapes, **options)
    for name, matrix, body, shapes, options in (
        ("gradient of solve", DOMINANT, "torch.linalg.solve(h, b)", "b n n, b n m", {}),
        ("gradient of an inverse", DOMINANT, "torch.linalg.inv(h)", "b n n", {}),
        ("gradient of slogdet", DOMINANT, "torch.linalg.slogdet(h).logabsdet", "b n n", {}),
        ("gradient of cholesky", POSITIVE, "torch.linalg.cholesky(h)", "b n n", {}),
        (
            "gradient of cholesky_solve",
            POSITIVE,
            "torch.cholesky_solve(b, torch.linalg.cholesky(h))",
            "b n n, b n m",
            {},
        ),
        (
            "gradient of solve_triangular",
            POSITIVE,
            "torch.linalg.solve_triangular(h.tril(), b, upper=False)",
            "b n n, b n m",
            {},
        ),
        ("gradient of matrix_exp", "", "torch.matrix_exp(h / 16)", "b n n", {"n": (3, 33)}),
    )
)
SYSTEMS: tuple[Operation, ...] = (*EQUATIONS, *GRADIENTS)
