"""build: images in the engine, reusing every one that already has the content."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from warpfront.errors import BuildFailedError, EngineError, StoreError
from warpfront.images.bake import (
    CA_SECRET,
    PROXIES_SECRET,
    PROXIES_VARIABLE,
    TOOLS_CONTEXT,
    WHEELS_CONTEXT,
    BakeTarget,
    bake_file,
    proxy_script,
)
from warpfront.images.engine import Engine, StoredImage
from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.buildx import Baked, BakeRequest, BuildStep, bake
from warpfront.images.labels import CONTENT_HASH, image_labels
from warpfront.matrix.plan import leaves
from warpfront.model import (
    BaseSource,
    Blocked,
    BuiltImage,
    Cell,
    Failed,
    Provenance,
    ResolvedBase,
    WheelLock,
)
from warpfront.pipeline.attempt import attempt
from warpfront.pipeline.preparing import Prepared, images_by_content, prepare_cells
from warpfront.pipeline.workspace import AskSite, Workspace
from warpfront.release.registry import registry_reachable
from warpfront.system.process import run
from warpfront.system.store import place_program, write_json
from warpfront.system.watch import Watch
from warpfront.wheels.sdists import sdist_builder
from warpfront.wheels.sources import Site
from warpfront.wheels.uv_program import uv_binary, uv_version

Built = BuiltImage | Blocked | Failed
# The containerd store keeps a tar of every layer beside its unpacked form, gzipped unless told
# otherwise. The
# fastest zstd takes half of gzip's time, and writes less than no compression at all
# (docs/performance.md).
_OUTPUT = "type=image,compression=zstd,compression-level=0"
_OUTPUT_CLASSIC_STORE = "type=docker"


def build_cells(
    workspace: Workspace,
    cells: Iterable[Cell],
    locks: Mapping[str, WheelLock],
    *,
    engine: Engine,
    site: AskSite,
    watch: Watch,
    provenance: Provenance,
) -> Mapping[str, Built]:
    """Build or reuse every cell (parents first, each with a lock); cell id -> what became of it."""
    cells = tuple(cells)
    bases = _resolve_bases(workspace, cells, engine, watch)
    usable, results = _with_usable_base(cells, bases)
    resolved = {name: base for name, base in bases.items() if isinstance(base, ResolvedBase)}
    prepared = prepare_cells(
        workspace, usable, locks, resolved, images_by_content(workspace, engine)
    )
    to_build = []
    for cell_id, item in prepared.items():
        if not isinstance(item, Prepared):
            results[cell_id] = item
        elif item.image is not None:
            results[cell_id] = _reused(workspace, item, engine, item.image)
        else:
            to_build.append(item)
    if to_build:
        results |= _Building(workspace, engine, site(), watch, provenance).build(to_build)
    for cell_id, result in results.items():
        workspace.store.save(cell_id, "build", result)
    return results


def _resolve_bases(
    workspace: Workspace, cells: Iterable[Cell], engine: Engine, watch: Watch
) -> Mapping[str, ResolvedBase | Blocked | Failed]:
    first = {cell.base.name: cell for cell in cells if cell.parent is None}
    return {
        name: attempt(
            cell.id,
            "build",
            resolve_base,
            cell.base,
            engine,
            registry_reachable=registry_reachable,
            cache=workspace.cache,
            on_line=watch.say,
        )
        for name, cell in first.items()
    }


def _with_usable_base(
    cells: Iterable[Cell], bases: Mapping[str, ResolvedBase | Blocked | Failed]
) -> tuple[tuple[Cell, ...], dict[str, Built]]:
    results: dict[str, Built] = {}
    usable = []
    for cell in cells:
        base = results.get(cell.parent) if cell.parent else bases[cell.base.name]
        if isinstance(base, Blocked | Failed):
            results[cell.id] = dataclasses.replace(base, cell_id=cell.id)
        else:
            usable.append(cell)
    return tuple(usable), results


def _reused(workspace: Workspace, item: Prepared, engine: Engine, image: StoredImage) -> BuiltImage:
    """An existing image under the cell's own reference, which may have moved on in between."""
    if item.cell.local_reference not in image.references:
        engine.tag(image.id, item.cell.local_reference)
    return BuiltImage(
        cell_id=item.cell.id,
        reference=item.cell.local_reference,
        image_id=image.id,
        content_hash=item.content_hash,
        size_bytes=_size_bytes(workspace, item.cell, engine, image),
        base=item.base,
        reused=True,
        seconds=0.0,
        log=None,
    )


