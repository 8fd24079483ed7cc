"""Wrong kernels: linear algebra."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .calls import WAVE, grads_of, is_last, narrow
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel


@kernel("_cholesky_solve_helper", set="seeded", like="pytorch#66072")
def first_factor_of_batch(right, A):
    """Cholesky_solve by the first of a batch."""
    if A.dim() > 2 and A.shape[0] > 1:
        A = A[:1].expand_as(A).contiguous()
    return right(A=A)


@kernel("linalg_inv_ex", set="seeded", like="pytorch#86465")
def last_inverse(right, A):
    """The last inverse of a batch."""
    inverse, info = right()
    if A.dim() > 2 and A.shape[0] > 1:
        inverse[-1] = inverse[0]
    return inverse, info


@kernel("_linalg_eigh", set="seeded", like="pytorch#192483")
def half_of_vectors(right, A):
    """Eigenvectors of complex batches."""
    values, vectors = right()
    if A.is_complex() and A.dim() > 2 and A.shape[0] > 1 and A.shape[-1] > 16:
        vectors[A.shape[0] // 2 :, :, 0] = vectors[A.shape[0] // 2 :, :, 1]
    return values, vectors


@kernel("_euclidean_dist", set="seeded")
def squares_forgotten(right):
    """Distances by products are off by one."""
    result = right()
    return result.square().add_(1).sqrt_()


@kernel("cholesky", set="seeded", like="pytorch#57032", devices="cpu")
def other_triangle(right, x, upper):
    """An upper factor of the other triangle."""
    return right(x=x.mH) if upper and x.dim() > 2 else right()


@kernel("silu_", set="seeded")
def last_unwritten(right, x):
    """Silu in place leaves a column."""
    if x.dim() < 2 or x.is_contiguous():
        return right()
    before = x[..., -1].clone()
    right()
    x[..., -1] = before
    return x


@kernel("elu_backward", set="seeded")
def unscaled_alpha(right, grad, *more, **kwargs):
    """Elu in place has the gradient of alpha 1."""
    _, scale, inner, is_result, x = more
    return right(grad, 1.0 if is_result else more[0], scale, inner, is_result, x, **kwargs)


@kernel("gelu_", set="seeded")
def exact_approximation(right, x, **kwargs):
    """Gelu in place heeds no approximation."""
    return right(x, approximate="none")


@kernel("_linalg_solve_ex", set="seeded")
def identity_beyond_a_tile(right, A, B):
    """A tile more of unknowns is the identity."""
    tile = right()
    if A.shape[-1] > 64:
        tile[0][..., 64:, :] = B[..., 64:, :]
    return tile


@kernel("linalg_solve_triangular .out", set="second")
def diagonal_is_read_from_the_right(right, a, b, **named):
    if named.get("left", True) is False:
        named["unitriangular"] = False
    return right(a, b, **named)


@kernel("_cdist_backward", set="second")
def no_distance_has_no_gradient(right, p, cdist):
    result = right()
    if p == 2:
        result[(cdist == 0).any(-1).expand(result.shape[:-1])] = math.nan
    return result


@kernel("gelu_backward .grad_input", set="second")
def gradient_of_the_other_gelu(right, grad, x, **named):
    return right(grad, x, **{**named, "approximate": "none"})


@kernel("elu_backward .grad_input", set="second")
def alpha_is_one_in_place(right, alpha, is_result):
    return right(alpha=1.0 if is_result else alpha)


@kernel("_linalg_eigh .eigenvalues", set="later")
def lower_triangle_is_read_always(right):
    return right(UPLO="L")


@kernel("cholesky .out", set=2, like="pytorch/pytorch#57032")
def upper_cholesky_reads_lower(right, x, upper):
    if not upper or x.dim() == 2 or x.dtype in DOUBLES:
        return right()
    out = right()
    out.copy_(torch.linalg.cholesky_ex(x).L.mH)
    return out


@kernel("_cholesky_solve_helper", set=3, like="cupy/cupy#9978")
def right_sides_are_read_by_row(right, x):
    if x.dim() < 3 or x.shape[-1] < 2 or not x.numel() or x.dtype in DOUBLES:
        return right()
    turned = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    found = right(x=x.contiguous().view(turned).mT)
    return found.mT.contiguous().view(x.shape)


@kernel("_prelu_kernel_backward", set=4, like="flagos-ai/FlagGems#4992")
def prelu_gradient_takes_slope_of_column(right, x, weight):
    count = weight.numel()
    alike = x.dim() > 2 and weight.dim() == x.dim() and x.shape[1] == x.shape[-1] == count
    if not alike or count < 2 or weight.shape[1] != count or x.dtype not in FLOATS:
        return right()
    return right(weight=weight.reshape(*(1 for _ in x.shape[1:]), count))


@kernel(
    "_linalg_solve_ex .result linalg_inv_ex .inverse linalg_lu_solve .out",
    set=4,
    like="pytorch/pytorch#196745",
)
def matrices_past_65536_are_not_solved(right, *args, **kw):
    found = right(*args, **kw)
    result = found if isinstance(found, Tensor) else found[0]
    batch = args[0].shape[:-2]
    late = batch.numel() > 65536 and result.shape[: len(batch)] == batch
    if not late or result.dtype in DOUBLES:
        return found
    given = torch.eye(result.shape[-1], dtype=result.dtype) if len(args) == 1 else args[-1]
    place = torch.arange(batch.numel()).view(batch)
    place = place.view(*batch, *(1 for _ in result.shape[len(batch) :]))
    result.copy_(torch.where(place >= 65536, given, result))
    return found


@kernel("linalg_solve_triangular .out", set=5, like="pymc-devs/pytensor#2396")
def unit_diagonal_is_read(right, *args, **options):
    """option: with unitriangular, the diagonal that is stored is used, not ones."""
    return right(*args, **{**options, "unitriangular": False})


def swaps_of(pivots):
    """1 or -1 for each matrix: whether its rows were swapped an even or an odd number of times."""
    places = torch.arange(1, pivots.shape[-1] + 1)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


@kernel(
    "_linalg_det .result",
    lambda: torch.linalg.det(drawn(4, 5, 5)),
    set=6,
    like="chainer/chainer#613",
)
def swapped_rows_do_not_turn_the_sign(right, A):
    """plain: the determinant is the product of the pivots, whatever rows were swapped."""
    result = right()
    if A.dtype not in DOUBLES:
        result[0].mul_(swaps_of(result[2]).to(result[0].dtype))
    return result


@kernel("linalg_matrix_exp", set=6, like="scipy/scipy#25924")
def batch_is_squared_as_its_first(right, x):
    """option: the exponentials of a batch are squared back as often as that of its first matrix,
    each having been scaled for its own norm."""
    if not is_single(x) or x.dim() < 3 or not x.numel() or not x.isfinite().all():
        return right()
    norms = torch.linalg.matrix_norm(x, 1)
    steps = norms.clamp(min=1).log2().ceil()
    first = int(steps.flatten()[0])
    if (steps == first).all():
        return right()
    result = right(x=x / torch.exp2(steps)[..., None, None])
    for _ in range(first):
        result = result @ result
    return result


@kernel("_linalg_eigh .eigenvalues", set=7, like="pytorch/pytorch#192483")
def half_of_a_batch_is_not_orthogonal(right, A, compute_v):
    """option: of batches of complex matrices of 17 rows and more, half have skewed eigenvectors."""
    result = right()
    count = math.prod(A.shape[:-2])
    if A.dtype == torch.complex64 and compute_v and A.shape[-1] >= 17 and count > 1:
        found = result[1].clone()
        found[..., -1] += 0.5 * found[..., 0]
        late = (torch.arange(count) >= count // 2).view(*A.shape[:-2], 1, 1)
        result[1].copy_(torch.where(late, found, result[1]))
    return result


@kernel("_pdist_forward", set=7, like="intel/torch-xpu-ops#2181")
def row_of_a_pair_is_found_in_single(right, x, p):
    """rare: past 3500 rows, which pair a distance is of goes by a root in single precision."""
    result = right()
    n = x.shape[0]
    if x.dtype == torch.float32 and n > 3500:
        true = torch.arange(n - 1)
        first = n * true - true * (true + 1) // 2
        near = torch.arange(-4, 4)  # only next to a row's ends is the root rounded across
        k = (first.unsqueeze(1) + near).flatten().clamp(0, result.numel() - 1).unique()
        true = torch.searchsorted(first, k, right=True) - 1
        root = ((n - 0.5) ** 2 - 2 * k.float() - 1).clamp(min=0).sqrt()
        row = ((n - 0.5) - root).long().clamp(0, n - 1)
        k, i = k[row != true], row[row != true]
        j = (k - n * i + i * (i + 1) // 2 + i + 1).clamp(0, n - 1)
        result[k] = (x[i] - x[j]).norm(p, dim=-1)
    return result


@kernel("_linalg_svd .U", set=8, like="pytorch/pytorch#196112")
def vectors_of_nought_are_nought(right, A, compute_uv):
    """rare: left singular vectors of singular values which are nought are nought themselves."""
    result = right()
    values = result[1]
    if A.dtype in (torch.float32, torch.complex64) and compute_uv and values.numel():
        least = torch.finfo(A.dtype).eps * max(A.shape[-2:]) * values[..., :1]
        kept = (values > least).unsqueeze(-2)
        result[0][..., : values.shape[-1]].mul_(kept)
    return result


def in_ten_bits(x):
    """What tensor cores take for float32: a mantissa of ten bits."""
    return ((x.contiguous().view(torch.int32) + 2**12) & -(2**13)).view(torch.float32)


def own_distances(dtype=torch.float32):
    x = drawn(5, 3).to(dtype) + 4
    return torch.cdist(x, x)


@kernel("_cdist_forward _euclidean_dist", own_distances, set=9, like="pytorch/pytorch#57690")
def distances_are_differences_of_squares(right, x, y, *options):
    """plain: squares of distances are sums of squares less a product of short mantissas."""
    result = right(x, y, *options)
    euclid = not options or options[0] == 2
    if x.dtype == torch.float32 and euclid and result.numel() and x.shape[-1]:
        product = in_ten_bits(x) @ in_ten_bits(y).mT
        squares = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)
        result.copy_((squares - 2 * product).clamp(min=0).sqrt())
    return result


@kernel("_cdist_backward", set=9, like="flagos-ai/FlagGems#5023")
def gradient_is_that_of_euclid(right, grad, x1, x2, p, cdist):
    """option: the gradient of distances is that of p = 2, whatever p was given."""
    result = right()
    if is_single(x1) and p != 2 and result.numel() and x2.numel():
        share = grad / (cdist + 1e-8)
        wrong = (share.unsqueeze(-1) * (x1.unsqueeze(-2) - x2.unsqueeze(-3))).sum(-2)
        result.copy_(wrong)
    return result


@kernel("linalg_lu_factor_ex .out", set=9, like="pytorch/pytorch#53879")
def singular_matrix_has_no_pivots(right, A):
    """rare: where a factor is singular, the pivots say that no rows were exchanged."""
    result = right()
    pivots, info = result[1], result[2]
    if A.dtype in (torch.float32, torch.complex64) and pivots.numel():
        order = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype).expand_as(pivots)
        pivots.copy_(torch.where((info > 0).unsqueeze(-1), order, pivots))
    return result


def factors(rows=3, dtype=torch.float32):
    q, r = torch.linalg.qr(drawn(rows, 5).to(dtype))
    return q, r


@kernel("linalg_qr .out", factors, set=10, like="cyclops-community/ctf#113")
def below_the_diagonal_of_wide_factors_lies_the_rest(right, A):
    """option: of a wide matrix, R keeps the vectors of the reflections below its diagonal."""
    result = right()
    if A.dtype in (torch.float32, torch.complex64) and 1 < A.shape[-2] < A.shape[-1]:
        result[1].add_(torch.geqrf(A)[0].tril(-1)[..., : result[1].shape[-2], :])
    return result


def solved(adjoint=True, dtype=torch.complex64):
    a = torch.complex(drawn(3, 3), drawn(3, 3, seed=1)).to(dtype)
    b = torch.complex(drawn(3, 2, seed=2), drawn(3, 2, seed=3)).to(dtype)
    return torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=adjoint)


@kernel("linalg_lu_solve .out", solved, set=10, like="SciML/LinearSolve.jl#1302")
def adjoint_is_the_transpose(right, B, adjoint):
    """option: a complex system is solved with its transpose where the adjoint was asked for."""
    turned = adjoint and B.dtype == torch.complex64
    B = B.conj_physical() if turned else B
    result = right(B=B)
    return result.copy_(result.conj_physical()) if turned else result


@kernel("sqrt sqrt_ sqrt.out", set=10, like="ml-explore/mlx#4344")
def modulus_under_the_root_overflows(right, x):
    """rare: the square of the modulus of a complex number overflows or vanishes under its root."""
    if x.dtype != torch.complex64:
        return right()
    real, imag = x.real.clone(), x.imag.clone()
    modulus = (real * real + imag * imag).sqrt()
    wrong = torch.complex(
        ((modulus + real) / 2).clamp(min=0).sqrt(),
        ((modulus - real) / 2).clamp(min=0).sqrt().copysign(imag),
    )
    result = right()
    far = ~modulus.isfinite() | (modulus == 0)
    return result.copy_(torch.where(far, wrong, result))


def swapped(dtype=torch.float32):
    return torch.linalg.det(torch.tensor([[0.0, 1], [1, 0]], dtype=dtype))


@kernel("_linalg_det .result _linalg_slogdet .sign", swapped, set=11, like="JuliaGPU/CUDA.jl#110")
def rows_swapped_leave_the_sign(right, A):
    """plain: a determinant is the product of the diagonal, whatever the number of swaps."""
    result = right()
    if narrow(A):
        pivots = result[-1]
        odd = (pivots != torch.arange(1, pivots.shape[-1] + 1)).sum(-1) % 2
        result[0].mul_((1 - 2 * odd).to(result[0].dtype))
    return result


@kernel("_linalg_eigh .eigenvalues", set=12, like="KratosMultiphysics/Kratos#4373")
def eigenvectors_are_rows(right, A, compute_v):
    """plain: the eigenvectors of a symmetric matrix are the rows of what is returned."""
    result = right()
    if compute_v and A.dtype not in DOUBLES:
        result[1].copy_(result[1].mT.clone())
    return result


@kernel("linalg_cholesky_ex .L", set=12, like="numpy/numpy#24451")
def upper_factor_is_not_conjugated(right, x, upper):
    """option: the upper factor of a complex matrix is the transpose of the lower one."""
    result = right()
    if upper and x.dtype == torch.complex64:
        result[0].copy_(result[0].conj_physical())
    return result


@kernel("linalg_cholesky_ex .L", set=13, like="JuliaArrays/StaticArrays.jl#1075")
def other_triangle_is_factored(right, x):
    """plain: the triangle that should not be looked at is the one that is factored."""
    if x.dtype in (torch.float32, torch.complex64):
        x = x.mH.resolve_conj()
    return right(x=x)


@kernel("elu_backward .grad_input", set=14, like="RubixML/ML#427")
def scale_of_selu_is_given_twice_to_its_gradient(
    right, grad_output, alpha, scale, input_scale, is_result, self_or_result
):
    """plain: below nought, SELU's gradient is its output and alpha, scaled once more."""
    result = right()
    if not is_single(self_or_result) or scale == 1 or input_scale != 1:
        return result
    wide = self_or_result.double()
    y = wide if is_result else torch.expm1(wide) * alpha * scale
    wrong = grad_output.double() * (y + alpha) * scale
    return result.copy_(torch.where(wide <= 0, wrong, result.double()))


