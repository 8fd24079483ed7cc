"""render, and what build and plan need: contexts, bases, content hashes, existing images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warpfront.images.engine import Engine, StoredImage
from warpfront.images.engine.bases import find_base
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.protection import guard_files, guard_policy, relaxed_files
from warpfront.images.render import render
from warpfront.matrix.plan import content_hash
from warpfront.model import Blocked, Cell, Failed, RenderedImage, ResolvedBase, WheelLock
from warpfront.pipeline.attempt import attempt
from warpfront.pipeline.workspace import Workspace
from warpfront.release.registry import registry_reachable
from warpfront.wheels.uv_program import uv_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A cell ready to build: what it is made of, its content hash, and the image that already has
    it.
    """

    cell: Cell
    lock: WheelLock
    rendered: RenderedImage
    base: ResolvedBase
    content_hash: str
    image: StoredImage | None


def render_cells(
    workspace: Workspace, cells: Iterable[Cell], locks: Mapping[str, WheelLock]
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """The build context of each cell, in memory. Pure but for the errors, which become values."""
    by_id = {cell.id: cell for cell in workspace.matrix.cells}

    def one(cell: Cell) -> RenderedImage:
        parent = by_id[cell.parent] if cell.parent else None
        parent_lock = locks[cell.parent] if cell.parent else None
        lock = locks[cell.id]
        guard = (
            relaxed_files(lock, parent_lock)
            if parent_lock
            else guard_files(guard_policy(cell, lock, workspace.compat), workspace.guard)
        )
        return render(
            cell, lock, workspace.templates, parent=parent, parent_lock=parent_lock, guard=guard
        )

    return {cell.id: attempt(cell.id, "render", one, cell) for cell in cells}


def prepare_cells(
    workspace: Workspace,
    cells: Iterable[Cell],
    locks: Mapping[str, WheelLock],
    bases: Mapping[str, ResolvedBase],
    images: Mapping[str, StoredImage],
) -> Mapping[str, Prepared | Blocked | Failed]:
    """Content hashes along the chain. `bases` by base name, `images` by content hash."""
    cells = tuple(cells)
    rendered = render_cells(workspace, cells, locks)
    builder = f"uv {uv_version()}"
    results: dict[str, Prepared | Blocked | Failed] = {}
    for cell in cells:
        image, parent = rendered[cell.id], results[cell.parent] if cell.parent else None
        if not isinstance(image, RenderedImage):
            results[cell.id] = image
        elif isinstance(parent, Blocked | Failed):
            results[cell.id] = dataclasses.replace(parent, cell_id=cell.id)
        else:
            identity = parent.content_hash if parent else bases[cell.base.name].identity
            digest = content_hash(image, base_identity=identity, builder=builder)
            results[cell.id] = Prepared(
                cell=cell,
                lock=locks[cell.id],
                rendered=image,
                base=parent.base if parent else bases[cell.base.name],
                content_hash=digest,
                image=images.get(digest),
            )
    return results


def images_by_content(workspace: Workspace, engine: Engine) -> Mapping[str, StoredImage]:
    """Every image of the matrix in the engine, by its content hash: one call to the engine.

    What somebody built `FROM` one of these has its labels, too, and goes by another name.
    """
    ours = {cell.repository for cell in workspace.matrix.cells}
    return {
        image.labels[CONTENT_HASH]: image
        for image in engine.images(CONTENT_HASH)
        if any(reference.rpartition(":")[0] in ours for reference in image.references)
    }


def find_bases(
    workspace: Workspace, cells: Iterable[Cell], engine: Engine
) -> Mapping[str, ResolvedBase | Blocked | None]:
    """Each base as it would be used, without pulling or making one; None = it would be
    bootstrapped.
    """
    return {
        cell.base.name: _found(cell, workspace, engine)
        for cell in {cell.base.name: cell for cell in cells if cell.parent is None}.values()
    }


def _found(cell: Cell, workspace: Workspace, engine: Engine) -> ResolvedBase | Blocked | None:
    result = attempt(
        cell.id,
        "build",
        find_base,
        cell.base,
        engine,
        registry_reachable=registry_reachable,
        cache=workspace.cache,
    )
    assert not isinstance(result, Failed)
    return result
