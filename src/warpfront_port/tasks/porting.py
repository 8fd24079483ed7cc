"""The tasks about somebody's own source: preflight, scan, compile."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

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
from warpfront.determination import require_determined
from warpfront.errors import (
    CommandFailedError,
    FindingsError,
    InputError,
    NothingSelectedError,
    UnavailableError,
)
from warpfront.model import Outcome, Selection, SourceTree

if TYPE_CHECKING:
    from warpfront_port.commands.compiling import CompileRequest
    from warpfront_port.commands.scanning import ScanRequest
    from warpfront_port.commands.trial_runs import TrialRequest
    from warpfront_port.compile.outcomes import Compilation
    from warpfront_port.finding_forms import Scan
    from warpfront_port.scan.findings import ScanFinding
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

    found = examine_project(
        workspace_here(),
        cells,
        display,
        repo=Path(repo),
        files=tuple(requirements),
        parts=Parts(extras=tuple(extra), groups=tuple(group)),
        offline=offline,
    )
    if sarif and not dry_run:
        write_text(Path(sarif), preflight_sarif(found, version=__version__))
    print_result(found, preflight_text(found), json=json)
    if found.count:
        raise FindingsError(counted_breaches(found.count))
    require_determined(
        found.unknown,
        allow_undetermined=allow_undetermined,
        hint="--allow-undetermined accepts this; the reasons are printed above",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What is tried, and what is made of it."""

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
    from warpfront.model import Blocked, Failed
    from warpfront_port.commands.trial_runs import only_cell, try_project

    workspace, asking = workspace_here(), _trial_request(tried)
    if dry_run:
        cell = only_cell(workspace.matrix.cells, source)
        print(f"would run {shlex.join(asking.argv)} in {cell.id}, with {asking.repo} read-only")
        return
    found = try_project(workspace, source, display, asking)
    if isinstance(found, Blocked | Failed):
        print_unfinished(() if json else [found])
        raise_failure([found])
        return
    _show_trial(found, tried, json=json)
    _raise_untried(found)


def _trial_request(tried: TrialOptions) -> TrialRequest:
    from warpfront.matrix.language import NAME_PATTERN
    from warpfront_port.commands.trial_runs import TrialRequest
    from warpfront_port.trying.providers import read_provides

    if not re.fullmatch(NAME_PATTERN, tried.name):
        hint = "a name of `images:`: lower case letters, digits, - and _"
        raise InputError(f"--name {tried.name!r} is no name of an image", hint=hint)
    return TrialRequest(
        repo=Path(tried.repo),
        argv=_words_after_dashes(),
        install=tried.install,
        provides=read_provides(tried.provides),
        seconds=tried.seconds,
    )


def _show_trial(found: Trial, tried: TrialOptions, *, json: bool) -> None:
    """The trial on the screen or as JSON, and the folder of the image that it makes."""
    from warpfront_port.trying.trial_text import trial_text, unwritten_text

    print_result(found, trial_text(found, name=tried.name), json=json)
    if tried.write and found.requirements:
        _write_image(found, tried.name)
    elif tried.write and not json:
        print(unwritten_text(found))


def _words_after_dashes() -> tuple[str, ...]:
    """The program to try, as it was typed: invoke hands it over joined by spaces."""
    return tuple(sys.argv[sys.argv.index("--") + 1 :]) if "--" in sys.argv else ()