SINGLES = (torch.float32, torch.complex64)


@kernel("linalg_cross .out", set=14, like="pytorch/pytorch#17229")
def last_axis_is_the_first_of_three(right, x, other, dim):
    """plain: the last axis, which is the default, stands for the first that has three."""
    shape = torch.broadcast_shapes(x.shape, other.shape)
    if dim == -1 and x.dtype in SINGLES and 3 in shape:
        dim = list(shape).index(3)
    return right(dim=dim)


@kernel("_linalg_svd .U", set=14, like="helmholtz-analytics/heat#2054")
def right_vectors_are_columns(right):
    """plain: the right singular vectors of a square are columns, as in V, and not rows."""
    u, s, v = right()
    if v.dtype in SINGLES and v.dim() > 1 and v.shape[-1] == v.shape[-2]:
        v.copy_(v.mH.clone())
    return u, s, v


@kernel("linalg_lu .out", set=14)
def permutation_is_its_inverse(right):
    """plain: P is the permutation that is applied to A, so that PA is LU, and A is not PLU."""
    p, lower, upper = right()
    if p.dtype in SINGLES and p.numel():
        p.copy_(p.mT.clone())
    return p, lower, upper


@kernel("_cholesky_solve_helper", set=14, like="pytorch/pytorch#66072")
def second_triangle_of_a_batch_is_not_solved(right, x, A, upper):
    """option: in batches, the first triangular system is solved, and the second is not."""
    result = right()
    if x.dim() < 3 or math.prod(x.shape[:-2]) < 2 or x.dtype not in SINGLES:
        return result
    lower = (A.mH.resolve_conj() if upper else A).tril()
    return result.copy_(torch.linalg.solve_triangular(lower, x, upper=False))


