"""Patches of other people's packages: what applies is a wheel of its own; everything else is a
sentence that says why not.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from builders import a_cell
from standins import serve_index, stand_in_wheel

from warpfront.errors import LockError, WheelError
from warpfront.images.engine.protocol import Engine
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import Cell, WheelIndex
from warpfront.matrix.language import Patch
from warpfront.system.store import Store
from warpfront.wheels.lock.pylock import dump_lock, read_lock, staleness
from warpfront.wheels.lock.reading import inputs_of
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site
from warpfront.wheels.store.patching import LARGEST_BYTES, Patching, PatchTool, patched_wheel
from warpfront.wheels.store.unpacked import read_unpacked
from warpfront.wheels.store.wheelhouse import read_wheel_metadata

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]

ADAPTER = "".join(f"line {number}\n" for number in range(1, 12)).replace(
    "line 6\n", "device = 'cuda'\n"
)
PORTED = ADAPTER.replace("'cuda'", "'hpu'")


def diff(before: str, after: str, path: str = "pkg/adapter.py", *, prefix: bool = True) -> str:
    """A patch as git writes them."""
    names = (f"a/{path}", f"b/{path}") if prefix else (path, path)
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, *names))


@dataclass
class Tree:
    """A package's files, and a patch for them."""

    root: Path

    def apply(self, patch: str | bytes, strip: int = 1) -> tuple[str, ...]:
        file = self.root.parent / "change.patch"
        file.write_bytes(patch if isinstance(patch, bytes) else patch.encode())
        tool = PatchTool(tree=self.root, patch=file, name="change.patch", strip=strip)
        return tool.apply()

    def refusal(self, patch: str | bytes, strip: int = 1) -> str:
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        with pytest.raises(LockError) as caught:
            self.apply(patch, strip)
        after = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        assert before == after
        assert caught.value.message.startswith("change.patch: ")
        assert caught.value.hint
        return caught.value.message.removeprefix("change.patch: ")

    def text(self, name: str = "pkg/adapter.py") -> str:
        return (self.root / name).read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "tree"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/adapter.py").write_text(ADAPTER)
    (root / "pkg/other.py").write_text("a\nb\nc\n")
    return Tree(root)


def test_a_patch_that_fits_is_applied_also_where_lines_have_moved(tree: Tree) -> None:
    moved = "new first line\n" * 5 + ADAPTER
    (tree.root / "pkg/adapter.py").write_text(moved)
    new = diff("", "made = 1\n", "pkg/made.py").replace("--- a/pkg/made.py", "--- /dev/null")
    gone = diff("a\nb\nc\n", "", "pkg/other.py").replace("+++ b/pkg/other.py", "+++ /dev/null")
    said = "From 0 Mon Sep 17\nSubject: [PATCH] hpu\n\nWords of its author.\n---\n"
    touched = tree.apply(said + diff(ADAPTER, PORTED) + new + gone)
    assert touched == ("pkg/adapter.py", "pkg/made.py", "pkg/other.py")
    assert tree.text() == moved.replace("'cuda'", "'hpu'")
    assert tree.text("pkg/made.py") == "made = 1\n"
    assert not (tree.root / "pkg/other.py").exists()


def test_paths_of_a_repository_may_have_folders_that_a_wheel_has_not(tree: Tree) -> None:
    patch = diff(ADAPTER, PORTED, "src/pkg/adapter.py")
    assert "src/pkg/adapter.py: No such file or directory" in tree.refusal(patch)
    assert tree.apply(patch, strip=2) == ("pkg/adapter.py",)
    (tree.root / "pkg/adapter.py").write_text(ADAPTER)
    bare = diff(ADAPTER, PORTED, prefix=False)
    assert tree.apply(bare, strip=0) == ("pkg/adapter.py",)


def test_lines_around_that_differ_are_refused_and_not_guessed(tree: Tree) -> None:
    (tree.root / "pkg/adapter.py").write_text(ADAPTER.replace("line 3\n", "line three\n"))
    assert tree.refusal(diff(ADAPTER, PORTED)).startswith("does not apply")


