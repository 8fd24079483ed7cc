"""A registry in a folder: an OCI image layout, whose digests are those of every other registry.
What a site without network is carried on a disk. Edge.

One repository a layout. `index.json` lists manifests by tag
(`org.opencontainers.image.ref.name`) and what is attached by `subject`.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from warpfront.errors import RegistryError, RegistryFault, StoreError
from warpfront.release.registry import documents
from warpfront.release.registry.contract import (
    EMPTY_BODY,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    BlobSource,
    BlobTransfer,
    BytesBlob,
    Descriptor,
    Manifest,
    Transfer,
    digest_of_bytes,
)
from warpfront.release.registry.references import is_digest
from warpfront.system.foreign import read_json, read_regular
from warpfront.system.store import storing, write_json

_NAME = "org.opencontainers.image.ref.name"
_LIMIT_BYTES = 64 * 2**30
_MANIFEST_LIMIT_BYTES = 4 * 2**20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRegistry:
    """`contract.Registry` over a folder. The repository that it is asked for is always its one."""

    folder: Path

    @property
    def host(self) -> str:
        return str(self.folder)

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        digest = self._resolved(reference)
        if digest is None or not self._path(digest).exists():
            return None
        body = self.blob(repository, digest, _MANIFEST_LIMIT_BYTES)
        try:
            media_type = str(json.loads(body).get("mediaType", IMAGE_MANIFEST))
        except (ValueError, AttributeError):
            raise self._wrong(f"{digest} is no manifest") from None
        return Manifest(
            descriptor=Descriptor(media_type=media_type, digest=digest, size_bytes=len(body)),
            body=body,
        )

    def head(self, repository: str, reference: str) -> Descriptor | None:
        found = self.manifest(repository, reference)
        return found.descriptor if found else None

    def put_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        del repository
        digest = digest_of_bytes(body)
        self._write(digest, io.BytesIO(body))
        entry: dict[str, Any] = {"mediaType": media_type, "digest": digest, "size": len(body)}
        if reference != digest:
            entry["annotations"] = {_NAME: reference}
        others = [one for one in self._entries() if _replaced(one, entry) is False]
        self._write_index([*others, entry])
        return Descriptor(media_type=media_type, digest=digest, size_bytes=len(body))

    def blob(self, repository: str, digest: str, limit_bytes: int) -> bytes:
        del repository
        try:
            content = read_regular(self._path(digest), limit_bytes)
        except FileNotFoundError:
            raise self._wrong(f"{digest} is missing") from None
        except StoreError as error:
            raise self._wrong(error.message) from None
        if digest_of_bytes(content) != digest:
            raise self._wrong(f"{digest} is damaged")
        return content

    @contextlib.contextmanager
    def open_blob(self, repository: str, digest: str) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.blob(repository, digest, _LIMIT_BYTES))

    def save_blob(
        self, repository: str, digest: str, destination: Path, size_bytes: int | None = None
    ) -> None:
        content = self.blob(repository, digest, size_bytes or _LIMIT_BYTES)
        with storing(destination):
            destination.write_bytes(content)

    def put_blob(
        self, repository: str, source: BlobSource, mount_from: Sequence[str] = ()
    ) -> BlobTransfer:
        del repository, mount_from
        there = self._path(source.digest).exists()
        if not there:
            with source.open() as stream:
                self._write(source.digest, stream)
        return BlobTransfer(
            digest=source.digest,
            size_bytes=source.size_bytes,
            transfer=Transfer.PRESENT if there else Transfer.SENT,
            sent_bytes=0 if there else source.size_bytes,
        )

    def referrers(self, repository: str, digest: str) -> tuple[Descriptor, ...]:
        found = []
        for entry in self._entries():
            manifest = self.manifest(repository, str(entry.get("digest", "")))
            document = documents.read_document(manifest) if manifest else None
            subject = document.subject if document else None
            if manifest and subject and subject.digest == digest:
                found.append(documents.referrer_of(manifest))
        return tuple(found)

    def attach(
        self,
        repository: str,
        subject: Descriptor,
        *,
        artifact_type: str,
        payload: bytes,
        payload_type: str,
        annotations: Mapping[str, str],
    ) -> Descriptor:
        blob = BytesBlob(payload)
        for source in (blob, BytesBlob(EMPTY_BODY)):
            self.put_blob(repository, source)
        body = documents.artifact_body(
            subject,
            artifact_type=artifact_type,
            payload=Descriptor(
                media_type=payload_type, digest=blob.digest, size_bytes=blob.size_bytes
            ),
            annotations=annotations,
        )
        return self.put_manifest(repository, digest_of_bytes(body), body, IMAGE_MANIFEST)

    def tags(self, repository: str) -> tuple[str, ...]:
        del repository
        names = ((one.get("annotations") or {}).get(_NAME) for one in self._entries())
        return tuple(sorted(str(name) for name in names if name))

    def delete(self, repository: str, digest: str) -> None:
        del repository
        self._write_index([one for one in self._entries() if one.get("digest") != digest])

    def _resolved(self, reference: str) -> str | None:
        if is_digest(reference):
            return reference
        for one in self._entries():
            if (one.get("annotations") or {}).get(_NAME) == reference:
                return str(one["digest"])
        return None

    def _path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise self._wrong(f"{digest!r} is no digest")
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def _entries(self) -> list[dict[str, Any]]:
        index = read_json(self.folder / "index.json")
        entries = index.get("manifests") if isinstance(index, dict) else []
        return [one for one in entries or [] if isinstance(one, dict)]

    def _write_index(self, entries: list[dict[str, Any]]) -> None:
        write_json(self.folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})
        index = {"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": entries}
        write_json(self.folder / "index.json", index)

    def _write(self, digest: str, stream: BinaryIO) -> None:
        path = self._path(digest)
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}")
            with aside.open("wb") as file:
                while chunk := stream.read(_CHUNK_BYTES):
                    file.write(chunk)
            aside.replace(path)

    def _wrong(self, message: str) -> RegistryError:
        return RegistryError(
            message,
            registry=str(self.folder),
            step="read the layout",
            fault=RegistryFault.WRONG,
            hint="carry it again: what it holds is named by digests, and one does not hold",
        )


def _replaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a new entry of the index takes the place of an old one."""
    if old.get("annotations") == new.get("annotations") and old.get("digest") == new["digest"]:
        return True
    name = (new.get("annotations") or {}).get(_NAME)
    return bool(name) and (old.get("annotations") or {}).get(_NAME) == name
