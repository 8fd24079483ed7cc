"""Results at rest: whole or absent, typed when read back, one run at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_check, a_lock, a_verification

from warpfront.errors import StoreError
from warpfront.images.built import BuiltImage
from warpfront.step_results import Blocked, Failed
from warpfront.system import foreign
from warpfront.system.store import (
    Store,
    exclusive,
    place_program,
    read_text,
    read_tree,
    try_lock,
    write_text,
)
from warpfront.system.tree_files import ImageFile, Unreadable
from warpfront.verify.results import Outcome, Verification
from warpfront.wheels.lock.values import WheelLock


@pytest.mark.parametrize(
    "value",
    [
        a_built_image(),
        a_lock(),
        a_verification(a_check(Outcome.UNAVAILABLE, details={"seen": ["none"], "count": 0})),
        Blocked(cell_id="c", step="lock", reason="why", hint="what next"),
        Failed(cell_id="c", step="build", reason="why", exit_code=6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_as_it_was_saved(tmp_path: Path, value: object) -> None:
    store = Store(tmp_path)
    store.save("cell", "step", value)
    kinds = (BuiltImage, WheelLock, Verification, Blocked, Failed)
    assert store.load("cell", "step", kinds) == value


def test_a_step_that_left_nothing_is_none(tmp_path: Path) -> None:
    assert Store(tmp_path).load("cell", "build", (BuiltImage,)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 99, "kind": "X"}'])
def test_a_foreign_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    write_text(tmp_path / "cell" / "build.json", text)
    with pytest.raises(StoreError, match=r"build\.json"):
        store.load("cell", "build", (BuiltImage,))


def test_a_value_of_another_kind_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save("cell", "build", a_lock())
    with pytest.raises(StoreError, match="not a result"):
        store.load("cell", "build", (BuiltImage,))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        write_text(path, "new")
    assert "free some space" in caught.value.hint
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]  # noqa: PTH208 - hidden files count


def test_a_context_is_replaced_as_a_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_context("cell", {"Dockerfile": a_file("1"), "app/old.py": a_file("1")})
    folder = store.write_context("cell", {"Dockerfile": a_file("2")})
    assert read_tree(folder) == {"Dockerfile": a_file("2")}
    assert [path.name for path in folder.parent.iterdir()] == ["context"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_context_takes_the_place_of_what_is_no_folder(kind: str, tmp_path: Path) -> None:
    store, aside = Store(tmp_path), tmp_path / "elsewhere"
    aside.mkdir()
    folder = store.cell_folder("cell") / "context"
    folder.parent.mkdir()
    if kind == "link":
        folder.symlink_to(aside)
    else:
        folder.write_text("no folder")
    store.write_context("cell", {"Dockerfile": a_file("1")})
    assert not folder.is_symlink()
    assert [path.name for path in folder.iterdir()] == ["Dockerfile"]
    assert [path.name for path in folder.parent.iterdir()] == ["context"]
    assert list(aside.iterdir()) == []


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="not UTF-8"):
        read_text(tmp_path / "x")


def a_file(text: str) -> ImageFile:
    return ImageFile(content=text.encode())


PICTURE = b"\x89PNG\r\n\x1a\n\0\xff"
TREE = {
    "torch/.hidden/file": ImageFile(content=b"1"),
    "torch/empty": ImageFile(),
    "torch/latin.txt": ImageFile(content="\xe9".encode("latin-1")),
    "torch/logo.png": ImageFile(content=PICTURE),
    "torch/run.sh": ImageFile(content=b"#!/bin/sh\n", executable=True),
    "torch/app/beside": ImageFile(link="../run.sh"),
    "torch/app/folder": ImageFile(link="../.hidden"),
    "torch/app/nowhere": ImageFile(link="not-yet"),
}


def write_tree(root: Path) -> None:
    for name, file in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(0o700 if file.executable else 0o600)


def test_a_tree_is_read_as_it_is(tmp_path: Path) -> None:
    write_tree(tmp_path)
    assert read_tree(tmp_path) == TREE


@pytest.mark.timeout(20)
def test_what_no_image_can_hold_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "torch" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("of another image")
    os.mkfifo(tmp_path / "torch" / "fifo")
    links = {
        "absolute": "/etc/passwd",
        "out": "../../outside",
        "sibling": "../other/file",
        "itself": "itself",
        "deep/up": "../..",
        "deep/own": "..",
        "deep/zigzag": "up/../other",
    }
    for name, target in links.items():
        (tmp_path / "torch" / name).symlink_to(target)
    (tmp_path / "mine").symlink_to("other")
    found = dict(read_tree(tmp_path))
    assert found.pop("other/file") == a_file("of another image")
    assert found.pop("torch/itself") == ImageFile(link="itself")  # goes round, and nowhere else
    assert found.pop("torch/fifo") == Unreadable(reason="a FIFO, not a regular file")
    assert set(found) == {"mine", *(f"torch/{name}" for name in links if name != "itself")}
    for name, refused in found.items():
        assert isinstance(refused, Unreadable), name
        assert "a link that leads out of its folder, to " in refused.reason


def test_no_file_below_a_tree_can_break_off_its_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "large").touch()
    os.truncate(tmp_path / "torch" / "large", 3 * 2**30)
    Path(os.fsdecode(bytes(tmp_path / "torch") + b"/n\xe4me")).write_text("1")
    closed, real = tmp_path / "torch" / "closed", os.open
    closed.write_text("1")

    def refuse(path: Any, *arguments: int) -> int:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments)

    monkeypatch.setattr("os.open", refuse)
    assert read_tree(tmp_path) == {
        "torch/closed": Unreadable(reason="Permission denied"),
        "torch/large": Unreadable(reason="larger than 2048 MiB"),
        "torch/n\N{REPLACEMENT CHARACTER}me": a_file("1"),
    }


def test_what_says_that_it_is_too_large_is_not_read_and_what_says_less_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="larger than"):
        foreign.read_regular(Path("/proc/self/status"), 10)  # which says that it has no bytes
    (tmp_path / "large").write_bytes(b"x" * 11)
    monkeypatch.setattr(foreign, "first_bytes", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(StoreError, match="larger than"):
        foreign.read_regular(tmp_path / "large", 10)


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o000, 0o777 & ~0o700])
def test_a_context_has_the_modes_of_its_files_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = Store(tmp_path).write_context("cell", TREE)
    finally:
        os.umask(before)
    assert read_tree(folder) == TREE
    modes = {path: path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir() and not path.is_symlink()} == {
        0o755
    }
    assert modes[folder / "torch" / "run.sh"] == 0o755
    assert modes[folder / "torch" / "logo.png"] == 0o644
    assert modes[folder / "torch" / ".hidden" / "file"] == 0o644


def test_a_program_is_placed_once(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder = place_program(program, tmp_path / "tools")
    first = (folder / "tool").stat().st_ino
    assert (place_program(program, folder) / "tool").stat().st_ino == first
    assert os.access(folder / "tool", os.X_OK)


HOLDER = """
import pathlib, sys
from warpfront.system.store import exclusive
with exclusive(pathlib.Path(sys.argv[1]), print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_a_second_run_waits_and_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with subprocess.Popen(
        (sys.executable, "-c", HOLDER, str(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def on_wait(text: str) -> None:
            said.append(text)
            assert holder.stdin is not None
            holder.stdin.close()

        with exclusive(tmp_path, on_wait):
            pass
    assert f"process {holder.pid}" in said[0]


def test_two_lock_files_of_a_folder_do_not_wait_for_each_other(tmp_path: Path) -> None:
    said: list[str] = []
    with exclusive(tmp_path, said.append, name=".a.lock"):
        with exclusive(tmp_path, said.append, name=".b.lock"):
            pass
        with (tmp_path / ".a.lock").open("r+") as again:
            assert not try_lock(again.fileno())
    assert said == []


def test_saved_documents_carry_a_schema(tmp_path: Path) -> None:
    path = Store(tmp_path).save("cell", "lock", a_lock())
    assert json.loads(path.read_text())["schema"] == 1
