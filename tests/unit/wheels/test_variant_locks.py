"""Wheel variants by the real uv, against loopback indexes: what is locked is what the cell's target
wants, whatever the machine that locks is or is told.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import a_cell
from standins import Index, serve_index, stand_in_variants, stand_in_wheel

from warpfront.errors import LockError, WheelError
from warpfront.images.render import requirements_text
from warpfront.matrix.cell import Toolkit, WheelIndex
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.pylock import (
    dump_lock,
    read_lock,
    staleness,
    variant_rule,
)
from warpfront.wheels.lock.values import PYPI, LockedWheel, LockInputs, WheelLock
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront.wheels.uv_program import uv_binary

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
TAG = "cp311-cp311-manylinux_2_28_x86_64"
CUDA = {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real"]}}
ROCM = {"amd": {"gfx_arch": ["gfx942"], "rocm_version": ["7.2"]}}

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]


def table(**variants: object) -> dict[str, Any]:
    namespaces = {"namespace": ["nvidia", "amd", "x86_64"]}
    return {"$schema": SCHEMA, "default-priorities": namespaces, "variants": variants}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "cell"
    stand_in_variants(
        folder, "torch", "2.15.0", table(**{"null": {}, "cuda13.0": CUDA, "rocm7.2": ROCM})
    )
    with serve_index(folder, name="variant") as served:
        yield served


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Index]:
    stand_in_wheel(tmp_path / "public", "numpy", "2.4.6")
    with serve_index(tmp_path / "public", name="simple") as served:
        yield served


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def inputs_for(
    index: Index, vendor: str = "nvidia", *allowed: str, **changes: object
) -> LockInputs:
    toolkits = {"nvidia": Toolkit(name="cuda", version="13.0")}
    toolkits["amd"] = Toolkit(name="rocm", version="7.2")
    target = {"nvidia": "sm_90", "amd": "gfx942", "cpu": "x86_64"}[vendor]
    cell = a_cell(
        vendor=vendor,
        toolkit=toolkits.get(vendor),
        targets=(target,),
        allow_variants=allowed or ("torch",),
    )
    inputs = LockInputs(
        cell_id="cell",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name=index.name, url=index.url),
        stack_requirements=("torch===2.15.0",),
        requirements=("numpy",),
        protected=VENDORS[vendor].protected,
        variants=variant_rule(cell),
    )
    return dataclasses.replace(inputs, **changes)  # type: ignore[arg-type]


def locked(
    inputs: LockInputs, public: Index, house: Wheelhouse, said: list[str] | None = None
) -> WheelLock:
    site = Site(index_url=public.url)
    note = (said if said is not None else []).append
    return resolve_by_uv(inputs, site, on_line=note, wheelhouse=house)


def named(lock: WheelLock, name: str) -> LockedWheel:
    return next(wheel for wheel in lock.wheels if wheel.name == name)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would make uv and a provider choose by what they find, or are told, on this machine."""
    monkeypatch.setenv("UV_PREVIEW", "1")
    monkeypatch.setenv("NV_VARIANT_PROVIDER_FORCE_SM_ARCH", "7.5")


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("vendor", "label"), [("nvidia", "cuda13.0"), ("amd", "rocm7.2"), ("cpu", "null")]
)
def test_a_cell_locks_the_variant_of_its_target(
    index: Index, public: Index, house: Wheelhouse, vendor: str, label: str
) -> None:
    inputs = inputs_for(index, vendor)
    lock = locked(inputs, public, house)
    torch = named(lock, "torch")
    assert (torch.filename, torch.index) == (f"torch-2.15.0-{TAG}-{label}.whl", index.url)
    assert (torch.variant.label, torch.kept_as) == (label, f"torch-2.15.0-{TAG}.whl")
    text = dump_lock(lock)
    assert read_lock(text, path="pylock.cell.toml") == lock
    assert staleness(lock, inputs) == ""
    assert "allow_variants" in staleness(lock, dataclasses.replace(inputs, variants=None))
    other = inputs_for(index, "cpu" if vendor != "cpu" else "amd")
    assert staleness(lock, other)


