"""why: explain a published image from its own bytes and its attached documents, and check that
they agree. If this project has the image's lock, name the requirer of each wheel; also
without an image.
"""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Mapping

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.images.labels import CELL, LOCK
from warpfront.matrix.selection import with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import DOCUMENT, VERIFICATION_TYPE, read_attached
from warpfront.release.publication import RegistryImage, held_image, is_yanked
from warpfront.release.publish_context import connected
from warpfront.release.registry.architectures import part_for
from warpfront.release.registry.contract import Descriptor, Registry, attached_payload
from warpfront.release.registry.copying import ATTESTATIONS
from warpfront.release.signing import Signer, trusting
from warpfront.release.statements.predicates import (
    BuildRecord,
    Proof,
    read_proof,
    read_provenance_statement,
)
from warpfront.release.statements.statement import StatementError, is_attested_kind, predicate_of
from warpfront.release.tag_contents import TagDifference, difference
from warpfront.release.tag_contents_of import read_tag_contents
from warpfront.release.why import Why
from warpfront.system.process import environment, run
from warpfront.system.references import Reference, fallback_tag, read_reference
from warpfront.verify.results import Verification
from warpfront.verify.verdict import is_sealed
from warpfront.wheels.lock.reading import read_locks
from warpfront.wheels.resolve.demands import asked_for, roots_of
from warpfront_checks.image_contents import ContentsError, contents_from

_SIGNATURE_TYPES = ("application/vnd.dev.sigstore.bundle", "application/vnd.dev.cosign")


def explain(workspace: Workspace, reference: str, *, trust: str = "") -> Why:
    """Raise `InputError` where there is no such image. `trust` is a public key by which the image
    should be signed, together with its verification.
    """
    matrix, folders = workspace.matrix, workspace.folders
    named, variables = read_reference(reference), environment()
    with connected(named.host) as registry:
        part, signer = _part(registry, named), _signer(trust, variables)
        explanation, requires = explained(registry, named.repository, part, signer=signer)
    cell = next((cell for cell in matrix.cells if cell.id == explanation.labels.get(CELL)), None)
    chain = with_parents((cell,), matrix.cells) if cell else ()
    lock = read_locks(chain, folders)[cell.id].lock if cell else None
    # Another lock than the one of the build describes other wheels.
    if cell is None or lock is None or lock.digest != explanation.labels.get(LOCK):
        return explanation
    roots = roots_of(chain, lock.wheels)
    edges = asked_for(requires, roots, python=cell.python, machine=cell.machine)
    names = {wheel.name for wheel in lock.wheels}
    return dataclasses.replace(explanation, asked=tuple(e for e in edges if e[1] in names))


def compare_tags(reference: str, other: str, *, trust: str = "") -> TagDifference:
    """Return what changed from the image `other` to `reference`; `other` may be a tag or digest of
    the same repository. Raise `InputError` where one of them is not there.
    """
    named, variables = read_reference(reference), environment()
    whole = other if "/" in other else f"{named.name}{'@' if ':' in other else ':'}{other}"
    contents, signer = [], _signer(trust, variables)
    for image in (read_reference(whole), named):
        with connected(image.host) as registry:
            part = _part(registry, image)
            contents.append(read_tag_contents(registry, image.repository, part, signer=signer))
    return difference(*contents)


def _signer(trust: str, variables: Mapping[str, str]) -> Signer | None:
    return trusting(run, trust, variables) if trust else None


def _part(registry: Registry, image: Reference) -> str:
    """Return this machine's part of an image; "" for one without a tag."""
    version = image.digest or image.tag
    return part_for(registry, image.repository, version, platform.machine()) if version else ""


