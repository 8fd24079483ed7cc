"""An in-toto statement (https://in-toto.io/Statement/v1) about one image by digest: the same value,
the same bytes; read as foreign input; and which documents are signed as attestations. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from warpfront.release.registry.contract import Predicate
from warpfront.system.references import is_digest
from warpfront.system.strict_values import each_once, refuse_constant, text_of

MEDIA_TYPE = "application/vnd.in-toto+json"
LIMIT_BYTES = 8 * 2**20
LONGEST_LIST = 20_000
LONGEST_TEXT = 4_000
_LONGEST_LINE = 300
_TYPE = "https://in-toto.io/Statement/v1"
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


_T = TypeVar("_T")


class StatementError(ValueError):
    """A malformed statement, or one about another subject; the message has the reason."""


def statement_text(
    predicate: Mapping[str, Any], *, name: str, digest: str, predicate_type: str
) -> str:
    """Return the statement about the image `name` with `digest`, as canonical JSON."""
    if not is_digest(digest):
        raise StatementError(f"{digest!r} is no digest of an image")
    return _canonical(
        {
            "_type": _TYPE,
            "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def read_as(
    payload: bytes,
    read: Callable[[Mapping[str, Any]], _T],
    write: Callable[[_T], Mapping[str, Any]],
    *,
    digest: str,
    predicate_type: str,
) -> _T:
    """Return what `read` makes of the predicate in a payload, if the statement is of that type and
    about that digest, and if `write` makes the same predicate of it: an unknown field may change
    what the others mean. Raises `StatementError`.
    """
    statement = read_any_statement(payload)
    if statement["predicateType"] != predicate_type:
        raise StatementError(f"it is of the type {statement['predicateType'][:200]}")
    if (subject := _digest_in(statement)) != digest:
        raise StatementError(f"it is about {subject}, not {digest}")
    value = _attempt(lambda: read(statement["predicate"]))
    _same(write(value), statement["predicate"])
    return value


def read_any_statement(payload: bytes) -> dict[str, Any]:
    """Return the statement of whatever type in a payload. Raises `StatementError`."""
    document: Any = read_json(payload, longest_text=LONGEST_TEXT, longest_list=LONGEST_LIST)
    text = _attempt(
        lambda: statement_text(
            dict(document["predicate"]),
            name=str(document["subject"][0]["name"]),
            digest=_digest_in(document),
            predicate_type=str(document["predicateType"]),
        )
    )
    _same(json.loads(text), document)
    return dict(document)


def _digest_in(statement: Mapping[str, Any]) -> str:
    return f"sha256:{statement['subject'][0]['digest']['sha256']}"


def _attempt(read: Callable[[], _T]) -> _T:
    try:
        return read()
    except StatementError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StatementError(
            f"it lacks a field, or has one of another kind: {error!r:.100}"
        ) from None


def _same(ours: object, theirs: object) -> None:
    if _canonical(ours) != _canonical(theirs):
        raise StatementError("it has a field or value that no statement of this kind has")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n"


def read_json(
    payload: bytes, *, longest_text: int = LIMIT_BYTES, longest_list: int = LIMIT_BYTES
) -> object:
    """Return foreign JSON: each field once, texts that are texts, of limited size and depth. Raises
    `StatementError` for anything else.
    """
    if len(payload) > LIMIT_BYTES:
        raise StatementError(f"it is larger than {LIMIT_BYTES // 2**20} MiB")
    try:
        value = json.loads(
            payload.decode(), object_pairs_hook=each_once, parse_constant=refuse_constant
        )
    except RecursionError:
        raise StatementError("it is too deep") from None
    except ValueError as error:
        raise StatementError(f"it is no JSON: {error}") from None
    pending = [value]
    while pending:
        item = pending.pop()
        pending += [*item, *item.values()] if isinstance(item, dict) else []
        pending += item if isinstance(item, list) else []
        limit = longest_text if isinstance(item, str) else longest_list
        if isinstance(item, str | list) and len(item) > limit:
            raise StatementError(f"it has a text or list longer than {limit}")
        if isinstance(item, str) and _NOT_TEXT.search(item):
            raise StatementError("it is no JSON: a text has control characters")
    return value


def objects_in(document: object, name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list in foreign JSON; none where there is no such list."""
    listed = document.get(name) if isinstance(document, dict) else None
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def text_in(fields: Mapping[str, Any], name: str) -> str:
    """Return a text in foreign JSON, cut to a line; "" where there is none."""
    return text_of(fields, name)[:_LONGEST_LINE]


# What `cosign verify-attestation --type slsaprovenance1|spdxjson|cyclonedx` looks for
# (https://github.com/sigstore/cosign, `PredicateTypeMap` in `cmd/cosign/cli/options`).
_OF_MEDIA_TYPES = {
    "application/spdx+json": "https://spdx.dev/Document",
    "application/vnd.cyclonedx+json": "https://cyclonedx.org/bom",
}


def is_attested_kind(artifact_type: str) -> bool:
    """Return whether documents of this type are attested."""
    return artifact_type == MEDIA_TYPE or artifact_type in _OF_MEDIA_TYPES


def predicate_of(name: str, artifact_type: str, payload: bytes) -> Predicate | None:
    """Return what a document states; None for an unattested kind or an unreadable one."""
    try:
        if artifact_type == MEDIA_TYPE:
            statement = read_any_statement(payload)
            kind, content = statement["predicateType"], statement["predicate"]
            return Predicate(name=name, type=kind, content=content)
        if artifact_type in _OF_MEDIA_TYPES:
            content = read_json(payload)
            if isinstance(content, dict):
                return Predicate(name=name, type=_OF_MEDIA_TYPES[artifact_type], content=content)
    except StatementError:
        pass
    return None
