"""Trees that nobody would make on purpose: read what is text, say why the rest is not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from warpfront.errors import StoreError
from warpfront.system import trees
from warpfront.system.tree_files import UnreadFile
from warpfront.system.trees import TreeFile, list_tree, read_text


def paths(root: Path, **options: object) -> list[str]:
    return [file.path for file in list_tree(root, **options).files]  # type: ignore[arg-type]


def text_of(root: Path, name: str) -> str | UnreadFile:
    return read_text(root, TreeFile(path=name, size_bytes=0))


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a.py", "a/b/c.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    assert paths(tmp_path) == ["a.py", "a/b/c.py", "a/z.py", "b.py"]


def test_links_are_not_followed_whatever_they_lead_to(tmp_path: Path) -> None:
    inside = tmp_path / "tree"
    inside.mkdir()
    (tmp_path / "secret.py").write_text("import pynvml\n")
    (inside / "loop").symlink_to(inside)
    (inside / "up").symlink_to(tmp_path)
    (inside / "file.py").symlink_to(tmp_path / "secret.py")
    (inside / "dangling.py").symlink_to("nowhere")
    assert paths(inside) == []


def test_a_link_that_appears_after_the_listing_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "now.py").symlink_to(tmp_path / "secret")
    assert isinstance(text_of(tmp_path, "now.py"), UnreadFile)


def test_a_fifo_and_a_socket_hold_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.py")
        tree = list_tree(tmp_path)
    assert tree.files == ()
    assert [item.reason for item in tree.unread] == ["not a regular file"] * 2
    assert text_of(tmp_path, "pipe.py") == UnreadFile(path="pipe.py", reason="not a regular file")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x7fELF\0\0", "binary"),
        (b"x = 1\n" * 400_000, "larger than 2 MiB"),
        (b"x=1;" * 6_000, "a line of more than 20000 characters"),
    ],
    ids=["binary", "large", "minified"],
)
def test_what_is_no_source_is_said_to_be_none(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "x.cu").write_bytes(content)
    assert text_of(tmp_path, "x.cu") == UnreadFile(path="x.cu", reason=reason)


@pytest.mark.parametrize("element", [b"0x2f,", b"12.5f,\n"], ids=["a line", "lines"])
def test_the_numbers_of_a_large_array_are_left_out(tmp_path: Path, element: bytes) -> None:
    (tmp_path / "x.h").write_bytes(b"static int x[] = {" + element * 600_000 + b"};\nint y;\n")
    text = text_of(tmp_path, "x.h")
    assert isinstance(text, str)
    lines = text.split("\n")
    assert (lines[0][:18], lines[-2]) == ("static int x[] = {", "int y;")
    assert len(lines) == (600_003 if element.endswith(b"\n") else 3)


def test_python_is_read_whatever_the_length_of_its_lines(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"x=1;" * 6_000)
    assert text_of(tmp_path, "x.py") == "x=1;" * 6_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# caf\xe9\nx = 1\n", "# caf\xe9\nx = 1\n"),
        (b"# -*- coding: latin-1 -*-\ny = '\xe9'\n", "# -*- coding: latin-1 -*-\ny = '\xe9'\n"),
        (b"# -*- coding: no-such -*-\nx = 1\n", "# -*- coding: no-such -*-\nx = 1\n"),
        ("x = 1\n".encode("utf-16"), "x = 1\n"),
    ],
    ids=["mark", "latin-1", "declared", "unknown", "utf-16"],
)
def test_text_is_read_whatever_its_encoding(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x.py").write_bytes(content)
    assert text_of(tmp_path, "x.py") == text


def test_depth_is_bounded(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(trees.DEPTH_LIMIT + 3):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x.py").write_text("x\n")
    tree = list_tree(tmp_path)
    assert tree.files == ()
    assert tree.unread[0].reason == f"deeper than {trees.DEPTH_LIMIT} folders"


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FILE_LIMIT", 3)
    for number in range(5):
        (tmp_path / f"{number}.py").write_text("x\n")
    tree = list_tree(tmp_path)
    assert len(tree.files) == 3
    assert tree.unread[0].reason.startswith("more than 3 files")


def test_third_parties_and_submodules_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    for name in ("third_party/a.py", "lib/flash/b.py", "sub/c.py", "own.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (tmp_path / ".gitmodules").write_text('[submodule "f"]\n\tpath = lib/flash\n\turl = u\n')
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")
    tree = list_tree(tmp_path)
    assert [file.path for file in tree.files] == [".gitmodules", "own.py"]
    assert {item.path: item.reason for item in tree.unread} == {
        "third_party/": "third party",
        "lib/flash/": "submodule",
        "sub/": "submodule",
    }
    assert "lib/flash/b.py" in paths(tmp_path, vendored=True)


def test_environments_and_caches_are_no_part_of_a_tree(tmp_path: Path) -> None:
    for name in (".venv/lib/x.py", "node_modules/y.py", ".git/z.py", "__pycache__/w.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("x\n")
    assert paths(tmp_path) == []


def test_folders_that_git_ignores_are_no_source(tmp_path: Path) -> None:
    for name in (
        "build/a.py",
        "x/build/b.py",
        "x/dist/c.py",
        "logs/d.py",
        "kept/e.py",
        "*.py/f.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (tmp_path / ".gitignore").write_text("# x\n/build/\ndist\nlogs/\n*.py\nkept/\n!kept/\n")
    tree = list_tree(tmp_path)
    assert [file.path for file in tree.files] == [
        "*.py/f.py",
        ".gitignore",
        "kept/e.py",
        "x/build/b.py",
    ]
    assert {item.path for item in tree.unread} == {"build/", "x/dist/", "logs/"}


def test_excluded_paths_are_left_out(tmp_path: Path) -> None:
    for name in ("docs/conf.py", "src/a.py", "src/gen_b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    assert paths(tmp_path, exclude=("docs", "src/gen_*")) == ["src/a.py"]


def test_a_tree_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no folder"):
        list_tree(tmp_path / "missing")
