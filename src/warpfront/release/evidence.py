"""Evidence of an image to publish, from this machine or from a registry. Path."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from warpfront.errors import MatrixError, Problem, StoreError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import Engine
from warpfront.matrix.cell import Cell
from warpfront.matrix.expansion import verifying_job
from warpfront.matrix.release_channels import Channel
from warpfront.release.admission import Admission, Evidence
from warpfront.release.ledger import CHANNEL_ANNOTATION
from warpfront.release.publication import RegistryImage
from warpfront.release.registry.contract import Artifact, ContentStore, attached_payload
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import clean_json
from warpfront.system.references import read_reference
from warpfront.system.store import Store, as_json
from warpfront.system.strict_values import object_in, read_as
from warpfront.verify.containers import built_image
from warpfront.verify.results import Verification
from warpfront.verify.verdict import is_sealed

VERIFICATION_TYPE = "application/vnd.warpfront.verification.v1+json"
DOCUMENT = "dev.warpfront.document"
"""The annotation with a document's name: what the signature calls it."""
_SCHEMA = 1


def local_evidence(
    cell: Cell, store: Store, engine: Engine, jobs: Mapping[str, str] | None = None
) -> Evidence | Blocked | Failed:
    """Return the local results of build and verify for an image that the engine still has."""
    built = built_image(store, cell, engine)
    if not isinstance(built, BuiltImage):
        return dataclasses.replace(built, step="publish")
    image = engine.image(built.image_id)
    assert image is not None
    return kept_evidence(cell, store, built, image.labels, jobs=jobs)


def kept_evidence(
    cell: Cell,
    store: Store,
    built: BuiltImage,
    labels: Mapping[str, str],
    *,
    identities: Iterable[str] = (),
    jobs: Mapping[str, str] | None = None,
) -> Evidence:
    """Return the evidence of a built image, with its stored verifications. `jobs` has the CI
    service's state of each job by its name.
    """
    verifications, unread = kept_verifications(cell, store)
    names = {target: verifying_job(cell.id, target) for target in cell.targets}
    return Evidence(
        cell=cell,
        labels=labels,
        identities=frozenset({built.image_id, *identities}),
        verifications=verifications,
        unread=unread,
        jobs=None if jobs is None else {t: jobs[name] for t, name in names.items() if name in jobs},
        image_id=built.image_id,
        size_bytes=built.size_bytes,
    )


def kept_verifications(cell: Cell, store: Store) -> tuple[dict[str, Verification], dict[str, str]]:
    """Return the stored verifications of a cell, by target, and why one does not count."""
    by_target: dict[str, Verification] = {}
    unread: dict[str, str] = {}
    for target in cell.targets:
        try:
            verification = store.load(cell.id, f"verify-{target}", (Verification,))
        except StoreError as error:
            unread[target] = error.message
            continue
        if verification and not is_sealed(verification):
            unread[target] = "the verification was changed after it was made"
        elif verification:
            by_target[target] = verification
    return by_target, unread


def verification_payload(evidence: Evidence, verdict: Admission, image: RegistryImage) -> Artifact:
    """Return an image's verifications as one document, with what the channel let pass."""
    ordered = [evidence.verifications[name] for name in sorted(evidence.verifications)]
    payload = {
        "schema": _SCHEMA,
        "cell": evidence.cell.id,
        "channel": verdict.channel,
        "image": {"digest": image.digest, "config": image.config},
        "targets": list(verdict.targets),
        "noted": list(verdict.noted),
        "verifications": as_json(ordered),
    }
    return Artifact(
        name="verification",
        artifact_type=VERIFICATION_TYPE,
        payload=json.dumps(payload, sort_keys=True).encode(),
        annotations={
            DOCUMENT: "verification",
            "dev.warpfront.cell": evidence.cell.id,
            CHANNEL_ANNOTATION: verdict.channel,
            "dev.warpfront.targets": ",".join(verdict.targets),
            "dev.warpfront.noted": "; ".join(verdict.noted),
            "dev.warpfront.seals": ",".join(verification.seal for verification in ordered),
        },
    )


def attached_evidence(
    registry: ContentStore, repository: str, cell: Cell, registry_image: RegistryImage
) -> Evidence:
    """Return the evidence attached to an image in a registry. The last of several verifications
    of one target counts. Unreadable documents count as nothing, since anybody who may push
    may attach them.
    """
    by_target: dict[str, tuple[Verification, str]] = {}
    for descriptor in registry.referrers(repository, registry_image.digest):
        if descriptor.artifact_type == VERIFICATION_TYPE:
            for verification in read_attached(registry, repository, descriptor.digest):
                standing = by_target.get(verification.target)
                if standing is None or standing[0].ended < verification.ended:
                    by_target[verification.target] = (verification, descriptor.digest)
    return Evidence(
        cell=cell,
        labels=registry_image.labels,
        identities=registry_image.identities,
        verifications={target: verification for target, (verification, _) in by_target.items()},
        attached=tuple(dict.fromkeys(digest for _, digest in by_target.values())),
        image_id=registry_image.digest,
        size_bytes=registry_image.size_bytes,
        digest=registry_image.digest,
    )


def read_attached(registry: ContentStore, repository: str, digest: str) -> tuple[Verification, ...]:
    """Return the verifications of an attached document; none of one that cannot be read."""
    payload = attached_payload(registry, repository, digest)
    try:
        document = object_in(clean_json(json.loads(payload)))
        return read_as(tuple[Verification, ...], document["verifications"])
    except (ValueError, KeyError, RecursionError):
        return ()


def demanded_channel(channels: tuple[Channel, ...], name: str, to: str = "") -> Channel:
    """Return the channel of that name, with another repository if one is passed. Raises
    `MatrixError` where matrix.yaml has none, `InputError` where that is no place for images.
    """
    if to:
        read_reference(f"{to}/image")
    channel = next((channel for channel in channels if channel.name == name), None)
    if channel is None:
        names = ", ".join(channel.name for channel in channels) or "none"
        message = f"there is no channel `{name}`; there are: {names}"
        raise MatrixError(
            (Problem(path="matrix.yaml", line=0, message=message, hint="docs/release.md"),)
        )
    return dataclasses.replace(channel, repository=to or channel.repository)
