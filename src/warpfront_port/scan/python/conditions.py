"""The truth of a Python condition on NVIDIA, on AMD and on neither, as far as known. Pure.

Both arms of an unknown one are reached. A truth that is the same for every vendor decides nothing
where another module or a caller may change it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from warpfront.system.packaged import packaged_toml
from warpfront_port.scan.findings import SIDES, Side
from warpfront_port.scan.python.nodes import elements, last_name, text_of

if TYPE_CHECKING:
    from warpfront_port.scan.python.module import Module

Truth = bool | None
VendorTruths = Mapping[Side, Truth]


def _on(marks: str) -> VendorTruths:
    """Return the truth on NVIDIA, AMD and other devices: `+`, `-`, or `?` for unknown."""
    truths = ({"+": True, "-": False}.get(mark) for mark in marks)
    return dict(zip(SIDES, truths, strict=True))


UNKNOWN: Final = _on("???")
AMD: Final = _on("-+-")
_MAYBE_AMD: Final = _on("-?-")
_NVIDIA: Final = _on("+--")
_MAYBE_NVIDIA: Final = _on("?--")
_MAYBE_GPU: Final = _on("??-")
_FACTS, _ATTRIBUTES, _HOMES, _CONVENTIONS = (
    {name: _on(marks) for name, marks in table.items()}
    for table in packaged_toml("vendor-names.toml", package="warpfront_port").values()
)


def _fitting(table: Mapping[str, VendorTruths], name: str) -> VendorTruths:
    """Return the truths of the first expression of a table that matches a name."""
    return next((truths for pattern, truths in table.items() if re.match(pattern, name)), UNKNOWN)


_NVIDIA_CALL = re.compile(r"_*is_cuda(?:_alike_no_hip|_platform)?\Z")
_AMD_TEXT = re.compile(r"(?i)(?:(?:hip|rocm|amd|amdgpu|radeon|instinct)(?:[-_]\w+)?|gfx\w*)\Z")
_NVIDIA_TEXT = re.compile(r"(?i)(?:nvidia|nvptx)(?:[-_]\w+)?\Z")
_BACKEND_NAME = re.compile(r"(?i)(?:.*_)?(?:backend|platform|vendor|gpu_type|target)\Z")
_SEEKING = ("hasattr", "find_spec", "exists", "isdir", "isfile")
_NVIDIA_PROGRAMS = frozenset({"nvcc", "nvidia-smi"})
_CASTS = frozenset({"bool", "any", "all", "str"})
_METHODS = frozenset({"lower", "upper", "strip", "casefold"})
_ENVIRONMENT = frozenset({"os.getenv", "os.environ.get"})
_DEPTH = 40


class Conditions:
    """Evaluates tests of one module; definitions inside the module are followed."""

    def __init__(self, module: Module, *, asks: bool, unset: bool = False) -> None:
        """`asks` is true where the folder of a toolkit tells the vendors apart. `unset` gives
        variables of the environment their defaults.
        """
        self._module = module
        self._unset = unset
        self._known: dict[tuple[ast.AST, Side], Truth] = {}
        self._depth = 0
        self._asks = asks

    def truths(self, test: ast.expr) -> VendorTruths:
        """Return the truth of `test` on every side."""
        return {side: self._truth(test, side) for side in SIDES}

    def _truth(self, node: ast.AST, side: Side) -> Truth:
        key = (node, side)
        if key not in self._known:
            self._known[key] = None  # of a name that is made of itself
            if self._depth < _DEPTH:
                self._depth += 1
                self._known[key] = self._evaluated(node, side)
                self._depth -= 1
        return self._known[key]

    def _evaluated(self, node: ast.AST, side: Side) -> Truth:
        truth: Truth = None
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                truth = _negated(self._truth(inner, side))
            case ast.BoolOp(op=joining, values=values):
                parts = {self._truth(value, side) for value in values}
                decides = isinstance(joining, ast.Or)
                truth = decides if decides in parts else None if None in parts else not decides
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self._truth(test, side)
                truth = None if chosen is None else self._truth(body if chosen else orelse, side)
            case ast.Compare(
                left=ast.Call(func=asked, args=[_, ast.Constant(value=default)]),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=wanted)],
            ) if self._unset and self._module.dotted(asked) in _ENVIRONMENT:
                truth = default == wanted
            case ast.Compare(ops=[_]):
                truth = self._compared(node, side)
            case ast.Constant(value=constant):
                truth = bool(constant)
            case ast.NamedExpr(value=inner):
                truth = self._truth(inner, side)
            case ast.Subscript(value=ast.Name() | ast.Attribute() as table):
                named = _fitting(_CONVENTIONS, last_name(table))["nvidia"] is False
                truth = self._truth(table, side) if named else None
            case ast.Name() | ast.Attribute():
                truth = self._named(node, side)
            case ast.Call(func=ast.Attribute(value=text, attr=name), args=[]) if name in _METHODS:
                truth = self._truth(text, side)
            case ast.Call():
                truth = self._called(node, side)
            case _:
                pass
        return truth

    def _compared(self, test: ast.Compare, side: Side) -> Truth:
        comparing, operand = test.ops[0], test.comparators[0]
        positive = isinstance(comparing, ast.Eq | ast.Is | ast.In)
        if not positive and not isinstance(comparing, ast.NotEq | ast.IsNot | ast.NotIn):
            # A version that is 0 or None on a side is less than any number.
            missing = self._truth(test.left, side) is False and isinstance(operand, ast.Constant)
            return isinstance(comparing, ast.Lt | ast.LtE) if missing else None
        truth = _of_words(test.left, operand)[side]
        if isinstance(operand, ast.Constant) and (
            operand.value is None or operand.value in (True, False)
        ):
            # The values of names are truths of the name itself: a string, or None.
            value = self._truth(test.left, side)
            truth = value if operand.value else _negated(value)
        return truth if positive else _negated(truth)

    def _named(self, node: ast.Name | ast.Attribute, side: Side) -> Truth:
        dotted = self._module.dotted(node)
        facts = _FACTS.get(dotted) or (_HOMES.get(dotted) if self._asks else None)
        if facts is None and isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            facts = _MAYBE_GPU
        if facts is None:
            value = self._module.scopes.one(node)
            facts = UNKNOWN if value is node else self._defined(value)
        if facts is UNKNOWN:
            facts = _fitting(_CONVENTIONS, last_name(node))
        return facts[side]

    def _defined(self, value: ast.AST) -> VendorTruths:
        """Return the truths of a definition where it tells vendors apart, else unknown.

        Others decide nothing: callers and other modules may change a flag, subclasses a function.
        """
        truths = self.truths(cast("ast.expr", value))
        return truths if len({*truths.values()}) > 1 else UNKNOWN

    def _called(self, call: ast.Call, side: Side) -> Truth:
        dotted, name = self._module.dotted(call.func), last_name(call.func)
        facts: VendorTruths | None = _FACTS.get(dotted)
        match call:
            case ast.Call() if dotted == "getattr":
                facts = _FACTS.get(self._module.dotted(call))
            case ast.Call(args=[program, *_]) if name == "which":
                facts = _MAYBE_NVIDIA if text_of(program) in _NVIDIA_PROGRAMS else UNKNOWN
            case ast.Call(args=[inner]) if dotted in _CASTS:
                return self._truth(inner, side)
            case ast.Call(args=[owner, attribute]) if dotted == "hasattr":
                path = f"{self._module.dotted(owner)}.{text_of(attribute)}"
                facts = _ATTRIBUTES.get(path, UNKNOWN)
            case _:
                facts = UNKNOWN if dotted.endswith(_SEEKING) else facts
        if facts is None:  # the result of a function of the module, or of this name by convention
            returned = self._module.returned.get(name, ())
            facts = self._defined(returned[0]) if len(returned) == 1 else UNKNOWN
            if facts is UNKNOWN:
                of_nvidia = _NVIDIA_CALL.match(name) or self._tries_nvidia(name)
                facts = _MAYBE_NVIDIA if of_nvidia else _fitting(_CONVENTIONS, name)
        return facts[side]

    def _tries_nvidia(self, name: str) -> bool:
        """Return true for a function that answers yes or no after a program of NVIDIA's alone."""
        function, returned = self._module.functions.get(name), self._module.returned.get(name, ())
        answers = bool(returned) and all(isinstance(value, ast.Constant) for value in returned)
        return (
            function is not None
            and answers
            and not self._module.knows_hip
            and any(text_of(node) in _NVIDIA_PROGRAMS for node in ast.walk(function))
        )


