"""Publishing: all names are checked first; a cell is published whole or not at all. Path."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from warpfront.errors import (
    EngineError,
    InputError,
    NotPublishableError,
    SignatureError,
    TagConflictError,
)
from warpfront.images.built import CREATED
from warpfront.images.engine.protocol import Engine
from warpfront.images.labels import CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import Project
from warpfront.matrix.release_channels import Channel
from warpfront.matrix.selection import with_parents
from warpfront.release.admission import (
    Admission,
    Evidence,
    admission,
    keyless_identity,
    publishing_refusals,
)
from warpfront.release.evidence import verification_payload
from warpfront.release.ledger import (
    CANDIDATE_PREFIX,
    LEDGER_FOLDER,
    Ledger,
    Publication,
    TagMove,
    Unpublished,
)
from warpfront.release.origin import Origin
from warpfront.release.publication import RegistryImage, attached_as, held_image, is_yanked, taken
from warpfront.release.publishing import Bring, ImagePublisher, IndexWriter
from warpfront.release.registry.contract import Artifact, Registry
from warpfront.release.signing import KEYLESS, Signer, find_signer, trusting
from warpfront.release.tag_contents_of import leave_page
from warpfront.release.tags import (
    Names,
    clashes,
    clashes_of_matrix,
    names_of,
    shared_in_matrix,
    tag_words,
)
from warpfront.step_results import Blocked, Failed, attempt, failed_by
from warpfront.system import provenance
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch
from warpfront.system.store import Store
from warpfront.system.strict_values import extended

Published = Publication | Blocked | Failed
Find = Callable[[Cell], Evidence | Blocked | Failed]
"""The image of a cell that is to be published, and what is known of it."""
Papers = Callable[[Publication, Evidence], tuple[Artifact, ...]]
"""What writes the documents that go with an image, whose digest the publication has."""
_HINT = "docs/release.md says what a channel demands; `warpfront verify` proves it"
_TRUST = "--trust names the public key of who proved it"
_PUBLISHERS = (
    "docs/release.md, Who may publish: the default branch and release tags, both protected"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishContext:
    """Dependencies of one publish run to a channel. `documents` makes the documents that go with an
    image and its verification. `bring` copies an image to the registry that is not in the engine.
    Verifications from a registry count if `trusted`, else the signer, finds them signed.
    """

    channel: Channel
    registry: Registry
    engine: Engine | None
    signer: Signer | None
    store: Store
    now: str
    run: str
    watch: Watch
    documents: Papers = lambda _publication, _evidence: ()
    bring: Bring | None = None
    action: str = "publish"
    trusted: Signer | None = None

    @property
    def verifier(self) -> Signer | None:
        """Return whose signatures count."""
        return self.trusted or self.signer


@dataclass(kw_only=True)
class LedgerWriter:
    """The ledger of a run, on disk after every step of it."""

    store: Store
    ledger: Ledger
    entries: dict[str, Publication] = field(default_factory=dict)

    def record(self, publication: Publication) -> None:
        self.entries[publication.cell_id] = publication
        self.ledger = dataclasses.replace(self.ledger, publications=tuple(self.entries.values()))
        self.store.save(LEDGER_FOLDER, self.ledger.run, self.ledger)

    def refuse(self, cell_id: str, reason: str) -> None:
        refusal = Unpublished(cell_id=cell_id, reasons=(reason,))
        refusals = (*self.ledger.refusals, refusal)
        self.ledger = dataclasses.replace(self.ledger, refusals=refusals)
        self.store.save(LEDGER_FOLDER, self.ledger.run, self.ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """An image that may be published, its names, and the repositories it is built on."""

    evidence: Evidence
    verdict: Admission
    names: Names
    mount_from: tuple[str, ...]


def publish_cells(
    cells: Iterable[Cell],
    every: Iterable[Cell],
    context: PublishContext,
    *,
    find: Find,
    dry_run: bool,
) -> Mapping[str, Published]:
    """Publish the cells. `every` are the matrix's: one that is not selected has names, too."""
    cells, every = tuple(cells), tuple(every)
    planned = _planned(cells, every, context, find)
    conflicts = clashes(plan.names for plan in planned.values() if isinstance(plan, _Planned))
    results: dict[str, Published] = {}
    name, action = context.channel.name, context.action
    ledger = Ledger(run=context.run, channel=name, action=action, started=context.now)
    writer = LedgerWriter(store=context.store, ledger=ledger)
    for cell_id, plan in planned.items():
        if not isinstance(plan, _Planned):
            results[cell_id] = plan
        elif mine := conflicts.get(cell_id):
            results[cell_id] = _conflict(cell_id, mine)
        elif dry_run:
            results[cell_id] = attempt(cell_id, "publish", _foreseen, plan, context)
        else:
            results[cell_id] = _published(plan, context, writer)
        result = results[cell_id]
        if not dry_run:
            context.store.save(cell_id, "publish", result)
            if not isinstance(result, Publication):
                writer.refuse(cell_id, result.reason)
    return results if dry_run else results | _indexed(results, every, context, writer)


