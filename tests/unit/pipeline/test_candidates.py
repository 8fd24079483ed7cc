"""An image on its way from the machine that built it to those that verify and publish it: the very
one, by its digest in the registry.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import a_built_image, a_cell
from fakes import FakeEngine, FakeRegistry

from warpfront.commands.adopting import (
    NAME,
    Candidate,
    _sent,
    published_already,
    send,
    take_image,
)
from warpfront.errors import RegistryError, RegistryFault
from warpfront.images.baking import Built
from warpfront.images.built import REVISION, BuiltImage
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import Project
from warpfront.matrix.reading import Matrix
from warpfront.matrix.release_channels import Alias, Channel
from warpfront.release.publication import stock_of
from warpfront.release.registry.contract import RegistryManifest
from warpfront.release.retention import not_needed
from warpfront.step_results import Failed
from warpfront.system.store import Store
from warpfront.wheels.project_folders import Folders

CELL_HERE = a_cell(targets=("x86_64",))
REPOSITORY = "registry.test/mine"


class Nobody:
    """Nobody to tell."""

    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


def built_on(engine: FakeEngine, cell: Cell = CELL_HERE, content: str = "ab" * 32) -> BuiltImage:
    labels = {CELL: cell.id, CONTENT_HASH: content, BASE_SOURCE: "registry"}
    image = engine.build(cell.local_reference, labels, content="the image")
    return a_built_image(
        cell, image_id=image.id, content_hash=content, reference=cell.local_reference
    )


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry("registry.test")


@pytest.fixture
def builder(registry: FakeRegistry) -> FakeEngine:
    engine = FakeEngine()
    engine.registries["registry.test"] = registry
    return engine


@pytest.fixture
def verifier(registry: FakeRegistry) -> FakeEngine:
    """Another machine's engine."""
    engine = FakeEngine()
    engine.registries["registry.test"] = registry
    return engine


def handed_over(built: BuiltImage, candidate: Candidate, folder: Path) -> Store:
    store = Store(folder)
    store.save(built.cell_id, "build", built)
    store.save(built.cell_id, NAME, candidate)
    return store


def tools_of(store: Store, engine: FakeEngine) -> Tools:
    folders = Folders(root=store.folder, cache=store.folder, store=store)
    return Tools(engine=engine, folders=folders)


def taken(store: Store, engine: FakeEngine) -> Built | None:
    folders = tools_of(store, engine).folders
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr("warpfront.commands.adopting.connect", lambda: engine)
        return take_image(CELL_HERE, folders, Nobody())


def test_the_very_image_arrives(
    builder: FakeEngine, verifier: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    built = built_on(builder)
    candidate = send(built, REPOSITORY, builder, registry, Nobody())
    assert candidate.reference.startswith(f"{REPOSITORY}/torch@sha256:")
    arrived = taken(handed_over(built, candidate, tmp_path), verifier)
    assert isinstance(arrived, BuiltImage)
    assert (arrived.image_id, arrived.content_hash) == (built.image_id, built.content_hash)
    # The name that nobody was told does not stay in the engine.
    stored = builder.image(built.image_id)
    assert stored is not None
    assert stored.references == (CELL_HERE.local_reference,)


def test_a_candidate_that_nobody_published_is_removed_when_it_is_old(
    builder: FakeEngine, registry: FakeRegistry
) -> None:
    send(built_on(builder), REPOSITORY, builder, registry, Nobody())
    stocks = stock_of(registry, "mine/torch")
    tomorrow, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 15))
    kept = not_needed(stocks, channel="", now=tomorrow.isoformat(), days=14)
    gone = not_needed(stocks, channel="", now=later.isoformat(), days=14)
    assert (len(kept), len(gone)) == (0, 1)


def test_without_a_candidate_there_is_nothing_to_take(verifier: FakeEngine, tmp_path: Path) -> None:
    assert taken(Store(tmp_path), verifier) is None


