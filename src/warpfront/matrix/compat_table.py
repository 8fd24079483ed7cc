"""The compat table: the rows that people write, with their sources, and what references in it
lead nowhere. Pure.

The contents of an index are not written here but read: `warpfront.matrix.index_contents`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.version import Version

from warpfront.matrix.language import VendorName
from warpfront.system.document import Where, checked, read_document
from warpfront.system.strict_values import strict_dataclass

Confidence = Literal["verified", "high", "medium", "low"]
COMPANIONS = ("torchvision", "torchaudio")
PYPI = "pypi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A combination to judge. `toolkit` is a version (`13.0`), `glibc` that of the base; `index`
    is "" where torch comes with the base. `variants` are names that are taken as wheel variants."""

    vendor: str
    toolkit: str = ""
    targets: tuple[str, ...]
    machine: str
    python: str
    torch: str
    index: str = ""
    companions: tuple[str, ...] = ()
    glibc: str = ""
    variants: tuple[str, ...] = ()


@strict_dataclass
class Index:
    """A wheel index and what its wheels are built for; `pypi` has another toolkit per release.

    `label` is the local version of its torch where that is not the index's name: several indexes of
    the table may be one URL. `device_extras` are its distributions whose device code comes with an
    extra for each target (`torch[device-gfx942]`). A `nightly` index has releases of one day only,
    which are not recorded.
    """

    url: str
    vendor: VendorName
    toolkit: str | None = None
    label: str = ""
    device_extras: tuple[str, ...] = ()
    nightly: bool = False


@strict_dataclass
class Driver:
    """The lowest Linux driver for a toolkit's major version."""

    vendor: VendorName
    major: str
    minimum: str
    source: str


@strict_dataclass
class Unusable:
    """An arch that wheels list from some toolkit version on although it does not work there:
    before `toolkit_before`, in these releases of torch and on these indexes, where it names any.
    """

    vendor: VendorName
    arch: str
    toolkit_from: str
    reason: str
    source: str
    toolkit_before: str = ""
    torch: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()

    def covers(self, target: str, combination: Combination) -> bool:
        """Return true if the row is about `target` in this torch."""
        version = Version(combination.toolkit or "0")
        return (
            (self.vendor, self.arch) == (combination.vendor, target)
            and version >= Version(self.toolkit_from)
            and (not self.toolkit_before or version < Version(self.toolkit_before))
            and (not self.torch or combination.torch in self.torch)
            and (not self.indexes or combination.index in self.indexes)
        )


@strict_dataclass
class End:
    """The last day with fixes: of `python`, `debian`, or a vendor's toolkits of `versions`."""

    what: str
    versions: tuple[str, ...]
    day: str
    source: str


@strict_dataclass
class _Fact:
    """A fact that people wrote down, with its source."""

    confidence: Confidence
    source: str


@strict_dataclass
class BaseTorch(_Fact):
    """A vendor's own torch in one release of its base image."""

    vendor: VendorName
    toolkit: str
    torch: str
    python: tuple[str, ...]


@strict_dataclass
class PypiBuild(_Fact):
    """The one build of a release on PyPI: its CUDA version and the triton it needs."""

    toolkit: str
    triton: str


@strict_dataclass
class Indexes(_Fact):
    """The indexes with a release; `seen` perhaps, `absent` certainly not."""

    names: tuple[str, ...]
    seen: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@strict_dataclass
class Paired(_Fact):
    """The release of a companion that belongs to a release of torch."""

    version: str


@strict_dataclass
class Archs(_Fact):
    """Index name -> name of the arch set that its wheels were compiled for."""

    sets: Mapping[str, str]


@strict_dataclass
class RocmTriton:
    """The distribution that provides `triton` on ROCm; `version` "" where not evidenced."""

    name: str
    source: str
    version: str = ""


@strict_dataclass
class Build:
    """A release of torch on one index: by `source` on `day` (ISO 8601). `companions` are those that
    the index has for it (name -> public version); `triton` is its requirement of one, "" where that
    is up to torch's own metadata; `is_read` is true for a reading of the index, false for a row.
    """

    python: tuple[str, ...]
    machines: tuple[str, ...]
    source: str
    day: str
    manylinux: str = ""
    companions: Mapping[str, str] = field(default_factory=dict)
    triton: str = ""
    devices: tuple[str, ...] = ()
    is_read: bool = False


@strict_dataclass
class TorchRelease:
    """A release of torch. `python` are the X.Y of its wheels; `builds` the facts about it on
    one index, which go before the facts about it in general.
    """

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
    builds: Mapping[str, Build] = field(default_factory=dict)
    notes: str = ""

    def companion(self, name: str) -> Paired:
        return self.torchvision if name == "torchvision" else self.torchaudio

    def companion_on(self, index: str, name: str) -> str:
        """Return the public version of a companion for this release on an index."""
        build = self.builds.get(index)
        return (build.companions.get(name) if build else "") or self.companion(name).version

    def pythons_on(self, index: str) -> tuple[str, ...]:
        """Return the X.Y with a wheel of this release on an index."""
        build = self.builds.get(index)
        return build.python if build else self.python

    def archs(self, toolkit: str | None) -> Archs | None:
        """Return the archs of the wheels for a toolkit, None where the table has none."""
        return {"cuda": self.cuda_archs, "rocm": self.rocm_archs}.get(toolkit or "")

    def triton(self, toolkit: str | None, index: str = "") -> tuple[str, str]:
        """Return the distribution with `triton` for a toolkit, and its version ("" if unknown)."""
        if build := self.builds.get(index):
            name, _, version = build.triton.partition("==")
            return name, version
        on_rocm = (self.rocm_triton.name, self.rocm_triton.version)
        return {"cuda": ("triton", self.pypi.triton), "rocm": on_rocm}.get(toolkit or "", ("", ""))


@strict_dataclass
class Table:
    """The compat file as it is written. `arch_sets` are by name and machine."""

    schema: Literal[1]
    as_of: str
    machine: str
    sources: Mapping[str, str]
    drivers: tuple[Driver, ...]
    indexes: Mapping[str, Index]
    arch_sets: Mapping[str, Mapping[str, tuple[str, ...]]]
    unusable: tuple[Unusable, ...]
    base_torch: tuple[BaseTorch, ...]
    releases: tuple[TorchRelease, ...]
    ends: tuple[End, ...] = ()


def read_table(text: str, *, path: str) -> Table:
    """Return the table in `text`. Raise `MatrixError` with every problem and its line."""
    document = read_document(text, path=path)
    table = checked(document, Table)
    for where, message in _dangling(table):
        document.refuse(where, message, "name one that the table has")
    if document.problems:
        raise document.error
    return table


def _dangling(table: Table) -> Iterator[tuple[Where, str]]:
    """References inside the table that lead nowhere."""
    if PYPI not in table.indexes:
        yield ("indexes",), f"index {PYPI} is missing"
    for place, release in enumerate(table.releases):
        listed = release.indexes
        names = (*listed.names, *listed.seen, *listed.absent, *release.builds)
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
