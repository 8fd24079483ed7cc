"""A fork of this process for work of its own. Edge."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def fork(work: Callable[[], int]) -> int:
    """Return the new process, which ends with what `work` returns: nothing of the parent's goes
    on there, nor is ended there a second time. What escapes `work` is printed, and it ends with 1,
    as a Python does that ends by an exception.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - as Python ends a process: the words, and 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
