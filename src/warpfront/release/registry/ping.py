"""Whether a registry answers at all. Edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfront.release.registry.references import address_of, is_loopback

if TYPE_CHECKING:
    import requests

_PROBE_SECONDS = 5.0


def registry_reachable(reference: str) -> str | None:
    """None if the registry of a fully qualified reference answers at all, else why it does not.

    Any HTTP answer counts: 401 is how most greet. Proxies and CA are those of requests:
    HTTP(S)_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE. Asks for at most 5 seconds.
    """
    import requests  # noqa: PLC0415 - planning may have nobody to ask

    host = reference.split("/", 1)[0]
    address = address_of(host)
    scheme = "http" if is_loopback(host) else "https"
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
