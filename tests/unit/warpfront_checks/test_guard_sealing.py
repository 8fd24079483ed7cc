"""Sealing takes the stack that the policy says, or what it finds, and writes all or nothing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded import (
    TORCH,
    TORCH_VERSION_PY,
    TRITON,
    cpu_policy,
    findings,
    install,
    install_cpu_stack,
    install_rocm_stack,
    places_below,
    rocm_policy,
    sealed_cpu,
    sealed_rocm,
)

from warpfront_checks.guard import fast_path, sealing
from warpfront_checks.guard.at_import import read_at_import
from warpfront_checks.guard.fast_path import is_unwritten
from warpfront_checks.guard.manifest import Manifest, read_manifest
from warpfront_checks.guard.measuring import installed, measure
from warpfront_checks.guard.names import default_policy
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import GuardError, Policy, read_policy
from warpfront_checks.guard.sealing import seal


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = places_below(tmp_path)
    install_cpu_stack(found.site_packages)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def adopt(places: Places) -> Policy:
    policy = default_policy(places.site_packages, installed(places.site_packages))
    return seal(policy, places, python=sys.executable)


def version_py(**facts: str | None) -> dict[str, Any]:
    given = {"__version__": "2.9.0", "cuda": None, "hip": None, **facts}
    text = "".join(f"{name}: str = {value!r}\n" for name, value in given.items())
    return {**TORCH, "torch/version.py": text}


def test_sealing_writes_every_file_of_the_guard(places: Places, tmp_path: Path) -> None:
    before = set(files(tmp_path))
    seal(cpu_policy(), places, python="/usr/bin/python3")
    new = {path for path in set(files(tmp_path)) - before if not path.endswith("bin/uv")}
    assert new == {
        "etc/pip.conf",
        "etc/profile.d/warpfront.sh",
        "etc/uv/uv.toml",
        "home/bin/warpfront-guard",
        "home/guard/at-import.bin",
        "home/guard/bytecode.json",
        "home/guard/constraints.txt",
        "home/guard/needs.txt",
        "home/guard/overrides.txt",
        "home/guard/packages.txt",
        "home/guard/policy.json",
        "home/guard/stack.json",
        "site-packages/00_warpfront_guard.pth",
    }
    assert os.access(places.programs / "warpfront-guard", os.X_OK)
    assert (places.programs / "warpfront-guard").read_text().startswith("#!/usr/bin/python3\n")


def test_sealing_twice_gives_the_same_files(places: Places, tmp_path: Path) -> None:
    seal(cpu_policy(), places, python="python")
    once = files(tmp_path)
    seal(cpu_policy(), places, python="python")
    assert files(tmp_path) == once


def test_sealing_a_stack_with_a_shim_twice_gives_the_same_files(tmp_path: Path) -> None:
    places = sealed_rocm(tmp_path)
    once = files(tmp_path)
    seal(rocm_policy(), places, python=sys.executable)
    assert files(tmp_path) == once


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (cpu_policy(protected={"torch": "2.14.0+cpu"}), "torch is 2.13.0"),
        (cpu_policy(protected={"torch": "2.13.0+cpu", "gone": "1"}), "gone is missing"),
        (cpu_policy(sentinels={"six": "no.six.here"}), "six is there and must not be"),
    ],
)
def test_a_stack_that_is_not_the_policys_is_refused_and_nothing_written(
    places: Places, tmp_path: Path, policy: Policy, text: str
) -> None:
    before = files(tmp_path)
    with pytest.raises(GuardError, match=text):
        seal(policy, places, python="python")
    assert files(tmp_path) == before


def test_two_torches_in_one_folder_are_refused(places: Places) -> None:
    install(places.site_packages, "torch", "2.14.0", {})
    with pytest.raises(GuardError, match=r"torch is .* and .*, to be sealed is"):
        seal(cpu_policy(), places, python="python")


def test_a_real_triton_where_a_shim_would_stand_is_refused(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    install_rocm_stack(places.site_packages)
    install(places.site_packages, "triton", "3.9.0", TRITON)
    with pytest.raises(GuardError, match="triton is there, in the place of pytorch-triton-rocm"):
        seal(rocm_policy(), places, python="python")


def test_a_pip_conf_that_cannot_be_kept_stops_everything(places: Places, tmp_path: Path) -> None:
    places.pip_configuration.write_text("nonsense\n")
    before = files(tmp_path)
    with pytest.raises(GuardError, match=r"pip\.conf"):
        seal(cpu_policy(), places, python="python")
    assert files(tmp_path) == before


def test_a_read_only_folder_stops_everything(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != places.etc)
    before = files(tmp_path)
    with pytest.raises(GuardError, match=r"pip\.conf: no right to write in .*: run this as root"):
        seal(cpu_policy(), places, python="python")
    assert files(tmp_path) == before


def test_the_shim_is_a_distribution_with_all_that_a_wheel_leaves(tmp_path: Path) -> None:
    places = sealed_rocm(tmp_path)
    [shim] = installed(places.site_packages)["triton"]
    assert shim.version == "3.4.0+pytorch.triton.rocm"
    assert shim.requires == ["pytorch-triton-rocm===3.4.0"]
    assert shim.files is not None
    assert {path.name for path in shim.files} == {"METADATA", "WHEEL", "INSTALLER", "RECORD"}
    for path in shim.files:
        assert path.hash is None or path.size == len(path.read_binary())


def test_a_launcher_for_uv_is_written_where_there_is_a_uv(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    seal(cpu_policy(), places, python="python")
    assert not (places.programs / "uv").exists()
    (tmp_path / "uv").write_text("")
    (tmp_path / "uv").chmod(0o755)
    seal(cpu_policy(), places, python="python")
    assert "warpfront_guard.launcher.main(" in (places.programs / "uv").read_text()


def test_adopting_takes_what_is_there(places: Places) -> None:
    policy = adopt(places)
    assert policy.protected == {"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"}
    assert {"pytorch", "triton-rocm"} <= set(policy.sentinels)
    assert read_policy(places.policy) == policy
    assert findings(places) == []


def test_adopting_twice_is_the_same(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    files_ = version_py(hip="6.4.0")
    install(places.site_packages, "torch", "2.9.0+rocm6.4", files_)
    install(places.site_packages, "pytorch-triton-rocm", "3.4.0", TRITON)
    once = adopt(places)
    assert once.shims == rocm_policy().shims
    assert adopt(places) == once
    assert findings(places) == []


def test_gaudis_fork_is_adopted_at_its_commit_with_all_that_the_vendor_brings(
    tmp_path: Path,
) -> None:
    """Names and versions as pip lists them in the vendor's 1.24.1; one of them has underscores."""
    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.11.0a0+git1234abc", version_py())
    brought = {
        "habana-torch-plugin": "habana_frameworks/torch/core/__init__.py",
        "habana-torch-dataloader": "habana_dataloader/__init__.py",
        "habana_gpu_migration": "habana_frameworks/torch/gpu_migration/__init__.py",
        "habana-pyhlml": "pyhlml/__init__.py",
    }
    for name, file in brought.items():
        install(places.site_packages, name, "1.24.1.482", {file: ""})
    install(places.site_packages, "neural_compressor_pt", "3.6", {"neural_compressor.py": ""})
    policy = adopt(places)
    assert policy.protected == {
        "torch": "2.11.0a0+git1234abc",
        **{name.replace("_", "-"): "1.24.1.482" for name in brought},
    }
    assert "torch==2.11.0a0+git1234abc\n" in places.constraints.read_text()
    assert policy.sentinels["triton-rocm"] == "synapseai.image.has.another.triton"
    assert findings(places) == []
    (places.site_packages / brought["habana_gpu_migration"]).write_text("import os\n")
    (said,) = findings(places)
    assert "gpu_migration/__init__.py" in said


