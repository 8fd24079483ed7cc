"""Signatures by cosign: the commands as values, and running them. A digest is signed, never a tag,
together with the digests of the documents that are attached to it. Edge.

The key's password is cosign's own to read (COSIGN_PASSWORD); it passes through no argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from warpfront.errors import CommandFailedError, SignatureError
from warpfront.release.origin import KeylessIdentity
from warpfront.release.registry.references import is_loopback
from warpfront.system.process import Command, Completed, Run

_LIMIT_SECONDS = 120.0
_SERVICES = "--use-signing-config"
_GET = "Debian has it as `cosign`"
# The issuer of the identity that CI gives its jobs; who verifies names the workflow.
KEYLESS = "keyless"
# What a job has that may ask who it is: GitHub's with `id-token: write`, GitLab's by `id_tokens`.
# Without, cosign would ask a person, for whom no workflow vouches.
_IDENTITIES = ("ACTIONS_ID_TOKEN_REQUEST_URL", "SIGSTORE_ID_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosign:
    """How cosign is called. `key` is a path or a KMS address, or `KEYLESS` where CI vouches for
    its job (OIDC). `public_key` is a file of the key's other half. `identity` is whose keyless
    signatures count: none, without one.
    """

    key: str
    public_key: str
    environment: Mapping[str, str]
    identity: KeylessIdentity | None = None
    program: str = "cosign"


def sign_command(
    cosign: Cosign, reference: str, annotations: Mapping[str, str], *, has_services: bool
) -> Command:
    """Sign a digest. The transparency log is left out only where a key vouches for itself. A cosign
    that `has_services` (from version 3 on it uses them) has to be told that none is meant.
    """
    argv = [cosign.program, "sign", "--yes"]
    if cosign.key != KEYLESS:
        argv += ["--key", cosign.key, "--tlog-upload=false"]
        argv += ["--use-signing-config=false"] if has_services else []
    argv += [f"--annotations={name}={text}" for name, text in sorted(annotations.items())]
    return _command(cosign, argv, reference)


def verify_command(cosign: Cosign, reference: str, annotations: Mapping[str, str]) -> Command:
    """Whether a digest is signed, with these annotations. Without a key, everyone can sign: only
    one workflow of the project counts, at a ref that may publish. Raises `SignatureError`.
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
    """cosign as it is here, and the public half of `key` in `folder`. Raises `SignatureError`."""
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
        _demand(_run(run, command), f"the key {key} cannot be used", "COSIGN_KEY, COSIGN_PASSWORD")
    return Cosign(key=key, public_key=str(public), environment=environment, identity=identity)


def trusting(run: Run, public_key: str, environment: Mapping[str, str]) -> Cosign:
    """cosign for somebody else's signatures, by their public key. It cannot sign."""
    if not Path(public_key).is_file():
        raise SignatureError(f"{public_key}: no such public key", hint="`cosign public-key` has it")
    _run(run, Command(argv=("cosign", "version"), timeout_seconds=20.0))
    return Cosign(key="", public_key=public_key, environment=environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Signs what is not signed yet, and believes a signature only when it was verified."""

    run: Run
    cosign: Cosign
    _has_services: list[bool] = field(default_factory=list, compare=False)

    @property
    def has_services(self) -> bool:
        """Distributions' builds do not know their own version; what they can do, they say."""
        if not self._has_services:
            argv = (self.cosign.program, "sign", "--help")
            said = _run(self.run, Command(argv=argv, timeout_seconds=20.0))
            self._has_services.append(_SERVICES in said.stdout)
        return self._has_services[0]

    @property
    def signs_ahead(self) -> bool:
        """Whether a digest can be signed before the registry has it: 3 asks for it first. Nobody
        vouches for what has not arrived: there is no taking back from a public log.
        """
        return self.cosign.key != KEYLESS and not self.has_services

    @property
    def name(self) -> str:
        return f"cosign {'keyless' if self.cosign.key == KEYLESS else 'by key'}"

    def is_signed(self, reference: str, annotations: Mapping[str, str]) -> bool:
        command = verify_command(self.cosign, reference, annotations)
        return _run(self.run, command).returncode == 0

    def sign(self, reference: str, annotations: Mapping[str, str], *, anew: bool = False) -> None:
        """Have the digest signed with these annotations; `anew` where it is not worth asking
        whether it is. Raises `SignatureError`.
        """
        if not anew and self.is_signed(reference, annotations):
            return
        signing = sign_command(self.cosign, reference, annotations, has_services=self.has_services)
        signed = _run(self.run, signing)
        _demand(signed, f"{reference} could not be signed", "is the key readable, the registry up?")
        verified = verify_command(self.cosign, reference, annotations)
        _demand(
            _run(self.run, verified),
            f"{reference}: its signature does not hold",
            "see cosign's words",
        )


def _run(run: Run, command: Command) -> Completed:
    try:
        return run(command)
    except CommandFailedError as error:
        hint = error.hint or _GET
        raise SignatureError(error.message, hint=hint) from error


def _demand(completed: Completed, what: str, hint: str) -> None:
    if completed.returncode:
        said = (completed.stderr.strip() or completed.stdout.strip())[-600:]
        raise SignatureError(f"{what}: {said}", hint=hint)
