"""Facts about torch wheels: which exist, for which toolkit, Python and hardware. Pure.

The rows are data (`data/compat.yaml`, dated, with a source per row), and so are the contents of
indexes (`data/index-contents.json`), which go before a row. A fact that neither has is unknown,
never guessed; a fact that they deny is `Contradicted`, with alternatives that fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from packaging.version import Version

from warpfront.matrix.cell import Pin
from warpfront.matrix.compat_table import (
    PYPI,
    Combination,
    Confidence,
    Driver,
    End,
    Index,
    Table,
    TorchRelease,
    read_table,
)
from warpfront.matrix.index_contents import Contents
from warpfront.matrix.index_evidence import label_of, read_contents, with_contents
from warpfront.matrix.vendors import VENDORS
from warpfront.system.packaged import packaged_text

ROWS = "compat.yaml"
CONTENTS = "index-contents.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradicted:
    """A combination that does not exist by the table; `fits` names alternatives that fit."""

    reason: str
    fits: str


Judgement = Contradicted | tuple[str, ...]
"""A contradiction, or a sentence for each fact that the table lacks; none if it supports all."""
Findings = Iterator[Contradicted | str]
"""Contradictions, and reasons why the table does not say."""


class Compat:
    """The compat table, ready to answer."""

    def __init__(self, rows: Table, contents: Contents | None = None) -> None:
        self.contents = contents or Contents()
        self.table = with_contents(rows, self.contents)
        self._releases = {release.torch: release for release in self.table.releases}

    @property
    def torches(self) -> tuple[str, ...]:
        """The releases known, oldest first."""
        return tuple(self._releases)

    def read_on(self, index: str) -> str:
        """Return the day of the last reading of an index, "" where it was never read."""
        wheel_index = self.table.indexes.get(index)
        contents = self.contents.indexes.get(wheel_index.url) if wheel_index else None
        return contents.read if contents else ""

    def driver_floor(self, vendor: str, toolkit: str) -> Driver | None:
        """Return the lowest driver of a toolkit's major version; None where the table has none."""
        pair, drivers = (vendor, toolkit.partition(".")[0]), self.table.drivers
        return next((driver for driver in drivers if (driver.vendor, driver.major) == pair), None)

    def end(self, kind: str, version: str) -> End | None:
        """Return the end of support of a version, if the table has it."""
        fits = (end for end in self.table.ends if end.what == kind and version in end.versions)
        return next(fits, None)

    def last_with(self, vendor: str, toolkit: str) -> str | None:
        """Return the last release of torch with wheels for a toolkit; None where the newest may
        have some, or none is known. A vendor's own index, which is in no release matrix of torch's,
        counts once it was read.
        """
        names = {
            name
            for name, index in self._indexes_of(vendor, toolkit).items()
            if not index.nightly and (not index.label or index.url in self.contents.indexes)
        }
        having = [
            release.torch
            for release in self.table.releases
            if names & {*release.indexes.names, *release.indexes.seen}
        ]
        newest = self.table.releases[-1]
        is_known = newest.indexes.confidence != "low" or bool(names & {*newest.indexes.absent})
        current = {release.torch for release in self.table.releases[-1 if is_known else -2 :]}
        return having[-1] if having and having[-1] not in current else None

    def release(self, torch: str) -> TorchRelease | None:
        return self._releases.get(torch)

    def index_for(self, vendor: str, toolkit: str, torch: str) -> str:
        """Return the index with `torch` for this toolkit, "" for none. Never `pypi`, whose wheels
        have no label that identifies them: a row has to name it."""
        release = self._releases.get(torch)
        for name, index in self._indexes_of(vendor, toolkit).items():
            offered = release is None or name in (*release.indexes.names, *release.indexes.seen)
            if offered and name != PYPI and index.nightly == Version(torch).is_devrelease:
                return name
        return ""

    def _indexes_of(self, vendor: str, toolkit: str) -> dict[str, Index]:
        """Return the indexes with wheels for a toolkit."""
        indexes, pair = self.table.indexes.items(), (vendor, toolkit)
        return {n: index for n, index in indexes if (index.vendor, index.toolkit or "") == pair}

    def contradiction_of_no_index(self, combination: Combination) -> Contradicted:
        """Return the contradiction for a row for which `index_for` finds none."""
        vendor = VENDORS[combination.vendor]
        name = f"{vendor.toolkit or vendor.name} {combination.toolkit}".strip()
        reason = f"torch {combination.torch} has no wheels for {name}"
        return Contradicted(reason=reason, fits=self._fits(combination))

    def stack(self, combination: Combination) -> tuple[Pin, ...]:
        """torch, its companions and its triton at their full versions; empty where torch comes
        with the base. A triton whose version is not evidenced is up to torch's own metadata.
        Of several variants of one version none has a local label."""
        vendor = VENDORS[combination.vendor]
        if vendor.torch_from == "base":
            return ()
        label = label_of(self.table, combination.index)
        release = self._releases.get(combination.torch)
        versions = {"torch": combination.torch}
        if release is not None:
            on = partial(release.companion_on, combination.index)
            versions |= {name: on(name) for name in combination.companions}
        pins, index = [], self.table.indexes.get(combination.index)
        # Extras by which a distribution brings the code of the row's targets.
        code = dict.fromkeys(filter(None, map(vendor.device_extra, combination.targets)))
        for name, version in versions.items():
            local = f"+{label}" if label and name not in combination.variants else ""
            extras = tuple(code) if index and name in index.device_extras else ()
            pins.append(Pin(name=name, version=version + local, extras=extras))
        if release is not None:
            name, version = release.triton(vendor.toolkit, combination.index)
            pins += [Pin(name=name, version=version)] if version else []
        return tuple(pins)

    def judge(self, combination: Combination) -> Judgement:
        """Judge `combination` by the table: the first contradiction, else everything unknown."""
        unknown: list[str] = []
        for finding in self._findings(combination):
            if isinstance(finding, Contradicted):
                return finding
            unknown.append(finding)
        return tuple(unknown)

    def _findings(self, combination: Combination) -> Findings:
        vendor = VENDORS[combination.vendor]
        strangers = [target for target in combination.targets if target not in vendor.known_targets]
        if strangers:
            yield f"{', '.join(strangers)}: no {combination.vendor} hardware known by that name"
        if vendor.torch_from == "base":
            yield from self._judge_base_torch(combination)
            return
        release = self._releases.get(combination.torch)
        yield from self._judge_machine(combination, release)
        if release is None:
            if combination.companions:
                yield Contradicted(
                    reason=f"torch {combination.torch} is not in the compat table, so nothing says "
                    f"which {' and '.join(combination.companions)} belong to it",
                    fits=f"a release of the table ({', '.join(self.torches)}), or no companions",
                )
            else:
                series = combination.torch.rsplit(".", 1)[0] + "."
                near = [torch for torch in self.torches if torch.startswith(series)]
                hint = f" ({', '.join(near)} is)" if near else ""
                yield f"torch {combination.torch} is not in the compat table{hint}"
            return
        index = self.table.indexes[combination.index]
        listed = release.indexes
        holds = release.pypi.toolkit if combination.index == PYPI else index.toolkit or ""
        if (index.vendor, holds) != (combination.vendor, combination.toolkit):
            yield Contradicted(
                reason=f"index {combination.index} holds torch {release.torch} for "
                f"{index.vendor} {holds}".rstrip()
                + f", not for {combination.vendor} {combination.toolkit}".rstrip(),
                fits=self._fits(combination),
            )
        elif combination.index not in (PYPI, *listed.names):
            is_sure = listed.confidence in {"verified", "high"}
            if combination.index in listed.absent or (
                is_sure and combination.index not in listed.seen
            ):
                yield self.contradiction_of_no_index(combination)
            else:
                yield f"torch {release.torch} on index {combination.index} is not evidenced"
        yield from self._judge_python(combination, release)
        yield from _judge_glibc(combination, release)
        for companion in combination.companions:
            yield from self._judge_companion(combination, release, companion)
        yield from self._judge_targets(combination, release)

    def _judge_machine(self, point: Combination, release: TorchRelease | None) -> Findings:
        build = release.builds.get(point.index) if release else None
        if point.machine in (build.machines if build else (self.table.machine,)):
            return
        if build is None or not build.is_read:
            yield (
                f"the compat table is about wheels for {self.table.machine}; it does not say "
                f"whether torch {point.torch} from index {point.index} has one for "
                f"{point.machine}"
            )
        else:
            yield Contradicted(
                reason=f"index {point.index} has no torch {point.torch} for {point.machine}",
                fits=f"machine {', '.join(build.machines)}",
            )

    def _judge_base_torch(self, point: Combination) -> Findings:
        pair, every = (point.vendor, point.toolkit), self.table.base_torch
        rows = [row for row in every if (row.vendor, row.toolkit) == pair]
        if not rows:
            yield f"{point.vendor} {point.toolkit} is not in the compat table"
        elif all(row.torch != point.torch or point.python not in row.python for row in rows):
            fits = (f"torch {row.torch} on python {', '.join(row.python)}" for row in rows)
            yield Contradicted(
                reason=f"{point.vendor} {point.toolkit} does not come with torch {point.torch} "
                f"on python {point.python}",
                fits="; ".join(fits),
            )

    def _fits(self, combination: Combination) -> str:
        """Return the releases that have this toolkit, and the indexes that have this release."""
        vendor, toolkit, torch = combination.vendor, combination.toolkit, combination.torch
        is_pypis = vendor == self.table.indexes[PYPI].vendor
        names, parts = {*self._indexes_of(vendor, toolkit)}, []
        releases = [
            release.torch
            for release in self.table.releases
            if names & {*release.indexes.names} or (is_pypis and release.pypi.toolkit == toolkit)
        ]
        if releases:
            parts.append(f"torch {', '.join(releases)} for {vendor} {toolkit}".rstrip())
        if (release := self._releases.get(torch)) is not None:
            listed = release.indexes.names
            of_vendor = [name for name in listed if self.table.indexes[name].vendor == vendor]
            if of_vendor:
                parts.append(f"index {', '.join(of_vendor)} for torch {torch}")
            if is_pypis:
                parts.append(f"index {PYPI} for torch {torch} with toolkit {release.pypi.toolkit}")
        return "; ".join(parts) or f"nothing in the table has {vendor} {toolkit}".rstrip()

    def _judge_python(self, combination: Combination, release: TorchRelease) -> Findings:
        python, pythons = combination.python, release.pythons_on(combination.index)
        if python not in pythons:
            rows = self.table.releases
            fits = [row.torch for row in rows if python in row.pythons_on(combination.index)]
            alternatives = f"; torch {', '.join(fits)} for python {python}" if fits else ""
            yield Contradicted(
                reason=f"torch {release.torch} has no wheels for python {python}",
                fits=f"python {', '.join(pythons)}{alternatives}",
            )

    def _judge_companion(self, point: Combination, release: TorchRelease, name: str) -> Findings:
        """Judge a companion. torchaudio from 2.11.0 on is on the indexes of its own time only."""
        version = release.companion_on(point.index, name)
        build = release.builds.get(point.index)
        if build is not None and name in build.companions:
            return
        if build is not None and build.is_read and point.index != PYPI:
            yield Contradicted(
                reason=f"index {point.index} has no {name} {version} for torch {release.torch}",
                fits=f"companions: {', '.join(build.companions) or 'none'}",
            )
            return
        row = self._releases.get(version, release) if name == "torchaudio" else release
        is_there = row.pypi.toolkit == release.pypi.toolkit
        if point.index != PYPI:
            is_there = point.index in row.indexes.names
        if row is not release and not is_there:
            yield (
                f"{name} {version}, which torch {release.torch} is paired with, "
                f"is not evidenced on index {point.index} for {point.vendor} {point.toolkit}"
            )

    def _judge_targets(self, point: Combination, release: TorchRelease) -> Findings:
        vendor = VENDORS[point.vendor]
        wanting = [target for target in point.targets if vendor.accepted_archs(target)]
        if not wanting:
            return
        for target, row in itertools.product(wanting, self.table.unusable):
            if row.covers(target, point):
                prefix = f"torch {point.torch}: " if row.torch else ""
                after = f", or {row.toolkit_before} and later" if row.toolkit_before else ""
                other = "another release of torch, or " if row.torch else ""
                yield Contradicted(
                    reason=f"{target}: {prefix}{row.reason} ({row.source})",
                    fits=f"{other}a toolkit before {row.toolkit_from}{after}",
                )
        arch_entries = self._arch_entries(point, release)
        if arch_entries is None:
            machine = f" for {point.machine}" if point.machine != self.table.machine else ""
            yield (
                f"the arch list of torch {release.torch} on index {point.index} "
                f"is not evidenced{machine}"
            )
            return
        entries, confidence = arch_entries
        shipped = vendor.shipped_archs(entries)
        for target in wanting:
            if shipped.isdisjoint(vendor.accepted_archs(target)):
                reason = f"{target} is not served by torch {point.torch} from index {point.index}"
                if confidence == "low":
                    yield f"{reason}, by an arch list of low confidence"
                else:
                    reason = f"{reason}: compiled for {', '.join(entries)}"
                    yield Contradicted(reason=reason, fits=self._fits_target(point, target))

    def _fits_target(self, combination: Combination, target: str) -> str:
        vendor, machine = VENDORS[combination.vendor], combination.machine
        accepted, fits = vendor.accepted_archs(target), []
        for release in self.table.releases:
            archs, fitting = release.archs(vendor.toolkit), []
            for index, name in (archs.sets if archs else {}).items():
                shipped = vendor.shipped_archs(self.table.arch_sets[name].get(machine, ()))
                if index in release.indexes.names and shipped.intersection(accepted):
                    fitting.append(index)
            if fitting:
                fits.append(f"torch {release.torch} on {', '.join(fitting)}")
        return "; ".join(fits) or f"no wheel in the table serves {target}"

    def _arch_entries(
        self, combination: Combination, release: TorchRelease
    ) -> tuple[tuple[str, ...], Confidence] | None:
        archs = release.archs(VENDORS[combination.vendor].toolkit)
        build = release.builds.get(combination.index)
        if build is not None and build.devices:
            return build.devices, "verified" if build.is_read else "medium"
        if archs is None:
            return None
        for index, name in archs.sets.items():
            entry = self.table.indexes[index]
            if (entry.vendor, entry.toolkit) == (combination.vendor, combination.toolkit):
                entries = self.table.arch_sets[name].get(combination.machine, ())
                return (entries, archs.confidence) if entries else None
        return None


@cache
def packaged() -> Compat:
    """Return the table that this version of warpfront was released with."""
    return Compat(packaged_rows(), packaged_contents())


@cache
def packaged_rows() -> Table:
    """Return the rows that people wrote, as released."""
    return read_table(packaged_text(ROWS), path=ROWS)


def packaged_contents() -> Contents:
    """Return the contents of indexes, as released."""
    return read_contents(packaged_text(CONTENTS), path=CONTENTS)


def _judge_glibc(combination: Combination, release: TorchRelease) -> Findings:
    """manylinux_2_28 wheels need glibc 2.28 (PEP 600); the older names need less than any base."""
    build = release.builds.get(combination.index)
    level = (build.manylinux if build else "") or release.manylinux
    needed = level.removeprefix("manylinux_").replace("_", ".")
    if not combination.glibc or not level.startswith("manylinux_"):
        return
    if Version(combination.glibc) < Version(needed):
        yield Contradicted(
            reason=f"torch {release.torch} needs glibc {needed}, the base has {combination.glibc}",
            fits=f"a base with glibc {needed} or later",
        )
