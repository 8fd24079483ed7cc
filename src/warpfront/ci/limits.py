"""Limits of the CI services, as data/limits.toml has them with their sources. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of GitHub and GitLab that are checked here."""

    called_workflows: int
    jobs_per_matrix: int
    output_bytes: int
    needs_per_job: int
    child_bytes: int
    jobs_per_pipeline: int


def read_limits(text: str) -> Limits:
    """Return the limits in the text of data/limits.toml."""
    rows = {
        name: row["value"]
        for service in tomllib.loads(text).values()
        for name, row in service.items()
    }
    return Limits(**{field.name: rows[field.name] for field in fields(Limits)})
