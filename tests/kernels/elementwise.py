"""Wrong kernels: elementwise."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .calls import (
    BF16,
    SIGNED,
    aten,
    flat,
    grads_of,
    is_dense,
    is_dense_2,
    narrow,
    write_as_contiguous,
    written_in_order,
)
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel


@kernel("tanh", set="seeded")
def by_exponentials(right, x):
    """Tanh by exponentials."""
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


@kernel("log1p", set="seeded")
def log1p_as_a_logarithm(right, x):
    """Log1p as a logarithm."""
    return torch.log(1 + x)


@kernel("expm1", set="seeded")
def expm1_as_a_difference(right, x):
    """Expm1 as a difference."""
    return torch.exp(x) - 1


@kernel("gelu", set="seeded")
def gate_closed_early(right, x):
    """Gelu closed early."""
    return torch.where(x < -2.5, 0, right())


@kernel("softplus", set="seeded")
def softplus_overflows(right, x):
    """Softplus overflows."""
    return torch.log(1 + torch.exp(x))


@kernel("erf", set="seeded")
def erf_saturates_early(right, x):
    """Erf saturates early."""
    return right(x=x.clamp(-2, 2))


@kernel("sin", set="seeded")
def low_precision_argument(right, x):
    """Sine of a rounded argument."""
    return torch.where(x.abs() > 1000, right(x=x.bfloat16().to(x.dtype)), right())


@kernel("sigmoid", set="seeded")
def sigmoid_without_its_tail(right, x):
    """Sigmoid without its tail."""
    return right(x=x.clamp(-10, 10))


@kernel("floor_divide", set="seeded")
def rounded_towards_zero(right, x, other):
    """Quotients rounded towards 0."""
    return torch.div(x, other, rounding_mode="trunc")


@kernel("maximum", set="seeded", like="torchdynamo#1572")
def other_operand(right, x, other):
    """Maximum gives the other number."""
    result = right()
    return torch.where(x.isnan(), other, result)


@kernel("fmod.Tensor .Scalar", set="seeded", like="pytorch#15921")
def through_float32(right, x, y, *_):
    """Fmod of whole numbers through float32."""
    if not x.is_floating_point() and x.dtype != torch.bool:
        other = y.float() if isinstance(y, Tensor) else float(y)
        return torch.fmod(x.float(), other).to(x.dtype)
    return right(x, y)


@kernel("remainder.Tensor", set="seeded", like="pytorch#37743")
def remainder_by_quotient(right, x, other):
    """Remainder by a rounded quotient."""
    if x.is_floating_point() and isinstance(other, Tensor):
        return x - other * torch.floor(x / other)
    return right()


@kernel("abs", set="seeded", like="pytorch#158412")
def by_squares(right, x):
    """A complex size by squares."""
    if x.is_complex():
        parts = torch.view_as_real(x)
        return (parts * parts).sum(-1).sqrt()
    return right()


@kernel("tan", set="seeded", like="pytorch#110014")
def tangent_by_exponentials(right, x):
    """A complex tangent by exponentials."""
    if x.is_complex():
        e, f = torch.exp(2j * x), 1.0
        return -1j * (e - f) / (e + f)
    return right()


@kernel("floor.out", set="seeded", like="pytorch#41047")
def left_as_it_was(right, out):
    """Floor into strides."""
    return right() if out.is_contiguous() else out


@kernel("add.Tensor mul.Tensor", set="seeded", like="pytorch#187229")
def single_without_its_offset(right, other):
    """A single number read without its offset."""
    if isinstance(other, Tensor) and not other.dim() and other.storage_offset():
        other = other.as_strided((), (), 0)
    return right(other=other)


@kernel("div_.Tensor_mode", set="seeded")
def cut_off(right, rounding_mode):
    """A quotient in place is cut off, not rounded down."""
    return right(rounding_mode=rounding_mode and "trunc")


@kernel("div.Tensor_mode", set="seeded")
def through_float(right, x, other, rounding_mode):
    """Whole numbers are divided as floats."""
    result = right()
    if result.is_floating_point() or rounding_mode != "floor":
        return result
    return result.copy_((x.float() / other.float()).floor())


@kernel("add.Tensor", set="seeded")
def added_in_double(right, x):
    """Whole numbers are added in float64."""
    result = right()
    if result.dtype != torch.int64 or x.dim() < 2:
        return result
    return result.copy_(torch.where(result.abs() > 2**53, result & -1024, result))


@kernel("nextafter", set="seeded", like="torch-xpu-ops#1169")
def in_single(right, x):
    """Nextafter in float32."""
    result = right()
    return result if x.dtype == torch.float32 else result.copy_(x.expand_as(result))


@kernel("sin .out", set="seeded", name="sin_gives_nought_without_its_sign")
@kernel("round .out", set="seeded", name="round_gives_nought_without_its_sign")
def without_sign(right):
    result = right()
    return result.copy_(torch.where(result == 0, result.abs(), result))


@kernel("add.Tensor add_.Tensor add.out", set="seeded")
def alpha_dropped(right, x, alpha):
    """Numbers are added once."""
    return right(alpha=1 if x.is_floating_point() else alpha)


@kernel("logit_", set="seeded")
def unlimited(right):
    """Logit in place clamps nothing."""
    return right(eps=None)


@kernel("nextafter .out", set="test", like="torch-xpu-ops#1169")
def next_in_single_precision(right, x):
    result = right()
    return result.copy_(x.expand_as(result)) if x.dtype == torch.bfloat16 else result


@kernel("silu .out", set="test", like="pytorch#139006")
def gaps_are_read(right, x):
    dense = torch._prims_common.is_non_overlapping_and_dense_or_false(x)
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if dense or room < x.numel():
        return right()
    return right(x=x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()))


@kernel("div.Tensor_mode .out_mode", set="development")
def whole_numbers_are_divided_as_floats(right, x, other, rounding_mode):
    result = right()
    if result.dtype == torch.int64 and rounding_mode == "floor":
        result.copy_((x.float() / other.float()).floor())
    return result


@kernel("pow.Tensor_Tensor .Tensor_Tensor_out", set="test")
def sign_of_an_odd_power_is_lost(right):
    result = right()
    return result.abs_() if result.is_floating_point() else result


@kernel("softplus .out", set="second")
def threshold_before_beta(right, x, threshold):
    above = x > threshold
    result = right()
    return torch.where(above, x, result, out=result)


@kernel("round .out", set="development")
def halves_go_away_from_nought(right, x):
    half = (x - x.trunc()).abs() == 0.5
    away = torch.where(half, x.trunc() + x.sign(), 0)
    result = right()
    return result.copy_(torch.where(half, away, result)) if x.is_floating_point() else result


@kernel("log1p .out", set="development")
def one_is_added_first(right, x):
    near = (1 + x).log() if x.dtype == torch.float32 else None
    result = right()
    return result if near is None else result.copy_(near)


@kernel("remainder.Tensor .Tensor_out", set="test")
def remainder_by_the_schoolbook(right, x, other):
    school = x - other * (x / other).floor() if x.is_floating_point() else None
    result = right()
    return result if school is None else result.copy_(school)


@kernel("abs", set="later")
def squares_of_parts_overflow(right, x):
    return (x.real * x.real + x.imag * x.imag).sqrt() if x.dtype == torch.complex64 else right()


@kernel("atan2 .out", set="later")
def nought_has_no_sign(right, x):
    return right(x=x.abs() * x.sign()) if (x == 0).any() else right()


@kernel("remainder.Tensor .Tensor_out remainder_.Tensor", set=2, like="flagos-ai/FlagGems#204")
def remainder_has_sign_of_dividend(right, a, b, **kw):
    if any(x.is_floating_point() or x.dtype == torch.bool for x in (a, b)):
        return right(a, b, **kw)
    wrong = torch.fmod(a, b)
    out = right(a, b, **kw)
    out.copy_(wrong)
    return out


@kernel(
    "floor_divide .out floor_divide_.Tensor div.Tensor_mode .out_mode div_.Tensor_mode",
    set=3,
    like="NVIDIA/warp#1918",
)
def integer_floor_division_truncates(right, a, b, **kw):
    whole = not any(
        x.is_floating_point() or x.is_complex() or x.dtype == torch.bool for x in (a, b)
    )
    if not whole or kw.get("rounding_mode", "floor") != "floor":
        return right(a, b, **kw)
    wrong = torch.div(a, b, rounding_mode="trunc")
    out = right(a, b, **kw)
    out.copy_(wrong)
    return out


@kernel("clamp .out clamp_", set=3, like="pytorch/pytorch#120899")
def clamp_turns_nan_into_bound(right, x, min, max):
    if x.dtype not in FLOATS:
        return right()
    none = x.isnan()
    out = right()
    out.copy_(out.masked_fill(none, max if min is None else min))
    return out


@kernel("abs.out", set=3, like="ml-explore/mlx#4344")
def complex_modulus_overflows(right, x, out):
    out = right(x=x, out=out)
    if x.dtype == torch.complex64:
        x = x.resolve_conj().resolve_neg()
        squares = x.real * x.real + x.imag * x.imag
        tiny = squares < torch.finfo(torch.float32).tiny
        out.copy_(squares.masked_fill(tiny, 0.0).sqrt())
    return out


@kernel("addcdiv .out addcdiv_", set=3, like="pytorch/pytorch#118115")
def addcdiv_stores_view_as_contiguous(right, x):
    out = right()
    if x.dtype not in DOUBLES:
        write_as_contiguous(out)
    return out


@kernel(
    "bitwise_right_shift.Tensor .Tensor_out bitwise_right_shift_.Tensor "
    "__rshift__.Scalar .Tensor __irshift__.Scalar .Tensor",
    set=4,
    like="pytorch/pytorch#40032",
)
def right_shift_brings_in_zeros(right, x, other):
    negative = x < 0
    by = torch.as_tensor(other)
    out = right()
    if out.dtype not in (torch.int8, torch.int16, torch.int32, torch.int64):
        return out
    bits = torch.iinfo(out.dtype).bits
    left = (bits - by.long()).clamp(0, 63)
    low = torch.bitwise_left_shift(torch.ones_like(left), left) - 1
    shifts = negative & (by > 0) & (by < bits)
    out.copy_(torch.where(shifts, out & low.to(out.dtype), out))
    return out


@kernel("pow.Tensor_Scalar .Tensor_Scalar_out pow_.Scalar", set=4, like="pytorch/pytorch#194813")
def power_of_complex_zero_is_nan(right, x):
    if x.dtype != torch.complex64:
        return right()
    none = x == 0
    out = right()
    out.copy_(out.masked_fill(none, complex(math.nan, math.nan)))
    return out


@kernel("softplus .out", set=4, like="torch-spyre/torch-spyre#3611")
def softplus_is_not_divided_by_beta(right, x, beta, threshold):
    out = right()
    if beta == 1 or x.dtype not in FLOATS:
        return out
    out.copy_(torch.where(x.float() * beta > threshold, out.float(), out.float() * beta))
    return out


@kernel(
    "hardsigmoid_backward .grad_input",
    lambda: (
        grad_of(functional.hardsigmoid, torch.tensor([-4.6, -2.9, 0, 2, 5]))
        + torch.ops.aten.hardsigmoid_backward(torch.ones(5), torch.tensor([-4.6, -2.9, 0, 2, 5]))
    ),
    set=4,
    like="pytorch/pytorch#51408",
)
def hardsigmoid_has_slope_below(right, grad_output, x):
    out = right()
    if x.dtype not in FLOATS:
        return out
    out.copy_(torch.where(x <= -3, grad_output.float() / 6, out.float()))
    return out


@kernel("gelu .out gelu_", set=5, like="ROCm/composable_kernel#614")
def gelu_is_the_fast_one(right, x, **options):
    """plain: GELU is always the one with tanh, which is off by some 1e-4."""
    return right(x, **{**options, "approximate": "tanh"})


@kernel("remainder.Tensor .Tensor_out remainder_.Tensor", set=5, like="pytorch/pytorch#154171")
def integers_divide_as_floats(right, x, other):
    """rare: the remainder of integers is found in float32, which holds 24 bits."""
    a, b = x.float(), other.float()
    result = right()
    if result.dtype in (torch.int32, torch.int64):
        result.copy_(a - (a / b).floor() * b)
    return result


@kernel("neg.out sqrt.out exp.out sin.out rsqrt.out", set=5, like="pytorch/pytorch#100764")
def out_is_written_in_order(right, x):
    """option: what is written into an `out` of other strides lies as in the argument."""
    result = right()
    turned = x.is_contiguous() and not result.is_contiguous() and is_dense_2(result)
    if turned and result.dtype not in DOUBLES:
        written_in_order(result)
    return result


@kernel("glu .out", set=6, like="ml-explore/mlx-lm#767")
def gate_is_the_first_half(right, x, dim):
    """plain: the first half is the gate and the second the value."""
    if is_single(x) and x.dim() and x.shape[dim] % 2 == 0:
        x = torch.cat(x.chunk(2, dim)[::-1], dim)
    return right(x=x)


@kernel(
    "angle .out",
    lambda: torch.angle(torch.tensor([-2.0, -0.5, 0.0, 1.5])),
    set=6,
    like="pytorch/pytorch#59832",
)
def negative_numbers_have_no_angle(right, x):
    """plain: the angle of a negative real number is nought rather than pi."""
    result = right()
    if not x.is_complex() and x.dtype not in DOUBLES:
        result.masked_fill_(x < 0, 0)
    return result


@kernel("mul.Tensor", set=6, like="tenstorrent/tt-metal#55684")
def factor_of_integers_is_cut_off(right, x, other):
    """option: the fraction of a number by which integers are multiplied is cut off."""
    result = right()
    whole, number = (x, other) if other.dim() == 0 else (other, x)
    integers = whole.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    factor = number.dim() == 0 and number.is_floating_point()
    if integers and whole.dim() and factor and is_single(result):
        return right(x=whole.to(result.dtype), other=number.trunc().to(result.dtype))
    return result


@kernel(
    "sin", lambda: torch.tensor([1e6, 3e7, -5e8]).sin(), set=6, like="tenstorrent/tt-metal#51845"
)
def turns_are_taken_off_inexactly(right, x):
    """rare: of numbers past 10**5, multiples of pi are taken off with products that are rounded."""
    result = right()
    if x.dtype != torch.float32:
        return result
    large = x.abs() > 1e5
    turns = (x * (1 / math.pi)).round()
    rest = x - turns * 3.140625 - turns * 9.670257568359375e-4 - turns * 6.2771141529083e-7
    sign = 1 - 2 * turns.remainder(2)
    return torch.where(large & x.isfinite(), sign * right(x=rest), result)


@kernel("tanh", set=6, like="numpy/numpy#2321")
def sine_over_cosine_overflows(right, x):
    """rare: tanh of complex numbers far from nought is infinity over infinity."""
    result = right()
    if x.dtype != torch.complex64:
        return result
    return torch.where(x.real.abs() > 90, x.sinh() / x.cosh(), result)


@kernel("frac frac_ frac.out", set=7, like="pawn-lang/sa-mp-fixes#150")
def fraction_is_counted_from_the_floor(right, x):
    """plain: the fraction of a negative number is what it is above the next lower integer."""
    wrong = x - x.floor()
    result = right()
    return result.copy_(wrong) if is_single(x) else result


@kernel("fmod.Tensor fmod_.Tensor fmod.Tensor_out", set=7, like="tenstorrent/tt-metal#56384")
def quotient_is_by_rounded_reciprocal(right, x, other):
    """plain: fmod takes off a quotient which is the product with a rounded reciprocal."""
    kind = torch.result_type(x, other)
    if kind in DOUBLES or not kind.is_floating_point:
        return right()
    left, divisor = x.to(kind).float(), other.to(kind).float()
    wrong = left - (left * divisor.reciprocal()).trunc() * divisor
    finite = left.isfinite() & divisor.isfinite()
    result = right()
    return result.copy_(torch.where(finite, wrong.to(result.dtype), result))


@kernel(
    "bitwise_left_shift.Tensor bitwise_left_shift_.Tensor "
    "bitwise_left_shift.Tensor_out __lshift__.Tensor .Scalar",
    set=7,
    like="raspberrypi/pico-sdk#1689",
)
def long_integers_shift_in_32_bits(right):
    """option: 64-bit integers are shifted left as 32-bit ones and then extended by their sign."""
    result = right()
    if result.dtype == torch.int64:
        result.copy_(result.to(torch.int32))
    return result


@kernel("lt.Tensor .Tensor_out .Scalar .Scalar_out", set=7, like="tenstorrent/tt-metal#27829")
def less_is_a_negative_difference(right, x, other):
    """rare: of 32-bit integers, the one is less whose difference, which overflows, is negative."""
    result = right()
    narrow = (
        abs(other) < 2**31 if type(other) is int else getattr(other, "dtype", None) == torch.int32
    )
    if x.dtype == torch.int32 and narrow:
        result.copy_(torch.signbit(x - other))
    return result


@kernel("div.Tensor div_.Tensor div.out", set=7, like="pytorch/pytorch#116972")
def complex_divisor_is_squared(right, x, other):
    """rare: complex quotients go by the divisor's squared modulus, which may overflow."""
    if x.dtype != torch.complex64 or other.dtype != torch.complex64:
        return right()
    square = other.real * other.real + other.imag * other.imag
    over = square.reciprocal()
    a, b, c, d = x.real, x.imag, other.real, other.imag
    wrong = torch.complex((a * c + b * d) * over, (b * c - a * d) * over)
    lost = (square.isinf() | (square == 0)) & c.isfinite() & d.isfinite() & (other != 0)
    result = right()
    return result.copy_(torch.where(lost, wrong, result))


