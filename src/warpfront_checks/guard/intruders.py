"""Code of others that would run as part of the stack. Native shadows: libraries of its names that
the dynamic loader takes from another folder, which no Python sees. Plug-ins: entry points by which
torch and triton load code while they are imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from .fast_path import CORE, NAME, groups_of, metadata_in, name_and_version
from .manifest import Manifest
from .policy import Policy, Problems

# auditwheel puts a hash of the content into the names of libraries that a wheel brings along, and
# of two wheels that bring the same one the first is taken: not another library.
_NAMED_BY_CONTENT = re.compile(r"\.libs/lib[^/]*-[0-9a-f]{8}[^/]*\.so[^/]*\Z")


def shadow_words(sealed: str, other: str, environment: Mapping[str, str]) -> str:
    """Return what `other` is to a library of the stack, and why; "" where it is not known."""
    if not other:
        return f"{sealed} is not what was loaded: another has its place"
    why = "by an RPATH, /etc/ld.so.preload or /etc/ld.so.conf, or something loaded it before"
    name = os.path.basename(other)  # noqa: PTH119 - at every import of torch
    for folder in reversed(environment.get("LD_LIBRARY_PATH", "").split(":")):
        if folder and os.path.realpath(f"{folder}/{name}") == other:
            why = f"LD_LIBRARY_PATH has {folder}"
    preloaded = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    if any(os.path.realpath(library) == other for library in preloaded):
        why = "LD_PRELOAD names it"
    return f"{other} is loaded in the place of {sealed}: {why}"


def shadows(
    sealed: Mapping[str, list[str]],
    loaded: Iterable[str],
    environment: Mapping[str, str],
    *,
    with_torch: bool = True,
) -> Problems:
    """Return (library, fault) for the files of `loaded` that take the place of a sealed library. If
    torch is loaded, also for those of its own that are not. `loaded` are real paths.
    """
    real_paths = set(loaded)
    named = set()
    for path in sorted(real_paths):
        file = path.rpartition("/")[2]
        ours = [os.path.realpath(candidate) for candidate in sealed.get(file, ())]
        if ours and path not in ours and not _NAMED_BY_CONTENT.search(path):
            named.add(file)
            yield ours[0], shadow_words(ours[0], path, environment)
    for file in CORE if with_torch else ():
        ours = [os.path.realpath(candidate) for candidate in sealed.get(file, ())]
        if ours and file not in named and not real_paths.intersection(ours):
            yield ours[0], shadow_words(ours[0], "", environment)


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


def other_guards(path: Iterable[str], ours: str) -> Iterator[str]:
    """Return the path's packages or modules by the guard's name that are not in `ours`."""
    finder = sys.modules["_frozen_importlib_external"].PathFinder
    for entry in dict.fromkeys(path):
        spec = finder.find_spec(NAME, [entry])
        folder = os.path.dirname(os.path.realpath(spec.origin)) if spec and spec.origin else ""  # noqa: PTH120 - at every import of torch
        if folder and folder != os.path.realpath(ours):
            yield str(spec.origin)
