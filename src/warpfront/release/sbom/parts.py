"""The parts of an image: every wheel of its lock, any other distribution in it, its base. Each
has hashes, licences and the reason for it; and the table of the licences, with the source of each,
and whether a person has to decide. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from packaging.utils import canonicalize_name

from warpfront.images.built import CREATED, ResolvedBase
from warpfront.images.labels import SOURCE
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.matrix.language import Patch
from warpfront.release.sbom.licences import (
    Licence,
    LicenceClass,
    class_of,
    licence_of,
    licence_of_package,
)
from warpfront.system.texts import markdown_table, markdown_text
from warpfront.wheels.lock.values import LockedWheel, WheelLock
from warpfront.wheels.resolve.demands import asked_for, roots_of
from warpfront_checks.image_contents import Contents, EmbeddedComponent, FoundDistribution, Package

Kind = Literal["wheel", "distribution", "debian", "carried", "base"]
_PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an image. `sha256` is bare hex where it is known, `within` the purl of the
    wheel that bundles it. `source` is the Debian source package, how the base was made, or the
    wheel from which one was made by `patches`. A `distribution` was found in the image and is in no
    lock: it came with the base.
    """

    kind: Kind
    name: str
    version: str
    purl: str
    sha256: str = ""
    licence: Licence = field(default_factory=Licence)
    within: str = ""
    source: str = ""
    patches: tuple[Patch, ...] = ()

    @property
    def ref(self) -> str:
        """Return the unique reference of a part: several wheels may bundle the same one."""
        return f"{self.within}!{self.purl}" if self.within else self.purl


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The parts of the image of `cell_id`, in the order of their `ref`s. `asked` are (purl of
    the requiring part or "" for the image itself, purl of the required one, requirement).
    `debian_main`: its Debian packages are known to come from there. `created` is the image's own
    moment, RFC 3339. `folders` are pairs of a folder and its bytes.
    """

    cell_id: str
    name: str
    tag: str
    created: str
    source: str
    base: Part
    parts: tuple[Part, ...]
    asked: tuple[tuple[str, str, str], ...] = ()
    debian_main: bool = False
    folders: tuple[tuple[str, int], ...] = ()

    @property
    def purl(self) -> str:
        """Return the purl of the image without its digest, which documents are attached to."""
        return _purl("oci", "", self.name.rpartition("/")[2], self.tag, {})


def bill_of(
    chain: tuple[Cell, ...],
    lock: WheelLock,
    contents: Contents,
    base: ResolvedBase,
    labels: Mapping[str, str],
) -> Bill:
    """Return the bill of the image of the last cell of `chain`, which has the cells below it:
    `contents` are those that `load` listed in it, `base` is its base.
    """
    cell, roots = chain[-1], roots_of(chain, lock.wheels)
    own_urls = {index.url for index in cell.own_indexes}
    distributions = {
        _name(distribution.name): distribution for distribution in contents.distributions
    }
    wheels = {_name(wheel.name): _wheel(wheel, distributions, own_urls) for wheel in lock.wheels}
    for patched in lock.patched:
        wheel, original = wheels[patched.package], patched.original
        of = f"{original.filename} sha256:{original.sha256}" if original else "its sources"
        patches = patched.patches
        wheels[patched.package] = replace(wheel, source=f"patched from {of}", patches=patches)
    parts = [*wheels.values(), *(_package(package, contents) for package in contents.packages)]
    for name, distribution in distributions.items():
        part = wheels.get(name) or _distribution(distribution)
        parts += [part, *_carried(distribution.carried, part)]
    requires = {name: distributions[name].requires for name in wheels if name in distributions}
    edges = asked_for(requires, roots, python=cell.python, machine=cell.machine)
    every = {part.ref: part for part in parts}
    return Bill(
        cell_id=cell.id,
        name=cell.repository.removeprefix("localhost/"),
        tag=cell.tag,
        created=labels[CREATED],
        source=labels.get(SOURCE, ""),
        base=_base(cell, base),
        parts=tuple(every[ref] for ref in sorted(every)),
        asked=tuple(
            (wheels[asker].purl if asker else "", wheels[required].purl, requirement)
            for asker, required, requirement in edges
            if required in wheels
        ),
        debian_main=base.source is BaseSource.BOOTSTRAP,
        folders=tuple(sorted(contents.folders.items())),
    )


def _wheel(
    wheel: LockedWheel, distributions: Mapping[str, FoundDistribution], own_urls: set[str]
) -> Part:
    """Return a wheel of the lock. The URL of a company's own index is confidential."""
    facts = distributions.get(_name(wheel.name))
    url = "" if wheel.index in own_urls or wheel.index.rstrip("/") == _PYPI else wheel.index
    qualifiers = {"file_name": wheel.filename, **({"repository_url": url} if url else {})}
    return Part(
        kind="wheel",
        name=wheel.name,
        version=wheel.version,
        purl=_purl("pypi", "", _name(wheel.name), wheel.version, qualifiers),
        sha256=wheel.sha256,
        licence=licence_of(facts) if facts else Licence(),
    )


