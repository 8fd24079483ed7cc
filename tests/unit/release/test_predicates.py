"""Which documents are attested, and as what."""

from __future__ import annotations

import json

import pytest

from warpfront.release.statements.statement import MEDIA_TYPE, predicate_of, statement_text

STATEMENT = statement_text(
    {"a": 1}, name="x", digest=f"sha256:{'1' * 64}", predicate_type="https://a.test/p"
)


@pytest.mark.parametrize(
    ("kind", "text", "stated"),
    [
        ("application/spdx+json", '{"a": 1}', "https://spdx.dev/Document"),
        ("application/vnd.cyclonedx+json", '{"a": 1}', "https://cyclonedx.org/bom"),
        (MEDIA_TYPE, STATEMENT, "https://a.test/p"),
    ],
)
def test_a_document_is_attested_under_the_type_that_verifiers_look_for(
    kind: str, text: str, stated: str
) -> None:
    found = predicate_of("name", kind, text.encode())
    assert found is not None
    assert (found.name, found.type, found.content) == ("name", stated, {"a": 1})
    assert json.loads(found.text) == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("application/vnd.warpfront.licences.v1+json", "{}"),
        ("application/spdx+json", "[]"),
        ("application/spdx+json", "{"),
        ("application/spdx+json", '{"a": 1, "a": 2}'),
        (MEDIA_TYPE, "{}"),
        (MEDIA_TYPE, '{"predicateType": "https://a.test/p", "predicate": {}}'),
    ],
)
def test_what_cannot_be_read_as_one_statement_is_not_attested(kind: str, text: str) -> None:
    assert predicate_of("name", kind, text.encode()) is None
