"""Variants of a name in a form that resolvers read: for each version the one wheel that the
cell takes, under a name without label. Edge.

pip reads no such names, and uv only in a preview, by what it detects on the machine. So uv
resolves stand-ins with metadata only; the lock has the variant itself. A variant's demands are
read once uv has taken its version; until then it has none: demands that contradict each other
would do so anyway.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    canonicalize_name,
    canonicalize_version,
    parse_wheel_filename,
)
from packaging.version import Version

from warpfront.errors import LockError, WheelError
from warpfront.matrix.cell import Variant
from warpfront.wheels.core_metadata import read_wheel_name, requires_of, split_label
from warpfront.wheels.lock.values import LockInputs, stack_names
from warpfront.wheels.metadata import read_small_members
from warpfront.wheels.sources import Link, NoAnswer, local_path, read_address
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront.wheels.variants.tables import (
    VariantTable,
    asks_by_variant,
    best_label,
    read_variants,
)

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

_TABLE = "-variants.json"
_MOST_VERSIONS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenVariant:
    """The wheel that a cell takes of one version. `requires` is None until it was read."""

    link: Link
    plain: str
    variant: Variant
    requires: tuple[str, ...] | None = None


class VariantPages:
    """The variants of one cell's resolution."""

    def __init__(
        self,
        inputs: LockInputs,
        tags: Iterable[Tag],
        wheelhouse: Wheelhouse,
        transport: Transport,
    ) -> None:
        self._inputs, self._transport = inputs, transport
        self._ranks = {tag: rank for rank, tag in enumerate(tags)}
        self._wheelhouse = wheelhouse
        self._taken: dict[tuple[str, Version], TakenVariant] = {}
        self._why_not = defaultdict[str, list[str]](list)

    def taken(self, name: str, version: Version | None) -> TakenVariant | None:
        return self._taken.get((name, version)) if version is not None else None

    def stood_for(self, filename: str) -> TakenVariant | None:
        """Return the wheel of a stand-in, by its file name."""
        return next((wheel for wheel in self._taken.values() if wheel.plain == filename), None)

    def why_not(self, name: str) -> tuple[str, ...]:
        """Why versions of a name have no variant for this cell."""
        return tuple(self._why_not.get(name, ()))

    def page(self, name: str, files: tuple[Link, ...]) -> tuple[Link, ...]:
        """Return the files of a name, with one stand-in for each version that has a variant for
        this cell, in place of its other wheels. Versions without one are unchanged.
        """
        listed = [file for file in files if file.filename.endswith((".tar.gz", ".zip", ".whl"))]
        listed = [file for file in listed if not split_label(file.filename)[1]]
        variants: dict[Version, list[Link]] = {}
        for link in files:
            plain, label = split_label(link.filename)
            if label and self._rank(plain) is not None:
                variants.setdefault(parse_wheel_filename(plain)[1], []).append(link)
        inputs = self._inputs
        texts = (*inputs.stack_requirements, *inputs.requirements, *inputs.parent)
        accepted = [
            requirement.specifier
            for requirement in map(Requirement, texts)
            if canonicalize_name(requirement.name) == name and requirement.marker is None
        ]
        fitting = (
            version
            for version in variants
            if all(specifier.contains(version, prereleases=True) for specifier in accepted)
        )
        # The newest alone: an index decides how many it lists, and each is a question more.
        for version in sorted(fitting, reverse=True)[:_MOST_VERSIONS]:
            best = self._best(name, version, variants[version], files)
            if best is None:
                continue
            self._taken[name, version] = best
            # An archive of sources stays: what needs building is another's question.
            names = ((file, read_wheel_name(file.filename)) for file in listed)
            listed = [file for file, wheel in names if not wheel or wheel.version != version]
            attributes = tuple(pair for pair in best.link.attributes if "metadata" not in pair[0])
            listed.append(Link(url=best.link.url, filename=best.plain, attributes=attributes))
        return tuple(listed)

    def read(self, versions: Mapping[str, str]) -> bool:
        """Read what the variants at these versions demand; whether any was not known before."""
        new = False
        for name, version in versions.items():
            key = (name, Version(version))
            wheel = self._taken.get(key)
            if wheel is None or wheel.requires is not None:
                continue
            where, label = wheel.link.filename, wheel.variant.label
            # By ranges where its server gives some.
            transport, member_names = self._transport, ("METADATA", "variant.json")
            members = read_small_members(wheel.link.url, transport, member_names)
            if members is None and local_path(wheel.link.url) is None:
                link = dataclasses.replace(wheel.link, filename=wheel.plain)
                path, _ = self._wheelhouse.bring(link, transport, f"{self._inputs.cell_id}: {name}")
                members = read_small_members(str(path), transport, member_names)
            if members is None:
                raise WheelError(f"{where}: not a readable wheel")
            metadata, document = members.get("METADATA"), members.get("variant.json")
            if metadata is None or document is None:
                raise WheelError(f"{where}: holds no METADATA, or no variant.json")
            table = read_variants(document, f"{where}: variant.json")
            same = {*table.variants} == {label}
            if not same or table.variant(label).properties != wheel.variant.properties:
                raise WheelError(
                    f"{where}: its variant.json says another variant than its index does",
                    hint="do not use that index until you know why",
                )
            requires = requires_of(metadata)
            if unsupported := asks_by_variant(requires):
                raise LockError(
                    f"{self._inputs.cell_id}: {where} asks by its variant: {unsupported}",
                    hint="no pip or uv of today can read that, and installs the wheel nowhere: "
                    "take another version, or leave the name out of `allow_variants`",
                )
            self._taken[key] = dataclasses.replace(wheel, requires=requires)
            new = True
        return new

    def _rank(self, plain: str) -> int | None:
        tags = parse_wheel_filename(plain)[3]
        return min((self._ranks[tag] for tag in tags if tag in self._ranks), default=None)

    def _best(
        self, name: str, version: Version, offered: list[Link], files: Iterable[Link]
    ) -> TakenVariant | None:
        """Return the best by build number, label, then platform, as PEP 825 orders them."""
        rule = self._inputs.variants
        assert rule is not None
        try:
            table = _table_of(name, version, files, self._transport)
        except LockError as error:
            self._why_not[name].append(f"{name} {version}: its variants are left out: {error}")
            return None
        of_the_stack = name in stack_names(self._inputs)
        wheels = [(*split_label(link.filename), link) for link in offered]
        for _, group in groupby(sorted(wheels, key=_build, reverse=True), _build):
            same_build = list(group)
            labels = {label for _, label, _ in same_build} & set(table.variants)
            best = best_label(table, labels, rule, of_the_stack=of_the_stack)
            if best is not None:
                fitting = [(plain, link) for plain, label, link in same_build if label == best]
                plain, link = min(
                    fitting, key=lambda pair: (self._rank(pair[0]) or 0, pair[1].filename)
                )
                return TakenVariant(link=link, plain=plain, variant=table.variant(best))
        every = ", ".join(sorted({label for _, label, _ in wheels}))
        reason = f"none of its variants ({every}) is for this cell"
        self._why_not[name].append(f"{name} {version}: {reason}")
        return None


def _build(wheel: tuple[str, str, Link]) -> BuildTag:
    return parse_wheel_filename(wheel[0])[2]


def _table_of(
    name: str, version: Version, files: Iterable[Link], transport: Transport
) -> VariantTable:
    """Return the index's table of the variants of one version. Raise `LockError`."""
    for link in files:
        stem, _, number = link.filename.removesuffix(_TABLE).rpartition("-")
        of = (canonicalize_name(stem), canonicalize_version(number))
        if not link.filename.endswith(_TABLE) or of != (name, canonicalize_version(version)):
            continue
        text = read_address(link.url, transport)
        if isinstance(text, NoAnswer):
            raise LockError(str(text))
        if link.sha256 and hashlib.sha256(text.encode()).hexdigest() != link.sha256:
            raise LockError(f"{link.filename}: is not what its index says: its hash is another")
        return read_variants(text, link.filename)
    raise LockError(f"its index has no {name}-{version}{_TABLE}")