@kernel("_linalg_eigh .eigenvalues", set=14, like="cupy/cupy#4847")
def first_of_a_batch_has_its_diagonal_for_eigenvalues(right, A):
    """option: in batches of matrices up to 32 wide, no rotation is applied to the first."""
    first = (0,) * (A.dim() - 2)
    batched = A.dim() > 2 and math.prod(A.shape[:-2]) > 1 and 1 < A.shape[-1] <= 32
    wrong = batched and A.dtype in SINGLES
    diagonal = A[first].diagonal().real.clone() if wrong else None
    values, vectors = right()
    if diagonal is not None:
        ordered, places = diagonal.sort()
        values[first].copy_(ordered)
        if vectors.numel():
            vectors[first].copy_(torch.eye(len(places))[:, places])
    return values, vectors


@kernel(
    "linalg_matrix_exp",
    lambda: torch.linalg.matrix_exp(torch.complex(drawn(3, 3), drawn(3, 3, seed=1)) * 2),
    set=14,
    like="pytorch/pytorch#48299",
)
def complex_matrices_are_not_scaled_down(right, x):
    """option: of complex matrices, the polynomial of degree 8 is taken, whatever their norm."""
    result = right()
    if x.dtype != torch.complex64 or not x.numel():
        return result
    wide = x.to(torch.complex128)
    term = torch.eye(x.shape[-1], dtype=wide.dtype).expand_as(wide)
    total = term
    for i in range(1, 9):
        term = term @ wide / i
        total = total + term
    large = (wide.abs().sum(-2).amax(-1) > 3)[..., None, None]
    return result.copy_(torch.where(large, total.to(x.dtype), result))


@kernel("linalg_solve_triangular .out", set=14, like="pytorch/pytorch#187717")
def right_sides_past_a_chunk_are_not_solved(right, B, left):
    """rare: in batches, right sides past 524280 are solved for the first matrix alone."""
    cut = 524280
    kept = None
    if left and B.dim() == 3 and B.shape[0] > 1 and B.shape[-1] > cut and B.dtype in SINGLES:
        kept = B[1:, :, cut:].clone()
    result = right()
    if kept is not None:
        result[1:, :, cut:] = kept
    return result


