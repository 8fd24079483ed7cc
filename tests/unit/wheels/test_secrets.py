"""Credentials go to the addresses that they are for, and into nothing that is said or written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Index, rocm64_stand_ins, serve_index

from warpfront.errors import WarpfrontError, without_secrets
from warpfront.matrix.cell import Pin, WheelIndex
from warpfront.matrix.vendors import VENDORS
from warpfront.system import process
from warpfront.system.process import Command, Completed
from warpfront.wheels.lock.pylock import dump_lock
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site, read_site, why_unresolvable
from warpfront.wheels.store.wheelhouse import Wheelhouse

CANARIES = (
    "canary-plain",
    "canary/slash",
    "canary@at",
    "canary%percent",
    "canaryTOKEN0123456789",
    "canary-query",
)


def configured(text: str) -> Site:
    def run(command: Command) -> Completed:
        return Completed(command=command, returncode=0, stdout=text, stderr="")

    return read_site(run)


@pytest.fixture
def rocm(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm64_stand_ins(tmp_path / "rocm"), name="rocm6.4") as index:
        yield index


def test_two_credentials_on_one_host_do_not_mix() -> None:
    site = configured(
        "global.index-url='https://a:one1@host.test/team-a/simple'\n"
        "global.extra-index-url='https://b:two2@host.test/team-b/simple https://host.test/team-c'\n"
    )
    assert site.credentials_for("https://host.test/team-a/simple/torch/") == ("a", "one1")
    assert site.credentials_for("https://host.test/team-a/files/torch.whl") == ("a", "one1")
    assert site.credentials_for("https://host.test/team-b/simple") == ("b", "two2")
    assert site.credentials_for("https://host.test/team-c/torch/") is None
    assert site.credentials_for("https://host.test/team-abc/simple") is None
    assert site.credentials_for("http://host.test/team-a/simple") is None


@pytest.mark.parametrize(
    "url",
    [
        "https://user:canary-plain@host.test/simple",
        "https://canary-plain@host.test/simple",
        "https://user:canary/slash@host.test/simple",
        "https://user:12/canary@host.test/simple",
        "https://user:canary@at@host.test/simple",
        "https://user:canary%percent@host.test/simple",
        "https://user:canary%40at@host.test/simple",
        "https://host.test/canaryTOKEN0123456789/simple",
        "https://host.test/simple?token=canary-query",
    ],
)
def test_however_a_secret_is_written_it_is_masked_in_what_is_said(url: str) -> None:
    configured(f"global.index-url={url!r}\n")
    for text in (url, f"{url}/torch/: HTTP 403", f"could not fetch `{url}`"):
        assert "canary" not in without_secrets(text)
        assert "canary" not in WarpfrontError(text, hint=text).message
        assert "canary" not in WarpfrontError(text, hint=text).hint
    assert "host.test" in without_secrets(url)


def test_a_repository_and_its_commit_are_no_secret() -> None:
    text = "git+https://git.test/owner/name.git@0123abc and https://host.test:8080/a@b"
    assert without_secrets(text) == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["://a", "://a:", "://a:b", "a://a:1", "a", "'://a:b"])
def test_a_long_line_is_masked_in_time(word: str) -> None:
    """Each character is read a few times: the square of this length would take an hour."""
    text = word * 200_000
    assert without_secrets(text) == text


@pytest.mark.process
def test_no_canary_of_pips_configuration_is_said_or_written(
    rocm: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "written" / "uv"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "written"))
    monkeypatch.setattr("warpfront.wheels.store.wheelhouse.PAUSES_SECONDS", (0.01,))
    (tmp_path / "written").mkdir()
    own = rocm.url.replace("http://", "http://user:canary-plain@")
    site = configured(
        f"global.index-url={own!r}\n"
        "global.extra-index-url='http://127.0.0.1:9/canaryTOKEN0123456789/simple "
        "http://user:canary%40at@127.0.0.1:9/simple'\n"
    )
    inputs = LockInputs(
        cell_id="cell",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name="rocm6.4", url=rocm.url),
        stack_requirements=("torch==2.8.0+rocm6.4",),
        requirements=(),
        protected=VENDORS["amd"].protected,
    )
    said: list[str] = []

    def run(command: Command) -> Completed:
        said.append(repr(command.argv) + str(command))
        return process.run(command)

    house = Wheelhouse(tmp_path / "written" / "house")
    monkeypatch.setattr("warpfront.wheels.resolve.resolver.run", run)
    lock = resolve_by_uv(inputs, site, on_line=said.append, wheelhouse=house)
    said += [dump_lock(lock), repr(site)]
    for text in ("torch==9", "nowhere-to-be-found"):
        asked = dataclasses.replace(inputs, requirements=(text,))
        with pytest.raises(WarpfrontError) as caught:
            resolve_by_uv(asked, site, on_line=said.append, wheelhouse=house)
        said += [caught.value.message, caught.value.hint]
    down = WheelIndex(name="rocm6.4", url="http://127.0.0.1:9/whl")
    said.append(why_unresolvable(down, (Pin(name="torch", version="2.8.0+rocm6.4"),), site))
    house.fetch(lock.wheels, site, on_progress=lambda *_: None)
    written = [path for path in (tmp_path / "written").rglob("*") if path.is_file()]
    said += [path.read_bytes().decode(errors="replace") for path in written]
    assert len(written) > 1
    assert [text for text in said if "canary" in text] == []
