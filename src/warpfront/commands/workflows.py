"""workflows: the files that tell forges of the flow, as `runners:` of matrix.yaml has it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warpfront.ci.flow import Flow, make_flow, packaged_limits
from warpfront.ci.github_workflows import FOLDER, MAIN, workflows
from warpfront.ci.gitlab import gitlab_files
from warpfront.ci.schedule import SCOPES
from warpfront.ci.template_files import (
    kept_pins,
    kubernetes_files,
    machine_scripts,
    pinned_actions,
    robot_files,
    scripts,
)
from warpfront.errors import InputError, LockError
from warpfront.matrix.language import InstallText
from warpfront.matrix.reading import Matrix
from warpfront.pipeline.workspace import Workspace
from warpfront.system.digests import digest_of
from warpfront.system.process import run
from warpfront.system.store import read_text, storing, write_text
from warpfront.wheels.sources import read_site
from warpfront.wheels.uv_program import hash_requirements

REQUIREMENTS = "ci/requirements.txt"
_PROJECT = "pyproject.toml"
# What jobs need beyond the base install: `build --layers`, a cell's `project:`, and SBOMs.
_EXTRAS = ("layers", "port", "publish")
_PACKAGE = f"warpfront[{','.join(_EXTRAS)}]"
_BACKEND = "hatchling>=1.27"
"""What builds warpfront from a commit; its own pyproject.toml has the same."""
_LOCK_HEAD = """\
# Made by `warpfront ci write`: what CI's jobs install, each file by its hash.
# inputs: {digest}
"""
Lock = Callable[[tuple[str, ...]], str]
"""Requirements -> the text of a file with all that they need, each by hash."""


def ci_files(workspace: Workspace, lock: Lock | None = None) -> Mapping[str, str | None]:
    """Path below the project -> text; None for one that an older table made and none makes now.
    `lock` resolves what the jobs install, where that has changed; without it such a file is stale.
    """
    matrix, root = workspace.matrix, workspace.folders.root
    flow, limits = flow_of(matrix, root), packaged_limits()
    # A robot may have moved the pins of the committed workflows.
    committed = sorted((root / FOLDER).glob(f"{MAIN}*.yml"))
    actions = kept_pins(pinned_actions(), [read_text(path) or "" for path in committed])
    files: dict[str, str | None] = {**workflows(flow, actions, limits)}
    files |= {**gitlab_files(flow), **scripts(flow)}
    install = install_of(matrix, root)
    path = requirements_path(install)
    if path == REQUIREMENTS:
        files[path] = locked_requirements(install, root, lock)
    else:
        require_hashes(path, read_text(root / path) or "")
    # A project may have such files of its own: only those that are missing, or were made here.
    for robot, text in robot_files(path).items():
        present = read_text(root / robot, missing_ok=True)
        if present is None or _MADE.search(present):
            files[robot] = text
    source = matrix.project.source
    files |= kubernetes_files(flow.runners, source=source)
    if any(runner.trust == "self-hosted" for runner in flow.runners):
        files |= machine_scripts(source)
    old = sorted((root / FOLDER).glob(f"{MAIN}-*.yml"))
    names = [path.relative_to(root).as_posix() for path in old]
    return {**files, **{name: None for name in names if name not in files}}


_MADE = re.compile(r"Made by `(?:warpfront ci write|invoke ci --write)`")


def flow_of(matrix: Matrix, root: Path) -> Flow:
    """Return the flow of a project. Raise `InputError` without machines or `install:`."""
    if not matrix.runners:
        message = "matrix.yaml has no `runners:`, so there is no machine to run CI"
        raise InputError(message, hint="docs/ci.md has the table to begin with")
    install = install_of(matrix, root)
    # Everything by hash, and then a commit or the checkout, which bring nothing else with them.
    calls, alone = [f"--require-hashes --requirement {requirements_path(install)}"], ""
    if install is None:
        alone = "--editable ."
    elif install.git:
        alone = f'"warpfront @ git+{install.git}@{install.commit}"'
    if alone:
        calls.append(f"--no-deps --no-build-isolation {alone}")
    releases = any(channel.name == SCOPES["release"].channel for channel in matrix.channels)
    return make_flow(matrix, tuple(calls), releases=releases)


def install_of(matrix: Matrix, root: Path) -> InstallText | None:
    """Return the source from which jobs install warpfront: None for the checkout itself, in
    warpfront's own repository. A bare name is never a source.
    """
    if matrix.install or _pyproject(root).get("project", {}).get("name") == "warpfront":
        return matrix.install
    raise InputError(
        "matrix.yaml has no `install:`, and no job installs warpfront by its name alone",
        hint="`install: {wheel: https://..., sha256: ...}`, `{git: https://..., commit: ...}` or "
        "`{requirements: a file with hashes}`: docs/ci.md, Installing",
    )


def _pyproject(root: Path) -> Mapping[str, Any]:
    """Return the project's pyproject.toml, empty without one. Raise `InputError` for no TOML."""
    try:
        return tomllib.loads(read_text(root / _PROJECT, missing_ok=True) or "")
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{_PROJECT}:{line[1]}" if line else _PROJECT
        hint = "correct that line; pip and uv cannot read the file either"
        raise InputError(f"{where}: this is no TOML", hint=hint) from None


