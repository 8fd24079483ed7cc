"""The door for builders: one invoke task per step. Parses options, calls the pipeline, prints, and
sets the exit code. A project's own `tasks.py` imports `namespace` from here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import shlex
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from warpfront import __version__, pipeline
from warpfront.doors.display import Display
from warpfront.errors import (
    BUG_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    EngineError,
    FindingsError,
    NothingSelectedError,
    UnavailableError,
    WarpfrontError,
)
from warpfront.images.engine import connect, embedded
from warpfront.images.labels import CELL
from warpfront.inside.checks.effort import STRICT, Effort, asked_profile, profile_names
from warpfront.matrix.plan import Action, PlannedCell
from warpfront.matrix.scaffold import make_project
from warpfront.model import Blocked, Failed, Outcome, Selection, SourceTree, Verification
from warpfront.pipeline.doctor import examine
from warpfront.pipeline.preflighting import preflight as examine_project
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.port.preflight.report import preflight_sarif, preflight_text
from warpfront.report.profiles import profiles_text
from warpfront.report.rows import ReportRow
from warpfront.system.process import environment, terminable
from warpfront.system.store import as_json, write_text
from warpfront.verify.failures import failure_of
from warpfront.verify.verdict import outcome_of

if TYPE_CHECKING:
    from rich.table import Table

    from warpfront.pipeline.compiling import Compilation
    from warpfront.pipeline.scanning import Scan, ScanRequest
    from warpfront.port.scan.findings import Finding

SELECTION_HELP = {
    "target": "only cells that serve this target (sm_90, gfx942, gaudi3), or this vendor's (cpu)",
    "vendor": "only cells of this vendor: nvidia, amd, cpu, gaudi",
    "image": "only cells of this image: torch, devel, ...",
    "only": "only cells whose id matches this glob; `invoke plan` lists the ids",
    "json": "print the result as JSON on stdout",
    "dry_run": "say what would be done, and do nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the common options asked for, and who is told about it."""

    selection: Selection
    json: bool
    dry_run: bool
    display: Display

    def workspace(self, *, warn: bool = False) -> Workspace:
        workspace = open_workspace(Path.cwd())
        for warning in workspace.matrix.warnings if warn else ():
            self.display.say(f"warning: {warning}")
        return workspace


@contextlib.contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """Print an error as what, where and what next, without a traceback, and exit with its own
    code.
    """
    try:
        yield
    except WarpfrontError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        raise Exit(f"error: {error.message}{hint}", code=error.exit_code) from None
    except KeyboardInterrupt:
        raise Exit("interrupted", code=INTERRUPTED_EXIT_CODE) from None
    except Exit:
        raise
    except Exception:  # noqa: BLE001 - a bug: the one place that shows a traceback
        raise Exit(
            f"this is a bug in warpfront\n{traceback.format_exc()}", code=BUG_EXIT_CODE
        ) from None


def command(body: Callable[..., Any]) -> Task[Any]:
    """Make a task of a function that takes a `Request` and own keyword options.

    Adds the options that every step has, turns SIGTERM into an exception, and is the one place
    where errors are printed and become exit codes.
    """
    own = tuple(inspect.signature(body).parameters.values())[1:]
    common = tuple(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (
            ("target", ""),
            ("vendor", ""),
            ("image", ""),
            ("only", ""),
            ("json", False),
            ("dry_run", False),
        )
    )

    @functools.wraps(body)
    def invoked(_context: object, **options: Any) -> None:
        asked = {parameter.name: options.pop(parameter.name) for parameter in common}
        as_json_too, dry_run = asked.pop("json"), asked.pop("dry_run")
        with _errors_as_exit_codes(), terminable(), Display() as display:
            request = Request(
                selection=Selection(**asked), json=as_json_too, dry_run=dry_run, display=display
            )
            body(request, **options)

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    lists = [parameter.name for parameter in own if parameter.default == ()]
    keywords = [
        p.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, default=None if p.name in lists else p.default
        )
        for p in (*common, *own)
    ]
    invoked.__signature__ = inspect.Signature([first, *keywords])  # type: ignore[attr-defined]
    help_text = {p.name.replace("_", "-"): SELECTION_HELP[p.name] for p in common}
    own_help = {name.replace("_", "-"): text for name, text in OPTION_HELP.items()}
    names = {parameter.name.replace("_", "-") for parameter in own}
    documented = {name: text for name, text in own_help.items() if name in names}
    decorated: Task[Any] = task(help=help_text | documented, iterable=lists)(invoked)
    return decorated


