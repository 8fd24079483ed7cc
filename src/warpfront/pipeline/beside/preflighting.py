"""preflight: what a user's project would do to the torch of each cell, without building anything.

Read the files and what they include, judge each line on each torch stack, then try what is left on
each stack as it is, and name the lines whose packages do not accept it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpfront.errors import InputError, StoreError
from warpfront.matrix import compat
from warpfront.matrix.selection import select
from warpfront.model import Cell, Selection
from warpfront.pipeline.beside.following_packages import Following, Known
from warpfront.pipeline.within.locks import fresh_locks
from warpfront.pipeline.workspace import Folders, Workspace
from warpfront.port.preflight import rule_texts
from warpfront.port.preflight.asked import Asked, FileAsks, Include, Kind, Part
from warpfront.port.preflight.breaches import Gathering, LineBreach, Preflight
from warpfront.port.preflight.effects import breach_of, joint_breaches, line_to_write
from warpfront.port.preflight.following import Followed
from warpfront.port.preflight.parts import Parts, chosen
from warpfront.port.preflight.pyproject import read_pyproject
from warpfront.port.preflight.requirements_txt import read_requirements
from warpfront.port.preflight.setup_files import read_environment_yml, read_setup_cfg, read_setup_py
from warpfront.port.preflight.stacks import CellStack, stacks_of
from warpfront.system.foreign import read_regular
from warpfront.system.process import run
from warpfront.system.progress import Watch
from warpfront.wheels.demands import without_libraries
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.site import read_site
from warpfront.wheels.stack_metadata import StackFiles
from warpfront.wheels.wheelhouse import Wheelhouse

SIZE_LIMIT_BYTES = 4 * 2**20
INCLUDE_DEPTH_LIMIT = 50
_INSTALLED = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
"""What an installation of a project reads, or a user installs first."""

_OPTIONAL = ("requirements*.txt", "requirements/*.txt", "environment.yml", "environment.yaml")
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_MARKS = (*_PROJECT_FILES, ".git")
_WHOLE = Parts()


def preflight(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    repo: Path,
    files: tuple[str, ...] = (),
    parts: Parts = _WHOLE,
    offline: bool = False,
) -> Preflight:
    """Return what in `files` of `repo` (all that is found there if none is named), with the extras
    and groups of `parts`, does not hold on which of the selected cells.

    Raise `InputError` for a file that is missing or cannot be read. An index out of reach is no
    error: what could not be judged is `unknown`.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    read = chosen(read_files(repo, files), parts)
    stacks = read_stacks(matrix.cells, selection, requirements, folders)
    stacks = knowing_themselves(stacks, folders.wheelhouse, offline=offline)
    return examine(read, stacks, watch, offline=offline)


def knowing_themselves(
    stacks: tuple[CellStack, ...], wheelhouse: Wheelhouse, *, offline: bool
) -> tuple[CellStack, ...]:
    """Return the stacks with the metadata of their own distributions, as far as it can be had."""
    files = StackFiles(site=read_site(run), wheelhouse=wheelhouse, offline=offline)

    def known(stack: CellStack) -> CellStack:
        pins = {name: stack.stack.held[name] for name in stack.with_needs}
        index = stack.inputs.index
        found = files.read(pins, stack.wheels, index.url if index else "")
        return stack.knowing(
            one.distribution
            if one.is_exact
            else replace(one.distribution, requires=without_libraries(one.distribution.requires))
            for one in found
        )

    with ThreadPoolExecutor(4) as pool:
        return tuple(pool.map(known, stacks))


