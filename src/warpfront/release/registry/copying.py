"""Images and what is attached to them, from one registry to another, of which any may be a folder:
the same bytes, so the same digests. Edge.

What is there stays, what another repository of the same registry has is mounted, the rest is sent.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from warpfront.errors import InputError
from warpfront.release.registry import manifests
from warpfront.release.registry.contract import (
    BlobSource,
    BlobTransfer,
    Descriptor,
    Registry,
    RegistryManifest,
)
from warpfront.release.registry.layout import LayoutRegistry, parts_of
from warpfront.release.registry.manifests import ImageIndex
from warpfront.release.registry.references import fallback_tag

# An index of platforms, its images, a document about one, the signature of that.
DEEPEST = 4
MOST_MANIFESTS = 1000
# Blobs on their way at once.
_AT_ONCE = 4
# What cosign 2 keeps beside an image under tags, where others use referrers.
SIGNATURES, ATTESTATIONS = ".sig", ".att"
SIGNATURE_TAGS = (SIGNATURES, ATTESTATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository of a registry."""

    registry: Registry
    repository: str

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.repository}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied: the digests of manifests, parts first, and how each blob came there."""

    manifests: tuple[str, ...]
    blobs: tuple[BlobTransfer, ...]

    @property
    def sent_bytes(self) -> int:
        return sum(blob.sent_bytes for blob in self.blobs)


def copy_image(
    source: Repository,
    target: Repository,
    digest: str,
    *,
    tag: str = "",
    mount_from: Sequence[str] = (),
) -> Copied:
    """An image, or an index and its images, by digest, or `InputError` if it is not there; under a
    `tag`, if one is given. `mount_from` are repositories beside the target that may have some.
    """
    walk = _ImageWalk(source)
    walk.follow(digest)
    if tag:
        walk.tags[tag] = walk.found[digest]
    return _copy(source, target, walk, mount_from)


def copy_attached(source: Repository, target: Repository, digest: str) -> Copied:
    """Everything that is attached to a digest and to its parts, what is attached to that, and the
    signatures. The image itself is only read.
    """
    image, walk = _ImageWalk(source), _ImageWalk(source)
    image.follow(digest)
    for one in image.found:
        walk.follow_attached(one)
    copied = _copy(source, target, walk)
    tagged = [_copy_tags(source, target, one) for one in image.found]
    return Copied(
        manifests=(*copied.manifests, *(one for more in tagged for one in more.manifests)),
        blobs=(*copied.blobs, *(one for more in tagged for one in more.blobs)),
    )


def _copy_tags(source: Repository, target: Repository, digest: str) -> Copied:
    walk = _ImageWalk(source)
    for suffix in SIGNATURE_TAGS:
        tag = f"{fallback_tag(digest)}{suffix}"
        found = source.registry.manifest(source.repository, tag)
        if found is not None:
            walk.follow(found.descriptor.digest)
            walk.tags[tag] = found
    return _copy(source, target, walk)


def _copy(
    source: Repository, target: Repository, walk: _ImageWalk, mount_from: Sequence[str] = ()
) -> Copied:
    """Blobs, the largest first, then the manifests that name them, then tags."""
    parts = {part.digest: part for one in walk.found.values() for part in _blobs_of(one)}
    ordered = sorted(parts.values(), key=lambda part: -part.size_bytes)
    if source.registry.host == target.registry.host:
        mount_from = (source.repository, *mount_from)
    blobs = _copy_blobs(source, target, ordered, mount_from)
    for reference, manifest in {**walk.found, **walk.tags}.items():
        target.registry.put_manifest(
            target.repository, reference, manifest.body, manifest.descriptor.media_type
        )
    return Copied(manifests=tuple(walk.found), blobs=blobs)


def _blobs_of(manifest: RegistryManifest) -> tuple[Descriptor, ...]:
    document = manifests.read_document(manifest)
    return () if isinstance(document, ImageIndex) else parts_of(document)


def _copy_blobs(
    source: Repository, target: Repository, blobs: Sequence[Descriptor], mount_from: Sequence[str]
) -> tuple[BlobTransfer, ...]:
    """Several at once. Where one fails, or who waits is stopped, the others read no further."""
    stop = threading.Event()

    def copied(blob: Descriptor) -> BlobTransfer:
        with _opened(source, blob) as found:
            wanted = _Stoppable(source=found, stop=stop)
            return target.registry.put_blob(target.repository, wanted, mount_from)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            moving = [pool.submit(copied, blob) for blob in blobs]
            for one in as_completed(moving):
                one.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(one.result() for one in moving)


@contextlib.contextmanager
def _opened(source: Repository, blob: Descriptor) -> Iterator[BlobSource]:
    if isinstance(source.registry, LayoutRegistry) and source.registry.checked:
        yield source.registry.file(blob)
        return
    with _lazily(source, blob) as fetched:
        yield fetched


class _StoppedError(Exception):
    """Nobody waits for this blob any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stoppable:
    """A blob that cannot be read any more after `stop`."""

    source: BlobSource
    stop: threading.Event

    @property
    def digest(self) -> str:
        return self.source.digest

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes

    def open(self) -> Any:
        return _StoppableFile(self.source.open(), self.stop)


