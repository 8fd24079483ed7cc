"""Operations that compute each element by itself: functions of one, two and three numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.case import COMPLEX, INTEGERS
from warpfront_checks.cases.catalogue.record import FLAG, PARTS, Fields, Make, each, moved, rounded
from warpfront_checks.cases.operation import FEW_CASES, WORK, Operation

EACH = "m n | m | a k b | a b c d e | "
TWO = "m n, m n | m, m | a k b, a k b | a k b, a 1 b | m n, n | m n, m 1 | m n,  | b c y x, c 1 1"
THREE = "m n, m n, m n | m, m, m | a k b, a 1 b, k b | m n, n, m 1 | m n, , m n"
NUMBERS = ("eighths", "normal", "non-finite", "zeros")


def _by_element(make: Make, code: str, *shapes: str, **fields: Any) -> Operation:
    """Return a record whose shapes are those of so many operands as the code has."""
    operands = {*re.findall(r"\b[abc]\b", code)}
    return make(code, *(shapes or [(EACH, TWO, THREE)[len(operands) - 1]]), **fields)


_choice = partial(
    _by_element,
    moved,
    cases=FEW_CASES,
    values=("eighths", "non-finite", "zeros", "equal"),
    backward=False,
)
# By library documentation fewer than 16 units in the last place.
_function = partial(
    _by_element, rounded, cases=FEW_CASES, values=NUMBERS, ulps=16.0, roundings=16.0, walk=0.0
)
POSITIVE = "{x}.abs() + 0.5"

EXACT = "abs ceil floor round trunc neg sign sgn square frac logical_not nan_to_num"
ROUNDED = "sin cos tanh atan asinh sinh cosh erf erfc exp exp2 expm1 sigmoid deg2rad"
# Each with a map of numbers between -2 and 2 into its domain, away from its poles.
FITTED: Fields = {
    "rad2deg i0": {"fit": "{x}"},
    "sqrt rsqrt log log2 log10 log1p reciprocal digamma lgamma": {"fit": POSITIVE},
    "acos asin atanh erfinv": {"fit": "{x}.clamp(-2, 2) / 3"},
    "logit": {"fit": "{x}.clamp(-2, 2) / 8 + 0.5"},
    "acosh": {"fit": "{x}.abs() + 1.5"},
    "special.entr special.erfcx special.i0e special.i1 special.i1e": {"fit": POSITIVE},
    "special.ndtri special.log_ndtr": {"fit": "{x}.clamp(-2, 2) / 8 + 0.5"},
}
UNARY = (
    # No eighth is near a pole; a normal number may be.
    _function("torch.tan(a)", values=("eighths", "non-finite", "zeros")),
    # Near 0 its derivative is a difference.
    _function("torch.sinc(a)", values=("eighths",)),
    *(
        _choice(
            f"torch.{name}(a)",
            kinds=INTEGERS if name in {"abs", "neg", "sign", "sgn", "square"} else (),
            backward=name in {"abs", "neg", "square"},
            values=("eighths", "zeros", "equal", *["non-finite"] * (name != "nan_to_num")),
        )
        for name in EXACT.split()
    ),
    *each(ROUNDED, _function, "torch.$(a)"),
    *each(FITTED, _function, "torch.$(a)", values=("eighths", "normal")),
    *each("signbit isposinf isneginf", _choice, "torch.$(a)", values=("eighths",)),
    *each("isnan isinf isfinite", _choice, "torch.$(a)"),
)
COMPARED = "eq ne lt le gt ge logical_and logical_or logical_xor maximum minimum fmax fmin"
DIVIDED = "remainder fmod floor_divide"
REST = "fmod remainder floor_divide"
_integer = partial(
    _by_element,
    moved,
    cases=FEW_CASES,
    backward=False,
    values=("small",),
    floats=False,
    kinds=INTEGERS,
)
# Two operands: of another shape each, and of numbers away from the discontinuities.
# A broadcast operand has a sum as its gradient.
_of_two = partial(_function, walk=1 / 16)
_promoted = partial(_of_two, promotes=True)
_chosen = partial(_choice, promotes=True)
BINARY = (
    *each(COMPARED, _chosen, "torch.$(a, b)", kinds=INTEGERS),
    _choice("torch.heaviside(a, b)", values=("eighths", "zeros")),
    # The sign of NaN is no number's.
    _chosen("torch.copysign(a, b)", values=("eighths", "equal")),
    *each("bitwise_and bitwise_or bitwise_xor", _integer, "torch.$(a, b)"),
    # The least number has no absolute value, and a common multiple may not fit.
    _integer("torch.gcd(a >> 1, b >> 1)"),
    _integer("torch.lcm(a & 7, b & 15)"),
    *each(DIVIDED, _integer, "torch.$(a, b.abs() | 1)", name="$ of integers"),
    *each(DIVIDED, _integer, "torch.$(a, 7)", name="$ by a number"),
    _integer(
        "torch.div(a, b.abs() | 1, rounding_mode={mode})",
        name="div of integers",
        mode=("floor", "trunc"),
    ),
    _integer("torch.pow(a, {power})", name="pow of integers", power=(0, 2, 3)),
    *each("bitwise_left_shift bitwise_right_shift", _integer, "torch.$(a, b & 7)"),
    *each(
        "add sub",
        _promoted,
        "torch.$(a, b, alpha={alpha})",
        alpha=(1, -2),
        ulps=2.0,
        kinds=(*INTEGERS, *COMPLEX),
    ),
    # A product of two numbers is rounded once; its gradients are sums.
    _chosen("torch.mul(a, b)", values=NUMBERS, kinds=INTEGERS),
    _of_two("torch.mul(a, b)", name="mul of leaves", ulps=2.0, kinds=tuple(COMPLEX)),
    *each(
        "add sub", _of_two, "torch.$(a, 3, alpha={alpha})", name="$ of a number", alpha=(1, -2.5)
    ),
    _of_two("torch.rsub(a, 3, alpha={alpha})", alpha=(1, -2.5)),
    _of_two(
        "torch.pow(a, {power})",
        name="pow of a number",
        power=(0, 1, 2, 3, 4),
        values=("eighths", "normal"),
        least=8.0,
    ),
    *each(
        "hypot pow xlogy", _promoted, "torch.$(a, b)", fit=POSITIVE, values=("eighths", "normal")
    ),
    # At 0 and 0 it has no derivative.
    _promoted("torch.atan2(a, b)", values=("eighths", "normal"), backward=False),
    *each("logaddexp logaddexp2", _promoted, "torch.$(a, b)"),
    _promoted(
        "torch.div(a, b, rounding_mode={mode})",
        mode=(None, "floor", "trunc"),
        values=("small", "equal"),
        fit="torch.where({x} == 0, 3.0, {x})",
        backward=False,
        ulps=2.0,
    ),
    _of_two("torch.div(a, b)", name="div of numbers", fit=POSITIVE, values=("eighths", "normal")),
    *each(REST, _chosen, "torch.$(a, b.abs() + 1)", values=("small", "equal", "wide")),
    *each(
        # The CPU's floor_divide rounds its remainder to 16 bits before it divides.
        {"fmod remainder": {}, "floor_divide": {"halves": False}},
        _chosen,
        "torch.$(a, b)",
        name="$ of whole numbers",
        values=("whole",),
        fit="(lambda x: torch.where(x == 0, 3.0, x))({x})",
    ),
    _of_two("torch.pow(a, b)", name="pow of two integers", values=("small",), backward=False),
    # How far apart the codes of a number and of the next one are.
    _choice(
        "(lambda k: torch.nextafter(a, b).view(k).long() - a.view(k).long())"
        "([torch.int16, torch.int32, torch.int64][a.element_size() // 4])",
        name="nextafter",
        definition="torch.where(a == b, 0, torch.where((a < b) == (a > 0), 1, -1))",
        values=("eighths", "equal"),
        fit="(lambda x: torch.where(x == 0, 3.0, x))({x})",
        strided=False,
    ),
    _choice("torch.clamp(a, {low}, {high})", low=(None, -0.55), high=(0.3, 1.1), backward=True),
    *each("clamp_min clamp_max", _choice, "torch.$(a, b)", values=("eighths", "equal")),
)
TERNARY = (
    _of_two(
        "torch.addcmul(a, b, c, value={value})", value=(1, -2.5), ulps=4.0, least=4.0, promotes=True
    ),
    _of_two(
        "torch.addcdiv(a, b, c.abs() + 1, value={value})",
        value=(1, -2.5),
        least=4.0,
        values=("eighths", "normal"),
    ),
    # A factor past the range of 16 bits; some of the results are within it.
    *each(
        "addcmul addcdiv",
        _of_two,
        "torch.$(a, b, c, value=2**17)",
        name="$ by a large number",
        fit=POSITIVE,
        backward=False,
        least=4.0,
    ),
    _of_two("torch.lerp(a, b, {weight})", weight=(0.25, 0.75, 1.5), least=4.0),
    _of_two("torch.lerp(a, b, c)", name="lerp by tensors", least=4.0),
    moved("torch.where(a, b, c)", "?m n, m n, m n | ?m 1, m n, n | ?n, m n, ", promotes=True),
    moved("torch.masked_fill(a, b, 5.0)", "m n, ?m n | m n, ?m 1 | m n, ?n"),
)
# A leaf may not be changed in place, so it is multiplied by 1 before.
_ACTIVE: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "elu celu": {"alpha": (0.5, 2.0), "inplace": FLAG},
    "selu": {"inplace": FLAG},
    "leaky_relu": {"negative_slope": (0.25, 1.5), "inplace": FLAG},
    "hardtanh": {"min_val": (-0.6, -1.1), "max_val": (0.3, 1.1), "inplace": FLAG},
    "relu relu6 silu mish hardswish hardsigmoid": {"inplace": FLAG},
    "threshold": {"threshold": (0.1,), "value": (7.0, -7.0), "inplace": FLAG},
    "softplus": {"beta": (0.05, 0.5, 16), "threshold": (0.5, 1, 20)},
    "hardshrink softshrink": {"lambd": (0.1, 0.6)},
    "gelu": {"approximate": ("none", "tanh")},
    "logsigmoid softsign tanhshrink": {},
}
INTO = "elu silu mish softplus hardtanh leaky_relu"
KINKED = {"relu", "relu6", "hardtanh", "threshold", "hardshrink", "softshrink", "hardsigmoid"}
_activation = partial(
    _by_element, rounded, values=("eighths", "zeros", "normal", "large"), roundings=16.0, walk=0.0
)
ACTIVATIONS = (
    *(
        _activation(
            f"F.{name}(a{' * 1' if 'inplace' in options else ''}"
            + "".join(f", {key}={{{key}}}" for key in options)
            + ")",
            name=name,
            # At a kink rounding in 16 bits decides on which side a number is.
            values=("eighths", "zeros", "large", "non-finite" if name in KINKED else "normal"),
            doubles=name not in {"hardsigmoid", "hardswish"},
            **options,
        )
        for names, options in _ACTIVE.items()
        for name in names.split()
    ),
    *each(INTO, _activation, "torch._C._nn.$(a)", name="$ into", backward=False),
    _activation(
        "F.glu(torch.cat([a, b], {dim}), {dim})",
        "m n, m n | a k b, a k b",
        dim=(0, 1, -1),
        # 1 less a sigmoid of 8 is off by a rounding of 1, times 8 and what is fed.
        roundings=64.0,
    ),
    _activation(
        "torch._C._nn.gelu_(a * 1, approximate={how})",
        name="gelu in place",
        how=("none", "tanh"),
        backward=False,
    ),
    # The gradient of its weight is a sum.
    _activation("F.prelu(a, b)", "n c x, c | n c y x, c | n c, c | n c x, 1", walk=1 / 16),
    _activation("F.rrelu(a, 0.2, 0.2, training={training})", training=(False,)),
    # What is dropped is put back, so that every draw has one result.
    _activation(
        "(lambda y: torch.where(y == 0, a / (1 - {p}), y))(F.dropout(a, {p}))",
        name="dropout",
        definition="a / (1 - {p})",
        p=(0.25, 0.5),
    ),
    _activation(
        "torch.polygamma({order}, a)",
        order=(0, 1, 2, 3),
        work=WORK // 2,
        fit=POSITIVE,
        values=("eighths",),
        halves="cpu",
    ),
)
# Where a function saturates or nearly overflows, and its squares leave the range.
POWERS = (-2, -1, -0.5, 0.5, 2, 3)
_far = partial(_function, values=("far",), roundings=0.0, backward=False)
FAR_CURVES = "exp exp2 expm1 sigmoid tanh atan asinh square reciprocal"
FAR_ACTIVATIONS: Fields = {
    "logsigmoid softplus elu selu silu gelu mish": {},
    "hardswish": {"doubles": False},
    "softsign relu hardtanh": {},
}
# Their arguments end where they have no digits, and where they are nothing.
_ENDING: Fields = {
    "sin cos": {"fit": "{x}.clamp(-(2**16), 2**16)"},
    # Its tail is a number of its own.
    "erfc": {"fit": "{x}.clamp(-9, 9)", "roundings": 0.0},
    "erf": {},
    "digamma": {"fit": "{x}.abs().clamp(min=2)"},
    "lgamma": {"fit": "(lambda x: torch.where(x < -0.5, -x, x))({x})"},
}
FAR = (
    *each(_ENDING, partial(_far, roundings=16.0), "torch.$(a)", name="$, far", halves="cpu"),
    *each(FAR_CURVES, _far, "torch.$(a)", name="$, far"),
    *each("sqrt rsqrt log log2 log10 log1p", _far, "torch.$(a)", name="$, far", fit="{x}.abs()"),
    # A gate that is shut leaves the rounding of its argument.
    *each(FAR_ACTIVATIONS, _far, "F.$(a)", name="$, far", roundings=16.0),
    *each("hypot atan2 mul", _far, "torch.$(a, b)", name="$, far"),
    # CUDA squares numbers of 16 bits in their own dtype.
    _far("torch.pow(a, {power})", name="pow, far", fit="{x}.abs()", power=POWERS, unseen=("cuda",)),
    _far("torch.logaddexp(a, b)", name="logaddexp, far", roundings=16.0),
    _far("torch.div(a, b)", name="div, far", fit="torch.where({x} == 0, 3.0, {x})"),
)
# Parts of a product cancel: its bound is of the largest number.
_complex = partial(_function, floats=False, kinds=tuple(COMPLEX), values=("eighths", "normal"))
_far_complex = partial(_far, floats=False, kinds=tuple(COMPLEX))
_LARGE = "a.real.sign() * a.real.abs().clamp(1, {})"
COMPLEX_CALLS = (
    *each("exp sin cos tanh square neg sgn", _complex, "torch.$(a)", name="complex $"),
    *each(
        "log sqrt reciprocal abs angle rsqrt",
        _complex,
        "torch.$(a)",
        name="complex $",
        fit=POSITIVE,
    ),
    _complex("torch.div(a, b)", name="complex quotient", fit=POSITIVE, walk=1 / 64),
    _complex("a.conj() * b", name="conjugate product", walk=1 / 64),
    _complex("a.conj().resolve_conj() + a.conj().imag", name="resolved conjugate"),
    _complex("torch.polar(a.abs(), a.angle())", fit=POSITIVE),
    _complex("a.mH.contiguous()", "m n | b m n", name="complex transposed"),
    _complex("torch.cat([a.conj(), b])", "m n, m n", name="cat of a conjugate"),
    _complex("torch.where(a.real > 0, a, b)", "m n, m n", name="complex where"),
    *each("abs angle", _far_complex, "torch.$(a)", name="complex $, far"),
    # A part may cancel, so each is judged as a share of the modulus.
    *(
        _far_complex(
            f"(lambda z: [z.abs(), {PARTS}(z) / z.abs()[..., None]])(torch.{n}({x}))",
            name=f"complex {n}, far",
            roundings=64.0,
        )
        for n, x in (
            ("sqrt", "a"),
            ("log", "torch.where((a.abs() - 1).abs() < 0.5, 3 * a, a)"),
            ("exp", "torch.complex(a.real.clamp(-60, 60), a.imag.clamp(-2, 2))"),
            ("tanh", f"torch.complex({_LARGE.format(200)}, a.imag.clamp(-2, 2))"),
            ("tan", f"torch.complex(a.imag.clamp(-2, 2), {_LARGE.format(200)})"),
            ("cosh", f"torch.complex({_LARGE.format(89)}, a.imag.clamp(-2, 2))"),
            ("sinh", f"torch.complex({_LARGE.format(89)}, a.imag.clamp(-2, 2))"),
        )
    ),
    # That of complex128 overflows in squares.
    _far_complex(
        "torch.div(a, a * (2.0 + (a.real > 0)))",
        name="complex quotient, far",
        definition="0 * a + 1 / (2.0 + (a.real > 0))",
        kinds=("complex64",),
        roundings=16.0,
    ),
)
# Zero has a sign of its own, and NaN any bits.
SIGNED = "round trunc ceil floor neg abs sin tan tanh atan asinh expm1"
SIGNS = (
    *each(SIGNED, _choice, "torch.$(a).signbit()", name="sign of $", values=("signed",)),
    _function("torch.atan2(a * 0, b)", name="atan2 of zeros", values=("signed",)),
    _choice(
        "torch.nan_to_num(a).isfinite()", name="nan_to_num of the largest", values=("non-finite",)
    ),
    *each(
        "bfloat16 float16 float64",
        _integer,
        "(a | 0x7F800001).view(torch.float32).to(torch.$).isnan()",
        name="cast of NaN to $",
        definition="torch.ones_like(a, dtype=torch.bool)",
        kinds=("int32",),
        strided=False,
    ),
)
# What an integer cannot be has no conversion; of fractions it is the whole part.
WHOLE = ("eighths", "small", "wide")
CAST = tuple(
    each(
        {
            "int32 int64 int16": {"values": WHOLE},
            "float16 bfloat16 float32 float64": {"values": (*WHOLE, "normal", "far", "non-finite")},
            "bool": {"values": WHOLE},
            "uint8": {"fit": "{x}.abs()", "values": WHOLE[:2]},
            "int8": {"values": WHOLE[:2]},
        },
        moved,
        "a.to(torch.$)",
        EACH,
        name="cast to $",
        backward=False,
        kinds=(*INTEGERS, "bool"),
        halves="cpu",
    )
)
# Bits of the mantissa, the exponent of the least normal number, and the largest number of each.
# What is beyond it is another number in each version of torch.
_EIGHT_BITS: Mapping[str, tuple[int, int, float]] = {
    "float8_e4m3fn": (3, -6, 448.0),
    "float8_e5m2": (2, -14, 57344.0),
    "float8_e4m3fnuz": (3, -7, 240.0),
    "float8_e5m2fnuz": (2, -15, 57344.0),
}
_by_steps: Make = partial(_by_element, moved, values=("quarters",), cases=FEW_CASES, halves="cpu")
EIGHT_BITS = (
    *(
        moved(
            f"a.to(torch.{kind}).to(a.dtype)",
            EACH,
            name=f"cast to {kind}",
            definition="(lambda e: (a / e).round() * e)(2.0 ** (a.abs().clamp(min=2.0 ** "
            f"{least}).log2().floor() - {bits}))",
            values=("short",),
            fit=f"{{x}}.clamp(-{most}, {most})",
            backward=False,
            doubles=False,
            cases=FEW_CASES,
        )
        for kind, (bits, least, most) in _EIGHT_BITS.items()
    ),
    *(
        _by_steps(
            code,
            shapes,
            name=name,
            # The gradient passes where nothing is cut off.
            definition=(
                "(lambda q, s, z: (lambda x: x + ((q.clamp(-6, 7) - z) * s - x).detach())("
                "torch.where((q >= -6) & (q <= 7), a, 0)))(*(lambda s, z: [(a.detach() / s).round()"
                f" + z, s, z])({steps}))"
            ),
            **options,
        )
        for name, code, shapes, steps, options in (
            (
                "fake_quantize",
                "torch.fake_quantize_per_tensor_affine(a, {scale}, {zero}, -6, 7)",
                EACH,
                "{scale}, {zero}",
                {"scale": (0.5, 0.25), "zero": (3, 0)},
            ),
            (
                "fake_quantize by rows",
                "torch.fake_quantize_per_channel_affine(a, 2.0 ** -b, (c - 3).int(), 0, -6, 7)",
                "m n, @3 m, @7 m | m k n, @3 m, @7 m",
                "*[x.view(-1, *[1] * (a.dim() - 1)) for x in (2.0 ** -b, c - 3)]",
                {},
            ),
            (
                "fake_quantize learnt",
                (
                    "torch._fake_quantize_learnable_per_channel_affine(a, (2.0 ** -b).to(a.dtype),"
                    " (c - 3).to(a.dtype) * 0.875, 0, -6, 7)"
                ),
                "m n, @3 m, @7 m",
                "*[x[:, None] for x in (2.0 ** -b, ((c - 3) * 0.875).round())]",
                {"backward": False, "doubles": False, "halves": False},
            ),
        )
    ),
    # Kernels differ at ties: some round before they add the zero point, some after.
    *(
        _by_steps(
            "(lambda q: [q.int_repr().long(), q.dequantize()])(torch.quantize_per_tensor("
            f"a + 1 / 32, {{scale}}, {{zero}}, torch.{kind}))",
            name=f"quantize to {kind}",
            definition=(
                "(lambda q: [q.long(), (q - {zero}) * {scale}])((((a + 1 / 32) / {scale}).round()"
                f" + {{zero}}).clamp({low}, {high}))"
            ),
            scale=(0.5, 0.25),
            zero=(3, 0),
            doubles=False,
            halves=False,
            backward=False,
        )
        for kind, low, high in (("quint8", 0, 255), ("qint8", -128, 127))
    ),
)
ELEMENTWISE: tuple[Operation, ...] = (
    *(*UNARY, *BINARY, *TERNARY, *ACTIVATIONS, *FAR, *COMPLEX_CALLS, *CAST, *SIGNS, *EIGHT_BITS),
)
