"""Multi-platform names: an index, put when each machine's image of the same revision is
published, by any publisher in any repository. Edge.

Each publisher stores its image under an unadvertised tag of its own (`{tag}.{machine}`), and reads
the others'. So no publisher writes another's tag, and the last one puts an index of the same bytes,
whichever it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warpfront.errors import TagConflictError
from warpfront.release.ledger import CHANNEL_ANNOTATION, IndexTagMove, Publication, staged_tag
from warpfront.release.publication import (
    RegistryImage,
    digest_on,
    held_image,
    is_yanked,
    move_tag,
    moved,
    moves_document,
    taken,
)
from warpfront.release.registry.architectures import ARCHITECTURES, put_index
from warpfront.release.registry.contract import Descriptor, Platform, Registry, RegistryManifest
from warpfront.release.signing import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWriter:
    """The writer of a channel's indexes, which signs them if there is a signer."""

    registry: Registry
    signer: Signer | None
    record: Callable[[Publication], None]

    def stage(self, publication: Publication, machine: str) -> Publication:
        """Put a published image under the tag where its twins' publishers find it. Raises
        `TagConflictError` where a newer one is.
        """
        path = publication.path
        image = self._own(publication)
        for name in publication.indexes:
            tag = staged_tag(name.tag, machine)
            standing = held_image(self.registry, path, tag)
            if standing is None or standing.digest != image.digest:
                if standing and standing.created > image.created:
                    raise TagConflictError(
                        f"{publication.repository}:{name.tag} waits for a newer image of {machine},"
                        f" of {standing.created}",
                        hint="publish that one",
                    )
                media_type = image.manifest.descriptor.media_type
                self.registry.put_manifest(path, tag, image.manifest.body, media_type)
        return publication

    def put(self, publication: Publication) -> Publication:
        """Put each index of the publication, signed and then tagged, and return it or the
        reason why it waits.
        """
        image = self._own(publication)
        for name in publication.indexes:
            put = self._put(publication, name, image)
            indexes = tuple(put if index.tag == put.tag else index for index in publication.indexes)
            publication = dataclasses.replace(publication, indexes=indexes)
            self.record(publication)
        return publication

    def _put(
        self, publication: Publication, name: IndexTagMove, registry_image: RegistryImage
    ) -> IndexTagMove:
        path = publication.path
        parts, waits = dict[str, Descriptor](), list[str]()
        for machine in name.machines:
            image = held_image(self.registry, path, staged_tag(name.tag, machine))
            reasons = (
                tuple(self._against(publication, image, registry_image))
                if image
                else ("is not there",)
            )
            if image is None or reasons:
                waits.append(f"{machine}, which {', '.join(reasons)}")
                continue
            platform = Platform(os="linux", architecture=ARCHITECTURES[machine])
            described = image.manifest.descriptor
            parts[platform.architecture] = dataclasses.replace(described, platform=platform)
        before = digest_on(self.registry, path, name.tag)
        if waits:
            return dataclasses.replace(name, waits=tuple(waits), before=before, digest="")
        index = put_index(self.registry, path, [*parts.values()])
        digest = index.descriptor.digest
        if before not in {"", digest} and not name.moves:
            raise taken(dataclasses.replace(publication, digest=digest), name.tag, before)
        if self.signer is not None:
            annotations = {f"dev.warpfront.{name}": part.digest for name, part in parts.items()}
            annotations[CHANNEL_ANNOTATION] = publication.channel
            self.signer.sign(f"{publication.repository}@{digest}", annotations)
        if before != digest:
            self._tag(publication, name, index, before)
        return dataclasses.replace(name, waits=(), before=before, digest=digest)

    def _tag(
        self, publication: Publication, name: IndexTagMove, index: RegistryManifest, before: str
    ) -> None:
        path = publication.path
        if name.moves:
            moves = moves_document(publication, {name.tag: before})
            self.registry.attach_all(path, index.descriptor, [moves])
        # It was looked at before the signature, which takes its time.
        move_tag(
            self.registry,
            path,
            name.tag,
            index,
            before=before,
            conflict=lambda standing: moved(publication, name.tag, standing),
        )

    def _against(
        self, publication: Publication, registry_image: RegistryImage, own_image: RegistryImage
    ) -> Iterator[str]:
        """Yield the reasons why the image of another machine is not part of this index. A
        staged tag only leads to the image, since anybody who may push can stage anything.
        """
        if registry_image.digest == own_image.digest:
            return
        path = publication.path
        if registry_image.revision != own_image.revision:
            yield f"is of revision {registry_image.revision or 'unknown'}"
        if is_yanked(self.registry, path, registry_image.digest):
            yield "was yanked"
        proven = {
            descriptor.annotations.get(CHANNEL_ANNOTATION)
            for descriptor in self.registry.referrers(path, registry_image.digest)
        }
        reference = f"{publication.repository}@{registry_image.digest}"
        signed = self.signer is None or self.signer.is_signed(
            reference, {CHANNEL_ANNOTATION: publication.channel}
        )
        if publication.channel not in proven or not signed:
            yield f"nobody proved for {publication.channel}"

    def _own(self, publication: Publication) -> RegistryImage:
        registry_image = held_image(self.registry, publication.path, publication.digest)
        if registry_image is None:
            text = f"{publication.reference} was published, and is gone"
            raise TagConflictError(text, hint="publish it again")
        return registry_image