def test_a_lock_whose_variant_was_swapped_is_refused(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    inputs = inputs_for(index)
    text = dump_lock(locked(inputs, public, house))
    swaps = (
        (f"{TAG}-cuda13.0.whl", f"{TAG}-rocm7.2.whl"),
        (f"{TAG}-cuda13.0.whl", f"{TAG}.whl"),
        (f"{TAG}-cuda13.0.whl", f"{TAG}-../cuda13.0.whl"),
        ("[packages.variants-json.variants", "[packages.variants-json.static-properties"),
        ('variants."cuda13.0"', 'variants."rocm7.2"'),
        (SCHEMA, SCHEMA.replace("0.1.1", "9.0.0")),
    )
    for old, new in swaps:
        assert old in text, old
        with pytest.raises(LockError, match=r"torch|Invalid wheel filename"):
            read_lock(text.replace(old, new), path="pylock.cell.toml")
    values = text.replace('"13.0"', '"13.1"').replace('"90_real"', '"100_real"')
    forged = read_lock(values, path="pylock.cell.toml")
    assert "not for this cell's targets" in staleness(forged, inputs)
    elsewhere = text.replace(TAG, TAG.replace("x86_64", "aarch64")).replace(
        "cuda13.0", "cuda13.0_x86_64"
    )
    assert "is not for x86_64" in staleness(read_lock(elsewhere, path="pylock.cell.toml"), inputs)


def test_what_is_installed_is_the_locked_file_by_its_hash(
    index: Index, public: Index, house: Wheelhouse, tmp_path: Path
) -> None:
    lock = locked(inputs_for(index), public, house)
    torch = named(lock, "torch")
    house.fetch((torch,), Site(index_url=public.url), on_progress=lambda *_: None)
    view = house.view((torch,), tmp_path / "view")
    assert [one.name for one in view.iterdir()] == [torch.kept_as]
    asked = tmp_path / "requirements.txt"

    def install(text: str) -> subprocess.CompletedProcess[str]:
        asked.write_text(text)
        argv = [str(uv_binary()), "pip", "install", "--no-config", "--no-index", "--no-deps"]
        argv += ["--python", sys.executable, "--python-version", "3.11", "--require-hashes"]
        argv += ["--python-platform", "x86_64-manylinux_2_28", "--find-links", str(view)]
        return subprocess.run(
            [*argv, "--target", str(tmp_path / "there"), "-r", str(asked)],
            capture_output=True,
            text=True,
            check=False,
        )

    other = (index.folder / f"torch-2.15.0-{TAG}-rocm7.2.whl").read_bytes()
    wrong = dataclasses.replace(torch, sha256="0" * 64)
    assert install(requirements_text((wrong,))).returncode != 0
    done = install(requirements_text((torch,)))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there/torch/label.py").read_text() == "'cuda13.0'"
    (view / torch.kept_as).chmod(0o644)
    (view / torch.kept_as).unlink()
    (view / torch.kept_as).write_bytes(other)
    assert house.drop_damaged((torch,), view) == (torch,)


def test_the_demands_of_a_variant_decide_and_a_version_without_one_keeps_its_plain_wheel(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    fits = table(v1={"x86_64": {"level": ["v1"]}}, v3={"x86_64": {"level": ["v3"]}})
    newer = table(v3={"x86_64": {"level": ["v3"]}})
    stand_in_variants(public.folder, "app", "1.0", fits, requires=["dep"])
    stand_in_variants(public.folder, "app", "2.0", fits, requires=["dep>=9"])
    stand_in_variants(public.folder, "app", "3.0", newer)
    stand_in_wheel(public.folder, "dep", "1.0")
    stand_in_wheel(public.folder, "lib", "1.0")
    stand_in_variants(public.folder, "lib", "1.0", newer)
    said: list[str] = []
    inputs = inputs_for(index, "nvidia", "torch", "app", "lib", requirements=("app", "lib"))
    lock = locked(inputs, public, house, said)
    app = named(lock, "app")
    assert (app.version, app.variant.label, app.index) == ("1.0", "v1", PYPI)
    assert named(lock, "dep").version == "1.0"
    assert named(lock, "lib").filename == "lib-1.0-py3-none-any.whl"
    assert any("lib 1.0: none of its variants (v3) is for this cell" in line for line in said)


def test_a_stack_without_a_variant_for_the_cell_is_refused_with_those_it_has(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    for wheel in index.folder.glob("*-rocm7.2.whl"):
        wheel.unlink()
    with pytest.raises(LockError, match=r"none of its variants \(cuda13.0, null\) is for this"):
        locked(inputs_for(index, "amd"), public, house)


def test_a_wheel_that_says_another_variant_than_its_index_is_refused(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    ours, others = (index.folder / f"torch-2.15.0-{TAG}-{one}.whl" for one in ("cuda13.0", "null"))
    ours.write_bytes(others.read_bytes())
    with pytest.raises(WheelError, match="another variant than its index"):
        locked(inputs_for(index), public, house)


def test_a_wheel_whose_demands_depend_on_the_variant_is_refused(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    asks = ["numpy; 'nvidia' in variant_namespaces"]
    stand_in_variants(index.folder, "torch", "2.15.0", table(**{"cuda13.0": CUDA}), requires=asks)
    with pytest.raises(LockError, match="asks by its variant: numpy"):
        locked(inputs_for(index), public, house)


def test_a_hostile_table_leaves_the_variants_of_its_version_out(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    stand_in_wheel(index.folder, "torch", "2.15.0", tag=TAG)
    said: list[str] = []
    there = index.folder / "torch-2.15.0-variants.json"
    for text in ("[" * 100_000, json.dumps(table(**{"../cuda13.0": CUDA})), ""):
        there.write_text(text)
        lock = locked(inputs_for(index), public, house, said)
        assert named(lock, "torch").filename == f"torch-2.15.0-{TAG}.whl"
    there.unlink()
    assert named(locked(inputs_for(index), public, house, said), "torch").variant.label == ""
    assert len([one for one in said if "its variants are left out" in one]) == 4


def test_no_table_is_asked_for_of_versions_that_the_cell_cannot_take_and_of_few_others(
    index: Index, public: Index, house: Wheelhouse
) -> None:
    """An index decides how many versions it lists, and each table is a question more."""
    fits = table(v1={"x86_64": {"level": ["v1"]}})
    for minor in range(60):
        stand_in_variants(public.folder, "app", f"1.{minor}", fits)
    stand_in_variants(index.folder, "torch", "2.16.0", table(**{"cuda13.0": CUDA}))
    inputs = inputs_for(index, "nvidia", "torch", "app", requirements=("app",))
    lock = locked(inputs, public, house)
    assert (named(lock, "app").version, named(lock, "app").variant.label) == ("1.59", "v1")
    asked = [path for path, _ in (*index.requests, *public.requests) if path.endswith(".json")]
    assert [path for path in asked if "torch" in path] == [
        f"/whl/{index.name}/torch-2.15.0-variants.json"
    ]
    assert len(asked) == 1 + 32
    inputs = dataclasses.replace(inputs, requirements=("app<1.10,>=1.9",))
    assert named(locked(inputs, public, house), "app").version == "1.9"