def test_a_patch_that_is_in_the_package_already_says_so(tree: Tree) -> None:
    (tree.root / "pkg/adapter.py").write_text(PORTED)
    said = tree.refusal(diff(ADAPTER, PORTED))
    assert said == "the package has it already"


def test_a_patch_that_fits_in_part_changes_nothing_and_names_the_parts(tree: Tree) -> None:
    tests = diff("x\n", "y\n", "tests/test_adapter.py")
    other = diff("a\nB\nc\n", "a\nd\nc\n", "pkg/other.py")
    said = tree.refusal(diff(ADAPTER, PORTED) + tests + other)
    assert said.startswith("does not apply, so nothing of it was applied")
    assert "pkg/adapter.py" not in said
    assert "tests/test_adapter.py: No such file or directory" in said
    assert "pkg/other.py: patch does not apply" in said


def test_line_ends_are_named_whichever_side_has_them(tree: Tree) -> None:
    (tree.root / "pkg/adapter.py").write_bytes(ADAPTER.replace("\n", "\r\n").encode())
    assert tree.refusal(diff(ADAPTER, PORTED)).startswith("does not apply")
    of_dos = diff(ADAPTER, PORTED).replace("\n", "\r\n")
    assert tree.refusal(of_dos).startswith("has CRLF line ends: it was saved on the way")
    made_of_it = diff(ADAPTER.replace("\n", "\r\n"), PORTED.replace("\n", "\r\n"))
    tree.apply(made_of_it.replace("adapter.py\r\n", "adapter.py\n"))
    assert (tree.root / "pkg/adapter.py").read_bytes() == PORTED.replace("\n", "\r\n").encode()


