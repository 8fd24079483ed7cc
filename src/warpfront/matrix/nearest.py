"""The nearest known name to a misspelt one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 12


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return `did you mean ...?`, else the names there are."""
    names = list(dict.fromkeys(candidates))
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"there are: {', '.join(names[:_SHOWN])}{more}" if names else "there is none"