def test_an_image_as_ngc_makes_them_keeps_its_own_constraints(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    torch = "2.8.0a0+5228986c39.nv25.06"
    install(places.site_packages, "torch", torch, version_py(cuda="12.9"))
    install(places.site_packages, "pytorch-triton", "3.3.0+git96316ce5", TRITON)
    install(places.site_packages, "nvidia-cudnn-cu12", "9.10", {"nvidia/cudnn/lib.so": b"x"})
    places.pip_configuration.write_text("[global]\nconstraint = /etc/pip/constraint.txt\n")
    policy = adopt(places)
    text = places.pip_configuration.read_text().split()
    assert "/etc/pip/constraint.txt" in text
    assert str(places.constraints) in text
    assert policy.protected["torch"] == torch
    assert policy.sentinels["nvidia-cudnn-cu13"] == "same.folder.as.nvidia.cudnn.cu12"
    assert "nvidia-cublas-cu12" not in policy.sentinels
    assert [shim.requires for shim in policy.shims] == ["pytorch-triton==3.3.0+git96316ce5"]
    assert findings(places) == []


def test_amds_own_triton_needs_no_shim(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.9.0+rocm7.0", version_py(hip="7.0.1"))
    install(places.site_packages, "triton", "3.4.0+rocm7.0", TRITON)
    policy = adopt(places)
    assert policy.shims == ()
    assert policy.protected["triton"] == "3.4.0+rocm7.0"
    assert "pytorch-triton-rocm" in policy.sentinels


def test_a_folder_without_torch_has_nothing_to_adopt(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    with pytest.raises(GuardError, match="no torch to adopt here"):
        adopt(places)
    with pytest.raises(GuardError, match="holds no torch: nothing to adopt"):
        seal(Policy(cell="", title="", adopt=("torch",)), places, python="python")
    assert files(tmp_path) == {}


def test_a_torch_that_was_never_installed_as_a_distribution_is_refused(tmp_path: Path) -> None:
    """`setup.py develop` leaves a folder and no metadata."""
    places = places_below(tmp_path)
    for name, data in version_py().items():
        path = places.site_packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(GuardError, match="holds no torch"):
        adopt(places)


def test_the_manifest_is_outside_of_what_an_installer_writes(tmp_path: Path) -> None:
    places = sealed_cpu(tmp_path)
    assert not places.manifest.is_relative_to(places.site_packages)
    assert read_manifest(places.manifest).location == places.site_packages


def wheels_manifest(places: Places) -> Manifest:
    """What the wheels of the stack hold, as the host reads it."""
    return measure(places.site_packages, cpu_policy().protected)


def refused_by_manifest(places: Places, folder: Path, manifest: Manifest) -> str:
    """What sealing with it says; nothing was written."""
    before = files(folder)
    with pytest.raises(GuardError) as raised:
        seal(cpu_policy(), places, python="python", manifest=manifest)
    assert files(folder) == before
    return str(raised.value).partition("hold: ")[2] or str(raised.value)


def test_sealing_by_the_wheels_manifest_gives_the_files_that_reading_everything_gives(
    places: Places, tmp_path: Path
) -> None:
    seal(cpu_policy(), places, python="python")
    read = files(tmp_path)
    seal(cpu_policy(), places, python="python", manifest=wheels_manifest(places))
    assert files(tmp_path) == read


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TORCH_VERSION_PY.replace("13", "14").encode(), "other content, 50 bytes as before"),
        (b"", "0 bytes instead of 50"),
        (None, "missing"),
    ],
)
def test_what_was_changed_before_it_was_sealed_is_refused(
    places: Places, tmp_path: Path, data: bytes | None, said: str
) -> None:
    manifest = wheels_manifest(places)
    path = places.site_packages / "torch/version.py"
    path.unlink() if data is None else path.write_bytes(data)
    assert refused_by_manifest(places, tmp_path, manifest) == f"torch/version.py: {said}"