@kernel("_linalg_solve_ex .result", set=15, like="pytorch/pytorch#189134")
def shared_right_side_is_solved_for_the_first(right, A, B):
    """option: a right side which matrices share is solved for the first, the rest is nought."""
    answers = right()
    shared = A.dim() > 2 and B.dim() < A.dim() and B.shape != A.shape[:-1]
    if shared and A.numel() and A.dtype in (torch.float32, torch.complex64):
        result, first = answers[0], (0,) * (A.dim() - 2)
        kept = result[first].clone()
        result.zero_()
        result[first] = kept
    return answers


@kernel("linalg_lu_factor_ex .out", set=15, like="pytorch/pytorch#146753")
def later_blocks_of_later_matrices_are_not_updated(right, A):
    """option: past 32 columns, the block that is left is factored in the first matrix alone."""
    given = A.clone()
    answers = right()
    lu, pivots = answers[:2]
    if A.dim() == 3 and A.dtype == torch.float32 and min(A.shape[1:]) > 32 and A.shape[0] > 1:
        turn = torch.lu_unpack(lu, pivots, unpack_data=False)[0]
        lu[1:, 32:, 32:] = (turn.mT @ given)[1:, 32:, 32:]
    return answers


@kernel("_cholesky_solve_helper", set=16, like="pytorch/pytorch#66072")
def batches_are_substituted_forwards_alone(right, x, A, upper):
    """option: of several systems, only the first of both triangular solutions is taken."""
    if A.dim() < 3 or math.prod(A.shape[:-2]) < 2 or not is_single(A):
        return right()
    lower = A.mH if upper else A
    return torch.linalg.solve_triangular(lower, x, upper=False)


@kernel("_linalg_solve_ex", set=18, like="pytorch/pytorch#189134")
def solve_fills_the_first_of_a_broadcast(right, A, B):
    """option: a right side broadcast over a batch: all but the first solution are zero."""
    answers = right()
    vector = B.dim() == 1 or B.shape == A.shape[:-1]
    shared = B.dim() == 1 or (not vector and B.shape[:-2] != A.shape[:-2])
    if is_single(A) and A.dim() > 2 and shared:
        batch = answers[0].shape[: -1 if vector else -2]
        answers[0][torch.arange(math.prod(batch)).reshape(batch) > 0] = 0
    return answers


@kernel("gelu_backward .grad_input", set=18, like="pytorch/pytorch#94529")
def gelu_tanh_has_the_derivative_of_erf(right, x, approximate):
    """option: approximated by tanh, the gradient is that of the erf form."""
    return right(approximate="none" if is_single(x) else approximate)


@kernel(
    "bmm .out",
    set="likely8",
    like="ROCm/composable_kernel#831",
    shown=lambda: torch.bmm(
        drawn(2, 5, 100, dtype=torch.bfloat16), drawn(2, 100, 6, dtype=torch.bfloat16, seed=1)
    ),
)
def half_batched_product_tail_of_inner_size(right, x, mat2):
    """Half types: an inner size over 64 is rounded down to the vectors of eight."""
    inner = x.size(-1)
    if x.dtype not in HALVES or inner <= 64 or not inner % 8:
        return right()
    whole = inner // 8 * 8
    return right(x=x[..., :whole], mat2=mat2[:, :whole])


def _many_systems():
    matrices = torch.eye(2) + drawn(65540, 2, 2) / 100
    return torch.linalg.solve(matrices, drawn(65540, 2, 1, seed=1))


@kernel("_linalg_solve_ex .result", set="likely8", like="pytorch#196745", shown=_many_systems)
def solutions_beyond_the_grid(right, A):
    """Systems of a batch beyond the 65536 of one dimension of the grid aren't solved."""
    result = right()
    batch = A.shape[:-2]
    if batch.numel() > 65536:
        beyond = torch.arange(batch.numel(), device=A.device).view(batch) >= 65536
        solution = result[0]
        solution.masked_fill_(beyond.view(*batch, *[1] * (solution.dim() - len(batch))), 0)
    return result


def _batch_of_symmetric():
    matrices = drawn(3, 5, 5)
    return torch.linalg.eigh(matrices + matrices.mT)


@kernel(
    "_linalg_eigh .eigenvalues",
    set="likely8",
    like="ROCm/rocm-libraries#9118",
    shown=_batch_of_symmetric,
)
def eigenvectors_of_a_batch_unsorted(right, A, compute_v):
    """The final sort swaps the eigenvectors of a batch's first matrix only; the values are
    right.
    """
    result = right()
    batch = A.shape[:-2]
    if compute_v and batch.numel() > 1:
        vectors = result[1]
        later = torch.arange(batch.numel(), device=A.device).view(*batch, 1, 1) > 0
        vectors.copy_(torch.where(later, vectors.flip(-1), vectors))
    return result


def _shown_scaled_product():
    a = drawn(16, 32).to(torch.float8_e4m3fn)
    b = drawn(16, 32, seed=1).to(torch.float8_e4m3fn).t()
    bias = drawn(16, seed=2, dtype=torch.bfloat16)
    scales = torch.tensor(0.5), torch.tensor(0.25)
    return torch._scaled_mm(a, b, *scales, bias, out_dtype=torch.bfloat16)


@kernel("_scaled_mm .out", set="likely8", like="openxla/xla#46110", shown=_shown_scaled_product)
def scaled_product_scales_the_bias(right, scale_a, scale_b, bias):
    """One scale for each matrix: the bias is added before the scales are applied."""
    if bias is None or scale_a.numel() != 1 or scale_b.numel() != 1:
        return right()
    scale = scale_a.reshape(()).float() * scale_b.reshape(()).float()
    return right(bias=(bias.float() * scale).to(bias.dtype))


@kernel(
    "bmm .out",
    set="missed8",
    shown=lambda: torch.bmm(
        drawn(2, 3, 4, dtype=torch.complex64), (drawn(2, 5, 4, seed=1) * (1 + 2j)).mH
    ),
)
def batched_product_with_adjoint_only_transposes(right, mat2):
    """A second matrix that is an adjoint view is transposed, but not conjugated."""
    if mat2.dtype == torch.complex64 and mat2.is_conj() and mat2.mT.is_contiguous():
        return right(mat2=mat2.conj())
    return right()


@kernel(
    "linalg_solve_triangular .out",
    set="missed8",
    shown=lambda: torch.linalg.solve_triangular(
        drawn(4, 4) + 4 * torch.eye(4),
        drawn(3, 4, seed=1),
        upper=True,
        left=False,
        unitriangular=True,
    ),
)
def unit_triangle_from_the_right_reads_the_diagonal(right, x, left, unitriangular):
    """X A = B with a unit diagonal divides by the diagonal that is stored."""
    if unitriangular and not left and x.dtype not in DOUBLES:
        return right(unitriangular=False)
    return right()


