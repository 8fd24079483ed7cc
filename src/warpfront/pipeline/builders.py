"""The images that wheels are built in: a cell's parent, and where a recipe needs Debian packages,
one more layer with those. Built when a build first asks, kept in the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from warpfront.errors import CommandFailedError
from warpfront.images.bake import (
    CA_SECRET,
    PROXIES_SECRET,
    PROXIES_VARIABLE,
    BakeTarget,
    bake_file,
    proxy_script,
)
from warpfront.images.crafting import Builder
from warpfront.images.engine import Engine, connect
from warpfront.images.engine.buildx import BakeRequest, bake
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.render import DOCKERFILE, Templates
from warpfront.matrix.plan import with_parents
from warpfront.model import BuiltImage, Cell, WheelLock, digest_of
from warpfront.pipeline.building import build_cells
from warpfront.pipeline.workspace import IMAGES_FOLDER, AskSite, Workspace
from warpfront.system.process import environment, run
from warpfront.system.provenance import read_provenance
from warpfront.system.store import read_tree, write_json, write_text
from warpfront.system.watch import Watch
from warpfront.wheels.sources import Site

_TEMPLATE = 'FROM {{ from_reference }}\n{% include "_shared/apt.j2" %}\n'
_NAME = "builder"


def builder_of(
    workspace: Workspace,
    cell: Cell,
    locks: Mapping[str, WheelLock],
    *,
    site: AskSite,
    watch: Watch,
) -> Builder:
    """Where the wheels of `cell` are built: its parent's image, which is built if need be. `locks`
    hold those of its ancestors.
    """

    def build(apt: tuple[str, ...]) -> tuple[Engine, str]:
        engine = connect(environment())
        parent = _parent_image(workspace, cell, locks, engine=engine, site=site, watch=watch)
        if not apt:
            return engine, parent.image_id
        return engine, _with_packages(workspace, parent, apt, engine=engine, site=site())

    return build


def _parent_image(
    workspace: Workspace,
    cell: Cell,
    locks: Mapping[str, WheelLock],
    *,
    engine: Engine,
    site: AskSite,
    watch: Watch,
) -> BuiltImage:
    cells = workspace.matrix.cells
    parents = [one for one in cells if one.id == cell.parent]
    built = build_cells(
        workspace,
        with_parents(parents, cells),
        locks,
        engine=engine,
        site=site,
        watch=watch,
        provenance=read_provenance(workspace.root, run),
    )
    result = built[parents[0].id]
    if not isinstance(result, BuiltImage):
        raise CommandFailedError(
            f"{cell.id}: its parent {cell.parent}, in which its wheels are built, is not to be "
            f"had: {result.reason}",
            hint=result.hint,
        )
    return result


def _with_packages(
    workspace: Workspace, parent: BuiltImage, apt: tuple[str, ...], *, engine: Engine, site: Site
) -> str:
    """The id of the parent's image with `apt` on top, from before or built now."""
    digest = digest_of([parent.content_hash, list(apt)])[:24]
    reference = f"localhost/{workspace.matrix.project.name}/{_NAME}:{digest}"
    known = engine.image(reference)
    if known is not None:
        return known.id
    folder = workspace.store.folder / f".{_NAME}" / digest
    write_text(folder / "context" / DOCKERFILE, _dockerfile(workspace, parent, apt))
    target = BakeTarget(
        name=_NAME,
        context=str(folder / "context"),
        contexts={parent.reference: f"docker-image://{parent.reference}"},
        tag=reference,
        labels={CONTENT_HASH: digest},  # not the parent's, whose labels it inherits
        output="type=docker",
        secrets=(
            *([f"id={CA_SECRET},src={site.certificate}"] if site.certificate else []),
            *([f"type=env,id={PROXIES_SECRET},env={PROXIES_VARIABLE}"] if site.proxies else []),
        ),
    )
    write_json(folder / "bake.json", bake_file([target]))
    log = folder / "build.log"
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
    baked = bake(request, lambda _: None)[_NAME]
    image = engine.image(reference)
    if baked.error or image is None:
        raise CommandFailedError(
            f"{', '.join(apt)} cannot be added to {parent.reference}: {baked.error}",
            hint=f"see {log}",
        )
    return image.id


def _dockerfile(workspace: Workspace, parent: BuiltImage, apt: tuple[str, ...]) -> str:
    sources = read_tree(workspace.root / IMAGES_FOLDER)
    templates = Templates({**sources, f"{_NAME}/Dockerfile.j2": _TEMPLATE})
    return templates.dockerfile(_NAME).render(from_reference=parent.reference, apt=apt)
