"""The build context of an image, from a cell and its lock: text in, text out, always the
same bytes. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.errors import BlockedError, RenderError
from warpfront.images.built import RenderedImage
from warpfront.images.protection import GUARD_ENVIRONMENT, POLICY, RELAXED
from warpfront.images.stages import BYTE_CODE_FILES, slim_files
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell, Compiler
from warpfront.matrix.compat import Compat
from warpfront.matrix.runtime_policies import device_fault
from warpfront.system.digests import frozen
from warpfront.system.tree_files import ImageFile, RefusedFile
from warpfront.wheels.lock.pylock import difference
from warpfront.wheels.lock.values import LockedWheel, WheelLock

DOCKERFILE = "Dockerfile"
REQUIREMENTS = "requirements.txt"
_BLANK_LINES = re.compile(r"\n{3,}")


class Templates:
    """The folders of a project's images: relative path below `images/` -> what lies there. What
    cannot go into an image blocks the cells that would have it.
    """

    def __init__(self, sources: Mapping[str, str | ImageFile | RefusedFile]) -> None:
        self.sources = {
            name: ImageFile(content=source.encode()) if isinstance(source, str) else source
            for name, source in sources.items()
        }

    def require(self, cell: Cell) -> None:
        """Raise `RenderError`, with the line of its image, for a cell without a template."""
        name = f"{cell.template}/Dockerfile.j2"
        if name not in self.sources:
            raise RenderError(
                f"matrix.yaml:{cell.image_line}: images/{name}: no such template",
                hint=f"write it, or correct `template:` of the image {cell.image}",
            )

    def assets(self, folder: str) -> dict[str, ImageFile]:
        """Return the template's other files, which go into the build context unchanged. Raise
        `BlockedError` for the first that cannot.
        """
        prefix, read = f"{folder}/", f"{folder}/{REQUIREMENTS}"
        return {
            name.removeprefix(prefix): self._file(name)
            for name in self.sources
            if name.startswith(prefix) and name != read and not name.endswith(".j2")
        }

    def _file(self, name: str) -> ImageFile:
        file = self.sources[name]
        if isinstance(file, RefusedFile):
            raise BlockedError(
                f"images/{name}: {file.reason}",
                hint="images hold files, and links to files of the same folder: copy it there",
            )
        return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Parts of every image of a project, except its cell and lock: templates, the guard's own files
    by name, and the compat table, which decides what a guard refuses.
    """

    templates: Templates
    guard: Mapping[str, str]
    compat: Compat


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParts:
    """A cell's build context without its Dockerfile; `variables` are what the template sees."""

    cell: Cell
    wheels: tuple[LockedWheel, ...]
    guard: Mapping[str, str]
    variables: Mapping[str, object]


def context_parts(
    cell: Cell,
    lock: WheelLock,
    *,
    parent: Cell | None = None,
    parent_lock: WheelLock | None = None,
    guard: Mapping[str, str] | None = None,
) -> ContextParts:
    """Return what `cell`'s build context is made of: the wheels that it adds to its parent's, the
    files of `guard` (`images.protection`), and what its template sees.
    """
    guard = guard or {}
    wheels = difference(lock, parent_lock) if parent_lock is not None else lock.wheels
    compiler = cell.compiler or Compiler()
    brings_own_torch = bool(cell.stack)
    variables: dict[str, object] = {
        "cell": cell,
        "from_reference": parent.local_reference if parent is not None else cell.base.pinned,
        "wheels": wheels,
        "creates_environment": parent is None and brings_own_torch,
        "python": ENVIRONMENT_PYTHON if brings_own_torch else cell.base.interpreter,
        "environment": sorted({**cell.environment, **compiler.environment}.items()),
        "apt": compiler.apt,
        "programs": compiler.programs,
        "libraries": compiler.libraries,
        "guarded": POLICY in guard,
        "sealed": POLICY in guard and brings_own_torch,
        "guard_environment": sorted(GUARD_ENVIRONMENT.items()),
        "on_guarded": parent is not None,
        "relaxed": RELAXED in guard,
        "slim": bool(cell.slim),
    }
    return ContextParts(cell=cell, wheels=wheels, guard=guard, variables=variables)


def rendered_image(parts: ContextParts, templates: Templates, dockerfile: str) -> RenderedImage:
    """Return the build context: the Dockerfile, the hash-pinned requirements that this image adds
    to its parent's, the guard's files and those of the image's folder.
    """
    cell, wheels = parts.cell, parts.wheels
    ours = {**BYTE_CODE_FILES, **slim_files(cell.slim)} if wheels else {}
    # Includes leave runs of blank lines.
    text = _BLANK_LINES.sub("\n\n", dockerfile).strip("\n") + "\n"
    files = {**parts.guard, **ours, DOCKERFILE: text}
    _refuse_device_variables(cell, text)
    if wheels:
        files[REQUIREMENTS] = requirements_text(wheels)
    assets = templates.assets(cell.template)
    for name, ours_there in itertools.product(assets, files):
        # One of ours in the place of one of theirs is no clash: ours it is.
        if ours_there.startswith(f"{name}/") or name.startswith(f"{ours_there}/"):
            where = f"images/{cell.template}/{name}: stands where {ours_there} goes"
            raise RenderError(where, hint="give it another name")
    assets = {name: file for name, file in assets.items() if name not in files}
    return RenderedImage(cell_id=cell.id, files=frozen(files), wheels=wheels, assets=assets)


def _refuse_device_variables(cell: Cell, dockerfile: str) -> None:
    """Refuse variables in a template that matrix.yaml may not set either."""
    for line in dockerfile.replace("\\\n", " ").splitlines():
        if not line.upper().startswith("ENV "):
            continue
        for name, written in _ASSIGNMENT.findall(line[4:]):
            value = written.strip("\"'")
            fault, hint = device_fault(name, value, vendor=cell.vendor, targets=cell.targets)
            if fault:
                where = f"images/{cell.template}/Dockerfile.j2"
                raise RenderError(f"{where}: ENV {name}={value}: {fault}", hint=hint)


_ASSIGNMENT = re.compile(r"(?<![\w$])([A-Z][A-Z0-9_]*)(?:=| +)(\"[^\"]*\"|'[^']*'|[^\s=]*)")


def requirements_text(wheels: tuple[LockedWheel, ...]) -> str:
    """Hash-pinned requirements, one wheel a line, as `pip` and `uv` read them."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in sorted(wheels)
    )
