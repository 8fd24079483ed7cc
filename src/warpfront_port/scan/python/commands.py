"""Rules about installing: commands that Python starts, and requirements that it declares. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.python.module import Module, Seen, keyword, last_name, text_of
from warpfront_port.scan.python.scopes import HOLE
from warpfront_port.scan.python.settings import STARTERS
from warpfront_port.scan.setting_rules import MODES
from warpfront_port.scan.structured.dependencies import toml_rule_matches
from warpfront_port.scan.structured.shell import script_rule_matches

_TAKEN = re.compile(r"DP3\d\d|HP609|CT402")
"""Of a command: what it installs or starts. Programs are `settings`'s."""
_SETTINGS = {*MODES.values(), "PY008", "PY025"}
_SCRIPT = re.compile(r"(?m)^# /// script[^\S\n]*\n((?:^#(?:[^\S\n].*)?\n)+?)# ///")
_REQUIREMENTS = ("install_requires", "setup_requires", "tests_require")


def started(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `subprocess.run(["pip", "install", "-e", "."])`, `os.system("pip install -e .")`."""
    if last_name(node.func) not in STARTERS or not node.args:
        return
    for value in module.scopes.values(node.args[0]):
        if isinstance(value, ast.List | ast.Tuple):
            words = [_word(module, element) for element in value.elts]
            yield from _of_command(" ".join(words), value, node)
        else:
            for text in module.scopes.texts(value):
                yield from _of_command(text.text.replace(HOLE, "_"), text.node, node)


def _word(module: Module, node: ast.expr) -> str:
    """Return one word of a command, quoted where needed, with `_` for an unknown part."""
    if module.dotted(node) == "sys.executable":
        return "python"
    text = next((text.text for text in module.scopes.texts(node)), "_").replace(HOLE, "_")
    return f"'{text}'" if re.search(r"[\s;&|<>]", text) and "'" not in text else text


def _of_command(command: str, node: ast.AST, via: ast.AST) -> Iterator[Seen]:
    rules: set[str] = set()
    for match in script_rule_matches(command, whole=command):
        relevant = _TAKEN.fullmatch(match.rule) or match.rule in _SETTINGS
        if relevant and match.rule not in rules:
            rules.add(match.rule)
            yield Seen(rule=match.rule, node=node, what=match.what, shift=match.shift, via=via)


def sessions(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield nox's `session.install("-e", ".")`."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr != "install":
        return
    if last_name(function.value) == "session":
        words = [_word(module, argument) for argument in node.args]
        yield from _of_command(" ".join(["pip", "install", *words]), node, node)


def setup_requirements(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `setup(install_requires=[...], extras_require={...}, python_requires=">=3.11")`."""
    if last_name(node.func) != "setup":
        return
    for name in _REQUIREMENTS:
        yield from _required(module, keyword(node, name), "", node, set())
    for value in module.scopes.values(keyword(node, "extras_require")):
        if isinstance(value, ast.Dict):
            for key, listed in zip(value.keys, value.values, strict=True):
                yield from _required(module, listed, text_of(key) or "?", node, set())


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
        for element in value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else ():
            for text in module.scopes.texts(element):
                for required in read_requirement(text.text, extra=extra):
                    yield Seen(
                        rule=required.rule, node=text.node, what=text.text,
                        shift=required.shift, via=via,
                    )  # fmt: skip


def script_requirements(module: Module) -> Iterator[Match]:
    """Yield the dependencies in a script's comment (PEP 723)."""
    match = _SCRIPT.search(module.text)
    if match is None:
        return
    plain = re.sub(r"(?m)^# ?", lambda marks: " " * len(marks[0]), match[1])
    for requirement_match in toml_rule_matches(f"[project]\n{plain}"):
        moved = match.start(1) - len("[project]\n")
        yield replace(
            requirement_match,
            start=requirement_match.start + moved,
            end=requirement_match.end + moved,
        )
