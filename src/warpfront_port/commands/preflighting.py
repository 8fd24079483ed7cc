"""preflight: the effect of a user's project on the torch of each cell, without building anything.

Read the files and their includes, judge each line on each torch stack, then try the remaining lines
on each stack unchanged. Name the lines whose packages do not accept it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from warpfront.images.preparing import CellInputs, locked_inputs
from warpfront.matrix import compat
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import Workspace
from warpfront.system.progress import Watch
from warpfront.system.strict_values import extended
from warpfront.wheels.metadata import StackFiles
from warpfront.wheels.resolve.demands import without_libraries
from warpfront.wheels.sources import read_site
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront_port.commands.following_packages import Following, fitting_texts
from warpfront_port.commands.project_files import read_files, read_source
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import DeclaredRequirement, FileRequirements, Part, chosen
from warpfront_port.preflight.effects import StackBreaches, breach_of, joint_breaches, line_to_write
from warpfront_port.preflight.findings import Breach, Found, LineBreach, Preflight
from warpfront_port.preflight.metadata_index import MetadataIndex
from warpfront_port.preflight.stacks import CellStack, stacks_of


def preflight(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    repo: Path,
    files: tuple[str, ...] = (),
    parts: tuple[tuple[Part, str], ...] = (),
    offline: bool = False,
) -> Preflight:
    """Return the requirements in `files` of `repo` that some of the selected cells do not meet.

    `files` are by default all that are found there; `parts` are the extras and groups to include.
    Raise `InputError` for a file that is missing or cannot be read. An index out of reach is no
    error: lines that could not be judged are `unknown`.
    """
    folders = workspace.folders
    inputs = locked_inputs(workspace.matrix, workspace.material, folders, selection)
    read = chosen(read_files(repo, files), parts)
    stacks = with_own_metadata(stacks_in(inputs), folders.wheelhouse, offline=offline)
    return examine(read, stacks, watch, offline=offline)


def fitting_releases(
    workspace: Workspace, selection: Selection, names: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return for each torch stack of the selected cells which release of each package accepts it,
    by their own METADATA.
    """
    matrix, material, folders = workspace.matrix, workspace.material, workspace.folders
    stacks = stacks_in(locked_inputs(matrix, material, folders, selection))
    with MetadataIndex(read_site(), read_source) as index:
        return {stack.title: tuple(fitting_texts(index, names, stack)) for stack in stacks}


def with_own_metadata(
    stacks: tuple[CellStack, ...], wheelhouse: Wheelhouse, *, offline: bool
) -> tuple[CellStack, ...]:
    """Return the stacks with the metadata of their own distributions, as far as it can be had."""
    files = StackFiles(site=read_site(), wheelhouse=wheelhouse, offline=offline)

    def with_metadata(stack: CellStack) -> CellStack:
        pins = {name: stack.stack.versions[name] for name in stack.with_needs}
        index = stack.inputs.index
        found = files.read(pins, stack.wheels, index.url if index else "")
        return stack.knowing(
            package if is_exact else replace(package, requires=without_libraries(package.requires))
            for package, is_exact in found
        )

    with ThreadPoolExecutor(4) as pool:
        return tuple(pool.map(with_metadata, stacks))


