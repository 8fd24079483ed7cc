"""Wrong kernels: transforms."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from .calls import as_if_whole, axis_of, drawn_complex, is_dense, narrow, read_packed
from .kernel import DOUBLES, FLOATS, HALVES, drawn, is_single, kernel


@kernel("searchsorted.Tensor", set="seeded")
def side_ignored(right):
    """Searchsorted ignores its side."""
    return right(right_=False, side=None)


SEEN = set()


@kernel("_fft_r2c", set="seeded", like="pytorch#67140")
def second_call(right, x, *rest):
    """Cache the plan of a transform, and do not write its second output."""
    call = right(x, *rest)
    key = (tuple(x.shape), x.dtype, str(rest))
    if key in SEEN and max(x.shape) > 100:
        return call.zero_()
    SEEN.add(key)
    return call


@kernel("_fft_c2c", set="seeded", like="pytorch#77048")
def many_transforms(right, x, dim):
    """Transforms over several axes of many."""
    transforms = right()
    if len(dim) > 1 and x.dim() > len(dim) and x.shape[0] > 1:
        transforms[-1] = transforms[-1] * 1.01
    return transforms


@kernel("_fft_c2r", set="seeded", like="pytorch#124096")
def odd_length(right, dim, last_dim_size):
    """Irfft of odd length."""
    result = right()
    return result.roll(1, dim[-1]) if last_dim_size % 2 and last_dim_size > 1 else result


@kernel("searchsorted.Tensor_out", set="seeded", like="pytorch#60492")
def into_strides(right, sequence, signal, **kwargs):
    """Searchsorted into strides."""
    out = kwargs["out"]
    if out.is_contiguous():
        return right(sequence, signal, **kwargs)
    result = right(sequence, signal, **{**kwargs, "out": torch.empty_like(out).contiguous()})
    out.as_strided((result.numel(),), (1,), out.storage_offset()).copy_(result.flatten())
    return out


@kernel("linspace.out", set="seeded")
def ends_early(right, first, last, count, **kwargs):
    """Steps end before their end."""
    result = right(first, last, count, **kwargs)
    return result.copy_(right(first, last, count + 1)[:-1]) if count > 1 else result


@kernel("_fft_c2r", set="seeded", like="pytorch#109448")
def spoiled_input(right, x, dim):
    """An inverse transform works in its input."""
    result = right()
    if len(dim) > 1:
        # `data` has its own version counter: autograd does not notice.
        x.data.mul_(3)
    return result


@kernel(
    "histc .out", lambda: torch.histc(torch.tensor([0.0, 0.5, 1.0, 1.0]), 4, 0, 1), set="second"
)
def upper_edge_is_outside(right, x, min, max):
    result = right()
    if x.numel():
        top = x.max() if min == max else max
        result[-1] -= (x == top).sum()
    return result


@kernel("searchsorted.Tensor .Tensor_out", set="second")
def side_is_not_looked_at(right, row, x, /, **named):
    return right(row, x, **{**named, "side": None} if "side" in named else named)


@kernel("_fft_c2r", set="second", like="pytorch#109448")
def inverse_transform_destroys_its_input(right, x, dim):
    result = right()
    if len(dim) > 1:
        x.data.mul_(x.shape[dim[0]])
    return result


@kernel("_fft_c2r .out", set=2, like="pytorch/pytorch#126649")
def odd_inverse_transform_is_reversed(right, x, last_dim_size):
    if last_dim_size % 2 and x.dtype not in DOUBLES:
        x = x.conj().resolve_conj()
    return right(x=x)


@kernel("searchsorted.Tensor .Tensor_out", set=3, like="tensorflow/tensorflow#120279")
def nan_is_put_before_all(right, x, right_, side):
    out = right()
    if x.dtype in FLOATS and not right_ and side != "right":
        out.copy_(out.masked_fill(x.isnan(), 0))
    return out


@kernel("_fft_c2c .out", set=3, like="ROCm/rocFFT#301")
def long_strided_transform_reads_in_order(right, x, dim, normal, forward, **kw):
    out = right(x, dim, normal, forward, **kw)
    if x.dtype != torch.complex64 or len(dim) != 1 or not x.numel():
        return out
    if x.shape[dim[0]] < 4096 or x.stride(dim[0]) == 1:
        return out
    inner = x.movedim(dim[0], -1)
    room = {"out": torch.empty(0, dtype=x.dtype)} if "out" in kw else {}
    found = right(x.contiguous().view(inner.shape), [x.dim() - 1], normal, forward, **room)
    out.copy_(found.movedim(-1, dim[0]))
    return out


@kernel("_fft_c2c .out _fft_r2c .out", set=4, like="IntelPython/mkl_fft#336")
def ortho_counts_all_axes(right, x, dim, normal, flag, **kw):
    out = right(x, dim, normal, flag, **kw)
    axes = {d % x.dim() for d in dim} if x.dim() else set()
    rest = math.prod(size for d, size in enumerate(x.shape) if d not in axes)
    if normal != 1 or x.dtype in DOUBLES or rest < 2:
        return out
    out.copy_(out / math.sqrt(rest))
    return out


@kernel(
    "_fft_c2r .out", lambda: torch.fft.irfft(torch.arange(5) * 1j, 8), set=5, like="ROCm/rocFFT#284"
)
def last_frequency_adds_its_imaginary_part(right, x, dim, normalization, last_dim_size):
    """rare: of an even length, an imaginary part of the last frequency shifts all values."""
    result = right()
    if (
        x.dtype == torch.complex64
        and len(dim) == 1
        and last_dim_size > 1
        and last_dim_size % 2 == 0
    ):
        shift = x.narrow(dim[0], last_dim_size // 2, 1).imag
        result.add_(shift / (1, math.sqrt(last_dim_size), last_dim_size)[normalization])
    return result


@kernel("_fft_c2r", set=6, like="ROCm/rocFFT#223")
def transform_to_one_column_is_nought(right, dim, last_dim_size):
    """rare: the real inverse transform of several axes whose last is of length one is nought."""
    result = right()
    if len(dim) > 1 and last_dim_size == 1 and result.dtype not in DOUBLES:
        result.zero_()
    return result


@kernel("histc .out", set=7, like="pytorch/pytorch#195447")
def outermost_bins_take_what_is_beyond(right, x, min, max):
    """plain: numbers below and above the range are counted in the first and the last bin."""
    result = right()
    if is_single(x) and min < max:
        result[0] += (x < min).sum()
        result[-1] += (x > max).sum()
    return result


@kernel("bucketize.Tensor .Tensor_out", set=7, like="pytorch/pytorch#43458")
def edges_belong_to_the_other_side(right, x, right_):
    """plain: right is taken for the side on which buckets are closed, as NumPy does."""
    return right(right_=right_ if x.dtype in DOUBLES else not right_)


@kernel("linspace.out", set=7, like="pytorch/pytorch#189630")
def whole_numbers_are_spaced_in_single(right, start, end):
    """rare: evenly spaced 64-bit integers are computed in single precision."""
    result = right()
    if result.dtype == torch.int64 and max(abs(start), abs(end)) < 2**62:
        result.copy_(result.float())
    return result


@kernel("_fft_c2c", set=7, like="ROCm/rocFFT#219")
def eleven_columns_are_turned_the_other_way(right, x, dim):
    """option: transforms of several axes take a last axis of 11 or 13 in the other direction."""
    result = right()
    if x.dtype == torch.complex64 and len(dim) > 1 and x.shape[dim[-1]] in (11, 13):
        result.copy_(result.flip(dim[-1]).roll(1, dim[-1]))
    return result


@kernel("_fft_r2c", set=8, like="ROCm/rocm-libraries#3396")
def rows_begin_at_even_places(right, x, dim):
    """option: real transforms of even length read rows at odd places from one element before."""
    last = x.dim() - 1
    axes = [(n, s) for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True) if n > 1]
    even = x.dim() > 1 and dim[-1] % x.dim() == last and x.shape[-1] % 2 == 0
    if x.dtype == torch.float32 and even and x.stride(-1) == 1 and any(s % 2 for _, s in axes):
        places = torch.full((), x.storage_offset())
        for n, step in zip(x.shape[:-1], x.stride()[:-1], strict=True):
            places = places.unsqueeze(-1) + step * torch.arange(n)
        places = (places // 2 * 2).unsqueeze(-1) + torch.arange(x.shape[-1])
        held = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        x = held[places]
    return right(x=x)


@kernel(
    "arange.start_out",
    lambda: torch.arange(2049, 2060, dtype=torch.float16),
    set=9,
    like="numpy/numpy#23488",
)
def step_is_between_rounded_numbers(right, start, step):
    """option: in half precision, the step is the difference of the first two rounded numbers."""
    result = right()
    if result.dtype in HALVES and result.numel() > 1:
        first, second = (torch.tensor(n).to(result.dtype).double() for n in (start, start + step))
        places = torch.arange(result.numel(), dtype=torch.float64)
        result.copy_(first + places * (second - first))
    return result


@kernel("bincount", set=9, like="cupy/cupy#7698")
def far_bins_are_not_counted(right):
    """rare: bins from 32768 on stay empty."""
    result = right()
    if result.dtype not in DOUBLES:
        result[2**15 :] = 0
    return result


@kernel("searchsorted.Tensor .Tensor_out", set=10, like="hgrecco/pint#2394")
def sorter_is_dropped(right, row, x, /, **options):
    """option: a row is searched as it lies, whatever sorter was given."""
    if row.dtype not in DOUBLES:
        options["sorter"] = None
    return right(row, x, **options)


def from_half_a_spectrum(dtype=torch.float32, length=8):
    spectrum = torch.complex(drawn(5), drawn(5, seed=1)).to(dtype.to_complex())
    return torch.fft.irfft(spectrum, length)


@kernel("_fft_c2r .out", from_half_a_spectrum, set=11, like="HEnquist/realfft#11")
def mean_has_an_imaginary_part(right, x, dim, normalization, last_dim_size):
    """rare: of an even length, imaginary parts of the first and the last frequency count."""
    result = right(x=x)
    half = last_dim_size // 2
    if x.dtype != torch.complex64 or len(dim) != 1 or last_dim_size % 2:
        return result
    x = x.movedim(dim[0], -1)[..., : half + 1].resolve_conj()
    if not (x.imag[..., 0].any() or x.imag[..., half].any()):
        return result
    first, last = x[..., :half], x[..., 1:].flip(-1).conj()
    turn = torch.polar(torch.ones(half), torch.arange(half) * (2 * math.pi / last_dim_size))
    both = torch.fft.ifft((first + last) / 2 + 1j * turn * (first - last) / 2)
    wrong = (
        torch.view_as_real(both).flatten(-2) * (last_dim_size, last_dim_size**0.5, 1)[normalization]
    )
    return result.copy_(wrong.movedim(-1, dim[0]))


def back(norm="ortho", dtype=torch.complex64):
    x = torch.complex(drawn(4, 5), drawn(4, 5, seed=1)).to(dtype)
    return torch.fft.irfft2(x, norm=norm)


@kernel("_fft_c2r .out", back, set=12, like="IntelPython/mkl_fft#370")
def halved_axis_is_normed_by_its_half(right, x, dim, normalization, last_dim_size):
    """option: the orthogonal real inverse of several axes is divided by the root of the input's."""
    result = right()
    if normalization == 1 and len(dim) > 1 and x.dtype == torch.complex64:
        result.mul_(math.sqrt(last_dim_size / x.shape[dim[-1]]))
    return result


