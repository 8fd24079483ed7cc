"""The revision of a source tree, and when an image was made of it. Words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The time and revision of a build. `created` is RFC 3339; `revision` a commit, or ""."""

    created: str
    revision: str
