"""Settings in Python in any form: assignments, arguments, defaults, items of dictionaries,
`setattr`, `config.patch`, options of a command line. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from warpfront_port.scan.python.module import Module, Seen, text_of
from warpfront_port.scan.python.scopes import parameters
from warpfront_port.scan.python.vendor_conditions import Conditions
from warpfront_port.scan.setting_rules import MODES, may_be_setting, read_setting

_TORCH_COMPILES = frozenset({"torch.compile", "torch.jit.compile", "torch._dynamo.optimize"})
_BACKENDS = frozenset({"cudagraphs"})
_OPTIONS = frozenset({"add_argument", "option", "add_option", "DEFINE_string", "DEFINE_enum"})
_SILENT = _OPTIONS | {"dot"}
"""Calls whose keywords are about something else: a kernel's product is no setting of a process."""
_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An assignment of `value` to `name` at `node`.

    `own` is true for a name of the program's own that no library is known to read.
    """

    name: str
    value: ast.expr
    node: ast.AST
    own: bool = False


def _is_amount(node: ast.expr) -> bool:
    """Return true for a number that does not mean yes: the rate in `{"tf32": 156e12}`."""
    return isinstance(node, ast.Constant) and node.value not in (0, 1)


def settings_given(module: Module, node: ast.AST) -> Iterator[Seen]:
    """Yield every setting of a rule that this node assigns."""
    if not module.has_settings:
        return
    for assignment in _assignments(module, node):
        yield from _judged(module, assignment)


def _judged(module: Module, assignment: Assignment) -> Iterator[Seen]:
    if not may_be_setting(assignment.name):
        return
    for text in module.scopes.texts(assignment.value):
        for setting_use in read_setting(assignment.name, text.text, own=assignment.own):
            sighting = Seen(
                rule=setting_use.rule, node=text.node, what=setting_use.what, via=assignment.node
            )
            yield sighting if text.node is not assignment.value else replace(sighting, via=None)
    if text_of(assignment.value) is None and not _is_amount(assignment.value):
        for setting_use in read_setting(assignment.name, "true", own=assignment.own):
            sides = Conditions.of(module).true_for(assignment.value)
            if sides:
                source = module.shown(assignment.node)
                yield Seen(rule=setting_use.rule, node=assignment.node, what=source, sides=sides)


def _assignments(module: Module, node: ast.AST) -> Iterator[Assignment]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(module, target, value, node)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _assigned(module, target, value, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            for name, default in parameters(node.args):
                if default is not None:
                    yield Assignment(name=name, value=default, node=default, own=True)
        case ast.Dict(keys=keys, values=values):
            yield from _items(module, node, keys, values)
        case ast.Call():
            yield from _called(module, node)
        case _:
            return


def _assigned(
    module: Module, target: ast.expr, value: ast.expr, node: ast.AST
) -> Iterator[Assignment]:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for element, item in zip(target.elts, value.elts, strict=False):
            yield from _assigned(module, element, item, node)
    elif isinstance(target, ast.Name) and not _is_of_an_enum(module, node):
        yield Assignment(name=target.id, value=value, node=node, own=True)
    elif isinstance(target, ast.Attribute):
        yield from _attributes(module, target.value, target.attr, value, node)
    elif isinstance(target, ast.Subscript):
        key = text_of(target.slice)
        if key is not None:
            yield Assignment(name=key, value=value, node=node)


def _is_of_an_enum(module: Module, node: ast.AST) -> bool:
    """Return true for a constant of an enumeration, which names a choice and makes none."""
    parent = module.parents.get(node)
    return isinstance(parent, ast.ClassDef) and any(
        module.dotted(base).split(".")[-1] in _ENUMS for base in parent.bases
    )


def _attributes(
    module: Module, owner: ast.expr, name: str, value: ast.expr, node: ast.AST
) -> Iterator[Assignment]:
    """Yield an attribute of every possible value of `owner`."""
    owners = {module.dotted(base) for base in (owner, *module.scopes.values(owner))} - {""}
    for dotted in sorted(owners, key=len, reverse=True) or [""]:
        full = f"{dotted}.{name}".strip(".")
        if len(owners) < 2 or any(read_setting(full, text) for text in ("true", "tf32")):
            yield Assignment(name=full, value=value, node=node, own=True)
            return
    yield Assignment(name=name, value=value, node=node, own=True)


def _items(
    module: Module, node: ast.Dict, keys: list[ast.expr | None], values: list[ast.expr]
) -> Iterator[Assignment]:
    """Yield the items of a dictionary; none of one that repeats a model's config.json."""
    context = _receiver(module, node)
    names = [text_of(key) for key in keys]
    copied = not _OF_A_MODEL.isdisjoint(name for name in names if name)
    for key, name, value in zip(keys, names, values, strict=True):
        if key is not None and name is not None and not copied:
            yield Assignment(name=f"{context}{name}", value=value, node=key)


