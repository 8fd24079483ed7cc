"""publish: each image that a channel's demands are met for, to its tags."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.engine import connect
from warpfront.matrix.selection import select
from warpfront.model import Selection
from warpfront.pipeline.within.evidence import demanded_channel, local_evidence
from warpfront.pipeline.within.shop import Published, Shop, publish_cells, run_name, signer_for
from warpfront.pipeline.workspace import Workspace
from warpfront.system import provenance
from warpfront.system.process import environment, run
from warpfront.system.watch import Watch


def publish(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    channel: str,
    to: str = "",
    key: str = "",
    dry_run: bool = False,
) -> Mapping[str, Published]:
    """The selected images to the tags of a channel, or with `dry_run` what that would come to. `to`
    is another repository than the matrix's; `key` is what cosign signs with.
    """
    matrix, store = workspace.matrix, workspace.folders.store
    # Its HTTP takes longer to load than a plan to make.
    from warpfront.release.registry import client  # noqa: PLC0415

    chosen = demanded_channel(matrix.channels, channel, to)
    project = matrix.project.repository
    here, now = environment(), provenance.now()
    host = (chosen.repository or project).partition("/")[0]
    signer = signer_for(key or here.get("COSIGN_KEY", ""), chosen, here, store)
    with client.connect(host, here, run) as registry:
        engine = connect(here)
        shop = Shop(
            project=project,
            registry=registry,
            engine=engine,
            signer=signer,
            store=store,
            now=now,
            run=run_name(now),
            watch=watch,
        )
        return publish_cells(
            select(matrix.cells, selection),
            matrix.cells,
            chosen,
            shop,
            find=lambda cell: local_evidence(cell, store, engine),
            dry_run=dry_run,
        )
