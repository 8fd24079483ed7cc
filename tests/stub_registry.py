"""A registry in a thread, on loopback: a small real one (the OCI distribution specification 1.1,
with what Debian's lacks: the referrers API, uploads that go on after a cut, tokens), which can be
told to go wrong at any step, and remembers what it was shown; and a client that does not wait.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast
from urllib.parse import parse_qs, parse_qsl, urlsplit

from loopback import running

from warpfront.release.registry.client import HttpRegistry, connect
from warpfront.release.registry.contract import (
    EMPTY_BODY,
    IMAGE_MANIFEST,
    Artifact,
    Blob,
    ContentStore,
    Descriptor,
    body_of,
    bytes_blob,
    digest_of_bytes,
    read_manifest,
    referrer_of,
)
from warpfront.release.registry.copying import WatchedFile
from warpfront.release.registry.http import Patience
from warpfront.system.process import Command, Completed, Run

INDEX = "application/vnd.oci.image.index.v1+json"
USER, PASSWORD = "publisher", "a canary that nobody may print"
# (method, path, step): the first that fits names a request.
_STEPS = tuple(
    (method, re.compile(path), step)
    for method, path, step in (
        ("GET", r"/v2/", "ping"),
        ("GET|POST", r"/token", "token"),
        ("HEAD", r"/v2/(?P<name>.+)/blobs/(?P<key>sha256:[0-9a-f]+)", "head blob"),
        ("GET", r"/v2/(?P<name>.+)/blobs/(?P<key>sha256:[0-9a-f]+)", "get blob"),
        ("POST", r"/v2/(?P<name>.+)/blobs/uploads/", "begin"),
        ("PATCH", r"/v2/(?P<name>.+)/blobs/uploads/(?P<key>[^/]+)", "piece"),
        ("GET", r"/v2/(?P<name>.+)/blobs/uploads/(?P<key>[^/]+)", "status"),
        ("PUT", r"/v2/(?P<name>.+)/blobs/uploads/(?P<key>[^/]+)", "close"),
        ("DELETE", r"/v2/(?P<name>.+)/blobs/uploads/(?P<key>[^/]+)", "forget"),
        ("HEAD", r"/v2/(?P<name>.+)/manifests/(?P<key>[^/]+)", "head manifest"),
        ("GET", r"/v2/(?P<name>.+)/manifests/(?P<key>[^/]+)", "get manifest"),
        ("PUT", r"/v2/(?P<name>.+)/manifests/(?P<key>[^/]+)", "put manifest"),
        ("DELETE", r"/v2/(?P<name>.+)/manifests/(?P<key>[^/]+)", "delete"),
        ("GET", r"/v2/(?P<name>.+)/referrers/(?P<key>[^/]+)", "referrers"),
        ("GET", r"/v2/(?P<name>.+)/tags/list", "tags"),
    )
)
_WRITES = frozenset({"begin", "piece", "status", "close", "forget", "put manifest", "delete"})


def attach_one(
    registry: ContentStore, repository: str, subject: Descriptor, artifact: Artifact
) -> Descriptor:
    """Put the payload, then the manifest with its subject. The same document twice is the same
    digest, once. Raises the errors of `registry`.
    """
    for content in (artifact.payload, EMPTY_BODY):
        registry.put_blob(repository, bytes_blob(content))
    body = body_of(subject, artifact)
    registry.put_manifest(repository, digest_of_bytes(body), body, IMAGE_MANIFEST)
    return referrer_of(read_manifest(body, IMAGE_MANIFEST))


def file_blob(
    path: Path, digest: str, size_bytes: int, on_bytes: Callable[[int], None] = lambda _: None
) -> Blob:
    """Return a blob that is a file, and reports the size of each piece that is read."""
    opened = partial(WatchedFile, str(path), on_bytes)
    return Blob(digest=digest, size_bytes=size_bytes, open=cast("Callable[[], BinaryIO]", opened))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How one step goes wrong, `times` times (None = always), after `spare` that go well; or every
    `every`th time.

    `status` answers with it (and `headers`, `body`). `cut_at` takes, or sends, so many bytes of a
    body and drops the line; `forgets` loses what had come. `hangs` never answers; `drips` sends one
    byte of the answer's head (`head`) or body (`body`) every 20 ms. `lie` is the digest that is
    named for everything; `corrupt` changes the last byte of a body; `instead` is sent in the place
    of a body, `headers` in that of headers.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_at: int | None = None
    forgets: bool = False
    hangs: bool = False
    drips: str = ""
    lie: str = ""
    corrupt: bool = False
    instead: bytes | None = None
    times: int | None = None
    spare: int = 0
    every: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the registry was asked, and shown."""

    step: str
    path: str
    headers: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class StubRegistry:
    """`auth` is "", "basic" or "bearer". What it can is set by `referrers`, `mounts`, `pieces`;
    `most_bytes` is the largest request that it takes, `page` the tags on a page; one that
    `hangs_up` does so after each answer, when the next request is on its way.
    """

    host: str = ""
    auth: str = ""
    realm: str = ""
    referrers: bool = True
    mounts: bool = True
    pieces: bool = True
    says_digests: bool = True
    hangs_up: bool = False
    most_bytes: int | None = None
    page: int = 1000
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _faults: list[tuple[str, Fault, list[int]]] = field(default_factory=list)

    def fail(self, step: str, fault: Fault) -> None:
        """From now on requests of a step go wrong."""
        assert step in {known for _, _, known in _STEPS}
        self._faults.append((step, fault, [0]))

    def heal(self) -> None:
        self._faults.clear()

    def fault_for(self, step: str) -> Fault:
        with self.lock:
            for failing, fault, seen in self._faults:
                if failing == step:
                    seen[0] += 1
                    beyond = seen[0] - fault.spare
                    if seen[0] % fault.every:
                        continue
                    if beyond > 0 and (fault.times is None or beyond <= fault.times):
                        return fault
        return Fault()

    def steps(self) -> list[str]:
        """What it was asked, in order, but for first contacts."""
        return [request.step for request in self.requests if request.step != "ping"]

    def shown(self) -> set[str]:
        """Every Authorization header that reached it."""
        return {request.headers.get("Authorization", "") for request in self.requests} - {""}

    def keep(self, repository: str, content: bytes) -> str:
        """Have a blob, without anybody's sending it."""
        digest = digest_of(content)
        self.blobs[repository, digest] = content
        return digest

    def keep_manifest(self, repository: str, tag: str, body: bytes, media_type: str) -> str:
        """Have a manifest, whatever is wrong with it."""
        digest = digest_of(body)
        self.manifests[repository, digest] = media_type, body
        if tag:
            self.tags[repository, tag] = digest
        return digest


