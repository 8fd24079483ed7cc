"""The installed library's architectures by task, from its tables of automatic classes; and options
for runs of them. Needs no torch.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warpfront_checks.check_options import (
    RunOption,
    command_line,
    read_names,
    read_number,
    read_options,
)
from warpfront_checks.documents import packaged

TABLES: Mapping[str, Sequence[str]] = packaged("architectures/tables.json")["tables"]
KINDS = tuple(TABLES)
_SUFFIX = "_MAPPING_NAMES"


class LibraryError(Exception):
    """The library is not here, or has no such tables of architectures."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A type of model in one of its roles, and the library's class for it."""

    name: str
    kind: str
    model: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


def library_version() -> str:
    """Return the library's version. Raise `LibraryError` without the library or its version."""
    return str(_assigned("__init__.py", "__version__")["__version__"])


def architectures() -> tuple[Architecture, ...]:
    """Return all architectures, in the order of the kinds and then of the library's tables.

    The tables are read without importing their module, which imports half of the library (2 to 10
    s). Raise `LibraryError` for missing tables, or tables of another form.
    """
    tables = _assigned("models/auto/modeling_auto.py", _SUFFIX)
    named: dict[tuple[str, str], Architecture] = {}
    for kind in KINDS:
        for name, model in (
            row for t in TABLES[kind] for row in tables.get(t + _SUFFIX, {}).items()
        ):
            first = model if isinstance(model, str) else model[0]
            named.setdefault((kind, name), Architecture(name=name, kind=kind, model=first))
    return tuple(named.values())


def _assigned(path: str, suffix: str) -> Mapping[str, Any]:
    """Return a module's top-level literals whose names end so, and `OrderedDict`s of them."""
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise LibraryError("transformers is not installed")
    source = Path(spec.origin).parent / path
    builtin = {"list": list, "str": str}
    namespace: dict[str, Any] = {"__builtins__": builtin, "OrderedDict": OrderedDict}
    try:
        tree = ast.parse(source.read_bytes())
        tree.body = [node for node in tree.body if _target(node).endswith(suffix)]
        exec(compile(tree, str(source), "exec"), namespace)  # noqa: S102 - importing it would as well
    except Exception as error:  # of source, and of what is not a table
        raise LibraryError(f"{source} cannot be read: {error}") from error
    assigned = {name: value for name, value in namespace.items() if name.endswith(suffix)}
    if not assigned:
        raise LibraryError(f"{source} assigns nothing to a name that ends in {suffix}")
    return assigned


def _target(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""


def chosen(
    candidates: tuple[Architecture, ...], names: tuple[str, ...], kinds: tuple[str, ...]
) -> tuple[tuple[Architecture, ...], tuple[str, ...]]:
    """Return the requested types, `all` for all, and names that the library lacks."""
    of_kind = tuple(each for each in candidates if each.kind in (kinds or KINDS))
    if names == ("all",):
        return of_kind, ()
    matching = tuple(architecture for architecture in of_kind if architecture.name in names)
    present = {each.name for each in matching}
    return matching, tuple(name for name in names if name not in present)


LIBRARIES = ("transformers",)
_USES = ("training", "generate", "device_map", "attention", "compiled")
MODES = ("float32", "bfloat16", "float16", *_USES)
USUAL_MODES = ("float32", "training", "generate")


@dataclass(frozen=True, kw_only=True)
class Library:
    """Whose architectures, which of them, and what is done with each."""

    library: str
    architectures: tuple[str, ...] = ("all",)
    kinds: tuple[str, ...] = ()
    modes: tuple[str, ...] = USUAL_MODES
    limit_seconds: float = 90.0
    workers: int = 0

    def again(self, _number: int) -> Library:
        """The same once more: what is drawn does not depend on the run."""
        return self

    def document(self) -> dict[str, object]:
        return dict(vars(self))

    def arguments(self) -> tuple[str, ...]:
        """Return the options of a command line."""
        return command_line({each.name: vars(self)[each.attribute] for each in LIBRARY_OPTIONS})


def read_library(**values: str) -> Library:
    """Return options by their names. Raise `ValueError` with the fault of one of them."""
    return Library(**read_options(values, LIBRARY_OPTIONS))


def _read_architectures(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    return ("all",) if "all" in names else names or ("all",)


def _read_modes(text: str) -> tuple[str, ...]:
    modes = read_names("modes", (*MODES, "all"), text) or USUAL_MODES
    return MODES if "all" in modes else modes


_KINDS_HELP = f"only of these kinds: {', '.join(KINDS)}"
_MODES_HELP = f"what is done with each: {', '.join(MODES)}, or all ({','.join(USUAL_MODES)})"
_WORKERS_HELP = "how many at once (as many as processors, 4 at most)"
_LIBRARY_HELP = "whose registry of architectures is run: transformers"
_NAMES_HELP = "types by name, with commas between them, or all (all)"
_LIMIT_HELP = "what one architecture may take (90)"
LIBRARY_OPTIONS = (
    RunOption(
        "library",
        "",
        _LIBRARY_HELP,
        lambda t: (*read_names("library", LIBRARIES, t), *LIBRARIES)[0],
    ),
    RunOption("architectures", "", _NAMES_HELP, _read_architectures),
    RunOption("kinds", "", _KINDS_HELP, partial(read_names, "kinds", KINDS)),
    RunOption("modes", "", _MODES_HELP, _read_modes),
    RunOption("limit-seconds", "", _LIMIT_HELP, lambda t: read_number("limit-seconds", t or "90")),
    RunOption("workers", "", _WORKERS_HELP, lambda t: int(read_number("workers", t or "0"))),
)
