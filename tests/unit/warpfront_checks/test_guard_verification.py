"""`verify` finds each fault that is put into a sealed stack, and nothing in a sound one."""

from __future__ import annotations

import importlib.util
import marshal
import site
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from guarded import (
    TORCH,
    VISION,
    cpu_policy,
    findings,
    install,
    places_below,
    sealed_cpu,
    sealed_rocm,
    verified,
)

from warpfront_checks.guard.manifest import read_manifest, written_since
from warpfront_checks.guard.measuring import differences
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import Policy
from warpfront_checks.guard.sealing import relax, seal


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return sealed_cpu(tmp_path)


def parts(places: Places) -> set[str]:
    return {finding.part for finding in verified(places)}


@pytest.mark.parametrize("quick", [False, True])
def test_a_sound_stack_has_no_findings(places: Places, quick: bool) -> None:  # noqa: FBT001
    assert findings(places, depth="quick" if quick else "full") == []


def test_a_second_dist_info_is_found(places: Places) -> None:
    install(places.site_packages, "torch", "2.14.0", {})
    [line] = [line for line in findings(places) if line.startswith("distribution")]
    assert "2.13.0+cpu" in line
    assert "2.14.0" in line
    assert line.endswith("sealed was 2.13.0+cpu")


def test_a_swapped_version_is_found_in_its_metadata_and_in_its_files(places: Places) -> None:
    for path in (places.site_packages / "torch-2.13.0+cpu.dist-info").iterdir():
        path.unlink()
    (places.site_packages / "torch-2.13.0+cpu.dist-info").rmdir()
    install(places.site_packages, "torch", "2.14.0", {**TORCH, "torch/version.py": "x = 1\n"})
    lines = findings(places)
    assert "distribution: torch: 2.14.0; sealed was 2.13.0+cpu" in lines
    assert any(line.startswith("file: torch/version.py: 6 bytes") for line in lines)


@pytest.mark.parametrize("depth", ["quick", "light", "full"])
@pytest.mark.parametrize("other", ["cu1300", "cu128"])  # the second is as long as the first
def test_another_variant_of_the_same_version_is_an_overwrite(
    tmp_path: Path, depth: str, other: str
) -> None:
    """Wheel variants (PEP 817) have one name and version; which one it is says its variant.json."""
    places = places_below(tmp_path)
    said = "torch-2.13.0+cpu.dist-info/variant.json"
    label = '{"variants": {"%s": {"nvidia": {"cuda_version_lower_bound": ["13.0"]}}}}'
    install(places.site_packages, "torch", "2.13.0+cpu", {**TORCH, said: label % "cu130"})
    install(places.site_packages, "torchvision", "0.28.0+cpu", VISION)
    seal(cpu_policy(), places, python=sys.executable)
    assert findings(places, depth=depth) == []
    install(places.site_packages, "torch", "2.13.0+cpu", {**TORCH, said: label % other})
    [found] = findings(places, depth=depth)
    assert said in found


def test_of_two_versions_of_what_torch_needs_the_one_it_cannot_work_with_counts(
    tmp_path: Path,
) -> None:
    """conda writes over what pip installed, and pip's metadata stays: any may be listed first."""
    places = places_below(tmp_path)
    names = [f"need{number}" for number in range(12)]
    asked = [f"{name}>=1.13.3" for name in names]
    install(places.site_packages, "torch", "2.13.0+cpu", TORCH, requires=asked)
    install(places.site_packages, "torchvision", "0.28.0+cpu", VISION)
    for name in names:
        install(places.site_packages, name, "1.14.0", {})
    seal(cpu_policy(), places, python=sys.executable)
    assert findings(places) == []
    for name in names:
        install(places.site_packages, name, "1.5", {})
    wanted = "1.5 is installed; torch needs"
    assert [line.count(wanted) for line in findings(places)] == [1] * 12


def test_a_distribution_that_was_removed_is_found(places: Places) -> None:
    for path in (places.site_packages / "torchvision-0.28.0+cpu.dist-info").iterdir():
        path.unlink()
    assert "distribution: torchvision: not installed; sealed was 0.28.0+cpu" in findings(places)


def test_a_forbidden_distribution_is_found_with_its_reason(places: Places) -> None:
    install(places.site_packages, "nvidia-cublas-cu12", "12.8.4", {})
    assert findings(places) == [
        (
            "forbidden: nvidia-cublas-cu12: 12.8.4 is installed, and must not be"
            " (cpu.image.has.no.cuda)"
        )
    ]


