"""Byte code that all Pythons of one run share, for a torch installed without any. Some forty
processes would each compile what they import, which takes longer than many a check. Edge.
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
    """Give this Python and its children a temporary folder for byte code, removed at exit. Do
    nothing if the package has its byte code, or gets it in `__pycache__`.
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
    """Return whether the package has no byte code, and Python could not write it there."""
    spec = find_spec(package)
    if spec is None or not spec.cached or Path(spec.cached).exists():
        return False
    # The folder of `__pycache__`: the module's, or one below a prefix.
    beside = Path(spec.cached).parent.parent
    return sys.dont_write_bytecode or not os.access(beside, os.W_OK)