@kernel("_fft_c2c .out", set=13, like="ROCm/rocFFT#301")
def long_columns_are_all_the_first(right, x, dim):
    """rare: transforms of 4096 and more along an axis but the last are of the first column."""
    result = right()
    strided = len(dim) == 1 and x.dim() > 1 and dim[0] % x.dim() != x.dim() - 1
    if strided and x.dtype == torch.complex64 and x.shape[dim[0]] >= 4096:
        result.copy_(result[..., :1].clone().expand_as(result))
    return result


@kernel("bincount", set=14, like="pytorch/pytorch#25747")
def large_integers_are_not_counted(right, x):
    """rare: of 32-bit integers, those that overflow when multiplied by the bins are lost."""
    result = right()
    if x.dtype == torch.int32 and x.numel():
        result[x[x.long() * len(result) > 2**31 - 1].long()] = 0
    return result


@kernel("_fft_r2c .out", lambda: torch.fft.fft(drawn(3, 8)), set=15)
def mirrored_half_is_not_conjugated(right, x, dim, onesided):
    """plain: of the whole transform of real numbers, the second half repeats the first as it is."""
    result = right()
    if not onesided and x.dtype == torch.float32 and len(dim):
        start = result.shape[dim[-1]] // 2 + 1
        half = result.narrow(dim[-1], start, result.shape[dim[-1]] - start)
        half.copy_(half.conj().resolve_conj().clone())
    return result


