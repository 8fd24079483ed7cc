"""The value of a Python condition on NVIDIA, on AMD and on neither, as far as known. Pure.

A value is a constant, or only true or false, or unknown: then both arms are reached. A value that
is the same for every vendor decides nothing where another module or a caller may change it. An
environment variable has its default for `unset`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from warpfront.system.packaged import packaged_toml
from warpfront_port.scan.findings import SIDES, Side
from warpfront_port.scan.python.nodes import elements, keyword, last_name, text_of

if TYPE_CHECKING:
    from warpfront_port.scan.python.module import Module

Truth = bool | None
VendorTruths = Mapping[Side, Truth]
World = tuple[Side, bool]
"""A side, and true while no environment variable is set."""


class _Vague(Enum):
    """A value of which nothing but its truth is known, if that."""

    UNKNOWN = None
    TRUE = True
    FALSE = False

    def __bool__(self) -> bool:
        return self is _Vague.TRUE


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
_NVIDIA_PROGRAM = re.compile(r"\s*(?:\S*/)?(?:nvcc|nvidia-smi)(?:\s|\Z)")
_RAISING = frozenset({"run", "call", "check_call", "check_output", "Popen"})
_BACKEND_NAME = re.compile(r"(?i)(?:.*_)?(?:backend|platform|vendor|gpu_type|target)\Z")
_SEEKING = ("hasattr", "find_spec", "exists", "isdir", "isfile")
_ENVIRONMENT = frozenset({"os.getenv", "os.environ.get"})
_DEPTH = 40


class Conditions:
    """Evaluates tests of one module; definitions inside the module are followed."""

    def __init__(self, module: Module, *, asks: bool) -> None:
        """`asks` is true where the folder of a toolkit tells the vendors apart."""
        self._module = module
        self._values: dict[tuple[ast.AST, Side, bool], object] = {}
        self._depth = 0
        self._asks = asks

    def truths(self, test: ast.expr) -> VendorTruths:
        """Return the truth of `test` on every side."""
        return {side: self.truth(test, side) for side in SIDES}

    def truth(self, test: ast.expr, side: Side, *, unset: bool = False) -> Truth:
        """Return the truth of `test` on a side; for `unset`, while no environment variable is."""
        value = self._value(test, (side, unset))
        return None if value is _Vague.UNKNOWN else bool(value)

    def _value(self, node: ast.AST, world: World) -> object:
        key = (node, *world)
        if key not in self._values:
            self._values[key] = _Vague.UNKNOWN  # of a name that is made of itself
            if self._depth < _DEPTH:
                self._depth += 1
                self._values[key] = self._evaluated(node, world)
                self._depth -= 1
        return self._values[key]

    def _evaluated(self, node: ast.AST, world: World) -> object:
        result: object = _Vague.UNKNOWN
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                result = _negated(self._value(inner, world))
            case ast.BoolOp(op=joining, values=values):
                parts = {self.truth(value, world[0], unset=world[1]) for value in values}
                decides = isinstance(joining, ast.Or)
                if decides in parts or None not in parts:
                    result = decides if decides in parts else not decides
            case ast.IfExp(test=test, body=body, orelse=orelse):
                truth = self.truth(test, world[0], unset=world[1])
                if truth is not None:
                    result = self._value(body if truth else orelse, world)
            case ast.Compare(ops=[ast.In() | ast.Eq()]) if world[1] and self._asks_arguments(node):
                result = False
            case ast.Compare(left=operand, ops=[_]):
                result = self._compared(self._value(operand, world), node, world[0])
            case _:
                result = self._of_operand(node, world)
        return result

    def _of_operand(self, node: ast.AST, world: World) -> object:
        result: object = _Vague.UNKNOWN
        match node:
            case ast.Constant(value=constant):
                result = constant
            case ast.NamedExpr(value=inner):
                result = self._value(inner, world)
            case ast.Subscript(value=ast.Name() | ast.Attribute() as table):
                named = _fitting(_CONVENTIONS, last_name(table))["nvidia"] is False
                result = self._value(table, world) if named else _Vague.UNKNOWN
            case ast.Name() | ast.Attribute():
                result = self._named(node, world)
            case ast.Call(func=ast.Attribute(value=text, attr=name), args=[]) if name in _METHODS:
                value = self._value(text, world)
                result = getattr(value, name)() if isinstance(value, str) else value
            case ast.Call():
                result = self._called(node, world)
            case _:
                pass
        return result

    def _compared(self, value: object, test: ast.Compare, side: Side) -> object:
        comparing, operand = test.ops[0], test.comparators[0]
        literal = _literal(operand)
        if (order := _ORDERS.get(type(comparing))) is not None:
            numbers = isinstance(value, int | float) and isinstance(literal, int | float)
            return order(value, literal) if numbers else _Vague.UNKNOWN
        positive = isinstance(comparing, ast.Eq | ast.Is | ast.In)
        result: object = _Vague(_of_words(test.left, operand)[side])
        if not isinstance(value, _Vague) and not isinstance(literal, _Vague):
            within = isinstance(comparing, ast.In | ast.NotIn)
            among = literal if within and isinstance(literal, tuple) else (literal,)
            return (value in among) is positive
        if isinstance(operand, ast.Constant) and (
            operand.value is None or operand.value in (True, False)
        ):
            # The values of names are truths of the name itself: a string, or None.
            result = value if operand.value else _negated(value)
        return result if positive else _negated(result)

    def _named(self, node: ast.Name | ast.Attribute, world: World) -> object:
        dotted = self._module.dotted(node)
        facts = _FACTS.get(dotted) or (_HOMES.get(dotted) if self._asks else None)
        if facts is None and isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            facts = _MAYBE_GPU
        if facts is not None:
            return _Vague(facts[world[0]])
        scopes = self._module.scopes
        value = scopes.one(node)
        defined: object = _Vague.UNKNOWN if value is node else self._defined(value, world)
        if defined is _Vague.UNKNOWN and isinstance(node, ast.Name):
            values = () if scopes.is_parameter(node) else scopes.bound(node)
            defined = self._remaining(values, world)
        if defined is _Vague.UNKNOWN:
            return _Vague(_fitting(_CONVENTIONS, last_name(node))[world[0]])
        return defined

    def _asks_arguments(self, test: ast.Compare) -> bool:
        """Return true for `"--fast" in sys.argv`, and `argument == "--fast"` of one of them."""
        return "sys.argv" in self._module.scopes.made_of(test)

    def _defined(self, value: ast.AST, world: World) -> object:
        """Return the value of a definition where it tells vendors apart, or the environment has it.

        Others decide nothing: callers and other modules may change a flag, subclasses a function.
        """
        truths = set(self.truths(cast("ast.expr", value)).values())
        if len(truths) > 1 or (world[1] and truths == {None}):
            return self._value(value, world)
        return _Vague.UNKNOWN

    def _called(self, call: ast.Call, world: World) -> object:
        dotted, name = self._module.dotted(call.func), last_name(call.func)
        if dotted == "getattr" and len(call.args) >= 2:
            dotted = f"{self._module.dotted(call.args[0])}.{text_of(call.args[1])}"
        facts: VendorTruths | None = _FACTS.get(dotted)
        match call:
            case ast.Call(args=[inner]) if dotted in _CASTS:
                value = self._value(inner, world)
                digits = dotted == "int" and re.fullmatch(r"-?\d{1,9}", str(value))
                return int(str(value)) if digits else value
            case ast.Call(args=[ast.Constant(), *rest]) if dotted in _ENVIRONMENT:
                default = _literal(rest[0]) if rest else None
                return default if world[1] else _Vague.UNKNOWN
            case ast.Call(args=[owner, attribute]) if dotted == "hasattr":
                path = f"{self._module.dotted(owner)}.{text_of(attribute)}"
                facts = _ATTRIBUTES.get(path, UNKNOWN)
            case ast.Call() if self._needs_nvidia(call, {"which"}):
                facts = _MAYBE_NVIDIA
            case _:
                facts = UNKNOWN if dotted.endswith(_SEEKING) else facts
        if facts is None:  # the result of a function of the module, or of this name by convention
            returned = self._module.returned.get(name, ())
            alone = len(returned) == 1
            value = self._defined(returned[0], world) if alone else self._remaining(returned, world)
            if value is not _Vague.UNKNOWN:
                return value
            facts = _MAYBE_NVIDIA if _NVIDIA_CALL.match(name) else _fitting(_CONVENTIONS, name)
        return _Vague(facts[world[0]])

    def _remaining(self, values: Sequence[ast.expr | None], world: World) -> object:
        """Return the one value that remains of those that are reached in this world."""
        remaining = [
            value for value in values if value is None or not self._is_missed(value, world)
        ]
        if len(remaining) == len(values):
            return _Vague.UNKNOWN
        results = {self._value(value, world) if value else _Vague.UNKNOWN for value in remaining}
        return _Vague.UNKNOWN if len(results) > 1 else next(iter(results), None)

    def _is_missed(self, value: ast.expr, world: World) -> bool:
        """Return true behind an option of a command line that is not set, and after the start of a
        program of NVIDIA's, whose failure a try catches.
        """
        starts = any(name in self._module.text for name in ("nvcc", "nvidia-smi"))
        for parent, child in self._module.ancestors(value):
            if isinstance(parent, ast.If) and isinstance(parent.test, ast.Compare) and world[1]:
                if child in parent.body and self._asks_arguments(parent.test):
                    return True
            elif isinstance(parent, ast.Try) and starts and world[0] != "nvidia":
                block = [*parent.body, *parent.orelse]
                before = block[: block.index(child) + 1] if child in block else []
                if any(self._needs_nvidia(n, _RAISING) for s in before for n in ast.walk(s)):
                    return True
        return False

    def _needs_nvidia(self, node: ast.AST, names: Collection[str]) -> bool:
        """Return true if a call of one of `names` starts a program that NVIDIA alone has."""
        if not isinstance(node, ast.Call) or last_name(node.func) not in names:
            return False
        heads = [text.text for text in self._module.scopes.heads(node)]
        by_shell = keyword(node, "shell") is not None
        return bool(heads) and not by_shell and all(map(_NVIDIA_PROGRAM.match, heads))


_CASTS = frozenset({"bool", "any", "all", "int", "str"})
_ORDERS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_METHODS = frozenset({"lower", "upper", "strip", "casefold"})


def _literal(node: ast.expr) -> object:
    """Return the constant, or the tuple of constants, that a node is; unknown for another one."""
    if isinstance(node, ast.Constant):
        return node.value
    constants = [element.value for element in elements(node) if isinstance(element, ast.Constant)]
    listed = bool(constants) and len(constants) == len(elements(node))
    return tuple(constants) if listed else _Vague.UNKNOWN


def _negated(value: object) -> object:
    return _Vague.UNKNOWN if value is _Vague.UNKNOWN else not value


def negated(truths: VendorTruths) -> VendorTruths:
    return {side: None if truth is None else not truth for side, truth in truths.items()}


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
