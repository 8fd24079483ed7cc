"""A bake of every image that does not exist yet, and its results; size budgets: images larger than
matrix.yaml allows, and what grew in them. And images to build wheels in: a cell's parent, with
Debian packages if a recipe has any. Path.

The guard's manifest of an image's files is made from its wheels. It follows from them and from the
guard, which the content hash covers, and is no part of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import monotonic

from warpfront.errors import (
    BlockedError,
    BuildFailedError,
    CommandFailedError,
    EngineError,
    FailureKind,
    StoreError,
    WheelError,
)
from warpfront.images.bake import (
    CA_SECRET,
    PROXIES_SECRET,
    PROXIES_VARIABLE,
    SEALED_CONTEXT,
    TOOLS_CONTEXT,
    WHEELS_CONTEXT,
    BakeTarget,
    bake_file,
    proxy_script,
)
from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.buildx import Baked, BakeRequest, BuildStep, bake, local_context
from warpfront.images.engine.protocol import Engine, StoredImage, connect
from warpfront.images.labels import CONTENT_HASH, image_labels
from warpfront.images.plan import CONTENT
from warpfront.images.preparing import CellInputs, Prepared, Tools, prepare_build
from warpfront.images.render import DOCKERFILE, POLICY, Material, stack_location
from warpfront.images.template_process import RenderRequest, render_templates
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.matrix.reading import Matrix
from warpfront.matrix.runners import CACHE_VARIABLE
from warpfront.matrix.selection import with_parents
from warpfront.step_results import Blocked, Failed, attempt, failed_by
from warpfront.system.digests import digest_of
from warpfront.system.foreign import remove_tree
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch
from warpfront.system.provenance import read_invocation, read_provenance
from warpfront.system.store import Store, read_tree, remove_other, write_json, write_text
from warpfront.system.texts import readable_size
from warpfront.system.tree_files import ImageFile
from warpfront.wheels.lock.reading import check_wheels
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import IMAGES_FOLDER, Folders
from warpfront.wheels.sources import AskSite, Site
from warpfront.wheels.store.sdists import install_toolbox
from warpfront.wheels.store.unpacked import unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront.wheels.uv_program import placed_uv, uv_binary, uv_version
from warpfront_checks.guard.manifest import Manifest, manifest_text
from warpfront_checks.guard.policy import policy_from

Built = BuiltImage | Blocked | Failed
# The containerd store has a tar of every layer and its unpacked form, gzipped by default.
# The fastest zstd takes half of gzip's time, and writes less than no compression at all
# (docs/performance.md). Docker's own manifests know no zstd; OCI's do.
_OUTPUT = "type=image,oci-mediatypes=true,compression=zstd,compression-level=0"
_OUTPUT_CLASSIC_STORE = "type=docker"
_MANIFEST = "stack.json"
_LAYOUTS = "layouts"


def _output(engine: Engine) -> str:
    """Return the exporter of the engine's store."""
    if not engine.features().containerd_store:
        return _OUTPUT_CLASSIC_STORE
    if engine.builds_elsewhere:
        return _OUTPUT.replace("type=image", _OUTPUT_CLASSIC_STORE)
    return _OUTPUT


def build_cells(
    inputs: CellInputs, tools: Tools, watch: Watch, *, layers: bool = False
) -> Mapping[str, Built]:
    """Return an image, built or reused, or an error for each cell id; every cell has a lock.

    `layers`: compose images from one layer per wheel, if the engine keeps layers.
    """
    cells, locks = inputs.cells, inputs.locks
    engine, folders = tools.engine, tools.folders
    results: dict[str, Built] = {}
    to_build = []
    prepared = prepare_build(inputs, tools, watch)
    for cell_id, item in prepared.items():
        if not isinstance(item, Prepared):
            results[cell_id] = item
        elif item.image is not None:
            results[cell_id] = _reused(item, item.image, folders.store, engine)
        else:
            to_build.append(item)
    if to_build:
        results |= Building(inputs, tools, watch, layers=layers).build(to_build)
    by_id = {cell.id: cell for cell in cells}
    for cell_id, result in results.items():
        if isinstance(result, BuiltImage):
            cell, lock = by_id[cell_id], locks[cell_id]
            results[cell_id] = within_budget(cell, result, lock, folders.store, folders.wheelhouse)
            if isinstance(item := prepared[cell_id], Prepared):
                folders.store.save(cell_id, CONTENT, item.record)
        folders.store.save(cell_id, "build", results[cell_id])
    return results


