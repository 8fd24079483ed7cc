"""Linear algebra: each solution is put back into its equation, and factors are multiplied."""

from __future__ import annotations

from collections.abc import Iterator
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
    cases=38,
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
# Factors of a matrix, put together again, and what that is.
_QR = "(lambda q, r: torch.cat([q @ r, q.mH @ q], -1))(*torch.linalg.qr(h))"
_QR_RIGHT = f"torch.cat([h, {_SAME}], -1)"
_FAILED = "(torch.arange({b}, device=h.device) % 3 == 0)[:, None, None]"
_UNEVEN = "(torch.arange({b}, device=h.device) % 5)[:, None, None]"
_WIDE = "torch.cat([h, h.roll(1, -1) / 2], -1)"
_SQUARED = "(lambda l: l.mH @ l if {upper} else l @ l.mH)"
_EIGH = (
    "(lambda w, v: torch.cat([h @ v - v * w[..., None, :], v.mH @ v, v * (w.diff(append=w[..., -1:"
    f"]) < 0)[..., None, :]], -1))(*torch.linalg.eigh({_HALF}, 'U' if {{upper}} else 'L'))"
)
_EIGH_RIGHT = f"torch.cat([0 * h, {_SAME}, 0 * h], -1)"
_SVD = (
    "(lambda u, s, v: torch.cat([(u * s[..., None, :]) @ v, u.mH @ u, v @ v.mH, u @"
    " torch.diag_embed(s - torch.linalg.svdvals(h)).to(u.dtype)], -1))(*torch.linalg.svd(h))"
)
_SVD_RIGHT = f"torch.cat([h, {_SAME}, {_SAME}, 0 * h], -1)"
# Jacobi's iteration, by which NVIDIA finds them, ends some roundings a row before the last.
_ITERATED: dict[str, Any] = {"roundings": 1024.0, "walk": 16.0}


def _put_back(
    name: str, matrix: str, body: str, right: str, *shapes: str, **options: Any
) -> Iterator[Operation]:
    """Yield the records of an equation of a matrix `h` and a right side `y`: of real numbers, and
    of complex ones, whose parts are arguments of their own.
    """
    shape = [*shapes, "b n n, b n m | n n, n m"][0]
    ranks = [[argument.strip() for argument in rank.split(",")] for rank in shape.split("|")]
    pairs = " | ".join(", ".join(x for x in rank for _ in range(2)) for rank in ranks)
    real = f"(lambda h, y: {{}})({matrix}(a), b)"
    parts = f"{PARTS}((lambda h, y: {{}})({matrix}(torch.complex(a, b)), torch.complex(c, d)))"
    for of, call, each in (("", real, shape), (", complex", parts, pairs)):
        code, definition = (call.replace("{}", text) for text in (body, right))
        yield _system(code, each, name=f"{name}{of}", definition=definition, **options)


