"""Which variant of a wheel a cell takes: by its target alone, in the order of PEP 825."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import a_cell

from warpfront.errors import LockError
from warpfront.matrix.cell import Toolkit
from warpfront.wheels.core_metadata import split_label
from warpfront.wheels.lock.pylock import variant_rule
from warpfront.wheels.variants.tables import (
    VariantTable,
    asks_by_variant,
    best_label,
    read_variants,
)

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
ROCM = ["gfx90a", "gfx942", "gfx1100"]
# The labels of PyTorch's index.
TORCH = {
    "$schema": SCHEMA,
    "default-priorities": {"namespace": ["nvidia", "amd"]},
    "variants": {
        "null": {},
        "cuda12.6": {
            "nvidia": {
                "cuda_version_lower_bound": ["12.0"],
                "sm_arch": ["70_real", "80_real", "90_real"],
            },
        },
        "cuda12.8": {
            "nvidia": {
                "cuda_version_lower_bound": ["12.0"],
                "sm_arch": ["70_real", "80_real", "90_real", "120_real"],
            },
        },
        "cuda13.0": {
            "nvidia": {
                "cuda_version_lower_bound": ["13.0"],
                "sm_arch": ["80_real", "90_real", "120_real", "120_virtual"],
            },
        },
        "rocm7.0": {"amd": {"gfx_arch": ROCM, "rocm_version": ["7.0"]}},
        "rocm7.1": {"amd": {"gfx_arch": ROCM, "rocm_version": ["7.1"]}},
    },
}


def table(**variants: object) -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["nvidia", "amd", "x86_64", "blas_lapack"]},
        "variants": variants,
    }


def read(document: object) -> VariantTable:
    return read_variants(json.dumps(document), "app-1.0-variants.json")


def chosen(document: object, vendor: str, version: str, *targets: str, stack: bool = True) -> Any:
    names = {"nvidia": "cuda", "amd": "rocm"}
    toolkit = Toolkit(name=names[vendor], version=version) if vendor in names else None  # type: ignore[arg-type]
    cell = a_cell(vendor=vendor, toolkit=toolkit, targets=targets, allow_variants=("torch",))
    rule = variant_rule(cell)
    assert rule is not None
    found = read(document)
    return best_label(found, found.variants, rule, of_the_stack=stack)


@pytest.mark.parametrize(
    ("vendor", "version", "targets", "label"),
    [
        ("nvidia", "12.6", ["sm_90"], "cuda12.6"),
        ("nvidia", "12.8", ["sm_80", "sm_90"], "cuda12.8"),
        ("nvidia", "13.0", ["sm_90", "sm_120"], "cuda13.0"),
        ("nvidia", "12.8", ["sm_86"], "cuda12.8"),  # a chip of the family runs its elder's cubin
        ("nvidia", "13.0", ["sm_70"], None),  # what has sm_70 is of another toolkit
        ("nvidia", "12.6", ["sm_90", "sm_120"], None),  # one target of two is not enough
        ("nvidia", "12.8", ["sm_87"], None),  # an integrated GPU runs its own cubins only
        ("nvidia", "12.9", ["sm_90"], "cuda12.6"),  # none is labelled so: the draft's order
        ("amd", "7.1", ["gfx942", "gfx1100"], "rocm7.1"),
        ("amd", "7.2", ["gfx942"], None),  # not null: an AMD cell gets no torch for CPUs
        ("amd", "7.1", ["gfx950"], None),
        ("cpu", "", ["x86_64"], "null"),
    ],
)
def test_a_torch_is_chosen_by_the_cells_target(
    vendor: str, version: str, targets: list[str], label: str | None
) -> None:
    assert chosen(TORCH, vendor, version, *targets) == label


def test_what_is_not_of_the_stack_falls_back_to_null() -> None:
    assert chosen(TORCH, "amd", "7.2", "gfx942", stack=False) == "null"
    assert chosen(TORCH, "nvidia", "12.6", "sm_90", stack=False) == "cuda12.6"


@pytest.mark.parametrize(
    ("variants", "label"),
    [
        ({"a": {"x86_64": {"level": ["v3"]}}, "null": {}}, "null"),  # any machine of the kind
        ({"a": {"x86_64": {"level": ["v1", "v3"]}}, "null": {}}, "a"),
        ({"a": {"x86_64": {"sse2": ["on"]}}, "b": {"x86_64": {"level": ["v1"]}}}, "b"),
        ({"b": {"x86_64": {"sse2": ["on"]}}, "a": {"x86_64": {"sse2": ["on"]}}}, "a"),
        (
            {
                "a": {"x86_64": {"level": ["v1"]}},
                "b": {"x86_64": {"level": ["v1"], "sse2": ["on"]}},
            },
            "b",
        ),
        ({"a": {"blas_lapack": {"library": ["mkl"]}}}, None),  # nobody here knows this provider
        ({}, None),
    ],
    ids=["too new", "one value of two", "by feature", "same", "more of it", "unknown", "none"],
)
def test_the_order_is_the_drafts(variants: dict[str, object], label: str | None) -> None:
    assert chosen(table(**variants), "cpu", "", "x86_64") == label


def _with(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = table(null={}, a={"x86_64": {"level": ["v1"]}})
    change(document)
    return document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON|dictionary"),
        (" " * (2 << 20), "longer than"),
        ("[]", "dictionary"),
        ("{}", "required"),
        ('{"variants": {}, "variants": {}}', "twice"),
        (_with(lambda d: d.update({"$schema": SCHEMA.replace("0.1.1", "1.0.0")})), "v0.1.1.json"),
        (_with(lambda d: d.update({"$schema": ["a"]})), "v0.1.1.json"),
        (_with(lambda d: d.update(more={})), "more: "),
        (_with(lambda d: d.update(variants=[])), "valid dictionary"),
        (_with(lambda d: d["variants"].update({"../../a": {}})), "match pattern"),
        (_with(lambda d: d["variants"].update({"": {}})), "match pattern"),
        (_with(lambda d: d["variants"].update({"a\n": {}})), "match pattern"),
        (_with(lambda d: d["variants"].update(a=None)), "valid dictionary"),
        (_with(lambda d: d["variants"].update(a={"x86_64": []})), "valid dictionary"),
        (_with(lambda d: d["variants"].update(a={"x86_64": {}})), "at least 1"),
        (_with(lambda d: d["variants"].update(a={"x86_64": {"level": []}})), "at least 1"),
        (_with(lambda d: d["variants"].update(a={"x86_64": {"level": "v1"}})), "valid tuple"),
        (_with(lambda d: d["variants"].update(a={"x86_64": {"level": [1]}})), "valid string"),
        (_with(lambda d: d["variants"].update(a={"x86_64": {"level": ["v1", "v1"]}})), "twice"),
        (_with(lambda d: d["variants"].update(a={"other": {"level": ["v1"]}})), "lacks other"),
        (_with(lambda d: d["variants"].update(null={"x86_64": {"level": ["v1"]}})), "null has"),
        (_with(lambda d: d.update({"default-priorities": {"namespace": "x86_64"}})), "valid tuple"),
        (_with(lambda d: d.update(providers={})), "providers: "),
        (_with(lambda d: d["default-priorities"].update(feature={})), "feature: "),
        (_with(lambda d: d["default-priorities"].update(property={})), "property: "),
    ],
)
def test_a_hostile_table_is_one_error(text: object, said: str) -> None:
    with pytest.raises(LockError, match=said) as caught:
        read_variants(text if isinstance(text, str) else json.dumps(text), "app-variants.json")
    assert "app-variants.json" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("filename", "plain", "label"),
    [
        ("a-1-py3-none-any-null.whl", "a-1-py3-none-any.whl", "null"),
        ("a-1-2-py3-none-any-x86_64_v3.whl", "a-1-2-py3-none-any.whl", "x86_64_v3"),
        ("a-1+cu-py3-none-any-cuda12.6.whl", "a-1+cu-py3-none-any.whl", "cuda12.6"),
        ("a-1-py3-none-any-...whl", "a-1-py3-none-any.whl", ".."),
        ("a-1-2-py3-none-any.whl", "", ""),
        ("a-1-py3-none-any.whl", "", ""),
        ("a-1-py3-none-any-../../b.whl", "", ""),
        ("../a-1-py3-none-any-b.whl", "", ""),
        ("a-1-py3-none-any-B.whl", "", ""),
        ("a-1-py3-none-any-b-c.whl", "", ""),
        ("a-1-py3-none-any-b.whl\n", "", ""),
        ("a-1.tar.gz", "", ""),
    ],
)
def test_a_label_is_read_off_a_wheels_name_alone(filename: str, plain: str, label: str) -> None:
    assert split_label(filename) == (plain or filename, label)


def test_a_demand_that_depends_on_the_variant_is_seen() -> None:
    assert asks_by_variant(["numpy", "a; 'nvidia' in variant_namespaces"])
    assert asks_by_variant(["a; variant_label == 'cuda12.6'"])
    assert not asks_by_variant(["variant-label", "a; python_version > '3'"])
