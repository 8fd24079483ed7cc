"""Rules about telling which device there is: names, capabilities, versions, libraries. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import elements, keyword, last_name, text_of
from warpfront_port.scan.python.tables import imports_nvidia

# What a compared value is made of, by its dotted names.
_CAPABILITY = re.compile(r"get_device_capability\(\)|get_device_properties\(\)\.(?:major|minor)\Z")
_ARCH_LIST = re.compile(r"get_arch_list\(\)")
_GCN = re.compile(r"\.gcnArchName\w*\Z")
_OF_STRINGS = frozenset({"split", "replace", "startswith", "rsplit", "partition", "strip"})
_CDNA = 9
_CODES = 20


def _is_made_of(module: Module, nodes: list[ast.expr], names: re.Pattern[str]) -> bool:
    return any(names.search(name) for node in nodes for name in module.scopes.made_of(node))


def comparisons(module: Module, node: ast.Compare) -> Iterator[Seen]:
    """Yield compared compute capabilities and gfx names."""
    sides = [node.left, *node.comparators]
    numbers = [number for side in sides for number in _numbers(side)]
    if numbers and _is_made_of(module, sides, _CAPABILITY):
        # Every GPU of AMD's reports 9 or more: `>= 8` takes the arm of newer ones, which most often
        # fits them too.
        ordered = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        first = numbers[0] // 10 if numbers[0] > _CODES else numbers[0]
        shift = -2 * (ordered and 0 < first < _CDNA)
        yield Seen(rule="PY019", node=node, excerpt=module.excerpt(node), shift=shift)
    words = [text for text in map(text_of, sides) if text and text.startswith("gfx")]
    exact = isinstance(node.ops[0], ast.Eq | ast.NotEq) and bool(words) and ":" not in words[0]
    if exact and _is_made_of(module, sides, _GCN):
        yield Seen(rule="PY052", node=node, excerpt=module.excerpt(node))


def _numbers(node: ast.expr) -> list[float]:
    """Return the number that a node is, or all of a list of numbers; none for other nodes."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, int | float) else []
    parts = [_numbers(element) for element in elements(node)]
    return [number for part in parts for number in part] if all(parts) else []


def calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield methods of versions and architectures."""
    name = last_name(node.func)
    if not isinstance(node.func, ast.Attribute):
        return
    owner = node.func.value
    taken_apart = name in {"split", "partition"} and [text_of(a) for a in node.args[:1]] == ["_"]
    if taken_apart and _is_made_of(module, [owner], _ARCH_LIST):
        yield Seen(rule="PY019", node=node, excerpt=module.excerpt(node))
    if name in _OF_STRINGS and module.dotted(owner) != "torch.version.cuda":
        # `os.environ.get("X", torch.version.cuda).split(".")` is None unless X is set.
        values = module.scopes.values(owner) if module.names("version.cuda") else ()
        falls_back = isinstance(owner, ast.BoolOp) and len(values) > 1
        named = any(module.dotted(value) == "torch.version.cuda" for value in values)
        if named and not falls_back:
            yield Seen(rule="PY021", node=node, excerpt=module.excerpt(node))


def platforms(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `register_lowering(..., platform="cuda")` of JAX in a module that names no ROCm."""
    value = keyword(node, "platform")
    for_cuda = value is not None and text_of(value) in {"cuda", "CUDA"}
    if not for_cuda or not module.names("jax"):
        return
    if "rocm" not in {(text_of(text) or "").lower() for text in module.of(ast.Constant)}:
        yield Seen(rule="PY062", node=value or node, excerpt=module.excerpt(node.func))


def cuda_version(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield `torch.version.cuda.split(".")`, `Version(torch.version.cuda)`, slices and tests."""
    if module.dotted(node) != "torch.version.cuda":
        return
    parent = module.parents[node]
    match parent:
        case ast.Attribute():
            parsed = True
        case ast.Subscript(value=value):
            parsed = value is node
        case ast.Call(func=function, args=arguments):
            name = module.dotted(function).split(".")[-1]
            parsed = node in arguments and name in {"Version", "parse", "float", "LooseVersion"}
        case _:
            parsed = False
    if parsed:
        yield Seen(rule="PY021", node=parent, excerpt=module.excerpt(parent))


def tests(module: Module, node: ast.If | ast.IfExp | ast.While) -> Iterator[Seen]:
    """Yield tests that are true on NVIDIA alone, in a module that names nothing of AMD's."""
    truths = module.conditions.truths(node.test)
    alone = truths["amd"] is False and truths["nvidia"] is not False
    opposite = truths["amd"] is True and truths["nvidia"] is False
    if not (alone or opposite) or module.knows_hip:
        return
    # NVIDIA's own packages are behind such a test with good reason.
    body = node.body if isinstance(node, ast.If) else []
    if not any(imports_nvidia(inner) for statement in body for inner in ast.walk(statement)):
        by_version = "version.cuda" in module.source_of(node.test)
        excerpt = module.excerpt(node.test, 60)
        yield Seen(rule="PY022", node=node.test, excerpt=excerpt, shift=by_version - 1)


def failing_devices(module: Module, node: ast.Try) -> Iterator[Seen]:
    """Yield `try: nvmlInit() except: <go on with the CPU>`."""
    starts = (
        inner
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Call)
        and module.dotted(inner.func).endswith((".nvmlInit", "nvmlInit_v2"))
    )
    started = next(starts, None)
    for handler in node.handlers:
        source = "".join(map(module.source_of, handler.body))
        if started and any(word in source.lower() for word in ("cpu", "false", "= 0")):
            yield Seen(rule="PY015", node=started, excerpt="nvmlInit()")
            started = None