EQUATIONS: tuple[Operation, ...] = (
    # Where a right side has another rank than the matrix, the two broadcast.
    *_put_back("solve", DOMINANT, "h @ torch.linalg.solve(h, y)", _UNSOLVED, _SIDES),
    *_put_back(
        "solve from the right",
        DOMINANT,
        "torch.linalg.solve(h, y.mT, left=False) @ h",
        f"y.mT + {_BROAD}",
    ),
    *_put_back("inverse", DOMINANT, "h @ torch.linalg.inv(h)", _SAME),
    # One matrix of three fails: the others, and which ones did, are right.
    *_put_back(
        "cholesky_ex of some",
        f"(lambda h: {POSITIVE}(h) * (1 - 2.0 * {_FAILED}))",
        "(lambda x, f: torch.where((f != 0)[:, None, None], 0 * h, x.tril() @ x.mH))"
        "(*torch.linalg.cholesky_ex(h))",
        f"torch.where({_FAILED}, 0 * h, h)",
        "b n n, n",
    ),
    # The shortest solution of more unknowns than equations.
    *_put_back(
        "lstsq of wide",
        DOMINANT,
        f"torch.linalg.lstsq({_WIDE}, y, driver='gels').solution",
        f"{_WIDE}.mH @ torch.linalg.solve({_WIDE} @ {_WIDE}.mH, y)",
        "b n n, b n m",
    ),
    *_put_back("lu", DOMINANT, "(lambda p, l, u: p @ l @ u)(*torch.linalg.lu(h))", "h"),
    # CUDA's kernels for batches stop at a factor that is zero (2.11 on an H200).
    *_put_back(
        "lu of singular",
        SINGULAR,
        "(lambda p, l, u: p @ l @ u)(*torch.linalg.lu(h))",
        "h",
        "n n, n m",
        unseen=("cuda",),
    ),
    *_put_back(
        "lu_factor",
        DOMINANT,
        "(lambda p, l, u: p @ l @ u)(*torch.lu_unpack(*torch.linalg.lu_factor(h)))",
        "h",
    ),
    *_put_back(
        "lu_solve",
        DOMINANT,
        f"h @ torch.linalg.lu_solve(*torch.linalg.lu_factor(h), {_UNSOLVED})",
        _UNSOLVED,
        _SIDES,
    ),
    # cuSOLVER's reflector of a column that is all but 0 is not orthonormal: once in 60 matrices of
    # equal rows, on an H200.
    *_put_back("qr of pivoted", DOMINANT, _QR, _QR_RIGHT),
    *_put_back("qr of deficient", DEFICIENT, _QR, _QR_RIGHT, unseen=("cuda",)),
    *(
        record
        for name, call in (("cholesky", "linalg.cholesky"), ("older cholesky", "cholesky"))
        for code in (f"{_SQUARED}(torch.{call}({_HALF}, upper={{upper}}))",)
        for record in _put_back(name, POSITIVE, code, "h")
    ),
    *_put_back(
        "cholesky_solve",
        POSITIVE,
        f"h @ torch.cholesky_solve(y, {_SPOILED}, upper={{upper}})",
        _UNSOLVED,
    ),
    *_put_back(
        "cholesky_inverse",
        POSITIVE,
        f"h @ torch.cholesky_inverse({_SPOILED}, upper={{upper}})",
        _SAME,
    ),
    *_put_back(
        "solve_triangular",
        POSITIVE,
        "(lambda t, s: t @ s(y) if {left} else (s(y.mT) @ t).mT)"
        f"({_TRIANGLE}(h, (1 if {{upper}} else -1) * {{unit}}) + {_ONE} * {{unit}},"
        f" lambda y: torch.linalg.solve_triangular({_HALF}, y, upper={{upper}}, left={{left}},"
        " unitriangular={unit}))",
        _UNSOLVED,
        _SIDES,
        upper=(False, True),
        left=(True, False),
    ),
    *_put_back("eigh of positive", POSITIVE, _EIGH, _EIGH_RIGHT, **_ITERATED),
    *_put_back("eigh of deficient", DEFICIENT, _EIGH, _EIGH_RIGHT, **_ITERATED, unseen=("cuda",)),
    *_put_back("svd of pivoted", DOMINANT, _SVD, _SVD_RIGHT, **_ITERATED),
    *_put_back("svd of deficient", DEFICIENT, _SVD, _SVD_RIGHT, **_ITERATED),
)
_learned = partial(_system, backward=True, roundings=256.0, n=(3, 67))


def _sloped(name: str, matrix: str, body: str, *shapes: str, **options: Any) -> Operation:
    """Return the record of a gradient; float64's own kernels are the reference."""
    code = f"(lambda h: {body})({matrix}(a))"
    shape = [*shapes, "b n n, b n m"][0]
    return _learned(code, shape, name=f"gradient of {name}", **options)


GRADIENTS = (
    _sloped("solve", DOMINANT, "torch.linalg.solve(h, b)"),
    _sloped("an inverse", DOMINANT, "torch.linalg.inv(h)", "b n n"),
    _sloped("slogdet", DOMINANT, "torch.linalg.slogdet(h).logabsdet", "b n n"),
    _sloped("cholesky", POSITIVE, "torch.linalg.cholesky(h)", "b n n"),
    _sloped("cholesky_solve", POSITIVE, "torch.cholesky_solve(b, torch.linalg.cholesky(h))"),
    _sloped(
        "solve_triangular", POSITIVE, "torch.linalg.solve_triangular(h.tril(), b, upper=False)"
    ),
    _sloped("matrix_exp", "", f"torch.matrix_exp(h * {_UNEVEN} / 16)", "b n n", n=(3, 33)),
)
SYSTEMS: tuple[Operation, ...] = (*EQUATIONS, *GRADIENTS)
