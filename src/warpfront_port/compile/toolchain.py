"""A HIP toolchain of public packages, for a machine that has none. Edge.

clang, CMake and Ninja come from Python's index, torch's headers and hipify from its wheel there;
the headers of ROCm and of the C and C++ library come from Debian's archive. `data/toolchain.toml`
pins each file by hash, and `tools/lock-toolchain` writes it. It reads sources and makes no code.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

try:
    from backports import tarfile
except ImportError:
    import tarfile  # since 3.11.4 it refuses members that lead out of a folder, too

from warpfront.errors import BlockedError
from warpfront.system.digests import digest_of
from warpfront.system.foreign import remove_tree
from warpfront.system.packaged import packaged_toml
from warpfront.system.progress import Watch
from warpfront.system.store import folder_aside
from warpfront.wheels.lock.values import PYPI, LockedWheel
from warpfront.wheels.sources import NoAnswer, Site
from warpfront.wheels.store.wheelhouse import Wheelhouse, in_parallel

DATA = "toolchain.toml"
_MPI = "lib/x86_64-linux-gnu/openmpi/include"
_COMPILER = """\
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$here/ziglang/zig" clang --driver-mode={mode} --target=x86_64-linux-gnu \\
  --sysroot="$here" --rocm-path="$here/usr" -nogpulib -Wno-unused-command-line-argument \\
  -resource-dir "$(echo "$here"/usr/lib/llvm-22/lib/clang/*)" "$@" \\
  -idirafter "$here/usr/{mpi}"
