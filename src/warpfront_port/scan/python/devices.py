"""Rules about telling which device there is: names, capabilities, versions, libraries. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.gates import Gates, fails
from warpfront_port.scan.python.mentions import imports_nvidia
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import elements, last_name, text_of

# What a compared value is made of, by its dotted names.
_CAPABILITY = re.compile(r"get_device_capability\(\)|get_device_properties\(\)\.(?:major|minor)\Z")
_GCN = re.compile(r"\.gcnArchName\w*\Z")
_OF_STRINGS = frozenset({"split", "replace", "startswith", "rsplit", "partition", "strip"})
_TAKE_TEXT = frozenset({"Version", "parse", "float", "LooseVersion", "join", "Path"})
_NONE_ON_AMD = {
    "torch.version.cuda": "PY021",
    "torch.utils.cpp_extension.CUDA_HOME": "PY061",
    "cupy.cuda.get_cuda_path": "PY061",
}
_NONE_SHORT = re.compile(r"version\.cuda|CUDA_HOME|get_cuda_path")
_OF_DEVICES = re.compile(r"(?i)gpu|cuda|device|avail")
_WITHOUT_DEVICE = re.compile(rf"\bcpu\b|(?:{_OF_DEVICES.pattern[4:]})\w*\s*=\s*(?:false|0)\b")
_CDNA = 9
_CODES = 20


def _is_made_of(module: Module, nodes: list[ast.expr], names: re.Pattern[str]) -> bool:
    return any(names.search(name) for node in nodes for name in module.scopes.made_of(node))


def comparisons(module: Module, node: ast.Compare) -> Iterator[Seen]:
    """Yield compared compute capabilities and gfx names."""
    sides = [node.left, *node.comparators]
    literals = [side for side in sides if isinstance(side, ast.Constant) or elements(side)]
    parts = [getattr(part, "value", None) for side in literals for part in ast.walk(side)]
    numbers = [value for value in parts if isinstance(value, int | float)]
    if numbers and _is_made_of(module, sides, _CAPABILITY):
        # Every GPU of AMD's reports 9 or more: `>= 8` takes the arm of newer ones, which most often
        # fits them too.
        ordered = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        first = numbers[0] // 10 if numbers[0] > _CODES else numbers[0]
        old = ordered and 0 < first < _CDNA
        # A tuning that AMD's number takes may be too large for it.
        tuning = _is_tuning(module, node)
        quiet = old or (tuning and first < _CDNA)
        yield Seen("PY019", node, shift=-2 if quiet else -int(tuning))
    words = [text for text in map(text_of, sides) if text and text.startswith("gfx")]
    exact = isinstance(node.ops[0], ast.Eq | ast.NotEq) and bool(words) and ":" not in words[0]
    if exact and _is_made_of(module, sides, _GCN):
        yield Seen("PY052", node)


def _is_tuning(module: Module, test: ast.AST) -> bool:
    """Return true if every arm of a test only chooses numbers, such as the sizes of a tile."""
    arms: list[ast.AST] = []
    match module.parents[test]:
        case ast.If(test=own, body=body, orelse=others) if own is test:
            arms = [*body, *others]
        case ast.IfExp(test=own, body=value, orelse=other) if own is test:
            arms = [value, other]
        case _:
            pass
    return bool(arms) and all(
        _is_tuning(module, arm.test)
        if isinstance(arm, ast.If | ast.IfExp)
        else _is_number(arm.value if isinstance(arm, ast.Assign | ast.Return) else arm)
        for arm in arms
    )


def _is_number(node: ast.AST | None) -> bool:
    parts = [node, *elements(node)]
    numbers = [type(part.value) for part in parts if isinstance(part, ast.Constant)]
    return bool(numbers) and {*numbers} <= {int, float}


def needed_texts(
    module: Module, node: ast.Call | ast.Subscript | ast.BinOp | ast.Assign
) -> Iterator[Seen]:
    """Yield uses as text of what is None on AMD: `torch.version.cuda[:2]`, `CUDA_HOME + "/lib"`."""
    if not module.has_match(_NONE_SHORT):
        return
    texts: list[ast.expr] = []
    match node:
        case ast.Subscript(value=ast.Attribute() as text):
            texts = [text]
        case ast.BinOp(op=ast.Add()):
            texts = [node.left, node.right]
        case ast.Call(func=ast.Attribute(value=text, attr=name)) if name in _OF_STRINGS:
            texts = [text]
        case ast.Call() if last_name(node.func) in _TAKE_TEXT:
            texts = node.args
        case ast.Assign(targets=[ast.Subscript(value=target)]) if (
            module.dotted(target) == "os.environ"
        ):
            texts = [node.value]
        case _:
            pass
    # `os.environ.get("X", torch.version.cuda).split(".")` is None unless X is set; `str(None)` is
    # a text.
    sure = (
        text
        for text in texts
        if not isinstance(text, ast.BoolOp) and last_name(getattr(text, "func", text)) != "str"
    )
    values = (value for text in sure for value in module.scopes.values(text))
    names = (module.dotted(v.func if isinstance(v, ast.Call) else v) for v in values)
    rule = next(filter(None, map(_NONE_ON_AMD.get, names)), None)
    # What asks for it first is not reached there.
    if rule and "amd" in Gates(module, asks=True).standing(node).sides:
        yield Seen(rule, node)


def tests(module: Module, node: ast.If | ast.IfExp | ast.While) -> Iterator[Seen]:
    """Yield tests that are true on NVIDIA alone, or whose arm for AMD fails, in a module that
    names nothing of AMD's.
    """
    if module.knows_hip:
        return
    truths = module.conditions.truths(node.test)
    on_amd = truths["amd"]
    if on_amd is None or truths["nvidia"] is on_amd:
        return
    if isinstance(node, ast.If) and fails(node.body if on_amd else node.orelse):
        yield Seen("PY022", node.test, shift=1)
        return
    if on_amd and truths["nvidia"] is None:
        return
    # NVIDIA's own packages are behind such a test with good reason.
    body = node.body if isinstance(node, ast.If) else []
    if not any(imports_nvidia(inner) for statement in body for inner in ast.walk(statement)):
        by_version = "version.cuda" in module.source_of(node.test)
        yield Seen("PY022", node.test, shift=by_version - 1)


def failing_devices(module: Module, node: ast.Try) -> Iterator[Seen]:
    """Yield `try: nvmlInit() except: <go on with the CPU>`."""
    inner = (each for statement in node.body for each in ast.walk(statement))
    starts = (c for c in inner if isinstance(c, ast.Call) and "nvmlInit" in last_name(c.func))
    ends = "\n".join(module.source_of(each) for h in node.handlers for each in h.body).lower()
    names = _OF_DEVICES.search(getattr(module.scope(node), "name", ""))
    decides = _WITHOUT_DEVICE.search(ends) or (names and re.search(r"return (?:false|0)\b", ends))
    if decides and (started := next(starts, None)):
        yield Seen("PY015", started, "nvmlInit()")
