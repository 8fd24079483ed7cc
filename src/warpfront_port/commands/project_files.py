"""The requirements in the files of a project: its own files and those that they include, and none
outside of the project's folder; and those in its source archive, read and not run.
"""

from __future__ import annotations

import codecs
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import Requirement

from warpfront.errors import InputError, StoreError
from warpfront.system.foreign import inside_root, read_regular
from warpfront.wheels.core_metadata import requirement_name
from warpfront.wheels.store.wheelhouse import final_requires
from warpfront_port.preflight.declared import FileRequirements, Include, Kind, Part
from warpfront_port.preflight.metadata_index import Demands
from warpfront_port.preflight.pyproject import read_pyproject, script_metadata
from warpfront_port.preflight.requirement_files import (
    read_environment_yml,
    read_requirements,
    read_setup_cfg,
    read_setup_py,
)

SIZE_LIMIT_BYTES = 4 * 2**20
INCLUDE_DEPTH_LIMIT = 50
_INSTALLED = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
"""The files that an installation of a project reads, or that a user installs first."""

_OPTIONAL = (
    "requirements*.txt",
    "requirements/*.txt",
    "environment.yml",
    "environment.yaml",
    "Pipfile",
    "pylock.toml",
    "pylock.*.toml",
)
_LOCKS = {
    "uv.lock": "uv export",
    "poetry.lock": "poetry export",
    "pdm.lock": "pdm export",
    "Pipfile.lock": "pipenv requirements",
}
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_MARKS = (*_PROJECT_FILES, ".git")


def read_files(repo: Path, files: Iterable[str]) -> tuple[FileRequirements, ...]:
    """Return `files` and what they include, each once, in the order in which an installer meets
    them. Nothing outside of the project's folder is read.
    """
    reading = _Reading(root=repo.resolve())
    names = tuple(files)
    for name in names:
        # The folder that confines its includes: `repo`, or else its project's.
        folder = Path(name).absolute().parent.resolve()
        parents = (folder, *folder.parents)
        projects = (p for p in parents if any((p / mark).exists() for mark in _MARKS))
        is_inside = folder.is_relative_to(repo.resolve())
        reading.root = repo.resolve() if is_inside else next(projects, folder)
        reading.follow(Path(name))
    if not names:
        # Files that the default installation does not read are optional, where there is one that
        # it reads.
        installed = [repo / name for name in _INSTALLED if (repo / name).exists()]
        optional = [path for pattern in _OPTIONAL for path in sorted(repo.glob(pattern))]
        if not installed and not optional:
            hint = "name one with -r, or the project's folder as PATH"
            raise InputError(f"{repo}: no requirements file and no pyproject.toml", hint=hint)
        is_static = False
        for path in installed:
            if not (is_static and path.name in _PROJECT_FILES):
                reading.follow(path)
                is_static |= reading.read[path.resolve()].is_static
        is_installable = any(file.is_project for file in reading.read.values())
        for path in optional:
            if path.resolve() not in reading.read:
                group = path.name if is_installable else ""
                reading.follow(path, Include(path=path.name, line=1, group=group, part=Part.FILE))
    return reading.result()


def read_project(folder: Path) -> tuple[FileRequirements, ...]:
    """Return the requirements in the project files of `folder`, as a build reads them."""
    reading = _Reading(root=folder.resolve())
    reading.follow_project(folder)
    return reading.result()


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Files read so far, by resolved path, within the project's folder `root`."""

    root: Path
    read: dict[Path, FileRequirements] = field(default_factory=dict)
    asked_for: dict[Path, tuple[tuple[Part, str], ...]] = field(default_factory=dict)
    included: set[Path] = field(default_factory=set)

    def follow(self, path: Path, of: Include | None = None, above: tuple[Path, ...] = ()) -> None:
        """Read a file and those that it names. `of` has the kind and the group of all its lines."""
        resolved = self._inside(path, label=path.name)
        if resolved in above:
            chain = " -> ".join(self._shown(path) for path in (*above, resolved))
            raise InputError(f"{self._shown(resolved)}: it includes itself: {chain}")
        if resolved in self.read:
            return
        if len(above) > INCLUDE_DEPTH_LIMIT:
            message = f"{self._shown(resolved)}: the {len(above)}th file that includes the next"
            raise InputError(message, hint="name the last of them with -r")
        kind = of.kind if of else Kind.REQUIREMENT
        file = read_file(resolved, label=self._shown(resolved), kind=kind, beside=self._beside)
        if of and of.group:
            lines = tuple(replace(n, group=of.group, part=of.part) for n in file.declared)
            file = replace(file, declared=lines, unknown=(), unless_included=())
        self.read[resolved] = file
        for include in file.includes:
            inner = replace(include, group=of.group, part=of.part) if of and of.group else include
            self._include(f"{file.path}:{include.line}", resolved, inner, above)

    def _inside(self, path: Path, *, label: str) -> Path:
        """Return `path` without links. Raise `InputError` where that is outside of the project."""
        if not inside_root(path, self.root):
            message = f"{label}: it leads out of the project's folder and was not read"
            hint = "PATH names a folder that holds all of the project's files"
            raise InputError(message, hint=hint)
        return path.resolve()

    def _beside(self, path: Path) -> str | None:
        """Return the text of a file of the project; None where it has none there."""
        try:
            return _read_text(self._inside(path, label=path.name), path.name)
        except InputError:
            return None

    def _include(
        self, where: str, resolved: Path, include: Include, above: tuple[Path, ...]
    ) -> None:
        target = self._inside(resolved.parent / include.path, label=where)
        if include.project:
            if not self.follow_project(target, include) and not include.group:
                unknown = (f"{where}: the folder was not followed: no project",)
                file = FileRequirements(path=self._shown(target), unknown=unknown)
                self.read.setdefault(target / "pyproject.toml", file)
        elif target.is_file():
            self.included.add(resolved)
            self.follow(target, include, (*above, resolved))
        elif not include.optional:
            hint = "paths are relative to the file that names them"
            raise InputError(f"{where}: no such file", hint=hint)

    def follow_project(self, folder: Path, of: Include | None = None) -> bool:
        """Read the files of a project as a build does, once each. Return whether it has any.
        `of` has the extras to install, and the group of all lines.
        """
        extras = tuple((Part.EXTRA, extra) for extra in of.extras) if of else ()
        paths = [folder / name for name in _PROJECT_FILES if (folder / name).is_file()]
        for path in paths:
            self.follow(path, replace(of, kind=Kind.REQUIREMENT) if of else None)
            resolved = path.resolve()
            self.asked_for[resolved] = (*self.asked_for.get(resolved, ()), *extras)
            if self.read[resolved].is_static:
                break
        return bool(paths)

    def result(self) -> tuple[FileRequirements, ...]:
        """Return the files, with the reasons for everything that could not be read."""
        files = []
        for path, file in self.read.items():
            computed = () if path in self.included else file.unless_included
            unknown = (*file.unknown, *computed)
            files.append(replace(file, asked_for=self.asked_for.get(path, ()), unknown=unknown))
        return tuple(files)

    def _shown(self, path: Path) -> str:
        inside = path.is_relative_to(self.root)
        return (path.relative_to(self.root) if inside else path).as_posix()