def examine(
    read: tuple[FileAsks, ...],
    stacks: tuple[CellStack, ...],
    watch: Watch,
    *,
    offline: bool = False,
    known: Known | None = None,
) -> Preflight:
    """Return what in the files that were read does not hold on which of `stacks`. `known` keeps
    metadata for whoever examines many projects.
    """
    gathering, unknown = Gathering(), [text for file in read for text in file.unknown]
    notes: list[str] = []
    asked = tuple(one for file in read for one in file.asked)
    for stack in stacks:
        for one in asked:
            breach = breach_of(one, stack)
            if breach is not None:
                gathering.add(one, breach, stack.title, stack.cell_ids)
        for one, breach in joint_breaches(asked, stack):
            gathering.add(one, breach, stack.title, stack.cell_ids)
        unknown += _unread_stack(stack, asked)
    if offline:
        unknown.append("offline: what the packages themselves demand was not followed")
    else:
        local = frozenset(name for file in read for name in file.local)
        followed = _follow(asked, local, stacks, watch, {} if known is None else known)
        unknown += _unfollowed(followed, stacks)
        notes = [text for one in followed.values() for text in one.notes]
        for stack in stacks:
            for one, breach in followed[stack.title].breaches:
                gathering.add(one, breach, stack.title, stack.cell_ids)
    return Preflight(
        files=tuple(file.path for file in read),
        stacks={stack.title: stack.cell_ids for stack in stacks},
        findings=tuple(_findings(gathering, stacks)),
        unknown=tuple(dict.fromkeys(unknown)),
        lines=len(asked),
        notes=tuple(dict.fromkeys(notes)),
    )


def _unread_stack(stack: CellStack, asked: tuple[Asked, ...]) -> Iterator[str]:
    """Where a stack's metadata could not be had, lines about what torch needs are not judged."""
    if asked and stack.own is not None and not any(one.name == "torch" for one in stack.own):
        yield f"{stack.title}: no source here has this torch's metadata; its needs are not known"


def read_stacks(
    cells: tuple[Cell, ...],
    selection: Selection,
    requirements: Mapping[str, RequirementList],
    folders: Folders,
) -> tuple[CellStack, ...]:
    """The torch stacks of the selected cells, with what their locks say of them."""
    chosen = select(cells, selection)
    locks = fresh_locks(chosen, cells, requirements, folders)
    return stacks_of(chosen, locks, compat.packaged())


def read_files(repo: Path, files: Iterable[str]) -> tuple[FileAsks, ...]:
    """Return `files` and what they include, each once, in the order in which an installer meets
    them. Nothing outside of the project's folder is read.
    """
    reading = _Reading(read={})
    names = tuple(files)
    if names:
        for name in names:
            reading.root = _root_of(Path(name), repo)
            reading.follow(Path(name))
    else:
        reading.root = repo.resolve()
        _read_found(reading, repo)
    return reading.result()


def _root_of(path: Path, repo: Path) -> Path:
    """The folder that files named in `path` have to lie in: `repo`, or else the project's."""
    folder = path.absolute().parent.resolve()
    if folder.is_relative_to(repo.resolve()):
        return repo.resolve()
    above = (one for one in (folder, *folder.parents) if any((one / m).exists() for m in _MARKS))
    return next(above, folder)


