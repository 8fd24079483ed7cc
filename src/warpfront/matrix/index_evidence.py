"""Index contents as evidence for the compat table: what they add to its rows, what they contradict,
and what changed between two readings. Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import MatrixError, Problem
from warpfront.matrix.compat_table import (
    COMPANIONS,
    PYPI,
    Build,
    Indexes,
    Paired,
    PypiBuild,
    RocmTriton,
    Table,
    TorchRelease,
)
from warpfront.matrix.index_contents import Contents, IndexContents, IndexedRelease, Releases
from warpfront.matrix.vendors import VENDORS
from warpfront.system.strict_values import read_as

QUIET_DAYS = 21
"""A reading that found nothing new moves its date once the old one has this age."""

_CUDA_RUNTIME = re.compile(r"(?:cuda-toolkit|nvidia-cuda-runtime(?:-cu\d+)?)\Z")
_MAIN = "x86_64"


def read_contents(text: str, *, path: str) -> Contents:
    """Return the contents that `dump_contents` wrote. Raise `MatrixError` for another text."""
    try:
        return read_as(Contents, json.loads(text))
    except (ValueError, RecursionError) as error:
        message = f"not the contents of indexes: {type(error).__name__}: {error}"
        hint = "restore it from git: `warpfront compat update` writes it"
        raise MatrixError((Problem(path=path, line=0, message=message, hint=hint),)) from None


def dump_contents(contents: Contents) -> str:
    """Return JSON with one line for each release, so that a change is one line of a diff."""
    lines = [f'{{"schema": {contents.schema},', ' "indexes": {']
    for url, index in sorted(contents.indexes.items()):
        lines += [f"  {json.dumps(url)}: {{", f'   "read": {json.dumps(index.read)},']
        lines += ['   "wheels": {']
        for name, releases in sorted(index.wheels.items()):
            lines.append(f"    {json.dumps(name)}: {{")
            ordered = sorted(releases.items(), key=lambda pair: (Version(pair[0]), pair[0]))
            for key, release in ordered:
                values = dataclasses.asdict(release).items()
                record = {name: value for name, value in values if value not in ("", None, ())}
                lines.append(f"     {json.dumps(key)}: {json.dumps(record)},")
            lines += ["    },"]
        lines += ["   }", "  },"]
    lines += [" },", ' "contradictions": [']
    lines += [f"  {json.dumps(contradiction)}," for contradiction in contents.contradictions]
    lines += [" ]", "}", ""]
    return re.sub(r",(\n\s*[\]}])", r"\1", "\n".join(lines))


def names_by_url(table: Table) -> Mapping[str, tuple[str, ...]]:
    """Return the distributions to read at each URL of the table: torch first, then its stack."""
    names_of: dict[str, dict[str, None]] = {}
    for index in table.indexes.values():
        if index.nightly:
            continue
        exact = [name for name in VENDORS[index.vendor].protected if "*" not in name]
        names = ("torch", *COMPANIONS, *exact)
        names_of.setdefault(index.url, {}).update(dict.fromkeys(names))
    return {url: tuple(names) for url, names in names_of.items()}


def wanted_releases(table: Table, name: str, versions: Collection[Version]) -> frozenset[Version]:
    """Return the final releases that are not older than the table's oldest."""
    final = [version for version in versions if not version.is_prerelease]
    oldest = min(table.releases, key=lambda release: Version(release.torch))
    lowest = {
        "torch": oldest.torch,
        **{companion: oldest.companion(companion).version for companion in COMPANIONS},
        "triton": oldest.pypi.triton,
    }
    return frozenset(version for version in final if version >= Version(lowest.get(name, "0")))


def updated(before: IndexContents | None, read: Releases, *, today: str) -> IndexContents:
    """Return the contents after a whole reading on `today`. A release that is gone stays, with the
    day since when; equal readings give equal contents until `QUIET_DAYS` have passed.
    """
    old = before.wheels if before else {}
    wheels: dict[str, dict[str, IndexedRelease]] = {}
    for name in sorted({*old, *read}):
        recorded, present = old.get(name, {}), read.get(name, {})
        wheels[name] = {key: _dated(recorded.get(key), r, today) for key, r in present.items()}
        for key, release in recorded.items():
            if key not in present:
                until = release.until or today
                wheels[name][key] = dataclasses.replace(release, until=until)
    quiet = date.fromisoformat(today) - timedelta(days=QUIET_DAYS)
    if before and wheels == before.wheels and date.fromisoformat(before.read) > quiet:
        return before
    return IndexContents(read=today, wheels=wheels)


def _dated(before: IndexedRelease | None, release: IndexedRelease, today: str) -> IndexedRelease:
    if before and dataclasses.replace(before, since="", until="") == release:
        return dataclasses.replace(before, until="")
    return dataclasses.replace(release, since=today)


