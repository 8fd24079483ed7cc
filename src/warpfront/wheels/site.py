"""This machine's indexes, certificate and proxies, from pip's configuration and
the environment. Edge.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

from warpfront.errors import keep_secret
from warpfront.system import process
from warpfront.system.process import Command, Run, run
from warpfront.wheels.resolve.index_rules import PYPI
from warpfront.wheels.sources import Site

# A segment of a path that is no plain name: long, with letters and digits mixed.
_TOKEN = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_.~%+-]{16,}")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def read_site(run: Run) -> Site:
    """Return indexes, certificate and proxies from `pip config list` and the environment."""
    # This Python's pip, or that of PATH in an environment without one.
    pip = (sys.executable, "-m", "pip") if importlib.util.find_spec("pip") else ("pip",)
    argv = (*pip, "--disable-pip-version-check", "config", "list")
    completed = run(Command(argv=argv)).check(hint="is pip installed here?")
    values = read_pip_configuration(completed.stdout)
    environment = process.environment()
    credentials: dict[str, tuple[str, str]] = {}
    proxies = {name: _first(environment, (name, name.lower())) for name in _PROXIES}
    configured = values.get("proxy", "")
    for proxy in (configured, *proxies.values()):
        _keep_secrets_of(proxy)
    if configured:  # pip's own option wins over the environment
        proxies |= {"HTTP_PROXY": configured, "HTTPS_PROXY": configured}

    def urls(key: str) -> tuple[str, ...]:
        """Return them bare; their users and passwords go into `credentials`."""
        bare_urls = []
        for url in values.get(key, "").split():
            _keep_secrets_of(url)
            parts = urlsplit(url)
            bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
            bare_urls.append(url if parts.username is None else bare)
            if parts.username is not None:
                # Of the index's pages, and of the files in the same folder.
                above, _, last = bare.rstrip("/").rpartition("/")
                scope = above if last in {"simple", "+simple"} else bare.rstrip("/")
                credentials[scope] = (unquote(parts.username), unquote(parts.password or ""))
        return tuple(bare_urls)

    return Site(
        index_url=(urls("index-url") or (PYPI,))[0],
        extra_index_urls=urls("extra-index-url"),
        find_links=urls("find-links"),
        no_index=values.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        certificate=values.get("cert") or _first(environment, _CERTIFICATES) or None,
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        proxies={name: value for name, value in proxies.items() if value},
        credentials=credentials,
    )


def read_pip_configuration(text: str) -> Mapping[str, str]:
    """Return `pip config list` as option -> value; the environment over `install` over `global`."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if equals and section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {**sections["global"], **sections["install"], **sections[":env:"]}


def _keep_secrets_of(url: str) -> None:
    """Its password, or a token in the place of a user, in the path or in the query, as written."""
    after = url.partition("://")[2]
    credentials, separator, rest = after.rpartition("@")
    user, colon, password = credentials.partition(":")
    if separator:
        keep_secret(credentials, password if colon else user, unquote(password if colon else user))
    path, _, query = (rest if separator else after).partition("?")
    keep_secret(*(segment for segment in path.split("/")[1:] if _TOKEN.fullmatch(segment)))
    keep_secret(*(segment.partition("=")[2] for segment in query.split("&")))


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


# Asks pip for its configuration, once, and only when something has to come from outside: the answer
# takes longer than all the rest of a build that has nothing to do.
AskSite = Callable[[], Site]


def site_when_needed() -> AskSite:
    """Return the site, read at the first call and cached for later ones."""
    return functools.cache(functools.partial(read_site, run))
