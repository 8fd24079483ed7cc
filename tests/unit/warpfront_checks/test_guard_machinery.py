"""The import system is told from a changed one, whatever part of it was changed."""

from __future__ import annotations

import builtins
import importlib
import marshal
import subprocess
import sys
from importlib import machinery
from importlib.abc import Loader
from typing import Any

import pytest

from warpfront_checks.guard.machinery import machinery_problems, replaced_builtins

EXTERNAL: Any = sys.modules["_frozen_importlib_external"]
CORE: Any = sys.modules["_frozen_importlib"]


def _place_of(owner: Any) -> str:
    """Return the expression that gives a module or class of the import system."""
    module = getattr(owner, "__module__", owner.__name__).rpartition("importlib.")[2]
    place = f"sys.modules['_frozen_importlib{'_external' if 'external' in module else ''}']"
    return f"{place}.{owner.__name__}" if isinstance(owner, type) else place


def anything(*_: Any, **__: Any) -> None:
    """A function of another's."""


def test_this_interpreters_own_is_no_finding() -> None:
    assert issubclass(machinery.SourceFileLoader, Loader)  # registered, which changes no class
    assert (list(machinery_problems()), replaced_builtins()) == ([], [])


@pytest.mark.process
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (machinery.SourceFileLoader, "get_data"),
        (machinery.SourceFileLoader, "path_stats"),
        (machinery.FileFinder, "_get_spec"),
        (machinery.ExtensionFileLoader, "create_module"),
        (machinery.ModuleSpec, "cached"),
        (EXTERNAL.SourceLoader, "get_code"),
        (EXTERNAL._LoaderBasics, "exec_module"),
        (EXTERNAL, "_path_stat"),
        (EXTERNAL, "_classify_pyc"),
        (CORE, "_find_spec"),
        (CORE, "_handle_fromlist"),
    ],
)
def test_a_changed_part_is_named(owner: Any, name: str) -> None:
    """In a process of its own: the threads of a test runner import while a part is changed."""
    changing = f"""
import importlib.machinery, sys
from warpfront_checks.guard.machinery import machinery_problems
def anything(*_, **__): ...
owner = {_place_of(owner)}
own = getattr(owner, {name!r})
setattr(owner, {name!r}, anything)
found = list(machinery_problems())
setattr(owner, {name!r}, own)
print(*[one.rpartition(".")[2] for one in found])
"""
    ended = subprocess.run(
        [sys.executable, "-c", changing], capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == (f"{name}\n", "")


@pytest.mark.parametrize("name", ["get_code", "__getattribute__", "exec_module"])
def test_a_method_more_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(machinery.SourceFileLoader, name, anything, raising=False)
    found = list(machinery_problems())
    monkeypatch.undo()
    assert found == [f"_frozen_importlib_external.SourceFileLoader.{name}"]


def test_suffixes_of_anothers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXTERNAL, "SOURCE_SUFFIXES", [".py", ".evil"])
    found = list(machinery_problems())
    assert "_frozen_importlib_external.SOURCE_SUFFIXES" in found


def test_caches_that_were_invalidated_are_no_finding() -> None:
    before = EXTERNAL._NamespacePath._epoch
    importlib.invalidate_caches()
    assert EXTERNAL._NamespacePath._epoch > before
    assert list(machinery_problems()) == []


def test_a_python_function_among_those_in_c_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marshal, "loads", anything)
    assert list(machinery_problems()) == ["marshal.loads"]


def test_a_finder_with_a_method_of_its_own_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    finder = machinery.FileFinder(str(tmp_path), *EXTERNAL._get_supported_file_loaders())
    monkeypatch.setitem(sys.path_importer_cache, str(tmp_path), finder)
    assert list(machinery_problems()) == []
    finder.find_spec = anything  # type: ignore[method-assign]
    assert list(machinery_problems()) == [f"sys.path_importer_cache[{str(tmp_path)!r}]"]


def test_an_import_of_anothers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def mine(*arguments: Any, **named: Any) -> Any:
        return real(*arguments, **named)

    monkeypatch.setattr(builtins, "__import__", mine)
    found = replaced_builtins()
    monkeypatch.undo()
    assert found == ["builtins.__import__"]
