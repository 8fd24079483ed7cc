"""pip-audit for real, against a stand-in of OSV on loopback: the database cannot be had here.

The stand-in answers as https://google.github.io/osv.dev/post-v1-query/ and pip-audit's own reader
(`pip_audit/_service/osv.py`) have it: a POST of package and version; `{}` where nothing is known.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bills import a_bill
from loopback import running

from warpfront.commands.bills import audit_bill
from warpfront.system.process import cache_folder, run
from warpfront.system.store import exclusive

pytestmark = [pytest.mark.process, pytest.mark.network]

VERSION = "2.10.1"
ADVISORY = {
    "id": "GHSA-aaaa-bbbb-cccc",
    "aliases": ["CVE-2026-1"],
    "summary": "sown",
    "affected": [
        {
            "package": {"name": "torch", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.13.1"}]}],
        }
    ],
}


@pytest.fixture(scope="module")
def pip_audit() -> Path:
    """Its folder, installed once per machine."""
    root = cache_folder() / "packages" / f"pip-audit-{VERSION}"
    with exclusive(root.parent, print, name=".pip-audit.lock"):
        if not (root / "bin" / "pip-audit").is_file():
            subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(root)), check=True)
            pip = (sys.executable, "-m", "pip", "--python", str(root), "install", "--quiet")
            subprocess.run((*pip, f"pip-audit=={VERSION}"), check=True)
    return root / "bin"


@contextmanager
def osv(known: dict[tuple[str, str], Any], *, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = known.get((asked["package"]["name"], asked["version"]))
            content = json.dumps({"vulns": [found]} if found else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"


def asking(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_AUDIT_VULNERABILITY_SERVICE", "osv")
    monkeypatch.setenv("PIP_AUDIT_OSV_URL", address)
    return {"PATH": str(folder)}


def test_a_known_vulnerability_of_a_wheel_is_found_whatever_its_local_label(
    pip_audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with osv({("torch", "2.13.0"): ADVISORY}) as address:
        found = audit_bill(a_bill(), run, asking(address, pip_audit, monkeypatch))
    (one,) = found.found
    assert (one.package, one.version, one.fixed) == ("torch", "2.13.0", ("2.13.1",))
    assert "CVE-2026-1" in {one.id, *one.aliases}
    assert found.scanner == "pip-audit"


def test_where_nothing_is_known_that_is_no_finding_and_debian_is_not_determined(
    pip_audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with osv({}) as address:
        found = audit_bill(a_bill(), run, asking(address, pip_audit, monkeypatch))
    assert (found.scanner, found.found) == ("pip-audit", ())
    assert ["knows wheels only" in one for one in found.undetermined] == [True]


def test_a_database_that_fails_or_is_out_of_reach_is_not_determined(
    pip_audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with osv({}, status=500) as address:
        failed = audit_bill(a_bill(), run, asking(address, pip_audit, monkeypatch))
    gone = audit_bill(a_bill(), run, asking("http://127.0.0.1:9/v1/query", pip_audit, monkeypatch))
    for one in (failed, gone):
        assert (one.scanner, one.found) == ("", ())
        assert "pip-audit ended with 1" in one.undetermined[0]
