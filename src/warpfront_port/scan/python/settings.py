"""Settings and variables of the environment, wherever Python gives a name a value. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from warpfront_port.scan.python.mentions import ENVIRONMENT
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import (
    Text,
    bindings,
    elements,
    last_name,
    parameters,
    text_of,
)
from warpfront_port.scan.words import (
    ALLOCATOR,
    SETTING_WORDS,
    allocator_settings,
    may_be_setting,
    read_setting,
)

_OF_A_MODEL = frozenset({"architectures", "transformers_version"})
_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag"})
_GIVEN = re.compile("|".join((*SETTING_WORDS, *ENVIRONMENT)), re.IGNORECASE)
_READING = re.compile("get|pop")

_Giving = (
    ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    | ast.Dict | ast.Call
)  # fmt: skip


class Assignment(NamedTuple):
    """An assignment of `value` to `name` at `node`.

    `own` is true for a name of the program's own that no library is known to read.
    """

    name: str
    value: ast.expr
    node: ast.AST
    own: bool = False


def settings_given(module: Module, node: _Giving) -> Iterator[Seen]:
    """Yield every setting and environment variable of a rule that this node assigns."""
    if not module.has_match(_GIVEN):
        return
    for assignment in _assignments(module, node):
        if may_be_setting(assignment.name):
            yield from _judged(module, assignment)
        if not assignment.own and assignment.name in ENVIRONMENT:
            yield Seen(ENVIRONMENT[assignment.name], assignment.node, assignment.name)


def _judged(module: Module, assignment: Assignment) -> Iterator[Seen]:
    name, value, place, own = assignment
    words = [(text.text, text.node) for text in module.scopes.texts(value)]
    for constant in module.scopes.values(value):
        # A number that a call has as a default is the caller's.
        kind = type(constant.value) if isinstance(constant, ast.Constant) else None
        if kind is bool or (kind is int and not isinstance(value, ast.Call)):
            words.append((module.source_of(constant), constant))
    uses = [[*read_setting(name, text, own=own)] for text, _ in words]
    # An autotuner leaves out the choices that do not fit: one of several numbers is a suspicion.
    some = int(any(text.isdigit() for text, _ in words) and not all(uses))
    call = module.parents.get(place, place)
    of_tuner = last_name(getattr(call, "func", call)) == "Config"
    some = 2 if of_tuner and len(elements(module.parents.get(call))) > 1 else some
    for (_, node), rules in zip(words, uses, strict=True):
        via = None if node is value else place
        yield from (Seen(rule, node, what, shift=-some, via=via) for rule, what in rules)


def texts(_module: Module, node: Text) -> Iterator[Seen]:
    """Yield allocator settings."""
    if ":" in node.value and ALLOCATOR.search(node.value):
        for excerpt, shift in allocator_settings(node.value):
            yield Seen("PY010", node, excerpt, shift=shift)


def _assignments(module: Module, node: ast.AST) -> Iterator[Assignment]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            for name, default in parameters(node.args):
                if default is not None:
                    yield Assignment(name, default, default, own=True)
        case ast.Dict() | ast.Call():
            prefix = _prefix(module, node if isinstance(node, ast.Call) else module.parents[node])
            for name, item, place in _items(node):
                yield Assignment(f"{prefix}{name}", item, place)
        case _:
            for target, value in bindings(node):
                if value is not None:
                    yield from _assigned(module, target, value, node)


def _items(node: ast.Dict | ast.Call) -> Iterator[tuple[str, ast.expr, ast.AST]]:
    """Yield the items of a dictionary, and what a call gives: `patch("memory_planning", True)`.

    A dictionary that repeats a model's config.json chooses nothing, and a call that only reads a
    default gives nothing.
    """
    pairs: Iterable[tuple[ast.expr | None, ast.expr]] = ()
    if isinstance(node, ast.Call):
        yield from ((item.arg, item.value, item) for item in node.keywords if item.arg is not None)
        pairs = () if _READING.match(last_name(node.func)) else pairwise(node.args)
    elif _OF_A_MODEL.isdisjoint(map(text_of, node.keys)):
        pairs = zip(node.keys, node.values, strict=True)
    for key, value in pairs:
        if (name := text_of(key)) is not None:
            yield name, value, key or node


def _assigned(
    module: Module, target: ast.expr, value: ast.expr, node: ast.AST
) -> Iterator[Assignment]:
    match target:
        case ast.Name(id=name):
            parent = module.parents.get(node)
            bases = parent.bases if isinstance(parent, ast.ClassDef) else []
            # A constant of an enumeration names a choice, and makes none.
            if _ENUMS.isdisjoint(module.dotted(base).split(".")[-1] for base in bases):
                yield Assignment(name, value, node, own=True)
        case ast.Attribute(attr=name):
            yield Assignment(module.dotted(target) or name, value, node, own=True)
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            yield Assignment(name, value, node)
        case _:
            pass


def _prefix(module: Module, holder: ast.AST) -> str:
    """Return the owner of the settings in a call or an argument: torch.compile, or Inductor."""
    if isinstance(holder, ast.keyword):
        return "compile." if holder.arg == "options" else ""
    inductors = isinstance(holder, ast.Call) and "inductor" in module.dotted(holder.func)
    return "torch._inductor.config." if inductors else ""
