"""What unit tests may not do, they cannot do."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import requests


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_a_connection_that_leaves_this_machine_fails(address: str) -> None:
    with pytest.raises(AssertionError, match=f"connected to .*{address}"):
        socket.create_connection((address, 443), timeout=0.1)


def test_a_request_that_leaves_this_machine_fails() -> None:
    with pytest.raises(AssertionError, match="connected to"):
        requests.get("https://192.0.2.1/", timeout=0.1)


def test_loopback_and_sockets_in_the_file_system_are_of_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    with socket.socket(socket.AF_UNIX) as made, pytest.raises(FileNotFoundError):
        made.connect(str(tmp_path / "nobody"))


def test_a_long_sleep_fails_and_a_short_one_does_not() -> None:
    with pytest.raises(AssertionError, match=r"slept for 0\.3 s"):
        time.sleep(0.3)
    time.sleep(0.01)
