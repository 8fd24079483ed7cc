"""Sizes of an image by wheel and folder, and their growth. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_SHOWN = 6
_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBreakdown:
    """Unpacked bytes by wheel (`torch==2.13.0`) and by folder of site-packages (`torch/lib`)."""

    wheels: Mapping[str, int]
    folders: Mapping[str, int]


def weights_of(files: Mapping[str, Mapping[str, int]]) -> SizeBreakdown:
    """Return sizes from wheel -> path below site-packages -> bytes."""
    folders = Counter[str]()
    for sizes in files.values():
        for path, size in sizes.items():
            folders["/".join(path.split("/")[:-1][:_DEPTH]) or "."] += size
    return SizeBreakdown(
        wheels={name: sum(sizes.values()) for name, sizes in files.items()},
        folders=dict(folders),
    )


def largest(now: SizeBreakdown, before: SizeBreakdown | None) -> tuple[tuple[str, int, int], ...]:
    """Return (what, bytes, bytes more than before) of the wheels, then the folders, that grew the
    most; of the largest where nothing is known of before. A wheel is the same in another version.
    """
    return (
        *_ranked(now.wheels, before.wheels if before else None),
        *_ranked(now.folders, before.folders if before else None),
    )


def _ranked(now: Mapping[str, int], before: Mapping[str, int] | None) -> list[tuple[str, int, int]]:
    sizes = Counter[str]()
    for name, size in (before or {}).items():
        sizes[_unversioned(name)] += size
    rows = [(name, size, size - sizes[_unversioned(name)]) for name, size in now.items()]
    grown = [row for row in rows if row[2] > 0] if before is not None else rows
    return sorted(grown, key=lambda row: (-row[2], row[0]))[:_SHOWN]


def _unversioned(name: str) -> str:
    return name.partition("==")[0]
