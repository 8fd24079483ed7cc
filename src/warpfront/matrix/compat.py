"""What is known about torch wheels: which exist, for which toolkit, Python and hardware. Pure.

The table is data (`data/compat.yaml`, dated, with a source per row). What it does not say is
`Unknown`, never guessed; what it denies is `Contradicted`, with what would fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, Self

from packaging.version import Version

from warpfront.errors import MatrixError
from warpfront.matrix.vendors import VENDORS
from warpfront.model import Pin, WheelIndex
from warpfront.system.document import read_checked, strict_dataclass

Confidence = Literal["verified", "high", "medium", "low"]
COMPANIONS = ("torchvision", "torchaudio")
PYPI = "pypi"


@strict_dataclass
class Index:
    """A wheel index and what its wheels are built for; `pypi` has another toolkit per release."""

    url: str
    vendor: str
    toolkit: str | None = None


@strict_dataclass
class Driver:
    """The lowest Linux driver for a toolkit's major version."""

    vendor: str
    major: str
    minimum: str
    source: str


@strict_dataclass
class Unusable:
    """An arch that wheels list from some toolkit version on although it does not work there."""

    vendor: str
    arch: str
    toolkit_from: str
    reason: str
    source: str


@strict_dataclass
class End:
    """The last day on which the maker of something fixes it: `what` is `python`, `debian`, or a
    vendor whose toolkits of `versions` are meant.
    """

    what: str
    versions: tuple[str, ...]
    day: str
    source: str


@strict_dataclass
class BaseTorch:
    """A vendor's own torch, as one release of its base image holds it."""

    vendor: str
    toolkit: str
    torch: str
    python: tuple[str, ...]
    confidence: Confidence
    source: str


@strict_dataclass
class PypiBuild:
    """The one build of a release that PyPI holds: its CUDA version and the triton it needs."""

    toolkit: str
    triton: str
    confidence: Confidence
    source: str


@strict_dataclass
class Indexes:
    """The indexes that hold a release; `seen` perhaps, `absent` certainly not."""

    names: tuple[str, ...]
    confidence: Confidence
    source: str
    seen: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@strict_dataclass
class Paired:
    """The release of a companion that belongs to a release of torch."""

    version: str
    confidence: Confidence
    source: str


@strict_dataclass
class Archs:
    """Index name -> name of the arch set that its wheels were compiled for."""

    sets: Mapping[str, str]
    confidence: Confidence
    source: str


@strict_dataclass
class RocmTriton:
    """The distribution that provides `triton` on ROCm; `version` "" where not evidenced."""

    name: str
    source: str
    version: str = ""


@strict_dataclass
class TorchRelease:
    """One release of torch. `python` are the X.Y of its wheels."""

    torch: str
    python: tuple[str, ...]
    manylinux: str
    pypi: PypiBuild
    indexes: Indexes
    torchvision: Paired
    torchaudio: Paired
    rocm_triton: RocmTriton
    cuda_archs: Archs | None = None
    rocm_archs: Archs | None = None
    notes: str = ""

    def companion(self, name: str) -> Paired:
        return self.torchvision if name == "torchvision" else self.torchaudio

    def archs(self, toolkit: str | None) -> Archs | None:
        """What the wheels for a toolkit were compiled for, as far as the table says."""
        return {"cuda": self.cuda_archs, "rocm": self.rocm_archs}.get(toolkit or "")

    def triton(self, toolkit: str | None) -> tuple[str, str]:
        """The distribution that brings `triton` for a toolkit, and its version ("" where
        none is evidenced).
        """
        on_rocm = (self.rocm_triton.name, self.rocm_triton.version)
        return {"cuda": ("triton", self.pypi.triton), "rocm": on_rocm}.get(toolkit or "", ("", ""))


