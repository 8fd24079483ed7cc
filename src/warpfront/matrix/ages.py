"""Old bases, and toolkits and Pythons past their end of support, as sentences for `plan`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from warpfront.matrix.compat import Compat
from warpfront.matrix.vendors import VENDORS
from warpfront.model import Base, Cell


def ended_notes(cells: Iterable[Cell], compat: Compat, *, today: str) -> tuple[str, ...]:
    """Return a sentence for each toolkit and Python of the cells that is past its end of support,
    and for each toolkit that newer releases of torch have no wheels for.
    """
    notes: dict[str, None] = {}
    for cell in cells:
        notes.update(dict.fromkeys(_ended(cell, compat, today)))
    return tuple(notes)


def base_notes(
    bases: Mapping[str, tuple[Base, str]], *, today: str, max_age_days: int, is_explicit: bool
) -> tuple[str, ...]:
    """Return a sentence for each base (by name, with the moment of its image, "" if unknown) that
    is older than allowed. An unknown age is named only where the limit `is_explicit`.
    """
    notes = []
    for name, (base, created) in sorted(bases.items()):
        age = _days(created, today)
        if age is None:
            notes += (
                [f"{name}: its age is not determined: no image of it is here"]
                if is_explicit
                else []
            )
        elif age > max_age_days:
            notes.append(
                f"{name}: {base.reference} is {age} days old, more than {max_age_days}: "
                "pin a newer digest"
            )
    return tuple(notes)


def _ended(cell: Cell, compat: Compat, today: str) -> Iterator[str]:
    found = compat.end("python", cell.python)
    if found is not None and found.day < today:
        yield f"python {cell.python} has had no fixes since {found.day} ({found.source})"
    if cell.toolkit is None or VENDORS[cell.vendor].torch_from == "base":
        return
    name = f"{cell.toolkit.name} {cell.toolkit.version}"
    found = compat.end(cell.vendor, cell.toolkit.version)
    if found is not None and found.day < today:
        yield f"{name} is past its end of support, {found.day} ({found.source})"
    last = compat.last_with(cell.vendor, cell.toolkit.version)
    if last is not None:
        yield f"{name}: torch {last} is the last release with wheels for it (compat table)"


def _days(created: str, today: str) -> int | None:
    try:
        age = (date.fromisoformat(today) - date.fromisoformat(created[:10])).days
    except ValueError:
        return None
    return age if created[:4] > "1980" else None
