"""Read the architectures of a library's device code from its bytes, without device or toolkit.

AMD: the section `.hip_fatbin` has clang offload bundles, plain or compressed (`CCOB`:
https://clang.llvm.org/docs/ClangOffloadBundler.html). NVIDIA: `.nv_fatbin` has fat binaries whose
entries name a compute capability. A library whose code lies in `.kpack` archives has neither.
"""

from __future__ import annotations

import importlib
import mmap
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warpfront_checks.stack.elf_symbols import is_readable, sections

_BUNDLE, _COMPRESSED, _FAT = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x50\xed\x55\xba"
_TRIPLE = re.compile(
    rb"(?:hip|hipv4)-amdgcn-amd-amdhsa-(?:-[a-z]*)?-(gfx[0-9a-z-]+(?::[a-z]+[+-])*)\Z"
)
_MOST_ENTRIES = 512
_ZLIB, _ZSTD = 0, 1
_PTX, _CUBIN = 1, 2
_TABLE_BYTES = 1 << 16
"""A bundle's table is at its start: no more of a compressed one is unpacked."""


@dataclass(frozen=True)
class DeviceCode:
    """`sizes` maps an architecture (`gfx942`, `sm_90`, `compute_90` for PTX) to the bytes of its
    code, as packed. `unread` are reasons why some of it could not be read.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def read_device_code(path: Path) -> DeviceCode:
    """Return the device code of an ELF file, empty for another file or one without any."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            sizes: Counter[str] = Counter()
            unread: Counter[str] = Counter()
            for section in sections(data) if is_readable(data) else ():
                name, start, end = section.name, section.offset, section.offset + section.size
                if name.startswith(".hip_fatbin"):
                    for bundle, why in _bundles(data, start, end):
                        sizes.update(dict(_entries(bundle)))
                        unread.update([why] if why else ())
                elif name in {".nv_fatbin", "__nv_relfatbin"}:
                    position = data.find(_FAT, start, end)
                    while position >= 0:
                        sizes.update(Counter(dict(_cubins(data, position, end))))
                        position = data.find(_FAT, position + 1, end)
            return DeviceCode(dict(sizes), tuple(f"{n} x {why}" for why, n in unread.items()))
    except (OSError, ValueError, OverflowError, struct.error):
        return DeviceCode()


def _bundles(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[bytes, str]]:
    """Yield the beginning of each bundle of a section, or why it cannot be unpacked. The
    content of a compressed one is skipped: its bytes may look like another.
    """
    position = start
    while True:
        plain, packed = (data.find(magic, position, end) for magic in (_BUNDLE, _COMPRESSED))
        if plain < 0 and packed < 0:
            return
        if packed < 0 or 0 <= plain < packed:
            yield data[plain : min(end, plain + _TABLE_BYTES)], ""
            position = plain + len(_BUNDLE)
        else:
            bundle, why, position = _unpacked(data, packed, end)
            yield bundle, why


def _entries(bundle: bytes) -> Iterator[tuple[str, int]]:
    """Yield (architecture, bytes) of the AMD entries of an offload bundle, if it is one."""
    if not bundle.startswith(_BUNDLE):
        return
    position = len(_BUNDLE)
    (count,) = struct.unpack_from("<Q", bundle, position)
    position += 8
    if count > _MOST_ENTRIES:
        return
    for _ in range(count):
        _, size, length = struct.unpack_from("<QQQ", bundle, position)
        match = _TRIPLE.match(bundle[position + 24 : position + 24 + length])
        if match:
            yield match[1].decode("ascii"), size
        position += 24 + length


def _unpacked(data: mmap.mmap, position: int, end: int) -> tuple[bytes, str, int]:
    """Return the beginning of the bundle in a compressed one, or why it cannot be unpacked, and its
    end. The version of its head gives the width of its sizes; the first is its own length.
    """
    version, method = struct.unpack_from("<HH", data, position + 4)
    form = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}.get(version, "")
    if not form:
        return b"", f"a compressed bundle of version {version}", position + len(_COMPRESSED)
    numbers = struct.unpack_from(form, data, position + 8)
    until = min(end, position + numbers[0]) if version > 1 else end
    packed = data[position + 8 + struct.calcsize(form) : until]
    after = until if version > 1 else position + len(_COMPRESSED)
    try:
        if method == _ZLIB:
            return zlib.decompressobj().decompress(packed, _TABLE_BYTES), "", after
        unpacked = (_zstd(packed), "") if method == _ZSTD else (b"", f"compression {method}")
    except ImportError:
        unpacked = b"", "a bundle in zstd, which this Python cannot read"
    except (zlib.error, ValueError, EOFError) as error:
        unpacked = b"", f"a damaged bundle ({type(error).__name__})"
    return *unpacked, after


def _zstd(packed: bytes) -> bytes:
    """Return the first bytes, by Python 3.14's own module, else by `zstandard`."""
    try:
        module = importlib.import_module("compression.zstd")
    except ImportError:
        module = importlib.import_module("zstandard")
    decompressor = module.ZstdDecompressor()
    try:
        if hasattr(decompressor, "stream_reader"):
            return bytes(decompressor.stream_reader(packed).read(_TABLE_BYTES))
        return bytes(decompressor.decompress(packed, _TABLE_BYTES))
    except module.ZstdError as error:
        raise ValueError(str(error)) from error


def _cubins(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield (architecture, bytes) of each entry of a fat binary: kind, size of its head, size
    of what follows; the capability is major * 10 + minor.
    """
    head, size = struct.unpack_from("<HQ", data, position + 6)
    until, position = min(end, position + head + size), position + head
    while position + 64 <= until:
        kind, _, length, body = struct.unpack_from("<HHIQ", data, position)
        (arch,) = struct.unpack_from("<I", data, position + 28)
        if kind not in {_PTX, _CUBIN} or not 0 < arch < 1000 or not length:
            return
        yield f"{'compute' if kind == _PTX else 'sm'}_{arch}", body
        position += length + body
