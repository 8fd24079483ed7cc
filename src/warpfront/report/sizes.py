"""Sizes as people read them. Pure."""

from __future__ import annotations

_UNIT = 1000.0


def readable_size(size_bytes: int | None) -> str:
    """Decimal units, as registries and `docker images` show them; "?" when not known."""
    if size_bytes is None:
        return "?"
    value, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= _UNIT and unit != "TB":
        value, unit = value / _UNIT, next(units)
    return f"{value:.0f} {unit}" if unit in {"B", "kB", "MB"} else f"{value:.1f} {unit}"
