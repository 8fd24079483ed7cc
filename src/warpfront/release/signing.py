"""Signatures and attestations by cosign: the commands as values, and running them. A digest is
signed, never a tag, together with the digests of the documents that are attached to it. Edge.

The key's password is cosign's own to read (COSIGN_PASSWORD); it passes through no argument.
cosign 3 gets options that make it write the form that cosign 2, Kyverno and policy-controller
read as well.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from warpfront.errors import CommandFailedError, SignatureError
from warpfront.release.origin import KeylessIdentity
from warpfront.release.registry.contract import Predicate
from warpfront.system.process import Command, Completed, Run
from warpfront.system.references import is_loopback

_LIMIT_SECONDS = 120.0
# Without the first, cosign 3 writes bundles, which cosign 2 cannot find; the first refuses the
# second, which is on by default and asks the public services. cosign 2.5 has neither for `sign`.
_FORM = ("--new-bundle-format=false", "--use-signing-config=false")
_GET = "Debian has it as `cosign`"
# The issuer of the identity that CI gives its jobs; who verifies names the workflow.
KEYLESS = "keyless"
# What a job has that may ask who it is: GitHub's with `id-token: write`, GitLab's by `id_tokens`.
# Without, cosign would ask a person, for whom no workflow vouches.
_IDENTITIES = ("ACTIONS_ID_TOKEN_REQUEST_URL", "SIGSTORE_ID_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosign:
    """The options of cosign. `key` is a path or a KMS address, or `KEYLESS` where CI vouches
    for its job (OIDC). `public_key` is a file of the key's other half. `identity` is the one whose
    keyless signatures count: none, without one.
    """

    key: str
    public_key: str
    environment: Mapping[str, str]
    identity: KeylessIdentity | None = None
    program: str = "cosign"


def sign_command(
    cosign: Cosign, reference: str, annotations: Mapping[str, str], *, form: Iterable[str]
) -> Command:
    """Return the command that signs a digest. The transparency log is omitted only where a key
    vouches for itself. `form` are the options of this cosign that make it write the common form.
    """
    argv = _signing(cosign, "sign", form)
    argv += [f"--annotations={name}={text}" for name, text in sorted(annotations.items())]
    return _command(cosign, argv, reference)


def attest_command(
    cosign: Cosign, reference: str, predicate: Predicate, *, form: Iterable[str]
) -> Command:
    """Sign a statement about a digest. The type is an address: by their own names for types, cosign
    2 and 3 write the fields of a predicate differently.
    """
    argv = [*_signing(cosign, "attest", form), "--type", predicate.type, "--predicate", "-"]
    return dataclasses.replace(_command(cosign, argv, reference), stdin=predicate.text)


def verify_attestation_command(cosign: Cosign, reference: str, predicate_type: str) -> Command:
    """Verify attestations of one type, by the same keys and identities as signatures."""
    verifying = verify_command(cosign, reference, {})
    program, _verb, *rest = verifying.argv
    argv = (program, "verify-attestation", "--type", predicate_type, *rest)
    return dataclasses.replace(verifying, argv=argv)


def _signing(cosign: Cosign, verb: str, form: Iterable[str]) -> list[str]:
    key = [] if cosign.key == KEYLESS else ["--key", cosign.key, "--tlog-upload=false"]
    return [cosign.program, verb, "--yes", *key, *form]


def verify_command(cosign: Cosign, reference: str, annotations: Mapping[str, str]) -> Command:
    """Return the command that verifies a digest's signature, with these annotations. Without a
    key, everyone can sign, so only one workflow of the project counts, at a ref that may
    publish. Raises `SignatureError`.
    """
    argv = [cosign.program, "verify"]
    if cosign.key == KEYLESS:
        if cosign.identity is None:
            raise SignatureError("keyless: no identity is known whose signatures count")
        argv += [f"--certificate-identity-regexp={cosign.identity.pattern}"]
        argv += [f"--certificate-oidc-issuer={cosign.identity.issuer}"]
    else:
        argv += ["--key", cosign.public_key, "--insecure-ignore-tlog=true"]
    argv += [f"--annotations={name}={text}" for name, text in sorted(annotations.items())]
    return _command(cosign, argv, reference)


def _command(cosign: Cosign, argv: list[str], reference: str) -> Command:
    host = reference.partition("/")[0]
    loopback = ["--allow-http-registry", "--allow-insecure-registry"] if is_loopback(host) else []
    return Command(
        argv=(*argv, *loopback, reference),
        environment=cosign.environment,
        timeout_seconds=_LIMIT_SECONDS,
    )


def find_cosign(
    run: Run,
    key: str,
    environment: Mapping[str, str],
    folder: Path,
    *,
    identity: KeylessIdentity | None = None,
) -> Cosign:
    """Return this machine's cosign, `key`'s public half in `folder`. Raise `SignatureError`."""
    if which("cosign", path=environment.get("PATH", "")) is None:
        raise SignatureError("cosign: there is no such program", hint=_GET)
    if key == KEYLESS and not any(environment.get(name) for name in _IDENTITIES):
        raise SignatureError(
            "keyless: there is no CI here that vouches for its job",
            hint="give the job an identity (GitHub: `permissions: id-token: write`; GitLab: "
            "`id_tokens: SIGSTORE_ID_TOKEN`); elsewhere, COSIGN_KEY or --key names a key",
        )
    beside = Path(key).with_suffix(".pub")  # as cosign itself makes a pair of keys
    public = beside if beside.is_file() else folder / "cosign.pub"
    if key != KEYLESS and public != beside:
        folder.mkdir(parents=True, exist_ok=True)
        argv = ("cosign", "public-key", "--key", key, "--outfile", str(public))
        command = Command(argv=argv, environment=environment, timeout_seconds=60.0)
        _demand(run, command, f"the key {key} cannot be used", "COSIGN_KEY, COSIGN_PASSWORD")
    return Cosign(key=key, public_key=str(public), environment=environment, identity=identity)


def trusting(run: Run, public_key: str, environment: Mapping[str, str]) -> Cosign:
    """Return a cosign that verifies signatures by another party's public key. It cannot sign."""
    if not Path(public_key).is_file():
        raise SignatureError(f"{public_key}: no such public key", hint="`cosign public-key` has it")
    _run(run, Command(argv=("cosign", "version"), timeout_seconds=20.0))
    return Cosign(key="", public_key=public_key, environment=environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Signs what is not signed yet, and believes a signature only when it was verified."""

    run: Run
    cosign: Cosign
    _forms: list[tuple[str, ...]] = field(default_factory=list, compare=False)

    @property
    def form(self) -> tuple[str, ...]:
        """Return the options that make this cosign write the common form: those that it takes.
        Distributions' builds do not know their own version, and the help omits deprecated options.
        """
        if not self._forms:
            commands = {
                option: Command(
                    argv=(self.cosign.program, "sign", option, "--help"), timeout_seconds=20.0
                )
                for option in _FORM
            }
            accepted = (
                o for o, asking in commands.items() if not _run(self.run, asking).returncode
            )
            self._forms.append(tuple(accepted))
        return self._forms[0]

    @property
    def name(self) -> str:
        return f"cosign {'keyless' if self.cosign.key == KEYLESS else 'by key'}"

    def is_signed(self, reference: str, annotations: Mapping[str, str]) -> bool:
        command = verify_command(self.cosign, reference, annotations)
        return _run(self.run, command).returncode == 0

    def sign(self, reference: str, annotations: Mapping[str, str]) -> None:
        """Sign the digest with these annotations, unless it is. Raises `SignatureError`."""
        if self.is_signed(reference, annotations):
            return
        signing = sign_command(self.cosign, reference, annotations, form=self.form)
        _demand(self.run, signing, f"{reference} could not be signed")
        verifying = verify_command(self.cosign, reference, annotations)
        _demand(
            self.run, verifying, f"{reference}: its signature does not hold", "see cosign's words"
        )

    def is_attested(self, reference: str, predicate: Predicate) -> bool:
        """Return whether a verified attestation states exactly this predicate of the digest."""
        command = verify_attestation_command(self.cosign, reference, predicate.type)
        verified = _run(self.run, command)
        # A DSSE envelope a line.
        for line in () if verified.returncode else verified.stdout.splitlines():
            try:
                statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
            except (ValueError, KeyError, TypeError):
                continue
            if not isinstance(statement, dict):
                continue
            subjects = statement.get("subject") or ()
            digests = {f"sha256:{subject.get('digest', {}).get('sha256')}" for subject in subjects}
            stated = str(statement.get("predicateType")), statement.get("predicate")
            is_about_it = reference.rpartition("@")[2] in digests
            if is_about_it and stated == (predicate.type, predicate.content):
                return True
        return False

    def attest(self, reference: str, predicate: Predicate) -> None:
        """Attest the predicate unless it is attested: cosign would add a second one."""
        if self.is_attested(reference, predicate):
            return
        command = attest_command(self.cosign, reference, predicate, form=self.form)
        _demand(self.run, command, f"{predicate.name} of {reference} could not be attested")
        if not self.is_attested(reference, predicate):
            raise SignatureError(
                f"{predicate.name} of {reference}: its attestation does not hold",
                hint="another run may have written attestations of this digest; run it again",
            )


def _run(run: Run, command: Command) -> Completed:
    try:
        return run(command)
    except CommandFailedError as error:
        hint = error.hint or _GET
        raise SignatureError(error.message, hint=hint) from error


def _demand(
    run: Run, command: Command, action: str, hint: str = "is the key readable, the registry up?"
) -> None:
    """Run a command. Raise `SignatureError` with cosign's last output where it fails."""
    completed = _run(run, command)
    if completed.returncode:
        output = (completed.stderr.strip() or completed.stdout.strip())[-600:]
        raise SignatureError(f"{action}: {output}", hint=hint)
