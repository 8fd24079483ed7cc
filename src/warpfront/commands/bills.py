"""The bills of materials of images that were built and verified, without publishing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.errors import BlockedError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import CREATED, LOCK
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.image_papers import DocumentInputs, bill_for, bill_papers
from warpfront.release.sbom.licence_table import licence_rows
from warpfront.release.sbom.parts import Bill
from warpfront.step_results import Blocked, Failed
from warpfront.system.attempt import attempt
from warpfront.system.store import Store, write_text
from warpfront.verify.results import Verification
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.requirements import RequirementList

_FOLDER = "bill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Documents of one image: their paths, the number of packages, and the number without
    a known licence.
    """

    cell_id: str
    files: tuple[str, ...]
    packages: int
    decisions: int

    def __str__(self) -> str:
        names = ", ".join(self.files)
        return f"{self.packages} packages, {self.decisions} licences to decide on: {names}"


def bills(workspace: Workspace, selection: Selection) -> Mapping[str, Billed | Blocked | Failed]:
    """Write the SBOM of every selected cell's image, from the results of `build` and `verify`."""
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, requirements, folders)
    return {
        cell.id: attempt(
            cell.id,
            "report",
            _bill,
            with_parents([cell], matrix.cells),
            locks.get(cell.id),
            requirements,
            folders.store,
        )
        for cell in cells
    }


def bill_of_cell(
    chain: tuple[Cell, ...],
    lock: WheelLock | None,
    requirements: Mapping[str, RequirementList],
    store: Store,
) -> Bill:
    """Return the SBOM of the last cell of a chain, from the results of `build` and `verify`. Raise
    `BlockedError` if they are not enough.
    """
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
    return bill_for(
        DocumentInputs(
            cell=cell,
            chain=chain,
            requirements=requirements,
            lock=lock,
            built=built,
            labels=labels,
            verifications=verifications,
        )
    )


def _bill(
    chain: tuple[Cell, ...],
    lock: WheelLock | None,
    requirements: Mapping[str, RequirementList],
    store: Store,
) -> Billed:
    cell, bill = chain[-1], bill_of_cell(chain, lock, requirements, store)
    folder = store.cell_folder(cell.id) / _FOLDER
    papers = bill_papers(bill)
    for paper in papers:
        write_text(folder / paper.name, paper.text)
    rows = licence_rows(bill)
    return Billed(
        cell_id=cell.id,
        files=tuple(str(folder / paper.name) for paper in papers),
        packages=len(rows),
        decisions=sum(row.asks.decision for row in rows),
    )


def labels_seen(verifications: tuple[Verification, ...], cell: Cell) -> Mapping[str, str]:
    """Return the image's labels from its verification, without an engine."""
    for verification in verifications:
        for check in verification.checks:
            labels = check.details.get("labels")
            if check.name == "labels and tag" and isinstance(labels, Mapping) and CREATED in labels:
                return {str(name): str(value) for name, value in labels.items()}
    raise BlockedError(
        f"{cell.id}: no verification says what labels its image has",
        hint=f"warpfront verify --only {cell.id}",
    )