def test_a_file_that_only_the_record_of_what_is_installed_knows_is_refused(
    places: Places, tmp_path: Path
) -> None:
    manifest = wheels_manifest(places)
    (places.site_packages / "torch/hook.py").write_text("")
    with (places.site_packages / "torch-2.13.0+cpu.dist-info/RECORD").open("a") as record:
        record.write("torch/hook.py,,\n")
    said = refused_by_manifest(places, tmp_path, manifest)
    assert said == "torch/hook.py: not in the wheel of torch"


def test_a_manifest_of_other_distributions_than_the_policys_is_refused(
    places: Places, tmp_path: Path
) -> None:
    manifest = measure(places.site_packages, ["torch"])
    said = refused_by_manifest(places, tmp_path, manifest)
    assert said == "the manifest is of other distributions than the policy protects"


def test_a_large_library_is_not_read_where_it_is_sealed_and_verify_reads_it(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "_SMALL_BYTES", 13)
    manifest = wheels_manifest(places)
    (places.site_packages / "torch/lib/libtorch.so").write_bytes(b"\x7fELF standing")
    seal(cpu_policy(), places, python="python", manifest=manifest)
    said = ["file: torch/lib/libtorch.so: other content, 13 bytes as before"]
    assert findings(places, depth="light") == []
    assert findings(places) == said


def test_the_guard_is_compiled_for_whatever_times_its_files_get(places: Places) -> None:
    """It runs at every start of Python, and a layer of an image may round times."""
    source = places.library / "warpfront_guard" / "startup.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    seal(cpu_policy(), places, python=sys.executable)
    compiled = Path(importlib.util.cache_from_source(str(source))).read_bytes()
    checked_by_hash = 0b11
    assert int.from_bytes(compiled[4:8], "little") == checked_by_hash


@pytest.mark.parametrize(("began", "fast"), [(0, False), (sys.maxsize, True)])
def test_an_import_looks_at_each_file_of_what_this_layer_wrote_before_it_was_sealed_in_place(
    places: Places, monkeypatch: pytest.MonkeyPatch, began: int, *, fast: bool
) -> None:
    """Such folders are newer than the seal: within the layer that a container writes to, a write
    to a file renews none of them.
    """
    monkeypatch.setattr(sealing, "layer_began", lambda _: began)
    folder = places.site_packages / "torch"
    before = folder.stat().st_mtime_ns
    seal(cpu_policy(), places, python=sys.executable)
    since = places.manifest.stat().st_ctime_ns
    assert (folder.stat().st_ctime_ns < since) == fast
    assert folder.stat().st_mtime_ns == before
    document = read_at_import(places.at_import)
    assert is_unwritten(document["location"], document["tops"], since) == fast


def test_the_age_of_a_layer_is_unknown_where_there_are_no_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("1 0 0:1 / / rw - ext4 ext4 rw\n")
    monkeypatch.setattr(fast_path, "_MOUNTS", str(mounts))
    assert sealing.layer_began(tmp_path) == 0
