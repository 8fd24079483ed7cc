"""Rules about torch.compile, Inductor's settings and graph capture. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront.port.scan.python.module import Module, Seen, is_true, keyword, text_of

_MODES = {"reduce-overhead": "PY001", "max-autotune": "PY002"}
_MODE_NAME = re.compile(r"(?:.*_)?(?:compile|mode)(?:_.*)?\Z", re.IGNORECASE)
_SETTINGS = {
    "triton.cudagraphs": "PY003",
    "triton.cudagraph_trees": "PY003",
    "cudagraphs": "PY003",
    "memory_planning": "PY004",
}
_CAPTURES = frozenset({"torch.cuda.graph", "torch.cuda.graphs.graph"})
_RNG = frozenset({"get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all"})
_FLASH_3 = re.compile(r"flash[-_]?att(?:entio)?n[-_]?3", re.IGNORECASE)
_SYNCHRONISING = frozenset({"item", "cpu", "tolist", "nonzero", "numpy", "synchronize"})


def compile_modes(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """A mode that is chosen: an argument, a default, a value given to a name about modes."""
    mode = text_of(node)
    if mode in _MODES and _is_chosen(module, node):
        yield Seen(rule=_MODES[mode], node=node, what=f'"{mode}"')


def _is_chosen(module: Module, node: ast.AST) -> bool:
    """Whether the string reaches `compile` or a name about modes; lists and comparisons do not."""
    for parent, child in module.ancestors(node):
        passed_on = isinstance(parent, ast.IfExp) and child is not parent.test
        if not passed_on and not isinstance(parent, ast.BoolOp):
            return any(_MODE_NAME.match(name) for name in _receivers(parent, child))
    return False


def _receivers(parent: ast.AST, child: ast.AST) -> Iterator[str]:
    """The names that a value is given to where it stands."""
    match parent:
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Call(func=function):
            yield _last(function)
        case ast.Assign(targets=targets):
            yield from map(_last, targets)
        case ast.AnnAssign(target=target, value=value) if child is value:
            yield _last(target)
        case ast.arguments():
            yield _argument_of_default(parent, child)
        case ast.Dict(keys=keys, values=values) if child in values:
            yield text_of(keys[values.index(child)]) or ""
        case _:
            return


def _argument_of_default(arguments: ast.arguments, default: ast.AST) -> str:
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if value is default:
            return argument.arg
    for argument, only in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if only is default:
            return argument.arg
    return ""


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return text_of(node.slice) or ""
    return node.id if isinstance(node, ast.Name) else ""


def inductor_assignments(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """`config.triton.cudagraphs = True`, `config.memory_planning = True`."""
    for target in node.targets:
        if not isinstance(target, ast.Attribute) or not is_true(node.value):
            continue
        dotted = module.dotted(target)
        for setting, rule in _SETTINGS.items():
            ours = "." in setting or "inductor" in dotted or "config" in dotted
            if ours and dotted.endswith(f".{setting}"):
                yield Seen(rule=rule, node=node, what=module.source_of(node))
                break


def inductor_options(module: Module, node: ast.Dict) -> Iterator[Seen]:
    """`options={"triton.cudagraphs": True}`."""
    del module
    for key, value in zip(node.keys, node.values, strict=True):
        rule = _SETTINGS.get(text_of(key) or "")
        if rule is not None and key is not None and is_true(value) and text_of(key) != "cudagraphs":
            yield Seen(rule=rule, node=key, what=f'"{text_of(key)}": True')


def capture_bodies(module: Module, node: ast.With) -> Iterator[Seen]:
    """What may not happen while a graph is captured."""
    calls = (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
    if not any(module.dotted(call.func) in _CAPTURES for call in calls):
        return
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Call):
                yield from _in_capture(inner)


def _in_capture(call: ast.Call) -> Iterator[Seen]:
    name = _last(call.func)
    if name in _RNG:
        yield Seen(rule="PY006", node=call, what=f"{name}()")
    elif name in _SYNCHRONISING and isinstance(call.func, ast.Attribute):
        yield Seen(rule="PY007", node=call, what=f".{name}()")
    elif name == "print" and any(not isinstance(a, ast.Constant) for a in call.args):
        yield Seen(rule="PY007", node=call, what="print()")


def rng_beside_capture(module: Module, node: ast.Call) -> Iterator[Seen]:
    """RNG state read or set in a function that also captures a graph, outside the `with` itself."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _RNG:
        return
    if not module.dotted(node.func).startswith("torch.cuda."):
        return
    scope = module.scope(node)
    if isinstance(scope, ast.Module) or "graph" not in module.source_of(scope).lower():
        return
    captures = any(
        isinstance(inner, ast.Call) and module.dotted(inner.func) == "torch.cuda.CUDAGraph"
        for inner in ast.walk(scope)
    )
    inside = any(
        isinstance(parent, ast.With) and "torch.cuda.graph" in module.source_of(parent)[:200]
        for parent, _ in module.ancestors(node)
    )
    if captures and not inside:
        yield Seen(rule="PY006", node=node, what=f"torch.cuda.{node.func.attr}()", shift=-1)


def tf32_assignments(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """`torch.backends.cuda.matmul.allow_tf32 = True`, `...fp32_precision = "tf32"`."""
    for target in node.targets:
        if not isinstance(target, ast.Attribute):
            continue
        allows = target.attr == "allow_tf32" and not _is_false(node.value)
        precise = target.attr == "fp32_precision" and text_of(node.value) != "ieee"
        if (allows or precise) and module.dotted(target).startswith("torch.backends."):
            yield Seen(rule="PY008", node=node, what=module.dotted(target))


def _is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def matmul_precision(module: Module, node: ast.Call) -> Iterator[Seen]:
    """`torch.set_float32_matmul_precision("high")`."""
    if module.dotted(node.func) != "torch.set_float32_matmul_precision" or not node.args:
        return
    text = text_of(node.args[0])
    if text != "highest":
        shown = f'"{text}"' if text is not None else "..."
        yield Seen(rule="PY008", node=node, what=f"set_float32_matmul_precision({shown})")


def attention_choices(module: Module, node: ast.Call) -> Iterator[Seen]:
    """`attn_implementation="flash_attention_2"` as an argument."""
    value = keyword(node, "attn_implementation") or keyword(node, "_attn_implementation")
    text = text_of(value)
    if value is not None and text in {"flash_attention_2", "flash_attention_3"}:
        yield Seen(rule="PY027", node=value, what=f'"{text}"')
    if _last(node.func) == "get_kernel" and node.args:
        texts = (text_of(inner) or "" for inner in ast.walk(module.value_of(node.args[0])))
        name = next((text for text in texts if _FLASH_3.search(text)), "")
        if name:
            yield Seen(rule="PY026", node=node, what=f'get_kernel("{name}")')


def attention_assignments(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """`config._attn_implementation = "flash_attention_2"`."""
    del module
    text = text_of(node.value)
    if text in {"flash_attention_2", "flash_attention_3"} and any(
        "attn" in _last(target) or "attention" in _last(target) for target in node.targets
    ):
        yield Seen(rule="PY027", node=node.value, what=f'"{text}"')
