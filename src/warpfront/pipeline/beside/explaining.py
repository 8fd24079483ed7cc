"""why: what a published image is, from what its own bytes and what is attached to it say; whether
that holds together; and who asked for each wheel in it, where this project has its lock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.images.labels import BASE, BASE_SOURCE, CELL, CONTENT_HASH, CREATED, LOCK, REVISION
from warpfront.inside.checks.contents import ContentsError, contents_from
from warpfront.matrix.plan import with_parents
from warpfront.model import Cell, Verification, WheelLock
from warpfront.pipeline.within.evidence import DOCUMENT, VERIFICATION_TYPE, read_attached
from warpfront.pipeline.within.locks import read_locks
from warpfront.pipeline.workspace import Workspace
from warpfront.release.bill.asking import Asking, asked_for, askers_of
from warpfront.release.bill.parts import roots_of
from warpfront.release.history import is_yanked
from warpfront.release.ledger import Explanation, Proof
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


def explain(workspace: Workspace, reference: str) -> Explanation:
    """Raises `InputError` where there is no such image."""
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    named = read_reference(reference)
    with client.connect(named.host, environment(), run) as registry:
        found = explained(registry, named.repository, named.digest or named.tag or "latest")
    cell = next((one for one in matrix.cells if one.id == found.labels["cell"]), None)
    chain = with_parents((cell,), matrix.cells) if cell else ()
    states = read_locks(chain, requirements, folders)
    lock = states[cell.id].lock if cell else None
    # Only the very lock that it was built from says anything about it.
    if cell is None or lock is None or lock.digest != found.labels["lock"]:
        return found
    wheels = tuple(_wheels(cell, lock, found.requires, roots_of(chain, requirements)))
    return dataclasses.replace(found, wheels=wheels)


def _wheels(
    cell: Cell, lock: WheelLock, requires: Mapping[str, tuple[str, ...]], roots: tuple[str, ...]
) -> Iterator[str]:
    """Each wheel with who asked for it: the image itself, or a chain of others."""
    asking = Asking(requires=requires, roots=roots, python=cell.python, machine=cell.machine)
    asked = asked_for(asking)
    for wheel in lock.wheels:
        chains = [" -> ".join(chain) or cell.image for chain, _ in askers_of(wheel.name, asked)]
        yield f"{wheel.name} {wheel.version}: {', '.join(chains) or 'nobody who is known'}"


def explained(registry: Registry, path: str, reference: str) -> Explanation:
    """The same without this project's locks."""
    held = held_image(registry, path, reference)
    if held is None:
        raise InputError(
            f"{registry.host}/{path} has no {reference}", hint="`invoke release --list`"
        )
    attached = registry.referrers(path, held.digest)
    verifications = [
        one
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
        proofs=tuple(_proof(one, held) for one in verifications),
        requires=_requires(verifications),
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


def _requires(verifications: Iterable[Verification]) -> Mapping[str, tuple[str, ...]]:
    """What each distribution in the image demands, as `load` found it."""
    for one in verifications:
        try:
            contents = contents_from(one.environment.get("contents"))
        except ContentsError:
            continue
        return {canonicalize_name(found.name): found.requires for found in contents.distributions}
    return {}