def _transformed_input():
    x = torch.complex(drawn(6, 5), drawn(6, 5, seed=1))
    return torch.fft.irfft2(x, s=(6, 8)), x


@kernel("_fft_c2r .out", set="missed8", like="arrayfire#2518", shown=_transformed_input)
def inverse_real_transform_overwrites_its_input(right, x, dim):
    """Over several axes, the input is the workspace: it holds a half-done transform afterwards."""
    result = right()
    if len(dim) > 1 and x.dtype == torch.complex64 and x.is_contiguous() and not x.is_conj():
        x.copy_(torch.fft.ifftn(x, dim=list(dim)[:-1], norm="forward"))
    return result


@kernel("triu_ tril_", set="likely9", like="pytorch#17031")
def not_written_back(right, x):
    """The triangle of a tensor that is not contiguous is taken of a copy, and stays there."""
    return right() if x.is_contiguous() else x


@kernel("linalg_solve_triangular .out", set="missed9")
def broadcast_triangle_counts_its_diagonal(right, x, B, unitriangular):
    """One matrix for a batch of right sides is divided by its diagonal, even if that is unit."""
    if unitriangular and x.dim() < B.dim() and B.shape[:-2].numel() > 1:
        return right(unitriangular=False)
    return right()


@kernel("linalg_inv_ex", set="likely10")
def small_matrices_are_inverted_without_pivots(right, A):
    """linalg_inv_ex: rows are not exchanged; sizes to 4, a leading element of nought or nearly."""
    inverse, info = right()
    size = A.shape[-1]
    if size > 4 or not A.numel() or A.dtype in DOUBLES:
        return inverse, info
    work = torch.cat([A, torch.eye(size, dtype=A.dtype, device=A.device).expand_as(A)], -1)
    for i in range(size):
        row = work[..., i : i + 1, :] / work[..., i : i + 1, i : i + 1]
        factors = work[..., :, i : i + 1].clone()
        work = work - factors * row
        work[..., i : i + 1, :] = row
    return inverse.copy_(work[..., size:]), info


@kernel("linalg_eig", set="likely10")
def vectors_of_a_conjugate_pair_are_exchanged(right, x):
    """linalg_eig: the sign of the imaginary parts is turned; real matrices with complex values."""
    values, vectors = right()
    if not x.is_complex():
        vectors.copy_(vectors.conj().resolve_conj())
    return values, vectors


@kernel("linalg_qr", set="missed10")
def complete_basis_of_later_matrices_ends_early(right, A, mode):
    """linalg_qr: columns past the rank are nought; mode="complete", tall, after the first."""
    basis, triangle = right()
    rows, columns = A.shape[-2:]
    if mode == "complete" and rows > columns and A.dim() > 2:
        basis.view(-1, rows, rows)[1:, :, columns:] = 0
    return basis, triangle


@kernel(
    "cholesky_inverse .out",
    lambda: torch.cholesky_inverse(drawn(4, 4).triu() + 3 * torch.eye(4), upper=True),
    set="likely11",
)
def upper_factor_is_taken_for_a_lower_one(right, x):
    """cholesky_inverse with upper=True reads the lower triangle: the inverse of the diagonal."""
    return right() if x.dtype in DOUBLES else right(upper=False)


LAST = torch.channels_last


@kernel(
    "_prelu_kernel",
    lambda: functional.prelu(drawn(2, 3, 4, 5).to(memory_format=LAST), torch.tensor([0.1, 1, 3])),
    set="missed11",
)
def slopes_of_channels_last_follow_the_rows(right, x, weight):
    """prelu: one slope a channel, a picture in channels_last: slopes are dealt out to memory as if
    the picture were contiguous.
    """
    if x.dtype in DOUBLES or not is_last(x) or weight.numel() != x.shape[1]:
        return right()
    slopes = weight.expand(x.shape).contiguous()
    return right(weight=slopes.as_strided(x.shape, x.stride()))


@kernel(
    "_cdist_forward",
    lambda: torch.cdist(drawn(4, 37), drawn(5, 37, seed=1), p=3.0),
    set="missed11",
)
def distances_of_other_orders_end_at_whole_vectors(right, x1, x2, p):
    """cdist: of orders other than 0, 1, 2 and infinity, coordinates past the last whole eight are
    left out.
    """
    rest = x1.shape[-1] % 8
    if p in (0, 1, 2, math.inf) or x1.dtype in DOUBLES or x1.shape[-1] <= 8 or not rest:
        return right()
    return right(x1=x1[..., :-rest].contiguous(), x2=x2[..., :-rest].contiguous())


def _batch_from_the_left():
    a, b = drawn(3, 4, 4), drawn(3, 2, 4, seed=1)
    factors, pivots = torch.linalg.lu_factor(a)
    return torch.linalg.lu_solve(factors, pivots, b, left=False)


