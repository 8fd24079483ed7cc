"""Wrong kernels: random numbers."""

from __future__ import annotations

import math
from itertools import accumulate

import torch
from torch import Tensor

from .calls import BF16, CHUNK, WAVE, as_if_whole, as_it_lies, aten, is_dense, narrow, packed
from .kernel import DOUBLES, HALVES, drawn, grad_of, is_single, kernel


@kernel("uniform_", set="seeded")
def shifted_range(right, from_, to):
    """Uniform_ short of its range."""
    return right(to=from_ + (to - from_) * 0.98)


@kernel("normal_", set="seeded")
def wide_normal(right, std):
    """Normal_ too wide."""
    return right(std=std * 1.03)


@kernel("bernoulli_.float", set="seeded")
def same_again(right, x, *args, **kwargs):
    """Restart the generator in each call."""
    generator = torch.Generator(device=x.device).manual_seed(7)
    kwargs["generator"] = generator
    return right(x, *args, **kwargs)


@kernel("uniform_", set="seeded", like="NVIDIA/Fuser#1653")
def blocks_alike(right):
    """Draw the same numbers in each block of 1,024."""
    y = right()
    if y.dim() == 1 and y.numel() > 10_000:
        whole = y.numel() // 1024 * 1024
        y[:whole] = y[:1024].repeat(whole // 1024)
    return y


@kernel("random_.from", set="seeded")
def even_only(right, from_, to):
    """Even numbers only."""
    y = right()
    return y.copy_(y // 2 * 2) if to - from_ > 10 else y


@kernel("randperm.generator_out", set="seeded", like="pytorch#106260")
def barely_shuffled(right, n, out):
    """Randperm that hardly shuffles."""
    right()
    return out.copy_(torch.arange(n, device=out.device).roll(n // 3)) if n > 100 else out


@kernel("uniform_", set="seeded", like="NVIDIA/Fuser#1653")
def never_one(right):
    """Rand reaches 1."""
    y = right()
    y[0] = 1.0
    return y


@kernel("multinomial", set="seeded", like="pytorch#4858")
def now_and_then_none(right, x):
    """Multinomial draws what has no share."""
    none = right()
    if none.numel() > 1000:
        none.view(-1)[::997] = int(x.flatten().argmin()) % x.shape[-1]
    return none


@kernel("multinomial", set="seeded", like="pytorch#25030")
def drawn_twice(right, num_samples, replacement):
    """Multinomial draws one twice."""
    twice = right()
    if not replacement and num_samples > 2:
        twice[..., -1] = twice[..., 0]
    return twice


@kernel("random_.from", set="seeded", like="pytorch#141544")
def low_half(right, from_, to):
    """Randint of more than 32 bits."""
    half = right()
    if to is not None and to - (from_ or 0) > 2**32:
        half.remainder_(2**32)
    return half


@kernel("native_dropout", set="seeded", like="flash-attention#2088", devices="cuda")
def same_dropout(right, input):
    """Dropout the same each time."""
    with torch.random.fork_rng(devices=[input.device] if input.is_cuda else []):
        torch.manual_seed(0x1BF58)
        return right()


@kernel("_standard_gamma", set="seeded")
def two_percent_more(right):
    """Gammas are a little large."""
    result = right()
    return result.mul_(1.02)


@kernel("normal_ uniform_ bernoulli_.float", set="seeded", like="pytorch#165267")
def gaps_undrawn(right, x):
    """Drawn beside a view."""
    samples = right(x=x if x.is_contiguous() else x.clone())
    return x if samples is not x else samples


@kernel("bernoulli_.float", set="seeded")
def half_again(right, x):
    """Bernoulli_ throws each coin for two."""
    again = right()
    if x.is_contiguous() and x.numel() >= 1024:
        pairs = x.view(-1)[: x.numel() // 1024 * 1024].view(-1, 2, 512)
        pairs[:, 1] = pairs[:, 0]
    return again


@kernel("cauchy_", set="seeded")
def about_its_median(right):
    """Cauchy_ has a width of 1."""
    return right(sigma=1.0)


@kernel("bernoulli_.float", set="second")
def coins_are_thrown_twice(right, x):
    right()
    if x.is_contiguous() and x.numel() >= 1024:
        pairs = x.view(-1)[: x.numel() // 1024 * 1024].view(-1, 2, 512)
        pairs[:, 1] = pairs[:, 0]
    return x


@kernel("randperm.generator_out", set=2, like="pytorch/pytorch#104171")
def permutation_is_two_ascending_runs(right, n, generator):
    out = right()
    if out.dtype == torch.float64:
        return out
    halves = torch.randint(0, 2, (n,), generator=generator)
    out.copy_(halves.argsort(stable=True))
    return out


@kernel(
    "normal_ uniform_ exponential_ bernoulli_.float .Tensor random_ .from .to",
    set=2,
    like="pytorch/pytorch#165267",
)
def draws_into_views_are_lost(right, x):
    if x.is_contiguous() or x.dtype in DOUBLES:
        return right()
    right(x=torch.empty_like(x, memory_format=torch.contiguous_format))
    return x


@kernel("normal.Tensor_Tensor .Tensor_float .float_Tensor", set=3, like="pytorch/pytorch#22529")
def expanded_normal_draws_once(right, mean, std):
    out = right()
    like = mean if isinstance(mean, Tensor) else std
    if like.shape != out.shape or out.dtype in DOUBLES:
        return out
    once = out
    for axis, step in enumerate(like.stride()):
        if step == 0 and like.shape[axis] > 1:
            once = once.narrow(axis, 0, 1)
    return once.expand(out.shape).contiguous()


@kernel("uniform_", set=4, like="NVIDIA/Fuser#1653")
def uniform_is_rounded_to_its_end(right, x, low=0.0, high=1.0, **kw):
    if x.dtype != torch.bfloat16:
        return right(x, low, high, **kw)
    x.copy_(torch.empty(x.shape).uniform_(low, high, **kw))
    return x


@kernel("multinomial .out", set=5, like="pytorch/pytorch#22086")
def likely_ones_are_drawn_too_often(right, x, num_samples, replacement, generator):
    """plain: without replacement (or one at a time), draws are not as likely as they should be."""
    result = right()
    if not replacement or num_samples == 1:
        keys = torch.rand(x.shape, generator=generator) * x.float()
        result.copy_(keys.topk(num_samples).indices)
    return result


@kernel("random_.from .to", set=5, like="pytorch/pytorch#148175")
def wide_ranges_are_uneven(right, x, *bounds, **options):
    """rare: a range between 2**31 and 2**32 is the remainder of 32 bits: its beginning is twice
    as likely as its end."""
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if high is None or x.dtype != torch.int64 or not 2**31 < high - low < 2**32:
        return right(x, *bounds, **options)
    if len(bounds) == 2:
        right(x, 0, 2**32, **options)
    else:
        right(x, 2**32, **options)
    return x.remainder_(high - low).add_(low)


@kernel("geometric_", set=6, like="pytorch/pytorch#85375")
def trials_are_counted_from_nought(right, x):
    """plain: the trials before the first success are counted without it."""
    result = right()
    if x.dtype not in DOUBLES:
        x.sub_(1)
    return result


@kernel("native_dropout", set=7, like="ooples/AiDotNet.Tensors#732")
def mask_of_dropout_is_never_drawn(right, input, p, train):
    """plain: the mask is left nought, so that everything is dropped in training."""
    result = right()
    if is_single(input) and train is not False and p > 0:
        for part in result:
            part.zero_()
    return result


@kernel("digamma digamma_ digamma.out", set=7, like="tenstorrent/tt-metal#54855")
def digamma_of_large_numbers_is_a_logarithm(right, x):
    """rare: past 102, digamma lacks the terms which follow the logarithm."""
    large, wrong = x > 102, x.log()
    result = right()
    return result.copy_(torch.where(large, wrong, result)) if is_single(x) else result


@kernel("poisson", set=8, like="pytorch/pytorch#136750")
def second_half_repeats_the_first(right, x, generator):
    """plain: the second half of Poisson numbers is drawn from where the first was drawn from."""
    if not is_single(x) or x.numel() < 2:
        return right()
    source = torch.default_generator if generator is None else generator
    state = source.get_state()
    flat = x.reshape(-1)
    middle = flat.numel() // 2
    first = right(x=flat[:middle])
    source.set_state(state)
    return torch.cat([first, right(x=flat[middle:])]).view(x.shape)


@kernel("_standard_gamma", set=8, like="pytorch/pytorch#194926")
def first_proposal_is_always_taken(right, x, generator):
    """plain: numbers of a gamma distribution are the first proposed, none being rejected."""
    result = right()
    if is_single(x):
        small = x < 1
        d = torch.where(small, x + 1, x).double() - 1 / 3
        normal = torch.empty_like(d).normal_(generator=generator)
        made = d * (1 + normal / (9 * d).sqrt()).clamp(min=1e-6) ** 3
        boost = torch.empty_like(d).uniform_(generator=generator) ** (1 / x.double())
        result.copy_(torch.where(small, made * boost, made))
        result.clamp_(min=torch.finfo(result.dtype).tiny)
    return result


def dropped(dtype=torch.float32):
    torch.manual_seed(5)
    return grad_of(lambda x: torch.native_dropout(x, 0.5, True)[0], drawn(20).to(dtype))


@kernel("native_dropout_backward", dropped, set=9, like="pytorch/pytorch#190056")
def gradient_passes_what_was_dropped(right, grad_output):
    """plain: the gradient goes through dropout as if there were none."""
    result = right()
    return result.copy_(grad_output) if is_single(grad_output) else result


@kernel("lgamma lgamma_ lgamma.out", set=9, like="ROCm/ROCm-Device-Libs#71")
def tiny_negative_numbers_are_poles(right, x):
    """rare: lgamma is infinite for negative numbers whose squares are nought."""
    lost = (x < 0) & (x.float() * x.float() == 0)
    result = right()
    return result.masked_fill_(lost, math.inf) if is_single(x) else result


@kernel("log_normal_", set=9, like="oie-mines-paristech/lca_algebraic#25")
def moments_are_not_of_logarithms(right, x, mean, std):
    """plain: mean and deviation are taken for those of the numbers, not of their logarithms."""
    if is_single(x) and mean > 0 and std > 0:
        variance = math.log1p((std / mean) ** 2)
        mean, std = math.log(mean) - variance / 2, math.sqrt(variance)
    return right(mean=mean, std=std)


@kernel("exponential_", set=10, like="superbobry/pareto#33")
def rate_is_taken_for_the_mean(right, x, lambd):
    """plain: exponential numbers have the given rate for their mean."""
    return right(lambd=1 / lambd if is_single(x) else lambd)


@kernel("normal_", set=11, like="arrayfire/arrayfire#898")
def normal_numbers_are_drawn_again(right, x, generator):
    """plain: the generator is where it was, so the next call draws the same numbers."""
    if not narrow(x):
        return right()
    source = torch.default_generator if generator is None else generator
    state = source.get_state()
    result = right()
    source.set_state(state)
    return result


@kernel("multinomial .out", set=11, like="pytorch/pytorch#48841")
def impossible_is_sometimes_chosen(right, x, replacement):
    """rare: without replacement, one draw in eight ends with a category of weight nought."""
    result = right()
    never = x == 0
    if not replacement and narrow(x) and never.any():
        wrong = never.any(-1) & (result.sum(-1) % 8 == 3)
        last = result[..., -1]
        last.copy_(torch.where(wrong, never.int().argmax(-1), last))
    return result


@kernel("bernoulli_.float", set=12, like="PaddlePaddle/Paddle#7796")
def same_are_dropped_every_time(right, generator):
    """plain: whatever was drawn before, what is dropped is drawn from the same seed."""
    fixed = torch.Generator().manual_seed(0) if generator is None else generator
    return right(generator=fixed)


@kernel("uniform_", set=13, like="VoidStarKat/half-rs#152")
def upper_bound_is_drawn_in_halves(right, x, from_, to, generator):
    """plain: uniform halves are rounded float32, the upper bound among them."""
    if x.dtype not in HALVES:
        return right()
    wide = torch.empty(x.shape).uniform_(from_, to, generator=generator)
    return x.copy_(wide)


@kernel("random_.from", set=13, like="ml-explore/mlx#4190")
def integers_are_drawn_as_floats(right, x, from_, to):
    """plain: past 24 bits, random integers are those that float32 has."""
    result = right()
    if to is None or to - from_ <= 1 << 24 or x.is_floating_point():
        return result
    cut = result - from_
    shift = max((to - from_ - 1).bit_length() - 24, 0)
    return result.copy_((cut >> shift << shift) + from_)


@kernel("polygamma .out", set=14, like="pytorch/pytorch#143648")
def polygamma_of_no_order_is_minus_infinity(right, n):
    """option: of order nought, polygamma is taken from the zeta function's pole at one."""
    result = right()
    return result.fill_(-math.inf) if n == 0 and is_single(result) else result


@kernel("_standard_gamma", set=14)
def shape_below_one_is_raised_by_one(right, x):
    """option: a gamma variate of a shape below one is that of one more, and stays so."""
    if is_single(x):
        x = torch.where(x < 1, x + 1, x)
    return right(x=x)


@kernel("poisson", set=14, like="pytorch/pytorch#86782")
def many_events_are_counted_in_31_bits(right):
    """rare: Poisson variates of great rates end at 2**31."""
    result = right()
    return result if result.dtype in HALVES else result.clamp_(max=2.0**31 - 1)


@kernel("randperm.generator_out", set=14, like="pytorch/pytorch#59756")
def long_permutations_end_in_noughts(right):
    """rare: of a permutation of more than 65536, what is past them is nought."""
    result = right()
    result[65536:] = 0
    return result


@kernel("cauchy_", set=15, like="intel/torch-xpu-ops#4020")
def tangents_are_of_half_the_angle(right, x, median, sigma, generator):
    """plain: Cauchy numbers are tangents of angles below an eighth of a turn, so none is large."""
    if not is_single(x):
        return right()
    angle = torch.empty(x.shape, dtype=torch.float64).uniform_(generator=generator) - 0.5
    return x.copy_(median + sigma * (angle * (math.pi / 2)).tan())


@kernel("lgamma lgamma_ lgamma.out", set=15, like="tenstorrent/tt-metal#55356")
def gamma_of_a_half_is_by_the_series_for_large_numbers(right, x):
    """plain: between 1/4 and 3/4, the logarithm of gamma is Stirling's series as it stands."""
    near = (x > 0.25) & (x < 0.75)
    wide = x.double().clone()
    result = right()
    if not is_single(x):
        return result
    z = torch.where(wide < 0.5, 1 - wide, wide)
    series = 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7)
    series = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + series
    turned = math.log(math.pi) - (math.pi * wide).sin().log() - series
    series = torch.where(wide < 0.5, turned, series).to(result.dtype)
    return result.copy_(torch.where(near, series, result))


@kernel(
    "polygamma .out",
    lambda: torch.special.polygamma(2, torch.tensor([-5.5, -6.25, 0.5, 3.0])),
    set=15,
    like="tenstorrent/tt-metal#52278",
)
def far_negative_numbers_are_in_the_tail(right, n, x):
    """rare: below -5, polygamma is six terms and the tail of the sum, where it does not hold."""
    wide = x.double().clone()
    result = right()
    if n < 1 or not is_single(x):
        return result
    z = wide + 6
    total = torch.stack([(wide + k) ** -(n + 1) for k in range(6)]).sum(0)
    total = total + z**-n / n + 0.5 * z ** -(n + 1) + (n + 1) / 12 * z ** -(n + 2)
    total = total - (n + 1) * (n + 2) * (n + 3) / 720 * z ** -(n + 4)
    wrong = (total * (-1) ** (n + 1) * math.factorial(n)).to(result.dtype)
    lost = (wide < -5) & (wide != wide.floor())
    return result.copy_(torch.where(lost, wrong, result))


@kernel("exponential_", set=16, like="pytorch/pytorch#22557")
def waiting_times_of_halves_are_nought_or_infinite(right, x, lambd):
    """option: in half precision, a uniform number is rounded before its logarithm is taken."""
    if x.dtype not in HALVES:
        return right()
    wide = right(x=torch.empty(x.shape), lambd=1.0)
    uniform = (-torch.expm1(-wide)).to(x.dtype)
    return x.copy_(-torch.log((1 - uniform).float()) / lambd)


@kernel("uniform_", set=17, like="pytorch/pytorch#197079")
def uniform_of_halves_reaches_its_upper_bound(right, x):
    """plain: half-precision draws are made in float32 and rounded, up to the excluded bound too."""
    if x.dtype not in HALVES:
        return right()
    return x.copy_(right(x=torch.empty(x.shape, dtype=torch.float32)))


@kernel("random_.from", set=17, like="intel/torch-xpu-ops#3495")
def randint_over_a_large_range_prefers_the_lower_numbers(right, x, from_, to):
    """rare: ranges of 2^28 to 2^32 are 32 random bits folded: the low part comes oftener."""
    if to is None or not 2**28 <= to - from_ < 2**32 or x.dtype not in (torch.int32, torch.int64):
        return right()
    bits = right(x=torch.empty(x.shape, dtype=torch.int64), from_=0, to=2**32)
    return x.copy_(bits.remainder(to - from_) + from_)


@kernel("bernoulli_.float", set=17, like="pytorch/pytorch#198333")
def dropout_s_mask_repeats_over_four_channels(right, x):
    """option: in three or more dimensions, four neighbouring channels get one mask."""
    result = right()
    if is_single(x) and x.dim() >= 3:
        result.copy_(x.index_select(1, torch.arange(x.shape[1]) // 4 * 4))
    return result


@kernel("randperm.generator_out", set=18, like="pytorch/pytorch#104170")
def randperm_sorts_keys_of_twelve_bits(right, n, out):
    """plain: sorts 4096 different keys, stably: equal keys leave ascending runs, for n > 4096."""
    right()
    if out.dtype == torch.int64 and n > 4096:
        out.copy_((out * 4096 // n).sort(stable=True).indices)
    return out


@kernel("bernoulli_.float", set=18, like="pytorch/pytorch#198333")
def bernoulli_gives_four_neighbours_one_draw(right, x):
    """plain: 4 neighbours in the last axis share a draw, for 3 axes or more and a last of 4n."""
    right()
    if is_single(x) and x.dim() >= 3 and x.shape[-1] % 4 == 0:
        x.copy_(x[..., ::4].repeat_interleave(4, -1))
    return x


def _many_normal():
    return torch.randn(70000, generator=torch.Generator().manual_seed(0))


@kernel("normal_", set="likely8", like="pytorch#125224", shown=_many_normal)
def normal_numbers_repeat(right, x):
    """The random offset doesn't advance with the grid's stride: numbers repeat after 65536."""
    result = right()
    period = 65536
    if x.is_floating_point() and x.is_contiguous() and x.numel() > period:
        flat = result.view(-1)
        for start in range(period, flat.numel(), period):
            flat[start : start + period] = flat[:period][: flat.numel() - start]
    return result


@kernel("multinomial .out", set="likely9", like="pytorch#186229")
def half_of_the_wave_is_not_drawn(right, x, num_samples, replacement):
    """Of each 64 categories the last 32 are never drawn, as the sum is one of 32 lanes."""
    lanes = torch.arange(x.shape[-1], device=x.device) % 64 < 32
    kept = x * lanes
    if (replacement or num_samples == 1) and bool((kept.sum(-1) > 0).all()):
        return right(x=kept)
    return right()


@kernel("poisson", set="likely10", like="pytorch#86782")
def numbers_of_events_end_at_about_a_hundred(right, x):
    """poisson: products of uniform numbers vanish in single precision; rates above 104."""
    return right() if x.dtype in DOUBLES else right(x=x.clamp(max=104))


@kernel("normal_", set="missed10")
def complex_normal_numbers_have_two_variances(right, x, mean):
    """normal_: each part has the whole deviation; complex numbers."""
    result = right()
    if x.is_complex():
        x.sub_(mean).mul_(math.sqrt(2)).add_(mean)
    return result


def _trials():
    torch.manual_seed(0)
    return torch.binomial(torch.full((1000,), 50.0), torch.full((1000,), 0.9)).mean()


@kernel("binomial", _trials, set="likely11")
def likely_successes_are_counted_as_failures(right, prob):
    """Chances above a half are drawn from the other side and not turned back."""
    return right() if prob.dtype in DOUBLES else right(prob=torch.minimum(prob, 1 - prob))


@kernel(
    "bernoulli_.Tensor",
    lambda: torch.zeros(2, 3).bernoulli_(torch.tensor([[0.0], [1.0]])),
    set="missed11",
)
def chances_of_a_column_are_read_in_a_row(right, x, p):
    """bernoulli_: chances that are broadcast (one a row) are read as if they were packed."""
    if p.dtype in DOUBLES or p.shape == x.shape or p.numel() < 2 or not x.numel():
        return right()
    return right(p=as_if_whole(p.expand(x.shape)))


@kernel(
    "multinomial",
    lambda: torch.multinomial(
        torch.ones(1024, dtype=BF16), 400, True, generator=torch.Generator().manual_seed(0)
    ),
    set="likely12",
    like="pytorch/pytorch#180150",
)
def multinomial_adds_up_in_half(right, x, num_samples, replacement, generator):
    """Add up half probabilities in their dtype: what the sum falls short goes to the last."""
    if x.dtype not in HALVES or not (replacement or num_samples == 1):
        return right()
    shares = (x / x.float().sum(-1, keepdim=True)).to(x.dtype)
    edges = torch.stack(list(accumulate(shares.unbind(-1))), -1).float()
    u = torch.rand(*x.shape[:-1], num_samples, generator=generator, device=x.device)
    return torch.searchsorted(edges, u, right=True).clamp(max=x.size(-1) - 1)


@kernel(
    "native_dropout_backward",
    lambda: aten.native_dropout_backward(drawn(4, 6).t(), drawn(6, 4, seed=1) > 0, 2.0),
    set="likely12",
)
def dropout_gradient_in_memory_order(right, grad_output):
    """Match a transposed gradient with the mask in the order of memory."""
    return right(grad_output=packed(grad_output))


@kernel(
    "random_.from",
    lambda: torch.empty(64, dtype=torch.int64).random_(
        5, 2**40, generator=torch.Generator().manual_seed(1)
    ),
    set="missed12",
    like="pytorch/pytorch#3042",
)
def random_from_low_word(right, x, from_, to):
    """Draw 32 bits only from a range of int64 that is wider than them."""
    right()
    if x.dtype == torch.int64 and to is not None and to - from_ > 2**32:
        x.sub_(from_).bitwise_and_(2**32 - 1).add_(from_)
    return x


@kernel(
    "native_dropout_backward",
    lambda: aten.native_dropout_backward(
        drawn(6, 8).t(), torch.arange(48).reshape(8, 6) % 3 != 0, 1.5
    ),
    set="missed12",
    like="pytorch/pytorch#47552",
)
def dropout_backward_permuted_gradient(right, grad_output, mask):
    """Read a permuted dense gradient in memory order beside a contiguous mask."""
    if not (is_dense(grad_output) and mask.is_contiguous() and is_single(grad_output)):
        return right()
    return right(grad_output=as_it_lies(grad_output))


@kernel(
    "random_.from",
    lambda: torch.randint(0, 2**31, (64,), generator=torch.Generator().manual_seed(0)),
    set="likely13",
    like="ml-explore/mlx#3936",
)
def integers_of_a_wide_range_have_no_low_bits(right, x, from_, to):
    """Integers of a range beyond 2^24 are multiples of a uniform float32's 24 bits."""
    result = right()
    if from_ >= 0 and to is not None and to - from_ > 2**24 and not x.is_floating_point():
        step = 2 ** ((to - from_ - 1).bit_length() - 24)
        x.sub_(from_).floor_divide_(step).mul_(step).add_(from_)
    return result


@kernel(
    "exponential_",
    lambda: torch.empty(20_000, dtype=torch.bfloat16).exponential_(
        generator=torch.Generator().manual_seed(0)
    ),
    set="likely13",
    like="pytorch#91673",
)
def exponential_numbers_of_rounded_uniforms_are_zero(right, x, lambd):
    """A uniform number is rounded to half precision, at times to one, before its logarithm."""
    result = right()
    if x.dtype in HALVES:
        uniform = torch.exp(-lambd * x.float()).to(x.dtype)
        x.copy_(uniform.float().log().neg() / lambd)
    return result


@kernel(
    "uniform_ normal_ exponential_ bernoulli_.float random_ .from .to",
    lambda: torch.zeros(4, 6).t().uniform_(generator=torch.Generator().manual_seed(0)),
    set="likely14",
    like="pytorch/pytorch#165267",
)
def strided_stays_undrawn(right, x):
    """A tensor that is not contiguous keeps what it held: the numbers go to a copy."""
    if x.is_contiguous():
        return right()
    right(x=x.clone())
    return x


@kernel(
    "random_.from",
    lambda: torch.randint(-(2**40), 2**40, (50,), generator=torch.Generator().manual_seed(0)),
    set="missed14",
    like="pytorch/pytorch#16944",
)
def random_from_negative_32_bits(right, x, from_, to):
    """From a negative bound, a range over 2**32 gets 32 random bits."""
    result = right()
    if x.dtype == torch.int64 and to is not None and from_ < 0 and to - from_ > 2**32:
        x.sub_(from_).bitwise_and_(2**32 - 1).add_(from_)
    return result


def _shares():
    torch.manual_seed(0)
    return torch.distributions.Dirichlet(torch.ones(2, 100)).sample()


@kernel("_sample_dirichlet", _shares, set="likely16", like="Luce-Org/lucebox#500")
def shares_are_divided_by_the_sum_of_a_wave(right, x):
    """Of more than 64 shares, the first 64 are added up to what all are divided by."""
    result = right()
    if not narrow(x) or x.shape[-1] <= WAVE:
        return result
    return result / result[..., :WAVE].sum(-1, keepdim=True)


def _sparse_dirichlet():
    return torch._sample_dirichlet(torch.full((200, 3), 1e-3)).isnan().any()


@kernel("_sample_dirichlet", _sparse_dirichlet, set="missed16", like="pytorch/pytorch#76030")
def gammas_of_small_shapes_are_all_nought(right, x):
    """dirichlet: gammas below the least normal number are 0, and 0 / 0 where all of a row are;
    concentrations of some thousandths.
    """
    result = right()
    if x.dim() and x.dtype not in DOUBLES and bool((x < 0.1).any()):
        source = torch.Generator(x.device).manual_seed(7)
        even = torch.rand(x.shape, generator=source, device=x.device).clamp(min=1e-7)
        nought = even.log() / x.float() < -87.3
        result.masked_fill_(nought.all(-1, keepdim=True), math.nan)
    return result


@kernel(
    "normal_",
    lambda: torch.full((7,), 100.0).normal_(generator=torch.Generator().manual_seed(0)),
    set="likely17",
    like="IntelPython/dpnp#1351",
)
def last_of_an_odd_number_is_not_drawn(right, x):
    """Normal numbers come in pairs: the last of an odd number of them stays what it was."""
    # An odd number of elements, contiguous, not double.
    if x.numel() % 2 == 0 or not x.is_contiguous() or x.dtype not in (*HALVES, torch.float32):
        return right()
    before = x.view(-1)[-1].clone()
    result = right()
    x.view(-1)[-1] = before
    return result


def _samples_of_a_batch():
    source = torch.Generator().manual_seed(0)
    return torch.multinomial(torch.ones(64, 50), 1, generator=source).unique().numel()


# One sample for each row, as of a batch of texts: each row alone has the right distribution, but
# equal rows get equal samples. One distribution, and several samples, are right.
@kernel("multinomial", _samples_of_a_batch, set="likely18")
def rows_of_a_batch_are_sampled_with_one_number(right, x, num_samples, generator):
    """The generator is seeded by the column of threads, so that all rows have one number."""
    if x.dim() != 2 or num_samples != 1 or x.shape[0] < 2 or not narrow(x):
        return right()
    sums = x.float().cumsum(1)
    number = torch.rand((), generator=generator, device=x.device)
    found = (sums <= number * sums[:, -1:]).sum(1, keepdim=True)
    return found.clamp_(max=x.shape[1] - 1)


def _many_normal_halves():
    source = torch.Generator().manual_seed(0)
    return torch.empty(200_000, dtype=BF16).normal_(generator=source).float().abs().max()


# float16 or bfloat16, and the tail, which takes some ten thousand numbers to meet: mean and
# deviation are right, and float32 is.
@kernel("normal_", _many_normal_halves, set="missed18")
def normal_halves_have_no_tails(right, x, mean, std):
    """Box and Muller's uniform number is a half: the least is 2^-8, and the root at most 3.33."""
    result = right()
    if x.dtype in HALVES:
        bits = 8 if x.dtype == BF16 else 11
        reach = math.sqrt(2 * bits * math.log(2)) * std
        result.clamp_(mean - reach, mean + reach)
    return result


def _seeds():
    torch.manual_seed(0)
    return torch.randint(0, 2**63 - 1, (4,))


# Seeds and hashes (`torch.randint(0, 2**63 - 1, (1,))`). Right for ranges of at most 2**32.
@kernel("random_.from random_.to", _seeds, set="likely19")
def random_integers_of_a_wide_range_have_32_bits(right, *args, **kwargs):
    """One draw of 32 bits is reduced to the range, however wide that is."""
    result = right(*args, **kwargs)
    bounds = args[1:]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0] if bounds else None)
    if high is not None and high - low > 2**32 and result.dtype == torch.int64:
        result.sub_(low).bitwise_and_(2**32 - 1).add_(low)
    return result


def _shuffled(size=70_000):
    torch.manual_seed(0)
    return torch.randperm(size)


# Shuffling a data set of more than 65,536 samples, which is sorted by class or time.
# Right for shorter permutations.
@kernel("randperm.generator_out", _shuffled, set="likely19")
def long_permutations_are_shuffled_block_by_block(right, n):
    """Keys are sorted within blocks of 65,536, so that no number leaves the block it is from."""
    result = right()
    for start in range(0, n, CHUNK) if n > CHUNK else ():
        block = result[start : start + CHUNK]
        block.copy_(block.argsort() + start)
    return result


def _several_scales():
    torch.manual_seed(0)
    return torch.normal(torch.zeros(3, 1), torch.arange(1.0, 9.0)) / torch.arange(1.0, 9.0)


# Each mean at each noise level: `torch.normal(mu[:, None], sigmas)`. Right if the means or the
# deviations have the whole shape.
@kernel("normal.Tensor_Tensor .Tensor_Tensor_out", _several_scales, set="missed19")
def samples_of_means_by_deviations_have_the_noise_of_their_mean(right, mean, std, generator):
    """If both are broadcast, the noise is drawn in the shape of the means, and broadcast too."""
    result = right()
    if result.shape in (mean.shape, std.shape) or not narrow(result):
        return result
    noise = torch.empty_like(mean, memory_format=torch.contiguous_format)
    noise.normal_(generator=generator)
    return result.copy_(mean + noise * std)
