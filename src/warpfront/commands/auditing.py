"""audit: known vulnerabilities of the images that were built and verified, by their SBOMs and a
scanner that is on this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from warpfront.commands.bills import bill_of_cell
from warpfront.errors import CommandFailedError, MatrixError, Problem
from warpfront.matrix.cell import Selection
from warpfront.matrix.project_values import AllowedVulnerability
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import MATRIX_FILE, Workspace
from warpfront.release.sbom.cyclonedx import cyclonedx_text
from warpfront.release.sbom.parts import Bill
from warpfront.release.statements.statement import StatementError
from warpfront.release.vulnerabilities import (
    Audit,
    audited_requirements,
    expired,
    read_grype,
    read_pip_audit,
    with_accepted,
)
from warpfront.step_results import Blocked, Failed
from warpfront.system.attempt import attempt
from warpfront.system.process import Command, Completed, Run, environment, run
from warpfront.system.provenance import now
from warpfront.wheels.lock.reading import fresh_locks

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
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    allowed = matrix.maintenance.allowed
    require_current(allowed, today=now()[:10])
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, requirements, folders)

    def audited(cell_id: str) -> Audit:
        chain = with_parents([by_id[cell_id]], matrix.cells)
        bill = bill_of_cell(chain, locks.get(cell_id), requirements, folders.store)
        return with_accepted(audit_bill(bill, run, environment()), allowed)

    by_id = {cell.id: cell for cell in cells}
    return {cell_id: attempt(cell_id, "report", audited, cell_id) for cell_id in by_id}


def require_current(allowed: tuple[AllowedVulnerability, ...], *, today: str) -> None:
    """Raise `MatrixError` for each entry whose last day is over."""
    problems = tuple(
        Problem(
            path=MATRIX_FILE,
            line=waived.line,
            message=f"{waived.id} is accepted until {waived.until}, which is over "
            f"({waived.reason})",
            hint="decide again: remove the entry, or give it another day and reason",
        )
        for waived in expired(allowed, today=today)
    )
    if problems:
        raise MatrixError(problems)


def audit_bill(bill: Bill, run: Run, variables: Mapping[str, str]) -> Audit:
    """Return what the scanner on this machine knows of an image. A scanner or database that is not
    to be had is a reason in `undetermined`.
    """
    path = variables.get("PATH", "")
    with tempfile.TemporaryDirectory(prefix="warpfront-audit-") as name:
        folder = Path(name)
        if which("grype", path=path):
            return _by_grype(bill, folder, run)
        if which("pip-audit", path=path):
            return _by_pip_audit(bill, folder, run)
    return Audit(cell_id=bill.cell_id, scanner="", found=(), undetermined=(_GET,))


def _by_grype(bill: Bill, folder: Path, run: Run) -> Audit:
    sbom = folder / "sbom.cdx.json"
    sbom.write_text(cyclonedx_text(bill), encoding="utf-8")
    completed = _scan(run, ("grype", f"sbom:{sbom}", "-o", "json", "--quiet"))
    try:
        matches, unmatched = read_grype(completed.stdout)
    except StatementError:
        return _failed(bill, "grype", completed)
    return Audit(cell_id=bill.cell_id, scanner="grype", found=matches, undetermined=unmatched)


def _by_pip_audit(bill: Bill, folder: Path, run: Run) -> Audit:
    """Read the output: pip-audit exits 1 both for findings and for failures."""
    requirements = folder / "requirements.txt"
    requirements.write_text(audited_requirements(bill.parts), encoding="utf-8")
    words = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")
    completed = _scan(run, ("pip-audit", "--requirement", str(requirements), *words))
    try:
        audit, skipped = read_pip_audit(completed.stdout)
    except StatementError:
        return _failed(bill, "pip-audit", completed)
    unknown = (*skipped, _WHEELS_ONLY)
    return Audit(cell_id=bill.cell_id, scanner="pip-audit", found=audit, undetermined=unknown)


def _scan(run: Run, argv: tuple[str, ...]) -> Completed:
    command = Command(argv=argv, timeout_seconds=_LIMIT_SECONDS)
    try:
        return run(command)
    except CommandFailedError as error:
        return Completed(command=command, returncode=1, stdout="", stderr=error.message)


def _failed(bill: Bill, scanner: str, completed: Completed) -> Audit:
    lines = completed.stderr.strip().splitlines() or ["it printed nothing"]
    reason = f"{scanner} ended with {completed.returncode}: {lines[-1][:300]}"
    return Audit(cell_id=bill.cell_id, scanner="", found=(), undetermined=(reason,))
