"""An index is read whole or not at all: real forms of pages, and indexes that do not keep to them.

The forms: pytorch.org's by pytorch/test-infra s3_management/manage_v2.py @61a77570f
(`to_simple_package_html`: root-relative or absolute links with `%2B`, a hash that nightlies lack,
METADATA by both names, a time stamp behind the page) and update_dependencies.py (AMD's pages copied
with absolute links); AMD's by the same (`../<wheel>.whl`, no hashes) and ROCm/TheRock
build_tools/packaging/python/generate_s3_index.py @89553ce; PyPI's JSON by PEP 691.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from standins import Fault, Index, rocm10_stand_ins, serve_index, stand_in_wheel

from warpfront.matrix.index_contents import IndexedRelease, Releases
from warpfront.wheels.index_survey import survey_index
from warpfront.wheels.sources import NoAnswer, Site

NAMES = ("torch", "torchvision")
NEEDS = (
    "filelock",
    'nvidia-cuda-runtime==13.0.96; platform_machine == "x86_64"',
    'triton==3.8.0; platform_system == "Linux" and python_version < "3.14"',
    'opt-einsum; extra == "opt-einsum"',
)


def torch_wheel(folder: Path, version: str, python: str, machine: str = "x86_64") -> Path:
    tag = f"cp{python}-cp{python}-manylinux_2_28_{machine}"
    return stand_in_wheel(folder, "torch", version, requires=NEEDS, tag=tag)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for python in ("311", "313"):
        torch_wheel(tmp_path, "2.14.1+cu130", python)
    torch_wheel(tmp_path, "2.14.1+cu130", "313", "aarch64")
    stand_in_wheel(
        tmp_path,
        "torchvision",
        "0.29.1+cu130",
        requires=["torch>=2.14.0"],
        tag="py3-none-manylinux_2_28_x86_64",
    )
    return tmp_path


@pytest.fixture
def index(folder: Path) -> Iterator[Index]:
    with serve_index(folder, name="cu130") as served:
        yield served


def surveyed(
    index: Index,
    names: tuple[str, ...] = NAMES,
    known: Releases | None = None,
    *,
    seconds: float = 2.0,
) -> Releases | NoAnswer:
    return survey_index(
        index.url,
        names,
        known=known or {},
        wanted=lambda _name, versions: {one for one in versions if not one.is_prerelease},
        site=Site(patience_seconds=seconds),
    )


def read(index: Index, names: tuple[str, ...] = NAMES, known: Releases | None = None) -> Releases:
    found = surveyed(index, names, known)
    assert not isinstance(found, NoAnswer), found
    return found


def refused(index: Index, names: tuple[str, ...] = NAMES, *, seconds: float = 2.0) -> str:
    known = {"torch": {"2.14.1+cu130": IndexedRelease()}}
    found = surveyed(index, names, known, seconds=seconds)
    assert isinstance(found, NoAnswer), found
    return str(found)


def pytorch_org_page(index: Index, name: str, *, nightly: bool = False, absolute: str = "") -> str:
    """A page in pytorch.org's form."""
    lines = ["<!DOCTYPE html>", "<html>", "  <body>", f"    <h1>Links for {name}</h1>"]
    for path in sorted(index.folder.glob(f"{name}-*.whl")):
        digest = "" if nightly else f"#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"
        metadata = path.with_name(f"{path.name}.metadata")
        said = ""
        if metadata.is_file():
            sha = f"sha256={hashlib.sha256(metadata.read_bytes()).hexdigest()}"
            said = f' data-dist-info-metadata="{sha}" data-core-metadata="{sha}"'
        said += ' data-upload-time="2026-09-16T01:02:03Z"'
        href = f"{absolute}/whl/{index.name}/{quote(path.name)}{digest}"
        lines.append(f'    <a href="{href}"{said}>{path.name}</a><br/>')
    return "\n".join([*lines, "  </body>", "</html>", "<!--TIMESTAMP 1789520523-->"])


def put_metadata_beside(folder: Path) -> None:
    for path in folder.glob("*.whl"):
        with zipfile.ZipFile(path) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
            path.with_name(f"{path.name}.metadata").write_bytes(archive.read(name))


