"""The conditions, early exits, tries and decorators between the sides and a node. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.findings import SIDES, Gate, Side
from warpfront_port.scan.python.conditions import Conditions, VendorTruths, negated
from warpfront_port.scan.python.mentions import imports_nvidia
from warpfront_port.scan.python.module import Module
from warpfront_port.scan.python.nodes import FUNCTIONS, last_name

_AVAILABILITY = re.compile(
    r"(?:.*_)?(?:has|have|is|with|enable)?_*\w*(?:available|installed|exists|find_spec|importable)"
    r"|(?:_*)(?:has|have|enable|use)_\w+|hasattr|CUDA_HOME|CUDA_PATH",
    re.IGNORECASE,
)
_OPTIONS = frozenset({"sys.argv", "os.getenv()", "os.environ.get()"})
_TEST_FILE = re.compile(r"(?:test_.*|.*_test|tests?)\.py\Z")
_FLOW_DEPTH = 3
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SKIPS = frozenset({"skip", "skipTest"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The sides that reach a node, the gate, and the line of the decision (0: none)."""

    sides: frozenset[Side]
    gate: Gate
    line: int

    def along(self, later: Standing) -> Standing:
        """Return the standing of what passes both: the first gate and line count."""
        return Standing(
            sides=self.sides & later.sides,
            gate=self.gate if self.gate is not Gate.OPEN else later.gate,
            line=self.line or later.line,
        )


