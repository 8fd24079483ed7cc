"""The list of operations (`table.json`) joined with the cases that the families make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from warpfront_checks.operators.cases import Case, Cases, OperatorFamily, make_maker
from warpfront_checks.operators.elementwise import ELEMENTWISE
from warpfront_checks.operators.moves import MOVES
from warpfront_checks.operators.norms import LOSSES, NORMS
from warpfront_checks.operators.products import PRODUCTS
from warpfront_checks.operators.reductions import REDUCTIONS

TABLE = Path(__file__).with_name("table.json")
FAMILIES: tuple[OperatorFamily, ...] = (ELEMENTWISE, REDUCTIONS, PRODUCTS, NORMS, LOSSES, MOVES)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A row: `number` is its place among the required ones, 0 for the others; `letter` its
    class (E, U or A); `dtypes` are names of torch's.
    """

    name: str
    number: int
    letter: str
    family: str
    dtypes: tuple[str, ...]
    cases: Cases

    def make_cases(self, dtype: str, seed: int, *, quick: bool = False) -> Iterator[Case]:
        """Return its cases in one dtype, from one seed; the first is the plain one."""
        return self.cases(make_maker(getattr(torch, dtype), seed, quick=quick))


@cache
def operators() -> tuple[Operator, ...]:
    """Return every operation of the table, in its order. Raise for a row without cases, and for
    cases without a row.
    """
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    makers = {
        name: (family.name, cases) for family in FAMILIES for name, cases in family.cases.items()
    }
    rows: list[Mapping[str, str]] = document["operators"]
    unlisted = sorted({row["name"] for row in rows} ^ set(makers))
    if unlisted:
        raise LookupError(f"{TABLE.name} and the families differ about {', '.join(unlisted)}")
    return tuple(
        Operator(
            name=row["name"],
            number=int(row["number"] or 0),
            letter=row["class"],
            family=makers[row["name"]][0],
            dtypes=tuple(document["dtypes"][row["dtypes"]]),
            cases=makers[row["name"]][1],
        )
        for row in rows
    )