def examine(
    read: tuple[FileRequirements, ...],
    stacks: tuple[CellStack, ...],
    watch: Watch,
    *,
    offline: bool = False,
) -> Preflight:
    """Return the requirements in the files that some of `stacks` do not meet."""
    breaches: Found = {}
    unknown = [text for file in read for text in file.unknown]

    def add(requirement: DeclaredRequirement, breach: Breach, stack: CellStack) -> None:
        """Add a breach; one by a line under a condition that was not evaluated is unknown."""
        if requirement.condition and requirement.is_installed:
            under = f"under a condition that was not evaluated ({requirement.condition})"
            line, why = f"{requirement.where}: {requirement.text}", breach.why.splitlines()[0]
            unknown.append(f"{line}, {under}: {why}")
        else:
            reasons = breaches.setdefault((requirement, breach.rule), {})
            reasons.setdefault(stack.title, breach.why)

    notes = [text for file in read for text in file.notes]
    declared = tuple(requirement for file in read for requirement in file.declared)
    for stack in stacks:
        alone = ((requirement, breach_of(requirement, stack)) for requirement in declared)
        for requirement, breach in (*alone, *joint_breaches(declared, stack)):
            if breach is not None:
                add(requirement, breach, stack)
        # Without its metadata, lines about the needs of its torch are not judged.
        is_looked_for = declared and stack.own is not None
        if is_looked_for and "torch" not in {distribution.name for distribution in stack.own or ()}:
            unknown.append(
                f"{stack.title}: no source here has this torch's metadata; its needs are not known"
            )
    if offline:
        unknown.append("offline: what the packages themselves demand was not followed")
    else:
        local = frozenset(name for file in read for name in file.local)
        with MetadataIndex(read_site(), read_source) as index:
            each = partial(Following, declared=declared, index=index, watch=watch, local=local)
            with ThreadPoolExecutor(3) as pool:
                results = pool.map(lambda stack: each(stack=stack).breaches(), stacks)
            followed = dict(zip((stack.title for stack in stacks), results, strict=True))
        unknown += _unfollowed(followed, stacks)
        notes += [text for packages in followed.values() for text in packages.notes]
        for stack in stacks:
            for requirement, breach in followed[stack.title].breaches:
                add(requirement, breach, stack)
    return Preflight(
        files=tuple(file.path for file in read),
        stacks={stack.title: stack.cell_ids for stack in stacks},
        findings=tuple(_findings(breaches, stacks)),
        unknown=tuple(dict.fromkeys(unknown)),
        lines=len(declared),
        notes=tuple(dict.fromkeys(notes)),
    )


def stacks_in(inputs: CellInputs) -> tuple[CellStack, ...]:
    """Return the torch stacks of the selected cells, with the versions in their locks."""
    return stacks_of(inputs.cells, inputs.locks, compat.packaged())


def _unfollowed(followed: Mapping[str, StackBreaches], stacks: tuple[CellStack, ...]) -> list[str]:
    """Return the reasons for packages that were not followed, each with its stacks."""
    titles_by_text = defaultdict[str, list[str]](list)
    for title, followed_packages in followed.items():
        for text in followed_packages.unknown:
            titles_by_text[text].append(title)
    return [
        text if len(titles) == len(stacks) else f"{text} [{'; '.join(titles)}]"
        for text, titles in titles_by_text.items()
    ]


def _findings(breaches: Found, stacks: tuple[CellStack, ...]) -> Iterator[LineBreach]:
    by_title = {stack.title: stack for stack in stacks}
    ordered = sorted(breaches, key=lambda key: (key[0].path, key[0].line, key[1], key[0].text))
    for requirement, rule in ordered:
        reasons = breaches[requirement, rule]
        level = findings.LEVELS[rule]
        yield extended(
            LineBreach,
            requirement,
            rule=rule,
            level=level if requirement.is_installed or level == "note" else "warning",
            why=reasons,
            cells=tuple(cell for title in reasons for cell in by_title[title].cell_ids),
            write=_written(requirement, line_to_write(requirement, rule, by_title.values())),
            option=f"{requirement.part} {requirement.group}" if requirement.group else "",
            decides=requirement.is_installed and rule in findings.DECIDING,
        )


def _written(declared: DeclaredRequirement, text: str | None) -> str | None:
    """Return the whole line with `text` in the place of the requirement."""
    if text == "":
        alone = declared.source.partition(" #")[0].strip().rstrip(",") == declared.literal
        return "" if alone or declared.end_line != declared.line else None
    if text is None or text == declared.text:
        return None
    quote = declared.literal[:1]
    if quote not in {'"', "'"} or not declared.literal.endswith(quote):
        return text
    if declared.end_line != declared.line or declared.literal not in declared.source:
        return text
    inner = text.replace('"', "'") if quote == '"' else text.replace("'", '"')
    return declared.source.replace(declared.literal, f"{quote}{inner}{quote}", 1)