def changes(url: str, before: IndexContents | None, after: IndexContents) -> Iterator[str]:
    """Yield a line for each release that is new, gone, back, yanked or in another form."""
    old = before.wheels if before else {}
    for name, releases in after.wheels.items():
        for key, release in sorted(releases.items(), key=lambda pair: Version(pair[0])):
            previous = old.get(name, {}).get(key)
            if previous != release and (change := _change(previous, release)):
                yield f"{url}: {name} {key}: {change}"


def _change(before: IndexedRelease | None, release: IndexedRelease) -> str:
    if before is None:
        pythons = f"python {release.python[0]} to {release.python[-1]}, " if release.python else ""
        return f"new ({pythons}{' and '.join(release.machines) or 'any machine'})"
    if release.until and not before.until:
        return f"gone (was there from {release.since})"
    if before.until and not release.until:
        return f"back (was gone from {before.until})"
    if release.yanked is not None and before.yanked is None:
        return f"yanked{f': {release.yanked}' if release.yanked else ''}"
    fields = ("python", "machines", "platform", "files", "hashes", "requires", "devices", "yanked")
    values = [(field, getattr(before, field), getattr(release, field)) for field in fields]
    return "; ".join(f"{n} {_shown(old)} -> {_shown(new)}" for n, old, new in values if old != new)


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def label_of(table: Table, index: str) -> str:
    """Return the local version of torch from an index of the table, "" for none."""
    wheel_index = table.indexes[index]
    return wheel_index.label or VENDORS[wheel_index.vendor].label(index)


def with_contents(table: Table, contents: Contents) -> Table:
    """Return the table with the contents of indexes: builds of its releases, and releases without
    a row. An index that was read decides whether it has a release; a row decides which companions
    belong together, where the index has them.
    """
    if not contents.indexes:
        return table
    rows = {release.torch: release for release in table.releases}
    pypi = _section(table, contents, PYPI)
    for version in pypi.get("torch", {}):
        if version not in rows and (torch_release := _release_of(version, pypi, table, contents)):
            rows[version] = torch_release
    releases = sorted(rows.values(), key=lambda row: Version(row.torch))
    return dataclasses.replace(
        table, releases=tuple(_evidenced(release, table, contents) for release in releases)
    )


def _section(table: Table, contents: Contents, index: str) -> Releases:
    """Return the current contents of an index, without releases that are gone."""
    index_section = contents.indexes.get(table.indexes[index].url)
    return {
        name: {key: release for key, release in releases.items() if not release.until}
        for name, releases in (index_section.wheels if index_section else {}).items()
    }


def _evidenced(release: TorchRelease, table: Table, contents: Contents) -> TorchRelease:
    read = {name for name, index in table.indexes.items() if index.url in contents.indexes}
    builds = ((name, _build(release, name, table, contents)) for name in table.indexes)
    current = {name: build for name, build in builds if name in read and build is not None}
    names = {*release.indexes.names} - read | {*current}
    absent = {*release.indexes.absent} | read - {*current}
    order = list(table.indexes)
    indexes = dataclasses.replace(
        release.indexes,
        names=tuple(sorted(names - {PYPI}, key=order.index)),
        seen=tuple(sorted({*release.indexes.seen} - read, key=order.index)),
        absent=tuple(sorted(absent - {PYPI, *current}, key=order.index)),
    )
    return dataclasses.replace(release, indexes=indexes, builds={**release.builds, **current})


def _build(release: TorchRelease, name: str, table: Table, contents: Contents) -> Build | None:
    index, label = table.indexes[name], label_of(table, name)
    releases = _section(table, contents, name)
    release_read = releases.get("torch", {}).get(_full(release.torch, label))
    if release_read is None:
        return None
    companions = {}
    for companion in COMPANIONS:
        version = release.companion_on(name, companion)
        paired = releases.get(companion, {}).get(_full(version, label))
        # PyPI's builds have no label: one that demands no torch may be for another CUDA.
        if paired is not None and (label or paired.requires.get(_MAIN)):
            companions[companion] = version
    triton, version = release.triton(VENDORS[index.vendor].toolkit)
    return Build(
        python=release_read.python,
        machines=tuple(
            machine
            for machine in release_read.machines
            if name != PYPI or cuda_of(release_read, machine) == cuda_of(release_read)
        ),
        manylinux=release_read.platform,
        companions=companions,
        triton=_triton(release_read) or (f"{triton}=={version}" if version else ""),
        devices=release_read.devices,
        source=index.url,
        day=release_read.since,
        is_read=True,
    )


def _full(version: str, label: str) -> str:
    return f"{version}+{label}" if label else version


def _triton(release: IndexedRelease) -> str:
    """Its requirement of a triton, where that names one version."""
    for demand in map(Requirement, release.requires.get(_MAIN, ())):
        pins = [clause for clause in demand.specifier if clause.operator in {"==", "==="}]
        if "triton" in demand.name and pins and "*" not in pins[0].version:
            return f"{canonicalize_name(demand.name)}=={pins[0].version}"
    return ""


