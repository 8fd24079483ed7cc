"""Serve a stand-in over HTTP while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

_Server = TypeVar("_Server", bound=BaseServer)

# `shutdown` waits for the next poll: half a second by default, for each server of each test.
POLL_SECONDS = 0.01


@contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """Answer requests in a thread; close the server and join the thread at the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
