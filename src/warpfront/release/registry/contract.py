"""The interface of a registry: its requests and answers; manifests and indexes as values, parsed
from untrusted bodies, and written. Words.

The OCI specifications add to a store of bytes: a descriptor in an index names a platform. The
digest of a manifest is that of its exact bytes, so bodies are stored and never rewritten. An
artifact's manifest may have no `artifactType`, then its config's media type is meant.

A body is one thing only: its own media type, the type it was sent as, and its fields must agree, so
that no two readers take it for different things. Schema 1 is refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from warpfront.system.strict_values import each_once, first_wrong, read_as

IMAGE_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
IMAGE_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST_TYPES = (IMAGE_MANIFEST, DOCKER_MANIFEST)
INDEX_TYPES = (IMAGE_INDEX, DOCKER_LIST)
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY_BODY = b"{}"
# By these endings, scanners know what a file is.
_TITLES = {"cyclonedx": "sbom.cdx.json", "spdx": "sbom.spdx.json"}


# An empty value in a document counts as none.
_OR_NONE = BeforeValidator(lambda value: value or None)
MediaType = Annotated[
    str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*\z")
]
ArtifactType = Annotated[MediaType | None, _OR_NONE, Field(alias="artifactType")]
Annotations = Annotated[Mapping[str, str], BeforeValidator(lambda value: value or {})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The platform of a child of an index, in the registries' words (`amd64`)."""

    architecture: str = ""
    os: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """The name of a blob or manifest: `digest` is `sha256:` + 64 hex of its bytes. The fields are
    in the order that a document has them.
    """

    media_type: Annotated[MediaType, Field(alias="mediaType")]
    digest: Annotated[str, Field(pattern=r"\Asha256:[0-9a-f]{64}\z")]
    size_bytes: Annotated[int, Field(alias="size", strict=True, ge=0, le=2**50)]
    artifact_type: ArtifactType = None
    annotations: Annotations = field(default_factory=dict, hash=False)
    platform: Platform | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    """An image of one platform, or an artifact: a config and layers, in the order that a document
    has them. `artifact_type` is its own, or its config's media type.
    """

    artifact_type: ArtifactType = None
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Annotated[Descriptor | None, _OR_NONE] = None
    annotations: Annotations = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageIndex:
    """A list of manifests: one image for several platforms, or what is attached to one."""

    manifests: tuple[Descriptor, ...]
    artifact_type: ArtifactType = None
    subject: Annotated[Descriptor | None, _OR_NONE] = None
    annotations: Annotations = field(default_factory=dict, hash=False)


Document = ImageManifest | ImageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryManifest:
    """A manifest or index: `body` is what was received, and hashes to the descriptor's digest;
    `document` is its content.
    """

    descriptor: Descriptor
    body: bytes
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob to send. `open` reads it from its start, as often as an upload has to begin again."""

    digest: str
    size_bytes: int
    open: Callable[[], BinaryIO]


def bytes_blob(content: bytes) -> Blob:
    """Return a blob that is small enough for memory: a config, an SBOM."""
    digest, size_bytes = digest_of_bytes(content), len(content)
    return Blob(digest=digest, size_bytes=size_bytes, open=lambda: io.BytesIO(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A statement without its subject. `name` is that of the attached document, `type` the
    address of its kind.
    """

    name: str
    type: str
    content: Mapping[str, Any] = field(hash=False)

    @property
    def text(self) -> str:
        """Return the predicate as JSON, as `cosign attest --predicate` reads it."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A document attached to a digest. `name` is its name in the signature, `predicate` the
    statement about the image that it attests, if any.
    """

    name: str = ""
    artifact_type: str
    payload: bytes
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    predicate: Predicate | None = None

    @property
    def title(self) -> str:
        """Return the file name that `oras pull` writes it to; none without a name."""
        return _TITLES.get(self.name, self.name and f"{self.name}.json")


