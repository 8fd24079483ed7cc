"""Which sessions there are; how much of each is done, by whose tolerances, from which inputs.

Needs no torch: the command line reads it before torch is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# In the order in which they run; `selftest` is run where it is asked for.
SESSIONS = ("load", "numerics", "operators", "opinfo", "models", "golden", "devices")
STRICT = "strict"
PROFILES = Path(__file__).with_name("profiles.json")


@dataclass(frozen=True, kw_only=True)
class Effort:
    """`quick` keeps every operation and drops sizes, dtypes and repetitions; `profile` decides."""

    quick: bool = False
    profile: str = STRICT
    seeds: tuple[int, ...] = (0,)

    def arguments(self) -> tuple[str, ...]:
        """As options of the checks' command line."""
        quick = ("--quick",) if self.quick else ()
        return ("--seeds", str(len(self.seeds)), "--profile", self.profile, *quick)

    def document(self) -> dict[str, object]:
        return {"quick": self.quick, "profile": self.profile, "seeds": len(self.seeds)}


@cache
def tolerances() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """Relative and absolute tolerance of each profile but strict, by the dtype's name."""
    document = json.loads(PROFILES.read_text(encoding="utf-8"))
    return {
        name: {dtype: (pair[0], pair[1]) for dtype, pair in entry["tolerances"].items()}
        for name, entry in document["profiles"].items()
    }


def profile_names() -> tuple[str, ...]:
    """Ours first, which is the default."""
    return (STRICT, *tolerances())


def current_profile(name: str) -> str:
    """A profile's name of today. Results and commands written before may have its old one."""
    document = json.loads(PROFILES.read_text(encoding="utf-8"))
    known: Mapping[str, Mapping[str, object]] = document["profiles"]
    return next((new for new, entry in known.items() if entry.get("formerly") == name), name)


def asked_profile(name: str) -> str:
    """The same for somebody who asks by the old name, who is told on stderr."""
    current = current_profile(name)
    if current != name:
        note = f"note: the profile {name} is called {current} now; the next release drops the old"
        sys.stderr.write(f"{note} name\n")
    return current