class Gates:
    """The sides that reach the nodes of one module, with their gates."""

    def __init__(
        self, module: Module, started: frozenset[str] = frozenset(), *, asks: bool = False
    ) -> None:
        """`asks` is true where the folder of a toolkit tells the vendors apart."""
        self._module = module
        self._started = started
        self._conditions = Conditions(module, asks=True) if asks else module.conditions
        self._file_gate = Gate.TEST if is_test(module.path) else Gate.OPEN
        self._values = dict[tuple[ast.AST, int], Standing]()

    def standing(self, node: ast.AST) -> Standing:
        """Return the sides that reach `node`, with the gate in front of it."""
        sides, line = frozenset(SIDES), 0
        soft, soft_line = Gate.OPEN, 0
        for parent, child in self._module.ancestors(node):
            for truths, where in (
                *self._of_parent(parent, child),
                *self._of_earlier(parent, child),
            ):
                lost = {side for side in sides if truths[side] is False}
                line = line or (where if lost else 0)
                sides -= lost
            if soft is Gate.OPEN:
                soft, soft_line = self._softened(parent, child), getattr(parent, "lineno", 0)
        gate, gate_line = self._file_gate, 0
        if gate is Gate.OPEN:
            owner = "" if self._module.builds_extensions else self._module.owner(node)
            if soft is not Gate.OPEN:
                gate, gate_line = soft, soft_line
            elif owner and owner not in self._module.started | self._started:
                gate = Gate.CALLED
        return Standing(sides=sides, gate=gate, line=line or gate_line)

    def of_value(self, node: ast.AST, depth: int = 0) -> Standing:
        """Return the standing of a value: sides reach it that reach its place, and a use of a name
        that it is given.
        """
        if (known := self._values.get((node, depth))) is not None:
            return known
        standing = self.standing(node)
        uses = self._module.uses(node) if depth < _FLOW_DEPTH else ()
        if later := [self.of_value(use, depth + 1) for use in uses]:
            sides = frozenset[Side]().union(*(use.sides for use in later))
            gate = later[0].gate if len({use.gate for use in later}) == 1 else Gate.OPEN
            standing = standing.along(Standing(sides=sides, gate=gate, line=later[0].line))
        self._values[node, depth] = standing  # paths are many more than values
        return standing

    def _of_parent(self, parent: ast.AST, child: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        """Yield what has to be true for `child` to run inside `parent`, with the line of each."""
        truths = self._conditions.truths
        match parent:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if (
                child is not test
            ):
                truth = truths(test)
                yield truth if _is_body(parent, child) else negated(truth), parent.lineno
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                tests = (t for g in parent.generators if child is not g for t in g.ifs)
                yield from ((truths(test), parent.lineno) for test in tests)
            case ast.BoolOp(op=operator, values=values) if child in values:
                both = isinstance(operator, ast.And)
                before = map(truths, values[: values.index(child)])
                yield from ((truth if both else negated(truth), parent.lineno) for truth in before)
            case _:
                pass

    def _of_earlier(self, parent: ast.AST, child: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        """Yield `if is_rocm: return` and `assert` earlier in the same block."""
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, name, None)
            if not isinstance(block, list) or child not in block:
                continue
            for statement in block[: block.index(child)]:
                if isinstance(statement, ast.If):
                    yield from self._of_exit(statement)
                elif isinstance(statement, ast.Assert):
                    yield self._conditions.truths(statement.test), statement.lineno

    def _of_exit(self, statement: ast.If) -> Iterator[tuple[VendorTruths, int]]:
        if _leaves(statement.body):
            yield negated(self._conditions.truths(statement.test)), statement.lineno
            for other in statement.orelse:
                if isinstance(other, ast.If):
                    yield from self._of_exit(other)
        elif _leaves(statement.orelse):
            yield self._conditions.truths(statement.test), statement.lineno

    def _softened(self, parent: ast.AST, child: ast.AST) -> Gate:
        """Return the gate of a try or a test that makes `child` optional."""
        soft = False
        match parent:
            case ast.Try(body=body, handlers=handlers) if child in handlers:
                # They run where a portable choice, of which nothing is NVIDIA's, is missing.
                nodes = list(_direct(body))
                imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
                soft = imports and not any(map(imports_nvidia, nodes))
            case ast.Try(body=body, handlers=handlers, orelse=orelse) if child in (*body, *orelse):
                soft = any(map(forgiving, handlers))
            case ast.BoolOp(op=ast.And(), values=values) if child in values:
                before = values[: values.index(child)]
                soft = any(map(self._asks_availability, before))
            case ast.If(test=test) | ast.IfExp(test=test) if _is_body(parent, child):
                soft = self._asks_availability(test)
                if not soft and self._asks_option(test):
                    return Gate.OPTION
            case ast.With(items=items):
                calls = [i.context_expr for i in items if isinstance(i.context_expr, ast.Call)]
                soft = any(last_name(call.func) == "suppress" for call in calls)
            case _:
                pass
        return Gate.AVAILABILITY if soft else Gate.OPEN

    def _asks_option(self, test: ast.expr) -> bool:
        """Return true for what a variable of the environment or a command line has to ask for."""
        asked = self._module.scopes.one(test)
        equals = isinstance(asked, ast.Compare) and isinstance(asked.ops[0], ast.Eq | ast.In)
        direct = equals or isinstance(asked, ast.Call)
        return direct and not _OPTIONS.isdisjoint(self._module.scopes.made_of(asked))

    def _asks_availability(self, test: ast.expr) -> bool:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(map(self._asks_availability, test.values))
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
            test = test.left
        name = self._module.dotted(test.func if isinstance(test, ast.Call) else test)
        truths = self._conditions.truths(test)
        # A GPU as torch sees it is there on AMD too: it is no evidence about a package.
        of_any_gpu = truths["nvidia"] == truths["amd"] and truths["other"] is False
        return _AVAILABILITY.fullmatch(name.split(".")[-1]) is not None and not of_any_gpu


def _is_body(parent: ast.If | ast.While | ast.IfExp, child: ast.AST) -> bool:
    return child in parent.body if isinstance(parent.body, list) else child is parent.body


def is_test(path: PurePosixPath) -> bool:
    """Return true for test code, which reports its own failures.

    conftest.py is no test code, since it decides what tests run.
    """
    folders = {part.lower() for part in path.parts[:-1]}
    named = _TEST_FILE.match(path.name) or not folders.isdisjoint({"tests", "test", "testing"})
    return bool(named) and path.name != "conftest.py"


def fails(block: list[ast.stmt]) -> bool:
    """Return true if a block ends with an error, or ends the program."""
    match block:
        case [*_, ast.Expr(value=ast.Call(func=function))]:
            return last_name(function) in {"exit", "_exit", "quit"}
        case _:
            return bool(block) and isinstance(block[-1], ast.Raise)


def _leaves(block: list[ast.stmt]) -> bool:
    match block:
        case [*_, ast.Expr(value=ast.Call(func=function))] if last_name(function) in _SKIPS:
            return True
        case _:
            return fails(block) or (bool(block) and isinstance(block[-1], _EXITS))


def forgiving(handler: ast.ExceptHandler) -> bool:
    """Return true if the handler continues without the package.

    A handler that raises, or imports another package of NVIDIA's, does not continue.
    """
    ends = _leaves(handler.body) and not isinstance(handler.body[-1], _EXITS)
    return not ends and not any(
        isinstance(node, ast.Raise) or imports_nvidia(node) for node in _direct(handler.body)
    )


def _direct(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of `body` that run with it: not those inside functions it defines."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
