"""The names that rules about Python see. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from warpfront_port.scan.catalogue import catalogue, rules_by_name
from warpfront_port.scan.package_rules import vendor_packages

IMPORTS = {
    **{m: "PY035" for p in vendor_packages().values() if not p.for_rocm for m in p.modules},
    **rules_by_name("imports"),
}
NAMES = rules_by_name("dotted")
ENVIRONMENT = rules_by_name("environment")
EVERY_NAME = frozenset().union(IMPORTS, NAMES, ENVIRONMENT)
OF_PACKAGES = frozenset(rule.id for rule in catalogue().values() if rule.of_a_package)
NVIDIA_PACKAGES = frozenset(name.split(".")[0] for name in IMPORTS)


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


def imports_nvidia(node: ast.AST) -> bool:
    """Return true if a node imports a package of NVIDIA's."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.split(".")[0] in NVIDIA_PACKAGES for name in names)


def longest_known(dotted: str, table: Mapping[str, str]) -> str:
    """Return the longest prefix of `dotted`, at its dots, that the table has; "" for none."""
    while dotted and dotted not in table:
        dotted = dotted.rpartition(".")[0]
    return dotted
