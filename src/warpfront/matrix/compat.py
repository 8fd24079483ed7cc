"""What is known about torch wheels: which exist, for which toolkit, Python and hardware. Pure.

The rows are data (`data/compat.yaml`, dated, with a source per row), and so are the
contents of indexes (`data/index-contents.json`), which go before a row. What neither has is
`Unknown`, never guessed; what they deny is `Contradicted`, with what would fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Self

from packaging.version import Version

from warpfront.matrix.cell import Pin, WheelIndex
from warpfront.matrix.compat_table import (
    PYPI,
    Confidence,
    Driver,
    End,
    Table,
    TorchRelease,
    read_table,
)
from warpfront.matrix.index_contents import Contents
from warpfront.matrix.index_evidence import label_of, read_contents, with_contents
from warpfront.matrix.vendors import VENDORS

ROWS = "compat.yaml"
CONTENTS = "index-contents.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A combination to judge. `toolkit` is a version (`13.0`), `glibc` that of the base; `index`
    is "" where torch comes with the base. `variants` are names that are taken as wheel variants."""

    vendor: str
    toolkit: str
    targets: tuple[str, ...]
    machine: str
    python: str
    torch: str
    index: str
    companions: tuple[str, ...] = ()
    glibc: str = ""
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Supported:
    """It exists, by the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The table does not say; each reason is a sentence."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradicted:
    """It does not exist, by the table; `fits` names what would fit."""

    reason: str
    fits: str


Judgement = Supported | Unknown | Contradicted


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
        """The day of the last reading of an index, "" where it was never read."""
        known = self.table.indexes.get(index)
        contents = self.contents.indexes.get(known.url) if known else None
        return contents.read if contents else ""

    def driver_floor(self, vendor: str, toolkit: str) -> Driver | None:
        """The lowest driver of a toolkit's major version, which serves each of its minor versions;
        None where the table names none.
        """
        major = toolkit.partition(".")[0]
        return next(
            (one for one in self.table.drivers if (one.vendor, one.major) == (vendor, major)), None
        )

    def end(self, what: str, version: str) -> End | None:
        """The end of support of a version, if the table has it."""
        return next(
            (one for one in self.table.ends if one.what == what and version in one.versions), None
        )

    def last_with(self, vendor: str, toolkit: str) -> str | None:
        """The last release of torch with wheels for a toolkit; None where the newest may have some,
        or none is known. A vendor's own index, which is in no release matrix of torch's, counts
        once it was read.
        """
        names = {
            name
            for name, one in self.table.indexes.items()
            if (one.vendor, one.toolkit) == (vendor, toolkit)
            and not one.nightly
            and (not one.label or one.url in self.contents.indexes)
        }
        having = [
            release.torch
            for release in self.table.releases
            if names & {*release.indexes.names, *release.indexes.seen}
        ]
        newest = self.table.releases[-1]
        is_known = newest.indexes.confidence != "low" or bool(names & {*newest.indexes.absent})
        current = {one.torch for one in self.table.releases[-1 if is_known else -2 :]}
        return having[-1] if having and having[-1] not in current else None

    def release(self, torch: str) -> TorchRelease | None:
        return self._releases.get(torch)

    def index(self, name: str) -> WheelIndex | None:
        known = self.table.indexes.get(name)
        return WheelIndex(name=name, url=known.url) if known else None

    def index_for(self, vendor: str, toolkit: str, torch: str) -> WheelIndex | None:
        """Return the index with `torch` for this toolkit. Never `pypi`, whose wheels have no label
        that identifies them: a row has to name it."""
        release = self._releases.get(torch)
        for name, known in self.table.indexes.items():
            if known.nightly != Version(torch).is_devrelease:
                continue
            offered = release is None or name in (*release.indexes.names, *release.indexes.seen)
            if (
                offered
                and name != PYPI
                and (known.vendor, known.toolkit or "") == (vendor, toolkit)
            ):
                return WheelIndex(name=name, url=known.url)
        return None

    def contradiction_of_no_index(self, vendor: str, toolkit: str, torch: str) -> Contradicted:
        """What to say where `index_for` gives None."""
        what = f"{VENDORS[vendor].toolkit or vendor} {toolkit}".strip()
        return Contradicted(
            reason=f"torch {torch} has no wheels for {what}",
            fits=self._fits(vendor, toolkit, torch),
        )

    def stack(self, wanted: Combination) -> tuple[Pin, ...]:
        """torch, its companions and its triton at their full versions; empty where torch comes
        with the base. A triton whose version is not evidenced is up to torch's own metadata.
        Of several variants of one version none has a local label."""
        vendor = VENDORS[wanted.vendor]
        if vendor.torch_from == "base":
            return ()
        label = label_of(self.table, wanted.index)
        names = ("torch", *wanted.companions)
        local = {one: f"+{label}" if label and one not in wanted.variants else "" for one in names}
        release = self._releases.get(wanted.torch)
        versions = {"torch": wanted.torch}
        if release is not None:
            versions |= {
                name: release.companion_on(wanted.index, name) for name in wanted.companions
            }
        pins = [
            Pin(name=name, version=version + local[name], extras=self._extras(wanted, name))
            for name, version in versions.items()
        ]
        if release is not None:
            name, version = release.triton(vendor.toolkit, wanted.index)
            pins += [Pin(name=name, version=version)] if version else []
        return tuple(pins)

    def _extras(self, wanted: Combination, name: str) -> tuple[str, ...]:
        """The extras by which a distribution brings the code of the row's targets, and no other."""
        index = self.table.indexes.get(wanted.index)
        if index is None or name not in index.device_extras:
            return ()
        extras = map(VENDORS[wanted.vendor].device_extra, wanted.targets)
        return tuple(dict.fromkeys(filter(None, extras)))

    def judge(self, wanted: Combination) -> Judgement:
        """Judge `wanted` by the table: the first contradiction, else everything unknown."""
        unknown: list[str] = []
        for judgement in self._judgements(wanted):
            if isinstance(judgement, Contradicted):
                return judgement
            if isinstance(judgement, Unknown):
                unknown.extend(judgement.reasons)
        return Unknown(reasons=tuple(unknown)) if unknown else Supported()

    def _judgements(self, wanted: Combination) -> Iterator[Judgement]:
        vendor = VENDORS[wanted.vendor]
        strangers = [target for target in wanted.targets if target not in vendor.known_targets]
        if strangers:
            yield _unknown(
                f"{', '.join(strangers)}: no {wanted.vendor} hardware known by that name"
            )
        if vendor.torch_from == "base":
            yield self._judge_base_torch(wanted)
            return
        release = self._releases.get(wanted.torch)
        yield self._judge_machine(wanted, release)
        if release is None:
            yield self._judge_unknown_release(wanted)
            return
        yield self._judge_index(wanted, release)
        yield self._judge_python(wanted, release)
        yield _judge_glibc(wanted, release)
        for companion in wanted.companions:
            yield self._judge_companion(wanted, release, companion)
        yield from self._judge_targets(wanted, release)

    def _judge_machine(self, wanted: Combination, release: TorchRelease | None) -> Judgement:
        build = release.builds.get(wanted.index) if release else None
        if wanted.machine in (build.machines if build else (self.table.machine,)):
            return Supported()
        if build is None or not build.is_read:
            return _unknown(
                f"the compat table is about wheels for {self.table.machine}; it does not say "
                f"whether torch {wanted.torch} from index {wanted.index} has one for "
                f"{wanted.machine}"
            )
        return Contradicted(
            reason=f"index {wanted.index} has no torch {wanted.torch} for {wanted.machine}",
            fits=f"machine {', '.join(build.machines)}",
        )

    def _judge_base_torch(self, wanted: Combination) -> Judgement:
        known = [row for row in self.table.base_torch if row.vendor == wanted.vendor]
        of_toolkit = [row for row in known if row.toolkit == wanted.toolkit]
        if not of_toolkit:
            return _unknown(f"{wanted.vendor} {wanted.toolkit} is not in the compat table")
        if all(row.torch != wanted.torch or wanted.python not in row.python for row in of_toolkit):
            fits = "; ".join(
                f"torch {row.torch} on python {', '.join(row.python)}" for row in of_toolkit
            )
            return Contradicted(
                reason=f"{wanted.vendor} {wanted.toolkit} does not come with torch {wanted.torch} "
                f"on python {wanted.python}",
                fits=fits,
            )
        return Supported()

    def _judge_unknown_release(self, wanted: Combination) -> Judgement:
        if wanted.companions:
            return Contradicted(
                reason=f"torch {wanted.torch} is not in the compat table, so nothing says which "
                f"{' and '.join(wanted.companions)} belong to it",
                fits=f"a release of the table ({', '.join(self.torches)}), or no companions",
            )
        series = wanted.torch.rsplit(".", 1)[0] + "."
        near = [torch for torch in self.torches if torch.startswith(series)]
        hint = f" ({', '.join(near)} is)" if near else ""
        return _unknown(f"torch {wanted.torch} is not in the compat table{hint}")

    def _judge_index(self, wanted: Combination, release: TorchRelease) -> Judgement:
        index = self.table.indexes[wanted.index]
        holds = release.pypi.toolkit if wanted.index == PYPI else index.toolkit or ""
        if (index.vendor, holds) != (wanted.vendor, wanted.toolkit):
            return Contradicted(
                reason=f"index {wanted.index} holds torch {release.torch} for "
                f"{index.vendor} {holds}".rstrip()
                + f", not for {wanted.vendor} {wanted.toolkit}".rstrip(),
                fits=self._fits(wanted.vendor, wanted.toolkit, wanted.torch),
            )
        if wanted.index == PYPI or wanted.index in release.indexes.names:
            return Supported()
        sure = release.indexes.confidence in {"verified", "high"}
        if wanted.index in release.indexes.absent or (
            sure and wanted.index not in release.indexes.seen
        ):
            return self.contradiction_of_no_index(wanted.vendor, wanted.toolkit, wanted.torch)
        return _unknown(f"torch {release.torch} on index {wanted.index} is not evidenced")

    def _fits(self, vendor: str, toolkit: str, torch: str) -> str:
        """Which releases have this toolkit, and which indexes this release has."""
        parts = []
        names = {
            name
            for name, known in self.table.indexes.items()
            if (known.vendor, known.toolkit or "") == (vendor, toolkit)
        }
        releases = [
            release.torch
            for release in self.table.releases
            if names & {*release.indexes.names}
            or (vendor == self.table.indexes[PYPI].vendor and release.pypi.toolkit == toolkit)
        ]
        if releases:
            parts.append(f"torch {', '.join(releases)} for {vendor} {toolkit}".rstrip())
        release = self._releases.get(torch)
        if release is not None:
            own = [n for n in release.indexes.names if self.table.indexes[n].vendor == vendor]
            if own:
                parts.append(f"index {', '.join(own)} for torch {torch}")
            if vendor == self.table.indexes[PYPI].vendor:
                parts.append(f"index {PYPI} for torch {torch} with toolkit {release.pypi.toolkit}")
        return "; ".join(parts) or f"nothing in the table has {vendor} {toolkit}".rstrip()

    def _judge_python(self, wanted: Combination, release: TorchRelease) -> Judgement:
        pythons = release.pythons_on(wanted.index)
        if wanted.python in pythons:
            return Supported()
        releases = [
            row.torch
            for row in self.table.releases
            if wanted.python in row.pythons_on(wanted.index)
        ]
        others = f"; torch {', '.join(releases)} for python {wanted.python}" if releases else ""
        return Contradicted(
            reason=f"torch {release.torch} has no wheels for python {wanted.python}",
            fits=f"python {', '.join(pythons)}{others}",
        )

    def _judge_companion(self, wanted: Combination, release: TorchRelease, name: str) -> Judgement:
        """A companion that no longer follows torch's releases (torchaudio from 2.11.0 on) exists
        on the indexes of its own time only."""
        version = release.companion_on(wanted.index, name)
        build = release.builds.get(wanted.index)
        if build is not None and name in build.companions:
            return Supported()
        if build is not None and build.is_read and wanted.index != PYPI:
            return Contradicted(
                reason=f"index {wanted.index} has no {name} {version} for torch {release.torch}",
                fits=f"companions: {', '.join(build.companions) or 'none'}",
            )
        own = self._releases.get(version) if name == "torchaudio" else release
        if own is None or own is release:
            return Supported()
        if wanted.index == PYPI and own.pypi.toolkit == release.pypi.toolkit:
            return Supported()
        if wanted.index != PYPI and wanted.index in own.indexes.names:
            return Supported()
        return _unknown(
            f"{name} {version}, which torch {release.torch} is paired with, "
            f"is not evidenced on index {wanted.index} for {wanted.vendor} {wanted.toolkit}"
        )

    def _judge_targets(self, wanted: Combination, release: TorchRelease) -> Iterator[Judgement]:
        vendor = VENDORS[wanted.vendor]
        wanting = [target for target in wanted.targets if vendor.accepted_archs(target)]
        if not wanting:
            return
        yield from filter(None, (self._judge_usable(wanted, target) for target in wanting))
        found = self._arch_entries(wanted, release)
        if found is None:
            yield _unknown(
                f"the arch list of torch {release.torch} on index {wanted.index} is not evidenced"
                + (f" for {wanted.machine}" if wanted.machine != self.table.machine else "")
            )
            return
        entries, confidence = found
        shipped = vendor.shipped_archs(entries)
        for target in wanting:
            yield self._judge_target(wanted, target, shipped, entries, confidence)

    def _judge_usable(self, wanted: Combination, target: str) -> Contradicted | None:
        for row in self.table.unusable:
            if row.vendor == wanted.vendor and row.covers(
                target=target, toolkit=wanted.toolkit, torch=wanted.torch, index=wanted.index
            ):
                what = f"torch {wanted.torch}: " if row.torch else ""
                after = f", or {row.toolkit_before} and later" if row.toolkit_before else ""
                other = "another release of torch, or " if row.torch else ""
                return Contradicted(
                    reason=f"{target}: {what}{row.reason} ({row.source})",
                    fits=f"{other}a toolkit before {row.toolkit_from}{after}",
                )
        return None

    def _judge_target(
        self,
        wanted: Combination,
        target: str,
        shipped: frozenset[str],
        entries: tuple[str, ...],
        confidence: Confidence,
    ) -> Judgement:
        if shipped.intersection(VENDORS[wanted.vendor].accepted_archs(target)):
            return Supported()
        reason = f"{target} is not served by torch {wanted.torch} from index {wanted.index}"
        if confidence == "low":
            return _unknown(f"{reason}, by an arch list of low confidence")
        listed = ", ".join(entries)
        return Contradicted(
            reason=f"{reason}: compiled for {listed}", fits=self._fits_target(wanted, target)
        )

    def _fits_target(self, wanted: Combination, target: str) -> str:
        vendor = VENDORS[wanted.vendor]
        accepted = vendor.accepted_archs(target)
        found = []
        for release in self.table.releases:
            archs = release.archs(vendor.toolkit)
            sets = archs.sets if archs else {}
            fitting = [
                index
                for index, name in sets.items()
                if vendor.shipped_archs(self._arch_set(name, wanted.machine)).intersection(accepted)
                and index in release.indexes.names
            ]
            if fitting:
                found.append(f"torch {release.torch} on {', '.join(fitting)}")
        return "; ".join(found) or f"no wheel in the table serves {target}"

    def _arch_entries(
        self, wanted: Combination, release: TorchRelease
    ) -> tuple[tuple[str, ...], Confidence] | None:
        archs = release.archs(VENDORS[wanted.vendor].toolkit)
        build = release.builds.get(wanted.index)
        if build is not None and build.devices:
            return build.devices, "verified" if build.is_read else "medium"
        if archs is None:
            return None
        for index, name in archs.sets.items():
            known = self.table.indexes[index]
            if (known.vendor, known.toolkit) == (wanted.vendor, wanted.toolkit):
                entries = self._arch_set(name, wanted.machine)
                return (entries, archs.confidence) if entries else None
        return None

    def _arch_set(self, name: str, machine: str) -> tuple[str, ...]:
        """The archs of a set, which are compiled for each machine anew; empty where not known."""
        return self.table.arch_sets[name].get(machine, ())

    @classmethod
    def read(cls, text: str, *, path: str, contents: Contents | None = None) -> Self:
        """Return the table in `text`, with the contents of indexes. Raise `MatrixError`
        with every problem and its line.
        """
        return cls(read_table(text, path=path), contents)


