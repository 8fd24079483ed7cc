"""The arguments of `setup()` in a setup.py, as far as they follow without running it. Pure.

Its syntax tree is interpreted on values: literals, the text of files of the project, and what a
few functions known here make of them. Any other expression is `UNKNOWN`, and so is what follows
from it. Both sides of a condition that is unknown are followed: what they add is `Placed` with the
place of the condition.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import posixpath
import re
import sys
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Self

MOST_STEPS = 50_000
_STEPS_OF_A_PATTERN = 200
_MOST_CHARACTERS = 1_000_000

ReadFile = Callable[[str], str | None]
"""Return the text of a file by its path relative to setup.py's folder; None for what is not there
or lies outside of the project.
"""


UNKNOWN: Any = object()
"""A value that only running setup.py would tell."""


class Placed(str):  # noqa: SLOT000 - its facts are in its __dict__
    """A string with the line (1-based) that it comes from, that line's text and its file ("" for
    setup.py); `condition` is the line of the condition it is under, 0 for none.
    """

    line: int = 1
    path: str = ""
    source: str = ""
    condition: int = 0

    @classmethod
    def located(cls, text: str, place: Any, **facts: Any) -> Self:
        """Return a text at the place of another one, but for these facts."""
        placed = cls(text)
        vars(placed).update(vars(place) if isinstance(place, Placed) else {}, **facts)
        return placed


class _File(list[Any]):
    """The lines of an open text file."""

    def __init__(self, text: Placed) -> None:
        super().__init__(_lines(text, keepends=True))
        self.text = text

    def read(self) -> Placed:
        return self.text

    readlines = list.copy


class _Path(PurePosixPath):
    """A path of the project, relative to setup.py's folder."""

    def resolve(self) -> Self:
        return self

    absolute = resolve


class _Import(NamedTuple):
    name: str


class _End(Exception):  # noqa: N818 - no error: how a block ends
    """A statement that ends a block: Return, Raise, Break or Continue."""

    def __init__(self, node: ast.stmt, value: Any = None) -> None:
        super().__init__()
        self.node = node
        self.value = value


class _TooLongError(Exception):
    """Interpreting takes too many steps."""


def _matched(function: Callable[..., Any], pattern: str, text: str) -> Any:
    """Call `re.split` or `re.findall` for a pattern and a text that take little time."""
    is_slow = re.search(r"\)[*+{]|\\[1-9]", pattern)
    if is_slow or len(re.findall(r"[*+?{]", pattern)) > 4 or len(text) > 100:
        raise ValueError(pattern)
    return function(pattern, text)


def _formatted(template: str, values: Any) -> str:
    if re.search(r"%[^sd%]|^[^%]*$", template):  # a format's width may be a billion characters
        raise ValueError
    return template % (tuple(values) if isinstance(values, list) else values)


_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Div: _Path.__truediv__,
    ast.Mod: _formatted,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda member, many: member in many,
    ast.NotIn: lambda member, many: member not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}
_NAMES: Mapping[str, Any] = {"__file__": "setup.py", "__name__": "__main__"}
_ATTRIBUTES: Mapping[str, Any] = {"sys.platform": "linux", "os.name": "posix", "os.sep": "/"}
_OPENERS = frozenset({"open", "io.open", "codecs.open"})
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(_OPENERS, open),
    **{function.__name__: function for function in (list, tuple, set, dict, bool, int)},
    **{function.__name__: function for function in (sorted, len, sum, any, all)},
    **{function.__name__: function for function in (enumerate, zip, reversed)},
    "print": lambda *_: None,
    "collections.defaultdict": defaultdict,
    "re.split": partial(_matched, re.split),
    "re.findall": partial(_matched, re.findall),
    "os.path.join": posixpath.join,
    "os.path.dirname": posixpath.dirname,
    "os.path.abspath": posixpath.normpath,
    "os.path.realpath": posixpath.normpath,
    "pathlib.Path": _Path,
    "platform.system": lambda: "Linux",
    "os.getenv": lambda _name, default=None: default,
    "str": lambda value="": value if isinstance(value, str) else str(value),
    "packaging.requirements.Requirement": lambda text: text,
}
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(
        {"strip", "lstrip", "rstrip", "split", "splitlines", "lower", "replace", "startswith"}
        | {"endswith", "join", "partition", "rpartition", "removeprefix", "removesuffix", "format"}
    ),
    list: frozenset({"append", "extend", "insert", "remove", "pop", "copy", "index", "sort"}),
    dict: frozenset({"values", "items", "keys", "get", "update", "pop", "setdefault", "copy"}),
    set: frozenset({"add", "update", "union", "discard", "difference", "copy"}),
    _File: frozenset({"read", "readlines"}),
    _Path: frozenset({"joinpath", "resolve", "absolute", "read_text", "open"}),
}
_READING = frozenset(
    {"get", "values", "items", "keys", "copy", "index", "union", "difference", "read", "readlines"}
)
_THERE = frozenset({*sys.stdlib_module_names, "setuptools", "distutils"})
Values = Mapping[str, Any]


