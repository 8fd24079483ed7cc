"""export: published images as OCI layouts with all that is attached to them, for sites that carry
disks. Their digests stay; `promote` unloads them.
"""

from __future__ import annotations

from pathlib import Path

from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import select
from warpfront.pipeline.workspace import Workspace
from warpfront.release.carried import CarriedImages
from warpfront.release.evidence import demanded_channel
from warpfront.release.publish_context import host_of, path_of
from warpfront.release.registry.copying import Repository, copy_attached, copy_image
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.step_results import Blocked
from warpfront.system.attempt import attempt
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch


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
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    project, chosen = matrix.project.repository, demanded_channel(matrix.channels, channel, to)
    with client.connect(host_of(chosen, project), environment(), run) as registry:
        carried = CarriedImages(
            place_of=lambda cell: Repository(
                registry=registry, repository=path_of(chosen, project, cell)
            ),
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
    image = copy_image(source, target, image_place.digest)
    sent_bytes = image.sent_bytes + copy_attached(source, target, image_place.digest).sent_bytes
    manifest = source.registry.manifest(source.repository, image_place.digest)
    assert manifest is not None
    for tag in source.registry.tags(source.repository):
        on = source.registry.head(source.repository, tag)
        if on is not None and on.digest == image_place.digest and not tag.startswith("candidate-"):
            media_type = manifest.descriptor.media_type
            layout.put_manifest(source.repository, tag, manifest.body, media_type)
    return f"{folder / cell.image}: {image_place.digest}, {sent_bytes} bytes written"
