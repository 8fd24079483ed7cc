"""why: what a published image is, from what its own bytes and what is attached to it say; whether
that holds together; and who asked for each wheel in it, where this project has its lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpfront.errors import InputError
from warpfront.images.labels import BASE, BASE_SOURCE, CELL, CONTENT_HASH, CREATED, LOCK, REVISION
from warpfront.matrix.plan import with_parents
from warpfront.model import Cell, Verification, WheelLock
from warpfront.pipeline.within.evidence import DOCUMENT, VERIFICATION_TYPE, read_attached
from warpfront.pipeline.within.locks import read_locks
from warpfront.pipeline.workspace import Workspace
from warpfront.release.history import is_yanked
from warpfront.release.publication import Held, held_image
from warpfront.release.registry.contract import Registry
from warpfront.release.registry.references import fallback_tag, read_reference
from warpfront.system.process import environment, run
from warpfront.verify.sealing import is_sealed
from warpfront.verify.verdict import outcome_of

_SHOWN: Mapping[str, str] = {
    "cell": CELL,
    "created": CREATED,
    "revision": REVISION,
    "content hash": CONTENT_HASH,
    "lock": LOCK,
    "base": BASE,
    "base from": BASE_SOURCE,
}
_SIGNATURE_TYPES = ("application/vnd.dev.sigstore.bundle", "application/vnd.dev.cosign")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A verification that is attached to an image, and what is wrong with it as a proof of it."""

    target: str
    outcome: str
    ended: str
    sessions: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of a published image. `wheels` are its own lock's, each with who asked for it,
    empty where this project's lock of that cell is another.
    """

    reference: str
    labels: Mapping[str, str]
    proofs: tuple[Proof, ...]
    documents: tuple[tuple[str, str], ...]
    signed: bool
    yanked: bool
    wheels: tuple[str, ...] = ()
    noted: tuple[str, ...] = field(default=())


def explain(workspace: Workspace, reference: str) -> Explanation:
    """Raises `InputError` where there is no such image."""
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    named = read_reference(reference)
    with client.connect(named.host, environment(), run) as registry:
        found = explained(registry, named.repository, named.digest or named.tag or "latest")
    cell = next((one for one in matrix.cells if one.id == found.labels.get("cell")), None)
    if cell is None:
        return found
    state = read_locks(with_parents((cell,), matrix.cells), requirements, folders)[cell.id]
    return _with_wheels(found, cell, state.lock)


def explained(registry: Registry, path: str, reference: str) -> Explanation:
    """The same without this project's locks."""
    held = held_image(registry, path, reference)
    if held is None:
        raise InputError(
            f"{registry.host}/{path} has no {reference}", hint="`invoke release --list`"
        )
    attached = registry.referrers(path, held.digest)
    proofs = [
        _proof(one, held)
        for document in attached
        if document.artifact_type == VERIFICATION_TYPE
        for one in read_attached(registry, path, document.digest)
    ]
    types = [one.artifact_type or "" for one in attached]
    signature = registry.head(path, f"{fallback_tag(held.digest)}.sig")
    noted = (one.annotations.get("dev.warpfront.noted", "") for one in attached)
    return Explanation(
        reference=f"{registry.host}/{path}@{held.digest}",
        labels={name: held.labels.get(label, "") for name, label in _SHOWN.items()},
        proofs=tuple(proofs),
        documents=tuple(
            (one.annotations.get(DOCUMENT, one.artifact_type or ""), one.digest) for one in attached
        ),
        signed=signature is not None or any(one.startswith(_SIGNATURE_TYPES) for one in types),
        yanked=is_yanked(registry, path, held.digest),
        noted=tuple(dict.fromkeys(text for text in noted if text)),
    )


def _proof(one: Verification, held: Held) -> Proof:
    wrong = "" if is_sealed(one) else "changed after it was made"
    if one.image_id not in held.identities:
        wrong = f"of another image, {one.image_id}"
    return Proof(
        target=one.target,
        outcome=outcome_of(one).value,
        ended=one.ended,
        sessions=one.sessions,
        wrong=wrong,
    )


def _with_wheels(found: Explanation, cell: Cell, lock: WheelLock | None) -> Explanation:
    """With the wheels of the lock, if the image was built from that very one."""
    del cell
    if lock is None or lock.digest != found.labels["lock"]:
        return found
    wheels = tuple(f"{one.name} {one.version}" for one in lock.wheels)
    return Explanation(
        reference=found.reference,
        labels=found.labels,
        proofs=found.proofs,
        documents=found.documents,
        signed=found.signed,
        yanked=found.yanked,
        noted=found.noted,
        wheels=wheels,
    )
