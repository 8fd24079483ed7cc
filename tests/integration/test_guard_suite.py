"""The adversarial suite in a guarded ROCm image of stand-ins: the representatives of each way with
today's pip and today's uv, and the guard with one part taken out at a time. In the guarded CPU
image those that need a real torch. With --exhaustive every case in both, with the oldest pip too;
the results are written to docs/results/guard-suite.json and guard-suite.md.

WARPFRONT_GUARD_IMAGES ("cpu rocm cuda") says on which images: CUDA's takes twenty minutes, 20 GB.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import docker
import pytest
from adversary.__main__ import record
from adversary.cases import Part, read_cases, read_parts
from adversary.runner import Arena, arena, fetch_tools
from adversary.stacks import Stack
from adversary.suite import (
    STAND_INS,
    always_held,
    held_by,
    of_a_real_torch,
    pairs,
    part_entry,
    representatives,
)

from warpfront.system.process import cache_folder

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(1800)]

IMAGES = os.environ.get("WARPFRONT_GUARD_IMAGES", "cpu rocm").split()
CASES, PARTS = read_cases(), read_parts()
# With all of the guard gone, these are what a suite worth its name must see happen (the baseline
# of what unguarded images suffer), and must see stay away.
OVERWRITTEN_ALWAYS = ("floor/pip", "file/uv")
OVERWRITTEN = (
    *OVERWRITTEN_ALWAYS,
    "upgrade-torch/uv",
    "needs-exact/pip",
    "floor/uv",
    "extra/uv",
    "editable-newer/pip",
    "no-deps/uv",
    "upgrade-torch/pip",
    "force-reinstall/pip",
    "url/pip",
    "triple-equals/uv",
    "ignore-installed/pip",
    "other-index/pip",
)
UNHARMED_ALWAYS = ("plain-same/uv",)
UNHARMED = (*UNHARMED_ALWAYS, "plain/pip", "plain-compatible/pip", "needs-torch/uv")
NO_GUARD = Part(
    id="everything",
    title="the whole guard",
    remove="rm -r /opt/warpfront /etc/pip.conf /etc/uv @site/00_warpfront_guard.pth && "
    "for f in /usr/lib/python3*/sitecustomize.py; do : > $f; done",
    unset=(
        "PIP_CONSTRAINT",
        "UV_CONSTRAINT",
        "UV_BUILD_CONSTRAINT",
        "PYTHONNOUSERSITE",
        "PIP_BUILD_CONSTRAINT",
    ),
)


@pytest.fixture(scope="module")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture(scope="module")
def opened(
    guarded: Callable[[str], Stack], client: docker.DockerClient, *, exhaustive: bool
) -> Iterator[Callable[[str], Arena]]:
    """Give the guarded image of a kind with what is offered against it; each is made once, in any
    order of the tests.
    """
    tools = fetch_tools(cache_folder() / "adversary", managers=exhaustive)
    pips = ("pip-old", "pip") if exhaustive else ("pip",)
    with ExitStack() as arenas:

        @functools.cache
        def one(kind: str) -> Arena:
            return arenas.enter_context(arena(client, guarded(kind), tools, pips))

        yield one


@pytest.fixture(params=IMAGES)
def ring(request: pytest.FixtureRequest, opened: Callable[[str], Arena]) -> Arena:
    return opened(request.param)


def test_every_attack_comes_out_as_it_must(ring: Arena, *, exhaustive: bool) -> None:
    kind = ring.stack.kind
    chosen = pairs(CASES, kind) if exhaustive else representatives(CASES, kind, PARTS)
    if ring.stack.real and not exhaustive:
        chosen = of_a_real_torch(chosen, kind)
    assert chosen
    results = ring.run_all(chosen)
    if exhaustive:
        record(ring, CASES, results, [])
    wrong = [one for one in results if one.problem]
    assert not wrong, "\n\n".join(f"{one.case} ({one.tool}): {one.problem}" for one in wrong)


WITHOUT = [
    pytest.param(
        image,
        part,
        id=f"{image}-{part.id}",
        marks=() if image in {STAND_INS, part.image} else pytest.mark.exhaustive,
    )
    for image in IMAGES
    for part in PARTS
    if part.is_of(image)
]


@pytest.mark.parametrize(("ring", "part"), WITHOUT, indirect=["ring"])
def test_without_a_part_of_the_guard_the_cases_that_it_holds_come_out_worse(
    ring: Arena, part: Part, *, exhaustive: bool
) -> None:
    here = {f"{case.id}/{tool}" for case, tool in pairs(CASES, ring.stack.kind)}
    holds = part.holds if exhaustive else tuple(filter(None, [always_held(part)]))
    holds = tuple(one for one in holds if one in here)
    assert holds or part.note
    held = held_by(replace(part, holds=holds), ring, CASES)
    assert len(held) == len(holds)
    if exhaustive:
        record(ring, CASES, [], [part_entry(part, held)])
    kept = [one for one in held if one["worse"] == "no"]
    assert not kept, f"not held by {part.title} alone: {kept}"


@pytest.mark.parametrize(
    "ring",
    [pytest.param(one, marks=() if one == STAND_INS else pytest.mark.exhaustive) for one in IMAGES],
    indirect=True,
)
def test_the_suite_sees_what_happens_to_an_image_without_a_guard(
    ring: Arena, *, exhaustive: bool
) -> None:
    if ring.stack.kind == "cuda":
        pytest.skip("shown on the other images")
    overwritten = OVERWRITTEN if exhaustive else OVERWRITTEN_ALWAYS
    unharmed = UNHARMED if exhaustive else UNHARMED_ALWAYS
    wanted = pairs(CASES, ring.stack.kind, (*overwritten, *unharmed))
    outcomes = {
        f"{case.id}/{tool}": ring.run(case, tool, NO_GUARD).verdict for case, tool in wanted
    }
    assert set(outcomes) == {*overwritten, *unharmed}
    unseen = [str((key, outcomes[key])) for key in overwritten if outcomes[key].outcome != "silent"]
    assert not unseen, "\n".join(unseen)
    harmed = [str((key, outcomes[key])) for key in unharmed if outcomes[key].outcome != "intact"]
    assert not harmed, "\n".join(harmed)
