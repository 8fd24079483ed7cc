"""The build context of an image, from a cell and its lock: text in, text out, always the
same bytes. Pure.

Layers can replace stages of a Dockerfile. The stage `installed` follows `environment` and adds the
wheels. It is replaced as a whole, and only if its text is the known one: a project's own fragment
is run as written.

The policy of its guard is one type on both sides. It is written here: in the image,
`warpfront_checks.guard.policy` reads it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from warpfront.errors import BlockedError, RenderError
from warpfront.images.built import RenderedImage
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell, Compiler
from warpfront.matrix.compat import Compat
from warpfront.matrix.compat_table import COMPANIONS
from warpfront.matrix.runtime_policies import device_fault
from warpfront.matrix.vendors import VENDORS
from warpfront.system.digests import frozen
from warpfront.system.packaged import packaged_text
from warpfront.system.tree_files import ImageFile, Unreadable
from warpfront.wheels.lock.pylock import difference
from warpfront.wheels.lock.values import LockedWheel, WheelLock
from warpfront_checks.guard.channels import environment_channels
from warpfront_checks.guard.names import sentinels, stack_patterns, triton_shims
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import Policy

POLICY = "policy.json"
RELAXED = "relaxed.json"
# What an image sets so that pip and uv read the constraints; the paths are those inside images.
GUARD_ENVIRONMENT: Mapping[str, str] = environment_channels(Places(site_packages=Path()))
_SOURCES = "guard"


def guard_policy(cell: Cell, lock: WheelLock, compat: Compat) -> Policy:
    """Return the policy of `cell`'s image: the locked stack with the libraries it loads, or, if
    torch comes with the base, what the guard detects there.
    """
    vendor = VENDORS[cell.vendor]
    toolkit = vendor.toolkit or vendor.device
    patterns = (*vendor.protected, *vendor.libraries)
    protected = {
        wheel.name: wheel.version
        for wheel in lock.wheels
        if any(fnmatchcase(wheel.name, pattern) for pattern in patterns)
    }
    # Those that the image lacks, at the one version that fits its torch: pip would take the build
    # for another toolkit, which has the same public version.
    release, label = compat.release(cell.torch), protected.get("torch", "").partition("+")[2]
    if vendor.torch_from == "base":
        adopted, packages = stack_patterns(toolkit), sentinels(toolkit, ())
        return Policy(cell=cell.id, title="", adopt=adopted, sentinels=packages)
    return Policy(
        cell=cell.id,
        # The id names the image; a title in here would make every image anew with its text.
        title="",
        index=cell.index.url if cell.index else "",
        protected=protected,
        companions={
            name: release.companion(name).version + (f"+{label}" if label else "")
            for name in COMPANIONS
            if release and name not in protected
        },
        sentinels=sentinels(toolkit, protected),
        shims=triton_shims(protected),
        relaxed=relaxed_reasons(lock),
    )


def stack_location(cell: Cell) -> Path:
    """Return the site-packages of the environment that the image of `cell` makes."""
    environment = Path(ENVIRONMENT_PYTHON).parents[1]
    return environment / "lib" / f"python{cell.python}" / "site-packages"


def claimed_policy(
    cell: Cell, cells: Mapping[str, Cell], locks: Mapping[str, WheelLock], compat: Compat
) -> Policy:
    """Return the policy that the image of `cell` has in the end: that of the image at the
    bottom of its chain, with everything that was relaxed since. `cells` and `locks` by cell id.
    """
    bottom = cell
    while bottom.parent:
        bottom = cells[bottom.parent]
    policy = guard_policy(bottom, locks[bottom.id], compat)
    return replace(policy, relaxed=relaxed_reasons(locks[cell.id]))


def relaxed_reasons(lock: WheelLock) -> dict[str, str]:
    """Package -> the reason for which its demands on the stack may go unmet."""
    return {relaxed.package: relaxed.reason for relaxed in lock.relaxed}


def guard_files(policy: Policy, sources: Mapping[str, str]) -> dict[str, str]:
    """Path in the build context -> text, for an image with a guard. `sources` are its own files."""
    document = json.dumps(policy.document(), indent=1, sort_keys=True)
    return {
        POLICY: document + "\n",
        **{f"{_SOURCES}/{name}": text for name, text in sorted(sources.items())},
    }


def relaxed_files(lock: WheelLock, parent_lock: WheelLock) -> dict[str, str]:
    """The same for an image on top of a guarded one: what it relaxes beyond its parent."""
    before = relaxed_reasons(parent_lock)
    more = {name: why for name, why in relaxed_reasons(lock).items() if name not in before}
    return {RELAXED: json.dumps(more, indent=1, sort_keys=True) + "\n"} if more else {}


DOCKERFILE = "Dockerfile"
REQUIREMENTS = "requirements.txt"
_BLANK_LINES = re.compile(r"\n{3,}")


Templates = Mapping[str, ImageFile | Unreadable]
"""The folders of a project's images: relative path below `images/` -> what lies there. What cannot
go into an image blocks the cells that would have it.
"""


def require_template(cell: Cell, templates: Templates) -> None:
    """Raise `RenderError`, with the line of its image, for a cell without a template."""
    name = f"{cell.template}/Dockerfile.j2"
    if name not in templates:
        raise RenderError(
            f"matrix.yaml:{cell.image_line}: images/{name}: no such template",
            hint=f"write it, or correct `template:` of the image {cell.image}",
        )


def assets_of(folder: str, templates: Templates) -> dict[str, ImageFile]:
    """Return the template's other files, for the build context. Raise `BlockedError`."""
    prefix, read, assets = f"{folder}/", f"{folder}/{REQUIREMENTS}", {}
    for name, file in templates.items():
        if not name.startswith(prefix) or name == read or name.endswith(".j2"):
            continue
        if isinstance(file, Unreadable):
            raise BlockedError(
                f"images/{name}: {file.reason}",
                hint="images hold files, and links to files of the same folder: copy it there",
            )
        assets[name.removeprefix(prefix)] = file
    return assets


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
    # No template sets a variable that matrix.yaml may not set either.
    for line in text.replace("\\\n", " ").splitlines():
        for name, written in (
            _ASSIGNMENT.findall(line[4:]) if line.upper().startswith("ENV ") else ()
        ):
            value = written.strip("\"'")
            fault, hint = device_fault(name, value, vendor=cell.vendor, targets=cell.targets)
            if fault:
                where = f"images/{cell.template}/Dockerfile.j2"
                raise RenderError(f"{where}: ENV {name}={value}: {fault}", hint=hint)
    if wheels:
        files[REQUIREMENTS] = requirements_text(wheels)
    assets = assets_of(cell.template, templates)
    for name, ours_there in itertools.product(assets, files):
        # One of ours in the place of one of theirs is no clash: ours it is.
        if ours_there.startswith(f"{name}/") or name.startswith(f"{ours_there}/"):
            where = f"images/{cell.template}/{name}: stands where {ours_there} goes"
            raise RenderError(where, hint="give it another name")
    assets = {name: file for name, file in assets.items() if name not in files}
    return RenderedImage(cell_id=cell.id, files=frozen(files), wheels=wheels, assets=assets)


