"""Files and revision of a source tree as values. Words."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """A file of an image's folder: its bytes or its link, and whether it is executable."""

    content: bytes = b""
    link: str = ""
    executable: bool = False

    @property
    def mode(self) -> int:
        """Return its mode in a build context, whatever it is here."""
        return 0o755 if self.executable else 0o644

    @property
    def identity(self) -> list[str]:
        """Return everything that identifies the file."""
        if self.link:
            return ["link", self.link]
        return [f"{self.mode:o}", hashlib.sha256(self.content).hexdigest()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The time and revision of a build. `created` is RFC 3339; `revision` a commit, or ""."""

    created: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UnreadFile:
    """A file or folder (ends with `/`) of a tree that was not read, and the reason. `left_out`
    marks a choice (ignored by git, a submodule, a third party) instead of a failure.
    """

    path: str
    reason: str
    left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that cannot be used, and why."""

    reason: str