def test_an_image_of_other_content_is_not_taken_for_it(
    builder: FakeEngine, verifier: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    built = built_on(builder)
    candidate = send(built, REPOSITORY, builder, registry, Nobody())
    said = dataclasses.replace(built, content_hash="cd" * 32)
    wrong = taken(handed_over(said, candidate, tmp_path), verifier)
    assert isinstance(wrong, Failed)
    assert f"is not of {CELL_HERE.id}, content cdcdcdcdcdcd" in wrong.reason


def test_an_image_of_another_cell_is_not_taken_for_it(
    builder: FakeEngine, verifier: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    other = dataclasses.replace(CELL_HERE, id="cpu-another")
    built = dataclasses.replace(built_on(builder, other), cell_id=CELL_HERE.id)
    candidate = send(built, REPOSITORY, builder, registry, Nobody())
    wrong = taken(handed_over(built, candidate, tmp_path), verifier)
    assert isinstance(wrong, Failed)
    assert f"is not of {CELL_HERE.id}" in wrong.reason


def test_a_registry_that_holds_another_image_than_was_pushed_is_found_out(
    builder: FakeEngine, registry: FakeRegistry
) -> None:
    built = dataclasses.replace(built_on(builder), image_id="sha256:" + "0" * 64)
    another = built_on(builder)

    class Mistaken(FakeEngine):
        """It names another image than it was asked to."""

        def tag(self, image_id: str, reference: str) -> None:
            del image_id
            super().tag(another.image_id, reference)

    engine = Mistaken()
    engine.registries, engine.stored, engine.parts = (
        builder.registries,
        builder.stored,
        builder.parts,
    )
    with pytest.raises(RegistryError, match="is not what is there"):
        send(built, REPOSITORY, engine, registry, Nobody())


def test_a_registry_that_is_away_fails_the_cell_as_infrastructure(tmp_path: Path) -> None:
    engine, registry = FakeEngine(), FakeRegistry("registry.test")
    built, store = built_on(engine), Store(tmp_path)
    failed = _sent(built, REPOSITORY, tools_of(store, engine), registry, Nobody())
    assert isinstance(failed, Failed)
    assert failed.kind == "infrastructure"
    assert store.load(built.cell_id, NAME, (Candidate,)) is None


def a_matrix() -> Matrix:
    """A channel whose alias leads to what was published last."""
    channel = Channel(
        name="nightly",
        repository=REPOSITORY,
        tags=("{torch}-{date}",),
        aliases=(Alias(tag="{torch}-nightly", cells=frozenset({CELL_HERE.id})),),
        sessions=(),
        targets="any",
        max_age_hours=48,
    )
    project = Project(name="mine", source="", licenses="", repository=REPOSITORY)
    return Matrix(project=project, cells=(CELL_HERE,), warnings=(), channels=(channel,))


def a_second_build(
    engine: FakeEngine, content: str, layers: str = "the image", **labels: str
) -> BuiltImage:
    """Of another commit, and so another image."""
    labels = {
        CELL: CELL_HERE.id,
        CONTENT_HASH: content,
        BASE_SOURCE: "registry",
        REVISION: "2",
        **labels,
    }
    image = engine.build(CELL_HERE.local_reference, labels, content=layers)
    return a_built_image(
        CELL_HERE, image_id=image.id, content_hash=content, reference=CELL_HERE.local_reference
    )


def look(
    built: BuiltImage, store: Store, engine: FakeEngine, registry: FakeRegistry
) -> BuiltImage | None:
    return published_already(built, a_matrix(), tools_of(store, engine), registry, Nobody())


@pytest.mark.parametrize("content", ["ab" * 32, "cd" * 32], ids=["same content", "other content"])
def test_content_that_is_published_is_not_sent_under_another_digest(
    content: str, builder: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    first = built_on(builder)
    name = f"{REPOSITORY}/torch:{CELL_HERE.torch}-nightly"
    builder.tag(first.image_id, name)
    builder.push(name, lambda *_: None)
    other = FakeEngine()
    other.registries["registry.test"] = registry
    again = a_second_build(other, content)
    assert again.image_id != first.image_id
    store = Store(tmp_path)
    found = look(again, store, other, registry)
    if content != first.content_hash:
        assert found is None
        return
    assert found is not None
    assert (found.image_id, found.content_hash) == (first.image_id, content)
    assert store.load(CELL_HERE.id, "build", (BuiltImage,)) == found
    candidate: Candidate = store.load(CELL_HERE.id, NAME, (Candidate,))
    assert candidate.reference == f"{REPOSITORY}/torch@{first.image_id}"


@pytest.mark.parametrize(
    "forged",
    [{"layers": "another"}, {"org.opencontainers.image.title": "x"}],
    ids=["layers", "label"],
)
def test_the_label_of_a_content_makes_no_image_that_content(
    forged: dict[str, str], builder: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    """Whoever may push can put the label on anything; what was built here is sent then."""
    first = built_on(builder)
    name = f"{REPOSITORY}/torch:{CELL_HERE.torch}-nightly"
    builder.tag(first.image_id, name)
    builder.push(name, lambda *_: None)
    other = FakeEngine()
    other.registries["registry.test"] = registry
    again = a_second_build(other, first.content_hash, **forged)
    assert look(again, Store(tmp_path), other, registry) is None
    assert Store(tmp_path).load(CELL_HERE.id, NAME, (Candidate,)) is None


def test_a_registry_that_does_not_answer_is_not_taken_for_one_without_the_content(
    builder: FakeEngine, tmp_path: Path
) -> None:
    built = built_on(builder)
    failing = FailingRegistry("registry.test")
    with pytest.raises(RegistryError):
        look(built, Store(tmp_path), builder, failing)


class FailingRegistry(FakeRegistry):
    """One that is out of reach."""

    def manifest(self, repository: str, reference: str) -> RegistryManifest | None:
        raise RegistryError(
            f"{repository}:{reference} is out of reach",
            registry=self.host,
            step="manifest",
            fault=RegistryFault.SLOW,
            hint="",
        )


def test_a_candidate_that_is_another_image_than_was_built_is_not_taken(
    builder: FakeEngine, verifier: FakeEngine, registry: FakeRegistry, tmp_path: Path
) -> None:
    """The same content hash, built a second time: what was sent is not what is claimed."""
    built = built_on(builder)
    candidate = send(built, REPOSITORY, builder, registry, Nobody())
    edited = dataclasses.replace(candidate, identities=())
    claimed = dataclasses.replace(built, image_id="sha256:" + "1" * 64)
    wrong = taken(handed_over(claimed, edited, tmp_path), verifier)
    assert isinstance(wrong, Failed)
    assert f"and {claimed.image_id} was built" in wrong.reason