class SetupInterpreter:
    """A run of a setup.py; `calls` are the keyword arguments of each call of `setup()`,
    with its line.

    The key "**" is for arguments whose names are unknown. Variables of the environment are unset;
    `reads_environment` is whether any was read.
    """

    def __init__(self, tree: ast.Module, lines: list[str], read: ReadFile) -> None:
        self.calls: list[dict[str, tuple[Any, int]]] = []
        self.reads_environment = False
        self._environment: dict[str, Any] = {}
        self._lines = lines
        self._read = read
        self._steps = 0
        self._conditions: list[int] = []
        self._names: ChainMap[str, Any] = ChainMap(dict(_NAMES))
        with contextlib.suppress(_TooLongError, RecursionError):
            for node in tree.body:
                # A setup.py that installs anything does not end before `setup()`.
                with contextlib.suppress(_End):
                    self._block([node])

    def _block(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            self._step()
            visit = getattr(self, f"_do_{type(node).__name__.lower()}", self._forget)
            try:
                visit(node)
            except (_End, _TooLongError, RecursionError):
                raise
            except Exception:  # noqa: BLE001 - whatever an operation on such values may raise
                self._forget(node)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise _TooLongError

    def _forget(self, node: ast.AST) -> None:
        """Make the names that a statement binds, and what it changes or deletes in, unknown."""
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                self._names[child.id] = UNKNOWN
            elif isinstance(child, ast.Subscript) and not isinstance(child.ctx, ast.Load):
                _poison(self._of(child.value))
            elif isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                self._names[child.name] = UNKNOWN

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        self._names[node.name] = UNKNOWN if node.decorator_list else node

    def _do_import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._names[alias.asname or top] = _Import(alias.name if alias.asname else top)

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._names[alias.asname or alias.name] = _Import(f"{node.module}.{alias.name}")

    def _do_assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is not None:
            value = self._of(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, value)

    _do_annassign = _do_assign

    def _do_augassign(self, node: ast.AugAssign) -> None:
        old, value = self._of(node.target), self._of(node.value)
        if isinstance(node.op, ast.Add) and isinstance(old, list) and value is not UNKNOWN:
            old.extend(self._conditioned(list(value)))
        elif isinstance(old, list):
            old.append(UNKNOWN)
        else:
            changed = ast.BinOp(left=node.target, op=node.op, right=node.value)
            self._bind(node.target, self._of(ast.copy_location(changed, node)))

    def _do_expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Yield) and value.value is not None:
            self._names["yield"].append(self._conditioned(self._of(value.value)))
        elif isinstance(value, ast.YieldFrom):
            self._names["yield"].extend(self._conditioned(list(self._of(value.value))))
        else:
            self._of(value)

    def _do_return(self, node: ast.stmt) -> None:
        value = node.value if isinstance(node, ast.Return) else None
        raise _End(node, self._of(value) if value else None)

    _do_raise = _do_break = _do_continue = _do_return

    def _do_if(self, node: ast.If) -> None:
        test = self._of(node.test)
        if test is UNKNOWN:
            self._both(node.lineno, node.body, node.orelse)
        else:
            self._block(node.body if test else node.orelse)

    def _do_try(self, node: ast.Try) -> None:
        handlers = [handler.body for handler in node.handlers]
        names = [a.name for n in node.body if isinstance(n, ast.Import) for a in n.names]
        names += [n.module or "" for n in node.body if isinstance(n, ast.ImportFrom)]
        # A module of these may be missing when setup.py runs.
        if any(name.partition(".")[0] not in _THERE for name in names):
            self._both(node.lineno, [*node.body, *node.orelse], *handlers)
        else:
            self._block([*node.body, *node.orelse])
        self._block(node.finalbody)

    def _do_with(self, node: ast.With) -> None:
        for item in node.items:
            value = self._of(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value)
        self._block(node.body)

    def _do_for(self, node: ast.For) -> None:
        values = self._of(node.iter)
        if values is UNKNOWN:
            self._bind(node.target, UNKNOWN)
            self._both(node.lineno, node.body)
            return
        for value in list(values):
            self._bind(node.target, value)
            try:
                self._block(node.body)
            except _End as end:
                if isinstance(end.node, ast.Break):
                    break
                if not isinstance(end.node, ast.Continue):
                    raise

    def _both(self, line: int, *bodies: list[ast.stmt]) -> None:
        """Follow blocks of which one is run, or none: a name that they bind differently is
        unknown, and a function that may return there gives an unknown value.
        """
        scope = self._names.maps[0]
        before = dict(scope)
        ends: list[dict[str, Any]] = [] if bodies[1:] and bodies[-1] else [before]
        outside, self._conditions = self._conditions, [*self._conditions, line]
        try:
            for body in bodies:
                scope.clear()
                scope.update(before)
                try:
                    self._block(body)
                    ends.append(dict(scope))
                except _End as end:
                    if isinstance(end.node, ast.Return):
                        end.value = UNKNOWN
                        raise
        finally:
            self._conditions = outside
        names = {name: [end.get(name, UNKNOWN) for end in ends] for end in ends for name in end}
        scope.clear()
        for name, (value, *rest) in names.items():
            is_one = all(other is value or other == value for other in rest)
            scope[name] = value if is_one else UNKNOWN

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            targets = target.elts
            starred = [index for index, part in enumerate(targets) if isinstance(part, ast.Starred)]
            values = list(value) if value is not UNKNOWN else [UNKNOWN] * len(targets)
            if starred and value is not UNKNOWN:
                end = len(values) - (len(targets) - starred[0] - 1)
                values[starred[0] : end] = [values[starred[0] : end]]
            for part, of_part in zip(targets, values, strict=False):
                self._bind(part.value if isinstance(part, ast.Starred) else part, of_part)
        elif isinstance(target, ast.Subscript):
            of, key = self._of(target.value), self._of(target.slice)
            if isinstance(of, dict) and key is not UNKNOWN:
                is_known = isinstance(value, list) or not self._conditions
                of[key] = self._conditioned(value) if is_known else UNKNOWN
            elif isinstance(of, dict | list):
                _poison(of)

    def _conditioned(self, value: Any) -> Any:
        """Return a string, or those of a list, with the condition that they are added under."""
        if not self._conditions:
            return value
        if isinstance(value, list):
            return [self._conditioned(item) for item in value]
        is_text, line = isinstance(value, str), self._conditions[-1]
        return Placed.located(value, value, condition=line) if is_text else value

    def _of(self, node: ast.expr) -> Any:
        """Return the value of an expression, or `UNKNOWN`."""
        self._step()
        visit = getattr(self, f"_of_{type(node).__name__.lower()}", lambda _: UNKNOWN)
        try:
            value = visit(node)
        except (_End, _TooLongError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 - whatever an operation on such values may raise
            return UNKNOWN
        is_long = isinstance(value, str | list) and len(value) > _MOST_CHARACTERS
        return UNKNOWN if is_long else value

    def _sure(self, node: ast.expr) -> Any:
        value = self._of(node)
        if value is UNKNOWN:
            raise ValueError
        return value

    def _of_constant(self, node: ast.Constant) -> Any:
        value = node.value
        return self._literal(value, node.lineno) if isinstance(value, str) else value

    def _of_name(self, node: ast.Name) -> Any:
        value = self._names.get(node.id, UNKNOWN)
        return _ATTRIBUTES.get(value.name, UNKNOWN) if isinstance(value, _Import) else value

    def _dotted(self, node: ast.expr) -> str:
        """Return the name of what is imported or built in; "" for anything else."""
        if isinstance(node, ast.Attribute):
            above = self._dotted(node.value)
            return f"{above}.{node.attr}" if above else ""
        if not isinstance(node, ast.Name):
            return ""
        value = self._names.get(node.id, _Import(node.id))
        return value.name if isinstance(value, _Import) else ""

    def _of_list(self, node: ast.List | ast.Tuple | ast.Set) -> list[Any]:
        elements: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                elements += self._sure(element.value)
            else:
                elements.append(self._of(element))
        return elements

    _of_tuple = _of_set = _of_list

    def _of_dict(self, node: ast.Dict) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                entries |= self._sure(value)
            else:
                entries[self._of(key)] = self._of(value)
        return entries

    def _of_binop(self, node: ast.BinOp | ast.UnaryOp | ast.Compare) -> Any:
        nodes = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        operands = [self._sure(operand) for operand in nodes]
        operator_ = node.ops[0] if isinstance(node, ast.Compare) else node.op
        is_container = isinstance(operands[-1], list | dict | set)
        if isinstance(node, ast.Compare) and is_container and UNKNOWN in operands[-1]:
            raise ValueError
        value = _OPERATORS[type(operator_)](*operands)
        return Placed.located(value, operands[0]) if isinstance(value, str) else value

    _of_unaryop = _of_compare = _of_binop

    def _of_formattedvalue(self, node: ast.FormattedValue) -> Any:
        return UNKNOWN if node.format_spec or node.conversion != -1 else self._of(node.value)

    def _of_joinedstr(self, node: ast.JoinedStr) -> str:
        text = "".join(str(self._sure(part)) for part in node.values)
        return self._literal(text, node.lineno)

    def _literal(self, text: str, line: int) -> Placed:
        return Placed.located(text, None, line=line, source=self._lines[line - 1])

    def _of_subscript(self, node: ast.Subscript) -> Any:
        value = self._sure(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            place: Any = slice(*(bound and self._sure(bound) for bound in bounds))
        else:
            place = self._sure(node.slice)
        element = value[place]
        return Placed.located(element, value) if isinstance(value, Placed) else element

    def _of_boolop(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        values = [self._of(operand) for operand in node.values]
        for value in values:
            if value is not UNKNOWN and bool(value) != is_and:
                return value
        return UNKNOWN if UNKNOWN in values else values[-1]

    def _of_ifexp(self, node: ast.IfExp) -> Any:
        return self._of(node.body if self._sure(node.test) else node.orelse)

    def _of_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> list[Any]:
        return [self._of(node.elt) for _ in self._rounds(node.generators)]

    _of_setcomp = _of_generatorexp = _of_listcomp

    def _of_dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        return {self._of(node.key): self._of(node.value) for _ in self._rounds(node.generators)}

    def _rounds(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if not generators:
            yield
            return
        first, *inner = generators
        for value in self._sure(first.iter):
            self._names = self._names.new_child()
            try:
                self._bind(first.target, value)
                if all(self._sure(condition) for condition in first.ifs):
                    yield from self._rounds(inner)
            finally:
                self._names = self._names.parents

    def _of_attribute(self, node: ast.Attribute) -> Any:
        of = self._of(node.value)
        if isinstance(of, _Path) and node.attr in {"parent", "name", "stem"}:
            return getattr(of, node.attr)
        name = self._dotted(node)
        if name == "os.environ":
            self.reads_environment = True
            return self._environment
        return _ATTRIBUTES.get(name, UNKNOWN)

    def _of_call(self, node: ast.Call) -> Any:
        name = self._dotted(node.func)
        if name.rpartition(".")[2] == "setup":
            setup: dict[str, tuple[Any, int]] = {}
            for keyword in node.keywords:
                value, line = self._of(keyword.value), keyword.value.lineno
                if keyword.arg is not None:
                    setup[keyword.arg] = value, line
                elif isinstance(value, dict) and UNKNOWN not in value:
                    setup |= {str(name): (argument, line) for name, argument in value.items()}
                else:
                    setup["**"] = UNKNOWN, line
            self.calls.append(setup)
            return None
        arguments = self._of_list(ast.List(elts=node.args))
        keywords = {keyword.arg or "**": self._of(keyword.value) for keyword in node.keywords}
        function = self._names.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(function, ast.FunctionDef):
            return self._result(function, arguments, keywords)
        if name in _FUNCTIONS:
            return self._built_in(name, arguments, keywords)
        of, method = UNKNOWN, ""
        if isinstance(node.func, ast.Attribute):
            of, method = self._of(node.func.value), node.func.attr
        if any(isinstance(of, kind) and method in names for kind, names in _METHODS.items()):
            is_container = isinstance(of, list | dict | set)
            call = self._of_container if is_container else self._of_text
            return call(of, method, arguments, keywords)
        for argument in (*arguments, *keywords.values(), of):
            _poison(argument)
        return UNKNOWN

    def _built_in(self, name: str, arguments: list[Any], keywords: Mapping[str, Any]) -> Any:
        if name == "os.getenv":
            self.reads_environment = True
        if name in _OPENERS:
            return self._opened(str(arguments[0]))
        if name == "dict" and not arguments and "**" not in keywords:
            return dict(keywords)
        if UNKNOWN in arguments or (keywords and name != "print"):
            return UNKNOWN
        is_pattern = name.startswith("re.")
        self._step(_STEPS_OF_A_PATTERN * is_pattern)
        value = _FUNCTIONS[name](*arguments)
        return _placed(value, arguments[-1]) if is_pattern else _plain(value)

    def _of_container(self, of: Any, name: str, values: list[Any], keywords: Values) -> Any:
        """Call a method of a list, dictionary or set.

        Values that a list gets under a condition carry it; any other change under one makes the
        whole value unknown.
        """
        if isinstance(of, dict) and UNKNOWN in of:
            return UNKNOWN
        is_unknown = UNKNOWN in [*values, *keywords.values()] and name != "append"
        is_growing = isinstance(of, list) and name in {"append", "extend", "insert"}
        if name not in _READING and (is_unknown or (self._conditions and not is_growing)):
            _poison(of)
            return UNKNOWN
        values = self._conditioned(values) if is_growing else values
        return _plain(getattr(of, name)(*values, **keywords))

    def _of_text(self, of: Any, name: str, values: list[Any], keywords: Values) -> Any:
        """Call a method of a string or path."""
        if isinstance(of, _Path) and name in {"read_text", "open"}:
            opened = self._opened(str(of))
            return opened.text if name == "read_text" else opened
        is_unknown = UNKNOWN in [*values, *keywords.values()]
        if is_unknown or _longest(of, name, values) > _MOST_CHARACTERS:
            return UNKNOWN
        is_split = name == "splitlines" or (name == "split" and values == ["\n"])
        if isinstance(of, Placed) and is_split:
            return _lines(of, keepends=False)
        value = getattr(of, name)(*values, **keywords)
        return _placed(value, of) if isinstance(of, str) else value

    def _opened(self, path: str) -> _File:
        """Raise `ValueError` for a file that cannot be read."""
        path = posixpath.normpath(path)
        text = self._read(path)
        if text is None:
            raise ValueError(path)
        return _File(Placed.located(text, None, path=path))

    def _result(
        self, node: ast.FunctionDef, arguments: list[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Return what a function of setup.py returns."""
        args = node.args
        names = [argument.arg for argument in (*args.posonlyargs, *args.args)]
        only = [argument.arg for argument in args.kwonlyargs]
        every = (child for child in ast.walk(args) if isinstance(child, ast.arg))
        local: dict[str, Any] = {child.arg: UNKNOWN for child in every}
        defaults = dict(zip(reversed(names), reversed(args.defaults), strict=False))
        named = {**defaults, **dict(zip(only, args.kw_defaults, strict=True))}
        local |= {name: self._of(default) for name, default in named.items() if default}
        if args.vararg is not None:
            local[args.vararg.arg] = arguments[len(names) :]
        local |= {**dict(zip(names, arguments, strict=False)), **keywords, "yield": []}
        caller, conditions = self._names, self._conditions
        self._names = ChainMap(local, caller.maps[-1])
        try:
            self._block(node.body)
        except _End as end:
            return end.value if isinstance(end.node, ast.Return) else UNKNOWN
        finally:
            self._names, self._conditions = caller, conditions
        is_generator = any(isinstance(child, ast.Yield | ast.YieldFrom) for child in ast.walk(node))
        return local["yield"] if is_generator else None


def _poison(value: Any) -> None:
    """Mark a container as one whose contents are known only by running setup.py."""
    if isinstance(value, list):
        value.append(UNKNOWN)
    elif isinstance(value, set):
        value.add(UNKNOWN)
    elif isinstance(value, dict):
        value.clear()
        value[UNKNOWN] = UNKNOWN


def _plain(value: Any) -> Any:
    """Return views and iterators as lists, which can be read more than once."""
    is_lazy = isinstance(value, zip | enumerate | reversed)
    return list(value) if is_lazy or type(value).__name__.startswith("dict_") else value


def _lines(text: Placed, *, keepends: bool) -> list[Any]:
    """Return the lines of a text, each with its place where that is a whole file."""
    if not text.path:
        return [Placed.located(line, text) for line in text.splitlines(keepends)]
    return [
        Placed.located(line, text, line=number, source=line.rstrip("\r\n"))
        for number, line in enumerate(text.splitlines(keepends), start=1)
    ]


def _longest(of: Any, method: str, arguments: list[Any]) -> int:
    """Return the largest number of characters that a method which multiplies them can return."""
    if method == "replace":
        return (len(of) + 1) * (len(arguments[1]) + 1)
    if method == "join":
        return (len(of) + 1) * len(arguments[0]) + sum(map(len, arguments[0]))
    if method == "format" and re.search(r"\{[^{}]*[:!\[.]", of):
        return _MOST_CHARACTERS + 1
    return 0


def _placed(value: Any, of: Any) -> Any:
    """Return the strings made of a string, at its place."""
    if isinstance(value, str):
        return Placed.located(value, of)
    if isinstance(value, list | tuple):
        return [_placed(item, of) for item in value]
    return value
