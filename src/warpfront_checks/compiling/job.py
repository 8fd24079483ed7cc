"""The job: written on the host, read in the container; and commands with their places filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpfront_checks.documents import Reader

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class JobUnit:
    """A source to compile. `argv` has `{source}`, `{output}`, `{work}` and `{torch}` as words
    of its own; it is empty if this vendor's compiler does not take such a source.
    """

    path: str
    kind: str
    torch: bool
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A source that every compiler of the target takes, and its command."""

    name: str
    text: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """Sources to compile, their target and limits."""

    target: str
    source: Path
    scratch: Path
    copy: Path
    version: tuple[str, ...]
    probe: Probe
    torch_defines: tuple[str, ...]
    environment: Mapping[str, str]
    copied: tuple[str, ...]
    hipified: tuple[str, ...]
    kept: tuple[str, ...]
    seconds: float
    memory_bytes: int
    jobs: int
    units: tuple[JobUnit, ...]

    @property
    def root(self) -> Path:
        """Return the folder of the sources: the copy, once hipify changed it."""
        return self.copy if self.hipified else self.source

    def document(self) -> dict[str, object]:
        """Return the job as JSON values; `read_job` reads them back to an equal value."""
        values: dict[str, object] = json.loads(json.dumps(asdict(self), default=str))
        return {"schema": SCHEMA, **values}


def read_job(path: Path) -> CompileJob:
    """Read a job. Raise `ValueError` for one that this copy of the checks does not understand."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema is {document.get('schema')!r}, not {SCHEMA}")
    del document["schema"]
    return Reader(error=ValueError).record(CompileJob, document, "the job")


def filled(argv: Sequence[str], places: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the command with each place (`{source}`) replaced by its words; other words stay."""
    return tuple(word for part in argv for word in places.get(part, (part,)))
