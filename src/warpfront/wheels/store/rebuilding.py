"""A patched wheel under a version that names the patches; the same bytes from the
same inputs. Edge.
"""

from __future__ import annotations

import json
import re
import stat
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from warpfront.errors import LockError, WheelError
from warpfront.matrix.language import Patch
from warpfront.system.digests import digest_of
from warpfront.system.process import Run
from warpfront.system.store import storing
from warpfront.wheels.store.patching import PatchTool
from warpfront.wheels.store.unpacked import read_unpacked
from warpfront.wheels.store.wheel_files import pack_wheel
from warpfront.wheels.store.wheelhouse import sha256_of

LABEL = "wf"
NOTE = "warpfront-patches.json"
_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patching:
    """The `patches` of one package, in their order, whose files lie below `root`."""

    patches: tuple[Patch, ...]
    root: Path
    run: Run = field(repr=False)

    def check_version(self, version: str) -> None:
        """Raise `LockError` where they are for another version than is here."""
        for patch in self.patches:
            if Version(patch.version) != Version(version):
                raise LockError(
                    f"{patch.file}: is for {patch.package} {patch.version}, and {version} is what "
                    "the requirements come to",
                    hint=f"make it anew for {version}, or ask for {patch.package}=="
                    f"{patch.version}; remove it if it is no longer needed",
                )

    def apply(self, tree: Path) -> None:
        """Apply all patches to a tree of files, or raise an error."""
        for patch in self.patches:
            file = self.root / patch.file
            digest = sha256_of(file) if file.is_file() else "no such file"
            if digest != patch.sha256:
                raise LockError(
                    f"{patch.file}: sha256 {digest}, matrix.yaml says {patch.sha256}",
                    hint="read the patch, then write its sha256 into matrix.yaml",
                )
            PatchTool(
                tree=tree, patch=file, name=patch.file, strip=patch.strip, run=self.run
            ).apply()

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
    patching.check_version(version)
    parts[1] = patching.version(version, origin)
    read_unpacked(wheel)
    with storing(folder), tempfile.TemporaryDirectory(prefix="warpfront-") as name:
        tree = Path(name) / "wheel"
        _unpack(wheel, tree)
        if not sources:
            patching.apply(tree)
        info = _relabel(tree, version, parts[1])
        (info / NOTE).write_text(patching.note(origin), "utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        paths = sorted(path for path in tree.rglob("*") if path.is_file())
        paths.sort(key=lambda path: path.is_relative_to(info))  # metadata last
        content = {path.relative_to(tree).as_posix(): path for path in paths}
        return pack_wheel(folder / "-".join(parts), content, info=info.name)


def _unpack(wheel: Path, tree: Path) -> None:
    """The wheel's files in `tree`, and whether each may be run."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not (tree / member.filename).resolve().is_relative_to(tree.resolve()):
                raise WheelError(f"{wheel.name}: {member.filename} leads out of the wheel")
        archive.extractall(tree)
        for member in archive.infolist():
            if member.external_attr >> 16 & stat.S_IXUSR and not member.is_dir():
                (tree / member.filename).chmod(0o755)


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