@cache
def packaged() -> Compat:
    """The table that this version of warpfront was released with."""
    return Compat(packaged_rows(), packaged_contents())


@cache
def packaged_rows() -> Table:
    """The rows that people wrote, as released."""
    return read_table(_packaged_text(ROWS), path=ROWS)


def packaged_contents() -> Contents:
    """The contents of indexes, as released."""
    return read_contents(_packaged_text(CONTENTS), path=CONTENTS)


def _packaged_text(name: str) -> str:
    return resources.files("warpfront").joinpath("data", name).read_text(encoding="utf-8")


def _unknown(reason: str) -> Unknown:
    return Unknown(reasons=(reason,))


def _judge_glibc(wanted: Combination, release: TorchRelease) -> Judgement:
    """manylinux_2_28 wheels need glibc 2.28 (PEP 600); the older names need less than any base."""
    build = release.builds.get(wanted.index)
    level = (build.manylinux if build else "") or release.manylinux
    needed = level.removeprefix("manylinux_").replace("_", ".")
    if not wanted.glibc or not level.startswith("manylinux_"):
        return Supported()
    if Version(wanted.glibc) >= Version(needed):
        return Supported()
    return Contradicted(
        reason=f"torch {release.torch} needs glibc {needed}, the base has {wanted.glibc}",
        fits=f"a base with glibc {needed} or later",
    )
