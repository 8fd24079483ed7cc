"""Manifests and indexes as values: parsed from untrusted bodies, and written. Words.

A body is one thing only: its own media type, the type it was sent as, and its fields must agree, so
that no two readers take it for different things. Schema 1 is refused.
"""
# ruff: noqa: TRY004 - untrusted content is a wrong value, whatever its type

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warpfront.release.registry.contract import (
    EMPTY_BODY,
    EMPTY_TYPE,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    INDEX_TYPES,
    MANIFEST_TYPES,
    Artifact,
    Descriptor,
    Platform,
    Registry,
    RegistryManifest,
    digest_of_bytes,
)
from warpfront.system.references import is_digest
from warpfront.system.strict_values import each_once

MANIFEST_LIMIT_BYTES = 4 * 2**20
CONFIG_LIMIT_BYTES = 8 * 2**20
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*")
_LARGEST_BLOB_BYTES = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    """An image of one platform, or an artifact: a config and layers. `artifact_type` is its
    own, or its config's media type.
    """

    config: Descriptor
    layers: tuple[Descriptor, ...]
    artifact_type: str
    subject: Descriptor | None = None
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageIndex:
    """A list of manifests: one image for several platforms, or what is attached to one."""

    manifests: tuple[Descriptor, ...]
    artifact_type: str = ""
    subject: Descriptor | None = None
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


Document = ImageManifest | ImageIndex


def read_document(manifest: RegistryManifest) -> Document:
    """Raises `ValueError` for what is none, or could be taken for both."""
    return read_body(manifest.body, manifest.descriptor.media_type)


def read_body(body: bytes, media_type: str) -> Document:
    """See `read_document`."""
    value = read_object(body)
    if value.get("schemaVersion") != 2:
        raise ValueError("its schemaVersion is not 2")
    declared = value.get("mediaType", media_type)
    if declared != media_type:
        raise ValueError(f"it was sent as {media_type!r} and calls itself {declared!r}")
    if media_type in INDEX_TYPES:
        if "layers" in value or "config" in value:
            raise ValueError("it is a manifest and an index at once")
        artifact_type = value.get("artifactType")
        return ImageIndex(
            manifests=_descriptors(value.get("manifests"), "manifests"),
            artifact_type=_media_type(artifact_type, "artifactType") if artifact_type else "",
            subject=_subject(value),
            annotations=_annotations(value),
        )
    if media_type in MANIFEST_TYPES:
        if "manifests" in value:
            raise ValueError("it is a manifest and an index at once")
        config = _descriptor(value.get("config"), "config")
        return ImageManifest(
            config=config,
            layers=_descriptors(value.get("layers"), "layers"),
            artifact_type=_media_type(value.get("artifactType", config.media_type), "artifactType"),
            subject=_subject(value),
            annotations=_annotations(value),
        )
    raise ValueError(f"{media_type!r} is no manifest that is known here")


def read_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object without duplicate keys. Raises `ValueError`."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=each_once)
    except RecursionError:
        raise ValueError("it is too deep") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
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
    value: dict[str, Any] = {
        "mediaType": descriptor.media_type,
        "digest": descriptor.digest,
        "size": descriptor.size_bytes,
    }
    if descriptor.artifact_type:
        value["artifactType"] = descriptor.artifact_type
    if descriptor.annotations:
        value["annotations"] = dict(descriptor.annotations)
    if descriptor.platform is not None:
        named = descriptor.platform
        variant = {"variant": named.variant} if named.variant else {}
        value["platform"] = {"architecture": named.architecture, "os": named.os, **variant}
    return value


def referrer_of(manifest: RegistryManifest) -> Descriptor:
    """Return an artifact's entry in a list of referrers: with its type and
    annotations. Raises `ValueError`.
    """
    document = read_document(manifest)
    return Descriptor(
        media_type=manifest.descriptor.media_type,
        digest=manifest.descriptor.digest,
        size_bytes=manifest.descriptor.size_bytes,
        artifact_type=document.artifact_type or None,
        annotations=document.annotations,
    )


def _written(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _subject(value: dict[str, Any]) -> Descriptor | None:
    return _descriptor(value["subject"], "subject") if value.get("subject") else None


def _descriptors(value: Any, name: str) -> tuple[Descriptor, ...]:
    if not isinstance(value, list):
        raise ValueError(f"its {name} are no list")
    return tuple(_descriptor(entry, f"{name}[{place}]") for place, entry in enumerate(value))


def _descriptor(value: Any, name: str) -> Descriptor:
    if not isinstance(value, dict):
        raise ValueError(f"its {name} is no descriptor")
    digest, size = value.get("digest"), value.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise ValueError(f"the digest of its {name} is no sha256: {digest!r:.80}")
    if type(size) is not int or not 0 <= size <= _LARGEST_BLOB_BYTES:
        raise ValueError(f"the size of its {name} is none: {size!r:.80}")
    artifact_type, platform = value.get("artifactType"), value.get("platform")
    fields = platform if isinstance(platform, dict) else {"os": platform or ""}
    names = {key: fields.get(key, "") for key in ("os", "architecture", "variant")}
    if not all(isinstance(part, str) for part in names.values()) or (
        platform is not None and fields is not platform
    ):
        raise ValueError("a platform in it is none")
    return Descriptor(
        media_type=_media_type(value.get("mediaType"), name),
        digest=digest,
        size_bytes=size,
        artifact_type=_media_type(artifact_type, name) if artifact_type else None,
        annotations=_annotations(value),
        platform=Platform(**names) if platform is not None else None,
    )


def _media_type(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise ValueError(f"the media type of its {name} is none: {value!r:.80}")
    return value


def _annotations(value: dict[str, Any]) -> Mapping[str, str]:
    texts = value.get("annotations") or {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("its annotations are not all texts")
    return texts


LIMIT_BYTES = 32 * 2**20
TITLE = "org.opencontainers.image.title"
"""The annotation of a layer that `oras pull` takes a file's name from; without it, no file."""


def attached_payload(
    registry: Registry, repository: str, digest: str, limit_bytes: int = LIMIT_BYTES
) -> bytes:
    """Return the document of an attached manifest; empty where it has none."""
    manifest = registry.manifest(repository, digest)
    try:
        layer = read_object(manifest.body)["layers"][0]["digest"] if manifest else ""
    except (ValueError, KeyError, TypeError, IndexError):
        return b""
    return registry.blob(repository, str(layer), limit_bytes) if layer else b""


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
