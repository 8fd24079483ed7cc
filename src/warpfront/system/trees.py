"""Source trees as they are found: what of them can be read as text, and what cannot, and why. Edge.

Nothing here follows a link, opens what is not a regular file, or reads a file beyond a limit.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from warpfront.errors import StoreError
from warpfront.system.foreign import first_bytes
from warpfront.system.tree_files import UnreadFile

SIZE_LIMIT_BYTES = 2 * 1024 * 1024
DATA_LIMIT_BYTES = 32 * 1024 * 1024
LINE_LIMIT = 20_000
DEPTH_LIMIT = 64
FILE_LIMIT = 200_000

_NOT_SOURCE = frozenset(
    {".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".eggs", "site-packages"}
)
_VENDORED = frozenset(
    {"third_party", "thirdparty", "third-party", "3rdparty", "vendor", "vendored", "_vendor"}
    | {"external", "externals", "extern", "submodules"}
)
_SUBMODULE = re.compile(r"(?m)^[ \t]*path[ \t]*=([^\n]+)")
_PLAIN_IGNORE = re.compile(r"/?[\w.-]+(?:/[\w.-]+)*/?")
_BINARY_PROBE = 8192
_PARSED = (".ipynb", ".py", ".pyi")
"""Files of these kinds are read as a tree, for which the length of a line is nothing."""
_LARGER = "larger than {} MiB"
_ELEMENT = r"[0-9a-fA-FxXuUlL,.+\-\s]"
_NUMBERS = re.compile(rf"(?<!{_ELEMENT}){_ELEMENT}{{{LINE_LIMIT},}}+")
"""The elements of an array: data in a source file, in which no rule has a name to find."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TreeFile:
    """A regular file of the tree: path relative to the root, with `/`, and size."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files of a tree in the order of their paths."""

    root: Path
    files: tuple[TreeFile, ...]
    unread: tuple[UnreadFile, ...]


def list_tree(root: Path, *, exclude: Iterable[str] = (), vendored: bool = False) -> Tree:
    """Return the regular files below `root`. `exclude` are globs of relative paths. `vendored` also
    walks all submodules and third-party folders, not only those whose device code the root's build
    compiles. Raise `StoreError` if `root` is no folder.
    """
    if not root.is_dir():
        raise StoreError(f"{root} is no folder", hint="name the root of a source tree as PATH")
    walk = _TreeWalk(root, tuple(exclude), vendored=vendored)
    walk.read()
    return Tree(root=root, files=tuple(sorted(walk.files)), unread=tuple(sorted(walk.unread)))


