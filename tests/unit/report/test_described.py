"""A line about the result of a step."""

from __future__ import annotations

from warpfront.report.described import describe
from warpfront.wheels.lock.values import UnbuiltWheel, WheelLock


def a_lock(**fields: object) -> WheelLock:
    return WheelLock(cell_id="cpu", python="3.11", inputs_digest="", wheels=(), **fields)  # type: ignore[arg-type]


def test_a_lock_says_how_many_wheels_it_has_or_what_is_to_be_built() -> None:
    assert describe(a_lock()) == "locked, 0 wheels, 0 B"
    missing = UnbuiltWheel(package="ops", version="1.0", sdist="ops-1.0.tar.gz", sdist_sha256="0")
    lines = describe(a_lock(unbuilt=(missing,))).splitlines()
    assert lines == [
        f"to be built: {missing}",
        "    next: warpfront build-wheels --only cpu",
    ]


def test_a_result_of_another_kind_is_said_as_it_says_itself() -> None:
    assert describe("reused") == "reused"
