"""What `add` adds to a project: edits of matrix.yaml, and templates. Path."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from warpfront.commands.dockerfile_reading import read_dockerfile
from warpfront.errors import InputError, NothingSelectedError, StoreError
from warpfront.matrix import editing
from warpfront.matrix.language import NAME_PATTERN
from warpfront.matrix.nearest import nearest
from warpfront.matrix.scaffold import BASES, Edit, new_project, with_row
from warpfront.pipeline.workspace import MATRIX_FILE
from warpfront.system.store import read_text
from warpfront.wheels.project_folders import IMAGES_FOLDER

_TEMPLATE = """\
# {{ cell.id }}: {{ cell.title | words }}
FROM {{ from_reference }}
{% include "_shared/wheels.j2" %}
{% include "_shared/environment.j2" %}
"""
_REQUIREMENTS = "# One requirement a line. torch is the row's: name no torch here.\n"


def add_image(root: Path, name: str, *, parent: str, requirements: str) -> Edit:
    """Return the edit that adds an image with its folder, to rows that take the default images."""
    wheels = read_text(Path(requirements)) if requirements else _REQUIREMENTS
    edit = with_image(_matrix(root), name, parent=parent, requirements=wheels or "")
    if (root / IMAGES_FOLDER / name).exists():
        raise InputError(f"{IMAGES_FOLDER}/{name} exists", hint="give the image another name")
    return edit


def with_image(text: str, name: str, *, parent: str, requirements: str) -> Edit:
    """Return the edit of a matrix that adds an image with these requirements."""
    document = yaml.safe_load(text)
    known = document.get("images", {})
    if not re.fullmatch(NAME_PATTERN, name) or name in known:
        reason = "is an image already" if name in known else "is no name of an image"
        raise InputError(f"{name} {reason}", hint="lower case letters, digits, - and _")
    if parent not in known:
        raise InputError(f"--parent {parent}: no such image", hint=nearest(parent, known))
    folder = f"{IMAGES_FOLDER}/{name}"
    lines = [
        f"{name}:",
        f"  parent: {parent}",
        f"  template: {name}",
        f"  title: {name} on PyTorch",
        f"  requirements: {folder}/requirements.txt",
    ]
    text = editing.with_entry(text, ("images",), lines)
    if "images" in document.get("defaults", {}):
        text = editing.with_item(text, ("defaults", "images"), name)
    own = editing.rows_with(text, "images")
    return Edit(
        files={
            MATRIX_FILE: text,
            f"{folder}/Dockerfile.j2": _TEMPLATE,
            f"{folder}/requirements.txt": requirements,
        },
        notes=tuple(
            f"matrix.yaml:{line}: this row lists its images: add {name} there" for line in own
        ),
    )


def project_from(
    folder: Path, dockerfile: Path, *, name: str, vendors: str, base: str, registry: str
) -> Edit:
    """Return a new project with the row and an image `app` that a Dockerfile asks for. Notes name
    the lines that were not read.
    """
    proposal = read_dockerfile(read_text(dockerfile) or "")
    rows = vendors or proposal.row
    edit = new_project(folder, name=name, vendors=rows, base=base, registry=registry)
    unread, wheels = list(proposal.unread), list(proposal.requirements)
    for file in proposal.files:
        path = dockerfile.parent / Path(file).name
        lines = read_text(path, missing_ok=True)
        if lines is None:
            unread.append(f"{path}: no such file")
        wheels += (lines or "").splitlines()
    stack = [line for line in wheels if re.match(r"torch(vision|audio)?\b(?!-)", line)]
    unread += [f"{line}: torch is the row's" for line in (*proposal.stack, *stack)]
    kept = "".join(f"{line}\n" for line in wheels if line not in stack)
    image = with_image(edit.files[MATRIX_FILE], "app", parent="torch", requirements=kept)
    notes = (f"read {dockerfile}: row {rows}, image app", *(f"not read: {x}" for x in unread))
    return Edit(files={**edit.files, **image.files}, notes=(*image.notes, *notes))


def add_row(root: Path, vendor: str, toolkit: str) -> Edit:
    """Return the edit that adds the newest row of a vendor and toolkit by the compat table."""
    text = _matrix(root)
    python = str(yaml.safe_load(text).get("defaults", {}).get("python", "3.11"))
    return Edit(files={MATRIX_FILE: with_row(text, vendor, toolkit, python)})


def add_python(root: Path, python: str) -> Edit:
    """Return the edit that adds each row of the default Python for another one, with its base."""
    text = _matrix(root)
    bases = yaml.safe_load(read_text(BASES) or "")
    names = {str(base["python"]): name for name, base in bases.items()}
    if python not in names:
        raise NothingSelectedError(f"no base has Python {python}", hint=nearest(python, names))
    name = names[python]
    if name not in yaml.safe_load(text).get("bases", {}):
        text = editing.with_entry(text, ("bases",), editing.block_of(read_text(BASES) or "", name))
    return Edit(files={MATRIX_FILE: editing.with_python(text, python, name)})


def migrate(root: Path) -> Edit:
    """Return the edit of a project of an older warpfront to today's names: keys of matrix.yaml,
    modules that its entry points import.
    """
    before = {MATRIX_FILE: _matrix(root)}
    matrix, notes = editing.with_current_keys(before[MATRIX_FILE], MATRIX_FILE)
    after = {MATRIX_FILE: matrix}
    for name in ("tasks.py", "noxfile.py"):
        before[name] = after[name] = read_text(root / name, missing_ok=True) or ""
        for old, new in _MODULES.items():
            after[name] = re.sub(rf"\b{re.escape(old)}\b", new, after[name])
    return Edit(files={n: text for n, text in after.items() if text != before[n]}, notes=notes)


_MODULES = {"warpfront.doors": "warpfront.cli", "warpfront.inside.checks": "warpfront_checks"}


def _matrix(root: Path) -> str:
    text = read_text(root / MATRIX_FILE, missing_ok=True)
    if text is None:
        hint = "run in a project's folder, or make one with `warpfront init`"
        raise StoreError(f"{root / MATRIX_FILE}: no such file", hint=hint)
    return text
