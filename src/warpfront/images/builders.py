"""Images to build wheels in: a cell's parent, with Debian packages if a recipe has any. Path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpfront.errors import BlockedError, CommandFailedError
from warpfront.images.bake import BakeTarget
from warpfront.images.baking import bake_request, build_cells, build_secrets
from warpfront.images.built import BuiltImage
from warpfront.images.engine import Engine, connect
from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.buildx import bake, local_context
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.render import DOCKERFILE, Material
from warpfront.images.template_process import RenderRequest, render_templates
from warpfront.images.tools import CellInputs, Tools
from warpfront.images.wheel_builder import Builder
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.matrix.reading import Matrix
from warpfront.matrix.selection import with_parents
from warpfront.step_results import Blocked
from warpfront.system.digests import digest_of
from warpfront.system.foreign import remove_tree
from warpfront.system.process import environment
from warpfront.system.progress import Watch
from warpfront.system.store import read_tree, write_text
from warpfront.system.tree_files import ImageFile
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import IMAGES_FOLDER, Folders
from warpfront.wheels.sources import AskSite

_TEMPLATE = 'FROM {{ from_reference }}\n{% include "_shared/apt.j2" %}\n'
_NAME = "builder"


BuilderOf = Callable[[Cell, Mapping[str, WheelLock]], Builder]
"""Where the wheels of a cell are built, given the locks of its ancestors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builders:
    """A `BuilderOf`: the image of each cell's parent, built if need be, or else its base."""

    matrix: Matrix
    material: Material
    folders: Folders
    site: AskSite
    watch: Watch

    def __call__(self, cell: Cell, locks: Mapping[str, WheelLock]) -> Builder:
        return partial(self._image, cell, locks)

    def _image(
        self, cell: Cell, locks: Mapping[str, WheelLock], apt: tuple[str, ...]
    ) -> tuple[Engine, str]:
        """Return the engine and the image in it to build in, made now unless it exists."""
        engine = connect(environment())
        if cell.parent is None:
            base = resolve_base(cell.base, engine, cache=self.folders.cache, on_line=self.watch.say)
            reference, identity = base.reference, base.identity
            local = base.source is BaseSource.BOOTSTRAP
        else:
            parent = self._parent_image(cell, locks, engine)
            if not apt:
                return engine, parent.image_id
            reference, identity, local = parent.reference, parent.content_hash, True
        digest = digest_of([identity, list(apt)])[:24]
        tag = f"localhost/{self.matrix.project.name}/{_NAME}:{digest}"
        existing = engine.image(tag)
        if existing is not None:
            return engine, existing.id
        folder = self.folders.store.folder / f".{_NAME}" / digest
        template = ImageFile(content=_TEMPLATE.encode())
        images = read_tree(self.folders.root / IMAGES_FOLDER)
        sources = {**images, f"{_NAME}/Dockerfile.j2": template}
        variables = {"from_reference": reference, "apt": apt}
        (text,) = render_templates(sources, [RenderRequest(folder=_NAME, variables=variables)])
        if not isinstance(text, str):
            raise text
        write_text(folder / "context" / DOCKERFILE, text)
        layouts = folder / "layouts"
        try:
            contexts = {reference: local_context(engine, reference, layouts)} if local else {}
            target = BakeTarget(
                name=_NAME,
                context=str(folder / "context"),
                contexts=contexts,
                tag=tag,
                labels={CONTENT_HASH: digest},  # not the parent's, whose labels it inherits
                output="type=docker",
                machine=cell.machine,
                secrets=build_secrets(self.site()),
            )
            return engine, self._baked(
                target,
                folder,
                engine,
                f"{', '.join(apt) or 'nothing'} cannot be added to {reference}",
            )
        finally:
            remove_tree(layouts)

    def _parent_image(
        self, cell: Cell, locks: Mapping[str, WheelLock], engine: Engine
    ) -> BuiltImage:
        parents = [candidate for candidate in self.matrix.cells if candidate.id == cell.parent]
        chain = with_parents(parents, self.matrix.cells)
        inputs = CellInputs(cells=chain, locks=locks, matrix=self.matrix, material=self.material)
        tools = Tools(engine=engine, folders=self.folders, site=self.site)
        result = build_cells(inputs, tools, self.watch)[parents[0].id]
        if isinstance(result, BuiltImage):
            return result
        kind = BlockedError if isinstance(result, Blocked) else CommandFailedError
        raise kind(
            f"{cell.id}: its parent {cell.parent}, in which its wheels are built, is not to be "
            f"had: {result.reason}",
            hint=result.hint,
        )

    def _baked(self, target: BakeTarget, folder: Path, engine: Engine, refusal: str) -> str:
        """Return the id of the image of a target. Raise `CommandFailedError` with `refusal`."""
        log = folder / "build.log"
        log.unlink(missing_ok=True)
        request = bake_request(
            folder / "bake.json",
            [target],
            engine=engine,
            site=self.site(),
            readable=[folder.resolve()],
            logs={_NAME: log},
        )
        baked = bake(request, lambda _: None)[_NAME]
        image = engine.image(target.tag)
        if baked.error or image is None:
            raise CommandFailedError(f"{refusal}: {baked.error}", hint=f"see {log}")
        return image.id
