"""The nearest known name to a misspelt one, and targets that a vendor does not have. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from warpfront.matrix.products import target_of_product
from warpfront.matrix.vendors import Vendor

_SHOWN = 12


def target_fault(vendor: Vendor, target: str, machine: str, of: str) -> tuple[str, str]:
    """Return what is wrong with a target of `of` for `machine`, and what to do; "" if fine."""
    if not vendor.accepts_target(target):
        near = nearest(target, vendor.known_targets)
        message = f"`{target}` is no target of {vendor.name}"
        return message, f"{near}; its targets look like {vendor.target_form}"
    if vendor.machine_of(target) not in {None, machine}:
        message = f"target `{target}` is a machine, and the {of} is for {machine}"
        return message, f"give the {of} `machine: {target}`"
    return "", ""


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
