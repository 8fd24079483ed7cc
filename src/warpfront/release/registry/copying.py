"""An image with everything that is attached to it, from a registry into a folder and from a folder
into a registry: the same bytes, so the same digests. Edge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from warpfront.errors import InputError
from warpfront.release.registry import documents
from warpfront.release.registry.contract import (
    BlobTransfer,
    Descriptor,
    Manifest,
    Registry,
    Transfer,
)
from warpfront.release.registry.documents import ImageManifest
from warpfront.release.registry.layout import NAME, Layout, parts_of

# An index of platforms, its images, a document about one, the signature of that.
DEEPEST = 4
MOST_MANIFESTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied: the image's descriptor, how many manifests (children and attached ones are
    some), and how each blob came there.
    """

    root: Descriptor
    manifests: int
    attached: int
    blobs: tuple[BlobTransfer, ...]


def export_image(
    registry: Registry, repository: str, digest: str, layout: Layout, *, name: str = ""
) -> Copied:
    """Copy into a layout, which names the image as `name`; blobs that it has are not fetched."""
    walk = _Walk(
        f"{registry.host}/{repository}",
        lambda one: registry.manifest(repository, one),
        lambda one: registry.referrers(repository, one),
    )
    root = walk.follow(digest)
    layout.begin()
    blobs = []
    for manifest in walk.found.values():
        for part in _blobs_of(manifest):
            there = layout.has(part)
            if not there:
                place = layout.blob_path(part.digest)
                registry.save_blob(repository, part.digest, place, part.size_bytes)
            blobs.append(_transfer(part, Transfer.PRESENT if there else Transfer.SENT))
        layout.write(manifest.body)
    named = dataclasses.replace(root, annotations={NAME: name}) if name else root
    kept = [one for one in _listed_already(layout) if one.digest not in walk.found]
    layout.write_list([*kept, named, *walk.attached.values()])
    return _copied(root, walk, blobs)


def import_image(
    layout: Layout, registry: Registry, repository: str, *, name: str = "", tag: str = ""
) -> Copied:
    """Copy out of a layout; the tag, if there is one, last."""
    walk = _Walk(str(layout.folder), layout.manifest, layout.referrers)
    root = walk.follow(layout.root(name).digest)
    blobs = [
        registry.put_blob(repository, layout.source(part))
        for manifest in walk.found.values()
        for part in _blobs_of(manifest)
    ]
    for digest, manifest in walk.found.items():
        registry.put_manifest(repository, digest, manifest.body, manifest.descriptor.media_type)
    if tag:
        body = walk.found[root.digest].body
        registry.put_manifest(repository, tag, body, root.media_type)
    return _copied(root, walk, blobs)


class _Walk:
    """Everything that belongs to an image, parts before what names them. A place that names itself,
    or more than anybody would publish, is refused.
    """

    def __init__(
        self,
        place: str,
        manifest_of: Callable[[str], Manifest | None],
        referrers_of: Callable[[str], tuple[Descriptor, ...]],
    ) -> None:
        self._place, self._manifest_of, self._referrers_of = place, manifest_of, referrers_of
        self._seen: set[str] = set()
        self.found: dict[str, Manifest] = {}
        self.attached: dict[str, Descriptor] = {}

    def follow(self, digest: str, named: Descriptor | None = None, depth: int = 0) -> Descriptor:
        if digest in self._seen:
            if digest not in self.found:
                raise self._wrong(digest, "it belongs to itself")
            return self.found[digest].descriptor
        if depth > DEEPEST or len(self._seen) >= MOST_MANIFESTS:
            limit = f"{DEEPEST} levels" if depth > DEEPEST else f"{MOST_MANIFESTS} manifests"
            raise self._wrong(digest, f"more than {limit}")
        self._seen.add(digest)
        manifest = self._manifest_of(digest)
        if manifest is None:
            raise self._wrong(digest, "it is named, and not there")
        found = manifest.descriptor
        if named is not None and (found.media_type, found.size_bytes) != (
            named.media_type,
            named.size_bytes,
        ):
            raise self._wrong(digest, "it is not what its descriptor says")
        if not isinstance(documents.read_document(manifest), ImageManifest):
            for child in parts_of(manifest):
                self.follow(child.digest, child, depth + 1)
        self.found[digest] = manifest
        for referrer in self._referrers_of(digest):
            self.follow(referrer.digest, referrer, depth + 1)
            self.attached[referrer.digest] = referrer
        return found

    def _wrong(self, digest: str, reason: str) -> InputError:
        return InputError(f"{self._place}@{digest}: {reason}", hint="nothing was written")


def _blobs_of(manifest: Manifest) -> tuple[Descriptor, ...]:
    is_image = isinstance(documents.read_document(manifest), ImageManifest)
    return parts_of(manifest) if is_image else ()


def _listed_already(layout: Layout) -> tuple[Descriptor, ...]:
    return layout.listed() if (layout.folder / "index.json").exists() else ()


def _transfer(blob: Descriptor, transfer: Transfer) -> BlobTransfer:
    return BlobTransfer(
        digest=blob.digest,
        size_bytes=blob.size_bytes,
        transfer=transfer,
        sent_bytes=blob.size_bytes if transfer is Transfer.SENT else 0,
    )


def _copied(root: Descriptor, walk: _Walk, blobs: list[BlobTransfer]) -> Copied:
    return Copied(
        root=root,
        manifests=len(walk.found),
        attached=len(walk.attached),
        blobs=tuple({one.digest: one for one in reversed(blobs)}.values()),
    )
