"""Code of others that would run as part of the stack. Native shadows: libraries of its names that
the dynamic loader takes from another folder, which no Python sees. Plug-ins: entry points by which
torch and triton load code while they are imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .fast_path import CORE, GROUPS, groups_of, metadata_in, name_and_version
from .manifest import Manifest
from .policy import Policy

# auditwheel puts a hash of the content into the names of libraries that a wheel brings along, and
# of two wheels that bring the same one the first is taken: not another library.
_NAMED_BY_CONTENT = re.compile(r"\.libs/lib[^/]*-[0-9a-f]{8}[^/]*\.so[^/]*\Z")


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """`sealed` is a library of the stack, `other` the file in its place, "" where none is known."""

    sealed: str
    other: str

    def words(self, environment: Mapping[str, str]) -> str:
        if not self.other:
            return f"{self.sealed} is not what was loaded: another has its place"
        return f"{self.other} is loaded in the place of {self.sealed}: {self._why(environment)}"

    def _why(self, environment: Mapping[str, str]) -> str:
        name = os.path.basename(self.other)  # noqa: PTH119 - at every import of torch
        preloaded = environment.get("LD_PRELOAD", "").replace(":", " ").split()
        if any(os.path.realpath(library) == self.other for library in preloaded):
            return "LD_PRELOAD names it"
        for folder in filter(None, environment.get("LD_LIBRARY_PATH", "").split(":")):
            if os.path.realpath(f"{folder}/{name}") == self.other:
                return f"LD_LIBRARY_PATH has {folder}"
        return "by an RPATH, /etc/ld.so.preload or /etc/ld.so.conf, or something loaded it before"


def shadows(
    sealed: Mapping[str, list[str]], loaded: Iterable[str], *, with_torch: bool = True
) -> Iterator[Shadow]:
    """Return the files of `loaded` that take the place of a sealed library. If torch is loaded,
    return also those of its own that are not. `loaded` are real paths.
    """
    real_paths = set(loaded)
    named = set()
    for path in sorted(real_paths):
        file = path.rpartition("/")[2]
        ours = [os.path.realpath(candidate) for candidate in sealed.get(file, ())]
        if ours and path not in ours and not _NAMED_BY_CONTENT.search(path):
            named.add(file)
            yield Shadow(sealed=ours[0], other=path)
    for file in CORE if with_torch else ():
        ours = [os.path.realpath(candidate) for candidate in sealed.get(file, ())]
        if ours and file not in named and not real_paths.intersection(ours):
            yield Shadow(sealed=ours[0], other="")


def plugins(policy: Policy, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    """Yield (distribution, group, metadata) of unsealed ones that the stack's import loads."""
    location = os.path.realpath(manifest.location)
    sealed = {path for files in manifest.files.values() for path in files}
    for folder in dict.fromkeys(os.path.realpath(path or ".") for path in sys.path):
        for entry in metadata_in(folder):
            if folder == location and f"{entry}/entry_points.txt" in sealed:
                continue
            name = name_and_version(entry)[0]
            for group in groups_of(f"{folder}/{entry}"):
                if not policy.is_relaxed(name):
                    yield name, group, f"{folder}/{entry}"


def is_loaded_by(group: str, package: str, environment: Mapping[str, str]) -> bool:
    """Return whether importing `package` loads the group in this environment."""
    is_off = package == "torch" and environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
    return GROUPS[group] == package and not is_off