def requirements_path(install: InstallText | None) -> str:
    """Return the file of requirements that jobs install by hash: the project's, or a lock here."""
    return (install and install.requirements) or REQUIREMENTS


def require_hashes(path: str, text: str) -> None:
    """Raise `InputError` for a project's requirements file that lacks a hash or warpfront."""
    lines = text.replace("\\\n", " ").splitlines()
    demands = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "-"))]
    open_ones = [demand.split()[0] for demand in demands if "--hash=sha256:" not in demand]
    if open_ones or not any(demand.startswith("warpfront") for demand in demands):
        reason = f"no hash for {open_ones[0]}" if open_ones else "no line for warpfront"
        hint = "`uv pip compile --generate-hashes` writes such a file"
        raise InputError(f"{path}: {reason}", hint=hint)


def locked_requirements(install: InstallText | None, root: Path, lock: Lock | None) -> str:
    """Return the file that the jobs install from. A committed file stays while its inputs are
    the same: a robot may have moved versions in it.
    """
    if install and install.wheel:
        requirements: tuple[str, ...] = (f"{_PACKAGE} @ {install.wheel}#sha256={install.sha256}",)
    elif install:
        requirements = (f"{_PACKAGE} @ git+{install.git}@{install.commit}", _BACKEND)
    else:
        project = _pyproject(root)
        optional = project["project"].get("optional-dependencies", {})
        extras = (line for extra in _EXTRAS for line in optional.get(extra, ()))
        needs = project["build-system"]["requires"]
        requirements = (*project["project"]["dependencies"], *extras, *needs)
    head = _LOCK_HEAD.format(digest=digest_of([*requirements])[:16])
    present = read_text(root / REQUIREMENTS, missing_ok=True) or ""
    if present.startswith(head):
        return present
    text = lock(requirements) if lock else ""
    if text and install and (install.sha256 or "") not in text:
        hint = "`install:` of matrix.yaml has both: one of them is another wheel's"
        message = f"{install.wheel} is not the wheel of sha256 {install.sha256}"
        raise LockError(message, hint=hint)
    return head + text


def lock_here(requirements: tuple[str, ...]) -> str:
    """Resolve with this machine's indexes. What comes from a commit is installed from there."""
    without = ("warpfront",) if any("git+" in line for line in requirements) else ()
    return hash_requirements(requirements, site=read_site(), run=run, without=without)


def stale(files: Mapping[str, str | None], root: Path) -> str:
    """Return the pending changes as a diff, "" if all files are current."""
    lines: list[str] = []
    for path, text in files.items():
        before = (read_text(root / path, missing_ok=True) or "").splitlines(keepends=True)
        after = (text or "").splitlines(keepends=True)
        lines += difflib.unified_diff(before, after, path, path)
    return "".join(lines)


def write(files: Mapping[str, str | None], root: Path) -> tuple[str, ...]:
    """Make it so; what was changed."""
    present = {path: read_text(root / path, missing_ok=True) for path in files}
    changed = [path for path, text in files.items() if present[path] != text]
    for name in changed:
        path, text = root / name, files[name]
        if text is None:
            with storing(path):
                path.unlink()
            continue
        write_text(path, text)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)
    return tuple(changed)
