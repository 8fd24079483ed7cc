"""Locks whose wheels are one of several builds, or patched: what is written of them, what is read
back, what is refused, and when they are stale.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import A_PATCH, a_cell, a_lock, a_wheel

from warpfront.errors import LockError
from warpfront.matrix.cell import Toolkit, Variant, VariantRule
from warpfront.matrix.language import OwnIndex, Patch
from warpfront.wheels.lock.pylock import (
    dump_lock,
    foreign_wheel,
    gone_back,
    lock_inputs,
    read_lock,
    staleness,
    unwanted_variant,
)
from warpfront.wheels.lock.values import LockedWheel, LockInputs, PatchedWheel, WheelLock
from warpfront.wheels.variants.tables import MACHINES, SCHEMA

PATH = "pylock.cell.toml"
RELOCK = "make it again: warpfront lock --only <cell>"
ON_MI300 = (("amd", (("gfx_arch", ("gfx942",)), ("rocm_version", ("7.1",)))),)
ROCM = Toolkit(name="rocm", version="7.1.2")
CELL = a_cell(vendor="amd", toolkit=ROCM, targets=("gfx942",), allow_variants=("torch",))
LABEL = "rocm71"
VARIANT = Variant(label=LABEL, namespaces=("amd",), properties=ON_MI300)
PLAIN = "torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64"
TORCH = a_wheel("torch", "2.10.0", filename=f"{PLAIN}-{LABEL}.whl", variant=VARIANT)
ORIGINAL = a_wheel("lmcache", "0.3.9", index="https://one.test/simple")
PATCHED = a_wheel("lmcache", "0.3.9+patched.1", sdist="lmcache.tar.gz", sdist_sha256="5" * 64)
OWN = a_wheel("own", "1.0+patched.2", sdist="own.tar.gz", sdist_sha256="6" * 64)
SECOND = Patch(package="lmcache", version="0.3.9", file="b", sha256="c" * 64, reason="r", strip=2)
LOCK = dataclasses.replace(
    a_lock(CELL, PATCHED, OWN, TORCH),
    patched=(
        PatchedWheel(package="lmcache", patches=(A_PATCH, SECOND), original=ORIGINAL),
        PatchedWheel(package="own", patches=(dataclasses.replace(A_PATCH, package="own"),)),
    ),
)
TEXT = dump_lock(LOCK)


def wheel_text(name: str, version: str, filename: str, sdist: str = "") -> str:
    wheel = next(one for one in LOCK.wheels if one.name == name)
    return (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        'index = "https://pypi.org/simple"\n\n'
        f'[[packages.wheels]]\npath = "{filename}"\nsize = 1000\n\n'
        f'[packages.wheels.hashes]\nsha256 = "{wheel.sha256}"\n{sdist}'
    )


def patch_text(package: str) -> str:
    return (
        f"[[tool.warpfront.patched.{package}.patches]]\n"
        f'package = "{package}"\nversion = "0.3.9"\nfile = "patches/hpu.patch"\n'
        f'sha256 = "{"ab" * 32}"\nreason = "for Gaudi"\nstrip = 1\n'
        'upstream = "https://example.test/lmcache/pull/1066"\n'
    )


def test_a_variant_is_written_with_its_whole_name_and_what_its_label_stands_for() -> None:
    # PEP 751 demands a file name that its readers know; PEP 825 adds the label to it.
    table = dump_lock(LOCK).partition('name = "torch"')[2].partition("[tool.warpfront]")[0]
    assert f'path = "{PLAIN}-{LABEL}.whl"\n' in table
    assert table.endswith(
        f'[packages.variants-json]\n"$schema" = "{SCHEMA}"\n\n'
        '[packages.variants-json.default-priorities]\nnamespace = [\n    "amd",\n]\n\n'
        f"[packages.variants-json.variants.{LABEL}.amd]\n"
        'gfx_arch = [\n    "gfx942",\n]\nrocm_version = [\n    "7.1",\n]\n\n'
    )


def test_a_patched_wheel_is_written_with_its_origin_and_its_patches_in_order() -> None:
    made = f'\n[packages.tool.warpfront]\narchive = "lmcache.tar.gz"\nsha256 = "{"5" * 64}"\n'
    name = "lmcache-0.3.9+patched.1-py3-none-any.whl"
    text = dump_lock(LOCK)
    assert wheel_text("lmcache", "0.3.9+patched.1", name, made) in text
    assert text.endswith(
        f'inputs = "{"0" * 64}"\n\n'
        + patch_text("lmcache")
        + "\n[[tool.warpfront.patched.lmcache.patches]]\n"
        'package = "lmcache"\nversion = "0.3.9"\nfile = "b"\n'
        f'sha256 = "{"c" * 64}"\nreason = "r"\nstrip = 2\n\n'
        "[tool.warpfront.patched.lmcache.original]\n"
        'file = "lmcache-0.3.9-py3-none-any.whl"\nsize = 1000\n'
        f'index = "https://one.test/simple"\nsha256 = "{ORIGINAL.sha256}"\n\n' + patch_text("own")
    )


def test_variants_and_patches_are_read_back() -> None:
    assert read_lock(dump_lock(LOCK), path=PATH) == LOCK


def test_the_order_in_which_patched_packages_were_found_does_not_show() -> None:
    turned = dataclasses.replace(LOCK, patched=LOCK.patched[::-1], wheels=LOCK.wheels[::-1])
    assert dump_lock(turned) == TEXT


@pytest.mark.parametrize(("old", "new"), [("b-1.0-", "c-1.0-"), ("b-1.0-", "b-1.1-")])
def test_a_file_of_another_name_or_version_is_refused(old: str, new: str) -> None:
    text = dump_lock(a_lock(None, a_wheel("b", "1.0")))
    with pytest.raises(LockError, match=f"pylock.cell.toml: .*{new}"):
        read_lock(text.replace(old, new), path=PATH)


def refusal(old: str, new: str) -> str:
    assert old in TEXT, old
    with pytest.raises(LockError) as caught:
        read_lock(TEXT.replace(old, new, 1), path=PATH)
    assert caught.value.hint == RELOCK
    return caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"variants.{LABEL}.amd", "variants.rocm63.amd",
         f"torch: {PLAIN}-{LABEL}.whl is not the variant of its table"),
        (f"-{LABEL}.whl", ".whl", f"torch: {PLAIN}.whl is not the variant of its table"),
        ("v0.1.1.json", "v9.json", "torch: variants-json: $schema: "),
        ("strip = 1", "strip = 1\nfuzz = 3", "patched.lmcache: patches.0.fuzz: "),
        ("own.patches]]", "own.changes]]", "patched.own: patches: Field required"),
        ('file = "lmcache-0', 'name = "lmcache-0', "patched.lmcache: KeyError('file')"),
        ('file = "lmcache-0', 'file = "../lmcache-0',
         "patched.lmcache: '../lmcache-0.3.9-py3-none-any.whl' is no wheel's name with its size"),
        ('size = 1000\nindex = "https://one', 'size = "1"\nindex = "https://one',
         "patched.lmcache: 'lmcache-0.3.9-py3-none-any.whl' is no wheel's name with its size"),
        ('file = "lmcache-0.3.9-', 'file = "lmcache-',
         "patched.lmcache: Invalid wheel filename (wrong number of parts): 'lmcache-py3-"),
        (f'one.test/simple"\nsha256 = "{ORIGINAL.sha256}"', 'one.test/simple"\nsha256 = "5"',
         "patched.lmcache: no sha256"),
    ],
)  # fmt: skip
def test_what_does_not_hold_together_is_refused_where_it_stands(
    old: str, new: str, message: str
) -> None:
    assert refusal(old, new).startswith(f"{PATH}: {message}")


def test_a_label_without_its_table_is_refused() -> None:
    start = TEXT.index("[packages.variants-json]")
    error = refusal(TEXT[start : TEXT.index("[tool.warpfront]")], "")
    assert error.startswith(f"{PATH}: torch: variants-json: Input should be a dictionary")


def test_versions_that_became_older_are_said() -> None:
    before = a_lock(CELL, a_wheel("a", "1.10"), a_wheel("b", "2.0"), a_wheel("c", "1"))
    after = a_lock(CELL, a_wheel("a", "1.9"), a_wheel("b", "2.0.1"), a_wheel("d", "0.1"))
    assert gone_back(before, after) == ("a 1.10 -> 1.9",)
    assert gone_back(after, after) == ()


def test_a_cell_takes_what_every_one_of_its_targets_and_its_machine_support() -> None:
    two = dataclasses.replace(CELL, targets=("gfx942", "gfx950"))
    on_mi350 = (("amd", (("gfx_arch", ("gfx950",)), ("rocm_version", ("7.1",)))),)
    assert lock_inputs(two, None, None).variants == VariantRule(
        packages=("torch",),
        supported=tuple((*one, *MACHINES["x86_64"]) for one in (ON_MI300, on_mi350)),
        namespace="amd",
        toolkit="7.1.2",
    )
    one = lock_inputs(CELL, None, None).variants
    assert one is not None
    assert one.namespace == "amd"
    odd = a_cell(allow_variants=("numpy",), machine="riscv64", targets=("riscv64",))
    assert lock_inputs(odd, None, None).variants == VariantRule(
        packages=("numpy",), supported=((),)
    )
    assert lock_inputs(a_cell(), None, None).variants is None


def test_a_lock_depends_on_the_patches_the_builds_and_the_indexes_that_the_matrix_allows() -> None:
    own = OwnIndex(name="own", url="https://own.test/simple", packages=("own",))
    cell = a_cell(patches=(A_PATCH,), allow_builds=("sdist-only",), own_indexes=(own,))
    inputs = lock_inputs(cell, None, None, unfit=("a.patch is gone",))
    assert (inputs.patches, inputs.unfit) == ((A_PATCH,), ("a.patch is gone",))
    assert (inputs.allow_builds, inputs.own_indexes) == (("sdist-only",), (own,))


def test_a_lock_that_claims_a_wheel_from_where_it_does_not_belong_is_stale() -> None:
    inputs = lock_inputs(a_cell(), None, None)
    lock = made_for(inputs, a_wheel("torch", "2.13.0+cpu"), patches=())
    assert staleness(lock, inputs).startswith("it claims torch from https://pypi.org/simple, which")


INPUTS = lock_inputs(CELL, None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"variants": None}, f"{TORCH.filename}, and `allow_variants` does not name torch"),
        ({"packages": ("numpy",)}, f"{TORCH.filename}, and `allow_variants` does not name torch"),
        ({"supported": ((("amd", (("gfx_arch", ("gfx950",)),)),),)},
         f"{TORCH.filename}, which is not for this cell's targets"),
    ],
)  # fmt: skip
def test_a_variant_that_the_cell_does_not_take_is_said(
    changes: dict[str, Any], reason: str
) -> None:
    assert INPUTS.variants is not None
    rule = None if "variants" in changes else dataclasses.replace(INPUTS.variants, **changes)
    inputs = dataclasses.replace(INPUTS, variants=rule)
    # Plain wheels before it are nobody's variants.
    assert unwanted_variant((OWN, TORCH), inputs) == reason
    lock = dataclasses.replace(LOCK, inputs_digest=inputs.digest)
    if reason:
        assert staleness(lock, inputs) == f"it has {reason}"


@pytest.mark.parametrize(
    ("platforms", "machine", "fits"),
    [
        ("manylinux_2_28_x86_64", "x86_64", True),
        ("manylinux_2_28_x86_64", "aarch64", False),
        ("manylinux_2_28_x86_64.linux_aarch64", "x86_64", True),
    ],
)
def test_the_label_of_a_variant_is_no_platform(
    platforms: str,
    machine: str,
    fits: bool,  # noqa: FBT001 - a case
) -> None:
    filename = f"torch-2.10.0-cp311-cp311-{platforms}-{LABEL}.whl"
    wheel = dataclasses.replace(TORCH, filename=filename)
    said = "" if fits else f"{filename}, which is not for {machine}"
    assert foreign_wheel((OWN, wheel), machine) == said


PLAIN_INPUTS = LockInputs(
    cell_id="cell",
    python="3.11",
    machine="x86_64",
    glibc="2.36",
    index=CELL.index,
    stack_requirements=(),
    requirements=(),
)


def made_for(inputs: LockInputs, *wheels: LockedWheel, patches: tuple[Patch, ...]) -> WheelLock:
    patched = (PatchedWheel(package="lmcache", patches=patches),)
    return WheelLock(
        cell_id="cell", python="3.11", inputs_digest=inputs.digest, wheels=wheels, patched=patched
    )


def test_a_lock_without_a_patch_of_the_matrix_is_stale() -> None:
    lock = made_for(PLAIN_INPUTS, OWN, patches=(A_PATCH,))
    both = dataclasses.replace(PLAIN_INPUTS, patches=(A_PATCH, SECOND))
    assert staleness(lock, both) == "its lmcache is without b as the matrix has it"
    # Another patch of its parent's is none of its business.
    one = dataclasses.replace(both, patches=(A_PATCH,))
    assert staleness(lock, one).startswith("its inputs changed (")


def test_a_patch_that_is_not_what_the_matrix_says_makes_any_lock_stale() -> None:
    unfit = dataclasses.replace(PLAIN_INPUTS, unfit=("a.patch is gone", "b.patch has changed"))
    assert staleness(made_for(unfit, OWN, patches=()), unfit) == "a.patch is gone"


def test_wheels_for_targets_that_the_matrix_no_longer_says_make_a_lock_stale() -> None:
    wheel = a_wheel("rocm", "7.14.0", targets=("gfx90a", "gfx942"))
    lock = made_for(PLAIN_INPUTS, a_wheel("pip", "1"), wheel, patches=())
    other = dataclasses.replace(PLAIN_INPUTS, glibc="2.31")
    assert staleness(lock, other) == ("rocm is for gfx90a gfx942, the matrix says none of its own")
    two = dataclasses.replace(other, targets=("gfx942", "gfx950"))
    assert staleness(lock, two) == "rocm is for gfx90a gfx942, the matrix says gfx942 gfx950"
