"""Images and what is attached to them, from one registry to another, of which any may be a folder:
the same bytes, so the same digests. Edge.

What is there stays, what another repository of the same registry has is mounted, the rest is sent.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, cast

from warpfront.errors import InputError
from warpfront.release.registry.contract import (
    Blob,
    ContentStore,
    Descriptor,
    ImageIndex,
    RegistryManifest,
)
from warpfront.release.registry.layout import LayoutRegistry, parts_of
from warpfront.system.references import fallback_tag
from warpfront.system.store import scratch_folder
from warpfront.wheels.store.wheelhouse import Interrupted, in_parallel

# An index of platforms, its images, a document about one, the signature of that.
DEEPEST = 4
MOST_MANIFESTS = 1000
# Blobs on their way at once.
_AT_ONCE = 4
# Tags that cosign 2 adds for an image, where others use referrers.
ATTESTATIONS = ".att"
SIGNATURE_TAGS = (".sig", ATTESTATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository of a registry."""

    registry: ContentStore
    repository: str

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.repository}"


def copy_image(
    source: Repository,
    target: Repository,
    digest: str,
    *,
    tag: str = "",
    mount_from: Sequence[str] = (),
    on_bytes: Callable[[int], object] = lambda _count: None,
) -> int:
    """Copy an image, or an index and its images, by digest. Put it under `tag`, if that is not
    empty. `mount_from` are repositories on the target's host that may have some blobs. `on_bytes`
    receives, from any thread, the size of every piece of a blob that is read to be sent. Return
    the bytes that were sent. Raises `InputError` where the digest is not there.
    """
    walk = _ImageWalk(source)
    walk.follow(digest)
    if tag:
        walk.tags[tag] = walk.manifests[digest]
    return walk.copy_to(target, mount_from, on_bytes)


def copy_whole(source: Repository, target: Repository, digest: str) -> int:
    """Copy an image as `copy_image` does, the attachments of it and of its parts, their own
    attachments, and the signatures. Return the bytes that were sent.
    """
    image, walk = _ImageWalk(source), _ImageWalk(source)
    image.follow(digest)
    sent_bytes = image.copy_to(target)
    for manifest_digest in image.manifests:
        walk.follow_attached(manifest_digest)
    sent_bytes += walk.copy_to(target)
    for manifest_digest in image.manifests:
        walk = _ImageWalk(source)
        for suffix in SIGNATURE_TAGS:
            tag = f"{fallback_tag(manifest_digest)}{suffix}"
            manifest = source.registry.manifest(source.repository, tag)
            if manifest is not None:
                walk.follow(manifest.descriptor.digest)
                walk.tags[tag] = manifest
        sent_bytes += walk.copy_to(target)
    return sent_bytes


class WatchedFile(io.FileIO):
    """A file to read, which reports the size of each piece."""

    def __init__(self, path: str, on_read: Callable[[int], None]) -> None:
        super().__init__(path)
        self._on_read = on_read

    def read(self, count: int | None = -1) -> bytes:
        piece = super().read(-1 if count is None else count)
        self._on_read(len(piece))
        return piece


@dataclass(slots=True)
class _ImageWalk:
    """The parts of an image, each before the manifest that names it. A self-reference, or more
    parts than any real image has, is refused before anything is written.
    """

    source: Repository
    manifests: dict[str, RegistryManifest] = field(default_factory=dict)
    tags: dict[str, RegistryManifest] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def follow(self, digest: str, named: Descriptor | None = None, depth: int = 0) -> None:
        """Add a manifest, and its children if it is an index."""
        if digest in self.manifests:
            return
        if digest in self._begun or depth > DEEPEST or len(self._begun) >= MOST_MANIFESTS:
            limit = f"more than {DEEPEST} levels or {MOST_MANIFESTS} manifests, or a circle"
            raise self._wrong(digest, limit)
        self._begun.add(digest)
        manifest = self.source.registry.manifest(self.source.repository, digest)
        if manifest is None:
            raise self._wrong(digest, "it is not there")
        descriptor = manifest.descriptor
        if named and (descriptor.media_type, descriptor.size_bytes) != (
            named.media_type,
            named.size_bytes,
        ):
            raise self._wrong(digest, "it is not what its descriptor says")
        if isinstance(manifest.document, ImageIndex):
            for child in manifest.document.manifests:
                self.follow(child.digest, child, depth + 1)
        self.manifests[digest] = manifest

    def follow_attached(self, digest: str, depth: int = 0) -> None:
        """Add the attachments of a digest, and their own attachments."""
        for descriptor in self.source.registry.referrers(self.source.repository, digest):
            if descriptor.digest not in self.manifests:
                self.follow(descriptor.digest, descriptor, depth + 1)
                self.follow_attached(descriptor.digest, depth + 1)

    def copy_to(
        self,
        target: Repository,
        mount_from: Sequence[str] = (),
        on_bytes: Callable[[int], object] = lambda _count: None,
    ) -> int:
        """Copy blobs, the largest first, then the manifests that name them, then tags. Return the
        bytes that were sent.
        """
        registry, repository, stop = self.source.registry, self.source.repository, threading.Event()
        documents = (manifest.document for manifest in self.manifests.values())
        images = (document for document in documents if not isinstance(document, ImageIndex))
        parts = {part.digest: part for image in images for part in parts_of(image)}
        ordered = sorted(parts.values(), key=lambda part: -part.size_bytes)
        if registry.host == target.registry.host:
            mount_from = (repository, *mount_from)

        def read(count: int) -> None:
            if stop.is_set():
                raise Interrupted
            on_bytes(count)

        def copied(blob: Descriptor) -> int:
            digest, size_bytes = blob.digest, blob.size_bytes
            with scratch_folder() as folder:

                def opened() -> BinaryIO:
                    """Open its file in a checked layout, or fetch it when it is first read."""
                    path = folder / "blob"
                    if isinstance(registry, LayoutRegistry) and registry.checked:
                        path = registry.file_of(digest, size_bytes)
                    elif not path.exists():
                        registry.save_blob(repository, digest, path, size_bytes)
                    return cast("BinaryIO", WatchedFile(str(path), read))

                copy = Blob(digest=digest, size_bytes=size_bytes, open=opened)
                return target.registry.put_blob(target.repository, copy, mount_from)

        tasks = [partial(copied, blob) for blob in ordered]
        sent_bytes = sum(in_parallel(tasks, threads=_AT_ONCE, stop=stop.set))
        for reference, manifest in {**self.manifests, **self.tags}.items():
            media_type = manifest.descriptor.media_type
            target.registry.put_manifest(target.repository, reference, manifest.body, media_type)
        return sent_bytes

    def _wrong(self, digest: str, reason: str) -> InputError:
        return InputError(f"{self.source}@{digest}: {reason}", hint="nothing was written")
