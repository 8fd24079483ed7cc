"""Logins for registries, from where docker keeps them: its config.json and the credential helpers
that this names. What is found is masked wherever anything is printed. Edge.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfront.errors import CommandFailedError, RegistryError, RegistryFault, keep_secret
from warpfront.system.foreign import read_regular
from warpfront.system.process import Command, Run
from warpfront.system.references import is_docker_io

_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 30.0
# What docker's own helpers say when they know no such registry.
_NOT_KEPT = "credentials not found"
_DOCKER_IO_KEY = "https://index.docker.io/v1/"
_LIMIT_BYTES = 2**20
_STEP = "login"


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
        helper = _text(_table(configuration, "credHelpers").get(host)) or _text(
            configuration.get("credsStore")
        )
        login = self._ask_helper(helper, host) if helper else None
        for key, entry in () if helper else _table(configuration, "auths").items():
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
            raise _unusable(host, f"{self.path} is no JSON object", f"mend {self.path}")
        return value

    def _ask_helper(self, name: str, host: str) -> Login | None:
        program = f"docker-credential-{name}"
        if not _HELPER.fullmatch(name):
            raise _unusable(host, f"{self.path} names a helper {name!r}", f"mend {self.path}")
        server = _DOCKER_IO_KEY if is_docker_io(host) else host
        command = Command(argv=(program, "get"), stdin=server, timeout_seconds=_HELPER_SECONDS)
        try:
            completed = self.run(command)
        except CommandFailedError as error:
            raise _unusable(host, error.message, f"install {program}, or docker login") from error
        if completed.returncode:
            if _NOT_KEPT in (completed.stdout + completed.stderr).lower():
                return None
            output = (completed.stderr.strip() or completed.stdout.strip())[-300:]
            raise _unusable(host, f"{program} get: {output}", f"docker login {host}")
        try:
            value = json.loads(completed.stdout)
            user, secret = value["Username"], value["Secret"]
        except (ValueError, KeyError, TypeError):
            # Its output may contain the secret, so none of it is repeated.
            raise _unusable(
                host, f"{program} get printed no login", f"try `{program} get`, and docker login"
            ) from None
        if user == "<token>":
            return Login(identity_token=_text(secret))
        return Login(user=_text(user), password=_text(secret))


def read_credentials(environment: Mapping[str, str], run: Run) -> Credentials:
    """Return docker's credentials, from where its own command line would read them."""
    folder = environment.get("DOCKER_CONFIG")
    place = Path(folder) if folder else Path(environment.get("HOME", "/"), ".docker")
    return Credentials(place / "config.json", run)


def _entry_login(entry: Mapping[str, Any], host: str) -> Login | None:
    token = _text(entry.get("identitytoken"))
    user, password = _text(entry.get("username")), _text(entry.get("password"))
    if entry.get("auth"):
        try:
            both = base64.b64decode(_text(entry["auth"]), validate=True).decode()
        except (binascii.Error, ValueError):
            raise _unusable(
                host, "docker's login for it is not base64", f"docker login {host}"
            ) from None
        user, _, password = both.partition(":")
    if token:
        return Login(identity_token=token)
    return Login(user=user, password=password.rstrip("\0")) if user else None


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = value.get(key)
    return table if isinstance(table, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _unusable(host: str, reason: str, hint: str) -> RegistryError:
    return RegistryError(reason, registry=host, step=_STEP, fault=RegistryFault.REFUSED, hint=hint)
