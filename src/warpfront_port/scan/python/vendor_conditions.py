"""The value of a Python condition on NVIDIA, on AMD and on neither, as far as known. Pure.

There are three values: True, False, and None for a condition that the source does not decide. None
means that both arms are reached.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from warpfront_port.scan.findings import SIDES, Side
from warpfront_port.scan.python.module import Module, text_of

Truth = bool | None
VendorTruths = Mapping[Side, Truth]

UNKNOWN: Final[VendorTruths] = {"nvidia": None, "amd": None, "other": None}
_AMD: Final[VendorTruths] = {"nvidia": False, "amd": True, "other": False}
_MAYBE_AMD: Final[VendorTruths] = {"nvidia": False, "amd": None, "other": False}
_NVIDIA: Final[VendorTruths] = {"nvidia": True, "amd": False, "other": False}
_MAYBE_NVIDIA: Final[VendorTruths] = {"nvidia": None, "amd": False, "other": False}
_NEITHER: Final[VendorTruths] = {"nvidia": False, "amd": False, "other": None}
_MAYBE_GPU: Final[VendorTruths] = {"nvidia": None, "amd": None, "other": False}
_GPU: Final[VendorTruths] = {"nvidia": True, "amd": True, "other": False}

# Values of dotted names. `torch.cuda` works on both vendors: ROCm reuses it
# (https://docs.pytorch.org/docs/stable/notes/hip.html).
_FACTS: Final[Mapping[str, VendorTruths]] = {
    "torch.version.hip": _AMD,
    "torch.version.cuda": _NVIDIA,
    "torch.version.rocm": _AMD,
    "torch.utils.cpp_extension.IS_HIP_EXTENSION": _AMD,
    "torch.cuda.is_available": _GPU,
    "torch.backends.cuda.is_built": _GPU,
    "typing.TYPE_CHECKING": {"nvidia": False, "amd": False, "other": False},
}
# Which attributes every build has, and which none has.
_ATTRIBUTES: Final[Mapping[str, VendorTruths]] = {
    "torch.version.hip": {"nvidia": True, "amd": True, "other": True},
    "torch.version.cuda": {"nvidia": True, "amd": True, "other": True},
    "torch.hip": {"nvidia": False, "amd": False, "other": False},
}
_AMD_WORDS = r"(?:rocm|hip|amd|amdgpu|hcu|mi300x?|mi350x?|gfx\d\w*|cdna\d?|rdna\d?|navi\d*)"
_EXACT_AMD = re.compile(
    r"_*(?:is|on|running_on|torch_is|is_torch|use_torch)?_*"
    r"(?:rocm|hip|amd|amdgpu)(?:_pytorch|_platform|_gpu|_build|_extension|_environment|_backend)?"
    r"(?:_available)?_*\Z",
    re.IGNORECASE,
)
_LOOSE_AMD = re.compile(rf"(?:.*_)?{_AMD_WORDS}(?:_.*)?\Z", re.IGNORECASE)
_EXACT_NVIDIA = re.compile(
    r"_*(?:is|on)_+(?:nvidia|nv)(?:_gpu|_platform|_backend)?_*\Z", re.IGNORECASE
)
_NVIDIA_CALL = re.compile(r"_*is_cuda(?:_alike_no_hip|_platform)?\Z")
_LOOSE_NVIDIA = re.compile(
    r"(?:.*_)?(?:is_)?(?:nvidia|hopper|blackwell|ampere|sm\d\d\w?|h100|h200|a100)(?:_.*)?\Z",
    re.IGNORECASE,
)
_NEITHER_NAMES = re.compile(
    r"(?:.*_)?is_+(?:hpu|gaudi|cpu|xpu|npu|tpu|mps|musa)\w*\Z", re.IGNORECASE
)
_AMD_TEXT = re.compile(
    r"(?:(?:hip|rocm|amd|amdgpu|radeon|instinct)(?:[-_]\w+)?|gfx\w*)\Z", re.IGNORECASE
)
_NVIDIA_TEXT = re.compile(r"(?:nvidia|nvptx)(?:[-_]\w+)?\Z", re.IGNORECASE)
_BACKEND_NAME = re.compile(r"(?:.*_)?(?:backend|platform|vendor|gpu_type|target)\Z", re.IGNORECASE)
_DEPTH = 6
_MAX_TERMS = 400


class Conditions:
    """Evaluates tests of one module; definitions inside the module are followed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._values: dict[ast.expr, VendorTruths] = {}
        self._terms = 0
        self._asks = re.search(r"version\.hip|(?i:rocm)|IS_HIP", module.text) is not None
        self._handlers: Mapping[type[ast.expr], Callable[[Any, int], VendorTruths]] = {
            ast.Constant: lambda test, _: dict.fromkeys(SIDES, bool(test.value)),
            ast.UnaryOp: self._negated,
            ast.BoolOp: self._joined,
            ast.IfExp: self._chosen,
            ast.Compare: self._compared,
            ast.Name: self._named,
            ast.Attribute: self._named,
            ast.Call: self._called,
            ast.NamedExpr: lambda test, depth: self.truths(test.value, depth + 1),
            ast.Subscript: self._subscripted,
        }

    @classmethod
    def of(cls, module: Module) -> Conditions:
        """Return the conditions of `module`, cached."""
        conditions = module.memo.setdefault("conditions", cls(module))
        return conditions if isinstance(conditions, cls) else cls(module)

    def true_for(self, value: ast.expr) -> frozenset[Side]:
        """Return the sides on which every possible value of `value` is certainly true."""
        value = cast("ast.expr", self._module.scopes.one(value))
        if isinstance(value, ast.IfExp):
            condition = self.truths(value.test)
            yes, no = self.true_for(value.body), self.true_for(value.orelse)
            return frozenset(
                side
                for side in SIDES
                if (condition[side] is not False and side in yes)
                or (condition[side] is not True and side in no)
            )
        return frozenset(
            side
            for scope in self._module.scopes.values(value)
            if text_of(scope) is None
            for side, truth in self.truths(scope).items()
            if truth is True
        )

    def truths(self, test: ast.expr, depth: int = 0) -> VendorTruths:
        """Return the value of `test` on every side."""
        self._terms += 1
        if depth > _DEPTH or self._terms > _MAX_TERMS * (1 + len(self._module.nodes) // 50):
            return UNKNOWN
        handle = self._handlers.get(type(test))
        return UNKNOWN if handle is None else handle(test, depth)

    def by_default(self, test: ast.AST, side: Side, depth: int = 0) -> Truth:
        """Return the truth of a test on a side while no environment variable is set."""
        match test:
            case ast.BoolOp(op=operator, values=values) if depth < _DEPTH:
                parts = {self.by_default(value, side, depth + 1) for value in values}
                decides = isinstance(operator, ast.Or)
                if decides in parts:
                    return decides
                return None if None in parts else not decides
            case ast.expr():
                value = self._unset(test, depth)
                return self.truths(test)[side] if value is None else bool(value[0])
            case _:
                return None

    def _unset(self, node: ast.AST, depth: int) -> tuple[object] | None:
        """Return the value of an expression without environment variables, in a tuple."""
        inner = self._module.scopes.one(node)
        result: tuple[object] | None = None
        if depth > _DEPTH:
            return result
        match inner:
            case ast.Call(args=[ast.Constant(value=str()), *rest]) if (
                self._module.dotted(inner.func) in _ENVIRONMENT
            ):
                default = rest[0] if rest else ast.Constant(None)
                result = (default.value,) if isinstance(default, ast.Constant) else None
            case ast.Call(func=ast.Name(id="bool" | "int" | "str" as kind), args=[argument]):
                value = self._unset(argument, depth + 1)
                result = _cast_to(kind, value[0]) if value else None
            case ast.Call(func=ast.Attribute(attr="lower" | "upper" | "strip", value=text)):
                result = self._unset(text, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self._unset(operand, depth + 1)
                result = (not value[0],) if value else None
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                value = self._unset(left, depth + 1)
                result = _compared_to(value[0], operator, right) if value else None
            case _:
                pass
        return result

    def _negated(self, test: ast.UnaryOp, depth: int) -> VendorTruths:
        if not isinstance(test.op, ast.Not):
            return UNKNOWN
        return negated(self.truths(test.operand, depth + 1))

    def _joined(self, test: ast.BoolOp, depth: int) -> VendorTruths:
        parts = [self.truths(value, depth + 1) for value in test.values]
        return _all_of(parts) if isinstance(test.op, ast.And) else _any_of(parts)

    def _subscripted(self, test: ast.Subscript, depth: int) -> VendorTruths:
        table = test.value
        named = isinstance(table, ast.Name | ast.Attribute)
        if not (named and _LOOSE_AMD.match(_last_name(table))):
            return UNKNOWN
        return self.truths(table, depth + 1)

    def _chosen(self, test: ast.IfExp, depth: int) -> VendorTruths:
        condition = self.truths(test.test, depth + 1)
        yes, no = self.truths(test.body, depth + 1), self.truths(test.orelse, depth + 1)
        return {
            side: yes[side] if condition[side] else no[side] if condition[side] is False else None
            for side in SIDES
        }

    def _compared(self, test: ast.Compare, depth: int) -> VendorTruths:
        if len(test.ops) != 1:
            return UNKNOWN
        subject, operator, reference = test.left, test.ops[0], test.comparators[0]
        if isinstance(reference, ast.Constant) and (
            reference.value is None or reference.value in (True, False)
        ):
            # The values of names are truths of the name itself: a string, or None.
            expected = isinstance(operator, ast.Is | ast.Eq) == bool(reference.value)
            truths = self.truths(subject, depth + 1)
            return truths if expected else negated(truths)
        if isinstance(operator, ast.Eq | ast.In):
            return self._worded(subject, reference)
        if isinstance(operator, ast.NotEq | ast.NotIn):
            return negated(self._worded(subject, reference))
        return UNKNOWN

    def _worded(self, subject: ast.expr, reference: ast.expr) -> VendorTruths:
        """Return the value of `x == "hip"`, `"gfx942" in arch`, `backend in ("cuda", "hip")`."""
        words = [word for node in (subject, reference) for word in _words(node)]
        if words and all(_AMD_TEXT.match(word) for word in words):
            loose = any(word.lower().startswith("gfx") for word in words)
            return _MAYBE_AMD if loose else _AMD
        if words and all(_NVIDIA_TEXT.match(word) for word in words):
            return _NVIDIA
        if words == ["cuda"] and _BACKEND_NAME.match(_last_name(subject)):
            return _NVIDIA
        if words and all(word.startswith("cuda") for word in words) and _is_device(subject):
            return _MAYBE_GPU
        return UNKNOWN

    def matched(self, subject: ast.expr, pattern: ast.pattern) -> VendorTruths:
        """Return true if a `case` fits: a constant, one of several, or anything."""
        match pattern:
            case ast.MatchSingleton(value=value):
                truths = self.truths(subject)
                return truths if value else negated(truths)
            case ast.MatchValue(value=value):
                return self._worded(subject, value)
            case ast.MatchOr(patterns=patterns):
                return _any_of([self.matched(subject, pattern) for pattern in patterns])
            case ast.MatchAs(pattern=None):
                return dict.fromkeys(SIDES, True)
            case _:
                return UNKNOWN

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> VendorTruths:
        dotted = self._module.dotted(node)
        if dotted in _FACTS:
            return _FACTS[dotted]
        name = _last_name(node)
        if dotted in _HOMES and self._asks:
            return _HOMES[dotted]
        if name == "is_cuda" and isinstance(node, ast.Attribute):
            return _MAYBE_GPU
        defined = self._defined(node, depth)
        conventional = _by_convention(name)
        return {
            side: conventional[side] if defined[side] is None else defined[side] for side in SIDES
        }

    def _defined(self, node: ast.Name | ast.Attribute, depth: int) -> VendorTruths:
        """Return the value of a name's definition, where it tells vendors apart.

        A value that is the same for every vendor decides nothing, since a caller or another module
        may change a parameter or a module's flag.
        """
        if isinstance(node, ast.Name) and self._module.scopes.is_parameter(node):
            return UNKNOWN
        value = self._module.scopes.one(node)
        if value is node and isinstance(node, ast.Name):
            bound = [
                candidate
                for candidate in self._module.scopes.bound(node)
                if not _names(candidate, node.id)
            ]
            value = bound[0] if len(bound) == 1 and bound[0] is not None else node
        if value is node or not isinstance(value, ast.expr):
            return UNKNOWN
        if value not in self._values:
            self._values[value] = UNKNOWN  # a name that is defined by itself
            self._values[value] = self.truths(value, depth + 1)
        truths = self._values[value]
        return UNKNOWN if len(set(truths.values())) == 1 else truths

    def _called(self, call: ast.Call, depth: int) -> VendorTruths:
        dotted = self._module.dotted(call.func)
        if dotted in {"bool", "any", "all"} and len(call.args) == 1:
            return self.truths(call.args[0], depth + 1)
        if dotted == "getattr" and len(call.args) >= 2:
            dotted = f"{self._module.dotted(call.args[0])}.{text_of(call.args[1])}"
        if dotted in _FACTS:
            return _FACTS[dotted]
        if dotted == "hasattr" and len(call.args) == 2:
            attribute = f"{self._module.dotted(call.args[0])}.{text_of(call.args[1])}"
            return _ATTRIBUTES.get(attribute, UNKNOWN)
        if dotted in _ENVIRONMENT or dotted.endswith(_SEEKING):
            return _of_variable(call) if dotted in _ENVIRONMENT and self._asks else UNKNOWN
        name = _last_name(call.func)
        if name in {"startswith", "endswith"} and call.args:
            return _begun(call)
        return self._returned(name, depth)

    def _returned(self, name: str, depth: int) -> VendorTruths:
        """Return the result of a function of the module, or of this name by convention.

        A constant result decides nothing, since a subclass may override the function.
        """
        returned = self._module.returned.get(name, ())
        truths = self.truths(returned[0], depth + 1) if len(returned) == 1 else UNKNOWN
        if len(set(truths.values())) > 1:
            return truths
        return _MAYBE_NVIDIA if _NVIDIA_CALL.match(name) else _by_convention(name)


def _cast_to(kind: str, value: object) -> tuple[object] | None:
    if kind == "bool":
        return (bool(value),)
    if kind == "str":
        return (str(value),)
    text = str(value)
    return (int(text),) if re.fullmatch(r"-?\d{1,9}", text) else None


def _compared_to(value: object, operator: ast.cmpop, reference: ast.expr) -> tuple[object] | None:
    try:
        other = ast.literal_eval(reference)
    except (ValueError, TypeError):
        return None
    match operator:
        case ast.Eq() | ast.Is():
            return (value == other,)
        case ast.NotEq() | ast.IsNot():
            return (value != other,)
        case ast.In() if isinstance(other, tuple | list | set):
            return (value in other,)
        case ast.NotIn() if isinstance(other, tuple | list | set):
            return (value not in other,)
    return None


def _names(value: ast.expr | None, name: str) -> bool:
    """Return true if a name is assigned a value made of itself: `X = X.strip()`."""
    nodes = ast.walk(value) if value is not None else ()
    return any(isinstance(node, ast.Name) and node.id == name for node in nodes)


def _of_variable(call: ast.Call) -> VendorTruths:
    """Return the value of `os.getenv("CUDA_VERSION")`, which is unset in builds for AMD."""
    name = text_of(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else ast.Constant(None)
    if not isinstance(default, ast.Constant) or default.value or name is None:
        return UNKNOWN
    if _OF_CUDA.match(name):
        return _MAYBE_NVIDIA
    return _MAYBE_AMD if _OF_ROCM.match(name) else UNKNOWN


_SEEKING = ("hasattr", "find_spec", "exists", "isdir", "isfile")
_ENVIRONMENT = frozenset({"os.getenv", "os.environ.get"})
_OF_CUDA = re.compile(r"CUDA_(?:VERSION|HOME|PATH)\Z|CUDACXX\Z|NVCC")
_OF_ROCM = re.compile(r"ROCM_(?:VERSION|HOME|PATH)\Z|HIP_(?:VERSION|HOME|PATH)\Z|HIPCC")
# For a build that tests for ROCm too: torch finds the home of its own vendor alone.
_HOMES: Final[Mapping[str, VendorTruths]] = {
    "torch.utils.cpp_extension.CUDA_HOME": _MAYBE_NVIDIA,
    "torch.utils.cpp_extension.ROCM_HOME": _MAYBE_AMD,
}


def _begun(call: ast.Call) -> VendorTruths:
    """Return the value of `arch.startswith("gfx9")`, `device.startswith("cuda")`."""
    words = _words(call.args[0])
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if words and _is_device(owner) and all(word.startswith("cuda") for word in words):
        return _MAYBE_GPU
    return _MAYBE_AMD if any(_AMD_TEXT.match(word) for word in words) else UNKNOWN


def _by_convention(name: str) -> VendorTruths:
    """Return the conventional meaning of a flag's name: `is_rocm`, `_is_hip`, `USE_ROCM`."""
    for pattern, truths in (
        (_EXACT_AMD, _AMD),
        (_EXACT_NVIDIA, _NVIDIA),
        (_NEITHER_NAMES, _NEITHER),
        (_LOOSE_AMD, _MAYBE_AMD),
        (_LOOSE_NVIDIA, _MAYBE_NVIDIA),
    ):
        if pattern.match(name):
            return truths
    return UNKNOWN


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return ""


def _is_device(node: ast.AST) -> bool:
    """Return true for a device or its type, by its name: `x.device.type`, `dst_device`."""
    name = _last_name(node)
    owner = node.value if isinstance(node, ast.Attribute) else node
    return "device" in name or (name == "type" and "device" in _last_name(owner))


def _words(node: ast.AST) -> list[str]:
    nodes = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [text for text in map(text_of, nodes) if text is not None]


def negated(truths: VendorTruths) -> VendorTruths:
    return {side: None if truth is None else not truth for side, truth in truths.items()}


def _all_of(parts: list[VendorTruths]) -> VendorTruths:
    return {
        side: False
        if any(part[side] is False for part in parts)
        else (True if all(part[side] for part in parts) else None)
        for side in SIDES
    }


def _any_of(parts: list[VendorTruths]) -> VendorTruths:
    return negated(_all_of([negated(part) for part in parts]))
