"""Cells of `--target --vendor --image --only`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from warpfront.errors import NothingSelectedError
from warpfront.matrix.nearest import nearest
from warpfront.model import Cell, Selection


def select(cells: tuple[Cell, ...], selection: Selection) -> tuple[Cell, ...]:
    """The cells that match every option given, in their order; parents are not added.

    Raises `NothingSelectedError` naming the option that matches nothing.
    """
    left = cells
    for option, wanted in _given(selection):
        chosen = tuple(cell for cell in left if _matches(cell, option, wanted))
        if not chosen:
            raise _nothing(cells, left, option, wanted)
        left = chosen
    return left


def _given(selection: Selection) -> list[tuple[str, str]]:
    options = ("target", "vendor", "image", "only")
    return [(one, wanted) for one in options if (wanted := getattr(selection, one))]


def _matches(cell: Cell, option: str, wanted: str) -> bool:
    if option == "only":
        return fnmatchcase(cell.id, wanted)
    return wanted in _values(cell, option)


def _values(cell: Cell, option: str) -> tuple[str, ...]:
    """Return the values of `option` that select `cell`."""
    return {
        "target": (*cell.targets, cell.vendor),
        "vendor": (cell.vendor,),
        "image": (cell.image,),
        "only": (cell.id,),
    }[option]


def _nothing(
    cells: tuple[Cell, ...], left: Iterable[Cell], option: str, wanted: str
) -> NothingSelectedError:
    if not cells:
        return NothingSelectedError("the matrix has no cells", hint="add a row to matrix.yaml")
    known = [value for cell in cells for value in _values(cell, option)]
    message = f"no cell matches --{option} {wanted}"
    if option == "only":
        hint = f"it is a glob on ids, which look like {known[0]}"
        return NothingSelectedError(message, hint=hint)
    if wanted not in known:
        return NothingSelectedError(message, hint=nearest(wanted, known))
    among = dict.fromkeys(value for cell in left for value in _values(cell, option))
    return NothingSelectedError(
        f"no cell has --{option} {wanted} together with the other options",
        hint=f"with those there are: {', '.join(among)}",
    )
