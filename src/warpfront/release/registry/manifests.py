"""Manifests and indexes as values: parsed from untrusted bodies, and written. Words.

A body is one thing only: its own media type, the type it was sent as, and its fields must agree, so
that no two readers take it for different things. Schema 1 is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from warpfront.release.registry.contract import (
    EMPTY_BODY,
    EMPTY_TYPE,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    INDEX_TYPES,
    MANIFEST_TYPES,
    Artifact,
    Descriptor,
    Document,
    ImageIndex,
    ImageManifest,
    Registry,
    RegistryManifest,
    digest_of_bytes,
)
from warpfront.system.strict_values import each_once, first_wrong, read_as

MANIFEST_LIMIT_BYTES = 4 * 2**20
CONFIG_LIMIT_BYTES = 8 * 2**20


def read_manifest(body: bytes, media_type: str) -> RegistryManifest:
    """Raises `ValueError` for a body that is none, or could be taken for both kinds."""
    digest, document = digest_of_bytes(body), read_body(body, media_type)
    descriptor = Descriptor(media_type=media_type, digest=digest, size_bytes=len(body))
    return RegistryManifest(descriptor=descriptor, body=body, document=document)


def read_body(body: bytes, media_type: str) -> Document:
    """See `read_manifest`."""
    value = read_object(body)
    if value.get("schemaVersion") != 2:
        raise ValueError("its schemaVersion is not 2")
    declared = value.get("mediaType", media_type)
    if declared != media_type:
        raise ValueError(f"it was sent as {media_type!r} and calls itself {declared!r}")
    if "manifests" in value and ("layers" in value or "config" in value):
        raise ValueError("it is a manifest and an index at once")
    try:
        if media_type in INDEX_TYPES:
            return read_as(ImageIndex, value)
        if media_type in MANIFEST_TYPES:
            image = read_as(ImageManifest, value)
            return replace(image, artifact_type=image.artifact_type or image.config.media_type)
    except ValidationError as error:
        raise ValueError(first_wrong(error)) from None
    raise ValueError(f"{media_type!r} is no manifest that is known here")


def read_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object without duplicate keys. Raises `ValueError`."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=each_once)
    except RecursionError:
        raise ValueError("it is too deep") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - untrusted content
    return value


def index_body(
    manifests: Sequence[Descriptor], annotations: Mapping[str, str] | None = None
) -> bytes:
    """Return an OCI index of these, in this order."""
    fields = {"annotations": dict(sorted(annotations.items()))} if annotations else {}
    return _written(
        {
            "schemaVersion": 2,
            "mediaType": IMAGE_INDEX,
            "manifests": [as_object(manifest) for manifest in manifests],
            **fields,
        }
    )


def as_object(descriptor: Descriptor) -> dict[str, Any]:
    """Return the JSON object."""
    value: dict[str, Any] = _DESCRIPTOR.dump_python(
        descriptor, by_alias=True, exclude_defaults=True
    )
    return value


_DESCRIPTOR = TypeAdapter(Descriptor)


def referrer_of(manifest: RegistryManifest) -> Descriptor:
    """Return an artifact's entry in a list of referrers: with its type and annotations."""
    document = manifest.document
    return replace(
        manifest.descriptor,
        artifact_type=document.artifact_type,
        annotations=document.annotations,
    )


def _written(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


LIMIT_BYTES = 32 * 2**20
TITLE = "org.opencontainers.image.title"
"""The annotation of a layer that `oras pull` takes a file's name from; without it, no file."""


def attached_payload(
    registry: Registry, repository: str, digest: str, limit_bytes: int = LIMIT_BYTES
) -> bytes:
    """Return the document of an attached manifest; empty where it has none."""
    manifest = registry.manifest(repository, digest)
    if manifest is None or not isinstance(manifest.document, ImageManifest):
        return b""
    layers = manifest.document.layers
    return registry.blob(repository, layers[0].digest, limit_bytes) if layers else b""


def body_of(subject: Descriptor, artifact: Artifact) -> bytes:
    """Return the manifest of a document: the same for the same document, in every registry."""
    content = artifact.payload
    payload = Descriptor(
        media_type=artifact.artifact_type,
        digest=digest_of_bytes(content),
        size_bytes=len(content),
        annotations={TITLE: artifact.title} if artifact.title else {},
    )
    empty = Descriptor(
        media_type=EMPTY_TYPE, digest=digest_of_bytes(EMPTY_BODY), size_bytes=len(EMPTY_BODY)
    )
    value = {
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "artifactType": artifact.artifact_type,
        "config": as_object(empty),
        "layers": [as_object(payload)],
        "subject": as_object(replace(subject, artifact_type=None, annotations={}, platform=None)),
    }
    annotations = dict(sorted(artifact.annotations.items()))
    return _written(value | ({"annotations": annotations} if annotations else {}))
