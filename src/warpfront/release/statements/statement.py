"""An in-toto statement (https://in-toto.io/Statement/v1) about one image by digest: the same value,
the same bytes; read as a stranger's. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

MEDIA_TYPE = "application/vnd.in-toto+json"
LIMIT_BYTES = 8 * 2**20
LONGEST_LIST = 20_000
LONGEST_TEXT = 4_000
_TYPE = "https://in-toto.io/Statement/v1"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_T = TypeVar("_T")


class StatementError(ValueError):
    """A statement that is none, or about something else; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """`predicate` is said of the image `name` with `digest` (`sha256:...`)."""

    name: str
    digest: str
    predicate_type: str
    predicate: Mapping[str, Any]


def statement_text(statement: Statement) -> str:
    """The statement as canonical JSON."""
    if not _DIGEST.match(statement.digest):
        raise StatementError(f"{statement.digest!r} is no digest of an image")
    document = {
        "_type": _TYPE,
        "subject": [
            {
                "name": statement.name,
                "digest": {"sha256": statement.digest.removeprefix("sha256:")},
            }
        ],
        "predicateType": statement.predicate_type,
        "predicate": statement.predicate,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def read_statement(payload: bytes, *, digest: str, predicate_type: str) -> Statement:
    """The statement in a payload, if it is of that kind and about that digest and nothing
    else. Raises `StatementError`.
    """
    found = read_any_statement(payload)
    if found.predicate_type != predicate_type:
        raise StatementError(f"it says {found.predicate_type[:200]}")
    if found.digest != digest:
        raise StatementError(f"it is about {found.digest}, not {digest}")
    return found


def read_any_statement(payload: bytes) -> Statement:
    """Return the statement of whatever type in a payload. Raises `StatementError`."""
    document = Fields(read_json(payload), "the statement")
    if document.text("_type") != _TYPE:
        raise StatementError("it is no in-toto statement of version 1")
    subjects = document.list("subject")
    if len(subjects) != 1:
        raise StatementError(f"it is about {len(subjects)} things, not one")
    subject = Fields(subjects[0], "subject")
    hashes = Fields(subject.value("digest", dict), "digest")
    found = f"sha256:{hashes.text('sha256')}"
    hashes.nothing_else()
    predicate = document.value("predicate", dict)
    name, predicate_type = subject.text("name"), document.text("predicateType")
    subject.nothing_else()
    document.nothing_else()
    return Statement(name=name, digest=found, predicate_type=predicate_type, predicate=predicate)


class Fields:
    """An object of somebody else's JSON, of which every field is asked for by name and type."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise StatementError(f"{where} is no object")
        self._fields = value
        self._where = where
        self._asked: set[str] = set()

    def value(self, name: str, kind: type[_T]) -> _T:
        self._asked.add(name)
        found = self._fields.get(name)
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise StatementError(f"{self._where}: {name} is {type(found).__name__}")
        return found

    def text(self, name: str) -> str:
        found = self.value(name, str)
        if len(found) > LONGEST_TEXT:
            raise StatementError(f"{self._where}: {name} is longer than {LONGEST_TEXT}")
        return found

    def list(self, name: str) -> list[Any]:
        found: list[Any] = self.value(name, list)
        if len(found) > LONGEST_LIST:
            raise StatementError(f"{self._where}: {name} has more than {LONGEST_LIST} entries")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.list(name)
        if not all(isinstance(one, str) and len(one) <= LONGEST_TEXT for one in found):
            raise StatementError(f"{self._where}: {name} is no list of texts")
        return tuple(found)

    def nothing_else(self) -> None:
        """What nobody asked for may change what the rest means."""
        if unknown := sorted(set(self._fields) - self._asked):
            raise StatementError(f"{self._where}: unknown field {unknown[0][:80]!r}")


def read_json(payload: bytes) -> object:
    """A JSON value of somebody else's: each field once, texts that are texts, of no endless size or
    depth. Raises `StatementError`.
    """
    if len(payload) > LIMIT_BYTES:
        raise StatementError(f"it is larger than {LIMIT_BYTES // 2**20} MiB")
    try:
        return _clean(
            json.loads(payload.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refused)
        )
    except RecursionError:
        raise StatementError("it is too deep") from None
    except ValueError as error:
        raise StatementError(f"it is no JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers may take two different fields of one name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands there twice")
    return found


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _clean(value: object) -> object:
    """The value, if its texts are texts. Nothing of ours has others, so none is mended."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += [*one, *one.values()]
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str) and _NOT_TEXT.search(one):
            raise ValueError("a text has control characters")
    return value
