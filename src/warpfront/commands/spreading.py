"""spreading: chains of images on several engines at once, each by a child process of its own; what
an engine had that went away is built on the others.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpfront.ci.flow import LEFT
from warpfront.ci.handover import merge
from warpfront.ci.pool import Load, Pool, make_pool
from warpfront.commands.ci_runs import fingerprint
from warpfront.errors import EngineError, InputError
from warpfront.images.baking import Built
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import connect
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.runners import BUILDER_VARIABLE, BuildNode
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import digest_of
from warpfront.system.process import Command, Completed, Run, environment, run, stop_all
from warpfront.system.progress import Watch
from warpfront.wheels.project_folders import IMAGES_FOLDER, Folders

_FOLDER = ".builders"
_LAYERS_TO_UNPACKED = 3
"""What a chain takes while it is built beside what its wheels take packed: docs/performance.md."""
PLACED = "build-placed"
"""Its file in build/<cell>/, which goes where the build's own goes."""
Answers = Callable[[BuildNode], bool]
Results = dict[str, Built]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The builder of an image, and the ids of its chain at that time."""

    cell_id: str
    builder: str
    fingerprint: str


def spread(
    workspace: Workspace, selection: Selection, watch: Watch, *, answers: Answers | None = None
) -> Mapping[str, Built]:
    """Build cells and parents, each on one of the builders. `answers` tests its engine."""
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    nodes, answers = matrix.nodes, answers or answering
    if not nodes:
        hint = "docs/scale.md has the table to begin with"
        raise InputError("matrix.yaml has no `builders:`", hint=hint)
    chosen = selected_with_parents(matrix.cells, selection)
    states, _ = fingerprint(chosen, material, folders)
    roots: dict[str, str] = {}
    chains: dict[str, list[Cell]] = {}
    for cell in chosen:  # parents come before children
        roots[cell.id] = roots.get(cell.parent, cell.id) if cell.parent else cell.id
        chains.setdefault(roots[cell.id], []).append(cell)
    loads = []
    for root, chain in chains.items():
        # A child that changed is work, too.
        its_fingerprint = digest_of([states[cell.id].fingerprint for cell in chain])
        before: Placed | None = folders.store.load(root, PLACED, (Placed,))
        load = Load(
            name=root,
            machine=chain[0].machine,
            fingerprint=its_fingerprint,
            size_bytes=_LAYERS_TO_UNPACKED * max(states[cell.id].size_bytes for cell in chain),
            cells=tuple(cell.id for cell in chain),
            made_on=before.builder if before and before.fingerprint == its_fingerprint else "",
        )
        loads.append(load)
    pool = make_pool(nodes, loads)
    for node in nodes:
        if not answers(node):
            watch.say(f"builder {node.name} does not answer, and gets nothing")
            pool.lose(node)
    return _Spreading(folders=folders, watch=watch, answers=answers).all(pool)


def answering(node: BuildNode) -> bool:
    """Return true if a builder's engine answers and buildx knows the builder."""
    try:
        engine = connect({**environment(), **node.environment})
        engine.features()
    except EngineError:
        return False
    if BUILDER_VARIABLE not in node.environment:
        return True
    words = (*engine.buildx, "inspect", "--bootstrap", node.environment[BUILDER_VARIABLE])
    return run(Command(argv=words, environment=engine.build_environment)).returncode == 0


@dataclass(kw_only=True)
class _Spreading:
    """A single run of many children."""

    folders: Folders
    watch: Watch
    answers: Answers
    run: Run = run

    def all(self, pool: Pool) -> Results:
        results: Results = {}
        slots = max(1, sum(node.slots for node in pool.nodes))  # where none answers, nothing begins
        with ThreadPoolExecutor(slots, thread_name_prefix="builder") as threads:
            going: dict[Future[Completed], tuple[Load, BuildNode]] = {}
            try:
                while True:
                    for placed in pool.begin():
                        going[threads.submit(self._child, *placed)] = placed
                    if not going:
                        break
                    for future in wait(going, return_when=FIRST_COMPLETED).done:
                        load, node = going.pop(future)
                        if node in pool.nodes:
                            self._after(future.result(), load, node, pool, results)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                stop_all()
                raise
        for load in pool.waiting:
            reason = f"no builder that answers is a {load.machine} with room for it"
            hint = "`builders:` of matrix.yaml; docs/scale.md"
            results |= _failed(load, reason, EngineError.exit_code, hint)
        return results

    def _after(
        self, end: Completed, load: Load, node: BuildNode, pool: Pool, results: Results
    ) -> None:
        """Process the end of a child. The load of a lost engine goes back to the pool."""
        # Whatever the child made of it: what an engine's end looks like to a client is a race.
        if end.returncode != 0 and not self.answers(node):
            self.watch.say(f"builder {node.name} is gone: its images are built by the others")
            pool.lose(node)
            return
        del pool.running[load]
        store, folder = self.folders.store, self._folder(load, node) / LEFT / load.name
        if not folder.is_dir():
            reason = end.stderr[-2000:].strip() or "it said nothing"
            results |= _failed(load, reason, end.returncode)
            return
        for cell in load.cells:
            store.drop(cell, "build")
        merge([folder], store.folder)
        for cell in load.cells:
            results[cell] = store.load(cell, "build", (BuiltImage, Blocked, Failed))
            where = Placed(cell_id=cell, builder=node.name, fingerprint=load.fingerprint)
            store.save(cell, PLACED, where)

    def _child(self, load: Load, node: BuildNode) -> Completed:
        """Run the same job as a CI machine, in a copy of the project without results of builds."""
        self.watch.say(f"{load.name}: on {node.name}")
        root, folder = self.folders.root, self._folder(load, node)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # A copy of the project without results of builds. A lock or a list that a link of the
        # folder leads to is outside the project, so they are copied.
        shutil.copytree(root / IMAGES_FOLDER, folder / IMAGES_FOLDER, symlinks=True)
        for name in ("matrix.yaml", "tasks.py", "pyproject.toml", "src", ".git"):
            if (root / name).exists():
                (folder / name).symlink_to(root / name)
        words = ("job", "--step", "build", "--name", load.name, "--cells", " ".join(load.cells))
        argv = (sys.executable, "-m", "invoke", *words, "--retries", "0")
        return self.run(Command(argv=argv, cwd=folder, environment=dict(node.environment)))

    def _folder(self, load: Load, node: BuildNode) -> Path:
        return self.folders.store.folder / _FOLDER / node.name / load.name


def _failed(load: Load, reason: str, code: int, hint: str = "") -> Results:
    failed = partial(Failed, step="build", reason=reason, hint=hint, exit_code=code)
    return {cell: failed(cell_id=cell) for cell in load.cells}
