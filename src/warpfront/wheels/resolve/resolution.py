"""Types of resolving: terms, results and reasons. Words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.pylock import Package, Pylock

from warpfront.matrix.cell import Pin, Recipe, Source
from warpfront.matrix.language import Patch
from warpfront.wheels.lock.values import LockedWheel, UnbuiltWheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a resolution beyond the requirements.

    `overrides` replace every demand on their names. `excludes` are names without any effect,
    wherever they are demanded. `constraints` limit versions of demanded names. `unread` are source
    archives whose demands only a build would show. `answered` are pins of names that a shim of the
    image replaces: no index is read for them, and they are in no lock.
    """

    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    answered: tuple[Pin, ...] = ()


NO_TERMS = Terms()

BUILD_TOOLS = ("setuptools==80.9.0", "wheel==0.45.1")
"""What a source archive is built with where nothing else is said: fixed, or two machines would
build wheels with two hashes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """uv found no solution; its explanation."""

    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Distributions that uv resolved, by normalized name, each with its version."""

    pylock: Pylock

    @property
    def versions(self) -> Mapping[str, str]:
        return {package.name: str(package.version) for package in self.pylock.packages}

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """The names that were found as source archives only."""
        packages = self.pylock.packages
        return tuple(
            package.name for package in packages if package.sdist is not None and not package.wheels
        )

    def package(self, name: str) -> Package:
        """Return a resolved distribution."""
        return next(package for package in self.pylock.packages if package.name == name)

    def without(self, names: Iterable[str]) -> Resolution:
        names = frozenset(names)
        packages = [package for package in self.pylock.packages if package.name not in names]
        return Resolution(pylock=dataclasses.replace(self.pylock, packages=packages))


Outcome = Resolution | Contradiction


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdist:
    """A source archive in the wheelhouse, of a public `index` or of another `source`."""

    path: Path
    sha256: str
    index: str = ""
    source: str = ""


class WheelMaker(Protocol):
    """Makes wheels that no index has, for one cell.

    A wheel that is not built yet is represented by its metadata alone and an `UnbuiltWheel`.
    """

    def from_source(self, source: Source) -> tuple[LockedWheel, Recipe | UnbuiltWheel | None]:
        """Return the wheel of a folder or a commit, and how it was built if in a container."""

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, Recipe | UnbuiltWheel]:
        """Return the wheel of an index's source archive, built in a container."""

    def from_wheel(self, original: LockedWheel, patches: tuple[Patch, ...]) -> LockedWheel:
        """Return the wheel with patches in it, which no index has."""
