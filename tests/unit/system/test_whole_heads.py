"""Answers whose heads have to come whole, from a server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import requests

from warpfront.system.http_answers import WholeHeads


class _Slow(BaseHTTPRequestHandler):
    """At /drip the head comes a byte at a time and never ends before its connection does."""

    def do_GET(self) -> None:
        if self.path == "/drip":
            for byte in b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 100:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if ENDED.wait(0.05):
                    return
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


ENDED = threading.Event()


@pytest.fixture
def address() -> Iterator[str]:
    ENDED.clear()
    with HTTPServer(("127.0.0.1", 0), _Slow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        ENDED.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_answer_is_read_with_and_without_a_time_out(address: str, timeout: float | None) -> None:
    with requests.Session() as session:
        session.mount("http://", WholeHeads())
        assert session.get(address, timeout=timeout).text == "ok"


def test_a_head_that_comes_a_byte_at_a_time_is_late(address: str) -> None:
    with requests.Session() as session:
        session.mount("http://", WholeHeads(max_retries=0))
        with pytest.raises(requests.exceptions.RequestException):
            session.get(f"{address}/drip", timeout=0.3)
