"""Wheels that no index has, built once into the wheelhouse. Edge.

Python code alone is built in isolation, here. What is built against torch is built in a container
of the image that its own will stand on: with that image's torch and no other, with the build tools
that matrix.yaml names, without isolation and without network.
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.errors import CommandFailedError, LockError, WheelError
from warpfront.images.engine.protocol import Bind, Engine, RunRequest
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Recipe, Source
from warpfront.matrix.language import Patch
from warpfront.system.digests import digest_of
from warpfront.system.progress import Line
from warpfront.system.store import read_text, scratch_folder, write_json
from warpfront.system.strict_values import extended
from warpfront.wheels.lock.values import LockedWheel, LockInputs, UnbuiltWheel, WheelLock
from warpfront.wheels.resolve.resolver import Sdist, wheel_of
from warpfront.wheels.sources import Site
from warpfront.wheels.store.archives import archive_commit, archive_folder, metadata_wheel, unpack
from warpfront.wheels.store.patching import Patching, patched_wheel
from warpfront.wheels.store.sdists import install_tools, installed_in, pure_wheel
from warpfront.wheels.store.wheelhouse import Build, Wheelhouse, sha256_of
from warpfront.wheels.uv_program import placed_uv

PATCHED = "patched:"
"""How the source of a wheel begins that was made of another; the index of that one follows."""

BUILD_LIMIT_SECONDS = 4 * 3600.0
_SOURCE, _TOOLS, _UV, _OUT = "/build/source", "/build/tools", "/build/uv", "/build/out"
_TAIL_LINES = 25

Builder = Callable[[tuple[str, ...]], tuple[Engine, str]]
"""An engine and the image in it to build in, with these Debian packages; made when first asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelBuilder:
    """Maker of wheels for `inputs`. `root` is the project's folder, `cache` has tools and
    earlier builds. `python` is the interpreter of the image to build in. Without a `builder` only
    earlier builds are used: for others there is a wheel of metadata alone, and an `UnbuiltWheel`.
    """

    inputs: LockInputs
    root: Path
    cache: Path
    wheelhouse: Wheelhouse
    site: Site
    builder: Builder | None
    on_line: Line
    python: str = ENVIRONMENT_PYTHON

    def from_source(self, source: Source) -> tuple[LockedWheel, Recipe | UnbuiltWheel | None]:
        sdist = self.archived(source)
        folder, name = self.root / source.location, source.name
        if not name and source.kind == "folder":
            text = read_text(folder / "pyproject.toml", missing_ok=True) or ""
            # The build reports a wrong file with its line.
            with contextlib.suppress(ValueError, RecursionError):
                stated = tomllib.loads(text).get("project", {}).get("name")
                name = stated if isinstance(stated, str) else ""
        name = canonicalize_name(name or folder.resolve().name.removesuffix(".git"))
        recipe = next((build for build in self.inputs.builds if build.package == name), None)
        if recipe is not None:
            return self.from_sdist(sdist, recipe)
        wheel = self._made(["pure", sdist.sha256], sdist, name, partial(pure_wheel, site=self.site))
        return (wheel, None) if wheel is not None else self._unbuilt(sdist, name)

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, Recipe | UnbuiltWheel]:
        inputs = self.inputs
        stack = [list(inputs.stack_requirements), list(inputs.parent)]
        key: list[object] = ["container", sdist.sha256]
        key += [inputs.machine, inputs.python, inputs.glibc, *stack, recipe.package]
        key += [list(recipe.tools), list(recipe.apt), list(recipe.environment)]
        wheel = self._made(key, sdist, recipe.package, partial(self._in_container, recipe))
        if wheel is None:
            return self._unbuilt(sdist, recipe.package)
        tools = installed_in(self._tools(recipe.tools))
        return wheel, replace(recipe, package=wheel.name, tools=tools)

    def _in_container(self, recipe: Recipe, sdist: Path, folder: Path) -> Path:
        """Build sources in the cell's own container with a folder of tools."""
        tools = self._tools(recipe.tools)
        self.on_line(f"{self.inputs.cell_id}: building {recipe.package} in its container")
        assert self.builder is not None
        engine, image = self.builder(recipe.apt)
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder() as scratch:
            source = unpack(sdist, scratch)
            request = self._request(image, recipe, tools=tools, source=source, out=folder)
            lines: list[str] = []
            result = engine.run(request, on_line=lines.append)
        built = sorted(folder.glob("*.whl"))
        if result.exit_code != 0 or len(built) != 1:
            raise CommandFailedError(
                f"{self.inputs.cell_id}: {recipe.package} does not build in its container\n"
                + "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:]),
                hint=f"`builds: {recipe.package}:` in matrix.yaml gives its tools, Debian "
                "packages and environment",
            )
        return built[0]

    def from_wheel(self, original: LockedWheel, patches: tuple[Patch, ...]) -> LockedWheel:
        """Return the wheel with patches in it: its archive is the original. Raise `LockError`
        where they are for another version, or upstream has them.
        """
        for patch in patches:
            _refuse_ended(patch, original.version)
        self.wheelhouse.fetch((original,), self.site, on_progress=lambda *_: None)
        patching = Patching(patches=patches, root=self.root)
        with scratch_folder() as folder:
            patched = patched_wheel(self.wheelhouse.path(original), patching, folder)
            stored, sha256 = self.wheelhouse.keep(patched)
        self.on_line(f"{self.inputs.cell_id}: {original.filename} is patched: {stored.name}")
        archive = Sdist(
            path=self.wheelhouse.path(original),
            sha256=original.sha256,
            source=f"{PATCHED}{original.index}",
        )
        return wheel_of(stored, sha256, sdist=archive)

    def restore(self, wheel: LockedWheel, lock: WheelLock) -> None:
        """Build a wheel, or patch it, again by its lock. Raise `WheelError` for other bytes."""
        for patched in lock.patched:
            if patched.package == wheel.name and patched.original:
                again = self.from_wheel(patched.original, patched.patches)
                if again.sha256 != wheel.sha256:
                    raise WheelError(
                        f"{wheel.filename}: patched again it has sha256 {again.sha256}, its lock "
                        f"says {wheel.sha256}",
                        hint=f"warpfront lock --only {self.inputs.cell_id}",
                    )
                return
        for source in self.inputs.sources:
            if str(source) == wheel.source:
                self.archived(source)
        make: Build = partial(pure_wheel, site=self.site)
        for build in lock.builds:
            if build.package == wheel.name:
                make = partial(self._in_container, build)
        make = partial(self._built, make, wheel.name)
        self.wheelhouse.fetch((wheel,), self.site, on_progress=lambda *_: None, build=make)

    def archived(self, source: Source) -> Sdist:
        """Return the sources as an archive in the wheelhouse. A folder must not have changed."""
        name = Path(source.location).name.removesuffix(".git") or self.root.name
        with scratch_folder() as folder:
            target = folder / f"{name}.tar"
            if source.kind == "folder":
                archive_folder(self.root / source.location, target)
            else:
                archive_commit(
                    source.location, source.pin, target, subdirectory=source.subdirectory
                )
            stored, sha256 = self.wheelhouse.keep(target)
        if source.kind == "folder" and sha256 != source.pin:
            raise LockError(f"{source} changed while it was read", hint="lock again")
        return Sdist(path=stored, sha256=sha256, source=str(source))

    def _unbuilt(self, sdist: Sdist, name: str) -> tuple[LockedWheel, UnbuiltWheel]:
        """Return a wheel of what the sources state before they are built, and its description."""
        with scratch_folder() as folder:
            wheel, stated_by = metadata_wheel(sdist.path, name, folder)
            stand_in = wheel_of(*self.wheelhouse.keep(wheel), sdist=sdist)
        return stand_in, extended(UnbuiltWheel, stand_in, package=name, metadata_from=stated_by)

    def _patches(self, name: str) -> tuple[Patch, ...]:
        return tuple(
            patch for patch in self.inputs.patches if patch.package == canonicalize_name(name)
        )

    def _built(self, build: Build, name: str, sdist: Path, folder: Path) -> Path:
        """Build sources; patched ones under a version that names the patches."""
        patches = self._patches(name)
        if not patches:
            return build(sdist, folder)
        patching = Patching(patches=patches, root=self.root)
        with scratch_folder() as work:
            tree = unpack(sdist, work / "source")
            patching.apply(tree)
            archive = archive_folder(tree, work / f"{sdist.name}.tar")
            built = build(archive, folder / "as-built")
            _refuse_ended(patches[0], built.name.split("-")[1])
            return patched_wheel(built, patching, folder, sources=sha256_of(sdist))

    def _made(
        self, key: Iterable[object], sdist: Sdist, name: str, build: Build
    ) -> LockedWheel | None:
        """Return the wheel that was built of the same before, if the wheelhouse still has it, else
        one that is built now; None where nothing is built.
        """
        patched_by = [[patch.sha256, patch.strip, patch.version] for patch in self._patches(name)]
        record = self.cache / "crafted" / f"{digest_of([*key, *patched_by])}.json"
        text = read_text(record, missing_ok=True)
        if text is not None:
            facts = json.loads(text)
            path = self.wheelhouse.root / facts["path"]
            if path.is_file():
                return wheel_of(path, facts["sha256"], sdist=sdist)
        if self.builder is None:
            return None
        with scratch_folder() as folder:
            built = self._built(build, name, sdist.path, folder / "built")
            stored, sha256 = self.wheelhouse.keep(built)
        path = stored.relative_to(self.wheelhouse.root)
        write_json(record, {"path": str(path), "sha256": sha256})
        return wheel_of(stored, sha256, sdist=sdist)

    def _tools(self, requirements: tuple[str, ...]) -> Path:
        return install_tools(
            self.cache / "build-tools",
            requirements,
            python=self.inputs.python,
            machine=self.inputs.machine,
            site=self.site,
            hint="`tools:` names what the build needs; torch is the container's own",
        )

    def _request(
        self, image: str, recipe: Recipe, *, tools: Path, source: Path, out: Path
    ) -> RunRequest:
        path = f"{_TOOLS}/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
        return RunRequest(
            image=image,
            command=(
                *(f"{_UV}/uv", "build", "--wheel", "--no-build-isolation", "--offline"),
                *("--no-config", "--python", self.python, "--out-dir", _OUT, _SOURCE),
            ),
            environment={
                "HOME": "/tmp",  # noqa: S108 - in the container
                "PATH": path,
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": _TOOLS,
                "SOURCE_DATE_EPOCH": "315532800",
                "UV_CACHE_DIR": "/tmp/uv",  # noqa: S108 - in the container
                **dict(recipe.environment),
            },
            binds=(
                Bind(source=placed_uv(self.cache), target=_UV),
                Bind(source=tools, target=_TOOLS),
                Bind(source=source, target=_SOURCE, writable=True),
                Bind(source=out, target=_OUT, writable=True),
            ),
            user=f"{os.getuid()}:{os.getgid()}",
            workdir=_SOURCE,
            time_limit_seconds=BUILD_LIMIT_SECONDS,
        )


def _refuse_ended(patch: Patch, version: str) -> None:
    """Raise `LockError` for a version that has the patch already, by `until:`."""
    if patch.until and Requirement(patch.until).specifier.contains(version, prereleases=True):
        raise LockError(
            f"{patch.file}: upstream has it: {patch.package} is {version}, and the patch is until "
            f"{patch.until}",
            hint="remove the patch from matrix.yaml",
        )
