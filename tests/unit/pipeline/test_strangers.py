"""What a pulled image of no cell here is held against: the last statement of its making that is
attached and holds; where there is none, its labels.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bills import a_bill, a_making
from builders import a_lock
from fakes import FakeEngine
from releases import CPU, PROJECT, REPOSITORY, Quiet, World, a_world
from stub_registry import attach_one

from warpfront.commands.adopting import attached_making, is_locked_by, read_digest, verify_claimed
from warpfront.errors import InputError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import LOCK
from warpfront.images.preparing import Tools
from warpfront.pipeline.verifying import CheckPlan
from warpfront.release.registry.contract import Artifact
from warpfront.release.statements.predicates import (
    BuildRecord,
    provenance_text,
)
from warpfront.release.statements.statement import MEDIA_TYPE
from warpfront.system.references import Reference, read_reference
from warpfront.system.store import Store
from warpfront.verify.results import Verification
from warpfront.verify.run_options import RunOptions
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions

LABELS = {
    "dev.warpfront.cell": CPU.id,
    "dev.warpfront.vendor": "cpu",
    "dev.warpfront.targets": "x86_64",
    "dev.warpfront.python": "3.11",
    "dev.warpfront.torch": "2.13.0+cpu",
    "org.opencontainers.image.version": "2.13.0-cpu-py3.11",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


def published(world: World) -> Reference:
    world.build(labels=LABELS)
    return read_reference(f"{PROJECT}/torch@{world.published().digest}")


def test_an_image_of_another_lock_is_no_cells_own_though_it_has_its_name(world: World) -> None:
    """Each project that was begun from the same scaffold has cells of the same names."""
    lock = a_lock(CPU)
    image = world.engine.image(world.build(labels={LOCK: lock.digest}))
    other = world.engine.image(world.build(labels={LOCK: "00" * 32}, content="b"))
    assert image is not None
    assert other is not None
    assert is_locked_by(lock, image)
    assert not is_locked_by(lock, other)
    assert not is_locked_by(None, image)


def made_at(created: str) -> BuildRecord:
    return a_making(a_bill(created=created), builder="https://ci.example/1")


def attach(world: World, named: Reference, payload: bytes) -> None:
    subject = world.registry.head(REPOSITORY, named.digest)
    assert subject is not None
    attach_one(
        world.registry,
        REPOSITORY,
        subject,
        Artifact(
            artifact_type=MEDIA_TYPE,
            payload=payload,
            annotations={"dev.warpfront.statement": "provenance"},
        ),
    )


def test_the_last_statement_that_holds_is_what_counts(world: World) -> None:
    named = published(world)
    assert attached_making(world.registry, named) is None
    for created in ("2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00"):
        text = provenance_text(made_at(created), name=PROJECT, digest=named.digest)
        attach(world, named, text.encode())
    of_another = provenance_text(made_at("2026-11-22"), name=PROJECT, digest=f"sha256:{'0' * 64}")
    for damaged in (of_another.encode(), b"\xff", b"[" * 99_999, b"{}"):
        attach(world, named, damaged)
    found = attached_making(world.registry, named)
    assert found is not None
    assert found.created == "2026-11-21T10:00:00+00:00"


def test_what_comes_of_it_is_kept_apart_from_the_cells_of_this_project(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, engine = published(world), FakeEngine()
    engine.registries = world.engine.registries
    monkeypatch.setattr(
        "warpfront.pipeline.verifying.install_toolbox", lambda *_, **__: tmp_path / "toolbox"
    )
    own = Store(tmp_path / "strangers")
    folders = Folders(root=tmp_path, cache=tmp_path / "cache", store=own)
    (found,), (row,) = verify_claimed(
        named,
        None,
        CheckPlan(
            target="", sessions=("load",), effort=CheckOptions(), options=RunOptions(repeat=2)
        ),
        Tools(engine=engine, folders=folders, site=Site),
        Quiet(),
    )
    assert isinstance(found, Verification)  # in this engine nothing runs, which is no pass
    assert (row.cell_id, row.lock, row.verify) == (CPU.id, "not here", "error")
    assert found.environment["again"] == {"times": 2, "outcomes": ["error"] * 2, "flips": []}
    assert own.load(CPU.id, "build", (BuiltImage,)).image_id == found.image_id
    assert engine.image(f"localhost/stranger/{CPU.id}:2.13.0-cpu-py3.11") is not None


def test_only_a_digest_can_be_verified() -> None:
    with pytest.raises(InputError, match="names no digest"):
        read_digest(f"{PROJECT}/torch:latest")
