"""Rows of the catalogue give only what is their own."""

from __future__ import annotations

from warpfront_checks.cases.catalogue.record import DIM, FLAG, exact, moved


def test_a_record_is_named_by_its_call_and_has_the_usual_values_of_its_options() -> None:
    record = moved("torch.roll(a, {shift}, {dim}, {wide}, {m})", shift=(1,))
    assert record.name == "roll"
    assert dict(record.options) == {"shift": (1,), "dim": DIM, "wide": FLAG}
    assert moved("torch.cat(a.chunk(3))", name="chunks").name == "chunks"


def test_windows_have_a_number_for_each_axis_too() -> None:
    code = "F.conv{}d(a, b, stride={{stride}})"
    line, plane = (exact(code.format(dims), "m n, m n").options["stride"] for dims in (1, 2))
    assert (line, plane) == ((1, 2), (1, 2, (1, 2), (2, 1)))
