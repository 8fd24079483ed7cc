"""A lock: what it was resolved from, every wheel by hash, and the index of each name. Words.

An index is a level of trust. Any publisher on one of them could publish any name there, so a name
of one index is never taken from another, whatever version that has: docs/security.md.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.matrix.cell import (
    NO_VARIANT,
    Recipe,
    Source,
    Variant,
    VariantRule,
    WheelIndex,
)
from warpfront.matrix.language import Filled, OwnIndex, Patch
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInputs:
    """Everything that a lock depends on. A lock is stale if its `digest` changes.

    `stack_requirements` come from `index` only, matches of an own index's patterns from that;
    `requirements` from PyPI. `allow_builds` are distributions that may be built from their index's
    source archive if it has no wheel, `variants` the accepted wheel variants. `parent` are the
    exact pins (`name==version`) of the parent's lock, which a child may extend and never change.
    `machine` is the cell's; `glibc` is the base's C library, e.g. `2.36`. `relax` are (package,
    reason) of this image and of its parents. `sources` are its requirements that no index has,
    `builds` the recipes of packages, `patches` the changes to packages. `targets` are the cell's if
    each has wheels of its own, else none. `unfit` are the files that differ from the matrix.

    From the vendor come `toolkit` (`cuda`, `rocm`, `synapseai`, `cpu`) and two sets of fnmatch
    patterns of normalized names: `protected`, which only `index` provides, and `libraries`, which
    torch loads and whose versions go with it.
    """

    cell_id: str
    python: str
    machine: str
    glibc: str
    index: WheelIndex | None
    stack_requirements: tuple[str, ...]
    requirements: tuple[str, ...]
    parent: tuple[str, ...] = ()
    relax: tuple[tuple[str, str], ...] = ()
    sources: tuple[Source, ...] = ()
    builds: tuple[Recipe, ...] = ()
    patches: tuple[Patch, ...] = ()
    targets: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    toolkit: str = "cpu"
    protected: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    own_indexes: tuple[OwnIndex, ...] = ()
    allow_builds: tuple[str, ...] = ()
    variants: VariantRule | None = None

    def allows_variants_of(self, name: str) -> bool:
        """Return true if matrix.yaml allows wheel variants of a distribution."""
        return self.variants is not None and name in self.variants.packages

    @property
    def digest(self) -> str:
        """sha256 over the inputs as JSON, without the cell's name and what the vendor decides."""
        return digest_of(
            {
                "python": self.python,
                "machine": self.machine,
                "glibc": self.glibc,
                "index": [self.index.name, self.index.url] if self.index else None,
                "stack": sorted(self.stack_requirements),
                "requirements": sorted(self.requirements),
                "parent": sorted(self.parent),
                **({"relax": sorted(self.relax)} if self.relax else {}),
                **({"sources": _texts(self.sources)} if self.sources else {}),
                **({"builds": _texts(self.builds)} if self.builds else {}),
                # In their order: a second patch may stand on the first.
                **({"patches": [asdict(patch) for patch in self.patches]} if self.patches else {}),
                **({"own_indexes": _texts(self.own_indexes)} if self.own_indexes else {}),
                **({"targets": sorted(self.targets)} if self.targets else {}),
                **({"variants": asdict(self.variants)} if self.variants else {}),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UnmetDemand:
    """A demand on the torch stack that is not met in a cell.

    `chain` are the packages from the image's own requirement to the one that demands
    (`vllm 0.11.0`, `xformers 0.0.32`); empty if the image's own requirement demands it.
    `asker` is the name of the last. `wanted` is the demand, `instead` the state of the
    cell (like `torch 2.13.0+cpu`).
    """

    asker: str
    wanted: str
    instead: str
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' -> '.join((*self.chain, self.wanted))}, but this cell {self.instead}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RelaxedPackage:
    """A package of a lock whose demands on the torch stack the matrix waives. `unmet` are those
    demands (`torch==2.8.0`), `reason` the matrix's.
    """

    package: str
    version: Annotated[str, Filled]
    reason: Annotated[str, Filled]
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LockedWheel:
    """A wheel by index, file name and hash, independent of the machine. `sha256` is bare hex.

    `sdist` and `sdist_sha256` name the source archive of a wheel that its index does not have and
    that we build once (AMD's `rocm`); empty for all others. `source` is the origin of that archive,
    or of a wheel by its address, if no index has it (`index` is then ""). `targets` are the targets
    of a wheel made from an archive that serves more. `variant` is the variant in its file name.
    """

    name: str
    version: str
    filename: str
    sha256: str
    size_bytes: int
    index: str
    sdist: str = ""
    sdist_sha256: str = ""
    source: str = ""
    targets: tuple[str, ...] = ()
    variant: Variant = NO_VARIANT

    @property
    def kept_as(self) -> str:
        """Return the file name without a variant's label, which pip does not read."""
        label = self.variant.label
        return f"{self.filename.removesuffix(f'-{label}.whl')}.whl" if label else self.filename


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PatchedWheel:
    """A wheel of a lock changed by `patches`, in their order: from the `original` wheel, or, if
    that is None, from the sources that the wheel names.
    """

    package: str
    patches: tuple[Patch, ...]
    original: LockedWheel | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UnbuiltWheel:
    """A wheel that a lock is to have and that is not built yet, so that its hash is not known.

    `sdist` and `sdist_sha256` name its archive of sources, `index` or `source` the archive's
    origin. `version` and demands are those of `metadata_from`, a file of the archive; where that is
    "" the archive has no file that states them, and `version` is "0".
    """

    package: str
    version: str
    sdist: str
    sdist_sha256: str
    index: str = ""
    source: str = ""
    metadata_from: str = ""

    def __str__(self) -> str:
        return f"{self.package} {self.version}" if self.metadata_from else self.package


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelLock:
    """The wheels of a cell, its parents' included. `inputs_digest` is `LockInputs.digest` at
    the time of locking. `relaxed` are the packages with waived demands on the torch stack,
    `builds` those built against it, `patched` those that differ from their authors'; those
    of the parents included. A lock with `unbuilt` wheels is not complete: no image is made of it.
    """

    cell_id: str
    python: str
    inputs_digest: str
    wheels: tuple[LockedWheel, ...]
    relaxed: tuple[RelaxedPackage, ...] = ()
    builds: tuple[Recipe, ...] = ()
    patched: tuple[PatchedWheel, ...] = ()
    unbuilt: tuple[UnbuiltWheel, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 over (file name, hash) of every wheel, whatever cell they serve."""
        return digest_of([[wheel.filename, wheel.sha256] for wheel in sorted(self.wheels)])

    @property
    def size_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)


NO_LOCK = WheelLock(cell_id="", python="", inputs_digest="", wheels=())
NEVER_BUILT = "never built: it has no lock yet"
"""The reason of a missing lock. Locks are committed: the cell was never resolved from an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """The state of a cell's lock before resolving. `reason` is why it is not usable, else "";
    `fault` is why none can be made of the project's files.
    """

    lock: WheelLock | None
    reason: str
    fault: Blocked | Failed | None = None


def _texts(values: tuple[Recipe | Source | OwnIndex, ...]) -> list[str]:
    """Values as texts that sort."""
    return sorted(json.dumps(dataclasses.asdict(value), sort_keys=True) for value in values)


PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRule:
    """The index that a name belongs to. `alone` = it comes from there or not at all; else the
    site's indexes may have it where this one does not know the name.
    """

    url: str
    alone: bool


def index_rule(name: str, inputs: LockInputs) -> IndexRule | None:
    """Return the index of a distribution; None if any of the site's indexes will do."""
    if inputs.index is not None and (
        name in stack_names(inputs) or matches(name, inputs.protected)
    ):
        return IndexRule(url=inputs.index.url, alone=True)
    for index in inputs.own_indexes:
        if matches(name, index.packages):
            return IndexRule(url=index.url, alone=True)
    if inputs.index is not None and matches(name, inputs.libraries):
        return IndexRule(url=inputs.index.url, alone=False)
    return None


def known_names(inputs: LockInputs) -> tuple[str, ...]:
    """Return names of one index that are known before resolving."""
    patterns = (
        *inputs.protected,
        *(package for index in inputs.own_indexes for package in index.packages),
    )
    names = {*stack_names(inputs), *(pattern for pattern in patterns if "*" not in pattern)}
    return tuple(sorted(name for name in names if index_rule(name, inputs)))


def misplaced(wheels: Iterable[LockedWheel], inputs: LockInputs) -> str:
    """Return the first wheel from another index than its own, in words; "" for none."""
    shared = dict.fromkeys((*((inputs.index.url,) if inputs.index else ()), PYPI))
    for wheel in wheels:
        if wheel.source:
            continue
        if inputs.index is None and matches(wheel.name, inputs.protected):
            return f"{wheel.name} from {wheel.index}, and the base has its own"
        rule = index_rule(wheel.name, inputs)
        allowed = [rule.url] if rule and rule.alone else list(shared)
        if wheel.index not in allowed:
            return f"{wheel.name} from {wheel.index}, which belongs to {' or '.join(allowed)}"
    return ""


def stack_names(inputs: LockInputs) -> frozenset[str]:
    """Return the names that the matrix pins."""
    return frozenset(map(_name_of, inputs.stack_requirements))


@functools.cache  # called for every wheel of every lock, with a handful of requirements
def _name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
