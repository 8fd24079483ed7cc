"""Licences from a package's own words, and their conditions for redistribution. Pure.

Words are data (`data/licences.toml`). Anything that they do not state for certain is
unknown, never guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from typing import Any, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from warpfront.system.packaged import packaged_toml
from warpfront_checks.image_contents import FoundDistribution, Package

Source = Literal["License-Expression", "License", "Classifier", "copyright file", ""]
_LONGEST = 20_000
_DEEPEST = 50
_WORD = re.compile(r"[A-Za-z0-9.+-]+")
_TERM = re.compile(rf"{_WORD.pattern}(?: WITH {_WORD.pattern})?")
_OPERATORS = {"AND": "and", "OR": "or"}
_JOINED = re.compile(r",? (or|and) |,? and/or ", re.IGNORECASE)
_UNKNOWN = "unknown"
_NOT_CLASSED = "not classed"
_DEBIAN_MAIN = "free by Debian's word"
_BY_DEBIAN = "LicenseRef-Debian-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """An SPDX expression, "" where none is known; `source` is the field that declares it.
    `said` has the words that it was parsed from or that could not be parsed.
    """

    expression: str = ""
    source: Source = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceClass:
    """The conditions of one kind of licences. `decision` is the one for people, before an image
    is passed on.
    """

    name: str
    decision: bool
    means: str


@cache
def _tables() -> Mapping[str, Any]:
    return packaged_toml("licences.toml")


def licence_of(package: FoundDistribution) -> Licence:
    """Return the licence of a distribution's metadata, from the clearest field first. If one of
    our fields is present and cannot be parsed, no weaker one replaces it.
    """
    if package.expression:
        expression = _canonical(package.expression)
        return Licence(expression=expression, source="License-Expression", said=package.expression)
    everything = "; ".join(filter(None, (package.licence, *package.classifiers)))
    proprietary = _proprietary(package)
    text = _canonical(package.licence) or _tables()["words"].get(_plain(package.licence), "")
    named = Licence(expression=text, source="License", said=package.licence)
    if text and proprietary and class_of(named).name != "proprietary":
        return Licence(said=everything)  # nvidia-nvtx: Apache 2.0, and proprietary
    if text:
        return named
    if proprietary:
        return proprietary
    classified = {
        _tables()["classifiers"].get(classifier, "") for classifier in package.classifiers
    }
    if len(classified) == 1 and "" not in classified:
        return Licence(
            expression=classified.pop(), source="Classifier", said=package.classifiers[0]
        )
    return Licence(said=everything)


def licence_of_package(package: Package) -> Licence:
    """Return all licences that a Debian copyright file names; it does not state which part of
    the sources went into the package.
    """
    if not package.licences:
        return Licence()
    named = [_debian(licence) for licence in package.licences]
    split = ([text] if " OR " in text else text.split(" AND ") for text in named)
    names = sorted({part for parts in split for part in parts})
    joined = " AND ".join(f"({name})" if " OR " in name else name for name in names)
    return Licence(
        expression=_canonical(joined), source="copyright file", said="; ".join(package.licences)
    )


def class_of(licence: Licence, *, debian_main: bool = False) -> LicenceClass:
    """Return the class of an expression: the strictest with AND, the least strict with OR.
    `debian_main`: it is known to come from there, where all is free under any name.
    """
    name = _DEBIAN_MAIN if debian_main else _UNKNOWN
    if licence.expression:
        # Its operators are Python's, with the same precedence.
        source = _TERM.sub(lambda term: _OPERATORS.get(term[0], repr(term[0])), licence.expression)
        unclassed = _DEBIAN_MAIN if debian_main else _NOT_CLASSED
        name = _class_in(ast.parse(source, mode="eval").body, unclassed)
    row = next(table for table in _tables()["classes"] if table["name"] == name)
    return LicenceClass(name=name, decision=row["decision"], means=row["means"])


def _class_in(node: ast.expr, unclassed: str) -> str:
    """Return the class of an expression's part: a term, or terms with one operator."""
    if isinstance(node, ast.BoolOp):
        ranks = [table["name"] for table in _tables()["classes"]]
        classes = (_class_in(term, unclassed) for term in node.values)
        return (max if isinstance(node.op, ast.And) else min)(classes, key=ranks.index)
    assert isinstance(node, ast.Constant)
    identifier, _, exception = str(node.value).partition(" WITH ")
    plain = identifier.removesuffix("+")
    named = (
        row["name"]
        for row in _tables()["classes"]
        if plain in row["ids"] or plain.startswith(tuple(row.get("prefixes", ())))
    )
    name = next(named, unclassed)
    return str(_tables()["exceptions"].get(exception, name))


def _proprietary(package: FoundDistribution) -> Licence | None:
    table = _tables()["proprietary"]
    classifiers = [
        classifier for classifier in package.classifiers if classifier in table["classifiers"]
    ]
    if _plain(package.licence) in table["words"]:
        classifiers.append(package.licence)
    if not classifiers:
        return None
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    owned = (licence for pattern, licence in table["names"].items() if fnmatch(name, pattern))
    return Licence(
        expression=next(owned, table["otherwise"]),
        source="License" if classifiers[0] == package.licence else "Classifier",
        said=classifiers[0],
    )


def _debian(name: str) -> str:
    """Return one `License:` of a copyright file as an SPDX expression. A name that SPDX lacks
    becomes a reference that names its author.
    """
    table = _tables()["debian"]
    if name.lower() in table:
        return str(table[name.lower()])
    parts = _JOINED.split(name)
    operators = {part.upper() for part in parts[1::2] if part}
    terms = [table.get(part.strip().lower()) for part in parts[::2]]
    if len(operators) == 1 and all(terms):
        return f" {operators.pop()} ".join(terms)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:80] or "unnamed"
    return f"{_BY_DEBIAN}{slug}"


def _canonical(text: str) -> str:
    """Return a valid SPDX expression in SPDX's own spelling, else "". (Its parser evaluates a
    Python expression of the same shape, so length and depth of untrusted input are limited.)
    """
    if not text.strip() or len(text) > _LONGEST or text.count("(") > _DEEPEST:
        return ""
    try:
        return str(canonicalize_license_expression(text))
    except (InvalidLicenseExpression, RecursionError, MemoryError, SyntaxError):
        return ""


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def references(expressions: Iterable[str]) -> tuple[str, ...]:
    """Return the `LicenseRef-`s of these expressions, which SPDX wants explained."""
    words = {word for expression in expressions for word in _WORD.findall(expression)}
    return tuple(sorted(word for word in words if word.startswith("LicenseRef-")))