LINK = (
    "diff --git a/pkg/l b/pkg/l\nnew file mode 120000\n--- /dev/null\n+++ b/pkg/l\n@@ -0,0 +1 @@\n"
)
RENAME = (
    "diff --git a/pkg/other.py b/pkg/o.py\nsimilarity index 100%\n"
    "rename from pkg/other.py\nrename to pkg/o.py\n"
)
BINARY = "diff --git a/pkg/b b/pkg/b\nnew file mode 100644\nindex 0..1\nGIT binary patch\n"
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "out of the tree": (diff("", "x\n", "../evil.py"), "leads out of the package"),
    "further out": (diff("", "x\n", "pkg/../../evil.py"), "leads out of the package"),
    "absolute": (diff("a\n", "x\n", "x").replace("a/x", "/etc/passwd"), "names absolute paths"),
    "a link": (f"{LINK}+/etc/passwd\n\\ No newline at end of file\n", "makes a link"),
    "a mode": (
        "diff --git a/pkg/other.py b/pkg/other.py\nold mode 100644\nnew mode 100755\n",
        "changes a file's mode",
    ),
    "a rename": (RENAME, "renames a file"),
    "binary": (
        f"{BINARY}literal 3\nKcmZQzU|?hb0RaF2001BW\n\nliteral 0\nHcmV?d00001\n\n",
        "is binary",
    ),
    "bytes": (b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\0\n+x\n", "is binary"),
    "huge": (b"#" * (LARGEST_BYTES + 1), "more than 1,048,576"),
    "metadata": (diff("", "x\n", "pkg-1.0.dist-info/METADATA"), "relax:"),
    "no name": ("--- /dev/null\n+++ b/.\n@@ -0,0 +1 @@\n+x\n", "no name that a file"),
    "a line's end": ('--- /dev/null\n+++ "b/a\\nb"\n@@ -0,0 +1 @@\n+x\n', "a\\nb: is no name"),
    "not UTF-8": (b"--- /dev/null\n+++ b/\xff.py\n@@ -0,0 +1 @@\n+x\n", "is no name"),
    "too long": (diff("", "x\n", "x" * 300), "is too long a name"),
    "too deep": (diff("", "x\n", "d/" * 600 + "x"), "is too long a name"),
    "quoted": ('--- /dev/null\n+++ "b/\\057etc/x"\n@@ -0,0 +1 @@\n+x\n', "leads out of"),
    "a folder": ("--- /dev/null\n+++ b/pkg\n@@ -0,0 +1 @@\n+x\n", "does not apply"),
    "below a file": (
        "--- /dev/null\n+++ b/pkg/other.py/x\n@@ -0,0 +1 @@\n+x\n",
        "does not apply",
    ),
    "many": ("".join(diff("a\n", "b\n", f"{n}") for n in range(501)), "changes 501 files"),
    "git's own": (diff("", "x\n", "pkg/.git/config"), "is git's own"),
    "no patch": ("nothing of a patch\n", "is not a patch"),
    "cut short": (diff(ADAPTER, PORTED)[:-30], "is not a patch"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_does_more_than_change_text_is_refused(tree: Tree, case: str) -> None:
    patch, said = HOSTILE[case]
    assert said in tree.refusal(patch)
    assert not (tree.root.parent / "evil.py").exists()


@pytest.mark.parametrize("path", ["evil.pth", "sitecustomize.py", "torch/more.py", "tests/new.py"])
def test_a_new_file_beside_the_package_of_a_wheel_is_refused(tree: Tree, path: str) -> None:
    """It would lie in site-packages itself, or in another's folder there."""
    new = diff("", "import os\n", path).replace(f"--- a/{path}", "--- /dev/null")
    if path != "evil.pth":
        assert tree.apply(new) == (path,), "sources of a package may have more folders"
        (tree.root / path).unlink()
        shutil.rmtree(tree.root / PurePosixPath(path).parts[0], ignore_errors=True)
    (tree.root / "pkg-1.0.dist-info").mkdir()
    assert path in tree.refusal(diff(ADAPTER, PORTED) + new)


def test_of_many_files_that_do_not_fit_a_few_are_named(tree: Tree) -> None:
    patch = "".join(diff("a\n", "b\n", f"gone/{n}") for n in range(12))
    said = tree.refusal(patch)
    assert "gone/4: No such file or directory; and 7 more" in said


def test_a_link_of_the_package_is_no_way_out_of_it(tree: Tree) -> None:
    (tree.root.parent / "outside").mkdir()
    (tree.root / "away").symlink_to(tree.root.parent / "outside")
    new = diff("", "x\n", "away/evil.py").replace("--- a/away/evil.py", "--- /dev/null")
    tree.refusal(new)
    assert not list((tree.root.parent / "outside").iterdir())


def test_nobody_s_settings_of_git_change_what_applies(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tree.root.parent / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[apply]\n  ignoreWhitespace = change\n")
    monkeypatch.setenv("HOME", str(home))
    (tree.root / "pkg/adapter.py").write_text(ADAPTER.replace("line 5\n", "line 5  \n"))
    assert "does not apply" in tree.refusal(diff(ADAPTER, PORTED))


def a_patch(root: Path, text: str, **changes: object) -> Patch:
    """The patch in a file of the project."""
    (root / "patches").mkdir(parents=True, exist_ok=True)
    (root / "patches/hpu.patch").write_text(text)
    facts: dict[str, object] = {
        "package": "pkg",
        "version": "1.0",
        "file": "patches/hpu.patch",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "reason": "for Gaudi",
    }
    return Patch(**(facts | changes))  # type: ignore[arg-type]


FILES: dict[str, str | bytes] = {
    "pkg/__init__.py": "",
    "pkg/adapter.py": ADAPTER,
    "pkg-1.0.data/scripts/pkg-tool": "#!python\n",
}


def test_a_patched_wheel_is_a_wheel_of_another_version_and_its_record_is_true(
    tmp_path: Path,
) -> None:
    wheel = stand_in_wheel(tmp_path / "in", "pkg", "1.0", requires=["torch>=2"], files=FILES)
    new = "--- /dev/null\n+++ b/pkg/a,b.py\n@@ -0,0 +1 @@\n+x\n"
    patching = Patching(patches=(a_patch(tmp_path, diff(ADAPTER, PORTED) + new),), root=tmp_path)
    made = patched_wheel(wheel, patching, tmp_path / "one")
    again = patched_wheel(wheel, patching, tmp_path / "two")
    assert made.read_bytes() == again.read_bytes()
    name, version, *rest = made.name.split("-")
    assert (name, rest) == ("pkg", ["py3", "none", "any.whl"])
    assert version.startswith("1.0+wf.p")
    assert len(version) == len("1.0+wf.p") + 8
    # Which holds RECORD against the bytes.
    assert {"pkg/adapter.py", "pkg/a,b.py"} <= set(read_unpacked(made))
    assert read_wheel_metadata(made).requires == ("torch>=2",)
    with zipfile.ZipFile(made) as archive:
        assert archive.read("pkg/adapter.py").decode() == PORTED
        assert f"Version: {version}\n" in archive.read(f"pkg-{version}.dist-info/METADATA").decode()
        assert f"pkg-{version}.data/scripts/pkg-tool" in archive.namelist()
        assert b"for Gaudi" in archive.read(f"pkg-{version}.dist-info/warpfront-patches.json")


def test_another_patch_or_another_wheel_is_another_version(tmp_path: Path) -> None:
    wheel = stand_in_wheel(tmp_path / "in", "pkg", "1.0", files=FILES)
    other = stand_in_wheel(tmp_path / "other", "pkg", "1.0", files={**FILES, "pkg/more.py": "\n"})

    def version(of: Path, after: str) -> str:
        patch = a_patch(tmp_path, diff(ADAPTER, after))
        patching = Patching(patches=(patch,), root=tmp_path)
        return patched_wheel(of, patching, tmp_path / "made").name.split("-")[1]

    changed = PORTED.replace("line 7", "line seven")
    assert len({version(wheel, PORTED), version(wheel, changed), version(other, PORTED)}) == 3
    local = stand_in_wheel(tmp_path / "in", "pkg", "1.0+cu130", files=FILES)
    patch = a_patch(tmp_path, diff(ADAPTER, PORTED), version="1.0+cu130")
    made = patched_wheel(local, Patching(patches=(patch,), root=tmp_path), tmp_path / "made")
    assert made.name.split("-")[1].startswith("1.0+cu130.wf.p")


class Project:
    """A cell that asks for `pkg` and patches it; an index with two of its versions."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.site = root, Site(index_url=url)
        self.folders = Folders(root=root, cache=root / "cache", store=Store(root / "build"))

    def cell(self, *patches: Patch, requirement: str = "pkg==1.0") -> Cell:
        index = WheelIndex(name="cpu", url=self.site.index_url)
        return a_cell(requirements=(requirement,), patches=patches, index=index)

    def inputs(self, cell: Cell, parent: WheelLock | None = None) -> LockInputs:
        return inputs_of(cell, parent, self.folders)

    def builder(self, inputs: LockInputs) -> WheelBuilder:
        def builder(_apt: tuple[str, ...]) -> tuple[Engine, str]:
            raise AssertionError("nothing here is built in a container")

        return WheelBuilder(
            inputs=inputs,
            root=self.root,
            cache=self.folders.cache,
            wheelhouse=self.folders.wheelhouse,
            site=self.site,
            builder=builder,
            on_line=lambda _: None,
        )

    def lock(self, cell: Cell, parent: WheelLock | None = None) -> WheelLock:
        inputs = self.inputs(cell, parent)
        return resolve_by_uv(
            inputs,
            self.site,
            on_line=lambda _: None,
            wheelhouse=self.folders.wheelhouse,
            parent=parent,
            crafting=self.builder(inputs),
        )

    def refusal(self, cell: Cell) -> str:
        with pytest.raises(LockError) as caught:
            self.lock(cell)
        assert caught.value.hint
        return caught.value.message


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    index = tmp_path / "index"
    stand_in_wheel(index, "torch", "2.13.0+cpu", files={"torch/__init__.py": ADAPTER})
    stand_in_wheel(index, "pkg", "1.0", requires=["torch"], files=FILES)
    stand_in_wheel(index, "pkg", "1.1", files={"pkg/adapter.py": PORTED})
    stand_in_wheel(index, "user", "1.0", requires=["pkg==1.0"])
    with serve_index(index, name="simple") as served:
        yield Project(tmp_path / "project", served.url)


def test_a_lock_holds_the_patched_wheel_and_what_it_was_made_of(project: Project) -> None:
    cell = project.cell(a_patch(project.root, diff(ADAPTER, PORTED)), requirement="user")
    lock, inputs = project.lock(cell), project.inputs(cell)
    (wheel,) = [one for one in lock.wheels if one.name == "pkg"]
    assert wheel.version.startswith("1.0+wf.p")
    (patched,) = lock.patched
    assert patched.patches == cell.patches
    assert patched.original is not None
    assert patched.original.filename == "pkg-1.0-py3-none-any.whl"
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock
    assert staleness(lock, inputs) == ""
    assert project.folders.wheelhouse.missing([wheel]) == ()
    # A child of this image takes the very same wheel.
    child = dataclasses.replace(cell, id="child", patches=(), parent=cell.id)
    assert wheel in project.lock(child, parent=lock).wheels
    assert project.lock(child, parent=lock).patched == lock.patched


def test_a_machine_without_the_patched_wheel_makes_the_same_bytes(project: Project) -> None:
    cell = project.cell(a_patch(project.root, diff(ADAPTER, PORTED)))
    lock, house = project.lock(cell), project.folders.wheelhouse
    (wheel,) = [one for one in lock.wheels if one.name == "pkg"]
    house.path(wheel).unlink()
    builder = project.builder(project.inputs(cell))
    builder.restore(wheel, lock)
    assert house.missing([wheel]) == ()
    other = dataclasses.replace(wheel, sha256="0" * 64)
    with pytest.raises(WheelError, match="patched again"):
        builder.restore(other, lock)


def test_a_patch_for_another_version_is_stale_and_one_that_upstream_has_is_over(
    project: Project,
) -> None:
    text = diff(ADAPTER, PORTED)
    moved = project.cell(a_patch(project.root, text), requirement="pkg")
    assert "is for pkg 1.0, and 1.1 is what the requirements come to" in project.refusal(moved)
    over = project.cell(a_patch(project.root, text, until="pkg>=1.1"), requirement="pkg")
    assert "upstream has it: pkg is 1.1, and the patch is until pkg>=1.1" in project.refusal(over)
    there = project.cell(a_patch(project.root, text, version="1.1"), requirement="pkg")
    assert "the package has it already" in project.refusal(there)


def test_what_nobody_asks_for_and_what_the_guard_vouches_for_is_not_patched(
    project: Project,
) -> None:
    text = diff(ADAPTER, PORTED)
    absent = project.cell(a_patch(project.root, text, package="nobody"))
    assert "names nobody, which nothing here asks for" in project.refusal(absent)
    torch = project.cell(a_patch(project.root, text, package="torch", version="2.13.0"))
    assert "torch is of the torch stack" in project.refusal(torch)
    cell = project.cell()
    parent = project.lock(cell)
    child = dataclasses.replace(
        cell, id="child", parent=cell.id, patches=(a_patch(project.root, text),)
    )
    with pytest.raises(LockError, match="of the image that this one is built on"):
        project.lock(child, parent=parent)


def test_a_patch_file_that_was_edited_makes_the_lock_stale_and_locks_nothing(
    project: Project,
) -> None:
    cell = project.cell(a_patch(project.root, diff(ADAPTER, PORTED)))
    lock = project.lock(cell)
    file = project.root / "patches/hpu.patch"
    file.write_text(diff(ADAPTER, ADAPTER.replace("'cuda'", "'xpu'")))
    assert "patches/hpu.patch: sha256" in staleness(lock, project.inputs(cell))
    assert "matrix.yaml says" in project.refusal(cell)
    file.unlink()
    assert "patches/hpu.patch: no such file" in project.refusal(cell)


def test_a_lock_without_the_patch_of_the_matrix_is_stale_in_words(project: Project) -> None:
    plain, patch = project.cell(), a_patch(project.root, diff(ADAPTER, PORTED))
    lock = project.lock(plain)
    said = staleness(lock, project.inputs(project.cell(patch)))
    assert said == "its pkg is without patches/hpu.patch as the matrix has it"
    with_patch = project.lock(project.cell(patch))
    assert "its inputs changed" in staleness(with_patch, project.inputs(plain))
    assert with_patch.digest != lock.digest