_OF_A_MODEL = frozenset({"architectures", "transformers_version"})


def _receiver(module: Module, node: ast.Dict) -> str:
    """Return the prefix for keys of a dictionary of settings: `inductor.` for inductor's."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.keyword) and parent.arg == "options":
        return "compile." if _compiles(module, module.parents.get(parent)) else ""
    if isinstance(parent, ast.Call) and "inductor" in module.dotted(parent.func):
        return "torch._inductor.config."
    return ""


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
    roots = {module.dotted(maker).split(".")[0] for maker in makers}
    foreign = {name.split(".")[0] for name in module.imported.values()} - {"torch"}
    root = module.dotted(call.func.value).split(".")[0]
    if any(_is_no_model(module, name) for name in roots):
        return False
    return "torch" in module.modules and roots.isdisjoint(foreign) and root not in foreign


def _is_no_model(module: Module, name: str) -> bool:
    """Return true if a class of this module is none of torch's modules."""
    bases = module.classes[name].bases if name in module.classes else None
    return bases is not None and not any("Mod" in module.dotted(base) for base in bases)


def _called(module: Module, call: ast.Call) -> Iterator[Assignment]:
    dotted = module.dotted(call.func)
    last = call.func.attr if isinstance(call.func, ast.Attribute) else dotted.split(".")[-1]
    foreign_compile = last == "compile" and not _compiles(module, call)
    for item in call.keywords:
        if item.arg is not None and not foreign_compile and last not in _SILENT:
            prefix = _owner_of_keywords(dotted)
            yield Assignment(name=f"{prefix}{item.arg}", value=item.value, node=item)
    if last in {"setattr", "__setattr__"}:
        yield from _set_by_name(module, call, last)
    elif last in {"get", "getenv", "getattr", "setdefault", "patch", "pop"}:
        yield from _pairs(call, last, dotted)
    elif last in _OPTIONS:
        yield from _options(call)
    elif last == "set_float32_matmul_precision" and call.args:
        yield Assignment(name="matmul_precision", value=call.args[0], node=call)


def _owner_of_keywords(dotted: str) -> str:
    if dotted.endswith("cudnn.flags"):
        return "torch.backends.cudnn."
    return "torch._inductor.config." if "inductor" in dotted else ""


def _set_by_name(module: Module, call: ast.Call, last: str) -> Iterator[Assignment]:
    arguments = call.args
    if last == "__setattr__" and isinstance(call.func, ast.Attribute) and len(arguments) == 2:
        arguments = [call.func.value, *arguments]
    if len(arguments) == 3:
        for name in module.scopes.texts(arguments[1]):
            yield from _attributes(module, arguments[0], name.text, arguments[2], call)


def _pairs(call: ast.Call, last: str, dotted: str) -> Iterator[Assignment]:
    """Yield a name and its value as two arguments. In `get` and the like the value is a default."""
    place = 1 if last == "getattr" else 0
    if len(call.args) != place + 2:
        return
    name, value = text_of(call.args[place]), call.args[place + 1]
    prefix = "torch._inductor.config." if last == "patch" and "inductor" in dotted else ""
    if name is not None and (last != "patch" or prefix):
        yield Assignment(name=f"{prefix}{name}", value=value, node=value if not prefix else call)


def _options(call: ast.Call) -> Iterator[Assignment]:
    """Yield `add_argument("--compile-mode", default="reduce-overhead")`."""
    flags = [flag for flag in map(text_of, call.args) if flag is not None]
    default = next((item.value for item in call.keywords if item.arg == "default"), None)
    if default is not None:
        for flag in flags:
            yield Assignment(name=flag, value=default, node=default)


def compile_arguments(module: Module, call: ast.Call) -> Iterator[Seen]:
    """Yield arguments of torch's compile under any name: the mode, and the backend cudagraphs."""
    chosen = any(item.arg in {"mode", "backend", None} for item in call.keywords)
    if not chosen or not module.has_settings or not _compiles(module, call):
        return
    for name, value in _keywords(module, call):
        for text in module.scopes.texts(value):
            via = call if text.node is not value else None
            if name == "mode" and text.text in MODES:
                yield Seen(rule=MODES[text.text], node=text.node, what=f'"{text.text}"', via=via)
            elif name == "backend" and text.text in _BACKENDS:
                yield Seen(rule="PY001", node=text.node, what=f'backend="{text.text}"', via=via)


def _keywords(module: Module, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keywords of a call, including those of unpacked dictionaries."""
    for item in call.keywords:
        if item.arg is not None:
            yield item.arg, item.value
            continue
        for value in module.scopes.values(item.value):
            if isinstance(value, ast.Dict):
                for key, inner in zip(value.keys, value.values, strict=True):
                    yield text_of(key) or "", inner
            elif isinstance(value, ast.Call) and module.dotted(value.func) == "dict":
                yield from _keywords(module, value)
