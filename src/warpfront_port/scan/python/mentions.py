"""Rules about the imports, names and calls of a module, by tables; fp8 dtypes. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from warpfront_port.scan.catalogue import catalogue, rules_by_name
from warpfront_port.scan.package_rules import longest_known, modules_for_cuda
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import last_name, text_of

IMPORTS = {
    **dict.fromkeys(modules_for_cuda(), "PY035"),
    **rules_by_name("imports"),
}
NAMES = rules_by_name("dotted")
ENVIRONMENT = rules_by_name("environment")
EVERY_NAME = frozenset().union(IMPORTS, NAMES, ENVIRONMENT)
OF_PACKAGES = frozenset(rule.id for rule in catalogue().values() if rule.of_a_package)


CALLS: Mapping[str, Sequence[tuple[str, re.Pattern[str], re.Pattern[str], str]]] = {
    name: [
        (rule.id, re.compile(row["argument"]), re.compile(row.get("unless", "(?!)")), row["shown"])
        for rule in catalogue().values()
        for row in rule.seen
        if name in row.get("calls", ())
    ]
    for name in rules_by_name("calls")
}
"""Rule, argument, what the module's text must not have, and what is shown, by what is called."""
_OCP = frozenset({"torch.float8_e4m3fn", "torch.float8_e5m2"})
_COMPUTED = (ast.Call, ast.Attribute, ast.BinOp)


def imports(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[Seen]:
    """Yield `import pynvml`, `from flash_attn import x`, `from numba import cuda`."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level or longest_known(node.module or "", IMPORTS):
        names = [] if node.level else [node.module or ""]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        entries = ((longest_known(name, NAMES), name) for name in names)
        yield from (Seen(NAMES[e], node, n) for e, n in entries if e)
    for name in names:
        yield from _imported(module, node, name)


def calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield calls of the table with an argument of its; `Path("/opt/rocm").exists()` too."""
    name, dotted = last_name(node.func), module.dotted(node.func)
    if dotted in {"importlib.import_module", "__import__"} and node.args:
        yield from _imported(module, node, text_of(node.args[0]) or "")
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    of = (node, receiver) if isinstance(receiver, ast.Call) else (node,)
    for called in {name, dotted, dotted.rpartition(".")[2]} & CALLS.keys():
        arguments = (a for call in of for a in (*call.args, *(i.value for i in call.keywords)))
        yield from _with_arguments(module, node, called, arguments)


def read_variables(module: Module, node: ast.Subscript) -> Iterator[Seen]:
    """Yield `os.environ["CUDA_HOME"]` where it is read, as a call that gets it."""
    if isinstance(node.ctx, ast.Load) and module.dotted(node.value) == "os.environ":
        yield from _with_arguments(module, node, "os.environ.get", [node.slice])


def _with_arguments(
    module: Module, node: ast.AST, called: str, arguments: Iterable[ast.expr]
) -> Iterator[Seen]:
    """Yield the rules about an argument's text, or its source where it is computed."""
    name = called.rpartition(".")[2]
    for argument in arguments:
        texts = [text.text for text in module.scopes.texts(argument)]
        values = (v for v in module.scopes.values(argument) if isinstance(v, _COMPUTED))
        for rule, pattern, unless, shown in CALLS[called]:
            for text in (*texts, *map(module.source_of, values)):
                if pattern.fullmatch(text) and not module.has_match(unless):
                    yield Seen(rule, node, shown.format(name=name, text=text))


def _imported(module: Module, node: ast.AST, name: str) -> Iterator[Seen]:
    entry = longest_known(name, IMPORTS)
    lazy = not isinstance(module.scope(node), ast.Module)
    # What AMD has a build of is needed only where it is called.
    if entry and not (lazy and IMPORTS[entry] == "PY025"):
        better = -2 if entry in {"cupy", "cupyx"} else 0  # cupy has a build for ROCm
        shift = better - int(lazy and IMPORTS[entry] in OF_PACKAGES)
        yield Seen(IMPORTS[entry], node, name, shift=shift)


def attributes(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield dotted names of the table, and fp8 dtypes; each chain once, at its outermost."""
    parent, dotted = module.parents[node], module.dotted(node)
    if isinstance(parent, ast.Attribute) or "." not in dotted:
        return
    if entry := longest_known(dotted, NAMES):
        one_of_many = isinstance(parent, ast.List | ast.Tuple)
        yield Seen(NAMES[entry], node, dotted, shift=-int(one_of_many))
    elif dotted in _OCP and not (f"{node.attr}uz" in module.text or _is_compared(module, node)):
        # Callers may give another dtype than a parameter's default; a view gives bytes a format.
        views = isinstance(parent, ast.Call) and last_name(parent.func) == "view"
        given = views or isinstance(parent, ast.arguments)
        yield Seen("PY037", node, dotted, shift=-int(given))


def _is_compared(module: Module, node: ast.AST) -> bool:
    """Return true if a dtype is compared, described (`torch.finfo`) or listed, but not chosen."""
    parent = module.parents[node]
    described = isinstance(parent, ast.Call) and module.dotted(parent.func).endswith("info")
    return described or isinstance(parent, _LISTING)


_LISTING = (ast.Compare, ast.Dict, ast.Subscript, ast.Tuple, ast.List, ast.Set)


def imports_nvidia(statement: ast.AST) -> bool:
    """Return true if a statement imports a package of NVIDIA's."""
    owner = f"{getattr(statement, 'module', None) or ''}."
    aliases = statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ()
    names = (f"{owner}{alias.name}".strip(".") for alias in aliases)
    return any(longest_known(name, IMPORTS) for name in names)
