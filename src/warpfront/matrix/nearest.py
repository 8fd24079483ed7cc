"""The nearest known name to a misspelt one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from warpfront.matrix.products import target_of_product

_SHOWN = 12


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return `did you mean ...?`, else the names there are. A product stands for its target."""
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
