"""Unit tests need no network, no engine and no patience: what would wait, or leave this machine,
fails.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rendering import render_here
from uv import find_uv_bin

from warpfront.images import preparing

# jsonschema would import it for one format, which takes every worker three seconds; who needs the
# format brings it: test_bill.py.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
LONGEST_SLEEP_SECONDS = 0.2
HERE = Path(__file__).parent
_NOT_HERE = {"docker", "gpu", "network"}

_connect = socket.socket.connect
_sleep = time.sleep
_render_templates = preparing.render_templates  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder says what it costs."""
    for item in items:
        marks = _NOT_HERE & {mark.name for mark in item.iter_markers()}
        if marks and item.path.is_relative_to(HERE):
            raise pytest.UsageError(f"{item.nodeid}: a test marked {min(marks)} is no unit test")


def stays_here(address: object) -> bool:
    """Whether a socket's address is of this machine: a path, or loopback."""
    if not isinstance(address, tuple):
        return True
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return bool(address[0] == "localhost")


def _connect_here(made: socket.socket, address: object) -> None:
    if not stays_here(address):
        made.close()  # who opened it expects an OSError, and would leave it to the collector
        raise AssertionError(f"a unit test connected to {address}")
    _connect(made, address)  # type: ignore[arg-type]


def _sleep_briefly(seconds: float) -> None:
    if seconds > LONGEST_SLEEP_SECONDS:
        raise AssertionError(f"a unit test slept for {seconds:g} s")
    _sleep(seconds)


@pytest.fixture(scope="session")
def python_known_to_uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of uv's with what it asks this Python before all else, which takes a start of it."""
    cache = tmp_path_factory.mktemp("uv-cache") / "known"
    environment = {**os.environ, "UV_CACHE_DIR": str(cache)}
    command = [find_uv_bin(), "python", "find", "--quiet", sys.executable]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return cache


@pytest.fixture
def uv_cache(python_known_to_uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback ports come round again: a shared cache would answer for a dead index."""
    shutil.copytree(python_known_to_uv, tmp_path / "uv-cache")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


# Hooks and no fixtures: five thousand tests pass here.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """No connection leaves this machine, nothing sleeps for long, and tests that may start no
    program render their templates in this process. Child processes are tested against indexes on
    loopback, which tests wait for.
    """
    socket.socket.connect = _connect_here  # type: ignore[assignment,method-assign]
    time.sleep = _sleep_briefly  # type: ignore[assignment]
    starts = any(item.get_closest_marker(mark) for mark in ("process", "network"))
    render = _render_templates if starts else render_here
    preparing.render_templates = render  # type: ignore[attr-defined, assignment]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    socket.socket.connect = _connect  # type: ignore[method-assign]
    time.sleep = _sleep
    preparing.render_templates = _render_templates  # type: ignore[attr-defined]
