"""Linear systems and transforms of the catalogue in contiguous memory, of few sizes, on any device.

Their topics, which cross every axis, are not claimed on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from warpfront_checks.cases.axes import in_domain
from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue.systems import EQUATIONS
from warpfront_checks.cases.catalogue.transforms import FRAMES, LINES
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import NoOracleError, reference_of, run_case
from warpfront_checks.cases.special.properties import plain_assignment, plain_case
from warpfront_checks.cases.special.rows import CaseContext, Row, Table

Lengths = Mapping[str, int]
# Few and many at a time; past the sizes of warps and tiles.
SYSTEMS: tuple[Lengths, ...] = (
    {"b": 70, "n": 3, "m": 5},
    {"b": 3, "n": 33, "m": 5},
    {"b": 2, "n": 65, "m": 5},
)
# More matrices than a grid's third dimension has blocks.
MANY: tuple[Lengths, ...] = ({"b": 65_600, "n": 2, "m": 1},)
SOLVING = ("solve", "lu_solve", "inverse")
# Powers of small primes, primes, and products of large ones, which take other algorithms.
LENGTHS = (2, 7, 16, 31, 100, 257, 1000, 1024, 5999)
PLANES = ((5, 16, 16), (3, 7, 9), (100, 8, 12), (2, 33, 64), (1, 5, 97), (3, 7, 1), (3, 1, 8))
TRANSFORMS: tuple[Lengths, ...] = (
    *({"b": 2, "m": 3, "n": length} for length in LENGTHS),
    *({"b": 2, "m": length, "n": 3} for length in reversed(LENGTHS)),
    *({"b": b, "c": 2, "y": y, "x": x} for b, y, x in PLANES),
    # Kernels are made for each small factor.
    *({"x": length} for length in range(1, 65)),
    *({"k": length} for length in range(1, 7)),
    *({"b": 2, "t": length} for length in (400, 1000)),
)


def plain_cases(
    operation: Operation, sizes: Sequence[Lengths], dtype: str, device: str, seed: int
) -> Iterator[Case]:
    """Yield cases of all sizes in each rank, with options that change from case to case."""
    number = 0
    for rank in range(operation.ranks):
        names = operation.sizes(rank)
        fitting = [{name: each[name] for name in names} for each in sizes if {*names} <= {*each}]
        for lengths in {str(each): each for each in fitting}.values():
            changes = {"rank": rank, "gradient": "none", "lengths": lengths, "seed": seed}
            # The first value of each option, and others.
            for turn in sorted({0, number if operation.options else 0}):
                chosen = {**changes, **dict(_options(operation, turn))}
                if in_domain(operation, plain_assignment(operation, dtype, **chosen)):
                    yield plain_case(operation, dtype, device, **chosen)
            number += 1


def _options(operation: Operation, turn: int) -> Iterator[tuple[str, object]]:
    """Yield a value of each option: all of them in as many turns as there are crossings."""
    for name, values in operation.options.items():
        turn, place = divmod(turn, len(values))
        yield f"option {name}", values[place]


def _judged(
    operation: Operation, sizes: Sequence[Lengths], ground: CaseContext
) -> Iterator[Verdict]:
    """Make every call twice: the first one creates and caches a plan, the second one uses it."""
    dtype = str(ground.dtype).removeprefix("torch.")
    for case in plain_cases(operation, sizes, dtype, ground.device, ground.seed):
        try:
            reference = reference_of(case)
        except NoOracleError:
            continue
        shapes = [argument.shape for argument in case.arguments]
        for time in ("first", "second"):
            for verdict in run_case(case, reference=reference):
                label = f"{verdict.name} of {case.code} of {shapes}, {time}"
                yield replace(verdict, name=label)


def _rows(operations: Sequence[Operation], sizes: Sequence[Lengths]) -> Iterator[Row]:
    for operation in operations:
        mine = (*sizes, *MANY) if operation.name in SOLVING else sizes
        # Not every library promises to read one triangle alone.
        devices = ("cpu", "cuda") if "7.5" in operation.code else ()
        yield Row(
            name=operation.name,
            answers=partial(_judged, operation, mine),
            devices=devices,
            defects=operation.defects,
        )


LINEAR_SYSTEMS: Table = tuple(_rows(EQUATIONS, SYSTEMS))
ANY_TRANSFORM: Table = tuple(_rows((*LINES, *FRAMES), TRANSFORMS))
