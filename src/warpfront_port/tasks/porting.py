"""The commands about the user's own source: check, scan, fix, compile, preflight, try."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    DryRun,
    Group,
    Option,
    command,
    selecting,
)
from warpfront.cli.tasks.showing import print_unfinished, raise_failure, workspace_here
from warpfront.errors import (
    CommandFailedError,
    FindingsError,
    InputError,
    NothingSelectedError,
    UnavailableError,
)
from warpfront.matrix.cell import Selection
from warpfront.step_results import require_determined
from warpfront.system.texts import counted
from warpfront.verify.results import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfront.matrix.language import SourceTree
    from warpfront_port.commands.scanning import ScanRequest
    from warpfront_port.finding_forms import Scan
    from warpfront_port.trying.trial import Trial

DEFAULT_TARGET = "gfx942"

Repo = Annotated[str, Option("PATH  folder of the project (default: here)", place=True)]
Exclude = Annotated[str, "GLOBS  paths to leave out, separated by commas"]
Sarif = Annotated[str, "FILE  also write SARIF 2.1.0"]
Compiler = Annotated[
    str,
    Option(
        "NAME  compiler of CUDA sources: auto, host, fetched, matrix or none",
        choices=("auto", "host", "fetched", "matrix", "none"),
    ),
]
FailOn = Annotated[
    str,
    Option(
        "NAME  verdict that ends with 15: build, wrong, runtime or any (default)",
        choices=("any", "build", "wrong", "runtime"),
    ),
]
ON_DEVICE = f"the device that the project is to run on (default {DEFAULT_TARGET})"
# Of several images with a `project:`, those whose project is meant.
PROJECT = selecting(target=ON_DEVICE, vendor="", image="", only="")

port_group = Group(
    name="port",
    help="Check a project for another vendor's device, and port it.",
)


@command("port preflight", formerly=("preflight",), example="port preflight -r requirements.txt")
def preflight(
    display: Display,
    cells: Chosen,
    repo: Repo = ".",
    *,
    dry_run: DryRun = False,
    requirements: Annotated[
        tuple[str, ...],
        Option("FILE  requirements file, pyproject.toml, ...; several times", short="r"),
    ] = (),
    sarif: Sarif = "",
    offline: Annotated[bool, "judge the lines alone, without an index"] = False,
    extra: Annotated[tuple[str, ...], "NAME  an extra to install as well; several times"] = (),
    group: Annotated[tuple[str, ...], "NAME  a group to install as well; several times"] = (),
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """List the requirements of a project that would replace the torch of an image.

    Each has what to write instead. Exit code 0: torch stays, 15: it is
    replaced, 33: not determined. Builds nothing.
    """
    from warpfront.system.store import write_text
    from warpfront_port.commands.preflighting import preflight as examine_project
    from warpfront_port.preflight.declared import Part
    from warpfront_port.preflight.findings import counted_breaches, preflight_sarif, preflight_text

    result = examine_project(
        workspace_here(),
        cells,
        display,
        repo=Path(repo),
        files=tuple(requirements),
        parts=(*((Part.EXTRA, name) for name in extra), *((Part.GROUP, name) for name in group)),
        offline=offline,
    )
    if sarif and not dry_run:
        write_text(Path(sarif), preflight_sarif(result))
    display.result(result, preflight_text(result))
    if result.count:
        raise FindingsError(counted_breaches(result.count))
    require_determined(
        result.unknown,
        allow_undetermined=allow_undetermined,
        hint="--allow-undetermined accepts this; the reasons are printed above",
    )


@command("port fits", example="port fits vllm,xformers --target sm_90")
def fits(
    display: Display,
    packages: Annotated[str, "names on an index, separated by commas"],
    cells: Chosen,
) -> None:
    """List which release of a package accepts the torch of which cell.

    By the metadata of its newest releases; nothing is built.
    """
    from warpfront_port.commands.preflighting import fitting_releases

    fitting = fitting_releases(workspace_here(), cells, packages.split(","))
    lines = ([title, *(f"  {text}" for text in texts)] for title, texts in fitting.items())
    display.result(fitting, "".join(f"{line}\n" for part in lines for line in part))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Options of a trial: its program, and the files made of its result."""

    repo: Repo = "."
    install: Annotated[bool, "install missing modules for this trial, and continue"] = False
    provides: Annotated[
        tuple[str, ...], "MODULE=NAME  distribution of a module; several times"
    ] = ()
    name: Annotated[str, "name of the image to make (default app)"] = "app"
    write: Annotated[bool, "write images/NAME: requirements and template"] = False
    seconds: Annotated[float, "N  seconds that one run may take (default 600)"] = 600.0


