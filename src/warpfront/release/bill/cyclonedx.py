"""A bill of materials as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/): the same bill, the
same bytes. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from cyclonedx.model import AttachedText, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import (
    Component,
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from warpfront.release.bill.parts import Bill, Part

if TYPE_CHECKING:
    from cyclonedx.model.license import License

_OURS = "dev.warpfront"
_NAMESPACE = uuid.UUID("5d8a1d1e-6f0b-5b6e-9d0a-7d2f0c6f9a11")
_UNNUMBERED = uuid.UUID(int=0)


def cyclonedx_text(bill: Bill) -> str:
    """The document. Its serial number is made from all that is in it."""
    image = Component(
        name=bill.name,
        version=bill.tag,
        type=ComponentType.CONTAINER,
        bom_ref=bill.purl,
        purl=PackageURL.from_string(bill.purl),
        properties=_properties(cell=bill.cell_id),
    )
    carried: dict[str, list[Part]] = {}
    for part in bill.parts:
        carried.setdefault(part.within, []).append(part)
    top = [_component(part, carried.get(part.purl, ())) for part in carried.get("", ())]
    bom = Bom(
        metadata=BomMetaData(timestamp=datetime.fromisoformat(bill.created), component=image),
        components=[_component(bill.base, ()), *top],
        dependencies=_dependencies(bill),
        serial_number=_UNNUMBERED,
    )
    text = _written(bom)
    numbered = uuid.uuid5(_NAMESPACE, text)
    # Where it stands, and nowhere else: to write it all again takes as long as all the rest.
    field = '"serialNumber": "%s"'
    return text.replace(field % _UNNUMBERED.urn, field % numbered.urn)


def _written(bom: Bom) -> str:
    return f"{JsonV1Dot6(bom).output_as_string(indent=1)}\n"


def _component(part: Part, carried: Iterable[Part]) -> Component:
    is_base = part.kind == "base"
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.CONTAINER if is_base else ComponentType.LIBRARY,
        bom_ref=part.ref,
        purl=PackageURL.from_string(part.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else (),
        licenses=_licences(part),
        pedigree=_pedigree(part),
        properties=_properties(
            kind=part.kind, licence_source=part.licence.source, source=part.source
        ),
        components=[_component(one, ()) for one in carried],
    )


def _pedigree(part: Part) -> Pedigree | None:
    """What was changed in it since its authors published it."""
    if not part.patches:
        return None
    patches = [
        Patch(
            type=PatchClassification.UNOFFICIAL,
            diff=Diff(
                text=AttachedText(content=str(one)),
                url=XsUri(one.upstream) if one.upstream else None,
            ),
        )
        for one in part.patches
    ]
    return Pedigree(patches=patches, notes=part.source)


def _licences(part: Part) -> list[License]:
    """An expression; else the words that could not be read as one; else nothing."""
    declared = LicenseAcknowledgement.DECLARED
    if part.licence.expression:
        return [LicenseExpression(part.licence.expression, acknowledgement=declared)]
    if part.licence.said:
        return [DisjunctiveLicense(name=part.licence.said, acknowledgement=declared)]
    return []


def _properties(**told: str) -> list[Property]:
    return [
        Property(name=f"{_OURS}:{name.replace('_', '-')}", value=value)
        for name, value in told.items()
        if value
    ]


def _dependencies(bill: Bill) -> list[Dependency]:
    """Who asked for whom: the image for its base and its own requirements, wheels for wheels."""
    wanted: dict[str, set[str]] = {bill.purl: {bill.base.ref}}
    for asker, one, _ in bill.asked:
        wanted.setdefault(asker or bill.purl, set()).add(one)
    return [
        Dependency(BomRef(asker), [Dependency(BomRef(one)) for one in sorted(found)])
        for asker, found in sorted(wanted.items())
    ]