class _StoppableFile:
    def __init__(self, file: BinaryIO, stop: threading.Event) -> None:
        self._file, self._stop = file, stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def read(self, count: int = -1) -> bytes:
        if self._stop.is_set():
            raise _StoppedError
        return self._file.read(count)


@contextlib.contextmanager
def _lazily(source: Repository, blob: Descriptor) -> Iterator[_Fetched]:
    """A blob that is fetched only if somebody has to read it."""
    with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
        yield _Fetched(
            source=source,
            path=Path(folder, "blob"),
            digest=blob.digest,
            size_bytes=blob.size_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    source: Repository
    path: Path
    digest: str
    size_bytes: int

    def open(self) -> BinaryIO:
        if not self.path.exists():
            registry, repository = self.source.registry, self.source.repository
            registry.save_blob(repository, self.digest, self.path, self.size_bytes)
        return self.path.open("rb")


@dataclass(slots=True)
class _ImageWalk:
    """What belongs to an image, parts before what names them. What names itself, or more than
    anybody would publish, is refused before anything is written.
    """

    source: Repository
    found: dict[str, RegistryManifest] = field(default_factory=dict)
    tags: dict[str, RegistryManifest] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def follow(self, digest: str, named: Descriptor | None = None, depth: int = 0) -> None:
        """A manifest, and its children if it is an index."""
        if digest in self.found:
            return
        if digest in self._begun or depth > DEEPEST or len(self._begun) >= MOST_MANIFESTS:
            limit = f"more than {DEEPEST} levels or {MOST_MANIFESTS} manifests, or a circle"
            raise self._wrong(digest, limit)
        self._begun.add(digest)
        manifest = self.source.registry.manifest(self.source.repository, digest)
        if manifest is None:
            raise self._wrong(digest, "it is not there")
        found = manifest.descriptor
        if named and (found.media_type, found.size_bytes) != (named.media_type, named.size_bytes):
            raise self._wrong(digest, "it is not what its descriptor says")
        document = manifests.read_document(manifest)
        if isinstance(document, ImageIndex):
            for child in document.manifests:
                self.follow(child.digest, child, depth + 1)
        self.found[digest] = manifest

    def follow_attached(self, digest: str, depth: int = 0) -> None:
        """Everything that is attached to a digest, and to that."""
        for one in self.source.registry.referrers(self.source.repository, digest):
            if one.digest not in self.found:
                self.follow(one.digest, one, depth + 1)
                self.follow_attached(one.digest, depth + 1)

    def _wrong(self, digest: str, reason: str) -> InputError:
        return InputError(f"{self.source}@{digest}: {reason}", hint="nothing was written")