def _read_found(reading: _Reading, repo: Path) -> None:
    """Read what lies in `repo`. Files that the default installation does not read are optional,
    where there is one that it reads.
    """
    installed = [repo / name for name in _INSTALLED if (repo / name).exists()]
    optional = [path for pattern in _OPTIONAL for path in sorted(repo.glob(pattern))]
    if not installed and not optional:
        raise InputError(
            f"{repo}: no requirements file and no pyproject.toml",
            hint="name one with -r, or a project's folder with --repo",
        )
    is_static = False
    for path in installed:
        if not (is_static and path.name in _PROJECT_FILES):
            reading.follow(path)
            is_static |= reading.read[path.resolve()].is_static
    is_installable = any(file.is_project for file in reading.read.values())
    for path in optional:
        if path.resolve() not in reading.read:
            reading.follow(path, group=path.name if is_installable else "", part=Part.FILE)


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Files read so far, by resolved path, within the project's folder `root`."""

    read: dict[Path, FileAsks]
    root: Path = field(default_factory=Path)
    asked_for: dict[Path, tuple[tuple[Part, str], ...]] = field(default_factory=dict)
    included: set[Path] = field(default_factory=set)

    def follow(
        self,
        path: Path,
        kind: Kind = Kind.REQUIREMENT,
        above: tuple[Path, ...] = (),
        *,
        group: str = "",
        part: Part = Part.EXTRA,
    ) -> None:
        """Read a file and those that it names. `group` is what all of its lines belong to."""
        resolved = self._inside(path, shown=path.name)
        if resolved in above:
            chain = " -> ".join(self._shown(one) for one in (*above, resolved))
            raise InputError(f"{self._shown(resolved)}: it includes itself: {chain}")
        if resolved in self.read:
            return
        if len(above) > INCLUDE_DEPTH_LIMIT:
            raise InputError(
                f"{self._shown(resolved)}: the {len(above)}th file that includes the next",
                hint="name the last of them with -r",
            )
        file = read_file(resolved, shown=self._shown(resolved), kind=kind)
        if group:
            asked = tuple(replace(one, group=group, part=part) for one in file.asked)
            file = replace(file, asked=asked, unknown=(), unless_included=())
        self.read[resolved] = file
        for include in file.includes:
            group_of = {"group": group or include.group, "part": part if group else include.part}
            self._include(file, resolved, include, above, **group_of)  # type: ignore[arg-type]

    def _inside(self, path: Path, *, shown: str) -> Path:
        """`path` without links. Raise `InputError` where that is outside of the project."""
        resolved = path.resolve()
        if not resolved.is_relative_to(self.root):
            raise InputError(
                f"{shown}: it leads out of the project's folder and was not read",
                hint="--repo names a folder that holds all of the project's files",
            )
        return resolved

    def _include(
        self,
        file: FileAsks,
        resolved: Path,
        include: Include,
        above: tuple[Path, ...],
        *,
        group: str,
        part: Part,
    ) -> None:
        where = f"{file.path}:{include.line}"
        target = self._inside(resolved.parent / include.path, shown=where)
        if include.project:
            self._project(where, include, target, group, part)
        elif target.is_file():
            self.included.add(resolved)
            self.follow(target, include.kind, (*above, resolved), group=group, part=part)
        elif not include.optional:
            raise InputError(
                f"{where}: no such file",
                hint="paths are relative to the file that names them",
            )

    def _project(self, where: str, include: Include, target: Path, group: str, part: Part) -> None:
        """A local project: whatever of its files is there. One that is met twice is read once."""
        found = [target / name for name in _PROJECT_FILES if (target / name).is_file()]
        if not found and not group:
            unknown = f"{where}: the folder was not followed: no project"
            key = target / "pyproject.toml"
            self.read.setdefault(key, FileAsks(path=self._shown(target), unknown=(unknown,)))
        wanted = tuple((Part.EXTRA, extra) for extra in include.extras)
        for path in found:
            self.follow(path, group=group, part=part)
            resolved = path.resolve()
            self.asked_for[resolved] = (*self.asked_for.get(resolved, ()), *wanted)
            if self.read[resolved].is_static:
                break

    def result(self) -> tuple[FileAsks, ...]:
        """The files, with what could not be read of them."""
        return tuple(
            replace(
                file,
                asked_for=self.asked_for.get(path, ()),
                unknown=(
                    *file.unknown,
                    *(() if path in self.included else file.unless_included),
                ),
            )
            for path, file in self.read.items()
        )

    def _shown(self, path: Path) -> str:
        inside = path.is_relative_to(self.root)
        return (path.relative_to(self.root) if inside else path).as_posix()


