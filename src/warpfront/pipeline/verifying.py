"""verify: start each built image as its users would, run the checks inside it, believe only what
they wrote.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from warpfront.images.engine import Bind, Engine, RunRequest, RunResult, StoredImage
from warpfront.images.labels import label_disagreements
from warpfront.images.protection import claimed_policy
from warpfront.inside.checks.effort import Effort
from warpfront.inside.guard.policy import Policy
from warpfront.matrix.vendors import VENDORS
from warpfront.model import (
    Blocked,
    BuiltImage,
    Cell,
    CheckResult,
    DeviceAccess,
    Failed,
    HostDevices,
    Outcome,
    Verification,
    WheelLock,
)
from warpfront.pipeline.containers import (
    MEMORY_BYTES,
    built_image,
    ending_of,
    not_verified,
    parsed_json,
)
from warpfront.pipeline.projects import with_project_checked
from warpfront.pipeline.workspace import AskSite, Workspace
from warpfront.report.junit import junit_xml
from warpfront.system.process import run
from warpfront.system.store import exclusive, read_text, write_json, write_text
from warpfront.system.watch import Watch
from warpfront.verify.verdict import read_verification
from warpfront.wheels.sources import Site
from warpfront.wheels.tools import install_toolbox

Verified = Verification | Blocked | Failed
_INSIDE = "/warpfront"
_RESULTS = "/results"
TIME_LIMIT_SECONDS = 1200.0


def verify_cells(
    workspace: Workspace,
    cells: Iterable[Cell],
    locks: Mapping[str, WheelLock],
    *,
    target: str,
    sessions: tuple[str, ...],
    effort: Effort,
    engine: Engine,
    site: AskSite,
    watch: Watch,
) -> tuple[Verified, ...]:
    """Check each cell's image on each of its targets, or on `target` only where a cell serves
    it.
    """
    engine.reap()
    host = engine.host_devices()
    results: list[Verified] = []
    by_id = {cell.id: cell for cell in workspace.matrix.cells}
    for cell in cells:
        built, lock = built_image(workspace, cell, engine), locks.get(cell.id)
        if isinstance(built, Failed):
            results.append(built)
            continue
        if lock is None:
            hint = f"invoke build --only {cell.id}"
            results.append(not_verified(cell, "its lock no longer fits the matrix", hint))
            continue
        toolbox = _toolbox(workspace, cell, site())
        for one in [target] if target in cell.targets else cell.targets:
            watch.step(cell.id, f"verifying on {one}")
            verifying = _Verifying(
                workspace=workspace,
                cell=cell,
                lock=lock,
                policy=claimed_policy(cell, by_id, locks, workspace.compat),
                built=built,
                target=one,
                toolbox=toolbox,
                sessions=sessions,
                effort=effort,
            )
            results.append(verifying.run(engine, host, watch))
            watch.step(cell.id, "")
    return tuple(results)


def _toolbox(workspace: Workspace, cell: Cell, site: Site) -> Path:
    """nox and what it needs, for the image's Python, in a folder of ours that is mounted
    read-only.
    """
    folder = workspace.cache / "toolbox" / f"py{cell.python}"
    return install_toolbox(folder, python=cell.python, site=site, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verifying:
    """One cell on one target."""

    workspace: Workspace
    cell: Cell
    lock: WheelLock
    policy: Policy
    built: BuiltImage
    target: str
    toolbox: Path
    sessions: tuple[str, ...]
    effort: Effort

    @property
    def folder(self) -> Path:
        return self.workspace.store.cell_folder(self.cell.id) / f"verify-{self.target}"

    def run(self, engine: Engine, host: HostDevices, watch: Watch) -> Verified:
        """Alone in its folder: two at once would read each other's results."""
        with exclusive(self.folder, watch.say):
            return self._run(engine, host, watch)

    def _run(self, engine: Engine, host: HostDevices, watch: Watch) -> Verified:
        name = f"verify-{self.target}"
        self.workspace.store.drop(self.cell.id, name)
        self._prepare_folder()
        access = VENDORS[self.cell.vendor].device_access(host)
        started = monotonic()
        log: list[str] = []
        result = engine.run(self._request(access or DeviceAccess()), on_line=log.append)
        write_text(self.folder / "output.log", "\n".join(log) + "\n")
        verification = self._read_results(result, monotonic() - started)
        if "load" in self.sessions:
            image = engine.image(self.built.image_id)
            verification = with_labels_judged(verification, self.cell, image)
        verification = with_project_checked(
            verification, self.workspace, self.cell, self.built, engine=engine, watch=watch
        )
        self.workspace.store.save(self.cell.id, name, verification)
        write_text(self.folder / "junit.xml", junit_xml((verification,)))
        watch.say(f"{self.cell.id} on {self.target}: log in {self.folder / 'output.log'}")
        return verification

    def _prepare_folder(self) -> None:
        results = self.folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        for old in results.iterdir():
            old.unlink()
        write_json(self.folder / "claims.json", self.claims())

    def claims(self) -> dict[str, object]:
        """What matrix and lock say is in the image; the checks inside hold it against what they
        find.
        """
        cell, vendor = self.cell, VENDORS[self.cell.vendor]
        toolkit = cell.toolkit
        return {
            "schema": 1,
            "cell": cell.id,
            "target": self.target,
            "vendor": cell.vendor,
            "device": vendor.device,
            "python": cell.python,
            "toolkit": {"name": toolkit.name, "version": toolkit.version} if toolkit else None,
            "versions": {wheel.name: wheel.version for wheel in self.lock.wheels},
            "stack": [pin.name for pin in cell.stack],
            "archs": list(vendor.accepted_archs(self.target)),
            "guard": self.policy.document(),
            "extensions": sorted({one for built in self.lock.builds for one in built.extensions}),
            "image": True,
        }

    def _request(self, access: DeviceAccess) -> RunRequest:
        package = Path(__file__).parents[1]
        noxfile = self.workspace.root / "noxfile.py"
        return RunRequest(
            image=self.built.image_id,
            command=(
                "python3",
                f"{_INSIDE}/src/warpfront/inside/checks/enter.py",
                *self.sessions,
                "--",
                *self.effort.arguments(),
            ),
            binds=(
                Bind(source=package, target=f"{_INSIDE}/src/warpfront"),
                Bind(source=noxfile, target=f"{_INSIDE}/noxfile.py"),
                Bind(source=self.toolbox, target=f"{_INSIDE}/toolbox"),
                Bind(source=self.folder / "claims.json", target=f"{_INSIDE}/claims.json"),
                Bind(source=self.folder / "results", target=_RESULTS, writable=True),
            ),
            environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - in the image
            user=f"{os.getuid()}:{os.getgid()}",
            devices=access,
            memory_bytes=MEMORY_BYTES,
            time_limit_seconds=TIME_LIMIT_SECONDS,
        )

    def _read_results(self, result: RunResult, seconds: float) -> Verification:
        results = self.folder / "results"
        files = {
            session: read_text(results / f"{session}.json", missing_ok=True)
            for session in self.sessions
        }
        return read_verification(
            cell_id=self.cell.id,
            target=self.target,
            where="image",
            image_id=self.built.image_id,
            content_hash=self.built.content_hash,
            files={name: parsed_json(text) for name, text in files.items()},
            nox_report=parsed_json(read_text(results / "nox.json", missing_ok=True)),
            ended=ending_of(result, limit_seconds=TIME_LIMIT_SECONDS),
            seconds=round(seconds, 2),
        )


def with_labels_judged(
    verification: Verification, cell: Cell, image: StoredImage | None
) -> Verification:
    """With one check more: the image's labels and tag against the facts found inside it. Labels are
    the engine's to tell, so the check is made out here.
    """
    labels = image.labels if image is not None else {}
    facts = verification.environment.get("facts")
    outcome, reason = Outcome.ERROR, "the load session left no facts to compare with"
    if isinstance(facts, Mapping):
        wrong = label_disagreements(cell, labels, facts)
        if image is None or cell.local_reference not in image.references:
            wrong = (*wrong, f"{cell.local_reference} is the name of another image")
        outcome = Outcome.FAILED if wrong else Outcome.PASSED
        reason = "; ".join(wrong) or f"{cell.tag} is what the image holds"
    check = CheckResult(
        session="load",
        name="labels and tag",
        outcome=outcome,
        reason=reason,
        seconds=0.0,
        details={"labels": dict(labels), "facts": facts},
    )
    return dataclasses.replace(verification, checks=(*verification.checks, check))