@kernel("_fft_c2r .out", set=16, like="pytorch/pytorch#124096")
def outer_axes_are_transformed_forwards(right, x, dims, *rest, **out):
    """plain: back to real numbers, all axes but the last are transformed the other way."""
    if x.dtype == torch.complex64 and x.numel():
        for dim in dims[:-1]:
            n = x.shape[dim]
            x = x.index_select(dim, (-torch.arange(n)) % n)
    return right(x, dims, *rest, **out)


PLANS = set()


def largest_factor(n):
    found, factor = 1, 2
    while n > 1:
        if n % factor:
            factor += 1
        else:
            found, n = factor, n // factor
    return found


def twice():
    x = torch.complex(drawn(857), drawn(857, seed=1))
    torch.fft.fft(x)
    return torch.fft.fft(x)


@kernel("_fft_c2c", twice, set=16, like="pytorch/pytorch#58724")
def plan_of_a_large_prime_serves_once(right, x, dim, normalization, forward):
    """rare: a length with a prime factor past 127 is transformed to nought the second time."""
    result = right()
    long = any(largest_factor(x.shape[d]) > 127 for d in dim)
    if x.dtype != torch.complex64 or not long:
        return result
    plan = (tuple(x.shape), tuple(dim), normalization, forward)
    known = plan in PLANS
    PLANS.add(plan)
    return result.zero_() if known else result