def test_a_companion_of_another_version_is_found(places: Places) -> None:
    install(places.site_packages, "torchaudio", "2.11.0", {})
    assert findings(places) == [
        "distribution: torchaudio: 2.11.0 is installed; with torch 2.13.0+cpu goes 2.11.0+cpu"
    ]


def test_the_companion_that_fits_is_no_finding(places: Places) -> None:
    install(places.site_packages, "torchaudio", "2.11.0+cpu", {})
    assert findings(places) == []


def test_a_shadow_on_the_path_is_found(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "shadow", "torch", "2.15.0", TORCH)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shadow"), *sys.path])
    place = tmp_path / "shadow"
    assert findings(places) == [f"shadow: {place}/torch: {place} is on the path too"]


def test_a_module_that_shadows_a_package_is_found(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "torch.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "scripts"), *sys.path])
    assert parts(places) == {"shadow"}


def test_a_shadow_in_a_users_folder_is_found_though_it_is_not_on_the_path(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "user", "torch", "2.15.0", TORCH)
    monkeypatch.setattr(site, "USER_SITE", str(tmp_path / "user"))
    assert findings(places) == [
        f"shadow: {tmp_path}/user/torch: {tmp_path}/user is a user's folder"
    ]


def test_a_folder_on_the_path_that_cannot_be_looked_into_is_no_shadow(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOME of another user, the name of a file, a name too long to be one."""
    (tmp_path / "file").write_text("")
    odd = [str(tmp_path / "file"), "/nowhere", "x" * 5000, ""]
    monkeypatch.setattr(sys, "path", [*sys.path, *odd])
    assert findings(places) == []


def test_who_added_a_file_is_named(places: Places) -> None:
    install(places.site_packages, "torch-plugin", "1.0", {"torch/plugin.py": ""})
    assert findings(places) == ["stray: torch/plugin.py: added by torch-plugin 1.0"]


def test_another_owner_of_a_sealed_file_is_found_though_the_file_is_the_same(
    places: Places,
) -> None:
    """To uninstall that one would delete torch's."""
    install(places.site_packages, "greedy", "1.0", {"torch/nn/__init__.py": ""})
    assert findings(places) == [
        "owner: greedy 1.0: owns 1 of the sealed files too, torch/nn/__init__.py among them"
    ]


def test_pypis_triton_over_the_one_for_rocm_is_found(tmp_path: Path) -> None:
    """`pip check` calls this sound."""
    places = sealed_rocm(tmp_path)
    install(places.site_packages, "triton", "3.9.0", {"triton/__init__.py": "x = 390\n"})
    lines = "\n".join(findings(places))
    assert "file: triton/__init__.py: 8 bytes instead of 22" in lines
    assert "distribution: triton: " in lines
    assert "owner: triton 3.9.0: owns 1 of the sealed files too" in lines


def test_files_of_others_in_a_folder_that_many_share_are_no_strays(tmp_path: Path) -> None:
    """`nvidia/` is filled by every library of CUDA's, nvcc too, which nobody seals."""
    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.13.0+cpu", TORCH)
    for name in ("cublas", "cudnn"):
        files: dict[str, str | bytes] = {
            "nvidia/__init__.py": "",
            f"nvidia/{name}/lib.so": b"x",
        }
        install(places.site_packages, f"nvidia-{name}", "12.0", files)
    names = {"torch": "2.13.0+cpu", "nvidia-cublas": "12.0", "nvidia-cudnn": "12.0"}
    policy = Policy(cell="cuda", title="CUDA", protected=names)
    seal(policy, places, python=sys.executable)
    install(places.site_packages, "nvidia-cuda-nvcc", "13.0", {"nvidia/nvcc/ptxas": b"x"})
    assert findings(places) == []
    (places.site_packages / "nvidia/cublas/evil.so").write_bytes(b"x")
    assert findings(places) == ["stray: nvidia/cublas/evil.so: added by nobody"]


def test_a_library_beside_another_distributions_libraries_is_a_stray(tmp_path: Path) -> None:
    """CUDA 13's libraries share `nvidia/cu13`, where others may join; cuDNN has its own folder."""
    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.14.1", TORCH)
    names = {"torch": "2.14.1"}
    for name, folder in (("cublas", "cu13"), ("cufft", "cu13"), ("cudnn-cu13", "cudnn")):
        names[f"nvidia-{name}"] = "13.0"
        files: dict[str, str | bytes] = {f"nvidia/{folder}/lib/lib{name}.so": b"x"}
        install(places.site_packages, f"nvidia-{name}", "13.0", files)
    seal(Policy(cell="cuda", title="CUDA", protected=names), places, python=sys.executable)
    install(places.site_packages, "nvidia-npp", "13.0", {"nvidia/cu13/lib/libnpp.so": b"x"})
    assert findings(places) == []
    install(places.site_packages, "adds", "1.0", {"nvidia/cudnn/lib/libcudnn_added.so.9": b"x"})
    assert findings(places) == ["stray: nvidia/cudnn/lib/libcudnn_added.so.9: added by adds 1.0"]


def test_a_foreign_distribution_with_a_broken_record_does_not_stop_verify(places: Places) -> None:
    info = install(places.site_packages, "odd", "1.0", {})
    (info / "RECORD").write_bytes(b'"torch/version.py,\x00,\n')
    assert findings(places) == []


@pytest.mark.parametrize("part", ["policy", "manifest"])
@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"schema": 9}'])
def test_a_guard_without_its_files_is_itself_the_finding(
    places: Places, part: str, text: str | None
) -> None:
    path: Path = getattr(places, part)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    [finding] = verified(places)
    assert finding.part == "guard"
    assert path.name in finding.text


def test_what_was_relaxed_may_differ(places: Places) -> None:
    relax({"torchvision": "we bring our own"}, places)
    (places.site_packages / "torchvision/__init__.py").write_text("")
    assert findings(places) == []
    (places.site_packages / "torch/version.py").write_text("")
    assert parts(places) == {"file"}
    relax({"torch": "we bring our own"}, places)
    assert findings(places) == []


def test_quick_looks_at_sizes_and_at_no_strays(places: Places) -> None:
    version = places.site_packages / "torch/version.py"
    version.write_text(version.read_text().replace("2.13.0", "2.14.0"))
    (places.site_packages / "torch/stray.py").write_text("")
    assert findings(places, depth="quick") == []
    version.write_text("")
    assert len(findings(places, depth="quick")) == 1


def test_a_policy_that_was_loosened_by_hand_shows_in_the_channels(places: Places) -> None:
    """The files for pip and uv, and what an import reads, are compared with what it says."""
    places.policy.write_text(places.policy.read_text().replace("nvidia-cublas-cu12", "other"))
    assert parts(places) == {"channel", "guard"}


def test_light_reads_what_was_written_to_since_the_sealing(places: Places) -> None:
    """In a build, the step before has written and sealed all of it."""
    version = places.site_packages / "torch/version.py"
    version.write_text(version.read_text().replace("2.13.0", "2.14.0"))
    (places.site_packages / "torch/nn/patch.py").write_text("")
    assert findings(places, depth="light") == [
        "file: torch/version.py: other content, 50 bytes as before",
        "stray: torch/nn/patch.py: added by nobody",
    ]


def test_light_reads_nothing_that_is_older_than_the_seal(places: Places) -> None:
    sealed = places.manifest.stat().st_ctime_ns
    newer = written_since(places.manifest.stat().st_ctime_ns)
    assert [newer(written_at(sealed + after)) for after in (-1, 0, 1)] == [False, True, True]
    version = places.site_packages / "torch/version.py"
    version.write_text(version.read_text().replace("2.13.0", "2.14.0"))
    manifest = read_manifest(places.manifest)
    assert list(differences(manifest, ["torch"], doubted=lambda _: False)) == []


def written_at(nanoseconds: int) -> Any:
    return SimpleNamespace(st_ctime_ns=nanoseconds)


def test_light_finds_byte_code_that_was_written_since(places: Places) -> None:
    cache = places.site_packages / "torch/__pycache__"
    cache.mkdir()
    other = compile("import os", "version.py", "exec")
    unchecked = b"\1" + bytes(11)
    data = importlib.util.MAGIC_NUMBER + unchecked + marshal.dumps(other)
    (cache / f"version.{sys.implementation.cache_tag}.pyc").write_bytes(data)
    [found] = findings(places, depth="light")
    assert found.endswith("byte code of another source")