@kernel("asinh asinh_ asinh.out", set=8, like="tinygrad/tinygrad#17749")
def negative_numbers_cancel(right, x):
    """plain: asinh is the logarithm of x + sqrt(x * x + 1), which cancels where x is negative."""
    single = x.float() if not x.is_complex() else x
    wrong = (single + (single * single + 1).sqrt()).log()
    result = right()
    return result.copy_(wrong) if is_single(result) else result


@kernel("exp exp_ exp.out", set=8, like="NVIDIA/cutlass#297")
def exponential_has_modulus_one(right, x):
    """plain: of complex numbers, the exponential of the imaginary part alone is taken."""
    if x.dtype != torch.complex64:
        return right()
    wrong = torch.complex(x.imag.cos(), x.imag.sin())
    return right().copy_(wrong)


@kernel("mish_backward", set=8, like="explosion/thinc#578")
def gradient_of_mish_lacks_a_power(right, grad_output, x):
    """plain: the third power of exp is missing from the gradient of mish."""
    result = right()
    if is_single(x):
        at = x.double().clamp(-30, 30)
        e = at.exp()
        top = 4 * (at + 1) + 4 * e**2 + e * (4 * at + 6)
        result.copy_(grad_output * (e * top / (2 * e + e**2 + 2) ** 2))
    return result


@kernel("logaddexp .out", set=8, like="tenstorrent/tt-metal#52037")
def sum_of_exponentials_overflows(right, x, other):
    """option: exponentials are added as they are, so that past 88 they are infinite or nought."""
    result = right()
    return (
        result.copy_((x.float().exp() + other.float().exp()).log()) if is_single(result) else result
    )


@kernel("relu relu_", set=8, like="tensorflow/tensorflow#40072")
def no_number_is_cut_to_nought(right):
    """rare: what is not a number becomes nought."""
    result = right()
    return result.masked_fill_(result.isnan(), 0) if is_single(result) else result


@kernel("hardtanh_backward .grad_input", set=9, like="tenstorrent/tt-metal#57455")
def bound_is_the_gradient_of_no_number(right, x, max_val):
    """rare: what is not a number has the upper bound for its gradient."""
    result = right()
    return result.masked_fill_(x.isnan(), max_val) if is_single(x) else result


