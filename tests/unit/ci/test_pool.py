"""Chains of images on builders: each where its layers are, none lost, no disk too full."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.ci.pool import Load, Pool, make_pool, preference
from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.language import MachineName
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.runners import BuildNode

ROOT = Path(__file__).resolve().parents[3]
GB = 10**9


def a_node(
    name: str, *, slots: int = 1, room: int = 100, machine: MachineName = "x86_64"
) -> BuildNode:
    return BuildNode(name=name, machine=machine, slots=slots, room_gb=room)


def a_load(number: int, *, size: int = 9, machine: str = "x86_64", made_on: str = "") -> Load:
    name = f"cell-{number}"
    return Load(
        name=name,
        machine=machine,
        fingerprint=f"fingerprint-{number}",
        size_bytes=size * GB,
        cells=(name, f"{name}-devel"),
        made_on=made_on,
    )


NODES = tuple(a_node(f"node-{n}") for n in range(4))
LOADS = tuple(a_load(n, size=1 + n % 7) for n in range(60))


def drained(pool: Pool, chosen: random.Random, loses: int = 0) -> dict[str, str]:
    """Run to the end, in any order of ends, and with so many losses; load -> where it ended."""
    ended: dict[str, str] = {}
    while True:
        list(pool.begin())
        for node in pool.nodes:
            mine = [load for load, other in pool.running.items() if other == node]
            assert len(mine) <= node.slots
            assert sum(load.size_bytes for load in mine) <= node.room_bytes
            assert all(load.machine == node.machine for load in mine)
        if not pool.running:
            return ended
        load = chosen.choice(sorted(pool.running, key=lambda one: one.name))
        if loses and chosen.random() < 0.2:
            loses -= 1
            pool.lose(pool.running[load])
            continue
        assert load.name not in ended
        ended[load.name] = pool.running.pop(load).name


@given(st.randoms(use_true_random=False), st.integers(0, 3), st.integers(1, 3))
def test_whatever_ends_first_and_whoever_is_lost_each_is_built_once(
    chosen: random.Random, loses: int, slots: int
) -> None:
    nodes = tuple(dataclasses.replace(node, slots=slots) for node in NODES)
    ended = drained(make_pool(nodes, LOADS), chosen, loses)
    assert ended.keys() == {load.name for load in LOADS}


def test_what_was_made_somewhere_goes_there_and_nowhere_else_while_it_lives() -> None:
    made = tuple(dataclasses.replace(load, made_on="node-2") for load in LOADS)
    assert set(drained(make_pool(NODES, made), random.Random(0)).values()) == {"node-2"}
    pool = make_pool(NODES, made)
    pool.lose(NODES[2])
    assert set(drained(pool, random.Random(0)).values()) == {"node-0", "node-1", "node-3"}


def test_a_fingerprint_likes_one_node_and_who_goes_or_comes_moves_no_other() -> None:
    before = {load.name: preference(load.fingerprint, NODES)[0].name for load in LOADS}
    assert all(5 <= list(before.values()).count(node.name) <= 25 for node in NODES)
    after = {load.name: preference(load.fingerprint, NODES[:3])[0].name for load in LOADS}
    moved = {name for name, node in before.items() if after[name] != node}
    assert moved == {name for name, node in before.items() if node == "node-3"}
    more = {load.name: preference(load.fingerprint, (*NODES, a_node("x")))[0] for load in LOADS}
    assert all(node.name in {"x", before[name]} for name, node in more.items())


def test_each_gets_its_own_first_and_the_idle_take_what_is_furthest_from_its_turn() -> None:
    alike = [load for load in LOADS if preference(load.fingerprint, NODES[:2])[0] == NODES[0]]
    pool = make_pool(NODES[:2], alike[:5])
    home = {node.name: load for load, node in pool.begin()}
    assert home["node-0"] == pool_order(alike[:5])[0]
    assert home["node-1"] == pool_order(alike[:5])[-1]
    assert len(pool.waiting) == 3


def pool_order(loads: list[Load]) -> list[Load]:
    return make_pool((), loads).waiting


@pytest.mark.parametrize(
    ("node", "load"),
    [
        (a_node("small", room=5), a_load(1, size=6)),
        (a_node("arm", machine="aarch64"), a_load(1)),
    ],
)
def test_what_nobody_can_take_is_said_and_waits_for_nobody(node: BuildNode, load: Load) -> None:
    pool = make_pool((node,), (load,))
    assert list(pool.begin()) == []
    assert pool.waiting == [load]


def test_a_full_disk_makes_others_wait() -> None:
    node = a_node("one", slots=3, room=10)
    first, second = a_load(1, size=6), a_load(2, size=5)
    pool = make_pool((node,), (first, second))
    assert list(pool.begin()) == [(first, node)]
    del pool.running[first]
    assert list(pool.begin()) == [(second, node)]


# --- as matrix.yaml says ---


def read_nodes(text: str) -> tuple[BuildNode, ...]:
    own = (ROOT / "matrix.yaml").read_text(encoding="utf-8").partition("\nrunners:")[0]
    return read_matrix(f"{own}\nbuilders:\n{text}", path="matrix.yaml", compat=packaged()).nodes


def test_a_builder_is_found_as_docker_and_buildx_find_it() -> None:
    nodes = read_nodes(
        "  here: {slots: 2, room_gb: 40}\n"
        "  rack: {host: 'ssh://build@rack', cache: registry.example.com/cache}\n"
        "  lab: {context: lab, machine: aarch64}\n"
        "  farm: {buildx: farm}\n"
    )
    assert [(one.name, one.slots, one.room_bytes // GB, one.machine) for one in nodes] == [
        ("here", 2, 40, "x86_64"),
        ("rack", 1, 100, "x86_64"),
        ("lab", 1, 100, "aarch64"),
        ("farm", 1, 100, "x86_64"),
    ]
    assert [dict(one.environment) for one in nodes] == [
        {},
        {"DOCKER_HOST": "ssh://build@rack", "WARPFRONT_BUILD_CACHE": "registry.example.com/cache"},
        {"DOCKER_CONTEXT": "lab"},
        {"BUILDX_BUILDER": "farm"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  x: {host: 'ssh://a', buildx: b}", "found by one of"),
        ("  x: {host: rack}", "host"),
        ("  x: {slots: 0}", "slots"),
        ("  x: {hosts: 'ssh://a'}", "unknown key `hosts`"),
    ],
)
def test_a_builder_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(MatrixError, match=said):
        read_nodes(text)