@strict_dataclass
class Table:
    """The compat file as it is written."""

    schema: Literal[1]
    as_of: str
    machine: str
    sources: Mapping[str, str]
    drivers: tuple[Driver, ...]
    indexes: Mapping[str, Index]
    arch_sets: Mapping[str, tuple[str, ...]]
    unusable: tuple[Unusable, ...]
    base_torch: tuple[BaseTorch, ...]
    releases: tuple[TorchRelease, ...]
    ends: tuple[End, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
    """The table says that it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The table does not say; each reason is a sentence."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradicted:
    """The table says that it does not exist, and `fits` what would."""

    reason: str
    fits: str


Judgement = Supported | Unknown | Contradicted


class Compat:
    """The compat table, ready to answer."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._releases = {release.torch: release for release in table.releases}

    @property
    def torches(self) -> tuple[str, ...]:
        """The releases known, oldest first."""
        return tuple(self._releases)

    def end(self, what: str, version: str) -> End | None:
        """The end of support of a version, if the table has it."""
        return next(
            (one for one in self.table.ends if one.what == what and version in one.versions), None
        )

    def last_with(self, vendor: str, toolkit: str) -> str | None:
        """The last release of torch with wheels for a toolkit; None where the newest may have some,
        or none is known.
        """
        names = {
            name
            for name, one in self.table.indexes.items()
            if (one.vendor, one.toolkit) == (vendor, toolkit)
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
        """The index that holds `torch` for this toolkit. Never `pypi`, whose wheels carry no label
        that would tell what they are; a row that wants it says so."""
        release = self._releases.get(torch)
        for name, known in self.table.indexes.items():
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

    def stack(self, wanted: Wanted) -> tuple[Pin, ...]:
        """torch, its companions and its triton at their full versions; empty where torch comes
        with the base. A triton whose version is not evidenced is left to torch's own metadata.
        Of several variants of one version none has a local label."""
        vendor = VENDORS[wanted.vendor]
        if vendor.torch_from == "base":
            return ()
        label = vendor.label(wanted.index)
        names = ("torch", *wanted.companions)
        local = {one: f"+{label}" if label and one not in wanted.variants else "" for one in names}
        release = self._releases.get(wanted.torch)
        pins = [Pin(name="torch", version=wanted.torch + local["torch"])]
        if release is not None:
            pins += [
                Pin(name=name, version=release.companion(name).version + local[name])
                for name in wanted.companions
            ]
            name, version = release.triton(vendor.toolkit)
            pins += [Pin(name=name, version=version)] if version else []
        return tuple(pins)

    def judge(self, wanted: Wanted) -> Judgement:
        """What the table says of `wanted`: the first contradiction, else everything unknown."""
        unknown: list[str] = []
        for judgement in self._judgements(wanted):
            if isinstance(judgement, Contradicted):
                return judgement
            if isinstance(judgement, Unknown):
                unknown.extend(judgement.reasons)
        return Unknown(reasons=tuple(unknown)) if unknown else Supported()

    def _judgements(self, wanted: Wanted) -> Iterator[Judgement]:
        vendor = VENDORS[wanted.vendor]
        strangers = [target for target in wanted.targets if target not in vendor.known_targets]
        if strangers:
            yield _unknown(
                f"{', '.join(strangers)}: no {wanted.vendor} hardware known by that name"
            )
        if vendor.torch_from == "base":
            yield self._judge_base_torch(wanted)
            return
        if wanted.machine != self.table.machine:
            yield _unknown(
                f"the compat table is about wheels for {self.table.machine}; it does not say "
                f"whether torch {wanted.torch} from index {wanted.index} has one for "
                f"{wanted.machine}"
            )
        release = self._releases.get(wanted.torch)
        if release is None:
            yield self._judge_unknown_release(wanted)
            return
        yield self._judge_index(wanted, release)
        yield self._judge_python(wanted, release)
        yield _judge_glibc(wanted, release)
        for companion in wanted.companions:
            yield self._judge_companion(wanted, release, companion)
        if wanted.machine == self.table.machine:  # archs are compiled for each machine anew
            yield from self._judge_targets(wanted, release)

    def _judge_base_torch(self, wanted: Wanted) -> Judgement:
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

    def _judge_unknown_release(self, wanted: Wanted) -> Judgement:
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

    def _judge_index(self, wanted: Wanted, release: TorchRelease) -> Judgement:
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

    def _judge_python(self, wanted: Wanted, release: TorchRelease) -> Judgement:
        if wanted.python in release.python:
            return Supported()
        releases = [row.torch for row in self.table.releases if wanted.python in row.python]
        others = f"; torch {', '.join(releases)} for python {wanted.python}" if releases else ""
        return Contradicted(
            reason=f"torch {release.torch} has no wheels for python {wanted.python}",
            fits=f"python {', '.join(release.python)}{others}",
        )

    def _judge_companion(self, wanted: Wanted, release: TorchRelease, name: str) -> Judgement:
        """A companion that no longer follows torch's releases (torchaudio from 2.11.0 on) exists
        on the indexes of its own time only."""
        version = release.companion(name).version
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

    def _judge_targets(self, wanted: Wanted, release: TorchRelease) -> Iterator[Judgement]:
        vendor = VENDORS[wanted.vendor]
        wanting = [target for target in wanted.targets if vendor.accepted_archs(target)]
        if not wanting:
            return
        found = self._arch_entries(wanted, release)
        if found is None:
            yield _unknown(
                f"the arch list of torch {release.torch} on index {wanted.index} is not evidenced"
            )
            return
        entries, confidence = found
        shipped = vendor.shipped_archs(entries)
        for target in wanting:
            yield self._judge_target(wanted, target, shipped, entries, confidence)

    def _judge_target(
        self,
        wanted: Wanted,
        target: str,
        shipped: frozenset[str],
        entries: tuple[str, ...],
        confidence: Confidence,
    ) -> Judgement:
        for row in self.table.unusable:
            if (row.vendor, row.arch) == (wanted.vendor, target) and Version(
                wanted.toolkit
            ) >= Version(row.toolkit_from):
                return Contradicted(
                    reason=f"{target}: {row.reason} ({row.source})",
                    fits=f"a toolkit before {row.toolkit_from}",
                )
        if shipped.intersection(VENDORS[wanted.vendor].accepted_archs(target)):
            return Supported()
        reason = f"{target} is not served by torch {wanted.torch} from index {wanted.index}"
        if confidence == "low":
            return _unknown(f"{reason}, by an arch list of low confidence")
        listed = ", ".join(entries)
        return Contradicted(
            reason=f"{reason}: compiled for {listed}", fits=self._fits_target(wanted, target)
        )

    def _fits_target(self, wanted: Wanted, target: str) -> str:
        vendor = VENDORS[wanted.vendor]
        accepted = vendor.accepted_archs(target)
        found = []
        for release in self.table.releases:
            archs = release.archs(vendor.toolkit)
            sets = archs.sets if archs else {}
            fitting = [
                index
                for index, name in sets.items()
                if vendor.shipped_archs(self.table.arch_sets[name]).intersection(accepted)
                and index in release.indexes.names
            ]
            if fitting:
                found.append(f"torch {release.torch} on {', '.join(fitting)}")
        return "; ".join(found) or f"no wheel in the table serves {target}"

    def _arch_entries(
        self, wanted: Wanted, release: TorchRelease
    ) -> tuple[tuple[str, ...], Confidence] | None:
        archs = release.archs(VENDORS[wanted.vendor].toolkit)
        if archs is None:
            return None
        for index, name in archs.sets.items():
            known = self.table.indexes[index]
            if (known.vendor, known.toolkit) == (wanted.vendor, wanted.toolkit):
                return self.table.arch_sets[name], archs.confidence
        return None

    @classmethod
    def read(cls, text: str, *, path: str) -> Self:
        """The table in `text`. Raises `MatrixError` with every problem and its line."""
        document, table = read_checked(text, path=path, into=Table)
        problems = tuple(document.problem(where, message) for where, message in _dangling(table))
        if problems:
            raise MatrixError(problems)
        return cls(table)


@cache
def packaged() -> Compat:
    """The table that this version of warpfront was released with."""
    name = "compat.yaml"
    file = resources.files("warpfront").joinpath("data", name)
    return Compat.read(file.read_text(encoding="utf-8"), path=name)


def _unknown(reason: str) -> Unknown:
    return Unknown(reasons=(reason,))


def _judge_glibc(wanted: Wanted, release: TorchRelease) -> Judgement:
    """manylinux_2_28 wheels need glibc 2.28 (PEP 600); the older names need less than any base."""
    needed = release.manylinux.removeprefix("manylinux_").replace("_", ".")
    if not wanted.glibc or not release.manylinux.startswith("manylinux_"):
        return Supported()
    if Version(wanted.glibc) >= Version(needed):
        return Supported()
    return Contradicted(
        reason=f"torch {release.torch} needs glibc {needed}, the base has {wanted.glibc}",
        fits=f"a base with glibc {needed} or later",
    )


def _dangling(table: Table) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """References inside the table that lead nowhere."""
    yield from _foreign_vendors(table)
    for place, release in enumerate(table.releases):
        names = (*release.indexes.names, *release.indexes.seen, *release.indexes.absent)
        for name in names:
            if name not in table.indexes:
                yield ("releases", place, "indexes"), f"index {name} is not in indexes:"
        for key, archs in (("cuda_archs", release.cuda_archs), ("rocm_archs", release.rocm_archs)):
            for index, name in (archs.sets if archs else {}).items():
                if index not in table.indexes:
                    yield ("releases", place, key), f"index {index} is not in indexes:"
                if name not in table.arch_sets:
                    yield ("releases", place, key), f"arch set {name} is not in arch_sets:"
        if any(other.torch == release.torch for other in table.releases[:place]):
            yield ("releases", place, "torch"), f"torch {release.torch} is listed twice"


def _foreign_vendors(table: Table) -> Iterator[tuple[tuple[str | int, ...], str]]:
    known: Callable[[str], bool] = VENDORS.__contains__
    if PYPI not in table.indexes:
        yield ("indexes",), f"index {PYPI} is missing"
    for name, index in table.indexes.items():
        if not known(index.vendor):
            yield ("indexes", name), f"vendor {index.vendor} is not known"
    for place, row in enumerate(table.base_torch):
        if not known(row.vendor):
            yield ("base_torch", place), f"vendor {row.vendor} is not known"
