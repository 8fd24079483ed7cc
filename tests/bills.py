"""Contents of images, and bills of materials made of them, to start a test from."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import A_RESOLVED_BASE, a_built_image, a_cell, a_lock, a_wheel

from warpfront.images import built as image
from warpfront.images import labels as image_labels
from warpfront.images.built import REVISION, ResolvedBase
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.release.sbom.parts import Bill, bill_of
from warpfront.release.statements.predicates import BuildRecord, making_of
from warpfront_checks.image_contents import Contents, EmbeddedComponent, FoundDistribution, Package

CREATED = "2026-11-22T02:24:34+00:00"
TORCH = FoundDistribution(
    name="torch",
    version="2.13.0+cpu",
    expression="BSD-3-Clause",
    requires=(
        "numpy>=1.22",
        "sympy; extra == 'math'",
        "colorama; sys_platform == 'win32'",
        "no requirement at all !!",
    ),
)
NUMPY = FoundDistribution(
    name="numpy", version="2.4.6", classifiers=("License :: OSI Approved :: BSD License",)
)
UV = FoundDistribution(
    name="uv",
    version="0.13.9",
    expression="MIT OR Apache-2.0",
    carried=(EmbeddedComponent(kind="cargo", name="aes", version="0.8.4"),),
)
BASH = Package(
    name="bash",
    version="5.2.15-2+b13",
    architecture="amd64",
    source="bash (5.2.15-2)",
    licences=("GPL-3+", "permissive"),
)
A_CONTENTS = Contents(
    distributions=(NUMPY, TORCH, UV), packages=(BASH,), system="debian", release="12"
)


BOOTSTRAPPED = ResolvedBase(
    name="debian-12",
    source=BaseSource.BOOTSTRAP,
    reference="localhost/demo/base:1",
    identity=A_RESOLVED_BASE.identity,
    recipe="cd" * 32,
)


def a_bill(*found: FoundDistribution, contents: Contents = A_CONTENTS, **changes: Any) -> Bill:
    """The bill of an image that asks for torch, numpy and uv. `found` take the place of what was
    found of them.
    """
    named = {one.name: one for one in (*contents.distributions, *found)}
    contents = dataclasses.replace(contents, distributions=tuple(named.values()))
    wheels = [a_wheel("torch"), a_wheel("numpy", "2.4.6"), a_wheel("uv", "0.13.9")]
    facts: dict[str, Any] = {"created": CREATED, "base": A_RESOLVED_BASE, "cell": a_cell()}
    facts |= {"source": "https://example.test/demo", "lock": a_lock(None, *wheels), **changes}
    labels = {image.CREATED: facts["created"], image_labels.SOURCE: facts["source"]}
    cell = dataclasses.replace(facts["cell"], requirements=("uv",))
    return bill_of((cell,), facts["lock"], contents, facts["base"], labels)


def a_making(
    bill: Bill | None = None,
    cell: Cell | None = None,
    *,
    builder: str = "https://ci.example/run/1",
    content_hash: str = "ef" * 32,
    revision: str = "01" * 20,
    invocation: str = "",
) -> BuildRecord:
    facts = {"builder": builder, "content_hash": content_hash, "invocation": invocation}
    labels = {REVISION: revision, image_labels.UV: "0.13.9"}
    built = a_built_image(cell, **facts)
    return making_of(cell or a_cell(), a_lock(), bill or a_bill(), built, labels)


def spdx_faults(document: dict[str, Any]) -> list[str]:
    from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    parsed = JsonLikeDictParser().parse(document)  # type: ignore[no-untyped-call]
    return [one.validation_message for one in validate_full_spdx_document(parsed)]


def is_iri_reference(text: object) -> bool:
    """Ours are all of ASCII."""
    from rfc3986_validator import validate_rfc3986

    return bool(validate_rfc3986(text, rule="URI_reference"))


def cyclonedx_fault(text: str) -> str:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from jsonschema import Draft7Validator

    Draft7Validator.FORMAT_CHECKER.checks("iri-reference")(is_iri_reference)
    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) or "")