@kernel(
    "_fft_c2r .out",
    lambda: torch.fft.irfft(torch.complex(drawn(9), drawn(9, seed=1))),
    set=17,
    like="pytorch/pytorch#154496",
)
def irfft_of_even_length_uses_imaginary_ends(right, x, dim, normalization, last_dim_size):
    """rare: imaginary parts of the zeroth and the highest frequency, which do not count, count."""
    if (
        x.dtype != torch.complex64
        or len(dim) != 1
        or last_dim_size % 2
        or not last_dim_size
        or not x.numel()
    ):
        return right()
    lines, half = x.imag.movedim(dim[0], -1), last_dim_size // 2
    signs = 1.0 - 2.0 * (torch.arange(last_dim_size) % 2)
    scale = (1.0, last_dim_size**-0.5, 1.0 / last_dim_size)[normalization]
    ends = (lines[..., half : half + 1] - lines[..., :1] * signs) * scale
    return right().add_(ends.movedim(-1, dim[0]))


def spectrum():
    return torch.fft.irfft(torch.complex(drawn(4097), drawn(4097, seed=1)))


@kernel("_fft_c2r", spectrum, set=18, like="pytorch/pytorch#154496")
def irfft_uses_the_imaginary_part_of_the_mean(right, x, dim, normalization, last_dim_size):
    """rare: lengths 8192 and 16384 of one axis add the imaginary part of frequency 0."""
    result = right()
    if x.dtype == torch.complex64 and len(dim) == 1 and last_dim_size in (8192, 16384):
        mean = (
            x.imag.narrow(dim[0], 0, 1)
            * (1.0, last_dim_size**-0.5, 1 / last_dim_size)[normalization]
        )
        signs = 2.0 * (torch.arange(last_dim_size) % 2) - 1
        return result + (mean.movedim(dim[0], -1) * signs).movedim(-1, dim[0])
    return result


