"""Images in a folder (the OCI image layout): what a disk carries where no network goes. Edge.

What is read is a stranger's: regular files only, to a limit, and held against their digests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO

from warpfront.errors import InputError, StoreError
from warpfront.release.registry import documents
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    INDEX_TYPES,
    MANIFEST_TYPES,
    Descriptor,
    Manifest,
    digest_of_bytes,
)
from warpfront.release.registry.documents import MANIFEST_LIMIT_BYTES, ImageIndex, ImageManifest
from warpfront.release.registry.references import is_digest
from warpfront.system.foreign import kind_of, read_regular
from warpfront.system.store import storing, write_text

_VERSION = '{"imageLayoutVersion":"1.0.0"}'
NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class FileBlob:
    """A blob that is a file."""

    path: Path
    digest: str
    size_bytes: int

    def open(self) -> BinaryIO:
        return self.path.open("rb")


class Layout:
    """A folder of blobs by their digests, and `index.json`, which names the images and what is
    attached to them. Raises `InputError` for what is not as it should be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        """Make the folder one, unless it is."""
        with storing(self.folder):
            (self.folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "oci-layout", _VERSION)

    def listed(self) -> tuple[Descriptor, ...]:
        """What `index.json` names."""
        self._require_version()
        body = self._read(self.folder / "index.json", MANIFEST_LIMIT_BYTES)
        with _said_of(self.folder / "index.json"):
            value = documents.read_object(body)
            document = documents.read_body(body, value.get("mediaType", IMAGE_INDEX))
        if not isinstance(document, ImageIndex):
            raise InputError(f"{self.folder / 'index.json'}: it is no index")
        return document.manifests

    def write_list(self, descriptors: Sequence[Descriptor]) -> None:
        """Name these, and nothing else; the last thing that is written."""
        write_text(self.folder / "index.json", documents.index_body(descriptors).decode())

    def root(self, name: str = "") -> Descriptor:
        """The image of that name, or the only one."""
        images = [one for one in self.listed() if self._subject_of(one.digest) is None]
        found = [one for one in images if one.annotations.get(NAME) == name] if name else images
        if len(found) != 1:
            names = ", ".join(one.annotations.get(NAME, one.digest) for one in images)
            raise InputError(
                f"{self.folder}: {len(found)} images{f' named {name}' if name else ''}",
                hint=f"there are: {names}" if names else "it is empty",
            )
        return found[0]

    def manifest(self, digest: str) -> Manifest | None:
        """A manifest or index of the layout, checked; None where there is none."""
        path = self.blob_path(digest)
        try:
            body = read_regular(path, MANIFEST_LIMIT_BYTES)
        except FileNotFoundError:
            return None
        except StoreError as error:
            raise InputError(error.message) from error
        with _said_of(path):
            if digest_of_bytes(body) != digest:
                raise ValueError(f"it is {digest_of_bytes(body)}")
            media_type = documents.read_object(body).get("mediaType")
            if not isinstance(media_type, str):
                raise ValueError("it does not say what it is")  # noqa: TRY004 - a wrong value
            documents.read_body(body, media_type)
        descriptor = Descriptor(media_type=media_type, digest=digest, size_bytes=len(body))
        return Manifest(descriptor=descriptor, body=body)

    def referrers(self, digest: str) -> tuple[Descriptor, ...]:
        """What is attached to a digest, of what `index.json` names."""
        return tuple(one for one in self.listed() if self._subject_of(one.digest) == digest)

    def source(self, descriptor: Descriptor) -> FileBlob:
        """A blob to be sent: a regular file of the right size. Who gets it checks its digest."""
        path = self.blob_path(descriptor.digest)
        try:
            status = path.lstat()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        kind = kind_of(status.st_mode)
        if kind or status.st_size != descriptor.size_bytes:
            raise InputError(
                f"{path}: {kind or f'{status.st_size} of {descriptor.size_bytes} bytes'}"
            )
        return FileBlob(path, descriptor.digest, descriptor.size_bytes)

    def has(self, descriptor: Descriptor) -> bool:
        """Whether a blob is there, whole."""
        try:
            with self.source(descriptor).path.open("rb") as file:
                return f"sha256:{file_digest(file, 'sha256').hexdigest()}" == descriptor.digest
        except InputError:
            return False

    def write(self, body: bytes) -> None:
        """Have a small blob."""
        write_text(self.blob_path(digest_of_bytes(body)), body.decode())

    def link(self, file: Path, digest: str) -> None:
        """Have a file of this disk as a blob: by hard link where one can be, else a copy."""
        path = self.blob_path(digest)
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                try:
                    os.link(file, aside, follow_symlinks=False)
                except OSError:
                    shutil.copyfile(file, aside)
                aside.replace(path)
            finally:
                aside.unlink(missing_ok=True)

    def blob_path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise InputError(f"{digest!r} is no digest")
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def check(self) -> None:
        """That everything which `index.json` names, and what that names, is there and whole."""
        waiting, seen = list(self.listed()), set[str]()
        while waiting:
            one = waiting.pop()
            if one.digest in seen:
                continue
            seen.add(one.digest)
            if not self.has(one):
                raise InputError(f"{self.blob_path(one.digest)}: missing, or not whole")
            if one.media_type in {*MANIFEST_TYPES, *INDEX_TYPES}:
                manifest = self.manifest(one.digest)
                assert manifest is not None
                waiting += parts_of(manifest)

    def _subject_of(self, digest: str) -> str | None:
        manifest = self.manifest(digest)
        subject = documents.read_document(manifest).subject if manifest else None
        return subject.digest if subject else None

    def _require_version(self) -> None:
        place = self.folder / "oci-layout"
        with _said_of(place):
            version = documents.read_object(self._read(place, 4096)).get("imageLayoutVersion")
            if version != "1.0.0":
                raise ValueError(f"layout version {version!r:.40} is not known here")

    def _read(self, path: Path, limit_bytes: int) -> bytes:
        try:
            return read_regular(path, limit_bytes)
        except FileNotFoundError:
            raise InputError(
                f"{path}: no such file", hint=f"is {self.folder} an OCI image layout?"
            ) from None
        except StoreError as error:
            raise InputError(error.message) from error


def parts_of(manifest: Manifest) -> tuple[Descriptor, ...]:
    """What has to be there before it: config and layers, or the children of an index."""
    document = documents.read_document(manifest)
    if isinstance(document, ImageManifest):
        return (document.config, *document.layers)
    return document.manifests


@contextlib.contextmanager
def _said_of(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
