"""promote: images of one channel into another, by their digests: nothing is built or verified anew,
and what the other channel demands has to be met by what is attached to them. export: the same
images as OCI layouts, for sites that carry disks; their digests stay, and `promote` unloads them.

Promoting the whole matrix promotes what there is: a cell without an image in the source is listed
as such, and is a failure only where it was selected, or where no cell has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront.images.labels import CELL
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.release_channels import Channel
from warpfront.matrix.selection import select
from warpfront.pipeline.workspace import Workspace
from warpfront.release.admission import Evidence
from warpfront.release.evidence import (
    DOCUMENT,
    VERIFICATION_TYPE,
    attached_evidence,
    demanded_channel,
)
from warpfront.release.ledger import CANDIDATE_PREFIX, NOT_PUBLIC, Publication
from warpfront.release.publication import RegistryImage, heads_of, held_image
from warpfront.release.publish_context import (
    Published,
    connected,
    host_of,
    open_publish_context,
    path_of,
    publish_cells,
)
from warpfront.release.registry.contract import INDEX_TYPES, Artifact, Registry, attached_payload
from warpfront.release.registry.copying import Repository, copy_whole
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.statements.statement import predicate_of
from warpfront.release.tags import expected_words, names_of
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.progress import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToPromote:
    """A cell of which the source has no image."""

    cell_id: str
    reason: str

    def __str__(self) -> str:
        return f"nothing to promote: {self.reason}"


def promote(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    source: str,
    channel: str,
    to: str = "",
    key: str = "",
    trust: str = "",
    dry_run: bool = False,
) -> Mapping[str, Published | NothingToPromote]:
    """Publish the selected cells' images of the channel `source` under the tags of `channel`.
    If `source` is a folder, the images come from the layouts in it: that is how a disk is unloaded.
    `trust` is the public key of their verifier, if another key signs here.
    """
    matrix, store = workspace.matrix, workspace.folders.store
    project, chosen = matrix.project, demanded_channel(matrix.channels, channel, to)
    from_disk = Path(source).is_dir()
    origin = chosen if from_disk else demanded_channel(matrix.channels, source, to)
    cells = {cell.id: cell for cell in select(matrix.cells, selection)}
    with open_publish_context(
        chosen, project, store, watch, engine=None, key=key, dry_run=dry_run, trust=trust
    ) as context:

        def place_of(cell: Cell) -> Repository:
            if from_disk:
                layout = LayoutRegistry(folder=Path(source, cell.image))
                return Repository(registry=layout, repository=cell.image)
            path = path_of(origin, cell)
            return Repository(registry=context.registry, repository=path)

        carried = CarriedImages(place_of=place_of, channel=origin)
        carrying = dataclasses.replace(
            context,
            documents=carried.documents,
            bring=lambda publication: carried.bring(
                publication, cells[publication.cell_id], context.registry
            ),
            action="promote",
        )
        absent: set[str] = set()

        def find(cell: Cell) -> Evidence | Blocked | Failed:
            image_place = carried.find(cell)
            if isinstance(image_place, Blocked):
                absent.add(cell.id)
            return image_place

        results = publish_cells(cells.values(), matrix.cells, carrying, find=find, dry_run=dry_run)
    return results if selection != Selection() else without_absent(results, absent)


def without_absent(
    results: Mapping[str, Published], absent: Collection[str]
) -> Mapping[str, Published | NothingToPromote]:
    """Return the results; cells that the source lacks are no failure, unless it lacks all."""
    if not any(isinstance(result, Publication) for result in results.values()):
        return results
    named: dict[str, Published | NothingToPromote] = {**results}
    for cell_id, result in results.items():
        if isinstance(result, Blocked) and cell_id in absent:
            named[cell_id] = NothingToPromote(cell_id=cell_id, reason=result.reason)
    return named


def export(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    folder: Path,
    channel: str,
    to: str = "",
) -> dict[str, object]:
    """Each selected cell's image of a channel into the layout `folder`/<image>; by cell, where it
    is, or why it is not.
    """
    matrix = workspace.matrix
    chosen = demanded_channel(matrix.channels, channel, to)
    with connected(host_of(chosen)) as registry:
        carried = CarriedImages(
            place_of=lambda cell: Repository(registry=registry, repository=path_of(chosen, cell)),
            channel=chosen,
        )
        results: dict[str, object] = {}
        for cell in select(matrix.cells, selection):
            watch.step(cell.id, "exporting")
            results[cell.id] = attempt(cell.id, "publish", export_image, cell, carried, folder)
            watch.step(cell.id, "")
        return results


def export_image(cell: Cell, carried: CarriedImages, folder: Path) -> str | Blocked:
    """Write an image to its layout, with its tags, documents and signatures."""
    image_place = carried.find(cell)
    if isinstance(image_place, Blocked):
        return image_place
    source = carried.place_of(cell)
    layout = LayoutRegistry(folder=folder / cell.image)
    target = Repository(registry=layout, repository=source.repository)
    sent_bytes = copy_whole(source, target, image_place.digest)
    manifest = source.registry.manifest(source.repository, image_place.digest)
    assert manifest is not None
    for tag, head in heads_of(source.registry, source.repository).items():
        if head.digest == image_place.digest and not tag.startswith(CANDIDATE_PREFIX):
            media_type = manifest.descriptor.media_type
            layout.put_manifest(source.repository, tag, manifest.body, media_type)
    return f"{folder / cell.image}: {image_place.digest}, {sent_bytes} bytes written"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedImages:
    """The places of cells' images: `place_of` a cell, in a `channel`'s names."""

    place_of: Callable[[Cell], Repository]
    channel: Channel

    def find(self, cell: Cell) -> Evidence | Blocked:
        """Return the image of the cell's names in the channel. Its names only lead to it: its
        content and proof are those of its own bytes and attachments.
        """
        place = self.place_of(cell)
        registry_image = self._held(cell)
        if registry_image is None:
            reason = f"{place.registry.host}/{place.repository} has none of {cell.id}"
            hint = f"warpfront publish --channel {self.channel.name} --only {cell.id}"
            return Blocked(cell_id=cell.id, step="publish", reason=reason, hint=hint)
        return attached_evidence(place.registry, place.repository, cell, registry_image)

    def _held(self, cell: Cell) -> RegistryImage | None:
        place = self.place_of(cell)
        names = names_of(cell, self.channel, expected_words(cell))
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

    def bring(self, publication: Publication, cell: Cell, target: Registry) -> int:
        """Copy an image from here into its publication's repository. Return the bytes sent."""
        source, path = self.place_of(cell), publication.path
        if (source.registry.host, source.repository) == (target.host, path):
            return 0
        # With its signatures: proof from another registry counts by them.
        place = Repository(registry=target, repository=path)
        return copy_whole(source, place, publication.digest)
