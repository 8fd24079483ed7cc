"""Cells of `--target --vendor --image --only`; the nearest known name to a misspelt one, and
targets that a vendor does not have. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from warpfront.errors import NothingSelectedError
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.products import target_of_product
from warpfront.matrix.vendors import Vendor


def select(cells: tuple[Cell, ...], selection: Selection) -> tuple[Cell, ...]:
    """Return the cells that match every option given, in their order; parents are not added.

    Raise `NothingSelectedError` naming the option that matches nothing.
    """
    matching = cells
    for option in ("target", "vendor", "image", "only"):
        choice = getattr(selection, option)
        matches = fnmatchcase if option == "only" else str.__eq__
        chosen = tuple(
            cell
            for cell in matching
            if not choice or any(matches(value, choice) for value in values_of(cell, option))
        )
        if not chosen:
            if not cells:
                hint = "add a row to matrix.yaml"
                raise NothingSelectedError("the matrix has no cells", hint=hint)
            values = [value for cell in cells for value in values_of(cell, option)]
            message, hint = f"no cell matches --{option} {choice}", nearest(choice, values)
            if option == "only":
                hint = f"it is a glob on ids, which look like {values[0]}"
            elif choice in values:
                among = dict.fromkeys(v for cell in matching for v in values_of(cell, option))
                message = f"no cell has --{option} {choice} together with the other options"
                hint = f"with those there are: {', '.join(among)}"
            raise NothingSelectedError(message, hint=hint)
        matching = chosen
    return matching


def values_of(cell: Cell, option: str) -> tuple[str, ...]:
    """Return the values of `option` that select `cell`."""
    return {
        "target": (*cell.targets, cell.vendor),
        "vendor": (cell.vendor,),
        "image": (cell.image,),
        "only": (cell.id,),
    }[option]


def with_parents(selected: Iterable[Cell], cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Return the selected cells and those they stand on, parents first, in the matrix's order."""
    by_id = {cell.id: cell for cell in cells}
    cell_ids: set[str] = set()
    for cell in selected:
        current: Cell | None = cell
        while current is not None and current.id not in cell_ids:
            cell_ids.add(current.id)
            current = by_id[current.parent] if current.parent else None

    def depth(cell: Cell) -> int:
        return 0 if cell.parent is None else 1 + depth(by_id[cell.parent])

    return tuple(sorted((cell for cell in by_id.values() if cell.id in cell_ids), key=depth))


def selected_with_parents(cells: tuple[Cell, ...], selection: Selection) -> tuple[Cell, ...]:
    """Return the selected cells and their parents, parents first."""
    return with_parents(select(cells, selection), cells)


_SHOWN = 12


def target_faults(
    vendor: Vendor, targets: Iterable[str], of: str, *, machine: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield each problem of the targets of `of` for `machine` ("" for any), and the remedy."""
    for target in targets:
        if not vendor.accepts_target(target):
            near = nearest(target, vendor.known_targets)
            message = f"`{target}` is no target of {vendor.name}"
            yield message, f"{near}; its targets look like {vendor.target_form}"
        elif machine and vendor.machine_of(target) not in {None, machine}:
            message = f"target `{target}` is a machine, and the {of} is for {machine}"
            yield message, f"give the {of} `machine: {target}`"


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return `did you mean ...?`, else the names there are. A product means its target."""
    names = list(dict.fromkeys(candidates))
    if target := target_of_product(name):
        if target in names:
            return f"did you mean `{target}`? That is the target of {name}"
        return f"{name} is {target}, and there are: {', '.join(names[:_SHOWN])}"
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"there are: {', '.join(names[:_SHOWN])}{more}" if names else "there is none"
