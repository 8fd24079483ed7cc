"""A bill of materials as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/): the same bill, the
same bytes. Pure.

Written here: what the library for it does to write this takes longer than all else that a
publication computes. The tests have it validate what is written.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from warpfront.release.sbom.parts import Bill, Part

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