@dataclass(slots=True)
class Clock:
    """A pace that waits for nobody, and remembers for how long it should have."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def paced(self, patience: Patience) -> Patience:
        return replace(patience, clock=lambda: self.now, sleep=self.sleep, chance=lambda: 1.0)


QUICK = Patience(connect_seconds=5.0, answer_seconds=5.0, tries=5)
# For who waits for what never comes; a busy machine is late, too.
IMPATIENT = replace(QUICK, answer_seconds=0.3)


def client_of(
    registry: StubRegistry,
    folder: Path,
    *,
    login: bool = True,
    clock: Clock | None = None,
    sizes: Mapping[str, Any] | None = None,
    run: Run | None = None,
    patience: Patience = QUICK,
    environment: Mapping[str, str] | None = None,
) -> HttpRegistry:
    """A client of it. `folder` becomes docker's configuration, with the password if `login`."""
    written = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    logins = {registry.host: {"auth": written}} if login else {}
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps({"auths": logins}))
    return connect(
        registry.host,
        {"DOCKER_CONFIG": str(folder), **(environment or {})},
        run or _nothing_runs,
        patience=(clock or Clock()).paced(replace(patience, **(sizes or {}))),
    )


def _nothing_runs(command: Command) -> Completed:
    raise AssertionError(f"nobody asked for {command}")


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextlib.contextmanager
def serve_registry(**settings: Any) -> Iterator[StubRegistry]:
    """One on a loopback port, for as long as the block lasts."""
    registry = StubRegistry(**settings)
    handler = type("Handler", (_Handler,), {"served": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    registry.host = f"127.0.0.1:{server.server_port}"
    with running(server):
        try:
            yield registry
        finally:
            registry.stopping.set()


class _Dropped(Exception):  # noqa: N818 - wanted
    """The line was cut on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: ClassVar[StubRegistry]
    step: str
    name: str
    key: str
    query: Mapping[str, str]
    fault: Fault
    has_answered = False

    def setup(self) -> None:
        super().setup()
        self.served.connections += 1

    def handle(self) -> None:
        first = self.connection.recv(1, socket.MSG_PEEK)
        if first == b"\x16":  # TLS: answered at once, or the other side waits for a handshake
            self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        with contextlib.suppress(_Dropped, ConnectionError):
            super().handle()

    def handle_one_request(self) -> None:
        if self.has_answered and self.served.hangs_up:
            self.connection.recv(1, socket.MSG_PEEK)
            raise _Dropped
        super().handle_one_request()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet: `StubRegistry.requests` has it all."""

    def answer(self) -> None:
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query))
        for method, pattern, step in _STEPS:
            found = pattern.fullmatch(parts.path)
            if found and self.command in method.split("|"):
                named = found.groupdict()
                self.step, self.name, self.key = step, named.get("name", ""), named.get("key", "")
                break
        else:
            self.step = "unknown"
        request = Request(step=self.step, path=self.path, headers=dict(self.headers))
        self.served.requests.append(request)
        self.fault = self.served.fault_for(self.step)
        if self.fault.hangs:
            self.served.stopping.wait(60)
            raise _Dropped
        if self.fault.status:
            self.take()
            self.reply(self.fault.status, self.fault.headers, self.fault.body)
        elif self.step in {"token", "ping", "unknown"} or self.allowed():
            getattr(self, "do_" + self.step.replace(" ", "_"))()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

    def do_unknown(self) -> None:
        self.take()
        self.reply(404)

    def allowed(self) -> bool:
        """Whether the request shows what it has to; if not, it is told."""
        shown = self.headers.get("Authorization", "")
        action = "push" if self.step in _WRITES else "pull"
        action = "delete" if self.step == "delete" else action
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        scope = f"repository:{self.name}:"
        if self.served.auth == "basic" and shown != basic:
            self.refuse('Basic realm="stub"')
        elif self.served.auth == "bearer" and not any(
            one.startswith(scope) and action in one.removeprefix(scope).split(",")
            for one in self.served.tokens.get(shown.removeprefix("Bearer "), "").split()
        ):
            realm = self.served.realm or f"http://{self.served.host}/token"
            # A registry may ask for whatever it likes.
            asked = "repository:somebody/else:pull,push"
            self.refuse(f'Bearer realm="{realm}",service="stub",scope="{asked}"')
        else:
            return True
        return False

    def refuse(self, challenge: str) -> None:
        self.take()
        self.reply(401, {"WWW-Authenticate": challenge}, _errors("UNAUTHORIZED"))

    def do_ping(self) -> None:
        self.reply(200, {}, b"{}")

    def do_token(self) -> None:
        form = parse_qs(self.take().decode())
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        scopes = form.get("scope", parse_qs(urlsplit(self.path).query).get("scope", []))
        shown = form.get("refresh_token", [PASSWORD]), self.headers.get("Authorization", basic)
        if shown != ([PASSWORD], basic):
            self.reply(401)
        else:
            token = uuid.uuid4().hex
            self.served.tokens[token] = " ".join(scopes)
            body = {"token": token, "expires_in": 300}
            self.reply(200, {}, self.fault.instead or json.dumps(body).encode())

    def do_head_blob(self) -> None:
        content = self.served.blobs.get((self.name, self.key))
        if content is None:
            self.reply(404)
        else:
            self.reply(200, self.digest(self.key), content)

    def do_get_blob(self) -> None:
        content = self.served.blobs.get((self.name, self.key))
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if content is None:
            self.reply(404, {}, _errors("BLOB_UNKNOWN"))
        elif span:
            start = int(span.group(1))
            said = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.reply(206, {"Content-Range": said}, content[start:])
        else:
            self.reply(200, self.digest(self.key), content)

    def do_begin(self) -> None:
        self.take()
        mounted = self.served.blobs.get((self.query.get("from", ""), self.query.get("mount", "")))
        if mounted is not None and self.served.mounts:
            self.served.blobs[self.name, self.query["mount"]] = mounted
            self.reply(201, self.digest(self.query["mount"]))
            return
        key = uuid.uuid4().hex
        self.served.uploads[key] = bytearray()
        self.going_on(key)

    def do_piece(self) -> None:
        upload = self.served.uploads.get(self.key)
        if not self.served.pieces:
            self.take()
            self.reply(405, {}, _errors("UNSUPPORTED"))
        elif self.served.most_bytes is not None and self.length > self.served.most_bytes:
            self.take()
            self.reply(413)
        elif upload is None:
            self.take()
            self.reply(404, {}, _errors("BLOB_UPLOAD_UNKNOWN"))
        elif self.headers.get("Content-Range", f"{len(upload)}-").split("-")[0] != str(len(upload)):
            self.take()
            self.reply(416)
        else:
            self.take(upload)
            self.going_on(self.key)

    def do_status(self) -> None:
        if self.key in self.served.uploads:
            self.going_on(self.key, status=204)
        else:
            self.reply(404, {}, _errors("BLOB_UPLOAD_UNKNOWN"))

    def do_close(self) -> None:
        upload = self.served.uploads.get(self.key)
        if upload is None:
            self.take()
            self.reply(404, {}, _errors("BLOB_UPLOAD_UNKNOWN"))
            return
        self.take(upload)
        content, digest = bytes(self.served.uploads.pop(self.key)), self.query.get("digest", "")
        if digest_of(content) != digest:
            self.reply(400, {}, _errors("DIGEST_INVALID"))
            return
        self.served.blobs[self.name, digest] = content
        if self.fault.cut_at is not None:  # stored, and the answer lost
            raise _Dropped
        self.reply(201, self.digest(digest))

    def do_forget(self) -> None:
        self.served.uploads.pop(self.key, None)
        self.reply(204)

    def do_head_manifest(self) -> None:
        self.do_get_manifest()

    def do_get_manifest(self) -> None:
        digest = self.served.tags.get((self.name, self.key), self.key)
        found = self.served.manifests.get((self.name, digest))
        if found is None:
            self.reply(404, {}, _errors("MANIFEST_UNKNOWN"))
        else:
            self.reply(200, {"Content-Type": found[0], **self.digest(digest)}, found[1])

    def do_put_manifest(self) -> None:
        body = self.take()
        digest, value = digest_of(body), json.loads(body)
        parts = [*value.get("layers", []), *([value["config"]] if "config" in value else [])]
        missing = [one for one in parts if (self.name, one["digest"]) not in self.served.blobs]
        children = value.get("manifests", [])
        kept = self.served.manifests
        missing += [one for one in children if (self.name, one["digest"]) not in kept]
        if missing:
            self.reply(400, {}, _errors("MANIFEST_BLOB_UNKNOWN"))
            return
        self.served.manifests[self.name, digest] = self.headers["Content-Type"], body
        if not self.key.startswith("sha256:"):
            self.served.tags[self.name, self.key] = digest
        subject = value.get("subject", {}).get("digest")
        seen = {"OCI-Subject": subject} if subject and self.served.referrers else {}
        if self.fault.cut_at is not None:
            raise _Dropped
        self.reply(201, {**self.digest(digest), **seen})

    def do_delete(self) -> None:
        known = self.served.manifests.pop((self.name, self.key), None)
        for place in [at for at, digest in self.served.tags.items() if digest == self.key]:
            if place[0] == self.name:
                del self.served.tags[place]
        self.reply(202 if known else 404)

    def do_referrers(self) -> None:
        if not self.served.referrers:
            self.reply(404, {"Content-Type": "text/plain"}, b"404 page not found")
            return
        listed = []
        for (name, digest), (media_type, body) in self.served.manifests.items():
            value = json.loads(body)
            if name == self.name and value.get("subject", {}).get("digest") == self.key:
                entry = {"mediaType": media_type, "digest": digest, "size": len(body)}
                entry["artifactType"] = value.get("artifactType", value["config"]["mediaType"])
                if value.get("annotations"):
                    entry["annotations"] = value["annotations"]
                listed.append(entry)
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}
        self.reply(200, {"Content-Type": INDEX}, json.dumps(index).encode())

    def do_tags(self) -> None:
        tags = sorted(tag for name, tag in self.served.tags if name == self.name)
        later = [tag for tag in tags if tag > self.query.get("last", "")]
        page, more = later[: self.served.page], len(later) > self.served.page
        link = f'</v2/{self.name}/tags/list?n=1&last={page[-1]}>; rel="next"' if more else ""
        body = json.dumps({"name": self.name, "tags": page}).encode()
        known = any(name == self.name for name, _ in self.served.manifests)
        self.reply(200 if known else 404, {"Link": link} if link else {}, body)

    @property
    def length(self) -> int:
        return int(self.headers.get("Content-Length", 0))

    def take(self, into: bytearray | None = None) -> bytes:
        """The body of the request; a cut keeps what had come, or forgets it."""
        into = bytearray() if into is None else into
        before = len(into)
        cuts = self.step == "piece" or (self.step == "close" and self.fault.forgets)
        most = self.fault.cut_at if cuts else None
        for piece in self.arriving():
            into += piece if most is None else piece[: before + most - len(into)]
            if most is not None and len(into) - before >= most:
                break
        if most is not None:
            if self.fault.forgets:
                self.served.uploads.pop(self.key, None)
            # The rest is read and dropped: a reset would race with what the other side reads.
            self.connection.shutdown(socket.SHUT_RDWR)
            raise _Dropped
        return bytes(into[before:])

    def arriving(self) -> Iterator[bytes]:
        """The body as it comes, by its length or in chunks, as docker and crane send it."""
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            while size := int(self.rfile.readline().strip() or b"0", 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = self.length
        while left and (piece := self.rfile.read(min(left, 1 << 16))):
            yield piece
            left -= len(piece)

    def going_on(self, key: str, status: int = 202) -> None:
        has = len(self.served.uploads[key])
        said = {"Location": f"/v2/{self.name}/blobs/uploads/{key}?state={has}"}
        self.reply(status, {**said, "Range": f"0-{max(has - 1, 0)}"})

    def digest(self, digest: str) -> dict[str, str]:
        said = self.fault.lie or (digest if self.served.says_digests else "")
        return {"Docker-Content-Digest": said} if said else {}

    def reply(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        body = body if self.fault.instead is None else self.fault.instead
        if self.fault.corrupt:
            body = body[:-1] + bytes([body[-1] ^ 1])
        named = {**(headers or {}), "Content-Length": str(len(body)), **self.fault.headers}
        if status == 204:
            named.pop("Content-Length")
        self.has_answered = True
        self.send_response(status)
        for name, value in named.items():
            self.send_header(name, value)
        if self.fault.drips == "head":
            self.drip(b"X-Slow: " + b"." * 10_000)
        self.end_headers()
        if self.command == "HEAD" or status == 204:
            return
        if self.fault.drips == "body":
            self.drip(body)
        elif self.fault.cut_at is not None:
            self.wfile.write(body[: self.fault.cut_at])
            self.wfile.flush()
            raise _Dropped
        else:
            self.wfile.write(body)

    def drip(self, content: bytes) -> None:
        self.flush_headers()
        for place in range(len(content)):
            if self.served.stopping.wait(0.02):
                raise _Dropped
            self.wfile.write(content[place : place + 1])
            self.wfile.flush()


def _errors(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
