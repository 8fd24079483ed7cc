"""Edits of Python that give AMD another value and leave NVIDIA the one that it has. Pure.

A value becomes a choice by `torch.version.hip`, or by the flag that the module itself has for it.
Each edited file is compared with the one before. The
tree that NVIDIA reaches must be the same, and all earlier findings must remain except the fixed
ones. A file that fails either is unchanged.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from warpfront_port.scan.findings import Context, Gate, Match, SourceText
from warpfront_port.scan.fix import Edit, Fix, edited
from warpfront_port.scan.isolation import isolation_rule_matches
from warpfront_port.scan.python import rule_matches
from warpfront_port.scan.python.conditions import AMD
from warpfront_port.scan.python.module import Module, read_module
from warpfront_port.scan.python.nodes import elements, text_of

_TEXTS = {
    "PY001": {"reduce-overhead": "default"},
    "PY002": {"max-autotune": "max-autotune-no-cudagraphs"},
    "PY008": {"high": "highest", "medium": "highest", "tf32": "ieee"},
    "PY025": {"flash_attention_2": "sdpa", "flash_attention_3": "sdpa"},
}
"""What a text becomes on AMD."""
_SWITCHES = frozenset({"PY001", "PY004", "PY008", "PY025"})
"""Rules about a switch that is on: AMD has it off."""
_OF_BUILDS = frozenset({"BL201", "BL202", "PY047"})
FIXED_IN_PYTHON = frozenset({*_TEXTS, *_SWITCHES, *_OF_BUILDS, "PY010"})
_MET_TOO = frozenset({"BL211", "BL214", "BL216", "PY047"})
"""Rules about builds that never ask for ROCm: an edit that asks for it answers them as well."""


def fix_python(source: SourceText) -> Fix | None:
    """Return the module with its mechanical findings fixed.

    The result is None without such findings, or if it changes NVIDIA's code or other findings.
    """
    module = read_module(source.path, source.text)
    if module is None or "\r" in source.text or "\f" in source.text:
        return None
    edits = [
        set(_edits(module, match))
        for match in rule_matches(source, Context())
        if {"nvidia", "amd"} <= match.sides
        and match.rule in FIXED_IN_PYTHON
        and match.gate in (Gate.OPEN, *([Gate.AVAILABILITY] if match.rule in _OF_BUILDS else []))
    ]
    for subset in (set().union(*edits), *(edits if len(edits) > 1 else ())):
        apart: list[Edit] = []
        for edit in sorted(subset):
            if not apart or edit.start >= apart[-1].end:
                apart.append(edit)
        fix = _fix(source, apart)
        if fix is not None:
            return fix
    return None


def _fix(source: SourceText, edits: Sequence[Edit]) -> Fix | None:
    after = SourceText(path=source.path, text=edited(source.text, edits))
    fixed = Counter(edit.rule for edit in edits if edit.rule)
    if not fixed or isolation_rule_matches(source, after):
        return None
    before, remaining = _found(source), _found(after)
    gone = before - remaining
    if not fixed <= gone or set(gone - fixed) - _MET_TOO or not remaining <= before:
        return None
    rules = tuple(sorted(fixed.elements()))
    return Fix(path=source.path, before=source.text, after=after.text, rules=rules)


def _found(source: SourceText) -> Counter[str]:
    """Return the number of matches of each rule in code that AMD reaches, not optional code."""
    matches = rule_matches(source, Context())
    places = {(m.rule, m.start) for m in matches if "amd" in m.sides and not m.gate_line}
    return Counter(rule for rule, _ in places)


def _edits(module: Module, match: Match) -> Iterator[Edit]:
    node = next((n for n in module.nodes if module.span(n) == (match.start, match.end)), None)
    gate = _gate(module, match.start)
    if node is None:
        return
    if match.rule == "PY047":
        yield from _either_home(module, node)
    elif match.rule in _OF_BUILDS:
        yield from _without_flag(module, node, gate, match.rule)
    elif gate and (other := _other(module, match.rule, node)):
        # The value becomes a choice by the gate.
        chosen = f"({other} if {gate} else {module.source_of(node)})"
        yield Edit(start=match.start, end=match.end, text=chosen, rule=match.rule)


def _without_flag(module: Module, node: ast.AST, gate: str, rule: str) -> Iterator[Edit]:
    """Yield edits that remove an option of nvcc from AMD's list. They need an import of torch."""
    if node not in elements(module.parents.get(node)):
        return
    if not gate:
        place = next((n for n in module.tree.body if _imports_of_torch(n)), None)
        if place is None:
            return
        start = module.span(place)[0]
        yield Edit(start=start, end=start, text="import torch\n", rule="")
    start, end = module.span(node)
    chosen = f"*([] if {gate or 'torch.version.hip'} else [{module.text[start:end]}])"
    yield Edit(start=start, end=end, text=chosen, rule=rule)


def _imports_of_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch"


def _either_home(module: Module, test: ast.AST) -> Iterator[Edit]:
    """Yield edits to `CUDA_HOME or ROCM_HOME` in a test, and to the import that they need."""
    imports = [n for n in module.of(ast.ImportFrom) if _imports_of_torch(n)]
    home = next((n for n in imports if any(alias.name == "CUDA_HOME" for alias in n.names)), None)
    uses = [n for n in ast.walk(test) if isinstance(n, ast.Name) and n.id == "CUDA_HOME"]
    if home is None or not uses:
        return
    start, end = module.span(home)
    text = module.text[start:end]
    if "ROCM_HOME" not in text:
        both = re.sub(r"\bCUDA_HOME\b", "CUDA_HOME, ROCM_HOME", text)
        yield Edit(start=start, end=end, text=both, rule="")
    for number, use in enumerate(uses):
        start, end = module.span(use)
        text = "(CUDA_HOME or ROCM_HOME)"
        yield Edit(start=start, end=end, text=text, rule="" if number else "PY047")


def _gate(module: Module, offset: int) -> str:
    """Return the test for AMD at `offset`: a flag of the module, or of an imported torch."""
    above = [node for node in module.tree.body if module.span(node)[0] < offset]
    for node in above:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
                module.conditions.truths(value) == AMD
            ):
                return name
            case _:
                pass
    for alias in (a for node in above if isinstance(node, ast.Import) for a in node.names):
        if alias.name == "torch" or (alias.name.startswith("torch.") and not alias.asname):
            return f"{alias.asname or 'torch'}.version.hip"
    return ""


def _other(module: Module, rule: str, value: ast.AST) -> str:
    """Return the source of the value for AMD; "" for none, and for a part of composed text."""
    text = text_of(value)
    if isinstance(module.parents.get(value), ast.JoinedStr | ast.FormattedValue):
        return ""
    if text is not None and rule == "PY010":
        settings = [
            setting for setting in text.split(",") if not re.match(r"\s*max_split_size_mb", setting)
        ]
        return repr(",".join(settings)) if "=" not in text else ""
    if text is not None:
        other = _TEXTS.get(rule, {}).get(text)
        return f'"{other}"' if other is not None else ""
    on = isinstance(value, ast.Constant) and value.value is True
    return "False" if on and rule in _SWITCHES else ""
