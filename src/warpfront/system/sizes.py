"""Sizes and times as people read them. Pure."""

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


def readable_seconds(seconds: float) -> str:
    """`8 s`, `3 min 05 s`, `2 h 05 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 finding`, `2 findings`; `plural` is for a noun that takes more than an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
