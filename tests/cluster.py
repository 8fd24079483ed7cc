"""As much of a Kubernetes API server as kubectl asks before it looks at a manifest: which kinds
there are. It stores nothing, and remembers what it was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loopback import running

_KINDS: Mapping[str, Mapping[str, str]] = {
    "v1": {"ConfigMap": "configmaps", "Service": "services", "PodTemplate": "podtemplates"},
    "apps/v1": {"StatefulSet": "statefulsets"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
}


class Cluster(ThreadingHTTPServer):
    """One on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Discovery)
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Discovery(BaseHTTPRequestHandler):
    server: Cluster  # type: ignore[mutable-override]

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        found = _answers().get(self.path.partition("?")[0])
        text = json.dumps(found or {"kind": "Status", "status": "Failure", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.server.asked.append(f"POST {self.path}")
        self.send_error(405)

    def log_message(self, *_: object) -> None: ...


def _answers() -> dict[str, object]:
    groups = [version.partition("/") for version in _KINDS if "/" in version]
    named = [
        {
            "name": name,
            "versions": [{"groupVersion": f"{name}/{version}", "version": version}],
            "preferredVersion": {"groupVersion": f"{name}/{version}", "version": version},
        }
        for name, _, version in groups
    ]
    return {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": named},
        **{_path(version): _resources(version) for version in _KINDS},
    }


def _path(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _resources(version: str) -> dict[str, object]:
    resources = [
        {"name": plural, "kind": kind, "namespaced": True, "verbs": ["create", "get"]}
        for kind, plural in _KINDS[version].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


@contextmanager
def cluster() -> Iterator[Cluster]:
    with running(Cluster()) as server:
        yield server
