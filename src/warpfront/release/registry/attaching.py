"""A document attached to an image, in whatever keeps the contract of a registry. Words."""

from __future__ import annotations

from warpfront.release.registry import manifests
from warpfront.release.registry.contract import (
    EMPTY_BODY,
    IMAGE_MANIFEST,
    Artifact,
    BytesBlob,
    Descriptor,
    Registry,
    RegistryManifest,
    digest_of_bytes,
)

LIMIT_BYTES = 32 * 2**20
TITLE = "org.opencontainers.image.title"
"""The annotation of a layer that `oras pull` takes a file's name from; without it, no file."""


def attach(
    registry: Registry, repository: str, subject: Descriptor, artifact: Artifact
) -> Descriptor:
    """Put the payload, then the manifest with its subject. The same document twice is the same
    digest, once. Raises the errors of `registry`.
    """
    for content in (artifact.payload, EMPTY_BODY):
        registry.put_blob(repository, BytesBlob(content))
    body = body_of(subject, artifact)
    put = registry.put_manifest(repository, digest_of_bytes(body), body, IMAGE_MANIFEST)
    return manifests.referrer_of(RegistryManifest(descriptor=put, body=body))


def attached_payload(
    registry: Registry, repository: str, digest: str, limit_bytes: int = LIMIT_BYTES
) -> bytes:
    """Return the document of an attached manifest; empty where it has none."""
    manifest = registry.manifest(repository, digest)
    try:
        layer = manifests.read_object(manifest.body)["layers"][0]["digest"] if manifest else ""
    except (ValueError, KeyError, TypeError, IndexError):
        return b""
    return registry.blob(repository, str(layer), limit_bytes) if layer else b""


def body_of(subject: Descriptor, artifact: Artifact) -> bytes:
    """Return the manifest of a document: the same for the same document, in every registry."""
    payload = BytesBlob(artifact.payload)
    return manifests.artifact_body(
        subject,
        artifact_type=artifact.artifact_type,
        payload=Descriptor(
            media_type=artifact.payload_type,
            digest=payload.digest,
            size_bytes=payload.size_bytes,
            annotations={TITLE: artifact.title} if artifact.title else {},
        ),
        annotations=artifact.annotations,
    )
