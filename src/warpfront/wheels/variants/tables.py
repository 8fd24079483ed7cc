"""Wheel variants: several builds of one version, distinguished by a label that represents
properties (PEP 825, provisional, and its prototypes). A cell's target decides. Words.

An index explains labels in `<name>-<version>-variants.json`, a wheel in its own variant.json.
Providers (PEP 850, a draft) are programs that detect a machine's properties. Here none runs, and no
machine is examined: a cell has the properties that its vendor's provider would give its target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from warpfront.errors import LockError
from warpfront.matrix.cell import Properties, Variant, VariantRule
from warpfront.system.strict_values import each_once, first_wrong, read_as

LONGEST_TEXT = 1 << 20
# "Tools MUST NOT make any compatibility assumptions" below 1.0.0 (PEP 825 @8605833b9), so each
# schema that was read has its own keys: of the document, and of `default-priorities`.
_DOCUMENT = frozenset({"$schema", "default-priorities", "variants"})
_OVERRIDES = frozenset({"namespace", "feature", "property"})
_SCHEMAS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "https://variants-schema.wheelnext.dev/v0.0.3.json": (
        _DOCUMENT | {"providers", "static-properties"},
        _OVERRIDES,
    ),
    "https://variants-schema.wheelnext.dev/peps/825/v0.1.0.json": (_DOCUMENT, _OVERRIDES),
    "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json": (
        _DOCUMENT,
        frozenset({"namespace"}),
    ),
}
# What a machine of a kind has at least, as provider-variant-x86-64 @d88028e and -aarch64 say it.
MACHINES: Mapping[str, Properties] = {
    "x86_64": (
        (
            "x86_64",
            (("level", ("v1",)), ("sse2", ("on",)), ("sse", ("on",)), ("mmx", ("on",))),
        ),
    ),
    "aarch64": (("aarch64", (("version", ("8a",)), ("asimd", ("on",)), ("fp", ("on",)))),),
}
# Whose properties are of machines: an index cannot say that a cell has them.
_HARDWARE = frozenset({"nvidia", "amd", "intel", "x86_64", "aarch64", "ascend"})
_MARKED = re.compile(r"\bvariant_(?:label|properties|features|namespaces)\b")


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("it names one thing twice")
    return values


_Name = Annotated[str, Field(pattern=r"\A[a-z0-9_]+\z")]
_Value = Annotated[str, Field(pattern=r"\A[a-z0-9_.]+\z")]
_Names = Annotated[tuple[_Name, ...], AfterValidator(_once)]
_Values = Annotated[tuple[_Value, ...], AfterValidator(_once)]
_Namespaces = Mapping[_Name, Mapping[_Name, _Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priorities:
    namespace: _Names
    feature: Mapping[_Name, _Names] = field(default_factory=dict)
    property: _Namespaces = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """A file of variants, in any of its formats."""

    priorities: Annotated[_Priorities, Field(alias="default-priorities")]
    variants: Mapping[_Value, _Namespaces]
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    static: Annotated[_Namespaces, Field(alias="static-properties")] = field(default_factory=dict)


def asks_by_variant(requires: Iterable[str]) -> str:
    """Return the first requirement that depends on the variant; "" for none."""
    return next((require for require in requires if _MARKED.search(require)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTable:
    """The meaning of one version's labels, and their order of preference. `static` are
    properties of every machine, by the file's own word.
    """

    schema: str
    namespaces: tuple[str, ...]
    variants: Mapping[str, _Namespaces]
    features_first: Mapping[str, tuple[str, ...]]
    values_first: _Namespaces
    static: _Namespaces

    def variant(self, label: str) -> Variant:
        """Return a variant with its properties in a fixed order."""
        properties = self.variants[label]
        return Variant(
            label=label,
            schema=self.schema,
            namespaces=tuple(name for name in self.namespaces if name in properties),
            properties=tuple(
                (
                    namespace,
                    tuple((name, tuple(sorted(features[name]))) for name in sorted(features)),
                )
                for namespace, features in sorted(properties.items())
            ),
        )


def read_variants(text: str, where: str) -> VariantTable:
    """Return the table of a variants.json or variant.json. Raise `LockError` for another text."""
    if len(text) > LONGEST_TEXT:
        raise LockError(f"{where}: longer than {LONGEST_TEXT} characters")
    try:
        return variants_of(json.loads(text, object_pairs_hook=each_once), where)
    except (ValueError, RecursionError) as error:
        raise LockError(f"{where}: not JSON of wheel variants: {error}") from error


def variants_of(document: object, where: str) -> VariantTable:
    """The same of a document that was read before."""
    try:
        return _table(document)
    except ValidationError as error:
        raise LockError(f"{where}: {first_wrong(error)}") from error
    except (ValueError, TypeError) as error:
        raise LockError(f"{where}: {error}") from error


def best_label(
    table: VariantTable, labels: Iterable[str], rule: VariantRule, *, of_the_stack: bool
) -> str | None:
    """Return the label that the cell takes, in the order of PEP 825's "Variant ordering"; None
    if it supports none. Of the stack, only the vendor's, and among them those with the row's
    toolkit if any has it: no property names the toolkit of a wheel's build.
    """
    offered = list(labels)
    if of_the_stack:
        namespace = rule.namespace
        offered = [name for name in offered if not namespace or namespace in table.variants[name]]
        # PyTorch's labels: `cuda12.6`, `cu126`, `rocm7.1`.
        toolkits = {rule.toolkit, rule.toolkit.replace(".", "")} - {""}
        patterns = [f"*[a-z_]{toolkit}" for toolkit in toolkits]
        named = [label for label in offered if any(fnmatchcase(label, p) for p in patterns)]
        offered = named or offered
    keys = {label: _keys(table, label, rule) for label in offered}
    ranked = sorted((key, label) for label, key in keys.items() if key is not None)
    return ranked[0][1] if ranked else None


def supports(rule: VariantRule, variant: Variant) -> bool:
    """Return true if the hardware's properties of a locked variant are the cell's."""
    return all(
        set(values) & set(_values(supported, namespace, feature))
        for supported in rule.supported
        for namespace, features in variant.properties
        if namespace in _HARDWARE
        for feature, values in features
    )


def variant_document(variant: Variant) -> dict[str, Any]:
    """Return `[packages.variants-json]` of PEP 825, with the one label that is locked."""
    properties = {
        namespace: {feature: list(values) for feature, values in features}
        for namespace, features in variant.properties
    }
    return {
        "$schema": variant.schema,
        "default-priorities": {"namespace": list(variant.namespaces)},
        "variants": {variant.label: properties},
    }


def _keys(
    table: VariantTable, label: str, rule: VariantRule
) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """Return for each target the sort key of PEP 825's steps 4 to 7; None if a target lacks
    support. More keys go before fewer: the end sorts after any key.
    """
    every = []
    for supported in rule.supported:
        keys = []
        for namespace, features in table.variants[label].items():
            static = table.static.get(namespace, {})
            for feature, values in features.items():
                known = _values(supported, namespace, feature) or static.get(feature, ())
                first = table.values_first.get(namespace, {}).get(feature, ())
                order = _ordered(first, known)
                best = next(
                    (position for position, value in enumerate(order) if value in values), None
                )
                if best is None:
                    return None
                names = [*dict(dict(supported).get(namespace, ())), *static]
                place = _ordered(table.features_first.get(namespace, ()), names).index(feature)
                keys.append((table.namespaces.index(namespace), place, best))
        every.append((*sorted(keys), (len(table.namespaces),)))
    return tuple(every)


def _values(supported: Properties, namespace: str, feature: str) -> tuple[str, ...]:
    return dict(dict(supported).get(namespace, ())).get(feature, ())


def _ordered(first: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return the known labels, preferred ones first."""
    remaining = list(dict.fromkeys(available))
    return [
        *(element for element in first if element in remaining),
        *(element for element in remaining if element not in first),
    ]


