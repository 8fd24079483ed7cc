"""publish: each image that a channel's demands are met for, to its tags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

from warpfront.images.engine.protocol import connect
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import demanded_channel, local_evidence
from warpfront.release.papers import image_papers
from warpfront.release.publish_context import Published, open_publish_context, publish_cells
from warpfront.system.progress import Watch
from warpfront.wheels.lock.reading import fresh_locks


def publish(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    channel: str,
    to: str = "",
    key: str = "",
    dry_run: bool = False,
    jobs: Mapping[str, str] | None = None,
) -> Mapping[str, Published]:
    """Publish the selected images to the tags of a channel; with `dry_run`, return the plan. `to`
    is another repository than the matrix's; `key` is cosign's. `jobs` are outcomes of this run's
    jobs by name, from the CI service.
    """
    matrix, folders = workspace.matrix, workspace.folders
    chosen = demanded_channel(matrix.channels, channel, to)
    cells = select(matrix.cells, selection)
    engine, store, project = connect(), folders.store, matrix.project
    chains = {cell.id: with_parents((cell,), matrix.cells) for cell in cells}
    locks = fresh_locks(cells, matrix.cells, folders)
    papers = partial(image_papers, chains=chains, locks=locks, store=store)
    with open_publish_context(
        chosen, project, store, watch, engine=engine, key=key, dry_run=dry_run
    ) as context:
        return publish_cells(
            cells,
            matrix.cells,
            dataclasses.replace(context, documents=papers),
            find=lambda cell: local_evidence(cell, store, engine, jobs),
            dry_run=dry_run,
        )
