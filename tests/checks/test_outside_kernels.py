"""Wrong kernels from outside: each is wrong where it says, and is caught by what is written here.

`BY` is what sessions said when they were first tried (docs/hazards.md has the figures, with the
halves); a row that stops seeing its kernel is a loss that is noticed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from outside_kernels import HALF, KERNELS, SHOWN  # noqa: E402

from warpfront_checks.cases.catalogue import CATALOGUE  # noqa: E402
from warpfront_checks.cases.session import judge_operation  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.edge_cases.hazard_checks import class_named, judge_rows  # noqa: E402
from warpfront_checks.edge_cases.seeding import seeded  # noqa: E402

# By kernel: the session, and of hazards the class and row.
BY: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("outside_kernels.json").read_text(encoding="utf-8")
)
# A gradient that nobody asked for is none, which a kernel in Python may not always give back: torch
# 2.13 was seen to crash so once.
UNDEFINED = {
    "channels_last_takes_the_next_group",
    "last_rows_give_no_gradient",
    # Whoever uses the places that these give reads or writes elsewhere, and the session ends.
    "largest_of_all_integers_is_the_first",
    "places_in_the_last_part_of_a_block_are_not_found",
    # Is wrong once in a process.
    "plan_of_a_large_prime_serves_once",
}
# Of the last set, for which no rows were made.
TENTH_UNSEEN = {
    "product_over_nothing_forgets_what_is_added",
    "end_is_not_reached",
    "least_integer_is_not_among_the_smallest",
}
# Crossings that cases do not draw: docs/verification.md lists them.
ACCEPTED = {
    "fill_of_transposed_is_stored_by_row",
    "integers_are_multiplied_in_single",
    "distinct_numbers_are_sought_among_the_first_few",
}
# What right kernels of some devices do as well.
UNSEEN = {
    "true_class_rounded_before_difference",
    "sum_of_squares_overflows",
    "step_is_between_rounded_numbers",
    "sorted_values_are_packed_into_a_view",
    "matmul_of_halves_adds_split_parts_in_half",
    # The CPU rounds such a weight; of lengths of 8,192 alone.
    "lerp_reads_half_the_bits_of_its_weight",
    "irfft_uses_the_imaginary_part_of_the_mean",
    *TENTH_UNSEEN,
    *ACCEPTED,
}
DTYPES = ("float32", "bfloat16", "float16")


def _same(found: Any, other: Any) -> bool:
    pairs = zip(_all(found), _all(other), strict=True)
    return all(torch.allclose(x, y, 0, 0, equal_nan=True) for x, y in pairs)


def _all(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_every_kernel_is_wrong_where_it_says_and_taken_out_again() -> None:
    for name, kernel in KERNELS.items():
        if name in UNDEFINED:
            continue
        right = SHOWN[name]()
        with seeded(kernel, "cpu"):
            wrong = SHOWN[name]()
        assert not _same(right, wrong), name
        assert _same(right, SHOWN[name]()), name


def test_each_is_in_one_half_and_what_catches_it_is_known_or_that_nothing_does() -> None:
    halves = list(HALF.values())
    assert {half: halves.count(half) for half in halves} == {
        "development": 15,
        "test": 15,
        "second": 23,
        "later": 15,
        "thirty": 30,
        "thirty more": 30,
        "the last thirty": 30,
        "thirty after them": 30,
        "the sixth thirty": 30,
        "the seventh thirty": 30,
        "the eighth thirty": 30,
        "the ninth thirty": 30,
        "the tenth thirty": 30,
        "the eleventh thirty": 30,
        "the twelfth thirty": 30,
        "the thirteenth thirty": 30,
        "the fourteenth thirty": 30,
        "the fifteenth thirty": 30,
        "the sixteenth thirty": 30,
        "the seventeenth thirty": 30,
        "the eighteenth thirty": 30,
    }
    assert set(BY) <= set(KERNELS)
    assert {name for name in KERNELS if HALF[name] != "later"} - set(BY) == UNSEEN


@pytest.mark.parametrize(
    "name", [name for name, by in BY.items() if by[:1] == ["hazards"] and name not in UNDEFINED]
)
def test_a_row_of_the_hazards_sees_it(name: str) -> None:
    _, own, named = BY[name]
    one = class_named(own)
    rows = [row for row in one.hazards if row.name == named]
    turns = [CheckOptions(seeds=(seed,)) for seed in range(max(row.turns for row in rows))]
    assert judge_rows(one, rows, "cpu", DTYPES, turns[0]).faults == []
    with seeded(KERNELS[name], "cpu"):
        assert any(judge_rows(one, rows, "cpu", DTYPES, turn).faults for turn in turns)


@pytest.mark.parametrize("name", [name for name, by in BY.items() if by[0] == "cases"])
def test_a_case_sees_it(name: str) -> None:
    operation = CATALOGUE[BY[name][1]]
    with seeded(KERNELS[name], "cpu"):
        assert any(
            judge_operation(operation, "cpu", CheckOptions(seeds=(seed,))).faults
            for seed in range(3)
        )
