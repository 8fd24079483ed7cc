"""Read the distributions of a torch stack on one wheel index: pages and METADATA. Edge.

A page is PEP 691 JSON or PEP 503 HTML. METADATA comes from the file of PEP 658, or from a few
ranges of the wheel; no wheel is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from html import unescape

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import without_secrets
from warpfront.matrix.index_contents import IndexedRelease, Releases
from warpfront.wheels.core_metadata import (
    Distribution,
    applies,
    marker_environment,
    parse_metadata,
    read_file_name,
    readable_requirement,
)
from warpfront.wheels.metadata import read_small_members
from warpfront.wheels.sources import ABSENT, Link, NoAnswer, Site, links
from warpfront.wheels.transport import Transport

_CPYTHON = re.compile(r"cp3(\d{1,2})\Z")
_PLATFORM = re.compile(r"(manylinux(?:1|2010|2014|_\d+_\d+)|linux)_(x86_64|aarch64)\Z")
_METADATA_HASH = re.compile(r"sha256=([0-9a-f]{64})\Z")
_DEVICE = "device-"
# The demands of a torch stack's own parts on each other, which decide what belongs together.
_RELEVANT = re.compile(
    r"torch|torchvision|rocm|rocm-sdk-.*|amd-.*-device-.*|cuda-toolkit|nvidia-cuda-runtime.*"
    r"|(?:pytorch-)?triton.*"
)


@dataclass(frozen=True, slots=True)
class _File:
    """A wheel or source archive that a page lists."""

    link: Link
    version: Version
    tags: frozenset[Tag]

    @property
    def minors(self) -> frozenset[int]:
        """The minor versions of CPython that its tags name, free-threaded ones too."""
        matches = (_CPYTHON.match(tag.interpreter) for tag in self.tags)
        return frozenset(int(match[1]) for match in matches if match)

    def pythons(self, newest: int) -> frozenset[str]:
        """Return the CPythons (X.Y) that it serves with the GIL, up to 3.`newest`: a wheel of
        the stable ABI (`cp312-abi3`) serves each later one in its Requires-Python.
        """
        required = dict(self.link.attributes).get("data-requires-python", "")
        abis = {tag.abi for tag in self.tags}
        if "abi3" in abis:
            later = [f"3.{minor}" for minor in range(min(self.minors), newest + 1)]
            with contextlib.suppress(ValueError):  # as pip takes it: no restriction
                return frozenset(SpecifierSet(unescape(required)).filter(later))
            return frozenset(later)
        is_threaded = all(abi.endswith("t") for abi in abis)
        return frozenset() if is_threaded else frozenset(f"3.{minor}" for minor in self.minors)

    @property
    def machines(self) -> frozenset[str]:
        matches = (_PLATFORM.match(tag.platform) for tag in self.tags)
        return frozenset(match[2] for match in matches if match)


class _UnusableIndexError(Exception):
    """The index contradicts itself, or its answer is no package index."""


def survey_index(
    url: str,
    names: Sequence[str],
    *,
    known: Releases,
    wanted: Callable[[str, Collection[Version]], Collection[Version]],
    site: Site,
) -> Releases | NoAnswer:
    """Return the releases of `names`, the first of which the index must have; `NoAnswer` where
    any of its pages cannot be read or believed, so that half a reading is never taken for a whole
    one. `wanted` chooses among the versions of a name. METADATA is read of releases that are not
    `known` in the same form.
    """
    with site.transport(stall_seconds=site.patience_seconds) as transport:
        surveyed: dict[str, Mapping[str, IndexedRelease]] = {}
        try:
            for name in names:
                files = _files(url, name, transport, is_needed=name == names[0] or name in known)
                if isinstance(files, NoAnswer):
                    return files
                versions = wanted(name, {file.version for file in files})
                chosen = [file for file in files if file.version in versions]
                surveyed[name] = _releases(name, chosen, known.get(name, {}), transport)
        except _UnusableIndexError as error:
            return NoAnswer(url=url, reason=without_secrets(str(error)), lasting=True)
    return {name: releases for name, releases in surveyed.items() if releases}


def _files(
    url: str, name: str, transport: Transport, *, is_needed: bool
) -> tuple[_File, ...] | NoAnswer:
    offered = links(url, name, transport, flat=False)
    if isinstance(offered, NoAnswer):
        is_absent = offered.status in ABSENT and not is_needed
        return () if is_absent else offered
    parsed = [(link, read_file_name(link.filename)) for link in offered]
    named = [(link, file) for link, file in parsed if file is not None]
    files = tuple(_File(link, of.version, of.tags) for link, of in named if of.name == name)
    other_names = sorted({of.name for _, of in named if of.name != name})
    if other_names:
        raise _UnusableIndexError(f"its page for {name} lists {other_names[0]}")
    if not files and is_needed:
        raise _UnusableIndexError(f"its page for {name} lists no file of {name} (an error page?)")
    return tuple(
        file
        for file in files
        if not file.tags or file.machines or any(tag.platform == "any" for tag in file.tags)
    )


def _releases(
    name: str,
    files: Iterable[_File],
    earlier: Mapping[str, IndexedRelease],
    transport: Transport,
) -> dict[str, IndexedRelease]:
    by_version: dict[Version, list[_File]] = {}
    for file in files:
        by_version.setdefault(file.version, []).append(file)
    newest = max(
        (minor for some in by_version.values() for file in some for minor in file.minors), default=0
    )

    def release(version: Version) -> IndexedRelease:
        """Return a release, with the METADATA of the earlier one where that has the same form."""
        files, before = by_version[version], earlier.get(str(version))
        plain = _without_metadata(files, newest)
        if before and before.requires and _form(before) == _form(plain):
            return replace(plain, requires=before.requires, devices=before.devices)
        requires: dict[str, tuple[str, ...]] = {}
        devices: set[str] = set()
        for machine in plain.machines or ("any",):
            wheels = [f for f in files if f.tags and (machine in f.machines or machine == "any")]
            # The newest Python's represents the release.
            file = max(
                wheels, key=lambda f: (max(f.minors, default=0), f.link.filename), default=None
            )
            metadata = _metadata(name, version, file, transport) if file else None
            if metadata is not None:
                pythons = plain.python or (f"3.{newest}",)
                environments = [marker_environment(python, machine) for python in pythons]
                demands = set()
                for demand in filter(None, map(readable_requirement, metadata.requires)):
                    is_relevant = _RELEVANT.fullmatch(canonicalize_name(demand.name))
                    if is_relevant and any(applies(demand, each) for each in environments):
                        demand.marker = None
                        demands.add(str(demand))
                requires[machine] = tuple(sorted(demands))
                extras = (extra for extra in metadata.extras if extra.startswith(f"{_DEVICE}gfx"))
                devices.update(extra.removeprefix(_DEVICE) for extra in extras)
        return replace(plain, requires=requires, devices=tuple(sorted(devices)))

    versions = sorted(by_version)
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(map(str, versions), pool.map(release, versions), strict=True))


def _form(release: IndexedRelease) -> tuple[object, ...]:
    return release.python, release.machines, release.platform, release.files


def _without_metadata(files: list[_File], newest: int) -> IndexedRelease:
    platforms = [
        match[1] for file in files for tag in file.tags if (match := _PLATFORM.match(tag.platform))
    ]
    yanks = [dict(file.link.attributes).get("data-yanked") for file in files]
    yanked = next((text for text in yanks if text is not None), None)
    return IndexedRelease(
        python=tuple(
            sorted({python for file in files for python in file.pythons(newest)}, key=Version)
        ),
        machines=tuple(sorted({machine for file in files for machine in file.machines})),
        platform=min(platforms, key=lambda platform: (_level(platform), platform), default=""),
        files=len(files),
        hashes=sum(bool(file.link.sha256) for file in files),
        yanked=yanked if all(text is not None for text in yanks) else None,
    )


def _level(platform: str) -> tuple[int, ...]:
    legacy = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
    return legacy.get(platform, tuple(map(int, re.findall(r"\d+", platform))) or (99,))


def _metadata(
    name: str, version: Version, file: _File, transport: Transport
) -> Distribution | None:
    """Return the METADATA of a wheel; None where its server gives neither the file nor ranges.
    Raise `_UnusableIndexError` where it is another's, or has another hash than its page.
    """
    link, attributes = file.link, dict(file.link.attributes)
    # The file of PEP 658, where its page has the attribute (PEP 714).
    promised = attributes.get("data-core-metadata") or attributes.get("data-dist-info-metadata")
    answer = transport.read(f"{link.url}.metadata") if promised else None
    if promised and isinstance(answer, tuple):
        text, digest = answer[2], _METADATA_HASH.match(promised)
        if digest and hashlib.sha256(text.encode()).hexdigest() != digest[1]:
            reason = "its METADATA has another hash than its page"
            raise _UnusableIndexError(f"{link.filename}: {reason}")
    elif members := read_small_members(link.url, transport, ("METADATA",)):
        text = members["METADATA"]
    else:
        return None
    try:
        metadata = parse_metadata(text)
        is_same = canonicalize_name(metadata.name) == name and Version(metadata.version) == version
    except ValueError as error:
        raise _UnusableIndexError(f"{link.filename}: {error}") from error
    if not is_same:
        raise _UnusableIndexError(
            f"{link.filename}: its METADATA is of {metadata.name} {metadata.version}"
        )
    return metadata