def _write_image(trial: Trial, name: str) -> None:
    from warpfront.pipeline.workspace import IMAGES_FOLDER
    from warpfront.system.store import write_text
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
    ended = "was stopped" if trial.exit_code is None else f"exited with {trial.exit_code}"
    raise CommandFailedError(
        f"{trial.said} {ended}, and no missing module is why", hint=trial.way_out
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """How findings are shown, and which files are written."""

    json: Json = False
    dry_run: Annotated[bool, Option("scan and print, and write no file")] = False
    sarif: Sarif = ""
    markdown: Annotated[str, Option("also write the findings to this file, as Markdown")] = ""
    annotations: Annotated[bool, Option("also print the findings as GitHub annotations")] = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What is read, and what of it is known already."""

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
    everything: Annotated[bool, Option("list notes, too, and every place")] = False,
    phases: Annotated[bool, Option("also put the findings in the order of a port")] = False,
    summary: Annotated[bool, Option("where to begin and what it costs, not every place")] = False,
    by: Annotated[str, Option("a line for each folder, rule or phase, not every place")] = "",
    allow_undetermined: AllowUndetermined = False,
    fix: Annotated[str, Option("write the mechanical changes to this file, as a patch")] = "",
    apply: Annotated[bool, Option("make the mechanical changes in the tree itself")] = False,
) -> None:
    """Say what in a source tree will break on another vendor's devices.

    And what to do about it. Targets are gfx942, gfx1100, gaudi3, cpu and
    others. Needs no matrix, unless --image names one with a `project:`.
    """
    from warpfront_port.commands import scanning

    asked = _scan_request(source, scanned, dry_run=forms.dry_run)
    found, new = scanning.scan(asked, display)
    if not found.files and all(one.left_out for one in found.unread):
        raise InputError(
            f"{asked.repo}: nothing to determine: no file is of a kind that a rule reads",
            hint="name the root of a source tree with --repo; --vendored reads third parties too",
        )
    view = _view_of(asked, new, by, summary=summary)
    _show_findings(found, new, forms, everything=everything, view=view)
    if phases:
        _print_phases(asked, found)
    if fix or apply:
        patch = "" if forms.dry_run else fix
        display.say(_fixed(asked, patch, apply=apply and not forms.dry_run))
    _raise_errors(found, new, allow_undetermined=allow_undetermined)


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


def _show_findings(
    found: Scan, new: tuple[ScanFinding, ...], forms: Forms, *, everything: bool, view: str
) -> None:
    """Findings on the screen or as JSON, and in the files that were asked for. `view` is what is
    shown in their place.
    """
    from warpfront.system.store import write_text
    from warpfront_port import finding_forms, scan_views
    from warpfront_port.scan.catalogue import catalogue

    rules = catalogue()
    unread = [f"{item.path}: {item.reason}" for item in found.unread]
    undetermined = finding_forms.undetermined_files(found)
    if forms.sarif and not forms.dry_run:
        text = finding_forms.findings_sarif(new, rules, unread=unread, version=__version__)
        write_text(Path(forms.sarif), text)
    if forms.markdown and not forms.dry_run:
        text = finding_forms.findings_markdown(new, rules, target=found.target)
        write_text(Path(forms.markdown), text)
    if forms.json:
        totals = {**scan_views.totals(new), "suppressed": found.suppressed}
        listed = finding_forms.findings_json(new, rules)
        facts = {"files": found.files, "lines": found.lines, **totals}
        print_json(
            {
                "target": found.target,
                "totals": facts,
                "unread": unread,
                "undetermined": undetermined,
                "findings": listed,
            }
        )
    else:
        text = view or finding_forms.findings_text(new, rules, everything=everything)
        if undetermined:
            count = finding_forms.files_of(len(undetermined))
            print(f"not determined: could not read or parse {count}")
        print(text, end="")
        print(finding_forms.scan_summary(found, new), end="")
    if forms.annotations:
        print(finding_forms.annotation_lines(new, rules), end="")


def _view_of(asked: ScanRequest, new: tuple[ScanFinding, ...], by: str, *, summary: bool) -> str:
    """The findings by folder, rule or phase, or where to begin; "" where neither was asked for."""
    from warpfront_port import scan_views
    from warpfront_port.commands import port_work
    from warpfront_port.scan.catalogue import catalogue

    if not by and not summary:
        return ""
    if by and by not in scan_views.VIEWS:
        known = ", ".join(scan_views.VIEWS)
        raise NothingSelectedError(f"no view {by!r}", hint=f"--by is one of {known}")
    rules = catalogue()
    users = port_work.users_of(asked.repo, scan_views.nvidias_folders(new, rules))
    if summary:
        return scan_views.summary_text(new, rules, users)
    return scan_views.view_text(new, rules, cast("scan_views.View", by), users)


def _print_phases(asked: ScanRequest, found: Scan) -> None:
    from warpfront_port.commands import port_work
    from warpfront_port.scan.phases import phases_text

    order = port_work.phases_of(
        asked.repo, found.findings, exclude=asked.exclude, vendored=asked.vendored
    )
    print(phases_text(order), end="")


def _fixed(asked: ScanRequest, patch: str, *, apply: bool) -> str:
    """Write what is mechanical as a patch, or into the tree; what was done, in words."""
    from warpfront.system.store import write_text
    from warpfront_port.commands import port_work

    fixes = port_work.fixes_of(asked.repo, exclude=asked.exclude, vendored=asked.vendored)
    if patch:
        write_text(Path(patch), "".join(one.patch for one in fixes))
    if apply:
        port_work.write_fixes(asked.repo, fixes)
    places = sum(len(one.rules) for one in fixes)
    return f"--fix {'changed' if apply else 'could change'} {places} places in {len(fixes)} files"


def _raise_errors(found: Scan, new: tuple[ScanFinding, ...], *, allow_undetermined: bool) -> None:
    from warpfront_port.finding_forms import counted, undetermined_files

    if any(finding.severity == "error" for finding in new):
        raise FindingsError(f"{counted(new)} for {found.target}")
    require_determined(
        undetermined_files(found),
        allow_undetermined=allow_undetermined,
        hint="correct these files, or leave them out with --exclude",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What is compiled, and how."""

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

    asked = _compile_request(source, compiled)
    if dry_run:
        for unit in compiling.read_units(asked):
            print(f"would compile {unit.path} for {asked.target}")
        return
    workspace = workspace_here()
    found = compiling.compile_sources(workspace.matrix, workspace.folders, source, display, asked)
    _show_compilation(found, sarif, json=json)
    _raise_uncompiled(found)


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


def _show_compilation(found: Compilation, sarif: str, *, json: bool) -> None:
    """The compilation on the screen or as JSON, and in the file that was asked for."""
    from warpfront.system.store import write_text
    from warpfront_port import compilation_forms as forms
    from warpfront_port.scan.catalogue import catalogue

    if sarif:
        text = forms.compilation_sarif([found], catalogue(), version=__version__)
        write_text(Path(sarif), text)
    print_result(found, forms.compilation_text(found, catalogue()), json=json)


def _raise_uncompiled(found: Compilation) -> None:
    from warpfront.verify.verdict import outcome_of

    if outcome_of(found.verification) is Outcome.UNAVAILABLE:
        raise UnavailableError(
            f"not all of it can be compiled for {found.verification.target} in {found.place}",
            hint="the reasons stand above; `invoke build` makes a `devel` image that holds torch",
        )
    raise_failure([found.verification])


def _asked_tree(source: Selection, repo: str) -> SourceTree:
    """The folder that was named, else the project of the image that was, else this folder."""
    declared = None if repo else _declared_tree(source)
    return declared or SourceTree(path=repo or ".")


def _declared_tree(source: Selection) -> SourceTree | None:
    """The `project:` of the images that the options name; None where they name none."""
    from warpfront.matrix.selection import select
    from warpfront_port.commands.projects import project_trees

    if not (source.image or source.only):
        return None
    # The target is what the source is asked about, not what the image serves.
    chosen = dataclasses.replace(source, target="")
    trees = project_trees(select(workspace_here().matrix.cells, chosen))
    if len(trees) > 1:
        names = ", ".join(tree.path for tree in trees)
        raise NothingSelectedError(f"these images have several projects: {names}", hint="--only")
    return trees[0]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)