def explained(
    registry: Registry, path: str, reference: str, *, signer: Signer | None = None
) -> tuple[Why, Mapping[str, tuple[str, ...]]]:
    """The same without this project's locks; and what each distribution in the image demands."""
    image = held_image(registry, path, reference) if reference else None
    if image is None:
        message = f"{registry.host}/{path} has no {reference or 'tag that was named'}"
        raise InputError(message, hint="`warpfront release list` lists what there is")
    attached = _Attached(registry, path, image, tuple(registry.referrers(path, image.digest)))
    verifications: list[Verification] = []
    making, proof, unread = attached.statements()
    kinds = {document.digest: document.artifact_type for document in attached.documents}
    for digest in (digest for digest, kind in kinds.items() if kind == VERIFICATION_TYPE):
        read = read_attached(registry, path, digest)
        verifications += read
        unread += [] if read else [f"{digest}: it cannot be read"]
    for verification in verifications:
        of = f"the verification on {verification.target}"
        unread += [] if is_sealed(verification) else [f"{of} was changed"]
        if verification.image_id not in image.identities:
            unread.append(f"{of} is of another image, {verification.image_id}")
    unread += ["it was yanked"] if is_yanked(registry, path, image.digest) else []
    why = Why(
        reference=f"{registry.host}/{path}:{reference}",
        digest=image.digest,
        labels=image.labels,
        signature=attached.signature(signer),
        attestations=attached.attestations(signer),
        making=making,
        proof=proof,
        unread=tuple(unread),
        identities=image.identities,
    )
    for verification in verifications:
        with contextlib.suppress(ContentsError):  # as the session `load` read them
            contents = contents_from(verification.environment.get("contents"))
            demands = ((one.name, one.requires) for one in contents.distributions)
            return why, {str(canonicalize_name(name)): requires for name, requires in demands}
    return why, {}


@dataclasses.dataclass(frozen=True, slots=True)
class _Attached:
    """The documents that are attached to an image."""

    registry: Registry
    path: str
    image: RegistryImage
    documents: tuple[Descriptor, ...]

    def statements(self) -> tuple[BuildRecord | None, Proof | None, list[str]]:
        """Return the last valid statement of each kind, and why others are invalid."""
        making, proof, unread = None, None, []
        for descriptor in self.documents:
            kind = descriptor.annotations.get("dev.warpfront.statement")
            payload = self._payload(descriptor) if kind else b""
            try:
                if kind == "provenance":
                    making = read_provenance_statement(payload, digest=self.image.digest)
                elif kind:
                    proof = read_proof(payload, digest=self.image.digest)
            except StatementError as error:
                name = descriptor.annotations.get(DOCUMENT, kind)
                unread.append(f"{name} {descriptor.digest}: {error}")
        return making, proof, unread

    def signature(self, signer: Signer | None) -> str:
        """Return the result of the signature check as text. Without a trusted key, a signature
        proves nothing about its owner.
        """
        types = {each.digest: each.artifact_type or "" for each in self.documents}
        if signer is not None:
            verified = (digest for digest, kind in types.items() if kind == VERIFICATION_TYPE)
            facts = ({"dev.warpfront.verification": digest} for digest in verified)
            holds = any(signer.is_signed(self._reference, fact) for fact in facts)
            none = "there is none of this key that the image and its verification are in"
            return "holds, for the image with its verification" if holds else none
        is_signed = any(kind.startswith(_SIGNATURE_TYPES) for kind in types.values())
        some = "there is one; --trust names a public key to check it by"
        return some if is_signed or self._has_tag(".sig") else "none"

    def attestations(self, signer: Signer | None) -> str:
        """Return the names of the attached documents that the key of `signer` attests."""
        if signer is None:
            some = "there are some; --trust names a public key to check them by"
            return some if self._has_tag(ATTESTATIONS) else "none"
        hold = set()
        for each in self.documents:
            name, kind = each.annotations.get(DOCUMENT, ""), each.artifact_type or ""
            payload = self._payload(each) if is_attested_kind(kind) else b""
            predicate = predicate_of(name, kind, payload) if payload else None
            if predicate is not None and signer.is_attested(self._reference, predicate):
                hold.add(name)
        return ", ".join(sorted(hold)) or "nothing, by this key"

    @property
    def _reference(self) -> str:
        return f"{self.registry.host}/{self.path}@{self.image.digest}"

    def _has_tag(self, ending: str) -> bool:
        tag = f"{fallback_tag(self.image.digest)}{ending}"
        return self.registry.head(self.path, tag) is not None

    def _payload(self, descriptor: Descriptor) -> bytes:
        return attached_payload(self.registry, self.path, descriptor.digest)