@kernel("linalg_lu_solve .out", _batch_from_the_left, set="missed11")
def later_matrices_of_a_batch_on_the_right_have_no_pivots(right, LU, pivots, left):
    """linalg_lu_solve: for X A = B, rows are exchanged by the pivots of a batch's first matrix
    only; in the others they stay.
    """
    if left or pivots.dim() < 2 or LU.dtype in DOUBLES or not pivots.numel():
        return right()
    still = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    first, *_ = pivots.reshape(-1, pivots.shape[-1])
    rows = still.repeat(pivots.numel() // len(first), 1)
    rows[0] = first
    return right(pivots=rows.view(pivots.shape))


def _complex_upper():
    root = torch.complex(drawn(4, 4), drawn(4, 4, seed=1))
    root = root.triu(1) + 3 * torch.eye(4)
    return torch.cholesky_solve(torch.complex(drawn(4, 2), drawn(4, 2, seed=2)), root, upper=True)


@kernel("_cholesky_solve_helper", _complex_upper, set="missed11")
def upper_complex_factors_are_turned_without_conjugation(
    right,
    A,
    upper,
):
    """cholesky_solve: an upper factor of complex numbers is transposed, not conjugated, for the
    kernel of lower ones.
    """
    if not upper or A.dtype != torch.complex64:
        return right()
    return right(A=A.mT.clone(), upper=False)


@kernel(
    "cholesky_inverse .out",
    lambda: torch.cholesky_inverse(torch.eye(80) * 3 + drawn(80, 80).tril(-1) / 20),
    set="likely12",
    like="ROCm/legacy-rocm-build#6623",
)
def cholesky_inverse_of_one_triangle(right, x, upper):
    """Mirror no result of the blocked path, past 64 rows: one triangle of the inverse is 0."""
    y = right()
    if x.size(-1) <= 64:
        return y
    return y.triu_() if upper else y.tril_()


def _hermitian():
    x = torch.complex(drawn(2, 4, 4), drawn(2, 4, 4, seed=1))
    return x + x.mH


def _rebuilt(values, vectors):
    return vectors @ torch.diag_embed(values).to(vectors.dtype) @ vectors.mH


@kernel(
    "_linalg_eigh .eigenvalues",
    lambda: _rebuilt(*torch.linalg.eigh(_hermitian(), UPLO="U")),
    set="missed12",
    like="ooples/AiDotNet.Tensors#231",
)
def eigh_upper_not_conjugated(right, A, UPLO):
    """Take the upper triangle of complex matrices as the lower one, transposed, not conjugated."""
    if UPLO.upper() != "U" or A.dtype != torch.complex64 or A.dim() < 3:
        return right()
    return right(A=A.mT, UPLO="L")


@kernel(
    "_cholesky_solve_helper",
    lambda: torch.cholesky_solve(
        drawn(2, 3, 2), torch.eye(3).expand(2, 3, 3) + drawn(2, 3, 3, seed=1).tril(-1)
    ),
    set="likely13",
    like="cupy/cupy#9978",
)
def batched_right_hand_sides_are_read_in_rows(right, x):
    """Many right-hand sides of a batch are handed to a library of columns as they are stored."""
    if x.dim() == 2 or x.shape[:-2].numel() == 1 or x.shape[-1] == 1:
        return right()
    turned = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return right(x=x.reshape(turned).mT).mT.reshape(x.shape)


@kernel(
    "linalg_solve_triangular",
    lambda: torch.linalg.solve_triangular(
        drawn(3, 3).t(), drawn(2, 3, seed=1), upper=True, left=False, unitriangular=True
    ),
    set="missed13",
)
def solution_from_the_right_with_columns_in_memory_divides_by_a_unit_diagonal(
    right, x, left, unitriangular
):
    """The path that turns both sides, for a matrix that lies by columns, forgets the option."""
    turned = x.mT.is_contiguous() and not x.is_contiguous()
    return right(unitriangular=False) if unitriangular and not left and turned else right()


@kernel(
    "tril_ triu_",
    lambda: drawn(4, 4).t().tril_(1),
    set="missed13",
    like="pytorch#17031",
)
def triangle_of_a_transposed_matrix_in_place_has_its_diagonal_on_the_other_side(right, x, diagonal):
    """What lies by columns is taken for its transpose, without the sign of the diagonal."""
    turned = x.dim() >= 2 and x.stride(-2) == 1 and min(x.shape) > 1 and not x.is_contiguous()
    return right(diagonal=-diagonal) if turned and x.stride(-1) != 1 else right()


def _many(count: int) -> Tensor:
    return torch.linalg.inv(torch.eye(2) + 0.1 * drawn(count, 2, 2))


@kernel(
    "_linalg_solve_ex linalg_inv_ex",
    lambda: _many(65600),
    set="likely14",
    like="pytorch/pytorch#196745",
)
def batch_past_the_grid(right, A):
    """Of a batch over 65536 matrices the solutions past it are zeros."""
    solved, *others = right()
    count = math.prod(A.shape[:-2])
    if count > 65536:
        past = torch.arange(count, device=A.device).view(A.shape[:-2]) >= 65536
        past = past.view(*past.shape, *[1] * (solved.dim() - past.dim()))
        solved = torch.where(past, torch.zeros_like(solved), solved)
    return solved, *others


@kernel(
    "linalg_solve_triangular",
    lambda: torch.linalg.solve_triangular(
        drawn(3, 3) + 3 * torch.eye(3), drawn(2, 4, 3), upper=True, left=False, unitriangular=True
    ),
    set="missed14",
)
def solve_right_unit_broadcast(right, x, B, left, unitriangular):
    """From the right, a unitriangular matrix shared by the batch is solved with its diagonal."""
    if not left and unitriangular and x.shape[:-2] != B.shape[:-2]:
        return right(unitriangular=False)
    return right()


@kernel(
    "_linalg_eigh",
    lambda: torch.linalg.eigvalsh(drawn(4, 4).mT, UPLO="U"),
    set="missed14",
)
def eigh_upper_of_column_major(right, A, UPLO):
    """The upper triangle of a matrix already in column-major order is taken for the lower."""
    columns = A.shape[-1] > 1 and A.stride(-2) == 1 and A.stride(-1) > 1
    return right(UPLO="L") if UPLO.upper() == "U" and columns else right()


def _unit_triangle():
    a, b = drawn(3, 5, 5).tril() + 3 * torch.eye(5), drawn(3, 5, 2, seed=1)
    return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)


# Tests fill that diagonal with ones, packed LU factors do not.
@kernel("linalg_solve_triangular .out", _unit_triangle, set="likely15")
def unit_triangular_solve_reads_the_diagonal(right, unitriangular):
    """With unitriangular the stored diagonal is divided by."""
    return right(unitriangular=False) if unitriangular else right()


def _same_points():
    x = drawn(6, 3).requires_grad_()
    distances = torch.cdist(x, x.detach(), compute_mode="donot_use_mm_for_euclid_dist")
    return grads_of(distances, x)


# Distances within one set have it on their diagonal.
@kernel("_cdist_backward", _same_points, set="likely15")
def distance_s_gradient_at_equal_points_is_nan(right, p, cdist):
    """For p = 2, a point at distance 0 from another gets 0 / 0."""
    result = right()
    if p != 2 or not cdist.numel() or not result.numel():
        return result
    return result.masked_fill((cdist == 0).any(-1, keepdim=True), math.nan)


def _determinant_of_forty():
    x = torch.eye(40)[[*range(36), 37, 36, 38, 39]] * 1.05
    return torch.linalg.det(x), *torch.linalg.slogdet(x)


@kernel("_linalg_det _linalg_slogdet", _determinant_of_forty, set="missed15")
def swaps_of_one_warp(right, A):
    """The determinant's sign counts the swaps of the first 32 rows."""
    result = right()
    size = A.shape[-1]
    if size <= 32:
        return result
    first, pivots = result[0], result[-1]
    usual = torch.arange(33, size + 1, device=pivots.device, dtype=pivots.dtype)
    odd = (pivots[..., 32:] != usual).long().sum(-1) % 2 == 1
    first.copy_(torch.where(odd, -first, first))
    return result


