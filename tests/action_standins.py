"""Stand-ins for the actions that generated workflows use, for workflows that act runs.

Each does what the action's own source does at the pinned commit: data/actions.toml has the rules
with file and line. The store of artifacts is a folder: one folder for each artifact, named by its
id, as a run's attempts leave them.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FORBIDDEN = '":<>|*?\r\n'
_YES = "true"


class ActionFailedError(Exception):
    """An action that fails its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One artifact of a run."""

    id: int
    name: str
    folder: Path
    digest: str

    @property
    def files(self) -> Path:
        return self.folder / "files"


def artifacts(store: Path) -> list[Artifact]:
    """Every artifact of the run, oldest first."""
    found = [_read(folder) for folder in store.iterdir()] if store.is_dir() else []
    return sorted(found, key=lambda one: one.id)


def artifact(store: Path, name: str) -> Artifact:
    """The newest artifact of a name."""
    return [one for one in artifacts(store) if one.name == name][-1]


def _read(folder: Path) -> Artifact:
    said = json.loads((folder / "artifact.json").read_text())
    return Artifact(id=int(folder.name), name=said["name"], folder=folder, digest=said["digest"])


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = ((str(p.relative_to(folder)), hashlib.sha256(p.read_bytes())) for p in files)
    return hashlib.sha256("".join(f"{n} {h.hexdigest()}\n" for n, h in hashes).encode()).hexdigest()


def upload_artifact(store: Path, given: Mapping[str, str]) -> None:
    root, files = _found(given["path"].split("\n"), hidden=given["include-hidden-files"] == _YES)
    if not files:
        if given["if-no-files-found"] == "error":
            raise ActionFailedError(f"no files were found with the path {given['path']}")
        print(f"::warning::No files were found with the provided path: {given['path']}")
        return
    _add(store, given["name"], root, files, overwrite=given["overwrite"] == _YES)


def _add(store: Path, name: str, root: Path, files: list[Path], *, overwrite: bool) -> None:
    bad = [char for char in f"{_FORBIDDEN}\\/" if char in name]
    inside = {path.relative_to(root).as_posix(): path for path in files}
    bad += [char for char in _FORBIDDEN for path in inside if char in path]
    if bad or not name:
        raise ActionFailedError(f"{name!r} or a path in it has one of {bad}")
    with _alone(store):
        _keep(store, name, inside, overwrite=overwrite)


@contextlib.contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Keep other jobs from the store, as the service's own numbering does."""
    store.mkdir(parents=True, exist_ok=True)
    with (store.parent / f"{store.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keep(store: Path, name: str, inside: Mapping[str, Path], *, overwrite: bool) -> None:
    """Add an artifact in one step: a job that lists the store never meets half of one."""
    same = [one for one in artifacts(store) if one.name == name]
    if same and overwrite:
        for one in same:
            shutil.rmtree(one.folder)
    elif any(_of_this_attempt(one) for one in same):
        raise ActionFailedError(f"an artifact with the name {name} is there already")
    number = max([0, *(one.id for one in artifacts(store))]) + 1
    made = store.parent / f"{store.name}.new"
    for place, path in inside.items():
        (made / "files" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, made / "files" / place)
    said = {"name": name, "attempt": _attempt(), "digest": _digest(made / "files")}
    (made / "artifact.json").write_text(json.dumps(said))
    made.rename(store / str(number))


def _attempt() -> str:
    return os.environ.get("GITHUB_RUN_ATTEMPT", "1")


def _of_this_attempt(one: Artifact) -> bool:
    said = json.loads((one.folder / "artifact.json").read_text())
    return bool(said["attempt"] == _attempt())


def _found(paths: list[str], *, hidden: bool) -> tuple[Path, list[Path]]:
    """The top of an artifact, and its files."""
    named = [Path(one).absolute() for one in paths if one.strip()]
    files = [file for one in named for file in _files_below(one, hidden=hidden)]
    if len(named) > 1:
        return Path(os.path.commonpath(named)), files
    return (named[0].parent if files == named else named[0]), files


def _files_below(path: Path, *, hidden: bool) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for one in sorted(path.iterdir()):
            if hidden or not one.name.startswith("."):
                yield from _files_below(one, hidden=hidden)


def download_artifact(store: Path, given: Mapping[str, str]) -> None:
    newest = {one.name: one for one in artifacts(store)}
    found = list(newest.values())
    if given["name"]:
        found = [one for one in found if one.name == given["name"]]
        if not found:
            raise ActionFailedError(f"Artifact '{given['name']}' not found")
    elif given["pattern"]:
        found = [one for one in found if matches(given["pattern"], one.name)]
    path = Path(given["path"])
    alone = bool(given["name"]) or given["merge-multiple"] == _YES or len(found) == 1
    for one in found:
        if _digest(one.files) != one.digest:
            raise ActionFailedError(f"Digest validation failed for artifact(s): {one.name}")
        shutil.copytree(one.files, path if alone else path / one.name, dirs_exist_ok=True)
    print(f"Total of {len(found)} artifact(s) downloaded")


def matches(pattern: str, name: str) -> bool:
    """As minimatch has it: a leading `!` negates, and braces around one word are literal."""
    if pattern.startswith("!"):
        return not matches(pattern[1:], name)
    braces = re.fullmatch(r"\{([^{}]*,[^{}]*)\}", pattern)
    each = braces.group(1).split(",") if braces else [pattern]
    return any(fnmatch.fnmatchcase(name, one) for one in each)


def checkout(store: Path, given: Mapping[str, str]) -> None:
    """The commit of the repository that SOURCE names, which stands for the service's."""
    del store
    source, depth = Path(os.environ["SOURCE"]).as_uri(), int(given["fetch-depth"])
    if not Path(".git").exists():
        _git("init", "--quiet")
        _git("remote", "add", "origin", os.environ["REMOTE"])
    elif given["clean"] == _YES:
        _git("clean", "-ffdx", "--quiet")
        _git("reset", "--hard", "--quiet")
    if depth:
        _git("fetch", "--quiet", f"--depth={depth}", source, "HEAD")
    else:
        _git("fetch", "--quiet", source, "+refs/heads/*:refs/remotes/origin/*", "HEAD")
    _git("checkout", "--quiet", "--force", "FETCH_HEAD")
    if given["persist-credentials"] == _YES:
        _git("config", "--local", "http.https://github.com/.extraheader", "AUTHORIZATION: basic x")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ActionFailedError(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout


def setup_python(store: Path, given: Mapping[str, str]) -> None:
    """The Python that runs this is the one that is there; another version cannot be had."""
    del store
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if given["python-version"] != here:
        raise ActionFailedError(f"no Python {given['python-version']} here, but {here}")


def upload_pages_artifact(store: Path, given: Mapping[str, str]) -> None:
    folder = Path(given["path"])
    if not folder.is_dir():
        raise ActionFailedError(f"tar: {folder}: Cannot open: No such file or directory")
    tar = store.parent / "artifact.tar"
    with tarfile.open(tar, "w", dereference=True) as into:
        for path in _files_below(folder.absolute(), hidden=False):
            into.add(path, path.relative_to(folder.absolute()).as_posix())
    _add(store, given["name"], tar.parent, [tar], overwrite=False)


def deploy_pages(store: Path, given: Mapping[str, str]) -> None:
    found = [one for one in artifacts(store) if one.name == given["artifact_name"]]
    if len(found) != 1:
        raise ActionFailedError(f"{len(found)} artifacts named {given['artifact_name']!r}")


def cosign_installer(store: Path, given: Mapping[str, str]) -> None:
    """cosign of this machine stands for the version that the action would install."""
    del store
    print(f"cosign {given['cosign-release']}")


Action = Callable[[Path, Mapping[str, str]], None]
ACTIONS: Mapping[str, Action] = {
    "checkout": checkout,
    "setup-python": setup_python,
    "upload-artifact": upload_artifact,
    "download-artifact": download_artifact,
    "upload-pages-artifact": upload_pages_artifact,
    "deploy-pages": deploy_pages,
    "cosign-installer": cosign_installer,
}
INPUTS: Mapping[str, Mapping[str, str]] = {
    "checkout": {"persist-credentials": "true", "fetch-depth": "1", "clean": "true"},
    "setup-python": {"python-version": "", "cache": "", "update-environment": "true"},
    "upload-artifact": {
        "name": "artifact",
        "path": "",
        "if-no-files-found": "warn",
        "retention-days": "",
        "compression-level": "6",
        "overwrite": "false",
        "include-hidden-files": "false",
    },
    "download-artifact": {"name": "", "pattern": "", "path": ".", "merge-multiple": "false"},
    "upload-pages-artifact": {"name": "github-pages", "path": "_site/", "retention-days": "1"},
    "deploy-pages": {"artifact_name": "github-pages"},
    "cosign-installer": {"cosign-release": "v3.0.6"},
}
"""Inputs of each action, with the defaults that its action.yml gives them."""


def act(name: str, store: Path, given: Mapping[str, str]) -> None:
    """Do what the action does; an input that it does not know is a mistake of the workflow."""
    unknown = set(given) - set(INPUTS[name])
    if unknown:
        raise ActionFailedError(f"{name} has no input {sorted(unknown)}")
    ACTIONS[name](store, {**INPUTS[name], **given})


if __name__ == "__main__":
    _name, _store = sys.argv[1:]
    try:
        act(_name, Path(_store), json.loads(os.environ["GIVEN"]))
    except ActionFailedError as error:
        print(f"::error::{_name}: {error}")
        sys.exit(1)
