"""plan: what would happen to each cell, and why. Changes nothing anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from warpfront.errors import EngineError
from warpfront.images.built import RenderedImage, ResolvedBase
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.plan import CONTENT, ContentRecord, PlannedCell, changes_since, plan_cell
from warpfront.images.preparing import (
    Prepared,
    find_bases,
    images_by_content,
    prepare_cells,
    render_cells,
    unrunnable,
)
from warpfront.images.render import require_template
from warpfront.matrix.ages import base_notes, driver_note, ended_notes, table_notes
from warpfront.matrix.cell import Cell, Pin, Selection, WheelIndex
from warpfront.matrix.language import Maintenance
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.progress import Watch
from warpfront.system.provenance import now
from warpfront.wheels.lock.reading import read_locks, usable_locks
from warpfront.wheels.lock.values import NEVER_BUILT, LockedWheel, LockState
from warpfront.wheels.sources import site_when_needed, why_unresolvable
from warpfront.wheels.store.wheelhouse import Wheelhouse

_Items = Mapping[str, Prepared | Blocked | Failed]


def plan(workspace: Workspace, selection: Selection, watch: Watch) -> tuple[PlannedCell, ...]:
    """Return the action of `build` for each selected cell and its parents."""
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    store, today = folders.store, now()[:10]
    cells = selected_with_parents(matrix.cells, selection)
    engine: Engine | None = None
    try:
        engine = connect()
    except EngineError as error:
        watch.say(f"planning without an engine: {error.message}")
    states = read_locks(cells, folders)
    locks = usable_locks(states)
    blocked: dict[str, Blocked | Failed] = {**unrunnable(cells, engine)} if engine else {}
    require = partial(require_template, templates=material.templates)
    faults = {c.id: states[c.id].fault or attempt(c.id, "render", require, c) for c in cells}
    blocked |= {cell_id: fault for cell_id, fault in faults.items() if fault is not None}
    blocked |= _unlockable(cells, blocked, states, watch)
    locked = [cell for cell in cells if cell.id not in blocked and not states[cell.id].reason]
    rendered = render_cells(locked, locks, material)
    prepared: _Items = {}
    if engine is not None:
        bases = find_bases(locked, engine)
        images = images_by_content(matrix.repositories, engine)
        prepared = prepare_cells(locked, rendered, locks, bases, images)
        for note in _ages_of_bases(cells, bases, engine, matrix.maintenance):
            watch.say(f"warning: base {note}")
    for notes in (ended_notes, table_notes):
        for note in notes(cells, material.compat, today=today):
            watch.say(f"warning: {note}")
    if drivers := driver_note(cells, material.compat):
        watch.say(drivers)
    for cell_id, item in (*rendered.items(), *prepared.items()):
        if isinstance(item, Blocked | Failed):
            blocked[cell_id] = item
    blocked |= _unfetchable(prepared, folders.wheelhouse, watch)

    def line(cell: Cell) -> PlannedCell:
        item, image = prepared.get(cell.id), rendered.get(cell.id)
        changes = ""
        if isinstance(item, Prepared):
            # A record that cannot be read is as good as none: the next build writes another.
            before = store.readable(cell.id, CONTENT, (ContentRecord,))
            changes = changes_since(before, item.record) if before else ""
        # Sizes are its lock's, so they are known where neither base nor engine is.
        wheels = image.wheels if isinstance(image, RenderedImage) else None
        return plan_cell(
            cell,
            state=states[cell.id],
            blocked=blocked.get(cell.id),
            built=isinstance(item, Prepared) and item.image is not None,
            engine_asked=engine is not None,
            changes=changes,
            added_bytes=None if wheels is None else _size(wheels),
            missing_bytes=None if wheels is None else _size(folders.wheelhouse.missing(wheels)),
        )

    return tuple(map(line, cells))


def _size(wheels: Iterable[LockedWheel]) -> int:
    return sum(wheel.size_bytes for wheel in wheels)


def _ages_of_bases(
    cells: Iterable[Cell], resolved: Mapping[str, object], engine: Engine, maintenance: Maintenance
) -> Iterable[str]:
    bases = {}
    for base in {cell.base.name: cell.base for cell in cells if cell.parent is None}.values():
        base_image = resolved.get(base.name)
        image = engine.image(base_image.reference) if isinstance(base_image, ResolvedBase) else None
        bases[base.name] = (base, image.created if image else "")
    limit = maintenance.base_max_age_days
    explicit = maintenance != Maintenance()
    return base_notes(bases, today=now()[:10], max_age_days=limit, is_explicit=explicit)


def _unlockable(
    cells: Iterable[Cell],
    before: Mapping[str, Blocked | Failed],
    states: Mapping[str, LockState],
    watch: Watch,
) -> dict[str, Blocked]:
    """Return the cells without a fresh lock that cannot get one from here, but those `before`."""
    site = site_when_needed()
    blocked: dict[str, Blocked] = {}
    for cell in cells:
        state, reason, hint = states[cell.id], "", ""
        if cell.id in before:
            continue
        if cell.parent in {*blocked, *before}:
            reason = f"its parent {cell.parent} is blocked"
        elif state.reason and cell.index is not None:
            watch.step(cell.id, f"asking {cell.index.url}")
            reason = why_unresolvable(cell.index, cell.stack, site())
            watch.step(cell.id, "")
        if reason and state.reason == NEVER_BUILT:
            reason, where = f"{NEVER_BUILT}; {reason}", "on a machine that reaches its index"
            hint = f"warpfront lock --target {cell.targets[0]}, {where}, and commit the lock"
        if reason:
            blocked[cell.id] = Blocked(cell_id=cell.id, step="lock", reason=reason, hint=hint)
    return blocked


def _unfetchable(prepared: _Items, house: Wheelhouse, watch: Watch) -> dict[str, Blocked]:
    """Return the cells to build whose wheels are neither in the wheelhouse nor reachable."""
    site = site_when_needed()
    blocked: dict[str, Blocked] = {}
    for cell_id, item in prepared.items():
        if not isinstance(item, Prepared) or item.image is not None:
            continue
        missing: dict[str, list[Pin]] = {}
        for wheel in house.missing(wheel for wheel in item.rendered.wheels if wheel.index):
            pin = Pin(name=wheel.name, version=wheel.version)
            missing.setdefault(wheel.index, []).append(pin)
        for url, pins in missing.items():
            watch.step(cell_id, f"asking {url}")
            reason = why_unresolvable(WheelIndex(name=url, url=url), pins, site())
            watch.step(cell_id, "")
            if reason:
                blocked[cell_id] = Blocked(cell_id=cell_id, step="build", reason=reason)
    return blocked
