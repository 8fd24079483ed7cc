"""Device code outside of libraries: AMD's `.kpack` archives, the architectures that they have code
for, and the packages that bring them.

From ROCm 7.14 on, a wheel for all GPUs has its host code only; the code of each target lies in
archives of device packages, which an extra of the wheel names (`torch[device-gfx942]`). Without
them torch imports, sees the device, and fails at the first kernel (hipErrorInvalidImage).

Layout of an archive: `KPAK`, version and offset of its table, little-endian; the table is
MessagePack (ROCm/rocm-systems shared/kpack/runtime/src/toc_parser.cpp @0bf58574).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from warpfront_checks.distributions import Installed

MAGIC, VERSIONS = b"KPAK", (1,)
_HEADER = struct.Struct("<4sIQ")
_LONGEST_TABLE_BYTES = 64 * 1024 * 1024
_DEEPEST = 16
# The name of a group and the target of one file: `torch_gfx90a:xnack-.kpack`.
_NAME = re.compile(r"(?P<group>.+)_(?P<target>gfx[0-9a-z-]+(?:[:-](?:xnack|sramecc)[+-])*)\Z")
_FEATURES = re.compile(r"(?:[:-](?:xnack|sramecc)[+-])+\Z")
_DEVICE_DEMAND = re.compile(
    r"""(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)[^;]*;.*\bextra\s*==\s*['"]device-(?P<target>gfx[^'"]+)"""
)


class KpackError(Exception):
    """A file that is no such archive, or one of another version."""


@dataclass(frozen=True)
class Archive:
    """An archive: `kernels` maps an architecture (`gfx90a`, `gfx90a:xnack-`) to the number of
    its code objects in the table; an architecture may be listed and have none.
    """

    path: str
    group: str
    kernels: Mapping[str, int] = field(default_factory=dict)


def read_archive(path: Path) -> Archive:
    """Return the architectures of an archive. Raise `KpackError` where it is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            magic, version, offset = _HEADER.unpack(file.read(_HEADER.size))
            if magic != MAGIC or version not in VERSIONS:
                raise KpackError(f"{path.name}: not an archive of a known version")
            if not 0 < size - offset <= _LONGEST_TABLE_BYTES:
                raise KpackError(f"{path.name}: its table would lie outside of it, or is too long")
            file.seek(offset)
            table = _value(BytesIO(file.read()))
    except (struct.error, IndexError, RecursionError, UnicodeDecodeError, OSError) as error:
        raise KpackError(f"{path.name}: {type(error).__name__}: {error}") from error
    if not isinstance(table, dict) or not isinstance(table.get("gfx_arches"), list):
        raise KpackError(f"{path.name}: its table names no architectures")
    kernels = Counter({arch: 0 for arch in table["gfx_arches"] if isinstance(arch, str)})
    toc = table.get("toc")
    for binary in toc.values() if isinstance(toc, dict) else ():
        kernels.update(binary.keys() if isinstance(binary, dict) else ())
    return Archive(path=str(path), group=group_of(path.name), kernels=kernels)


def group_of(name: str) -> str:
    """Return the group of an archive's file name: `torch` of `torch_gfx942.kpack`."""
    stem = name.removesuffix(".kpack")
    match = _NAME.match(stem)
    return match["group"] if match else stem


def find_archives(site_packages: Path) -> tuple[Path, ...]:
    """Return the archives where HIP looks: in `.kpack` next to packages' libraries."""
    archives = {*site_packages.glob("*/.kpack/*.kpack"), *site_packages.glob("*/*/.kpack/*.kpack")}
    return tuple(sorted(archives))


