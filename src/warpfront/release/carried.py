"""Published images in a registry or folder, for promote, export and import. Path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.matrix.project_values import Channel
from warpfront.release.admission import Evidence
from warpfront.release.evidence import DOCUMENT, VERIFICATION_TYPE, Publishable, attached_evidence
from warpfront.release.ledger import NOT_PUBLIC, Publication
from warpfront.release.publication import RegistryImage, held_image
from warpfront.release.registry.contract import INDEX_TYPES, Artifact, Registry
from warpfront.release.registry.copying import Repository, copy_attached, copy_image
from warpfront.release.registry.manifests import attached_payload
from warpfront.release.statements.statement import predicate_of
from warpfront.release.tags import expected_words, names_of
from warpfront.step_results import Blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedImages:
    """The places of cells' images: `place_of` a cell, in a `channel`'s names."""

    place_of: Callable[[Cell], Repository]
    channel: Channel

    def find(self, cell: Cell) -> Publishable | Blocked:
        """Return the image of the cell's names in the channel. Its names only lead to it: its
        content and proof are those of its own bytes and attachments.
        """
        place = self.place_of(cell)
        registry_image = self.held(cell)
        if registry_image is None:
            reason = f"{place.registry.host}/{place.repository} has none of {cell.id}"
            hint = f"warpfront publish --channel {self.channel.name} --only {cell.id}"
            return Blocked(cell_id=cell.id, step="publish", reason=reason, hint=hint)
        return Publishable(
            evidence=attached_evidence(place.registry, place.repository, cell, registry_image),
            image_id=registry_image.digest,
            content_hash=registry_image.labels.get(CONTENT_HASH, ""),
            size_bytes=registry_image.size_bytes,
            digest=registry_image.digest,
        )

    def held(self, cell: Cell) -> RegistryImage | None:
        place = self.place_of(cell)
        names = names_of(cell, self.channel, expected_words(cell), project="")
        for tag in (*names.aliases, *names.tags, *place.registry.tags(place.repository)):
            if tag.startswith(NOT_PUBLIC):
                continue
            descriptor = place.registry.head(place.repository, tag)
            if descriptor is None or descriptor.media_type in INDEX_TYPES:
                continue
            image = held_image(place.registry, place.repository, descriptor.digest)
            if image is not None and image.labels.get(CELL) == cell.id:
                return image
        return None

    def documents(self, publication: Publication, evidence: Evidence) -> tuple[Artifact, ...]:
        """Return the unchanged documents of ours that are attached next to the verifications."""
        place = self.place_of(evidence.cell)
        documents = []
        for descriptor in place.registry.referrers(place.repository, publication.digest):
            name, kind = descriptor.annotations.get(DOCUMENT), descriptor.artifact_type or ""
            if name is not None and kind != VERIFICATION_TYPE:
                payload = attached_payload(place.registry, place.repository, descriptor.digest)
                documents.append(
                    Artifact(
                        name=name,
                        artifact_type=kind,
                        payload=payload,
                        annotations=descriptor.annotations,
                        predicate=predicate_of(name, kind, payload),
                    )
                )
        return tuple(documents)

    def bring(self, target: Registry, cells: dict[str, Cell]) -> Callable[[Publication], int]:
        """Return the step that copies an image from here into its publication's repository."""

        def brought(publication: Publication) -> int:
            source = self.place_of(cells[publication.cell_id])
            path = publication.path
            if (source.registry.host, source.repository) == (target.host, path):
                return 0
            place, digest = Repository(registry=target, repository=path), publication.digest
            # With its signatures: proof from another registry counts by them.
            sent_bytes = copy_image(source, place, digest)
            return sent_bytes + copy_attached(source, place, digest)

        return brought
