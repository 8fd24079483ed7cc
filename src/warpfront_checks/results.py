"""The results of a session: one JSON file, with the plan first and then the outcomes. Written
inside images, and read outside of them.

A process that dies leaves a file whose plan is longer than its list of checks; the host reads that
as an error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from warpfront_checks.documents import Reader

SCHEMA = 1
# How a line of counts begins, in what sessions side by side print.
PROGRESS = "progress: "
PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"
UNAVAILABLE = "unavailable"
EMULATED = "emulated"
UNDETERMINED = "undetermined"
ERROR = "error"
OUTCOMES = (PASSED, FAILED, SKIPPED, UNAVAILABLE, EMULATED, UNDETERMINED, ERROR)


class ResultsError(ValueError):
    """A results file that does not match its schema; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """The result of one check: an outcome, a reason in words, and small JSON values."""

    outcome: str
    reason: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckRecord(CheckFinding):
    """A check's finding as recorded in the file."""

    name: str
    seconds: float

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ResultsError(f"outcome {self.outcome!r} is none of {', '.join(OUTCOMES)}")


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """The file without its environment and unclaimed facts, which `surroundings` returns."""

    planned: tuple[str, ...]
    checks: tuple[CheckRecord, ...]
    finished: bool


Find = Callable[[], CheckFinding]
# By the name of a check, the function that finds out; or the reason why nothing is claimed of it.
Checks = Mapping[str, Find | str]


def _finding(outcome: str, reason: str = "", /, **details: object) -> CheckFinding:
    return CheckFinding(outcome=outcome, reason=reason, details=details)


passed, failed, errored = (partial(_finding, each) for each in (PASSED, FAILED, ERROR))
undetermined, unavailable = (partial(_finding, each) for each in (UNDETERMINED, UNAVAILABLE))


def judged(
    faults: Sequence[str], reason: str = "", limit: int = 1, /, **details: object
) -> CheckFinding:
    """Return passed without faults; else failed by the first ones, with the number of others."""
    return failed(several(faults, limit), **details) if faults else passed(reason, **details)


def judged_by_all(faults: Sequence[str], reason: str = "", /, **details: object) -> CheckFinding:
    return judged(faults, reason, 3, **details)


def several(lines: Sequence[str], shown: int = 3) -> str:
    more = f" (and {len(lines) - shown} more)" if len(lines) > shown else ""
    return "; ".join(lines[:shown]) + more


class Recorder:
    """Runs checks and keeps the results file true after every one of them."""

    def __init__(self, *, session: str, target: str, folder: Path) -> None:
        self.path = folder / f"{session}.json"
        self.environment: dict[str, object] = {}
        self._session = session
        self._target = target
        self._planned: list[str] = []
        self._unclaimed: list[dict[str, str]] = []
        self._checks: list[CheckRecord] = []
        self._started = time.monotonic()
        self._left = b""
        self._is_ours = True

    def is_ours(self) -> bool:
        """Return whether the file was unchanged, whenever it was looked at."""
        if self._left:
            self._is_ours &= self.path.is_file() and self.path.read_bytes() == self._left
        return self._is_ours

    @property
    def found(self) -> tuple[tuple[str, str], ...]:
        """Name and outcome of every check so far."""
        return tuple((check.name, check.outcome) for check in self._checks)

    @property
    def planned(self) -> tuple[str, ...]:
        return tuple(self._planned)

    def plan(self, names: Sequence[str]) -> None:
        """Promise checks by name, on disk, before any of them runs."""
        self._planned.extend(name for name in names if name not in self._planned)
        self._write(finished=False)

    def note_unclaimed(self, name: str, reason: str) -> None:
        """Record that nothing is claimed, so nothing is checked: neither skipped nor passed."""
        self._unclaimed.append({"name": name, "reason": reason})

    def run(self, checks: Checks) -> None:
        """Run all checks that are claimed. What one raises is an `error`; the others go on."""
        for name, reason in checks.items():
            if isinstance(reason, str):
                self.note_unclaimed(name, reason)
        claimed = {name: find for name, find in checks.items() if not isinstance(find, str)}
        self.plan([*claimed])
        for name, find in claimed.items():
            before = time.monotonic()
            try:
                finding = find()
            except Exception as error:  # noqa: BLE001 - what a check raises is a result; others go on
                finding = finding_from(error)
            seconds = time.monotonic() - before
            record = CheckRecord(name=name, seconds=round(seconds, 4), **vars(finding))
            self._checks.append(record)
            self._write(finished=False)
            line = f"{self._session}: {name}: {finding.outcome} ({seconds:.2f} s)"
            sys.stdout.write(line + (f": {finding.reason}\n" if finding.reason else "\n"))
            sys.stdout.flush()

    def finish(self) -> bool:
        """Write the last state; return whether all planned checks passed in a file of ours."""
        self._write(finished=True)
        complete = len(self._checks) == len(self._planned) and self.is_ours()
        return complete and {outcome for _, outcome in self.found} == {PASSED}

    def _write(self, *, finished: bool) -> None:
        self.is_ours()
        self._left = write_json(
            self.path,
            {
                "schema": SCHEMA,
                "session": self._session,
                "target": self._target,
                "environment": self.environment,
                "planned": self._planned,
                "unclaimed": self._unclaimed,
                "checks": [vars(check) for check in self._checks],
                "finished": finished,
                "seconds": round(time.monotonic() - self._started, 4),
            },
            indent=1 if finished else None,
        )


def finding_from(error: Exception) -> CheckFinding:
    """Return an exception as a result: its type, message and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
    message = str(error).strip()[:2000]
    # torch.OutOfMemoryError for devices; the CPU's allocator raises a plain RuntimeError.
    full = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in message
    summary = f"{'out of memory: ' if full else ''}{type(error).__name__}"
    return CheckFinding(
        outcome=ERROR,
        reason=f"{summary} at {where}: {message}",
        details={"exception": type(error).__name__, "message": message, "line": where},
    )


def write_json(path: Path, value: object, *, indent: int | None = 1) -> bytes:
    """Write aside, then move: a reader sees the old file or the new one, never half of one.
    Without an indent json is written by C, many times faster.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(value, indent=indent, sort_keys=True, default=str, allow_nan=False)
    data = f"{text}\n".encode()
    aside.write_bytes(data)
    aside.replace(path)
    return data


_READER = Reader(error=ResultsError, lenient=True)


def read_results(document: object, *, session: str, target: str) -> SessionRecord:
    """Return the parsed file of a session, which is foreign text. Raise `ResultsError`."""
    if not isinstance(document, dict):
        raise ResultsError("the results file must be an object")
    fields = {**document, "finished": document.get("finished") is True}
    for name, value in {"schema": SCHEMA, "session": session, "target": target}.items():
        if fields.get(name) != value:
            raise ResultsError(f"{name} is {fields.get(name)!r}, not {value!r}")
    return _READER.record(SessionRecord, fields, "the results file")


def surroundings(document: object, *, session: str) -> dict[str, object]:
    """Return the environment of the session, and the unclaimed facts, which are unchecked."""
    if not isinstance(document, dict):
        return {}
    recorded = document.get("environment")
    environment: dict[str, object] = dict(recorded) if isinstance(recorded, dict) else {}
    if document.get("unclaimed"):
        environment[f"unclaimed in {session}"] = document["unclaimed"]
    return environment
