"""One run of CI in memory, from plan to `required`, by the functions that the jobs call: what a try
changes between them, the next job reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builders import FACTS, FULL, a_cell, a_check, a_verification
from releases import FakeCosign, Quiet, World, a_signer

from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.handover import MANIFEST, handed_over, leave, merge
from warpfront.ci.schedule import Schedule, Work
from warpfront.commands.ci_runs import (
    judge_run,
    keep_plan,
)
from warpfront.errors import WarpfrontError
from warpfront.images.built import BuiltImage
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import CiOptions, Project
from warpfront.matrix.release_channels import Channel
from warpfront.pipeline.reporting import _facts
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import local_evidence
from warpfront.release.ledger import Publication
from warpfront.release.origin import PUBLISH_WORKFLOW, Origin
from warpfront.release.publish_context import (
    PublishContext,
    publish_cells,
    require_publisher,
)
from warpfront.report.rows import ReportRow, report_rows
from warpfront.step_results import Failed
from warpfront.system.provenance import Forge
from warpfront.system.store import Store
from warpfront.verify.results import CheckResult, Verification
from warpfront.verify.verdict import sealed
from warpfront.wheels.lock.values import LockState
from warpfront.wheels.project_folders import Folders

NOW = "2026-11-22T12:00:00+00:00"
ENDED = "2026-11-22T11:00:00+00:00"
MINE = a_cell(id="mine", image="mine", targets=("x86_64",))
OTHER = a_cell(id="other", image="other", targets=("x86_64",))
TARGET = "x86_64"
SESSIONS = ("load", "numerics")
RELEASE = Channel(
    name="release",
    repository="registry.test/demo",
    tags=("{torch}-{toolkit}-py{python}-{content}",),
    aliases=(),
    sessions=SESSIONS,
    targets="all",
    max_age_hours=48,
)
PROJECT = Project(
    name="demo",
    source="https://github.com/me/mine",
    licenses="MIT",
    repository="registry.test/demo",
)
VARIABLES = Origin(
    forge="github",
    witness="variables",
    event="schedule",
    repository=PROJECT.source,
    ref="refs/heads/main",
    protected=True,
    default_branch="main",
)
TOKEN = dataclasses.replace(
    VARIABLES,
    witness="token",
    default_branch="",
    workflow=f"me/mine/{PUBLISH_WORKFLOW}@refs/heads/main",
)
PLANNED = Schedule(
    scope="release",
    channel="release",
    build={"ubuntu": tuple(Work(name=f"build-{one}", cells=(one,)) for one in ("mine", "other"))},
    verify={
        "ubuntu": tuple(
            Work(name=f"verify-{one}-{TARGET}", cells=(one,), target=TARGET)
            for one in ("mine", "other")
        )
    },
    publish=tuple(
        Work(name=f"publish-{one}", cells=(one,), vendor="cpu") for one in ("mine", "other")
    ),
)


@dataclass
class CiRun:
    """The jobs of one run. A try changes what stands between `make` and `publish` (hand-overs, the
    states of jobs, who runs it), or between `publish` and `required`.
    """

    root: Path
    channel: Channel = RELEASE
    plan_origin: Origin = VARIABLES
    origins: tuple[Origin, ...] = (VARIABLES, TOKEN)
    plan_lies: bool = False
    words: Forge = field(default_factory=Forge)
    states: dict[str, str] = field(default_factory=dict)
    signs: bool = True
    publishes: bool = True
    world: World = field(init=False)
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(store=Store(self.root / "builder"))
        self.states = {**dict.fromkeys(PLANNED.works, "success"), **self.states}

    # --- what the jobs do ---

    def make(self, *checks: CheckResult, labels: dict[str, str] | None = None) -> CiRun:
        """plan, build and verify: each hands over what it made."""
        planned = PLANNED if self.publishes else dataclasses.replace(PLANNED, publish=())
        digest = keep_plan(planned, self.root)
        (self.root / HANDOVER).mkdir()
        (self.root / LEFT / "plan").rename(self.root / HANDOVER / "plan")
        self.words = Forge(planned="success", ended=("success",), plan_digest=digest)
        for cell in (MINE, OTHER):
            content = "a" if cell is MINE else "b"
            self.world.build(cell, content=content, says=cell.id, labels=labels)
            self.hand_over("build", cell)
            self.verified(cell, *(checks if cell is MINE else ()))
        return self

    def hand_over(self, step: str, cell: Cell, name: str = "") -> Path:
        folder = self.root / HANDOVER / (name or f"{step}-{cell.id}")
        leave(self.world.store.folder, [cell.id], step, folder)
        return folder

    def verified(self, cell: Cell, *checks: CheckResult, **changes: Any) -> Verification:
        """A verification as `verify` would leave it, sealed and handed over."""
        built: BuiltImage = self.world.store.load(cell.id, "build", (BuiltImage,))
        passed = tuple(a_check(session=session) for session in SESSIONS)
        facts = {
            "cell_id": cell.id,
            "target": TARGET,
            "image_id": built.image_id,
            "content_hash": built.content_hash,
            "environment": {"check_options": FULL, "facts": FACTS},
        }
        ended = changes.pop("ended", ENDED)
        made = sealed(a_verification(*(checks or passed), **{**facts, **changes}), ended=ended)
        self.world.store.save(cell.id, f"verify-{TARGET}", made)
        self.hand_over(f"verify-{TARGET}", cell, name=f"verify-{cell.id}-{TARGET}")
        return made

    def publish(self) -> None:
        """The publishing job of each cell, on a machine of its own with the hand-overs."""
        try:
            if not self.plan_lies:
                require_publisher((self.plan_origin,), PROJECT)
        except WarpfrontError as error:
            self.reasons.append(error.message)
            self.words = dataclasses.replace(self.words, planned="failure")
            return
        if not self.publishes:
            return
        for cell in (MINE, OTHER):
            self._publish(cell)

    def _publish(self, cell: Cell) -> None:
        store = Store(self.root / f"publisher-{cell.id}")
        try:
            require_publisher(self.origins, PROJECT)
            merge(handed_over(self.root / HANDOVER), store.folder)
            published = publish_cells(
                (cell,),
                (MINE, OTHER),
                self._shop(store),
                find=lambda one: local_evidence(one, store, self.world.engine, self.states),
                dry_run=False,
            )[cell.id]
        except WarpfrontError as error:
            store.save(cell.id, "publish", failed_by(error, cell))
            published = failed_by(error, cell)
        if cell is MINE and not isinstance(published, Publication):
            self.reasons.append(published.reason)
        leave(store.folder, [cell.id], "publish", self.root / HANDOVER / f"publish-{cell.id}")

    def _shop(self, store: Store) -> PublishContext:
        signer = a_signer(FakeCosign()) if self.signs else None
        return dataclasses.replace(
            self.world.shop(self.channel), store=store, now=NOW, signer=signer, watch=Quiet()
        )

    def required(self) -> WarpfrontError | None:
        """The check that counts, on a machine of its own with every hand-over."""
        store = Store(self.root / "judge")
        matrix: Any = SimpleNamespace(cells=(MINE, OTHER), channels=(self.channel,), ci=CiOptions())

        folders = Folders(root=self.root, cache=self.root, store=store)
        workspace = Workspace(matrix=matrix, material=matrix, folders=folders)

        def report() -> tuple[ReportRow, ...]:
            state = LockState(lock=None, reason="")
            return report_rows([_facts(cell, state, store, None) for cell in (MINE, OTHER)])

        try:
            return judge_run(workspace, report, forge=self.words, jobs=self.states, now=NOW).error
        except WarpfrontError as error:
            return error

    @property
    def public(self) -> list[str]:
        """The public tags of the cell that is attacked."""
        return [
            tag
            for (repository, tag) in self.world.registry.tagged
            if repository == "demo/mine" and not tag.startswith("candidate-")
        ]

    # --- what tries change ---

    @property
    def result(self) -> Path:
        """The verification of the attacked cell, where it was handed over."""
        name = f"verify-{MINE.id}-{TARGET}"
        return self.root / HANDOVER / name / "build" / MINE.id / f"verify-{TARGET}.json"

    def rewrite(self, change: Callable[[bytes], bytes], path: Path | None = None) -> None:
        """Change a handed-over file, and its sha256 in the manifest."""
        path = path or self.result
        path.write_bytes(change(path.read_bytes()))
        self.enter(path)

    def enter(self, path: Path) -> None:
        """Enter a file into the manifest of its hand-over."""
        folder = path.parents[2]
        manifest = json.loads((folder / MANIFEST).read_text())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest["files"][path.relative_to(folder).as_posix()] = digest
        (folder / MANIFEST).write_text(json.dumps(manifest))

    def edit(self, change: Callable[[dict[str, Any]], object], path: Path | None = None) -> None:
        """Change the value in a handed-over file, and its sha256 in the manifest."""

        def changed(content: bytes) -> bytes:
            document = json.loads(content)
            change(document["value"])
            return json.dumps(document).encode()

        self.rewrite(changed, path)

    def forge(self, **changes: Any) -> None:
        """A result with a seal made anew, as who can run this program can make it."""
        made = self.verified(MINE)
        ended = changes.pop("ended", made.ended)
        self.world.store.save(
            MINE.id, f"verify-{TARGET}", sealed(dataclasses.replace(made, **changes), ended=ended)
        )
        self.hand_over(f"verify-{TARGET}", MINE, name=f"verify-{MINE.id}-{TARGET}")


def failed_by(error: WarpfrontError, cell: Cell) -> Failed:
    return Failed(cell_id=cell.id, step="publish", reason=error.message, exit_code=error.exit_code)
