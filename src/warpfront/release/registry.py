"""The only room that speaks HTTP with registries (OCI distribution specification, /v2/). Edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests

_PROBE_SECONDS = 5.0
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# docker.io is a name in references only; its registry answers under another one.
_HOSTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


def registry_reachable(reference: str) -> str | None:
    """None if the registry of a fully qualified reference answers at all, else why it does not.

    Any HTTP answer counts: 401 is how most greet. Proxies and CA are those of requests:
    HTTP(S)_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE. Asks for at most 5 seconds.
    """
    import requests  # noqa: PLC0415 - planning may have nobody to ask

    host = reference.split("/", 1)[0]
    address = _HOSTS.get(host, host)
    scheme = "http" if host.rsplit(":", 1)[0] in _LOOPBACK or host in _LOOPBACK else "https"
    try:
        requests.get(
            f"{scheme}://{address}/v2/", timeout=_PROBE_SECONDS, allow_redirects=False, stream=True
        ).close()
    except requests.RequestException as error:
        return f"{address}: {_reason(error)}"
    return None


def _reason(error: requests.RequestException) -> str:
    """In a few words: requests nests the cause in a sentence of several hundred characters."""
    import requests  # noqa: PLC0415 - see above

    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not let us through"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted here"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_PROBE_SECONDS:g} s"
    cause: BaseException = error
    while True:
        inner = cause.__cause__ or cause.__context__ or getattr(cause, "reason", None)
        if not isinstance(inner, BaseException):
            break
        cause = inner
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause).rsplit(": ", 1)[-1]
