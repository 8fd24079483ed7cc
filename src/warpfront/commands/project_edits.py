"""What `add` adds to a project: edits of matrix.yaml, and templates; the row and
requirements that a GPU Dockerfile asks for. Path.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from warpfront.errors import InputError, NothingSelectedError
from warpfront.matrix import editing
from warpfront.matrix.language import NAME_PATTERN
from warpfront.matrix.scaffold import BASES, Edit, new_project, row_by_table
from warpfront.matrix.selection import nearest
from warpfront.pipeline.workspace import MATRIX_FILE, matrix_text
from warpfront.system.document import plain_values
from warpfront.system.packaged import packaged_text
from warpfront.system.store import read_text
from warpfront.wheels.project_folders import IMAGES_FOLDER

IMAGE_TEMPLATE = packaged_text("in_images", "new.Dockerfile.j2")
_REQUIREMENTS = "# One requirement a line. torch is the row's: name no torch here.\n"


def add_image(root: Path, name: str, *, parent: str, requirements: str) -> Edit:
    """Return the edit that adds an image with its folder, to rows that take the default images."""
    wheels = read_text(Path(requirements)) if requirements else _REQUIREMENTS
    edit = with_image(matrix_text(root), name, parent=parent, requirements=wheels or "")
    if (root / IMAGES_FOLDER / name).exists():
        raise InputError(f"{IMAGES_FOLDER}/{name} exists", hint="give the image another name")
    return edit


def with_image(text: str, name: str, *, parent: str, requirements: str) -> Edit:
    """Return the edit of a matrix that adds an image with these requirements."""
    document = plain_values(text)
    images = document.get("images", {})
    if not re.fullmatch(NAME_PATTERN, name) or name in images:
        reason = "is an image already" if name in images else "is no name of an image"
        raise InputError(f"{name} {reason}", hint="lower case letters, digits, - and _")
    if parent not in images:
        raise InputError(f"--parent {parent}: no such image", hint=nearest(parent, images))
    folder = f"{IMAGES_FOLDER}/{name}"
    entry = {"parent": parent, "template": name, "title": f"{name} on PyTorch"}
    entry["requirements"] = f"{folder}/requirements.txt"
    lines = [f"{name}:", *(f"  {key}: {value}" for key, value in entry.items())]
    text = editing.with_entry(text, ("images",), lines)
    if "images" in document.get("defaults", {}):
        text = editing.with_item(text, ("defaults", "images"), name)
    rows = editing.rows_with(text, "images")
    files = {f"{folder}/Dockerfile.j2": IMAGE_TEMPLATE, f"{folder}/requirements.txt": requirements}
    listed = f"this row lists its images: add {name} there"
    notes = tuple(f"matrix.yaml:{line}: {listed}" for line in rows)
    return Edit(files={MATRIX_FILE: text, **files}, notes=notes)


def project_from(
    folder: Path, dockerfile: Path, *, name: str, vendors: str, base: str, registry: str
) -> Edit:
    """Return a project with a Dockerfile's row and image `app`; its last stage decides. Notes
    name the lines that were not read.
    """
    row, requirements, files, unread = "cpu", list[str](), list[str](), list[str]()
    for number, line in _instructions(read_text(dockerfile) or ""):
        word, _, rest = line.partition(" ")
        instruction = word.upper()
        is_copy = instruction in {"COPY", "ADD"} and "requirements" in rest
        if instruction == "FROM":
            matches = ((vendor, pattern.search(rest)) for vendor, pattern in _TOOLKITS.items())
            row = next((f"{vendor}:{match[1]}" for vendor, match in matches if match), "") or row
        elif instruction == "RUN":
            for command in map(str.strip, re.split(r"&&|;", rest)):
                installed = _installed(command, files)
                unread += [f"{number}: RUN {command}"] if installed is None else []
                requirements += installed or ()
        elif instruction not in _IGNORED and not is_copy:
            unread.append(f"{number}: {line}")
    stack = [x for x in requirements if re.split(r"[\[=<>!~ ;@]", x)[0].lower() in _STACK]
    wheels = list(dict.fromkeys(x for x in requirements if x not in stack))
    rows = vendors or row
    edit = new_project(folder, name=name, vendors=rows, base=base, registry=registry)
    for file in dict.fromkeys(files):
        path = dockerfile.parent / Path(file).name
        lines = read_text(path, missing_ok=True)
        if lines is None:
            unread.append(f"{path}: no such file")
        wheels += (lines or "").splitlines()
    of_torch = [line for line in wheels if re.match(r"torch(vision|audio)?\b(?!-)", line)]
    unread += [f"{line}: torch is the row's" for line in (*stack, *of_torch)]
    text = "".join(f"{line}\n" for line in wheels if line not in of_torch)
    image = with_image(edit.files[MATRIX_FILE], "app", parent="torch", requirements=text)
    notes = (f"read {dockerfile}: row {rows}, image app", *(f"not read: {x}" for x in unread))
    return Edit(files={**edit.files, **image.files}, notes=(*image.notes, *notes))


def add_row(root: Path, vendor: str, toolkit: str) -> Edit:
    """Return the edit that adds the newest row of a vendor and toolkit by the compat table."""
    text = matrix_text(root)
    python = str(plain_values(text).get("defaults", {}).get("python", "3.11"))
    row = row_by_table(vendor, toolkit, python)
    return Edit(files={MATRIX_FILE: editing.with_entry(text, ("rows",), ["", *row])})


def add_python(root: Path, python: str) -> Edit:
    """Return the edit that adds each row of the default Python for another one, with its base."""
    text = matrix_text(root)
    blocks = packaged_text(BASES)
    bases = plain_values(blocks)
    names = {str(base["python"]): name for name, base in bases.items()}
    if python not in names:
        raise NothingSelectedError(f"no base has Python {python}", hint=nearest(python, names))
    name = names[python]
    if name not in plain_values(text).get("bases", {}):
        text = editing.with_entry(text, ("bases",), editing.block_of(blocks, name))
    return Edit(files={MATRIX_FILE: editing.with_python(text, python, name)})


def migrate(root: Path) -> Edit:
    """Return the edit to today's names: keys of matrix.yaml, modules of entry points."""
    before = {MATRIX_FILE: matrix_text(root)}
    matrix, notes = editing.with_current_keys(before[MATRIX_FILE], MATRIX_FILE)
    after = {MATRIX_FILE: matrix}
    for name in ("tasks.py", "noxfile.py"):
        before[name] = after[name] = read_text(root / name, missing_ok=True) or ""
        for old, new in _MODULES.items():
            after[name] = re.sub(rf"\b{re.escape(old)}\b", new, after[name])
    return Edit(files={n: text for n, text in after.items() if text != before[n]}, notes=notes)


