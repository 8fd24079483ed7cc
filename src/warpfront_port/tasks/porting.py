"""The tasks about the user's own source: preflight, scan, compile."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront import __version__
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    Json,
    Option,
    command,
    selecting,
)
from warpfront.cli.tasks.showing import (
    print_json,
    print_result,
    print_unfinished,
    raise_failure,
    workspace_here,
)
from warpfront.determination import Answer, require_determined
from warpfront.errors import (
    CommandFailedError,
    FindingsError,
    InputError,
    MatrixError,
    NothingSelectedError,
    UnavailableError,
)
from warpfront.matrix.cell import Selection, SourceTree
from warpfront.verify.results import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfront.pipeline.workspace import Workspace
    from warpfront_port.commands.compiling import CompileRequest
    from warpfront_port.commands.project_check import ProjectCheck
    from warpfront_port.commands.scanning import ScanRequest
    from warpfront_port.commands.trial_runs import TrialRequest
    from warpfront_port.compile.outcomes import Compilation
    from warpfront_port.finding_forms import Scan
    from warpfront_port.scan.findings import ScanFinding
    from warpfront_port.scan.verdict import Verdict
    from warpfront_port.trying.trial import Trial

DEFAULT_TARGET = "gfx942"

Repo = Annotated[
    str, Option("the folder that is asked about; else the project of --image, else this one")
]
Exclude = Annotated[str, Option("globs of paths to leave out, comma-separated")]
Sarif = Annotated[str, Option("also write the findings to this file, as SARIF 2.1.0")]


@command
def preflight(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: Annotated[bool, Option("judge and print, and write no file")] = False,
    requirements: Annotated[
        tuple[str, ...],
        Option("a requirements file, pyproject.toml, ...; may be given several times"),
    ] = (),
    repo: Annotated[str, Option("the project's folder (this one if not given)")] = ".",
    sarif: Sarif = "",
    offline: Annotated[bool, Option("judge the lines alone: resolve nothing")] = False,
    extra: Annotated[
        tuple[str, ...], Option("an extra to install as well; may be given several times")
    ] = (),
    group: Annotated[
        tuple[str, ...],
        Option("a dependency group to install as well; may be given several times"),
    ] = (),
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Say what in a project would replace the torch of which cells.

    And what to write instead. Builds nothing.
    """
    from warpfront.system.store import write_text
    from warpfront_port.commands.preflighting import preflight as examine_project
    from warpfront_port.preflight.parts import Parts
    from warpfront_port.preflight.report import (
        counted_breaches,
        preflight_sarif,
        preflight_text,
    )

    result = examine_project(
        workspace_here(),
        cells,
        display,
        repo=Path(repo),
        files=tuple(requirements),
        parts=Parts(extras=tuple(extra), groups=tuple(group)),
        offline=offline,
    )
    if sarif and not dry_run:
        write_text(Path(sarif), preflight_sarif(result, version=__version__))
    print_result(result, preflight_text(result), json=json)
    if result.count:
        raise FindingsError(counted_breaches(result.count))
    require_determined(
        result.unknown,
        allow_undetermined=allow_undetermined,
        hint="--allow-undetermined accepts this; the reasons are printed above",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Options of a trial: its program, and the files made of its result."""

    repo: Annotated[str, Option("the project's folder (this one if not given)")] = "."
    install: Annotated[
        bool, Option("install what is missing beside the image, for this trial only, and go on")
    ] = False
    provides: Annotated[
        tuple[str, ...],
        Option("module=distribution, where nobody knows; may be given several times"),
    ] = ()
    name: Annotated[str, Option("what the image to make of it is called (app)")] = "app"
    write: Annotated[bool, Option("write images/<name>: requirements and template")] = False
    seconds: Annotated[float, Option("how long one run may take (600 if not given)")] = 600.0


@command(name="try")
def try_program(
    display: Display,
    source: Annotated[
        Selection,
        selecting(
            target="the image that serves this target, on that device where it is here",
            vendor="the image of this vendor",
            image="the image to try it in: torch, devel, ...",
            only="the cell of this id, or glob of ids (`invoke plan` lists them)",
        ),
    ],
    *,
    json: Json = False,
    dry_run: Annotated[bool, Option("say what would be run where, and run nothing")] = False,
    tried: TrialOptions,
) -> None:
    """Run a program of a project in an image, and say what it lacks there.

    The program follows `--`: invoke try --image torch --repo ../app --
    python train.py. Only modules that are really missed count, at versions
    that leave the image's torch as it is; then what makes an image of it.
    """
    from warpfront.step_results import Blocked, Failed
    from warpfront_port.commands.trial_runs import only_cell, try_project

    workspace, asking = workspace_here(), _trial_request(tried)
    if dry_run:
        cell = only_cell(workspace.matrix.cells, source)
        print(f"would run {shlex.join(asking.argv)} in {cell.id}, with {asking.repo} read-only")
        return
    trial = try_project(workspace, source, display, asking)
    if isinstance(trial, Blocked | Failed):
        print_unfinished(() if json else [trial])
        raise_failure([trial])
        return
    _show_trial(trial, tried, json=json)
    _raise_untried(trial)


def _trial_request(trial_options: TrialOptions) -> TrialRequest:
    from warpfront.matrix.language import NAME_PATTERN
    from warpfront_port.commands.trial_runs import TrialRequest
    from warpfront_port.trying.providers import read_provides

    if not re.fullmatch(NAME_PATTERN, trial_options.name):
        hint = "a name of `images:`: lower case letters, digits, - and _"
        raise InputError(f"--name {trial_options.name!r} is no name of an image", hint=hint)
    return TrialRequest(
        repo=Path(trial_options.repo),
        argv=_words_after_dashes(),
        install=trial_options.install,
        provides=read_provides(trial_options.provides),
        seconds=trial_options.seconds,
    )


def _show_trial(trial: Trial, trial_options: TrialOptions, *, json: bool) -> None:
    """Print the trial on the screen or as JSON, and write the folder of the image that it makes."""
    from warpfront_port.trying.trial_text import trial_text, unwritten_text

    print_result(trial, trial_text(trial, name=trial_options.name), json=json)
    if trial_options.write and trial.requirements:
        _write_image(trial, trial_options.name)
    elif trial_options.write and not json:
        print(unwritten_text(trial))


def _words_after_dashes() -> tuple[str, ...]:
    """Return the program to try, as it was typed: invoke passes it joined by spaces."""
    return tuple(sys.argv[sys.argv.index("--") + 1 :]) if "--" in sys.argv else ()


def _write_image(trial: Trial, name: str) -> None:
    from warpfront.system.store import write_text
    from warpfront.wheels.project_folders import IMAGES_FOLDER
    from warpfront_port.trying.trial_text import TEMPLATE, requirements_file

    folder = Path(IMAGES_FOLDER) / name
    if folder.exists():
        raise InputError(f"{folder}: is there already", hint="--name gives it another name")
    write_text(folder / "requirements.txt", requirements_file(trial))
    write_text(folder / "Dockerfile.j2", TEMPLATE)


def _raise_untried(trial: Trial) -> None:
    if trial.works:
        return
    if trial.lacking:
        raise FindingsError(f"it lacks {', '.join(trial.lacking)} in {trial.cell_id}")
    outcome = "was stopped" if trial.exit_code is None else f"exited with {trial.exit_code}"
    raise CommandFailedError(
        f"{trial.said} {outcome}, and no missing module is why", hint=trial.way_out
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """The forms of the findings on the screen, and the files to write."""

    json: Json = False
    dry_run: Annotated[bool, Option("scan and print, and write no file")] = False
    sarif: Sarif = ""
    markdown: Annotated[str, Option("also write the findings to this file, as Markdown")] = ""
    annotations: Annotated[bool, Option("also print the findings as GitHub annotations")] = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The files to scan, and the findings that are known already."""

    repo: Repo = ""
    baseline: Annotated[
        str,
        Option("a file of accepted findings (.warpfront-baseline.json of the tree if not given)"),
    ] = ""
    write_baseline: Annotated[bool, Option("accept what is found: write the baseline")] = False
    exclude: Exclude = ""
    vendored: Annotated[bool, Option("also submodules and folders of third parties")] = False
    before: Annotated[
        str, Option("the tree before an edit: also say what the edit changed for NVIDIA")
    ] = ""
    toolkit: Annotated[
        str, Option("the ROCm that it is built with (6.4, 7.0 ...), where rules depend on that")
    ] = ""


@command
def scan(
    display: Display,
    source: Annotated[
        Selection,
        selecting(
            target=f"the device that it is to run on ({DEFAULT_TARGET} if not given)",
            vendor="of several images with a `project:`, those of this vendor",
            image="the image of matrix.yaml whose `project:` is asked about, where --repo is not",
            only="as --image, by a glob of cells' ids (`invoke plan` lists them)",
        ),
    ],
    forms: Forms,
    scanned: Scanned,
    *,
    everything: Annotated[bool, Option("list every cause, place and fix")] = False,
    phases: Annotated[bool, Option("also put the findings in the order of a port")] = False,
    allow_undetermined: AllowUndetermined = False,
    fail_on: Annotated[
        str, Option("which verdict ends with 15: build, wrong, runtime or any (the default)")
    ] = "any",
    compiler: Annotated[
        str,
        Option("what compiles CUDA sources: auto (what is at hand), host, matrix or none"),
    ] = "auto",
    fix: Annotated[str, Option("write the mechanical changes to this file, as a patch")] = "",
    apply: Annotated[bool, Option("make the mechanical changes in the tree itself")] = False,
) -> None:
    """Answer whether a source tree builds and runs on another vendor's device.

    The first line is the verdict; then the way, the size, and one line for
    each cause. Targets are gfx942, gfx1100, gaudi3, cpu and others. Needs no
    matrix, unless --image names one with a `project:`.
    """
    from warpfront_port.commands import scanning

    if fail_on not in _GATES:
        raise NothingSelectedError(f"no verdict {fail_on!r}", hint=f"one of {', '.join(_GATES)}")
    scan_request = _scan_request(source, scanned, dry_run=forms.dry_run)
    result, new = scanning.scan(
        scan_request, display, _compiled_by(scan_request, compiler, display)
    )
    if not result.files and all(file.left_out for file in result.unread):
        raise InputError(
            f"{scan_request.repo}: nothing to determine: no file is of a kind that a rule reads",
            hint="name the root of a source tree with --repo; --vendored reads third parties too",
        )
    verdict = scanning.verdict_of(result, new)
    _show_verdict(verdict, result, new, forms, everything=everything)
    if phases:
        _print_phases(scan_request, result)
    if fix or apply:
        patch = "" if forms.dry_run else fix
        display.say(_fixed(scan_request, patch, apply=apply and not forms.dry_run))
    _raise_verdict(verdict, fail_on, allow_undetermined=allow_undetermined)


def _compiled_by(scan_request: ScanRequest, where: str, display: Display) -> Callable[[Scan], Scan]:
    """Return what adds a compiler's answers to a scan."""
    from warpfront_port.commands.syntax_passes import PLACES, SyntaxRequest, with_compiler

    if where not in PLACES:
        raise NothingSelectedError(f"no compiler {where!r}", hint=f"one of {', '.join(PLACES)}")
    workspace = _workspace_for(where)
    request = SyntaxRequest(root=scan_request.repo, target=scan_request.target.name, where=where)
    return lambda scanned: with_compiler(scanned, request, workspace, display)


def _workspace_for(compiler: str) -> Workspace | None:
    """Return the project here, for its compilers.

    A matrix that cannot be read does not stop a scan, unless its compiler is named.
    """
    if compiler in ("none", "host") or not Path("matrix.yaml").is_file():
        return None
    try:
        return workspace_here()
    except MatrixError:
        if compiler == "matrix":
            raise
        return None


_GATES = ("any", "build", "wrong", "runtime")


@command
def check(
    display: Display,
    source: Annotated[
        Selection,
        selecting(
            target=f"the device that it is to run on ({DEFAULT_TARGET} if not given)",
            vendor="preflight and try in images of this vendor",
            image="try in this image (torch if not given)",
            only="preflight and try in the cells of this id, or glob of ids",
        ),
    ],
    *,
    repo: Annotated[str, Option("the project's folder (this one if not given)")] = ".",
    compiler: Annotated[
        str, Option("what compiles CUDA sources: auto (what is at hand), host, matrix or none")
    ] = "auto",
    json: Json = False,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Report on a project for a target: scan, compile, preflight and try.

    The first line is the scan's verdict; each part answers in one line, with
    details below. A program to try follows `--`: warpfront check --repo ../app
    --target gfx942 -- python train.py.
    """
    from warpfront_port.commands.project_check import CheckRequest, check_project, check_text
    from warpfront_port.commands.syntax_passes import PLACES
    from warpfront_port.scan.targets import read_target

    if compiler not in PLACES:
        raise NothingSelectedError(f"no compiler {compiler!r}", hint=f"one of {', '.join(PLACES)}")
    workspace = workspace_here() if Path("matrix.yaml").is_file() else None
    request = CheckRequest(
        repo=Path(repo),
        target=read_target(source.target or DEFAULT_TARGET),
        cells=dataclasses.replace(source, target=source.target or DEFAULT_TARGET),
        compiler=compiler,
        argv=_words_after_dashes(),
    )
    report = check_project(request, workspace, display)
    if json:
        print_json(_check_document(report))
    else:
        print(check_text(report), end="")
    determination = report.determination
    if determination.answer is Answer.FAILS:
        raise FindingsError("; ".join(determination.reasons))
    if determination.answer is Answer.UNDETERMINED:
        require_determined(
            determination.reasons,
            allow_undetermined=allow_undetermined,
            hint="--allow-undetermined accepts this; the parts are printed above",
        )


def _check_document(report: ProjectCheck) -> dict[str, object]:
    from warpfront_port.finding_forms import verdict_json

    parts = [
        {"name": part.name, "answer": part.answer.value, "line": part.line} for part in report.parts
    ]
    return {"verdict": verdict_json(report.verdict), "parts": parts}


def _scan_request(source: Selection, scanned: Scanned, *, dry_run: bool) -> ScanRequest:
    from warpfront_port.commands.scanning import ScanRequest
    from warpfront_port.scan.targets import read_target

    return ScanRequest(
        repo=Path(_asked_tree(source, scanned.repo).path),
        target=read_target(source.target or DEFAULT_TARGET, scanned.toolkit),
        exclude=_listed(scanned.exclude),
        vendored=scanned.vendored,
        before=Path(scanned.before) if scanned.before else None,
        baseline=scanned.baseline,
        write_baseline=scanned.write_baseline and not dry_run,
    )


def _show_verdict(
    verdict: Verdict,
    scanned: Scan,
    new: tuple[ScanFinding, ...],
    forms: Forms,
    *,
    everything: bool,
) -> None:
    """Print the verdict as text or JSON, and write the files that the options name."""
    from warpfront.system.store import write_text
    from warpfront_port import finding_forms
    from warpfront_port.scan.catalogue import catalogue

    rules = catalogue()
    unread = [f"{item.path}: {item.reason}" for item in scanned.unread]
    if forms.sarif and not forms.dry_run:
        text = finding_forms.verdict_sarif(verdict, new, rules, unread=unread, version=__version__)
        write_text(Path(forms.sarif), text)
    if forms.markdown and not forms.dry_run:
        write_text(Path(forms.markdown), finding_forms.verdict_markdown(verdict))
    if forms.json:
        facts = {"files": scanned.files, "lines": scanned.lines, "suppressed": scanned.suppressed}
        facts |= finding_forms.totals(new)
        print_json(
            {
                "target": scanned.target,
                "verdict": finding_forms.verdict_json(verdict),
                "totals": facts,
                "unread": unread,
                "undetermined": list(verdict.reasons),
                "findings": finding_forms.findings_json(new, rules, scanned.project),
            }
        )
    else:
        print(finding_forms.verdict_text(verdict, scanned, everything=everything), end="")
        print(finding_forms.scan_summary(scanned, new), end="")
    if forms.annotations:
        print(finding_forms.annotation_lines(new, rules), end="")


def _print_phases(scan_request: ScanRequest, scanned: Scan) -> None:
    from warpfront_port.commands import port_work
    from warpfront_port.scan.phases import phases_text

    order = port_work.phases_of(
        scan_request.repo,
        scanned.findings,
        exclude=scan_request.exclude,
        vendored=scan_request.vendored,
    )
    print(phases_text(order), end="")


def _fixed(scan_request: ScanRequest, patch: str, *, apply: bool) -> str:
    """Write what is mechanical as a patch, or into the tree; what was done, in words."""
    from warpfront.system.store import write_text
    from warpfront_port.commands import port_work

    fixes = port_work.fixes_of(
        scan_request.repo, exclude=scan_request.exclude, vendored=scan_request.vendored
    )
    if patch:
        write_text(Path(patch), "".join(fix.patch for fix in fixes))
    if apply:
        port_work.write_fixes(scan_request.repo, fixes)
    places = sum(len(fix.rules) for fix in fixes)
    return f"--fix {'changed' if apply else 'could change'} {places} places in {len(fixes)} files"


def _raise_verdict(verdict: Verdict, gate: str, *, allow_undetermined: bool) -> None:
    """Raise for a verdict that fails the gate (15) and for one that was not reached (33)."""
    if verdict.reaches(gate):
        raise FindingsError(verdict.line)
    if verdict.answer == "not determined":
        require_determined(
            verdict.reasons,
            allow_undetermined=allow_undetermined,
            hint="a compiler answers: `compilers:` of matrix.yaml, or hipcc on this machine",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The sources to compile, and their options."""

    repo: Repo = ""
    sources: Annotated[
        str,
        Option("globs of what is compiled, comma-separated; setup.py builds as an extension"),
    ] = ""
    include: Annotated[
        str,
        Option("folders of the tree for -I, comma-separated (include, csrc and src if not given)"),
    ] = ""
    flags: Annotated[str, Option("further options of the compiler, in one argument")] = ""
    exclude: Exclude = ""
    hipify: Annotated[
        bool, Option("turn CUDA into HIP first, in a copy; says what that leaves")
    ] = False
    seconds: Annotated[float, Option("how long one source may take (300 if not given)")] = 300.0


@command(name="compile")
def compile_sources(
    display: Display,
    source: Annotated[
        Selection,
        selecting(
            target=f"the device to compile for ({DEFAULT_TARGET} if not given)",
            vendor="only in images, and of projects, of this vendor",
            image="compile in this image, and its `project:` where --repo names no folder",
            only="as --image, by a glob of cells' ids (`invoke plan` lists them)",
        ),
    ],
    *,
    json: Json = False,
    dry_run: Annotated[bool, Option("list what would be compiled, and compile nothing")] = False,
    compiled: Compiled,
    sarif: Sarif = "",
) -> None:
    """Compile a source tree's kernels for a target by its vendor's compiler.

    Those of --repo, or of an image's `project:`; in a `devel` image or a
    compiler of the matrix. Needs no GPU and no network.
    """
    from warpfront_port.commands import compiling

    compile_request = _compile_request(source, compiled)
    if dry_run:
        for unit in compiling.read_units(compile_request):
            print(f"would compile {unit.path} for {compile_request.target}")
        return
    workspace = workspace_here()
    compilation = compiling.compile_sources(
        workspace.matrix, workspace.folders, source, display, compile_request
    )
    _show_compilation(compilation, sarif, json=json)
    _raise_uncompiled(compilation)


def _compile_request(source: Selection, compiled: Compiled) -> CompileRequest:
    from warpfront_port.commands.compiling import CompileRequest
    from warpfront_port.compile.job_document import Bounds

    tree = _asked_tree(source, compiled.repo)
    return CompileRequest(
        repo=Path(tree.path),
        target=source.target or DEFAULT_TARGET,
        sources=_listed(compiled.sources) or tree.sources,
        include=_listed(compiled.include) or tree.include,
        flags=tuple(shlex.split(compiled.flags)) or tree.flags,
        exclude=_listed(compiled.exclude),
        hipify=compiled.hipify,
        bounds=Bounds(seconds=compiled.seconds),
    )


def _show_compilation(compilation: Compilation, sarif: str, *, json: bool) -> None:
    """Print the compilation on the screen or as JSON, and write the requested file."""
    from warpfront.system.store import write_text
    from warpfront_port import compilation_forms as forms
    from warpfront_port.scan.catalogue import catalogue

    if sarif:
        text = forms.compilation_sarif([compilation], catalogue(), version=__version__)
        write_text(Path(sarif), text)
    print_result(compilation, forms.compilation_text(compilation, catalogue()), json=json)


def _raise_uncompiled(result: Compilation) -> None:
    from warpfront.verify.verdict import outcome_of

    if outcome_of(result.verification) is Outcome.UNAVAILABLE:
        raise UnavailableError(
            f"not all of it can be compiled for {result.verification.target} in {result.place}",
            hint="the reasons stand above; `invoke build` makes a `devel` image that holds torch",
        )
    raise_failure([result.verification])


def _asked_tree(source: Selection, repo: str) -> SourceTree:
    """Return the named folder, else the project of the named image, else this folder."""
    declared = None if repo else _declared_tree(source)
    return declared or SourceTree(path=repo or ".")


def _declared_tree(source: Selection) -> SourceTree | None:
    """Return the `project:` of the images that the options name; None where they name none."""
    from warpfront.matrix.selection import select
    from warpfront_port.commands.projects import project_trees

    if not (source.image or source.only):
        return None
    # The target is that of the source's check, not of the image.
    chosen = dataclasses.replace(source, target="")
    trees = project_trees(select(workspace_here().matrix.cells, chosen))
    if len(trees) > 1:
        names = ", ".join(tree.path for tree in trees)
        raise NothingSelectedError(f"these images have several projects: {names}", hint="--only")
    return trees[0]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)
