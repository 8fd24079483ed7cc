"""A child of `test_programs`: what it was begun with, and how it ends where it is told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from warpfront_checks.children import leave_after_this


def answer(item: str) -> Mapping[str, Any]:
    if item == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "leaves":
        leave_after_this()
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "told": os.environ.get("TOLD", ""),
        "known": "known_before" in sys.modules,
    }