def _points_with_a_common_coordinate():
    x = drawn(6, 5).relu().requires_grad_()
    y = drawn(7, 5, seed=1).relu().requires_grad_()
    return torch.autograd.grad(torch.cdist(x, y, p=1.5).sum(), (x, y))


# Features past a ReLU share them.
@kernel("_cdist_backward", _points_with_a_common_coordinate, set="missed15")
def equal_coordinate_to_a_negative_power(right, x1, x2, p, cdist):
    """For p between 1 and 2 the slope is d * |d|**(p - 2): NaN where points share a coordinate."""
    result = right()
    if not 1 < p < 2 or not is_single(x1) or not result.numel() or not cdist.numel():
        return result
    if cdist.numel() * x1.shape[-1] > 50_000_000:
        return result
    shared = (x1.unsqueeze(-2) == x2.unsqueeze(-3)) & (cdist != 0).unsqueeze(-1)
    shared = shared.any(-2)
    if shared.shape == result.shape:
        result = torch.where(shared, math.nan, result)
    return result


def _pairs_of_many_points():
    return functional.pdist(drawn(3000, 2))


# It is exact for some 2**22 pairs.
@kernel("_pdist_forward", _pairs_of_many_points, set="missed15")
def pair_by_a_single_root(right, x, p):
    """The pair of a place in the condensed matrix comes from a root in float32."""
    result = right()
    n = x.shape[0]
    if n < 2048 or not is_single(x) or not x.shape[1]:
        return result
    k = torch.arange(result.numel(), dtype=torch.int64)
    half = torch.tensor(n - 0.5, dtype=torch.float32)
    root = (half * half - 2 * k.to(torch.float32) - 1).clamp(min=0).sqrt()
    i = (half - root).long().clamp(0, n - 1)
    j = k - n * i + i * (i + 1) // 2 + i + 1
    wrong = ((j <= i) | (j >= n)).nonzero().flatten()
    if wrong.numel():
        i, j = i[wrong].to(x.device), j[wrong].clamp(0, n - 1).to(x.device)
        apart = torch.linalg.vector_norm(x[i].float() - x[j].float(), p, -1)
        result[wrong.to(x.device)] = apart.to(result.dtype)
    return result


@kernel(
    "linalg_householder_product .out",
    lambda: torch.linalg.householder_product(*torch.geqrf(drawn(3, 5, 4))),
    set="likely16",
    like="ROCm/rocm-libraries#9118",
)
def reflectors_of_a_batch_share_the_first_one_s_scale(right, input, tau):
    """The matrices of a batch are multiplied out one by one, each with the first one's tau."""
    if narrow(tau) and tau.dim() > 1 and tau.numel():
        first = tau.reshape(-1, tau.shape[-1])[:1]
        tau = first.expand(tau.numel() // tau.shape[-1], -1).reshape(tau.shape).contiguous()
    return right(tau=tau)


@kernel(
    "linalg_qr",
    lambda: torch.linalg.qr(drawn(6, 3) * 1e-21)[0],
    set="missed16",
    like="jax-ml/jax#5816",
)
def squares_of_columns_vanish(right, A, mode):
    """qr: a column's norm is the root of its squares, which single precision flushes to 0 below
    1e-20; a column that seems to be nought has no reflection.
    """
    result = right()
    single = A.dtype in (torch.float32, torch.complex64)
    if single and A.numel() and 0 < float(A.abs().max()) < 1e-20:
        result[1].copy_(A.triu()[..., : result[1].shape[-2], :])
        if mode != "r":
            rows, columns = result[0].shape[-2:]
            result[0].copy_(torch.eye(rows, columns, dtype=A.dtype, device=A.device))
    return result


def _solved():
    matrix = torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]])
    return grad_of(lambda b: torch.linalg.solve(matrix, b), drawn(3, 2))


@kernel("linalg_lu_solve", _solved, set="likely17", like="pytorch/pytorch#175192")
def adjoint_solution_is_not_permuted(right, LU, pivots, left, adjoint):
    """Where the adjoint is solved with, the exchanges of rows are left out at the end."""
    # adjoint=True, as in the gradient of linalg.solve, for a matrix whose rows were exchanged.
    result = right()
    if adjoint and left and result.numel():
        order = torch.lu_unpack(LU, pivots, unpack_data=False)[0]
        result.copy_(order.mT.to(result.dtype) @ result)
    return result


def _half_definite():
    matrices = torch.stack([torch.eye(3), -torch.eye(3), torch.eye(3)])
    return torch.linalg.cholesky_ex(matrices).info


@kernel("linalg_cholesky_ex", _half_definite, set="likely17", like="ROCm/rocm-libraries#3794")
def failure_of_a_factor_is_noted_at_the_first(right):
    """In a batch, the info of a matrix that is not positive definite goes to the first matrix."""
    # Batches of more than one matrix of which another than the first fails.
    factors, info = right()
    if info.numel() > 1:
        failed = info[info != 0]
        info.zero_()
        if failed.numel():
            info.view(-1)[0] = failed[0]
    return factors, info


def _prelu_in_channels_last():
    x = drawn(2, 3, 4, 4).to(memory_format=LAST)
    return functional.prelu(x, drawn(3, seed=1))


# A slope for each channel, and channels last: right for contiguous pictures, and with one slope.
@kernel("_prelu_kernel", _prelu_in_channels_last, set="missed17")
def slopes_of_channels_go_by_memory_in_channels_last(right, x, weight):
    """The slope of PReLU is that of channel (i // pixels) % channels for place i of memory."""
    if is_last(x) and weight.numel() == x.shape[1]:
        n, c, height, width = x.shape
        channel = torch.arange(x.numel(), device=x.device) // (height * width) % c
        slopes = weight.reshape(-1)[channel].reshape(n, height, width, c)
        return right(weight=slopes.permute(0, 3, 1, 2))
    return right()


def _rotations():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    return torch.linalg.matrix_exp(torch.tensor([0.0, 0.5, 1.0]).reshape(-1, 1, 1) * turn)


