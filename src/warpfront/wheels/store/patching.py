"""Patches of foreign files, as `git apply` takes them: exactly, or not at all. Edge.

git itself lists the files of a patch and gives the reason for a refusal: no patch is read in two
ways. A patched wheel has a version that names its patches, and the same bytes from the same inputs.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.version import Version

from warpfront.errors import LockError, WheelError
from warpfront.matrix.language import Patch
from warpfront.system.digests import digest_of
from warpfront.system.foreign import inside_root
from warpfront.system.process import Command, Completed, run
from warpfront.system.store import scratch_folder, storing
from warpfront.wheels.store.archives import pack_wheel
from warpfront.wheels.store.unpacked import read_unpacked
from warpfront.wheels.store.wheelhouse import sha256_of

LARGEST_BYTES = 1 << 20
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTool:
    """git in a tree of files, for one patch. `name` is what messages call it."""

    tree: Path
    patch: Path
    name: str
    strip: int

    def apply(self) -> tuple[str, ...]:
        """Change the tree; the files that were changed. Raise `LockError` for a patch that does
        not apply to the letter, and leaves the tree as it was then.
        """
        touched = self.touched()
        checked = self._git("--check")
        if checked.returncode != 0:
            raise self._misfit(checked.stderr)
        completed = self._git()
        if completed.returncode != 0:  # a folder where it has a file, say
            raise self._refused(f"does not apply: {_first_line(completed.stderr)}")
        return touched

    def touched(self) -> tuple[str, ...]:
        """Return the files that the patch changes. Raise `LockError` for more than text."""
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
        is_wheel = any(self.tree.glob("*.dist-info"))
        for line in self._git("--summary").check().stdout.splitlines():
            # In site-packages itself, or in another package's folder; sources may have more.
            if (match := _CREATED.match(line)) and (
                match[1].endswith(".pth")
                or (is_wheel and not (self.tree / PurePosixPath(match[1]).parts[0]).is_dir())
            ):
                raise self._refused(f"{match[1]}: is beside the package, and not in it")
            for words, why in _REFUSED_CHANGES.items():
                if words in line:
                    raise self._refused(f"{why}:{line}")
        return tuple(path for _, _, path in rows)

    def _misfit(self, reason: str) -> LockError:
        """Return the error for a patch that git refuses for this reason."""
        if self._git("--check", "--reverse").returncode == 0:
            return LockError(
                f"{self.name}: the package has it already",
                hint="upstream took it: remove it from matrix.yaml",
            )
        lines = [line.removeprefix("error: ") for line in reason.splitlines() if line.strip()]
        more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
        return LockError(
            f"{self.name}: does not apply, so nothing of it was applied: "
            f"{'; '.join(lines[:_NAMED])}{more}",
            hint="make the patch anew of this version's own files, with their line ends; paths are "
            "those of the installed package: `strip:` says how many folders go first",
        )

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
        return run(command)

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


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "git says nothing").removeprefix("error: ")


UNREAD = "read the patch, then write its sha256 into matrix.yaml"


def why_unfit(root: Path, patch: Patch) -> str:
    """Why the file of a patch is not the one that the matrix names; "" where it is."""
    path = root / patch.file
    if not inside_root(path, root):
        return f"{patch.file}: a link that leads out of the project"
    if not path.is_file():
        return f"{patch.file}: no such file"
    digest = sha256_of(path)
    if digest == patch.sha256:
        return ""
    return f"{patch.file}: sha256 {digest}, matrix.yaml says {patch.sha256}"


LABEL = "wf"
NOTE = "warpfront-patches.json"
_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patching:
    """The `patches` of one package, in their order, whose files lie below `root`."""

    patches: tuple[Patch, ...]
    root: Path

    def apply(self, tree: Path) -> None:
        """Apply all patches to a tree of files, or raise an error."""
        for patch in self.patches:
            if reason := why_unfit(self.root, patch):
                raise LockError(reason, hint=UNREAD)
            file = self.root / patch.file
            PatchTool(tree=tree, patch=file, name=patch.file, strip=patch.strip).apply()

    def version(self, version: str, origin: str) -> str:
        """Return the version of what they make of `origin`, a sha256: the same with a local
        label. (Of digits alone, PEP 440 would drop the zeros at its beginning.)
        """
        label = digest_of([origin, [patch.sha256 for patch in self.patches]])[:8]
        return f"{version}{'.' if '+' in version else '+'}{LABEL}.p{label}"

    def note(self, origin: str) -> str:
        """Return the image's own note on the patches."""
        entries = [
            {"file": patch.file, "sha256": patch.sha256, "reason": patch.reason}
            for patch in self.patches
        ]
        return (
            json.dumps({"of": f"sha256:{origin}", "patches": entries}, indent=1, sort_keys=True)
            + "\n"
        )


def patched_wheel(wheel: Path, patching: Patching, folder: Path, *, sources: str = "") -> Path:
    """Write the patched wheel to `folder`, under a version that names the patches. `sources` is the
    sha256 of patched sources, of which the wheel was built. Raise `LockError`, and `WheelError` for
    a wheel that contradicts its RECORD.
    """
    origin = sources or sha256_of(wheel)
    parts = wheel.name.split("-")
    version = parts[1]
    for patch in patching.patches:
        if Version(patch.version) != Version(version):
            raise LockError(
                f"{patch.file}: is for {patch.package} {patch.version}, and {version} is what "
                "the requirements come to",
                hint=f"make it anew for {version}, or ask for {patch.package}=="
                f"{patch.version}; remove it if it is no longer needed",
            )
    parts[1] = patching.version(version, origin)
    read_unpacked(wheel)
    with storing(folder), scratch_folder() as scratch:
        tree = scratch / "wheel"
        with zipfile.ZipFile(wheel) as archive:  # its files, and whether each may be run
            for member in archive.infolist():
                if not (tree / member.filename).resolve().is_relative_to(tree.resolve()):
                    raise WheelError(f"{wheel.name}: {member.filename} leads out of the wheel")
            archive.extractall(tree)
            for member in archive.infolist():
                if member.external_attr >> 16 & stat.S_IXUSR and not member.is_dir():
                    (tree / member.filename).chmod(0o755)
        if not sources:
            patching.apply(tree)
        info = _relabel(tree, version, parts[1])
        (info / NOTE).write_text(patching.note(origin), "utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        paths = sorted(path for path in tree.rglob("*") if path.is_file())
        paths.sort(key=lambda path: path.is_relative_to(info))  # metadata last
        content = {path.relative_to(tree).as_posix(): path for path in paths}
        return pack_wheel(folder / "-".join(parts), content, info=info.name)


def _relabel(tree: Path, old: str, new: str) -> Path:
    """Metadata and folders of the new version; where the metadata is."""
    for folder in [*tree.glob(f"*-{old}.data"), *tree.glob(f"*-{old}.dist-info")]:
        name, _, ending = folder.name.rpartition(f"-{old}.")
        folder.rename(tree / f"{name}-{new}.{ending}")
    info = next(tree.glob(f"*-{new}.dist-info"), None)
    if info is None or not (info / "METADATA").is_file():
        raise WheelError(f"a wheel of {old}: its metadata is not where its name says")
    head, gap, rest = (info / "METADATA").read_bytes().partition(b"\n\n")
    relabelled = re.sub(rb"(?m)^Version:[^\r\n]*", b"Version: " + new.encode(), head)
    (info / "METADATA").write_bytes(relabelled + gap + rest)
    for signature in _SIGNATURES:  # they were of the other content
        (info / signature).unlink(missing_ok=True)
    return info
