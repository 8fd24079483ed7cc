"""Settings and variables of the environment, wherever Python gives a name a value. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from warpfront_port.scan.python.mentions import ENVIRONMENT
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, bindings, last_name, parameters, text_of
from warpfront_port.scan.words import ALLOCATOR, allocator_settings, may_be_setting, read_setting

_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag"})
_OF_A_MODEL = frozenset({"architectures", "transformers_version"})
_ENVIRONMENTS = frozenset({"env", "envs", "environ", "environment"})


_Giving = (
    ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    | ast.Dict | ast.Call
)  # fmt: skip


class Assignment(NamedTuple):
    """An assignment of `value` to `name` at `node`.

    `own` is true for a name of the program's own that no library is known to read, `variable` for a
    variable of the environment.
    """

    name: str
    value: ast.expr
    node: ast.AST
    own: bool = False
    variable: bool = False


def settings_given(module: Module, node: _Giving) -> Iterator[Seen]:
    """Yield every setting and environment variable of a rule that this node assigns."""
    if not module.has_settings and "env" not in module.text:
        return
    for assignment in _assignments(module, node):
        if may_be_setting(assignment.name):
            yield from _judged(module, assignment)
        if assignment.variable and assignment.name in ENVIRONMENT:
            yield Seen(ENVIRONMENT[assignment.name], assignment.node, assignment.name)


def _judged(module: Module, assignment: Assignment) -> Iterator[Seen]:
    name, value = assignment.name, assignment.value
    for text in module.scopes.texts(value):
        via = None if text.node is value else assignment.node
        for rule, what in read_setting(name, text.text, own=assignment.own):
            yield Seen(rule, text.node, what, via=via)
    # An autotuner leaves out the choices that do not fit: one of several numbers is a suspicion.
    values = () if isinstance(value, ast.Call) else module.scopes.values(value)
    numbers = [v for v in values if isinstance(v, ast.Constant)]  # and no default of a call
    numbers = [n for n in numbers if type(n.value) is int and n.value > 1]
    uses = [[*read_setting(name, str(n.value), own=assignment.own)] for n in numbers]
    for number, found in zip(numbers, uses, strict=True):
        yield from (Seen(rule, number, what, shift=-int(not all(uses))) for rule, what in found)
    # A number is no yes: the rate in `{"tf32": 156e12}`.
    amount = isinstance(value, ast.Constant) and value.value not in (0, 1)
    for rule, _ in () if amount else read_setting(name, "true", own=assignment.own):
        if sides := module.conditions.true_for(value):
            yield Seen(rule, assignment.node, sides=sides)


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
        case ast.Dict():
            yield from _items(module, node)
        case ast.Call():
            yield from _called(module, node)
        case _:
            for target, value in bindings(node):
                if value is not None:
                    yield from _assigned(module, target, value, node)


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
        case ast.Subscript(value=table, slice=ast.Constant(value=str() as name)):
            variable = _is_environment(module, table)
            yield Assignment(name, value, node, variable=variable)
        case _:
            pass


def _items(module: Module, node: ast.Dict) -> Iterator[Assignment]:
    """Yield the items of a dictionary; none of one that repeats a model's config.json."""
    holder = module.parents[node]
    match holder:
        case ast.Assign(targets=[target, *_]):
            holder = target
        case ast.Call(func=ast.Attribute(attr="update", value=updated)):
            holder = updated
        case _:
            pass
    environment, prefix = _is_environment(module, holder), _prefix(module, holder)
    if _OF_A_MODEL.isdisjoint(map(text_of, node.keys)):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and (item := text_of(key)) is not None:
                yield Assignment(f"{prefix}{item}", value, key, variable=environment)


def _prefix(module: Module, holder: ast.AST) -> str:
    """Return the owner of the settings in a call or an argument: torch.compile, or Inductor."""
    if isinstance(holder, ast.keyword):
        return "compile." if holder.arg == "options" else ""
    inductors = isinstance(holder, ast.Call) and "inductor" in module.dotted(holder.func)
    return "torch._inductor.config." if inductors else ""


def _is_environment(module: Module, node: ast.AST) -> bool:
    """Return true for an environment by its name, or by that of its argument."""
    dotted = module.dotted(node)
    name = node.arg if isinstance(node, ast.keyword) else dotted.split(".")[-1]
    words = (name or "").lower().split("_")
    return dotted.startswith("os.environ") or not _ENVIRONMENTS.isdisjoint(words)


def _called(module: Module, call: ast.Call) -> Iterator[Assignment]:
    """Yield the keyword arguments of a call, and the settings among the others."""
    name, owner = last_name(call.func), getattr(call.func, "value", call)
    of_environment = owner is not call and _is_environment(module, owner)
    for item in call.keywords:
        if item.arg is not None:
            variable = name == "update" and of_environment
            yield Assignment(
                f"{_prefix(module, call)}{item.arg}", item.value, item, variable=variable
            )
    match call.args:
        case [ast.Constant(value=str() as key), value, *_] if (
            name == "setdefault" and of_environment
        ):
            yield Assignment(key, value, call, variable=True)
        case _:
            pass