PIPE_WIDTH = 240
CACHE_FOLDERS = ("views", "tools", "toolbox", "wheelhouse")

OPTION_HELP = {
    "locked": "refuse to make or change locks: what is committed must fit (for CI)",
    "refresh": "make locks anew even where they are fresh",
    "markdown": "as a Markdown table: report prints it, scan writes it to this file",
    "annotations": "also print the findings as GitHub annotations",
    "baseline": "a file of accepted findings; .warpfront-baseline.json of the tree is used anyway",
    "write_baseline": "accept what is found: write the baseline",
    "exclude": "globs of paths to leave out, comma-separated",
    "vendored": "also scan submodules and folders of third parties",
    "quick": "every operation, fewer cases of each",
    "profile": "whose tolerances decide; every result says what each would have said",
    "seeds": "sets of random inputs",
    "before": "the tree before an edit: also say what the edit changed for NVIDIA",
    "selftest": "also seed faults into every check, and demand that each is caught",
    "start": "start the embedded engine (needs root)",
    "stop": "stop the embedded engine and remove its bridge and mounts",
    "status": "say what runs (the default)",
    "requirements": "a requirements file, pyproject.toml, ...; may be given several times",
    "repo": "the folder of the project that is asked about (this one if not given)",
    "sarif": "also write the findings to this file, as SARIF 2.1.0",
    "offline": "judge the lines alone: resolve nothing",
    "sources": "globs of what is compiled, comma-separated; setup.py builds as an extension",
    "include": "folders of the tree for -I, comma-separated (include, csrc and src if not given)",
    "flags": "further options of the compiler, in one argument",
    "hipify": "turn CUDA into HIP first, in a copy; says what that leaves",
    "seconds": "how long one source may take",
    "everything": "scan: list notes and every place; clean: also remove this project's images and "
    "the shared cache of wheels and tools",
}


@command
def plan(request: Request) -> None:
    """What `build` would do with each cell, and why. Changes nothing."""
    planned = pipeline.plan(request.workspace(warn=True), request.selection, request.display)
    if request.json:
        _print_json(planned)
    else:
        _show_plan(planned)
        counts = Counter(cell.action for cell in planned)
        to_build, to_reuse = counts[Action.BUILD], counts[Action.REUSE]
        print(f"{to_build} to build, {to_reuse} to reuse, {counts[Action.BLOCKED]} blocked")


@command
def lock(request: Request, *, locked: bool = False, refresh: bool = False) -> None:
    """Pin every wheel of every cell by hash, in images/locks/."""
    workspace = request.workspace()
    if request.dry_run:
        _print_plan(workspace, request)
        return
    results = pipeline.lock(
        workspace, request.selection, request.display, locked=locked, refresh=refresh
    )
    _finish(request, results)


@command
def render(request: Request, *, locked: bool = False) -> None:
    """Write each cell's build context to build/<cell>/context/."""
    workspace = request.workspace()
    if request.dry_run:
        _print_plan(workspace, request)
        return
    results = pipeline.render(workspace, request.selection, request.display, locked=locked)
    _finish(request, results)


@command
def build(request: Request, *, locked: bool = False) -> None:
    """Build the images of the selected cells, reusing every one whose content exists."""
    workspace = request.workspace()
    if request.dry_run:
        _print_plan(workspace, request)
        return
    results = pipeline.build(workspace, request.selection, request.display, locked=locked)
    _finish(request, results)


@command
def verify(
    request: Request,
    *,
    quick: bool = False,
    profile: str = STRICT,
    seeds: int = 1,
    selftest: bool = False,
) -> None:
    """Run the checks inside each selected cell's image (as `nox -s verify` does)."""
    effort = _effort(quick=quick, profile=profile, seeds=seeds)
    workspace = request.workspace()
    if request.dry_run:
        _print_report(workspace, request)
        return
    results = pipeline.verify(
        workspace, request.selection, request.display, effort=effort, selftest=selftest
    )
    if request.json:
        _print_json(results)
    else:
        _print_report(workspace, request)
        for one in results:
            if isinstance(one, Verification) and (said := profiles_text(one)):
                print(f"\n{one.cell_id} on {one.target}\n{said}", end="")
    _raise_failure(results)


