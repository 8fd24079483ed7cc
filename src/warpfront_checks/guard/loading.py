"""The text by which a start of Python, and a program of the image, load the guard by its own file.

By its name it would be whatever `warpfront_guard` the path or start-up code offers first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from .fast_path import NAME

# No byte code from a PYTHONPYCACHEPREFIX: the folder may have that of another image's guard.
_BY_FILE = """\
import sys
folder, prefix = {folder!r}, sys.pycache_prefix
try:
    sys.pycache_prefix = None
    if getattr(sys.modules.get({name!r}), '__file__', None) != folder + '/__init__.py':
        for one in [*sys.modules]:
            if one.partition('.')[0] == {name!r}:
                del sys.modules[one]
        external = sys.modules['_frozen_importlib_external']
        spec = external.spec_from_file_location(
            {name!r}, folder + '/__init__.py', submodule_search_locations=[folder])
        sys.modules['_frozen_importlib']._load(spec)
    import {name}.{module}
except OSError as error:
    raise ImportError(f"No module named {name!r} that can be read: {{error}}") from None
finally:
    sys.pycache_prefix = prefix
"""


def by_file(library: Path, module: str) -> str:
    """Return statements that import `warpfront_guard.<module>` of this library and of no other."""
    return _BY_FILE.format(folder=f"{library}/{NAME}", name=NAME, module=module)


def other_guards(path: Iterable[str], ours: str) -> Iterator[str]:
    """Return the path's packages or modules by the guard's name that are not in `ours`."""
    finder = sys.modules["_frozen_importlib_external"].PathFinder
    for entry in dict.fromkeys(path):
        spec = finder.find_spec(NAME, [entry])
        folder = os.path.dirname(os.path.realpath(spec.origin)) if spec and spec.origin else ""  # noqa: PTH120 - at every import of torch
        if folder and folder != os.path.realpath(ours):
            yield str(spec.origin)