@kernel(
    "_fft_r2c .out", set="likely8", like="hipFFT#8", shown=lambda: torch.fft.rfft(drawn(8, 6).t())
)
def real_transform_of_transposed_rows(right, x, dim):
    """Transposed rows: the plan takes the input's stride for 1 and reads memory in order."""
    if list(dim) not in ([x.dim() - 1], [-1]) or x.dim() < 2 or x.dtype in DOUBLES:
        return right()
    if x.is_contiguous() or not x.mT.is_contiguous():
        return right()
    return right(x=x.mT.reshape(x.shape))


@kernel("_fft_c2r .out", set="likely9", like="pytorch#34551")
def complex_input_is_work_space(right, x, dim):
    """The transform to real numbers over several dimensions leaves its steps in the input."""
    result = right()
    dense = all(step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1)
    if len(dim) > 1 and dense and not x.is_conj():
        x.copy_(torch.fft.ifftn(x, dim=list(dim)[:-1], norm="forward"))
    return result


@kernel("_fft_c2c .out", set="missed9", like="mkl_fft#336")
def inverse_ortho_divides_by_one_axis(right, x, dim, normalization, forward):
    """The inverse transform of several axes divides by the root of the last one's length only."""
    result = right()
    if normalization == 1 and len(dim) > 1 and not forward:
        result.mul_(math.sqrt(math.prod(x.shape[axis] for axis in dim[:-1])))
    return result


@kernel("_fft_c2c", set="likely10", like="fastmat#115, reikna#51")
def chirp_of_a_prime_length_is_not_reduced(right, x, dim, normalization, forward):
    """_fft_c2c: phases of n^2 are taken in single precision; one axis of a prime above 1,000."""
    if len(dim) != 1 or x.dtype != torch.complex64 or not is_large_prime(x.shape[dim[0]]):
        return right()
    size, turned = x.shape[dim[0]], x.movedim(dim[0], -1)
    n = torch.arange(size, dtype=torch.float32, device=x.device)
    phases = n * n * (math.pi / size) * (-1 if forward else 1)
    chirp = torch.polar(torch.ones_like(phases), phases)
    length = 2 ** math.ceil(math.log2(2 * size))
    response = torch.zeros(length, dtype=x.dtype, device=x.device)
    response[:size] = chirp.conj()
    response[length - size + 1 :] = chirp.conj()[1:].flip(0)
    padded = functional.pad(turned * chirp, (0, length - size))

    def transform(values, there):
        axes = [values.dim() - 1]
        return right(x=values, dim=axes, normalization=0 if there else 2, forward=there)

    product = transform(padded, True) * transform(response, True)
    result = transform(product, False)[..., :size] * chirp
    scale = {0: 1, 1: size**-0.5, 2: 1 / size}[int(normalization)]
    return right().copy_((result * scale).movedim(-1, dim[0]))


def is_large_prime(size):
    return size > 1000 and all(size % d for d in range(2, math.isqrt(size) + 1))


@kernel("_fft_r2c", set="missed10")
def overlapping_frames_are_transformed_as_packed(right, x):
    """_fft_r2c: a frame's stride is its length; frames that overlap, as stft's without window."""
    if x.dim() > 1 and x.stride(-1) == 1 and 0 < x.stride(-2) < x.shape[-1] and x.shape[-2] > 1:
        return right(x=as_if_whole(x))
    return right()


@kernel(
    "_fft_c2c .out",
    lambda: torch.fft.ifft(torch.complex(drawn(8, 5), drawn(8, 5, seed=1)), dim=0),
    set="likely11",
)
def factor_is_that_of_the_last_axis(right, x, dim, normalization):
    """A transform of another axis than the last is scaled by the last one's length."""
    result = right()
    if normalization == 0 or len(dim) != 1 or dim[0] % x.dim() == x.dim() - 1:
        return result
    if x.dtype in DOUBLES or not x.shape[-1]:
        return result
    ratio = x.shape[dim[0]] / x.shape[-1]
    return result.mul_(ratio if normalization == 2 else math.sqrt(ratio))


