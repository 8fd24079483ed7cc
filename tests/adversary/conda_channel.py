"""A channel of conda packages on a disk, and an installer of them: what `conda install`, `mamba`
and `pixi` do, by the library that pixi is made of (py-rattler). Stand-ins with the real names and
the shape of conda-forge's packages: files below the prefix, the metadata of Python among them.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_SITE = "lib/python3.11/site-packages"
_INSTALLER = """\
import asyncio
import os
import sys

from rattler import Channel, VirtualPackage, install, solve


async def main(prefix, channel, *wanted):
    found = await solve(
        [Channel(channel)],
        list(wanted),
        platforms=["linux-64", "noarch"],
        virtual_packages=VirtualPackage.detect(),
    )
    await install(found, prefix, show_progress=False)


asyncio.run(main(*sys.argv[1:]))
os._exit(0)  # threads of the library may still be there, and abort an interpreter that ends
"""


def write_channel(folder: Path, *, newer: str, same: str) -> None:
    """`channel/` with pytorch, a package that needs it, and a sympy that torch cannot work with;
    `conda.py PREFIX CHANNEL PACKAGE...` beside it.
    """
    channel = folder / "channel"
    records = [
        _package(channel, "pytorch", newer, _distribution("torch", newer)),
        _package(channel, "pytorch-cpu", same, _distribution("torch", same)),
        _package(channel, "needs-pytorch", "1.0", {}, ["pytorch"]),
        _package(channel, "sympy", "1.5", _distribution("sympy", "1.5")),
        _package(channel, "libtorch", newer, {"lib/libtorch_cpu.so": b"\x7fELF"}),
    ]
    for platform, packages in (("linux-64", dict(records)), ("noarch", {})):
        (channel / platform).mkdir(exist_ok=True)
        said = {"info": {"subdir": platform}, "packages": packages, "packages.conda": {}}
        (channel / platform / "repodata.json").write_text(json.dumps(said), "utf-8")
    (folder / "conda.py").write_text(_INSTALLER, "utf-8")


def _distribution(name: str, version: str) -> dict[str, bytes]:
    info = f"{_SITE}/{name}-{version}.dist-info"
    return {
        f"{_SITE}/{name}/__init__.py": f"__version__ = {version!r}\n".encode(),
        f"{_SITE}/{name}/version.py": f"__version__ = {version!r}\n".encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/INSTALLER": b"conda\n",
        f"{info}/RECORD": b"",
    }


def _package(
    channel: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    depends: Sequence[str] = (),
) -> tuple[str, dict[str, object]]:
    """One package; its file's name and what the channel says of it."""
    conda_version = version.replace("+", "_")
    index = {
        "name": name,
        "version": conda_version,
        "build": "py311_0",
        "build_number": 0,
        "depends": list(depends),
        "subdir": "linux-64",
    }
    paths = [
        {"_path": path, "path_type": "hardlink", "size_in_bytes": len(data), "sha256": _sha(data)}
        for path, data in files.items()
    ]
    said = {"info/index.json": index, "info/paths.json": {"paths_version": 1, "paths": paths}}
    content = {**files, **{path: json.dumps(one).encode() for path, one in said.items()}}
    content["info/files"] = "".join(f"{path}\n" for path in files).encode()
    target = channel / "linux-64" / f"{name}-{conda_version}-py311_0.tar.bz2"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:bz2") as archive:
        for path, data in content.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    data = target.read_bytes()
    return target.name, {**index, "sha256": _sha(data), "size": len(data)}


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
