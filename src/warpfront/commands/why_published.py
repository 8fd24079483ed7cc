"""why: explain a published image from its own bytes and its attached documents, and check that
they agree. If this project has the image's lock, name the requirer of each wheel; also
without an image.
"""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from warpfront.errors import BlockedError, InputError
from warpfront.images.labels import CELL, LOCK
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import (
    DOCUMENT,
    VERIFICATION_TYPE,
    read_attached,
)
from warpfront.release.history import is_yanked
from warpfront.release.publication import RegistryImage, held_image
from warpfront.release.registry.architectures import part_for
from warpfront.release.registry.contract import Descriptor, Registry
from warpfront.release.registry.copying import ATTESTATIONS
from warpfront.release.registry.manifests import attached_payload
from warpfront.release.signing import Signer, trusting
from warpfront.release.statements.provenance_statement import BuildRecord, read_provenance_statement
from warpfront.release.statements.statement import StatementError, is_attested_kind, predicate_of
from warpfront.release.statements.verification_statement import Proof, read_proof
from warpfront.release.tag_contents import TagDifference, difference
from warpfront.release.tag_contents_of import read_tag_contents
from warpfront.release.why import Why
from warpfront.step_results import Blocked, Failed
from warpfront.system.attempt import attempt
from warpfront.system.process import environment, run
from warpfront.system.references import Reference, fallback_tag, read_reference
from warpfront.verify.results import Verification
from warpfront.verify.verdict import is_sealed
from warpfront.wheels.lock.reading import fresh_locks, read_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.lock.why_dependency import DependencyGraph, asked_for, roots_of
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront_checks.image_contents import ContentsError, contents_from

_SIGNATURE_TYPES = ("application/vnd.dev.sigstore.bundle", "application/vnd.dev.cosign")


