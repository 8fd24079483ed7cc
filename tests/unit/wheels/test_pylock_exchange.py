"""PEP 751 both ways: pip and uv install from our locks, and what they lock is read by preflight."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Index, serve_index, stand_in_wheel

from warpfront.errors import LockError
from warpfront.wheels.lock.pylock import dump_lock, read_lock
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.resolve.resolver import wheel_of
from warpfront.wheels.store.wheelhouse import sha256_of
from warpfront.wheels.uv_program import uv_binary
from warpfront_port.commands.project_files import read_files
from warpfront_port.preflight.declared import Kind

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]
PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check")
LOCKED = ["einops==0.8.1", "torch==2.13.0+cpu"]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "index"
    stand_in_wheel(folder, "torch", "2.13.0+cpu", files={"torch/__init__.py": ""})
    stand_in_wheel(folder, "einops", "0.8.1", requires=["torch"], files={"einops.py": ""})
    with serve_index(folder, name="simple") as served:
        yield served


def uv(*words: str) -> tuple[str, ...]:
    return (str(uv_binary()), *words)


def ran(argv: tuple[str, ...], folder: Path) -> None:
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.usefixtures("index")
def test_pip_and_uv_install_from_a_lock_of_ours(tmp_path: Path, installer: str) -> None:
    folder = tmp_path / "index"
    wheels = [wheel_of(path, sha256_of(path)) for path in sorted(folder.glob("*.whl"))]
    lock = WheelLock(cell_id="c", python="3.11", inputs_digest="0" * 64, wheels=tuple(wheels))
    (folder / "pylock.cell.toml").write_text(dump_lock(lock))
    to = ("--target", str(tmp_path / "site"), "-r", "pylock.cell.toml")
    argv = {
        "pip": (*PIP, "install", "--no-index", *to),
        "uv": uv("pip", "install", "--no-config", "--offline", "--no-index", *to),
    }
    ran(argv[installer], folder)
    installed = {path.name for path in (tmp_path / "site").glob("*.dist-info")}
    assert installed == {"einops-0.8.1.dist-info", "torch-2.13.0+cpu.dist-info"}


@pytest.mark.parametrize("locker", ["pip", "uv"])
def test_what_pip_and_uv_lock_is_read_by_preflight_and_is_no_lock_of_a_cell(
    index: Index, tmp_path: Path, locker: str
) -> None:
    (tmp_path / "r.txt").write_text("einops\n")
    argv = {
        "pip": (*PIP, "lock", "--index-url", index.url, "-r", "r.txt", "-o", "pylock.toml"),
        "uv": uv(
            *("pip", "compile", "--no-config", "--index-url", index.url),
            *("--format", "pylock.toml", "-o", "pylock.toml", "r.txt"),
        ),
    }
    ran(argv[locker], tmp_path)
    (file,) = read_files(tmp_path, (str(tmp_path / "pylock.toml"),))
    asked = [one.text for one in file.declared if one.kind is Kind.REQUIREMENT]
    assert sorted(asked) == LOCKED
    with pytest.raises(LockError, match=r"\[tool\.warpfront\]"):
        read_lock((tmp_path / "pylock.toml").read_text(), path="pylock.toml")
