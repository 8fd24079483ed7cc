"""The file that `models --write` writes is Python that imports nothing of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from warpfront.errors import InputError
from warpfront.pipeline.beside.model_writing import write_model_test


def test_the_file_stands_alone_and_knows_its_architecture(tmp_path: Path) -> None:
    path = write_model_test("dbrx", tmp_path / "test_dbrx.py")
    text = path.read_text()
    tree = ast.parse(text)
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert not any(name.startswith("warpfront") for name in imported)
    assert "unittest.mock" not in imported
    assert "ARCHITECTURE = 'dbrx'" in text
    # What the data file has of it is written down.
    assert "CHANGED: Mapping[str, Any] = {'attn_config'" in text
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {
        "small_values",
        "feeds",
        "device_here",
        "test_device_map_auto_gives_the_same_answer",
    } <= (functions)
    assert len([name for name in functions if name.startswith("test_")]) == 6


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x", "x" * 80])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no name of an architecture"):
        write_model_test(name, tmp_path / "test_x.py")


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--write takes a file|No such file"):
        write_model_test("llama", tmp_path / "no" / "such" / "test.py")