def _effort(*, quick: bool, profile: str, seeds: int) -> Effort:
    """How much to check. A wrong option exits like any other that invoke refuses: with 1."""
    profile = asked_profile(profile)
    if profile not in profile_names():
        raise Exit(f"error: no profile {profile!r}\nhint: {', '.join(profile_names())}", code=1)
    if seeds < 1:
        raise Exit(f"error: --seeds {seeds}\nhint: at least 1", code=1)
    return Effort(quick=quick, profile=profile, seeds=tuple(range(seeds)))


@command
def report(request: Request, *, markdown: bool = False) -> None:
    """Every cell with what each step came to, from what the steps left behind."""
    rows = pipeline.report(request.workspace(), request.selection)
    if request.json:
        _print_json(rows)
    elif markdown:
        from warpfront.report.text import report_markdown  # noqa: PLC0415 - see _show_plan

        print(report_markdown(rows), end="")
    else:
        _show_report(rows)


@command
def doctor(request: Request) -> None:
    """What this machine has: engine, buildx, disk, indexes, devices; and what to do about the
    rest.
    """
    findings = examine(request.workspace(warn=True), request.display)
    if request.json:
        _print_json(findings)
    else:
        for finding in findings:
            print(finding)
    broken = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    if broken:
        raise EngineError(f"{len(broken)} findings stand in the way of a build")


@command
def preflight(
    request: Request,
    *,
    requirements: tuple[str, ...] = (),
    repo: str = ".",
    sarif: str = "",
    offline: bool = False,
) -> None:
    """What in a user's project would replace the torch of which cells, and what to write instead.
    Builds nothing.
    """
    found = examine_project(
        request.workspace(),
        request.selection,
        request.display,
        repo=Path(repo),
        files=tuple(requirements),
        offline=offline,
    )
    if sarif and not request.dry_run:
        write_text(Path(sarif), preflight_sarif(found, version=__version__))
    if request.json:
        _print_json(found)
    else:
        print(preflight_text(found), end="")
    if found.count:
        raise FindingsError(f"{found.count} findings would change the torch of an image")


@command
def scan(
    request: Request,
    *,
    repo: str = "",
    sarif: str = "",
    markdown: str = "",
    annotations: bool = False,
    baseline: str = "",
    write_baseline: bool = False,
    exclude: str = "",
    vendored: bool = False,
    before: str = "",
    everything: bool = False,
    phases: bool = False,
    fix: str = "",
    apply: bool = False,
) -> None:
    """What in a source tree will break on another vendor's devices (--target gfx942, gfx1100,
    gaudi3, cpu), with what to do; --phases puts it in the order of a port. --fix FILE writes a
    patch of what is mechanical, --apply makes its changes. Needs no matrix, unless --image names
    one with a `project:`.
    """
    from warpfront.pipeline import scanning  # noqa: PLC0415 - rules are read for a scan only
    from warpfront.port import finding_forms as forms  # noqa: PLC0415 - see above
    from warpfront.port.scan.rules import catalogue  # noqa: PLC0415 - see above
    from warpfront.port.scan.targets import read_target  # noqa: PLC0415 - see above

    asked = scanning.ScanRequest(
        repo=Path(_asked_tree(request, repo).path),
        target=read_target(request.selection.target or "gfx942"),
        exclude=_listed(exclude),
        vendored=vendored,
        before=Path(before) if before else None,
        baseline=baseline,
        write_baseline=write_baseline and not request.dry_run,
    )
    found, new = scanning.scan(asked, request.display)
    _say_findings(request, found, new, sarif, markdown, everything=everything)
    if annotations:
        print(forms.annotation_lines(new, catalogue()), end="")
    if phases or fix or apply:
        _say_port(request, asked, found, fix, phases=phases, apply=apply)
    errors = [finding for finding in new if finding.severity == "error"]
    if errors:
        raise FindingsError(f"{forms.counted(new)} for {found.target}")


def _say_findings(
    request: Request,
    found: Scan,
    new: tuple[Finding, ...],
    sarif: str,
    markdown: str,
    *,
    everything: bool,
) -> None:
    """Findings on the screen or as JSON, and in the files that were asked for."""
    from warpfront.port import finding_forms as forms  # noqa: PLC0415 - for a scan only
    from warpfront.port.scan.rules import catalogue  # noqa: PLC0415 - see above

    rules = catalogue()
    unread = [f"{item.path}: {item.reason}" for item in found.unread]
    if sarif and not request.dry_run:
        text = forms.findings_sarif(new, rules, unread=unread, version=__version__)
        write_text(Path(sarif), text)
    if markdown and not request.dry_run:
        write_text(Path(markdown), forms.findings_markdown(new, rules, target=found.target))
    if request.json:
        _print_json({"unread": unread, "findings": forms.findings_json(new, rules)})
    else:
        print(forms.findings_text(new, rules, everything=everything), end="")
        print(forms.scan_summary(found, new), end="")


