"""Rules about installing: commands that Python starts, and requirements that it declares. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import elements, keyword, last_name, text_of
from warpfront_port.scan.python.scopes import HOLE
from warpfront_port.scan.setting_rules import MODES
from warpfront_port.scan.structured.command_rules import script_rule_matches
from warpfront_port.scan.structured.dependencies import toml_rule_matches

STARTERS = frozenset(
    {"run", "call", "check_call", "check_output", "Popen", "popen", "system", "which"}
    | {"getoutput", "getstatusoutput", "create_subprocess_exec", "create_subprocess_shell"}
    | {"execute"}
)
# Of a command: what it installs or starts. Programs have a rule of their own.
_TAKEN = re.compile("DP3\\d\\d|HP609|CT402|PY008|PY025|" + "|".join(MODES.values()))
_SCRIPT = re.compile(r"(?m)^# /// script[^\S\n]*\n((?:^#(?:[^\S\n].*)?\n)+?)# ///")
_STARTED = re.compile(r"\s*(?:\S*/)?(nvidia-smi|nsys|ncu|nvprof)(?:\s|\Z)")
_AMDS_PROGRAMS = re.compile(r"\b(?:rocm[-_]?smi|amd[-_]?smi|rocminfo|rocprof)")


def calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `subprocess.run(["pip", "install", "-e", "."])`, `os.system("pip install -e .")`, and
    nox's `session.install("-e", ".")`.
    """
    name = last_name(node.func)
    if name in STARTERS and node.args:
        for value in module.scopes.values(node.args[0]):
            if isinstance(value, ast.List | ast.Tuple):
                yield from _of_command(module, value.elts, value, node)
            else:
                for text in module.scopes.texts(value):
                    yield from _found(text.text.replace(HOLE, "_"), text.node, node)
    elif name == "install" and last_name(getattr(node.func, "value", node)) == "session":
        yield from _of_command(module, node.args, node, node, "pip install ")


def setup_requirements(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `setup(install_requires=[...], extras_require={...})`."""
    if last_name(node.func) == "setup":
        for group in ("install_requires", "setup_requires", "tests_require"):
            yield from _required(module, keyword(node, group), "", node, set())
        for value in module.scopes.values(keyword(node, "extras_require")):
            pairs = (
                zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
            )
            for key, listed in pairs:
                yield from _required(module, listed, text_of(key) or "?", node, set())


def _of_command(
    module: Module, listed: list[ast.expr], node: ast.AST, via: ast.AST, start: str = ""
) -> Iterator[Seen]:
    """Yield what a list of words starts: each quoted where needed, with `_` for an unknown part."""
    words: list[str] = []
    for element in listed:
        text = next((text.text for text in module.scopes.texts(element)), "_").replace(HOLE, "_")
        text = "python" if module.dotted(element) == "sys.executable" else text
        words.append(f"'{text}'" if re.search(r"[\s;&|<>]", text) and "'" not in text else text)
    yield from _found(start + " ".join(words), node, via)


def _found(command: str, node: ast.AST, via: ast.AST) -> Iterator[Seen]:
    matches = {m.rule: m for m in reversed([*script_rule_matches(command, whole=command)])}
    for rule, match in matches.items():
        if _TAKEN.fullmatch(rule):
            yield Seen(rule=rule, node=node, what=match.what, shift=match.shift, via=via)


def programs(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield NVIDIA's programs at the head of a command."""
    started = _STARTED.match(node.value) if isinstance(node.value, str) else None
    if started is not None and _is_command(module, node):
        shift = -2 if _AMDS_PROGRAMS.search(module.text) else 0
        yield Seen(rule="PY016", node=node, what=started[1], shift=shift)


def _is_command(module: Module, node: ast.Constant) -> bool:
    """Return true if the string is (the head of) a call's command, directly or through one name."""
    for parent, child in module.ancestors(node):
        match parent:
            case ast.List(elts=[head, *_]) | ast.Tuple(elts=[head, *_]):
                if head is not child:
                    return False
            case ast.Call(func=function, args=arguments):
                return child in arguments and last_name(function) in STARTERS
            case ast.Assign(targets=targets):
                names = map(last_name, targets)
                return any(re.search(r"(?i)cmd|command|args", name) for name in names)
            case ast.BinOp() | ast.JoinedStr():
                pass
            case _:
                return False
    return False


def _required(
    module: Module, node: ast.AST | None, extra: str, via: ast.AST, met: set[ast.AST]
) -> Iterator[Seen]:
    """Yield the requirements of a list. `met` are read values: a list may be made of itself."""
    for value in module.scopes.values(node):
        if value in met:
            continue
        met.add(value)
        if isinstance(value, ast.BinOp):
            yield from _required(module, value.left, extra, via, met)
            yield from _required(module, value.right, extra, via, met)
        for text in (text for e in elements(value) for text in module.scopes.texts(e)):
            for required in read_requirement(text.text, extra=extra):
                yield Seen(
                    rule=required.rule, node=text.node, what=text.text,
                    shift=required.shift, via=via,
                )  # fmt: skip


def script_requirements(module: Module) -> Iterator[Match]:
    """Yield the dependencies in a script's comment (PEP 723)."""
    match = _SCRIPT.search(module.text)
    if match is not None:
        plain = re.sub(r"(?m)^# ?", lambda marks: " " * len(marks[0]), match[1])
        moved = match.start(1) - len("[project]\n")
        for found in toml_rule_matches(f"[project]\n{plain}"):
            yield replace(found, start=found.start + moved, end=found.end + moved)