def _release_of(
    version: str, pypi: Releases, table: Table, contents: Contents
) -> TorchRelease | None:
    """Return a row made of PyPI's contents, where METADATA names the toolkit and the triton."""
    torch_release = pypi["torch"][version]
    toolkit, triton = cuda_of(torch_release), _newest_triton(torch_release, pypi)
    paired = {name: _companion_of(version, name, pypi) for name in COMPANIONS}
    if not (toolkit and triton and all(paired.values())) or torch_release.yanked is not None:
        return None
    source = f"{table.indexes[PYPI].url}, read {contents.indexes[table.indexes[PYPI].url].read}"
    pairs = {
        name: Paired(version=version_text, confidence="verified", source=source)
        for name, version_text in paired.items()
    }
    newest = max(table.releases, key=lambda release: Version(release.torch))
    return TorchRelease(
        torch=version,
        python=torch_release.python,
        manylinux=torch_release.platform,
        pypi=PypiBuild(toolkit=toolkit, triton=triton, confidence="verified", source=source),
        indexes=Indexes(names=(), confidence="low", source=source),
        torchvision=pairs["torchvision"],
        torchaudio=pairs["torchaudio"],
        rocm_triton=RocmTriton(name=newest.rocm_triton.name, source=newest.rocm_triton.source),
    )


def cuda_of(release: IndexedRelease, machine: str = _MAIN) -> str:
    """Return the CUDA (X.Y) that a build of torch demands on a machine, "" for none."""
    for demand in map(Requirement, release.requires.get(machine, ())):
        if _CUDA_RUNTIME.match(canonicalize_name(demand.name)):
            for clause in demand.specifier:
                return ".".join(clause.version.split(".")[:2])
    return ""


def _newest_triton(release: IndexedRelease, pypi: Releases) -> str:
    for demand in map(Requirement, release.requires.get(_MAIN, ())):
        if canonicalize_name(demand.name) == "triton":
            fitting = demand.specifier.filter(map(Version, pypi.get("triton", {})))
            return str(max(fitting, default=""))
    return ""


def _companion_of(torch: str, name: str, pypi: Releases) -> str:
    """Return the release of a companion that belongs to a torch: the one that demands exactly
    that torch, else the newest that accepts it, or demands none.
    """
    exact, accepting = list[Version](), list[Version]()
    for key, release_read in pypi.get(name, {}).items():
        if not _refusal(release_read, torch):
            demands = map(Requirement, release_read.requires.get(_MAIN, ()))
            is_exact = any(f"{demand.specifier}".startswith("==") for demand in demands)
            (exact if is_exact else accepting).append(Version(key))
    return str(max(exact or accepting, default=""))


def contradictions(table: Table, contents: Contents) -> tuple[str, ...]:
    """Return a sentence for each value of a row of `table` that an index contradicts."""
    lines: list[str] = []
    read = [(name, each) for name, each in table.indexes.items() if each.url in contents.indexes]
    for release, (name, index) in itertools.product(table.releases, read):
        label, section = label_of(table, name), _section(table, contents, name)
        where = f"torch {release.torch} on {name}"
        wheels = section.get("torch", {}).get(_full(release.torch, label))
        if wheels is None:
            if name == PYPI or name in release.indexes.names:
                lines.append(f"{where}: the row lists it, {index.url} has none")
            continue
        if name in release.indexes.absent:
            lines.append(f"{where}: the row denies it, {index.url} has it")
        triton = release.triton(VENDORS[index.vendor].toolkit)
        pairs = [
            ("python", " ".join(release.pythons_on(name)), " ".join(wheels.python)),
            ("CUDA", release.pypi.toolkit if name == PYPI else "", cuda_of(wheels)),
            ("triton", "==".join(triton) if triton[1] else "", _triton(wheels)),
        ]
        for field, row, in_index in pairs:
            if row and in_index and row != in_index:
                lines.append(f"{where}: the row has {field} {row}, the index {in_index}")
        for companion in COMPANIONS:
            version = release.companion_on(name, companion)
            paired = section.get(companion, {}).get(_full(version, label), IndexedRelease())
            if refusal := _refusal(paired, release.torch):
                pair = f"{companion} {version}, which demands {refusal}"
                lines.append(f"{where}: the row pairs {pair}")
    return tuple(lines)


def _refusal(companion: IndexedRelease, torch: str) -> str:
    """Return the demand of a companion that this torch does not meet, "" for none."""
    demands = map(Requirement, companion.requires.get(_MAIN, ()))
    of_torch = (demand for demand in demands if canonicalize_name(demand.name) == "torch")
    return next((str(demand) for demand in of_torch if not demand.specifier.contains(torch)), "")
