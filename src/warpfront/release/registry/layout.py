"""A registry in a folder (the OCI image layout), for a disk that replaces the network. Edge.

Its content is untrusted: regular files only, read to a limit, and checked against their digests. A
layout is one repository, for any requested name. `index.json` names the tagged manifests
(`org.opencontainers.image.ref.name`), the attached ones, and those without another reference.
"""
# ruff: noqa: ARG002 - it is one repository, whatever the name

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from warpfront.errors import RegistryError, StoreError
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    MANIFEST_LIMIT_BYTES,
    Blob,
    ContentStore,
    Descriptor,
    Document,
    ImageIndex,
    ImageManifest,
    RegistryManifest,
    bytes_blob,
    digest_of_bytes,
    index_body,
    read_body,
    read_manifest,
    read_object,
    referrer_of,
)
from warpfront.system.foreign import kind_of, read_regular
from warpfront.system.http_answers import wrong
from warpfront.system.references import is_digest
from warpfront.system.store import file_aside, storing, write_text
from warpfront.wheels.store.wheelhouse import sha256_of

NAME = "org.opencontainers.image.ref.name"
_VERSION = '{"imageLayoutVersion":"1.0.0"}'
_STEP = "image layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRegistry(ContentStore):
    """`contract.ContentStore` over a folder, which need not exist before the first put. `checked`
    means that its owner has checked each blob against its digest.
    """

    folder: Path
    checked: bool = False

    @property
    def host(self) -> str:
        return str(self.folder)

    def manifest(self, repository: str, reference: str) -> RegistryManifest | None:
        digest = reference
        if not is_digest(reference):
            digest = next((one.digest for one in self.listed() if _name(one) == reference), "")
        if not digest or not os.path.lexists(self.blob_path(digest)):
            return None
        body = self.blob(repository, digest, MANIFEST_LIMIT_BYTES)
        try:
            media_type = read_object(body).get("mediaType")
            if not isinstance(media_type, str):
                raise self._wrong(f"{digest} does not say what it is")
            return read_manifest(body, media_type)
        except ValueError as error:
            raise self._wrong(f"{digest}: {error}") from None

    def put_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        """See `ContentStore`. Its parts have to be there before, as in every registry."""
        try:
            manifest = read_manifest(body, media_type)
        except ValueError as error:
            raise self._wrong(f"{digest_of_bytes(body)}: {error}") from None
        for part in parts_of(manifest.document):
            if not self._has(part.digest, part.size_bytes):
                raise self._wrong(f"{part.digest} is missing or damaged")
        self.put_blob(repository, bytes_blob(body))
        named = {} if is_digest(reference) else {NAME: reference}
        self._list(dataclasses.replace(manifest.descriptor, annotations=named), manifest.document)
        return manifest.descriptor

    def blob(self, repository: str, digest: str, limit_bytes: int) -> bytes:
        path = self.blob_path(digest)
        try:
            content = read_regular(path, limit_bytes)
        except FileNotFoundError:
            raise self._wrong(f"{digest} is missing") from None
        except StoreError as error:
            raise self._wrong(error.message) from None
        if digest_of_bytes(content) != digest:
            raise self._wrong(f"{digest} is damaged")
        return content

    def save_blob(self, repository: str, digest: str, destination: Path, size_bytes: int) -> None:
        with self.file_of(digest, size_bytes).open("rb") as stream:
            self._take(stream, digest, destination)

    def put_blob(self, repository: str, source: Blob, mount_from: Sequence[str] = ()) -> int:
        """See `ContentStore`. A file of the same file system becomes a hard link."""
        if self._has(source.digest, source.size_bytes):
            return 0
        with source.open() as stream:
            self._take(stream, source.digest, self.blob_path(source.digest))
        return source.size_bytes

    def referrers(self, repository: str, digest: str) -> tuple[Descriptor, ...]:
        descriptors = []
        for entry in self.listed():
            manifest = self.manifest(repository, entry.digest)
            subject = manifest.document.subject if manifest else None
            if manifest and subject and subject.digest == digest:
                descriptors.append(referrer_of(manifest))
        return tuple(descriptors)

    def tags(self, repository: str) -> tuple[str, ...]:
        return tuple(sorted({entry.annotations[NAME] for entry in self.listed() if _name(entry)}))

    def listed(self) -> tuple[Descriptor, ...]:
        """Return the entries of `index.json`; nothing where there is none yet."""
        if not os.path.lexists(self.folder / "index.json"):
            with storing(self.folder):
                present = {*self.folder.iterdir()} if self.folder.exists() else set()
            # It may be empty, or an export that was not finished.
            if {path.name for path in present} - {"blobs", "oci-layout"}:
                raise self._wrong("it has no index.json: is it an OCI image layout?")
            return ()
        try:
            version = read_object(self._read("oci-layout")).get("imageLayoutVersion")
            body = self._read("index.json")
            media_type = read_object(body).get("mediaType", IMAGE_INDEX)
            document = read_body(body, media_type)
        except FileNotFoundError:
            raise self._wrong("it has no oci-layout") from None
        except ValueError as error:
            raise self._wrong(f"index.json or oci-layout: {error}") from None
        if version != "1.0.0" or not isinstance(document, ImageIndex):
            raise self._wrong(f"layout version {version!r:.40} is not known here")
        return document.manifests

    def file_of(self, digest: str, size_bytes: int) -> Path:
        """Return a blob's file. Raises `RegistryError` where it has another size."""
        if (size := self._require_regular(digest)) != size_bytes:
            raise self._wrong(f"{digest} has {size} of {size_bytes} bytes")
        return self.blob_path(digest)

    def blob_path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise self._wrong(f"{digest!r:.80} is no digest")
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def _list(self, new: Descriptor, document: Document) -> None:
        """List a manifest in `index.json`, in place of the previous one with its tag and of its
        untagged children. One that is listed already is not listed again without a tag.
        """
        before = self.listed()
        if not _name(new) and new.digest in {descriptor.digest for descriptor in before}:
            return
        children = {part.digest for part in parts_of(document)}
        remaining = [
            descriptor
            for descriptor in before
            if not (_name(descriptor) and _name(descriptor) == _name(new))
            and not (not _name(descriptor) and descriptor.digest in {new.digest, *children})
        ]
        self._write_list([*remaining, new])

    def _write_list(self, descriptors: Sequence[Descriptor]) -> None:
        write_text(self.folder / "oci-layout", _VERSION)
        write_text(self.folder / "index.json", index_body(descriptors).decode())

    def _has(self, digest: str, size_bytes: int) -> bool:
        """Return whether a blob is there, whole."""
        path = self.blob_path(digest)
        if not os.path.lexists(path) or self._require_regular(digest) != size_bytes:
            return False
        return f"sha256:{sha256_of(path)}" == digest

    def _require_regular(self, digest: str) -> int:
        """Return the size, if it is a regular file."""
        try:
            status = self.blob_path(digest).lstat()
        except FileNotFoundError:
            raise self._wrong(f"{digest} is missing") from None
        kind = kind_of(status.st_mode)
        if kind:
            raise self._wrong(f"{digest} is {kind}, not a regular file")
        return status.st_size

    def _take(self, source: BinaryIO, digest: str, destination: Path) -> None:
        """Store these bytes, if their digest is right: by a link to the file that they are, by the
        name that it was opened by, where one can be.
        """
        name, is_linked = getattr(source, "name", None), False
        with file_aside(destination) as aside:
            aside.unlink()
            if isinstance(name, str):
                with contextlib.suppress(OSError):
                    os.link(name, aside, follow_symlinks=False)
                    is_linked = os.path.samestat(aside.lstat(), os.fstat(source.fileno()))
            if not is_linked:
                aside.unlink(missing_ok=True)
                with aside.open("wb") as file:
                    shutil.copyfileobj(source, file)
            if f"sha256:{sha256_of(aside)}" != digest:
                raise self._wrong(f"{digest} is damaged")

    def _read(self, name: str) -> bytes:
        try:
            return read_regular(self.folder / name, MANIFEST_LIMIT_BYTES)
        except StoreError as error:
            raise self._wrong(error.message) from error

    def _wrong(self, reason: str) -> RegistryError:
        return wrong(self.host, _STEP, reason, "export it again, and carry all of the folder")


def parts_of(document: Document) -> tuple[Descriptor, ...]:
    """Return the parts that have to exist before it: config and layers, or an index's children."""
    if isinstance(document, ImageManifest):
        return (document.config, *document.layers)
    return document.manifests


def _name(descriptor: Descriptor) -> str:
    return descriptor.annotations.get(NAME, "")
