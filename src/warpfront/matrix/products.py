"""Product names of accelerators and their targets (`data/products.toml`). Words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from warpfront.system.packaged import packaged_toml

_MAKERS = re.compile(r"amd|nvidia|instinct|radeon|geforce|[\s_-]")


def target_of_product(name: str) -> str:
    """Return the target of a product (`MI300X`, `NVIDIA H100`); "" for another name."""
    return _targets().get(_MAKERS.sub("", name.lower()), "")


@cache
def _targets() -> Mapping[str, str]:
    products = packaged_toml("products.toml").items()
    return {name.lower(): target for target, names in products for name in names.split()}
