"""Patches of foreign files, as `git apply` takes them: exactly, or not at all. Edge.

git itself lists the files of a patch, so that no patch is read in two ways. If it does not apply,
weaker forms of the same command find the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from warpfront.errors import LockError
from warpfront.system.process import Command, Completed, Run

LARGEST_BYTES = 1 << 20
# git runs several times for each file of a patch that does not fit.
MOST_FILES = 500
_LONGEST_PATH, _LONGEST_NAME, _NAMED = 1000, 255, 5
_GIT_SECONDS = 60.0
_ABSOLUTE = re.compile(
    rb"^--- (?!/dev/null)/.*\n\+\+\+ |^--- .*\n\+\+\+ (?!/dev/null)/", re.MULTILINE
)
_BINARY = re.compile(rb"\0|^GIT binary patch\r?$|^Binary files .* differ\r?$", re.MULTILINE)
_HEADER = re.compile(rb"^(?:---|\+\+\+) .*$", re.MULTILINE)
# Lines of `git apply --summary` for changes that are more than text.
_REFUSED_CHANGES = {
    "mode 120000": "makes a link",
    "mode 160000": "makes a submodule",
    "rename ": "renames a file",
    "copy ": "copies a file",
    "mode change": "changes a file's mode",
}
_CREATED = re.compile(r"\s*create (?:mode \d+ )?(.+)")
_LEFT_ALONE = (".dist-info", ".data", ".egg-info")

Fit = Literal["fits", "there", "missing", "line ends", "fuzz", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTool:
    """git in a tree of files, for one patch. `name` is what messages call it."""

    tree: Path
    patch: Path
    name: str
    strip: int
    run: Run

    def apply(self) -> tuple[str, ...]:
        """Change the tree; the files that were changed. Raise `LockError` for a patch that does
        not apply to the letter, and leaves the tree as it was then.
        """
        touched = self.touched()
        if self._git("--check").returncode != 0:
            raise self._misfit(touched)
        completed = self._git()
        if completed.returncode != 0:  # a folder where it has a file, say
            raise self._refused(f"does not apply: {_first_line(completed.stderr)}")
        return touched

    def touched(self) -> tuple[str, ...]:
        """Return the files that the patch would change. Raise `LockError` for one that does
        more than change text below the tree.
        """
        if refusal := refused_bytes(self.patch):
            raise self._refused(refusal)
        listed = self._git("--numstat", "-z")
        if listed.returncode != 0:
            raise self._refused(f"is not a patch: {_first_line(listed.stderr)}")
        rows = [row.split("\t", 2) for row in listed.stdout.split("\0") if row]
        if len(rows) > MOST_FILES:
            raise self._refused(f"changes {len(rows)} files, more than {MOST_FILES}")
        for added, _, path in rows:
            if refusal := refused_path(path) or ("is binary" if added == "-" else ""):
                raise self._refused(f"{ascii(path)[1:-1][:_LONGEST_NAME]}: {refusal}")
        for line in self._git("--summary").check().stdout.splitlines():
            if refusal := self._refused_change(line):
                raise self._refused(refusal)
        return tuple(path for _, _, path in rows)

    def _refused_change(self, line: str) -> str:
        """Why a line of git's summary is more than a change of text; "" for none."""
        if (match := _CREATED.match(line)) and self._is_beside(match[1]):
            return f"{match[1]}: is beside the package, and not in it"
        return next(
            (f"{why}:{line}" for words, why in _REFUSED_CHANGES.items() if words in line), ""
        )

    def _is_beside(self, path: str) -> bool:
        """Return true if a new file of a wheel would be in site-packages itself or in another
        package's folder; sources may have more folders.
        """
        is_wheel = any(self.tree.glob("*.dist-info"))
        return path.endswith(".pth") or (
            is_wheel and not (self.tree / PurePosixPath(path).parts[0]).is_dir()
        )

    def _misfit(self, touched: tuple[str, ...]) -> LockError:
        """Why it does not apply, as one sentence and what to do."""
        paths_by_fit: dict[Fit, list[str]] = {}
        for path in touched:
            paths_by_fit.setdefault(self._fit(path), []).append(path)
        listed = {fit: _listed(paths) for fit, paths in paths_by_fit.items()}
        if listed.keys() == {"there"}:
            return LockError(
                f"{self.name}: the package has it already: {listed['there']}",
                hint="upstream took it: remove it from matrix.yaml",
            )
        if listed.keys() & {"fits", "there"}:
            parts = "; ".join(f"{_SAID[fit]}: {paths}" for fit, paths in sorted(listed.items()))
            return LockError(
                f"{self.name}: applies in part only, so nothing of it was applied ({parts})",
                hint="leave out of it what this version has not, or has already",
            )
        order: tuple[Fit, ...] = ("line ends", "fuzz", "missing", "other")
        worst = next(fit for fit in order if fit in listed)
        refused = _first_line(self._git("--check").stderr)
        return LockError(
            f"{self.name}: {_SAID[worst]}: {listed[worst]} ({refused})", hint=_HINTS[worst]
        )

    def _fit(self, path: str) -> Fit:
        """Return how the part for one file fits."""
        only = f"--include={_literal(path)}"
        if self._git("--check", only).returncode == 0:
            return "fits"
        if self._git("--check", "--reverse", only).returncode == 0:
            return "there"
        file = self.tree / path
        if not file.is_file():
            return "missing"
        of_dos = b"\r\n" in file.read_bytes()
        loose = self._git("--check", "--ignore-whitespace", only).returncode == 0
        if loose and of_dos != (b"\r\n" in self.patch.read_bytes()):
            return "line ends"
        weaker = self._git("--check", "-C1", only).returncode == 0
        return "fuzz" if loose or weaker else "other"

    def _git(self, *options: str) -> Completed:
        """git without anybody's settings, and without a repository around the tree."""
        command = Command(
            argv=(
                *("git", "apply", "--whitespace=nowarn", f"-p{self.strip}"),
                *(*options, str(self.patch.resolve())),
            ),
            cwd=self.tree,
            environment={
                "GIT_CEILING_DIRECTORIES": str(self.tree.resolve().parent),
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_CONFIG_NOSYSTEM": "1",
                "LC_ALL": "C.UTF-8",
            },
            timeout_seconds=_GIT_SECONDS,
            unset=("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"),
        )
        return self.run(command)

    def _refused(self, why: str) -> LockError:
        return LockError(
            f"{self.name}: {why}",
            hint="a patch changes, adds or removes text files of one package, and nothing else",
        )


