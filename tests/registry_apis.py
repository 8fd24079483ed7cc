"""Stand-ins for the APIs by which GHCR's and Docker Hub's images are deleted, on loopback. Neither
can be had here; each rule is from the page or source that its docstring names.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback import running

Answer = tuple[int, object]


@dataclass
class GitHubStandIn:
    """https://docs.github.com/rest/packages/packages: versions of a container package are listed at
    most 100 a page, by `name` (the digest) and `id`; DELETE answers 204; who may not is answered
    404 "Package not found." (https://github.com/actions/delete-package-versions/issues/237); the
    last tagged version is kept with 400 (https://github.com/kairos-io/kairos/issues/4723). A `/` of
    a name is `%2F` (https://github.com/dataaxiom/ghcr-cleanup-action/issues/10).
    """

    kind: str = "Organization"
    token: str = "a canary token"
    may_delete: bool = True
    versions: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    package: str = "demo/torch"
    requests: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, shown: str, _body: object) -> Answer:
        self.requests.append(f"{method} {path}")
        if shown != f"Bearer {self.token}":
            return 401, {"message": "Bad credentials"}
        found = urlsplit(path)
        if found.path == "/users/me":
            return 200, {"login": "me", "type": self.kind}
        owner = "orgs" if self.kind == "Organization" else "users"
        named = re.fullmatch(
            rf"/{owner}/me/packages/container/([^/]+)/versions(?:/(\d+))?", found.path
        )
        if not named or unquote(named[1]) != self.package or not self.may_delete:
            return 404, {"message": "Package not found."}
        if method == "GET":
            asked = parse_qs(found.query)
            size, page = min(int(asked["per_page"][0]), 100), int(asked["page"][0])
            shown_here = list(self.versions.items())[(page - 1) * size : page * size]
            return 200, [
                {"id": number, "name": digest, "metadata": {"container": {"tags": tags}}}
                for number, (digest, tags) in shown_here
            ]
        return self._delete(int(named[2]))

    def _delete(self, number: int) -> Answer:
        if number not in self.versions:
            return 404, {"message": "Package not found."}
        tagged = [one for one, (_, tags) in self.versions.items() if tags]
        if tagged == [number]:
            message = "You cannot delete the last tagged version of a package."
            return 400, {"message": f"{message} You must delete the package instead."}
        del self.versions[number]
        return 204, None


@dataclass
class DockerHubStandIn:
    """https://docs.docker.com/reference/api/hub/latest/: `POST /v2/auth/token` gives an access
    token that expires (after ten minutes); https://github.com/docker/hub-tool (`DeleteTagURL`): a
    tag is deleted at `/v2/repositories/NAME/tags/TAG/`.
    """

    user: str = "me"
    secret: str = "a canary secret"
    tags: set[tuple[str, str]] = field(default_factory=set)
    tokens: list[str] = field(default_factory=list)
    expires_after: int = 1000
    uses: int = 0

    def answer(self, method: str, path: str, shown: str, body: Any) -> Answer:
        if (method, path) == ("POST", "/v2/auth/token"):
            if body != {"identifier": self.user, "secret": self.secret}:
                return 401, {"detail": "Incorrect authentication credentials"}
            self.tokens.append(f"token{len(self.tokens)}")
            self.uses = 0
            return 200, {"access_token": self.tokens[-1]}
        self.uses += 1
        if (
            not self.tokens
            or shown != f"Bearer {self.tokens[-1]}"
            or self.uses > self.expires_after
        ):
            return 401, {"detail": "token is expired"}
        named = re.fullmatch(r"/v2/repositories/(.+)/tags/([^/]+)/", path)
        if method != "DELETE" or not named:
            return 404, {"message": "object not found"}
        if (named[1], named[2]) not in self.tags:
            return 404, {"message": "tag not found"}
        self.tags.remove((named[1], named[2]))
        return 204, None


@contextlib.contextmanager
def serve_api(stand_in: GitHubStandIn | DockerHubStandIn) -> Iterator[str]:
    """Its address, as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            shown = self.headers.get("Authorization", "")
            status, said = stand_in.answer(self.command, self.path, shown, body)
            content = b"" if said is None else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"
