"""The commands about the contents of images: SBOMs, and known vulnerabilities."""

from __future__ import annotations

from typing import Annotated

from packaging.utils import canonicalize_name

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import AllowUndetermined, Chosen, command
from warpfront.cli.tasks.showing import finish, workspace_here
from warpfront.errors import FindingsError, InputError
from warpfront.step_results import Blocked, Failed, require_determined


@command(example="sbom --image torch", formerly=("bill",))
def sbom(
    display: Display,
    cells: Chosen,
    *,
    who: Annotated[str, "WHEEL  print what needs this wheel instead"] = "",
) -> None:
    """Write the SBOMs and licences of each verified image.

    CycloneDX 1.6, SPDX 2.3, Markdown and JSON, in build/<cell>/bill/.
    """
    from warpfront.commands.bills import bills
    from warpfront.commands.why_published import who_asked
    from warpfront.wheels.resolve.demands import asking_line

    workspace = workspace_here(display)
    if not who:
        finish(display, bills(workspace, cells))
        return
    dependents, name = who_asked(workspace, cells), canonicalize_name(who)
    lines = {
        cell_id: result if isinstance(result, Blocked | Failed) else asking_line(name, result)
        for cell_id, result in dependents.items()
    }
    finish(display, lines)
    edges = [edge for edge in dependents.values() if not isinstance(edge, Blocked | Failed)]
    if name not in {required for of_cell in edges for _, required, _ in of_cell}:
        message = f"no lock of the selected cells has {name}"
        raise InputError(message, hint="warpfront sbom lists them")


@command(example="audit --target cpu --gate")
def audit(
    display: Display,
    cells: Chosen,
    *,
    gate: Annotated[
        bool, "exit 15 for what matrix.yaml does not accept, 33 if not determined"
    ] = False,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """List known vulnerabilities of each verified image.

    By grype or pip-audit. Without --gate, the exit code is 0.
    """
    from warpfront.commands.bills import audits
    from warpfront.release.vulnerabilities import Audit

    results = audits(workspace_here(display), cells)
    finish(display, results)
    scans = [result for result in results.values() if isinstance(result, Audit)]
    open_ = sum(len(result.open) for result in scans)
    if gate and open_:
        message = f"known vulnerabilities that matrix.yaml does not accept: {open_}"
        hint = "update the packages, or `maintenance: allow_vulnerabilities` with a last day"
        raise FindingsError(message, hint=hint)
    if gate:
        reasons = [f"{result.cell_id}: {text}" for result in scans for text in result.undetermined]
        require_determined(reasons, allow_undetermined=allow_undetermined)
