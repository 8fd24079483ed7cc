"""The layer store: each wheel's layer, made once for all images that have it. Edge.

    <root>/blobs/sha256/<digest>     layers, bases and the manifests that join them
    <root>/made/<key>.json           layer of each set of wheels

It is an OCI image layout, so that a build can start from it; a blob that was changed since is made
again. Each hash proves one thing: the wheel's, read again before its layer is made, that it is the
locked one; a file's, that RECORD and the guard's manifest are true; the tar's, that it is the
image's diff id; the blob's, that an engine that adopts it by a link has the manifest's content.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import zstandard

from warpfront.errors import WheelError
from warpfront.system.digests import digest_of
from warpfront.system.progress import Watch
from warpfront.system.store import Store, exclusive, read_text, storing, write_json, write_text
from warpfront.wheels.layers.streamed import (
    SITE_PACKAGES,
    Layer,
    first_clash,
    has_headers,
    stream_wheels,
)
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.unpacked import keep_unpacked
from warpfront.wheels.store.wheelhouse import (
    Interrupted,
    Wheelhouse,
    in_parallel,
    is_intact,
    note_intact,
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
        show who wrote a file.
        """
        paths = [self._wheelhouse.present(wheel) for wheel in wheels]
        for wheel, path in zip(wheels, paths, strict=True):
            if sha256_of(path) != wheel.sha256:
                raise WheelError(f"{wheel.filename} is not what its lock says: its hash is another")
        label = wheels[0].filename if len(wheels) == 1 else f"{len(wheels)} wheels"

        def went_on(done_bytes: int) -> None:
            if stopped.is_set():
                raise Interrupted
            watch.advance(f"layer of {label}", done_bytes, 0)

        stream = partial(stream_wheels, paths, python=python, slim=slim, on_bytes=went_on)
        with storing(self.root):
            self.blob("").mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(prefix=_ASIDE, dir=self.root)
            try:
                with os.fdopen(handle, "wb") as file:
                    layer, measured = stream(file)
                blob = self.blob(layer.digest)
                Path(aside).chmod(0o444)
                Path(aside).replace(blob)
                self._hashed.add(blob.name)
            finally:
                Path(aside).unlink(missing_ok=True)
        for path in paths:
            keep_unpacked(path, measured[path.name])
        note_intact(blob)
        names = tuple(f"{wheel.name}=={wheel.version}" for wheel in wheels)
        return self.keep(key, replace(layer, wheels=names))


def layer_sets(wheels: Iterable[LockedWheel]) -> tuple[Wheels, ...]:
    """Return the sets, each in order: the small wheels first, then one set for each large wheel."""
    ordered = sorted(wheels, key=lambda wheel: (-wheel.size_bytes, wheel))
    large = [wheel for wheel in ordered[:MOST_ALONE] if wheel.size_bytes >= ALONE_BYTES]
    small = tuple(sorted(wheel for wheel in ordered if wheel not in large))
    return tuple(([small] if small else []) + [(wheel,) for wheel in sorted(large)])
