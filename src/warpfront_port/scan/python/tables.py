"""The names that rules about Python see. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from warpfront_port.scan.catalogue import catalogue, rules_by_name

IMPORTS = rules_by_name("imports")
NAMES = rules_by_name("dotted")
ENVIRONMENT = rules_by_name("environment")
ENVIRONMENT_PREFIXES = rules_by_name("environment_prefixes")
EVERY_NAME = frozenset().union(IMPORTS, NAMES, ENVIRONMENT, ENVIRONMENT_PREFIXES)
OF_PACKAGES = frozenset(rule.id for rule in catalogue().values() if rule.of_a_package)
NVIDIA_PACKAGES = frozenset(name.split(".")[0] for name in IMPORTS)


def imports_nvidia(node: ast.AST) -> bool:
    """Return true if a node imports a package of NVIDIA's."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in NVIDIA_PACKAGES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in NVIDIA_PACKAGES
    return False


def longest_known(dotted: str, table: Mapping[str, str]) -> str:
    """Return the longest prefix of `dotted`, at its dots, that the table has; "" for none."""
    while dotted and dotted not in table:
        dotted = dotted.rpartition(".")[0]
    return dotted