"""
_ARCHIVER = """\
#!/bin/sh
exec "$(dirname "$(dirname "$(readlink -f "$0")")")/ziglang/zig" {name} "$@"
"""
_DRIVERS = {"clang++": "g++", "clang": "gcc"}
# The programs and CMake's modules of wheels; the headers of packages.
_OF_WHEELS = re.compile(
    r"ziglang/(?:zig|LICENSE)|cmake/data/bin/cmake|cmake/data/share/cmake-[\d.]+/(?!Help/).+"
    r"|ninja-[\d.]+\.data/scripts/ninja"
)
_OF_PACKAGES = tuple(
    f"./usr/{folder}/" for folder in f"include lib/gcc lib/linux lib/llvm-22 share {_MPI}".split()
)
# The head of a file in a zip archive (PKWARE's APPNOTE, 4.3.7), and of a member of an ar archive.
_ZIP_HEAD, _ZIP_SIGNATURE, _DEFLATED = struct.Struct("<IHHHHHIIIHH"), 0x04034B50, 8
_AR_START, _AR_HEAD = len(b"!<arch>\n"), struct.Struct("16s32x10s2x")


def fetched_toolchain(cache: Path, site: Site, watch: Watch) -> Path:
    """Return the toolchain's folder below `cache`, fetched where it is not there: 160 MB.

    `bin` has clang++, clang, cmake and ninja, `torch/include` torch's headers. Raise `WheelError`
    or `BlockedError` for a file that no source has, and `StoreError`.
    """
    pins = packaged_toml(DATA, package="warpfront_port")
    folder = cache / f"toolchain-{digest_of([pins, _COMPILER, _ARCHIVER])[:16]}"
    if folder.is_dir():
        return folder
    with folder_aside(folder) as aside:
        _unpack_wheels(pins["wheels"], aside, site, watch)
        mirrors = pins["mirrors"]
        parts = [([f"{m}/{row['path']}" for m in mirrors], row) for row in pins["packages"]]
        parts += [([row["url"]], row) for row in pins["torch"]]
        with site.transport() as transport:
            tasks = [partial(_fetched, urls, row, transport, watch) for urls, row in parts]
            contents = in_parallel(tasks, threads=4, stop=lambda: None)
        for (urls, _), content in zip(parts, contents, strict=True):
            if urls[0].endswith(".deb"):
                _unpack_package(content, aside)
            else:
                for name, text in _entries(content):
                    _write(aside / name, text)
        programs = {name: _COMPILER.format(mode=to, mpi=_MPI) for name, to in _DRIVERS.items()}
        programs |= {name: _ARCHIVER.format(name=name) for name in ("ar", "ranlib")}
        for name, script in programs.items():
            _write(aside / "bin" / name, script.encode(), executable=True)
        for program in (*aside.glob("cmake/data/bin/cmake"), *aside.glob("*/scripts/ninja")):
            (aside / "bin" / program.name).symlink_to(Path("..") / program.relative_to(aside))
    for older in set(cache.glob("toolchain-*")) - {folder}:
        remove_tree(older)
    return folder


def _unpack_wheels(
    rows: Sequence[Mapping[str, Any]], folder: Path, site: Site, watch: Watch
) -> None:
    tags, wheels = set(sys_tags()), []
    for row in rows:
        name, version, _, served = parse_wheel_filename(row["filename"])
        if tags & served:
            wheels.append(LockedWheel(name=name, version=str(version), index=PYPI, **row))
    if not wheels:
        raise BlockedError("the HIP toolchain has no clang for this machine")
    house = Wheelhouse(folder / ".wheels")
    house.fetch(wheels, site, on_progress=watch.advance)
    for wheel in wheels:
        with zipfile.ZipFile(house.path(wheel)) as archive:
            for info in archive.infolist():
                if _OF_WHEELS.fullmatch(info.filename) and not info.is_dir():
                    is_program = bool(info.external_attr >> 16 & 0o100)
                    _write(folder / info.filename, archive.read(info), executable=is_program)
    remove_tree(house.root)


def _fetched(urls: Sequence[str], row: Mapping[str, Any], transport: Any, watch: Watch) -> bytes:
    """Return the bytes at the first of `urls` that has those of `row`."""
    first, size, reasons = row.get("first_byte", 0), row["size_bytes"], []
    name = urls[0].rpartition("/")[2]
    for url in urls:
        answer = transport.open(url, {"Range": f"bytes={first}-{first + size - 1}"})
        if isinstance(answer, NoAnswer):
            reasons.append(str(answer))
            continue
        content = bytearray()

        def take(piece: bytes, content: bytearray = content) -> None:
            content += piece
            watch.advance(name, min(len(content), size - 1), size)

        until = transport.deadline(size)
        if failure := transport.receive(url, answer, take, until=until, limit_bytes=size):
            reasons.append(str(failure))
            continue
        if hashlib.sha256(content).hexdigest() == row["sha256"]:
            watch.advance(name, size, size)
            return bytes(content)
        reasons.append(f"{url}: its bytes are others than the pinned ones")
    watch.advance(name, 0, 0)
    raise BlockedError(f"{name}: no source has it: {'; '.join(reasons)}")


def _unpack_package(content: bytes, folder: Path) -> None:
    """Write the headers of a Debian package: an ar archive, whose data is a tar archive."""
    offset = _AR_START
    while offset < len(content):
        name, size = _AR_HEAD.unpack_from(content, offset)
        offset += 60
        if name.startswith(b"data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[offset : offset + int(size)])) as archive:
                members = [
                    member
                    for member in archive
                    if member.name.startswith(_OF_PACKAGES) and not member.name.endswith(".a")
                ]
                archive.extractall(folder, members, filter="data")
        offset += int(size) + int(size) % 2


def _entries(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a part of a zip archive, which has no directory of its own."""
    offset = 0
    while offset < len(content):
        signature, _, _, method, _, _, _, packed, _, named, more = _ZIP_HEAD.unpack_from(
            content, offset
        )
        if signature != _ZIP_SIGNATURE:
            raise BlockedError(f"torch's headers: no file of an archive begins at byte {offset}")
        start = offset + _ZIP_HEAD.size
        data = content[start + named + more : start + named + more + packed]
        name = content[start : start + named].decode()
        if not name.endswith("/"):
            yield name, zlib.decompress(data, -zlib.MAX_WBITS) if method == _DEFLATED else data
        offset = start + named + more + packed


def _write(path: Path, content: bytes, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if executable:
        path.chmod(0o755)
