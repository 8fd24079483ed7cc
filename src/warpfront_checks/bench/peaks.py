"""Published peaks of devices: by architecture, name and memory together, never by one of them.

A device in no row has no peak: a share of another device's peak would be worse than none.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PEAKS = Path(__file__).with_name("peaks.json")


@cache
def peak_table() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PEAKS.read_text(encoding="utf-8"))
    return document


def peak_of(arch: str, name: str, memory_bytes: int, dtype: str) -> dict[str, object] | None:
    """Return the peak for a record. `dtype` is torch's name, or `tf32` for float32 by that
    arithmetic; another, as of a copy's bytes, gives only the memory's rate.
    """
    for row in peak_table()["rows"]:
        least, most = row["memory_gib"]
        if row["arch"] == arch and name in row["names"] and least <= memory_bytes / 2**30 <= most:
            return {
                "flop_per_second": row["flop_per_second"].get(dtype),
                "bytes_per_second": row["bytes_per_second"],
                "dense": True,
                "source": f"{row['source']} ({peak_table()['as_of']})",
            }
    return None
