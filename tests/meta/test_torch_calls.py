"""Torch's functions are called by one module of the checks each: a case is written once.

Counted are the calls of records and of statements in texts, and those of the modules themselves. A
record's definition is its reference, and no call that is judged. A module of the catalogue is its
topic's.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from warpfront_checks.cases.catalogue import TOPICS

CHECKS = Path(__file__).resolve().parents[2] / "src" / "warpfront_checks"
CALL = re.compile(
    r"\b(?:torch(?:\.(?:linalg|fft|special|nn\.functional|_C\._nn))?|F|functional)\.([a-z_]\w*)\("
)
# Those that make numbers, compare results or set torch's state compute nothing that is judged.
MOST = 0.15


def calls_in(source: str) -> Iterator[str]:
    """Yield the functions of torch that a module and the statements in its texts call."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield from CALL.findall(f"{ast.unparse(node.func)}(")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from CALL.findall(node.value)


def repeated(modules: Mapping[str, Iterator[str]]) -> tuple[set[str], set[str]]:
    """Return all functions, and those of more than one module."""
    callers: dict[str, set[str]] = defaultdict(set)
    for module, functions in modules.items():
        for function in functions:
            callers[function].add(module)
    return {*callers}, {function for function, each in callers.items() if len(each) > 1}


def modules_of_checks() -> dict[str, Iterator[str]]:
    catalogue = CHECKS / "cases" / "catalogue"
    modules = {
        str(path.relative_to(CHECKS)): calls_in(path.read_text(encoding="utf-8"))
        for path in CHECKS.rglob("*.py")
        if catalogue not in path.parents and "guard" not in path.parts
    }
    for topic, operations in TOPICS.items():
        modules[f"catalogue: {topic}"] = iter(CALL.findall(" ".join(o.code for o in operations)))
    return modules


def test_few_functions_of_torch_are_called_by_more_than_one_module() -> None:
    functions, several = repeated(modules_of_checks())
    assert len(functions) > 300
    assert len(several) / len(functions) < MOST, sorted(several)


def test_a_call_in_a_second_module_is_counted() -> None:
    first = calls_in("import torch\ntorch.mm(a, b)\nrow = 'F.gelu(a)'\n")
    second = calls_in("from torch.nn import functional\nfunctional.gelu(x)\nx.mm(y)\n")
    assert repeated({"one": first, "two": second}) == ({"mm", "gelu"}, {"gelu"})
