"""Arguments of a step, and what it builds from: build contexts, bases and content hashes of cells,
and the images that exist. Path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from warpfront.errors import BlockedError, RenderError
from warpfront.images.built import CREATED, RenderedImage, ResolvedBase
from warpfront.images.engine.bases import find_base, resolve_base
from warpfront.images.engine.protocol import Engine, StoredImage
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.plan import ContentRecord, content_hash
from warpfront.images.render import (
    ContextParts,
    Material,
    context_parts,
    guard_files,
    guard_policy,
    relaxed_files,
    rendered_image,
    require_template,
)
from warpfront.images.template_process import Rendered, RenderRequest, render_templates
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.reading import Matrix
from warpfront.matrix.selection import select
from warpfront.step_results import Blocked, Failed, StepName, attempt
from warpfront.system.progress import Watch
from warpfront.system.provenance import fixed_moment
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.sources import AskSite, site_when_needed
from warpfront.wheels.uv_program import uv_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A cell ready to build: its inputs, its content hash, and the image that already has it."""

    cell: Cell
    lock: WheelLock
    rendered: RenderedImage
    base: ResolvedBase
    content_hash: str
    record: ContentRecord
    image: StoredImage | None


def render_cells(
    cells: Iterable[Cell], locks: Mapping[str, WheelLock], material: Material
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """Return the build context of each cell (with its parents), in memory; errors become values."""
    cells = tuple(cells)
    by_id = {cell.id: cell for cell in cells}

    def parts_of(cell: Cell) -> ContextParts:
        require_template(cell, material.templates)
        parent = by_id[cell.parent] if cell.parent else None
        parent_lock = locks[cell.parent] if cell.parent else None
        lock = locks[cell.id]
        if parent_lock:
            guard = relaxed_files(lock, parent_lock)
        else:
            policy = guard_policy(cell, lock, material.compat)
            guard = guard_files(policy, material.guard)
        return context_parts(cell, lock, parent=parent, parent_lock=parent_lock, guard=guard)

    def finished(parts: ContextParts, text: Rendered) -> RenderedImage:
        if isinstance(text, RenderError | BlockedError):
            raise text
        return rendered_image(parts, material.templates, text)

    results: dict[str, ContextParts | Blocked | Failed] = {
        cell.id: attempt(cell.id, "render", parts_of, cell) for cell in cells
    }
    ready = [result for result in results.values() if isinstance(result, ContextParts)]
    requests = [
        RenderRequest(
            folder=parts.cell.template,
            variables=parts.variables,
            label=f" (cell {parts.cell.id})",
        )
        for parts in ready
    ]
    texts = iter(render_templates(material.templates, requests))
    return {
        cell_id: attempt(cell_id, "render", finished, parts, next(texts))
        if isinstance(parts, ContextParts)
        else parts
        for cell_id, parts in results.items()
    }


def prepare_cells(
    cells: Iterable[Cell],
    rendered: Mapping[str, RenderedImage | Blocked | Failed],
    locks: Mapping[str, WheelLock],
    bases: Mapping[str, ResolvedBase | Blocked | Failed | None],
    images: Mapping[str, StoredImage],
) -> Mapping[str, Prepared | Blocked | Failed]:
    """Return content hashes along the chain. A cell whose base is still to be made has none."""
    builder = f"uv {uv_version()}"
    results: dict[str, Prepared | Blocked | Failed] = {}
    for cell in cells:
        base, image = bases.get(cell.base.name), rendered[cell.id]
        parent = results.get(cell.parent) if cell.parent else None
        if base is None:
            continue
        failure = next(
            (part for part in (base, image, parent) if isinstance(part, Blocked | Failed)), None
        )
        if failure is not None:
            results[cell.id] = dataclasses.replace(failure, cell_id=cell.id)
            continue
        assert isinstance(base, ResolvedBase)
        assert isinstance(image, RenderedImage)
        identity = parent.content_hash if isinstance(parent, Prepared) else base.identity
        digest = content_hash(image, base_identity=identity, builder=builder)
        below = f"parent {cell.parent}" if cell.parent else "the base image"
        results[cell.id] = Prepared(
            cell=cell,
            lock=locks[cell.id],
            rendered=image,
            base=base,
            content_hash=digest,
            record={**image.parts, below: identity, "uv": builder},
            image=images.get(digest),
        )
    return results


def images_by_content(repositories: Collection[str], engine: Engine) -> Mapping[str, StoredImage]:
    """Return every image of these repositories in the engine by content hash, with one call.
    With a fixed moment of this run, images of another moment are skipped.

    An image built `FROM` one of ours has its labels too, under another name.
    """
    moment = fixed_moment()
    return {
        image.labels[CONTENT_HASH]: image
        for image in engine.images(CONTENT_HASH)
        if any(reference.rpartition(":")[0] in repositories for reference in image.references)
        and (not moment or image.labels.get(CREATED) == moment)
    }


def unrunnable(
    cells: Iterable[Cell], engine: Engine, *, step: StepName = "build"
) -> dict[str, Blocked]:
    """Return cells for another machine than the engine's: emulation proves nothing of it."""
    machine = engine.machine
    return {
        cell.id: Blocked(
            cell_id=cell.id,
            step=step,
            reason=f"it is for {cell.machine}, and the engine's machine is {machine}",
            hint=f"DOCKER_HOST or `docker context use` names an engine on {cell.machine}",
        )
        for cell in cells
        if machine and cell.machine != machine
    }


def prepare_build(
    inputs: CellInputs, tools: Tools, watch: Watch
) -> Mapping[str, Prepared | Blocked | Failed]:
    """Return what each cell is built from, its base included, which is pulled or made."""
    engine, locks = tools.engine, inputs.locks
    elsewhere = unrunnable(inputs.cells, engine)
    cells = [cell for cell in inputs.cells if cell.id not in elsewhere]
    make = partial(resolve_base, cache=tools.folders.cache, on_line=watch.say)
    rendered = render_cells(cells, locks, inputs.material)
    images = images_by_content(inputs.matrix.repositories, engine)
    bases = find_bases(cells, engine, make)
    return {**elsewhere, **prepare_cells(cells, rendered, locks, bases, images)}


def find_bases(
    cells: Iterable[Cell], engine: Engine, find: Callable[..., ResolvedBase | None] = find_base
) -> Mapping[str, ResolvedBase | Blocked | Failed | None]:
    """Return each base by name, as `find` finds or makes it; None: to be bootstrapped."""
    first = {cell.base.name: cell for cell in cells if cell.parent is None}
    return {
        name: attempt(cell.id, "build", find, cell.base, engine) for name, cell in first.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInputs:
    """Selected cells, parents first, with the locks that exist, by cell id.

    `matrix` has every cell of the project, `material` what its images are made from.
    """

    cells: tuple[Cell, ...]
    locks: Mapping[str, WheelLock]
    matrix: Matrix
    material: Material

    @property
    def by_id(self) -> Mapping[str, Cell]:
        """Return every cell by its id, parents included."""
        return {cell.id: cell for cell in (*self.matrix.cells, *self.cells)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The engine, the folders of a project, and its package indexes, read at the first use."""

    engine: Engine
    folders: Folders
    site: AskSite = field(default_factory=site_when_needed)


def locked_inputs(
    matrix: Matrix, material: Material, folders: Folders, selection: Selection
) -> CellInputs:
    """Return the selected cells with the fresh locks of them and of the cells below them."""
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, folders)
    return CellInputs(cells=cells, locks=locks, matrix=matrix, material=material)


def targets_of(cell: Cell, target: str) -> tuple[str, ...]:
    """Return `target` if the cell serves it, else every target of the cell."""
    return (target,) if target in cell.targets else cell.targets
