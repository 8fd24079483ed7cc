"""What changed of a project's cells, told by fingerprints that need no engine."""

from __future__ import annotations

from typing import Any

import pytest
from builders import a_cell, a_child

from warpfront.ci.changes import fingerprints
from warpfront.images.built import RenderedImage
from warpfront.matrix.language import Bootstrap

CELL = a_cell()
CHILD = a_child(CELL)


def rendered(**files: str) -> dict[str, RenderedImage]:
    text = {CELL.id: "FROM a", CHILD.id: "FROM b", **files}
    return {
        name: RenderedImage(cell_id=name, files={"Dockerfile": one}, wheels=())
        for name, one in text.items()
    }


def made(*cells: Any, **changes: Any) -> dict[str, str]:
    verified = {CELL.id: ["x86-64"], CHILD.id: ["x86-64"]}
    facts: dict[str, Any] = {
        "rendered": rendered(),
        "blocked": {},
        "builder": "uv 1",
        "verified": verified,
    }
    facts |= changes
    images, blocked = facts.pop("rendered"), facts.pop("blocked")
    return fingerprints(cells or (CELL, CHILD), images, blocked, **facts)


def test_equal_inputs_give_equal_fingerprints() -> None:
    assert made() == made()
    assert len(set(made().values())) == 2


@pytest.mark.parametrize(
    "changes", [{"builder": "uv 2"}, {"verified": {CELL.id: ["d"], CHILD.id: ["d"]}}]
)
def test_another_builder_or_other_checks_change_every_cell(changes: dict[str, Any]) -> None:
    assert not set(made(**changes).values()) & set(made().values())


def test_a_changed_parent_changes_its_children() -> None:
    changed = made(rendered=rendered(**{CELL.id: "FROM other"}))
    assert changed[CELL.id] != made()[CELL.id]
    assert changed[CHILD.id] != made()[CHILD.id]
    only_child = made(rendered=rendered(**{CHILD.id: "FROM other"}))
    assert only_child[CELL.id] == made()[CELL.id]


def test_another_base_or_other_claims_are_another_fingerprint() -> None:
    base = CELL.base
    assert made(CELL, verified={CELL.id: ["sm_90"]})[CELL.id] != made(CELL)[CELL.id]
    for other in (
        a_cell(base=type(base)(**{**_fields(base), "digest": "sha256:" + "0" * 64})),
        a_cell(base=type(base)(**{**_fields(base), "bootstrap": Bootstrap(suite="x", include=())})),
    ):
        assert made(other)[CELL.id] != made(CELL)[CELL.id]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def test_a_blocked_cell_changes_with_its_reason() -> None:
    first = made(CELL, blocked={CELL.id: "no lock"})
    assert first == made(CELL, blocked={CELL.id: "no lock"}, rendered={})
    assert first != made(CELL, blocked={CELL.id: "unpinned"})
