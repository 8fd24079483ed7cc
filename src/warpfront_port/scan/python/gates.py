"""The conditions, early exits, tries and decorators between the sides and a node. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.findings import SIDES, Gate, Side
from warpfront_port.scan.python.module import FUNCTIONS, Module
from warpfront_port.scan.python.tables import imports_nvidia
from warpfront_port.scan.python.vendor_conditions import Conditions, VendorTruths, negated

_CAUGHT = frozenset(
    {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError"}
    | {"FileNotFoundError", "RuntimeError", "AttributeError", "NVMLError"}
    | {"CalledProcessError", "SubprocessError"}
)
_AVAILABILITY = re.compile(
    r"(?:.*_)?(?:has|have|is|with|enable)?_*\w*(?:available|installed|exists|find_spec|importable)"
    r"|(?:_*)(?:has|have|enable|use)_\w+",
    re.IGNORECASE,
)
_TEST_FILE = re.compile(r"(?:test_.*|.*_test|tests?)\.py\Z")
_CALLERS_DEPTH = 3
_MAX_CALLERS = 8
_NVIDIA_FOLDERS = frozenset(
    {"cuda", "nvidia", "tensorrt", "cutedsl", "cute", "hopper", "blackwell", "cutile", "cutlass"}
    | {"transformer_engine", "flashinfer"}
)
_NVIDIA_STEM = re.compile(
    r"(?:^|_)(?:cuda|nvidia|nvml|nvrtc|nvshmem|nvtx|cupy|cuvs|cutlass|tensorrt|trtllm|flashinfer"
    r"|transformer_engine|sm\d{2,3}a?|hopper|blackwell)(?:_|\Z)"
)
_TOOLKITS = frozenset({"CUDA_HOME", "CUDA_PATH"})
_OTHERS = frozenset({"hpu", "gaudi", "xpu", "npu", "mlu", "mps", "metal", "tpu", "musa", "sdaa"})
_AMDS = frozenset({"amd", "hip", "rocm"})
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_OF_CUDA = re.compile(r"(?i)(?<![a-z])(?:cuda|nvidia|nv)(?![a-z])")
_SKIP = re.compile(r"(?:.*\.)?skip_?if\Z", re.IGNORECASE)
_SKIP_AMD = re.compile(
    r"(?:.*\.)?(?:skip_?if_?(?:rocm|hip|amd)\w*|require_?nvidia\w*)\Z", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The sides that reach a node, the gate, and the line of the decision (0: none)."""

    sides: frozenset[Side]
    gate: Gate
    line: int