def home_as_switch(module: Module, node: ast.Name | ast.Attribute) -> Iterator[Seen]:
    """Yield `if CUDA_HOME is not None:` as the question which build this is."""
    last = module.dotted(node).split(".")[-1] if module.names("_HOME") else ""
    if last != "CUDA_HOME" or not isinstance(node.ctx, ast.Load):
        return
    test = _enclosing_test(module, node)
    text = module.source_of(test) if test is not None else ""
    if test and not re.search(r"hip|rocm", text, re.IGNORECASE):
        tested = module.parents.get(test)
        refuses = isinstance(tested, ast.If) and isinstance(tested.body[-1], ast.Raise)
        rule, worse = ("BL216", 1) if refuses else ("PY047", 0)
        yield Seen(rule=rule, node=node, excerpt=text, shift=worse - int(module.knows_hip))


def home_as_text(module: Module, node: ast.Name | ast.Attribute | ast.Call) -> Iterator[Seen]:
    """Yield `os.path.join(CUDA_HOME, "lib")`, `CUDA_HOME + "/lib"` and `os.environ["X"] = ...`."""
    home = node.func if isinstance(node, ast.Call) else node
    dotted = _HOMES.get(last_name(home))
    if dotted is None or module.dotted(home) != dotted:
        return
    parent = module.parents[node]
    match parent:
        case ast.Call(func=function, args=arguments):
            fails = node in arguments and module.dotted(function) in _OF_PATHS
        case ast.BinOp(op=ast.Add()):
            fails = True
        case ast.Assign(targets=[ast.Subscript(value=target)]):
            fails = module.dotted(target) == "os.environ"
        case _:
            fails = False
    if fails:
        yield Seen(rule="PY061", node=node, excerpt=module.excerpt(parent, 60))


_HOMES = {
    "CUDA_HOME": "torch.utils.cpp_extension.CUDA_HOME",
    "get_cuda_path": "cupy.cuda.get_cuda_path",
}
_OF_PATHS = frozenset({"os.path.join", "pathlib.Path"})


def _enclosing_test(module: Module, node: ast.AST) -> ast.AST | None:
    """Return the whole condition around the operand `node` (and/or/not and None checks)."""
    whole = node
    for parent, child in module.ancestors(node):
        compared = [*parent.comparators, parent.left] if isinstance(parent, ast.Compare) else []
        none = any(isinstance(side, ast.Constant) and side.value is None for side in compared)
        if none or isinstance(parent, ast.BoolOp | ast.UnaryOp):
            whole = parent
        elif isinstance(parent, ast.IfExp) and child is not parent.test:
            continue
        else:
            text = isinstance(parent, ast.IfExp) and text_of(parent.body) is not None
            tests = isinstance(parent, ast.If | ast.IfExp) and child is parent.test and not text
            assigned = isinstance(parent, ast.Assign) and child is whole is not node
            return whole if tests or assigned else None
    return None


def patched_packages(module: Module, node: ast.Constant | ast.Call) -> Iterator[Seen]:
    """Yield `shutil.copytree(ours, Path(transformers.__file__).parent)`, and texts that tell to
    copy files over those of an installed package.
    """
    if isinstance(node, ast.Constant):
        text = text_of(node) or ""
        instructs = "site-packages" in text and node not in module.docstrings
        if instructs and re.search(r"\b(?:cp|rsync|ln)\s+-\w+\s", text):
            yield Seen(rule="PY060", node=node, excerpt="site-packages")
    elif len(node.args) > 1 and module.dotted(node.func) in _COPIES:
        target = node.args[1]
        text = module.source_of(target) + module.source_of(module.scopes.one(target))
        if "site-packages" in text or re.search(r"\b[a-z]\w*\.__file__", text):
            yield Seen(rule="PY060", node=node, excerpt=module.excerpt(target))


_COPIES = frozenset(f"shutil.{name}" for name in ("copytree", "copy", "copyfile", "copy2"))
