"""Pages of the names that belong to one index, which uv reads before any other source. Edge.

uv takes a name from the first index with a page for it. So an overlaid name comes from the files on
its page, and an empty page forbids it. Overlaid stubs demand nothing. If the site's first source
has a name without the version of a parent image, its page lists the one file of the parent's lock,
from any source: its hash identifies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from warpfront.errors import BlockedError, LockError
from warpfront.matrix.cell import Pin
from warpfront.wheels.core_metadata import NAME
from warpfront.wheels.lock.values import PYPI, IndexRule, LockedWheel, LockInputs, index_rule
from warpfront.wheels.sources import Link, NoAnswer, Reach, links, local_path, page_of
from warpfront.wheels.store.archives import write_stand_in
from warpfront.wheels.store.wheelhouse import sha256_of
from warpfront.wheels.uv_program import Table

if TYPE_CHECKING:
    from warpfront.wheels.resolve.resolver import Resolution
    from warpfront.wheels.transport import Transport
    from warpfront.wheels.variants.pages import VariantPages


class OverlayIndex:
    """The shelf of one cell. `put` asks the indexes; the rest is memory."""

    def __init__(
        self,
        inputs: LockInputs,
        transport: Transport,
        reach: Reach,
        variants: VariantPages | None,
        held: Iterable[LockedWheel] = (),
    ) -> None:
        self._inputs, self._transport = inputs, transport
        self._reach, self._variants = reach, variants
        self._held = {
            wheel.name: wheel
            for wheel in held
            if wheel.index
            and not (index_rule(wheel.name, inputs) or inputs.allows_variants_of(wheel.name))
        }
        self._files: dict[str, tuple[Link, ...] | None] = {}

    def holds(self, name: str) -> bool:
        """Return true if its index has the name."""
        return bool(self._files.get(name))

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that belong to one index and have no page yet."""
        canonical = {str(canonicalize_name(name)) for name in names}
        return tuple(
            sorted(
                name
                for name in canonical
                if name not in self._files
                and (index_rule(name, self._inputs) or self._inputs.allows_variants_of(name))
            )
        )

    def missing_of(self, text: str) -> tuple[str, ...]:
        """Return the same for uv's explanation; with all names of a parent if it has one."""
        names = {canonicalize_name(name) for name in re.findall(NAME, text)}
        overlaid = self._held.keys() - self._files.keys()
        return (*self.missing(names), *(sorted(overlaid) if overlaid & names else ()))

    def put(self, names: Iterable[str]) -> None:
        """Put what the index of each of `names` offers of it here."""
        for name in self.missing(names):
            files = self._offered(name, index_rule(name, self._inputs))
            if files and self._variants and self._inputs.allows_variants_of(name):
                files = self._variants.page(name, files)
            self._files[name] = files
        wheels = [self._held[name] for name in names if name in self._held]
        with ThreadPoolExecutor(8) as pool:
            same = pool.map(self._same, wheels)
            self._files |= zip((wheel.name for wheel in wheels), same, strict=True)

    def tables(self, folder: Path, answered: Iterable[Pin]) -> list[Table]:
        """Write the overlay as an index, `folder`, with an empty wheel for each of `answered`, and
        return it for uv, with the indexes of its files: uv has to know their credentials.
        """
        folder.mkdir()
        stubs: dict[str, tuple[Link, ...]] = {}
        for pin in answered:
            filename = f"{pin.name.replace('-', '_')}-{pin.version}-py3-none-any.whl"
            url = write_stand_in(filename, folder).as_uri()
            stubs[pin.name] = (Link(url=url, filename=filename),)
        for name, files in {**self._files, **stubs}.items():
            if files is None:
                continue
            listed = []
            for link in files:
                variant = self._variants.stood_for(link.filename) if self._variants else None
                if variant is None:
                    listed.append(link)
                else:  # to a stand-in
                    path = write_stand_in(variant.plain, folder, requires=variant.requires or ())
                    listed.append(replace(link, url=path.as_uri(), sha256=""))
            (folder / name).mkdir(parents=True)
            (folder / name / "index.html").write_text(page_of(listed), "utf-8")
        stack = [self._inputs.index.url] if self._inputs.index else []
        urls = dict.fromkeys((*stack, *(index.url for index in self._inputs.own_indexes)))
        own = [{"name": f"own-{n}", "url": url, "explicit": True} for n, url in enumerate(urls)]
        return [{"name": "shelf", "url": folder.as_uri()}, *own]

    def lacking(self, text: str) -> tuple[str, ...]:
        """Lines about the names in an explanation of uv's that have no variant for the cell."""
        if self._variants is None:
            return ()
        names = sorted({canonicalize_name(name) for name in re.findall(NAME, text)})
        return tuple(line for name in names for line in self._variants.why_not(name))

    def check(self, resolution: Resolution) -> None:
        """Raise `LockError` where a name did not come from its page: never, unless uv changes."""
        for package in resolution.pylock.packages:
            files = self._files.get(package.name)
            if files is None or package.directory or package.archive:
                continue
            filenames = {link.filename for link in files}
            archives = [archive.filename for archive in (package.sdist,) if archive]
            chosen = {*archives, *(wheel.filename for wheel in package.wheels or ())}
            if not chosen <= filenames:
                raise LockError(
                    f"{self._inputs.cell_id}: {', '.join(sorted(chosen - filenames))} came from "
                    "elsewhere than its index",
                    hint="this uv orders indexes otherwise: use the version that came with "
                    "warpfront",
                )

    def _offered(self, name: str, where: IndexRule | None) -> tuple[Link, ...] | None:
        """Return the files of a name in its index, or in the index's local mirrors together;
        none; or None if the site's other indexes may have it. A name that belongs to no index is
        overlaid for its variants: then the first index of the site that has it counts.
        """
        unanswered: list[NoAnswer] = []
        groups: list[tuple[tuple[str, bool], ...]] = [(source,) for source in self._reach.sources]
        if where is not None:
            reached = not self._transport.site.no_index and where.url not in self._reach.silent
            groups = [((where.url, False),) if reached else (), self._mirrors(where)]
        for sources in groups:
            files: list[Link] = []
            for source, flat in sources:
                answer = links(source, name, self._transport, flat=flat)
                if not isinstance(answer, NoAnswer):
                    files += [link for link in answer if _names(link.filename, name)]
                elif answer.is_failure:
                    unanswered.append(answer)
            if files:
                return tuple(map(_hashed, files))
        if unanswered:
            raise BlockedError(
                f"{self._inputs.cell_id}: {name}: {unanswered[0]}",
                hint="only this index may have it; try again",
            )
        return () if where is not None and where.alone else None

    def _same(self, wheel: LockedWheel) -> tuple[Link, ...] | None:
        """Return the file of the parent's lock, if one of the site's sources has it."""
        for source, flat in self._reach.sources:
            answer = links(source, wheel.name, self._transport, flat=flat)
            for link in () if isinstance(answer, NoAnswer) else answer:
                if link.filename == wheel.filename and link.sha256 in {"", wheel.sha256}:
                    return (replace(link, sha256=wheel.sha256),)
        return None

    def _mirrors(self, where: IndexRule) -> tuple[tuple[str, bool], ...]:
        """Return this machine's mirrors of the cell's index: folders of pip's find-links; for
        PyPI also pip's `index-url` and extra indexes that are folders. An index to which
        matrix.yaml gives names has no mirror.
        """
        site = self._transport.site
        if self._inputs.index is None or where.url != self._inputs.index.url:
            return ()
        folders = tuple((link, True) for link in site.find_links if local_path(link) is not None)
        if where.url != PYPI:
            return folders
        stands = [url for url in self._reach.indexes if url == site.index_url or local_path(url)]
        return (*folders, *((stand, False) for stand in stands))


def _hashed(link: Link) -> Link:
    """Return the link with its local file's hash, which uv would unpack the wheel to compute."""
    path = None if link.sha256 else local_path(link.url)
    if path is None or not path.is_file():
        return link
    status = path.stat()
    return replace(link, sha256=_sha256(path, status.st_size, status.st_mtime_ns))


@cache
def _sha256(path: Path, _size: int, _written_ns: int) -> str:
    return sha256_of(path)


def _names(filename: str, name: str) -> bool:
    """Return true if a file is one of the distribution `name`: folders have those of others too."""
    if filename.endswith("-variants.json"):
        return canonicalize_name(filename.removesuffix("-variants.json").rpartition("-")[0]) == name
    stem = filename.removesuffix(".whl").removesuffix(".tar.gz").removesuffix(".zip")
    prefix = stem.split("-")[0] if filename.endswith(".whl") else stem.rpartition("-")[0]
    return canonicalize_name(prefix) == name
