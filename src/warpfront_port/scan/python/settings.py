"""Settings and environment variables in Python in any form: assignments, arguments, defaults, items
of dictionaries, `setattr`, `config.patch`, options of a command line. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from warpfront_port.scan.python.mentions import ENVIRONMENT
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, bindings, last_name, parameters, text_of
from warpfront_port.scan.python.scopes import HOLE
from warpfront_port.scan.structured.command_rules import option_rule_matches
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import ALLOCATOR, allocator_settings, may_be_setting, read_setting

_TORCH_COMPILES = frozenset({"torch.compile", "torch.jit.compile", "torch._dynamo.optimize"})
_OPTIONS = frozenset({"add_argument", "option", "add_option", "DEFINE_string", "DEFINE_enum"})
_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag"})
_OF_A_MODEL = frozenset({"architectures", "transformers_version"})
_ENVIRONMENTS = frozenset({"env", "envs", "environ", "environment"})
_PUTTING = frozenset({"putenv", "setenv"})


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
        if not assignment.variable:
            continue
        name, value, place, *_ = assignment
        for text in module.scopes.texts(value):
            for excerpt, shift in allocator_settings(text.text.replace(HOLE, "0")):
                yield Seen("PY010", text.node, excerpt, shift=shift, via=place)
        if rule := ENVIRONMENT.get(name, ""):
            yield Seen(rule, place, name)


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


def texts(module: Module, node: Text) -> Iterator[Seen]:
    """Yield allocator settings, and those in options that a command is put together from."""
    if ":" in node.value and ALLOCATOR.search(node.value):
        for excerpt, shift in allocator_settings(node.value):
            yield Seen("PY010", node, excerpt, shift=shift)
    if module.has_settings and node.value.lstrip().startswith("--"):
        words = [Word(text=word, start=0, end=0) for word in node.value.split()]
        for match in option_rule_matches(words):
            yield Seen(match.rule, node, match.excerpt)


def _assignments(module: Module, node: ast.AST) -> Iterator[Assignment]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            for name, default in parameters(node.args):
                if default is not None:
                    yield Assignment(name, default, default, own=True)
        case ast.Dict():
            yield from _items(module, node)
        case ast.Call():
            yield from _keywords_given(module, node)
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
        case ast.Attribute(value=owner, attr=name):
            yield _attribute(module, owner, name, value, node)
        case ast.Subscript(value=table, slice=ast.Constant(value=str() as name)):
            variable = _is_environment(module, table)
            yield Assignment(name, value, node, variable=variable)
        case _:
            pass


def _attribute(
    module: Module, owner: ast.expr, name: str, value: ast.expr, node: ast.AST
) -> Assignment:
    """Return an attribute of the first possible value of `owner` that has such a setting."""
    owners = {module.dotted(base) for base in (owner, *module.scopes.values(owner))} - {""}
    full = [f"{dotted}.{name}" for dotted in sorted(owners, key=len, reverse=True)]
    settings = (n for n in full if any(read_setting(n, text) for text in ("true", "tf32")))
    chosen = next(settings, name) if len(full) > 1 else (*full, name)[0]
    return Assignment(chosen, value, node, own=True)


def _items(module: Module, node: ast.Dict) -> Iterator[Assignment]:
    """Yield the items of a dictionary; none of one that repeats a model's config.json."""
    parent = module.parents[node]
    prefix = "torch._inductor.config." if _is_inductors(module, parent) else ""
    holder = parent
    match parent:
        case ast.keyword(arg="options") if _compiles(module, module.parents[parent]):
            prefix = "compile."
        case ast.Assign(targets=[holder, *_]):
            pass
        case ast.Call(func=ast.Attribute(attr="update", value=holder)):
            pass
        case _:
            pass
    environment = _is_environment(module, holder)
    if _OF_A_MODEL.isdisjoint(map(text_of, node.keys)):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and (item := text_of(key)) is not None:
                yield Assignment(f"{prefix}{item}", value, key, variable=environment)


def _is_inductors(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and "inductor" in module.dotted(node.func)


def _is_environment(module: Module, node: ast.AST) -> bool:
    """Return true for an environment by its name, or by that of its argument."""
    dotted = module.dotted(node)
    name = node.arg if isinstance(node, ast.keyword) else dotted.split(".")[-1]
    words = (name or "").lower().split("_")
    return dotted.startswith("os.environ") or not _ENVIRONMENTS.isdisjoint(words)


def _compiles(module: Module, call: ast.AST | None) -> bool:
    """Return true if a call is torch's compile, of the function or of a module's method."""
    if not isinstance(call, ast.Call):
        return False
    dotted = module.dotted(call.func)
    if dotted in _TORCH_COMPILES or dotted.endswith("torch.compile"):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "compile":
        return False
    receiver = module.scopes.one(call.func.value)
    makers = [inner.func for inner in ast.walk(receiver) if isinstance(inner, ast.Call)]
    roots = {module.dotted(maker).split(".")[0] for maker in (*makers, call.func.value)}
    foreign = {name.split(".")[0] for name in module.imported.values()} - {"torch"}
    # A class of this module that is none of torch's modules has a `compile` of its own.
    bases_of_own = [module.classes[name].bases for name in roots if name in module.classes]
    models = all(any("Mod" in module.dotted(base) for base in bases) for bases in bases_of_own)
    return "torch" in module.packages and roots.isdisjoint(foreign) and models


def _keywords_given(module: Module, call: ast.Call) -> Iterator[Assignment]:
    dotted = module.dotted(call.func)
    last = last_name(call.func) or dotted.split(".")[-1]
    if last in _OPTIONS:  # `add_argument("--compile-mode", default="reduce-overhead")`
        for item in call.keywords:
            for flag in map(text_of, call.args) if item.arg == "default" else ():
                if flag is not None:
                    yield Assignment(flag, item.value, item.value)
    elif last != "dot" and (last != "compile" or _compiles(module, call)):
        prefix = "torch._inductor.config." if _is_inductors(module, call) else ""
        prefix = "torch.backends.cudnn." if dotted.endswith("cudnn.flags") else prefix
        variable = last == "update" and _is_environment(module, getattr(call.func, "value", call))
        for item in call.keywords:
            if item.arg is not None:
                name = f"{prefix}{item.arg}"
                yield Assignment(name, item.value, item, variable=variable)


def _called(module: Module, call: ast.Call) -> Iterator[Assignment]:
    """Yield the settings among a call's arguments. In `get` and the like one is a default."""
    owner = getattr(call.func, "value", call)
    of_environment = owner is not call and _is_environment(module, owner)
    name = last_name(call.func)
    match call.args:
        case [ast.Constant(value=str() as key), value, *_] if name in _PUTTING or (
            name in {"setdefault", "__setitem__"} and of_environment
        ):
            yield Assignment(key, value, call, variable=True)
        case [*owners, named, value] if name in {"setattr", "__setattr__"} and len(owners) < 2:
            for text in module.scopes.texts(named):
                yield _attribute(module, (*owners, owner)[0], text.text, value, call)
        case [ast.Constant(value=str() as key), value] if name == "patch" and _is_inductors(
            module, call
        ):
            yield Assignment(f"torch._inductor.config.{key}", value, call)
        case [*owners, ast.Constant(value=str() as key), value] if (
            name in {"get", "getenv", "setdefault", "pop"} and not owners
        ) or (name == "getattr" and len(owners) == 1):
            yield Assignment(key, value, value)
        case [value, *_] if name == "set_float32_matmul_precision":
            yield Assignment("matmul_precision", value, call)
        case _:
            pass
