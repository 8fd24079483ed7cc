"""The path, in order: plan, lock, render, build, verify, report. The only room that joins pure and
edge.

1. `plan` what would happen to each selected cell, and why; changes nothing 2. `lock` every wheel of
every selected cell, pinned by hash, in images/locks/ 3. `render` the build context of every
selected cell, in build/<cell>/context/ 4. `build` the images, parents first, reusing those whose
content exists 5. `verify` the checks, run inside each image 6. `report` what all of that left
behind

Each step takes a workspace, a selection and somebody to tell, and returns values: one outcome per
cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpfront.errors import EngineError
from warpfront.images.engine import Engine, connect
from warpfront.inside.checks.effort import SESSIONS, Effort
from warpfront.matrix import select
from warpfront.matrix.plan import LockState, PlannedCell, plan_cell, with_parents
from warpfront.model import (
    Blocked,
    BuiltImage,
    Cell,
    Failed,
    Pin,
    RenderedImage,
    ResolvedBase,
    Selection,
    Verification,
    WheelIndex,
    WheelLock,
)
from warpfront.pipeline.building import Built, build_cells
from warpfront.pipeline.compiling import Compilation, CompileRequest, compile_tree
from warpfront.pipeline.locking import Locked, lock_cells, read_locks
from warpfront.pipeline.preparing import (
    Prepared,
    find_bases,
    images_by_content,
    prepare_cells,
    render_cells,
)
from warpfront.pipeline.verifying import Verified, verify_cells
from warpfront.pipeline.workspace import Workspace, open_workspace, site_when_needed
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.report.sizes import readable_size
from warpfront.system.process import environment, run
from warpfront.system.provenance import read_provenance
from warpfront.system.watch import Watch
from warpfront.wheels.reach import why_unresolvable
from warpfront.wheels.wheelhouse import Wheelhouse

STEPS = ("plan", "lock", "render", "build", "verify", "report")

__all__ = [
    "STEPS",
    "Workspace",
    "build",
    "compile_sources",
    "describe",
    "lock",
    "open_workspace",
    "plan",
    "render",
    "report",
    "selected",
    "verify",
]


def plan(workspace: Workspace, selection: Selection, watch: Watch) -> tuple[PlannedCell, ...]:
    """What `build` would do with each selected cell and its parents. Changes nothing anywhere."""
    cells = _chain(workspace, selection)
    engine = _engine_if_any(watch)
    states = read_locks(workspace, cells)
    blocked = _unlockable(cells, states, watch)
    locked = [cell for cell in cells if cell.id not in blocked and not states[cell.id].reason]
    prepared: Mapping[str, Prepared | Blocked | Failed] = {}
    if engine is not None:
        bases = find_bases(workspace, locked, engine)
        for cell in locked:
            base = bases.get(cell.base.name)
            if isinstance(base, Blocked):
                blocked[cell.id] = base
        usable = [cell for cell in locked if isinstance(bases.get(cell.base.name), ResolvedBase)]
        prepared = prepare_cells(
            workspace,
            usable,
            _usable_locks(states),
            {name: base for name, base in bases.items() if isinstance(base, ResolvedBase)},
            images_by_content(workspace, engine),
        )
    house = workspace.wheelhouse
    blocked |= _unfetchable(prepared, house, watch)
    return tuple(
        _planned(cell, states[cell.id], blocked, prepared, house, known=engine is not None)
        for cell in cells
    )


def lock(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """Fresh locks for the selected cells and their parents; writes images/locks/."""
    cells = _chain(workspace, selection)
    site = site_when_needed()
    return lock_cells(workspace, cells, site=site, watch=watch, locked=locked, refresh=refresh)


def render(
    workspace: Workspace, selection: Selection, watch: Watch, *, locked: bool = False
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """The build contexts of the selected cells and their parents; writes build/<cell>/context/."""
    locks, bad = _split_locks(lock(workspace, selection, watch, locked=locked))
    cells = [cell for cell in _chain(workspace, selection) if cell.id in locks]
    rendered = render_cells(workspace, cells, locks)
    for cell_id, image in rendered.items():
        if isinstance(image, RenderedImage):
            workspace.store.write_context(cell_id, image.files)
        workspace.store.save(cell_id, "render", image)
    return {**bad, **rendered}


def build(
    workspace: Workspace, selection: Selection, watch: Watch, *, locked: bool = False
) -> Mapping[str, Built]:
    """Images for the selected cells and their parents, built or reused."""
    with workspace.store.exclusive(watch.say):
        site, chain = site_when_needed(), _chain(workspace, selection)
        locks, bad = _split_locks(
            lock_cells(workspace, chain, site=site, watch=watch, locked=locked)
        )
        for cell_id, result in bad.items():
            workspace.store.save(cell_id, "build", result)
        cells = [cell for cell in chain if cell.id in locks]
        if not cells:
            return bad
        engine = connect(environment())
        built = build_cells(
            workspace,
            cells,
            locks,
            engine=engine,
            site=site,
            watch=watch,
            provenance=read_provenance(workspace.root, run),
        )
    return {**bad, **built}


def verify(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    effort: Effort | None = None,
    selftest: bool = False,
) -> tuple[Verified, ...]:
    """The checks, inside each selected cell's image, on each of its targets (or the selected one).

    `selftest` also seeds faults into every check there, each of which has to be caught.
    """
    cells = select(workspace.matrix.cells, selection)
    states = read_locks(workspace, with_parents(cells, workspace.matrix.cells))
    return verify_cells(
        workspace,
        cells,
        _usable_locks(states),
        target=selection.target,
        sessions=(*SESSIONS, *(("selftest",) if selftest else ())),
        effort=effort or Effort(),
        engine=connect(environment()),
        site=site_when_needed(),
        watch=watch,
    )


def compile_sources(
    workspace: Workspace, selection: Selection, watch: Watch, request: CompileRequest
) -> Compilation:
    """The sources of somebody's tree, compiled where the target's compiler is."""
    return compile_tree(
        workspace,
        request,
        selection,
        engine=connect(environment()),
        site=site_when_needed(),
        watch=watch,
    )


def report(workspace: Workspace, selection: Selection) -> tuple[ReportRow, ...]:
    """What every step left for the selected cells; reads files only."""
    cells = select(workspace.matrix.cells, selection)
    states = read_locks(workspace, with_parents(cells, workspace.matrix.cells))
    facts = (_facts(workspace, cell, states[cell.id]) for cell in cells)
    return report_rows(facts, target=selection.target)


def selected(workspace: Workspace, selection: Selection) -> tuple[Cell, ...]:
    """The cells that the options name, without their parents."""
    return select(workspace.matrix.cells, selection)


def describe(result: object) -> str:
    """One line for people about what a step made of one cell."""
    match result:
        case WheelLock():
            return f"locked, {len(result.wheels)} wheels, {readable_size(result.size_bytes)}"
        case RenderedImage():
            return f"rendered {', '.join(sorted(result.files))}"
        case BuiltImage(reused=True):
            return f"reused {result.reference} ({readable_size(result.size_bytes)})"
        case BuiltImage():
            size = readable_size(result.size_bytes)
            return f"built {result.reference} ({size}) in {result.seconds:.0f} s"
        case _:
            return str(result)


def _chain(workspace: Workspace, selection: Selection) -> tuple[Cell, ...]:
    cells = workspace.matrix.cells
    return with_parents(select(cells, selection), cells)


def _engine_if_any(watch: Watch) -> Engine | None:
    try:
        return connect(environment())
    except EngineError as error:
        watch.say(f"planning without an engine: {error.message}")
        return None


def _unlockable(
    cells: Iterable[Cell], states: Mapping[str, LockState], watch: Watch
) -> dict[str, Blocked]:
    """The cells that have no fresh lock and cannot get one from here."""
    site = site_when_needed()
    blocked: dict[str, Blocked] = {}
    for cell in cells:
        reason = ""
        if cell.parent in blocked:
            reason = f"its parent {cell.parent} is blocked"
        elif states[cell.id].reason and cell.index is not None:
            watch.step(cell.id, f"asking {cell.index.url}")
            reason = why_unresolvable(cell.index, cell.stack, site())
            watch.step(cell.id, "")
        if reason:
            blocked[cell.id] = Blocked(cell_id=cell.id, step="lock", reason=reason)
    return blocked


def _unfetchable(
    prepared: Mapping[str, Prepared | Blocked | Failed], house: Wheelhouse, watch: Watch
) -> dict[str, Blocked]:
    """The cells to build whose wheels are neither in the wheelhouse nor to be had from here."""
    site = site_when_needed()
    blocked: dict[str, Blocked] = {}
    for cell_id, item in prepared.items():
        if not isinstance(item, Prepared) or item.image is not None:
            continue
        missing: dict[str, list[Pin]] = {}
        for wheel in house.missing(one for one in item.rendered.wheels if one.index):
            pin = Pin(name=wheel.name, version=wheel.version)
            missing.setdefault(wheel.index, []).append(pin)
        for url, pins in missing.items():
            watch.step(cell_id, f"asking {url}")
            reason = why_unresolvable(WheelIndex(name=url, url=url), pins, site())
            watch.step(cell_id, "")
            if reason:
                blocked[cell_id] = Blocked(cell_id=cell_id, step="build", reason=reason)
    return blocked


def _planned(
    cell: Cell,
    state: LockState,
    blocked: Mapping[str, Blocked],
    prepared: Mapping[str, Prepared | Blocked | Failed],
    house: Wheelhouse,
    *,
    known: bool,
) -> PlannedCell:
    item = prepared.get(cell.id)
    wheels = item.rendered.wheels if isinstance(item, Prepared) else None
    return plan_cell(
        cell,
        state=state,
        blocked=blocked.get(cell.id),
        built=isinstance(item, Prepared) and item.image is not None,
        known=known,
        added_bytes=None if wheels is None else sum(wheel.size_bytes for wheel in wheels),
        missing_bytes=None
        if wheels is None
        else sum(wheel.size_bytes for wheel in house.missing(wheels)),
    )


def _usable_locks(states: Mapping[str, LockState]) -> dict[str, WheelLock]:
    return {
        cell_id: state.lock
        for cell_id, state in states.items()
        if state.lock is not None and not state.reason
    }


def _split_locks(
    results: Mapping[str, Locked],
) -> tuple[dict[str, WheelLock], dict[str, Blocked | Failed]]:
    locks = {key: value for key, value in results.items() if isinstance(value, WheelLock)}
    bad = {key: value for key, value in results.items() if not isinstance(value, WheelLock)}
    return locks, bad


def _facts(workspace: Workspace, cell: Cell, state: LockState) -> CellFacts:
    verifications = {
        target: verification
        for target in cell.targets
        if (verification := workspace.store.load(cell.id, f"verify-{target}", (Verification,)))
    }
    built = workspace.store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
    relaxed = tuple(one.package for one in state.lock.relaxed) if state.lock else ()
    return CellFacts(
        cell=cell,
        lock=state.reason,
        relaxed=relaxed,
        build=built,
        verifications=verifications,
    )
