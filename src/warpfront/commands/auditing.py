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
        found, unmatched = read(completed.stdout)
    except StatementError:
        lines = completed.stderr.strip().splitlines() or ["it printed nothing"]
        reason = f"{scanner} ended with {completed.returncode}: {lines[-1][:300]}"
        return Audit(cell_id=cell_id, scanner="", found=(), undetermined=(reason,))
    undetermined = (*unmatched, *unknown)
    return Audit(cell_id=cell_id, scanner=scanner, found=found, undetermined=undetermined)
