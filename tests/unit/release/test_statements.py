"""What is said of a digest: written the same every time, and read back to the letter or not at
all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from bills import BOOTSTRAPPED, CREATED, a_bill, a_making
from builders import A_RESOLVED_BASE, a_cell, a_check, a_lock, a_verification, a_wheel

from warpfront.matrix.language import OwnIndex
from warpfront.release.statements.predicates import (
    Proof,
    on_target,
    proof_text,
    provenance_text,
    read_proof,
    read_provenance_statement,
)
from warpfront.release.statements.statement import StatementError
from warpfront.verify.results import Outcome

NAME = "ghcr.io/demo/torch"
DIGEST = "sha256:" + "12" * 32
OTHER = "sha256:" + "34" * 32
REVISION = "01" * 20


def a_proof(**changes: Any) -> Proof:
    verification = a_verification(a_check(), a_check(session="numerics"))
    facts: dict[str, Any] = {
        "cell_id": "cell-a",
        "content_hash": "ef" * 32,
        "targets": (on_target(dataclasses.replace(verification, ended=CREATED)),),
        "relaxed": ("vllm",),
        "noted": ("its base was made by a bootstrap",),
    }
    return Proof(**facts | changes)


def making_payload() -> bytes:
    return provenance_text(a_making(), name=NAME, digest=DIGEST).encode()


def proof_payload() -> bytes:
    return proof_text(a_proof(), name=NAME, digest=DIGEST).encode()


def damaged(payload: bytes, damage: Callable[[Any], object]) -> bytes:
    document = json.loads(payload)
    damage(document)
    return json.dumps(document).encode()


def test_what_is_written_is_read_back_equal_and_written_the_same_twice() -> None:
    assert read_provenance_statement(making_payload(), digest=DIGEST) == a_making()
    assert read_proof(proof_payload(), digest=DIGEST) == a_proof()
    assert (making_payload(), proof_payload()) == (making_payload(), proof_payload())


def test_provenance_names_the_sources_the_base_each_wheel_by_hash_and_uv() -> None:
    wheel = a_wheel("torch", sha256="cd" * 32)
    making = a_making(bill=a_bill(lock=a_lock(None, wheel), base=BOOTSTRAPPED))
    found = {(one.uri.partition("?")[0], *one.digest.items()) for one in making.dependencies}
    base = A_RESOLVED_BASE.identity.removeprefix("sha256:")
    assert found == {
        ("git+https://example.test/demo", ("gitCommit", REVISION)),
        (f"pkg:oci/debian-12@{A_RESOLVED_BASE.identity}", ("sha256", base)),
        ("pkg:pypi/torch@2.13.0%2Bcpu", ("sha256", "cd" * 32)),
        ("pkg:pypi/uv@0.13.9",),
    }


def test_no_commit_is_no_dependency() -> None:
    assert not [one for one in a_making(revision="").dependencies if one.uri.startswith("git+")]


def test_provenance_holds_no_argument_path_host_or_password_of_a_build() -> None:
    own = OwnIndex(name="corp", url="https://me:canary@wheels.corp.example/", packages=("torch",))
    wheel = a_wheel("torch", index=own.url, source="/home/canary/torch.whl")
    cell = a_cell(own_indexes=(own,), environment={"TOKEN": "canary"})
    bill = a_bill(lock=a_lock(None, wheel), cell=cell)
    text = provenance_text(a_making(bill=bill, cell=cell), name=NAME, digest=DIGEST)
    assert "canary" not in text
    assert "corp" not in text


def test_a_proof_says_what_each_session_came_to_and_when() -> None:
    failed = a_verification(a_check(), a_check(Outcome.FAILED, session="numerics"))
    one = on_target(dataclasses.replace(failed, ended=CREATED))
    assert (one.outcome, one.at) == (Outcome.FAILED, CREATED)
    assert [(s.name, s.outcome, s.checks) for s in one.sessions] == [
        ("load", Outcome.PASSED, 1),
        ("numerics", Outcome.FAILED, 1),
    ]
    assert json.loads(proof_text(a_proof(targets=(one,)), name=NAME, digest=DIGEST))["predicate"][
        "result"
    ] == ("failed")


def test_nothing_verified_is_no_pass() -> None:
    text = proof_text(a_proof(targets=()), name=NAME, digest=DIGEST)
    assert json.loads(text)["predicate"]["result"] == "error"


@pytest.mark.parametrize("read", [read_provenance_statement, read_proof])
@pytest.mark.parametrize("payload", [making_payload(), proof_payload()])
def test_one_about_another_digest_or_of_another_kind_is_refused(
    read: Callable[..., object], payload: bytes
) -> None:
    with pytest.raises(StatementError):
        read(payload, digest=OTHER)
    if (read is read_proof) != (payload == proof_payload()):
        with pytest.raises(StatementError):
            read(payload, digest=DIGEST)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"_type": NaN}',
        b"9" * (9 * 2**20),
        proof_payload()[:-20],
        proof_payload().replace(b'"cell":', b'"cell":"other","cell":'),
        proof_payload().replace(b'"cell-a"', b'"cell\\u0007a"'),
        proof_payload().replace(b'"cell-a"', b'"cell\\ud800a"'),
        proof_payload().replace(b'"cell-a"', b'"' + b"x" * 5_000 + b'"'),
    ],
)
def test_what_is_no_statement_is_refused(payload: bytes) -> None:
    with pytest.raises(StatementError):
        read_proof(payload, digest=DIGEST)


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda one: one.update(more=1),
        lambda one: one["subject"].append(one["subject"][0]),
        lambda one: one.update(subject=[]),
        lambda one: one["subject"][0]["digest"].update(sha512="00"),
        lambda one: one["predicate"].update(more=1),
        lambda one: one["predicate"].update(result="failed"),
        lambda one: one["predicate"].update(cell=7),
        lambda one: one["predicate"]["targets"].append(one["predicate"]["targets"][0]),
        lambda one: one["predicate"]["targets"][0].update(outcome="passed with grace"),
        lambda one: one["predicate"]["targets"][0].update(outcome="failed"),
        lambda one: one["predicate"]["targets"][0].update(sessions=[]),
        lambda one: one["predicate"]["targets"][0]["sessions"][0].update(outcome="failed"),
        lambda one: one["predicate"]["targets"][0]["sessions"][0].update(checks=0),
        lambda one: one["predicate"]["targets"][0]["sessions"][0].update(checks=True),
        lambda one: one["predicate"].update(noted=[1]),
    ],
)
def test_an_edited_proof_is_refused(damage: Callable[[Any], object]) -> None:
    with pytest.raises(StatementError):
        read_proof(damaged(proof_payload(), damage), digest=DIGEST)


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one["buildDefinition"].update(buildType="https://example.test/other"),
        lambda one: one["buildDefinition"]["externalParameters"].update(vendor="cpu"),
        lambda one: one["buildDefinition"]["internalParameters"].update(token="x"),
        lambda one: one["buildDefinition"]["resolvedDependencies"].append("torch"),
        lambda one: one["buildDefinition"]["resolvedDependencies"].append({"uri": 1}),
        lambda one: one["buildDefinition"]["resolvedDependencies"].append(
            {"uri": "x", "digest": {"sha256": "0", "sha1": "1"}}
        ),
        lambda one: one["buildDefinition"]["resolvedDependencies"].append(
            {"uri": "x", "digest": {"sha256": 1}}
        ),
        lambda one: one["buildDefinition"].update(resolvedDependencies=[{"uri": "x"}] * 20_001),
        lambda one: one["runDetails"]["metadata"].update(invocationId="/work/x"),
        lambda one: one["runDetails"]["metadata"].update(host="x"),
        lambda one: one["runDetails"]["builder"].pop("id"),
    ],
)
def test_an_edited_provenance_is_refused(damage: Callable[[Any], object]) -> None:
    payload = damaged(making_payload(), lambda one: damage(one["predicate"]))
    with pytest.raises(StatementError):
        read_provenance_statement(payload, digest=DIGEST)


def test_no_statement_is_written_about_what_is_no_digest() -> None:
    with pytest.raises(StatementError, match="no digest"):
        proof_text(a_proof(), name=NAME, digest="latest")


def test_a_provenance_names_the_run_that_built_it() -> None:
    run = "https://github.com/me/mine/actions/runs/7/attempts/2"
    text = provenance_text(a_making(invocation=run), name=NAME, digest=DIGEST)
    details = json.loads(text)["predicate"]["runDetails"]
    assert details["metadata"]["invocationId"] == run
    assert details["builder"] == {"id": "https://ci.example/run/1"}
    assert read_provenance_statement(text.encode(), digest=DIGEST).invocation == run
