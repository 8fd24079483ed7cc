"""The layer store: each wheel's layer, made once for all images that have it. Edge.

    <root>/blobs/sha256/<digest>     layers, bases and the manifests that join them
    <root>/made/<key>.json           layer of each set of wheels

It is an OCI image layout, so that a build can start from it; a blob that was changed since is made
again. Each hash proves one thing: the wheel's, read again before its layer is made, that it is the
locked one; a file's, that RECORD and the guard's manifest are true; the tar's, that it is the
image's diff id; the blob's, that an engine that adopts it by a link has the manifest's content.

A layer is what an installer would leave of its wheels, streamed as a tar that is hashed and packed
on its way to disk. Everything in it is as old as everything else in an image, and belongs to root,
so that the same wheels make the same bytes on any machine. `installer` knows what a wheel means.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, BinaryIO, cast

import zstandard
from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.sources import WheelContentElement, WheelFile
from installer.utils import (
    Scheme,
    construct_record_file,
    copyfileobj_with_hashing,
    fix_shebang,
)

from warpfront.errors import WheelError
from warpfront.matrix.cell import ENVIRONMENT_PYTHON
from warpfront.system.digests import digest_of
from warpfront.system.progress import Watch
from warpfront.system.store import Store, exclusive, read_text, storing, write_json, write_text
from warpfront.wheels.core_metadata import installed_path, placed
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.unpacked import stays, unpacked_files
from warpfront.wheels.store.wheelhouse import (
    FORGED,
    UNREADABLE,
    Interrupted,
    Wheelhouse,
    in_parallel,
    is_intact,
    note_intact,
    opened_wheel,
    sha256_of,
)

_LAYOUT = '{"imageLayoutVersion":"1.0.0"}'
_ASIDE = ".aside-"
# Version of the packing rules.
_RULES = "2"

# A large wheel has its own layer: it makes an image large, and other images have it too. Small
# wheels share one, because an image has at most 127 layers, and each costs a mount.
ALONE_BYTES = 16 << 20
MOST_ALONE = 40

Wheels = tuple[LockedWheel, ...]


class LayerStore:
    """A folder of layers. Safe for several processes at once: one makes, the others wait."""

    def __init__(self, root: Path, wheelhouse: Wheelhouse) -> None:
        self.root = root
        self._records = Store(root)
        self._wheelhouse = wheelhouse
        self._hashed: set[str] = set()

    def layers(
        self,
        sets: Sequence[Sequence[LockedWheel]],
        watch: Watch,
        *,
        python: str,
        slim: Sequence[str] = (),
    ) -> tuple[Layer, ...]:
        """Return the layer of each set of wheels, in their order; those that are not here are
        made, as many at once as there are cores. `slim` are globs of what they are without. Raise
        `WheelError` and `StoreError`.
        """
        keys = [self._key(wheels, python, slim) for wheels in sets]
        layers = {key: self.stored_layer(key) for key in keys}
        if None in layers.values():
            with exclusive(self.root, watch.say, name=".making.lock"):
                # Of a killed maker: only the owner of the lock runs here. A folder may belong to
                # a process that takes layers out of BuildKit without the lock.
                with storing(self.root):
                    for path in self.root.glob(f"{_ASIDE}*"):
                        if not path.is_dir():
                            path.unlink(missing_ok=True)
                # Another process may have made some of them meanwhile.
                layers = {key: self.stored_layer(key) for key in keys}
                absent = {k: s for k, s in zip(keys, sets, strict=True) if layers[k] is None}
                # Largest first.
                ordered = sorted(absent, key=lambda k: -sum(w.size_bytes for w in absent[k]))
                stopped = threading.Event()
                make = partial(self._make, python=python, slim=slim, watch=watch, stopped=stopped)
                tasks = [partial(make, key, absent[key]) for key in ordered]
                new = in_parallel(tasks, threads=os.cpu_count(), stop=stopped.set)
                layers |= zip(ordered, new, strict=True)
        return tuple(layer for key in keys if (layer := layers[key]))

    def refuse_clash(self, wheels: Iterable[LockedWheel]) -> None:
        """Raise `WheelError` where two of `wheels` write a file with different content."""
        clash = first_clash(self._wheelhouse.present(wheel) for wheel in wheels)
        if clash:
            raise WheelError(clash)

    def keep(self, key: str, layer: Layer) -> Layer:
        """Remember which of the blobs here `key` came to."""
        self._records.save("made", key, layer)
        return layer

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def read(self, digest: str) -> Any:
        """Return a blob that is a JSON document."""
        return json.loads(read_text(self.blob(digest)) or "")

    def write(self, document: Mapping[str, object]) -> tuple[str, int]:
        """Keep a JSON document as a blob; its digest and size."""
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        digest = f"sha256:{sha256(text.encode()).hexdigest()}"
        write_text(self.blob(digest), text)
        return digest, len(text.encode())

    def take(self, folder: Path) -> None:
        """Move the blobs of a layout in here; BuildKit wrote them under their digests."""
        with storing(self.root):
            for blob in (folder / "blobs" / "sha256").iterdir():
                place = self.blob(blob.name)
                place.parent.mkdir(parents=True, exist_ok=True)
                if not (place.exists() and place.samefile(blob)):
                    blob.replace(place)

    def lend(self, manifest: str, folder: Path) -> None:
        """Link a manifest's layers into a layout that BuildKit writes: it sends others only."""
        with storing(folder):
            for part in self.read(manifest)["layers"]:
                place = folder / "blobs" / "sha256" / self.blob(part["digest"]).name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.hardlink_to(self.blob(part["digest"]))

    def proven(self, manifest: str) -> tuple[Path, ...]:
        """Return the layers of a manifest that are what their names say: this process hashed them,
        as it wrote them or now. Size and time would not do for who takes them without hashing.
        """
        paths = [self.blob(part["digest"]) for part in self.read(manifest)["layers"]]
        with storing(self.root):
            unread = [path for path in paths if path.name not in self._hashed]
            self._hashed |= {wheel.name for wheel in unread if sha256_of(wheel) == wheel.name}
        return tuple(path for path in paths if path.name in self._hashed)

    def name(self, digest: str) -> str:
        """Return the name of the manifest `digest` as a named context."""
        write_text(self.root / "oci-layout", _LAYOUT)
        write_json(self.root / "index.json", {"schemaVersion": 2, "manifests": []})
        return f"oci-layout://{self.root.resolve()}@{digest}"

    def _key(self, wheels: Sequence[LockedWheel], python: str, slim: Sequence[str]) -> str:
        headers = any(has_headers(self._wheelhouse.present(wheel)) for wheel in wheels)
        where = [SITE_PACKAGES, python if headers else ""]
        maker = [_RULES, zstandard.ZSTD_VERSION, version("installer")]
        facts = [[[wheel.filename, wheel.sha256] for wheel in wheels], where, maker]
        return digest_of([*facts, list(slim)] if slim else facts)

    def stored_layer(self, key: str) -> Layer | None:
        """Return the stored layer of a key, if its blob is unchanged."""
        layer: Layer | None = self._records.readable("made", key, (Layer,))
        if layer is None:
            return None
        digest = layer.digest.removeprefix("sha256:")
        with storing(self.root):
            return layer if is_intact(self.blob(digest), layer.size_bytes, digest) else None

    def _make(
        self,
        key: str,
        wheels: Sequence[LockedWheel],
        *,
        python: str,
        slim: Sequence[str],
        watch: Watch,
        stopped: threading.Event,
    ) -> Layer:
        """Make a layer, unless it is `stopped`: then nothing of it stays. All bytes of the wheels
        are read: no installer checks their hashes once there is a layer, and size and time do not
        show who wrote a file. Raise `WheelError` also for a wheel that its RECORD contradicts.
        """
        paths = [self._wheelhouse.present(wheel) for wheel in wheels]
        for wheel, path in zip(wheels, paths, strict=True):
            if sha256_of(path) != wheel.sha256:
                raise WheelError(f"{wheel.filename} is not what its lock says: its hash is another")
            unpacked_files(self._wheelhouse, wheel)
        label = wheels[0].filename if len(wheels) == 1 else f"{len(wheels)} wheels"

        def went_on(done_bytes: int) -> None:
            if stopped.is_set():
                raise Interrupted
            watch.advance(f"layer of {label}", done_bytes, 0)

        with storing(self.root):
            self.blob("").mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(prefix=_ASIDE, dir=self.root)
            try:
                with os.fdopen(handle, "wb") as file:
                    layer = stream_wheels(paths, file, python=python, slim=slim, on_bytes=went_on)
                blob = self.blob(layer.digest)
                Path(aside).chmod(0o444)
                Path(aside).replace(blob)
                self._hashed.add(blob.name)
            finally:
                Path(aside).unlink(missing_ok=True)
        note_intact(blob)
        names = tuple(f"{wheel.name}=={wheel.version}" for wheel in wheels)
        return self.keep(key, replace(layer, wheels=names))


