"""Images to build wheels in: a cell's parent, with Debian packages if a recipe has any. Path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront.errors import BlockedError, CommandFailedError
from warpfront.images.bake import PROXIES_VARIABLE, BakeTarget, bake_file, proxy_script
from warpfront.images.baking import Built, build_cells, build_secrets
from warpfront.images.built import BuiltImage
from warpfront.images.engine import Engine, connect
from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.buildx import Baked, BakeRequest, bake, local_context
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.registry_ping import registry_reachable
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
from warpfront.system.store import read_tree, write_json, write_text
from warpfront.system.tree_files import ImageFile
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import IMAGES_FOLDER, Folders
from warpfront.wheels.site import AskSite
from warpfront.wheels.sources import Site

_TEMPLATE = 'FROM {{ from_reference }}\n{% include "_shared/apt.j2" %}\n'
_NAME = "builder"
_LAYOUTS = "layouts"
_LOG = "build.log"


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
            name = f"localhost/{matrix.project.name}/{_NAME}"
            if cell.parent is None:
                ground = _base_ground(cell, engine, folders, watch)
                added = _Packages(ground=ground, apt=apt, machine=cell.machine)
                return engine, _with_packages(name, added, folders, engine=engine, site=site())
            parents = [candidate for candidate in matrix.cells if candidate.id == cell.parent]
            chain = with_parents(parents, matrix.cells)
            inputs = CellInputs(cells=chain, locks=locks, matrix=matrix, material=material)
            built = build_cells(inputs, Tools(engine=engine, folders=folders, site=site), watch)
            parent = _parent_image(cell, built[parents[0].id])
            if not apt:
                return engine, parent.image_id
            ground = _Ground(reference=parent.reference, identity=parent.content_hash, local=True)
            added = _Packages(ground=ground, apt=apt, machine=cell.machine)
            return engine, _with_packages(name, added, folders, engine=engine, site=site())

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
class _Ground:
    """The image to build on, and what it is; `local` = in the engine only."""

    reference: str
    identity: str
    local: bool


def _base_ground(cell: Cell, engine: Engine, folders: Folders, watch: Watch) -> _Ground:
    base = resolve_base(
        cell.base,
        engine,
        registry_reachable=registry_reachable,
        cache=folders.cache,
        on_line=watch.say,
    )
    local = base.source is BaseSource.BOOTSTRAP
    return _Ground(reference=base.reference, identity=base.identity, local=local)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packages:
    """Debian packages on top of an image."""

    ground: _Ground
    apt: tuple[str, ...]
    machine: str


def _with_packages(
    name: str, added: _Packages, folders: Folders, *, engine: Engine, site: Site
) -> str:
    """Return the id of the image of that name, built now unless it exists."""
    ground, apt = added.ground, added.apt
    digest = digest_of([ground.identity, list(apt)])[:24]
    reference = f"{name}:{digest}"
    existing = engine.image(reference)
    if existing is not None:
        return existing.id
    folder = folders.store.folder / f".{_NAME}" / digest
    image_file = ImageFile(content=_TEMPLATE.encode())
    sources = {**read_tree(folders.root / IMAGES_FOLDER), f"{_NAME}/Dockerfile.j2": image_file}
    variables = {"from_reference": ground.reference, "apt": apt}
    (text,) = render_templates(sources, [RenderRequest(folder=_NAME, variables=variables)])
    if not isinstance(text, str):
        raise text
    write_text(folder / "context" / DOCKERFILE, text)
    try:
        baked = _baked(reference, added, folder, engine=engine, site=site, digest=digest)
    finally:
        remove_tree(folder / _LAYOUTS)
    image = engine.image(reference)
    if baked.error or image is None:
        raise CommandFailedError(
            f"{', '.join(apt) or 'nothing'} cannot be added to {ground.reference}: {baked.error}",
            hint=f"see {folder / _LOG}",
        )
    return image.id


def _baked(
    reference: str, added: _Packages, folder: Path, *, engine: Engine, site: Site, digest: str
) -> Baked:
    ground, log = added.ground, folder / _LOG
    contexts = {}
    if ground.local:
        contexts = {ground.reference: local_context(engine, ground.reference, folder / _LAYOUTS)}
    target = BakeTarget(
        name=_NAME,
        context=str(folder / "context"),
        contexts=contexts,
        tag=reference,
        labels={CONTENT_HASH: digest},  # not the parent's, whose labels it inherits
        output="type=docker",
        machine=added.machine,
        secrets=build_secrets(site),
    )
    write_json(folder / "bake.json", bake_file([target]))
    log.unlink(missing_ok=True)
    request = BakeRequest(
        buildx=engine.buildx,
        environment={**engine.build_environment, PROXIES_VARIABLE: proxy_script(site.proxies)},
        file=folder / "bake.json",
        targets=(_NAME,),
        readable=(folder.resolve(), *([Path(site.certificate)] if site.certificate else [])),
        logs={_NAME: log},
        references={reference: _NAME},
        leaves=(_NAME,),
    )
    return bake(request, lambda _: None)[_NAME]
