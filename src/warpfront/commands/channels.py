"""Images of channels: promoted, exported, listed, withdrawn and removed.

promote: images of one channel into another, by their digests. Nothing is built or verified anew.
What the other channel demands has to be met by what is attached to them. export: the same images as
OCI layouts, for sites that carry disks; their digests stay, and `promote` unloads them.

Promoting the whole matrix promotes what there is: a cell without an image in the source is listed
as such, and is a failure only where it was selected, or where no cell has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from warpfront.errors import InputError, RegistryError, RegistryFault
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
from warpfront.release.ledger import (
    CANDIDATE_PREFIX,
    LEDGER_FOLDER,
    NOT_PUBLIC,
    Pruning,
    Publication,
    Removed,
    Stock,
    Yank,
)
from warpfront.release.publication import (
    RegistryImage,
    heads_of,
    held_image,
    listed_in,
    remove,
    stock_of,
    yank_image,
)
from warpfront.release.publish_context import (
    Published,
    connected,
    host_of,
    open_publish_context,
    path_of,
    publish_cells,
    run_name,
)
from warpfront.release.registry.architectures import parts_of
from warpfront.release.registry.contract import INDEX_TYPES, Artifact, Registry, attached_payload
from warpfront.release.registry.copying import Repository, copy_whole
from warpfront.release.registry.deleting import deleter_for
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.retention import newest_first, not_needed
from warpfront.release.statements.statement import predicate_of
from warpfront.release.tags import expected_words, names_of
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system import provenance
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch
from warpfront.system.references import read_reference
from warpfront.system.store import Store
from warpfront.system.strict_values import extended


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRepositories:
    """The repositories of a channel's images, in their registry."""

    registry: Registry
    paths: tuple[str, ...]
    store: Store
    now: str = field(default_factory=provenance.now)

    def stock(self) -> tuple[Stock, ...]:
        """Return all images of the channel's repositories, newest first."""
        paths = (stock for path in self.paths for stock in stock_of(self.registry, path))
        return newest_first(paths)

    def yank(self, reference: str, reason: str, *, dry_run: bool) -> Yank:
        """Withdraw the image of a tag or digest, and record the changes in the run's ledger."""
        named = read_reference(reference)
        if named.host != self.registry.host:
            message = f"{reference} is in another registry than the channel, {self.registry.host}"
            raise InputError(message, hint="--channel and --to say which registry is meant")
        descriptor = self.registry.head(named.repository, named.digest or named.tag)
        digest = descriptor.digest if descriptor else named.digest or named.tag
        if (parts := parts_of(self.registry, named.repository, digest)) is not None:
            listed = ", ".join(f"{named.name}@{part}" for part in parts.values())
            message = f"{reference} is an index of several machines: {', '.join(parts)}"
            raise InputError(message, hint=f"take back each image that is wrong: {listed}")
        name, path = run_name(self.now), named.repository
        yanked = yank_image(
            self.registry, named.name, digest, reason=reason, run=name, dry_run=dry_run
        )
        for tag in listed_in(self.registry, path, heads_of(self.registry, path)).get(digest, ()):
            why = "an index of several machines lists it; publish what is to be there instead"
            yanked = dataclasses.replace(yanked, kept={**yanked.kept, tag: why})
        if not dry_run:
            self.store.save(LEDGER_FOLDER, name, yanked)
        return yanked

    def prune(self, channel: str, *, days: int, dry_run: bool) -> tuple[Removed, ...]:
        """Remove old candidates, and old images of a channel, "" for none's. Where one is refused,
        the others are removed, and its error is raised after them.
        """
        if days < 0:
            raise InputError(f"--days {days}: nothing is younger than now")
        unneeded = not_needed(self.stock(), channel=channel, now=self.now, days=days)
        if dry_run or not unneeded:
            return tuple(extended(Removed, stock, reason=reason) for stock, reason in unneeded)
        host = f"{self.registry.host}/"
        paths = (stock.repository.removeprefix(host) for stock, _ in unneeded)
        deleter = deleter_for(self.registry, tuple(dict.fromkeys(paths)), environment(), run)
        removed, failed = list[Removed](), list[RegistryError]()
        try:
            for stock, reason in unneeded:
                try:
                    removed.append(remove(self.registry, deleter, stock, reason))
                except RegistryError as error:
                    failed.append(error)
                    if error.fault is not RegistryFault.REFUSED:
                        break  # the next one would meet the same
        finally:
            self.store.save(LEDGER_FOLDER, run_name(self.now), Pruning(removed=tuple(removed)))
        if failed:
            raise failed[0]
        return tuple(removed)


@contextmanager
def open_channel(
    workspace: Workspace, selection: Selection, *, channel: str, to: str = ""
) -> Iterator[ChannelRepositories]:
    """Yield the selected cells' repositories, as a channel names them."""
    matrix, store = workspace.matrix, workspace.folders.store
    chosen = demanded_channel(matrix.channels, channel, to)
    cells = select(matrix.cells, selection)
    paths = tuple(dict.fromkeys(path_of(chosen, cell) for cell in cells))
    with connected(host_of(chosen)) as registry:
        yield ChannelRepositories(registry=registry, paths=paths, store=store)
