"""preflight: what a user's project would do to the torch of each cell, without building anything.

Read the files and what they include, judge each line on each torch stack, then resolve what is left
with every stack held as it is, and name the lines whose packages do not accept it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from warpfront.errors import BlockedError, InputError, LockError, StoreError, WheelError
from warpfront.matrix import compat
from warpfront.matrix.selection import select
from warpfront.model import Cell, Distribution, Selection
from warpfront.pipeline.within.locks import fresh_locks
from warpfront.pipeline.workspace import Folders, Workspace
from warpfront.port.preflight import rule_texts
from warpfront.port.preflight.asked import Asked, FileAsks, Include, Kind
from warpfront.port.preflight.breaches import Breach, Gathering, LineBreach, Preflight
from warpfront.port.preflight.effects import breach_of, line_to_write
from warpfront.port.preflight.following import (
    Followed,
    chain_of,
    unfollowed,
    unmet,
    wanted_lines,
)
from warpfront.port.preflight.pyproject import read_pyproject
from warpfront.port.preflight.requirements_txt import read_requirements
from warpfront.port.preflight.setup_files import read_environment_yml, read_setup_cfg, read_setup_py
from warpfront.port.preflight.stacks import CellStack, stacks_of
from warpfront.system.foreign import read_regular
from warpfront.system.process import run
from warpfront.system.progress import Watch
from warpfront.wheels.metadata import read_remote_requires
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.resolution import Contradiction, Resolution, Terms
from warpfront.wheels.resolver import UvResolver
from warpfront.wheels.site import read_site
from warpfront.wheels.sources import Site
from warpfront.wheels.wheelless import askers_without_wheels

SIZE_LIMIT_BYTES = 4 * 2**20
INCLUDE_DEPTH_LIMIT = 50
_FOUND_BY_ITSELF = (
    *("pyproject.toml", "setup.cfg", "setup.py", "requirements*.txt", "requirements/*.txt"),
    *("environment.yml", "environment.yaml"),
)
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
# How many packages without wheels may be left out, one after the other, before giving up.
_ROUNDS = 12


Known = dict[tuple[str, str], Distribution]
"""(name, version) -> its metadata: stacks share most of what they bring."""


def preflight(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    repo: Path,
    files: tuple[str, ...] = (),
    offline: bool = False,
) -> Preflight:
    """What in `files` of `repo` (all that is found there if none is named) does not hold on which
    of the selected cells.

    Raises `InputError` for a file that is missing or cannot be read. An index out of reach is no
    error: what could not be judged is `unknown`.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    stacks = read_stacks(matrix.cells, selection, requirements, folders)
    return examine(read_files(repo, files), stacks, watch, offline=offline)


def examine(
    read: tuple[FileAsks, ...],
    stacks: tuple[CellStack, ...],
    watch: Watch,
    *,
    offline: bool = False,
    known: Known | None = None,
) -> Preflight:
    """What in the files that were read does not hold on which of `stacks`. `known` keeps metadata
    for whoever examines many projects.
    """
    gathering, unknown = Gathering(), [text for file in read for text in file.unknown]
    asked = tuple(one for file in read for one in file.asked)
    for stack in stacks:
        for one in asked:
            breach = breach_of(one, stack)
            if breach is not None:
                gathering.add(one, breach, stack.title, stack.cell_ids)
    if offline:
        unknown.append("offline: what the packages themselves demand was not followed")
    else:
        unknown += _follow(asked, stacks, gathering, watch, {} if known is None else known)
    return Preflight(
        files=tuple(file.path for file in read),
        stacks={stack.title: stack.cell_ids for stack in stacks},
        findings=tuple(_findings(gathering, stacks)),
        unknown=tuple(dict.fromkeys(unknown)),
        lines=len(asked),
    )


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
    """`files` and what they include, each once, in the order in which an installer meets them."""
    reading = _Reading(root=repo.resolve(), read={})
    for path in _roots(repo, tuple(files)):
        reading.follow(path)
    return tuple(reading.read.values())