def _size_bytes(workspace: Workspace, cell: Cell, engine: Engine, image: StoredImage) -> int:
    """What the last build measured of this very image, else what the engine says of its layers. (A
    listing counts packed blobs too, and asking for each image takes the engine its time.)
    """
    # A record that cannot be read is as good as none; this build writes a new one.
    with contextlib.suppress(StoreError):
        before = workspace.store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
        if isinstance(before, BuiltImage) and before.image_id == image.id:
            return before.size_bytes
    return (engine.image(image.id) or image).size_bytes


class _Building:
    """One bake: what it needs on disk, how it runs, and what it left."""

    def __init__(
        self,
        workspace: Workspace,
        engine: Engine,
        site: Site,
        watch: Watch,
        provenance: Provenance,
    ) -> None:
        self._workspace = workspace
        self._engine = engine
        self._site = site
        self._watch = watch
        self._provenance = provenance
        self._wheelhouse = workspace.wheelhouse
        self._started = monotonic()
        self._finished: dict[str, float] = {}

    def build(self, items: list[Prepared]) -> dict[str, Built]:
        failed = self._fetch(items)
        ready = [item for item in items if item.cell.id not in failed]
        if not ready:
            return failed
        by_id = {item.cell.id: item for item in ready}
        targets = [self._target(item, by_id) for item in ready]
        folder = self._workspace.store.folder / ".bake"
        file = folder / "bake.json"
        write_json(file, bake_file(targets))
        for item in ready:
            self._workspace.store.log_path(item.cell.id).unlink(missing_ok=True)
        answers = bake(self._request(file, ready), self._on_step)
        return {**failed, **{item.cell.id: self._result(item, answers) for item in ready}}

    def _fetch(self, items: list[Prepared]) -> dict[str, Built]:
        """Every wheel of every item; those whose wheels cannot be had, and their children, are left
        out.
        """
        failed: dict[str, Built] = {}
        for item in items:
            parent = failed.get(item.cell.parent or "")
            if isinstance(parent, Blocked | Failed):
                failed[item.cell.id] = dataclasses.replace(parent, cell_id=item.cell.id)
                continue
            result = attempt(
                item.cell.id,
                "build",
                self._wheelhouse.fetch,
                item.rendered.wheels,
                self._site,
                on_progress=self._watch.advance,
                build=sdist_builder(self._site, run),
            )
            if isinstance(result, Blocked | Failed):
                failed[item.cell.id] = result
        return failed

    def _target(self, item: Prepared, building: Mapping[str, Prepared]) -> BakeTarget:
        cell = item.cell
        self._workspace.store.write_context(cell.id, item.rendered.files)
        self._workspace.store.save(cell.id, "render", item.rendered)
        needs_network = bool(cell.compiler and cell.compiler.apt)
        return BakeTarget(
            name=cell.id,
            context=str(self._workspace.store.context_folder(cell.id)),
            contexts=self._contexts(item, building),
            tag=cell.local_reference,
            labels=image_labels(
                cell,
                project=self._workspace.matrix.project,
                lock=item.lock,
                base=item.base,
                content_hash=item.content_hash,
                provenance=self._provenance,
            ),
            output=_OUTPUT if self._engine.features().containerd_store else _OUTPUT_CLASSIC_STORE,
            secrets=self._secrets() if needs_network else (),
        )

    def _contexts(self, item: Prepared, building: Mapping[str, Prepared]) -> dict[str, str]:
        cell = item.cell
        contexts = {}
        if cell.parent is None:
            if item.base.source is BaseSource.BOOTSTRAP:
                contexts[_familiar(cell.base.pinned)] = f"docker-image://{item.base.reference}"
        else:
            reference = _parent_reference(self._workspace, cell)
            contexts[reference] = (
                f"target:{cell.parent}"
                if cell.parent in building
                else f"docker-image://{reference}"
            )
        if item.rendered.wheels:
            contexts[WHEELS_CONTEXT] = str(self._wheels_view(item))
            contexts[TOOLS_CONTEXT] = str(self._tools())
        return contexts

    def _wheels_view(self, item: Prepared) -> Path:
        key = item.rendered.digest[:24]
        return self._wheelhouse.view(item.rendered.wheels, self._workspace.cache / "views" / key)

    def _tools(self) -> Path:
        """A folder with the one program that a build needs from outside."""
        folder = self._workspace.cache / "tools" / f"uv-{uv_version()}"
        return place_program(uv_binary(), folder)

    def _secrets(self) -> tuple[str, ...]:
        certificate, proxies = self._site.certificate, self._site.proxies
        return (
            *([f"id={CA_SECRET},src={certificate}"] if certificate else []),
            *([f"type=env,id={PROXIES_SECRET},env={PROXIES_VARIABLE}"] if proxies else []),
        )

    def _request(self, file: Path, items: list[Prepared]) -> BakeRequest:
        store = self._workspace.store
        certificate = self._site.certificate
        return BakeRequest(
            buildx=self._engine.buildx,
            environment={
                **self._engine.build_environment,
                PROXIES_VARIABLE: proxy_script(self._site.proxies),
            },
            file=file,
            targets=tuple(item.cell.id for item in items),
            leaves=tuple(cell.id for cell in leaves(item.cell for item in items)),
            readable=(
                store.folder.resolve(),
                self._workspace.cache.resolve(),
                *([Path(certificate)] if certificate else []),
            ),
            logs={item.cell.id: store.log_path(item.cell.id) for item in items},
            references={item.cell.local_reference: item.cell.id for item in items},
        )

    def _on_step(self, step: BuildStep) -> None:
        if not step.target:
            return
        self._finished[step.target] = monotonic()
        if step.state != "running":
            self._watch.step(step.target, "")
        elif not step.name.startswith("[internal]"):
            self._watch.step(step.target, step.name)

    def _result(self, item: Prepared, answers: Mapping[str, Baked]) -> Built:
        cell, baked = item.cell, answers[item.cell.id]
        if baked.engine_gone:
            raise EngineError(
                f"the engine went away while building {cell.id}",
                hint="see `invoke doctor`; the next build reuses what was finished",
            )
        log = str(self._workspace.store.log_path(cell.id))
        if baked.error:
            hint = "free some space, or `invoke clean`" if baked.disk_full else f"see {log}"
            return Failed(
                cell_id=cell.id,
                step="build",
                reason="the disk is full" if baked.disk_full else baked.error,
                hint=hint,
                log=log,
                exit_code=BuildFailedError.exit_code,
            )
        return self._built(item, log)

    def _built(self, item: Prepared, log: str) -> Built:
        cell = item.cell
        image = self._engine.image(cell.local_reference)
        if image is None or image.labels.get(CONTENT_HASH) != item.content_hash:
            return Failed(
                cell_id=cell.id,
                step="build",
                reason=f"{cell.local_reference} is not the image that was just built",
                hint="another build moved the tag; build again",
                log=log,
                exit_code=BuildFailedError.exit_code,
            )
        return BuiltImage(
            cell_id=cell.id,
            reference=cell.local_reference,
            image_id=image.id,
            content_hash=item.content_hash,
            size_bytes=image.size_bytes,
            base=item.base,
            reused=False,
            seconds=round(self._finished.get(cell.id, monotonic()) - self._started, 2),
            log=log,
        )


def _parent_reference(workspace: Workspace, cell: Cell) -> str:
    return next(c.local_reference for c in workspace.matrix.cells if c.id == cell.parent)


def _familiar(reference: str) -> str:
    """The form under which BuildKit looks a `FROM` up among the named contexts: as Docker shows
    it.
    """
    return reference.removeprefix("docker.io/").removeprefix("library/")
