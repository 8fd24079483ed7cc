"""Rules about installing: commands that Python starts, and requirements that it declares. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import keyword, last_name, text_of
from warpfront_port.scan.python.scopes import HOLE, STARTERS
from warpfront_port.scan.structured.command_rules import script_rule_matches

# Of a command: what it installs or starts. Programs have a rule of their own.
_TAKEN = re.compile(r"DP3\d\d|CT402|PY00[128]|PY025")
_STARTED = re.compile(rf"\s*(?:\S*/)?(nvidia-smi|nsys|ncu|nvprof)(?:[\s{HOLE}]|\Z)")
_NVCC = re.compile(r"(?:\A|/|\W)nvcc(?:\s|\Z)")
_AMDS_PROGRAMS = re.compile(r"\b(?:rocm[-_]?smi|amd[-_]?smi|rocminfo|rocprof)")


def calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `subprocess.run(["pip", "install", "-e", "."])`, `os.system("pip install -e .")`."""
    name = last_name(node.func)
    if name in STARTERS:
        for head in module.scopes.heads(node):
            if started := _STARTED.match(head.text):
                shift = -2 if _AMDS_PROGRAMS.search(module.text) else 0
                yield Seen("PY016", head.node, started[1], shift=shift, via=node)
            elif _NVCC.search(head.text):
                yield Seen("BL214", node, "nvcc")
        command = node.args[0] if node.args else keyword(node, "args")
        for value in module.scopes.values(command):
            lists = module.scopes.words(value)
            for words in lists:
                yield from _found(_command(module, words), value, node)
            for text in () if lists else module.scopes.texts(value):
                yield from _found(text.text.replace(HOLE, "_"), text.node, node)


def setup_requirements(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `setup(install_requires=[...], extras_require={...})`."""
    if last_name(node.func) == "setup":
        for group in ("install_requires", "setup_requires", "tests_require"):
            yield from _required(module, keyword(node, group), "", node)
        for value in module.scopes.values(keyword(node, "extras_require")):
            groups = value if isinstance(value, ast.Dict) else ast.Dict(keys=[], values=[])
            for key, listed in zip(groups.keys, groups.values, strict=True):
                yield from _required(module, listed, text_of(key) or "?", node)


def _command(module: Module, listed: list[ast.expr]) -> str:
    """Return a list of words as a command: each quoted where needed, `_` for an unknown part."""
    words: list[str] = []
    for element in listed:
        text = next((text.text for text in module.scopes.texts(element)), "_").replace(HOLE, "_")
        text = "python" if module.dotted(element) == "sys.executable" else text
        words.append(f"'{text}'" if re.search(r"[\s;&|<>]", text) and "'" not in text else text)
    return " ".join(words)


def _found(command: str, node: ast.AST, via: ast.AST) -> Iterator[Seen]:
    matches = {m.rule: m for m in reversed([*script_rule_matches(command)])}
    for rule, match in matches.items():
        if _TAKEN.fullmatch(rule):
            yield Seen(rule, node, match.excerpt, shift=match.shift, via=via)


def _required(module: Module, node: ast.expr | None, extra: str, via: ast.AST) -> Iterator[Seen]:
    """Yield the requirements of a list."""
    for value in module.scopes.values(node):
        for word in {word for words in module.scopes.words(value) for word in words} or {value}:
            for text in module.scopes.texts(word):
                for required in read_requirement(text.text, extra=extra):
                    place = text.node, text.text, required.shift, via
                    yield Seen(required.rule, *place)