def _planned(
    cells: tuple[Cell, ...], every: tuple[Cell, ...], context: PublishContext, find: Find
) -> dict[str, _Planned | Blocked | Failed]:
    """Return what is to be published of each cell, or why it is not."""
    channel, planned = context.channel, dict[str, _Planned | Blocked | Failed]()
    claimed = clashes_of_matrix(every, channel)
    shared = shared_in_matrix(every, channel)
    for cell in cells:
        if mine := claimed.get(cell.id):
            planned[cell.id] = _conflict(cell.id, mine)
            continue
        evidence = attempt(cell.id, "publish", find, cell)
        if not isinstance(evidence, Evidence):
            planned[cell.id] = evidence
            continue
        verdict = _verdict(evidence, context)
        words = tag_words(cell, verdict.facts, evidence.labels, verdict.targets)
        names = names_of(cell, channel, words, shared=shared.get(cell.id))
        if against := (*verdict.against, *(names.wrong if verdict.admitted else ())):
            error = NotPublishableError("; ".join(against), hint=_HINT)
            planned[cell.id] = failed_by(error, cell.id, "publish")
            continue
        parents = with_parents((cell,), every)[:-1]
        mount_from = tuple(path_of(channel, parent) for parent in parents)
        planned[cell.id] = _Planned(
            evidence=evidence, verdict=verdict, names=names, mount_from=mount_from
        )
    return planned


def _indexed(
    results: Mapping[str, Published],
    every: Iterable[Cell],
    context: PublishContext,
    writer: LedgerWriter,
) -> dict[str, Published]:
    """Put the indexes of the published images. All images are staged before any index is put,
    so that images published together do not wait for each other.
    """
    machines = {cell.id: cell.machine for cell in every}
    indexing = extended(IndexWriter, context, record=writer.record)

    def stage(publication: Publication) -> Publication:
        return indexing.stage(publication, machines[publication.cell_id])

    published: dict[str, Published] = {
        cell_id: result
        for cell_id, result in results.items()
        if isinstance(result, Publication) and result.indexes
    }
    for step in (stage, indexing.put):
        for cell_id, result in published.items():
            if isinstance(result, Publication):
                published[cell_id] = _tried(cell_id, step, result)
    for cell_id, result in published.items():
        if not isinstance(result, Publication):
            reason = f"its own names are set; {result.reason}"
            published[cell_id] = dataclasses.replace(result, reason=reason)
            writer.refuse(cell_id, reason)
        context.store.save(cell_id, "publish", published[cell_id])
    return published


def _tried(cell_id: str, act: Callable[..., Publication], *words: object) -> Published:
    try:
        return attempt(cell_id, "publish", act, *words)
    except (EngineError, InputError) as error:
        return failed_by(error, cell_id, "publish")


def _verdict(evidence: Evidence, context: PublishContext) -> Admission:
    """Return the admission of an image, with the consequence of a missing signer."""
    verdict = admission(evidence, context.channel, now=context.now)
    if context.signer is not None:
        return verdict
    text = "there is no key to sign it with"
    if "unsigned" in context.channel.allow:
        return dataclasses.replace(verdict, noted=(*verdict.noted, text))
    return dataclasses.replace(verdict, against=(*verdict.against, text))


def _conflict(cell_id: str, conflicts: Iterable[str]) -> Failed:
    hint = "give the alias a `where:`, or the template a word that tells them apart"
    return failed_by(TagConflictError("; ".join(conflicts), hint=hint), cell_id, "publish")


