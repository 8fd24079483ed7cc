"""A bill of materials as SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/): the same bill, the
same bytes. Pure.

Written here: of the libraries, the one that writes it brings rdflib and a dozen more, for what is
three lists. The tests have it validate what is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from warpfront.release.sbom.licences import references
from warpfront.release.sbom.parts import Bill, Part
from warpfront.system.digests import digest_of

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
