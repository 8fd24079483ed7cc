"""The commands of contents: of wheel indexes, of images, and of a library of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from packaging.utils import canonicalize_name

from warpfront import commands, pipeline
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    DryRun,
    Group,
    Option,
    Options,
    command,
)
from warpfront.cli.tasks.showing import finish, print_unfinished, raise_failure, workspace_here
from warpfront.errors import FindingsError, InputError
from warpfront.step_results import Blocked, Failed, require_determined
from warpfront.system.process import environment
from warpfront.verify.results import Outcome, Verification
from warpfront_checks.architectures.roster import LIBRARY_OPTIONS, Library, read_library

compat_group = Group(
    name="compat",
    help="The table of wheels: compare with the indexes, or update.",
    default="update --dry-run",
)
Mode = Literal["write", "check", "propose", "print"]


@command("compat update", example="compat update")
def update(
    display: Display, *, dry_run: DryRun = False, allow_undetermined: AllowUndetermined = False
) -> None:
    """Read the wheel indexes of the compat table, and write their contents.

    Reads pages and METADATA, never a whole wheel. An index that cannot be read
    keeps its old contents.
    """
    mode: Mode = "print" if dry_run else "write"
    _read(display, mode, allow_undetermined=allow_undetermined)


@command("compat check", example="compat check")
def check(display: Display, *, allow_undetermined: AllowUndetermined = False) -> None:
    """Fail if the wheel indexes have releases that the compat table lacks."""
    _read(display, "check", allow_undetermined=allow_undetermined)


@command("compat propose", example="compat propose", hidden=True)
def propose(display: Display, *, allow_undetermined: AllowUndetermined = False) -> None:
    """Open a pull or merge request with the contents, in a job of CI."""
    _read(display, "propose", allow_undetermined=allow_undetermined)


def _read(display: Display, mode: Mode, *, allow_undetermined: bool) -> None:
    from warpfront.ci.forge_api import forge_api
    from warpfront.matrix.compat import packaged_rows
    from warpfront.system.provenance import now
    from warpfront.wheels.sources import site_when_needed

    compat, workspace = commands.compat_update, workspace_here()
    root, cells = workspace.folders.root, workspace.matrix.cells
    index_update = compat.read_indexes(
        packaged_rows(),
        workspace.material.compat.contents,
        site=site_when_needed()(),
        addresses={cell.index.name: cell.index.url for cell in cells if cell.index},
        today=now()[:10],
        watch=display,
    )
    display.result(index_update, compat.update_text(index_update))
    if mode == "write":
        display.say("written" if compat.write_contents(index_update, root) else "nothing changed")
    elif mode == "check":
        compat.refuse_stale(index_update, root)
    elif mode == "propose":
        display.say(compat.propose_update(index_update, root, forge_api(environment())))
    require_determined(
        index_update.unread,
        allow_undetermined=allow_undetermined,
        hint="what was written of these indexes is as it was; run it where they answer",
    )


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
    from warpfront.wheels.resolve.demands import asking_line

    workspace = workspace_here(display)
    if not who:
        finish(display, commands.bills.bills(workspace, cells))
        return
    dependents, name = commands.bills.who_asked(workspace, cells), canonicalize_name(who)
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
    from warpfront.release.vulnerabilities import Audit

    results = commands.bills.audits(workspace_here(display), cells)
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


DeclaredRequirement = Annotated[
    Library | None,
    Options(
        {option.attribute: ("", Option(option.help)) for option in LIBRARY_OPTIONS},
        lambda **values: read_library(**values) if values["library"] else None,
    ),
]


@command(example="models --library transformers --image hf")
def models(
    display: Display,
    cells: Chosen,
    *,
    asked: DeclaredRequirement,
    write: Annotated[str, "write a test of --architecture to this file"] = "",
    architecture: Annotated[str, "a model_type of transformers: qwen3, llama, t5"] = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Run a library's architectures in images, or write a test.

    `--library transformers --image hf` builds each small, with random weights,
    and judges it layer by layer inside the image. `--write` writes a
    stand-alone pytest file, which runs on NVIDIA, AMD, Gaudi or the CPU, and
    never on another than asked.
    """
    if asked is not None:
        results = pipeline.verify(workspace_here(display), cells, display, library=asked)
        lines: list[str] = []
        for result in (result for result in results if isinstance(result, Verification)):
            lines.append(f"{result.cell_id} on {result.target}, {result.seconds:.0f} s")
            passed = [check for check in result.checks if check.outcome is Outcome.PASSED]
            rest = (check for check in result.checks if check not in passed)
            lines += (f"  {check.name}: {check.outcome.value}: {check.reason}" for check in rest)
            counts = (check for check in passed if check.name.startswith("count of "))
            lines += (f"  {check.name}: {check.reason}" for check in counts)
        display.result(results, "".join(f"{line}\n" for line in lines))
        print_unfinished(results)
        raise_failure(results)
        return
    if not write or not architecture:
        hint = "warpfront models --write test_qwen3.py --architecture qwen3"
        raise InputError("a file and an architecture are needed, or a library", hint=hint)
    write_test, file = commands.model_writing.write_model_test, Path(write)
    path = write_test(architecture, file, allow_undetermined=allow_undetermined)
    display.say(f"wrote {path}")
    display.result({"written": path})
