"""A comparison of this process's import system with the interpreter's own. Its frozen modules
are run again, and each function, class and constant of the living ones is compared with
the new one.

Loaded at the first import of torch, and by `verify` into a new interpreter as text, so it imports
built-in modules alone.
"""

import _imp
import _io
import builtins
import marshal
import sys
from types import BuiltinFunctionType, FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FROZEN = ("_frozen_importlib", "_frozen_importlib_external")
# Written in C: a Python function in one of them was put there.
_IN_C = (_imp, _io, marshal, sys.modules["posix"])
_BUILTINS = ("__import__", "__build_class__", "compile", "exec")
_CONTAINERS = {"meta_path": list, "path_hooks": list, "path_importer_cache": dict, "modules": dict}
# What the interpreter or `abc` adds to each class.
_ADDED = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl")
)
_PLAIN = (str, bytes, int, type(None))
_FINDERS_OWN = {"_loaders", "path", "_path_mtime", "_path_cache", "_relaxed_path_cache"}


def machinery_problems() -> "Iterator[str]":
    """Yield the names of what is another's in the import system of this process."""
    for name in FROZEN:
        fresh: dict[str, Any] = {"__name__": name}
        exec(_imp.get_frozen_object(name), fresh)  # noqa: S102 - the interpreter's own code
        yield from (f"{name}.{changed}" for changed in differences(vars(sys.modules[name]), fresh))
    for module in _IN_C:
        for name, value in [*vars(module).items()]:
            if isinstance(value, (FunctionType, MethodType)):
                yield f"{module.__name__}.{name}"
    for name, kind in _CONTAINERS.items():
        if type(getattr(sys, name)) is not kind:
            yield f"sys.{name}"
    # One of another type shows by itself.
    external = sys.modules["_frozen_importlib_external"]
    supported = vars(external)["_get_supported_file_loaders"]()
    loaders = [(suffix, kind) for kind, of in supported for suffix in of]
    for folder, finder in [*sys.path_importer_cache.items()]:
        if type(finder) is not external.FileFinder:
            continue
        has = vars(finder)
        elsewhere = folder[:1] == "/" and has["path"] != folder  # a relative one is made absolute
        if has.keys() - _FINDERS_OWN or has["_loaders"] != loaders or elsewhere:
            yield f"sys.path_importer_cache[{str(folder)!r}]"


def replaced_builtins() -> "list[str]":
    """Apart: a debugger replaces `builtins.__import__` in a running program."""
    kinds = {name: type(getattr(builtins, name, None)) for name in _BUILTINS}
    return [f"builtins.{name}" for name in kinds if kinds[name] is not BuiltinFunctionType]


def differences(living: "Mapping[str, Any]", fresh: "Mapping[str, Any]") -> "Iterator[str]":
    """Yield the names of functions, classes and constants that are others than in `fresh`."""
    for name, original in fresh.items():
        if name.startswith("__") or not isinstance(original, (FunctionType, type, list, *_PLAIN)):
            continue
        current = living.get(name)
        if isinstance(original, type) and original.__module__ == fresh["__name__"]:
            yield from (f"{name}{member}" for member in _class_differences(current, original))
        elif not _is_same(current, original):
            yield name


def _class_differences(current: "Any", original: type) -> "Iterator[str]":
    if not isinstance(current, type) or _bases(current) != _bases(original):
        yield ""
        return
    ours, theirs = vars(original), vars(current)
    for name in sorted((ours.keys() | theirs.keys()) - _ADDED):
        if name not in ours and isinstance(theirs[name], _PLAIN):
            continue  # such as a separator, which is set where Python starts
        if isinstance(ours.get(name), int) and isinstance(theirs.get(name), int):
            continue  # a counter, which `importlib.invalidate_caches` moves; it loads no file
        if name not in ours or name not in theirs or not _is_same(theirs[name], ours[name]):
            yield f".{name}"


def _bases(kind: type) -> "list[str]":
    return [base.__name__ for base in kind.__mro__]


def _is_same(current: "Any", original: "Any") -> bool:
    if original is None:  # a place that is filled where Python starts
        return True
    if type(current) is not type(original):
        return False
    if isinstance(original, FunctionType):
        return _is_same_function(current, original)
    if isinstance(original, (list, tuple)):
        return len(current) == len(original) and all(map(_is_same, current, original))
    parts = [part for part in ("__func__", "fget", "fset") if hasattr(original, part)]
    if isinstance(original, (classmethod, staticmethod, property)):
        return all(_is_same(getattr(current, part), getattr(original, part)) for part in parts)
    return not isinstance(original, _PLAIN) or current == original


def _is_same_function(current: FunctionType, original: FunctionType) -> bool:
    if current.__code__ is not original.__code__ and current.__code__ != original.__code__:
        return False
    if not _is_same(current.__defaults__, original.__defaults__):
        return False
    cells = zip(current.__closure__ or (), original.__closure__ or ())  # noqa: B905 - of one code
    # A class in a cell is `__class__`, and is looked at by its own name.
    return all(_is_same(cell.cell_contents, other.cell_contents) for cell, other in cells)