def _reused(item: Prepared, image: StoredImage, store: Store, engine: Engine) -> BuiltImage:
    """Return an existing image under the cell's own reference, which may have moved since."""
    if item.cell.local_reference not in image.references:
        engine.tag(image.id, item.cell.local_reference)
    # The record of the build that made this very image, where it can be read.
    stored = store.readable(item.cell.id, "build", (BuiltImage, Blocked, Failed))
    is_of_it = isinstance(stored, BuiltImage) and stored.image_id == image.id
    before: BuiltImage | None = stored if is_of_it else None
    return BuiltImage(
        cell_id=item.cell.id,
        reference=item.cell.local_reference,
        image_id=image.id,
        content_hash=item.content_hash,
        # A listing counts packed blobs too, and each inspection costs the engine time.
        size_bytes=before.size_bytes if before else (engine.image(image.id) or image).size_bytes,
        base=item.base,
        reused=True,
        seconds=0.0,
        log=None,
        builder=before.builder if before else "",
        invocation=before.invocation if before else "",
    )


class Building:
    """A bake: its files, its run and its results."""

    def __init__(self, inputs: CellInputs, tools: Tools, watch: Watch, *, layers: bool) -> None:
        self._inputs, self.watch, self._layers = inputs, watch, layers
        self.engine, self._folders, self._site = tools.engine, tools.folders, tools.site()
        self.store, self._output = tools.folders.store, _output(tools.engine)
        self._provenance = read_provenance(tools.folders.root, run)
        self._started = monotonic()
        self._finished: dict[str, float] = {}
        # A context for an image of this engine, whose layout is made once.
        folder = self.store.folder / ".bake" / _LAYOUTS
        self._local = cache(partial(local_context, tools.engine, folder=folder))

    def build(self, items: list[Prepared]) -> dict[str, Built]:
        """Cell id -> what became of it."""
        try:
            return self._build(items)
        finally:
            remove_tree(self.store.folder / ".bake" / _LAYOUTS)

    def _build(self, items: list[Prepared], *, again: bool = False) -> dict[str, Built]:
        """Build once more what failed because of damaged files."""
        failed: dict[str, Built] = {}
        fetched = self._each(items, self._fetch_one, failed)
        for item in fetched:
            self.store.log_path(item.cell.id).unlink(missing_ok=True)
        # Making a layer also measures the wheel, which the guard's manifest uses.
        composed: Mapping[str, dict[str, str]] = {}
        if fetched and self._layers and self.engine.features().containerd_store:
            # Imported here: layers need the extra `layers`.
            from warpfront.images.composing import Composer  # noqa: PLC0415
            from warpfront.wheels.layers.layer_store import LayerStore  # noqa: PLC0415

            layers = LayerStore(self._folders.cache / "layers", self._folders.wheelhouse)
            composed = Composer(building=self, layers=layers).composed(fetched)
        ready = self._each(fetched, self._seal_one, failed)
        if not ready:
            return failed
        by_id = {item.cell.id: item for item in ready}
        targets = [self._target(item, by_id, composed) for item in ready]
        request = self.request("bake.json", targets)
        answers = bake(request, self.on_step)
        try:  # what `verify` needs, while there is a network: images do not depend on it
            install_toolbox(
                self._folders.cache,
                self._folders.wheelhouse,
                site=lambda: self._site,
                on_progress=self.watch.advance,
            )
        except (WheelError, StoreError) as error:
            self.watch.say(f"verify will not find its toolbox here: {error.message}")
        broken = [item for item in ready if answers[item.cell.id].error]
        results = {**failed, **{item.cell.id: self._result(item, answers) for item in ready}}
        if broken and not again and attempt("", "build", self._drop_damaged, broken) is True:
            results |= self._build(broken, again=True)
        return results

    def _drop_damaged(self, items: list[Prepared]) -> bool:
        """Return true if failed builds had damaged files: a disk may change bytes without a
        change of size and time, which identify files in other cases.
        """
        damaged: set[str] = set()
        for item in items:
            wheels = self._folders.wheelhouse.drop_damaged(
                item.rendered.wheels, self._view_folder(item)
            )
            damaged |= {wheel.filename for wheel in wheels}
        if remove_other(placed_uv(self._folders.cache) / uv_binary().name, uv_binary()):
            damaged.add("uv")
        for name in sorted(damaged):
            self.watch.say(f"{name} was damaged on this disk: it is brought again")
        return bool(damaged)

    def _each(
        self, items: list[Prepared], act: Callable[[Prepared], None], failed: dict[str, Built]
    ) -> list[Prepared]:
        """Return the items that succeed; the others, and their children, go to `failed`."""
        for item in items:
            parent = failed.get(item.cell.parent or "")
            if isinstance(parent, Blocked | Failed):
                failed[item.cell.id] = replace(parent, cell_id=item.cell.id)
                continue
            result = attempt(item.cell.id, "build", act, item)
            if isinstance(result, Blocked | Failed):
                failed[item.cell.id] = result
        return [item for item in items if item.cell.id not in failed]

    def _fetch_one(self, item: Prepared) -> None:
        wheels = item.rendered.wheels
        self._folders.wheelhouse.fetch(wheels, self._site, on_progress=self.watch.advance)
        chain = with_parents([item.cell], self._inputs.matrix.cells)
        check_wheels(chain, item.lock, self._folders.wheelhouse)

    def _seal_one(self, item: Prepared) -> None:
        cell = item.cell
        if is_sealed(cell, item.rendered):
            self.watch.step(cell.id, "reads its wheels for the guard")
            write_manifest(
                item.rendered, self._folders.wheelhouse, self._sealed_folder(cell), cell=cell
            )

    def _sealed_folder(self, cell: Cell) -> Path:
        return self.store.cell_folder(cell.id) / "sealed"

    def environment_contexts(self, item: Prepared) -> dict[str, str]:
        """Return the named contexts of the stage below the wheels of an image without a parent."""
        return {**self._base_contexts(item, {}), TOOLS_CONTEXT: str(placed_uv(self._folders.cache))}

    def secrets(self, item: Prepared) -> tuple[str, ...]:
        """Return the secrets that an image's build needs."""
        needs_network = bool(item.cell.compiler and item.cell.compiler.apt)
        return build_secrets(self._site) if needs_network else ()

    def _target(
        self,
        item: Prepared,
        building: Mapping[str, Prepared],
        composed: Mapping[str, dict[str, str]],
    ) -> BakeTarget:
        cell = item.cell
        self.store.save(cell.id, "render", item.rendered)
        # BuildKit wants to know of every name that stages name, also of those that it leaves out.
        contexts = {**self._base_contexts(item, building), **composed.get(cell.id, {})}
        if item.rendered.wheels:
            view = self._folders.wheelhouse.view(item.rendered.wheels, self._view_folder(item))
            contexts[WHEELS_CONTEXT] = str(view)
            contexts[TOOLS_CONTEXT] = str(placed_uv(self._folders.cache))
        if is_sealed(cell, item.rendered):
            contexts[SEALED_CONTEXT] = str(self._sealed_folder(cell))
        return BakeTarget(
            name=cell.id,
            context=str(self.store.write_context(cell.id, item.rendered.context)),
            contexts=contexts,
            tag=cell.local_reference,
            labels=image_labels(
                cell,
                project=self._inputs.matrix.project,
                lock=item.lock,
                base=item.base,
                content_hash=item.content_hash,
                provenance=self._provenance,
                uv=uv_version(),
            ),
            machine=cell.machine,
            output=self._output,
            secrets=self.secrets(item),
            moment=self._provenance.created,
        )

    def _base_contexts(self, item: Prepared, building: Mapping[str, Prepared]) -> dict[str, str]:
        cell = item.cell
        if cell.parent is not None:
            reference = self._inputs.by_id[cell.parent].local_reference
            is_target = cell.parent in building
            return {reference: f"target:{cell.parent}" if is_target else self._local(reference)}
        if item.base.source is not BaseSource.BOOTSTRAP:
            return {}
        # BuildKit looks a `FROM` up among named contexts in Docker's short form.
        name = cell.base.pinned.removeprefix("docker.io/").removeprefix("library/")
        return {name: self._local(item.base.reference)}

    def _view_folder(self, item: Prepared) -> Path:
        return self._folders.cache / "views" / item.rendered.digest[:24]

    def request(self, name: str, targets: Sequence[BakeTarget], *writable: Path) -> BakeRequest:
        """Write a bake file, and return how to run it."""
        return replace(
            bake_request(
                self.store.folder / ".bake" / name,
                targets,
                engine=self.engine,
                site=self._site,
                readable=(self.store.folder.resolve(), self._folders.cache.resolve()),
                logs={target.name: self.store.log_path(target.name) for target in targets},
            ),
            cache=layer_cache(self.engine, environment()),
            writable=writable,
        )

    def on_step(self, step: BuildStep) -> None:
        """Report a step of BuildKit."""
        if not step.target:
            return
        self._finished[step.target] = monotonic()
        if step.total_bytes:
            total = step.total_bytes if step.state != "failed" else 0
            self.watch.advance(step.words, step.done_bytes, total)
        if step.line:
            self.watch.line(step.target, step.line)
        elif step.state != "running":
            self.watch.step(step.target, "")
        elif not (step.is_internal or step.total_bytes):
            self.watch.step(step.target, step.words)

    def _result(self, item: Prepared, answers: Mapping[str, Baked]) -> Built:
        cell, baked = item.cell, answers[item.cell.id]
        if baked.engine_gone:
            raise EngineError(
                f"the engine went away while building {cell.id}",
                hint="see `warpfront doctor`; the next build reuses what was finished",
            )
        log = str(self.store.log_path(cell.id))
        failed = partial(
            Failed, cell_id=cell.id, step="build", log=log, exit_code=BuildFailedError.exit_code
        )
        if baked.error:
            return failed(
                reason="the disk is full" if baked.disk_full else baked.error,
                hint="free some space, or `warpfront clean`" if baked.disk_full else f"see {log}",
                kind=FailureKind.INFRASTRUCTURE if baked.disk_full or baked.cache_lost else None,
            )
        image = self.engine.image(cell.local_reference)
        if image is None or image.labels.get(CONTENT_HASH) != item.content_hash:
            return failed(
                reason=f"{cell.local_reference} is not the image that was just built",
                hint="another build moved the tag; build again",
            )
        builder, invocation = read_invocation(environment())
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
            builder=builder,
            invocation=invocation,
        )


