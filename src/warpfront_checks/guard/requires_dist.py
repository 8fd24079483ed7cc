"""Reads what installed distributions require of each other, without `packaging`, which an image
need not have.

Honest in what it cannot read: a requirement that is not understood is listed, never taken as met.
Grammar: PEP 508 (the part that wheels' `Requires-Dist` uses), versions and specifiers: PEP 440.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .policy import normalized

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*"
    r"\(?(?P<specifiers>[^;()@]*)\)?\s*(?:;(?P<marker>.*))?$"
)
_SPECIFIER = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^\s<>=~]+)$")
_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_n>\d*))?"
    r"(?P<post>(?:[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*))|-(?P<post_m>\d+))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?$",
    re.IGNORECASE,
)
_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "===",
    ast.IsNot: "~=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_LONGEST_VERSION = 256
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_VERSION_VARIABLES = {"python_version", "python_full_version", "implementation_version"}


class UnreadableError(ValueError):
    """A requirement, version or marker outside the grammar that is read here."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A `Requires-Dist` line: `name` normalised, `specifiers` as (operator, version)."""

    name: str
    extras: tuple[str, ...]
    specifiers: tuple[tuple[str, str], ...]
    marker: str

    def applies(self, extras: Iterable[str] = ()) -> bool:
        """Return whether the marker is true here, with the requiring distribution's extras."""
        if not self.marker:
            return True
        environment = marker_environment()
        return any(_holds(self.marker, {**environment, "extra": e}) for e in ("", *extras))

    def accepts(self, version: str) -> bool:
        return all(_meets(version, operator, number) for operator, number in self.specifiers)


def read_requirement(line: str) -> Requirement:
    """Parse one line. Raise `UnreadableError` for URLs and anything else outside the grammar."""
    match = _REQUIREMENT.match(" ".join(line.split()))
    if not match:
        raise UnreadableError(line)
    specifiers = []
    for part in filter(None, (part.strip() for part in match["specifiers"].split(","))):
        specifier = _SPECIFIER.match(part)
        if not specifier:
            raise UnreadableError(line)
        specifiers.append((specifier[1], specifier[2]))
    return Requirement(
        name=normalized(match["name"]),
        extras=tuple(
            normalized(e.strip()) for e in (match["extras"] or "").split(",") if e.strip()
        ),
        specifiers=tuple(specifiers),
        marker=(match["marker"] or "").strip(),
    )


def meets(line: str, version: str, *, unknown: bool) -> bool:
    """Return whether a version meets a requirement; `unknown` if one of them cannot be read."""
    try:
        return read_requirement(line).accepts(version)
    except UnreadableError:
        return unknown


def marker_environment() -> dict[str, str]:
    """Return the environment to evaluate markers: this interpreter."""
    return {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
        "platform_release": platform.release(),
        "platform_version": platform.version(),
        "platform_python_implementation": platform.python_implementation(),
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
    }


def sort_key(version: str) -> tuple[object, ...]:
    """Return the key of PEP 440's order, without the local label. Raise `UnreadableError`."""
    match = _VERSION.match(version.strip())
    if not match or len(version) > _LONGEST_VERSION:
        raise UnreadableError(version)
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    pre: tuple[object, ...]
    if match["pre"]:
        name = match["pre"].lower()
        pre = (0, _PRE.get(name, name), int(match["pre_n"] or 0))
    else:
        pre = (-1, "", 0) if match["dev"] and not match["post"] else (1, "", 0)
    post = int(match["post_n"] or match["post_m"] or 0) if match["post"] else -1
    dev = int(match["dev_n"] or 0) if match["dev"] else sys.maxsize
    return (int(match["epoch"] or 0), tuple(release), pre, post, dev)


def _meets(version: str, operator: str, number: str) -> bool:
    if operator == "===":
        return version.lower() == number.lower()
    if number.endswith(".*"):
        return _starts_with(version, number[:-2]) is (operator == "==")
    if operator == "~=":
        prefix = number.rpartition(".")[0]
        return sort_key(version) >= sort_key(number) and _starts_with(version, prefix)
    if operator in {"==", "!="} and "+" in number:
        same = sort_key(version) == sort_key(number) and _local(version) == _local(number)
        return same is (operator == "==")
    key, bound = sort_key(version), sort_key(number)
    is_pre = bound[2] != (1, "", 0) or bound[4] != sys.maxsize
    is_post = key[3] != -1 and bound[3] == -1
    table = {
        "==": key == bound,
        "!=": key != bound,
        "<=": key <= bound,
        ">=": key >= bound,
        # PEP 440: `<` and `>` do not reach a pre-release, respectively a post-release, of the named
        # version.
        "<": key < (bound if is_pre else sort_key(f"{number}.dev0")),
        ">": key > bound and not (is_post and key[:3] == bound[:3]),
    }
    return table[operator]


def _starts_with(version: str, prefix: str) -> bool:
    match = _VERSION.match(version.strip())
    longest = max(len(version), len(prefix))
    if not match or longest > _LONGEST_VERSION or not re.fullmatch(r"\d+(\.\d+)*", prefix):
        raise UnreadableError(f"{version} against {prefix}.*")
    leading = [int(part) for part in prefix.split(".")]
    release = [int(part) for part in match["release"].split(".")]
    return (release + [0] * len(leading))[: len(leading)] == leading


def _local(version: str) -> str:
    return re.sub(r"[-_.]", ".", version.partition("+")[2].lower())


def _holds(marker: str, environment: Mapping[str, str]) -> bool:
    """Return whether a marker is true. `===` and `~=` stand as two that it cannot have."""
    if re.search(r"\bis\b|[#\\\n]", marker):
        raise UnreadableError(marker)
    try:
        parsed = ast.parse(marker.replace("===", " is ").replace("~=", " is not "), mode="eval")
        return _truth(parsed.body, environment)
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError) as error:
        raise UnreadableError(marker) from error


def _text(node: ast.expr, environment: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return environment[node.id]
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise UnreadableError(ast.dump(node))
    return node.value


def _truth(node: ast.expr, environment: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        truths = [_truth(value, environment) for value in node.values]
        return any(truths) if isinstance(node.op, ast.Or) else all(truths)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError(ast.dump(node))
    sides = (node.left, node.comparators[0])
    names = [side.id if isinstance(side, ast.Name) else "" for side in sides]
    left_text, right_text = (_text(side, environment) for side in sides)
    operator = _OPERATORS[type(node.ops[0])]
    if operator in {"in", "not in"}:
        return (left_text in right_text) is (operator == "in")
    if _VERSION_VARIABLES & {*names}:
        if names[1] in _VERSION_VARIABLES:
            raise ValueError(operator)
        return _meets(left_text, operator, right_text)
    if "extra" in names:
        left_text, right_text = normalized(left_text), normalized(right_text)
    if operator not in {"==", "!="}:
        raise ValueError(operator)
    return (left_text == right_text) is (operator == "==")