def refused_bytes(patch: Path) -> str:
    """Why a file is not read as a patch at all; "" for none."""
    size = patch.stat().st_size
    if size > LARGEST_BYTES:
        return f"has {size:,} bytes, more than {LARGEST_BYTES:,}"
    data = patch.read_bytes()
    if _BINARY.search(data):
        return "is binary"
    headers = _HEADER.findall(data)
    if headers and all(line.endswith(b"\r") for line in headers):
        return "has CRLF line ends: it was saved on the way; take it as upstream has it"
    return "names absolute paths" if _ABSOLUTE.search(data) else ""


def refused_path(path: str) -> str:
    """Why no patch may touch a file; "" for none."""
    pure = PurePosixPath(path)
    # What was not UTF-8 has U+FFFD in its place: it would be another file's name.
    if not pure.parts or not path.isprintable() or "\N{REPLACEMENT CHARACTER}" in path:
        return "is no name that a file of a package has"
    if len(path) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_NAME for part in pure.parts):
        return "is too long a name"
    if pure.is_absolute() or ".." in pure.parts or "\\" in path:
        return "leads out of the package"
    if ".git" in pure.parts:
        return "is git's own"
    if pure.parts[0].endswith(_LEFT_ALONE):
        return "says what the wheel is, which `relax:` is for"
    return ""


_SAID: dict[Fit, str] = {
    "fits": "applies",
    "there": "there already",
    "missing": "no such file in the package",
    "line ends": "line ends differ (CRLF)",
    "fuzz": "the lines around it differ, and it would apply by guessing only",
    "other": "does not apply",
}
_HINTS: dict[Fit, str] = {
    "missing": "paths are those of the installed package: `strip:` says how many folders go first; "
    "tests and documents are seldom in a wheel",
    "line ends": "make the patch of the package's own files, with their line ends",
    "fuzz": "make the patch anew from this version; nothing is applied by guessing",
    "other": "make the patch anew from this version",
}


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"{', '.join(paths[:_NAMED])}{more}"


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "git says nothing").removeprefix("error: ")


def _literal(path: str) -> str:
    """Return a path as a pattern of git that means itself."""
    return re.sub(r"([\\*?\[])", r"\\\1", path)
