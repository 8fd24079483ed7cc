"""A new project's files: a matrix, its schema for editors, templates, README, and the entry points
of invoke and nox. Path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront.errors import NothingSelectedError, StoreError
from warpfront.matrix import editing
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.selection import nearest
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import plain_values
from warpfront.system.packaged import packaged_folder, packaged_text
from warpfront.system.store import read_text, write_text

MATRIX_FILE = "matrix.yaml"
BASES = "bases.yaml"
_SCHEMA = "matrix.schema.json"
_TEMPLATES = ("_shared", "torch", "devel", "hf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Files to write, by path below the project, and notes for its owner."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def write(self, root: Path, *, dry_run: bool) -> Iterator[str]:
        """Write the files, if the matrix among them is one; yield a line for each."""
        if MATRIX_FILE in self.files:
            read_matrix(self.files[MATRIX_FILE], path=MATRIX_FILE, compat=packaged())
        for name, text in self.files.items():
            if not dry_run:
                write_text(root / name, text)
            yield f"{'would write' if dry_run else 'wrote'} {name}"
        yield from self.notes


def _project_files() -> dict[str, str]:
    """Return the files of a new project by path; matrix.yaml has places for its choices."""
    # `.txt`, because they are not modules of this package.
    files = {
        path.name.removesuffix(".txt"): read_text(path) or ""
        for path in sorted(packaged_folder("project").iterdir())
    }
    # A copy, so that every clone has it at one path, without a network.
    files[_SCHEMA] = packaged_text(_SCHEMA)
    images = packaged_folder("images")
    for name in _TEMPLATES:
        for path in sorted((*(images / name).glob("*.j2"), *(images / name).glob("*.txt"))):
            files[f"images/{name}/{path.name}"] = read_text(path) or ""
    files[".gitignore"] = "/.venv/\n/build/\n/handover/\n__pycache__/\n"
    return files


def new_project(folder: Path, *, name: str, vendors: str, base: str, registry: str) -> Edit:
    """Return the files of a new project. Raise `StoreError` if one of them exists.

    `vendors` are rows, separated by commas: `cpu==2.13.0,nvidia:13.0,amd`.
    """
    files = _project_files()
    if existing := [path for path in files if (folder / path).exists()]:
        hint = "make a project in an empty folder; nothing was written"
        raise StoreError(f"{folder / existing[0]} exists", hint=hint)
    bases = packaged_text(BASES)
    documents = plain_values(bases)
    if base not in documents:
        raise NothingSelectedError(f"--base {base}: no such base", hint=nearest(base, documents))
    block, python = editing.block_of(bases, base), str(documents[base]["python"])
    # The template is a matrix of its own, with the first base and a row for the CPU.
    text, first = files[MATRIX_FILE], plain_values(files[MATRIX_FILE])
    old_base = first["defaults"]["base"]
    for old, new in (
        (_indented(editing.block_of(bases, old_base)), _indented(block)),
        (f'python: "{first["defaults"]["python"]}"', f'python: "{python}"'),
        (f"base: {old_base}", f"base: {base}"),
        (first["project"]["name"], name),
        (first["project"]["repository"], registry),
    ):
        text = text.replace(old, new)
    rows = []
    for entry in filter(None, vendors.split(",")):
        row, _, torch = entry.partition("==")
        vendor, _, toolkit = row.partition(":")
        rows.append(_indented(row_by_table(vendor, toolkit, python, torch)))
    text = text.replace(_FIRST_ROW, "".join(f"{row}\n\n" for row in rows).removesuffix("\n"))
    return Edit(files={**files, MATRIX_FILE: text})


def _indented(lines: tuple[str, ...]) -> str:
    return "\n".join(f"  {line}" for line in lines)


_FIRST_ROW = '  - vendor: cpu\n    targets: x86_64\n    torch: "2.13.0"\n'


def row_by_table(vendor: str, toolkit: str, python: str, torch: str = "") -> tuple[str, ...]:
    """Return the lines of a row by the compat table: with its newest torch, or `torch`."""
    if vendor not in VENDORS:
        raise NothingSelectedError(f"no vendor {vendor!r}", hint=nearest(vendor, VENDORS))
    toolkits = editing.newest_toolkits(vendor, packaged())
    for release in (toolkit,) if toolkit else toolkits:
        if lines := editing.row_lines(vendor, release, python, packaged(), torch=torch):
            return lines
    built = [t for t in toolkits if editing.row_lines(vendor, t, python, packaged(), torch=torch)]
    hint = f"with Python {python}: {', '.join(built)}" if built else "docs/matrix.md has its row"
    raise NothingSelectedError(f"no wheels are known for {vendor} {toolkit}".rstrip(), hint=hint)
