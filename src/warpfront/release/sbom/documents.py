"""A bill of materials as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/) and as SPDX 2.3
(https://spdx.github.io/spdx-spec/v2.3/): the same bill, the same bytes. Pure.

Written here: what the library for CycloneDX does to write this takes longer than all else that a
publication computes. Of the libraries for SPDX, the one that writes it brings rdflib and a dozen
more, for what is three lists. The tests have them validate what is written.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from warpfront.release.sbom.licences import references
from warpfront.release.sbom.parts import Bill, Part
from warpfront.system.digests import digest_of

OURS = "dev.warpfront"
FOLDER = "folder:"
"""What the properties' names begin with, after ours, whose values are the bytes of a folder."""
_NAMESPACE = uuid.UUID("5d8a1d1e-6f0b-5b6e-9d0a-7d2f0c6f9a11")
_UNNUMBERED = uuid.UUID(int=0)


def cyclonedx_text(bill: Bill) -> str:
    """Return the document. Its serial number is made from all that is in it."""
    carried: dict[str, list[Part]] = {}
    for part in bill.parts:
        carried.setdefault(part.within, []).append(part)
    top = [_component(part, carried.get(part.purl, ())) for part in carried.get("", ())]
    # The image requires its base and requirements, wheels require wheels.
    required: dict[str, set[str]] = {bill.purl: {bill.base.ref}, bill.base.ref: set()}
    required |= {part.ref: set() for part in bill.parts if not part.within}
    for asker, target, _ in bill.asked:
        required[asker or bill.purl].add(target)
    folders = {f"{FOLDER}{path}": str(size) for path, size in bill.folders}
    document = {
        "components": _ordered([_component(bill.base, ()), *top]),
        "dependencies": [
            {**({"dependsOn": sorted(targets)} if targets else {}), "ref": asker}
            for asker, targets in sorted(required.items())
        ],
        "metadata": {
            "component": {
                "bom-ref": bill.purl,
                "name": bill.name,
                **_properties({"cell": bill.cell_id, **folders}),
                "purl": bill.purl,
                "type": "container",
                "version": bill.tag,
            },
            "timestamp": datetime.fromisoformat(bill.created).isoformat(),
        },
        "serialNumber": _UNNUMBERED.urn,
        "version": 1,
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
    }
    numbered = uuid.uuid5(_NAMESPACE, _written(document))
    return _written({**document, "serialNumber": numbered.urn})


def _written(document: dict[str, Any]) -> str:
    return f"{json.dumps(document, indent=1)}\n"


def _component(part: Part, carried: Iterable[Part]) -> dict[str, Any]:
    inner = _ordered(_component(part, ()) for part in carried)
    # The changes since its authors published it.
    patches = []
    for patch in part.patches:
        text = {"content": str(patch), "contentType": "text/plain"}
        url = {"url": patch.upstream} if patch.upstream else {}
        patches.append({"diff": {"text": text, **url}, "type": "unofficial"})
    pedigree = {"pedigree": {"notes": part.source, "patches": patches}} if patches else {}
    # An expression; else the words that could not be parsed as one; else nothing.
    licence: dict[str, Any] = {"acknowledgement": "declared"}
    if part.licence.expression:
        licence["expression"] = part.licence.expression
    elif part.licence.said:
        licence = {"license": {**licence, "name": part.licence.said}}
    is_licensed = part.licence.expression or part.licence.said
    hashes = [{"alg": "SHA-256", "content": part.sha256}] if part.sha256 else []
    return {
        "bom-ref": part.ref,
        **({"components": inner} if inner else {}),
        **({"hashes": hashes} if hashes else {}),
        **({"licenses": [licence]} if is_licensed else {}),
        "name": part.name,
        **pedigree,
        **_properties(
            {"kind": part.kind, "licence-source": part.licence.source, "source": part.source}
        ),
        "purl": part.purl,
        "type": "container" if part.kind == "base" else "library",
        "version": part.version,
    }


