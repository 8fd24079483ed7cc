"""The results of a `bench` session, which are foreign text, as a record that belongs to
an image. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from warpfront.bench.record_files import first_wrong
from warpfront.bench.records import Bench
from warpfront_checks.bench.options import SCHEMA

KIND = "Timings"


class NoTimingsError(ValueError):
    """Results of a session that cannot be used; the message has the reason."""


def bench_of(document: object, whose: Mapping[str, Any]) -> Bench:
    """Return the bench of a session's timings.

    `whose` are the fields of a record that the session cannot know: cell, image, time, verified or
    not. Raise `NoTimingsError`.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise NoTimingsError("no timings were left")
    if document.get("schema") != SCHEMA:
        raise NoTimingsError(f"timings of schema {document.get('schema')!r}, expected {SCHEMA}")
    if document.get("target") != whose["target"]:
        raise NoTimingsError(f"timings of {document.get('target')!r}, not of {whose['target']!r}")
    fields = {name: value for name, value in document.items() if name not in {"schema", "kind"}}
    try:
        return TypeAdapter(Bench).validate_python({**fields, **whose})
    except ValidationError as error:
        raise NoTimingsError(first_wrong(error)) from None
