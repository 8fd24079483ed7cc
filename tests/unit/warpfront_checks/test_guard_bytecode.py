"""Byte code that is not its source's is found; all other byte code is left alone."""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
from pathlib import Path

import pytest
from guarded import cpu_policy, findings, install_cpu_stack, places_below

from warpfront_checks.guard.places import Places
from warpfront_checks.guard.sealing import seal

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Sealed with byte code, as images are."""
    places = places_below(tmp_path)
    install_cpu_stack(places.site_packages)
    for source in places.site_packages.rglob("*.py"):
        py_compile.compile(str(source), doraise=True)
    seal(cpu_policy(), places, python="python3")
    return places


def version_py(places: Places) -> Path:
    return places.site_packages / "torch" / "version.py"


def compile_other(places: Places, text: str) -> None:
    """Byte code of `text` where Python looks for that of torch/version.py, never to be checked."""
    other = places.home / "other.py"
    other.write_text(text)
    target = importlib.util.cache_from_source(str(version_py(places)))
    py_compile.compile(str(other), cfile=target, invalidation_mode=UNCHECKED, doraise=True)


def test_byte_code_as_sealed_is_no_finding(places: Places) -> None:
    assert findings(places) == []


def test_byte_code_of_another_source_is_found(places: Places) -> None:
    compile_other(places, "__version__ = '2.15.0'\n")
    [line] = findings(places)
    assert line.startswith("file: torch/__pycache__/version.")
    assert line.endswith("byte code of another source")


def test_damaged_byte_code_is_found(places: Places) -> None:
    target = Path(importlib.util.cache_from_source(str(version_py(places))))
    target.write_bytes(target.read_bytes()[:-4])
    assert [line for line in findings(places) if "byte code" in line]


def test_byte_code_made_again_of_the_sealed_source_is_no_finding(places: Places) -> None:
    py_compile.compile(str(version_py(places)), invalidation_mode=UNCHECKED, doraise=True)
    assert findings(places) == []


def test_byte_code_that_was_made_after_sealing_is_no_finding(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    install_cpu_stack(places.site_packages)
    seal(cpu_policy(), places, python="python3")
    py_compile.compile(str(version_py(places)), doraise=True)
    assert findings(places) == []


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_without_its_record_all_byte_code_is_held_against_its_source(
    places: Places, text: str | None
) -> None:
    places.bytecode.unlink()
    if text is not None:
        places.bytecode.write_text(text)
    assert findings(places) == []
    compile_other(places, "__version__ = '2.15.0'\n")
    assert [line for line in findings(places) if "byte code of another source" in line]


def test_no_byte_code_is_no_finding(places: Places) -> None:
    shutil.rmtree(places.site_packages / "torch" / "__pycache__")
    assert findings(places) == []