def bake_request(
    file: Path,
    targets: Sequence[BakeTarget],
    *,
    engine: Engine,
    site: Site,
    readable: Iterable[Path],
    logs: Mapping[str, Path],
) -> BakeRequest:
    """Write the bake file of some targets, and return how to run it."""
    write_json(file, bake_file(targets))
    return BakeRequest(
        buildx=engine.buildx,
        environment={**engine.build_environment, PROXIES_VARIABLE: proxy_script(site.proxies)},
        file=file,
        targets=tuple(target.name for target in targets),
        readable=(*readable, *([Path(site.certificate)] if site.certificate else [])),
        logs=logs,
        references={target.tag: target.name for target in targets if target.tag},
    )


def layer_cache(engine: Engine, variables: Mapping[str, str]) -> str:
    """Return the repository of the layer cache, "" for none. BuildKit within Docker's own image
    store refuses a cache in a registry, and the whole build with it.
    """
    cache = variables.get(CACHE_VARIABLE, "")
    able = cache and (engine.builds_elsewhere or engine.features().containerd_store)
    return cache if able else ""


def build_secrets(site: Site) -> tuple[str, ...]:
    """Return the site's secrets that a build with network needs and no layer may contain."""
    return (
        *([f"id={CA_SECRET},src={site.certificate}"] if site.certificate else []),
        *([f"type=env,id={PROXIES_SECRET},env={PROXIES_VARIABLE}"] if site.proxies else []),
    )