@command
def compile_sources(
    request: Request,
    *,
    repo: str = "",
    sources: str = "",
    include: str = "",
    flags: str = "",
    exclude: str = "",
    hipify: bool = False,
    seconds: float = 300.0,
    sarif: str = "",
) -> None:
    """Compile a source tree's kernels (or those of an image's `project:`) for --target with its
    vendor's compiler, in a `devel` image or a compiler of the matrix; no GPU, no network.
    """
    from warpfront.pipeline import compiling  # noqa: PLC0415 - see above
    from warpfront.port.compile.job import Bounds  # noqa: PLC0415 - for a compilation only

    tree = _asked_tree(request, repo)
    asked = compiling.CompileRequest(
        repo=Path(tree.path),
        target=request.selection.target or "gfx942",
        sources=_listed(sources) or tree.sources,
        include=_listed(include) or tree.include,
        flags=tuple(shlex.split(flags)) or tree.flags,
        exclude=_listed(exclude),
        hipify=hipify,
        bounds=Bounds(seconds=seconds),
    )
    if request.dry_run:
        for unit in compiling.read_units(asked):
            print(f"would compile {unit.path} for {asked.target}")
        return
    workspace = request.workspace()
    found = pipeline.compile_sources(workspace, request.selection, request.display, asked)
    _say_compilation(request, found, sarif)


def _say_compilation(request: Request, found: Compilation, sarif: str) -> None:
    """The compilation on the screen or as JSON, and in the file that was asked for."""
    from warpfront.port import compilation_forms as forms  # noqa: PLC0415 - for a compilation only
    from warpfront.port.scan.rules import catalogue  # noqa: PLC0415 - see above

    if sarif:
        text = forms.compilation_sarif([found], catalogue(), version=__version__)
        write_text(Path(sarif), text)
    if request.json:
        _print_json(found)
    else:
        print(forms.compilation_text(found, catalogue()), end="")
    if outcome_of(found.verification) is Outcome.UNAVAILABLE:
        raise UnavailableError(
            f"not all of it can be compiled for {found.verification.target} in {found.place}",
            hint="the reasons stand above; `invoke build` makes a `devel` image that holds torch",
        )
    _raise_failure([found.verification])


def _asked_tree(request: Request, repo: str) -> SourceTree:
    """The folder that was named, else the project of the image that was, else this folder."""
    declared = None if repo else _declared_tree(request)
    return declared or SourceTree(path=repo or ".")


def _declared_tree(request: Request) -> SourceTree | None:
    """The `project:` of the images that the options name; None where they name none."""
    from warpfront.pipeline.projects import project_trees  # noqa: PLC0415 - for a project only

    if not (request.selection.image or request.selection.only):
        return None
    # The target is what the source is asked about, not what the image serves.
    chosen = dataclasses.replace(request.selection, target="")
    trees = project_trees(pipeline.selected(request.workspace(), chosen))
    if len(trees) > 1:
        names = ", ".join(tree.path for tree in trees)
        raise NothingSelectedError(f"these images have several projects: {names}", hint="--only")
    return trees[0]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _say_port(
    request: Request, asked: ScanRequest, found: Scan, fix: str, *, phases: bool, apply: bool
) -> None:
    """The order of a port, and patches for what is mechanical in it."""
    from warpfront.pipeline import porting  # noqa: PLC0415 - for a scan only
    from warpfront.port.scan.phases import phases_text  # noqa: PLC0415 - see above

    exclude, vendored = asked.exclude, asked.vendored
    if phases:
        plan = porting.phases_of(asked.repo, found.findings, exclude=exclude, vendored=vendored)
        print(phases_text(plan), end="")
    if not fix and not apply:
        return
    fixes = porting.fixes_of(asked.repo, exclude=exclude, vendored=vendored)
    places = sum(len(one.rules) for one in fixes)
    if fix and not request.dry_run:
        write_text(Path(fix), "".join(one.patch for one in fixes))
    if apply and not request.dry_run:
        porting.write_fixes(asked.repo, fixes)
    done = "changed" if apply and not request.dry_run else "could change"
    request.display.say(f"--fix {done} {places} places in {len(fixes)} files")


