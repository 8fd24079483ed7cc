"""Run at every start of the interpreter, through the .pth: as little as can be, so it imports
only `builtins`, `os` and `sys`, which every Python has loaded by then.

Puts the channels back where an environment was cleared, watches the imports of
the protected packages, and gives a user of whom the image knows nothing a name and a home.
"""

import builtins
import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which is slow to load
if TYPE_CHECKING:
    from typing import Any

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib would double the cost of every start
_CONSTRAINTS = _HOME + "/guard/constraints.txt"
_NEEDS = _HOME + "/guard/needs.txt"
_BUILD_CONSTRAINTS = _HOME + "/guard/overrides.txt"
# Their values at a process's start are those that pip, or a uv that it starts, will obey.
_CHANNELS = (
    ("PIP_CONSTRAINT", _CONSTRAINTS),
    ("PIP_CONSTRAINT", _NEEDS),
    ("UV_CONSTRAINT", _CONSTRAINTS),
    ("UV_BUILD_CONSTRAINT", _BUILD_CONSTRAINTS),
)
_PIP = "pip._internal"
_PIP_CANDIDATES = "pip._internal.resolution.resolvelib.candidates"
_OWN = __name__.rpartition(".")[0] + "."
FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above


# The sealed packages, and those that must have the right version if they come.
_BUILT_IN = ("torch", "torchvision", "torchaudio", "triton", "habana_frameworks")
try:
    with open(_HOME + "/guard/packages.txt", encoding="utf-8") as _file:  # noqa: PTH123 - as above
        WATCHED = frozenset((*_BUILT_IN, *_file.read().split()))
except OSError:
    WATCHED = frozenset(_BUILT_IN)
# The module is there before any other.
_EXTERNAL = sys.modules["_frozen_importlib_external"]
# The variables as this process got them, for `verify`: they are put back before it can look.
inherited = {name: os.environ.get(name, "") for name, _ in _CHANNELS}
# Packages that have run by a loader of ours, and those that start-up code had put into
# `sys.modules` instead.
_executed: "set[str]" = set()
planted: "set[str]" = set()
replaced: "list[str]" = []  # of what imports, by the time Python has started


class WrappedLoader:
    """A loader that does what another does, and more."""

    def __init__(self, real: "Any") -> None:
        self._real = real

    def __getattr__(self, name: str) -> "Any":
        if name == "_real":  # called while it is being copied
            raise AttributeError(name)
        return getattr(self._real, name)

    def create_module(self, spec: "Any") -> "Any":
        return self._real.create_module(spec)


class WatchedLoader(WrappedLoader):
    """The loader of a watched package, which looks at it when it is about to run.

    Not when it is found: a thread that imports `torch.nn` meanwhile waits for `torch` then, and
    Python ends the two with a deadlock of its locks for modules. And who only asks whether torch is
    there (`importlib.util.find_spec`) is answered at no cost.
    """

    def __init__(self, real: "Any", early: "list[str]") -> None:
        """`early` are modules of the package that are there before it."""
        super().__init__(real)
        self._early = early

    def exec_module(self, module: "Any") -> None:
        """Load the package, and leave no trace. Raise `ImportError` if it is not as sealed."""
        spec = module.__spec__
        spec.loader = module.__loader__ = self._real
        name = spec.name
        _executed.add(name)
        fast = _fast_path(name)
        if not fast.look_at(name, spec, _HOME, self._early):
            _part(name, "watch").look_at(name, spec, home=_HOME, early=self._early)
        self._real.exec_module(module)
        if not fast.look_after(name, _HOME):
            _part(name, "watch").look_after(name, home=_HOME)


class JudgedLoader(WrappedLoader):
    """The loader of a module below a watched package, which is judged when it is about to run: a
    finder is called under the lock of all imports, and may wait for nothing.
    """

    def _judge(self, spec: "Any") -> None:
        """Judge the package, and leave no trace. Raise `ImportError` if it is not as sealed."""
        spec.loader = self._real
        _part(spec.name, "watch").judge(spec, home=_HOME)

    def create_module(self, spec: "Any") -> "Any":
        self._judge(spec)
        return self._real.create_module(spec) if self._real is not None else None

    def exec_module(self, module: "Any") -> None:
        """Reached by `importlib.reload`."""
        self._judge(module.__spec__)
        self._real.exec_module(module)

    def get_code(self, name: str) -> "Any":
        """Reached by `python -m`."""
        if hasattr(self._real, "path"):
            spec = _EXTERNAL.spec_from_file_location(name, self._real.path, loader=self._real)
            _part(name, "watch").judge(spec, home=_HOME)
        return self._real.get_code(name)


