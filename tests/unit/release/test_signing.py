"""cosign's commands, by version and by who vouches; and a signature that nobody can make."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from releases import FakeCosign, envelope_of

from warpfront.errors import CommandFailedError, SignatureError
from warpfront.release.origin import KeylessIdentity
from warpfront.release.registry.contract import Predicate
from warpfront.release.signing import KEYLESS, Signer, find_signer
from warpfront.system.process import Command, Completed, Run


def by_key(run: Run) -> Signer:
    return Signer(run=run, key="my.key", public_key="my.pub", environment={})


BY_KEY = by_key(FakeCosign())
REFERENCE = "ghcr.io/a/b@sha256:" + "0" * 64
SAYS = {"dev.warpfront.channel": "release"}
STATED = Predicate(name="spdx", type="https://spdx.dev/Document", content={"packages": [1, "é<"]})


def test_a_key_signs_without_the_transparency_log() -> None:
    cosign = FakeCosign(takes=())
    by_key(cosign).sign(REFERENCE, SAYS)
    (argv,) = (one.argv for one in cosign.commands if one.argv[1:3] == ("sign", "--yes"))
    assert argv == (
        "cosign",
        "sign",
        "--yes",
        "--key",
        "my.key",
        "--tlog-upload=false",
        "--annotations=dev.warpfront.channel=release",
        REFERENCE,
    )


@pytest.mark.parametrize(
    "takes", [("--new-bundle-format", "--use-signing-config"), ("--use-signing-config",), ()]
)
def test_cosign_3_is_told_to_write_the_form_that_cosign_2_reads(takes: tuple[str, ...]) -> None:
    """By the options that it takes: builds of distributions do not know their version."""
    cosign = FakeCosign(takes=takes)
    signer = by_key(cosign)
    signer.sign(REFERENCE, SAYS)
    signer.attest(REFERENCE, STATED)
    signing = [one.argv for one in cosign.commands if one.argv[1] in {"sign", "attest"}]
    given = [tuple(word for word in argv if word.endswith("=false")) for argv in signing]
    assert given == [("--tlog-upload=false", *(f"{one}=false" for one in takes))] * 2


def test_who_has_no_key_of_its_own_leaves_the_log_alone() -> None:
    cosign, identity = FakeCosign(takes=()), KeylessIdentity(pattern="^x$", issuer="https://a")
    keyless = dataclasses.replace(by_key(cosign), key=KEYLESS, identity=identity)
    keyless.sign(REFERENCE, {})
    (argv,) = (one.argv for one in cosign.commands if one.argv[1:3] == ("sign", "--yes"))
    assert argv == ("cosign", "sign", "--yes", REFERENCE)


def test_keyless_one_workflow_at_refs_that_may_publish_counts() -> None:
    identity = KeylessIdentity(pattern="^https://github.com/me/mine/x@y$", issuer="https://issuer")
    keyless = dataclasses.replace(BY_KEY, key=KEYLESS, identity=identity)
    assert keyless.verify_command(REFERENCE, {}).argv[2:4] == (
        "--certificate-identity-regexp=^https://github.com/me/mine/x@y$",
        "--certificate-oidc-issuer=https://issuer",
    )
    with pytest.raises(SignatureError, match="no identity is known"):
        dataclasses.replace(keyless, identity=None).verify_command(REFERENCE, {})


def test_keyless_somebody_has_to_vouch_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "cosign").touch(0o755)

    def unasked(command: Command) -> Completed:
        raise AssertionError(command)

    here = {"PATH": str(tmp_path)}
    for said in ({}, {"SIGSTORE_ID_TOKEN": ""}, {"CI": "true", "GITHUB_ACTIONS": "true"}):
        with pytest.raises(SignatureError, match="no CI here that vouches") as caught:
            find_signer(unasked, KEYLESS, {**here, **said}, tmp_path)
        assert "id-token: write" in caught.value.hint
    for name in ("SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        identity = KeylessIdentity(pattern="^x$", issuer="https://a")
        found = find_signer(unasked, KEYLESS, {**here, name: "x"}, tmp_path, identity=identity)
        assert (found.key, found.identity) == (KEYLESS, identity)


def test_a_signature_is_verified_by_the_public_half() -> None:
    assert BY_KEY.verify_command(REFERENCE, SAYS).argv == (
        "cosign",
        "verify",
        "--key",
        "my.pub",
        "--insecure-ignore-tlog=true",
        "--annotations=dev.warpfront.channel=release",
        REFERENCE,
    )


def test_plain_http_is_for_loopback_only() -> None:
    here = BY_KEY.verify_command("127.0.0.1:5000/a@sha256:0", {}).argv
    assert "--allow-http-registry" in here
    assert "--allow-http-registry" not in BY_KEY.verify_command(REFERENCE, {}).argv


def test_a_signature_that_does_not_hold_is_no_signature() -> None:
    cosign = FakeCosign()

    def forgetful(command: Command) -> Completed:
        done = cosign(command)
        cosign.signed.clear()
        return done

    with pytest.raises(SignatureError, match="does not hold"):
        by_key(forgetful).sign(REFERENCE, SAYS)


def test_a_signature_for_other_documents_is_another_signature() -> None:
    signer = by_key(FakeCosign())
    signer.sign(REFERENCE, SAYS)
    assert signer.is_signed(REFERENCE, SAYS)
    assert not signer.is_signed(REFERENCE, {**SAYS, "dev.warpfront.verification": "sha256:0"})


def test_without_cosign_there_is_one_error_that_says_where_to_get_it(tmp_path: Path) -> None:
    def missing(command: Command) -> Completed:
        raise CommandFailedError(f"{command.argv[0]}: not found")

    with pytest.raises(SignatureError) as caught:
        find_signer(missing, "my.key", {"PATH": str(tmp_path)}, tmp_path)
    assert "cosign" in caught.value.hint
    with pytest.raises(SignatureError) as caught:
        by_key(missing).sign(REFERENCE, SAYS)
    assert "cosign" in caught.value.hint


def test_a_key_that_cannot_be_opened_is_found_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "cosign").touch(0o755)

    def refusing(command: Command) -> Completed:
        code = int(command.argv[1] == "public-key")
        return Completed(command=command, returncode=code, stdout="", stderr="decrypt: wrong")

    with pytest.raises(SignatureError, match=r"my\.key cannot be used: decrypt: wrong"):
        find_signer(refusing, "my.key", {"PATH": str(tmp_path)}, tmp_path)


def test_a_predicate_is_attested_under_its_address() -> None:
    cosign = FakeCosign(takes=())
    by_key(cosign).attest(REFERENCE, STATED)
    (command,) = (one for one in cosign.commands if one.argv[1:3] == ("attest", "--yes"))
    assert command.argv == (
        "cosign",
        "attest",
        "--yes",
        "--key",
        "my.key",
        "--tlog-upload=false",
        "--type",
        "https://spdx.dev/Document",
        "--predicate",
        "-",
        REFERENCE,
    )
    assert json.loads(command.stdin or "") == STATED.content


def test_attestations_are_verified_by_the_key_or_the_identity_of_signatures() -> None:
    identity = KeylessIdentity(pattern="^x$", issuer="https://git.test")
    for signer in (BY_KEY, dataclasses.replace(BY_KEY, key=KEYLESS, identity=identity)):
        verb = ("verify-attestation", "--type", "https://a.test/x")
        argv = signer.verify_command(REFERENCE, {}, *verb).argv
        words = signer.verify_command(REFERENCE, {}).argv[2:]
        assert argv == ("cosign", "verify-attestation", "--type", "https://a.test/x", *words)


def test_what_is_attested_is_not_attested_twice_and_another_predicate_is_another() -> None:
    cosign = FakeCosign()
    signer = by_key(cosign)
    signer.attest(REFERENCE, STATED)
    signer.attest(REFERENCE, STATED)
    assert len(cosign.attested) == 1
    other = dataclasses.replace(STATED, content={"packages": []})
    assert signer.is_attested(REFERENCE, STATED)
    assert not signer.is_attested(REFERENCE, other)
    assert not signer.is_attested(REFERENCE.replace("0", "1"), STATED)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "no JSON",
        "[]",
        '{"payload": 1}',
        '{"payload": "e30="}',
        envelope_of("x@sha256:1", STATED.type, STATED.content),
        envelope_of(REFERENCE, "https://spdx.dev/Document/v2.3", STATED.content),
        envelope_of(REFERENCE, STATED.type, {"packages": []}),
    ],
)
def test_an_attestation_that_states_something_else_does_not_hold(printed: str) -> None:
    def saying(command: Command) -> Completed:
        return Completed(command=command, returncode=0, stdout=printed, stderr="")

    signer = by_key(saying)
    assert not signer.is_attested(REFERENCE, STATED)
    with pytest.raises(SignatureError, match="its attestation does not hold"):
        signer.attest(REFERENCE, STATED)


def test_an_attestation_that_cannot_be_made_says_why() -> None:
    signer = by_key(FakeCosign(wrong="decrypt: encrypted key"))
    with pytest.raises(SignatureError, match=r"spdx of .* could not be attested: decrypt"):
        signer.attest(REFERENCE, STATED)
