"""Findings about a protected stack, one a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`part` is what of the guard noticed (`channel`, `distribution`, `file`, `stray`,
    `owner`, `shadow`, `forbidden`, `import`, `guard`), `subject` what it is about, `text` what
    is wrong with it.
    """

    part: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.part}: {self.subject}: {self.text}"
