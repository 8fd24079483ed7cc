"""The machine that an image is for: by its config, and by a program in it. An index of several
is put only when each child is of the platform that the index will name. Edge.

A build for another platform over a local base of this one makes an image whose config has `arm64`
and whose programs are for x86_64. Builders, registries and indexes accept it without an error.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, cast

from warpfront.errors import InputError
from warpfront.release.registry.contract import (
    CONFIG_LIMIT_BYTES,
    IMAGE_INDEX,
    Descriptor,
    ImageIndex,
    ImageManifest,
    Registry,
    RegistryManifest,
    digest_of_bytes,
    index_body,
    read_manifest,
    read_object,
)
from warpfront.system.http_answers import wrong

ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
"""In the registries' words."""
UNPACKED_LIMIT_BYTES = 256 * 2**20
# e_machine of an ELF header, in the registries' words.
_MACHINES = {62: "amd64", 183: "arm64", 243: "riscv64", 21: "ppc64le", 22: "s390x"}
_FOLDERS = frozenset({"bin", "usr/bin", "usr/sbin", "usr/local/bin", "opt/venv/bin"})
_HEADER_BYTES = 20
_UNREADABLE = (tarfile.TarError, zlib.error, OSError, EOFError, ValueError)


def architecture_found(
    registry: Registry, repository: str, manifest: RegistryManifest
) -> tuple[str, str, str]:
    """Return `os/architecture` of an image's config, and the architecture and name of the first
    program in its layers, "" where none was found within the limit. No more of a layer is fetched
    than that takes. Raises `RegistryError`, and `InputError` for an index.
    """
    document = manifest.document
    if not isinstance(document, ImageManifest):
        raise InputError(f"{manifest.descriptor.digest}: an index is for no one machine")
    body = registry.blob(repository, document.config.digest, CONFIG_LIMIT_BYTES)
    step = f"architecture of {repository}@{manifest.descriptor.digest}"
    try:
        config = read_object(body)
        machine, file, remaining_bytes = "", "", UNPACKED_LIMIT_BYTES
        for layer in document.layers:
            with registry.open_blob(repository, layer.digest) as packed, _unpacked(packed) as tar:
                limited = _Limited(tar, remaining_bytes)
                machine, file = _program_in(limited)
            remaining_bytes = limited.remaining_bytes
            if machine or remaining_bytes <= 0:
                break
    except _UNREADABLE as error:
        raise wrong(registry.host, step, f"it cannot be read: {error}") from error
    return f"{config.get('os', '')}/{config.get('architecture', '')}", machine, file


def parts_of(registry: Registry, repository: str, reference: str) -> Mapping[str, str] | None:
    """Return an index's digests for Linux by architecture (`amd64`); None for no index."""
    manifest = registry.manifest(repository, reference)
    if manifest is None or not isinstance(manifest.document, ImageIndex):
        return None
    return {
        child.platform.architecture: child.digest
        for child in manifest.document.manifests
        if child.platform and child.platform.os == "linux"
    }


def part_for(registry: Registry, repository: str, reference: str, machine: str) -> str:
    """Return the digest of an index's entry for a machine (`x86_64`); the reference itself
    where that is no index. Raises `InputError` where the index lists nothing for it.
    """
    parts = parts_of(registry, repository, reference)
    if parts is None:
        return reference
    if (architecture := ARCHITECTURES.get(machine, machine)) not in parts:
        listed = ", ".join(f"{name} {digest}" for name, digest in parts.items())
        raise InputError(
            f"{registry.host}/{repository} {reference} is an index without {architecture}",
            hint=f"name one of its parts: {listed or 'it has none'}",
        )
    return parts[architecture]


def put_index(
    registry: Registry, repository: str, children: Sequence[Descriptor]
) -> RegistryManifest:
    """Put an index of these images, without any tag, when each is there and is for its `platform`.
    Raises `InputError` with all that are not; then nothing is put.
    """
    problems = []
    for child in children:
        assert child.platform is not None, "the index says what each is for"
        manifest, reason = registry.manifest(repository, child.digest), "it is not there"
        if manifest is not None and manifest.descriptor.media_type != child.media_type:
            reason = f"it is {manifest.descriptor.media_type}"
        elif manifest is not None:
            config, machine, file = architecture_found(registry, repository, manifest)
            reason = "" if machine else "no program was found in it"
            if config != f"{child.platform.os}/{child.platform.architecture}":
                reason = f"its config says {config}"
            elif machine not in {"", child.platform.architecture}:
                reason = f"/{file} in it is for {machine}"
        if reason:
            name = f"{repository}@{child.digest} as {child.platform.architecture}"
            problems.append(f"{name}: {reason}")
    platforms = [child.platform for child in children]
    problems += ["two images for one platform"] if len(set(platforms)) < len(platforms) else []
    if problems or not children:
        raise InputError(
            f"no index in {repository}: " + ("; ".join(problems) or "it would be empty"),
            hint="build the image on, or with a base for, the machine that it is for",
        )
    body = index_body([replace(child, annotations={}) for child in children])
    registry.put_manifest(repository, digest_of_bytes(body), body, IMAGE_INDEX)
    return read_manifest(body, IMAGE_INDEX)


def _program_in(unpacked: _Limited) -> tuple[str, str]:
    """Return the machine and name of the first ELF file in a folder of programs."""
    try:
        with tarfile.open(fileobj=cast("BinaryIO", unpacked), mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./").lstrip("/")
                if not member.isreg() or name.rpartition("/")[0] not in _FOLDERS:
                    continue
                file = archive.extractfile(member)
                header = file.read(_HEADER_BYTES) if file is not None else b""
                if len(header) == _HEADER_BYTES and header.startswith(b"\x7fELF"):
                    order = "<" if header[5] == 1 else ">"
                    number = struct.unpack_from(f"{order}H", header, 18)[0]
                    return _MACHINES.get(number, f"ELF machine {number}"), name
    except tarfile.ReadError:
        if unpacked.remaining_bytes > 0:
            raise
    return "", ""


@contextlib.contextmanager
def _unpacked(packed: BinaryIO) -> Iterator[Any]:
    """Yield the tar in a layer, by its first bytes: a layer's media type can be wrong. Raise
    `OSError` where its zstd is damaged.
    """
    start = packed.peek(4)[:4] if isinstance(packed, io.BufferedReader) else b""
    if start.startswith(b"\x1f\x8b"):
        yield gzip.GzipFile(fileobj=packed)
    elif start == b"\x28\xb5\x2f\xfd":
        import zstandard  # noqa: PLC0415 - of the extra `layers`

        try:
            yield zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(packed)
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
    else:
        yield packed


class _Limited:
    """A stream that ends at the limit of bytes to unpack."""

    def __init__(self, stream: Any, remaining_bytes: int) -> None:
        self._stream, self.remaining_bytes = stream, remaining_bytes

    def read(self, count: int) -> bytes:
        piece: bytes = self._stream.read(min(count, max(self.remaining_bytes, 0)))
        self.remaining_bytes -= len(piece)
        return piece