def _roots(repo: Path, files: tuple[str, ...]) -> tuple[Path, ...]:
    if files:
        return tuple(Path(name) for name in files)
    found = [path for pattern in _FOUND_BY_ITSELF for path in sorted(repo.glob(pattern))]
    if not found:
        raise InputError(
            f"{repo}: no requirements file and no pyproject.toml",
            hint="name one with -r, or a project's folder with --repo",
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Files read so far, by resolved path."""

    root: Path
    read: dict[Path, FileAsks]

    def follow(
        self, path: Path, kind: Kind = Kind.REQUIREMENT, above: tuple[Path, ...] = ()
    ) -> None:
        resolved = path.resolve()
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
        file = read_file(path, shown=self._shown(resolved), kind=kind)
        self.read[resolved] = file
        for include in file.includes:
            self._include(file, resolved, include, above)

    def _include(
        self, file: FileAsks, resolved: Path, include: Include, above: tuple[Path, ...]
    ) -> None:
        target = resolved.parent / include.path
        if include.project:
            self._project(file, include, target)
        elif target.is_file():
            self.follow(target, include.kind, (*above, resolved))
        elif not include.optional:
            raise InputError(
                f"{file.path}:{include.line}: no such file: {include.path}",
                hint="paths are relative to the file that names them",
            )

    def _project(self, file: FileAsks, include: Include, target: Path) -> None:
        """A local project: whatever of its files is there. One that is met twice is read once."""
        found = [target / name for name in _PROJECT_FILES if (target / name).is_file()]
        if not found:
            unknown = f"{file.path}:{include.line}: {include.path} was not followed: no project"
            key = target / "pyproject.toml"
            self.read.setdefault(key, FileAsks(path=self._shown(target), unknown=(unknown,)))
        for path in found:
            self.follow(path)

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
    stacks: tuple[CellStack, ...],
    gathering: Gathering,
    watch: Watch,
    known: Known,
) -> list[str]:
    """Add what the packages behind the lines demand; what could not be followed comes back."""
    site = read_site(run)

    def follow(stack: CellStack) -> Followed:
        following = _Following(asked=asked, stack=stack, site=site, watch=watch, known=known)
        return following.followed()

    with ThreadPoolExecutor(3) as pool:
        results = list(zip(stacks, pool.map(follow, stacks), strict=True))
    said: dict[str, list[str]] = {}
    for stack, followed in results:
        for text in followed.unknown:
            said.setdefault(text, []).append(stack.title)
        for one, demand in followed.demands:
            breach = Breach(rule=rule_texts.MOVED_BY_DEPENDENCY, why=chain_of(demand))
            gathering.add(one, breach, stack.title, stack.cell_ids)
    return [
        text if len(titles) == len(stacks) else f"{text} [{'; '.join(titles)}]"
        for text, titles in said.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Following:
    """One stack: everything else at its newest, and whose demands the stack does not meet."""

    asked: tuple[Asked, ...]
    stack: CellStack
    site: Site
    watch: Watch
    known: Known

    def followed(self) -> Followed:
        lines = wanted_lines(self.asked, self.stack)
        unknown = tuple(unfollowed(self.asked, self.stack))
        if not lines:
            return Followed(unknown=unknown)
        self.watch.step(self.stack.title, "following what the packages demand")
        try:
            found = self._resolved(lines)
        except (BlockedError, LockError, WheelError) as error:
            found = Followed(unknown=(f"not followed: {error.message.splitlines()[0]}",))
        finally:
            self.watch.step(self.stack.title, "")
        return replace(found, unknown=(*unknown, *found.unknown))

    def _resolved(self, lines: tuple[str, ...]) -> Followed:
        inputs = replace(
            self.stack.inputs,
            cell_id=self.stack.title,
            requirements=lines,
            stack_requirements=(),
            index=None,
        )
        resolver = UvResolver(inputs, self.site, run=run, on_line=self.watch.say)
        left_out: tuple[str, ...] = ()
        own = (*self.stack.stack.held, *self.stack.stack.excluded)
        for _ in range(_ROUNDS):
            excludes = tuple(sorted({*own, *left_out}))
            found = resolver.resolution(lines, Terms(excludes=excludes))
            unknown = [f"{name} has no wheel; what it demands is not known" for name in left_out]
            if isinstance(found, Resolution):
                distributions = self._distributions(resolver, found)
                demands = tuple(unmet(self.asked, lines, distributions, self.stack))
                return Followed(demands=demands, unknown=tuple(unknown))
            more = askers_without_wheels(found.explanation, excludes)
            if not more:
                return Followed(unknown=(*unknown, f"not followed: {_said(found)}"))
            left_out += more
        return Followed(unknown=("not followed: too many packages without wheels",))

    def _distributions(self, resolver: UvResolver, found: Resolution) -> tuple[Distribution, ...]:
        """With what the wheels demand, read without fetching them where that can be."""
        wanted = [one for one in found.versions.items() if one not in self.known]
        urls = {str(one.name): one.wheels[0].url for one in found.pylock.packages if one.wheels}
        with self.site.transport() as transport, ThreadPoolExecutor(8) as pool:

            def read(one: tuple[str, str]) -> tuple[str, ...] | None:
                url = urls.get(one[0])
                return read_remote_requires(url, transport) if url else None

            for (name, version), requires in zip(wanted, pool.map(read, wanted), strict=True):
                if requires is not None:
                    self.known[name, version] = Distribution(
                        name=name, version=version, requires=requires
                    )
        kept = {one[0]: self.known[one] for one in found.versions.items() if one in self.known}
        new = resolver.distributions(found, without=tuple(kept))
        self.known.update({(one.name, one.version): one for one in new})
        return (*kept.values(), *new)


def _said(found: Contradiction) -> str:
    lines = [line.strip() for line in found.explanation.splitlines() if line.strip()]
    return " ".join(lines)[:300] or "uv found no solution"


def _findings(gathering: Gathering, stacks: tuple[CellStack, ...]) -> Iterator[LineBreach]:
    by_title = {stack.title: stack for stack in stacks}
    found = gathering.found.items()
    for (asked, rule), reasons in sorted(found, key=lambda one: _place(one[0][0], one[0][1])):
        level = rule_texts.LEVELS[rule]
        yield LineBreach(
            rule=rule,
            level="warning" if asked.group and level == "error" else level,
            path=asked.path,
            line=asked.line,
            end_line=asked.end_line,
            source=asked.source,
            text=asked.text,
            group=asked.group,
            why={title: why for title, (why, _) in reasons.items()},
            cells=tuple(cell for _, cells in reasons.values() for cell in cells),
            write=_written(asked, line_to_write(asked, rule, by_title.values())),
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