def missing_device_packages(installed: Installed, target: str) -> list[str]:
    """Return a sentence for each distribution whose extra for `target` is not met, or that has
    extras for other targets and none for it. By METADATA alone, without a device.
    """
    wrong = []
    for name, lines in sorted(installed.requirements.items()):
        demands = [match for line in lines if (match := _DEVICE_DEMAND.match(line))]
        of_target = {match["name"].lower() for match in demands if match["target"] == target}
        lacking = sorted(package for package in of_target if package not in installed.versions)
        targets = {match["target"] for match in demands}
        if lacking:
            wrong.append(
                f"{name} has its code for {target} in {', '.join(lacking)}, which is not "
                f"installed: {name}[device-{target}] brings it"
            )
        elif targets and not of_target:
            wrong.append(f"{name} has code for {' '.join(sorted(targets))}, none for {target}")
    return wrong


def missing_code(archives: Iterable[Archive], accepted: Iterable[str]) -> list[str]:
    """Return a sentence for each group of archives of torch and its companions that has no code
    object for any of the `accepted` architectures. `rocm-sdk` libraries may leave targets out.
    """
    targets = tuple(accepted)
    groups: dict[str, set[str]] = {}
    for archive in archives:
        filled = (arch for arch, count in archive.kernels.items() if count)
        groups.setdefault(archive.group, set()).update(_FEATURES.sub("", arch) for arch in filled)
    return [
        f"{group}: its archives have code for {' '.join(sorted(archs)) or 'no target'}, "
        f"none for {targets[0]}"
        for group, archs in sorted(groups.items())
        if group.startswith("torch") and archs.isdisjoint(targets)
    ]


def incomplete_variants(archives: Iterable[Archive], target: str) -> list[str]:
    """Return a sentence for each feature variant (`gfx90a:xnack-`) whose archives have fewer code
    objects than the plain target's. HIP takes the most specific first (ROCm/TheRock#7081).
    """
    counts: Counter[tuple[str, str]] = Counter()
    for archive in archives:
        counts.update({(archive.group, arch): count for arch, count in archive.kernels.items()})
    return [
        f"{group} for {arch} has {count} of the {counts[group, target]} code objects of {target}"
        for (group, arch), count in sorted(counts.items())
        if _FEATURES.sub("", arch) == target and count < counts[group, target]
    ]


def _value(stream: BytesIO, depth: int = 0) -> Any:
    """Return one MessagePack value (https://github.com/msgpack/msgpack/blob/master/spec.md)."""
    if depth > _DEEPEST:
        raise KpackError("its table is nested too deeply")
    kind = _number(stream, "B")
    if kind < 0x80 or kind >= 0xE0:
        return kind if kind < 0x80 else kind - 0x100
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    if kind in _NUMBERS:
        return _number(stream, _NUMBERS[kind])
    if kind < 0xC0:
        size = kind & (0x1F if kind >= 0xA0 else 0x0F)
        name = ("map", "array", "str")[(kind >= 0x90) + (kind >= 0xA0)]
    elif kind in _SIZED:
        name, form = _SIZED[kind]
        size = _number(stream, form)
    else:
        raise KpackError(f"its table has a value of the unknown kind 0x{kind:02x}")
    if name in {"str", "bin"}:
        data = _taken(stream, size)
        return data.decode("utf-8") if name == "str" else data
    if name == "array":
        return [_value(stream, depth + 1) for _ in range(size)]
    return {str(_value(stream, depth + 1)): _value(stream, depth + 1) for _ in range(size)}


def _number(stream: BytesIO, form: str) -> Any:
    return struct.unpack(f">{form}", _taken(stream, struct.calcsize(form)))[0]


def _taken(stream: BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise IndexError("its table ends early")
    return data


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = dict(enumerate("fdBHIQbhiq", 0xCA))
_SIZED = {
    **{kind: ("bin", form) for kind, form in enumerate("BHI", 0xC4)},
    **{kind: ("str", form) for kind, form in enumerate("BHI", 0xD9)},
    **{kind: ("array", form) for kind, form in enumerate("HI", 0xDC)},
    **{kind: ("map", form) for kind, form in enumerate("HI", 0xDE)},
}
