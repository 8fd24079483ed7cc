#!/usr/bin/env python3
"""Give local variables with generic names (`one`, `found`, `said`) names by what they are bound to.

usage: tools/local_names.py PATH ...    files and folders; Python 3.12 or newer

Variables of functions, lambdas and comprehensions are renamed; parameters, attributes and names of
modules and classes stay. `for one in files` becomes `for file in files`, `found = read_lock(...)`
becomes `lock = read_lock(...)`; a name that is in use there is not taken. The syntax tree of each
file afterwards is the one before with those names, or the file stays as it was. Run `ruff format`
on what was changed, and read the diff.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from language import GENERIC

# Where the expression says nothing better, by the kind of what is bound. A name that is in none of
# these tables stays: no name is better than a wrong one.
OF_DICT = {"said": "fields", "given": "arguments", "found": "results"}
OF_LIST = {"said": "lines", "asked": "command", "found": "results"}
OF_TEXT = {"said": "text", "what": "title"}
OF_CALL = {
    "found": "result",
    "made": "created",
    "done": "completed",
    "ended": "completed",
    "tried": "attempt",
    "seen": "observed",
}
OF_ANY = {
    "one": ("item", "entry", "element"),
    "found": ("result",),
    "left": ("remaining",),
    "others": ("remaining",),
    "wanted": ("required",),
    "began": ("started",),
    "begun": ("started",),
    "drawn": ("samples",),
}
TEXT = {"join", "strip", "read_text", "decode", "format", "removeprefix", "removesuffix", "replace"}
NOUNS = {
    "search": "match",
    "fullmatch": "match",
    "match": "match",
    "loads": "document",
    "safe_load": "document",
    "read_bytes": "content",
    "encode": "content",
    "splitlines": "lines",
    **dict.fromkeys(TEXT, "text"),
}
PLURALS = {
    "splitlines": "lines",
    "split": "parts",
    "glob": "paths",
    "rglob": "paths",
    "iterdir": "paths",
    "walk": "nodes",
    "iter_child_nodes": "nodes",
    "finditer": "matches",
    "range": "numbers",
}
# What passes its first argument, or what it is a method of, on.
THROUGH = {"sorted", "list", "tuple", "set", "reversed", "iter", "frozenset", "enumerate", "cast"}
THROUGH_METHODS = {"values", "copy", "keys", "elements", "items", "most_common"}
_VERB = re.compile(
    r"^(?:read|find|make|load|open|parse|get|an?|all|new|some|to|of|each|list)_(?=.)"
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TAKEN = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | frozenset(keyword.softkwlist)


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension, and the names that occur in it."""

    node: ast.AST
    parent: Scope | None
    names: dict[str, list[ast.Name | ast.arg]] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    # Bound by a parameter, a definition, an import, a pattern or a handler, or declared elsewhere.
    fixed: set[str] = field(default_factory=set)
    sources: dict[str, list[tuple[str, ast.AST | None]]] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return isinstance(self.node, (*_SCOPES, *_COMPREHENSIONS))

    @property
    def unit(self) -> Scope:
        """The outermost function around it, whose names it must not meet."""
        outer = [scope for scope in self.above() if isinstance(scope.node, _SCOPES)]
        return outer[-1] if outer else self

    def above(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent


class Reader(ast.NodeVisitor):
    """Read the scopes of a module and what binds their names."""

    def __init__(self, tree: ast.Module) -> None:
        self.scope = Scope(tree, None)
        self.scopes = [self.scope]
        self.visit(tree)

    def _within(self, node: ast.AST, parts: list[ast.AST]) -> None:
        outer = self.scope
        self.scope = Scope(node, outer)
        self.scopes.append(self.scope)
        for part in parts:
            self.visit(part)
        self.scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind_fixed(node.name)
        outside = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, node.returns]
        for part in outside:
            if part:
                self.visit(part)
        self._within(node, [node.args, *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in (*node.args.defaults, *node.args.kw_defaults):
            if part:
                self.visit(part)
        self._within(node, [node.args, node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind_fixed(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._within(node, list(node.body))

    def visit_arguments(self, node: ast.arguments) -> None:
        every = (*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg)
        for one in every:
            if one:
                self.scope.names.setdefault(one.arg, []).append(one)
                self.scope.bound.add(one.arg)
                if not (isinstance(self.scope.node, ast.Lambda) and one in node.args):
                    self.scope.fixed.add(one.arg)
                else:
                    self.scope.sources.setdefault(one.arg, []).append(("each", None))
                if one.annotation:
                    self.visit(one.annotation)

    def _visit_comprehension(self, node: ast.AST) -> None:
        first, *rest = node.generators  # type: ignore[attr-defined]
        self.visit(first.iter)
        results = [getattr(node, name) for name in ("elt", "key", "value") if hasattr(node, name)]
        inner: list[ast.AST] = [first.target, *first.ifs]
        for generator in rest:
            inner += [generator.iter, generator.target, *generator.ifs]
        outer = self.scope
        self.scope = Scope(node, outer)
        self.scopes.append(self.scope)
        for generator in (first, *rest):
            self._bind_each(generator.target, generator.iter)
        for part in (*inner, *results):
            self.visit(part)
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._bind_each(node.target, node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind_value(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._bind_value(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        # It binds in the function around a comprehension.
        outer = self.scope
        while isinstance(self.scope.node, _COMPREHENSIONS) and self.scope.parent:
            self.scope = self.scope.parent
        self._bind_value(node.target, node.value)
        self.visit(node.target)
        self.scope = outer
        self.visit(node.value)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars:
            self._bind_value(node.optional_vars, node.context_expr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.scope.names.setdefault(node.id, []).append(node)
        if not isinstance(node.ctx, ast.Load):
            self.scope.bound.add(node.id)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        for scope in self.scope.above():  # whatever it means, no scope renames it
            scope.fixed.update(node.names)

    visit_Nonlocal = visit_Global  # noqa: N815

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.alias):
            self._bind_fixed((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            self._bind_fixed(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._bind_fixed(node.rest)
        super().generic_visit(node)

    def _bind_fixed(self, name: str) -> None:
        self.scope.bound.add(name)
        self.scope.fixed.add(name)

    def _bind_each(self, target: ast.AST, iterable: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.scope.sources.setdefault(target.id, []).append(("each", iterable))
            return
        for number, element in enumerate(getattr(target, "elts", ())):
            if isinstance(element, ast.Name):
                self.scope.sources.setdefault(element.id, []).append(
                    ("each", _part(iterable, number))
                )

    def _bind_value(self, target: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            self.scope.sources.setdefault(target.id, []).append(("value", value))


def _part(iterable: ast.AST, number: int) -> ast.AST | None:
    """Return what the elements at one place of an iterable's tuples come from, where it shows."""
    match iterable:
        case ast.Call(func=ast.Name(id="zip"), args=arguments) if number < len(arguments):
            return arguments[number]
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]) if number == 1:
            return inner
        case ast.Call(func=ast.Attribute(attr="items", value=inner)) if number == 1:
            return inner
    return None


def plural_of(node: ast.AST | None) -> str:  # noqa: PLR0911 - a form of expression each
    """Return the noun, mostly a plural, that an iterable is called by; empty if by none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.BinOp(left=inner):
            return plural_of(inner)
        case ast.BoolOp(values=[inner, *_]) | ast.IfExp(body=inner) | ast.Await(value=inner):
            return plural_of(inner)
        case ast.Tuple(elts=[ast.Starred(value=inner), *_]):
            return plural_of(inner)
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in THROUGH:
            return plural_of(inner)
        case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in THROUGH_METHODS:
            return plural_of(inner)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return PLURALS.get(name, noun_of(name))
    return ""


def noun_of(function: str) -> str:
    """Return the noun of a function's name: `read_lock` -> lock, `cells_of` -> cells."""
    name = _VERB.sub("", function.strip("_"))
    if name.startswith(("on_", "in_", "at_", "is_", "has_", "was_", "as_", "by_", "with_")):
        return ""
    return re.sub(r"_(?:of|in|at|by|from|for|with|to|on)(?:_.*)?$", "", name)


def singular(plural: str) -> str:
    """Return the singular of a snake_case noun; empty if it is no plural."""
    word = plural.strip("_").lower()
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return {"children": "child", "indices": "index"}.get(word, "")


def value_name(node: ast.AST | None) -> str:
    """Return the noun of an assigned value; empty if nothing tells one."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return NOUNS.get(name) or _of_function(name)
        case ast.ListComp(elt=ast.Name(id=inner), generators=[ast.comprehension(iter=source)]):
            return plural_of(source) if inner in GENERIC else ""
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str()) | ast.JoinedStr()):
            return "path"
        case ast.Attribute(attr=name):
            return name
    return ""


def _of_function(name: str) -> str:
    if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", name):  # a class
        return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    noun = noun_of(name)
    return noun if noun != name.strip("_") or "_" in noun else ""


def kind_name(name: str, node: ast.AST | None) -> str:
    """Return a name by the kind of an assigned value alone."""
    match node:
        case ast.Dict() | ast.DictComp():
            return OF_DICT.get(name, "")
        case ast.List() | ast.ListComp() | ast.Set() | ast.SetComp() | ast.Tuple():
            return OF_LIST.get(name, "")
        case ast.JoinedStr() | ast.Constant(value=str()):
            return OF_TEXT.get(name, "")
        case ast.Call():
            return OF_CALL.get(name, "")
    return ""


def proposals(name: str, sources: list[tuple[str, ast.AST | None]]) -> Iterator[str]:
    """Yield names for a variable: what all of its bindings agree on, then those of the tables."""
    nouns = {singular(plural_of(n)) if kind == "each" else value_name(n) for kind, n in sources}
    if len(nouns) == 1:
        yield from nouns
    kinds = {kind_name(name, node) for kind, node in sources if kind == "value"}
    if len(kinds) == 1:
        yield from kinds
    yield from OF_ANY.get(name, ())


def free(name: str, used: set[str]) -> bool:
    fit = name.isidentifier() and name.islower() and len(name) > 2
    return fit and not {name} & (used | GENERIC | _TAKEN)


def renames(tree: ast.Module) -> Mapping[ast.AST, str]:
    """Return the new name of each node that has a generic one."""
    reader = Reader(tree)
    module = reader.scopes[0]
    chosen: dict[ast.AST, str] = {}
    used: dict[Scope, set[str]] = {}
    for scope in reader.scopes:
        used.setdefault(scope.unit, set()).update(scope.names)
    # Comprehensions first: their names are of no one else.
    local = [scope for scope in reader.scopes if scope.is_local]
    for scope in sorted(local, key=lambda one: not isinstance(one.node, _COMPREHENSIONS)):
        for name in sorted(scope.bound & GENERIC - scope.fixed):
            if name not in scope.sources:
                continue
            nodes, inside = _occurrences(reader.scopes, scope, name)
            taken = module.bound | inside
            if isinstance(scope.node, _COMPREHENSIONS):
                taken = taken.union(*(outer.bound for outer in scope.above() if outer.is_local))
            else:
                taken |= used[scope.unit]
            new = next((n for n in proposals(name, scope.sources[name]) if free(n, taken)), "")
            if new:
                chosen.update(dict.fromkeys(nodes, new))
                used[scope.unit].add(new)
                scope.bound.add(new)
                scope.names[new] = []
    return chosen


def _occurrences(
    scopes: list[Scope], scope: Scope, name: str
) -> tuple[list[ast.Name | ast.arg], set[str]]:
    """Return the nodes that mean a scope's variable, and all names that occur inside of it."""
    nodes = list(scope.names.get(name, ()))
    inside = set(scope.names)
    for other in scopes:
        between = []
        for outer in other.above():
            if outer is scope:
                break
            between.append(outer)
        else:
            continue
        if other is scope:
            continue
        inside |= set(other.names)
        # A class hides its own names only from itself; one that binds the name is another's.
        if not any(name in one.bound for one in between):
            nodes += other.names.get(name, ())
    return nodes, inside


def rewritten(text: str) -> str:
    """Return a module's text with better names. Raises `ValueError` if its tree would differ."""
    tree = ast.parse(text)
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    raw = text.encode()
    chosen = renames(tree)
    places = sorted(chosen, key=lambda one: (one.lineno, one.col_offset), reverse=True)  # type: ignore[attr-defined]
    for node in places:
        begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        old = node.id if isinstance(node, ast.Name) else node.arg  # type: ignore[attr-defined]
        if raw[begin : begin + len(old)] != old.encode():
            raise ValueError(f"line {node.lineno}: {old} is not where the tree says")  # type: ignore[attr-defined]
        raw = raw[:begin] + chosen[node].encode() + raw[begin + len(old) :]
    for node, new in chosen.items():
        setattr(node, "id" if isinstance(node, ast.Name) else "arg", new)
    after = raw.decode()
    if ast.dump(ast.parse(after)) != ast.dump(tree):
        raise ValueError("its tree would be another")
    return after


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    wrong = 0
    for path in parser.parse_args().paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            try:
                file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
            except (SyntaxError, ValueError) as error:
                print(f"{file}: {error}", file=sys.stderr)
                wrong += 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
