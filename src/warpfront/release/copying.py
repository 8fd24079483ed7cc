"""An image from one registry to another, digest by digest: what is there stays, what the other
repository of the same registry has is mounted, the rest is sent. Nothing is written anew. Edge.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.registry.contract import BlobTransfer, Manifest, Registry
from warpfront.release.registry.references import fallback_tag

# What cosign 2 keeps beside an image by a tag's name, where others use referrers.
_SIGNATURE_TAGS = (".sig", ".att")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A repository of a registry."""

    registry: Registry
    repository: str


def copy_image(source: Place, target: Place, digest: str) -> int:
    """One image by its digest; the bytes that were sent. Raises `RegistryError` if it is gone."""
    manifest = source.registry.manifest(source.repository, digest)
    if manifest is None:
        raise RegistryError(
            f"there is no {digest}",
            registry=source.registry.host,
            step=f"copy {source.repository}",
            fault=RegistryFault.WRONG,
            hint="`invoke release --list` says what is there",
        )
    return _copy_manifest(source, target, manifest, digest)


def copy_attached(source: Place, target: Place, digest: str) -> int:
    """Everything that is attached to a digest, and its signatures; the bytes that were sent."""
    sent = 0
    for one in source.registry.referrers(source.repository, digest):
        manifest = source.registry.manifest(source.repository, one.digest)
        if manifest is not None:
            sent += _copy_manifest(source, target, manifest, one.digest)
    for suffix in _SIGNATURE_TAGS:
        tag = f"{fallback_tag(digest)}{suffix}"
        signature = source.registry.manifest(source.repository, tag)
        if signature is not None:
            sent += _copy_manifest(source, target, signature, tag)
    return sent


def _copy_manifest(source: Place, target: Place, manifest: Manifest, reference: str) -> int:
    parts: dict[str, Any] = json.loads(manifest.body)
    blobs = {one["digest"]: int(one["size"]) for one in (parts["config"], *parts["layers"])}
    sent = sum(_copy_blob(source, target, name, size).sent_bytes for name, size in blobs.items())
    media_type = manifest.descriptor.media_type
    target.registry.put_manifest(target.repository, reference, manifest.body, media_type)
    return sent


def _copy_blob(source: Place, target: Place, digest: str, size_bytes: int) -> BlobTransfer:
    same = source.registry.host == target.registry.host
    with _lazily(source, digest, size_bytes) as blob:
        mounts = (source.repository,) if same else ()
        return target.registry.put_blob(target.repository, blob, mounts)


@contextmanager
def _lazily(source: Place, digest: str, size_bytes: int) -> Iterator[_Fetched]:
    """A blob that is fetched only if somebody has to read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "blob")
        yield _Fetched(source=source, path=path, digest=digest, size_bytes=size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    source: Place
    path: Path
    digest: str
    size_bytes: int

    def open(self) -> BinaryIO:
        if not self.path.exists():
            registry, repository = self.source.registry, self.source.repository
            registry.save_blob(repository, self.digest, self.path, self.size_bytes)
        return self.path.open("rb")
