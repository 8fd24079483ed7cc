"""Run at every start of the interpreter, through the .pth: as little as can be, so it imports
`os` and `sys` only, which every Python has loaded by then.

Puts the channels back where an environment was cleared, watches the imports of
the protected packages, and gives a user of whom the image knows nothing a name and a home.
"""

import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which is slow to load
if TYPE_CHECKING:
    from typing import Any

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib would double the cost of every start
_CONSTRAINTS = _HOME + "/guard/constraints.txt"
_NEEDS = _HOME + "/guard/needs.txt"
_BUILD_CONSTRAINTS = _HOME + "/guard/overrides.txt"
# What stands in these when a process starts is what pip, or a uv that it starts, will obey.
_CHANNELS = (
    ("PIP_CONSTRAINT", _CONSTRAINTS),
    ("PIP_CONSTRAINT", _NEEDS),
    ("UV_CONSTRAINT", _CONSTRAINTS),
    ("UV_BUILD_CONSTRAINT", _BUILD_CONSTRAINTS),
)
_PIP = "pip._internal"
_PIP_CANDIDATES = "pip._internal.resolution.resolvelib.candidates"
WATCHED = frozenset(
    (
        *("torch", "torchvision", "torchaudio", "triton", "habana_frameworks"),
        *(_PIP, _PIP_CANDIDATES),
    )
)
# The loaders that Python's own finder gives; the module is there before any other.
_EXTERNAL = sys.modules["_frozen_importlib_external"]
_PYTHONS = tuple(
    getattr(_EXTERNAL, name)
    for name in (
        *("SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader"),
        *("NamespaceLoader", "_NamespaceLoader"),  # the second until Python 3.10
    )
    if hasattr(_EXTERNAL, name)
)
# The variables as this process got them, for `verify`: they are put back before it can look.
given = {name: os.environ.get(name, "") for name, _ in _CHANNELS}


def restore_channels() -> None:
    """Add our files to the variables that name constraints, whatever else they name."""
    for name, path in _CHANNELS:
        others = os.environ.get(name, "").split()
        if path not in others and os.path.exists(path):  # noqa: PTH110 - as above
            os.environ[name] = " ".join((*others, path))


class WatchedLoader:
    """The loader of a watched package, which looks at it when it is about to run.

    Not when it is found: a thread that imports `torch.nn` meanwhile waits for `torch` then, and
    Python ends the two with a deadlock of its locks for modules. And who only asks whether torch is
    there (`importlib.util.find_spec`) is answered at no cost.
    """

    def __init__(self, real: "Any", early: "list[str]") -> None:
        """`early` are modules of the package that are there before it."""
        self._real = real
        self._early = early

    def __getattr__(self, name: str) -> "Any":
        if name == "_real":  # asked of one that is being copied
            raise AttributeError(name)
        return getattr(self._real, name)

    def create_module(self, spec: "Any") -> "Any":
        return self._real.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """Raises `ImportError` if the package is not what was sealed. What runs after that finds no
        trace of this loader.
        """
        spec = module.__spec__
        spec.loader = module.__loader__ = self._real
        _watch(spec.name).look_at(spec.name, spec, home=_HOME, early=self._early)
        self._real.exec_module(module)
        _watch(spec.name).look_after(spec.name)


