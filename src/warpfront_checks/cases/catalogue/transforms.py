"""Fourier transforms, windows and frames of sounds."""

from __future__ import annotations

from functools import partial

from warpfront_checks.cases.catalogue.record import PARTS, exact, rounded
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
    cases=44,
)
_planes = partial(_waves, least_size=3)
_SIGNAL = "torch.complex(a, b)[..., {first}:]"
LINES = (
    *(
        _waves(
            f"{PARTS}(torch.fft.{name}({x}, {{size}}, {{dim}}, {{norm}}))",
            shapes,
            name=name,
            dim=(-1, 0),
            norm=NORM,
            first=(0, 1),
            size=(None, 5, 16),
            least_size=2,
        )
        for name, x, shapes in (
            ("fft", _SIGNAL, "m n, m n | b m n, b m n"),
            ("ifft", _SIGNAL, "m n, m n | b m n, b m n"),
            ("rfft", "a[..., {first}:]", "m n | b m n"),
        )
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
    *(
        _planes(
            f"{PARTS}(torch.fft.{name}({x}, norm={{norm}}))",
            shapes,
            name=name,
            norm=NORM,
            first=(0, 1),
        )
        for name, x, shapes in (
            ("fft2", _SIGNAL, "b y x, b y x | b c y x, b c y x"),
            ("ifft2", _SIGNAL, "b y x, b y x | b c y x, b c y x"),
            ("fftn", _SIGNAL, "b y x, b y x | b c y x, b c y x"),
            ("rfft2", "a[..., {first}:]", "b y x | b c y x"),
            ("rfftn", "a[..., {first}:]", "b y x | b c y x"),
        )
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
        cases=66,
    ),
)
_made = partial(rounded, halves=False, backward=False, cases=8)
FRAMES = (
    *(
        _made(
            f"torch.{name}_window({{count}}, periodic={{periodic}}, dtype=a.dtype,"
            " device=a.device) + 0 * a[:1]",
            "k",
            # The ends of some are nearly 0: of two numbers, all.
            count=(9, 2, 400),
        )
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
    ),
    *(
        _made(
            f"torch.{name}(-3, {last}, {{count}}, dtype=a.dtype, device=a.device) + 0 * a[:1]",
            "k",
            count=(2, 9, 400),
        )
        for name, last in (("linspace", 5), ("logspace", 2))
    ),
    exact(
        "torch.linspace(5, 5 + ({count} - 1) * (2**20 + 1), {count}, dtype=torch.int64,"
        " device=a.device)",
        "k",
        name="linspace of integers",
        definition="5 + torch.arange({count}) * (2**20 + 1)",
        count=(2, 7, 400),
        backward=False,
        cases=8,
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
