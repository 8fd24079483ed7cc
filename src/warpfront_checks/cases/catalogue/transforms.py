"""Fourier transforms, windows and frames of sounds."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.catalogue.record import PARTS, each, exact, rounded
from warpfront_checks.cases.operation import Operation

NORM = (None, "ortho", "forward")
# Each of log2(n) rounds rounds once; a prime takes a transform of another length, or n steps.
_waves = partial(
    rounded,
    values=("normal", "quarters"),
    halves=False,
    # MKL's float64 was 38 roundings off for a length of 25 * 41, numpy's 2.
    doubles=False,
    least=0.25,
    roundings=64.0,
    cases=58,
)
_planes = partial(_waves, least_size=3)
_SIGNAL = "torch.complex(a, b)[..., {first}:]"
_line = partial(_waves, dim=(-1, 0), norm=NORM, first=(0, 1), size=(None, 5, 16), least_size=2)
_plane = partial(_planes, norm=NORM, first=(0, 1))
LINES = (
    *each(
        "fft ifft",
        _line,
        f"{PARTS}(torch.fft.$({_SIGNAL}, {{size}}, {{dim}}, {{norm}}))",
        "m n, m n | b m n, b m n",
        name="$",
    ),
    _line(
        f"{PARTS}(torch.fft.rfft(a[..., {{first}}:], {{size}}, {{dim}}, {{norm}}))",
        "m n | b m n",
        name="rfft",
    ),
    _waves(
        "torch.fft.irfft(torch.fft.rfft(a, None, {dim}, {norm})[..., {first}:], a.shape[{dim}]"
        " if {dim} == 0 or not {first} else 7, {dim}, {norm})",
        "m n | b m n",
        dim=(-1, 0),
        norm=NORM,
        first=(0, 1),
        least_size=4,
    ),
    _waves("torch.fft.hfft(torch.fft.ihfft(a), a.shape[-1])", "m n"),
    *each(
        "fft2 ifft2 fftn",
        _plane,
        f"{PARTS}(torch.fft.$({_SIGNAL}, norm={{norm}}))",
        "b y x, b y x | b c y x, b c y x",
        name="$",
    ),
    *each(
        "rfft2 rfftn",
        _plane,
        f"{PARTS}(torch.fft.$(a[..., {{first}}:], norm={{norm}}))",
        "b y x | b c y x",
        name="$",
    ),
    _planes("torch.fft.irfft2(torch.fft.rfft2(a), s=a.shape[-2:])", "b y x | b c y x"),
    # rfftn's own result has strides with which MKL writes past its memory.
    _planes("torch.fft.irfftn(torch.fft.rfftn(a).contiguous(), s=a.shape)", "b y x | b c y x"),
    # Of its own argument, which it must not work in. Numbers that no real ones have are inverted by
    # each library in its own way: an odd length has none but in the first column.
    _planes(
        "torch.fft.irfft2(a, s=(a.shape[-2], 2 * a.shape[-1] - 1))",
        "b y x | b c y x",
        name="irfft2 of a spectrum",
        kinds=("complex64",),
        floats=False,
        values=("spectrum",),
        backward=False,
        unseen=("cuda",),
    ),
    # Kernels are made for each small factor.
    _waves(
        f"{PARTS}(torch.fft.fft2(torch.complex(a, b)))",
        "4 x, 4 x | x 4, x 4",
        name="fft of a length",
        cases=88,
    ),
)
_made = partial(rounded, halves=False, backward=False, cases=11)
FRAMES = (
    *each(
        "hann hamming blackman bartlett kaiser",
        _made,
        "torch.$_window({count}, periodic={periodic}, dtype=a.dtype, device=a.device) + 0 * a[:1]",
        "k",
        # The ends of some are nearly 0: of two numbers, all.
        count=(9, 2, 400),
    ),
    *(
        _made(
            f"torch.{name}, {{count}}, dtype=a.dtype, device=a.device) + 0 * a[:1]",
            "k",
            count=(2, 9, 400),
        )
        for name in ("linspace(-3, 5", "logspace(-3, 2")
    ),
    exact(
        "torch.linspace(5, 5 + ({count} - 1) * (2**20 + 1), {count}, dtype=torch.int64,"
        " device=a.device)",
        "k",
        name="linspace of integers",
        definition="5 + torch.arange({count}) * (2**20 + 1)",
        count=(2, 7, 400),
        backward=False,
        cases=11,
    ),
    _waves(
        "torch.istft(torch.stft(a, 64, 16, window=torch.hann_window(64, dtype=a.dtype,"
        " device=a.device), return_complex=True), 64, 16, window=torch.hann_window(64,"
        " dtype=a.dtype, device=a.device), length={t})",
        "b t",
        definition="a.clone()",
        b=2,
        t=(400, 4099),
        least_size=65,
    ),
    _waves(
        f"{PARTS}(torch.stft(a, 64, 16, window=torch.hann_window(64, dtype=a.dtype,"
        " device=a.device), return_complex=True))",
        "b t",
        name="stft",
        b=2,
        t=(400, 4099),
        least_size=65,
    ),
)
TRANSFORMS: tuple[Operation, ...] = (*LINES, *FRAMES)
