"""All files of a change, or none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from warpfront_checks.guard.policy import GuardError
from warpfront_checks.guard.sealing import write_files


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_with_the_folders_they_need(tmp_path: Path) -> None:
    write_files({tmp_path / "a" / "b" / "x": "1", tmp_path / "y": "2"})
    assert tree(tmp_path) == ["a", "a/b", "a/b/x", "y"]
    assert (tmp_path / "a/b/x").read_text() == "1"


def test_everybody_may_read_what_is_written_whatever_the_umask(tmp_path: Path) -> None:
    """A user of the image imports torch too, and the watch reads these files then."""
    before = os.umask(0o077)
    try:
        write_files({tmp_path / "a" / "x": "", tmp_path / "p": ""}, programs=[tmp_path / "p"])
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "a/x", "p")] == [0o755, 0o644, 0o755]


def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """A pip.conf may hold a password."""
    (tmp_path / "pip.conf").write_text("old")
    (tmp_path / "pip.conf").chmod(0o600)
    write_files({tmp_path / "pip.conf": "new"})
    assert (tmp_path / "pip.conf").read_text() == "new"
    assert mode(tmp_path / "pip.conf") == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_files({tmp_path / "link": "new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_without_the_right_to_write_one_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so what the kernel would say is said by a stand-in."""
    locked = tmp_path / "locked"
    locked.mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != locked)
    with pytest.raises(GuardError, match=f"no right to write in {locked}: run this as root"):
        write_files({tmp_path / "a": "1", locked / "deep" / "b": "2"})
    assert tree(tmp_path) == ["locked"]


def test_a_failure_between_files_leaves_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(GuardError, match="file"):
        write_files({tmp_path / "a": "new", tmp_path / "file" / "b": "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert tree(tmp_path) == ["a", "b", "file"]


def test_ctrl_c_before_the_moves_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    real = Path.write_bytes

    def stop_at_the_second(path: Path, text: bytes) -> int:
        if written:
            real(path, text[:1])
            raise KeyboardInterrupt
        written.append(path)
        return real(path, text)

    monkeypatch.setattr(Path, "write_bytes", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "info" / "METADATA": "one", tmp_path / "b": "two"})
    assert tree(tmp_path) == []


def test_ctrl_c_between_the_moves_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace
    moved: list[Path] = []

    def stop_at_the_second(path: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        return real(path, target)

    (tmp_path / "b").write_text("old")
    monkeypatch.setattr(Path, "replace", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "a": "new", tmp_path / "b": "new"})
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "b").read_text() == "old"
    assert tree(tmp_path) == ["a", "b"]
