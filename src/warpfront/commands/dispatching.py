"""dispatch: the jobs of a run of CI, from what changed; needs no engine, and builds nothing."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import warpfront_checks
from warpfront.ci.changes import CellState, changed_cells, fingerprints
from warpfront.ci.schedule import RunScope, Schedule, schedule
from warpfront.errors import CommandFailedError, InputError, UnavailableError
from warpfront.images.built import RenderedImage
from warpfront.images.preparing import render_cells
from warpfront.images.render import Material
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.release_channels import Channel
from warpfront.matrix.runners import Runner
from warpfront.matrix.selection import select, selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import demanded_channel
from warpfront.release.publish_context import require_publisher
from warpfront.system.digests import digest_of
from warpfront.system.process import Command, environment, run
from warpfront.system.progress import Watch
from warpfront.system.store import read_tree, scratch_folder
from warpfront.system.strict_values import read_as
from warpfront.wheels.lock.reading import read_locks, usable_locks
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.uv_program import uv_version


def dispatch(
    workspace: Workspace, selection: Selection, watch: Watch, *, scope: RunScope, since: str
) -> Schedule:
    """Return the jobs for the selected cells: those that changed since the commit `since`,
    unless the scope includes more. Raise `MatrixError` for a release that no channel takes, and
    `NotPublishableError` where this run may not publish to the scope's channel.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    scope, notes = _published(scope, matrix.channels)
    if scope.channel:
        from warpfront.release.origin_claims import read_origins  # noqa: PLC0415 - its HTTP takes long to load

        require_publisher(read_origins(environment()), matrix.project)
    now, blocked = fingerprint(matrix.cells, material, folders)
    compares = scope.only_changed and bool(since)
    offline, unknown = _offline(matrix.runners) if scope.trusted else ({}, ())
    before = _cells_at(since, folders.root, watch) if compares else None
    planned = schedule(
        select(matrix.cells, selection),
        scope=scope,
        runners=matrix.runners,
        now={cell: state.fingerprint for cell, state in now.items()},
        before=None if before is None else {c: state.fingerprint for c, state in before.items()},
        blocked=blocked,
        offline=offline,
    )
    changed = () if before is None else changed_cells(now, before)
    return dataclasses.replace(planned, notes=(*notes, *unknown, *changed))


def _offline(runners: Iterable[Runner]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Rows of machines of one's own of which none is online, where a token may read that, and what
    could not be found out. A scale set starts its machines when a job comes; a group is shared.
    """
    from warpfront.ci.forge_api import forge_api  # noqa: PLC0415 - its HTTP takes long to load

    variables = environment()
    api = forge_api(variables, variables.get("RUNNERS_TOKEN", ""))
    if api is None:
        return {}, ()
    rows = (runner for runner in runners if runner.trust == "self-hosted" and not runner.scale_set)
    offline: dict[str, str] = {}
    for runner in (runner for runner in rows if not runner.group):
        try:
            serves = api.serves(runner.labels)
        except (InputError, UnavailableError) as error:
            return {}, (f"whether machines are online: not determined ({error.message})",)
        if serves is False:
            row = f"the row `{runner.name}` ({', '.join(runner.labels)})"
            offline[runner.name] = f"no machine of {row} is online"
    return offline, ()


def _published(scope: RunScope, channels: tuple[Channel, ...]) -> tuple[RunScope, tuple[str, ...]]:
    """Return the scope and a note: without its channel in matrix.yaml, a nightly run verifies
    its images and publishes none.
    """
    if scope.channel in {"", *(channel.name for channel in channels)}:
        return scope, ()
    if scope.name == "release":
        demanded_channel(channels, scope.channel)
    note = f"nothing is published: matrix.yaml has no channel `{scope.channel}` (docs/release.md)"
    return dataclasses.replace(scope, channel=""), (note,)


def fingerprint(
    cells: Iterable[Cell], material: Material, folders: Folders
) -> tuple[dict[str, CellState], dict[str, str]]:
    """Return the states of `cells` and their parents, and why some of them can be made nowhere."""
    chain = selected_with_parents(tuple(cells), Selection())
    states = read_locks(chain, folders)
    blocked: dict[str, str] = {}
    for cell in chain:
        if cell.parent in blocked:
            blocked[cell.id] = f"its parent {cell.parent} is blocked"
        elif states[cell.id].reason:
            blocked[cell.id] = f"its lock: {states[cell.id].reason}"
        elif cell.base.unpinned:
            blocked[cell.id] = f"base {cell.base.name} is unpinned: {cell.base.unpinned}"
    locks = usable_locks(states)
    items = render_cells([cell for cell in chain if cell.id in locks], locks, material)
    rendered = {id_: item for id_, item in items.items() if isinstance(item, RenderedImage)}
    for cell_id, item in items.items():
        if not isinstance(item, RenderedImage):
            blocked.setdefault(cell_id, item.reason)
    ours = read_tree(Path(warpfront_checks.__file__).parent).items()
    files = {n: getattr(file, "identity", "") for n, file in ours if "__pycache__" not in n}
    builder, checks = f"uv {uv_version()}", digest_of(files)
    values = fingerprints(chain, rendered, blocked, builder=builder, checks=checks)
    states_now = {}
    for cell_id, value in values.items():
        wheels = locks[cell_id].wheels if cell_id in locks else ()
        versions = {wheel.name: wheel.version for wheel in wheels}
        size = sum(wheel.size_bytes for wheel in wheels)
        states_now[cell_id] = CellState(fingerprint=value, wheels=versions, size_bytes=size)
    return states_now, blocked


def _cells_at(commit: str, root: Path, watch: Watch) -> Mapping[str, CellState] | None:
    """Return the cells' states at `commit`, computed by that commit's own program. Return None
    if it cannot compute them, so that everything counts as new.
    """
    with scratch_folder() as folder:
        tree = folder / "tree"
        add = ("git", "worktree", "add", "--detach", "--quiet", "--", str(tree), commit)
        try:
            run(Command(argv=add, cwd=root)).check()
            source = tree / "src"
            has_own = (source / "warpfront").is_dir()
            command = Command(
                argv=(sys.executable, "-m", "warpfront", "ci", "--fingerprints"),
                cwd=tree,
                environment={"PYTHONPATH": str(source)} if has_own else None,
                timeout_seconds=300,
            )
            try:
                return read_as(dict[str, CellState], json.loads(run(command).check().stdout))
            finally:
                run(Command(argv=("git", "worktree", "remove", "--force", str(tree)), cwd=root))
        except (CommandFailedError, ValueError) as error:
            first = str(error).splitlines()[0]
            watch.say(f"warning: nothing to compare with at {commit}, so all is new: {first}")
            return None