@command("port try", formerly=("try",), example="port try ../app --image torch -- python train.py")
def try_program(
    display: Display,
    source: Annotated[Selection, selecting()],
    *,
    dry_run: DryRun = False,
    trial_options: TrialOptions,
) -> None:
    """Run a program of a project in an image, and list the modules it lacks there.

    The program follows `--`. Proposed versions leave the image's torch as it
    is. --write makes an image for the project.
    """
    from warpfront.matrix.language import NAME_PATTERN
    from warpfront.step_results import Blocked, Failed
    from warpfront_port.commands.trial_runs import TrialRequest, only_cell, try_project
    from warpfront_port.trying.trial import read_provides, trial_text, unwritten_text

    workspace = workspace_here()
    if not re.fullmatch(NAME_PATTERN, trial_options.name):
        hint = "a name of `images:`: lower case letters, digits, - and _"
        raise InputError(f"--name {trial_options.name!r} is no name of an image", hint=hint)
    request = TrialRequest(
        repo=Path(trial_options.repo),
        argv=_words_after_dashes(),
        install=trial_options.install,
        provides=read_provides(trial_options.provides),
        seconds=trial_options.seconds,
    )
    if dry_run:
        cell = only_cell(workspace.matrix.cells, source)
        text = f"would run {shlex.join(request.argv)} in {cell.id}, with {request.repo} read-only\n"
        display.result({"cell_id": cell.id, "argv": request.argv, "repo": request.repo}, text)
        return
    trial = try_project(workspace, source, display, request)
    if isinstance(trial, Blocked | Failed):
        display.result(trial, lambda: print_unfinished([trial]))
        raise_failure([trial])
        return
    display.result(trial, trial_text(trial, name=trial_options.name))
    if trial_options.write and trial.requirements:
        _write_image(trial, trial_options.name)
    elif trial_options.write:
        print(unwritten_text(trial))
    _raise_untried(trial)


def _words_after_dashes() -> tuple[str, ...]:
    """Return the program to try, as it was typed: invoke passes it joined by spaces."""
    return tuple(sys.argv[sys.argv.index("--") + 1 :]) if "--" in sys.argv else ()


def _write_image(trial: Trial, name: str) -> None:
    from warpfront.commands.project_edits import IMAGE_TEMPLATE
    from warpfront.system.store import write_text
    from warpfront.wheels.project_folders import IMAGES_FOLDER
    from warpfront_port.trying.trial import requirements_file

    folder = Path(IMAGES_FOLDER) / name
    if folder.exists():
        raise InputError(f"{folder}: is there already", hint="--name gives it another name")
    write_text(folder / "requirements.txt", requirements_file(trial))
    write_text(folder / "Dockerfile.j2", IMAGE_TEMPLATE)


