"""CUDA's names and headers, and their twins in HIP, from hipify's tables as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from warpfront.system.packaged import packaged_text

_HABITS: Final = (("cuda", "hip"), ("CUDA", "HIP"), ("cu", "hip"), ("CU", "HIP"))


@dataclass(frozen=True, slots=True)
class HipifyNames:
    """The table of `data/hipify-names.txt`, whose head names the sources.

    `twins` maps CUDA's names to HIP's, `headers` CUDA's headers. HIP has no twin of `twinless`.
    """

    twins: Mapping[str, str]
    headers: Mapping[str, str]
    twinless: frozenset[str]


@cache
def hipify_names() -> HipifyNames:
    """Return the table that this program ships with."""
    return read_names(packaged_text("hipify-names.txt", package="warpfront_port"))


def read_names(text: str) -> HipifyNames:
    """Return the table in `text`: `CUDA HIP`, `CUDA` for a regular twin, `! CUDA` for none."""
    twins: dict[str, str] = {}
    headers: dict[str, str] = {}
    twinless: set[str] = set()
    for line in text.splitlines():
        match line.split():
            case ["!", name]:
                twinless.add(name)
            case [cuda, hip] if not line.startswith("#"):
                (headers if "." in cuda else twins)[cuda] = hip
            case [name] if not line.startswith("#"):
                habit = next((habit for habit in _HABITS if name.startswith(habit[0])), ("", ""))
                (headers if "." in name else twins)[name] = name.replace(*habit, 1)
            case _:
                pass
    return HipifyNames(twins, headers, frozenset(twinless))