def _distribution(found_distribution: FoundDistribution) -> Part:
    return Part(
        kind="distribution",
        name=found_distribution.name,
        version=found_distribution.version,
        purl=_purl("pypi", "", _name(found_distribution.name), found_distribution.version, {}),
        licence=licence_of(found_distribution),
    )


def _carried(carried: Iterable[EmbeddedComponent], within: Part) -> Iterator[Part]:
    """Yield the libraries bundled in a wheel. Another of the same name may be installed as well."""
    for embedded_component in carried:
        namespace, _, name = embedded_component.name.rpartition("/")
        name = _name(name) if embedded_component.kind == "pypi" else name
        yield Part(
            kind="carried",
            name=embedded_component.name,
            version=embedded_component.version,
            purl=_purl(embedded_component.kind, namespace, name, embedded_component.version, {}),
            within=within.purl,
        )


def _package(package: Package, contents: Contents) -> Part:
    system = contents.system or "debian"
    qualifiers = {"arch": package.architecture, "distro": f"{system}-{contents.release}".strip("-")}
    return Part(
        kind="debian",
        name=package.name,
        version=package.version,
        purl=_purl("deb", system, package.name, package.version, qualifiers),
        licence=licence_of_package(package),
        source=package.source,
    )


def _base(cell: Cell, base: ResolvedBase) -> Part:
    """Return the base by digest, with its Debian recipe where it was made here."""
    if base.source is BaseSource.BOOTSTRAP:
        return Part(
            kind="base",
            name=base.name,
            version=base.identity,
            purl=_purl("oci", "", base.name, base.identity, {"tag": base.recipe[:12]}),
            source=f"bootstrapped by recipe sha256:{base.recipe}",
        )
    repository, _, tag = cell.base.reference.rpartition(":")
    qualifiers = {"repository_url": repository, "tag": tag}
    return Part(
        kind="base",
        name=cell.base.reference,
        version=base.identity,
        purl=_purl("oci", "", repository.rpartition("/")[2], base.identity, qualifiers),
        source=cell.base.reference,
    )


def _name(name: str) -> str:
    return canonicalize_name(name)


def _purl(kind: str, namespace: str, name: str, version: str, qualifiers: Mapping[str, str]) -> str:
    # Of the extra `publish`: only who writes an SBOM needs it.
    from packageurl import PackageURL  # noqa: PLC0415

    filled = {key: value for key, value in qualifiers.items() if value}
    return str(PackageURL(kind, namespace or None, name, version, filled).to_string())


SCHEMA = 1
LicenceRow = tuple[Part, LicenceClass]


def licence_rows(bill: Bill) -> tuple[LicenceRow, ...]:
    """Return the rows, those to decide on first, each group sorted by name. A wheel's bundled
    parts are under the wheel's own expression, so they have no row.
    """
    rows = [
        (part, class_of(part.licence, debian_main=bill.debian_main and part.kind == "debian"))
        for part in bill.parts
        if part.kind != "carried"
    ]
    return tuple(sorted(rows, key=lambda row: (not row[1].decision, row[0].name, row[0].version)))


def licence_document(bill: Bill) -> dict[str, object]:
    """Return the table as JSON values."""
    rows = licence_rows(bill)
    return {
        "schema": SCHEMA,
        "cell_id": bill.cell_id,
        "image": f"{bill.name}:{bill.tag}",
        "decisions": sum(asks.decision for _, asks in rows),
        "classes": dict(sorted(Counter(asks.name for _, asks in rows).items())),
        "packages": [
            {
                "package": part.name,
                "version": part.version,
                "kind": part.kind,
                "expression": part.licence.expression,
                "source": part.licence.source,
                "said": part.licence.said,
                "class": asks.name,
                "decision": asks.decision,
            }
            for part, asks in rows
        ],
    }


def licence_markdown(bill: Bill) -> str:
    """Return the table for people: the rows that need a decision, then everything."""
    rows = licence_rows(bill)
    undecided = [row for row in rows if row[1].decision]
    counts = Counter((asks.name, asks.means) for _, asks in rows)
    classes = [(name, str(count), means) for (name, means), count in counts.most_common()]
    return "\n".join(
        [
            f"# Licences in {markdown_text(bill.name)}:{markdown_text(bill.tag)}",
            "",
            f"{len(rows)} packages; {len(undecided)} need a decision before it is passed on.",
            "",
            *markdown_table(("class", "packages", "what it asks"), classes),
            "",
            *(["## To decide", "", *_packages(undecided), ""] if undecided else []),
            "## All",
            "",
            *_packages(rows),
            "",
        ]
    )


def _packages(rows: Iterable[LicenceRow]) -> list[str]:
    cells = [
        (
            f"{part.name} {part.version}",
            part.licence.expression or "unknown",
            part.licence.source or part.licence.said or "nothing is said",
            asks.name,
        )
        for part, asks in rows
    ]
    return markdown_table(("package", "licence", "says", "class"), cells)
