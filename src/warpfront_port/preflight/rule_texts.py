"""The rules of a preflight: what each kind of finding means, and what to do about it. Pure."""

from __future__ import annotations

import tomllib
from importlib import resources

from warpfront.report.sarif import Level, SarifRule

_URI = "https://github.com/warpfront/warpfront/blob/main/docs/preflight.md"

MOVED = "torch-moved"
MOVED_BY_DEPENDENCY = "torch-moved-by-dependency"
NEEDS = "torch-needs"
FOREIGN = "foreign-library"
COMPANION = "companion-build"
TRITON = "triton-replaced"
INDEX = "torch-index"
OTHER_ABI = "built-for-another-torch"
ISOLATED = "isolated-build"
CONDA = "conda-torch"

_TEXTS = tomllib.loads(
    resources.files("warpfront_port").joinpath("data", "preflight.toml").read_text("utf-8")
)
RULES: tuple[SarifRule, ...] = tuple(
    SarifRule(id=name, **rule, help_uri=f"{_URI}#{name}") for name, rule in _TEXTS.items()
)
LEVELS: dict[str, Level] = {rule.id: rule.level for rule in RULES}
DECIDING = frozenset({MOVED, MOVED_BY_DEPENDENCY, NEEDS, FOREIGN, TRITON})
"""The rules for an installation that replaces or breaks a cell's torch."""
