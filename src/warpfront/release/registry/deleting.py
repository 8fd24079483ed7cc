"""Deletion of images: by the registry's own DELETE, or where it answers 405, by the API of
its operator. Edge.

GHCR answers DELETE with 405, and its packages are deleted by
https://docs.github.com/rest/packages/packages. Docker Hub's tags are deleted by its own
API: https://docs.docker.com/reference/api/hub/latest/ (`POST /v2/auth/token`) and
`DeleteTagURL` of https://github.com/docker/hub-tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from warpfront.errors import RegistryError
from warpfront.release.registry.authorization import Login, read_credentials
from warpfront.release.registry.contract import MANIFEST_LIMIT_BYTES, Registry
from warpfront.release.registry.http import Exchange, Patience, Request
from warpfront.system.http_answers import RETRIED_STATUSES, by_status, refused
from warpfront.system.process import Run
from warpfront.system.references import is_docker_io
from warpfront.system.strict_values import object_in, text_of

_GITHUB, _HUB = "https://api.github.com", "https://hub.docker.com"
_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
_PAGE, _MOST_PAGES = 100, 200
_STEP = "delete"
# Every other status is an answer, whose reason is in its body.
_ANSWERS = frozenset(range(200, 600)) - RETRIED_STATUSES


Delete = Callable[[str, str, Iterable[str]], None]
"""Deletes a manifest of a repository with every tag on it: its digest, and all its tags. Nothing to
delete is no error.
"""


def deleter_for(
    registry: Registry, repositories: Iterable[str], environment: Mapping[str, str], run: Run
) -> Delete:
    """Return what deletes in these repositories, having checked that it can. Raises `RegistryError`
    before anything is deleted.
    """
    repositories = tuple(repositories)
    if all(registry.deletes(repository) for repository in repositories):
        return lambda repository, digest, _tags: registry.delete(repository, digest)
    credentials = read_credentials(environment, run)
    login = credentials.login_for(registry.host)

    def api(address: str, token: str = "") -> _Api:
        host = urlsplit(address).netloc
        return _Api(address, Exchange(host, environment, credentials, Patience()), token)

    if registry.host == "ghcr.io":
        address = environment.get("GITHUB_API_URL") or _GITHUB
        tokens = (environment[name] for name in _TOKENS if environment.get(name))
        token = next(tokens, login.password if login else "")
        if not token:
            raise refused(
                "ghcr.io",
                _STEP,
                "GitHub deletes packages for a token only; nothing was removed",
                "GH_TOKEN names one with `read:packages` and `delete:packages`; in a workflow, "
                "`permissions: packages: write`",
            )
        return _github_deleter(api(address, token), repositories)
    if is_docker_io(registry.host):
        return _hub_deleter(registry, api(_HUB), login)
    raise refused(
        registry.host,
        _STEP,
        "it deletes nothing (HTTP 405); nothing was removed",
        "have deletion switched on (distribution: `storage.delete.enabled`), or remove "
        "the listed digests on the registry's own page",
    )


def _github_deleter(api: _Api, repositories: Iterable[str]) -> Delete:
    """Return what deletes GHCR's images: each digest is a version of a package, with a number of
    its own. Each package is listed once, which needs the token that deleting needs.
    """
    packages = {repository: _versions(api, repository) for repository in repositories}

    def delete(repository: str, digest: str, _tags: Iterable[str]) -> None:
        path, numbers = packages[repository]
        if digest in numbers:
            number = numbers.pop(digest)
            api.call("DELETE", f"{path}/{number}", {204, 404}, refusals=_GITHUB_REFUSALS)

    return delete


def _versions(api: _Api, repository: str) -> tuple[str, dict[str, int]]:
    """Return the path of a repository's versions, and each digest's number."""
    owner, name = (quote(part, safe="") for part in repository.split("/", 1))
    account = object_in(api.call("GET", f"/users/{owner}", {200}))
    kind = "orgs" if account.get("type") == "Organization" else "users"
    versions = f"/{kind}/{owner}/packages/container/{name}/versions"
    numbers: dict[str, int] = {}
    for page in range(1, _MOST_PAGES + 1):
        path = f"{versions}?per_page={_PAGE}&page={page}"
        listed = api.call("GET", path, {200}, refusals=_GITHUB_REFUSALS)
        if not isinstance(listed, list):
            raise api.wrong("its list of versions is no list")
        numbers |= {
            str(version.get("name")): int(version["id"])
            for version in listed
            if isinstance(version, dict) and isinstance(version.get("id"), int)
        }
        if len(listed) < _PAGE:
            break
    return versions, numbers


# Words of GitHub's answers -> what to do about them.
_GITHUB_REFUSALS = {
    "cannot delete the last": "GitHub keeps the last tagged version of a package: publish another "
    "image first, or delete the package on its page",
    "more than 5": "GitHub keeps a public version with over 5,000 downloads: ask its support",
    "not found": "the token needs `delete:packages` and admin rights on the package",
    "resource not accessible": "the token needs `delete:packages` and admin rights on the package",
}


def _hub_deleter(registry: Registry, api: _Api, login: Login | None) -> Delete:
    """Return what deletes Docker Hub's images: its API deletes tags; Hub itself clears away
    untagged images. A tag that has moved on meanwhile stays.
    """
    if login is None or not login.password:
        raise refused(
            registry.host,
            _STEP,
            "Docker Hub deletes tags for its own login only; nothing was removed",
            "docker login with an access token that may delete (Read, Write, Delete)",
        )
    body = {"identifier": login.user, "secret": login.password}

    def log_in() -> None:
        answer = api.call("POST", "/v2/auth/token", {200}, body=body)
        if not (token := text_of(object_in(answer), "access_token")):
            raise api.wrong("it gave no access token")
        api.token = token

    def delete(repository: str, digest: str, tags: Iterable[str]) -> None:
        for tag in tags:
            standing = registry.head(repository, tag)
            if standing is not None and standing.digest == digest:
                path = f"/v2/repositories/{repository}/tags/{quote(tag, safe='')}/"
                api.call("DELETE", path, {200, 202, 204, 404}, renew=log_in)

    log_in()
    return delete


class _Api:
    """JSON over HTTPS with one bearer token, tried again as a registry is."""

    def __init__(self, address: str, exchange: Exchange, token: str) -> None:
        self._address, self._exchange, self.token = address.rstrip("/"), exchange, token

    def wrong(
        self, message: str, hint: str = "try again later, or delete on its page"
    ) -> Exception:
        return refused(self._exchange.host, _STEP, message, hint)

    def call(
        self,
        method: str,
        path: str,
        accepted: set[int],
        *,
        body: object = None,
        renew: Callable[[], None] | None = None,
        refusals: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the answer's JSON, None where it has none. `renew` gets another token where one
        has expired; `refusals` are words of an answer with what to do. Raises `RegistryError`.
        """
        answer, content = self._asked(method, path, body)
        if answer.status_code == 401 and renew is not None:
            renew()
            answer, content = self._asked(method, path, body)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if answer.status_code in accepted:
            return document
        message = text_of(object_in(document), "message")[:300]
        hints = (do for words, do in (refusals or {}).items() if words in message.lower())
        usual = by_status("", _STEP, answer.status_code, answer.headers, content)
        assert isinstance(usual, RegistryError), "others are tried again"
        raise self.wrong(f"HTTP {answer.status_code} ({message})", next(hints, usual.hint))

    def _asked(self, method: str, path: str, body: object) -> tuple[requests.Response, bytes]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body).encode()
        ask = Request(method, f"{self._address}{path}", _STEP, (), _ANSWERS, headers, content)
        return self._exchange.read(ask, MANIFEST_LIMIT_BYTES)
