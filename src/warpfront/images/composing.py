"""Images composed of one layer per wheel, in place of the stage that installs wheels. Path.

The rendered Dockerfile is still what is built. Its stage `environment` is built once for a base.
The wheels' layers follow, then their byte code, compiled once for that base and set of wheels. The
stage `installed` is all that, by a named context, so that the step that compiles has nothing to do.
BuildKit builds on the image on which it compiled byte code, so that it unpacks no layer twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfront.errors import BuildFailedError, StoreError, WarpfrontError
from warpfront.images.bake import BakeTarget
from warpfront.images.engine.buildx import bake, forget_steps
from warpfront.images.preparing import Prepared
from warpfront.images.render import (
    BYTE_CODE_CONTEXT,
    COMPILER,
    EMPTY_STAGE,
    WHEELS_STAGE,
    before_wheels,
)
from warpfront.system.digests import digest_of
from warpfront.system.store import read_text, storing, write_text
from warpfront.system.tree_files import ImageFile
from warpfront.wheels.layers.layer_store import Layer, LayerStore, layer_sets
from warpfront.wheels.uv_program import uv_version

if TYPE_CHECKING:
    from warpfront.images.baking import Building

_MOMENT = "1980-01-01T00:00:00+00:00"
_OUTPUT = "type=oci,tar=false,oci-mediatypes=true,compression=zstd,dest="


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """The part of a build that composes images of layers."""

    building: Building
    layers: LayerStore

    def composed(self, items: Iterable[Prepared]) -> Mapping[str, dict[str, str]]:
        """Return by cell id the named context in place of an image's wheels. Images whose
        Dockerfile has to run as it is, or whose wheels do not go into layers, have none.
        """
        contexts = {}
        for item in items:
            before = before_wheels(item.rendered.files["Dockerfile"])
            if before is not None and item.rendered.wheels:
                try:
                    contexts[item.cell.id] = {WHEELS_STAGE: self._context(item, before)}
                except StoreError:
                    raise
                except WarpfrontError as error:
                    # An error of a layer is also one of the build, which then reports it;
                    # or it does not, and the image is built.
                    reason = f"its wheels are installed by RUN: {error.message}"
                    self.building.watch.say(f"{item.cell.id}: {reason}")
        return contexts

    def _context(self, item: Prepared, before: str) -> str:
        cell, sets = item.cell, layer_sets(item.rendered.wheels)
        self.layers.refuse_clash(item.rendered.wheels)
        self.building.watch.step(cell.id, "makes layers of its wheels")
        watch = self.building.watch
        layers = self.layers.layers(sets, watch, python=cell.python, slim=cell.slim)
        base = self._environment(item, before)
        compiled = self._byte_code(item, base, layers)
        return self._standing_on(self._joined(base, [*layers, *compiled]))

    def _standing_on(self, manifest: str) -> str:
        """Return the named context of a manifest; its layers are sent unless adopted."""
        self.building.engine.adopt(self.layers.proven(manifest))
        return self.layers.name(manifest)

    def _joined(self, base: str, layers: Sequence[Layer]) -> str:
        """Return the manifest of a base with layers on it."""
        manifest = self.layers.read(base)
        config = config_on(
            self.layers.read(manifest["config"]["digest"]),
            [(layer.diff_id, layer.wheels) for layer in layers],
            created=_MOMENT,
        )
        blobs = [(layer.digest, layer.size_bytes) for layer in layers]
        digest, _ = self.layers.write(manifest_on(manifest, blobs, self.layers.write(config)))
        return digest

    def _environment(self, item: Prepared, before: str) -> str:
        """Return the manifest of the stage below the wheels, built once for all with that stage."""
        assets = {name: file.identity for name, file in item.rendered.assets.items()}
        base = [item.base.identity, item.base.recipe, item.cell.machine]
        key = digest_of([before, base, uv_version(), assets])
        record = self.layers.root / "made" / f"environment-{key}.json"
        environment = read_text(record, missing_ok=True)
        if environment and self.layers.blob(environment).is_file():
            manifest = self.layers.read(environment)
            parts = [manifest["config"], *manifest["layers"]]
            paths = [(self.layers.blob(part["digest"]), part["size"]) for part in parts]
            if all(path.is_file() and path.stat().st_size == size for path, size in paths):
                return environment
        contexts = self.building.environment_contexts(item)
        digest = self._built(item, item.rendered.context, contexts, stage=EMPTY_STAGE)
        write_text(record, digest)
        return digest

    def _byte_code(self, item: Prepared, base: str, layers: Sequence[Layer]) -> list[Layer]:
        """Return the layer of the byte code of all wheels, by the Python of `base`; one that is not
        here is compiled on `layers`. None where they have no sources.
        """
        wheels = [f"{w.name}=={w.version} {w.sha256[:12]}" for w in sorted(item.rendered.wheels)]
        key = digest_of([BYTE_CODE_CONTEXT, base, *item.cell.slim, wheels])
        stored = self.layers.stored_layer(key)
        if stored is not None:
            return [stored]
        files = {name: ImageFile(content=t.encode()) for name, t in BYTE_CODE_CONTEXT.items()}
        lower = self._joined(base, layers)
        contexts = {WHEELS_STAGE: self._standing_on(lower)}
        manifest = self.layers.read(self._built(item, files, contexts, lower=lower))
        diff_ids = self.layers.read(manifest["config"]["digest"])["rootfs"]["diff_ids"]
        blobs = list(zip(manifest["layers"], diff_ids, strict=True))
        return [
            self.layers.keep(
                key,
                Layer(
                    digest=blob["digest"],
                    diff_id=diff_id,
                    size_bytes=blob["size"],
                    wheels=("byte code of", *wheels),
                ),
            )
            for blob, diff_id in blobs[len(self.layers.read(lower)["layers"]) :]
        ]

    def _built(
        self,
        item: Prepared,
        files: Mapping[str, ImageFile],
        contexts: Mapping[str, str],
        *,
        stage: str = "",
        lower: str = "",
    ) -> str:
        """Build `files`, on the manifest `lower` if any, and return the manifest in the store."""
        cell = item.cell
        root = self.layers.root
        with (
            storing(root),
            tempfile.TemporaryDirectory(
                prefix=".aside-", dir=root, ignore_cleanup_errors=True
            ) as folder,
        ):
            aside = Path(folder)
            target = BakeTarget(
                name=cell.id,
                context=str(self.building.store.write_context(cell.id, files)),
                contexts=contexts,
                tag="",
                labels={},
                machine=cell.machine,
                output=f"{_OUTPUT}{aside}",
                secrets=self.building.secrets(item),
                moment=_MOMENT,
                stage=stage,
            )
            if lower:
                self.layers.lend(lower, aside)
            request = self.building.request("layers.json", [target], aside)
            answer = bake(request, self.building.on_step)[cell.id]
            if answer.error:
                raise BuildFailedError(answer.error)
            self.layers.take(aside)
            if lower:  # else stored twice: as a result of these steps, and as layers
                forget_steps(request, COMPILER)
            return answer.digest


MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


def config_on(
    base: Mapping[str, Any], layers: Sequence[tuple[str, Sequence[str]]], *, created: str
) -> dict[str, Any]:
    """Return the configuration of `base` with more layers, each a diff_id and its wheels."""
    history = [
        {"created": created, "created_by": f"warpfront layer: {' '.join(wheels)}"}
        for _, wheels in layers
    ]
    rootfs = {
        "type": "layers",
        "diff_ids": [*base["rootfs"]["diff_ids"], *(diff_id for diff_id, _ in layers)],
    }
    earlier = [{**entry, "created": created} for entry in base.get("history", ())]
    return {**base, "created": created, "history": [*earlier, *history], "rootfs": rootfs}


def manifest_on(
    base: Mapping[str, Any], layers: Sequence[tuple[str, int]], config: tuple[str, int]
) -> dict[str, Any]:
    """Return the manifest of `base` with more layers (digest, size) and another configuration."""
    blobs = [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in layers]
    digest, size = config
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest, "size": size},
        "layers": [*base["layers"], *blobs],
    }
