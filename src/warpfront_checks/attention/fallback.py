"""The text of an example: attention by the first of several ways that takes a case. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

# By name, the parts of the example that is written.
_PARTS = dict(
    re.findall(
        r"^=== (.+)\n((?:(?!=== ).*\n)*)",
        Path(__file__).with_name("fallback.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
_BACKENDS: Mapping[str, str] = {
    "sdpa flash": "FLASH_ATTENTION",
    "sdpa efficient": "EFFICIENT_ATTENTION",
    "sdpa cudnn": "CUDNN_ATTENTION",
    "sdpa math": "MATH",
}
MOST_TIERS = 3


def fallback_text(target: str, measured: Sequence[tuple[str, float]]) -> str:
    """Return Python for the fastest of `measured` (tier and seconds, any order): three, and the
    plain way last where it is not among them, since it takes every case.
    """
    ordered = sorted(measured, key=lambda pair: pair[1])
    fastest = [name for name, _ in ordered][:MOST_TIERS]
    if "sdpa math" not in fastest and any(name == "sdpa math" for name, _ in ordered):
        fastest = [*fastest[: MOST_TIERS - 1], "sdpa math"]
    times = "\n".join(f"* {name}: {1000 * seconds:.3g} ms" for name, seconds in ordered)
    parts = [_PARTS["head"].format(target=target, measured=f"{times}\n"), *map(_way, fastest)]
    names = ", ".join(map(_function, fastest))
    return "\n".join([*parts, _PARTS["tail"].format(names=names)])


def _way(name: str) -> str:
    if name == "flex":
        return _PARTS["flex"].format(function=_function(name))
    if name in _BACKENDS:
        return _PARTS["dot product"].format(function=_function(name), backend=_BACKENDS[name])
    return _PARTS["library"].format(function=_function(name), module=name.replace("-", "_"))


def _function(name: str) -> str:
    return f"by_{name.replace(' ', '_').replace('-', '_')}"