def test_a_release_is_read_with_its_pythons_machines_and_what_belongs_to_it(index: Index) -> None:
    found = read(index)
    assert found["torch"] == {
        "2.14.1+cu130": IndexedRelease(
            python=("3.11", "3.13"),
            machines=("aarch64", "x86_64"),
            platform="manylinux_2_28",
            files=3,
            hashes=3,
            requires={
                "aarch64": ("triton==3.8.0",),
                "x86_64": ("nvidia-cuda-runtime==13.0.96", "triton==3.8.0"),
            },
        )
    }
    assert found["torchvision"]["0.29.1+cu130"].python == ()
    assert found["torchvision"]["0.29.1+cu130"].requires == {"x86_64": ("torch>=2.14.0",)}


def test_no_wheel_is_fetched_whole(folder: Path) -> None:
    large = {"torch/lib/libtorch_cuda.so": bytes(range(256)) * 8000}
    tag = "cp314-cp314-manylinux_2_28_x86_64"
    wheel = stand_in_wheel(folder, "torch", "2.15.0+cu130", requires=NEEDS, files=large, tag=tag)
    with zipfile.ZipFile(wheel, "w") as archive:  # stored, so that its size is that of its files
        archive.writestr("torch/lib/libtorch_cuda.so", large["torch/lib/libtorch_cuda.so"])
        archive.writestr(
            "torch-2.15.0+cu130.dist-info/METADATA", "Name: torch\nVersion: 2.15.0+cu130\n"
        )
    with serve_index(folder, name="cu130") as served:
        read(served)
        ranges = [one for one in served.downloads(wheel.name) if one]
        assert ranges
        assert served.downloads(wheel.name) == ranges
    sizes = (int(last) - int(first) + 1 for first, last in (one[6:].split("-") for one in ranges))
    assert sum(sizes) < wheel.stat().st_size / 4


@pytest.mark.parametrize("json", [False, True], ids=["PEP 503", "PEP 691"])
def test_metadata_beside_a_wheel_is_read_instead_of_the_wheel(
    index: Index, folder: Path, *, json: bool
) -> None:
    put_metadata_beside(folder)
    index.json = json
    assert read(index)["torch"]["2.14.1+cu130"].requires["x86_64"] == NEEDS_OF_X86
    assert not [path for path, _ in index.requests if path.endswith(".whl")]


NEEDS_OF_X86 = ("nvidia-cuda-runtime==13.0.96", "triton==3.8.0")


def test_pytorch_orgs_page_of_a_release_and_of_a_nightly(index: Index, folder: Path) -> None:
    put_metadata_beside(folder)
    release = {name: pytorch_org_page(index, name) for name in NAMES}
    index.pages = release
    whole = read(index)
    assert whole["torch"]["2.14.1+cu130"].hashes == 3
    nightly = f"http://127.0.0.1:{index.port}"
    index.pages = {
        name: pytorch_org_page(index, name, nightly=True, absolute=nightly) for name in NAMES
    }
    bare = read(index)
    assert bare["torch"]["2.14.1+cu130"].hashes == 0
    assert bare["torch"]["2.14.1+cu130"].requires == whole["torch"]["2.14.1+cu130"].requires


def test_amds_page_has_extras_for_devices_post_releases_and_no_hash(tmp_path: Path) -> None:
    folder = rocm10_stand_ins(tmp_path / "wheels", devices=("gfx942", "gfx1201"))
    with serve_index(folder, name="whl-next") as served:
        names = ("torch", "torchvision", "torchaudio", "triton", "rocm", "pytorch-triton-rocm")
        served.pages = {
            "torch": "<!DOCTYPE html>\n<html>\n  <body>\n"
            + "\n".join(
                f'    <a href="../{quote(path.name)}">{path.name}</a><br/>'
                for path in sorted(folder.glob("torch-*.whl"))
            )
            + "\n  </body>\n</html>\n"
        }
        found = read(served, names)
    torch = found["torch"]["2.13.0+rocm10.0.0"]
    assert torch.devices == ("gfx1201", "gfx942")
    assert (torch.hashes, torch.platform, torch.machines) == (0, "linux", ("x86_64",))
    assert "rocm[libraries]==10.0.0" in torch.requires["x86_64"]
    assert list(found["torchaudio"]) == ["2.11.0.2+rocm10.0.0"]
    assert list(found["rocm"]) == ["10.0.0"], "an archive of sources"
    assert "pytorch-triton-rocm" not in found


