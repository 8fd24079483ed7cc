"""Byte code for the Pythons of one run, where whoever installed torch left none: each of them, some
forty, would else compile what it imports, which takes longer than many a check. Edge.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_DO_NOT_WRITE, _PREFIX = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"


@contextlib.contextmanager
def shared_byte_code(package: str = "torch") -> Iterator[None]:
    """While it lasts, this Python and its children keep what they compile in a folder that is gone
    afterwards. Does nothing where the package has its byte code, or gets it beside it.
    """
    if not _is_compiled_each_time(package):
        yield
        return
    before = {name: os.environ.pop(name, None) for name in (_DO_NOT_WRITE, _PREFIX)}
    previous = sys.dont_write_bytecode, sys.pycache_prefix
    with tempfile.TemporaryDirectory(prefix="byte-code-", ignore_cleanup_errors=True) as folder:
        os.environ[_PREFIX] = folder
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
        try:
            yield
        finally:
            sys.dont_write_bytecode, sys.pycache_prefix = previous
            del os.environ[_PREFIX]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def _is_compiled_each_time(package: str) -> bool:
    """It has no byte code, and none would be left where Python looks for it."""
    spec = find_spec(package)
    if spec is None or not spec.cached or Path(spec.cached).exists():
        return False
    # Where `__pycache__` would be made, or made in: beside the module, or below a prefix.
    beside = Path(spec.cached).parent.parent
    return sys.dont_write_bytecode or not os.access(beside, os.W_OK)
