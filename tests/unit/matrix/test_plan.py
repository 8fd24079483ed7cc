"""Plans: chains, reasons and content hashes."""

from __future__ import annotations

import pytest
from builders import a_cell, a_child, a_lock, a_wheel

from warpfront.images.built import RenderedImage
from warpfront.images.plan import (
    Action,
    ContentRecord,
    changes_since,
    content_hash,
    plan_cell,
)
from warpfront.matrix.selection import with_parents
from warpfront.step_results import Blocked
from warpfront.wheels.lock.values import LockedWheel, LockState

TORCH = a_cell()
DEVEL = a_child(TORCH, "devel")
SERVE = a_child(TORCH, "serve")
ON_SERVE = a_child(SERVE, "shop")
FRESH = LockState(lock=a_lock(), reason="")


def a_rendered_image(**files: str) -> RenderedImage:
    return RenderedImage(cell_id=TORCH.id, files=files, wheels=(a_wheel(),))


def planned(**changes: object) -> object:
    facts: dict[str, object] = {
        "state": FRESH,
        "blocked": None,
        "built": False,
        "engine_asked": True,
        "changes": "",
        "added_bytes": 1000,
        "missing_bytes": 400,
    }
    return plan_cell(TORCH, **(facts | changes))  # type: ignore[arg-type]


def test_selected_cells_bring_their_parents_before_them() -> None:
    chain = with_parents([ON_SERVE], [ON_SERVE, SERVE, DEVEL, TORCH])
    assert [cell.image for cell in chain] == ["torch", "serve", "shop"]


def test_an_existing_content_hash_is_reused() -> None:
    assert planned(built=True).action is Action.REUSE  # type: ignore[attr-defined]


def test_a_blocked_cell_keeps_its_reason_even_when_an_image_exists() -> None:
    blocked = Blocked(cell_id=TORCH.id, step="lock", reason="index out of reach")
    cell = planned(blocked=blocked, built=True)
    assert (cell.action, cell.reason) == (Action.BLOCKED, "index out of reach")  # type: ignore[attr-defined]


def test_a_stale_lock_is_the_reason_to_build() -> None:
    cell = planned(state=LockState(lock=a_lock(), reason="torch changed"))
    assert (cell.action, cell.reason) == (Action.BUILD, "torch changed")  # type: ignore[attr-defined]


def test_the_content_hash_moves_with_every_ingredient() -> None:
    def digest(files: str = "x", base: str = "b", builder: str = "uv 1") -> str:
        return content_hash(a_rendered_image(Dockerfile=files), base_identity=base, builder=builder)

    hashes = {digest(), digest(files="y"), digest(base="c"), digest(builder="uv 2")}
    assert len(hashes) == 4
    assert digest() == digest()


def recorded(dockerfile: str, *wheels: LockedWheel, base: str = "sha256:1") -> ContentRecord:
    image = RenderedImage(cell_id="c", files={"Dockerfile": dockerfile}, wheels=wheels)
    return {**image.parts, "the base image": base}


def test_a_title_or_a_comment_changes_nothing() -> None:
    before, now = (recorded(f"# cell: {title}\nFROM a\n") for title in ("PyTorch", "PyTorch 2"))
    assert before == now
    assert recorded("# syntax=a\nFROM a\n") != recorded("# syntax=b\nFROM a\n")
    here = "RUN cat <<END\n# {}\nEND\n"
    assert recorded(here.format(1)) != recorded(here.format(2))


def test_a_plan_names_what_changed_since_the_image_that_there_is() -> None:
    old, new = a_wheel("numpy", "2.1"), a_wheel("numpy", "2.2")
    before = recorded("FROM a\n", old)
    assert changes_since(before, before) == ""
    assert changes_since(before, recorded("FROM a\n", new)) == "changed: wheel numpy 2.1 -> 2.2"
    assert changes_since(before, recorded("FROM b\n", old)) == "changed: file Dockerfile"
    other_base = recorded("FROM a\n", old, base="sha256:2")
    assert changes_since(before, other_base) == "changed: the base image"
    assert changes_since(before, recorded("FROM a\n")) == "changed: wheel numpy removed"
    assert planned(changes="changed: the base image").reason == "changed: the base image"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"wheel a": "1 x"}, {"wheel a": "1 y"}, "wheel a"),
        ({"wheel a": "1 x y"}, {"wheel a": "2 x y"}, "wheel a 1 -> 2"),
        ({"file b": "1 x"}, {"file b": "2 y"}, "file b"),
        ({}, {"wheel a": "1 x"}, "wheel a added"),
        ({"wheel a": "1 x"}, {}, "wheel a removed"),
        # What follows from the wheels is said where nothing else changed.
        (
            {"file requirements.txt": "1", "wheel a": "1 x"},
            {"file requirements.txt": "2", "wheel a": "2 x"},
            "wheel a 1 -> 2",
        ),
        ({"file requirements.txt": "1"}, {"file requirements.txt": "2"}, "file requirements.txt"),
        (
            {"file requirements.txt": "1", "file b": "1"},
            {"file requirements.txt": "2", "file b": "2"},
            "file b",
        ),
        (
            {"file b": "1", "wheel a": "1"},
            {"file b": "2", "wheel a": "2"},
            "wheel a 1 -> 2, file b",
        ),
        ({}, dict.fromkeys("abcd", "1"), "a added, b added, c added, d added"),
        ({}, dict.fromkeys("abcdef", "1"), "a added, b added, c added, d added and 2 more"),
    ],
)
def test_a_change_of_content_is_said_in_a_line(
    before: dict[str, str], now: dict[str, str], said: str
) -> None:
    assert changes_since(before, now) == f"changed: {said}"
