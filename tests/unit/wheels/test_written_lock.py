"""The quick reader of locks as they are written: for every text what the strict reader makes of it,
and without TOML for ours.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import a_lock, a_wheel

from warpfront.errors import LockError
from warpfront.images.cell_locks import LockTools, lock_cells
from warpfront.matrix.cell import Recipe
from warpfront.matrix.scaffold import make_project
from warpfront.pipeline import open_workspace
from warpfront.step_results import Failed
from warpfront.wheels.lock import pylock as locks
from warpfront.wheels.lock import reading as states
from warpfront.wheels.lock.pylock import dump_lock, lock_inputs, read_lock, read_written_lock
from warpfront.wheels.lock.state import NEVER_BUILT
from warpfront.wheels.lock.values import RelaxedPackage, WheelLock

NAME = "pylock.cell.toml"
COMMITTED = sorted((Path(__file__).parents[3] / "images" / "locks").glob("pylock.*.toml"))
LOCK = a_lock(None, a_wheel("numpy", "2.4.6"))
TEXT = dump_lock(LOCK)
OTHERS = {
    "a relaxed package": dataclasses.replace(
        LOCK, relaxed=(RelaxedPackage(package="a", version="1", reason="b", unmet=("c>1",)),)
    ),
    "a build": dataclasses.replace(LOCK, builds=(Recipe(package="a", tools=("b==1",)),)),
    "a source": a_lock(
        None,
        a_wheel(
            "numpy",
            "2.4.6",
            index="",
            source="git+https://x",
            sdist="n.tar.gz",
            sdist_sha256="a" * 64,
        ),
    ),
    "an sdist": a_lock(
        None, a_wheel("rocm", "7.0", sdist="rocm-7.0.tar.gz", sdist_sha256="a" * 64)
    ),
    "no wheel": dataclasses.replace(LOCK, wheels=()),
}
# What a careless hand, a merge or a bad disk puts into a file.
BYTES = ("", "x", "0", '"', "\\", "/", "\r\n")


def made_of(text: str) -> WheelLock | str:
    return outcome(read_lock, text)


def outcome(read: object, text: str) -> WheelLock | str:
    assert callable(read)
    try:
        lock = read(text, path=NAME)
    except LockError as error:
        return error.message
    assert isinstance(lock, WheelLock)
    return lock


def edited(text: str) -> Iterator[str]:
    """Every text that is one edit away: a byte changed, gone or put in; a line gone or doubled."""
    for at in range(len(text)):
        yield from (text[:at] + one + text[at + 1 :] for one in BYTES)
        yield from (text[:at] + one + text[at:] for one in ("\n", "0"))
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        yield "".join(lines[:at] + lines[at + 1 :])
        yield "".join([*lines[:at], line, *lines[at:]])


def test_after_any_edit_both_readers_say_the_same(request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--exhaustive") else 5  # of nine a place: all come round
    for text in itertools.islice(edited(TEXT), 0, None, every):
        assert outcome(read_written_lock, text) == made_of(text), text


def without_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> None:
        raise AssertionError("it was read as TOML")

    monkeypatch.setattr(tomllib, "loads", refuse)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_locks_are_read_the_same_by_both(path: Path) -> None:
    text = path.read_text()
    assert read_written_lock(text, path=path.name) == read_lock(text, path=path.name)


def test_a_lock_of_wheels_is_read_without_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    without_toml(monkeypatch)
    assert read_written_lock(TEXT, path=NAME) == LOCK


@pytest.mark.parametrize("lock", OTHERS.values(), ids=OTHERS)
def test_a_lock_of_more_than_wheels_is_left_to_the_strict_reader(
    lock: WheelLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_written_lock(dump_lock(lock), path=NAME) == lock
    without_toml(monkeypatch)
    if lock.wheels:
        with pytest.raises(AssertionError, match="read as TOML"):
            read_written_lock(dump_lock(lock), path=NAME)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(LockError, match="not a name for a lock"):
        read_written_lock(TEXT, path="a.lock")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"",
        b"[",
        b"a = " + b"9" * 5000,
        b"a = " + b"[" * 5000,
        b"a.b.c = " + b"{a=" * 2000,
        TEXT.encode()[:-200],
        None,
    ],
    ids=["no text", "empty", "no TOML", "digits", "deep", "deep tables", "cut short", "a FIFO"],
)
def test_a_lock_that_nobody_can_read_blocks_its_own_cell_alone(
    tmp_path: Path, content: bytes | None
) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    after = dataclasses.replace(cell, id="next")
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    found = states.read_locks([cell, after], {}, workspace.folders)
    assert found[cell.id].lock is None
    assert found[cell.id].reason.startswith("unreadable: ")
    assert found[after.id].reason == NEVER_BUILT


def test_a_lock_edited_by_one_byte_is_seen_by_the_plan_and_by_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    assert cell.index
    inputs = lock_inputs(cell, None, None)
    wheels = (
        *(a_wheel(pin.name, pin.version, index=cell.index.url) for pin in cell.stack),
        a_wheel("numpy"),
        a_wheel("pip"),
    )
    lock = dataclasses.replace(a_lock(cell, *wheels), inputs_digest=inputs.digest)
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    path.write_text(dump_lock(lock))
    with monkeypatch.context() as patched:
        without_toml(patched)
        assert states.read_locks([cell], {}, workspace.folders)[cell.id].reason == ""
    wrong = ("0" if inputs.digest[0] != "0" else "1") + inputs.digest[1:]
    path.write_text(dump_lock(lock).replace(inputs.digest, wrong))
    assert "its inputs changed" in states.read_locks([cell], {}, workspace.folders)[cell.id].reason
    path.write_text(dump_lock(lock).replace(a_wheel("pip").sha256, "g" * 64))
    state = states.read_locks([cell], {}, workspace.folders)[cell.id]
    assert (state.lock, state.reason.startswith("unreadable: ")) == (None, True)
    monkeypatch.setattr(states, "read_written_lock", locks.dump_lock)
    every = lock_cells(
        [cell],
        {},
        LockTools(folders=workspace.folders, builder_of=None, site=None),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
    )
    (found,) = every.values()
    assert isinstance(found, Failed)
    assert found.exit_code == LockError.exit_code
