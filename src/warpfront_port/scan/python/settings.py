"""Rules about environment variables, allocator settings and programs that are started. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice, starmap

from warpfront_port.scan.python.module import Module, Seen, last_name, text_of
from warpfront_port.scan.python.scopes import HOLE
from warpfront_port.scan.python.tables import ENVIRONMENT, ENVIRONMENT_PREFIXES
from warpfront_port.scan.setting_rules import read_setting
from warpfront_port.scan.words import ALLOCATOR, allocator_rules

_PROGRAMS = {"nvidia-smi": "PY016", "nsys": "PY016", "ncu": "PY016", "nvprof": "PY016"}
_STARTED = re.compile(r"\s*(?:\S*/)?(nvidia-smi|nsys|ncu|nvprof)(?:\s|\Z)")
STARTERS = frozenset(
    {"run", "call", "check_call", "check_output", "Popen", "popen", "system", "which"}
    | {"getoutput", "getstatusoutput", "create_subprocess_exec", "create_subprocess_shell"}
    | {"execute"}
)
_COMPILER_FLAG = re.compile(
    r"--gpu-architecture(?:=(?:sm|compute)_\d|\Z)|-arch=(?:sm|compute)_(?:\d|\Z)|--use_fast_math\Z"
)
_AMDS_PROGRAMS = re.compile(r"\b(?:rocm[-_]?smi|amd[-_]?smi|rocminfo|rocprof)")
_NVRTC = re.compile(r"nvrtc(?:CompileProgram|CreateProgram|GetPTX)\w*")
_HIDING = frozenset({"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
_ALLOCATES = frozenset({"cuda", "empty_cache", "memory_allocated", "set_device", "init"})


def strings(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield allocator settings, programs and flags in string constants that are used as values."""
    text = node.value
    if not isinstance(text, str) or len(text) < 3 or node in module.docstrings:
        return
    if ":" in text and ALLOCATOR.search(text):
        for rule, snippet, shift in allocator_rules(text):
            yield Seen(rule=rule, node=node, what=snippet, shift=shift)
    started = _STARTED.match(text)
    if started is not None and _is_command(module, node):
        shift = -2 if _AMDS_PROGRAMS.search(module.text) else 0
        yield Seen(rule=_PROGRAMS[started[1]], node=node, what=started[1], shift=shift)
    is_flag = _COMPILER_FLAG.match(text) and not (
        module.builds_extensions or _is_sought(module, node)
    )
    if is_flag or _NVRTC.fullmatch(text):
        yield Seen(rule="BL201", node=node, what=text[:60])


def _is_sought(module: Module, node: ast.Constant) -> bool:
    """Return true if a text is searched for, or removed."""
    match module.parents.get(node):
        case ast.Compare(left=operand, ops=[ast.In() | ast.NotIn()]):
            return operand is node
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]):
            return first is node and name in _SEEKING
        case _:
            return False


_SEEKING = frozenset(
    {"replace", "remove", "removeprefix", "removesuffix", "index", "count", "find"}
)


def _is_command(module: Module, node: ast.Constant) -> bool:
    """Return true if the string is (the head of) a call's command, directly or through one name."""
    for parent, child in module.ancestors(node):
        if isinstance(parent, ast.List | ast.Tuple):
            if parent.elts and parent.elts[0] is child:
                continue
            return False
        if isinstance(parent, ast.Call):
            return child in parent.args and last_name(parent.func) in STARTERS
        if isinstance(parent, ast.Assign):
            named = {last_name(target) for target in parent.targets}
            return any(re.search(r"cmd|command|args", name, re.IGNORECASE) for name in named)
        if not isinstance(parent, ast.BinOp | ast.JoinedStr):
            return False
    return False


def environment_assignments(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """Yield `os.environ["CUDA_VISIBLE_DEVICES"] = ...`, `env["..."] = ...`."""
    for target in node.targets:
        if isinstance(target, ast.Subscript) and _is_environment(module, target.value):
            yield from _written(module, node, text_of(target.slice), node.value)


def environment_calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `os.environ.setdefault("X", ...)`, `os.putenv("X", ...)`, `monkeypatch.setenv`."""
    if not isinstance(node.func, ast.Attribute):
        return
    method = node.func.attr
    if method == "update" and _is_environment(module, node.func.value):
        for item in node.keywords:
            yield from _written(module, item, item.arg, item.value)
    if not node.args:
        return
    setting = method in {"setdefault", "__setitem__"} and _is_environment(module, node.func.value)
    if setting or method in {"putenv", "setenv"}:
        value = node.args[1] if len(node.args) > 1 else None
        yield from _written(module, node, text_of(node.args[0]), value)


def environment_tables(module: Module, node: ast.Dict) -> Iterator[Seen]:
    """Yield `env={"CUDA_VISIBLE_DEVICES": "0"}`, `env = {**os.environ, "X": ...}`."""
    if not any(starmap(_is_about_environment, islice(module.ancestors(node), 2))):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None:
            yield from _written(module, key, text_of(key), value)


def _is_about_environment(parent: ast.AST, child: ast.AST) -> bool:
    if isinstance(parent, ast.keyword):
        return parent.arg in {"env", "environment", "env_vars", "envs"}
    if isinstance(parent, ast.Assign) and child is parent.value:
        return any("env" in last_name(target).lower().split("_") for target in parent.targets)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr == "update" and "env" in ast.unparse(parent.func.value).lower()
    return False


def _is_environment(module: Module, node: ast.AST) -> bool:
    dotted = module.dotted(node)
    last = dotted.split(".")[-1].lower()
    return dotted.startswith("os.environ") or "env" in last.split("_") or last == "environ"


def _written(
    module: Module, node: ast.AST, name: str | None, value: ast.AST | None
) -> Iterator[Seen]:
    if name is None:
        return
    for text in module.scopes.texts(value):
        for rule_id, snippet, shift in allocator_rules(text.text.replace(HOLE, "0")):
            yield Seen(rule=rule_id, node=text.node, what=snippet, shift=shift, via=node)
        for setting_use in read_setting(name, text.text):
            yield Seen(rule=setting_use.rule, node=node, what=setting_use.what)
    rule = ENVIRONMENT.get(name) or next(
        (rule for prefix, rule in ENVIRONMENT_PREFIXES.items() if name.startswith(prefix)), None
    )
    if rule is not None:
        yield Seen(rule=rule, node=node, what=name)
    if name.endswith("_ALLOC_CONF") and _is_after_allocation(module, node):
        yield Seen(rule="PY010", node=node, what=name)
    if name == "ROCR_VISIBLE_DEVICES" and _writes_both(module, node):
        yield Seen(rule="PY045", node=node, what=" and ".join(sorted(_HIDING)))


def _is_after_allocation(module: Module, node: ast.AST) -> bool:
    """Return true if the same function (or the module's top) allocated on the device above."""
    scope = module.scope(node)
    line = getattr(node, "lineno", 0)
    for inner in ast.walk(scope):
        if isinstance(inner, ast.Call) and inner.lineno < line and module.scope(inner) is scope:
            dotted = module.dotted(inner.func)
            method = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
            if method == "cuda" or (
                dotted.startswith("torch.cuda.") and dotted.split(".")[-1] in _ALLOCATES
            ):
                return True
    return False


def _writes_both(module: Module, node: ast.AST) -> bool:
    scope = module.scope(node)
    written = {
        text_of(inner.slice)
        for inner in ast.walk(scope)
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store)
    }
    return written >= _HIDING