def _publication(plan: _Planned, context: PublishContext) -> Publication:
    evidence, content_hash = plan.evidence, plan.evidence.labels.get(CONTENT_HASH, "")
    tags = [TagMove(tag=tag, moves=False) for tag in plan.names.tags]
    tags += [TagMove(tag=alias, moves=True) for alias in plan.names.aliases]
    return Publication(
        cell_id=evidence.cell.id,
        channel=context.channel.name,
        run=context.run,
        repository=plan.names.repository,
        image_id=evidence.image_id,
        content_hash=content_hash,
        targets=plan.verdict.targets,
        noted=plan.verdict.noted,
        tags=tuple(tags),
        indexes=plan.names.shared,
        candidate=f"{CANDIDATE_PREFIX}{context.run}-{content_hash[:12]}",
        present_bytes=evidence.size_bytes,
        digest=evidence.digest,
    )


def _foreseen(plan: _Planned, context: PublishContext) -> Publication:
    """Return the publication that a run would make, without doing any of it. Read where each
    tag is now, and refuse what the run would refuse for that.
    """
    publication = _publication(plan, context)
    path, image_id = publication.path, publication.image_id
    tags, digest = [], image_id
    for tag in publication.tags:
        standing = held_image(context.registry, path, tag.tag)
        if standing and image_id in standing.identities:
            digest = standing.digest
            publication = dataclasses.replace(publication, digest=digest, present_bytes=0)
        elif standing and not tag.moves:
            raise taken(publication, tag.tag, standing.digest, standing.labels)
        before = standing.digest if standing else ""
        tags.append(dataclasses.replace(tag, before=before))
    heads = {index.tag: context.registry.head(path, index.tag) for index in publication.indexes}
    indexes = tuple(
        dataclasses.replace(index, before=head.digest if (head := heads[index.tag]) else "")
        for index in publication.indexes
    )
    publication = dataclasses.replace(publication, tags=tuple(tags), indexes=indexes)
    evidence = plan.evidence
    against = not_to_be_named(context.registry, publication, digest, evidence.labels)
    # An image that is not there yet has its signatures in a registry that cosign may not reach.
    in_registry = evidence.attached and context.registry.head(path, digest)
    signed = evidence.attached if in_registry else ()
    _require_proof(against, signed, f"{publication.repository}@{digest}", context.verifier)
    return publication


def _published(plan: _Planned, context: PublishContext, writer: LedgerWriter) -> Published:
    started = time.monotonic()
    prove = partial(_proven, plan, context)
    publisher = extended(ImagePublisher, context, plan, prove=prove, record=writer.record)
    planned = _publication(plan, context)
    cell_id = planned.cell_id
    try:
        writer.record(planned)
        result = _tried(cell_id, publisher.publish, planned)
    finally:
        context.watch.step(cell_id, "")
    if isinstance(result, Publication):
        result = dataclasses.replace(result, seconds=round(time.monotonic() - started, 2))
        writer.record(result)
        leave_page(result, context.registry, context.store, context.watch, context.verifier)
    return result


def _proven(
    plan: _Planned, context: PublishContext, publication: Publication, registry_image: RegistryImage
) -> tuple[Artifact, ...]:
    """Judge a second time, by the registry's content: its own labels, and the ids of its own
    bytes, which the verifications have to name. Return the documents of the image.
    """
    evidence = dataclasses.replace(
        plan.evidence, labels=registry_image.labels, identities=registry_image.identities
    )
    verdict, trusted = _verdict(evidence, context), context.verifier
    evidence = dataclasses.replace(evidence, verifications=verdict.counted)
    digest, labels = registry_image.digest, registry_image.labels
    wrong = not_to_be_named(context.registry, publication, digest, labels)
    reference = f"{publication.repository}@{digest}"
    _require_proof((*verdict.against, *wrong), evidence.attached, reference, trusted)
    documents = [verification_payload(evidence, verdict, registry_image)]
    for document in context.documents(publication, evidence):
        # Anyone with push rights can attach one, and our attestation would make it true.
        digest = attached_as(registry_image.manifest.descriptor, document).digest
        signed = {f"dev.warpfront.{document.name}": digest}
        if not (evidence.attached and trusted) or trusted.is_signed(reference, signed):
            documents.append(document)
    return tuple(documents)