def read_file(path: Path, *, shown: str, kind: Kind = Kind.REQUIREMENT) -> FileAsks:
    """One file, by its name: pyproject.toml, setup.cfg, setup.py, conda's YAML, else requirements.

    Raises `InputError`.
    """
    text = _read_text(path, shown)
    if path.suffix == ".toml":
        return read_pyproject(text, path=shown)
    if path.name == "setup.cfg":
        return read_setup_cfg(text, path=shown)
    if path.suffix == ".py":
        return read_setup_py(text, path=shown)
    if path.suffix in {".yml", ".yaml"}:
        return read_environment_yml(text, path=shown)
    return read_requirements(text, path=shown, kind=kind)


def _read_text(path: Path, shown: str) -> str:
    """A project is a stranger's: a FIFO or a device in the place of a list is none."""
    try:
        return read_regular(path, SIZE_LIMIT_BYTES, follow=True).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown}: not UTF-8 (byte {error.start})", hint="save it as UTF-8"
        ) from error
    except StoreError as error:
        why = error.message.removeprefix(f"{path}: ")
        raise InputError(f"{shown}: {why}: no list of packages") from error
    except OSError as error:
        raise InputError(f"{shown}: {error.strerror}") from error


def _follow(
    asked: tuple[Asked, ...],
    local: frozenset[str],
    stacks: tuple[CellStack, ...],
    watch: Watch,
    known: Known,
) -> dict[str, Followed]:
    """Return what the packages behind the lines do to each stack, by its title."""
    site = read_site(run)

    def follow(stack: CellStack) -> Followed:
        following = Following(
            asked=asked, stack=stack, site=site, watch=watch, known=known, local=local
        )
        return following.followed()

    with ThreadPoolExecutor(3) as pool:
        return dict(zip([one.title for one in stacks], pool.map(follow, stacks), strict=True))


def _unfollowed(followed: Mapping[str, Followed], stacks: tuple[CellStack, ...]) -> list[str]:
    """What could not be followed, each once, with the stacks where it is not all of them."""
    said: dict[str, list[str]] = {}
    for title, one in followed.items():
        for text in one.unknown:
            said.setdefault(text, []).append(title)
    return [
        text if len(titles) == len(stacks) else f"{text} [{'; '.join(titles)}]"
        for text, titles in said.items()
    ]


def _findings(gathering: Gathering, stacks: tuple[CellStack, ...]) -> Iterator[LineBreach]:
    by_title = {stack.title: stack for stack in stacks}
    found = gathering.found.items()
    for (asked, rule), reasons in sorted(found, key=lambda one: _place(one[0][0], one[0][1])):
        level = rule_texts.LEVELS[rule]
        yield LineBreach(
            rule=rule,
            level=level if asked.is_installed or level == "note" else "warning",
            path=asked.path,
            line=asked.line,
            end_line=asked.end_line,
            source=asked.source,
            text=asked.text,
            group=asked.group,
            why={title: why for title, (why, _) in reasons.items()},
            cells=tuple(cell for _, cells in reasons.values() for cell in cells),
            write=_written(asked, line_to_write(asked, rule, by_title.values())),
            option=f"{asked.part} {asked.group}" if asked.group else "",
            decides=asked.is_installed and rule in rule_texts.DECIDING,
        )


def _place(asked: Asked, rule: str) -> tuple[str, int, str, str]:
    return asked.path, asked.line, rule, asked.text


def _written(asked: Asked, text: str | None) -> str | None:
    """The whole line with `text` in the place of what stands there now."""
    if text == "":
        alone = asked.source.partition(" #")[0].strip().rstrip(",") == asked.literal
        return "" if alone or asked.end_line != asked.line else None
    if text is None or text == asked.text:
        return None
    quote = asked.literal[:1]
    if quote not in {'"', "'"} or not asked.literal.endswith(quote):
        return text
    if asked.end_line != asked.line or asked.literal not in asked.source:
        return text
    inner = text.replace('"', "'") if quote == '"' else text.replace("'", '"')
    return asked.source.replace(asked.literal, f"{quote}{inner}{quote}", 1)
