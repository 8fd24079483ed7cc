"""Options of a library's architectures, for every command line. Needs no torch."""

from __future__ import annotations

import argparse
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

_MOST = 3600


@dataclass(frozen=True, kw_only=True)
class LibraryOption:
    """An option, for every command line."""

    name: str
    help: str
    default: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")


LIBRARY_OPTIONS = (
    LibraryOption(name="library", help="whose registry of architectures is run: transformers"),
    LibraryOption(
        name="architectures", help="types by name, with commas between them, or all (all)"
    ),
    LibraryOption(name="kinds", help=f"only of these kinds: {', '.join(KINDS)}"),
    LibraryOption(
        name="modes",
        help=f"what is done with each: {', '.join(MODES)}, or all ({','.join(USUAL_MODES)})",
    ),
    LibraryOption(name="limit-seconds", help="what one architecture may take (90)"),
    LibraryOption(name="workers", help="how many at once (as many as processors, 4 at most)"),
)


@dataclass(frozen=True, kw_only=True)
class Library:
    """Whose architectures, which of them, and what is done with each."""

    library: str
    architectures: tuple[str, ...] = ("all",)
    kinds: tuple[str, ...] = ()
    modes: tuple[str, ...] = USUAL_MODES
    limit_seconds: float = 90.0
    workers: int = 0

    def again(self, _number: int) -> Library:
        """The same once more: what is drawn does not depend on the run."""
        return self

    def document(self) -> dict[str, object]:
        return dict(vars(self))

    def arguments(self) -> tuple[str, ...]:
        """Return the options of a command line."""
        values = {
            "library": self.library,
            "architectures": ",".join(self.architectures),
            "kinds": ",".join(self.kinds),
            "modes": ",".join(self.modes),
            "limit-seconds": f"{self.limit_seconds:g}",
            "workers": str(self.workers),
        }
        return tuple(f"--{name}={value}" for name, value in values.items() if value)


def add_library_options(parser: argparse.ArgumentParser) -> None:
    for option in LIBRARY_OPTIONS:
        parser.add_argument(f"--{option.name}", default=option.default, help=option.help)


def parsed_library(options: argparse.Namespace) -> Library:
    """Return the options of a command line that `add_library_options`
    extended. Raise `ValueError`.
    """
    return read_library(
        **{name: getattr(options, name) for name in (o.attribute for o in LIBRARY_OPTIONS)}
    )


def read_library(**values: str) -> Library:
    """Return options by their names. Raise `ValueError` with the fault of one of them."""
    names = _listed(values["architectures"]) or ("all",)
    modes = _some("modes", values["modes"], (*MODES, "all")) or USUAL_MODES
    return Library(
        library=(_some("library", values["library"], LIBRARIES) or LIBRARIES)[0],
        architectures=("all",) if "all" in names else names,
        kinds=_some("kinds", values["kinds"], KINDS),
        modes=MODES if "all" in modes else modes,
        limit_seconds=_number("limit-seconds", values["limit_seconds"] or "90"),
        workers=int(_number("workers", values["workers"] or "0")),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _some(option: str, text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    for name in _listed(text):
        if name not in allowed:
            raise ValueError(f"--{option} {name!r} is none of {', '.join(allowed)}")
    return _listed(text)


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MOST:
        raise ValueError(f"--{option} {text!r} is no number from 0 to {_MOST}")
    return number