_ASSIGNMENT = re.compile(r"(?<![\w$])([A-Z][A-Z0-9_]*)(?:=| +)(\"[^\"]*\"|'[^']*'|[^\s=]*)")


def requirements_text(wheels: tuple[LockedWheel, ...]) -> str:
    """Hash-pinned requirements, one wheel a line, as `pip` and `uv` read them."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in sorted(wheels)
    )


EMPTY_STAGE = "environment"
WHEELS_STAGE = "installed"
# `_shared/wheels.j2` between the two stages, rendered; a test compares them.
_INSTALLS = packaged_text("in_images", "installed.Dockerfile")
# Additional lines of that step with `slim:`.
_SLIMS = (
    "    --mount=type=bind,source=slim,target=/run/slim \\\n",
    "    /opt/venv/bin/python /run/slim/slim.py /run/slim/globs.txt && \\\n",
)
# Not where the step behind the stage has it: this is what these steps are known by.
COMPILER = "/run/sources/compile.py"
# What `compileall -j 0` does, which asks a process for each file by itself, and so takes half a
# millisecond for one that has its byte code already.
_COMPILER = packaged_text("in_images", "compile.py.txt")
BYTE_CODE_FILES: Mapping[str, str] = {"byte-code/compile.py": _COMPILER}
# Compiles all sources: the same byte code that the step behind the stage makes.
BYTE_CODE_CONTEXT: Mapping[str, str] = {
    "Dockerfile": packaged_text("in_images", "compile.Dockerfile"),
    "compile.py": _COMPILER,
}
_MAKES_ENVIRONMENT = re.compile(
    r"/tools/uv venv [^\n]* /opt/venv && \\\n"
    r" +mv /opt/venv/lib/python3\.\* /opt/venv/lib/python3 && \\\n"
    r" +ln -s python3 /opt/venv/lib/python3\.\d+ && \\\n"
)


def before_wheels(dockerfile: str) -> str | None:
    """Return a Dockerfile's text before the stage of wheels; None if layers cannot replace it."""
    for line in _SLIMS:
        dockerfile = dockerfile.replace(line, "")
    before, parts, _ = dockerfile.partition(_INSTALLS)
    if not parts or dockerfile.count(f"AS {WHEELS_STAGE}\n") != 1:
        return None
    names_it = re.search(rf"^FROM \S+ AS {EMPTY_STAGE}$", before, re.MULTILINE)
    return before if names_it and _MAKES_ENVIRONMENT.search(before) else None


def slim_files(globs: Iterable[str]) -> dict[str, str]:
    """Return path in the build context -> text; none if nothing is removed. The program goes by
    RECORD, which it writes anew: what that does not name was not installed.
    """
    program, lines = packaged_text("in_images", "slim.py.txt"), "".join(f"{g}\n" for g in globs)
    return {"slim/slim.py": program, "slim/globs.txt": lines} if lines else {}