class Gates:
    """The sides that reach the nodes of one module, with their gates."""

    def __init__(self, module: Module, started: frozenset[str] = frozenset()) -> None:
        self._module = module
        self._started = started
        self._conditions = Conditions.of(module)
        self._is_test = is_test(module.path)

    def standing(self, node: ast.AST, depth: int = 0) -> Standing:
        """Return the sides that reach `node`, with the gate in front of it."""
        sides, line = self._called_sides(node, depth)
        gate, gate_line = self._file_gate(), 0
        for truths, where in self._demands(node):
            lost = {side for side in sides if truths[side] is False}
            if lost and not line:
                line = where
            sides -= lost
        soft = self._availability(node)
        if soft and gate is Gate.OPEN:
            gate, gate_line = Gate.AVAILABILITY, soft
        optional = self._option(node) if gate is Gate.OPEN else 0
        if optional:
            gate, gate_line = Gate.OPTION, optional
        if gate is Gate.OPEN and not self._module.builds_extensions:
            owner = self._module.owner(node)
            if owner and owner not in self._module.started | self._started:
                gate = Gate.CALLED
        return Standing(sides=frozenset(sides), gate=gate, line=line or gate_line)

    def _called_sides(self, node: ast.AST, depth: int) -> tuple[set[Side], int]:
        """Return the sides that reach the calls of the function around `node`.

        All its calls must be in this module: it is private, or the module is a setup.py.
        """
        folders = {part.lower() for part in self._module.path.parts[:-1]}
        if folders & _OTHERS:
            return {"other"}, 0
        if folders & _AMDS:
            return {"amd"}, 0
        scope = self._module.scope(node)
        if not isinstance(scope, FUNCTIONS) or depth > _CALLERS_DEPTH:
            return set(SIDES), 0
        private = scope.name.startswith("_") and not scope.name.startswith("__")
        calls = self._module.called.get(scope.name, ())
        if not calls or not (private or self._module.path.name == "setup.py"):
            return set(SIDES), 0
        callers = [self.standing(call, depth + 1) for call in calls[:_MAX_CALLERS]]
        if len(calls) > _MAX_CALLERS:
            return set(SIDES), 0
        return set().union(*(caller.sides for caller in callers)), callers[0].line

    def _file_gate(self) -> Gate:
        if self._is_test:
            return Gate.TEST
        return Gate.AVAILABILITY if _is_nvidia_file(self._module.path) else Gate.OPEN

    def _demands(self, node: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        """Yield conditions that have to be true for `node` to run, from the inside out."""
        for parent, child in self._module.ancestors(node):
            yield from self._of_parent(parent, child)
            yield from self._of_earlier(parent, child)

    def _of_parent(self, parent: ast.AST, child: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        match parent:
            case ast.If(test=test) | ast.While(test=test) if child is not test:
                truths = self._conditions.truths(test)
                yield (truths if child in parent.body else negated(truths)), parent.lineno
                yield from self._of_cudas_arm(parent, child)
            case ast.IfExp(test=test, body=body) if child is not test:
                truths = self._conditions.truths(test)
                yield (truths if child is body else negated(truths)), parent.lineno
            case ast.BoolOp(op=operator, values=values):
                for value in values[: values.index(child)] if child in values else ():
                    truths = self._conditions.truths(value)
                    both = isinstance(operator, ast.And)
                    yield (truths if both else negated(truths)), parent.lineno
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in parent.generators:
                    for test in generator.ifs if child is not generator else ():
                        yield self._conditions.truths(test), parent.lineno
            case ast.Match(subject=subject, cases=cases) if isinstance(child, ast.match_case):
                yield from self._of_cases(subject, cases[: cases.index(child) + 1])
            case _:
                yield from self._of_decorators(parent, child)

    def _of_cudas_arm(
        self, parent: ast.If | ast.While, child: ast.AST
    ) -> Iterator[tuple[VendorTruths, int]]:
        """Yield the sides of CUDA's arm in `if CUDA_AVAILABLE: ... elif HIP_AVAILABLE: ...`.

        The test names CUDA, and a later arm is AMD's.
        """
        if child not in parent.body or not parent.orelse:
            return
        later = parent.orelse
        names_cuda = _OF_CUDA.search(ast.unparse(parent.test)) is not None
        while names_cuda and len(later) == 1 and isinstance(later[0], ast.If):
            truths = self._conditions.truths(later[0].test)
            if truths["nvidia"] is False and truths["amd"] is not False:
                yield {"nvidia": None, "amd": False, "other": None}, parent.lineno
            later = later[0].orelse

    def _of_cases(
        self, subject: ast.expr, cases: list[ast.match_case]
    ) -> Iterator[tuple[VendorTruths, int]]:
        """Yield the conditions of `match torch.version.hip: case None: ... case _: ...`.

        The last of `cases` is entered, and the ones before it did not match.
        """
        *before, entered = cases
        for case in before:
            if case.guard is None:
                yield negated(self._conditions.matched(subject, case.pattern)), case.pattern.lineno
        yield self._conditions.matched(subject, entered.pattern), entered.pattern.lineno
        if entered.guard is not None:
            yield self._conditions.truths(entered.guard), entered.pattern.lineno

    def _of_decorators(self, owner: ast.AST, child: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        if not isinstance(owner, (*FUNCTIONS, ast.ClassDef)):
            return
        for decorator in owner.decorator_list if child not in owner.decorator_list else ():
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = self._module.dotted(call)
            if _SKIP_AMD.match(name):
                yield {"nvidia": None, "amd": False, "other": None}, decorator.lineno
            elif _SKIP.match(name) and isinstance(decorator, ast.Call) and decorator.args:
                yield negated(self._conditions.truths(decorator.args[0])), decorator.lineno

    def _of_earlier(self, parent: ast.AST, child: ast.AST) -> Iterator[tuple[VendorTruths, int]]:
        """Yield `if is_rocm: return` and `assert` earlier in the same block."""
        for name in _BLOCKS:
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

    def _availability(self, node: ast.AST) -> int:
        """Return the line of the try or test that makes `node` optional; 0 for none."""
        for parent, child in self._module.ancestors(node):
            if isinstance(parent, ast.Try):
                soft = self._tries(parent, child)
            elif isinstance(parent, ast.If | ast.IfExp):
                soft = self._asks(parent, child)
            else:
                soft = isinstance(parent, ast.With) and _suppresses(parent, self._module)
            if soft:
                return int(getattr(parent, "lineno", 0))
        return 0

    def _option(self, node: ast.AST) -> int:
        """Return the line of a test that is false until somebody sets an environment variable."""
        for parent, child in self._module.ancestors(node):
            if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
                value = self._conditions.by_default(parent.test, "amd")
                body = parent.body if isinstance(parent.body, list) else [parent.body]
                if value is not None and value != (child in body):
                    return parent.lineno
        return 0

    def is_amds(self, node: ast.AST) -> bool:
        """Return true if AMD alone reaches `node` while no environment variable is set."""
        return self.standing(node).sides == {"amd"} or any(
            isinstance(parent, ast.If)
            and child in parent.body
            and self._conditions.by_default(parent.test, "nvidia") is False
            and self._conditions.by_default(parent.test, "amd") is not False
            for parent, child in self._module.ancestors(node)
        )

    def _tries(self, statement: ast.Try, child: ast.AST) -> bool:
        if child in statement.handlers:
            return _is_portable(statement.body)
        in_try = child in (*statement.body, *statement.orelse)
        return in_try and any(forgiving(handler, self._module) for handler in statement.handlers)

    def _asks(self, parent: ast.If | ast.IfExp, child: ast.AST) -> bool:
        body = parent.body if isinstance(parent.body, list) else [parent.body]
        if child in body:
            return _asks_availability(parent.test, self._module)
        return child is not parent.test and _misses_toolkit(parent.test, self._module)


def is_test(path: PurePosixPath) -> bool:
    """Return true for test code, which reports its own failures.

    conftest.py is no test code, since it decides what tests run.
    """
    if path.name == "conftest.py":
        return False
    folders = {part.lower() for part in path.parts[:-1]}
    return bool(_TEST_FILE.match(path.name)) or not folders.isdisjoint({"tests", "test", "testing"})


def _is_nvidia_file(path: PurePosixPath) -> bool:
    parts = {part.lower() for part in path.parts[:-1]}
    return not parts.isdisjoint(_NVIDIA_FOLDERS) or _NVIDIA_STEM.search(path.stem) is not None


def _leaves(block: list[ast.stmt]) -> bool:
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        function = last.value.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in {"exit", "_exit", "skip", "skipTest", "quit"}
    return isinstance(last, _EXITS)


def forgiving(handler: ast.ExceptHandler, module: Module) -> bool:
    """Return true if the handler continues without the package.

    A handler that raises, or imports another package of NVIDIA's, does not continue.
    """
    caught = _caught_names(handler.type, module)
    if handler.type is not None and caught.isdisjoint(_CAUGHT):
        return False
    if any(isinstance(node, ast.Raise) for node in _direct(handler.body)):
        return False
    if _leaves(handler.body) and not isinstance(handler.body[-1], _EXITS):
        return False  # sys.exit("it is needed")
    handlers = [(node, getattr(node, "handlers", ())) for node in handler.body]
    sure = (node for node, body in handlers if not any(forgiving(inner, module) for inner in body))
    return not any(imports_nvidia(node) for node in _direct(sure))


def _caught_names(kind: ast.expr | None, module: Module) -> set[str]:
    if isinstance(kind, ast.BinOp):  # `except A, B` of a newer Python
        return _caught_names(kind.left, module) | _caught_names(kind.right, module)
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind is not None else []
    return {module.dotted(node).split(".")[-1] for node in kinds}


def _direct(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of `body` that run with it: not those inside functions it defines."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def _asks_availability(test: ast.expr, module: Module) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_asks_availability(value, module) for value in test.values)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        test = test.left
    name = test.func if isinstance(test, ast.Call) else test
    last = module.dotted(name).split(".")[-1]
    return last in _TOOLKITS | {"hasattr"} or _AVAILABILITY.fullmatch(last) is not None


def _is_portable(body: Iterable[ast.stmt]) -> bool:
    """Return true if a try imports, but nothing of NVIDIA's.

    Its handlers then run where the portable choice is not installed.
    """
    nodes = list(_direct(body))
    imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
    return imports and not any(imports_nvidia(node) for node in nodes)


def _misses_toolkit(test: ast.expr, module: Module) -> bool:
    """Return true for `CUDA_HOME is None`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Is):
        return False
    return module.dotted(test.left).split(".")[-1] in _TOOLKITS


def _suppresses(statement: ast.With, module: Module) -> bool:
    for item in statement.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and module.dotted(call.func).endswith("suppress"):
            return any(module.dotted(argument) in _CAUGHT for argument in call.args)
    return False