def is_sealed(cell: Cell, rendered: RenderedImage) -> bool:
    """Return true if this image has a guard of wheels, not of its base's torch."""
    return POLICY in rendered.files and bool(cell.stack)


def write_manifest(
    rendered: RenderedImage, wheelhouse: Wheelhouse, folder: Path, *, cell: Cell
) -> None:
    """Write the manifest of the files that `cell`'s guard protects. Raise `WheelError`."""
    protected = policy_from(json.loads(rendered.files[POLICY])).protected
    wheels = [wheel for wheel in rendered.wheels if wheel.name in protected]
    manifest = Manifest(
        location=stack_location(cell),
        versions={wheel.name: wheel.version for wheel in wheels},
        files={wheel.name: unpacked_files(wheelhouse, wheel, cell.slim) for wheel in wheels},
    )
    write_text(folder / _MANIFEST, manifest_text(manifest))


_NAME = "weights"
_SHOWN = 6


def within_budget(
    cell: Cell, built: BuiltImage, lock: WheelLock, store: Store, wheelhouse: Wheelhouse
) -> BuiltImage | Failed:
    """Return the image if it is within its budget, else a failure with what grew in it."""
    if cell.budget_bytes is None:
        return built
    sizes: dict[str, int] = {}
    with contextlib.suppress(WheelError):  # without its wheels: a reused image needs none
        for wheel in lock.wheels:
            files = unpacked_files(wheelhouse, wheel, cell.slim)
            sizes[f"{wheel.name}=={wheel.version}"] = sum(int(size) for size, *_ in files.values())
    if built.size_bytes <= cell.budget_bytes:
        if sizes:
            store.save(cell.id, _NAME, sizes)
        return built
    # None if of another version: then the largest wheels are listed.
    before: dict[str, int] | None = store.readable(cell.id, _NAME, (dict[str, int],))
    rows = largest(sizes, before)
    lines = [
        f"{name}: {readable_size(size)}" + (f", {readable_size(more)} more" if before else "")
        for name, size, more in rows
    ]
    lines += ["its wheels are as they were"] if sizes and not rows else []
    listed = "".join(f"\n    {line}" for line in lines)
    size, budget = readable_size(built.size_bytes), readable_size(cell.budget_bytes)
    error = BuildFailedError(
        f"its layers take {size}, and its budget is {budget}{listed}",
        hint=f"take something out, or raise `images: {cell.image}: budget:` in matrix.yaml",
    )
    return replace(failed_by(error, cell.id, "build"), log=built.log)