def _ordered(components: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("type", "name", "version", "bom-ref")
    return sorted(components, key=lambda component: [component[name] for name in names])


def _properties(values: Mapping[str, str]) -> dict[str, Any]:
    properties = [
        {"name": f"{OURS}:{name}", "value": value} for name, value in values.items() if value
    ]
    return {"properties": properties} if properties else {}


_NOTHING = "NOASSERTION"
_IMAGE = "SPDXRef-image"
_DOCUMENT = "SPDXRef-DOCUMENT"
_UNSAID = {
    "downloadLocation": _NOTHING,
    "filesAnalyzed": False,
    "licenseConcluded": _NOTHING,
    "licenseDeclared": _NOTHING,
    "copyrightText": _NOTHING,
}
"""The fields of a package that was not analysed: the registry hashes whole layers."""


def spdx_text(bill: Bill) -> str:
    """Return the document. Its namespace is made from all that is in it."""
    image = {
        "SPDXID": _IMAGE,
        "name": bill.name,
        "versionInfo": bill.tag,
        "primaryPackagePurpose": "CONTAINER",
        **_UNSAID,
        "externalRefs": [_purl(bill.purl)],
    }
    packages = [image, *map(_package, (bill.base, *bill.parts))]
    moment = bill.created.removesuffix("Z").removesuffix("+00:00")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": f"{bill.name}:{bill.tag}",
        "creationInfo": {"created": f"{moment}Z", "creators": ["Tool: warpfront"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": other}
            for source, kind, other in _relationships(bill)
        ],
    }
    # An entry for each `LicenseRef-` with its author. The text itself is in the image, with the
    # package.
    texts: dict[str, str] = {}
    for part in bill.parts:
        for reference in references([part.licence.expression]):
            texts.setdefault(reference, f"{part.licence.source} of {part.name} {part.version}")
    extracted = [
        {"licenseId": name, "name": name, "extractedText": f"as named in the {where}"}
        for name, where in sorted(texts.items())
    ]
    if extracted:
        document["hasExtractedLicensingInfos"] = extracted
    named = f"{bill.source}/spdx/{bill.cell_id}-{digest_of(document)}"
    return json.dumps({**document, "documentNamespace": named}, indent=1, sort_keys=True) + "\n"


def _package(part: Part) -> dict[str, Any]:
    declared = part.licence.expression or _NOTHING
    package: dict[str, Any] = {
        "SPDXID": _ref(part),
        "name": part.name,
        "versionInfo": part.version,
        "primaryPackagePurpose": "CONTAINER" if part.kind == "base" else "LIBRARY",
        **_UNSAID,
        "licenseDeclared": declared,
        "externalRefs": [_purl(part.purl)],
    }
    if part.sha256:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": part.sha256}]
    if part.source:
        package["sourceInfo"] = part.source
    if part.patches:
        package["comment"] = f"patched: {'; '.join(map(str, part.patches))}"
    if part.licence.said and not part.licence.expression:
        package["licenseComments"] = f"its metadata says: {part.licence.said}"
    return package


def _relationships(bill: Bill) -> Iterator[tuple[str, str, str]]:
    refs = {part.purl: _ref(part) for part in bill.parts if not part.within}
    yield _DOCUMENT, "DESCRIBES", _IMAGE
    yield _IMAGE, "DESCENDANT_OF", _ref(bill.base)
    for part in bill.parts:
        yield refs.get(part.within, _IMAGE), "CONTAINS", _ref(part)
    for asker, required, _ in bill.asked:
        yield refs[asker] if asker else _IMAGE, "DEPENDS_ON", refs[required]


def _ref(part: Part) -> str:
    return f"SPDXRef-{hashlib.sha256(part.ref.encode()).hexdigest()[:24]}"


def _purl(purl: str) -> dict[str, str]:
    return {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": purl,
    }
