"""The adversarial suite in the guarded CPU image: every case with today's pip and today's uv, and
the guard with one part taken out at a time.

WARPFRONT_GUARD_IMAGES ("cpu rocm cuda") and WARPFRONT_GUARD_TOOLS ("pip-old pip uv") say what else
to run here: a ROCm image of stand-ins takes five minutes more, the CUDA image twenty and 20 GB.
The table in docs/guard.md is of all three with all tools: `scripts/guard-table`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import docker
import pytest
from adversary.cases import Case, Part, read_cases, read_parts
from adversary.images import build
from adversary.runner import Arena, Tools, arena, fetch_tools
from adversary.stacks import STACKS
from adversary.suite import held_by, pairs

from warpfront.images.engine import Engine
from warpfront.pipeline.workspace import cache_folder

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(1800)]

IMAGES = os.environ.get("WARPFRONT_GUARD_IMAGES", "cpu").split()
CHOSEN_TOOLS = os.environ.get("WARPFRONT_GUARD_TOOLS", "pip uv").split()
CASES = read_cases()
# With all of the guard gone, these are what a suite worth its name must see happen (the baseline
# of what unguarded images suffer), and must see stay away.
OVERWRITTEN = (
    *("floor/pip", "floor/uv", "needs-exact/pip", "extra/uv", "editable-newer/pip", "no-deps/uv"),
    *("upgrade-torch/pip", "upgrade-torch/uv", "force-reinstall/pip", "file/uv", "url/pip"),
    *("triple-equals/uv", "ignore-installed/pip", "other-index/pip", "cudnn-cu12/pip"),
)
UNHARMED = ("plain/pip", "plain-same/uv", "plain-compatible/pip", "needs-torch/uv")
NO_GUARD = Part(
    id="everything",
    title="the whole guard",
    remove="rm -r /opt/warpfront /etc/pip.conf /etc/uv @site/00_warpfront_guard.pth && "
    "for f in /usr/lib/python3*/sitecustomize.py; do : > $f; done",
    unset=(
        *("PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "PYTHONNOUSERSITE"),
        "PIP_BUILD_CONSTRAINT",
    ),
)


@pytest.fixture(scope="module")
def tools() -> Tools:
    return fetch_tools(cache_folder() / "adversary")


@pytest.fixture(scope="module", params=IMAGES)
def ring(
    request: pytest.FixtureRequest,
    engine: Engine,
    client: docker.DockerClient,
    tools: Tools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Arena]:
    """A guarded image, built or reused, with what is offered against it."""
    stack = STACKS[request.param]
    build(stack, tmp_path_factory.mktemp(stack.kind), engine.name)
    with arena(client, stack, tools) as made:
        yield made


@pytest.mark.parametrize("tool", CHOSEN_TOOLS)
def test_every_attack_comes_out_as_it_must(ring: Arena, tool: str) -> None:
    chosen: list[tuple[Case, str]] = [
        (case, by) for case, by in pairs(CASES, ring.stack.kind) if by == tool
    ]
    assert chosen
    wrong = [one for one in ring.run_all(chosen) if one.problem]
    assert not wrong, "\n\n".join(f"{one.case} ({one.tool}): {one.problem}" for one in wrong)


@pytest.mark.parametrize(
    "part", [part for part in read_parts() if part.image in IMAGES], ids=lambda part: part.id
)
def test_without_a_part_of_the_guard_the_cases_that_it_holds_come_out_worse(
    ring: Arena, part: Part
) -> None:
    if part.image != ring.stack.kind:
        pytest.skip(f"this part is taken out of the {part.image} image")
    assert part.holds or part.note
    held = held_by(part, ring, CASES)
    assert len(held) == len(part.holds)
    kept = [one for one in held if one["worse"] == "no"]
    assert not kept, f"not held by {part.title} alone: {kept}"


def test_the_suite_sees_what_happens_to_an_image_without_a_guard(ring: Arena) -> None:
    if ring.stack.kind == "cuda":
        pytest.skip("shown on the other images")
    wanted = pairs(CASES, ring.stack.kind, (*OVERWRITTEN, *UNHARMED))
    outcomes = {
        f"{case.id}/{tool}": ring.run(case, tool, NO_GUARD).verdict for case, tool in wanted
    }
    assert set(outcomes) == {*OVERWRITTEN, *UNHARMED}
    unseen = [str((key, outcomes[key])) for key in OVERWRITTEN if outcomes[key].outcome != "silent"]
    assert not unseen, "\n".join(unseen)
    harmed = [str((key, outcomes[key])) for key in UNHARMED if outcomes[key].outcome != "intact"]
    assert not harmed, "\n".join(harmed)
