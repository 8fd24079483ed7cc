"""workflows: the files that tell forges of the flow, as `runners:` of matrix.yaml has it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path

from warpfront import __version__
from warpfront.ci.actions import pinned_actions, pinned_images
from warpfront.ci.flow import Flow, PublishingRefs, machine_scripts, make_flow, scripts
from warpfront.ci.github_workflows import FOLDER, MAIN, workflows
from warpfront.ci.gitlab import gitlab_files
from warpfront.ci.kubernetes import kubernetes_files
from warpfront.ci.schedule import SCOPES
from warpfront.errors import InputError
from warpfront.matrix.reading import Matrix
from warpfront.pipeline.workspace import Workspace
from warpfront.system.store import read_text, storing, write_text


def ci_files(workspace: Workspace) -> Mapping[str, str | None]:
    """Path below the project -> text; None for one that an older table made and none makes now."""
    matrix, root = workspace.matrix, workspace.folders.root
    flow = flow_of(matrix, root)
    files: dict[str, str | None] = {**workflows(flow, pinned_actions()), **gitlab_files(flow)}
    files |= scripts(flow)
    source = matrix.project.source
    files |= kubernetes_files(flow.runners, pinned_images(), source=source, pods=0)
    if any(one.trust == "self-hosted" for one in flow.runners):
        files |= machine_scripts(source)
    old = sorted((root / FOLDER).glob(f"{MAIN}-*.yml"))
    names = [path.relative_to(root).as_posix() for path in old]
    return {**files, **{name: None for name in names if name not in files}}


def flow_of(matrix: Matrix, root: Path) -> Flow:
    """The flow of a project. Raises `InputError` where it names no machines."""
    if not matrix.runners:
        raise InputError(
            "matrix.yaml has no `runners:`, so there is nobody to run CI",
            hint="docs/ci.md has the table to begin with",
        )
    repository = matrix.project.repository
    project = matrix.project
    publishes = PublishingRefs(
        branch=project.branch,
        release_tags=project.release_tags,
        releases=any(one.name == SCOPES["release"].channel for one in matrix.channels),
    )
    return make_flow(
        matrix.runners,
        installs=_installs(root),
        repository=repository,
        publishes=publishes,
        options=matrix.ci,
    )


def _installs(root: Path) -> tuple[str, ...]:
    """What brings this very program: the project itself where it is the program's own."""
    text = read_text(root / "pyproject.toml", missing_ok=True) or ""
    own = tomllib.loads(text).get("project", {}).get("name") == "warpfront"
    return ("--editable", ".") if own else (f"warpfront=={__version__}",)


def stale(files: Mapping[str, str | None], root: Path) -> str:
    """What would change, as a diff; "" where everything is as it should be."""
    lines: list[str] = []
    for path, text in files.items():
        there = (read_text(root / path, missing_ok=True) or "").splitlines(keepends=True)
        right = (text or "").splitlines(keepends=True)
        lines += difflib.unified_diff(there, right, path, path)
    return "".join(lines)


def write(files: Mapping[str, str | None], root: Path) -> tuple[str, ...]:
    """Make it so; what was changed."""
    there = {path: read_text(root / path, missing_ok=True) for path in files}
    changed = [path for path, text in files.items() if there[path] != text]
    for name in changed:
        path, text = root / name, files[name]
        if text is None:
            with storing(path):
                path.unlink()
            continue
        write_text(path, text)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)
    return tuple(changed)
