"""Run at every start of the interpreter, through the .pth: as little as can be, so it imports
`os` and `sys` only, which every Python has loaded by then.

Puts the channels back where an environment was cleared, and watches the imports of the protected
packages.
"""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib would double the cost of every start
_CONSTRAINTS = _HOME + "/guard/constraints.txt"
_BUILD_CONSTRAINTS = _HOME + "/guard/overrides.txt"
# What stands in these when a process starts is what pip, or a uv that it starts, will obey.
_CHANNELS = (
    ("PIP_CONSTRAINT", _CONSTRAINTS),
    ("UV_CONSTRAINT", _CONSTRAINTS),
    ("UV_BUILD_CONSTRAINT", _BUILD_CONSTRAINTS),
)
WATCHED = frozenset(
    ("torch", "torchvision", "torchaudio", "triton", "habana_frameworks", "pip._internal")
)
# The variables as this process got them, for `verify`: they are put back before it can look.
given = {name: os.environ.get(name, "") for name, _ in _CHANNELS}


def restore_channels() -> None:
    """Add our files to the variables that name constraints, whatever else they name."""
    for name, path in _CHANNELS:
        others = os.environ.get(name, "").split()
        if path not in others and os.path.exists(path):  # noqa: PTH110 - as above
            os.environ[name] = " ".join((*others, path))


class Watcher:
    """First in `sys.meta_path`: looks at a watched package before it is imported, and finds only
    those that must not be, to refuse them.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """None for everything that may be imported. Raises `ImportError` where the guard itself is
        damaged.
        """
        del path, target
        if name not in WATCHED:
            return None
        try:
            from . import watch  # noqa: PLC0415 - not at every start of Python
        except ImportError as error:
            if name == "pip._internal":
                return None
            text = f"warpfront guard: {name}: the guard in {_HOME} was changed: {error}"
            raise ImportError(text, name=name) from error
        return watch.look_at(name, home=_HOME)


def start() -> None:
    """Twice in the image's own Python: by the .pth, and by `sitecustomize` after all of those, so
    that the watch stands before whatever they put there.
    """
    restore_channels()
    finders: list[object] = [*sys.meta_path]
    others = [finder for finder in finders if not isinstance(finder, Watcher)]
    sys.meta_path[:] = [Watcher(), *others]  # type: ignore[list-item]
