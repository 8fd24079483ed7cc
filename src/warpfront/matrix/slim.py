"""Files that images omit from their wheels: the recipes of `slim:`, as globs
below site-packages. Pure.

They are data (`data/slim.toml`), each with the reason why nothing in an image uses its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from warpfront.matrix.vendors import VENDORS
from warpfront.system.packaged import packaged_toml

COMPILER = "compiler"
_EACH_GFX = "{gfx}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimRecipe:
    """`removes` are globs; `needed` is what an image has that needs them (`compiler`), or ""."""

    removes: tuple[str, ...]
    why: str
    needed: str = ""


@cache
def slim_recipes() -> Mapping[str, SlimRecipe]:
    recipes = packaged_toml("slim.toml").items()
    return {n: SlimRecipe(**{**row, "removes": tuple(row["removes"])}) for n, row in recipes}


def removed(names: Iterable[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Return the globs of these recipes, if they are known, for an image for `targets`."""
    other_targets = sorted(set(VENDORS["amd"].known_targets) - set(targets))
    globs: set[str] = set()
    for name in slim_recipes().keys() & set(names):
        for glob in slim_recipes()[name].removes:
            targeted = other_targets if _EACH_GFX in glob else [""]
            globs |= {glob.replace(_EACH_GFX, gfx) for gfx in targeted}
    return tuple(sorted(globs))
