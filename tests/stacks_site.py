"""Packages in a folder of their own, and what every check of the session `stack` comes to of them.
The extension in them is a real one, whole or damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import markupsafe._speedups

from warpfront_checks.claims import Claims
from warpfront_checks.results import CheckFinding
from warpfront_checks.stack import stack_checks

EXTENSION = Path(markupsafe._speedups.__file__)
TORCH = """
import os
from types import SimpleNamespace
__version__ = "2.13.0+cpu"
cuda = SimpleNamespace(device_count=lambda: int(os.environ.get("SEEN", "2")))
_C = SimpleNamespace(_demangle=lambda name: f"demangled {name}")
"""
FALLS_BACK = """
import logging
try:
    from ops import _speedups as native
except ImportError as error:
    logging.getLogger("ops").warning("native code is not there: %s", error)
    native = None
"""


class Site:
    """A folder of packages that child processes see."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package("torch", "2.13.0+cpu", {"__init__.py": TORCH})

    def package(self, name: str, version: str, files: Mapping[str, str | bytes]) -> None:
        folder, info = self.root / name, self.root / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        info.mkdir()
        for file, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (folder / file).write_bytes(data)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "top_level.txt").write_text(f"{name}\n")
        record = [f"{name}/{file},," for file in files]
        (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,"]) + "\n")


def damaged(before: bytes, after: bytes) -> bytes:
    data = EXTENSION.read_bytes()
    assert before in data
    return data.replace(before, after)


WHOLE = EXTENSION.read_bytes()
OF_ANOTHER_TORCH = damaged(b"PyUnicode_New\0", b"PyUnicode_Nix\0")
WITHOUT_LIBRARY = damaged(b"libc.so.6\0", b"libq.so.6\0")
ENTRY: dict[str, Any] = {
    "read": "2026-11-22",
    "of": "1.0",
    "sources": ["a test"],
    "imports": ["ops"],
    "compiled": {"every": ["ops._speedups"]},
    "signs": [
        {"log": "native code is not there.*", "means": "it runs in Python"},
        {"attribute": "ops.native", "type": "NoneType", "means": "nothing is in its place"},
    ],
}


def found(*entries: dict[str, Any], device: str = "cpu", **claimed: Any) -> dict[str, CheckFinding]:
    """What every check of these entries came to."""
    claims = Claims(
        cell="c", target="x86_64", vendor=claimed.pop("vendor", "cpu"), device=device, smoke=entries
    )
    told: list[tuple[str, stack_checks.ImportReport]] = []
    results: dict[str, CheckFinding] = {}
    for entry in entries:
        checks = stack_checks.checks_of(entry, claims, told)
        results |= {name: find() for name, find in checks.items() if not isinstance(find, str)}
    results["devices"] = stack_checks.same_devices(told)
    results["torch"] = stack_checks.same_torch(claims, told)
    return results


def outcomes(results: dict[str, CheckFinding]) -> dict[str, str]:
    return {name: one.outcome for name, one in results.items()}


USES = {"name": "ops", "uses": "ops"}
OWN = {"name": "ops", "imports": ["ops"]}