def _require_proof(
    against: tuple[str, ...], attached: Iterable[str], reference: str, trusted: Signer | None
) -> None:
    """Raise `NotPublishableError` for the objections to an image, and for attached verifications
    that no trusted key has signed together with it. A seal proves nothing, since anybody who may
    push can make one. Without any key, the channel has allowed that (`_verdict`).
    """
    unsigned = [
        f"the attached verification {digest} is in no signature of a trusted key"
        for digest in attached
        if trusted and not trusted.is_signed(reference, {"dev.warpfront.verification": digest})
    ]
    if reasons := [*against, *unsigned]:
        raise NotPublishableError("; ".join(reasons), hint=_HINT if against else _TRUST)


def not_to_be_named(
    registry: Registry, publication: Publication, digest: str, labels: Mapping[str, str]
) -> tuple[str, ...]:
    """Return why a digest may not get its names, however well it is proven: it was yanked, or
    an alias is on a newer image, which only a rollback may move it from.
    """
    path = publication.path
    wrong = ["it was yanked"] if is_yanked(registry, path, digest) else []
    for tag in publication.tags:
        other = held_image(registry, path, tag.tag) if tag.moves else None
        if other and other.digest != digest and other.created > labels.get(CREATED, ""):
            wrong.append(f"{tag.tag} is on a newer image, of {other.created}")
    return tuple(wrong)


def run_name(now: str) -> str:
    """Return a run's name, `20261122T120000-1a2b3c`: it sorts by time, and is unique."""
    digits = now.partition("+")[0].replace("-", "").replace(":", "")
    return f"{digits}-{uuid.uuid4().hex[:6]}"


@contextmanager
def open_publish_context(
    channel: Channel,
    project: Project,
    store: Store,
    watch: Watch,
    *,
    engine: Engine | None,
    key: str,
    dry_run: bool,
    trust: str = "",
) -> Iterator[PublishContext]:
    """Return the context for the registry of the channel. The signer signs
    by `key`, or by the one that COSIGN_KEY names. `trust` is another public key whose
    signatures count, too.
    """
    # Its HTTP takes longer to load than a plan to make.
    from warpfront.release.origin_claims import read_origins  # noqa: PLC0415

    variables, now = environment(), provenance.now()
    origins = read_origins(variables)
    if not dry_run:
        require_publisher(origins, project)
    key = key or variables.get("COSIGN_KEY", "")
    signer = _signer(key, variables, project, store, origins) if key else None
    if signer is None and "unsigned" not in channel.allow and not dry_run:
        raise SignatureError(
            f"the channel {channel.name} publishes signed images, and there is no key",
            hint="COSIGN_KEY or --key names one (`cosign generate-key-pair`), `--key keyless` has "
            "CI vouch for it; `allow: [unsigned]` in the channel does without",
        )
    trusted = trusting(run, trust, variables) if trust else None
    with connected(host_of(channel)) as registry:
        yield PublishContext(
            trusted=trusted,
            channel=channel,
            registry=registry,
            engine=engine,
            signer=signer,
            store=store,
            now=now,
            run=run_name(now),
            watch=watch,
        )


def require_publisher(origins: Iterable[Origin], project: Project) -> None:
    """Raise `NotPublishableError` where this is a CI job that may not publish."""
    if reasons := publishing_refusals(origins, project):
        raise NotPublishableError("; ".join(reasons), hint=_PUBLISHERS)


def _signer(
    key: str,
    variables: Mapping[str, str],
    project: Project,
    store: Store,
    origins: tuple[Origin, ...],
) -> Signer:
    identity = None
    for origin in origins if key == KEYLESS else ():
        identity = keyless_identity(project, origin.forge)
        if (origin.forge, origin.witness, origin.workflow) == ("gitlab", "token", ""):
            raise SignatureError(
                "keyless: GitLab names no configuration file in the token of a child pipeline",
                hint="sign with a key: COSIGN_KEY (https://docs.gitlab.com/ci/yaml/signing_examples/)",
            )
    folder = store.folder / LEDGER_FOLDER
    return find_signer(run, key, variables, folder, identity=identity)


def connected(host: str) -> AbstractContextManager[Registry]:
    """Return the connection to a registry by this machine's logins and certificates."""
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    return client.connect(host, environment(), run)


def host_of(channel: Channel) -> str:
    """Return the registry that a channel is published to."""
    return channel.repository.partition("/")[0]


def path_of(channel: Channel, cell: Cell) -> str:
    """Return the repository of a cell's image, without the registry's host."""
    return f"{channel.repository}/{cell.image}".partition("/")[2]