class Watcher:
    """First in `sys.meta_path`: the others' answers for watched packages, looked at first."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return None for what is not watched. Raise `ImportError` if the guard is damaged."""
        if name in WATCHED:
            return self._package(name, path, target)
        if path is None:
            return None
        top = name.partition(".")[0]
        if top in WATCHED:
            spec = self._found(name, path, target)
            vouched = _fast is not None and top in _fast.vouched
            if spec is not None and not (vouched and _fast.is_sealed(name, spec)):
                spec.loader = JudgedLoader(spec.loader)
            return spec
        if name.startswith(_OWN):
            file = FOLDER + "/" + name[len(_OWN) :] + ".py"
            if os.path.exists(file):  # noqa: PTH110 - as above
                return _EXTERNAL.spec_from_file_location(name, file, loader=OwnLoader(name, file))
        elif name == _PIP:
            _with_pip("listen_to_pip", _HOME + "/guard")
        elif name == _PIP_CANDIDATES:
            spec = self._found(name, path, target)
            if spec is not None:
                spec.loader = ListeningLoader(spec.loader)
            return spec
        return None

    def _package(self, name: str, path: "Any", target: "Any") -> "Any":
        spec = self._found(name, path, target)
        if spec is None and _fast_path(name).is_absent(name, _HOME):
            return None
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return _part(name, "watch").instead_of(name, spec, home=_HOME)
        # Now: once it is in sys.modules, other threads may import what is below it.
        early = [module for module in [*sys.modules] if module.startswith(name + ".")]
        early += [name] if name in planted else []
        spec.loader = WatchedLoader(spec.loader, early)
        return spec

    @staticmethod
    def _found(name: str, path: "Any", target: "Any") -> "Any":
        for finder in sys.meta_path:
            if not isinstance(finder, Watcher) and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


class OwnLoader(_EXTERNAL.SourceFileLoader):  # type: ignore[name-defined,misc]
    """Takes no byte code from below a PYTHONPYCACHEPREFIX, which other images' guards may share."""

    def get_code(self, fullname: str) -> "Any":
        prefix, sys.pycache_prefix = sys.pycache_prefix, None
        try:
            return super().get_code(fullname)
        finally:
            sys.pycache_prefix = prefix


_fast: "Any" = None


def _fast_path(name: str) -> "Any":
    """Return the module `fast_path`, which no start of Python needs."""
    global _fast  # noqa: PLW0603 - at each module of torch: an import statement costs more
    if _fast is None:
        _fast = _part(name, "fast_path")
    return _fast


def _part(name: str, part: str) -> "Any":
    """Return a module of the guard. Raise `ImportError` that names the import of `name`."""
    try:
        return getattr(__import__(_OWN + part), part)  # waits for a thread that loads it
    except ImportError as error:
        text = f"warpfront guard: {name}: the guard in {_HOME} was changed: {error}"
        raise ImportError(text, name=name) from error


class ListeningLoader(WrappedLoader):
    """The loader of pip's module of candidates, each of which is looked at by the guard."""

    def exec_module(self, module: "Any") -> None:
        self._real.exec_module(module)
        _with_pip("watch_releases", module, _HOME + "/guard")


def _with_pip(function: str, *arguments: "Any") -> None:
    """Add our explanation to pip, which works without it: other pips have other modules."""
    try:
        from . import pip_listening  # noqa: PLC0415

        getattr(pip_listening, function)(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever another pip lacks
        if sys.stderr is not None:
            print(f"warpfront guard: refusals of pip are not explained: {error}", file=sys.stderr)


def start(packages: str = "") -> None:
    """Start the watch, twice in the image's own Python: by the .pth, and by `sitecustomize`
    after all of those, so that the watch comes before all their hooks. `packages` are the image's.
    They are added to an environment with `--system-site-packages`: Python looks for them next to
    the interpreter that environments are made from, and the image's are in one of their own.
    """
    if packages:
        site = sys.modules.get("site")
        is_served = site is not None and sys.base_prefix in site.PREFIXES
        if is_served and sys.prefix != sys.base_prefix and packages not in sys.path:
            sys.path.append(packages)
    # Our files are added to the variables that name constraints, whatever else they name.
    for variable, path in _CHANNELS:
        paths = os.environ.get(variable, "").split()
        if path not in paths and os.path.exists(path):  # noqa: PTH110 - as above
            os.environ[variable] = " ".join((*paths, path))
    for name in WATCHED & sys.modules.keys() - _executed:
        # Not by its import: the next one finds it, and names it.
        planted.add(name)
        del sys.modules[name]
    importing: object = builtins.__import__
    replaced[:] = [] if type(importing) is type(len) else ["builtins.__import__"]
    finders: list[object] = [*sys.meta_path]
    foreign = [finder for finder in finders if not isinstance(finder, Watcher)]
    sys.meta_path[:] = [Watcher(), *foreign]  # type: ignore[list-item]
    try:
        from .user_environment import provide  # noqa: PLC0415

        sentence = provide(os.environ, os.getuid())
    except Exception as error:  # noqa: BLE001 - it does not stop the watch
        sentence = f"no home for uid {os.getuid()}: {error}"
    if sentence and sys.stderr is not None:
        print(f"warpfront guard: {sentence}", file=sys.stderr)