@command
def engine(
    request: Request, *, start: bool = False, stop: bool = False, status: bool = False
) -> None:
    """The embedded engine: a private dockerd for machines that have none."""
    _ = status
    folders = embedded.folders(environment())
    if start and not request.dry_run:
        embedded.start(*folders, on_line=request.display.say)
    elif stop and not request.dry_run:
        embedded.stop(*folders, on_line=request.display.say)
    state = embedded.status(*folders)
    if request.json:
        _print_json(state)
    else:
        print(state)


@command
def init(request: Request) -> None:
    """Make a new project in this folder: matrix.yaml, templates, tasks.py, noxfile.py."""
    for path in make_project(Path.cwd(), dry_run=request.dry_run):
        request.display.say(f"{'would write' if request.dry_run else 'wrote'} {path}")
    request.display.say("next: edit matrix.yaml, then `invoke plan`")


@command
def clean(request: Request, *, everything: bool = False) -> None:
    """Remove build results and images of the selected cells; wheels and locks stay."""
    workspace = request.workspace()
    cell_ids = {cell.id for cell in pipeline.selected(workspace, request.selection)}
    folders = [workspace.store.cell_folder(cell_id) for cell_id in sorted(cell_ids)]
    if everything:
        folders += [workspace.cache / name for name in CACHE_FOLDERS]
    for folder in folders:
        if folder.exists():
            _remove(request, str(folder), functools.partial(shutil.rmtree, folder))
    host, ours = connect(environment()), f"localhost/{workspace.matrix.project.name}/"
    for image in host.images(CELL):
        if image.labels[CELL] in cell_ids:
            for reference in image.references:
                if reference.startswith(ours):  # what is built on top of ours has its labels, too
                    _remove(request, reference, functools.partial(host.remove, reference))


def _remove(request: Request, what: str, remove: Callable[[], None]) -> None:
    if not request.dry_run:
        remove()
    request.display.say(f"{'would remove' if request.dry_run else 'removed'} {what}")


def _finish(request: Request, results: Mapping[str, object]) -> None:
    """Print one line per cell (or JSON), then fail if any cell did."""
    if request.json:
        _print_json(results)
    else:
        for cell_id, result in results.items():
            print(f"{cell_id}: {_said(result)}")
    _raise_failure(results.values())


def _said(result: object) -> str:
    match result:
        case Blocked(reason=reason, hint=hint):
            return f"blocked: {reason}" + (f"\n    hint: {hint}" if hint else "")
        case Failed(reason=reason, hint=hint):
            return f"failed: {reason}" + (f"\n    hint: {hint}" if hint else "")
        case _:
            return pipeline.describe(result)


def _raise_failure(results: Iterable[object]) -> None:
    """Raise the worst of what is not a success."""
    failure = failure_of(results)
    if failure is not None:
        raise failure


def _print_plan(workspace: Workspace, request: Request) -> None:
    planned = pipeline.plan(workspace, request.selection, request.display)
    if request.json:
        _print_json(planned)
    else:
        _show_plan(planned)


def _print_report(workspace: Workspace, request: Request) -> None:
    rows = pipeline.report(workspace, request.selection)
    if request.json:
        _print_json(rows)
    else:
        _show_report(rows)


def _print_json(value: object) -> None:
    print(json.dumps(as_json(value), indent=2, sort_keys=True))


def _show_plan(planned: Iterable[PlannedCell]) -> None:
    """As a table. Tables bring rich, which takes longer to load than many a step to run."""
    from warpfront.report.text import plan_table  # noqa: PLC0415 - see above

    _show(plan_table(planned))


def _show_report(rows: Iterable[ReportRow]) -> None:
    from warpfront.report.text import report_table  # noqa: PLC0415 - see _show_plan

    _show(report_table(rows))


def _show(table: Table) -> None:
    """To stdout. Not on a terminal, lines are as long as they are."""
    from rich.console import Console  # noqa: PLC0415 - see _show_plan

    console = Console(highlight=False)
    shown_on = console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)
    shown_on.print(table)


namespace = Collection(
    plan, lock, render, build, verify, report, doctor, preflight, scan, engine, init, clean
)
namespace.add_task(compile_sources, name="compile")