class ContentStore(Protocol):
    """A registry host, or a folder in place of one. `repository` is without it; `reference` is a
    tag or a digest.

    Every verb raises `RegistryError`, which names the registry, the step, and what to do next.
    """

    @property
    def host(self) -> str: ...

    def manifest(self, repository: str, reference: str) -> RegistryManifest | None:
        """Return the manifest or index under a tag or digest, its digest checked; None for none."""

    def head(self, repository: str, reference: str) -> Descriptor | None:
        """Return the registry's descriptor of a tag or digest, unchecked against bytes."""
        manifest = self.manifest(repository, reference)
        return manifest.descriptor if manifest is not None else None

    def put_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        """Put a manifest or index whose parts are there under a tag or its own digest. The
        digest in the registry's answer is checked.
        """

    def blob(self, repository: str, digest: str, limit_bytes: int) -> bytes:
        """Return a small blob (a config, an SBOM), its digest checked."""

    def save_blob(self, repository: str, digest: str, destination: Path, size_bytes: int) -> None:
        """Save a blob of any size to a file that exists only if its digest was right. No more
        than the `size_bytes` of its descriptor are read.
        """

    def put_blob(self, repository: str, source: Blob, mount_from: Sequence[str] = ()) -> int:
        """Ensure that the blob is in the repository: it is there already, or is mounted from
        one of the repositories `mount_from`, or is sent. Return the bytes that were sent,
        broken-off tries included.
        """

    def referrers(self, repository: str, digest: str) -> tuple[Descriptor, ...]:
        """Return the attachments of a digest: by the referrers API, else by the fallback tag."""

    def tags(self, repository: str) -> tuple[str, ...]:
        """Return every tag of a repository; none where there is no such repository."""


class Registry(ContentStore, Protocol):
    """A registry host that releases are pushed to."""

    def open_blob(self, repository: str, digest: str) -> AbstractContextManager[BinaryIO]:
        """Yield a blob as it comes, for readers of its start: the digest is checked at the end."""

    def attach_all(
        self, repository: str, subject: Descriptor, artifacts: Sequence[Artifact]
    ) -> None:
        """Attach several; a process killed meanwhile leaves any of them."""

    def deletes(self, repository: str) -> bool:
        """Return whether the registry accepts DELETE. The probe names no existing manifest."""

    def delete(self, repository: str, digest: str) -> None:
        """Delete a manifest, and with it every tag on it. Nothing to delete is no error."""


def digest_of_bytes(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


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
    ordered = dict(sorted((annotations or {}).items()))
    return document_body(ImageIndex(manifests=tuple(manifests), annotations=ordered))


_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Document)


def document_body(document: Document) -> bytes:
    """Return an OCI manifest or index: the same bytes for the same parts."""
    kind = IMAGE_INDEX if isinstance(document, ImageIndex) else IMAGE_MANIFEST
    fields = _DOCUMENT.dump_python(document, by_alias=True, exclude_defaults=True)
    value = {"schemaVersion": 2, "mediaType": kind, **fields}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def referrer_of(manifest: RegistryManifest) -> Descriptor:
    """Return an artifact's entry in a list of referrers: with its type and annotations."""
    document = manifest.document
    return replace(
        manifest.descriptor,
        artifact_type=document.artifact_type,
        annotations=document.annotations,
    )


LIMIT_BYTES = 32 * 2**20
TITLE = "org.opencontainers.image.title"
"""The annotation of a layer that `oras pull` takes a file's name from; without it, no file."""


def attached_payload(
    registry: ContentStore, repository: str, digest: str, limit_bytes: int = LIMIT_BYTES
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
    document = ImageManifest(
        artifact_type=artifact.artifact_type,
        config=empty,
        layers=(payload,),
        subject=replace(subject, artifact_type=None, annotations={}, platform=None),
        annotations=dict(sorted(artifact.annotations.items())),
    )
    return document_body(document)
