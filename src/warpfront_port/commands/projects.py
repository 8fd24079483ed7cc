"""static and compile for the source tree that an image is for: `project:` in matrix.yaml."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from warpfront.errors import NothingSelectedError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import Engine
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import SourceTree
from warpfront.matrix.vendors import VENDORS
from warpfront.system.progress import Watch
from warpfront.system.strict_values import extended
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.wheels.project_folders import Folders
from warpfront_port.commands.compiling import cell_place, compile_at
from warpfront_port.commands.scanning import BASELINE, ScanRequest, scan, verdict_of
from warpfront_port.compile.job_document import CompileRequest
from warpfront_port.compile.outcomes import SESSION as COMPILE
from warpfront_port.scan.findings import ScanFinding, Severity
from warpfront_port.scan.targets import has_rules, read_target

STATIC = "static"
_SHOWN = 20


def with_project_checked(
    verification: Verification,
    cell: Cell,
    built: BuiltImage,
    folders: Folders,
    *,
    engine: Engine,
    watch: Watch,
) -> Verification:
    """Add the sessions `static` and `compile` of the cell's own project, where they apply.

    Rules exist for devices other than NVIDIA's, and compilers are in `devel` images.
    """
    if cell.tree is None:
        return verification
    # The scanner calls every machine without an accelerator `cpu`.
    target = "cpu" if cell.vendor == "cpu" else verification.target
    if has_rules(target):
        scanned = _scanned(folders.root, cell.tree, target, watch)
        verification = _extended(verification, STATIC, (scanned,))
    tree, call = cell.tree, VENDORS[cell.vendor].compiler_call(verification.target)
    if cell.compiler is not None and call is not None:
        repo, target = folders.root / tree.path, verification.target
        request = extended(CompileRequest, tree, repo=repo, target=target)
        compiled = compile_at(cell_place(cell, built), request, folders.store, engine, watch)
        if compiled is not None:
            verification = _extended(verification, COMPILE, compiled.verification.checks)
    return verification


def project_trees(cells: Iterable[Cell]) -> tuple[SourceTree, ...]:
    """Return the source trees of cells, each once. Raise `NothingSelectedError` for none."""
    trees = tuple(dict.fromkeys(cell.tree for cell in cells if cell.tree is not None))
    if not trees:
        hint = "matrix.yaml: `project: {path: ...}` of an image, or name a folder as PATH"
        raise NothingSelectedError("no image of the selection has a `project:`", hint=hint)
    return trees


def _scanned(root: Path, tree: SourceTree, target: str, watch: Watch) -> CheckResult:
    started = monotonic()
    request = ScanRequest(repo=root / tree.path, target=read_target(target))
    scanned, new = scan(request, watch)
    verdict = verdict_of(scanned, new)
    errors = [finding for finding in new if finding.severity is Severity.ERROR]
    accepted = len(scanned.findings) - len(new)
    outcome, reason = Outcome.PASSED, ""
    if verdict.reaches("any"):
        outcome = Outcome.FAILED
        reason = f"{verdict.line}: {_said(errors[0])}"
    elif not scanned.files:
        outcome, reason = Outcome.ERROR, f"no file of {tree.path} was scanned"
    return CheckResult(
        session=STATIC,
        name="scan",
        outcome=outcome,
        reason=reason,
        seconds=round(monotonic() - started, 3),
        details={
            "verdict": verdict.line,
            "files": scanned.files,
            "findings": len(new),
            f"accepted by {BASELINE}": accepted,
            "unread": [f"{file.path}: {file.reason}" for file in scanned.unread[:_SHOWN]],
            "errors": [_said(error) for error in errors[:_SHOWN]],
        },
    )


def _said(finding: ScanFinding) -> str:
    return f"{finding.path}:{finding.line}: {finding.rule} {finding.message}"


def _extended(
    verification: Verification, session: str, checks: tuple[CheckResult, ...]
) -> Verification:
    sessions, every = (*verification.sessions, session), (*verification.checks, *checks)
    return dataclasses.replace(verification, sessions=sessions, checks=every)
