"""The bills of materials of images that were built and verified, without publishing them; and known
vulnerabilities, by the scanner that this machine has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TypeVar

from warpfront.errors import BlockedError, CommandFailedError
from warpfront.images.built import CREATED, BuiltImage
from warpfront.images.labels import LOCK
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.language import AllowedVulnerability
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import MATRIX_FILE, Workspace, matrix_text
from warpfront.release.papers import bill_for, bill_papers
from warpfront.release.sbom.documents import cyclonedx_text
from warpfront.release.sbom.parts import Bill, licence_markdown, licence_rows
from warpfront.release.vulnerabilities import (
    Audit,
    audited_requirements,
    read_grype,
    read_pip_audit,
    with_accepted,
)
from warpfront.step_results import Blocked, Failed, StepName, attempt
from warpfront.system.document import read_document
from warpfront.system.process import Command, Completed, Run, environment, run
from warpfront.system.provenance import now
from warpfront.system.store import Store, write_text
from warpfront.verify.results import Verification
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.resolve.demands import asked_for, roots_of
from warpfront.wheels.store.wheelhouse import read_wheel_metadata

_FOLDER = "bill"
T = TypeVar("T")
OfLock = Callable[[tuple[Cell, ...], WheelLock | None], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Documents of one image: paths, the number of packages, and of those without a licence."""

    cell_id: str
    files: tuple[str, ...]
    packages: int
    decisions: int

    def __str__(self) -> str:
        names = ", ".join(self.files)
        return f"{self.packages} packages, {self.decisions} licences to decide on: {names}"


def bills(workspace: Workspace, selection: Selection) -> Mapping[str, Billed | Blocked | Failed]:
    """Write the SBOM of every selected cell's image, from the results of `build` and `verify`."""
    store = workspace.folders.store

    def written(chain: tuple[Cell, ...], lock: WheelLock | None) -> Billed:
        bill = bill_of_cell(chain, lock, store)
        folder = store.cell_folder(bill.cell_id) / _FOLDER
        texts = {paper.title: paper.payload.decode() for paper in bill_papers(bill)}
        texts["licences.md"], rows = licence_markdown(bill), licence_rows(bill)
        for name, text in texts.items():
            write_text(folder / name, text)
        return Billed(
            cell_id=bill.cell_id,
            files=tuple(str(folder / name) for name in texts),
            packages=len(rows),
            decisions=sum(asks.decision for _, asks in rows),
        )

    return of_locks(workspace, selection, written)


def of_locks(
    workspace: Workspace, selection: Selection, act: OfLock[T], step: StepName = "report"
) -> Mapping[str, T | Blocked | Failed]:
    """Return what `act` makes of each selected cell: of it with its parents, and its fresh lock."""
    every = workspace.matrix.cells
    cells = select(every, selection)
    locks = fresh_locks(cells, every, workspace.folders)
    chains = {cell.id: with_parents([cell], every) for cell in cells}
    return {id_: attempt(id_, step, act, chain, locks.get(id_)) for id_, chain in chains.items()}


def bill_of_cell(chain: tuple[Cell, ...], lock: WheelLock | None, store: Store) -> Bill:
    """Return the SBOM of a chain's last cell, from its results. Raise `BlockedError`."""
    cell = chain[-1]
    hint = f"warpfront build --only {cell.id}; warpfront verify --only {cell.id}"
    built = store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
    if lock is None or not isinstance(built, BuiltImage):
        raise BlockedError(f"{cell.id}: there is no image with a lock that fits", hint=hint)
    loaded = (store.load(cell.id, f"verify-{target}", (Verification,)) for target in cell.targets)
    verifications = tuple(result for result in loaded if result is not None)
    labels = labels_seen(verifications, cell)
    if labels.get(LOCK, lock.digest) != lock.digest:
        raise BlockedError(f"{cell.id}: no image was verified that is of its lock", hint=hint)
    return bill_for(chain, lock, built, labels, verifications)


def labels_seen(verifications: tuple[Verification, ...], cell: Cell) -> Mapping[str, str]:
    """Return the image's labels from its verification, without an engine."""
    for verification in verifications:
        for check in verification.checks:
            labels = check.details.get("labels")
            if check.name == "labels and tag" and isinstance(labels, Mapping) and CREATED in labels:
                return {str(name): str(value) for name, value in labels.items()}
    hint = f"warpfront verify --only {cell.id}"
    raise BlockedError(f"{cell.id}: no verification says what labels its image has", hint=hint)


Dependents = tuple[tuple[str, str, str], ...]