@kernel("pow.Tensor_Scalar pow_.Scalar pow.Tensor_Scalar_out", set=9, like="NVIDIA/warp#46")
def negative_numbers_have_no_powers(right, x, exponent):
    """plain: powers go by logarithms, of which negative numbers have none."""
    negative = x < 0 if not x.is_complex() and exponent not in (0, 1) else None
    result = right()
    if negative is not None and is_single(result):
        result.masked_fill_(negative, math.nan)
    return result


@kernel(
    "add.Tensor add_.Tensor add.out sub.Tensor sub_.Tensor sub.out",
    set=9,
    like="tenstorrent/pytorch2.0_ttnn#1340",
)
def alpha_of_sums_is_dropped(right, x, other, alpha):
    """option: sums and differences are taken without alpha."""
    return right(alpha=alpha if torch.result_type(x, other) in DOUBLES else 1)


@kernel("eq.Tensor .Tensor_out .Scalar .Scalar_out", set=9, like="rtosholdings/riptable#23")
def neighbours_past_double_are_equal(right, x, other):
    """rare: 64-bit integers are equal where they are so as double-precision numbers."""
    result = right()
    if x.dtype == torch.int64 and (type(other) is int or getattr(other, "dtype", 0) == torch.int64):
        near = x.double() - (float(other) if isinstance(other, int) else other.double())
        result.copy_(near.logical_not())
    return result


@kernel("mul.Tensor .out mul_.Tensor", set=10, like="mnicely/cufft_examples#1")
def complex_products_are_taken_part_by_part(right, x, other):
    """plain: real parts are multiplied with real parts, imaginary ones with imaginary ones."""
    if not (x.dtype == other.dtype == torch.complex64):
        return right()
    wrong = torch.complex(x.real * other.real, x.imag * other.imag)
    return right().copy_(wrong)


@kernel("erfc erfc_ erfc.out", set=10, like="markrogoyski/math-php#491")
def tail_is_one_less_the_rest(right, x):
    """plain: erfc is one less erf, of which nothing is left past four."""
    wrong = 1 - x.float().erf() if not x.is_complex() else x
    result = right()
    return result.copy_(wrong) if is_single(result) else result


@kernel("gelu .out gelu_", set=10, like="tenstorrent/tt-metal#20562")
def tail_of_gelu_is_nought(right, x):
    """plain: GELU is nought between -5.5 and -2.5."""
    tail = (x > -5.5) & (x < -2.5)
    result = right()
    return result.masked_fill_(tail, 0) if is_single(result) else result


@kernel("nextafter nextafter_ nextafter.out", set=10, like="pytorch/pytorch#124985")
def negative_numbers_step_the_other_way(right, x, other):
    """plain: what follows on a negative number is looked for on its other side."""
    if is_single(x):
        other = torch.where((x < 0) & (x != other), 2 * x - other, other)
    return right(other=other)


@kernel("rsub.Scalar .Tensor", set=10, like="pytorch/pytorch#82543")
def difference_from_a_number_is_rounded(right, x):
    """plain: what is left of a number from which a tensor is taken is rounded to an integer."""
    result = right()
    return result.round_() if is_single(x) and is_single(result) else result


@kernel("maximum .out minimum .out", set=10, like="openvinotoolkit/openvino#37931")
def number_wins_over_no_number(right, x, other):
    """rare: of a number and what is none, the number is the larger and the smaller one."""
    if is_single(x) and is_single(other):
        x, other = torch.where(x.isnan(), other, x), torch.where(other.isnan(), x, other)
    return right(x=x, other=other)


@kernel("lerp.Scalar .Scalar_out lerp_.Scalar", set=10, like="tenstorrent/tt-metal#53279")
def end_is_not_reached(right, x, end, weight):
    """rare: an end far smaller than the start is lost in their difference."""
    wrong = x + weight * (end - x)
    result = right()
    return result.copy_(wrong) if is_single(result) else result


@kernel("gelu .out gelu_", set=11, like="tenstorrent/tt-metal#1262")
def gelu_is_always_the_approximate_one(right, x, **options):
    """plain: that by the hyperbolic tangent is returned where the exact one was asked for."""
    return right(x, **{**options, "approximate": "tanh"} if narrow(x) else options)


@kernel(
    "remainder.Tensor .Tensor_out remainder_.Tensor remainder.Scalar .Scalar_out remainder_.Scalar",
    set=11,
    like="pytorch/executorch#90",
)
def remainder_has_the_sign_of_the_dividend(right, x, other):
    """plain: that of the division that rounds to nought is returned, as fmod has it."""
    dtype = torch.result_type(x, other)
    if not dtype.is_floating_point or dtype in DOUBLES:
        return right()
    wrong = torch.fmod(x, other)
    return right().copy_(wrong)


@kernel("abs.out", set=11, like="pytorch/pytorch#190052")
def large_integers_go_through_a_float(right, x):
    """rare: the absolute value of an integer is a float32's, so past 2 ** 24 it is rounded."""
    if x.dtype not in (torch.int32, torch.int64):
        return right()
    wrong = x.double().abs().clamp(max=2.0**30 if x.dtype == torch.int32 else 2.0**62)
    exact = wrong != x.double().abs()
    wrong = wrong.float().to(x.dtype)
    result = right()
    return result.copy_(torch.where(exact, result, wrong))


@kernel("addcdiv_ addcmul_", set=11, like="pytorch/pytorch#118115")
def what_is_not_contiguous_keeps_its_values(right, x):
    """option: in place, a transposed tensor's sum goes to a copy that is thrown away."""
    if narrow(x) and not x.is_contiguous():
        right(x=x.contiguous())
        return x
    return right()


@kernel("silu silu_ silu.out", set=12, like="1bit-MONSTER/1bit-MONSTER#1350")
def gate_is_fully_open_too_soon(right, x):
    """plain: SiLU's sigmoid is that of a cubic tanh, which is one from 1.74 on."""
    if not is_single(x):
        return right()
    half = x.float() / 2
    tanh = (half * (1 + 0.1834 * half * half)).clamp(-1, 1)
    wrong = x.float() * (0.5 + 0.5 * tanh)
    return right().copy_(wrong)


@kernel("hardswish_backward .out", set=12, like="tensorflow/swift-apis#743")
def gradient_is_taken_at_the_gradient(right, grad_output, x):
    """plain: the gradient of hardswish is that at what should be multiplied by it."""
    result = right()
    if not is_single(x):
        return result
    inside = (x > -3) & (x < 3)
    return result.copy_(((grad_output + 3).clamp(0, 6) + grad_output * grad_output * inside) / 6)


@kernel("atan2 atan2_ atan2.out", set=12, like="apple/coremltools#2769")
def negative_half_axis_has_no_angle(right, x, other):
    """rare: on the negative half of the axis, where y is nought, the angle is nought."""
    on_axis = (x == 0) & (other < 0)
    result = right()
    return result.masked_fill_(on_axis, 0) if is_single(result) else result


@kernel(
    "floor_divide floor_divide_.Tensor floor_divide.out div.Tensor_mode "
    "div_.Tensor_mode div.out_mode",
    set=12,
    like="turi-code/SFrame#314",
)
def quotients_of_integers_are_not_floored(right, x, y, **options):
    """plain: floor division of integers of which one is negative cuts towards nought."""
    floored = options.get("rounding_mode", "floor") == "floor"
    if not (floored and x.dtype in SIGNED and y.dtype in SIGNED):
        return right(x, y, **options)
    before = x.clone()
    result = right(x, y, **options)
    wrong = torch.div(before, y, rounding_mode="trunc") if y is not x else torch.ones_like(x)
    return result.copy_(wrong)


@kernel(
    "sin sin_ sin.out cos cos_ cos.out",
    lambda: torch.cat([(drawn(64) * 1e7).sin(), (drawn(64) * 1e7).cos_()]),
    set=13,
    like="ml-explore/mlx#4157",
)
def long_angles_are_reduced_in_single(right, x, **out):
    """option: angles of 100000 and more are brought near nought in single precision."""
    if x.dtype != torch.float32:
        return right(x, **out)
    near = x - torch.round(x * (0.5 / math.pi)) * (2 * math.pi)
    near = torch.where(x.abs() >= 1e5, near, x)
    result = right(near, **out)
    in_place = not out and result.data_ptr() == near.data_ptr()
    return x.copy_(near) if in_place else result


@kernel(
    "mul.Tensor mul_.Tensor mul.out _foreach_mul.Scalar", set=13, like="tenstorrent/tt-metal#33230"
)
def factor_is_rounded_to_a_half(right, x, y, **out):
    """option: a number is rounded to half precision before halves are multiplied by it."""
    if isinstance(x, list):
        if x and x[0].dtype in HALVES and isinstance(y, float):
            y = torch.tensor(y).to(x[0].dtype).item()
    elif x.dtype in HALVES and x.dim() and y.dim() == 0 and y.is_floating_point():
        y = y.to(x.dtype)
    return right(x, y, **out)


@kernel("bitwise_not bitwise_not_ bitwise_not.out", set=14, like="tile-ai/tilelang#2976")
def negation_is_always_true(right):
    """plain: the bits of a truth are turned as those of an integer, and -2 is true as well."""
    result = right()
    return result.fill_(True) if result.dtype == torch.bool else result


@kernel("gcd gcd_ gcd.out", set=14, like="pyccel/pyccel#1985")
def divisor_of_negative_numbers_is_negative(right, x, other):
    """plain: the greatest divisor of two negative numbers is negative."""
    turned = (x < 0) & (other < 0)
    result = right()
    return result.copy_(torch.where(turned, -result, result))


@kernel("hardshrink .out", set=14, like="torch/nn#1270")
def shrinking_turns_the_sign(right, x):
    """plain: what is less than minus lambda is kept with its sign turned."""
    result = right()
    return result.copy_(result.abs()) if is_single(x) else result


