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
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError

from warpfront.errors import LockError
from warpfront.matrix.cell import Properties, Variant, VariantRule
from warpfront.system.strict_values import each_once, first_wrong, read_as, strict_dataclass

LONGEST_TEXT = 1 << 20
# "Tools MUST NOT make any compatibility assumptions" below 1.0.0 (PEP 825 @8605833b9): tables of
# other schemas are not read.
_Schema = Literal["https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"]
SCHEMA: str = get_args(_Schema)[0]
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
_MARKED = re.compile(r"\bvariant_(?:label|properties|features|namespaces)\b")


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("it names one thing twice")
    return values


_Name = Annotated[str, Field(pattern=r"\A[a-z0-9_]+\z")]
_Value = Annotated[str, Field(pattern=r"\A[a-z0-9_.]+\z")]
_Names = Annotated[tuple[_Name, ...], AfterValidator(_once)]
_Values = Annotated[tuple[_Value, ...], AfterValidator(_once), Field(min_length=1)]
_Features = Annotated[Mapping[_Name, _Values], Field(min_length=1)]


@strict_dataclass
class _Priorities:
    namespace: _Names


@strict_dataclass
class VariantTable:
    """The meaning of one version's labels, and their order of preference."""

    schema: Annotated[_Schema, Field(alias="$schema")]
    priorities: Annotated[_Priorities, Field(alias="default-priorities")]
    variants: Mapping[_Value, Mapping[_Name, _Features]]

    def __post_init__(self) -> None:
        """Raise `ValueError` for what no reader could order."""
        if self.variants.get("null"):
            raise ValueError("the variant null has properties")
        used = {name for properties in self.variants.values() for name in properties}
        if unranked := sorted(used - set(self.priorities.namespace)):
            raise ValueError(f"default-priorities.namespace lacks {', '.join(unranked)}")

    def variant(self, label: str) -> Variant:
        """Return a variant with its properties in a fixed order."""
        properties = self.variants[label]
        return Variant(
            label=label,
            namespaces=tuple(name for name in self.priorities.namespace if name in properties),
            properties=tuple(
                (
                    namespace,
                    tuple((name, tuple(sorted(features[name]))) for name in sorted(features)),
                )
                for namespace, features in sorted(properties.items())
            ),
        )


def asks_by_variant(requires: Iterable[str]) -> str:
    """Return the first requirement that depends on the variant; "" for none."""
    return next((require for require in requires if _MARKED.search(require)), "")


def read_variants(text: str, where: str) -> VariantTable:
    """Return the table of a variants.json or variant.json. Raise `LockError` for another text."""
    if len(text) > LONGEST_TEXT:
        raise LockError(f"{where}: longer than {LONGEST_TEXT} characters")
    try:
        return read_as(VariantTable, json.loads(text, object_pairs_hook=each_once))
    except ValidationError as error:
        raise LockError(f"{where}: {first_wrong(error)}") from error
    except (ValueError, RecursionError) as error:
        raise LockError(f"{where}: not JSON of wheel variants: {error}") from error


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
    """Return true if the properties of a locked variant are the cell's."""
    return all(
        set(values) & set(_known(supported, namespace).get(feature, ()))
        for supported in rule.supported
        for namespace, features in variant.properties
        for feature, values in features
    )


def variant_document(variant: Variant) -> dict[str, Any]:
    """Return `[packages.variants-json]` of PEP 825, with the one label that is locked."""
    properties = {
        namespace: {feature: list(values) for feature, values in features}
        for namespace, features in variant.properties
    }
    return {
        "$schema": SCHEMA,
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
            known = _known(supported, namespace)
            for feature, values in features.items():
                ours = known.get(feature, ())
                best = next((place for place, value in enumerate(ours) if value in values), None)
                if best is None:
                    return None
                rank = table.priorities.namespace.index(namespace)
                keys.append((rank, [*known].index(feature), best))
        every.append((*sorted(keys), (len(table.priorities.namespace),)))
    return tuple(every)


def _known(supported: Properties, namespace: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of each feature of a namespace that a target supports, best first."""
    return dict(dict(supported).get(namespace, ()))
