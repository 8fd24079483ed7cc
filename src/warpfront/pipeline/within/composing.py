"""Images put together of layers: what the stage with the wheels is replaced by.

The rendered Dockerfile stays what is built. Its stage `environment` is built once for a base and
kept; the layers of the wheels stand on it; and the stage `installed` is that, by a named context.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront.errors import StoreError, WarpfrontError
from warpfront.images.bake import BakeTarget, bake_file
from warpfront.images.engine.buildx import BakeRequest, BuildStep, bake
from warpfront.images.stages import EMPTY_STAGE, WHEELS_STAGE, Stages, stages_of
from warpfront.images.standing import config_on, manifest_on
from warpfront.model import digest_of
from warpfront.pipeline.within.preparing import Prepared
from warpfront.system.progress import Watch
from warpfront.system.store import Store, read_text, storing, write_json
from warpfront.wheels.layer_sets import layer_sets
from warpfront.wheels.layer_store import LayerStore
from warpfront.wheels.uv_program import uv_version

_MOMENT = "1980-01-01T00:00:00+00:00"
_OUTPUT = "type=oci,tar=false,oci-mediatypes=true,compression=zstd,dest="

Request = Callable[[Path, tuple[str, ...], Path], BakeRequest]
"""How to bake these targets of this file, which may write below that folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """What composing needs of a build: `contexts` are those that its first stage is built from,
    `request` is how it is baked.
    """

    store: Store
    layers: LayerStore
    watch: Watch
    contexts: Callable[[Prepared], dict[str, str]]
    secrets: Callable[[Prepared], tuple[str, ...]]
    request: Request
    on_step: Callable[[BuildStep], None]

    def composed(self, items: Iterable[Prepared]) -> Mapping[str, dict[str, str]]:
        """Cell id -> the named context that stands for the wheels of its image; without those whose
        Dockerfile has to be run as it is, or whose wheels do not go into layers.
        """
        found = {}
        for item in items:
            stages = stages_of(item.rendered.files["Dockerfile"])
            if stages is not None and item.rendered.wheels:
                context = self._tried(item, stages)
                if context:
                    found[item.cell.id] = {WHEELS_STAGE: context}
        return found

    def _tried(self, item: Prepared, stages: Stages) -> str:
        """What stands in a layer's way stands in the build's, too, which then says so; or it does
        not, and the image is built.
        """
        try:
            return self._context(item, stages)
        except StoreError:
            raise
        except WarpfrontError as error:
            self.watch.say(f"{item.cell.id}: its wheels are installed by RUN: {error.message}")
            return ""

    def _context(self, item: Prepared, stages: Stages) -> str:
        cell, wheels = item.cell, item.rendered.wheels
        clash = self.layers.clash(wheels)
        if clash:
            self.watch.say(f"{cell.id}: its wheels are installed by RUN: {clash}")
            return ""
        self.watch.step(cell.id, "makes layers of its wheels")
        made = self.layers.layers(
            layer_sets(wheels),
            python=cell.python,
            on_progress=self.watch.advance,
            say=self.watch.say,
        )
        base = self._environment(item, stages)
        if not base:
            return ""
        manifest = self.layers.read(base)
        config = config_on(
            self.layers.read(manifest["config"]["digest"]),
            [(layer.diff_id, layer.wheels) for layer in made],
            created=_MOMENT,
        )
        blobs = [(layer.digest, layer.size_bytes) for layer in made]
        digest, _ = self.layers.write(manifest_on(manifest, blobs, self.layers.write(config)))
        return self.layers.name(digest)

    def _environment(self, item: Prepared, stages: Stages) -> str:
        """The manifest of the stage below the wheels, built once for all that begin with it; "" if
        it does not build.
        """
        assets = {name: file.identity for name, file in item.rendered.assets.items()}
        base = [item.base.identity, item.base.recipe, item.cell.machine]
        key = digest_of([stages.before, base, uv_version(), assets])
        record = self.layers.root / "made" / f"environment-{key}.json"
        kept = read_text(record, missing_ok=True) or ""
        known = kept.strip().strip('"')
        if known and self._is_there(known):
            return known
        digest = self._built_environment(item)
        if digest:
            write_json(record, digest)
        return digest

    def _is_there(self, digest: str) -> bool:
        """Whether a manifest and all it names are in the store, by size."""
        if not self.layers.blob(digest).is_file():
            return False
        manifest = self.layers.read(digest)
        parts = [manifest["config"], *manifest["layers"]]
        paths = [(self.layers.blob(part["digest"]), part["size"]) for part in parts]
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)

    def _built_environment(self, item: Prepared) -> str:
        cell, file = item.cell, self.store.folder / ".bake" / "environment.json"
        with storing(self.layers.root):
            aside = Path(tempfile.mkdtemp(prefix=".aside-", dir=self.layers.root))
        try:
            target = BakeTarget(
                name=cell.id,
                context=str(self.store.write_context(cell.id, item.rendered.context)),
                contexts=self.contexts(item),
                tag="",
                labels={},
                machine=cell.machine,
                output=f"{_OUTPUT}{aside}",
                secrets=self.secrets(item),
                moment=_MOMENT,
                stage=EMPTY_STAGE,
            )
            write_json(file, bake_file([target]))
            answer = bake(self.request(file, (cell.id,), aside), self.on_step)[cell.id]
            if answer.error:
                return ""
            self.layers.take(aside)
            return answer.digest
        finally:
            shutil.rmtree(aside, ignore_errors=True)
