"""Layers with programs of other machines in them."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Mapping

X86_64, AARCH64 = 62, 183


def elf(machine: int, *, order: str = "<") -> bytes:
    """What an ELF file begins with."""
    start = b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02") + b"\x01" + b"\0" * 9
    return start + struct.pack(f"{order}HH", 2, machine) + b"\0" * 100


def layer(files: Mapping[str, bytes]) -> bytes:
    """A tar of these."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
