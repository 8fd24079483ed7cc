"""Archives of sources: the same bytes for the same files, and nothing that building leaves."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from warpfront.errors import CommandFailedError, LockError, StoreError
from warpfront.wheels.store.archives import archive_commit, archive_folder, folder_sha256, unpack
from warpfront.wheels.store.wheelhouse import sha256_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    (root / "lib").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "lib" / "__init__.py").write_text("answer = 42\n")
    return root


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()


def test_the_hash_of_a_folder_is_that_of_its_archive(folder: Path, tmp_path: Path) -> None:
    archive = archive_folder(folder, tmp_path / "lib.tar")
    assert folder_sha256(folder) == sha256_of(archive)
    assert names(archive) == ["lib/__init__.py", "pyproject.toml"]


def test_times_owners_and_left_overs_of_builds_do_not_count(folder: Path) -> None:
    before = folder_sha256(folder)
    os.utime(folder / "pyproject.toml", (1, 1))
    for name in ("build", "lib/__pycache__", "lib.egg-info", ".git"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("left over")
    assert folder_sha256(folder) == before


@pytest.mark.parametrize("change", ["text", "name", "mode", "link"])
def test_every_change_of_a_source_counts(folder: Path, change: str) -> None:
    before, file = folder_sha256(folder), folder / "lib" / "__init__.py"
    if change == "text":
        file.write_text("answer = 43\n")
    elif change == "name":
        file.rename(file.with_name("other.py"))
    elif change == "mode":
        file.chmod(0o755)
    else:
        (folder / "link").symlink_to("lib")
    assert folder_sha256(folder) != before


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere: no such folder"):
        folder_sha256(tmp_path / "nowhere")


def test_an_archive_comes_back_as_the_folder_it_was(folder: Path, tmp_path: Path) -> None:
    archive = archive_folder(folder, tmp_path / "lib.tar")
    back = unpack(archive, tmp_path / "back")
    assert folder_sha256(back) == folder_sha256(folder)


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    with tarfile.open(bad, "w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(LockError, match="not an archive of sources"):
        unpack(bad, tmp_path / "back")


@pytest.mark.process
def test_a_commit_is_archived_as_it_was_and_an_unknown_one_is_named(
    folder: Path, tmp_path: Path
) -> None:
    def git(*arguments: str) -> str:
        argv = ("git", "-c", "user.name=t", "-c", "user.email=t@e.test", *arguments)
        return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout

    wanted = folder_sha256(folder)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    commit = git("rev-parse", "HEAD").strip()
    (folder / "later.py").write_text("")
    archive = archive_commit(folder.as_uri(), commit, tmp_path / "lib.tar", subdirectory="")
    assert sha256_of(archive) == wanted
    unknown = "0" * 40
    with pytest.raises(CommandFailedError) as caught:
        archive_commit(folder.as_uri(), unknown, archive, subdirectory="")
    assert unknown in caught.value.hint


@pytest.mark.parametrize(
    "name", ["warpfront.wheels.store.archives", "warpfront_port.compile.toolchain"]
)
def test_archives_are_unpacked_by_the_backport_where_it_is_installed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for what is installed below Python 3.11.4, whose own tarfile has no filters."""
    backport = ModuleType("backports.tarfile")
    vars(backport).update(vars(tarfile))
    package = ModuleType("backports")
    monkeypatch.setattr(package, "tarfile", backport, raising=False)
    monkeypatch.setitem(sys.modules, "backports", package)
    monkeypatch.setitem(sys.modules, "backports.tarfile", backport)
    parent, _, leaf = name.rpartition(".")
    # Both places of the module are put back.
    monkeypatch.setattr(importlib.import_module(parent), leaf, importlib.import_module(name))
    monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module(name).tarfile is backport
