"""An image on its way as a file: what is verified is the one that was built, or nothing is."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from builders import a_built_image, a_cell, a_child
from fakes import FakeEngine
from releases import Quiet

from warpfront.commands import adopting
from warpfront.commands.adopting import NAME, Candidate, leave_images, take_image
from warpfront.images.built import BuiltImage
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.step_results import Blocked, Failed
from warpfront.system.store import Store
from warpfront.wheels.project_folders import Folders

TORCH = a_cell(targets=("x86_64",))
SERVE = a_child(TORCH)
JOB = f"build-{TORCH.id}"


def built_on(engine: FakeEngine, cell: Cell, content: str) -> BuiltImage:
    labels = {CELL: cell.id, CONTENT_HASH: content, BASE_SOURCE: "registry"}
    image = engine.build(cell.local_reference, labels, content=content)
    return a_built_image(
        cell, image_id=image.id, content_hash=content, reference=cell.local_reference
    )


@pytest.fixture
def builder() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def verifier() -> FakeEngine:
    """Another machine's engine."""
    return FakeEngine()


@pytest.fixture
def handed(builder: FakeEngine, tmp_path: Path) -> Store:
    """What the job of a chain left, of which one image is verified elsewhere."""
    store = Store(tmp_path / "build")
    results = [built_on(builder, TORCH, "ab" * 32), built_on(builder, SERVE, "cd" * 32)]
    for one in results:
        store.save(one.cell_id, "build", one)
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(adopting, "connect", lambda: builder)
        leave_images([TORCH.id], results, JOB, folders_of(store, tmp_path))
    return store


def taken(
    store: Store, engine: FakeEngine, folder: Path, cell: Cell = TORCH
) -> BuiltImage | Blocked | Failed | None:
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(adopting, "connect", lambda: engine)
        return take_image(cell, folders_of(store, folder), Quiet())


def folders_of(store: Store, root: Path) -> Folders:
    return Folders(root=root, cache=root, store=store)


def refused(found: object) -> str:
    assert isinstance(found, Failed), found
    assert found.exit_code == 7
    return found.reason


@pytest.mark.parametrize("around", ["", f"images-{JOB}"])
def test_the_very_image_arrives(
    handed: Store, verifier: FakeEngine, tmp_path: Path, around: str
) -> None:
    into = tmp_path / "handover" / around
    into.mkdir(parents=True)
    shutil.move(tmp_path / "images" / f"images-{JOB}", into / f"images-{JOB}")
    before = handed.load(TORCH.id, "build", (BuiltImage,))
    arrived = taken(handed, verifier, tmp_path)
    assert isinstance(arrived, BuiltImage)
    assert (arrived.image_id, arrived.content_hash) == (before.image_id, before.content_hash)
    assert verifier.image(TORCH.local_reference) is not None
    assert verifier.image(SERVE.local_reference) is None


def test_an_image_that_the_engine_has_needs_no_file(
    handed: Store, builder: FakeEngine, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "images")
    assert isinstance(taken(handed, builder, tmp_path), BuiltImage)
    assert isinstance(taken(handed, builder, tmp_path, SERVE), BuiltImage)


def test_without_its_image_nothing_is_verified_and_nothing_built_in_its_place(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "images")
    assert refused(taken(handed, verifier, tmp_path)) == (
        f"no artifact images-{JOB}, which has its image"
    )
    assert "is not here" in refused(taken(handed, verifier, tmp_path, SERVE))
    assert verifier.stored == {}


def test_a_file_that_was_swapped_is_not_loaded(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    other = FakeEngine()
    built_on(other, TORCH, "ab" * 32)
    other.save([TORCH.local_reference], tmp_path / "images" / f"images-{JOB}" / "images.tar.gz")
    with (tmp_path / "images" / f"images-{JOB}" / "images.tar.gz").open("ab") as file:
        file.write(b"x")
    assert "is not the file that" in refused(taken(handed, verifier, tmp_path))
    assert verifier.stored == {}


def test_another_image_of_the_same_content_is_not_the_one_that_was_built(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    """A second build: content hash and labels as they should be, and another image id."""
    shutil.rmtree(tmp_path / "images")
    labels = {CELL: TORCH.id, CONTENT_HASH: "ab" * 32}
    verifier.build(TORCH.local_reference, labels, content="built again, later")
    assert refused(taken(handed, verifier, tmp_path)).startswith("no artifact images-")


def test_an_image_of_other_content_is_not_taken_for_it(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    """The results were edited to name another content."""
    before = handed.load(TORCH.id, "build", (BuiltImage,))
    handed.save(TORCH.id, "build", dataclasses.replace(before, content_hash="0" * 64))
    assert "content 000000000000" in refused(taken(handed, verifier, tmp_path))


def test_the_engines_of_both_machines_may_name_an_image_differently(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    """One by its configuration, one by its manifest: the archive has both names."""
    file: Candidate = handed.load(TORCH.id, NAME, (Candidate,))
    before = handed.load(TORCH.id, "build", (BuiltImage,))
    assert len(file.identities) == 2
    (config,) = set(file.identities) - {before.image_id}
    handed.save(TORCH.id, "build", dataclasses.replace(before, image_id=config))
    arrived = taken(handed, verifier, tmp_path)
    assert isinstance(arrived, BuiltImage)
    assert arrived.image_id == before.image_id


def test_a_build_that_failed_is_what_its_verification_says(
    handed: Store, verifier: FakeEngine, tmp_path: Path
) -> None:
    failed = Failed(cell_id=TORCH.id, step="build", reason="a step failed", exit_code=6)
    handed.save(TORCH.id, "build", failed)
    assert taken(handed, verifier, tmp_path) == failed
    assert taken(Store(tmp_path / "empty"), verifier, tmp_path) is None