_MODULES = {"warpfront.doors": "warpfront.cli", "warpfront.inside.checks": "warpfront_checks"}


_CONTINUED = re.compile(r"\\\s*\n")
_TOOLKITS = {
    "nvidia": re.compile(r"cuda:?-?(\d+\.\d+)"),
    "amd": re.compile(r"rocm[\w./-]*?:?-?(\d+\.\d+)"),
}
_STACK = {"torch", "torchvision", "torchaudio"}
# Instructions that only say how a container starts, which an image of a matrix keeps for its user.
_IGNORED = {"ARG", "LABEL", "MAINTAINER", "SHELL", "WORKDIR", "EXPOSE", "STOPSIGNAL"}


def _instructions(text: str) -> list[tuple[int, str]]:
    """Return each instruction as one line, with the number of its first line."""
    joined = _CONTINUED.sub(lambda _: " \0", text)
    number, instructions = 1, list[tuple[int, str]]()
    for line in joined.split("\n"):
        plain = " ".join(line.replace("\0", " ").split())
        if plain and not plain.startswith("#"):
            instructions.append((number, plain))
        number += 1 + line.count("\0")
    return instructions


def _installed(command: str, files: list[str]) -> tuple[str, ...] | None:
    """Return the requirements of one `pip install`; None for another command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if "install" not in words or not {"pip", "pip3", "uv"} & set(words[: words.index("install")]):
        return None
    requirements, rest = list[str](), iter(words[words.index("install") + 1 :])
    for word in rest:
        if word in {"-r", "--requirement"}:
            files.append(next(rest, ""))
        elif word in {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c"}:
            next(rest, "")  # the row's index takes its place
        elif not word.startswith("-"):
            requirements.append(word)
    return tuple(requirements)
