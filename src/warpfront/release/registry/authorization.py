"""Authorization at a registry: Basic, or a token for the scopes of a request (the distribution
specification's token flow), and the logins that docker keeps: its config.json and the credential
helpers that this names. What is found is masked wherever anything is printed. Edge.

A login and its tokens go to two places: to the registry that sent the challenge, and to its token
address (`realm`). That may be another host, as docker.io's is, but only over TLS. Tokens are
requested for the scopes of our own requests; the scopes that the registry suggests are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

from warpfront.errors import CommandFailedError, RegistryError, keep_secret
from warpfront.release.registry.contract import read_object
from warpfront.system.foreign import read_regular
from warpfront.system.http_answers import refused, wrong
from warpfront.system.process import Command, Run
from warpfront.system.references import is_docker_io, is_loopback
from warpfront.system.strict_values import object_in, text_of

_STEP = "login"
_CLIENT = "warpfront"
_DEFAULT_TOKEN_SECONDS = 60.0
_LONGEST_TOKEN_SECONDS = 3600.0
# A token that expires on its way is refused, so it is renewed before.
_MARGIN_SECONDS = 5.0

Scopes = tuple[str, ...]
Clock = Callable[[], float]


Fetch = Callable[[str, Mapping[str, str] | None, str], bytes]
"""Returns the answer of an address, to GET, or to POST with a form; the last is the value of an
Authorization header, "" for none.
"""


class Authorization:
    """The authorization for one registry, empty until the registry's first challenge."""

    def __init__(self, host: str, credentials: Credentials, fetch: Fetch, clock: Clock) -> None:
        self._host, self._credentials, self._fetch, self._clock = host, credentials, fetch, clock
        self._lock = threading.RLock()
        self._bearer: tuple[str, str] | None = None  # realm and service
        self._basic = ""
        self._asked = False
        self._login: Login | None = None
        self._tokens: dict[Scopes, tuple[str, float]] = {}

    def header(self, scopes: Scopes) -> str:
        """Return the Authorization header's value for these scopes, "" before any challenge."""
        with self._lock:
            if self._bearer is None:
                return self._basic
            token, until = self._tokens.get(scopes, ("", 0.0))
            if not token or self._clock() >= until:
                requested_at = self._clock()
                token, seconds = self._fetched(self._bearer, scopes)
                self._tokens[scopes] = token, requested_at + seconds - _MARGIN_SECONDS
            return f"Bearer {token}"

    def challenge(self, offers: Sequence[str], scopes: Scopes, header: str) -> bool:
        """Learn from a 401 what the registry requires; `header` is the refused one. Return
        whether there is another authorization to send now.
        """
        with self._lock:
            token, _ = self._tokens.get(scopes, ("", 0.0))
            current = self._basic if self._bearer is None else token and f"Bearer {token}"
            if current and header != current:
                return True  # another thread has learned meanwhile
            self._tokens.pop(scopes, None)
            bearer = _bearer_of(offers)
            if bearer is not None:
                if fault := address_fault(bearer[0], self._host):
                    raise wrong(self._host, _STEP, f"it sends logins to {fault}")
                self._bearer = bearer
                return True
            login = self._known_login()
            schemes = [offer.strip()[:5].lower() for offer in offers]
            if login is None or header or "basic" not in schemes:
                return False
            self._basic = login.basic
            return bool(login.user)

    def refusal(self, step: str) -> RegistryError:
        """Return the error for a 401 that none of our logins could answer."""
        reason = "docker's login for it is refused" if self._login else "it wants a login"
        return refused(self._host, step, f"HTTP 401: {reason}", f"docker login {self._host}")

    def _known_login(self) -> Login | None:
        if not self._asked:
            self._login, self._asked = self._credentials.login_for(self._host), True
        return self._login

    def _fetched(self, bearer: tuple[str, str], scopes: Scopes) -> tuple[str, float]:
        login, (realm, service) = self._known_login(), bearer
        fields = {"service": service} if service else {}
        if login is not None and login.identity_token:
            form = {
                **fields,
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "scope": " ".join(scopes),
                "refresh_token": login.identity_token,
            }
            return self._read(self._fetch(realm, form, ""))
        query = urlencode([*fields.items(), *(("scope", scope) for scope in scopes)])
        joint = "&" if urlsplit(realm).query else "?"
        return self._read(self._fetch(f"{realm}{joint}{query}", None, login.basic if login else ""))

    def _read(self, body: bytes) -> tuple[str, float]:
        try:
            value: Mapping[str, Any] = read_object(body)
        except ValueError as error:
            raise wrong(self._host, _STEP, f"its token is no token: {error}") from None
        token, seconds = value.get("token") or value.get("access_token"), value.get("expires_in")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise wrong(self._host, _STEP, "its token is no token")
        keep_secret(token)
        if not isinstance(seconds, int | float) or seconds <= 0:
            seconds = _DEFAULT_TOKEN_SECONDS
        return token, min(float(seconds), _LONGEST_TOKEN_SECONDS)


def pull(repository: str) -> str:
    return f"repository:{repository}:pull"


