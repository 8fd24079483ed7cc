"""A build with nothing to do: what it asks for, and what it says of the images it reuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import a_built_image, a_lock, make_project
from fakes import FakeEngine

from warpfront.images.baking import build_cells
from warpfront.images.built import BuiltImage, ResolvedBase
from warpfront.images.engine.protocol import StoredImage
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import CellInputs, Prepared, Tools, prepare_cells, render_cells
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.wheels.sources import Site


class Quiet:
    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_project(tmp_path)
    return open_workspace(tmp_path)


@pytest.fixture
def cell(workspace: Workspace) -> Cell:
    return workspace.matrix.cells[0]


@pytest.fixture
def engine(workspace: Workspace, cell: Cell) -> FakeEngine:
    """An engine that holds the base, and the cell's image with the right content."""
    engine = FakeEngine()
    engine.build(cell.base.pinned, {})
    base = ResolvedBase(
        name=cell.base.name,
        source=BaseSource.REGISTRY,
        reference=cell.base.pinned,
        identity=cell.base.digest,
    )
    locks, bases = {cell.id: a_lock(cell)}, {cell.base.name: base}
    rendered = render_cells([cell], locks, workspace.material)
    prepared = prepare_cells([cell], rendered, locks, bases, {})[cell.id]
    assert isinstance(prepared, Prepared)
    engine.build(cell.local_reference, {CONTENT_HASH: prepared.content_hash})
    return engine


def nobody_asks() -> Site:
    raise AssertionError("pip was asked for its configuration, and nothing had to be fetched")


def reused(workspace: Workspace, cell: Cell, engine: FakeEngine) -> BuiltImage:
    results = build_cells(
        CellInputs(
            cells=(cell,),
            locks={cell.id: a_lock(cell)},
            matrix=workspace.matrix,
            material=workspace.material,
        ),
        Tools(engine=engine, folders=workspace.folders, site=nobody_asks),
        Quiet(),
    )
    result = results[cell.id]
    assert isinstance(result, BuiltImage)
    assert result.reused
    return result


def the_image(engine: FakeEngine, cell: Cell) -> StoredImage:
    image = engine.image(cell.local_reference)
    assert image is not None
    return image


def test_a_build_with_nothing_to_do_does_not_ask_pip(
    workspace: Workspace, cell: Cell, engine: FakeEngine
) -> None:
    assert reused(workspace, cell, engine).image_id == the_image(engine, cell).id


def test_pip_is_asked_once_something_has_to_be_built(workspace: Workspace, cell: Cell) -> None:
    empty = FakeEngine()
    empty.build(cell.base.pinned, {})
    with pytest.raises(AssertionError, match="pip was asked"):
        reused(workspace, cell, empty)


def test_a_reused_image_has_the_size_that_its_build_measured(
    workspace: Workspace, cell: Cell, engine: FakeEngine
) -> None:
    built = a_built_image(cell, image_id=the_image(engine, cell).id, size_bytes=123_456)
    workspace.folders.store.save(cell.id, "build", built)
    assert reused(workspace, cell, engine).size_bytes == 123_456
    assert reused(workspace, cell, engine).size_bytes == 123_456, "also the second time"


def test_the_size_of_another_image_is_not_taken_for_this_ones(
    workspace: Workspace, cell: Cell, engine: FakeEngine
) -> None:
    workspace.folders.store.save(cell.id, "build", a_built_image(cell, size_bytes=123_456))
    size = the_image(engine, cell).size_bytes
    assert reused(workspace, cell, engine).size_bytes == size


def test_an_unreadable_record_of_a_build_does_not_stop_the_next_one(
    workspace: Workspace, cell: Cell, engine: FakeEngine
) -> None:
    path = workspace.folders.store.save(cell.id, "build", a_built_image(cell))
    path.write_text('{"schema": 0}', encoding="utf-8")
    size = the_image(engine, cell).size_bytes
    assert reused(workspace, cell, engine).size_bytes == size
    assert workspace.folders.store.load(cell.id, "build", (BuiltImage,)).size_bytes == size