def layer_sets(wheels: Iterable[LockedWheel]) -> tuple[Wheels, ...]:
    """Return the sets, each in order: the small wheels first, then one set for each large wheel."""
    ordered = sorted(wheels, key=lambda wheel: (-wheel.size_bytes, wheel))
    large = [wheel for wheel in ordered[:MOST_ALONE] if wheel.size_bytes >= ALONE_BYTES]
    small = tuple(sorted(wheel for wheel in ordered if wheel not in large))
    return tuple(([small] if small else []) + [(wheel,) for wheel in sorted(large)])


# The same as in `_shared/settle.j2`: byte code records its source's time.
AGE_SECONDS = 315_532_800
ENVIRONMENT = posixpath.dirname(posixpath.dirname(ENVIRONMENT_PYTHON))
_SITE = "lib/python3/site-packages"
SITE_PACKAGES = f"{ENVIRONMENT}/{_SITE}"
_LINKED, _VERSIONED = re.compile(r"^lib64/"), re.compile(r"^(lib|lib64)/python3\.\d+(?=/)")
LEVEL = 2
_CHUNK_BYTES = 1 << 18
_MINE = {"INSTALLER": b"warpfront", "REQUESTED": b""}
# AssertionError is installer's, of what it calls impossible.
_DAMAGED = (*UNREADABLE, KeyError, ValueError, AssertionError, InstallerError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer in a file. `digest` and `diff_id` are `sha256:...`, of the packed tar and of the
    tar; `wheels` are those in it (`torch==2.13.0`).
    """

    digest: str
    diff_id: str
    size_bytes: int
    wheels: tuple[str, ...] = ()


def stream_wheels(
    wheels: Iterable[Path],
    file: IO[bytes],
    *,
    python: str,
    on_bytes: Callable[[int], None],
    slim: Sequence[str] = (),
) -> Layer:
    """Write the layer of `wheels` to `file`, for an environment of Python `python` (`3.13`).
    `on_bytes` receives progress in bytes of the tar; `slim` are globs of omitted files. Raise
    `WheelError` for a damaged wheel, or one that writes another's file with other content.
    """
    packed = _Packed(file, on_bytes)
    tree = _LayerTree(packed)
    for path in wheels:
        try:
            with zipfile.ZipFile(path) as archive:
                source = _Members(archive, stays(slim))
                install(source, _Destination(tree, archive, source.distribution, python), _MINE)
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's own words
            raise WheelError(f"{path.name}: {error}", hint=FORGED) from error
    tree.end()
    return Layer(
        digest=f"sha256:{packed.packed.hexdigest()}",
        diff_id=f"sha256:{packed.raw.hexdigest()}",
        size_bytes=packed.packed_bytes,
    )


def has_headers(wheel: Path) -> bool:
    """Return true if some of it goes to a folder with Python's version in its path."""
    with opened_wheel(wheel) as archive:
        return any(placed(name)[0] == "headers" for name in archive.namelist())


def first_clash(wheels: Iterable[Path]) -> str:
    """Describe the first file that two of `wheels` write with different content; "" for none."""
    places: dict[str, tuple[int, int, str]] = {}
    for path in wheels:
        with opened_wheel(path) as archive:
            for member in archive.infolist():
                scheme, inside = placed(member.filename)
                below = _below(scheme, path.name.partition("-")[0])
                place = _through_links(posixpath.normpath(posixpath.join(below, inside)))
                place = place.removeprefix(f"{_SITE}/")
                mine = (member.CRC, member.file_size, path.name)
                before = places.setdefault(place, mine)
                if before[:2] != mine[:2] and not member.is_dir():
                    return f"{before[2]} and {path.name} both write {place}"
    return ""


def _through_links(place: str) -> str:
    """Return a path below the environment as it is without the links of its `lib64` and
    `lib/python3.N`: a folder in their place would hide all that is there.
    """
    return _LINKED.sub("lib/", _VERSIONED.sub(r"\1/python3", place))


def _below(scheme: str, distribution: str, python: str = "") -> str:
    """Return the folder of a scheme, below the environment."""
    headers = f"include/site/python{python}/{distribution}"
    return {"data": "", "scripts": "bin", "headers": headers}.get(scheme, _SITE)


class _Packed:
    """A file that hashes what is written to it, packs it, and hashes that."""

    def __init__(self, file: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._file, self._on_bytes = file, on_bytes
        # One thread: of several layers at once, each core has one. More threads for one layer make
        # other bytes, and take a third more of the processor's time.
        self._packer = zstandard.ZstdCompressor(level=LEVEL).compressobj()
        self.raw, self.packed = sha256(), sha256()
        self.raw_bytes = self.packed_bytes = 0

    def write(self, data: bytes) -> None:
        self.raw.update(data)
        self.raw_bytes += len(data)
        self._keep(self._packer.compress(data))

    def end(self) -> None:
        self._keep(self._packer.flush())

    def _keep(self, data: bytes) -> None:
        if data:
            self.packed.update(data)
            self.packed_bytes += len(data)
            self._file.write(data)
            self._on_bytes(self.raw_bytes)


class _LayerTree:
    """A tar: folders before what is in them, each file once."""

    def __init__(self, out: _Packed) -> None:
        self._out = out
        self._folders = {"", "/"}
        self._files: dict[str, str] = {}

    def add(self, path: str, stream: BinaryIO, size_bytes: int, *, executable: bool) -> str:
        """Add a file; its sha256 as RECORD has it. Raise `ValueError` for a stream of another size,
        and where another file of that name was there.
        """
        before = self._files.get(path)
        out: object = SimpleNamespace(write=len)
        if before is None:
            self._add_folder(posixpath.dirname(path))
            mode = 0o755 if executable else 0o644
            self._write_header(path, size_bytes, mode, tarfile.REGTYPE)
            out = self._out
        digest, done_bytes = copyfileobj_with_hashing(stream, cast("BinaryIO", out), "sha256")
        if done_bytes != size_bytes:
            raise ValueError(f"{path} has {done_bytes} bytes, not {size_bytes}")
        if before is None:
            self._out.write(bytes(-size_bytes % tarfile.BLOCKSIZE))
        elif before != digest:
            raise ValueError(f"it writes {path}, and so does another, otherwise")
        self._files[path] = digest
        return digest

    def end(self) -> None:
        self._out.write(bytes(2 * tarfile.BLOCKSIZE))
        self._out.end()

    def _add_folder(self, path: str) -> None:
        if path not in self._folders:
            self._add_folder(posixpath.dirname(path))
            self._folders.add(path)
            self._write_header(path, 0, 0o755, tarfile.DIRTYPE)

    def _write_header(self, path: str, size_bytes: int, mode: int, kind: bytes) -> None:
        entry = tarfile.TarInfo(path.removeprefix("/"))
        entry.size, entry.mode, entry.type, entry.mtime = size_bytes, mode, kind, AGE_SECONDS
        self._out.write(entry.tobuf(tarfile.PAX_FORMAT))


@dataclass(frozen=True, slots=True)
class _Destination(WheelDestination):
    """The destination of one wheel's files for `installer`."""

    tree: _LayerTree
    archive: zipfile.ZipFile
    distribution: str
    python: str

    def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
        file, data = Script(name, module, attr, section).generate(  # type: ignore[arg-type]
            ENVIRONMENT_PYTHON, "posix"
        )
        return self._write("scripts", file, io.BytesIO(data), executable=True)

    def write_file(
        self,
        scheme: Scheme,
        path: object,
        stream: BinaryIO,
        is_executable: bool,  # noqa: FBT001 - `installer` calls it so
    ) -> RecordEntry:
        if scheme == "scripts":
            with fix_shebang(io.BytesIO(stream.read()), ENVIRONMENT_PYTHON) as fixed:
                return self._write(scheme, str(path), fixed, executable=True)
        return self._write(scheme, str(path), stream, executable=is_executable)

    def finalize_installation(
        self,
        scheme: Scheme,
        record_file_path: str,
        records: Iterable[tuple[Scheme, RecordEntry]],
    ) -> None:
        start = self._folder(scheme)

        def prefix(other_scheme: Scheme) -> str | None:
            folder = self._folder(other_scheme)
            return None if folder == start else f"{posixpath.relpath(folder, start)}/"

        with construct_record_file(list(records), prefix) as stream:
            self._write(scheme, record_file_path, stream, executable=False)

    def _write(self, scheme: str, path: str, stream: BinaryIO, *, executable: bool) -> RecordEntry:
        folder = self._folder(scheme)
        place = posixpath.normpath(posixpath.join(folder, path))
        if not place.startswith(f"{folder}/"):
            raise ValueError(f"{path} leads out of {folder}")
        place = f"{ENVIRONMENT}/{_through_links(place.removeprefix(f'{ENVIRONMENT}/'))}"
        if isinstance(stream, io.BytesIO):
            size_bytes = stream.getbuffer().nbytes
        else:  # a member
            size_bytes = self.archive.getinfo(stream.name).file_size
        digest = self.tree.add(place, stream, size_bytes, executable=executable)
        return RecordEntry(path, Hash("sha256", digest), size_bytes)

    def _folder(self, scheme: str) -> str:
        below = _below(scheme, self.distribution, self.python)
        return posixpath.join(ENVIRONMENT, below).rstrip("/")


class _Members(WheelFile):
    """A wheel without the members that do not stay in an image."""

    def __init__(self, archive: zipfile.ZipFile, stays: Callable[[str], bool]) -> None:
        super().__init__(archive)
        self._archive, self._stays = archive, stays

    def get_contents(self) -> Iterator[WheelContentElement]:
        lines = self.read_dist_info("RECORD").splitlines()
        recorded = {record[0]: record for record in parse_record_file(lines)}
        for member in self._archive.infolist():
            # Byte code is compiled where it is run.
            if member.is_dir() or "__pycache__" in member.filename.split("/"):
                continue
            if not placed(member.filename)[1]:
                raise ValueError(f"{member.filename} is a file, and has to be a folder")
            if self._stays(installed_path(member.filename)):
                mode = member.external_attr >> 16
                record = recorded.get(member.filename, (member.filename, "", ""))
                with self._archive.open(member) as stream:
                    yield record, cast("BinaryIO", stream), bool(mode & 0o111)
