"""What a compiled extension needs and does not find here: libraries, and symbols of those that are
there. Reads the file's own tables; the loader itself stops at the first.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SHT_DYNSYM, _SHT_DYNAMIC, _DT_NEEDED, _STB_GLOBAL = 11, 6, 1, 1
_NAME_LIMIT_BYTES = 1 << 16
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """What a file lacks: `said` is the loader's own word, "" where it loads."""

    said: str
    libraries: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def lacking(path: Path, demangle: Callable[[str], str] = str) -> Lacking:
    """Load a file as an import would, with every symbol bound; what was missing."""
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        needed, wanted = read_elf(path.read_bytes())
        gone = tuple(name for name in needed if not _opens(name))
        handles = [ctypes.CDLL(None), *(ctypes.CDLL(_place(n)) for n in needed if n not in gone)]
        symbols = sorted({name for name in wanted if not any(_has(one, name) for one in handles)})
        # What a missing library would bring is not missing for itself.
        return Lacking(
            said=str(error),
            libraries=gone,
            symbols=() if gone else tuple(map(demangle, symbols)),
        )
    return Lacking(said="")


def loaded_files() -> frozenset[str]:
    """The shared objects that this process has mapped."""
    lines = _MAPS.read_text(encoding="utf-8").splitlines() if _MAPS.is_file() else []
    return frozenset(line.split(maxsplit=5)[-1] for line in lines if ".so" in line)


def read_elf(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(libraries that are needed, symbols that somebody else has to define) of a 64-bit little-
    endian ELF file; nothing of anything else, nor of one that is cut short or says nonsense.
    """
    try:
        return _read(data) if data[:6] == b"\x7fELF\x02\x01" else ((), ())
    except (struct.error, ValueError, OverflowError):
        return (), ()


def _read(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sections = list(_sections(data))
    needed: list[str] = []
    wanted: list[str] = []
    for section in sections:
        if section.link >= len(sections):
            continue
        texts = sections[section.link].offset
        if section.kind == _SHT_DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", _content(data, section, 16)):
                needed += [_text(data, texts + value)] if tag == _DT_NEEDED else []
        elif section.kind == _SHT_DYNSYM:
            for name, info, _, index, _, _ in struct.iter_unpack(
                "<IBBHQQ", _content(data, section, 24)
            ):
                if index == 0 and info >> 4 == _STB_GLOBAL:
                    wanted.append(_text(data, texts + name))
    return tuple(needed), tuple(wanted)


def _sections(data: bytes) -> Iterator[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for place in range(count if start else 0):
        at = start + place * size
        found = struct.unpack_from("<IIQQQQI", data, at)
        yield _Section(kind=found[1], offset=found[4], size=found[5], link=found[6])


def _content(data: bytes, section: _Section, entry: int) -> bytes:
    return data[section.offset : section.offset + section.size // entry * entry]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at, at + _NAME_LIMIT_BYTES)].decode("utf-8", "replace")


def _opens(library: str) -> bool:
    try:
        ctypes.CDLL(_place(library))
    except OSError:
        return False
    return True


def _place(library: str) -> str:
    """Where this process has a library already: an extension finds it by that, wherever it is."""
    ends = f"/{library}"
    return next((path for path in sorted(loaded_files()) if path.endswith(ends)), library)


def _has(handle: ctypes.CDLL, name: str) -> bool:
    return hasattr(handle, name)