def _raise_untried(trial: Trial) -> None:
    if trial.works:
        return
    if trial.lacking:
        raise FindingsError(f"it lacks {', '.join(trial.lacking)} in {trial.cell_id}")
    outcome = "was stopped" if trial.exit_code is None else f"exited with {trial.exit_code}"
    message = f"{trial.said} {outcome}, and no missing module is why"
    raise CommandFailedError(message, hint=trial.way_out)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """The forms of the findings on the screen, and the files to write."""

    dry_run: DryRun = False
    sarif: Sarif = ""
    markdown: Annotated[str, "FILE  also write Markdown"] = ""
    annotations: Annotated[bool, "also print GitHub annotations"] = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The files to scan, and the findings that are known already."""

    repo: Repo = ""
    baseline: Annotated[str, "FILE  accepted findings (.warpfront-baseline.json)"] = ""
    write_baseline: Annotated[bool, "accept all findings: write the baseline"] = False
    exclude: Exclude = ""
    vendored: Annotated[bool, "also scan submodules and third-party folders"] = False
    diff_base: Annotated[
        str,
        Option("DIR  the tree before an edit: list what changed for NVIDIA", formerly=("before",)),
    ] = ""
    toolkit: Annotated[str, "VERSION  version of ROCm: 6.4, 7.0"] = ""


@command("port scan", formerly=("scan",), example="port scan ../app --target gfx942")
def scan(
    display: Display,
    source: Annotated[Selection, PROJECT],
    forms: Forms,
    scanned: Scanned,
    *,
    all_: Annotated[
        bool, Option("list every cause, place and fix", formerly=("everything",))
    ] = False,
    allow_undetermined: AllowUndetermined = False,
    fail_on: FailOn = "any",
    compiler: Compiler = "auto",
) -> None:
    """Answer whether a source tree builds and runs on another vendor's device.

    The first line is the verdict; one line for each cause follows. Needs no
    matrix, unless --image names an image with a `project:`.
    """
    from warpfront.system.store import write_text
    from warpfront_port import finding_forms
    from warpfront_port.commands import scanning
    from warpfront_port.scan.catalogue import catalogue

    request = _scan_request(source, scanned, compiler, dry_run=forms.dry_run)
    result, new = scanning.scan(request, display, _compiled_by(request, display))
    if not result.files and all(file.left_out for file in result.unread):
        raise InputError(
            f"{request.repo}: nothing to determine: no file is of a kind that a rule reads",
            hint="name the root of a source tree as PATH; --vendored reads third parties too",
        )
    verdict, rules = scanning.verdict_of(result, new), catalogue()
    unread = [f"{item.path}: {item.reason}" for item in result.unread]
    if forms.sarif and not forms.dry_run:
        text = finding_forms.verdict_sarif(verdict, new, rules, unread=unread)
        write_text(Path(forms.sarif), text)
    if forms.markdown and not forms.dry_run:
        write_text(Path(forms.markdown), finding_forms.verdict_markdown(verdict))
    facts = {"files": result.files, "lines": result.lines, "suppressed": result.suppressed}
    document = {
        "target": result.target,
        "verdict": finding_forms.verdict_json(verdict),
        "totals": {**facts, **finding_forms.totals(new)},
        "unread": unread,
        "undetermined": list(verdict.reasons),
        "findings": finding_forms.findings_json(new, rules, result.project),
    }
    text = finding_forms.verdict_text(verdict, result, everything=all_)
    display.result(document, text + finding_forms.scan_summary(result, new))
    if forms.annotations:
        print(finding_forms.annotation_lines(new, rules), end="")
    if verdict.reaches(fail_on):
        raise FindingsError(verdict.line)
    if verdict.answer == "not determined":
        accepts = "--allow-undetermined accepts what is not read"
        answers = "a compiler answers: --compiler fetched brings one"
        hint = answers if result.uncompiled else accepts
        require_determined(verdict.reasons, allow_undetermined=allow_undetermined, hint=hint)


def _compiled_by(request: ScanRequest, display: Display) -> Callable[[Scan], Scan]:
    """Return what adds a compiler's answers to a scan."""
    from warpfront_port.commands.syntax_passes import with_compiler

    workspace = workspace_here() if request.compiler == "matrix" else None
    return lambda scanned: with_compiler(scanned, request, workspace, display)


