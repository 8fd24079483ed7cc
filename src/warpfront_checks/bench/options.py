"""The options of `bench`; every CLI makes its options from `BENCH_OPTIONS`. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from warpfront_checks.bench.timed_cases import ITEM_BYTES, PRESETS, SUITES
from warpfront_checks.check_options import (
    RunOption,
    command_line,
    read_names,
    read_number,
    read_options,
)

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class BenchEffort:
    """The cases to time, and the budget of each: `iterations` and `warmup` above 0 count, in place
    of `seconds`. No suite named is every suite.
    """

    seconds: float = 0.5
    iterations: int = 0
    warmup: int = 0
    preset: str = "default"
    cases: str = ""
    dtypes: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    cold: bool = False
    tf32: bool = False
    reference: bool = False

    def arguments(self) -> tuple[str, ...]:
        """Return these values as options of a command line."""
        return command_line({**vars(self), "suites": (), **dict.fromkeys(self.suites, True)})

    def document(self) -> dict[str, object]:
        """Return these values as the settings of a record."""
        dtypes = list(self.dtypes or PRESETS[self.preset].dtypes)
        return {**vars(self), "dtypes": dtypes, "suites": list(self.suites)}


def read_bench_effort(**values: object) -> BenchEffort:
    """Read the options by their names. Raise `ValueError` with the fault of one of them."""
    read: dict[str, Any] = read_options(values, BENCH_OPTIONS)
    chosen = tuple(name for name in SUITES if read.pop(name))
    read["suites"] = () if read.pop("all") else chosen
    read["seconds"] = read["seconds"] or PRESETS[read["preset"]].seconds
    return BenchEffort(**read)


def _read_count(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"--{name} {text!r} is no number")
    return int(text)


BENCH_OPTIONS = (
    RunOption(
        "preset",
        "default",
        f"how much: {', '.join(PRESETS)}",
        lambda t: (*read_names("preset", PRESETS, t), "default")[0],
    ),
    RunOption("cases", "", "only cases whose id matches this glob: mm/*, */bfloat16/*"),
    RunOption(
        "dtypes",
        "",
        f"with commas between them: {', '.join(ITEM_BYTES)}",
        partial(read_names, "dtypes", ITEM_BYTES),
    ),
    RunOption(
        "seconds",
        "0",
        "budget of a case (the preset's if not given)",
        lambda t: read_number("seconds", t or "0"),
    ),
    RunOption(
        "iterations",
        "0",
        "so many repetitions of each case instead",
        partial(_read_count, "iterations"),
    ),
    RunOption("warmup", "0", "so many before them, uncounted", partial(_read_count, "warmup")),
    RunOption("cold", default=False, help="write over the cache before every repetition"),
    RunOption("tf32", default=False, help="float32 products by TF32, where the device has it"),
    RunOption("all", default=False, help="every suite, which is the default"),
    *(RunOption(name, default=False, help=f"only {says}") for name, says in SUITES.items()),
    RunOption("reference", default=False, help="also time each case by torch.utils.benchmark"),
)
