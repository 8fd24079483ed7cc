"""The part of a seal that an import of torch reads, written in the form that is read fastest."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .fast_path import METADATA, harmless
from .manifest import EXTENSION_SUFFIXES, Manifest, is_for_start
from .policy import Policy, reading

# The newest format without references, whose bytes depend on the process.
_MARSHAL = 2
_FIELDS = ("manifest_bytes", "location", "versions", "modules", "libraries", "interpreter", "met")
_TAILS = tuple(
    f"{init}{suffix}" for init in ("/__init__", "") for suffix in (".py", *EXTENSION_SUFFIXES)
)


def at_import(
    policy: Policy,
    manifest: Manifest,
    texts: tuple[str, str],
    *,
    met: Mapping[str, str],
    interpreter: Mapping[str, Any],
    entries: Iterable[str],
) -> bytes:
    """Return the document for `fast_path`, and the measures of files for `watch`. `texts` are
    those of policy and manifest, `met` the versions of the needs that are met, `entries` the
    folders of metadata next to the stack.
    """
    unrelaxed = policy.unrelaxed(manifest.files)
    guarded = replace(manifest, files={name: manifest.files[name] for name in unrelaxed})
    # A shim has metadata alone, and comes with the seal's own layer.
    shims = {shim.name for shim in policy.shims}
    loaded = replace(
        guarded, files={name: guarded.files[name] for name in unrelaxed if name not in shims}
    )
    location = os.path.realpath(manifest.location)
    measures = {
        name: {path: (row[0], row[1]) for path, row in sorted(files.items()) if is_for_start(path)}
        for name, files in sorted(manifest.files.items())
    }
    document = {
        "policy": texts[0].encode(),
        "manifest_bytes": len(texts[1].encode()),
        "location": str(manifest.location),
        "versions": dict(sorted(manifest.versions.items())),
        "packages": dict(sorted(guarded.packages().items())),
        "modules": dict(sorted(modules_of(guarded).items())),
        "tops": sorted(loaded.tops()),
        "shared": sorted({top.partition("/")[0] for top in guarded.tops() if "/" in top}),
        "metadata": sorted(top for top in manifest.tops() if top.endswith(METADATA)),
        "libraries": dict(sorted(libraries(guarded, location).items())),
        "needs": sorted(policy.needed()),
        "met": dict(sorted(met.items())),
        "interpreter": dict(interpreter),
        "files": marshal.dumps(measures, _MARSHAL),
    }
    document["entries"] = harmless(sorted(entries), document)
    return marshal.dumps(document, _MARSHAL)


def read_at_import(path: Path) -> dict[str, Any]:
    """Return the document. Raise `GuardError` when it is missing or damaged."""
    with reading(path, "made by a seal"):
        document: dict[str, Any] = marshal.loads(path.read_bytes())  # noqa: S302 - as a .pyc is
        document["files"] = marshal.loads(document["files"])  # noqa: S302
        _ = [document[name] for name in (*_FIELDS, "entries")]
        return document


def made_again(path: Path, policy: Policy, manifest: Manifest, texts: tuple[str, str]) -> bytes:
    """Return the document in `path` as a seal of this policy and manifest would have made it.
    Raise `GuardError` if it is damaged: it alone has what was there at the time of the seal.
    """
    sealed = read_at_import(path)
    facts = {name: sealed[name] for name in ("met", "interpreter", "entries")}
    return at_import(policy, manifest, texts, **facts)


def libraries(manifest: Manifest, location: str) -> dict[str, list[str]]:
    """Return file name -> paths of the sealed libraries of that name, below the real
    `location`. Extension modules are omitted: they are loaded by their whole path, and many
    have one name.
    """
    paths: dict[str, list[str]] = {}
    for path in _paths(manifest):
        file = path.rpartition("/")[2]
        if file.startswith("lib") and ".so" in file:
            paths.setdefault(file, []).append(f"{location}/{path}")
    return paths


def _paths(manifest: Manifest) -> Iterator[str]:
    return (path for files in manifest.files.values() for path in files)


def modules_of(manifest: Manifest) -> dict[str, str]:
    """Return module -> the rest of its file's path after its own, "" for a folder without an
    `__init__`. A module that two files could be is omitted.
    """
    packages, tails_of, twice = manifest.packages(), dict[str, str](), set[str]()
    for path in _paths(manifest):
        tail = next((ending for ending in _TAILS if path.endswith(ending)), "")
        if not tail or path.partition("/")[0] not in packages:
            continue
        name = path.removesuffix(tail).replace("/", ".")
        if name in tails_of:
            twice.add(name)
        tails_of[name] = tail
    above = {name[:end] for name in tails_of for end, ending in enumerate(name) if ending == "."}
    tails = {**dict.fromkeys(above, ""), **tails_of}
    return {name: tail for name, tail in tails.items() if name not in twice}
