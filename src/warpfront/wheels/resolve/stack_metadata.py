"""The metadata of a torch stack: of its locked wheels, or of their release on an index. Edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from warpfront.errors import WheelError
from warpfront.wheels.core_metadata import metadata_text
from warpfront.wheels.lock.values import Distribution, LockedWheel
from warpfront.wheels.metadata import read_remote_requires
from warpfront.wheels.sources import Link, Site, files_of, local_path, probe
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront.wheels.wheel_names import FileName

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMetadata:
    """A distribution with its metadata. `is_exact` is unset where that is another build's of the
    release, which has other libraries and the same needs.
    """

    distribution: Distribution
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFiles:
    """Sources of a torch stack's metadata: the wheelhouse, the stack's own index, the site's
    sources. Offline, only files of this machine are read. Results are cached for all stacks.
    """

    site: Site
    wheelhouse: Wheelhouse
    offline: bool = False
    pages: dict[tuple[str, str], tuple[tuple[FileName, Link], ...]] = field(default_factory=dict)
    known: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def read(
        self, pins: Mapping[str, str], wheels: tuple[LockedWheel, ...], index_url: str
    ) -> tuple[FoundMetadata, ...]:
        """Return those of `pins` (name -> version) whose metadata was found. `wheels` are the
        locked ones; `index_url` is the stack's index, "" for none.
        """
        locked = {wheel.name: wheel for wheel in wheels}
        files: list[FoundMetadata] = []
        with self.site.transport() as transport:
            for name, version in pins.items():
                readings = self._readings(name, version, locked.get(name), index_url, transport)
                for of, requires in readings:
                    if requires is not None:
                        package = Distribution(name=name, version=version, requires=requires)
                        files.append(FoundMetadata(distribution=package, is_exact=of == version))
                        break
        return tuple(files)

    def _readings(
        self,
        name: str,
        version: str,
        wheel: LockedWheel | None,
        index_url: str,
        transport: Transport,
    ) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """Yield the version itself, then its release, each with what its wheels demand."""
        if wheel is not None and (path := self.wheelhouse.path(wheel)).is_file():
            yield version, _read(path)
        offered = tuple(self._links(name, index_url, transport))
        release = Version(version)
        for candidate in dict.fromkeys((version, release.public, release.base_version)):
            for file, link in offered:
                if file.tags and str(file.version) == candidate:
                    yield candidate, self._of_link(link, transport)

    def _links(
        self, name: str, index_url: str, transport: Transport
    ) -> Iterator[tuple[FileName, Link]]:
        sources = list(self.site.sources)
        if index_url and not self.offline and not probe(self.site, index_url, name):
            sources.insert(len(self.site.find_links), (index_url, False))
        for source, flat in sources:
            if self.offline and local_path(source) is None:
                continue
            if (source, name) not in self.pages:
                self.pages[source, name] = tuple(files_of(source, name, transport, flat=flat))
            yield from self.pages[source, name]

    def _of_link(self, link: Link, transport: Transport) -> tuple[str, ...] | None:
        if link.url not in self.known:
            path = local_path(link.url)
            remote = path is None
            self.known[link.url] = (
                read_remote_requires(link.url, transport) if remote else _read(path)
            )
        return self.known[link.url]


def write_environment(folder: Path, distributions: Iterable[Distribution]) -> None:
    """Write the metadata of these distributions, so that installers take them as installed."""
    for package in distributions:
        info = folder / f"{package.name.replace('-', '_')}-{package.version}.dist-info"
        info.mkdir(parents=True)
        text = metadata_text(package.name, package.version, package.requires)
        (info / "METADATA").write_text(text, "utf-8")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n", "utf-8")
        (info / "RECORD").write_text("", "utf-8")
        (info / "INSTALLER").write_text("uv\n", "utf-8")


def _read(wheel: Path | None) -> tuple[str, ...] | None:
    try:
        return read_wheel_metadata(wheel).requires if wheel is not None else None
    except WheelError:
        return None
