"""Each line of a plan: what would happen, why, and what it would cost."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import a_cell, a_child, a_lock, a_wheel
from hypothesis import given
from hypothesis import strategies as st

from warpfront.images.built import RenderedImage
from warpfront.images.plan import Action, PlannedCell, content_hash, plan_cell
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import selected_with_parents, with_parents
from warpfront.step_results import Blocked
from warpfront.wheels.lock.values import LockState

TORCH = a_cell()
FRESH = LockState(lock=a_lock(), reason="")
IMAGE = RenderedImage(cell_id=TORCH.id, files={"Dockerfile": "FROM x\n"}, wheels=(a_wheel(),))


def line(**changes: Any) -> PlannedCell:
    facts: dict[str, Any] = {
        "state": FRESH,
        "blocked": None,
        "built": False,
        "engine_asked": True,
        "changes": "",
        "added_bytes": 1000,
        "missing_bytes": 400,
    }
    return plan_cell(TORCH, **(facts | changes))


def test_a_cell_to_build_says_what_is_fetched_and_what_it_may_unpack_to() -> None:
    assert line() == PlannedCell(
        cell_id=TORCH.id,
        action=Action.BUILD,
        reason="no image of this content is in the engine",
        download_bytes=400,
        estimated_bytes=2300,
    )


def test_without_an_engine_the_reason_is_that_nobody_could_be_asked() -> None:
    assert line(engine_asked=False).reason == "no engine to ask for existing images"


def test_a_lock_that_is_of_no_use_is_the_reason() -> None:
    stale = LockState(lock=None, reason="it has no numpy")
    assert (
        line(state=stale).reason
        == line(state=stale, engine_asked=False).reason
        == "it has no numpy"
    )


def test_what_is_not_known_is_not_estimated_and_nothing_is_nothing() -> None:
    assert line(added_bytes=None, missing_bytes=None).estimated_bytes is None
    assert line(added_bytes=None, missing_bytes=None).download_bytes is None
    assert line(added_bytes=0, missing_bytes=0).estimated_bytes == 0


def test_a_cell_that_is_built_is_reused_and_costs_nothing() -> None:
    assert line(built=True) == PlannedCell(
        cell_id=TORCH.id, action=Action.REUSE, reason="its image has this content"
    )


def test_a_blocked_cell_says_why_and_what_next_even_if_an_image_is_there() -> None:
    blocked = Blocked(cell_id=TORCH.id, step="lock", reason="no wheels", hint="another python")
    assert line(blocked=blocked, built=True) == PlannedCell(
        cell_id=TORCH.id, action=Action.BLOCKED, reason="no wheels", hint="another python"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"rendered": dataclasses.replace(IMAGE, files={"Dockerfile": "FROM y\n"})},
        {"base_identity": "sha256:2"},
        {"builder": "uv 2"},
    ],
)  # fmt: skip
def test_the_content_hash_changes_with_files_base_and_installer(changed: dict[str, Any]) -> None:
    facts: dict[str, Any] = {"rendered": IMAGE, "base_identity": "sha256:1", "builder": "uv 1"}

    def hash_of(rendered: RenderedImage, base_identity: str, builder: str) -> str:
        return content_hash(rendered, base_identity=base_identity, builder=builder)

    assert len(hash_of(**facts)) == 64
    assert hash_of(**facts) == hash_of(**facts)
    assert hash_of(**(facts | changed)) != hash_of(**facts)


def a_forest(shape: list[int]) -> list[Cell]:
    """A cell per number: 0 stands on its own, n on the n-th one before it."""
    cells: list[Cell] = []
    for place, back in enumerate(shape):
        image = f"image{place}"
        on = cells[place - back] if 0 < back <= place else None
        cells.append(a_child(on, image, id=image) if on else a_cell(id=image, image=image))
    return cells


forests = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(a_forest)


@given(st.data(), forests)
def test_chains_are_whole_parents_first_and_hold_nothing_else(
    data: st.DataObject, cells: list[Cell]
) -> None:
    shuffled = data.draw(st.permutations(cells))
    selected = data.draw(st.lists(st.sampled_from(cells), unique_by=lambda cell: cell.id))
    found = [cell.id for cell in with_parents(selected, shuffled)]
    parents = {cell.id: cell.parent for cell in cells}
    wanted = set()
    for cell in selected:
        name: str | None = cell.id
        while name is not None:
            wanted.add(name)
            name = parents[name]
    assert set(found) == wanted
    assert len(found) == len(wanted)
    for place, name in enumerate(found):
        parent = parents[name]
        assert parent is None or parent in found[:place]


def test_what_is_selected_comes_with_what_it_stands_on_and_nothing_else() -> None:
    other = a_cell(id="other", image="other")
    app = a_child(TORCH, "app", id="app")
    chosen = selected_with_parents((app, other, TORCH), Selection(image="app"))
    assert chosen == (TORCH, app)


def test_cells_of_one_depth_keep_the_matrix_s_order() -> None:
    cells = [a_cell(id=name) for name in ("b", "a", "c")]
    assert [cell.id for cell in with_parents([cells[2], cells[0], cells[1]], cells)] == [
        "b",
        "a",
        "c",
    ]
