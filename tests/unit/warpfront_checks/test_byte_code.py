"""Byte code for one run's Pythons, where an installed torch has none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpfront_checks.parallel_sessions import shared_byte_code

PACKAGE = "not_torch"
WORD = f"import {PACKAGE}; print({PACKAGE}.part.WORD)"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path, this Python's and its children's, of a Python that writes nothing."""
    site = tmp_path / "site"
    (site / PACKAGE).mkdir(parents=True)
    (site / PACKAGE / "__init__.py").write_text("import not_torch.part\n")
    (site / PACKAGE / "part.py").write_text("WORD = 'soon'\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    return site


@pytest.mark.process
def test_what_one_python_compiles_the_next_ones_read_and_nothing_is_left(site: Path) -> None:
    with shared_byte_code(PACKAGE):
        folder = Path(str(sys.pycache_prefix))
        subprocess.run([sys.executable, "-c", f"import {PACKAGE}"], check=True)
        written = {path.name.partition(".")[0]: path for path in folder.rglob("*.pyc")}
        assert {"__init__", "part"} <= written.keys()
        # Whoever reads it there does not see what the source says by now: as old, as long.
        part = site / PACKAGE / "part.py"
        age = part.stat().st_mtime_ns
        part.write_text("WORD = 'late'\n")
        os.utime(part, ns=(age, age))
        said = subprocess.run([sys.executable, "-c", WORD], check=True, capture_output=True)
        assert said.stdout == b"soon\n"
    assert not folder.exists()
    assert not list(site.rglob("__pycache__"))


@pytest.mark.parametrize("escaping", [None, ValueError])
def test_afterwards_all_is_as_it_was(site: Path, escaping: type[Exception] | None) -> None:
    assert site.is_dir()
    before = dict(os.environ), sys.dont_write_bytecode, sys.pycache_prefix
    with contextlib.nullcontext() if escaping is None else pytest.raises(escaping):
        _compile_as_the_run_does(escaping)
    assert (dict(os.environ), sys.dont_write_bytecode, sys.pycache_prefix) == before


def _compile_as_the_run_does(escaping: type[Exception] | None) -> None:
    with shared_byte_code(PACKAGE):
        assert "PYTHONDONTWRITEBYTECODE" not in os.environ
        assert not sys.dont_write_bytecode
        if escaping is not None:
            raise escaping


@pytest.mark.parametrize("why", ["has byte code", "gets byte code", "is not there"])
def test_who_needs_none_is_left_alone(
    site: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    name = "no_package_of_that_name" if why == "is not there" else PACKAGE
    if why == "has byte code":
        cached = site / PACKAGE / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
        cached.parent.mkdir()
        cached.touch()
    if why == "gets byte code":
        monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = dict(os.environ)
    with shared_byte_code(name):
        assert dict(os.environ) == before
        assert sys.pycache_prefix is None
