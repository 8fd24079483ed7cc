"""Which architectures a library has device code for, by its bytes.

Forms as real wheels have them, read on 2026-11-27: cupy-rocm-7-0 14.2.0 (plain bundles),
bitsandbytes 0.50.2 and jax-rocm10-pjrt 0.12.0 (compressed by zstd), bitsandbytes for CUDA.
"""

from __future__ import annotations

import importlib
import struct
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from warpfront_checks.load import import_extension
from warpfront_checks.results import FAILED, PASSED
from warpfront_checks.stack.device_code import DeviceCode, read_device_code

AMD = {"gfx90a": 300, "gfx942": 400, "gfx90a:xnack+": 20}


def elf(folder: Path, sections: Mapping[str, bytes], name: str = "lib.so") -> Path:
    """A 64-bit ELF file of nothing but these sections and their names."""
    names = [*sections, ".shstrtab"]
    table = b"\0" + b"\0".join(one.encode() for one in names) + b"\0"
    bodies = [*sections.values(), table]
    at, heads = 64, [bytes(64)]
    for text, body in zip(names, bodies, strict=True):
        place = table.index(b"\0" + text.encode() + b"\0") + 1
        heads.append(struct.pack("<IIQQQQIIQQ", place, 1, 0, 0, at, len(body), 0, 0, 1, 0))
        at += len(body)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, len(heads), len(names)
    )
    path = folder / name
    path.write_bytes(head + b"".join(bodies) + b"".join(heads))
    return path


def bundle(sizes: Mapping[str, int], host: str = "host-x86_64-unknown-linux-gnu-") -> bytes:
    triples = {host: 0, **{f"hipv4-amdgcn-amd-amdhsa--{arch}": n for arch, n in sizes.items()}}
    made = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(triples))
    for triple, size in triples.items():
        made += struct.pack("<QQQ", 4096, size, len(triple)) + triple.encode()
    return made + bytes(range(256)) * 40


def compressed(raw: bytes, *, version: int = 3, method: int = 1) -> bytes:
    body = zstandard.compress(raw) if method == 1 else zlib.compress(raw)
    form = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}.get(version, "<QQQ")
    size = 8 + struct.calcsize(form) + len(body)
    numbers = (len(raw), 7) if version == 1 else (size, len(raw), 7)
    return b"CCOB" + struct.pack("<HH", version, method) + struct.pack(form, *numbers) + body


def fat(entries: Mapping[tuple[int, int], int]) -> bytes:
    """(kind, capability) -> bytes: 1 is PTX, 2 a cubin."""
    made = b""
    for (kind, arch), size in entries.items():
        head = struct.pack("<HHIQ", kind, 1, 64, size).ljust(28, b"\0") + struct.pack("<I", arch)
        made += head.ljust(64, b"\0") + bytes(size)
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(made)) + made


def test_a_plain_bundle_names_its_architectures_and_their_sizes(tmp_path: Path) -> None:
    path = elf(tmp_path, {".text": b"code", ".hip_fatbin": bundle(AMD)})
    assert read_device_code(path) == DeviceCode(AMD)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [0, 1], ids=["zlib", "zstd"])
def test_a_compressed_bundle_is_unpacked_as_far_as_its_table(
    tmp_path: Path, version: int, method: int
) -> None:
    both = compressed(bundle(AMD), version=version, method=method) + bytes(100)
    path = elf(tmp_path, {".hip_fatbin": both + compressed(bundle({"gfx1201": 5}), method=method)})
    assert read_device_code(path) == DeviceCode({**AMD, "gfx1201": 5})


def test_what_looks_like_a_bundle_inside_of_another_or_of_code_is_none(tmp_path: Path) -> None:
    inner = bundle({"gfx900": 9})
    section = compressed(inner)
    path = elf(
        tmp_path, {".hip_fatbin": section, ".rodata": b"CCOB" + inner, ".text": fat({(2, 90): 8})}
    )
    assert read_device_code(path) == DeviceCode({"gfx900": 9})


def test_cubins_and_ptx_are_told_apart(tmp_path: Path) -> None:
    section = fat({(2, 80): 100, (2, 90): 200, (1, 90): 30}) + bytes(8) + fat({(2, 80): 50})
    path = elf(tmp_path, {".nv_fatbin": section})
    assert read_device_code(path) == DeviceCode({"sm_80": 150, "sm_90": 200, "compute_90": 30})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF\x02\x01",
        b"\x7fELF\x01\x01" + bytes(100),
        b"\x7fELF\x02\x01" + b"\xff" * 90,
    ],
)
def test_another_file_has_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    assert read_device_code(path) == DeviceCode()


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (compressed(bundle(AMD), version=9), "a compressed bundle of version 9"),
        (compressed(bundle(AMD))[:40] + bytes(40), "a damaged bundle"),
        (compressed(bundle(AMD), method=7), "compression 7"),
    ],
)
def test_what_cannot_be_read_is_said_and_not_taken_for_nothing(
    tmp_path: Path, section: bytes, why: str
) -> None:
    (unread,) = read_device_code(elf(tmp_path, {".hip_fatbin": section})).unread
    assert why in unread


def test_without_zstd_a_bundle_is_not_determined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    found = read_device_code(elf(tmp_path, {".hip_fatbin": compressed(bundle(AMD))}))
    assert found == DeviceCode({}, ("1 x a bundle in zstd, which this Python cannot read",))


def test_an_extension_for_other_targets_fails_where_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = elf(tmp_path, {".hip_fatbin": bundle(AMD)}, "ext.py")
    monkeypatch.setitem(sys.modules, "torch", object())
    module = type("Module", (), {"__file__": str(library)})
    monkeypatch.setitem(sys.modules, "my_ext", module)
    found = import_extension("my_ext", ("gfx1201", "gfx12-generic"))
    assert found.outcome == FAILED
    assert found.reason == (
        "my_ext has device code for gfx90a gfx90a:xnack+ gfx942, none for gfx1201"
    )
    assert import_extension("my_ext", ("gfx942",)).outcome == PASSED
    assert import_extension("my_ext").outcome == PASSED, "a host without claims"
