"""The best file of each resolved distribution for a cell, with its size, its hash and the
public index that has it. Edge.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.pylock import Package, PackageSdist, PackageWheel
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from warpfront.errors import BlockedError, LockError, WheelError
from warpfront.wheels.core_metadata import requires_of
from warpfront.wheels.lock.values import Distribution, LockedWheel, LockInputs
from warpfront.wheels.resolve.index_rules import PYPI, index_rule
from warpfront.wheels.resolve.overlay_index import OverlayIndex
from warpfront.wheels.resolve.resolution import Sdist
from warpfront.wheels.sources import Link, NoAnswer, local_path
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata, save
from warpfront.wheels.wheel_names import read_wheel_name

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

_LEGACY_LEVELS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def supported_tags(python: str, machine: str, glibc: str) -> tuple[Tag, ...]:
    """Return installable tags, best first: CPython `python` (X.Y) on `machine` with C
    library `glibc` (2.NN).
    """
    major, minor = (int(part) for part in python.split("."))
    platforms: list[str] = []
    for level in range(int(glibc.split(".")[1]), 4, -1):
        platforms.append(f"manylinux_2_{level}_{machine}")
        if level in _LEGACY_LEVELS:
            platforms.append(f"{_LEGACY_LEVELS[level]}_{machine}")
    platforms.append(f"linux_{machine}")  # what ROCm wheels up to 6.2 called themselves
    name = f"cp{major}{minor}"
    return (
        *cpython_tags((major, minor), abis=[name], platforms=platforms),
        *compatible_tags((major, minor), interpreter=name, platforms=platforms),
    )


def wheel_of(
    path: Path, sha256: str, *, source: str = "", sdist: Sdist | None = None
) -> LockedWheel:
    """Return the lock's entry for a wheel in the wheelhouse."""
    name, version, _, _ = parse_wheel_filename(path.name)
    return LockedWheel(
        name=name,
        version=str(version),
        filename=path.name,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        index=sdist.index if sdist else "",
        sdist=sdist.path.name if sdist else "",
        sdist_sha256=sdist.sha256 if sdist else "",
        source=sdist.source if sdist else source,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelChoice:
    """Makes locked wheels of what uv resolved: the best file, its size, hash and public index."""

    inputs: LockInputs
    tags: tuple[Tag, ...]
    transport: Transport
    wheelhouse: Wheelhouse
    given: Mapping[str, LockedWheel]
    shelf: OverlayIndex

    def wheel(self, package: Package) -> LockedWheel:
        if package.name in self.given:
            return self.given[package.name]
        variant = self.shelf.variants.taken(package.name, package.version)
        if variant is not None:
            wheel = self._locked(package, variant.link, plain=variant.plain)
            return dataclasses.replace(wheel, variant=variant.variant)
        best = self._best(package)
        link = Link(
            url=best.url or str(best.path),
            filename=best.filename,
            sha256=best.hashes.get("sha256", ""),
            size_bytes=best.size,
        )
        return self._locked(package, link, plain=best.filename)

    def _locked(self, package: Package, link: Link, *, plain: str) -> LockedWheel:
        """Return the lock's entry for a file of an index, whose plain name is `plain`."""
        sha256, size = link.sha256, link.size_bytes
        if not sha256:
            file, sha256 = self.stored_file(package.name, dataclasses.replace(link, filename=plain))
            size = file.stat().st_size
        return LockedWheel(
            name=package.name,
            version=str(parse_wheel_filename(plain)[1]),
            filename=link.filename,
            sha256=sha256,
            size_bytes=self._size(link.url) if size is None else size,
            index=self._index(package, link.url),
        )

    def distribution(self, package: Package) -> Distribution:
        """Return the demands of the best file's metadata: from the index's own file (PEP 658),
        else from the wheel.
        """
        built = self.given.get(package.name)
        variant = self.shelf.variants.taken(package.name, package.version)
        if built is not None:
            requires = read_wheel_metadata(self.wheelhouse.path(built)).requires
        elif variant is not None and variant.requires is not None:
            requires = variant.requires
        else:
            requires = self._requires(package.name, self._best(package))
        version = built.version if built else str(package.version)
        return Distribution(name=package.name, version=version, requires=requires)

    def _requires(self, name: str, wheel: PackageWheel) -> tuple[str, ...]:
        url = wheel.url or str(wheel.path)
        local = local_path(url)
        if local is not None:
            return read_wheel_metadata(local).requires
        beside = self.transport.read(f"{url}.metadata")
        if not isinstance(beside, NoAnswer):
            return requires_of(beside[2])
        file, _ = self.stored_file(name, Link(url=url, filename=wheel.filename))
        return read_wheel_metadata(file).requires

    def _best(self, package: Package) -> PackageWheel:
        ranks = {tag: rank for rank, tag in enumerate(self.tags)}
        fitting = []
        for wheel in package.wheels or ():
            name = read_wheel_name(wheel.filename)
            if name and (fit := [ranks[tag] for tag in name.tags if tag in ranks]):
                fitting.append((-min(fit), name.build, wheel.filename, wheel))
        if not fitting:
            raise LockError(
                f"{self.inputs.cell_id}: {package.name} {package.version} has no wheel for Python "
                f"{self.inputs.python}, {self.inputs.machine}, glibc {self.inputs.glibc}",
                hint="ask for a version that has one",
            )
        return max(fitting, key=lambda candidate: candidate[:3])[3]

    def sdist(self, package: Package, sdist: PackageSdist) -> Sdist:
        url = sdist.url or str(sdist.path)
        file, sha256 = self.stored_file(package.name, Link(url=url, filename=sdist.filename))
        digest = sdist.hashes.get("sha256", sha256)
        if digest != sha256:
            raise WheelError(f"{sdist.filename}: its index says sha256 {digest}, it has {sha256}")
        return Sdist(path=file, sha256=sha256, index=self._index(package, url))

    def stored_file(self, name: str, link: Link) -> tuple[Path, str]:
        """Return a file in the wheelhouse, with its sha256: for indexes that give no hashes."""
        with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
            path = Path(folder) / link.filename
            failure = save(link, path, self.transport)
            if failure is not None:
                raise BlockedError(f"{self.inputs.cell_id}: {name}: {failure}")
            return self.wheelhouse.keep(path)

    def _size(self, url: str) -> int:
        local = local_path(url)
        if local is not None:
            return local.stat().st_size
        size = self.transport.size_bytes(url)
        if isinstance(size, NoAnswer):
            raise BlockedError(f"{self.inputs.cell_id}: {size}")
        return size

    def _index(self, package: Package, url: str) -> str:
        """Return the public index to name, whichever mirror served the file: the one that it
        belongs to; else the cell's for what only that can have, and PyPI for the rest.
        """
        index, where = self.inputs.index, index_rule(package.name, self.inputs)
        if where is not None and (where.alone or self.shelf.holds(package.name)):
            return where.url
        local_label = package.version is not None and package.version.local is not None
        same_host = index and urlsplit(url).netloc == urlsplit(index.url).netloc != ""
        return index.url if index and (local_label or same_host) else PYPI