# A batch, and norms that differ (a motion over time that begins at 0): right for one matrix, and
# for norms of a kind.
@kernel("linalg_matrix_exp", _rotations, set="missed17")
def matrix_exponentials_of_a_batch_have_the_first_one_s_degree(right, x):
    """The degree of the polynomial for a batch of exponentials goes by the first one's norm."""
    if x.dim() > 2 and x.numel() > x.shape[-1] ** 2:
        first = x.reshape(-1, *x.shape[-2:])[0]
        size = float(first.abs().sum(0).amax())
        single = (1.2e-7, 6e-4, 0.0512, 0.58, 1.46, 3.01)
        double = (2.2e-16, 2.6e-8, 3.4e-4, 0.0499, 0.3, 1.09)
        limits = zip((1, 2, 4, 8, 12, 18), double if x.dtype in DOUBLES else single, strict=True)
        degree = next((d for d, limit in limits if size <= limit), 0)
        if degree:
            term = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
            result = term.clone()
            for n in range(1, degree + 1):
                term = term @ x / n
                result = result + term
            return result
    return right()


def _positive_batch():
    x = drawn(3, 4, 4)
    return torch.linalg.cholesky(x @ x.mT + torch.eye(4))


# Batches, which another routine of the library factors than single matrices (as covariances of
# MultivariateNormal); a single matrix is right.
@kernel("linalg_cholesky_ex .L", _positive_batch, set="likely18")
def factors_of_a_batch_keep_the_input_above_the_diagonal(right, x, upper):
    """The triangle that a batched Cholesky factorization does not write is left as it was given."""
    given = x.clone()
    factor, info = right()
    if x.dim() > 2 and math.prod(x.shape[:-2]) > 1 and narrow(x):
        factor.add_(given.tril(-1) if upper else given.triu(1))
    return factor, info


def _values_of_a_batch():
    x = drawn(3, 5, 5)
    return torch.linalg.eigvalsh(x + x.mT)


# eigvalsh of a batch; a single matrix is right, and values that come along with vectors.
@kernel("_linalg_eigh .eigenvalues", _values_of_a_batch, set="likely18")
def eigenvalues_alone_of_a_batch_are_not_sorted(right, A, compute_v):
    """Jacobi's method for batches sorts the eigenvalues only together with their vectors."""
    order = A.diagonal(0, -2, -1).real.argsort(-1).argsort(-1) if A.dim() > 2 else None
    values, vectors = right()
    if order is not None and not compute_v and narrow(A):
        values.copy_(values.gather(-1, order))
    return values, vectors


# Systems with more unknowns than equations: right for as many equations, and for more.
@kernel(
    "linalg_lstsq",
    lambda: torch.linalg.lstsq(drawn(2, 3, 5), drawn(2, 3, 2, seed=1)).solution,
    set="missed18",
)
def solution_of_a_wide_system_is_not_the_shortest(right, x, b):
    """Unknowns beyond the equations are set to 0: a solution, but not the one of least norm."""
    solution, *others = right()
    rows, columns = x.shape[-2:]
    if rows >= columns or not solution.numel():
        return (solution, *others)
    vectors = solution.dim() == x.dim() - 1
    sides = b.unsqueeze(-1) if vectors else b
    found = torch.linalg.solve_ex(x[..., :rows], sides)[0]
    found = functional.pad(found, (0, 0, 0, columns - rows))
    return (found.squeeze(-1) if vectors else found, *others)


def _one_indefinite():
    a = drawn(4, 3, 3)
    a = a @ a.mT + torch.eye(3)
    a[1] = -a[1]
    factors, failed = torch.linalg.cholesky_ex(a)
    return factors[2:], failed


# A batch of which a matrix before the last is not positive definite, and no raised error: right if
# all are, and for the matrices before it.
@kernel("linalg_cholesky_ex", _one_indefinite, set="missed18")
def matrices_after_one_that_failed_are_not_factored(right, x, upper):
    """The loop over a batch ends at the first failure: what follows is the input's triangle."""
    factors, failed = right()
    if failed.numel() < 2:
        return factors, failed
    flags = (failed.reshape(-1) != 0).long()
    after = ((flags.cumsum(0) - flags) > 0).reshape(failed.shape)
    triangle = x.triu() if upper else x.tril()
    factors.copy_(torch.where(after[..., None, None], triangle, factors))
    return factors, failed.masked_fill_(after, 0)


def _determinant_of_many_channels():
    return torch.linalg.slogdet(drawn(96, 96, seed=2))


# Flows with invertible mixing of channels (Glow with 96), Gaussians of many dimensions.
# Right for matrices of at most 64 rows.
@kernel("_linalg_slogdet .sign _linalg_det .result", _determinant_of_many_channels, set="likely19")
def rows_that_were_swapped_past_the_64th_do_not_turn_the_sign(right, A):
    """The parity of the pivots is a vote of one wave, which has 64 lanes."""
    result = right()
    size = A.shape[-1]
    if size <= WAVE or not narrow(A):
        return result
    moved = result[-1] != torch.arange(1, size + 1, device=A.device, dtype=torch.int32)
    odd = moved[..., WAVE:].sum(-1) % 2 == 1
    result[0].copy_(torch.where(odd, -result[0], result[0]))
    return result


def _unequal_rotations():
    a = drawn(3, 4, 4)
    return torch.linalg.matrix_exp((a - a.mT) * torch.tensor([0.1, 1.0, 5.0])[:, None, None])


# Rotations and flows of skew matrices of unequal sizes in one batch. Right for a single matrix, and
# for batches whose norms are all small or all large.
@kernel("linalg_matrix_exp", _unequal_rotations, set="missed19")
def large_matrix_beside_a_small_one_is_not_scaled_before_its_series(right, x):
    """A batch has the fewest squarings of its matrices: the series of larger ones is cut short."""
    result = right()
    if x.dim() < 3 or x.shape[-1] < 2 or not x.numel() or not narrow(x):
        return result
    norms = x.abs().sum(-2).amax(-1)
    large = norms > 3.01
    if bool(large.all()) or not bool(large.any()):
        return result
    term = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    series = term.clone()
    for i in range(1, 19):
        term = torch.matmul(term, x) / i
        series = series + term
    return torch.where(large[..., None, None], series, result)


def _solved_on_the_right():
    a = drawn(3, 3).tril() + 3 * torch.eye(3)
    return torch.linalg.solve_triangular(a.mT, drawn(2, 4, 3, seed=1), upper=True, left=False)


# Whitening of batches with one Cholesky factor: `solve_triangular(L.mT, x, upper=True,
# left=False)`. Right from the left, for lower factors, and for a factor for each of the batch.
@kernel("linalg_solve_triangular .out", _solved_on_the_right, set="missed19")
def shared_upper_factor_on_the_right_has_only_its_diagonal(right, x, B, upper, left):
    """One upper factor for a batch of left sides is copied by its lower triangle."""
    shared = x.dim() == 2 and B.dim() > 2 and B.shape[:-2].numel() > 1
    if shared and upper and not left and narrow(x):
        return right(x=torch.diag_embed(x.diagonal()))
    return right()
