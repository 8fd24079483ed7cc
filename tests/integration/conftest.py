"""One engine for all, as it is found; caches of their own where a test breaks them."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest
from adversary.images import build
from adversary.stacks import STACKS, Stack
from filelock import FileLock
from projects import (
    CPU_CELL,
    REPOSITORY,
    SITE_VARIABLES,
    UNIQUE_IMAGES,
    EngineWithBase,
    Project,
    copy_project,
    small_torch,
)
from standins import Index, serve_index

from warpfront.images.engine import embedded
from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.labels import CELL
from warpfront.matrix.cell import BaseSource
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.process import cache_folder, environment, run
from warpfront.wheels.sources import read_site
from warpfront.wheels.store.sdists import install_toolbox
from warpfront.wheels.store.wheelhouse import Wheelhouse

# What is fetched once per machine and says nothing of the project under test.
SHARED = ("bases", "packages", "toolbox")


# A file stays with one worker, and the longest come first: by their number of tests, as xdist would
# have them, one that builds an image in each of few would run alone at the end. A worker is given
# its next file when two tests are left, so what is short has to come last. Of the first five one
# builds the CPU image, and none waits for it; an engine without images is asked for a base of
# each compiler at once.
LONGEST = (
    "cpu_path",
    "compile",
    "compile_cuda",
    "workflows",
    "faults",
    "publishing",
    "guard_suite",
    "compile_extension",
    "image_files",
    "spreading",
    "layers",
    "rocm_path",
    "examples",
    "composed",
    "reproducible",
    "toolchain",
    "devices",
    "secrets",
    "rocm_lock",
    "expressions",
    "stacks",
    "attestations",
    "page",
    "ci_page",
    "guard_adopt",
    "screenshots",
    "package_index",
    "audit",
)
LONGEST_FIRST = tuple(f"test_{name}.py" for name in LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        ranked = item.path.parent == here and item.path.name in LONGEST_FIRST
        return LONGEST_FIRST.index(item.path.name) if ranked else len(LONGEST_FIRST)

    items.sort(key=place)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that commands on this machine use; `scripts/test` starts one where there is
    none. Images of the tests go with them.
    """
    found = connect(environment())
    yield found
    for image in found.images(CELL):
        if any(name in image.labels[CELL] for name in UNIQUE_IMAGES):
            for name in image.references:  # the builders of their wheels, too
                found.remove(name)


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[docker.DockerClient]:
    """The SDK, for looking at what the program left in the engine."""
    made = docker.DockerClient(base_url=engine.name)
    yield made
    made.close()


@pytest.fixture(scope="session")
def toolbox() -> Path:
    """nox, in this user's cache: made once per machine."""
    return install_toolbox(
        cache_folder(),
        Wheelhouse(cache_folder() / "wheelhouse"),
        site=lambda: read_site(run),
        on_progress=lambda *_: None,
    )


@pytest.fixture(scope="session")
def here(engine: Engine) -> dict[str, str]:
    """This machine's own environment: its engine, its indexes, its cache."""
    return {**os.environ, "DOCKER_HOST": engine.name}


@pytest.fixture(scope="session")
def guarded(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stack]:
    """Give the guarded image of a kind, built or found built; by one worker, for all."""
    everybodys = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        everybodys = everybodys.parent

    def built(kind: str) -> Stack:
        with FileLock(everybodys / f"guarded-{kind}.lock"):
            build(STACKS[kind], tmp_path_factory.mktemp(kind), engine.name)
        return STACKS[kind]

    return functools.cache(built)


@pytest.fixture(scope="session")
def cpu_image(guarded: Callable[[str], Stack]) -> str:
    """The CPU image of this repository."""
    return guarded("cpu").reference


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache, but for what every project of this machine shares."""
    folder = tmp_path / "cache" / "warpfront"
    folder.mkdir(parents=True)
    for name in SHARED:
        (cache_folder() / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(cache_folder() / name)
    return folder


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """A loopback index of the small stand-in torch. Tests that break one serve their own."""
    with serve_index(small_torch(tmp_path_factory.mktemp("index")), name="cpu") as served:
        yield served


@pytest.fixture
def alone(engine: Engine, toolbox: Path, cache: Path, index: Index) -> dict[str, str]:
    """The environment of a machine that knows one index on loopback and nothing else, but has the
    toolbox.
    """
    assert toolbox.is_dir()
    inherited = {name: text for name, text in os.environ.items() if name not in SITE_VARIABLES}
    return {
        **inherited,
        "DOCKER_HOST": engine.name,
        "XDG_CACHE_HOME": str(cache.parent),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index.url,
        "UV_CACHE_DIR": str(cache.parent / "uv"),
    }


@pytest.fixture(scope="session")
def own_project(tmp_path_factory: pytest.TempPathFactory, here: dict[str, str]) -> Project:
    """This repository's own matrix, images and locks, with a build folder of its own."""
    return Project(root=copy_project(tmp_path_factory.mktemp("own")), environment=here)


@pytest.fixture
def state() -> Iterator[Path]:
    """For the data of an engine of a test's own: gone with the test."""
    if os.geteuid():
        pytest.skip("the embedded engine needs root")
    with tempfile.TemporaryDirectory(prefix="warpfront-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def engine_with_base(engine: Engine) -> EngineWithBase:
    """Run an engine with its data in a folder, and the base of small projects as everybody's engine
    has it: an import would pack it again, for more than half of its processor time.
    """
    (cell,) = (one for one in open_workspace(REPOSITORY).matrix.cells if one.id == CPU_CELL)
    base = resolve_base(cell.base, engine, cache=cache_folder(), on_line=print)

    @contextmanager
    def started(state: Path) -> Iterator[embedded.EnginePlace]:
        with running(state) as place:
            if base.source is BaseSource.BOOTSTRAP:
                copy_image(base.reference, engine.name, place.host)
            yield place

    return started


def copy_image(reference: str, host: str, other: str) -> None:
    with (
        closing(docker.DockerClient(base_url=host)) as ours,
        closing(docker.DockerClient(base_url=other)) as theirs,
    ):
        theirs.images.load(b"".join(ours.images.get(reference).save(named=True)))


@pytest.fixture
def own_engine(state: Path, engine_with_base: EngineWithBase) -> Iterator[embedded.EnginePlace]:
    """An engine that a test may kill; no other test meets it."""
    with engine_with_base(state) as place:
        yield place


@pytest.fixture
def another_engine() -> Iterator[embedded.EnginePlace]:
    """One that has never met the first, nor a base."""
    with (
        tempfile.TemporaryDirectory(prefix="warpfront-test-") as folder,
        running(Path(folder)) as place,
    ):
        yield place


@contextmanager
def running(state: Path) -> Iterator[embedded.EnginePlace]:
    embedded.start(cache_folder(), state, print)
    try:
        yield embedded.EnginePlace(state=state)
    finally:
        embedded.stop(cache_folder(), state, print)
