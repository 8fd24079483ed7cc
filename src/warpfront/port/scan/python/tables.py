"""The names that rules are about, from `names.toml`. Pure."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from warpfront.port.scan.catalogue import catalogue

_KINDS = ("imports", "names", "environment", "environment_prefixes")


@cache
def _document() -> Mapping[str, Mapping[str, list[str]]]:
    file = resources.files("warpfront.port.scan.python").joinpath("names.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def rules_by_name(kind: str) -> Mapping[str, str]:
    """Name to rule, for one of the tables of `names.toml`."""
    if kind not in _KINDS:
        raise ValueError(f"no table {kind!r}")
    return {name: rule for rule, names in _document()[kind].items() for name in names}


IMPORTS = rules_by_name("imports")
NAMES = rules_by_name("names")
ENVIRONMENT = rules_by_name("environment")
ENVIRONMENT_PREFIXES = rules_by_name("environment_prefixes")
OF_PACKAGES = frozenset(rule.id for rule in catalogue().values() if rule.of_a_package)
NVIDIA_PACKAGES = frozenset(name.split(".")[0] for name in IMPORTS)


def imports_nvidia(node: ast.AST) -> bool:
    """Whether a node imports a package of NVIDIA's."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in NVIDIA_PACKAGES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in NVIDIA_PACKAGES
    return False


def table_names() -> frozenset[str]:
    """Every name of every table."""
    return frozenset().union(IMPORTS, NAMES, ENVIRONMENT, ENVIRONMENT_PREFIXES)


def longest_known(dotted: str, table: Mapping[str, str]) -> str:
    """The longest prefix of `dotted`, at its dots, that the table has; "" for none."""
    return next((prefix for prefix in _prefixes(dotted) if prefix in table), "")


def _prefixes(dotted: str) -> Iterator[str]:
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]
