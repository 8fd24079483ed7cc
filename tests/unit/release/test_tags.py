"""Tags come from what an image says of itself, and two cells never share one by luck."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from builders import FACTS, a_cell, a_channel, some_evidence
from hypothesis import given

from warpfront.matrix.cell import Cell
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.release_channels import TAG_WORDS, Alias
from warpfront.release.tags import (
    Names,
    clashes,
    clashes_of_matrix,
    expected_words,
    names_of,
    shared_in_matrix,
    tag_words,
)
from warpfront.system.references import is_tag

PROJECT = "registry.test/demo"
CPU = a_cell()
GAUDI = a_cell(id="gaudi", vendor="gaudi", targets=("gaudi2", "gaudi3"))


def named(cell: Cell = CPU, facts: dict[str, str] | None = None, **changes: Any) -> Names:
    targets = cell.targets
    words = tag_words(cell, facts or FACTS, some_evidence(cell).labels, targets)
    return names_of(cell, a_channel(**changes), words)


def alias(template: str, *cells: Cell) -> Alias:
    return Alias(tag=template, cells=frozenset(cell.id for cell in cells or (CPU,)))


def test_a_tag_says_what_was_found_inside_whatever_was_asked_for() -> None:
    found = named(a_cell(torch="9.9.9", python="3.99", tag="9.9.9-cpu-py3.99"))
    assert tuple(found.claims) == (f"{PROJECT}/torch:2.13.0-cpu-py3.11-efefefefefef",)


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("{torch_minor}-{date}", "2.13-20261120"),
        ("{targets}-{machine}", "x86-64-x86_64"),
        ("{revision}", "0123456789ab"),
    ],
)
def test_every_word_is_a_fact(template: str, tag: str) -> None:
    assert named(tags=(template,)).tags == (tag,)


def test_all_words_of_the_language_can_be_said_and_no_other() -> None:
    words = tag_words(CPU, FACTS, some_evidence().labels, CPU.targets)
    assert set(words) == set(expected_words(CPU)) == set(TAG_WORDS)


def test_a_tag_names_the_targets_that_were_proven_and_no_other() -> None:
    cell = a_cell(targets=("sm_80", "sm_90"))
    words = tag_words(cell, FACTS, some_evidence(cell).labels, ("sm_90",))
    assert words["targets"] == "sm90"


def test_what_an_image_does_not_say_cannot_be_in_its_tag() -> None:
    found = named(GAUDI, facts={**FACTS, "torch": ""}, tags=("{torch}-{toolkit}",))
    assert found.wrong == ("{torch}-{toolkit}: the image does not say its torch and toolkit",)
    assert named(facts={"torch": "2.13.0"}, tags=("{toolkit}",)).wrong


def test_a_tag_that_no_registry_takes_is_wrong() -> None:
    (wrong,) = named(tags=("a" * 120 + "{content}",)).wrong
    assert "is no tag" in wrong
    assert named(facts={**FACTS, "python": "3.11\n"}, tags=("{python}",)).wrong
    for template in ("candidate-{content}", "sha256-{content}"):
        assert "of candidates and of what is attached" in named(tags=(template,)).wrong[0]


def test_a_tag_cannot_both_move_and_stay() -> None:
    found = named(tags=("{torch}",), aliases=(alias("2.13.0"),))
    assert found.wrong == ("2.13.0 is a tag that never moves and an alias",)


def test_aliases_that_say_most_come_first() -> None:
    aliases = tuple(alias(t) for t in ("latest", "{torch}-{toolkit}", "{torch}"))
    assert named(aliases=aliases).aliases == ("2.13.0-cpu", "2.13.0", "latest")


def test_an_alias_is_claimed_only_by_those_it_is_for() -> None:
    assert named(aliases=(alias("latest", GAUDI),)).aliases == ()


def test_two_cells_that_claim_one_name_are_both_named() -> None:
    other = a_cell(id="other")
    both = (alias("latest", CPU, other),)
    names = [named(cell, aliases=both, tags=(f"{{torch}}-{cell.id}",)) for cell in (CPU, other)]
    clash = f"{PROJECT}/torch:latest is claimed by {CPU.id} and by other"
    assert clashes(names) == {CPU.id: (clash,), "other": (clash,)}
    clash = f"{PROJECT}/torch:latest is claimed by other and by {CPU.id}"
    assert clashes(reversed(names)) == {CPU.id: (clash,), "other": (clash,)}


def test_a_name_of_another_repository_is_another_name() -> None:
    other = a_cell(id="other", image="serve")
    assert clashes([named(), named(other)]) == {}


def test_a_cell_that_was_not_selected_still_claims_its_name() -> None:
    other = a_cell(id="other", python="3.12")
    channel = a_channel(aliases=(alias("{torch}", CPU, other),))
    found = clashes_of_matrix((CPU, other), channel)
    clash = f"{PROJECT}/torch:2.13.0 is claimed by {CPU.id} and by other"
    assert found == {CPU.id: (clash,), "other": (clash,)}
    told_apart = dataclasses.replace(channel, aliases=(alias("{torch}-{python}", CPU, other),))
    assert clashes_of_matrix((CPU, other), told_apart) == {}


ARM = a_cell(id="arm", machine="aarch64", targets=("aarch64",))
EACH = "{torch}-{machine}"


def shared_of(*cells: Cell, tags: tuple[str, ...] = (EACH, "{torch}"), **changes: Any) -> Any:
    channel = a_channel(tags=tags, **changes)
    found = shared_in_matrix(cells, channel)
    return found, clashes_of_matrix(cells, channel)


def test_a_name_that_cells_of_two_machines_fill_alike_is_of_an_index() -> None:
    machines = ("aarch64", "x86_64")
    latest = alias("latest", CPU, ARM)
    found, clashing = shared_of(CPU, ARM, aliases=(latest,))
    assert found == {one.id: {"{torch}": machines, "latest": machines} for one in (CPU, ARM)}
    assert clashing == {}
    channel = a_channel(tags=(EACH, "{torch}"), aliases=(latest,))
    names = names_of(ARM, channel, expected_words(ARM), shared=found["arm"])
    assert (names.tags, names.aliases) == (("2.13.0-aarch64",), ())
    assert [(one.tag, one.moves, one.machines) for one in names.shared] == [
        ("2.13.0", False, machines),
        ("latest", True, machines),
    ]


@pytest.mark.parametrize(
    ("other", "tags"),
    [
        (ARM, ("{torch}",)),
        (a_cell(id="arm", machine="aarch64", python="3.12"), (EACH, "{torch}")),
        (a_cell(id="arm", machine="aarch64", vendor="gaudi"), (EACH, "{torch}")),
        (a_cell(id="twin"), (EACH, "{torch}")),
    ],
    ids=["no name of its own", "another Python", "another vendor", "the same machine"],
)
def test_cells_that_are_no_twins_still_clash(other: Cell, tags: tuple[str, ...]) -> None:
    found, clashing = shared_of(CPU, other, tags=tags)
    assert not any(found.values())
    assert set(clashing) == {CPU.id, other.id}


def test_a_name_of_twins_that_a_third_claims_too_is_a_clash() -> None:
    third = a_cell(id="third", python="3.12", torch="9")
    found, clashing = shared_of(CPU, ARM, third, aliases=(alias("2.13.0", third),))
    assert not any(found.values())
    assert set(clashing) == {CPU.id, ARM.id, "third"}


def test_a_name_of_several_machines_leaves_room_for_theirs() -> None:
    channel = a_channel(tags=("{content}", "a" * 112))
    names = names_of(
        CPU,
        channel,
        expected_words(CPU),
        shared={"a" * 112: ("aarch64", "x86_64")},
    )
    assert names.wrong == (f"{'a' * 112} is too long for a name of several machines",)


def test_a_name_is_of_an_image_or_of_an_index() -> None:
    shared = {"{torch}": ("aarch64", "x86_64")}
    both = (EACH, "{torch}", "2.13.0")
    names = names_of(CPU, a_channel(tags=both), expected_words(CPU), shared=shared)
    assert names.wrong == ("2.13.0 is of this image alone and of an index",)
    channel = a_channel(tags=(EACH, "{torch}"), aliases=(alias("2.13.0"),))
    twice = {**shared, "2.13.0": ("aarch64", "x86_64")}
    names = names_of(CPU, channel, expected_words(CPU), shared=twice)
    assert names.wrong == ("2.13.0 is a tag that never moves and an alias",)


def test_an_image_and_an_index_of_one_name_clash() -> None:
    channel = a_channel(tags=("{content}", "same"))
    of_two = names_of(
        CPU,
        channel,
        expected_words(CPU),
        shared={"same": ("aarch64", "x86_64")},
    )
    of_one = named(a_cell(id="other"), tags=("same",))
    clash = f"{PROJECT}/torch:same is claimed by an index of aarch64 and x86_64 and by other"
    assert clashes([of_two, of_one]) == {CPU.id: (clash,), "other": (clash,)}


@given(st.lists(st.sampled_from([f"{{{word}}}" for word in TAG_WORDS] + ["a", "-"]), min_size=1))
def test_a_name_that_is_not_wrong_is_a_tag(parts: list[str]) -> None:
    found = named(tags=("".join(parts),))
    assert bool(found.wrong) is not all(map(is_tag, found.tags))


def test_no_two_cells_of_this_repository_claim_one_name() -> None:
    root = Path(__file__).parents[3]
    text = (root / "matrix.yaml").read_text(encoding="utf-8")
    matrix = read_matrix(text, path="matrix.yaml", compat=packaged())
    assert {one.name for one in matrix.channels} == {"nightly", "release"}
    for channel in matrix.channels:
        assert clashes_of_matrix(matrix.cells, channel) == {}