def largest(now: Mapping[str, int], before: Mapping[str, int] | None) -> list[tuple[str, int, int]]:
    """Return (wheel, bytes, bytes more than before) of the wheels that grew the most; of the
    largest where nothing is known of before. A wheel is the same in another version.
    """
    sizes = {name.partition("==")[0]: size for name, size in (before or {}).items()}
    rows = [
        (name, size, size - sizes.get(name.partition("==")[0], 0)) for name, size in now.items()
    ]
    grown = [row for row in rows if row[2] > 0] if before is not None else rows
    return sorted(grown, key=lambda row: (-row[2], row[0]))[:_SHOWN]


_TEMPLATE = 'FROM {{ from_reference }}\n{% include "_shared/apt.j2" %}\n'
_BUILDER = "builder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builders:
    """Images to build wheels in: that of each cell's parent, built if need be, or else its base."""

    matrix: Matrix
    material: Material
    folders: Folders
    site: AskSite
    watch: Watch

    def image(
        self, cell: Cell, locks: Mapping[str, WheelLock], apt: tuple[str, ...]
    ) -> tuple[Engine, str]:
        """Return the engine and the image in it to build in, made now unless it exists: with the
        Debian packages `apt`; `locks` are those of the cell's ancestors.
        """
        engine = connect()
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
        tag = f"localhost/{self.matrix.project.name}/{_BUILDER}:{digest}"
        existing = engine.image(tag)
        if existing is not None:
            return engine, existing.id
        folder = self.folders.store.folder / f".{_BUILDER}" / digest
        template = ImageFile(content=_TEMPLATE.encode())
        images = read_tree(self.folders.root / IMAGES_FOLDER)
        sources = {**images, f"{_BUILDER}/Dockerfile.j2": template}
        variables = {"from_reference": reference, "apt": apt}
        (text,) = render_templates(sources, [RenderRequest(folder=_BUILDER, variables=variables)])
        if not isinstance(text, str):
            raise text
        write_text(folder / "context" / DOCKERFILE, text)
        layouts = folder / "layouts"
        try:
            contexts = {reference: local_context(engine, reference, layouts)} if local else {}
            target = BakeTarget(
                name=_BUILDER,
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
            logs={_BUILDER: log},
        )
        baked = bake(request, lambda _: None)[_BUILDER]
        image = engine.image(target.tag)
        if baked.error or image is None:
            raise CommandFailedError(f"{refusal}: {baked.error}", hint=f"see {log}")
        return image.id