@command("port fix", example="port fix ../app --out hip.patch")
def fix_tree(
    display: Display,
    repo: Repo = ".",
    *,
    dry_run: DryRun = False,
    out: Annotated[str, "write the changes to this file, as a patch"] = "",
    apply: Annotated[bool, "change the files themselves"] = False,
    exclude: Exclude = "",
    vendored: Annotated[bool, "also change submodules and third-party folders"] = False,
    compiler: Compiler = "auto",
) -> None:
    """Make the mechanical changes of a port: vendor code goes behind gates.

    The code for NVIDIA stays byte for byte. Each edit is compiled where a HIP
    compiler is at hand. Without --out and --apply, the places are only counted.
    """
    from warpfront.system.store import write_text
    from warpfront_port.commands import port_work, scanning

    tree = Scanned(repo=repo, exclude=exclude, vendored=vendored)
    request = _scan_request(Selection(), tree, compiler)
    scanned, _ = scanning.scan(request, display, _compiled_by(request, display))
    fixes = port_work.fixes_of(request.repo, exclude=request.exclude, vendored=vendored)

    def compiled(root: Path, bare: Scan) -> Scan:
        return _compiled_by(dataclasses.replace(request, repo=root), display)(bare)

    fixes, refused = port_work.compiled_fixes(request.repo, fixes, scanned, compiled)
    patch, is_written = "" if dry_run else out, apply and not dry_run
    if patch:
        write_text(Path(patch), "".join(fix.patch for fix in fixes))
    if is_written:
        port_work.write_fixes(request.repo, fixes)
    places = sum(len(fix.rules) for fix in fixes)
    sources = counted(len(scanned.compiled) + len(scanned.uncompiled), "source")
    by = f"{len(scanned.compiled)} of {sources} compiled by {scanned.compiler}"
    by = by if scanned.compiled else "not compiled"
    held_back = f"; {counted(refused, 'file')} refused by the compiler" if refused else ""
    verb = "changed" if is_written else f"{patch} changes" if patch else "could change"
    summary = f"{verb} {counted(places, 'place')} in {counted(len(fixes), 'file')}"
    display.say(f"{summary}, {by}{held_back}")


