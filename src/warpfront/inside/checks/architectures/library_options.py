"""What is asked of a library's architectures, as every door has it. Needs no torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

LIBRARIES = ("transformers",)
MODES = (
    "float32",
    "bfloat16",
    "float16",
    "training",
    "generate",
    "device_map",
    "attention",
    "compiled",
)
USUAL_MODES = ("float32", "training", "generate")
KINDS = ("causal", "encoder-decoder", "vision", "audio", "multimodal", "encoder")


@dataclass(frozen=True, kw_only=True)
class Library:
    """Whose architectures, which of them, and what is done with each."""

    library: str
    architectures: tuple[str, ...] = ("all",)
    kinds: tuple[str, ...] = ()
    modes: tuple[str, ...] = USUAL_MODES
    limit_seconds: float = 90.0
    workers: int = 0

    def arguments(self) -> tuple[str, ...]:
        """As options of a command line."""
        said = {
            "library": self.library,
            "architectures": ",".join(self.architectures),
            "kinds": ",".join(self.kinds),
            "modes": ",".join(self.modes),
            "limit-seconds": f"{self.limit_seconds:g}",
            "workers": str(self.workers),
        }
        return tuple(f"--{name}={value}" for name, value in said.items() if value)


def add_library_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--library", choices=LIBRARIES, default="", help="whose registry of architectures is run"
    )
    parser.add_argument(
        "--architectures", default="all", help="types by name, with commas between them, or all"
    )
    parser.add_argument(
        "--kinds", default="", type=_some(KINDS), help=f"only of these kinds: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--modes",
        default=",".join(USUAL_MODES),
        type=_some((*MODES, "all")),
        help=f"what is done with each: {', '.join(MODES)}, or all ({','.join(USUAL_MODES)})",
    )
    parser.add_argument(
        "--limit-seconds", default=90.0, type=float, help="what one architecture may take (90)"
    )
    parser.add_argument(
        "--workers", default=0, type=int, help="how many at once (as many as processors, 4 at most)"
    )


def parsed_library(options: argparse.Namespace) -> Library:
    """Of a command line to which `add_library_options` gave its options."""
    names = _listed(options.architectures) or ("all",)
    modes = _listed(options.modes)
    return Library(
        library=options.library or LIBRARIES[0],
        architectures=("all",) if "all" in names else names,
        kinds=_listed(options.kinds),
        modes=MODES if "all" in modes else modes,
        limit_seconds=options.limit_seconds,
        workers=options.workers,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _some(known: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        for name in _listed(text):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return text

    return read
