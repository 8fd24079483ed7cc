"""A toolchain of public packages: fetched by hash, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from loopback import running
from standins import stand_in_wheel

from warpfront.errors import BlockedError, WarpfrontError, WheelError
from warpfront.system.packaged import packaged_toml
from warpfront.wheels.sources import Site
from warpfront_port.compile import toolchain
from warpfront_port.compile.toolchain import fetched_toolchain


class Quiet:
    """A receiver of progress that keeps the names of transfers."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def advance(self, transfer: str, done_bytes: int, total_bytes: int) -> None:
        self.names += [transfer] if done_bytes == total_bytes else []

    def say(self, text: str) -> None:
        raise AssertionError(text)

    step = line = say


def package(folder: Path, files: dict[str, str]) -> Path:
    """A Debian package: an ar archive with a version, no control files, and data."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    content = b"!<arch>\n"
    for name, body in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body
        content += b"\n" * (len(body) % 2)
    path = folder / "pool" / "libhip-dev_7.2_amd64.deb"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def pinned(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}


class Ranged(SimpleHTTPRequestHandler):
    """A server that answers a range by its bytes alone, as an index of wheels does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        path = Path(self.translate_path(self.path))
        content = path.read_bytes()[int(first) : int(last) + 1] if path.is_file() else b""
        self.send_response(206 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The pins of a small toolchain, which a server on loopback and a folder of wheels have."""
    folder = tmp_path / "offered"
    deb = package(
        folder, {"./usr/include/hip/h.h": "H", "./usr/lib/gcc/x.a": "no", "./usr/bin/evil": "no"}
    )
    torch = folder / "torch.whl"
    with zipfile.ZipFile(torch, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torch/lib/libtorch.so", b"large" * 1000)
        archive.writestr("torch/include/", b"")
        archive.writestr("torch/include/torch/extension.h", "headers" * 100)
        archive.writestr("torch/version.py", "")
        places = {info.filename: info.header_offset for info in archive.infolist()}
    first, end = places["torch/include/"], places["torch/version.py"]
    part = torch.read_bytes()[first:end]
    wheels = [
        stand_in_wheel(folder / "wheels", "ziglang", "1.0", files={"ziglang/zig": "zig"}),
        stand_in_wheel(folder / "wheels", "ninja", "1.0", files={"ninja/ninja.py": ""}),
    ]

    def serve(request: Any, address: Any, server: Any) -> Ranged:
        return Ranged(request, address, server, directory=str(folder))

    with running(ThreadingHTTPServer(("127.0.0.1", 0), serve)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        pins = {
            "mirrors": [f"{url}/gone", url],
            "torch": [
                {
                    "url": f"{url}/torch.whl",
                    "first_byte": first,
                    "size_bytes": len(part),
                    "sha256": hashlib.sha256(part).hexdigest(),
                }
            ],
            "packages": [{"path": deb.relative_to(folder).as_posix(), **pinned(deb)}],
            "wheels": [{"filename": wheel.name, **pinned(wheel)} for wheel in wheels],
        }
        monkeypatch.setattr(toolchain, "packaged_toml", lambda *_, **__: pins)
        yield pins


def fetch(tmp_path: Path) -> tuple[Path, list[str]]:
    site = Site(find_links=(str(tmp_path / "offered" / "wheels"),), no_index=True)
    watch = Quiet()
    folder = fetched_toolchain(tmp_path / "cache", site, watch)  # type: ignore[arg-type]
    return folder, watch.names


@pytest.mark.usefixtures("offered")
def test_a_toolchain_is_fetched_once_and_has_headers_and_programs(tmp_path: Path) -> None:
    older = tmp_path / "cache" / "toolchain-0"
    (older / "bin").mkdir(parents=True)
    folder, names = fetch(tmp_path)
    assert len(names) == 4
    assert not older.exists()  # an earlier release of this program fetched it
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "bin/ar", "bin/clang", "bin/clang++", "bin/ranlib", "torch/include/torch/extension.h",
        "usr/include/hip/h.h", "ziglang/zig",
    }  # fmt: skip
    assert (folder / "torch/include/torch/extension.h").read_text() == "headers" * 100
    assert os.access(folder / "bin" / "clang++", os.X_OK)
    assert fetch(tmp_path) == (folder, [])


def swapped(pins: dict[str, Any]) -> None:
    pins["packages"][0]["sha256"] = "0" * 64


def cut(pins: dict[str, Any]) -> None:
    pins["torch"][0]["size_bytes"] -= 1


def gone(pins: dict[str, Any]) -> None:
    pins["mirrors"].pop()


def another_wheel(pins: dict[str, Any]) -> None:
    pins["wheels"][0]["sha256"] = "0" * 64


def foreign(pins: dict[str, Any]) -> None:
    pins["wheels"] = [{**pins["wheels"][0], "filename": "ziglang-1.0-py3-none-win32.whl"}]


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (swapped, BlockedError, "its bytes are others than the pinned ones"),
        (cut, BlockedError, "its bytes are others than the pinned ones"),
        (gone, BlockedError, "404"),
        (another_wheel, WheelError, "wrong bytes from"),
        (foreign, BlockedError, "no clang for this machine"),
    ],
)
def test_a_toolchain_that_is_not_whole_is_none(
    tmp_path: Path,
    offered: dict[str, Any],
    fault: Callable[[dict[str, Any]], None],
    error: type[WarpfrontError],
    words: str,
) -> None:
    fault(offered)
    with pytest.raises(error, match=words):
        fetch(tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_pins_name_a_program_for_each_machine_and_two_mirrors() -> None:
    pins = packaged_toml("toolchain.toml", package="warpfront_port")
    names = {row["filename"].split("-")[0] for row in pins["wheels"]}
    assert names == {"ziglang", "cmake", "ninja"}
    for name in names:
        files = [row["filename"] for row in pins["wheels"] if row["filename"].startswith(name)]
        assert {machine for machine in ("x86_64", "aarch64") for f in files if machine in f} == {
            "x86_64",
            "aarch64",
        }
    assert len(pins["mirrors"]) == 2
    assert all(len(row["sha256"]) == 64 for row in [*pins["packages"], *pins["torch"]])