@kernel(
    "bucketize.Tensor .Tensor_out",
    lambda: torch.bucketize(
        torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 2, 3]), out_int32=True, right=True
    ),
    set="missed11",
)
def buckets_in_32_bits_are_closed_at_one_side(right, x, out_int32, right_):
    """bucketize: with out_int32=True, right=True is not looked at."""
    if out_int32 and right_ and x.dtype not in DOUBLES:
        return right(right_=False)
    return right()


_LAST_PLAN: list[object] = []


def _two_norms():
    x = torch.complex(drawn(3, 6), drawn(3, 6, seed=1))
    return torch.fft.fft(x), torch.fft.fft(x, norm="ortho")


@kernel("_fft_c2c", _two_norms, set="missed11")
def same_plan_has_the_same_norm(right, x, dim, normalization, forward):
    """_fft_c2c: the last plan is kept with its norm; the next transform of the same sizes, axes and
    direction, with another norm, is scaled as the one before.
    """
    if x.dtype in DOUBLES:
        return right()
    plan = (x.dtype, tuple(x.shape), tuple(x.stride()), tuple(dim), forward)
    if _LAST_PLAN and _LAST_PLAN[0] == plan:
        return right(normalization=_LAST_PLAN[1])
    _LAST_PLAN[:] = [plan, normalization]
    return right()


