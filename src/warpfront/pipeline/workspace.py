"""A project folder, opened: its matrix, templates, requirement files and locks, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from warpfront.errors import LockError, StoreError
from warpfront.images.render import Material
from warpfront.matrix import compat
from warpfront.matrix.cell import RequirementList
from warpfront.matrix.compat import Compat
from warpfront.matrix.index_evidence import read_contents
from warpfront.matrix.reading import Matrix, read_matrix
from warpfront.system.foreign import inside_root
from warpfront.system.process import cache_folder
from warpfront.system.store import Store, read_text, read_tree
from warpfront.wheels.core_metadata import read_requirements
from warpfront.wheels.project_folders import IMAGES_FOLDER, Folders
from warpfront_checks import guard

MATRIX_FILE = "matrix.yaml"
BUILD_FOLDER = "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A project, read and checked. A step unpacks it in its first lines."""

    matrix: Matrix
    material: Material
    folders: Folders


def root_of(folder: Path) -> Path:
    """Return `folder`, or the nearest folder above it, if that has a matrix.yaml."""
    above = (folder, *folder.parents)
    return next((path for path in above if (path / MATRIX_FILE).is_file()), folder)


def matrix_text(root: Path) -> str:
    """Return the text of a project's matrix. Raise `StoreError` where there is none."""
    path = root / MATRIX_FILE
    text = read_text(path, missing_ok=True)
    if text is None:
        hint = "run in a project's folder, or make one with `warpfront init`"
        raise StoreError(f"{path}: no such file", hint=hint)
    return text


def _requirements(name: str, root: Path, line: int) -> RequirementList:
    """Return the requirements of a file. What is wrong with it is a problem of its images alone,
    which names the line of the first.
    """

    def read(path: str) -> str:
        text = read_text(root / path, missing_ok=True)
        if text is None:
            hint = "write it, or correct the line that names it"
            raise LockError(f"{path}: no such file", hint=hint)
        return text

    try:
        return read_requirements(name, read, inside=lambda path: inside_root(root / path, root))
    except (LockError, StoreError) as error:
        problem = f"{MATRIX_FILE}:{line}: {error.message}"
        return RequirementList(problem=problem, hint=error.hint)


def open_workspace(root: Path, *, build: Path | None = None) -> Workspace:
    """Read everything that decides what exists. Raise `MatrixError`, `LockError` or
    `StoreError`; writes nothing.
    """
    text, table = matrix_text(root), compat_of(root)
    matrix = read_matrix(text, path=MATRIX_FILE, compat=table)
    lines = {cell.requirements_file: cell.image_line for cell in reversed(matrix.cells)}
    listed = {name: _requirements(name, root, line) for name, line in lines.items() if name}
    cells = (
        replace(cell, listed=listed[cell.requirements_file]) if cell.requirements_file else cell
        for cell in matrix.cells
    )
    templates = read_tree(root / IMAGES_FOLDER)
    return Workspace(
        matrix=replace(matrix, cells=tuple(cells)),
        material=Material(templates=templates, guard=read_guard(), compat=table),
        folders=Folders(root=root, cache=cache_folder(), store=Store(build or root / BUILD_FOLDER)),
    )


def contents_path(root: Path) -> Path:
    """Return the file with a project's recorded contents of wheel indexes: the package's own
    data in a checkout of this package, else a file next to matrix.yaml.
    """
    package = Path(compat.__file__).resolve().parents[1]
    is_checkout = package.is_relative_to(root.resolve()) and "site-packages" not in package.parts
    return (package / "data" if is_checkout else root) / compat.CONTENTS


def compat_of(root: Path) -> Compat:
    """Return the compat table with index contents of the project's file, else the package's."""
    path = contents_path(root)
    text = read_text(path, missing_ok=True)
    if text is None or path.parent.name == "data":
        return compat.packaged()
    return Compat(compat.packaged_rows(), read_contents(text, path=path.name))


def read_guard() -> Mapping[str, str]:
    """Return the guard's own files, as they go into images: `load` runs these files."""
    folder = Path(guard.__file__).parent
    files = [*folder.glob("*.py"), *folder.glob("*.json")]
    return {path.name: read_text(path) or "" for path in sorted(files)}