def test_a_wheel_of_the_stable_abi_serves_each_later_python_that_it_accepts(tmp_path: Path) -> None:
    """triton 3.9.0 on PyPI: cp311, cp312-abi3, cp314t and cp315t, for Python below 3.16."""
    for tag in ("cp311-cp311", "cp312-abi3", "cp314-cp314t", "cp315-cp315t"):
        stand_in_wheel(tmp_path, "torch", "3.9.0", tag=f"{tag}-manylinux_2_28_x86_64")
    with serve_index(tmp_path) as served:
        page = [
            f'<a href="../{one.name}" data-requires-python="&gt;=3.11,&lt;3.16">x</a>'
            for one in sorted(tmp_path.iterdir())
        ]
        served.pages = {"torch": "".join(page)}
        found = read(served, ("torch",))
    assert found["torch"]["3.9.0"].python == ("3.11", "3.12", "3.13", "3.14", "3.15")


def test_a_yanked_release_keeps_the_reason(index: Index) -> None:
    page = pytorch_org_page(index, "torch").replace("<a ", '<a data-yanked="wrong triton" ')
    index.pages = {"torch": page}
    assert read(index)["torch"]["2.14.1+cu130"].yanked == "wrong triton"


def test_what_is_known_in_the_same_form_is_not_read_again(index: Index) -> None:
    known = read(index)
    index.requests.clear()
    assert read(index, known=known) == known
    assert not [path for path, _ in index.requests if path.endswith((".whl", ".metadata"))]


def test_without_ranges_a_release_is_known_and_its_demands_are_not(index: Index) -> None:
    index.ranges = False
    assert read(index)["torch"]["2.14.1+cu130"].requires == {}


@pytest.mark.parametrize(
    ("part", "fault", "words"),
    [
        ("/torch/", Fault(status=500), "HTTP 500"),
        ("/torch/", Fault(status=404), "HTTP 404"),
        ("/torch/", Fault(login=True), "a login page"),
        ("/torch/", Fault(hang_seconds=30), "in time|for too long"),
        ("/torch/", Fault(bytes_per_second=40), "no whole page in 3 s"),
        ("/torch/", Fault(truncate_at=100), "broke off|lists no file"),
        ("/torchvision/", Fault(status=503), "HTTP 503"),
    ],
    ids=["error", "gone", "login", "silent", "slow", "cut off", "half"],
)
def test_an_index_that_does_not_answer_whole_gives_one_reason(
    index: Index, part: str, fault: Fault, words: str
) -> None:
    index.fail(part, fault)
    # A fault that is waited for costs its whole time.
    waits = fault.hang_seconds or fault.bytes_per_second
    said = refused(index, seconds=0.5 if waits else 2.0)
    assert re.search(words, said), said
    assert "\n" not in said


def test_a_page_of_an_error_that_answers_200_is_no_empty_index(index: Index) -> None:
    index.pages = {"torch": "<html><body><h1>502 Bad Gateway</h1><p>cloud</p></body></html>"}
    assert "lists no file of torch (an error page?)" in refused(index)


def test_an_index_that_lists_another_distribution_is_not_believed(index: Index) -> None:
    index.pages = {"torch": pytorch_org_page(index, "torchvision")}
    assert "its page for torch lists torchvision" in refused(index)


def test_metadata_of_another_release_is_not_believed(tmp_path: Path) -> None:
    wheel = torch_wheel(tmp_path, "2.13.0+cu130", "313")
    wheel.rename(tmp_path / wheel.name.replace("2.13.0", "2.14.1"))
    with serve_index(tmp_path, name="cu130") as served:
        assert "its METADATA is of torch 2.13.0+cu130" in refused(served)


def test_metadata_with_another_hash_than_its_page_is_not_believed(
    index: Index, folder: Path
) -> None:
    put_metadata_beside(folder)
    index.pages = {"torch": pytorch_org_page(index, "torch")}
    for path in folder.glob("*.metadata"):
        path.write_bytes(path.read_bytes() + b"Requires-Dist: evil\n")
    assert "its METADATA has another hash than its page" in refused(index)


def test_a_companion_that_an_index_never_had_is_no_fault(index: Index, folder: Path) -> None:
    for path in folder.glob("torchvision*"):
        path.unlink()
    assert set(read(index)) == {"torch"}