def who_asked(
    workspace: Workspace, selection: Selection
) -> Mapping[str, Dependents | Blocked | Failed]:
    """Return (dependent or "" for the image, name, requirement) of each cell's wheels."""
    wheelhouse = workspace.folders.wheelhouse

    def asked(chain: tuple[Cell, ...], lock: WheelLock | None) -> Dependents:
        cell = chain[-1]
        if lock is None:
            raise BlockedError("it has no fresh lock", hint=f"warpfront lock --only {cell.id}")
        paths = {wheel.name: wheelhouse.path(wheel) for wheel in lock.wheels}
        absent = [name for name, path in sorted(paths.items()) if not path.is_file()]
        if absent:
            message = f"what its wheels demand is not known: {', '.join(absent)} not here"
            raise BlockedError(message, hint=f"warpfront build --only {cell.id}")
        requires = {name: read_wheel_metadata(path).requires for name, path in paths.items()}
        roots = roots_of(chain, lock.wheels)
        edges = asked_for(requires, roots, python=cell.python, machine=cell.machine)
        return tuple(dependent for dependent in edges if dependent[1] in paths)

    return of_locks(workspace, selection, asked, "lock")


_LIMIT_SECONDS = 900.0
_GET = (
    "no scanner is installed: grype looks at wheels and Debian packages, "
    "pip-audit (`pip install pip-audit`) at wheels"
)
_WHEELS_ONLY = "Debian packages and the base: pip-audit knows wheels only"


def audits(workspace: Workspace, selection: Selection) -> Mapping[str, Audit | Blocked | Failed]:
    """Return what a scanner knows of each selected cell's image. Raise `MatrixError` for entries
    of `maintenance.allow_vulnerabilities` whose day is over.
    """
    folders, allowed = workspace.folders, workspace.matrix.maintenance.allow_vulnerabilities
    require_current(allowed, matrix_text(folders.root), today=now()[:10])

    def audited(chain: tuple[Cell, ...], lock: WheelLock | None) -> Audit:
        bill = bill_of_cell(chain, lock, folders.store)
        return with_accepted(audit_bill(bill, run, environment()), allowed)

    return of_locks(workspace, selection, audited)


def require_current(allowed: tuple[AllowedVulnerability, ...], matrix: str, *, today: str) -> None:
    """Raise `MatrixError` for each entry of the text `matrix` whose last day is over."""
    document = read_document(matrix, path=MATRIX_FILE)
    for place, waived in enumerate(allowed):
        if waived.until < today:
            text = f"{waived.id} is accepted until {waived.until}, which is over ({waived.reason})"
            hint = "decide again: remove the entry, or give it another day and reason"
            where = ("maintenance", "allow_vulnerabilities", place)
            document.refuse(where, text, hint)
    if document.problems:
        raise document.error


def audit_bill(bill: Bill, run: Run, variables: Mapping[str, str]) -> Audit:
    """Return what the scanner on this machine knows of an image. A scanner or database that is not
    to be had is a reason in `undetermined`.
    """
    path, cell_id = variables.get("PATH", ""), bill.cell_id
    scanner = next((name for name in ("grype", "pip-audit") if which(name, path=path)), "")
    if not scanner:
        return Audit(cell_id=cell_id, scanner="", found=(), undetermined=(_GET,))
    with tempfile.TemporaryDirectory(prefix="warpfront-audit-") as folder:
        words: tuple[str, ...]
        unknown: tuple[str, ...] = ()
        if scanner == "grype":
            file, text, read = Path(folder, "sbom.cdx.json"), cyclonedx_text(bill), read_grype
            words = (f"sbom:{file}", "-o", "json", "--quiet")
        else:
            file, text = Path(folder, "requirements.txt"), audited_requirements(bill.parts)
            options = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner")
            words, read = ("--requirement", str(file), *options, "off"), read_pip_audit
            unknown = (_WHEELS_ONLY,)
        file.write_text(text, encoding="utf-8")
        command = Command(argv=(scanner, *words), timeout_seconds=_LIMIT_SECONDS)
        try:
            completed = run(command)
        except CommandFailedError as error:
            completed = Completed(command=command, returncode=1, stdout="", stderr=error.message)
    try:  # pip-audit exits 1 both for findings and for failures
        matches, unmatched = read(completed.stdout)
    except ValueError:
        lines = completed.stderr.strip().splitlines() or ["it printed nothing"]
        reason = f"{scanner} ended with {completed.returncode}: {lines[-1][:300]}"
        return Audit(cell_id=cell_id, scanner="", found=(), undetermined=(reason,))
    undetermined = (*unmatched, *unknown)
    return Audit(cell_id=cell_id, scanner=scanner, found=matches, undetermined=undetermined)
