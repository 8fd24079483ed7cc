"""The interpreter that a stack was sealed for is told from another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from warpfront_checks.guard import interpreter
from warpfront_checks.guard.interpreter import interpreter_facts, interpreter_problems
from warpfront_checks.guard.places import Places

ELF = b"\x7fELF an interpreter"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """An environment whose names lead to one file, as `python -m venv` makes it."""
    real = tmp_path / "usr" / "python3.11"
    real.parent.mkdir()
    real.write_bytes(ELF)
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(real)
    (folder / "python3").symlink_to("python")
    (folder / "python3-config").write_text("")
    (folder.parent / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    return Places(
        home=tmp_path / "home",
        site_packages=folder.parent / "lib" / "python3.11" / "site-packages",
    )


@pytest.fixture
def sealed(places: Places) -> dict[str, Any]:
    return interpreter_facts(places.interpreters)


def problems(sealed: dict[str, Any], since: int = 0) -> list[str]:
    return [f"{Path(path).name}: {what}" for path, what in interpreter_problems(sealed, since)]


def test_the_sealed_interpreter_is_no_finding(sealed: dict[str, Any]) -> None:
    assert problems(sealed) == []
    assert set(sealed["names"]) == {"python", "python3"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("script", "python3: another interpreter: no program; sealed was a link to python"),
        ("program", "python3: another interpreter: a program; sealed was a link to python"),
        ("link", "python3: another interpreter: a link to /bin/sh; sealed was a link to python"),
        ("gone", "python3: another interpreter: nothing; sealed was a link to python"),
    ],
)
def test_another_program_by_its_name_is_found(
    places: Places, sealed: dict[str, Any], fault: str, said: str
) -> None:
    python = places.interpreters / "python3"
    python.unlink()
    if fault == "link":
        python.symlink_to("/bin/sh")
    elif fault != "gone":
        python.write_bytes(ELF if fault == "program" else b"#!/bin/sh\n")
    assert problems(sealed) == [said]


def test_another_home_is_found(places: Places, sealed: dict[str, Any]) -> None:
    (places.interpreters.parent / "pyvenv.cfg").write_text("home = /opt/other/bin\n")
    assert problems(sealed) == ["pyvenv.cfg: its home is /opt/other/bin; sealed was /usr/bin"]


def test_other_bytes_are_found_and_an_update_of_its_package_is_not(
    places: Places, sealed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "info"
    packages.mkdir()
    monkeypatch.setattr(interpreter, "_PACKAGES", packages)
    real = Path(os.path.realpath(places.interpreters / "python3"))
    real.write_bytes(ELF[::-1])  # of the same size
    [found] = problems(sealed)
    assert found.startswith("python3.11: another interpreter: not the file that was sealed")
    digest = hashlib.md5(real.read_bytes(), usedforsecurity=False).hexdigest()
    listed = packages / "python3.11-minimal.md5sums"
    listed.write_text(f"{digest}  {str(real).lstrip('/')}\n")
    assert problems(sealed) == []


def test_bytes_are_read_where_the_file_is_newer_than_the_seal(
    places: Places, sealed: dict[str, Any]
) -> None:
    real = Path(os.path.realpath(places.interpreters / "python3"))
    since = real.stat().st_ctime_ns
    assert problems(sealed, since) == []
    assert problems(sealed, since + 1) == []
