"""The content of an attestation about an image. Words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A statement without its subject. `name` is that of the attached document, `type` the
    address of its kind.
    """

    name: str
    type: str
    content: Mapping[str, Any] = field(hash=False)

    @property
    def text(self) -> str:
        """Return the predicate as JSON, as `cosign attest --predicate` reads it."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":"))