def _negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def negated(truths: VendorTruths) -> VendorTruths:
    return {side: _negated(truth) for side, truth in truths.items()}


def _of_words(subject: ast.expr, reference: ast.expr) -> VendorTruths:
    """Return the value of `x == "hip"`, `"gfx942" in arch`, `backend in ("cuda", "hip")`."""
    nodes = [n for side in (subject, reference) for n in (elements(side) or [side])]
    words = [text for text in map(text_of, nodes) if text is not None]
    if not words:
        return UNKNOWN
    if all(map(_AMD_TEXT.match, words)):
        return _MAYBE_AMD if any(word.lower().startswith("gfx") for word in words) else AMD
    if all(map(_NVIDIA_TEXT.match, words)):
        return _NVIDIA
    if words == ["cuda"] and _BACKEND_NAME.match(_name_of(subject)):
        return _NVIDIA
    # A device or its type, by its name: `x.device.type`, `dst_device`.
    owner = subject.value if isinstance(subject, ast.Attribute) else subject
    names = _name_of(subject), _name_of(owner)
    device = "device" in names[0] or (names[0] == "type" and "device" in names[1])
    if device and all(word.startswith("cuda") for word in words):
        return _MAYBE_GPU
    return UNKNOWN


def _name_of(node: ast.AST) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)
