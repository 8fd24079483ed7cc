"""A test that a registry answers at all. Edge."""

from __future__ import annotations

from warpfront.system.references import address_of, is_loopback

_PROBE_SECONDS = 5.0


def registry_reachable(reference: str) -> str | None:
    """Return None if the registry of a fully qualified reference answers at all, else the reason.

    Any HTTP answer counts: 401 is how most greet. Proxies and CA are those of requests:
    HTTP(S)_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE. Asks for at most 5 seconds.
    """
    import requests  # noqa: PLC0415 - planning may have no registry to ask

    host = reference.split("/", 1)[0]
    address = address_of(host)
    scheme = "http" if is_loopback(host) else "https"
    try:
        requests.get(
            f"{scheme}://{address}/v2/", timeout=_PROBE_SECONDS, allow_redirects=False, stream=True
        ).close()
    except requests.RequestException as error:
        from warpfront.system.registry_errors import words_of  # noqa: PLC0415

        return f"{address}: {words_of(error)}"
    return None
