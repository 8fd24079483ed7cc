"""Resolution by the real uv, against stand-in wheels on a loopback index."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import (
    Fault,
    Index,
    rocm64_stand_ins,
    serve_index,
    stand_in_wheel,
)

from warpfront.errors import BlockedError, LockError, StoreError, WarpfrontError
from warpfront.matrix.cell import Pin, Recipe, Source, WheelIndex
from warpfront.matrix.language import Patch
from warpfront.matrix.vendors import VENDORS
from warpfront.system import process
from warpfront.system.process import Command, Completed
from warpfront.wheels.lock.pylock import dump_lock
from warpfront.wheels.lock.values import PYPI, LockedWheel, LockInputs, WheelLock
from warpfront.wheels.resolve.resolver import Sdist, supported_tags
from warpfront.wheels.resolve.resolving import resolve_by_uv as resolve
from warpfront.wheels.sources import Site, read_pip_configuration, read_site, why_unresolvable
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront.wheels.uv_program import uv_binary

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]

ROCM_STACK = ("torch==2.8.0+rocm6.4", "torchvision==0.23.0+rocm6.4", "torchaudio==2.8.0+rocm6.4")


@pytest.fixture
def pypi(tmp_path: Path) -> Iterator[Index]:
    """What stands in for PyPI: a few pure wheels, and a CUDA torch that must never be taken."""
    folder = tmp_path / "pypi"
    stand_in_wheel(folder, "numpy", "2.4.6")
    stand_in_wheel(folder, "einops", "0.8.1")
    stand_in_wheel(folder, "needs-newer-torch", "1.0", requires=["torch>=2.9"])
    stand_in_wheel(folder, "needs-torch", "1.0", requires=["torch"])
    stand_in_wheel(folder, "torch", "2.8.0")
    stand_in_wheel(folder, "torch", "2.9.0")
    with serve_index(folder, name="simple") as index:
        yield index


@pytest.fixture
def rocm(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm64_stand_ins(tmp_path / "rocm"), name="rocm6.4") as index:
        yield index


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def inputs_for(index: Index | None, **changes: object) -> LockInputs:
    inputs = LockInputs(
        cell_id="rocm64-torch",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name=index.name, url=index.url) if index else None,
        stack_requirements=ROCM_STACK if index else (),
        requirements=("numpy",),
        protected=VENDORS["amd"].protected,
    )
    return dataclasses.replace(inputs, **changes)  # type: ignore[arg-type]


def resolved(inputs: LockInputs, site: Site, house: Wheelhouse) -> WheelLock:
    return resolve(inputs, site, on_line=lambda _: None, wheelhouse=house)


def versions(lock: WheelLock) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in lock.wheels}


def answers(text: str, command: list[Command] | None = None) -> process.Run:
    def run(asked: Command) -> Completed:
        if command is not None:
            command.append(asked)
        return Completed(command=asked, returncode=0, stdout=text, stderr="")

    return run


def test_pips_configuration_is_read_with_the_environment_on_top() -> None:
    text = (
        "global.index-url='https://global.test/simple'\n"
        "install.index-url='https://install.test/simple'\n"
        ":env:.index-url='https://env.test/simple'\n"
        "global.find-links='\\n/srv/a\\n/srv/b'\n"
        "freeze.timeout='10'\n"
    )
    values = read_pip_configuration(text)
    assert values["index-url"] == "https://env.test/simple"
    assert values["find-links"].split() == ["/srv/a", "/srv/b"]
    assert "timeout" not in values


def test_a_sites_password_is_kept_apart_from_its_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/site-ca.pem")
    monkeypatch.setenv("no_proxy", "localhost")
    asked: list[Command] = []
    site = read_site(
        answers(
            "global.index-url='https://user:c%40nary@mirror.test:8443/simple'\n"
            "global.extra-index-url='https://other.test/simple'\n"
            "global.trusted-host='other.test'\nglobal.proxy='http://proxy.test:3128'\n",
            asked,
        )
    )
    assert asked[0].argv[1:3] == ("-m", "pip")
    assert site.index_url == "https://mirror.test:8443/simple"
    assert site.credentials_for(site.index_url) == ("user", "c@nary")
    assert site.certificate == "/etc/site-ca.pem"
    assert site.trusted_hosts == ("other.test",)
    assert site.proxies["HTTPS_PROXY"] == "http://proxy.test:3128"
    assert site.proxies["NO_PROXY"] == "localhost"
    assert "nary" not in repr(site)


def test_a_machine_without_configuration_uses_pypi() -> None:
    site = read_site(answers(""))
    assert (site.index_url, site.extra_index_urls, site.find_links) == (PYPI, (), ())
    assert not site.no_index


def test_only_what_the_base_can_load_is_supported() -> None:
    tags = [str(tag) for tag in supported_tags("3.11", "x86_64", "2.36")]
    assert tags[0] == "cp311-cp311-manylinux_2_36_x86_64"
    assert "cp311-cp311-manylinux2014_x86_64" in tags
    assert "cp39-abi3-manylinux_2_28_x86_64" in tags
    assert "py3-none-any" in tags
    assert not [tag for tag in tags if "2_39" in tag or "musllinux" in tag or "cp312" in tag]


def test_a_rocm_stack_is_locked_from_its_own_index(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    inputs = inputs_for(rocm)
    lock = resolved(inputs, Site(index_url=pypi.url), house)
    assert versions(lock) == {
        "numpy": "2.4.6",
        "pytorch-triton-rocm": "3.4.0",
        "torch": "2.8.0+rocm6.4",
        "torchaudio": "2.8.0+rocm6.4",
        "torchvision": "0.23.0+rocm6.4",
    }
    by_name = {wheel.name: wheel for wheel in lock.wheels}
    assert {w.index for n, w in by_name.items() if n != "numpy"} == {rocm.url}
    assert by_name["numpy"].index == PYPI, "the mirror that served it is nobody's business"
    assert pypi.url not in dump_lock(lock)
    file = rocm.folder / by_name["torch"].filename
    assert by_name["torch"].sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert by_name["torch"].size_bytes == file.stat().st_size
    assert lock.inputs_digest == inputs.digest


def test_the_same_inputs_give_the_same_bytes_from_other_sources(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    inputs = inputs_for(rocm)
    text = dump_lock(resolved(inputs, Site(index_url=pypi.url), house))
    mirrored = Site(index_url=pypi.url, find_links=(str(pypi.folder), str(rocm.folder)))
    assert dump_lock(resolved(inputs, mirrored, house)) == text


@pytest.mark.parametrize("hash_name", ["", "md5"])
def test_an_index_without_sha256_is_fetched_and_hashed(
    rocm: Index, pypi: Index, house: Wheelhouse, hash_name: str
) -> None:
    rocm.hash_name = hash_name
    lock = resolved(inputs_for(rocm), Site(index_url=pypi.url), house)
    for wheel in lock.wheels:
        folder = pypi.folder if wheel.name == "numpy" else rocm.folder
        data = (folder / wheel.filename).read_bytes()
        assert wheel.sha256 == hashlib.sha256(data).hexdigest()
        assert wheel.size_bytes == len(data)


def test_of_two_wheels_with_one_tag_the_higher_build_is_locked(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    for build in ("", "3"):
        stand_in_wheel(pypi.folder, "torch", "2.10.0", tag=tag, build=build, files={"b.txt": build})
    index = WheelIndex(name="pypi", url=pypi.url)
    inputs = dataclasses.replace(
        inputs_for(rocm), index=index, stack_requirements=("torch===2.10.0",)
    )
    lock = resolved(inputs, Site(index_url=pypi.url), house)
    (torch,) = [wheel for wheel in lock.wheels if wheel.name == "torch"]
    assert torch.filename == f"torch-2.10.0-3-{tag}.whl"


@pytest.mark.parametrize("requirement", ["torch>=2.9", "needs-newer-torch"])
def test_a_requirement_that_would_move_torch_is_a_lock_error(
    rocm: Index, pypi: Index, house: Wheelhouse, requirement: str
) -> None:
    inputs = inputs_for(rocm, requirements=(requirement,))
    with pytest.raises(LockError, match="rocm64-torch") as caught:
        resolved(inputs, Site(index_url=pypi.url), house)
    assert "but this cell holds torch 2.8.0+rocm6.4" in caught.value.message
    assert "this-cell" not in caught.value.message


def test_a_requirement_that_needs_any_torch_gets_the_cells(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    lock = resolved(
        inputs_for(rocm, requirements=("needs-torch",)), Site(index_url=pypi.url), house
    )
    assert versions(lock)["torch"] == "2.8.0+rocm6.4"


def test_a_version_that_does_not_exist_is_a_lock_error(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    inputs = inputs_for(rocm, requirements=("numpy==99",))
    with pytest.raises(LockError, match="numpy==99"):
        resolved(inputs, Site(index_url=pypi.url), house)


def test_a_child_keeps_its_parents_pins(rocm: Index, pypi: Index, house: Wheelhouse) -> None:
    stand_in_wheel(pypi.folder, "numpy", "2.4.7")
    inputs = inputs_for(rocm, requirements=("einops",), parent=("numpy==2.4.6",))
    lock = resolved(inputs, Site(index_url=pypi.url), house)
    assert versions(lock)["numpy"] == "2.4.6"
    conflicting = dataclasses.replace(inputs, requirements=("numpy>=2.4.7",))
    with pytest.raises(LockError, match="numpy"):
        resolved(conflicting, Site(index_url=pypi.url), house)


def test_a_cell_whose_torch_is_in_its_base_gets_no_second_one(
    pypi: Index, house: Wheelhouse
) -> None:
    site = Site(index_url=pypi.url)
    assert versions(resolved(inputs_for(None), site, house)) == {"numpy": "2.4.6"}
    with pytest.raises(LockError, match="the base has its own"):
        resolved(inputs_for(None, requirements=("needs-torch",)), site, house)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=403), "HTTP 403"),
        (Fault(status=404), "HTTP 404"),
        (Fault(status=500), "HTTP 500"),
        (Fault(status=429, retry_after=1), "HTTP 429"),
        (Fault(login=True), "login page"),
    ],
    ids=["403", "404", "500", "429", "login"],
)
def test_an_index_that_does_not_serve_blocks_the_cell(
    rocm: Index, pypi: Index, house: Wheelhouse, fault: Fault, words: str
) -> None:
    rocm.fail("/torch/", fault)
    with pytest.raises(BlockedError, match=words) as caught:
        resolved(inputs_for(rocm), Site(index_url=pypi.url), house)
    assert rocm.url in caught.value.message


def test_an_index_that_is_down_blocks_the_cell_unless_the_site_has_the_pins(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    inputs = inputs_for(rocm)
    down = dataclasses.replace(
        inputs, index=WheelIndex(name="rocm6.4", url="http://127.0.0.1:9/whl/rocm6.4")
    )
    with pytest.raises(BlockedError, match=r"127\.0\.0\.1:9/whl/rocm6\.4 \(connection refused\)"):
        resolved(down, Site(index_url=pypi.url), house)
    mirrored = Site(index_url=pypi.url, find_links=(str(rocm.folder),))
    lock = resolved(down, mirrored, house)
    (torch,) = [wheel for wheel in lock.wheels if wheel.name == "torch"]
    assert torch.index == "http://127.0.0.1:9/whl/rocm6.4"
    moved = dataclasses.replace(down, requirements=("torch>=2.9",))
    with pytest.raises(LockError):
        resolved(moved, mirrored, house)


def test_an_index_that_hangs_blocks_the_cell_soon(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    rocm.fail("/torch/", Fault(hang_seconds=60))
    site = Site(index_url=pypi.url, patience_seconds=0.2)
    with pytest.raises(BlockedError, match="no answer, or too little of one, in time"):
        resolved(inputs_for(rocm), site, house)


def test_an_index_that_fails_midway_is_never_called_a_contradiction(
    rocm: Index, pypi: Index, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")  # by itself uv asks three times more, in ten seconds
    pypi.fail("/einops/", Fault(status=500))
    inputs = inputs_for(rocm, requirements=("einops", "numpy"))
    site = Site(index_url=pypi.url, answers={f"{pypi.url} einops": ""})
    with pytest.raises(BlockedError, match="stopped answering") as caught:
        resolved(inputs, site, house)
    assert "500" in caught.value.message


def test_a_full_disk_is_no_contradiction(
    rocm: Index, pypi: Index, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "error: Failed to write\n  Caused by: No space left on device (os error 28)"

    def run(asked: Command) -> Completed:
        done = process.run(asked)
        if "compile" not in asked.argv:
            return done
        return Completed(command=asked, returncode=2, stdout="", stderr=said)

    monkeypatch.setattr("warpfront.wheels.resolve.resolver.run", run)
    with pytest.raises(StoreError, match="the disk is full"):
        resolved(inputs_for(rocm), Site(index_url=pypi.url), house)


def test_pypi_out_of_reach_blocks_the_cell(rocm: Index, house: Wheelhouse) -> None:
    with pytest.raises(BlockedError, match=r"127\.0\.0\.1:9/simple \(connection refused\)"):
        resolved(inputs_for(rocm), Site(index_url="http://127.0.0.1:9/simple"), house)


def test_an_air_gapped_site_resolves_from_its_folders(
    rocm: Index, pypi: Index, house: Wheelhouse
) -> None:
    site = Site(no_index=True, find_links=(str(pypi.folder), str(rocm.folder)))
    lock = resolved(inputs_for(rocm), site, house)
    assert versions(lock)["torch"] == "2.8.0+rocm6.4"
    assert rocm.requests == []


def test_a_sites_own_uv_settings_change_nothing(
    rocm: Index, pypi: Index, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "constraint.txt").write_text("numpy<2\n")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "constraint.txt"))
    monkeypatch.setenv("UV_TORCH_BACKEND", "cpu")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    lock = resolved(inputs_for(rocm), Site(index_url=pypi.url), house)
    assert versions(lock)["numpy"] == "2.4.6"


def test_a_password_is_in_no_command_lock_or_message(
    rocm: Index, pypi: Index, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(index_url=pypi.url, credentials={pypi.url: ("user", "canary")})
    commands: list[str] = []
    lines: list[str] = []

    def run(command: Command) -> Completed:
        commands.append(str(command) + repr(command.argv))
        return process.run(command)

    monkeypatch.setattr("warpfront.wheels.resolve.resolver.run", run)
    lock = resolve(inputs_for(rocm), site, on_line=lines.append, wheelhouse=house)
    with pytest.raises(WarpfrontError) as caught:
        resolve(
            inputs_for(rocm, requirements=("numpy==99",)),
            site,
            on_line=lines.append,
            wheelhouse=house,
        )
    for text in (*commands, *lines, dump_lock(lock), caught.value.message, caught.value.hint):
        assert "canary" not in text


def test_the_plan_can_ask_whether_a_cell_is_in_reach(rocm: Index, pypi: Index) -> None:
    pins = (Pin(name="torch", version="2.8.0+rocm6.4"),)
    index = WheelIndex(name="rocm6.4", url=rocm.url)
    down = WheelIndex(name="rocm6.4", url="http://127.0.0.1:9/whl/rocm6.4")
    site = Site(index_url=pypi.url)
    assert why_unresolvable(index, pins, site) == ""
    reason = why_unresolvable(down, pins, site)
    assert down.url in reason
    assert "connection refused" in reason
    mirrored = Site(index_url=pypi.url, find_links=(str(rocm.folder),))
    assert why_unresolvable(down, pins, mirrored) == ""
    assert why_unresolvable(down, (), site) == ""


def test_a_lock_installs_offline_from_a_view_and_wrong_bytes_do_not(
    rocm: Index, pypi: Index, house: Wheelhouse, tmp_path: Path
) -> None:
    site = Site(index_url=pypi.url)
    lock = resolved(inputs_for(rocm), site, house)
    house.fetch(lock.wheels, site, on_progress=lambda *_: None)
    folder = house.view(lock.wheels, tmp_path / "view")
    (folder / "pylock.cell.toml").write_text(dump_lock(lock))
    python = tmp_path / "venv" / "bin" / "python"
    create = [
        str(uv_binary()),
        "venv",
        "--quiet",
        "--python",
        sys.executable,
        str(tmp_path / "venv"),
    ]
    subprocess.run(create, check=True)
    argv = [
        str(uv_binary()),
        "pip",
        "install",
        "--preview-features",
        "pylock",
        "--no-config",
        "--offline",
        "--no-index",
        "--no-deps",
        "--no-cache",
        "--python",
        str(python),
        "-r",
        f"{folder}/pylock.cell.toml",
    ]
    subprocess.run(argv, check=True, capture_output=True)
    said = subprocess.run(
        [str(python), "-c", "import torch, triton; print(torch.version.hip, triton.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["6.4.43482", "3.4.0"]
    spoilt = folder / "numpy-2.4.6-py3-none-any.whl"
    data = bytearray(spoilt.read_bytes())
    data[-1] ^= 1
    spoilt.unlink()
    spoilt.write_bytes(bytes(data))
    subprocess.run([*create, "--clear"], check=True)
    refused = subprocess.run(
        [str(uv_binary()), *argv[1:]], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "numpy" in refused.stderr


@pytest.mark.parametrize(("machine", "other"), [("x86_64", "aarch64"), ("aarch64", "x86_64")])
def test_a_wheel_by_its_address_for_another_machine_is_refused(
    machine: str, other: str, pypi: Index, house: Wheelhouse
) -> None:
    tag = f"cp311-cp311-manylinux_2_28_{other}"
    wheel = stand_in_wheel(pypi.folder, "extra", "1.0", tag=tag)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    url = f"{pypi.url}/{wheel.name}"
    source = Source(kind="wheel", location=url, name="extra", pin=sha256)
    inputs = inputs_for(None, machine=machine, sources=(source,))
    with pytest.raises(LockError, match=f"{other}.whl, which is not for {machine}"):
        resolve(
            inputs,
            Site(index_url=pypi.url),
            on_line=lambda _: None,
            wheelhouse=house,
            crafting=_NothingIsBuilt(),
        )


class _NothingIsBuilt:
    def from_source(self, source: Source) -> tuple[LockedWheel, Recipe | None]:
        raise AssertionError(source)

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, Recipe]:
        raise AssertionError((sdist, recipe))

    def from_wheel(self, original: LockedWheel, patches: tuple[Patch, ...]) -> LockedWheel:
        raise AssertionError((original, patches))
