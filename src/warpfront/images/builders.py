"""Images to build wheels in: a cell's parent, with Debian packages if a recipe has any. Path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpfront.errors import BlockedError, CommandFailedError
from warpfront.images.bake import BakeTarget
from warpfront.images.baking import Built, bake_request, build_cells, build_secrets
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
from warpfront.wheels.site import AskSite
from warpfront.wheels.sources import Site

_TEMPLATE = 'FROM {{ from_reference }}\n{% include "_shared/apt.j2" %}\n'
_NAME = "builder"


BuilderOf = Callable[[Cell, Mapping[str, WheelLock]], Builder]
"""Where the wheels of a cell are built, given the locks of its ancestors."""


def builders(
    matrix: Matrix, material: Material, folders: Folders, *, site: AskSite, watch: Watch
) -> BuilderOf:
    """Builders in the image of each cell's parent, which is built if need be; in its base where
    it has none.
    """

    def builder_of(cell: Cell, locks: Mapping[str, WheelLock]) -> Builder:
        def build(apt: tuple[str, ...]) -> tuple[Engine, str]:
            engine = connect(environment())
            if cell.parent is None:
                base = resolve_base(cell.base, engine, cache=folders.cache, on_line=watch.say)
                reference, identity = base.reference, base.identity
                local = base.source is BaseSource.BOOTSTRAP
            else:
                parents = [candidate for candidate in matrix.cells if candidate.id == cell.parent]
                chain = with_parents(parents, matrix.cells)
                inputs = CellInputs(cells=chain, locks=locks, matrix=matrix, material=material)
                tools = Tools(engine=engine, folders=folders, site=site)
                parent = _parent_image(cell, build_cells(inputs, tools, watch)[cell.parent])
                if not apt:
                    return engine, parent.image_id
                reference, identity, local = parent.reference, parent.content_hash, True
            adding = _AddedPackages(
                reference=reference,
                identity=identity,
                local=local,
                apt=apt,
                machine=cell.machine,
                name=f"localhost/{matrix.project.name}/{_NAME}",
            )
            return engine, adding.image_id(folders, engine, site())

        return build

    return builder_of


def _parent_image(cell: Cell, result: Built) -> BuiltImage:
    if isinstance(result, BuiltImage):
        return result
    kind = BlockedError if isinstance(result, Blocked) else CommandFailedError
    raise kind(
        f"{cell.id}: its parent {cell.parent}, in which its wheels are built, is not to be "
        f"had: {result.reason}",
        hint=result.hint,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AddedPackages:
    """Debian packages on top of an image (`reference`, and its `identity`; `local` = in the engine
    only), as an image called `name`.
    """

    reference: str
    identity: str
    local: bool
    apt: tuple[str, ...]
    machine: str
    name: str

    def image_id(self, folders: Folders, engine: Engine, site: Site) -> str:
        """Return the id of the image, built now unless it exists."""
        digest = digest_of([self.identity, list(self.apt)])[:24]
        reference = f"{self.name}:{digest}"
        existing = engine.image(reference)
        if existing is not None:
            return existing.id
        folder = folders.store.folder / f".{_NAME}" / digest
        log = folder / "build.log"
        log.unlink(missing_ok=True)
        write_text(folder / "context" / DOCKERFILE, self._dockerfile(folders))
        layouts = folder / "layouts"
        try:
            contexts = {}
            if self.local:
                contexts[self.reference] = local_context(engine, self.reference, layouts)
            target = BakeTarget(
                name=_NAME,
                context=str(folder / "context"),
                contexts=contexts,
                tag=reference,
                labels={CONTENT_HASH: digest},  # not the parent's, whose labels it inherits
                output="type=docker",
                machine=self.machine,
                secrets=build_secrets(site),
            )
            request = bake_request(
                folder / "bake.json",
                [target],
                engine=engine,
                site=site,
                readable=[folder.resolve()],
                logs={_NAME: log},
            )
            baked = bake(request, lambda _: None)[_NAME]
        finally:
            remove_tree(layouts)
        image = engine.image(reference)
        if baked.error or image is None:
            packages = ", ".join(self.apt) or "nothing"
            raise CommandFailedError(
                f"{packages} cannot be added to {self.reference}: {baked.error}",
                hint=f"see {log}",
            )
        return image.id

    def _dockerfile(self, folders: Folders) -> str:
        template = ImageFile(content=_TEMPLATE.encode())
        sources = {**read_tree(folders.root / IMAGES_FOLDER), f"{_NAME}/Dockerfile.j2": template}
        variables = {"from_reference": self.reference, "apt": self.apt}
        (text,) = render_templates(sources, [RenderRequest(folder=_NAME, variables=variables)])
        if not isinstance(text, str):
            raise text
        return text