def _table(document: object) -> VariantTable:
    if not isinstance(document, Mapping):
        raise TypeError("it is no table")
    schema = document.get("$schema")
    if not isinstance(schema, str) or schema not in _SCHEMAS:
        raise ValueError(f"$schema is {schema!r}, and this warpfront knows {', '.join(_SCHEMAS)}")
    keys, priorities = _SCHEMAS[schema]
    first = document.get("default-priorities")
    named = first if isinstance(first, Mapping) else ()
    if unknown := sorted({*document} - keys | {*named} - priorities):
        raise ValueError(f"has {', '.join(unknown)}, which its format does not")
    read = read_as(_Document, document)
    if read.variants.get("null"):
        raise ValueError("the variant null has properties")
    every = [pair for properties in read.variants.values() for pair in properties.items()]
    if not all(features and all(features.values()) for _, features in every):
        raise ValueError("variants has a namespace without features, or a feature without values")
    used = {name for name, _ in every}
    if unranked := sorted(used - set(read.priorities.namespace)):
        raise ValueError(f"default-priorities.namespace lacks {', '.join(unranked)}")
    # Properties that need no provider at installation: those of no machine.
    static = {name for name, is_at in read.providers.items() if is_at.get("install-time") is False}
    return VariantTable(
        schema=schema,
        namespaces=read.priorities.namespace,
        variants=read.variants,
        features_first=read.priorities.feature,
        values_first=read.priorities.property,
        static={name: read.static[name] for name in read.static if name in static - _HARDWARE},
    )
