"""Old bases and tables, toolkits and Pythons past their end, as sentences for `plan`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from warpfront.matrix.cell import Cell
from warpfront.matrix.compat import Compat
from warpfront.matrix.language import Base
from warpfront.matrix.vendors import VENDORS

TABLE_MAX_AGE_DAYS = 30


def ended_notes(cells: Iterable[Cell], compat: Compat, *, today: str) -> tuple[str, ...]:
    """Return a sentence for each toolkit and Python of the cells that is past its end of support,
    and for each toolkit that newer releases of torch have no wheels for.
    """
    notes = []
    for cell in cells:
        end = compat.end("python", cell.python)
        if end is not None and end.day < today:
            notes.append(f"python {cell.python} has had no fixes since {end.day} ({end.source})")
        if cell.toolkit is None or VENDORS[cell.vendor].torch_from == "base":
            continue
        name = f"{cell.toolkit.name} {cell.toolkit.version}"
        end = compat.end(cell.vendor, cell.toolkit.version)
        if end is not None and end.day < today:
            notes.append(f"{name} is past its end of support, {end.day} ({end.source})")
        if (last := compat.last_with(cell.vendor, cell.toolkit.version)) is not None:
            last_one = f"torch {last} is the last release with wheels for it (compat table)"
            notes.append(f"{name}: {last_one}")
    return tuple(dict.fromkeys(notes))


def table_notes(cells: Iterable[Cell], compat: Compat, *, today: str) -> tuple[str, ...]:
    """Return a sentence for the indexes of the cells whose contents are older than
    `TABLE_MAX_AGE_DAYS`: by their last reading, else by the date of the compat table's rows.
    """
    ages: dict[tuple[str, str], list[str]] = {}
    for name in sorted({cell.index.name for cell in cells if cell.index}):
        read = compat.read_on(name)
        source = (read, "its reading") if read else (compat.table.as_of, "rows")
        ages.setdefault(source, []).append(name)
    return tuple(
        f"index {', '.join(names)} is known by {kind} of {day}, {age} days ago: "
        "`warpfront compat update`"
        for (day, kind), names in sorted(ages.items())
        if (age := _days(day, today) or 0) > TABLE_MAX_AGE_DAYS
    )


def driver_note(cells: Iterable[Cell], compat: Compat) -> str:
    """Return a sentence with the lowest drivers for the cells' toolkits, "" for none known."""
    floors: dict[str, dict[str, None]] = {}
    for cell in cells:
        version = cell.toolkit.version if cell.toolkit else ""
        if (floor := compat.driver_floor(cell.vendor, version)) is not None:
            floors.setdefault(f"{cell.vendor} {floor.minimum}", {})[str(cell.toolkit)] = None
    needs = (f"{', '.join(toolkits)}: {driver}" for driver, toolkits in sorted(floors.items()))
    return f"drivers at least: {'; '.join(needs)} (compat table)" if floors else ""


def base_notes(
    bases: Mapping[str, tuple[Base, str]], *, today: str, max_age_days: int, is_explicit: bool
) -> tuple[str, ...]:
    """Return a sentence for each base (by name, with the moment of its image, "" if unknown) that
    is older than allowed. An unknown age is named only where the limit `is_explicit`.
    """
    notes = []
    for name, (base, created) in sorted(bases.items()):
        age = _days(created, today)
        if age is None and is_explicit:
            notes.append(f"{name}: its age is not determined: no image of it is here")
        elif age is not None and age > max_age_days:
            notes.append(
                f"{name}: {base.reference} is {age} days old, more than {max_age_days}: "
                "pin a newer digest"
            )
    return tuple(notes)


def _days(created: str, today: str) -> int | None:
    try:
        age = (date.fromisoformat(today) - date.fromisoformat(created[:10])).days
    except ValueError:
        return None
    return age if created[:4] > "1980" else None