def push(repository: str) -> str:
    return f"repository:{repository}:pull,push"


def delete(repository: str) -> str:
    return f"repository:{repository}:delete,pull"


def _bearer_of(offers: Sequence[str]) -> tuple[str, str] | None:
    for offer in offers:
        scheme, _, rest = offer.strip().partition(" ")
        if scheme.lower() != "bearer":
            continue
        try:
            parameters = parse_keqv_list(parse_http_list(rest))
        except ValueError:
            continue
        if parameters.get("realm"):
            return parameters["realm"], parameters.get("service", "")
    return None


def address_fault(url: str, host: str) -> str:
    """Return why no request to `host` may lead on to this address, "" if it may: over TLS, or
    on this machine where the host is.
    """
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:
        return "an address that is none"
    if not parts.hostname or port == 0 or "@" in parts.netloc:
        return "an address that is none"
    is_plain_here = parts.scheme == "http" and is_loopback(parts.netloc) and is_loopback(host)
    is_safe = parts.scheme == "https" or is_plain_here
    return "" if is_safe else f"{parts.scheme}://{parts.hostname}, not over TLS"


_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 30.0
# What docker's own helpers say when they know no such registry.
_NOT_KEPT = "credentials not found"
_DOCKER_IO_KEY = "https://index.docker.io/v1/"
_LIMIT_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user and password, or an identity token that is exchanged for others."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """Return the value of an Authorization header."""
        value = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return f"Basic {value}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The place of logins: `path` is docker's config.json."""

    path: Path
    run: Run

    def login_for(self, host: str) -> Login | None:
        """Return the login for one registry, None where docker has none. Called only for a
        registry that wants one. Raises `RegistryError`.
        """
        configuration = self._read(host)
        helper = text_of(object_in(configuration, "credHelpers"), host)
        helper = helper or text_of(configuration, "credsStore")
        login = self._ask_helper(helper, host) if helper else None
        for key, entry in () if helper else object_in(configuration, "auths").items():
            # docker once wrote addresses: `https://host/v1/`.
            named = re.sub(r"\Ahttps?://", "", key).partition("/")[0]
            if isinstance(entry, dict) and (
                named == host or (is_docker_io(named) and is_docker_io(host))
            ):
                login = _entry_login(entry, host)
                break
        if login is not None:
            secret = login.basic.removeprefix("Basic ")
            keep_secret(login.password, login.identity_token, *([secret] if login.password else ()))
        return login

    def _read(self, host: str) -> dict[str, Any]:
        try:
            value = json.loads(read_regular(self.path, _LIMIT_BYTES, follow=True))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise refused(host, _STEP, f"{self.path} is no JSON object", f"mend {self.path}")
        return value

    def _ask_helper(self, name: str, host: str) -> Login | None:
        program = f"docker-credential-{name}"
        if not _HELPER.fullmatch(name):
            raise refused(host, _STEP, f"{self.path} names a helper {name!r}", f"mend {self.path}")
        server = _DOCKER_IO_KEY if is_docker_io(host) else host
        command = Command(argv=(program, "get"), stdin=server, timeout_seconds=_HELPER_SECONDS)
        try:
            completed = self.run(command)
        except CommandFailedError as error:
            raise refused(
                host, _STEP, error.message, f"install {program}, or docker login"
            ) from error
        if completed.returncode:
            if _NOT_KEPT in (completed.stdout + completed.stderr).lower():
                return None
            output = (completed.stderr.strip() or completed.stdout.strip())[-300:]
            raise refused(host, _STEP, f"{program} get: {output}", f"docker login {host}")
        try:
            value = json.loads(completed.stdout)
            user, _ = value["Username"], value["Secret"]
        except (ValueError, KeyError, TypeError):
            # Its output may contain the secret, so none of it is repeated.
            reason = f"{program} get printed no login"
            raise refused(host, _STEP, reason, f"try `{program} get`, and docker login") from None
        if user == "<token>":
            return Login(identity_token=text_of(value, "Secret"))
        return Login(user=text_of(value, "Username"), password=text_of(value, "Secret"))


def read_credentials(environment: Mapping[str, str], run: Run) -> Credentials:
    """Return docker's credentials, from where its own command line would read them."""
    folder = environment.get("DOCKER_CONFIG")
    place = Path(folder) if folder else Path(environment.get("HOME", "/"), ".docker")
    return Credentials(place / "config.json", run)


def _entry_login(entry: Mapping[str, Any], host: str) -> Login | None:
    token = text_of(entry, "identitytoken")
    user, password = text_of(entry, "username"), text_of(entry, "password")
    if entry.get("auth"):
        try:
            both = base64.b64decode(text_of(entry, "auth"), validate=True).decode()
        except (binascii.Error, ValueError):
            reason = "docker's login for it is not base64"
            raise refused(host, _STEP, reason, f"docker login {host}") from None
        user, _, password = both.partition(":")
    if token:
        return Login(identity_token=token)
    return Login(user=user, password=password.rstrip("\0")) if user else None