class Watcher:
    """First in `sys.meta_path`: answers for the watched packages what the finders behind it say,
    with a loader that looks first.
    """

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """None for everything that is not watched. Raises `ImportError` where the guard
        itself is damaged.
        """
        if name not in WATCHED:
            return self._module(name, path, target) if path is not None else None
        if name == _PIP:
            _with_pip("listen_to_pip", _HOME + "/guard")
            return None
        spec = self._found(name, path, target)
        if name == _PIP_CANDIDATES:
            if spec is not None:
                spec.loader = ListeningLoader(spec.loader)
            return spec
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return _watch(name).instead_of(name, spec, home=_HOME)
        # Now: once it is in sys.modules, other threads may import what is below it.
        early = [one for one in [*sys.modules] if one.startswith(name + ".")]
        spec.loader = WatchedLoader(spec.loader, early)
        return spec

    def _module(self, name: str, path: "Any", target: "Any") -> "Any":
        """A module below a watched package, as the others find it; who answers for it in the place
        of Python's own finder is looked at.
        """
        top = name.partition(".")[0]
        if top not in WATCHED:
            return None
        spec = self._found(name, path, target)
        if spec is None or (type(spec.loader) in _PYTHONS and _is_below(top, spec.origin)):
            return spec
        if spec.loader is None and all(_is_below(top, one) for one in _folders(spec)):
            return spec  # a folder without an __init__.py, such as triton/_C
        return _watch(name).module_from_elsewhere(top, spec, home=_HOME)

    @staticmethod
    def _found(name: str, path: "Any", target: "Any") -> "Any":
        for finder in sys.meta_path:
            if not isinstance(finder, Watcher) and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def _folders(spec: "Any") -> "Any":
    """Where a package without a file of its own has its modules."""
    return spec.submodule_search_locations or ["nowhere"]


def _is_below(top: str, origin: "Any") -> bool:
    """Whether a module's file lies in the folder of its package, which was looked at."""
    file = getattr(sys.modules.get(top), "__file__", None)
    return origin is None or not file or origin.startswith(os.path.dirname(file) + "/")  # noqa: PTH120 - as above


def _watch(name: str) -> "Any":
    """The module `watch`, which no start of Python needs."""
    try:
        from . import watch  # noqa: PLC0415
    except ImportError as error:
        text = f"warpfront guard: {name}: the guard in {_HOME} was changed: {error}"
        raise ImportError(text, name=name) from error
    return watch


class ListeningLoader:
    """The loader of pip's module of candidates, each of which is looked at by the guard."""

    def __init__(self, real: "Any") -> None:
        self._real = real

    def __getattr__(self, name: str) -> "Any":
        if name == "_real":
            raise AttributeError(name)
        return getattr(self._real, name)

    def create_module(self, spec: "Any") -> "Any":
        return self._real.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        self._real.exec_module(module)
        _with_pip("watch_releases", module, _HOME + "/guard")


def _with_pip(function: str, *arguments: "Any") -> None:
    """A pip without our explanation, or one made otherwise than those we know, is a pip
    all the same.
    """
    try:
        from . import pip_listening  # noqa: PLC0415

        getattr(pip_listening, function)(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever another pip lacks
        if sys.stderr is not None:
            print(f"warpfront guard: refusals of pip are not explained: {error}", file=sys.stderr)


def see_packages(packages: str) -> None:
    """Add the image's packages to an environment that asked for those of the system
    (`--system-site-packages`): Python looks for them beside the interpreter that environments are
    made from, and the image's are in an environment of their own.
    """
    site = sys.modules.get("site")
    asked = site is not None and sys.base_prefix in site.PREFIXES
    if asked and sys.prefix != sys.base_prefix and packages not in sys.path:
        sys.path.append(packages)


def start(packages: str = "") -> None:
    """Twice in the image's own Python: by the .pth, and by `sitecustomize` after all of those, so
    that the watch stands before whatever they put there. `packages` are the image's.
    """
    if packages:
        see_packages(packages)
    restore_channels()
    finders: list[object] = [*sys.meta_path]
    others = [finder for finder in finders if not isinstance(finder, Watcher)]
    sys.meta_path[:] = [Watcher(), *others]  # type: ignore[list-item]
    _provide_for_user()


def _provide_for_user() -> None:
    """Whatever goes wrong with a home, the watch stands."""
    try:
        from .user_environment import provide  # noqa: PLC0415

        sentence = provide(os.environ, os.getuid())
    except Exception as error:  # noqa: BLE001 - as the docstring has it
        sentence = f"no home for uid {os.getuid()}: {error}"
    if sentence and sys.stderr is not None:
        print(f"warpfront guard: {sentence}", file=sys.stderr)
