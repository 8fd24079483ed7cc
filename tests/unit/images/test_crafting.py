"""Wheels that no index has: built once, against the torch of their cell, with nothing from
outside.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeEngine
from standins import serve_index, stand_in_wheel

from warpfront.errors import CommandFailedError, LockError, WheelError
from warpfront.images.engine.protocol import Engine, RunRequest
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import Recipe, Source, WheelIndex
from warpfront.matrix.language import Patch
from warpfront.system.progress import Line
from warpfront.wheels.lock.pylock import dump_lock, read_lock, staleness
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.resolve.resolving import resolve_by_uv as resolve
from warpfront.wheels.sources import Site
from warpfront.wheels.store.archives import folder_sha256
from warpfront.wheels.store.wheelhouse import Wheelhouse

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]

RECIPE = Recipe(package="flash", tools=("setuptools", "wheel"), extensions=("flash_core",))
NEEDS_TORCH = "import torch\nfrom setuptools import setup\nsetup(name='flash', version='1.0')\n"


class Container:
    """Stands in for uv in a container: writes a wheel where it is told to, or fails."""

    def __init__(
        self, requires: tuple[str, ...] = ("torch==2.13.0",), marker: str = "first bytes"
    ) -> None:
        self.requires, self.marker = requires, marker
        self.fails = False

    def __call__(self, request: RunRequest, on_line: Line) -> int:
        out = next(bind.source for bind in request.binds if bind.target.endswith("/out"))
        if self.fails:
            on_line("error: no compiler")
            return 1
        tag = "cp311-cp311-linux_x86_64"
        files: dict[str, str | bytes] = {"flash_core.so": self.marker}
        stand_in_wheel(out, "flash", "1.0", requires=self.requires, files=files, tag=tag)
        return 0


class Bench:
    """A project, its wheelhouse, an index and an engine in memory."""

    def __init__(self, root: Path, index: Path, url: str) -> None:
        self.root, self.index = root, index
        self.site = Site(index_url=url)
        self.house = Wheelhouse(root / "house")
        self.engine = FakeEngine()
        self.container = Container()
        self.engine.programs["/build/uv/uv"] = self.container
        self.image = self.engine.build("localhost/test/torch:1", {}).id
        self.asked_apt: list[tuple[str, ...]] = []

    def inputs(self, **changes: object) -> LockInputs:
        facts: dict[str, object] = {
            "cell_id": "cell",
            "python": "3.11",
            "machine": "x86_64",
            "glibc": "2.36",
            "index": WheelIndex(name="cpu", url=self.site.index_url),
            "stack_requirements": ("torch==2.13.0+cpu",),
            "requirements": (),
            "parent": ("torch==2.13.0+cpu",),
            "protected": ("torch", "torchvision", "torchaudio"),
        }
        return LockInputs(**(facts | changes))  # type: ignore[arg-type]

    def builder(self, inputs: LockInputs) -> WheelBuilder:
        def builder(apt: tuple[str, ...]) -> tuple[Engine, str]:
            self.asked_apt.append(apt)
            return self.engine, self.image

        return WheelBuilder(
            inputs=inputs,
            root=self.root,
            cache=self.root / "cache",
            wheelhouse=self.house,
            site=self.site,
            builder=builder,
            on_line=lambda _: None,
        )

    def lock_without_building(self, inputs: LockInputs) -> WheelLock:
        builder = replace(self.builder(inputs), builder=None)
        return self.lock(inputs, builder)

    def lock(self, inputs: LockInputs, builder: WheelBuilder | None = None) -> WheelLock:
        return resolve(
            inputs,
            self.site,
            on_line=lambda _: None,
            wheelhouse=self.house,
            crafting=builder or self.builder(inputs),
        )

    def folder(self, name: str, files: dict[str, str]) -> Source:
        folder = self.root / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
        return Source(kind="folder", location=name, pin=folder_sha256(folder))


def sdist(folder: Path, setup: str, demands: str = "") -> None:
    project = folder.parent / "flash-1.0"
    project.mkdir()
    (project / "setup.py").write_text(setup)
    head = "Metadata-Version: 2.1\nName: flash\nVersion: 1.0\n"
    (project / "PKG-INFO").write_text(head + demands)
    with tarfile.open(folder / "flash-1.0.tar.gz", "w:gz") as archive:
        archive.add(project, "flash-1.0")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    index = tmp_path / "index"
    stand_in_wheel(index, "torch", "2.13.0+cpu")
    for tool in ("setuptools", "wheel"):
        stand_in_wheel(index, tool, "80.9.0" if tool == "setuptools" else "0.45.1")
    sdist(index, NEEDS_TORCH)
    (tmp_path / "project").mkdir()
    with serve_index(index, name="simple") as served:
        yield Bench(tmp_path / "project", index, served.url)


def test_an_archive_of_an_index_is_built_against_the_cells_torch_and_locked(bench: Bench) -> None:
    inputs = bench.inputs(requirements=("flash",), builds=(RECIPE,))
    lock = bench.lock(inputs)
    (flash,) = [wheel for wheel in lock.wheels if wheel.name == "flash"]
    assert flash.sdist == "flash-1.0.tar.gz"
    assert len(flash.sdist_sha256) == 64
    assert bench.house.missing([flash]) == ()
    (build,) = lock.builds
    assert build.tools == ("setuptools==80.9.0", "wheel==0.45.1")
    assert build.extensions == ("flash_core",)
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock
    assert staleness(lock, inputs) == ""


def test_a_lock_that_builds_nothing_names_what_is_to_be_built_and_resolves_what_it_states(
    bench: Bench,
) -> None:
    """Its PKG-INFO demands einops and safe, its wheel einops alone: the wheel decides."""
    shutil.rmtree(bench.index.parent / "flash-1.0")
    sdist(bench.index, NEEDS_TORCH, "Requires-Dist: einops\nRequires-Dist: safe\n")
    stand_in_wheel(bench.index, "einops", "0.8.1")
    stand_in_wheel(bench.index, "safe", "1.0")
    inputs = bench.inputs(requirements=("flash",), builds=(RECIPE,))
    lock = bench.lock_without_building(inputs)
    assert bench.engine.requests == []
    assert {wheel.name for wheel in lock.wheels} == {"torch", "einops", "safe"}
    (flash,) = lock.unbuilt
    assert (flash.package, flash.version, flash.metadata_from) == ("flash", "1.0", "PKG-INFO")
    assert (flash.sdist, len(flash.sdist_sha256)) == ("flash-1.0.tar.gz", 64)
    text = dump_lock(lock)
    assert 'sha256 = "unbuilt"' in text
    assert read_lock(text, path="pylock.cell.toml") == lock
    assert staleness(lock, inputs) == "to be built: flash 1.0"
    bench.container.requires = ("torch==2.13.0", "einops")
    complete = bench.lock(inputs)
    assert {wheel.name for wheel in complete.wheels} == {"torch", "einops", "flash"}
    assert complete.unbuilt == ()
    assert bench.lock_without_building(inputs) == complete, "what was built once is known"


@pytest.mark.parametrize(
    ("project", "version", "stated_by"),
    [
        (
            'version = "2.0"\ndependencies = ["einops"]',
            "2.0",
            "pyproject.toml",
        ),
        ('dynamic = ["version"]', "0", ""),
        ('version = "2.0"\ndynamic = ["dependencies"]', "0", ""),
        ('version = "not one"', "0", ""),
    ],
)
def test_a_folder_is_resolved_by_the_static_fields_of_its_project_or_by_nothing(
    bench: Bench, project: str, version: str, stated_by: str
) -> None:
    stand_in_wheel(bench.index, "einops", "0.8.1")
    source = bench.folder("ext", {"pyproject.toml": f'[project]\nname = "Flash"\n{project}\n'})
    lock = bench.lock_without_building(bench.inputs(sources=(source,), builds=(RECIPE,)))
    (flash,) = lock.unbuilt
    assert (flash.version, flash.metadata_from, flash.source) == (version, stated_by, "./ext")
    assert ("einops" in {wheel.name for wheel in lock.wheels}) == bool(stated_by)


def test_a_container_builds_without_isolation_on_the_given_image(bench: Bench) -> None:
    recipe = Recipe(
        package="flash", tools=("wheel",), apt=("g++",), environment=(("MAX_JOBS", "2"),)
    )
    bench.lock(bench.inputs(requirements=("flash",), builds=(recipe,)))
    (request,) = bench.engine.requests
    assert request.image == bench.image
    assert {"--no-build-isolation", "--offline"} <= set(request.command)
    assert request.environment["MAX_JOBS"] == "2"
    assert request.environment["SOURCE_DATE_EPOCH"]
    assert bench.asked_apt == [("g++",)]
    assert not [bind for bind in request.binds if bind.writable and "tools" in bind.target]


def test_the_same_is_built_once_and_for_another_torch_again(bench: Bench) -> None:
    inputs = bench.inputs(requirements=("flash",), builds=(RECIPE,))
    assert bench.lock(inputs) == bench.lock(inputs)
    assert len(bench.engine.requests) == 1
    stand_in_wheel(bench.index, "torch", "2.13.1+cpu")
    bench.container.requires = ()
    pins = ("torch==2.13.1+cpu",)
    bench.lock(
        bench.inputs(
            requirements=("flash",), builds=(RECIPE,), stack_requirements=pins, parent=pins
        )
    )
    assert len(bench.engine.requests) == 2


def test_a_built_wheel_that_wants_another_torch_is_refused_with_its_chain(bench: Bench) -> None:
    bench.container.requires = ("torch==2.8.0",)
    with pytest.raises(LockError, match=r"flash 1\.0 -> torch==2\.8\.0, but this cell holds"):
        bench.lock(bench.inputs(requirements=("flash",), builds=(RECIPE,)))


def test_a_build_that_fails_shows_the_containers_words(bench: Bench) -> None:
    bench.container.fails = True
    with pytest.raises(CommandFailedError, match="no compiler") as caught:
        bench.lock(bench.inputs(requirements=("flash",), builds=(RECIPE,)))
    assert "builds: flash" in caught.value.hint


def test_a_recipe_for_what_nothing_asks_for_is_an_error(bench: Bench) -> None:
    recipe = Recipe(package="flush", tools=("wheel",))
    with pytest.raises(LockError, match=r"flush"):
        bench.lock(bench.inputs(requirements=("flash",), builds=(RECIPE, recipe)))


def test_a_machine_that_lacks_the_wheel_builds_it_again_and_takes_no_other(bench: Bench) -> None:
    inputs = bench.inputs(requirements=("flash",), builds=(RECIPE,))
    lock = bench.lock(inputs)
    (flash,) = [wheel for wheel in lock.wheels if wheel.name == "flash"]
    bench.house.path(flash).unlink()
    bench.builder(inputs).restore(flash, lock)
    assert bench.house.missing([flash]) == ()
    bench.house.path(flash).unlink()
    bench.container.marker = "other bytes"
    with pytest.raises(WheelError, match=r"flash-1\.0.*(wrong bytes|its lock says)"):
        bench.builder(inputs).restore(flash, lock)


def test_a_folder_that_is_built_against_torch_goes_to_the_container(bench: Bench) -> None:
    text = '[project]\nname = "Flash"\nversion = "1.0"\n'
    source = bench.folder("ext", {"setup.py": NEEDS_TORCH, "pyproject.toml": text})
    lock = bench.lock(bench.inputs(sources=(source,), builds=(RECIPE,)))
    (flash,) = [wheel for wheel in lock.wheels if wheel.name == "flash"]
    assert (flash.source, flash.index, flash.sdist) == ("./ext", "", "ext.tar")
    assert flash.sdist_sha256 == source.pin
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock
    assert len(bench.engine.requests) == 1


def test_patched_sources_are_what_is_built_under_a_version_that_says_so(bench: Bench) -> None:
    """The patch is in what the container is given; the wheel that comes out is relabelled."""
    text = (
        "--- a/setup.py\n+++ b/setup.py\n@@ -1,3 +1,4 @@\n import torch\n+import hpu\n"
        " from setuptools import setup\n setup(name='flash', version='1.0')\n"
    )
    (bench.root / "hpu.patch").write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    patch = Patch(package="flash", version="1.0", file="hpu.patch", sha256=sha256, reason="why")
    given: list[str] = []

    def container(request: RunRequest, on_line: Line) -> int:
        source = next(one.source for one in request.binds if one.target.endswith("/source"))
        given.append((source / "setup.py").read_text())
        return bench.container(request, on_line)

    bench.engine.programs["/build/uv/uv"] = container
    inputs = bench.inputs(requirements=("flash",), builds=(RECIPE,), patches=(patch,))
    lock = bench.lock(inputs)
    assert given == [NEEDS_TORCH.replace("import torch\n", "import torch\nimport hpu\n")]
    (flash,) = [wheel for wheel in lock.wheels if wheel.name == "flash"]
    assert flash.version.startswith("1.0+wf.p")
    assert flash.sdist == "flash-1.0.tar.gz"
    (patched,) = lock.patched
    assert patched.original is None
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock
    bench.house.path(flash).unlink()
    bench.builder(inputs).restore(flash, lock)
    assert bench.house.missing([flash]) == ()
    stale = bench.inputs(
        requirements=("flash",), builds=(RECIPE,), patches=(replace(patch, version="2.0"),)
    )
    with pytest.raises(LockError, match=r"is for flash 2\.0, and 1\.0 is what"):
        bench.lock(stale)
