"""The file that `models --write` writes is Python that imports nothing of ours."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from warpfront.commands import model_writing
from warpfront.commands.model_writing import write_model_test
from warpfront.errors import InputError
from warpfront_checks.architectures.roster import Architecture


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


def test_an_architecture_that_no_release_has_writes_nothing(tmp_path: Path) -> None:
    test = tmp_path / "test_x.py"
    with pytest.raises(InputError, match="'nosuch' is no model_type of transformers") as caught:
        write_model_test("nosuch", test)
    assert "--allow-undetermined" in caught.value.hint
    with pytest.raises(InputError) as near:
        write_model_test("lama", test)
    assert near.value.hint.startswith("did you mean `llama`?")
    assert not test.exists()
    assert write_model_test("nosuch", test, allow_undetermined=True) == test


def test_the_installed_librarys_own_tables_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (Architecture(name="ours", kind="causal", model="Ours"),)
    monkeypatch.setattr(model_writing, "architectures", lambda: own)
    monkeypatch.setattr(model_writing, "library_version", lambda: "9.0")
    assert model_writing.model_types() == (frozenset({"ours"}), "transformers 9.0")


@pytest.mark.timeout(20)
def test_only_what_was_written_here_is_written_over(tmp_path: Path) -> None:
    test = tmp_path / "test_llama.py"
    write_model_test("dbrx", test)
    assert "ARCHITECTURE = 'llama'" in write_model_test("llama", test).read_text()
    for name, make in (
        ("matrix.py", lambda path: path.write_text("ours\n")),
        ("fifo.py", os.mkfifo),
        ("folder.py", Path.mkdir),
        ("link.py", lambda path: path.symlink_to(test)),
        ("away.py", lambda path: path.symlink_to(tmp_path / "nowhere.py")),
    ):
        make(tmp_path / name)
        with pytest.raises(InputError, match=r"is there already|not a regular file"):
            write_model_test("qwen3", tmp_path / name)
    assert (tmp_path / "matrix.py").read_text() == "ours\n"
    assert "'llama'" in test.read_text()
    assert not (tmp_path / "nowhere.py").exists()


def test_a_file_s_name_is_no_code_in_it(tmp_path: Path) -> None:
    for name in ('x"""\nimport os.py', "{architecture}.py", "notes.txt", ".py", "a\\b.py"):
        with pytest.raises(InputError, match="no name of a test"):
            write_model_test("llama", tmp_path / name)


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        write_model_test("llama", tmp_path / "no" / "such" / "test.py")
