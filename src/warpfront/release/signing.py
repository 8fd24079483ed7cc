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
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, kw_only=True)
class Signer:
    """Signs by cosign what is not signed yet, and believes a signature only when it was verified.
    `key` is a path or a KMS address, or `KEYLESS` where CI vouches for its job (OIDC). `public_key`
    is a file of the key's other half. Keyless signatures count if they are by `identity` alone.
    """

    run: Run
    key: str
    public_key: str
    environment: Mapping[str, str]
    identity: KeylessIdentity | None = None
    program: str = "cosign"

    @cached_property
    def form(self) -> tuple[str, ...]:
        """Return the options that make this cosign write the common form: those that it takes.
        Distributions' builds do not know their own version, and the help omits deprecated options.
        """
        commands = {
            option: Command(argv=(self.program, "sign", option, "--help"), timeout_seconds=20.0)
            for option in _FORM
        }
        return tuple(
            option for option, asking in commands.items() if not _run(self.run, asking).returncode
        )

    @property
    def name(self) -> str:
        return f"cosign {'keyless' if self.key == KEYLESS else 'by key'}"

    def _command(self, argv: Iterable[str], reference: str) -> Command:
        is_near = is_loopback(reference.partition("/")[0])
        loopback = ["--allow-http-registry", "--allow-insecure-registry"] if is_near else []
        return Command(
            argv=(self.program, *argv, *loopback, reference),
            environment=self.environment,
            timeout_seconds=_LIMIT_SECONDS,
        )

    def _signing(self, verb: str, reference: str, *options: str) -> Command:
        """Return the command that signs or attests a digest. The transparency log is omitted only
        where a key vouches for itself.
        """
        key = [] if self.key == KEYLESS else ["--key", self.key, "--tlog-upload=false"]
        return self._command([verb, "--yes", *key, *self.form, *options], reference)

    def verify_command(self, reference: str, annotations: Mapping[str, str], *verb: str) -> Command:
        """Return the command that verifies a digest's signature, with these annotations; by another
        `verb`, its attestations. Without a key, everyone can sign, so only one workflow of the
        project counts, at a ref that may publish. Raises `SignatureError`.
        """
        argv = [*(verb or ("verify",))]
        if self.key == KEYLESS:
            if self.identity is None:
                raise SignatureError("keyless: no identity is known whose signatures count")
            argv += [f"--certificate-identity-regexp={self.identity.pattern}"]
            argv += [f"--certificate-oidc-issuer={self.identity.issuer}"]
        else:
            argv += ["--key", self.public_key, "--insecure-ignore-tlog=true"]
        return self._command([*argv, *_annotation_options(annotations)], reference)

    def is_signed(self, reference: str, annotations: Mapping[str, str]) -> bool:
        return _run(self.run, self.verify_command(reference, annotations)).returncode == 0

    def sign(self, reference: str, annotations: Mapping[str, str]) -> None:
        """Sign the digest with these annotations, unless it is. Raises `SignatureError`."""
        if self.is_signed(reference, annotations):
            return
        signing = self._signing("sign", reference, *_annotation_options(annotations))
        _demand(self.run, signing, f"{reference} could not be signed")
        verifying = self.verify_command(reference, annotations)
        message = f"{reference}: its signature does not hold"
        _demand(self.run, verifying, message, "see cosign's words")

    def is_attested(self, reference: str, predicate: Predicate) -> bool:
        """Return whether a verified attestation states exactly this predicate of the digest."""
        verb = ("verify-attestation", "--type", predicate.type)
        verified = _run(self.run, self.verify_command(reference, {}, *verb))
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
        # The type is an address: by their own names for types, cosign 2 and 3 write the fields of a
        # predicate differently.
        options = ("--type", predicate.type, "--predicate", "-")
        command = self._signing("attest", reference, *options)
        command = dataclasses.replace(command, stdin=predicate.text)
        _demand(self.run, command, f"{predicate.name} of {reference} could not be attested")
        if not self.is_attested(reference, predicate):
            raise SignatureError(
                f"{predicate.name} of {reference}: its attestation does not hold",
                hint="another run may have written attestations of this digest; run it again",
            )


def find_signer(
    run: Run,
    key: str,
    environment: Mapping[str, str],
    folder: Path,
    *,
    identity: KeylessIdentity | None = None,
) -> Signer:
    """Return the signer by this machine's cosign. `folder` gets `key`'s public half."""
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
    return Signer(
        run=run, key=key, public_key=str(public), environment=environment, identity=identity
    )


def trusting(run: Run, public_key: str, environment: Mapping[str, str]) -> Signer:
    """Return a signer that verifies signatures by another party's public key. It cannot sign."""
    if not Path(public_key).is_file():
        raise SignatureError(f"{public_key}: no such public key", hint="`cosign public-key` has it")
    _run(run, Command(argv=("cosign", "version"), timeout_seconds=20.0))
    return Signer(run=run, key="", public_key=public_key, environment=environment)


def _annotation_options(annotations: Mapping[str, str]) -> list[str]:
    return [f"--annotations={name}={text}" for name, text in sorted(annotations.items())]


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
