"""What a commit changes of cells, in a line for each."""

from __future__ import annotations

import dataclasses

from warpfront.ci.changes import MOST_WHEELS, CellState, changed_cells

BEFORE = CellState(
    fingerprint="a", wheels={"torch": "2.13.0+cpu", "numpy": "2.3.4"}, size_bytes=200 * 10**6
)


def test_new_gone_and_changed_cells_are_told_apart_and_the_rest_is_not_told() -> None:
    after = CellState(
        fingerprint="b", wheels={"torch": "2.14.1+cpu", "ninja": "1.13.0"}, size_bytes=230 * 10**6
    )
    now = {"same": BEFORE, "changed": after, "new": after}
    before = {"same": BEFORE, "changed": BEFORE, "gone": BEFORE}
    wheels = "+ninja 1.13.0, -numpy 2.3.4, torch 2.13.0+cpu -> 2.14.1+cpu"
    assert list(changed_cells(now, before)) == [
        f"changed: changed: {wheels}, wheels +30 MB",
        "gone: gone",
        "new: new, wheels of 230 MB",
    ]


def test_a_change_that_is_in_no_wheel_is_said_so() -> None:
    (line,) = changed_cells({"a": dataclasses.replace(BEFORE, fingerprint="b")}, {"a": BEFORE})
    assert line == "changed: a: its files, base or checks; the wheels are the same"


def test_many_wheels_are_counted() -> None:
    many = {f"wheel{number:02}": "1" for number in range(MOST_WHEELS + 3)}
    after = dataclasses.replace(BEFORE, fingerprint="b", wheels={**BEFORE.wheels, **many})
    (line,) = changed_cells({"a": after}, {"a": BEFORE})
    assert line.endswith("and 3 more wheels")
