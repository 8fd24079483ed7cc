"""Packages that have no wheel for an image: uv's words for them, and the way out. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from packaging.utils import canonicalize_name

from warpfront_checks.stack import descriptions

# uv's words: "X==1.2 has no usable wheels", "all of: X<2 have no wheels with a matching ... tag".
_NO_WHEELS = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[^\]]*\])?(?:\{[^}]*\})?(?:[=<>!~][^\s]*)? "
    r"(?:has|have) no (?:usable )?(?:wheels|source distribution)"
)
# The only problem: the requirement itself has no wheel, in no version that fits.
_ALONE = re.compile(
    rf"Because (?:all versions of )?{_NO_WHEELS.pattern} and \S+ depends on \S+, we can conclude "
    r"that your requirements are unsatisfiable"
)


def requirers_without_wheels(explanation: str, installable: Collection[str]) -> tuple[str, ...]:
    """Return the packages that uv could not inspect, because they have no wheel,
    other than `installable`.
    """
    text = " ".join(explanation.split())
    names = [canonicalize_name(match[1]) for match in _NO_WHEELS.finditer(text)]
    return tuple(dict.fromkeys(name for name in names if name not in installable))


def wheelless(explanation: str) -> str:
    """Return the package without a wheel, if that alone is why the resolution fails; else ""."""
    match = _ALONE.match(" ".join(explanation.split()))
    return canonicalize_name(match[1]) if match else ""


def refusal(name: str) -> str:
    return f"{name} has no wheel for this image: it is built against its torch, or not at all"


def way_out(name: str, vendor: str = "") -> str:
    """Return how to build it, or why a build is in vain: on `vendor`'s devices, or on another's."""
    builds = (
        f"`builds: {name}:` in an image on one with a compiler (docs/locks.md) builds it once, in "
        "a container"
    )
    if name not in descriptions.names():
        return builds
    if vendor:
        return descriptions.description(name, vendor=vendor, version="").not_for or builds
    return "; ".join((builds, *descriptions.nothing_for(name)))
