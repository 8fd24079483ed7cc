"""Sums of products: matrices, convolutions, attention and recurrent layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from warpfront_checks.cases.case import COMPLEX
from warpfront_checks.cases.catalogue.record import FLAG, each, exact, rounded, steps
from warpfront_checks.cases.operation import CASES, MANY_CASES, SUMS, Operation

BETA = {"beta": (1, 0, 2), "alpha": (1, -1)}
_product = partial(exact, values=(*SUMS, "ones", "high"), cases=MANY_CASES)
MATRICES: tuple[Operation, ...] = (
    _product("torch.mm(a, b)", "m k, k n"),
    _product("F.linear(a, b, c)", "m k, n k, n | b m k, n k, n | k, n k, n", absent=("c",)),
    _product("F.linear(a, b)", "m k, n k | b m k, n k", name="linear without bias"),
    _product("torch.bmm(a, b)", "b m k, b k n"),
    # As an operator: into memory that is no view of its folded product torch refuses to put it.
    _product(
        "a @ b",
        "m k, k n | b m k, k n | m k, b k n | b 1 m k, h k n | k, k n | m k, k | k, k",
        name="matmul",
    ),
    _product(
        "torch.addmm(a, b, c, beta={beta}, alpha={alpha})", "m n, m k, k n | n, m k, k n", **BETA
    ),
    _product(
        "torch.baddbmm(a, b, c, beta={beta}, alpha={alpha})",
        "b m n, b m k, b k n | m n, b m k, b k n",
        **BETA,
    ),
    _product(
        "torch.addbmm(a, b, c, beta={beta}, alpha={alpha})",
        "m n, b m k, b k n",
        # The CPU's takes one matrix after the other: 70 s for 65,537.
        definition="{beta} * a.masked_fill(torch.tensor(not {beta}), 0) + {alpha} * (b @ c).sum(0)",
        # In 16 bits the sum of each matrix is rounded.
        values=SUMS,
        **BETA,
    ),
    _product("torch.mv(a, b)", "m k, k"),
    _product("torch.addmv(a, b, c, beta={beta}, alpha={alpha})", "m, m k, k", **BETA),
    _product("torch.addr(a, b, c, beta={beta}, alpha={alpha})", "m n, m, n", **BETA),
    *each("dot vdot", _product, "torch.$(a, b)", "k, k"),
    *each(
        "dot vdot",
        _product,
        "torch.$(a, b)",
        "k, k",
        name="complex $",
        values=("few", "small"),
        floats=False,
        kinds=tuple(COMPLEX),
        cases=CASES,
    ),
    # Conjugated by a bit alone.
    _product(
        "(a.conj() if {left} else a) @ (b.conj() if {right} else b)",
        "m k, k n | b m k, b k n | m k, k",
        name="product of conjugates",
        left=FLAG,
        right=FLAG,
        values=("few", "small"),
        floats=False,
        kinds=tuple(COMPLEX),
        cases=CASES,
    ),
    # What beta of 0 leaves out is not read, whatever it is.
    *each(
        {
            "addmm": {"shapes": "m n, m k, k n | n, m k, k n | m 1, m k, k n | , m k, k n"},
            "baddbmm": {"shapes": "b m n, b m k, b k n | m n, b m k, b k n | b 1 n, b m k, b k n"},
            "addbmm": {
                "shapes": "m n, b m k, b k n | n, b m k, b k n",
                "values": SUMS,
                "definition": "torch.zeros_like(a) + {alpha} * (b @ c).sum(0)",
            },
            "addmv": {"shapes": "m, m k, k | 1, m k, k"},
            "addr": {"shapes": "m n, m, n | n, m, n"},
        },
        _product,
        "torch.$(torch.full_like(a, math.nan), b, c, beta=0, alpha={alpha})",
        name="$ of beta 0",
        definition="torch.$(torch.zeros_like(a), b, c, beta=0, alpha={alpha})",
        alpha=(1, -1),
        cases=CASES,
    ),
    _product(
        "torch._int_mm(a.flatten(1), b.flatten(2).flatten(0, 1))",
        "m k 8, k 8 n 8",
        name="int8 products",
        definition="a.flatten(1).int() @ b.flatten(2).flatten(0, 1).int()",
        # Sizes that cuBLASLt takes.
        least_size=17,
        m=(17, 259),
        n=(17, 67),
        k=(17, 1031),
        floats=False,
        kinds=("int8",),
        strided=False,
        backward=False,
        cases=22,
    ),
    _product("torch.outer(a, b)", "m, n"),
    _product("torch.einsum('bik,bjk->ijb', a, b)", "b i k, b j k"),
    _product("torch.tensordot(a, b, 2)", "m k l, k l n"),
    _product("torch.kron(a, b)", "m n, p q", strided=False, n=2, q=2),
    _product(
        "F.bilinear(a, b, c, d)",
        "n i, n j, m i j, m",
        n=(2, 8000),
        i=2,
        j=2,
        m=(2, 67),
        values=("small", "few"),
        absent=("d",),
    ),
    # No number past the range of float16: a difference of two infinities is none.
    _product("torch.linalg.cross(a, b, dim={dim})", "3 n 3, 3 n 3", values=SUMS, dim=(0, -1)),
)
# A transform's rounding in 256 units of the largest number; a rounded operand changes it by more.
# On the CPU (torch 2.11, 2.13) the gradient of a bfloat16 weight ends the process for volumes,
# and is no number that was computed for images smaller than a window.
_windows = partial(
    exact,
    halves="cpu",
    cases=46,
    roundings=256.0,
    half_roundings=8.0,
    half_backward=False,
    least=1.0,
    work=100_000,
    b=2,
    c=3,
    o=2,
    y=6,
    x=7,
    s=(3, 131),
    t=(3, 131),
    r=(2, 67),
    z=4,
)
_biased = partial(_windows, absent=("c",))
# The places of images and of filters by their number of axes.
PLACES = (("1", "x", "3"), ("2", "y x", "3 3"), ("3", "z y x", "2 3 2"))
STEPS = {"stride": (1, 2), "dilation": (1, 2), "groups": (1,)}


def _convolved(dims: int) -> str:
    """Return a call whose padding makes every window fit, whatever the sizes.

    The last tap of the first window lies on the first number. Where no window has a number of an
    image of one place, oneDNN before 3.14 ends the process (pytorch#195394, oneDNN#5942).
    """
    taps = ("{t}", "{s}", "{r}")[:dims][::-1]
    padding = ", ".join(f"({tap} - 1) * {{dilation}}" for tap in taps)
    return (
        f"F.conv{dims}d(a, b, c, stride={{stride}}, padding=({padding},), dilation={{dilation}},"
        " groups={groups})"
    )


CONVOLUTIONS: tuple[Operation, ...] = (
    *each(
        {
            dims: {"shapes": f"b c {places}, o c {taps}, o | c {places}, o c {taps}, o"}
            for dims, places, taps in (
                ("1", "x", "3"),
                ("2", "y x", "3 3"),
                ("3", "z y x", "2 3 1"),
            )
        },
        _biased,
        "F.conv$d(a, b, c, stride={stride}, padding={padding}, dilation={dilation})",
    ),
    _windows(_convolved(1), "b c x, o c t, o", name="conv1d of long filters", **STEPS),
    _windows(_convolved(2), "b c y x, o c s t, o", name="conv2d of long filters", **STEPS),
    _windows(
        _convolved(3),
        "b c z y x, o c r s t, o",
        name="conv3d of long filters",
        **dict.fromkeys(STEPS, (1,)),
        s=(2, 2),
    ),
    _windows("F.conv2d(a, b, c)", "b c y x, o c 1 1, o", name="conv2d of pixels"),
    _biased(
        "F.conv2d(a, b, c, stride={stride}, padding=3)",
        "b c y x, o c 7 7, o",
        name="conv2d of 7",
        stride=(1, 2),
    ),
    *(
        _windows(
            f"F.conv{dims}d(a.flatten(1, 2), b.flatten(0, 1), None, groups={{g}},"
            f" stride={{stride}}, padding={padding})",
            shapes,
            name=f"conv{dims}d of groups",
            g=3,
            stride=(1, 2),
        )
        for dims, padding, shapes in ((1, 2, "b g c x, g o c 3"), (2, 1, "b g c y x, g o c 3 3"))
    ),
    _biased(
        "F.conv2d(a, b, c, groups={c}, stride={stride}, padding={padding}, dilation={dilation})",
        "b c y x, c 1 3 3, c",
        name="conv2d, depthwise",
        padding=steps(2, 0, 1, 2),
    ),
    *each(
        {
            dims: {
                "shapes": f"b c {places}, c o {taps}, o | c {places}, c o {taps}, o",
                "stride": steps(int(dims), 2, 3),
            }
            for dims, places, taps in PLACES
        },
        _biased,
        "F.conv_transpose$d(a, b, c, stride={stride}, padding={padding},"
        " output_padding={extra}, dilation={dilation})",
    ),
    _windows(
        "F.conv_transpose2d(a.flatten(1, 2), b.flatten(0, 1), None, groups={g}, stride={stride})",
        "b g c y x, g c o 2 3",
        name="conv_transpose2d of groups",
        g=3,
        stride=(1, 2),
    ),
    _windows(
        "F.unfold(a, (2, 3), padding={padding}, dilation={dilation}, stride={stride})",
        "b c y x | c y x",
        padding=steps(2, 1, 2),
        dilation=steps(2, 1, 2),
        stride=steps(2, 1, 2),
    ),
    _windows(
        "F.fold(F.unfold(a, 2, padding={padding}, stride={stride}), ({y}, {x}), 2,"
        " padding={padding}, stride={stride})",
        "b c y x | c y x",
        padding=steps(2, 0, 1),
        stride=steps(2, 1, 2),
    ),
)
# By themselves until they are seen on a GPU.
GROUPED: tuple[Operation, ...] = (
    *each(
        {dims: {"shapes": f"b 6 {places}, 4 3 {taps}, 4"} for dims, places, taps in PLACES},
        _biased,
        "F.conv$d(a, b, c, groups=2, stride={stride}, padding={padding}, dilation={dilation})",
        name="conv$d of two groups",
    ),
    _biased(
        "F.conv_transpose2d(a, b, c, groups=2, stride={stride}, padding={padding},"
        " output_padding={extra}, dilation={dilation})",
        "b 6 y x, 6 2 3 3, 4",
        name="conv_transpose2d of two groups",
        stride=steps(2, 2, 3),
        padding=steps(2, 0, 1),
        extra=steps(2, 0, 1),
        dilation=(1, 2),
    ),
    _windows(
        "F.conv1d(a, b, c, groups=2, padding={t} - 1)",
        "b 6 x, 4 3 t, 4",
        name="conv1d of long filters of two groups",
    ),
)
_heads = partial(
    rounded,
    roundings=256.0,
    half_roundings=16.0,
    h=2,
    b=2,
    # Past half a tile of 64 queries or keys, also where a head is wide.
    q=33,
    k=37,
    d=(8, 259),
    e=(8, 259),
    work=1_000_000,
    values=("normal", "quarters"),
    # Kernels of some devices refuse memory that is not aligned, or break on it.
    strided=False,
)
_QKV = "b h q d, b h k d, b h k d"
# Each operand as it is drawn, by tokens, or of one sample for all.
_FORMS = "x, x.transpose(1, 2).contiguous().transpose(1, 2), x[:1].expand_as(x)"
_LAID = f"*([{_FORMS}][i] for x, i in zip((a, b, c), {{placed}}))"
# Every query has a key, unless a record is about those without.
_SEEN = "d | (torch.arange({k}, device=d.device) == 0)"
_MASKS = " | ".join(f"{_QKV}, {mask}" for mask in ("{}q k", "{}b h q k", "{}b 1 q k", "{}1 h 1 k"))


def _attention(name: str, call: str, shapes: str = _QKV, **options: Any) -> Operation:
    """Return a record whose output is transposed, so that its gradient is."""
    code = f"F.scaled_dot_product_attention({call}, scale={{scale}}).transpose(1, 2)"
    return _heads(code, shapes, name=name, **{"scale": (None, 0.5), **options})


ATTENTION: tuple[Operation, ...] = (
    _attention("attention", _LAID),
    _attention(
        "attention of transposed heads",
        "a.transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2), is_causal={causal}",
        "b q h d, b k h d, b k h d",
    ),
    _attention("attention of other values", _LAID, "b h q d, b h k d, b h k e"),
    _attention(
        "causal attention", f"{_LAID}, is_causal=True", "b h q d, b h q d, b h q d", q=(33, 1031)
    ),
    _attention("causal attention of other lengths", f"{_LAID}, is_causal=True"),
    _attention("attention with an added mask", f"{_LAID}, attn_mask=d", _MASKS.replace("{}", "!")),
    _attention(
        "attention with hidden keys",
        f"{_LAID}, attn_mask=torch.where({_SEEN}, 0.0, -math.inf).to(a.dtype) if {{added}} else"
        f" {_SEEN}",
        _MASKS.replace("{}", "?"),
    ),
    _attention(
        "attention of queries without keys",
        f"{_LAID}, attn_mask=d & (torch.arange({{q}}, device=d.device) % 3 > 0)[:, None]",
        f"{_QKV}, ?q k | {_QKV}, ?b h q k",
        # CUDA's kernels for 16 bits return means for such a query (2.11, H200).
        halves="cpu",
    ),
    _attention(
        "grouped attention",
        f"{_LAID.replace('(a,', '(a.flatten(1, 2),')}, enable_gqa=True, is_causal={{causal}}",
        "b h g q d, b h k d, b h k d",
        g=2,
    ),
)


_PACKED = "torch.nn.utils.rnn.pack_padded_sequence(a, {lengths}, enforce_sorted={ordered})"
# Sequences of other lengths: the longest first, and in no order.
_FALLING = "{t} - torch.arange({b}) * {t} // {b}"
_ANY = "torch.arange({b}) * 5 % {t} + 1"
# A bias's gradient adds up some 400 rounded terms: four deviations.
_layer = partial(
    rounded,
    fit="{x} / 16",
    roundings=256.0,
    half_roundings=16.0,
    values=("quarters", "normal"),
    halves="cpu",
    strided=False,
)


def _recurrent(name: str, gates: int) -> Operation:
    """Return the record of a recurrent layer: steps, sequences, inputs, states, both biases."""
    state = "(b[None], b[None])" if name == "lstm" else "b[None]"
    weights = "[w.flatten(0, 1) for w in (c, d, e, f)]"
    return _layer(
        f"torch.{name}(a, {state}, {weights}, True, 1, 0.0, True, False, {{first}})[0]",
        f"t b i, b h, {gates} h i, {gates} h h, {gates} h, {gates} h",
        first=(False,),
        t=(3, 259),
        h=(3, 1031),
    )


def _both_ways(name: str, gates: int, *, packed: bool) -> Operation:
    """Return the record of a layer of both directions, with last states; output transposed."""
    state = "(b[0], b[1])" if name == "lstm" else "b[0]"
    falling = _PACKED.replace("{lengths}", _FALLING).replace("{ordered}", "True")
    steps = f"*(lambda p: (p.data, p.batch_sizes))({falling})" if packed else "a"
    rest = "True, 1, 0.0, True, True" + ", False" * (not packed)
    call = (
        f"torch.{name}({steps}, {state}, [w.flatten(0, 1) for both in zip(c, d, e, f) for w in"
        f" both], {rest})"
    )
    return _layer(
        f"(lambda y, *last: torch.cat([x.flatten() for x in (y.transpose(0, 1), *last)]))(*{call})",
        f"t b i, {2 if name == 'lstm' else 1} 2 b h, 2 {gates} h i, 2 {gates} h h, 2 {gates} h,"
        f" 2 {gates} h",
        name=f"packed {name}" if packed else f"{name} of both directions",
        t=(3, 33),
        b=(3, 259),
        i=(3, 67),
        h=(3, 67),
        cases=16,
        # Which side of its kink a sum lies on is a rounding's to decide.
        half_backward=name != "rnn_relu",
        # cuDNN's gradients are off by an eighth on an H200; why was not looked into.
        unseen=("cuda",) if name == "rnn_relu" else (),
    )


RECURRENT: tuple[Operation, ...] = (
    _recurrent("lstm", 4),
    _recurrent("gru", 3),
    _recurrent("rnn_tanh", 1),
)
BIDIRECTIONAL: tuple[Operation, ...] = (
    *(
        _both_ways(name, gates, packed=packed)
        for name, gates in (("lstm", 4), ("gru", 3), ("rnn_relu", 1))
        for packed in (False, True)
    ),
    exact(
        "torch.nn.utils.rnn.pad_packed_sequence("
        + _PACKED.replace("{lengths}", _ANY).replace("{ordered}", "False")
        + ")[0]",
        "t b i",
        name="packed sequences",
        definition=(
            f"(lambda n: (a * (torch.arange({{t}})[:, None] < n)[..., None])[: n.max()])({_ANY})"
        ),
        ulps=0.0,
        cases=16,
    ),
)