class _TreeWalk:
    def __init__(self, root: Path, exclude: tuple[str, ...], *, vendored: bool) -> None:
        self.files: list[TreeFile] = []
        self.unread: list[UnreadFile] = []
        self._root = root
        self._exclude = exclude
        self._globs = (*exclude, *(f"{glob.rstrip('/')}/*" for glob in exclude))
        self._vendored = vendored
        self._submodules = frozenset(map(str.strip, _SUBMODULE.findall(_text(root, ".gitmodules"))))
        # Folders that a .gitignore names without wildcards: `/build/` as `build`, `dist/`,
        # wherever it is, as `*/dist`.
        lines = _text(root, ".gitignore").splitlines()
        names = {line.strip() for line in lines if _PLAIN_IGNORE.fullmatch(line.strip())}
        folders = {line.strip()[1:].strip("/") for line in lines if line.startswith("!")}
        anchored = {name.strip("/") for name in names if "/" in name.rstrip("/")}
        anywhere = {f"*/{name.strip('/')}" for name in names if "/" not in name.rstrip("/")}
        self._ignored = (anchored | anywhere) - folders - {f"*/{name}" for name in folders}
        # Folders of third parties, each with `/` at its end, whose device code the root's own build
        # compiles: that is the project's to port.
        named = (folder for name in _BUILDS for folder in _DEVICE_SOURCE.findall(_text(root, name)))
        self._built = frozenset(filter(_is_vendored, named))

    def read(self) -> None:
        pending = [(self._root, "", 0)]
        while pending:
            folder, prefix, depth = pending.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self._leave(f"{prefix or '.'}/", str(error.strerror))
                continue
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if path in self._exclude or any(fnmatchcase(path, glob) for glob in self._globs):
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    self._add(entry, path)
                elif reason := self._why_not(entry, path, depth):
                    self._leave(f"{path}/", reason, left_out=depth < DEPTH_LIMIT)
                elif entry.name not in _NOT_SOURCE:
                    pending.append((Path(entry.path), f"{path}/", depth + 1))
                if len(self.files) >= FILE_LIMIT:
                    self._leave("./", f"more than {FILE_LIMIT} files: the rest")
                    return

    def _leave(self, path: str, reason: str, *, left_out: bool = False) -> None:
        self.unread.append(UnreadFile(path=path, reason=reason, left_out=left_out))

    def _add(self, entry: os.DirEntry[str], path: str) -> None:
        """Add a regular file, or why it is none. Links are not part of the tree."""
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._leave(path, str(error.strerror))
            return
        if stat.S_ISREG(status.st_mode):
            self.files.append(TreeFile(path=path, size_bytes=status.st_size))
        elif not stat.S_ISLNK(status.st_mode):
            self._leave(path, "not a regular file")

    def _why_not(self, entry: os.DirEntry[str], path: str, depth: int) -> str:
        if depth >= DEPTH_LIMIT:
            return f"deeper than {DEPTH_LIMIT} folders"
        if path in self._ignored or f"*/{entry.name}" in self._ignored:
            return "ignored by git"
        if self._vendored:
            return ""
        if path in self._submodules or Path(entry.path, ".git").is_file():
            return "submodule"
        prefix = f"{path}/"
        built = any(built.startswith(prefix) or prefix.startswith(built) for built in self._built)
        return "third party" if _is_vendored(path) and not built else ""


def _text(root: Path, name: str) -> str:
    text = read_text(root, TreeFile(path=name, size_bytes=0))
    return text if isinstance(text, str) else ""


def _is_vendored(path: str) -> bool:
    return any(part.lower() in _VENDORED for part in path.split("/"))


_BUILDS = ("CMakeLists.txt", "setup.py", "Makefile")
_DEVICE_SOURCE = re.compile(r"(?<![\w./-])(?:\./)?((?:[\w.-]+/)+)[\w.*-]+\.cu\b")


def read_text(root: Path, file: TreeFile) -> str | UnreadFile:
    """Return the text of a file of the tree, or why there is none: too large,
    binary, minified, refused.

    UTF-8 with or without a mark, what a Python file's coding line names, else Latin-1: the rules
    look for ASCII words. Of large arrays only the line ends are returned.
    """
    parsed, notebook = file.path.endswith(_PARSED), file.path.endswith(".ipynb")
    limit = SIZE_LIMIT_BYTES if parsed and not notebook else DATA_LIMIT_BYTES
    text = reason = ""
    try:
        content = first_bytes(root / file.path, limit + 1)
    except OSError as error:
        return UnreadFile(path=file.path, reason=str(error.strerror))
    if content is None:
        reason = "not a regular file"
    elif len(content) > limit:
        reason = _LARGER.format(limit // 1024 // 1024)
    elif b"\0" in content[:_BINARY_PROBE] and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        reason = "binary"
    else:
        text = _decoded(content, PurePosixPath(file.path).suffix)
    if not parsed:
        text = _NUMBERS.sub(lambda data: "\n" * data[0].count("\n"), text)
        if len(text) > SIZE_LIMIT_BYTES:
            reason = _LARGER.format(SIZE_LIMIT_BYTES // 1024 // 1024)
        elif any(len(line) > LINE_LIMIT for line in text.splitlines()):
            reason = f"a line of more than {LINE_LIMIT} characters"
    return UnreadFile(path=file.path, reason=reason) if reason else text


def _decoded(content: bytes, suffix: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    encoding = "utf-8-sig"
    if suffix == ".py" and b"coding" in content[:400]:
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        except SyntaxError:
            encoding = "latin-1"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return content.decode("latin-1")
