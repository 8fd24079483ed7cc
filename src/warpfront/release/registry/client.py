"""A registry over HTTP (the OCI distribution specification, /v2/). Edge.

No answer is trusted: bodies are checked against their digests, lengths against limits, and media
types against content. Addresses are checked against where a login may go.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import requests

from warpfront.errors import InputError, RegistryError, RegistryFault
from warpfront.release.registry.authorization import delete, pull, push, read_credentials
from warpfront.release.registry.contract import (
    EMPTY_BODY,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    INDEX_TYPES,
    MANIFEST_LIMIT_BYTES,
    MANIFEST_TYPES,
    Artifact,
    Blob,
    Descriptor,
    ImageIndex,
    Registry,
    RegistryManifest,
    body_of,
    bytes_blob,
    digest_of_bytes,
    index_body,
    read_manifest,
    read_object,
    referrer_of,
)
from warpfront.release.registry.http import ACCEPT, Attempts, Exchange, Patience, Request
from warpfront.release.registry.uploads import Upload, save
from warpfront.system.http_answers import TransientError, read_count, refused, wrong
from warpfront.system.process import Run
from warpfront.system.references import fallback_tag, is_digest, is_tag, wrong_repository

_DIGEST_HEADER = "Docker-Content-Digest"
# Requests under way at once: below the connections that requests keeps of a host.
_AT_ONCE = 4
_PAGE = 1000
_MOST_PAGES = 200
_MOST_PAGES_BYTES = 4 * MANIFEST_LIMIT_BYTES
# What a registry without the referrers API answers: a path that it does not know.
_NO_REFERRERS = frozenset({404, 405, 501})
# GHCR, and distribution with deletion off, whether or not the manifest is there.
_NOT_ALLOWED = 405
_NO_MANIFEST = digest_of_bytes(b"no manifest has these bytes")
_NOT_MOUNTED = frozenset({202, 400, 403, 404, 405})


class HttpRegistry(Registry, contextlib.AbstractContextManager["HttpRegistry"]):
    """`contract.Registry` over HTTP. Threads may share one."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __exit__(self, *_exception: object) -> None:
        self._exchange.close()

    @property
    def host(self) -> str:
        return self._exchange.host

    def manifest(self, repository: str, reference: str) -> RegistryManifest | None:
        step = f"manifest {_named(repository, reference)}"
        url = f"/v2/{repository}/manifests/{reference}"
        ask = Request("GET", url, step, (pull(repository),), {200, 404})
        answer, body = self._exchange.read(ask, MANIFEST_LIMIT_BYTES)
        if answer.status_code == 404:
            return None
        digest, declared = digest_of_bytes(body), answer.headers.get(_DIGEST_HEADER, "")
        for claimed in (reference if is_digest(reference) else "", declared):
            if claimed.startswith("sha256:") and claimed != digest:
                raise self._wrong(step, f"it sent {digest} for {claimed:.80}")
        return self._received(body, _media_type(answer), step)

    def head(self, repository: str, reference: str) -> Descriptor | None:
        step = f"manifest {_named(repository, reference)}"
        url = f"/v2/{repository}/manifests/{reference}"
        ask = Request("HEAD", url, step, (pull(repository),), {200, 404})
        answer, _ = self._exchange.read(ask, 0)
        if answer.status_code == 404:
            return None
        digest, length = answer.headers.get(_DIGEST_HEADER, ""), _length(answer)
        if not digest or not length:  # not every registry sends it for HEAD
            return super().head(repository, reference)
        if not is_digest(digest) or (is_digest(reference) and digest != reference):
            raise self._wrong(step, f"it names {digest:.80}")
        media_type = _media_type(answer)
        if media_type not in {*MANIFEST_TYPES, *INDEX_TYPES}:
            raise self._wrong(step, f"it is {media_type!r:.80}, no manifest that is known here")
        return Descriptor(media_type=media_type, digest=digest, size_bytes=length)

    def put_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        """See `Registry`. A subject's attachment is listed under the fallback tag where the
        registry's answer does not confirm its own list.
        """
        manifest, subject = self._put(repository, reference, body, media_type)
        if subject:
            self._list(repository, subject, [referrer_of(manifest)])
        return manifest.descriptor

    def blob(self, repository: str, digest: str, limit_bytes: int) -> bytes:
        ask = self._blob_ask(repository, digest, {200})
        _, body = self._exchange.read(ask, limit_bytes)
        if digest_of_bytes(body) != digest:
            raise self._wrong(ask.step, f"it sent {digest_of_bytes(body)}")
        return body

    @contextlib.contextmanager
    def open_blob(self, repository: str, digest: str) -> Iterator[BinaryIO]:
        ask = self._blob_ask(repository, digest, {200})
        answer = Attempts(self._exchange.patience).run(lambda: self._exchange.once(ask))
        try:
            yield io.BufferedReader(_Pieces(self._checked(answer, digest, ask.step)))
        finally:
            answer.close()

    def save_blob(self, repository: str, digest: str, destination: Path, size_bytes: int) -> None:
        ask = self._blob_ask(repository, digest, {200, 206, 416})
        save(self._exchange, ask, digest, size_bytes, destination)

    def put_blob(self, repository: str, source: Blob, mount_from: Sequence[str] = ()) -> int:
        step = f"blob {_named(repository, source.digest)}"
        url = f"/v2/{repository}/blobs/{source.digest}"
        answer, _ = self._exchange.read(
            Request("HEAD", url, step, (push(repository),), {200, 404}), 0
        )
        if answer.status_code == 200:
            if _length(answer) not in {None, source.size_bytes}:
                raise self._wrong(step, f"it has {_length(answer)} of {source.size_bytes} bytes")
            return 0
        origins = (origin for origin in dict.fromkeys(mount_from) if origin != repository)
        if any(self._mount(repository, source, origin) for origin in origins):
            return 0
        upload = Upload(exchange=self._exchange, repository=repository, source=source)
        upload.send()
        return upload.sent_bytes

    def referrers(self, repository: str, digest: str) -> tuple[Descriptor, ...]:
        step = f"referrers of {_named(repository, digest)}"
        url = f"/v2/{repository}/referrers/{digest}"
        descriptors: list[Descriptor] = []
        for answer, body in self._pages(repository, url, step, {200, *_NO_REFERRERS}):
            if answer.status_code != 200:
                return self._listed(repository, digest)[0]
            document = self._received(body, _media_type(answer), step).document
            if not isinstance(document, ImageIndex):
                raise self._wrong(step, "it sent no index")
            descriptors += document.manifests
        return tuple(descriptors)

    def attach_all(
        self, repository: str, subject: Descriptor, artifacts: Sequence[Artifact]
    ) -> None:
        """Attach several in parallel, see `Registry`. Without a referrers list, list all once."""
        _require_repository(repository)
        contents = dict.fromkeys((EMPTY_BODY, *(artifact.payload for artifact in artifacts)))

        def put(artifact: Artifact) -> tuple[RegistryManifest, str]:
            body = body_of(subject, artifact)
            return self._put(repository, digest_of_bytes(body), body, IMAGE_MANIFEST)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda content: self.put_blob(repository, bytes_blob(content)), contents))
            put_ones = list(pool.map(put, artifacts))
        missing = [referrer_of(manifest) for manifest, unlisted in put_ones if unlisted]
        if missing:
            self._list(repository, subject.digest, missing)

    def tags(self, repository: str) -> tuple[str, ...]:
        _require_repository(repository)
        step = f"tags of {repository}"
        names: list[str] = []
        url = f"/v2/{repository}/tags/list?n={_PAGE}"
        for answer, body in self._pages(repository, url, step, {200, 404}):
            if answer.status_code == 404:
                return ()
            try:
                named = read_object(body).get("tags")
            except ValueError as error:
                raise self._wrong(step, str(error)) from None
            named = [] if named is None else named  # some registries send null for an empty list
            if not isinstance(named, list) or not all(
                isinstance(tag, str) and is_tag(tag) for tag in named
            ):
                raise self._wrong(step, "it sent no list of tags")
            names += named
        return tuple(dict.fromkeys(names))

    def deletes(self, repository: str) -> bool:
        return self._delete(repository, _NO_MANIFEST) != _NOT_ALLOWED

    def delete(self, repository: str, digest: str) -> None:
        if not is_digest(digest):
            raise InputError(f"{digest}: only digests are deleted, with every tag on them")
        if self._delete(repository, digest) == _NOT_ALLOWED:
            raise refused(
                self.host,
                f"delete {_named(repository, digest)}",
                "it deletes nothing",
                "have deletion switched on, or do without",
            )

    def _delete(self, repository: str, digest: str) -> int:
        """Return the status of the answer."""
        url, step = f"/v2/{repository}/manifests/{digest}", f"delete {_named(repository, digest)}"
        accepted = {200, 202, 204, 404, _NOT_ALLOWED}
        ask = Request("DELETE", url, step, (delete(repository),), accepted)
        answer, _ = self._exchange.read(ask, MANIFEST_LIMIT_BYTES)
        return answer.status_code

    def _put(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> tuple[RegistryManifest, str]:
        """Return the manifest, and the subject under which the registry has not listed it."""
        step = f"put manifest {_named(repository, reference)}"
        manifest = self._received(body, media_type, step)
        digest, subject = manifest.descriptor.digest, manifest.document.subject
        if is_digest(reference) and reference != digest:
            raise InputError(f"{reference}: what should be put there is {digest}")
        url, headers = f"/v2/{repository}/manifests/{reference}", {"Content-Type": media_type}
        scopes = (push(repository),)
        ask = Request("PUT", url, step, scopes, {200, 201}, {**ACCEPT, **headers}, body)
        answer, _ = self._exchange.read(ask, MANIFEST_LIMIT_BYTES)
        declared = answer.headers.get(_DIGEST_HEADER)
        if declared is None:  # then it has to show it
            descriptor = self.head(repository, reference)
            declared = descriptor.digest if descriptor is not None else "nothing"
        if declared != digest:
            raise self._wrong(step, f"it says that it stored {declared:.80}, not {digest}")
        is_listed = subject is None or answer.headers.get("OCI-Subject") == subject.digest
        return manifest, "" if is_listed or subject is None else subject.digest

    def _list(self, repository: str, subject: str, new: Sequence[Descriptor]) -> None:
        """List artifacts in the fallback index of their subject. Others may write that at the
        same time: ours are there only when they are read back.
        """

        def put() -> None:
            listed, annotations = self._listed(repository, subject)
            if not (missing := _missing(new, listed)):
                return
            body = index_body((*listed, *missing), annotations)
            self._put(repository, fallback_tag(subject), body, IMAGE_INDEX)
            if lost := _missing(new, self._listed(repository, subject)[0]):
                step = f"list of what is attached to {subject}"
                raise TransientError(self._wrong(step, f"{lost[0].digest} does not stay in it"))

        Attempts(self._exchange.patience).run(put)

    def _listed(
        self, repository: str, subject: str
    ) -> tuple[tuple[Descriptor, ...], Mapping[str, str]]:
        """Return the entries of a subject's fallback index, and its annotations."""
        index = self.manifest(repository, fallback_tag(subject))
        if index is None:
            return (), {}
        if not isinstance(index.document, ImageIndex):
            raise self._wrong(f"tag {fallback_tag(subject)}", "it is no index")
        return index.document.manifests, index.document.annotations

    def _mount(self, repository: str, source: Blob, origin: str) -> bool:
        """Return whether it was mounted. If not, cancel what the registry may have begun."""
        _require_repository(origin)
        step = f"mount of {source.digest} from {origin}"
        url = f"/v2/{repository}/blobs/uploads/?mount={source.digest}&from={origin}"
        scopes = (push(repository), pull(origin))
        ask = Request("POST", url, step, scopes, {201, *_NOT_MOUNTED}, body=b"")
        try:
            answer, _ = self._exchange.read(ask, MANIFEST_LIMIT_BYTES)
        except RegistryError as error:
            if error.fault is not RegistryFault.REFUSED:
                raise
            return False  # without read access there, the blob is sent
        if answer.status_code == 202:
            with contextlib.suppress(RegistryError, TransientError):
                upload = self._exchange.next_address(answer, step)
                ask = Request("DELETE", upload, step, (push(repository),), {204})
                self._exchange.finish(self._exchange.once(ask))
        return answer.status_code == 201

    def _pages(
        self, repository: str, url: str, step: str, accepted: set[int]
    ) -> Iterator[tuple[requests.Response, bytes]]:
        remaining_bytes = _MOST_PAGES_BYTES
        for _ in range(_MOST_PAGES):
            ask = Request("GET", url, step, (pull(repository),), accepted)
            answer, body = self._exchange.read(ask, min(MANIFEST_LIMIT_BYTES, remaining_bytes))
            remaining_bytes -= len(body)
            yield answer, body
            following = answer.links.get("next", {}).get("url", "")
            if answer.status_code != 200 or not following:
                return
            url = self._exchange.next_address(answer, step, following)
        raise self._wrong(step, f"it has more than {_MOST_PAGES} pages")

    def _checked(self, answer: requests.Response, digest: str, step: str) -> Iterator[bytes]:
        """Yield the pieces of a body, and raise an error at the end if their digest differs."""
        hashed = sha256()
        try:
            for piece in self._exchange.pieces(answer, step):
                hashed.update(piece)
                yield piece
        except TransientError as passing:
            raise passing.error from None
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._wrong(step, f"it sent sha256:{hashed.hexdigest()}")

    def _blob_ask(self, repository: str, digest: str, accepted: set[int]) -> Request:
        step, url = f"blob {_named(repository, digest)}", f"/v2/{repository}/blobs/{digest}"
        return Request("GET", url, step, (pull(repository),), accepted)

    def _received(self, body: bytes, media_type: str, step: str) -> RegistryManifest:
        try:
            return read_manifest(body, media_type)
        except ValueError as error:
            raise self._wrong(step, str(error)) from None

    def _wrong(self, step: str, reason: str) -> RegistryError:
        return wrong(self.host, step, reason)


def connect(
    host: str, environment: Mapping[str, str], run: Run, *, patience: Patience | None = None
) -> HttpRegistry:
    """Return the registry `host`, with docker's own logins; nothing is sent before a request."""
    credentials = read_credentials(environment, run)
    return HttpRegistry(Exchange(host, environment, credentials, patience or Patience()))


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def _missing(new: Sequence[Descriptor], listed: Sequence[Descriptor]) -> list[Descriptor]:
    digests = {descriptor.digest for descriptor in listed}
    return [descriptor for descriptor in new if descriptor.digest not in digests]


def _named(repository: str, reference: str) -> str:
    """Return the name for messages. Only a repository, a tag or a digest becomes part of a path."""
    _require_repository(repository)
    if is_digest(reference):
        return f"{repository}@{reference}"
    if is_tag(reference):
        return f"{repository}:{reference}"
    raise InputError(f"{reference!r} is neither a tag nor a digest")


def _require_repository(repository: str) -> None:
    reason = wrong_repository(repository)
    if reason:
        raise InputError(reason)


def _media_type(answer: requests.Response) -> str:
    return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _length(answer: requests.Response) -> int | None:
    return read_count(answer.headers.get("Content-Length", ""))
