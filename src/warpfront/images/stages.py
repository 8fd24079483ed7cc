"""A Dockerfile's stages: which part of it layers can stand in for. Pure.

The stage `installed` stands on `environment` and adds the wheels. It is replaced as a whole, so
only where it does what we know: a project that changed the fragment gets what it wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EMPTY_STAGE = "environment"
WHEELS_STAGE = "installed"
# `_shared/wheels.j2` between the two stages, rendered; a test holds them together.
_INSTALLS = r"""
FROM environment AS installed
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    start=$(date +%s) && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --python /opt/venv/bin/python --requirement /run/requirements.txt && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    find "$site" -name uv_cache.json -newermt "@$((start - 1))" -execdir sed -i '/\/uv_cache\.json,/d' RECORD \; -delete && \
    find "$site" -name '*.py' -newermt "@$((start - 1))" -exec touch -d @315532800 {} + && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }

FROM installed
"""  # noqa: E501
# What compiles the sources of a set of wheels: the same as the step behind the stage does.
BYTE_CODE = r"""FROM installed
RUN --network=none start=$(date +%s) && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python -m compileall -qq -j 0 "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
"""
_MAKES_ENVIRONMENT = re.compile(
    r"/tools/uv venv [^\n]* /opt/venv && \\\n"
    r" +mv /opt/venv/lib/python3\.\* /opt/venv/lib/python3 && \\\n"
    r" +ln -s python3 /opt/venv/lib/python3\.\d+ && \\\n"
)


@dataclass(frozen=True, slots=True)
class Stages:
    """A Dockerfile that layers can be put into: the text of what comes `before` them."""

    before: str


def stages_of(dockerfile: str) -> Stages | None:
    """The stages of a rendered Dockerfile; None where layers cannot stand in for one of them."""
    before, found, _ = dockerfile.partition(_INSTALLS)
    if not found or dockerfile.count(f"AS {WHEELS_STAGE}\n") != 1:
        return None
    names_it = re.search(rf"^FROM \S+ AS {EMPTY_STAGE}$", before, re.MULTILINE)
    return Stages(before) if names_it and _MAKES_ENVIRONMENT.search(before) else None
