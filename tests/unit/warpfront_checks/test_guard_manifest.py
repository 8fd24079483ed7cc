"""The manifest notices every way in which files can differ."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from guarded import TORCH, findings, install, places_below, sealed_cpu, sealed_rocm

from warpfront_checks.guard.manifest import (
    Manifest,
    manifest_text,
    read_manifest,
    size_differences,
    strays,
)
from warpfront_checks.guard.measuring import differences, installed, measure
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import GuardError


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return sealed_cpu(tmp_path)


def changed(places: Places, *names: str) -> dict[str, str]:
    return dict(differences(read_manifest(places.manifest), names or ("torch",)))


def seen_at_start(places: Places) -> dict[str, str]:
    return dict(size_differences(read_manifest(places.manifest), ["torch"]))


def test_a_sealed_stack_has_no_differences(places: Places) -> None:
    assert changed(places, "torch", "torchvision") == {}
    assert seen_at_start(places) == {}


def test_a_manifest_reads_back_as_it_was_written(places: Places) -> None:
    manifest = measure(places.site_packages, ["torch", "torchvision"])
    assert manifest_text(manifest) == places.manifest.read_text()
    assert read_manifest(places.manifest).versions == {
        "torch": "2.13.0+cpu",
        "torchvision": "0.28.0+cpu",
    }


def test_a_missing_file_is_found(places: Places) -> None:
    (places.site_packages / "torch/version.py").unlink()
    assert changed(places) == {"torch/version.py": "missing"}
    assert seen_at_start(places) == {"torch/version.py": "missing"}


def test_a_shorter_file_is_found(places: Places) -> None:
    library = places.site_packages / "torch/lib/libtorch.so"
    library.write_bytes(library.read_bytes()[:-1])
    assert changed(places) == {"torch/lib/libtorch.so": "12 bytes instead of 13"}
    assert seen_at_start(places) == changed(places)


def test_other_content_of_the_same_size_is_found_by_its_hash_alone(places: Places) -> None:
    version = places.site_packages / "torch/version.py"
    version.write_text(version.read_text().replace("2.13.0", "2.14.0"))
    assert changed(places) == {"torch/version.py": "other content, 50 bytes as before"}
    assert seen_at_start(places) == {}


def test_a_header_is_looked_at_by_verify_and_not_at_every_start(places: Places) -> None:
    (places.site_packages / "torch/include/ATen.h").write_text("")
    assert changed(places) == {"torch/include/ATen.h": "0 bytes instead of 13"}
    assert seen_at_start(places) == {}


def test_byte_code_is_nobodys_change(places: Places) -> None:
    cache = places.site_packages / "torch/__pycache__"
    cache.mkdir()
    (cache / "version.cpython-311.pyc").write_bytes(b"x")
    assert findings(places) == []


def test_byte_code_in_the_place_of_a_source_is_a_stray(places: Places) -> None:
    (places.site_packages / "torch/version.pyc").write_bytes(b"x")
    assert findings(places) == ["stray: torch/version.pyc: added by nobody"]


def test_a_file_that_was_added_is_a_stray(places: Places) -> None:
    (places.site_packages / "torch/nn/patch.py").write_text("")
    assert list(strays(read_manifest(places.manifest), ["torch"])) == ["torch/nn/patch.py"]
    assert findings(places) == ["stray: torch/nn/patch.py: added by nobody"]


def test_what_an_installer_writes_about_itself_is_not_sealed(places: Places) -> None:
    (places.site_packages / "torch-2.13.0+cpu.dist-info/INSTALLER").write_text("uv")
    (places.site_packages / "torch-2.13.0+cpu.dist-info/REQUESTED").write_text("")
    assert changed(places) == {}


def test_metadata_is_sealed(places: Places) -> None:
    metadata = places.site_packages / "torch-2.13.0+cpu.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("stand-in", "stand_in"))
    assert list(changed(places)) == ["torch-2.13.0+cpu.dist-info/METADATA"]


def test_files_outside_of_site_packages_are_left_out(tmp_path: Path) -> None:
    """Programs (`../../../bin/torchrun`) are written anew by installers, with other first lines."""
    places = places_below(tmp_path)
    info = install(places.site_packages, "torch", "2.13.0+cpu", TORCH)
    with (info / "RECORD").open("a") as record:
        record.write("../../../bin/torchrun,,\n/usr/share/doc/torch,,\n")
    manifest = measure(places.site_packages, ["torch"])
    assert not any("bin" in path or "doc" in path for path in manifest.files["torch"])


def test_a_distribution_without_a_record_is_refused(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    (install(places.site_packages, "torch", "2.13.0+cpu", TORCH) / "RECORD").unlink()
    with pytest.raises(GuardError, match="torch has no RECORD in"):
        measure(places.site_packages, ["torch"])


def test_a_recorded_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.13.0+cpu", TORCH)
    (places.site_packages / "torch/version.py").unlink()
    with pytest.raises(GuardError, match=r"torch/version\.py: No such file"):
        measure(places.site_packages, ["torch"])


def test_what_is_not_installed_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match="torch is not installed in"):
        measure(places_below(tmp_path).site_packages, ["torch"])


def test_half_of_a_removed_distribution_is_none(places: Places) -> None:
    (places.site_packages / "~orch-2.13.0.dist-info").mkdir()
    empty = places.site_packages / "left-1.0.dist-info"
    empty.mkdir()
    (empty / "RECORD").write_text("")
    assert sorted(installed(places.site_packages)) == ["six", "torch", "torchvision"]


def test_the_shims_are_sealed_too(tmp_path: Path) -> None:
    places = sealed_rocm(tmp_path)
    assert findings(places) == []
    metadata = places.site_packages / "triton-3.4.0+pytorch.triton.rocm.dist-info/METADATA"
    metadata.write_text("Name: triton\nVersion: 3.9.0\n")
    assert any(line.startswith("file: triton-3.4.0") for line in findings(places))


def test_packages_are_the_folders_that_can_be_imported(tmp_path: Path) -> None:
    manifest = read_manifest(sealed_rocm(tmp_path).manifest)
    assert manifest.packages() == {"torch": "torch", "triton": "pytorch-triton-rocm"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.update(schema=2),
        lambda document: document.pop("files"),
        lambda document: document.update(location=None),
        lambda document: document["versions"].pop("torch"),
        lambda document: document["files"]["torch"].update({"torch/version.py": [1]}),
        lambda document: document["files"]["torch"].update({"torch/version.py": 1}),
        lambda document: document.update(files=[]),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(places: Places, damage: Any) -> None:
    document = json.loads(places.manifest.read_text())
    damage(document)
    places.manifest.write_text(json.dumps(document))
    with pytest.raises(GuardError, match=r"stack\.json: not a manifest"):
        read_manifest(places.manifest)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff\xfe"])
def test_a_manifest_that_is_none_is_refused(places: Places, data: bytes) -> None:
    places.manifest.write_bytes(data)
    with pytest.raises(GuardError, match=r"stack\.json: not a manifest"):
        read_manifest(places.manifest)


def test_an_unreadable_manifest_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match=r"stack\.json: Is a directory"):
        read_manifest(_a_folder(tmp_path / "stack.json"))
    with pytest.raises(GuardError, match=r"gone\.json: No such file"):
        read_manifest(tmp_path / "gone.json")


def test_a_package_that_was_removed_whole_misses_every_file(places: Places) -> None:
    shutil.rmtree(places.site_packages / "torch")
    manifest: Manifest = read_manifest(places.manifest)
    paths = [path for path in manifest.files["torch"] if path.startswith("torch/")]
    assert changed(places) == dict.fromkeys(paths, "missing")


def _a_folder(path: Path) -> Path:
    path.mkdir()
    return path
