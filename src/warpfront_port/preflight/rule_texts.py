"""The rules of a preflight: what each kind of finding means, and what to do about it. Pure."""

from __future__ import annotations

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

_RULES: tuple[tuple[str, Level, str, str], ...] = (
    (
        MOVED,
        "error",
        (
            "A requirement does not accept a distribution of a cell's torch stack: pip and uv "
            "would replace it."
        ),
        (
            "Widen the requirement so that it accepts the image's own version. `==2.8.0` accepts "
            "`2.8.0+rocm6.4` (PEP 440); `===2.8.0`, `==2.8.0+cpu` and `>=2.9` do not."
        ),
    ),
    (
        MOVED_BY_DEPENDENCY,
        "error",
        "A package that a requirement brings does not accept a cell's torch stack.",
        (
            "Ask for a version of the package that fits, or let its demand go unmet on purpose: "
            "`relax:` in matrix.yaml."
        ),
    ),
    (
        NEEDS,
        "error",
        "A requirement does not accept what a cell's torch needs: torch is replaced or breaks.",
        "Widen the requirement to the versions that torch accepts; its floor is named.",
    ),
    (
        FOREIGN,
        "error",
        "A requirement brings a library that must not be in a cell's image.",
        (
            "Torch brings the libraries that it loads. Drop the line, or move it into an extra "
            "that only the other vendor's images install."
        ),
    ),
    (
        COMPANION,
        "warning",
        "A companion of torch that the image lacks would come as another build than its torch.",
        "Add it to `companions:` of the matrix's row. A guarded image refuses the other build.",
    ),
    (
        TRITON,
        "warning",
        "PyPI's triton would be written over the image's own, which has another name.",
        (
            "Drop the line: torch brings its triton. In a guarded image a shim answers for "
            "`triton`, and this line holds."
        ),
    ),
    (
        INDEX,
        "note",
        "Whatever has to be installed anew comes from the torch index of another build.",
        "Drop the line: the image has its torch, and its guard knows the index.",
    ),
    (
        OTHER_ABI,
        "warning",
        "A binary that was built against another torch, whose C++ interface differs.",
        "Name the build for the image's torch, or build it with `--no-build-isolation`.",
    ),
    (
        ISOLATED,
        "warning",
        (
            "An isolated build takes the newest torch that fits, not the image's, and gives an "
            "extension for another C++ interface."
        ),
        (
            "Install with `--no-build-isolation`, or add the project to "
            "`no-build-isolation-package` under `[tool.uv]`."
        ),
    ),
    (
        CONDA,
        "note",
        "conda installs its own torch, in its own environment, and knows no constraints of pip.",
        "In the image, install with pip or uv into the image's own environment.",
    ),
)

RULES: tuple[SarifRule, ...] = tuple(
    SarifRule(id=name, level=level, summary=summary, help=text, help_uri=f"{_URI}#{name}")
    for name, level, summary, text in _RULES
)
LEVELS: dict[str, Level] = {rule.id: rule.level for rule in RULES}
DECIDING = frozenset({MOVED, MOVED_BY_DEPENDENCY, NEEDS, FOREIGN, TRITON})
"""The rules for an installation that replaces or breaks a cell's torch."""
