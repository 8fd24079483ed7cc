"""Options of a library's architectures, for every command line. Needs no torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from warpfront_checks.check_options import RunOption, command_line, option_values

LIBRARIES = ("transformers",)
_USES = ("training", "generate", "device_map", "attention", "compiled")
MODES = ("float32", "bfloat16", "float16", *_USES)
USUAL_MODES = ("float32", "training", "generate")
KINDS = ("causal", "encoder-decoder", "vision", "audio", "multimodal", "encoder")

_MOST = 3600


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
        values = {option.name: getattr(self, option.attribute) for option in LIBRARY_OPTIONS}
        texts = {k: ",".join(v) if isinstance(v, tuple) else str(v) for k, v in values.items()}
        return command_line({**texts, "limit-seconds": f"{self.limit_seconds:g}"})


def parsed_library(options: argparse.Namespace) -> Library:
    """Return the options of a command line that has `LIBRARY_OPTIONS`."""
    return read_library(**option_values(options, LIBRARY_OPTIONS))


def read_library(**values: str) -> Library:
    """Return options by their names. Raise `ValueError` with the fault of one of them."""
    read = {option.attribute: option.read(values[option.attribute]) for option in LIBRARY_OPTIONS}
    return Library(**read)  # type: ignore[arg-type]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _some(option: str, allowed: tuple[str, ...], text: str) -> tuple[str, ...]:
    for name in _listed(text):
        if name not in allowed:
            raise ValueError(f"--{option} {name!r} is none of {', '.join(allowed)}")
    return _listed(text)


def _read_names(text: str) -> tuple[str, ...]:
    names = _listed(text) or ("all",)
    return ("all",) if "all" in names else names


def _read_modes(text: str) -> tuple[str, ...]:
    modes = _some("modes", (*MODES, "all"), text) or USUAL_MODES
    return MODES if "all" in modes else modes


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MOST:
        raise ValueError(f"--{option} {text!r} is no number from 0 to {_MOST}")
    return number


_KINDS_HELP = f"only of these kinds: {', '.join(KINDS)}"
_MODES_HELP = f"what is done with each: {', '.join(MODES)}, or all ({','.join(USUAL_MODES)})"
_WORKERS_HELP = "how many at once (as many as processors, 4 at most)"
_LIBRARY_HELP = "whose registry of architectures is run: transformers"
_NAMES_HELP = "types by name, with commas between them, or all (all)"
_LIMIT_HELP = "what one architecture may take (90)"
LIBRARY_OPTIONS = (
    RunOption(
        "library", "", _LIBRARY_HELP, lambda t: (_some("library", LIBRARIES, t) or LIBRARIES)[0]
    ),
    RunOption("architectures", "", _NAMES_HELP, _read_names),
    RunOption("kinds", "", _KINDS_HELP, partial(_some, "kinds", KINDS)),
    RunOption("modes", "", _MODES_HELP, _read_modes),
    RunOption("limit-seconds", "", _LIMIT_HELP, lambda t: _number("limit-seconds", t or "90")),
    RunOption("workers", "", _WORKERS_HELP, lambda t: int(_number("workers", t or "0"))),
)