def explain(workspace: Workspace, reference: str, *, trust: str = "") -> Why:
    """Raise `InputError` where there is no such image. `trust` is a public key by which the image
    should be signed, together with its verification.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    named, variables = read_reference(reference), environment()
    signer = Signer(run=run, cosign=trusting(run, trust, variables)) if trust else None
    with client.connect(named.host, variables, run) as registry:
        part = _part(registry, named)
        explanation, requires = explained(registry, named.repository, part, signer=signer)
    cell = next((cell for cell in matrix.cells if cell.id == explanation.labels.get(CELL)), None)
    chain = with_parents((cell,), matrix.cells) if cell else ()
    states = read_locks(chain, requirements, folders)
    lock = states[cell.id].lock if cell else None
    # Another lock than the one of the build describes other wheels.
    if cell is None or lock is None or lock.digest != explanation.labels.get(LOCK):
        return explanation
    asking = DependencyGraph(
        requires=requires,
        roots=roots_of(chain, requirements, lock.wheels),
        python=cell.python,
        machine=cell.machine,
    )
    names = {wheel.name for wheel in lock.wheels}
    return dataclasses.replace(
        explanation,
        asked=tuple(requirement for requirement in asked_for(asking) if requirement[1] in names),
    )


def compare_tags(reference: str, other: str, *, trust: str = "") -> TagDifference:
    """Return what changed from the image `other` to `reference`; `other` may be a tag or digest of
    the same repository. Raise `InputError` where one of them is not there.
    """
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    named, variables = read_reference(reference), environment()
    whole = other if "/" in other else f"{named.name}{'@' if ':' in other else ':'}{other}"
    contents = []
    signer = Signer(run=run, cosign=trusting(run, trust, variables)) if trust else None
    for image in (read_reference(whole), named):
        with client.connect(image.host, variables, run) as registry:
            part = _part(registry, image)
            contents.append(read_tag_contents(registry, image.repository, part, signer=signer))
    return difference(*contents)


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
        raise InputError(
            f"{registry.host}/{path} has no {reference or 'tag that was named'}",
            hint="`warpfront release list` lists what there is",
        )
    attached = registry.referrers(path, image.digest)
    verifications: list[Verification] = []
    making, proof, unread = _statements(registry, path, image.digest, attached)
    for document in attached:
        if document.artifact_type == VERIFICATION_TYPE:
            verifications_read = read_attached(registry, path, document.digest)
            verifications += verifications_read
            unread += [f"{document.digest}: it cannot be read"] if not verifications_read else []
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
        signature=_signature(registry, path, image, attached, signer),
        attestations=_attestations(registry, path, image, attached, signer),
        making=making,
        proof=proof,
        unread=tuple(unread),
        identities=image.identities,
    )
    for verification in verifications:
        with contextlib.suppress(ContentsError):  # as the session `load` read them
            contents = contents_from(verification.environment.get("contents"))
            return why, {
                canonicalize_name(distribution.name): distribution.requires
                for distribution in contents.distributions
            }
    return why, {}


def _statements(
    registry: Registry, path: str, digest: str, attached: Iterable[Descriptor]
) -> tuple[BuildRecord | None, Proof | None, list[str]]:
    """Return the last valid statement of each kind, and the reasons why others are invalid."""
    making, proof, unread = None, None, list[str]()
    for document in attached:
        kind = document.annotations.get("dev.warpfront.statement")
        payload = attached_payload(registry, path, document.digest) if kind else b""
        try:
            if kind == "provenance":
                making = read_provenance_statement(payload, digest=digest)
            elif kind:
                proof = read_proof(payload, digest=digest)
        except StatementError as error:
            name = document.annotations.get(DOCUMENT, kind)
            unread.append(f"{name} {document.digest}: {error}")
    return making, proof, unread


def _signature(
    registry: Registry,
    path: str,
    registry_image: RegistryImage,
    attached: Iterable[Descriptor],
    signer: Signer | None,
) -> str:
    """Return the result of the signature check as text. Without a trusted key, a signature
    proves nothing about its owner.
    """
    attached = tuple(attached)
    if signer is not None:
        reference = f"{registry.host}/{path}@{registry_image.digest}"
        if any(
            signer.is_signed(reference, {"dev.warpfront.verification": descriptor.digest})
            for descriptor in attached
            if descriptor.artifact_type == VERIFICATION_TYPE
        ):
            return "holds, for the image with its verification"
        return "there is none of this key that the image and its verification are in"
    types = [descriptor.artifact_type or "" for descriptor in attached]
    tagged = registry.head(path, f"{fallback_tag(registry_image.digest)}.sig")
    if tagged is not None or any(media_type.startswith(_SIGNATURE_TYPES) for media_type in types):
        return "there is one; --trust names a public key to check it by"
    return "none"


def _attestations(
    registry: Registry,
    path: str,
    registry_image: RegistryImage,
    attached: Iterable[Descriptor],
    signer: Signer | None,
) -> str:
    """Return the names of the attached documents that the key of `signer` attests."""
    if signer is None:
        tag = f"{fallback_tag(registry_image.digest)}{ATTESTATIONS}"
        some = "there are some; --trust names a public key to check them by"
        return "none" if registry.head(path, tag) is None else some
    reference = f"{registry.host}/{path}@{registry_image.digest}"
    hold = []
    for descriptor in attached:
        name = descriptor.annotations.get(DOCUMENT, "")
        kind = descriptor.artifact_type or ""
        payload = (
            attached_payload(registry, path, descriptor.digest) if is_attested_kind(kind) else b""
        )
        predicate = predicate_of(name, kind, payload) if payload else None
        if predicate is not None and signer.is_attested(reference, predicate):
            hold.append(name)
    return ", ".join(sorted(set(hold))) or "nothing, by this key"


DeclaredRequirement = tuple[tuple[str, str, str], ...]


def who_asked(
    workspace: Workspace, selection: Selection
) -> Mapping[str, DeclaredRequirement | Blocked | Failed]:
    """Return by cell (dependent or "" for the image, name, requirement), from locks and
    metadata of wheels.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, requirements, folders)
    house = folders.wheelhouse
    answers: dict[str, DeclaredRequirement | Blocked | Failed] = {}
    for cell in cells:
        chain, lock = with_parents([cell], matrix.cells), locks.get(cell.id)
        answers[cell.id] = attempt(cell.id, "lock", _asked, chain, lock, requirements, house)
    return answers


def _asked(
    chain: tuple[Cell, ...],
    lock: WheelLock | None,
    requirements: Mapping[str, RequirementList],
    house: Wheelhouse,
) -> DeclaredRequirement:
    cell = chain[-1]
    if lock is None:
        raise BlockedError("it has no fresh lock", hint=f"warpfront lock --only {cell.id}")
    paths = {wheel.name: house.path(wheel) for wheel in lock.wheels}
    absent = [name for name, path in sorted(paths.items()) if not path.is_file()]
    if absent:
        raise BlockedError(
            f"what its wheels demand is not known: {', '.join(absent)} not here",
            hint=f"warpfront build --only {cell.id}",
        )
    asking = DependencyGraph(
        requires={name: read_wheel_metadata(path).requires for name, path in paths.items()},
        roots=roots_of(chain, requirements, lock.wheels),
        python=cell.python,
        machine=cell.machine,
    )
    return tuple(dependent for dependent in asked_for(asking) if dependent[1] in paths)
