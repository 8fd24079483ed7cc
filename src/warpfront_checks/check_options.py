"""The sessions, and the options of a run: how many checks, by which tolerances, from which inputs.

Needs no torch: the command line reads it before torch is imported. Every CLI makes its options from
`EFFORT_OPTIONS` and its sessions from `CHECK_SESSIONS`.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from typing import Any, TypeVar

from warpfront_checks.documents import packaged

STRICT = "strict"
# The run whose seeds are 0, 1, 2 ...: bounds were set on them, and faults are seeded with them.
DEVELOPMENT = "0"
_Read = TypeVar("_Read")
OPTIONS_KEY = "check_options"
"""The key of the options in the environment of a result."""


@dataclass(frozen=True, kw_only=True)
class CheckSession:
    """A session inside an image. `record` is `module:function` below this package, called
    with claims, recorder and effort. `asked_for` sessions run only if named, or if an image
    declares them. `seconds` is the approximate time on a CPU: of parallel sessions the longest
    begins first. One that is `last` begins when all the rest have ended. `compiles` ones import
    torch's compiler. On the CPU `threaded` ones get every core, so that threads are tried too.
    """

    says: str
    record: str
    asked_for: bool = False
    seconds: float = 1.0
    threaded: bool = False
    compiles: bool = False
    last: bool = False


CHECK_SESSIONS: Mapping[str, CheckSession] = {
    name: CheckSession(**row) for name, row in packaged("sessions.json")["sessions"].items()
}
SESSIONS = tuple(name for name, session in CHECK_SESSIONS.items() if not session.asked_for)


@dataclass(frozen=True)
class RunOption:
    """An option of a run. `read` raises `ValueError` for a bad value; a flag's default is False."""

    name: str
    default: bool | int | str
    help: str
    read: Callable[[str], object] = str

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")


def add_options(parser: argparse.ArgumentParser, options: Iterable[RunOption]) -> None:
    def readable(option: RunOption, text: str) -> str:
        """Return a text that can be read. argparse shows the words of its own error only."""
        try:
            option.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    for option in options:
        kind: dict[str, Any] = {"type": partial(readable, option), "default": option.default}
        kind = {"action": "store_true"} if option.default is False else kind
        parser.add_argument(f"--{option.name}", help=option.help, **kind)


def parsed(
    options: argparse.Namespace, table: Iterable[RunOption], read: Callable[..., _Read]
) -> _Read:
    """Return what `read` makes of the options of a table in a command line that has them."""
    return read(**{option.attribute: getattr(options, option.attribute) for option in table})


def read_options(values: Mapping[str, object], options: Iterable[RunOption]) -> dict[str, Any]:
    """Return the values that texts and flags stand for, by attribute. Raise `ValueError`."""
    chosen = {option: values[option.attribute] for option in options}
    return {
        option.attribute: bool(value) if option.default is False else option.read(str(value))
        for option, value in chosen.items()
    }


