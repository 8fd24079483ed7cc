"""Records at rest: a run, a bench or a comparison as JSON, and read again; the foreign
results of a `bench` session as a record that belongs to an image. Pure.

One schema number for all; a document of another is refused, not guessed at.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from warpfront.bench.records import SCHEMA, Bench, Comparison, Run, Summary
from warpfront.system.digests import clean_json
from warpfront.system.strict_values import first_wrong, read_as, refuse_constant
from warpfront_checks.bench.options import SCHEMA as TIMINGS_SCHEMA

T = TypeVar("T")
_DERIVED = "summary"
_KINDS: Mapping[str, type[Run | Bench]] = {"Run": Run, "Bench": Bench}


class NoRecordError(ValueError):
    """A document that is marked as one of ours, and cannot be read."""


def run_document(run: Run, summary: Summary) -> dict[str, Any]:
    """Return a run with its summary, which is computed again when it is read."""
    return {**_document(run), _DERIVED: dataclasses.asdict(summary)}


def bench_document(bench: Bench) -> dict[str, Any]:
    """Return a bench with the median of each operation, which is computed again when it is read."""
    document = _document(bench)
    for name in ("results", "training"):
        for timed, entry in zip(getattr(bench, name), document[name], strict=True):
            entry["median_seconds"] = timed.median_seconds
    return document


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison; `inverse` is A's time over B's."""
    times = comparison.times
    inverse = dataclasses.asdict(times.inverse) if times else None
    return {**_document(comparison), "inverse": inverse, "is_slower": bool(comparison.slower)}


def _document(value: Run | Bench | Comparison) -> dict[str, Any]:
    return {"schema": SCHEMA, "kind": type(value).__name__, **dataclasses.asdict(value)}


def read_records(text: str) -> tuple[Run | Bench, ...]:
    """Return the runs and benches of a document, if it is ours. Raise `NoRecordError`."""
    try:
        document = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return ()
    several = document if isinstance(document, list) else [document]
    if not all(isinstance(each, dict) and str(each.get("kind")) in _KINDS for each in several):
        return ()
    return tuple(_read(_KINDS[each["kind"]], each, "schema", SCHEMA) for each in several)


def _read(kind: type[T], document: Mapping[str, Any], what: str, schema: int, **more: Any) -> T:
    if document.get("schema") != schema:
        raise NoRecordError(f"{what} {document.get('schema')!r}, expected {schema}")
    fields = {k: v for k, v in document.items() if k not in {"schema", "kind", _DERIVED}}
    try:
        return read_as(kind, clean_json({**fields, **more}))
    except ValidationError as error:
        raise NoRecordError(first_wrong(error)) from None
    except ValueError as error:
        raise NoRecordError(str(error)) from None


KIND = "Timings"


def bench_of(document: object, whose: Mapping[str, Any]) -> Bench:
    """Return the bench of a session's timings.

    `whose` are the fields of a record that the session cannot know: cell, image, time, verified or
    not. Raise `NoRecordError`.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise NoRecordError("no timings were left")
    if document.get("target") != whose["target"]:
        raise NoRecordError(f"timings of {document.get('target')!r}, not of {whose['target']!r}")
    return _read(Bench, document, "timings of schema", TIMINGS_SCHEMA, **whose)