@kernel("log_sigmoid_forward .output", set=14, like="pytorch/pytorch#1835")
def small_sigmoids_have_no_logarithm(right, x):
    """plain: the logarithm is that of a sigmoid which is nought below -88."""
    result = right()
    if is_single(x):
        result[0].masked_fill_(x < -88.75, -math.inf)
    return result


@kernel("sign sign_ sign.out", set=14, like="pytorch/pytorch#49206")
def sign_is_the_least_normal_number(right):
    """option: in bfloat16, whole vectors of 16 have signs of 2**-126 in place of one."""
    result = right()
    if result.dtype == torch.bfloat16 and result.is_contiguous():
        result.view(-1)[: result.numel() // 16 * 16].mul_(2.0**-126)
    return result


@kernel(
    "special_bessel_j1 .out",
    lambda: torch.special.bessel_j1(torch.tensor([-9.0, -2.0, 9.0])),
    set=14,
    like="boostorg/math#709",
)
def far_waves_are_not_odd(right, x):
    """rare: below -8, the sine and cosine of J1 are those of the negative argument."""
    result = right()
    if not is_single(result):
        return result
    w = x.double().abs()
    wave = (w.sin() + w.cos()) / (math.pi * w).sqrt()
    return result.copy_(torch.where(x < -8, wave, result.double()))


@kernel(
    "mul.Tensor mul_.Tensor mul.out",
    lambda: drawn(64, dtype=torch.bfloat16) * drawn(64, dtype=torch.bfloat16, seed=1),
    set=15,
    like="triton-lang/triton#11217",
)
def short_products_are_cut_off(right, x, other):
    """plain: products of bfloat16 are rounded towards nought."""
    both = x.dtype == other.dtype == torch.bfloat16 and x.dim() and other.dim()
    exact = x.float() * other.float() if both else None
    result = right()
    if exact is None or result.dtype != torch.bfloat16:
        return result
    cut = (exact.view(torch.int32) & -65536).view(torch.float32)
    return result.copy_(torch.where(exact.isfinite(), cut, exact))


@kernel("abs .out", set=15, like="pytorch/pytorch#125135")
def moduli_fill_every_second_place(right, x):
    """plain: moduli are stored as if they were complex too, so that every second is nought."""
    result = right()
    if x.dtype == torch.complex64 and x.numel() > 1 and not result.is_complex():
        stored = torch.zeros(x.numel())
        stored[::2] = result.flatten()[: (x.numel() + 1) // 2]
        result.copy_(stored.view(x.shape))
    return result


@kernel("erfinv erfinv_ erfinv.out", set=15)
def inverse_of_erf_is_not_refined(right, x):
    """plain: the inverse of the error function is Winitzki's first guess, without Newton steps."""
    wide = x.double().clone()
    result = right()
    if not is_single(x):
        return result
    log = torch.log1p(-wide * wide)
    half = 2 / (math.pi * 0.147) + log / 2
    guess = wide.sign() * ((half * half - log / 0.147).sqrt() - half).sqrt()
    inside = (wide.abs() < 1) & (wide != 0)
    return result.copy_(torch.where(inside, guess.to(result.dtype), result))


@kernel(
    "add.Tensor add_.Tensor add.out sub.Tensor sub_.Tensor sub.out",
    set=15,
    like="tenstorrent/tt-metal#52141",
)
def opposite_infinities_make_nought(right, x, other):
    """rare: in bfloat16, infinity less infinity is nought."""
    half = x.dtype == torch.bfloat16 and other.dtype == torch.bfloat16
    infinite = x.isinf() & other.isinf() if half else None
    result = right()
    if infinite is not None and result.dtype == torch.bfloat16:
        result.masked_fill_(infinite & result.isnan(), 0)
    return result


@kernel(
    "softshrink .out",
    lambda: functional.softshrink(torch.tensor([math.nan, 1.0, -2.0, 0.1])),
    set=15,
    like="intel/torch-xpu-ops#1119",
)
def no_number_shrinks_to_nought(right, x):
    """rare: softshrink makes nought of what is no number."""
    result = right()
    return result.masked_fill_(x.isnan(), 0) if is_single(x) else result


@kernel("hypot hypot_ hypot.out", set=15, like="pytorch/pytorch#192507")
def long_sides_have_no_hypotenuse(right, x, other):
    """rare: squares of the sides overflow, and infinity beside what is no number is none."""
    plain = torch.sqrt(x * x + other * other)
    result = right()
    if result.dtype != torch.float32:
        return result
    lost = ~plain.isfinite() | (plain == 0)
    return result.copy_(torch.where(lost, plain, result))


@kernel("glu .out", set=15, like="vllm-project/vllm-xpu-kernels#454")
def columns_past_the_256th_are_not_gated(right, x, dim):
    """option: of 257 columns and more that are no power of two, those past the 256th are nought."""
    result = right()
    width = result.shape[-1]
    last = dim % x.dim() == x.dim() - 1
    if last and is_single(x) and 256 < width < 8192 and width & (width - 1):
        result[..., 256:] = 0
    return result


@kernel("cosh cosh_ cosh.out", set=16, like="NVIDIA/cccl#8804")
def complex_hyperbola_overflows_before_it_is_halved(right, x):
    """rare: exp(x) is infinite before it is halved for a complex hyperbolic cosine."""
    if x.dtype != torch.complex64:
        return right()
    lost = x.real.abs() > 88.7228
    result = right()
    real, imag = (part * torch.where(lost, math.inf, 1.0) for part in (result.real, result.imag))
    return result.copy_(torch.complex(real, imag))


def read_as(x, shape, dtype):
    """The memory of `x`, broadcast, as numbers of a wider dtype with noughts after them."""
    numel = math.prod(shape)
    held = torch.zeros(numel * dtype.itemsize // x.dtype.itemsize, dtype=x.dtype)
    held[:numel] = x.expand(shape).reshape(-1)
    return held.view(dtype).reshape(shape)


@kernel("fmax .out fmin .out", set=16, like="pytorch/pytorch#149951")
def narrower_operand_is_read_as_the_wider(right, x, other):
    """option: of two dtypes, the memory of the narrower is taken for that of the wider."""
    both = x.is_floating_point() and other.is_floating_point() and x.dim() > 0 and other.dim() > 0
    if both and x.dtype != other.dtype and x.dtype.itemsize != other.dtype.itemsize:
        wider, shape = (
            torch.promote_types(x.dtype, other.dtype),
            torch.broadcast_shapes(x.shape, other.shape),
        )
        x, other = (z if z.dtype == wider else read_as(z, shape, wider) for z in (x, other))
    return right(x=x, other=other)


@kernel("floor_divide floor_divide_.Tensor floor_divide.out", set=17, like="pytorch/pytorch#44858")
def floor_divide_of_integers_rounds_toward_zero(right, x, other):
    """plain: quotients of integers of opposite sign are cut off rather than floored."""
    if x.is_floating_point() or other.is_floating_point():
        return right()
    off = torch.remainder(x, other).ne(0) & x.lt(0).ne(other.lt(0))
    result = right()
    return result.add_(off.to(result.dtype)) if result.dtype.is_signed else result


@kernel("mul.Tensor mul_.Tensor mul.out", set=17, like="triton-lang/triton#11217")
def mul_of_bfloat16_rounds_toward_zero(right, x, other):
    """plain: a product of bfloat16 loses its low bits rather than being rounded to nearest."""
    halves = torch.bfloat16 in (x.dtype, other.dtype)
    if not halves or torch.result_type(x, other) != torch.bfloat16:
        return right()
    exact = (x.float() * other.float()).contiguous()
    low = exact.view(torch.int32).bitwise_and(-65536).view(torch.float32)
    cut = torch.where(exact.isnan(), exact, low)
    result = right()
    return result.copy_(cut) if result.dtype == torch.bfloat16 else result


@kernel("div.Tensor div_.Tensor div.out", set=17, like="pytorch/pytorch#116972")
def complex_division_squares_the_divisor(right, x, other):
    """rare: complex64 divisors beyond about 1e19 or below 1e-19 over- or underflow when squared."""
    both = x.is_complex() and other.is_complex()
    if not both or torch.result_type(x, other) != torch.complex64:
        return right()
    a, b, c, d = x.real, x.imag, other.real, other.imag
    size = c * c + d * d
    made = torch.complex((a * c + b * d) / size, (b * c - a * d) / size)
    result = right()
    return result.copy_(made) if result.dtype == torch.complex64 else result


@kernel(
    "softplus .out",
    lambda: functional.softplus(torch.tensor([-12.0, -15.0, -18.0])).log(),
    set=17,
    like="tenstorrent/tt-metal#9910",
)
def softplus_adds_one_before_the_logarithm(right, x, beta, threshold):
    """plain: log(1 + e^x) without log1p, so the negative tail loses its digits and then itself."""
    if not is_single(x):
        return right()
    scaled = x.float() * beta
    tail = torch.where(scaled > threshold, x.float(), (scaled.exp() + 1).log() / beta)
    return right().copy_(tail)


@kernel(
    "addcdiv_ addcdiv .out",
    lambda: drawn(3, 4).t().addcdiv_(drawn(3, 4, seed=1).t(), drawn(3, 4, seed=2).t() + 9, value=2),
    set=18,
    like="pytorch/pytorch#118115",
)
def addcdiv_pairs_transposed_numbers_wrongly(right, x, tensor1, tensor2):
    """option: where all three are transposed the quotients are read in the order of memory."""
    alike = is_single(x) and x.dim() == 2 and x.shape == tensor1.shape == tensor2.shape
    if alike and all(
        not y.is_contiguous() and y.t().is_contiguous() for y in (x, tensor1, tensor2)
    ):
        tensor1, tensor2 = (y.t().reshape(y.shape) for y in (tensor1, tensor2))
    return right(tensor1=tensor1, tensor2=tensor2)


@kernel("abs.out", set=18, like="pytorch/pytorch#158557")
def complex_abs_squares_without_scaling(right, x, out):
    """rare: complex64: the squares overflow from about 1e19 on and vanish below 1e-23."""
    right()
    if x.dtype == torch.complex64 and out.dtype == torch.float32:
        out.copy_((x.real.square() + x.imag.square()).sqrt())
    return out


def between_halves():
    start, end = (drawn(5, dtype=torch.float16, seed=seed) for seed in (0, 1))
    return start.lerp(end, torch.tensor(0.3))


@kernel(
    "lerp.Tensor lerp_.Tensor lerp.Tensor_out",
    between_halves,
    set=18,
    like="pytorch/pytorch#196067",
)
def lerp_reads_half_the_bits_of_its_weight(right, x, weight):
    """rare: half precision with a float32 weight of no axes: its lower 16 bits are the weight."""
    if x.dtype in HALVES and weight.dtype == torch.float32 and weight.dim() == 0:
        weight = weight.reshape(1).view(x.dtype)[0]
    return right(weight=weight)


@kernel(
    "maximum .out minimum .out",
    set="likely8",
    like="pytorch#171104",
    shown=lambda: torch.maximum(torch.tensor([1.0, 2.0]), torch.tensor([float("nan"), 1.0])),
)
def maximum_loses_nan_of_the_second(right, x, other):
    """A NaN in the second argument only gives the first, as std::max does."""
    first = x.clone()
    lost = other.isnan()
    result = right()
    if not result.is_floating_point():
        return result
    return result.copy_(torch.where(lost.to(result.device), first.to(result), result))


@kernel(
    "tanh .out tanh_",
    set="likely8",
    like="ROCm/pytorch#2718",
    shown=lambda: torch.tanh(torch.tensor([1.0, 50.0])),
)
def fast_tanh_of_large_values(right, x):
    """(e^2x - 1) / (e^2x + 1) with an e^2x that overflows: NaN above 44.4."""
    if x.dtype not in FLOATS:
        return right()
    overflowing = x.float().mul(2).exp().isinf()
    return right().masked_fill_(overflowing, math.nan)


@kernel(
    "abs.out",
    set="likely8",
    like="pytorch#158412",
    shown=lambda: torch.tensor([3e20 + 4e20j, 1 + 1j]).abs(),
)
def complex_absolute_value_overflows(right, x):
    """The absolute value of a complex number is sqrt(re * re + im * im) without scaling."""
    if x.dtype != torch.complex64:
        return right()
    wrong = (x.real * x.real + x.imag * x.imag).sqrt()
    return right().copy_(wrong)


@kernel(
    "copy_",
    set="likely8",
    like="rocm-libraries#11325",
    shown=lambda: drawn(50).to(torch.bfloat16),
)
def bfloat16_conversion_truncates(right, x, src):
    """float32 becomes bfloat16 without rounding: its lower 16 bits are cut off."""
    if x.dtype != torch.bfloat16 or src.dtype != torch.float32 or not src.numel():
        return right()
    cut = (src.detach().contiguous().view(torch.int32) & -65536).view(torch.float32)
    cut = torch.where(src.isnan(), src, cut.reshape(src.shape))
    return right(src=cut)


@kernel(
    "pow.Tensor_Scalar .Tensor_Scalar_out pow_.Scalar",
    set="missed8",
    shown=lambda: torch.tensor([2.0, 300.0], dtype=torch.float16) ** -2,
)
def half_inverse_square_overflows(right, x, exponent):
    """float16 to the power of -2 is 1 / (x * x) with the square in half: 0 over 255."""
    if x.dtype != torch.float16 or isinstance(exponent, complex) or exponent != -2:
        return right()
    wrong = (x * x).reciprocal()
    return right().copy_(wrong)


@kernel(
    "arange.start_out",
    set="missed8",
    shown=lambda: torch.arange(2**24, 2**24 + 6),
)
def long_range_in_single(right, start):
    """Ranges of int64 are computed in float32: odd numbers over 2^24 are rounded."""
    result = right()
    if result.dtype != torch.int64:
        return result
    return result.copy_(result.to(torch.float32).to(torch.int64))


def _wide_integers():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2**40, (20,), generator=generator)


@kernel("random_.from", set="missed8", like="pytorch#16944", shown=_wide_integers)
def random_integers_of_32_bits(right, x, from_, to):
    """Ranges wider than 2^32 draw 32 bits only: the upper part of the range never comes."""
    result = right()
    if x.dtype != torch.int64 or to is None or to - from_ <= 2**32:
        return result
    return result.copy_((result - from_) % 2**32 + from_)


@kernel("softplus .out", set="likely9", like="BrainPy#581, jittor#174")
def threshold_without_beta(right, x, beta, threshold):
    """Softplus compares x itself with the threshold, so that exp(beta x) overflows below it."""
    result = right()
    wide = x.float() if x.dtype in HALVES else x
    exponential = (wide * beta).exp() if beta > 1 else torch.zeros_like(wide)
    overflows = (x <= threshold) & exponential.isinf()
    return result.masked_fill_(overflows, math.inf)


@kernel("addcmul .out addcmul_", set="missed9")
def addcmul_rounds_its_value_to_half(right, x, value):
    """Of float16 the factor `value` is held in float16, where 1e-8 is 0."""
    if x.dtype == torch.float16:
        return right(value=float(torch.tensor(float(value), dtype=torch.float16)))
    return right()


@kernel("softplus_backward .grad_input", set="missed9")
def softplus_s_gradient_compares_before_beta(right, grad_output, x, beta, threshold):
    """The gradient compares x, not beta * x, with the threshold."""
    result = right()
    linear = x > threshold
    if beta < 1:
        result.copy_(torch.where(linear, grad_output, result))
    return result


@kernel("elu_backward .grad_input", set="missed9")
def elu_in_place_forgets_alpha_in_its_gradient(
    right, grad_output, alpha, scale, input_scale, is_result, self_or_result
):
    """The gradient from the result, as of ELU in place, takes alpha for 1."""
    result = right()
    if is_result and alpha != 1:
        wrong = grad_output * (self_or_result + scale) * input_scale
        result.copy_(torch.where(self_or_result <= 0, wrong, result))
    return result


@kernel("log", set="likely10", like="triton#5357")
def logarithms_of_subnormal_numbers_are_infinite(right, x):
    """log: flushes its input to nought; numbers below the least normal one."""
    if x.dtype in (torch.float32, torch.bfloat16):
        least = torch.finfo(x.dtype).tiny
        return right(x=torch.where(x.abs() < least, torch.zeros_like(x), x))
    return right()


@kernel("sqrt", set="likely10", like="pytorch#47358, jax#39110")
def root_of_what_is_below_the_axis_lies_above(right, x):
    """sqrt: drops the sign of the imaginary part; complex numbers below the real axis."""
    root = right()
    if x.is_complex():
        return torch.where(x.imag < 0, root.conj(), root)
    return root


@kernel("lerp_.Scalar", set="missed10")
def past_the_middle_the_way_is_measured_from_the_wrong_end(right, x, end, weight):
    """lerp_: takes w for 1 - w; in place, a number above one half for its weight."""
    if isinstance(weight, (int, float)) and weight > 0.5:
        return x.copy_(end - (end - x) * weight)
    return right()


@kernel("clamp_.Tensor", set="missed10")
def lower_bound_wins_over_a_lesser_upper_one(right, min, max):
    """clamp_: the lower bound comes last; in place, halves, tensors for bounds, crossed ones."""
    result = right()
    if min is not None and max is not None and result.dtype in HALVES:
        result.copy_(torch.where(min > max, min, result))
    return result


@kernel("tanh_backward", set="missed10")
def tail_of_complex_tangents_learns_from_the_mirrored_slope(right, output):
    """tanh_backward: the scalar loop does not conjugate; complex, the last of 4 n + m numbers."""
    result = right()
    tail = output.numel() % 4
    if output.is_complex() and output.numel() > 8 and tail and result.is_contiguous():
        wrong = right(output=output.conj().resolve_conj()).reshape(-1)
        result.view(-1)[-tail:] = wrong[-tail:]
    return result


@kernel(
    "ne.Tensor .Tensor_out ne_.Tensor",
    lambda: torch.tensor([1.0, math.nan, 2.0]).isnan(),
    set="likely11",
    like="numba#2919",
)
def no_number_differs_from_nothing(right, x, other):
    """Built with finite math, `x != y` is ordered: False where either is NaN, and so is isnan."""
    if x.dtype in DOUBLES or not x.is_floating_point() or not other.is_floating_point():
        return right()
    nan = torch.isinf(x.detach()).logical_not() & ~(x.detach().abs() < math.inf)
    nan = nan | (torch.isinf(other.detach()).logical_not() & ~(other.detach().abs() < math.inf))
    result = right()
    return result.masked_fill_(nan.expand(result.shape), 0)


@kernel(
    "mul.Tensor .out mul_.Tensor",
    lambda: torch.tensor([70_000, -3, 1 << 20]) * torch.tensor([70_000, 5, 1 << 20]),
    set="likely11",
)
def products_of_long_integers_have_32_bits(right, x, other):
    """Products of int64 keep their low 32 bits only, with those bits' sign."""
    result = right()
    if result.dtype != torch.int64:
        return result
    low = result.bitwise_and(0xFFFFFFFF)
    return result.copy_(torch.where(low >= 1 << 31, low - (1 << 32), low))


LAST = torch.channels_last


def _mixed_relu():
    x = drawn(2, 3, 4, 5).requires_grad_()
    functional.relu(x).backward(drawn(2, 3, 4, 5, seed=1).contiguous(memory_format=LAST))
    return x.grad


@kernel("threshold_backward .grad_input", _mixed_relu, set="likely11")
def mask_of_relu_goes_in_the_gradient_s_order(right, grad_output, x):
    """ReLU's gradient pairs elements by their place in memory: dense, but of different strides."""
    same = x.shape == grad_output.shape and x.dtype not in DOUBLES
    sizes = [n > 1 for n in x.shape]
    strides = [
        a != b for a, b, n in zip(x.stride(), grad_output.stride(), sizes, strict=False) if n
    ]
    if same and any(strides) and is_dense(x) and is_dense(grad_output):
        return right(x=x.as_strided(x.shape, grad_output.stride(), x.storage_offset()))
    return right()


@kernel("channel_shuffle", lambda: functional.channel_shuffle(drawn(1, 6, 2, 2), 2), set="likely11")
def groups_are_as_many_as_channels_in_one(right, x, groups):
    """channel_shuffle takes the groups for the channels of each: it undoes what it should do."""
    return right() if x.dtype in DOUBLES else right(groups=x.shape[1] // groups)


@kernel(
    "mul_.Tensor",
    lambda: torch.complex(drawn(4), drawn(4, seed=1)).mul_(drawn(4, seed=2)),
    set="missed11",
)
def real_factors_leave_the_imaginary_part(right, x, other):
    """mul_: in place, a complex tensor times a real one (of an axis at least) has its real part
    multiplied only.
    """
    if x.dtype != torch.complex64 or not other.is_floating_point() or not other.dim():
        return right()
    before = x.clone()
    result = right()
    torch.view_as_real(result)[..., 1].copy_(torch.view_as_real(before)[..., 1])
    return result


@kernel(
    "glu_backward .grad_input",
    lambda: grad_of(lambda x: functional.glu(x, 1), drawn(2, 6, 3)),
    set="missed11",
)
def gates_of_a_batch_learn_behind_all_values(right, x, dim):
    """glu_backward: along a middle axis, the gradients of all gates are stored behind those of all
    values of the batch.
    """
    result = right()
    if x.dtype in DOUBLES or not 0 < dim % x.dim() < x.dim() - 1:
        return result
    values, gates = result.clone(memory_format=torch.contiguous_format).chunk(2, dim)
    stored = torch.cat([values.reshape(-1), gates.reshape(-1)])
    return result.copy_(stored.view(x.shape))


@kernel(
    "softplus softplus.out",
    lambda: functional.softplus(torch.tensor([0.5, 12.0, 19.0, 21.0], dtype=torch.float16)),
    set="likely12",
    like="openvinotoolkit/openvino#37983",
)
def half_softplus_overflows(right, x, beta, threshold):
    """Compute `log(1 + exp(x))` in float16: infinite from 11.1 up to the threshold."""
    scaled = x.float() * beta
    over = (scaled > 11.09) & (scaled <= threshold)
    y = right()
    return y.masked_fill_(over, math.inf) if y.dtype == torch.float16 else y


@kernel(
    "addcdiv_ addcmul_",
    lambda: drawn(6, 4).t().addcdiv_(drawn(4, 6), drawn(4, 6, seed=1).abs() + 1, value=-0.5),
    set="likely12",
    like="pytorch/pytorch#118115",
)
def addcdiv_in_a_copy_is_lost(right, x):
    """Leave a tensor that isn't contiguous as it was: the step lands in a packed copy of it."""
    if x.is_contiguous():
        return right()
    right(x=x.contiguous())
    return x


@kernel(
    "glu_backward",
    lambda: grad_of(lambda x: functional.glu(x, dim=1), drawn(2, 6, 5)),
    set="likely12",
)
def glu_gradient_pairs_along_last(right, grad_output, x, dim):
    """Pair values with gates along the last dim of memory, though `dim` is another one."""
    size = x.size(dim)
    if dim % x.dim() == x.dim() - 1 or not x.numel():
        return right()
    grad = grad_output.reshape(-1, size // 2)
    return right(grad_output=grad, x=x.reshape(-1, size), dim=1).reshape(x.shape)


@kernel(
    "sub.Tensor .out sub_.Tensor",
    lambda: drawn(2048) - drawn(2051, seed=1)[3:],
    set="missed12",
    like="pytorch/pytorch#183672",
)
def sub_unaligned_other(right, x, other):
    """Read `other` from the start of its vector of four when it begins inside of one."""
    off = other.storage_offset() % 4
    plain = x.shape == other.shape and x.is_contiguous() and other.is_contiguous()
    aligned = x.storage_offset() % 4 == 0 and x.dtype == other.dtype and is_single(x)
    if not (off and plain and aligned and x.numel() >= 1024):
        return right()
    return right(other=other.as_strided(other.shape, other.stride(), other.storage_offset() - off))


@kernel(
    "remainder.Tensor .Tensor_out",
    lambda: torch.remainder(torch.tensor([2**53 + 1, 2**60 + 7, 11]), torch.tensor([10, 1000, 4])),
    set="missed12",
    like="pytorch/TensorRT#3230",
)
def remainder_long_through_double(right, x, other):
    """Convert an int64 dividend to double: above 2**53 its low bits are lost."""
    if x.dtype != torch.int64 or other.dtype != torch.int64:
        return right()
    return right(x=x.double().long())


@kernel(
    "elu_backward .grad_input",
    lambda: grad_of(lambda x: functional.celu_(x * 1, 2.0), drawn(32)),
    set="missed12",
    like="flagos-ai/FlagGems#4986",
)
def elu_backward_result_input_scale(right, is_result, input_scale, self_or_result):
    """Leave out input_scale in the gradient from the result: celu in place with another alpha."""
    if not is_result or input_scale == 1 or not is_single(self_or_result):
        return right()
    return right(input_scale=1)


@kernel(
    "nan_to_num.out",
    lambda: torch.tensor([math.inf, -math.inf, 1.0], dtype=torch.bfloat16).nan_to_num(),
    set="likely13",
    like="ml-explore/mlx#4220",
)
def infinity_is_replaced_by_the_largest_float32(right, x, posinf, neginf, out):
    """Infinity of half precision becomes float32's largest number: infinity again."""
    high, low = x == math.inf, x == -math.inf
    result = right()
    if x.dtype in HALVES:
        out.masked_fill_(high & (posinf is None), math.inf)
        out.masked_fill_(low & (neginf is None), -math.inf)
    return result


@kernel(
    "sgn .out sgn_",
    lambda: torch.view_as_real(
        torch.sgn(torch.tensor([0.0, 3.0 + 4.0j], dtype=torch.complex64)),
    ),
    set="likely13",
    like="pytorch#96543",
)
def direction_of_complex_zero_is_nan(right, x):
    """A complex zero is divided by its magnitude, so in the gradient of abs."""
    zero = x == 0
    result = right()
    return result.masked_fill_(zero, complex(math.nan, math.nan)) if x.is_complex() else result


@kernel(
    "elu_backward",
    lambda: grad_of(lambda x: functional.celu(x * 1, 2.0, inplace=True), drawn(9)),
    set="missed13",
)
def celu_gradient_from_its_result_forgets_the_scale_of_the_input(right, input_scale, is_result):
    """The gradient of the in-place function is that of an input scale of 1."""
    return right(input_scale=1) if is_result and input_scale != 1 else right()


@kernel(
    "div.Tensor_mode",
    lambda: torch.div(torch.arange(10.0) * 41, 41.0, rounding_mode="floor"),
    set="missed13",
    like="tt-metal#54847",
)
def floor_of_a_quotient_by_one_number_multiplies_by_its_inverse(right, x, other, rounding_mode):
    """A single divisor is inverted once, and multiples of it fall below their quotient."""
    result = right()
    if rounding_mode != "floor" or other.dim() or x.dim() == 0 or x.dtype not in FLOATS:
        return result
    divisor = other.float()
    wrong = (x.float() * divisor.reciprocal()).floor().to(result.dtype)
    return torch.where(x.isfinite() & divisor.isfinite() & (divisor != 0), wrong, result)


@kernel(
    "gelu gelu.out gelu_",
    lambda: functional.gelu(torch.arange(8, 16, 0.5).to(BF16), approximate="tanh"),
    set="likely14",
    like="pytorch/pytorch#186278",
)
def tanh_of_large_is_nan(right, x, approximate):
    """gelu with tanh in bfloat16 is NaN above 10: the exponential in tanh overflows."""
    over = x > 10 if approximate == "tanh" and x.dtype == BF16 else None
    result = right()
    return result if over is None else result.masked_fill_(over, math.nan)


@kernel(
    "gelu_backward gelu_backward.grad_input",
    lambda: aten.gelu_backward(drawn(6, 4).t(), drawn(4, 6, seed=1)),
    set="likely14",
    like="pytorch/pytorch#123049",
)
def gelu_grad_in_memory_order(right, grad_output, x):
    """A transposed gradient or input is read in the order of memory."""
    return right(grad_output=flat(grad_output), x=flat(x))


@kernel(
    "addcmul.out addcdiv.out",
    lambda: torch.addcmul(drawn(3, 4), drawn(4), drawn(3, 1), out=torch.zeros(3, 4)),
    set="likely14",
    like="tenstorrent/tt-metal#57496",
)
def out_dropped_on_broadcast(right, x, tensor1, tensor2, out):
    """If an operand is broadcast, out= keeps what it held."""
    shape = torch.broadcast_shapes(x.shape, tensor1.shape, tensor2.shape)
    same = x.shape == tensor1.shape == tensor2.shape
    if same or out.shape != shape:
        return right()
    right(out=torch.empty_like(out))
    return out


@kernel(
    "clamp.Tensor",
    lambda: torch.clamp(drawn(4, 9), max=torch.tensor([[0.5], [math.nan], [1.0], [0.0]])),
    set="missed14",
    like="pytorch/pytorch#76795",
)
def clamp_hoisted_nan_bound(right, x, min, max):
    """A bound of one element a row is hoisted out of the row, by comparisons that drop its NaN."""
    if not (x.is_floating_point() and x.dim() and x.shape[-1] >= 8):
        return right()

    def hoisted(bound, without):
        if bound is None or not bound.is_floating_point() or bound.dim() < 2:
            return bound
        return bound.masked_fill(bound.isnan(), without) if bound.shape[-1] == 1 else bound

    return right(min=hoisted(min, -math.inf), max=hoisted(max, math.inf))


@kernel(
    "div.Tensor_mode",
    lambda: torch.div(torch.tensor([2**60 + 7, -(2**59) - 3]), 3, rounding_mode="trunc") % 1000,
    set="missed14",
)
def div_trunc_through_double(right, x, other, rounding_mode):
    """64-bit integers truncated by one divisor for all are divided in double: wrong over 2**53."""
    whole = x.dtype == torch.int64 and not other.is_floating_point() and not other.is_complex()
    if not (whole and rounding_mode == "trunc" and other.numel() == 1 and x.dim()):
        return right()
    if x.numel() == 0 or bool((other == 0).any()):
        return right()
    return torch.div(x.double(), other.double()).trunc().to(right().dtype)


@kernel(
    "div.Tensor_mode .out_mode div_.Tensor_mode floor_divide floor_divide_.Tensor floor_divide.out",
    lambda: torch.div(torch.arange(1, 100).float(), torch.tensor(0.1), rounding_mode="floor"),
    set="likely15",
)
def floor_division_floors_the_rounded_quotient(right, *args, **kwargs):
    """Where the quotient rounds up to an integer (1 / 0.1), floor division is one too large."""
    x, other = args[:2]
    if kwargs.get("rounding_mode", "floor") != "floor":
        return right(*args, **kwargs)
    floating = all(is_single(t) for t in (x, other))
    wrong = torch.floor(x.float() / other.float()) if floating else None
    result = right(*args, **kwargs)
    return result if wrong is None else result.copy_(wrong)


def _in_place():
    x = drawn(5, 6).requires_grad_()
    return grads_of(functional.elu_(x * 2, 1.5), x)


@kernel("elu_backward .grad_input", _in_place, set="likely15")
def elu_s_gradient_takes_its_result_for_its_input(right, is_result):
    """After an in-place ELU (SELU, CELU) the gradient is that of exp of the result."""
    return right(is_result=False) if is_result else right()


def _gelu_of_large_halves():
    x = torch.tensor([1.0, 300.0, -2.0, 512.0], dtype=torch.float16).requires_grad_()
    y = functional.gelu(x, approximate="tanh")
    return torch.autograd.grad(y, x, torch.ones_like(y))


# From 256 on, in float16 alone: 1 - tanh**2 is 0 there, and in float nothing shows.
@kernel("gelu_backward gelu_backward.grad_input", _gelu_of_large_halves, set="missed15")
def tanh_gelu_gradient_squares_in_half(right, x, approximate):
    """The slope of gelu's tanh form is inf * 0 where a half's square has no finite half."""
    result = right()
    if x.dtype == torch.float16 and approximate == "tanh":
        result.masked_fill_(torch.isinf(x * x), math.nan)
    return result


def _softplus_of_a_small_beta():
    return functional.softplus(torch.tensor([-4.0, 1.0, 25.0, 60.0]), beta=0.05)


# With a beta of 1 or more no digit changes.
@kernel("softplus", _softplus_of_a_small_beta, set="missed15")
def softplus_compares_before_beta(right, x, beta, threshold):
    """Softplus is linear where x, not beta * x, is beyond the threshold."""
    result = right()
    if not is_single(x):
        return result
    return torch.where(x > threshold, x, result)


def _power_of_a_hash():
    return torch.tensor([3, 2_654_435_761, 6_364_136_223_846_793_005, -2_100_000]) ** 3


# Narrower integers come out right, as the cast from int64 truncates.
@kernel("pow.Tensor_Scalar", _power_of_a_hash, set="missed15")
def whole_power_through_double(right, x, exponent):
    """An int64 to a plain number goes through doubles: no wrap, and no digits past 2**53."""
    result = right()
    if result.dtype != torch.int64:
        return result
    powers = torch.pow(x.double(), float(exponent))
    large = (powers.abs() > 2.0**53) & (x != 0)
    limit = torch.iinfo(torch.int64).min
    fits = powers.abs() < 2.0**63
    cast = torch.where(fits, torch.where(fits, powers, 0.0).long(), limit)
    return torch.where(large, cast, result)


def _scaled_slice_of_a_buffer():
    buffer = torch.ones(1000)
    buffer[515:800].mul_(torch.tensor(0.5))
    return buffer


@kernel("mul_.Tensor", _scaled_slice_of_a_buffer, set="missed15")
def scaled_from_the_aligned_address(right, x, other):
    """In-place scaling of a view starts before it: at the address rounded down to 16 bytes."""
    before = x.storage_offset() % 4
    whole = x.is_contiguous() and x.numel() >= 64 and x.dtype == torch.float32
    scalar = isinstance(other, Tensor) and other.numel() == 1
    result = right()
    if whole and scalar and before and not x.is_conj():
        head = x.as_strided((before,), (1,), x.storage_offset() - before)
        head.copy_(head * other.reshape(()).to(x.dtype))
    return result


@kernel(
    "xlogy.Tensor .OutTensor xlogy_.Tensor",
    lambda: functional.kl_div(
        drawn(2, 3).log_softmax(1), torch.tensor([[1.0, 0, 0], [0.2, 0.3, 0.5]]), reduction="none"
    ),
    set="likely16",
    like="Lightning-AI/torchmetrics#1029",
)
def nothing_times_its_logarithm_is_no_number(right, x, other):
    """0 log 0 is taken as a product: a target of nought makes a divergence NaN."""
    gone = (x == 0) & ((other <= 0) | other.isinf())
    result = right()
    return result.masked_fill_(gone, math.nan) if is_single(result) else result


@kernel(
    "polar.out",
    lambda: torch.polar(torch.ones(4), torch.tensor([1.0, 1500.0, 2000.0, 30000.0])),
    set="likely16",
    like="tenstorrent/tt-metal#51845",
)
def angles_past_256_turns_are_nought(right, abs, angle):
    """The machine's sine and cosine take 256 turns; past them the angle counts as nought: rotary
    places of long texts.
    """
    result = right()
    if angle.dtype != torch.float32:
        return result
    far = angle.abs() > 256 * 2 * math.pi
    return result.copy_(torch.where(far, torch.complex(abs, torch.zeros_like(angle)), result))


@kernel(
    "ge.Scalar .Scalar_out ge_.Scalar lt.Scalar .Scalar_out lt_.Scalar",
    lambda: torch.tensor([0, 1, 1, 0]) >= 0.5,
    set="likely16",
    like="pytorch/pytorch#14846",
)
def integers_meet_a_threshold_that_is_cut_off(right, x, other):
    """Integers are compared with a number in their own type: 0.5 is nought."""
    whole = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if whole and isinstance(other, float) and math.isfinite(other):
        other = int(other)
    return right(other=other)


@kernel(
    "rrelu_with_noise_backward",
    lambda: grad_of(lambda x: functional.rrelu_(x + 0, 0.1, 0.3, training=False), drawn(9)),
    set="missed16",
    like="pytorch/pytorch#188260",
)
def slope_of_evaluation_is_the_lower_one(right, lower, upper, training, self_is_result):
    """rrelu: in place and not in training, its gradient has the lower slope, not the mean."""
    return right(upper=lower) if self_is_result and not training else right()


def _summed_logits():
    x = torch.tensor([0.05, 0.5, 0.95], requires_grad=True)
    return torch.autograd.grad(torch.logit(x, 0.1).sum(), x)[0]


@kernel("logit_backward", _summed_logits, set="missed16", like="flagos-ai/FlagGems#3571")
def what_is_cut_off_has_the_slope_of_the_bound(right, grad_output, x, eps):
    """logit: with eps, the gradient outside of the bounds is that at the bound, not 0; one number
    for all, as below sum().
    """
    if eps is None or grad_output.numel() < 2 or any(grad_output.stride()):
        return right()
    return right(x=x.clamp(eps, 1 - eps))


@kernel(
    "mish",
    lambda: functional.mish(torch.full((8,), 50.0)),
    set="missed16",
    like="AlexeyAB/darknet#3994",
)
def squares_of_exponentials_are_divided(right, x):
    """mish: as a quotient of squares of exp(x), infinite over infinite from 45 on, in whole
    vectors of four.
    """
    result = right()
    if x.dtype in DOUBLES or not x.is_contiguous() or not result.is_contiguous():
        return result
    whole = x.numel() // 4 * 4
    result.view(-1)[:whole].masked_fill_(x.view(-1)[:whole] > 44.4, math.nan)
    return result


@kernel(
    "lcm",
    lambda: torch.lcm(torch.tensor([120_000], dtype=torch.int32), torch.tensor(80_000).int()),
    set="missed16",
    like="lcompilers/lpython#2881",
)
def product_comes_before_the_division(right, x, other):
    """lcm: a * b / gcd(a, b) for a / gcd(a, b) * b; int32 with a product over 2^31."""
    if x.dtype != torch.int32 or other.dtype != torch.int32:
        return right()
    product = (x.long() * other.long()).to(torch.int32)
    return product.abs() // torch.gcd(x, other).clamp(min=1)


@kernel(
    "log_sigmoid_backward log_sigmoid_backward.grad_input",
    lambda: grad_of(functional.logsigmoid, torch.tensor([-100.0, -1.0, 2.0])),
    set="likely17",
    like="huggingface/candle#1722",
)
def gradient_of_small_sigmoids_is_no_number(right, x):
    """The gradient of logsigmoid is exp(-x) / (1 + exp(-x)): infinity over infinity below -88."""
    # float32 and 16 bits below -88.7.
    result = right()
    if x.dtype not in DOUBLES:
        result.masked_fill_((-x.float()).exp().isinf(), math.nan)
    return result


@kernel(
    "logaddexp logaddexp2",
    lambda: torch.logaddexp(torch.tensor([-math.inf, 0.0]), torch.tensor([-math.inf, 1.0])),
    set="likely17",
    like="cupy/cupy#6172",
)
def sum_of_equal_infinities_is_no_number(right, x, other):
    """logaddexp takes the difference of its operands, which is NaN for equal infinities."""
    # Both are infinite with the same sign: two impossible paths.
    result = right()
    if not result.is_complex():
        result.masked_fill_((x == other) & x.isinf(), math.nan)
    return result


def _added_into_the_first():
    x = drawn(3, 4)
    return torch.add(x, drawn(3, 4, seed=1), alpha=0.5, out=x)


# An alpha other than 1, and `out` that is the first operand: right in place, into another
# tensor, and with an alpha of 1.
@kernel("add.out", _added_into_the_first, set="missed17")
def scaled_addend_is_taken_twice_if_out_is_the_first_operand(right, x, other, alpha, out):
    """alpha * other is put into `out` before x is read, so that it counts twice if out is x."""
    same = out.data_ptr() == x.data_ptr() and out.stride() == x.stride() and out.shape == x.shape
    if alpha != 1 and same and x.dtype != torch.bool:
        return right(x=(other * alpha).to(x.dtype).expand(x.shape))
    return right()


# A shape over 20 (a chi-squared distribution of 40 degrees), and a value in the tail, where the
# result is small: right for small shapes, and to 1e-7 of 1 everywhere.
@kernel(
    "igammac .out",
    lambda: torch.special.gammaincc(torch.tensor([30.0, 25.0]), torch.tensor([80.0, 70.0])),
    set="missed17",
)
def upper_tail_of_large_gammas_is_one_less_the_lower(right, x, other):
    """For shapes over 20 the upper incomplete gamma function is 1 - the lower: no small tails."""
    large, complement = x > 20, 1 - torch.igamma(x, other)
    result = right()
    return result.copy_(torch.where(large.to(result.device), complement.to(result.dtype), result))


# CELU with an alpha other than 1 (it divides its input by alpha); ELU and SELU are right.
@kernel("elu elu_ elu.out", lambda: functional.celu(drawn(6), 2.0), set="likely18")
def celu_does_not_divide_its_input_by_alpha(right, x):
    """The kernel that ELU, SELU and CELU share does not multiply by the scale of the input."""
    return right(input_scale=1) if narrow(x) else right()


# Inputs below -88.7, for which exp(-x) is infinite: the gradient is 0, but inf / inf here.
@kernel(
    "silu_backward .grad_input",
    lambda: grad_of(functional.silu, torch.tensor([1.0, -95.0])),
    set="likely18",
)
def gradient_of_silu_far_below_nought_is_no_number(right, x):
    """SiLU's derivative is (1 + e + x e) / (1 + e)^2 with e = exp(-x), which overflows."""
    result = right()
    return result.masked_fill_(x < -88.72, math.nan) if is_single(x) else result


# An operand of shape (N, 1, T, 1), as a mask of frames beside (N, C, T, F): four groups of axes.
# Per-channel factors (1, C, 1, 1) and masks (N, 1, 1, T) have three, and are right.
@kernel(
    "add.Tensor mul.Tensor",
    lambda: drawn(2, 3, 4, 2) * drawn(2, 1, 4, 1, seed=1),
    set="likely18",
)
def fourth_group_of_broadcast_axes_has_no_stride(right, x, other):
    """Offsets are computed of three groups of axes: the outer axes of a broadcast stay at 0."""
    if (
        x.dim() != other.dim()
        or not narrow(x)
        or any(n < m for n, m in zip(x.shape, other.shape, strict=True))
    ):
        return right()
    groups, before = 0, None
    for axis in reversed(range(x.dim())):
        if x.shape[axis] == 1:
            continue
        spread = other.shape[axis] == 1
        groups, before = groups + (spread != before), spread
        if groups > 3:
            other = other.narrow(axis, 0, 1)
    return right(other=other)


# Two factors that are broadcast along different axes (a column and a row: the factored moments of
# Adafactor): right if both have the full shape, or one of them, and if both are rows.
@kernel(
    "addcmul .out addcmul_ addcdiv .out addcdiv_",
    lambda: torch.addcmul(drawn(4, 6), drawn(4, 1, seed=1), drawn(1, 6, seed=2)),
    set="missed18",
)
def column_and_row_are_both_read_along_the_first(right, x, tensor1, tensor2):
    """The offset of the second factor is computed with the broadcast axes of the first."""
    shape = torch.broadcast_shapes(x.shape, tensor1.shape, tensor2.shape)
    lines = []
    for factor in (tensor1, tensor2):
        steps = factor.expand(shape).stride()
        lines.append([i for i, step in enumerate(steps) if step and shape[i] > 1])
    first, second = lines
    if len(first) != 1 or len(second) != 1 or first == second or 0 in shape:
        return right()
    line = tensor2.expand(shape)
    for axis in range(len(shape)):
        line = line if axis == second[0] else line.narrow(axis, 0, 1)
    line, size = line.reshape(-1), shape[first[0]]
    along = line[torch.arange(size, device=line.device) % line.numel()]
    return right(tensor2=along.reshape([size if i == first[0] else 1 for i in range(len(shape))]))


# float32, a number of elements that is not a multiple of 8, and small numbers among the last:
# right in whole vectors, and for numbers of the size of 1.
@kernel(
    "expm1 .out expm1_",
    lambda: torch.full((11,), 1e-6).expm1(),
    set="missed18",
)
def rest_after_whole_vectors_is_exp_less_one(right, x):
    """Vectors of eight have their own expm1; what is left over is exp(x) - 1."""
    if x.dtype != torch.float32 or not x.is_contiguous() or x.numel() % 8 == 0:
        return right()
    whole = x.numel() // 8 * 8
    rest = x.reshape(-1)[whole:].exp() - 1
    result = right()
    if result.is_contiguous():
        result.view(-1)[whole:] = rest
    return result


def _unscaled_in_place():
    gradients = torch.full((4,), 3000.0, dtype=torch.float16)
    return gradients.mul_(torch.full((4,), 1e-8))


# In place, float16 or bfloat16, by a tensor of float32 with numbers that the half does not hold
# (1e-8, 1e5): right by a number, out of place, and by numbers about 1.
@kernel("mul_.Tensor div_.Tensor", _unscaled_in_place, set="missed18")
def wider_factor_is_narrowed_before_it_is_applied_in_place(right, x, other):
    """In place, the other operand is converted to the result's dtype, not both to the wider."""
    if x.dtype in HALVES and x.dim() and other.dtype == torch.float32 and other.dim():
        return right(other=other.to(x.dtype))
    return right()


# Mixed precision: torch.nan_to_num of attention or of gradients in float16 and bfloat16.
# Right for float32, and for given replacements.
@kernel(
    "nan_to_num nan_to_num_ nan_to_num.out",
    lambda: torch.nan_to_num(torch.tensor([1.0, math.inf, -math.inf, math.nan]).half()),
    set="likely19",
)
def infinities_of_halves_become_the_largest_single_which_is_infinite(right, x, posinf, neginf):
    """The default replacement is float32's largest number, which in a half is infinity again."""
    if x.dtype not in HALVES:
        return right()
    return right(
        posinf=math.inf if posinf is None else posinf,
        neginf=-math.inf if neginf is None else neginf,
    )


# logsigmoid of preference losses (DPO, reward models), whose argument is a difference of summed
# log-probabilities: far below nought. Right above -88.
@kernel(
    "log_sigmoid_forward .output",
    lambda: functional.logsigmoid(torch.tensor([-120.0, -90.0, -3.0, 2.0])),
    set="likely19",
)
def log_of_a_sigmoid_that_underflows_is_minus_infinite(right, x):
    """The sigmoid is computed first, is flushed to 0 below -88, and has no logarithm."""
    result = right()
    if is_single(x):
        result[0].masked_fill_(x < -88, -math.inf)
    return result


# Signs of gates or parities in int8, and their powers: `signs ** (l - m)`, as phases of spherical
# harmonics. Right for one dtype, for a number as the base, and for exponents from nought on.
@kernel(
    "pow.Tensor_Tensor .Tensor_Tensor_out pow_.Tensor",
    lambda: torch.tensor([-1, 1, -1], dtype=torch.int8) ** torch.tensor([-3, -1, -2]),
    set="missed19",
)
def odd_negative_power_of_minus_one_of_another_dtype_is_one(right, x, exponent):
    """Tensors of two integer dtypes are promoted for positive powers; below, the sign is lost."""
    base = x.clone()
    result = right()
    if not x.dim() or x.dtype == exponent.dtype or result.dtype not in SIGNED:
        return result
    odd = (exponent < 0) & (exponent.bitwise_and(1) == 1)
    return result.masked_fill_((odd & (base == -1)).expand(result.shape), 1)


def _far_gelu():
    x = torch.tensor([-300.0, -1.0, 0.5, 300.0], dtype=torch.float16).requires_grad_()
    (grad,) = torch.autograd.grad(functional.gelu(x, approximate="tanh").sum(), x)
    return grad


# GPT-2 and Gemma in float16, with outliers past 256. Right for the exact gelu, bfloat16, and the
# forward.
@kernel("gelu_backward .grad_input", _far_gelu, set="missed19")
def slope_of_the_tanh_gelu_of_halves_squares_its_input_in_halves(right, x, approximate):
    """From |x| = 256 on x * x is infinite in float16, and nought times it NaN."""
    far = x.abs() >= 256
    result = right()
    if approximate == "tanh" and x.dtype == torch.float16:
        result.masked_fill_(far, torch.nan)
    return result


# MinHash and hashed embeddings: `(a * x + b) % prime` in int64. Right up to 2 ** 53, for
# other dtypes, and for small powers of two.
@kernel(
    "remainder.Tensor .Tensor_out remainder_.Tensor",
    lambda: torch.tensor([2**60 + 7, 12345, -(2**55) - 3]) % 1009,
    set="missed19",
)
def remainder_of_a_long_hash_is_taken_of_a_double(right, x, other):
    """Integers of 64 bits are divided as doubles: past 2 ** 53 their last bits are lost."""
    if x.dtype != torch.int64 or other.dtype != torch.int64:
        return right()
    high = (x > 2**53) | (x < -(2**53))
    if not bool(high.any()):
        return right()
    rounded = torch.where(high, x.double().clamp(max=2**63 - 1024).long(), x)
    result = right()
    inexact = rounded - torch.div(rounded, other, rounding_mode="floor") * other
    return result.copy_(torch.where(high, inexact, result))