def command_line(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the options of a command line that stand for these values; none for empty ones."""
    texts = {k: ",".join(v) if isinstance(v, tuple) else v for k, v in values.items()}
    words = {name: "" if text is True else f"={text}" for name, text in texts.items()}
    return tuple(f"--{name}{words[name]}" for name, text in texts.items() if text)


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """`quick` keeps every operation and drops sizes, dtypes and repetitions; `profile` decides.
    `run` is the id of the whole verification, from which every session draws the same seeds;
    `chosen` is False where the id was drawn and not given.
    """

    quick: bool = False
    profile: str = STRICT
    seeds: tuple[int, ...] = (0,)
    run: str = DEVELOPMENT
    chosen: bool = field(default=True, compare=False)

    def arguments(self) -> tuple[str, ...]:
        """Return the options of a command line that stand for these values."""
        values = self.document()
        return command_line({option.name: values[option.name] for option in EFFORT_OPTIONS})

    def again(self, number: int) -> CheckOptions:
        """The same once more, with seeds of its own; those of development are always the same."""
        if not number or self.run == DEVELOPMENT:
            return self
        run = f"{self.run[:60]}.{number}"
        return replace(self, run=run, seeds=drawn_seeds(run, len(self.seeds)))

    def document(self) -> dict[str, object]:
        return {
            "quick": self.quick,
            "profile": self.profile,
            "seeds": len(self.seeds),
            "run": self.run,
            "seed_values": list(self.seeds),
        }


USUAL = CheckOptions()


def stored_options(environment: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the options in a result's environment, if any. Version 0.1 calls them `effort`."""
    options = environment.get(OPTIONS_KEY, environment.get("effort"))
    return options if isinstance(options, Mapping) else None


def read_effort(*, quick: bool, profile: str, seeds: str | int, run: str) -> CheckOptions:
    """Return the effort of these options. Raise `ValueError` with what is wrong with one."""
    named = _read_run(run) or secrets.token_hex(4)
    return CheckOptions(
        quick=quick,
        profile=_read_profile(profile),
        seeds=drawn_seeds(named, _read_seeds(str(seeds))),
        run=named,
        chosen=bool(run),
    )


def drawn_seeds(run: str, count: int) -> tuple[int, ...]:
    """Return seeds of a run, from its id alone: none below 2**16, which development has used."""
    if run == DEVELOPMENT:
        return tuple(range(count))
    texts = (f"{run} {place}".encode() for place in range(count))
    return tuple(2**16 + int(sha256(text).hexdigest()[:7], 16) for text in texts)


def read_names(option: str, allowed: Iterable[str], text: str) -> tuple[str, ...]:
    """Return the names of a list with commas. Raise `ValueError` for one that is not allowed."""
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    for name in names:
        if name not in allowed:
            raise ValueError(f"--{option} {name!r} is none of {', '.join(allowed)}")
    return names


def read_number(option: str, text: str, most: int = 3600) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise ValueError(f"--{option} {text!r} is no number from 0 to {most}")
    return number


def _read_seeds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--seeds {text!r} is not a number from 1 on")
    return int(text)


def _read_run(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise ValueError(f"--run {text!r} is not an id of letters, digits, `.`, `_` and `-`")
    return text


def _read_profile(text: str) -> str:
    """Return the current name of a profile; print a notice on stderr for its old name."""
    name = current_profile(text)
    if name not in profile_names():
        raise ValueError(f"no profile {text!r}\nhint: {', '.join(profile_names())}")
    if name != text:
        note = f"note: the profile {text} is called {name} now; the next release drops the old"
        sys.stderr.write(f"{note} name\n")
    return name


@cache
def tolerances() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """Return relative and absolute tolerance of each profile but strict, by the dtype's name."""
    return {
        name: {dtype: (pair[0], pair[1]) for dtype, pair in entry["tolerances"].items()}
        for name, entry in packaged("profiles.json")["profiles"].items()
    }


def profile_names() -> tuple[str, ...]:
    """Ours first, which is the default."""
    return (STRICT, *tolerances())


_PROFILE_HELP = (
    f"whose tolerances decide: {', '.join(profile_names())}; every result says what each would have"
    " said"
)
_RUN_HELP = "the id of a run, to draw its seeds again (a new one if not given)"
EFFORT_OPTIONS = (
    RunOption("seeds", 1, "how many sets of random inputs (1 if not given)", _read_seeds),
    RunOption("profile", STRICT, _PROFILE_HELP, _read_profile),
    RunOption("run", "", _RUN_HELP, _read_run),
    RunOption("quick", default=False, help="every operation, fewer cases of each"),
)


def current_profile(name: str) -> str:
    """Return a profile's name of today: older results and commands may have its old one."""
    profiles: Mapping[str, Mapping[str, object]] = packaged("profiles.json")["profiles"]
    return next((new for new, entry in profiles.items() if entry.get("formerly") == name), name)
