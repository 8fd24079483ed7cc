"""One name for an image of two machines: put when both are there, of one revision and proven, and
when each holds programs of its machine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import a_cell, a_channel
from elf_images import AARCH64, X86_64
from releases import (
    CPU,
    NOW,
    REPOSITORY,
    FakeCosign,
    World,
    a_signer,
    a_world,
)

from warpfront.commands.channels import CarriedImages, ChannelRepositories, export_image
from warpfront.errors import InputError
from warpfront.images.built import REVISION
from warpfront.images.labels import CELL
from warpfront.matrix.cell import Cell
from warpfront.matrix.release_channels import Alias, Channel
from warpfront.release.ledger import Publication, staged_tag
from warpfront.release.publication import aliases_before
from warpfront.release.publish_context import publish_cells
from warpfront.release.registry.copying import Repository
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.retention import not_needed
from warpfront.report.described import describe
from warpfront.step_results import Failed
from warpfront.system.process import Command, Completed

ARM = a_cell(
    id="cpu-aarch64-py311-torch2130-torch",
    machine="aarch64",
    targets=("aarch64",),
    tag="2.13.0-cpu-aarch64-py3.11",
)
BOTH = (CPU, ARM)
ALIAS = Alias(tag="latest", cells=frozenset(one.id for one in BOTH))
CHANNEL = a_channel(tags=("{torch}-{machine}", "{torch}"), aliases=(ALIAS,), allow=("unsigned",))


def built(world: World, cell: Cell, content: str = "a", **how: Any) -> str:
    """As a machine of its own builds it."""
    arm = cell is ARM
    said: dict[str, Any] = {
        "says": "arm64" if arm else "amd64",
        "holds": AARCH64 if arm else X86_64,
        "facts": {"machine": cell.machine},
    }
    return world.build(cell, content=f"{content}{cell.machine}", **(said | how))


def published(world: World, *cells: Cell, channel: Channel = CHANNEL) -> dict[str, Publication]:
    found = world.publish_of(BOTH, *cells, channel=channel)
    assert all(isinstance(one, Publication) for one in found.values()), found
    return found  # type: ignore[return-value]


def machines_of(world: World, tag: str) -> dict[str, str]:
    """Architecture -> digest, of what is under a tag."""
    body, _ = world.registry.manifests[REPOSITORY, world.registry.tagged[REPOSITORY, tag]]
    listed = json.loads(body)["manifests"]
    return {one["platform"]["architecture"]: one["digest"] for one in listed}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


def test_two_that_are_published_together_get_an_index_under_each_shared_name(world: World) -> None:
    for cell in BOTH:
        built(world, cell)
    found = published(world, *BOTH)
    digests = {"amd64": found[CPU.id].digest, "arm64": found[ARM.id].digest}
    assert machines_of(world, "2.13.0") == machines_of(world, "latest") == digests
    assert set(world.public) == {"2.13.0-x86_64", "2.13.0-aarch64", "2.13.0", "latest"}
    assert world.public["2.13.0"] == world.public["latest"]
    for one in found.values():
        assert all(index.digest and not index.waits for index in one.indexes)
        assert "index latest of aarch64, x86_64: sha256:" in describe(one)
    ledger = world.ledger()
    assert {index.tag for one in ledger.publications for index in one.indexes} == {
        "2.13.0",
        "latest",
    }


def test_the_first_waits_for_the_second_whoever_publishes_that(world: World) -> None:
    built(world, CPU)
    first = published(world, CPU)[CPU.id]
    assert [index.waits for index in first.indexes] == [("aarch64, which is not there",)] * 2
    assert "index latest waits for aarch64" in describe(first)
    assert set(world.public) == {"2.13.0-x86_64"}
    built(world, ARM)
    second = published(world, ARM)[ARM.id]
    assert not any(index.waits for index in second.indexes)
    assert set(machines_of(world, "latest")) == {"amd64", "arm64"}


def test_once_more_changes_nothing(world: World) -> None:
    for cell in BOTH:
        built(world, cell)
    published(world, *BOTH)
    before = dict(world.registry.tagged)
    published(world, ARM)
    published(world, *BOTH)
    left = {key: one for key, one in world.registry.tagged.items() if "-2026" not in key[1]}
    assert left == {key: one for key, one in before.items() if "-2026" not in key[1]}
    assert aliases_before(world.registry, REPOSITORY, world.public["latest"]) == {"latest": ""}


def test_images_of_unknown_revisions_are_not_known_to_be_of_one(world: World) -> None:
    for cell in BOTH:
        built(world, cell, labels={REVISION: ""})
    waits = [index.waits for one in published(world, *BOTH).values() for index in one.indexes]
    assert waits == [
        (f"{machine}, which is of revision unknown",)
        for machine in ("aarch64", "aarch64", "x86_64", "x86_64")
    ]


def test_an_alias_goes_on_when_both_are_of_the_next_revision(world: World) -> None:
    channel = a_channel(
        tags=("{revision}-{machine}",), aliases=(ALIAS,), allow=("unsigned",), name="nightly"
    )
    for cell in BOTH:
        built(world, cell)
    published(world, *BOTH, channel=channel)
    before = world.public["latest"]
    built(world, CPU, "b", labels={REVISION: "b" * 12}, created="2026-11-21T10:00:00+00:00")
    waiting = published(world, CPU, channel=channel)[CPU.id]
    assert waiting.indexes[0].waits == ("aarch64, which is of revision 0123456789ab",)
    assert world.public["latest"] == before
    built(world, ARM, "b", labels={REVISION: "b" * 12}, created="2026-11-21T10:00:00+00:00")
    published(world, ARM, channel=channel)
    after = world.public["latest"]
    assert after != before
    assert aliases_before(world.registry, REPOSITORY, after) == {"latest": before}
    assert machines_of(world, "latest")["amd64"] == waiting.digest


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"holds": X86_64}, "/usr/bin/env in it is for amd64"),
        ({"says": "amd64"}, "its config says linux/amd64"),
    ],
)
def test_a_part_of_another_machine_keeps_the_name_from_both(
    world: World, wrong: dict[str, Any], reason: str
) -> None:
    """Their own names say no machine to whoever pulls them; an index does."""
    built(world, CPU)
    built(world, ARM, **wrong)
    found = world.publish_of(BOTH, *BOTH, channel=CHANNEL)
    for one in found.values():
        assert isinstance(one, Failed)
        assert reason in one.reason
        assert one.reason.startswith("its own names are set")
    assert {"2.13.0", "latest"}.isdisjoint(world.public)
    assert len(world.ledger().refusals) == 2


def test_a_tag_that_never_moves_is_on_one_index(world: World) -> None:
    for cell in BOTH:
        built(world, cell)
    published(world, *BOTH)
    before = dict(world.public)
    told = a_channel(tags=("{content}", "{torch}"), allow=("unsigned",))
    built(world, CPU, "b")
    found = world.publish_of(BOTH, CPU, channel=told)[CPU.id]
    assert isinstance(found, Failed)
    assert "2.13.0 never moves" in found.reason
    assert {tag: world.public[tag] for tag in before} == before


def test_what_is_staged_has_to_be_proven_for_the_channel(world: World) -> None:
    """Whoever may push can stage anything."""
    built(world, ARM)
    nightly = a_channel(name="nightly", tags=("{content}",), allow=("unsigned",))
    other = published(world, ARM, channel=nightly)[ARM.id]
    body, kind = world.registry.manifests[REPOSITORY, other.digest]
    for tag in ("2.13.0", "latest"):
        world.registry.put_manifest(REPOSITORY, staged_tag(tag, "aarch64"), body, kind)
    built(world, CPU)
    found = published(world, CPU)[CPU.id]
    assert {one.waits for one in found.indexes} == {("aarch64, which nobody proved for release",)}
    assert "latest" not in world.public


def test_what_is_staged_has_to_be_signed_by_whom_we_trust(world: World) -> None:
    built(world, ARM)
    published(world, ARM)
    world.signer = a_signer(FakeCosign())
    built(world, CPU)
    found = published(world, CPU)[CPU.id]
    assert {one.waits for one in found.indexes} == {("aarch64, which nobody proved for release",)}


def test_an_index_is_taken_back_by_its_parts(world: World) -> None:
    for cell in BOTH:
        built(world, cell)
    found = published(world, *BOTH)
    house = ChannelRepositories(
        registry=world.registry, paths=(REPOSITORY,), store=world.store, now=NOW
    )
    with pytest.raises(InputError, match=":latest is an index of several machines") as caught:
        house.yank(f"{found[CPU.id].repository}:latest", "wrong", dry_run=False)
    assert all(one.reference in caught.value.hint for one in found.values())
    assert set(machines_of(world, "latest")) == {"amd64", "arm64"}


def test_what_a_disk_carries_of_both_machines_gets_the_same_index(
    world: World, tmp_path: Path
) -> None:
    for cell in BOTH:
        built(world, cell, labels={CELL: cell.id})
    published(world, *BOTH)
    place = Repository(registry=world.registry, repository=REPOSITORY)
    here = CarriedImages(place_of=lambda _cell: place, channel=CHANNEL)
    for cell in BOTH:
        assert isinstance(export_image(cell, here, tmp_path / "disk"), str)
    disk = Repository(
        registry=LayoutRegistry(folder=tmp_path / "disk" / "torch"), repository="torch"
    )
    there = a_world(tmp_path / "there")
    carried = CarriedImages(place_of=lambda _cell: disk, channel=CHANNEL)
    cells = {cell.id: cell for cell in BOTH}
    shop = dataclasses.replace(
        there.shop(CHANNEL),
        documents=carried.documents,
        bring=lambda public: carried.bring(public, cells[public.cell_id], there.registry),
        action="promote",
    )
    found = publish_cells(BOTH, BOTH, shop, find=carried.find, dry_run=False)
    assert all(isinstance(one, Publication) for one in found.values()), found
    assert {tag: there.public[tag] for tag in ("2.13.0", "latest")} == {
        tag: world.public[tag] for tag in ("2.13.0", "latest")
    }


def test_somebody_else_who_tags_meanwhile_is_named(world: World) -> None:
    for cell in BOTH:
        built(world, cell)

    def somebody(_name: str) -> None:
        tagged = world.registry.tagged
        if (REPOSITORY, "2.13.0") in tagged:
            tagged[REPOSITORY, "2.13.0"] = tagged[REPOSITORY, "2.13.0-x86_64"]

    world.registry.after_call = somebody
    found = world.publish_of(BOTH, *BOTH, channel=CHANNEL)[CPU.id]
    assert isinstance(found, Failed)
    assert "2.13.0 is on sha256:" in found.reason
    assert "another run moved it" in found.reason


def test_a_name_that_somebody_else_took_while_it_was_signed_is_left_alone(world: World) -> None:
    cosign = FakeCosign()

    def slow(command: Command) -> Completed:
        """Somebody is faster than the first signature of an index."""
        if command.argv[1] == "sign" and any("warpfront.arm64" in one for one in command.argv):
            tagged = world.registry.tagged
            tagged[REPOSITORY, "2.13.0"] = tagged[REPOSITORY, "2.13.0-x86_64"]
        return cosign(command)

    world.signer = dataclasses.replace(a_signer(cosign), run=slow)
    for cell in BOTH:
        built(world, cell)
    found = world.publish_of(BOTH, *BOTH, channel=CHANNEL)[CPU.id]
    assert isinstance(found, Failed)
    assert "another run moved it" in found.reason
    assert world.public["2.13.0"] == world.public["2.13.0-x86_64"]


def test_an_index_is_signed_with_the_digests_of_its_parts(world: World) -> None:
    cosign = FakeCosign()
    world.signer = a_signer(cosign)
    for cell in BOTH:
        built(world, cell)
    found = published(world, *BOTH)
    index = found[CPU.id].indexes[0].digest
    said = {word for reference, *words in cosign.signed if index in reference for word in words}
    assert f"--annotations=dev.warpfront.arm64={found[ARM.id].digest}" in said
    assert "--annotations=dev.warpfront.channel=release" in said


def test_an_older_image_does_not_take_the_place_of_a_newer_one_that_waits(world: World) -> None:
    told = a_channel(tags=("{content}",), aliases=(ALIAS,), allow=("unsigned",))
    built(world, CPU, "b", created="2026-11-21T10:00:00+00:00")
    published(world, CPU, channel=told)
    built(world, CPU, "a")
    found = world.publish_of(BOTH, CPU, channel=told)[CPU.id]
    assert isinstance(found, Failed)
    assert "waits for a newer image of x86_64, of 2026-11-21" in found.reason


def test_what_an_index_lists_is_kept_and_said(world: World) -> None:
    for cell in BOTH:
        built(world, cell)
    found = published(world, *BOTH)
    house = ChannelRepositories(
        registry=world.registry, paths=(REPOSITORY,), store=world.store, now=NOW
    )
    stocks = house.stock()
    assert {one.listed_in for one in stocks} == {("2.13.0", "latest")}
    late = "2027-11-22T12:00:00+00:00"
    assert not_needed(stocks, channel="release", now=late, days=1) == ()
    yanked = house.yank(found[ARM.id].reference, "wrong", dry_run=True)
    assert set(yanked.kept) == {"2.13.0", "latest"}
    built(world, CPU, "a")
    house.yank(found[ARM.id].reference, "wrong", dry_run=False)
    again = published(world, CPU)[CPU.id]
    assert again.indexes[0].waits == ("aarch64, which was yanked",)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_wherever_it_fails_no_shared_name_is_half_and_a_rerun_ends_right(
    tmp_path: Path, step: int
) -> None:
    """Of everything that is asked of the registry, one thing at a time fails."""
    number = 0
    while True:
        number += step
        world, left = a_world(tmp_path / str(number)), iter(range(number, 0, -1))

        def failing(name: str, left: Iterator[int] = left, world: World = world) -> None:
            if next(left, 0) == 1:
                raise world.registry.error(name, "it broke")

        for cell in BOTH:
            built(world, cell)
        world.registry.on_call = failing
        world.publish_of(BOTH, *BOTH, channel=CHANNEL)
        for tag in {"2.13.0", "latest"} & {*world.public}:
            assert set(machines_of(world, tag)) == {"amd64", "arm64"}, number
        world.registry.on_call = lambda _name: None
        published(world, *BOTH)
        assert world.public["2.13.0"] == world.public["latest"], number
        if next(left, 0):  # nothing failed: it asked less often
            break
    assert number > 50


def test_a_dry_run_says_what_would_be_an_index(world: World) -> None:
    built(world, CPU)
    (planned,) = world.publish_of(BOTH, CPU, channel=CHANNEL, dry_run=True).values()
    assert "index latest of aarch64, x86_64: new" in describe(planned)
    assert world.registry.tagged == {}
