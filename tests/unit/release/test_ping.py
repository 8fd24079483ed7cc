"""Whether a registry can be reached, against one on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import requests
from loopback import running

from warpfront.images.engine import bases as ping
from warpfront.images.engine.bases import registry_reachable


class Registry(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/v2/" else 418)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with running(HTTPServer(("127.0.0.1", 0), Registry)) as found:
        yield found


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500, 503])
def test_any_answer_is_an_answer(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(Registry, "status", status)
    assert registry_reachable(f"127.0.0.1:{server.server_port}/some/image:tag") is None


def test_a_refused_connection_is_named_with_its_host() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        assert registry_reachable(f"{host}/image:1") == f"{host}: connection refused"


def test_a_registry_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping, "_PROBE_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        assert (
            registry_reachable(f"{host}/image:1")
            == f"{host}: no answer, or too little of one, in time"
        )


def test_docker_io_is_asked_where_its_registry_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def record(url: str, **_: object) -> object:
        asked.append(url)
        raise requests.ConnectionError(OSError(113, "No route to host"))

    monkeypatch.setattr(requests, "get", record)
    assert (
        registry_reachable("docker.io/library/python:3.11")
        == "registry-1.docker.io: No route to host"
    )
    assert asked == ["https://registry-1.docker.io/v2/"]