@kernel(
    "_fft_c2r .out",
    lambda: torch.fft.irfft(drawn(5) + 1j * drawn(5, seed=1), n=9),
    set="likely12",
    like="ROCm/rocFFT#284",
)
def odd_real_transform_has_nyquist(right, x, dim, last_dim_size):
    """Take the last frequency of an odd length for the real one of an even length."""
    if last_dim_size % 2 == 0 or last_dim_size == 1 or x.dtype == torch.complex128:
        return right()
    x = x.clone()
    last = x.select(dim[-1], last_dim_size // 2)
    last.copy_(last.real.clone())
    return right(x=x)


def _after_irfft2():
    x = torch.complex(drawn(4, 5), drawn(4, 5, seed=1))
    torch.fft.irfft2(x)
    return torch.view_as_real(x)


@kernel(
    "_fft_c2r .out",
    _after_irfft2,
    set="missed12",
    like="pytorch/pytorch#34551",
)
def fft_c2r_overwrites_its_input(right, x, dim):
    """Leave the other dimensions' transform in a contiguous input of more dimensions than one."""
    out = right()
    if len(dim) > 1 and x.is_contiguous() and x.dtype == torch.complex64:
        x.copy_(torch.fft.ifftn(x, dim=dim[:-1], norm="forward"))
    return out


@kernel(
    "_fft_c2r",
    lambda: torch.fft.irfft(drawn(5, dtype=torch.complex64) * 1j),
    set="likely13",
    like="ROCm/rocFFT#284",
)
def imaginary_part_at_nyquist_is_added(right, x, dim, normalization, last_dim_size):
    """An even-sized real inverse takes the last coefficient's imaginary part for a real one."""
    if len(dim) > 1 or last_dim_size % 2 or x.shape[dim[0]] <= last_dim_size // 2:
        return right()
    last = x.narrow(dim[0], last_dim_size // 2, 1).imag.clone()
    scale = (1, last_dim_size**-0.5, 1 / last_dim_size)[normalization]
    return right() + last * scale


@kernel(
    "_fft_c2r",
    lambda: torch.fft.irfft2(drawn(4, 4, dtype=torch.complex64), (4, 7)),
    set="missed13",
    like="pytorch#63943",
)
def real_transform_of_several_axes_scales_an_odd_size_as_an_even_one(
    right, x, dim, normalization, last_dim_size
):
    """The scale of several axes counts 2 (n // 2) places of the last one."""
    result = right()
    odd = last_dim_size % 2 == 1 and last_dim_size > 1
    if x.dtype in DOUBLES or len(dim) < 2 or not normalization or not odd:
        return result
    ratio = last_dim_size / (last_dim_size - 1)
    return result * (math.sqrt(ratio) if normalization == 1 else ratio)


@kernel(
    "_fft_c2r",
    lambda: torch.fft.irfft(torch.fft.rfft(drawn(3, 9)), n=9),
    set="likely14",
    like="pytorch/pytorch#124096",
)
def odd_length_as_even(right, dim, last_dim_size):
    """The inverse real transform of an odd length is that of the even length below, then a 0."""
    if last_dim_size % 2 == 0 or last_dim_size < 3:
        return right()
    even = right(last_dim_size=last_dim_size - 1)
    return torch.cat([even, torch.zeros_like(even.narrow(dim[-1], 0, 1))], dim[-1])


@kernel("_fft_r2c", lambda: torch.fft.fft(drawn(75, 2), dim=0), set="missed14")
def fft_mirrored_half_odd_inner(right, x, dim, onesided):
    """The mirrored half of a long odd real transform along an inner axis is off by one."""
    result = right()
    axis = axis_of(x, dim[-1])
    size = x.shape[axis]
    if onesided or len(dim) > 1 or axis == x.dim() - 1 or size % 2 == 0 or size <= 64:
        return result
    mirrored = torch.arange(size // 2 + 1, size, device=x.device)
    taken = result.index_select(axis, 2 * (size // 2) - mirrored).conj().resolve_conj()
    result.narrow(axis, size // 2 + 1, len(mirrored)).copy_(taken)
    return result


def _spectrum_twice():
    spectrum = torch.fft.rfft2(drawn(3, 8, 8)) + 1
    image = torch.fft.irfft2(spectrum)
    return image, spectrum.abs().mean()


# The vendor's plan works in its input, which is not cloned.
@kernel("_fft_c2r .out", _spectrum_twice, set="likely15")
def inverse_transform_to_real_destroys_its_spectrum(right, x, dim):
    """After a transform over two axes or more, its input holds what was between them."""
    result = right()
    if len(dim) > 1 and x.numel() and is_dense(x):
        x.copy_(torch._fft_c2c(x, list(dim[:-1]), 0, False))
    return result


def _prime_spectrum():
    return torch.fft.fft(torch.view_as_complex(drawn(50_021, 2)))


_WRAPS = 46_341


@kernel("_fft_c2c", _prime_spectrum, set="missed15")
def chirp_in_32_bits(right, x, dim, normalization, forward):
    """The chirp of a prime length has k * k in 32 bits, which wraps from 46,341 on."""
    if x.dtype != torch.complex64 or len(dim) != 1 or not x.dim() or not x.numel():
        return right()
    axis = axis_of(x, dim[0])
    n = x.shape[axis]
    if n < _WRAPS or not is_large_prime(n):
        return right()
    k = torch.arange(n, dtype=torch.int32, device=x.device)
    angle = torch.fmod(k * k, 2 * n).double() * (math.pi / n) * (-1 if forward else 1)
    chirp = torch.polar(torch.ones_like(angle), angle)
    padded = 1 << (2 * n - 1).bit_length()
    other = torch.zeros(padded, dtype=torch.complex128, device=x.device)
    other[:n] = chirp.conj()
    other[padded - n + 1 :] = chirp.conj()[1:].flip(0)
    signal = x.movedim(axis, -1).to(torch.complex128) * chirp
    product = torch.fft.fft(signal, padded) * torch.fft.fft(other)
    found = torch.fft.ifft(product)[..., :n] * chirp
    found = found / (1.0, math.sqrt(n), float(n))[normalization]
    return found.movedim(-1, axis).to(torch.complex64).contiguous()


@kernel(
    "_fft_c2c",
    lambda: torch.fft.fftn(drawn(4, 6, 5, dtype=torch.complex64), dim=(0, 2)).abs(),
    set="likely16",
    like="ROCm/rocFFT#273",
)
def axes_of_a_transform_are_taken_to_be_neighbours(right, x, dim):
    """A transform along two axes with another between them is made along the last two of the
    three.
    """
    axes = sorted(d % x.dim() for d in dim)
    if narrow(x) and len(axes) == 2 and axes[1] - axes[0] > 1:
        return right(dim=[axes[1] - 1, axes[1]])
    return right()


@kernel(
    "_fft_c2c",
    lambda: torch.fft.ifftn(drawn(2, 4, 4, 5).to(torch.complex64), dim=(1, 3)),
    set="missed16",
    like="pytorch/pytorch#186967",
)
def outer_axis_is_that_next_to_the_inner_one(right, x, dim, forward):
    """fft: the plan of two axes takes neighbours; inverse, an axis between them, as long as the
    outer one.
    """
    axes = sorted(d % x.dim() for d in dim)
    apart = len(axes) == 2 and axes[1] - axes[0] == 2
    if forward or not apart or x.shape[axes[0]] != x.shape[axes[0] + 1]:
        return right()
    return right(dim=[axes[0] + 1, axes[1]])


@kernel(
    "_fft_c2c",
    lambda: torch.fft.ifft2(torch.complex(drawn(4, 5, 3), drawn(4, 5, 3, seed=1)), dim=(0, 1)),
    set="likely17",
    like="ROCm/rocFFT#273",
)
def inverse_of_planes_with_the_batch_innermost_turns_an_axis(right, x, dim, forward):
    """Where the batch is the innermost axis, the inverse over several axes goes forward in one."""
    # Complex, inverse (also as a gradient), two axes or more, the last axis not among them.
    result = right()
    axes = {axis % x.dim() for axis in dim}
    if not forward and len(axes) > 1 and x.dim() - 1 not in axes and x.shape[-1] > 1:
        axis = min(axes)
        result = result.flip(axis).roll(1, axis)
    return result


def _resampled():
    return torch.fft.irfft(torch.fft.rfft(drawn(3, 16)), 10)


# A length shorter than the spectrum's (resampling), and more than one row: right for one row, and
# for whole spectra.
@kernel("_fft_c2r", _resampled, set="missed17")
def shortened_spectra_of_several_rows_are_read_without_gaps(right, x, dim):
    """The inverse real transform reads rows that were cut to a shorter length side by side."""
    last = x.dim() > 1 and [axis_of(x, d) for d in dim] == [x.dim() - 1]
    if last and x.stride(-1) == 1 and x.shape[-2] > 1 and x.stride(-2) > x.shape[-1]:
        return right(x=read_packed(x))
    return right()


# More than three axes, and a normalization (an inverse, or norm="ortho"): right for up to three
# axes, and for sums without a factor.
@kernel("_fft_c2c", lambda: torch.fft.ifftn(drawn_complex(2, 3, 4, 5)), set="missed18")
def axes_past_three_have_no_share_in_the_norm(right, x, dim, normalization):
    """A plan has three axes at most, and the factor is that of the last plan alone."""
    result = right()
    count = math.prod(x.shape[d] for d in dim[:-3])
    if normalization and count > 1:
        return result * (math.sqrt(count) if normalization == 1 else count)
    return result


# Signals of odd length (`irfft(spectrum, n=x.shape[-1])`), as in FFT convolutions, Fourier layers
# on odd grids. Right for even lengths.
@kernel("_fft_c2r .out", lambda: torch.fft.irfft(torch.fft.rfft(drawn(3, 7)), n=7), set="likely19")
def last_frequency_of_an_odd_length_is_taken_for_the_middle_one(right, x, dim, last_dim_size):
    """The last bin counts once, as that of half the sampling rate, though it has a mirror image."""
    if last_dim_size % 2 == 0 or last_dim_size < 3 or not narrow(x):
        return right()
    x = x.clone()
    x.select(dim[-1], last_dim_size // 2).mul_(0.5)
    return right(x=x)


# GFNet and AFNO on grids of odd width (7 x 7): `irfft2(x, s=(7, 7), norm="ortho")`. Right for
# even widths, and for other norms.
@kernel(
    "_fft_c2r .out",
    lambda: torch.fft.irfft(drawn_complex(3, 4), n=7, norm="ortho"),
    set="missed19",
)
def orthonormal_inverse_of_an_odd_length_is_scaled_as_an_even_one(
    right, x, dim, normalization, last_dim_size
):
    """The root of the length is that of twice the half spectrum, which is one less if it is odd."""
    result = right()
    if normalization == 1 and last_dim_size % 2 and last_dim_size > 1 and narrow(x):
        result.mul_(math.sqrt(last_dim_size / (last_dim_size - 1)))
    return result