def read_file(
    path: Path,
    *,
    label: str,
    kind: Kind = Kind.REQUIREMENT,
    beside: Callable[[Path], str | None] = lambda _: None,
) -> FileRequirements:
    """Return the requirements of a file, by its name: pyproject.toml, setup.cfg, setup.py,
    conda's YAML, else requirements.

    `beside` returns the text of another file of the project, for setup.py. Raise `InputError` for a
    file that cannot be read.
    """
    text = _read_text(path, label)
    if path.name in _LOCKS:
        message = f"{label}: the lock of a tool for several environments, which no installer reads"
        hint = f"export it for one ({_LOCKS[path.name]}), or name the file that it was made of"
        raise InputError(message, hint=hint)
    if path.suffix == ".toml" or path.name == "Pipfile":
        return read_pyproject(text, path=label)
    if path.name == "setup.cfg":
        return read_setup_cfg(text, path=label)
    if path.suffix == ".py" and (script := script_metadata(text)):
        return read_pyproject(script, path=label)
    if path.suffix == ".py":
        return read_setup_py(text, path=label, read=lambda name: beside(path.parent / name))
    if path.suffix in {".yml", ".yaml"}:
        return read_environment_yml(text, path=label)
    return read_requirements(text, path=label, kind=kind)


def _read_text(path: Path, label: str) -> str:
    """Return the text of a regular file: a FIFO or a device is refused."""
    try:
        data = read_regular(path, SIZE_LIMIT_BYTES, follow=True)
        # As pip and Python decode: by the byte order mark, or by a comment that names the encoding.
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        if path.suffix not in {".txt", ".in", ".py"}:
            return data.decode("utf-8-sig")
        return data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        unknown = "not UTF-8, or in an encoding that is not known"
        why = (
            f"not UTF-8 (byte {error.start})" if isinstance(error, UnicodeDecodeError) else unknown
        )
        raise InputError(f"{label}: {why}", hint="save it as UTF-8") from error
    except StoreError as error:
        why = error.message.removeprefix(f"{path}: ")
        raise InputError(f"{label}: {why}: no list of packages") from error
    except OSError as error:
        raise InputError(f"{label}: {error.strerror}") from error


def read_source(project: Path, name: str) -> Demands | None:
    """Return the demands in the unpacked archive of `name`: of its metadata where that is
    final (PEP 643), or of its project's files where these need not be run. Return None where
    only running it would tell.
    """
    metadata = project / "PKG-INFO"
    text = metadata.read_text("utf-8", errors="replace") if metadata.is_file() else ""
    requires, conditional = final_requires(text), set[str]()
    if requires is None:
        try:
            read = read_project(project)
        except InputError:
            return None
        if not read or any(file.unknown for file in read):
            return None
        lines = (line for file in read for line in file.declared if line.condition)
        conditional = {requirement_name(line.text) for line in lines}
        requires = tuple(line for file in read for line in _demands(file, name))
        if any(Requirement(require).url for require in requires):
            return None
    return Demands(requires=requires, conditional=frozenset(conditional))


def _demands(file: FileRequirements, name: str) -> Iterator[str]:
    """Yield the requirements of a project's file, and those of its extras with their markers."""
    for requirement in file.declared:
        if requirement.kind is Kind.REQUIREMENT and requirement.part is Part.EXTRA:
            yield _of_extra(requirement.text, requirement.group)
    for part, group, inner_part, inner in file.nested:
        if (part, inner_part) == (Part.EXTRA, Part.EXTRA):
            yield _of_extra(f"{name}[{inner}]", group)


def _of_extra(text: str, extra: str) -> str:
    requirement = Requirement(text)
    if not extra:
        return str(requirement)
    marker = f"({requirement.marker}) and " if requirement.marker else ""
    requirement.marker = None
    return f"{requirement} ; {marker}extra == '{extra}'"