@command(
    "port check", formerly=("check",), example="port check ../app --target gfx942 -- python app.py"
)
def check(
    display: Display,
    source: Annotated[Selection, selecting(target=ON_DEVICE)],
    repo: Repo = ".",
    *,
    compiler: Compiler = "auto",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Report on a project for a target: scan, compile, preflight and try.

    The first line is the worst answer; each part answers in one line, with
    details below. A program to try follows `--`.
    """
    from warpfront_port.commands.project_check import Answer, check_project, check_text
    from warpfront_port.finding_forms import verdict_json

    workspace = workspace_here() if Path("matrix.yaml").is_file() else None
    cells = dataclasses.replace(source, target=source.target or DEFAULT_TARGET)
    request = _scan_request(source, Scanned(repo=repo), compiler)
    report = check_project(request, cells, _words_after_dashes(), workspace, display)
    parts = [{"name": p.name, "answer": p.answer.value, "line": p.line} for p in report.parts]
    document = {"line": report.line, "verdict": verdict_json(report.verdict), "parts": parts}
    display.result(document, check_text(report))
    if report.answer is Answer.FAILS:
        raise FindingsError("; ".join(report.reasons))
    if report.answer is Answer.UNDETERMINED:
        hint = "--allow-undetermined accepts this; the parts are printed above"
        require_determined(report.reasons, allow_undetermined=allow_undetermined, hint=hint)


def _scan_request(
    source: Selection, scanned: Scanned, compiler: str, *, dry_run: bool = False
) -> ScanRequest:
    from warpfront_port.commands.scanning import ScanRequest
    from warpfront_port.scan.targets import read_target

    return ScanRequest(
        repo=Path(_asked_tree(source, scanned.repo).path),
        target=read_target(source.target or DEFAULT_TARGET, scanned.toolkit),
        exclude=_listed(scanned.exclude),
        vendored=scanned.vendored,
        before=Path(scanned.diff_base) if scanned.diff_base else None,
        baseline=scanned.baseline,
        write_baseline=scanned.write_baseline and not dry_run,
        compiler=compiler,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The sources to compile, and their options."""

    repo: Repo = ""
    sources: Annotated[str, "GLOBS  sources; setup.py builds as an extension"] = ""
    include: Annotated[str, "DIRS  folders for -I (default include,csrc,src)"] = ""
    flags: Annotated[str, "further compiler options, in one argument"] = ""
    exclude: Exclude = ""
    hipify: Annotated[bool, "first turn CUDA into HIP, in a copy"] = False
    seconds: Annotated[float, "N  seconds that one source may take (default 300)"] = 300.0


@command("port compile", formerly=("compile",), example="port compile ../app --target gfx942")
def compile_sources(
    display: Display,
    source: Annotated[Selection, selecting(target="the device to compile for (default gfx942)")],
    *,
    dry_run: DryRun = False,
    compiled: Compiled,
    sarif: Sarif = "",
) -> None:
    """Compile a source tree's kernels for a target by its vendor's compiler.

    Runs in a `devel` image or a compiler of the matrix, without GPU or network.
    """
    from warpfront.images.engine.protocol import connect
    from warpfront.images.preparing import Tools
    from warpfront.system.store import write_text
    from warpfront.verify.verdict import outcome_of
    from warpfront_port import compilation_forms as forms
    from warpfront_port.commands import compiling
    from warpfront_port.compile.job_document import CompileRequest
    from warpfront_port.scan.catalogue import catalogue

    tree = _asked_tree(source, compiled.repo)
    request = CompileRequest(
        repo=Path(tree.path),
        target=source.target or DEFAULT_TARGET,
        sources=_listed(compiled.sources) or tree.sources,
        include=_listed(compiled.include) or tree.include,
        flags=tuple(shlex.split(compiled.flags)) or tree.flags,
        exclude=_listed(compiled.exclude),
        hipify=compiled.hipify,
        seconds=compiled.seconds,
    )
    if dry_run:
        paths = [unit.path for unit in compiling.read_units(request)]
        lines = "".join(f"would compile {path} for {request.target}\n" for path in paths)
        display.result({"target": request.target, "sources": paths}, lines)
        return
    workspace = workspace_here()
    tools = Tools(engine=connect(), folders=workspace.folders)
    result = compiling.compile_tree(request, workspace.matrix, source, tools, display)
    if sarif:
        write_text(Path(sarif), forms.compilation_sarif(result, catalogue()))
    display.result(result, forms.compilation_text(result, catalogue()))
    if outcome_of(result.verification) is Outcome.UNAVAILABLE:
        message = f"not all of it can be compiled for {request.target} in {result.place}"
        hint = "the reasons are above; `warpfront build` makes a `devel` image with torch"
        raise UnavailableError(message, hint=hint)
    raise_failure([result.verification])


def _asked_tree(source: Selection, repo: str) -> SourceTree:
    """Return the named folder, else the `project:` of the named image, else this folder."""
    from warpfront.matrix.language import SourceTree
    from warpfront.matrix.selection import select
    from warpfront_port.commands.projects import project_trees

    if repo or not (source.image or source.only):
        return SourceTree(path=repo or ".")
    # The target is that of the source's check, not of the image.
    chosen = dataclasses.replace(source, target="")
    trees = project_trees(select(workspace_here().matrix.cells, chosen))
    if len(trees) > 1:
        names = ", ".join(tree.path for tree in trees)
        raise NothingSelectedError(f"these images have several projects: {names}", hint="--only")
    return trees[0]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)
