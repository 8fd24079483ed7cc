"""Artifacts between jobs: results of cells with the sha256 of each file, and their merge into
one build folder. Edge.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from warpfront.errors import HandoverError
from warpfront.system.foreign import read_json, read_regular, remove_tree
from warpfront.system.store import storing, write_json
from warpfront.system.strict_values import object_in

MANIFEST = "manifest.json"
SCHEMA = 2
_RESULTS = "build"
_AGAIN = "hand it over again"
_LIMIT_BYTES = 1 << 30
_TOGETHER_BYTES = 1 << 32
_REFUSED = frozenset('":<>|*?\\\r\n')
"""Characters that upload-artifact takes in no path: data/actions.toml, `names`."""


def leave(store: Path, cells: Iterable[str], prefix: str, into: Path) -> tuple[str, ...]:
    """Copy a step's results for `cells` in `store` to `into`, with a manifest. `prefix` begins
    the names of its files (`build`, `verify-sm_90`). Returns the paths of the copies. The name of
    the artifact is that of its folder, and stays in it wherever a CI service puts it.
    """
    remove_tree(into)
    files: dict[str, str] = {}
    for cell in cells:
        named = (store / cell).glob(f"{prefix}*")
        for path in sorted({inner for top in named for inner in (top, *top.rglob("*"))}):
            name = f"{_RESULTS}/{cell}/{path.relative_to(store / cell).as_posix()}"
            # A container may have created any other, and links.
            if _is_place(name) and path.is_file() and not path.is_symlink():
                files[name] = _place(into / name, read_regular(path, _LIMIT_BYTES))
    write_json(into / MANIFEST, {"schema": SCHEMA, "name": into.name, "files": files})
    return tuple(files)


def handed_over(*folders: Path) -> dict[Path, str]:
    """Return the artifacts below `folders`, each with its name. An artifact is a folder with
    a manifest, one level down, or two where a CI service put a folder of the artifact's
    name around it.
    """
    depths = (f"*/{MANIFEST}", f"*/*/{MANIFEST}")
    manifests = [path for f in folders for depth in depths for path in sorted(f.glob(depth))]
    return {path.parent: _manifest(path.parent)[0] for path in manifests}


def _manifest(folder: Path) -> tuple[str, Mapping[str, object]]:
    """Return the name of an artifact, and the sha256 of each of its files."""
    fields = object_in(read_json(folder / MANIFEST))
    name, files = fields.get("name"), fields.get("files")
    is_ours = fields.get("schema") == SCHEMA
    if not isinstance(name, str) or not isinstance(files, dict) or not is_ours:
        raise HandoverError(f"{folder}: no manifest of this version", hint=_AGAIN)
    return name, files


def demand(names: Iterable[str], present: Iterable[str]) -> None:
    """Raise `HandoverError` with the names of the hand-overs that are not among those found."""
    present_names = set(present)
    missing = [name for name in names if name not in present_names]
    if missing:
        raise HandoverError(
            f"no artifact {', '.join(missing)}: the job of that name left none, or it is past its "
            "retention",
            hint=f"run the job {missing[0]} again, then this one",
        )


def _place(path: Path, content: bytes) -> str:
    """Write, and say the hash of what was written."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def merge(folders: Iterable[Path], store: Path) -> tuple[str, ...]:
    """Merge the artifacts in `folders` into `store`, and return the names of the files that
    it has now.

    Raises `HandoverError` before anything is written where a file differs from its manifest or is
    in none. So do two artifacts with different files of one name.
    """
    merged: dict[str, tuple[bytes, Path]] = {}
    for folder in folders:
        for name, content in read_handover(folder).items():
            entry = merged.setdefault(name, (content, folder))
            if entry[0] != content:
                raise HandoverError(
                    f"{entry[1]} and {folder} have different files {name}",
                    hint="two runs are mixed: merge what one run left",
                )
    for name, (content, _) in merged.items():
        path = store / name
        with storing(path):
            if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(store)):
                raise HandoverError(f"{path.parent} is a link that leads out of the build folder")
            if path.exists() or path.is_symlink():  # a container may have created a link, or a FIFO
                remove_tree(path)
            _place(path, content)
    return tuple(sorted(merged))


def read_handover(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a job's artifact, by path below a build folder. All is untrusted."""
    files = _manifest(folder)[1]
    if wrong := [name for name in files if not _is_place(name)]:
        quoted = json.dumps(wrong[0][:200])
        raise HandoverError(f"{folder}: {quoted} is no place in a build folder")
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    present = {path.relative_to(folder).as_posix() for path in paths}
    unsaid = sorted(present - set(files) - {MANIFEST})
    if unsaid:
        raise HandoverError(f"{folder / unsaid[0]} is in no manifest", hint=_AGAIN)
    contents, together = {}, 0
    for name, digest in files.items():
        with storing(folder / name):
            content = read_regular(folder / name, _LIMIT_BYTES)
        if hashlib.sha256(content).hexdigest() != str(digest):
            raise HandoverError(
                f"{folder / name} is not what was handed over: its sha256 is another",
                hint="the job that made it has to run again",
            )
        contents[name.removeprefix(f"{_RESULTS}/")] = content
        together += len(content)
        if together > _TOGETHER_BYTES:
            raise HandoverError(f"{folder}: more than {_TOGETHER_BYTES >> 30} GiB of results")
    return contents


def _is_place(name: str) -> bool:
    """Return whether a file of an artifact may have this path. Only the canonical form is
    valid: `build//etc/x` would be one from the root.
    """
    first, *parts = name.split("/")
    hidden = any(part == "" or part.startswith(".") for part in parts)
    portable = name.isprintable() and _REFUSED.isdisjoint(name)
    return first == _RESULTS and len(parts) >= 2 and not hidden and portable
