"""A registry's image with its documents, the state of a tag, and a digest's history: where aliases
were before they came to it, and whether it was yanked; and the content of a repository: each digest
with its tags and its own labels. Edge.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.errors import RegistryError, RegistryFault, TagConflictError
from warpfront.images.built import CREATED, REVISION
from warpfront.release.ledger import (
    CHANNEL_ANNOTATION,
    Attachment,
    Publication,
    Removed,
    Stock,
    Yank,
)
from warpfront.release.registry.contract import (
    CONFIG_LIMIT_BYTES,
    INDEX_TYPES,
    Artifact,
    ContentStore,
    Descriptor,
    Document,
    ImageIndex,
    ImageManifest,
    Registry,
    RegistryManifest,
    attached_payload,
    body_of,
    digest_of_bytes,
    read_object,
)
from warpfront.release.registry.copying import SIGNATURE_TAGS
from warpfront.release.registry.deleting import Delete
from warpfront.system.http_answers import wrong
from warpfront.system.references import fallback_tag, is_digest, is_tag
from warpfront.system.strict_values import object_in

MOVES_TYPE = "application/vnd.warpfront.moves.v1+json"
YANK_TYPE = "application/vnd.warpfront.yank.v1+json"
_MOVES_LIMIT_BYTES = 1 << 20
_LONGEST_HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryImage:
    """An image in a registry: manifest, config's digest, labels, and the size of its parts."""

    manifest: RegistryManifest
    config: str
    labels: Mapping[str, str]
    size_bytes: int

    @property
    def digest(self) -> str:
        return self.manifest.descriptor.digest

    @property
    def created(self) -> str:
        """Return its build time, "" where no label has it."""
        return self.labels.get(CREATED, "")

    @property
    def revision(self) -> str:
        """Return the commit that it was built from, "" where no label has it."""
        return self.labels.get(REVISION, "")

    @property
    def identities(self) -> frozenset[str]:
        """Return the ids of this image in engines of either store."""
        return frozenset({self.digest, self.config})


def held_image(registry: ContentStore, repository: str, reference: str) -> RegistryImage | None:
    """Return an image and its config, checked by the registry's client; None for none."""
    manifest = registry.manifest(repository, reference)
    if manifest is None:
        return None
    parts = manifest.document
    if not isinstance(parts, ImageManifest):
        raise wrong_image(registry, f"{reference} is an index of images, one image is expected")
    content = registry.blob(repository, parts.config.digest, CONFIG_LIMIT_BYTES)
    try:
        labels = (read_object(content).get("config") or {}).get("Labels") or {}
        image_labels = {str(name): str(text) for name, text in labels.items()}
    except (ValueError, AttributeError) as error:
        raise wrong_image(registry, f"{reference} is no image ({error})") from None
    sizes = (descriptor.size_bytes for descriptor in (parts.config, *parts.layers))
    return RegistryImage(
        manifest=manifest, config=parts.config.digest, labels=image_labels, size_bytes=sum(sizes)
    )


def digest_on(registry: Registry, path: str, tag: str) -> str:
    """Return the digest that a tag is on, "" for none."""
    descriptor = registry.head(path, tag)
    return descriptor.digest if descriptor else ""


def move_tag(
    registry: Registry, path: str, tag: str, manifest: RegistryManifest, *, before: str
) -> None:
    """Put a tag on a manifest, unless it is there. Raises `TagConflictError` where it is neither
    there nor on `before`, or not there right after.
    """
    digest = manifest.descriptor.digest
    standing = digest_on(registry, path, tag)
    if standing == before != digest:
        registry.put_manifest(path, tag, manifest.body, manifest.descriptor.media_type)
        standing = digest_on(registry, path, tag)
    if standing != digest:
        raise moved(f"{registry.host}/{path}", tag, standing, digest)


def wrong_image(registry: ContentStore, message: str) -> RegistryError:
    """Return the error for a registry that does not have what it was sent."""
    hint = "nothing public was changed; ask who runs the registry, then run it again"
    return wrong(registry.host, "publish", message, hint)


def attached_as(subject: Descriptor, document: Artifact) -> Attachment:
    """Return the artifact of an attached document: same document, same digest, everywhere."""
    return Attachment(
        name=document.name,
        artifact_type=document.artifact_type,
        digest=digest_of_bytes(body_of(subject, document)),
        size_bytes=len(document.payload),
    )


def moves_document(publication: Publication, befores: Mapping[str, str]) -> Artifact:
    """Return the document of the previous digests of aliases, which a rollback reads."""
    content = {"schema": 1, "channel": publication.channel, "run": publication.run}
    return Artifact(
        name="moves",
        artifact_type=MOVES_TYPE,
        payload=json.dumps({**content, "before": dict(befores)}, sort_keys=True).encode(),
        annotations={"dev.warpfront.run": publication.run},
    )


def taken(
    publication: Publication, tag: str, digest: str, labels: Mapping[str, str] | None = None
) -> TagConflictError:
    """Return the error for a fixed tag that is on another image. `labels` are those of that
    image: the same content needs no second digest, another one needs another tag.
    """
    hint = "publish from the build that was published, or give the template a word that differs: "
    hint += "{content} for other content, {date} or {revision} for the same"
    if labels and publication.content_hash in labels.values():
        hint = f"this content is published, as {digest}: put {{date}} or {{revision}} in the tag"
    elif labels:
        hint = "its content is another: put {content} in the template of the tag"
    return TagConflictError(
        f"{publication.repository}:{tag} never moves, and is {digest or 'gone'}: another image "
        f"than {publication.digest or publication.image_id}",
        hint=hint,
    )


def moved(repository: str, tag: str, standing: str, digest: str) -> TagConflictError:
    return TagConflictError(
        f"{repository}:{tag} is on {standing or 'nothing'}: another run moved it while this one "
        f"put it on {digest}",
        hint="`warpfront release list` shows the runs; then run this one again, alone",
    )


def aliases_before(registry: Registry, path: str, digest: str) -> Mapping[str, str]:
    """Return each alias that ever came to a digest, and its last previous digest; "" = none.
    Anybody who may push may attach anything, so entries that are no tag or no digest are ignored.
    """
    aliases: dict[str, str] = {}
    listed = [
        entry for entry in registry.referrers(path, digest) if entry.artifact_type == MOVES_TYPE
    ]
    # The name of a run begins with its time.
    for referrer in sorted(
        listed, key=lambda entry: entry.annotations.get("dev.warpfront.run", "")
    ):
        payload = attached_payload(registry, path, referrer.digest, _MOVES_LIMIT_BYTES)
        try:
            befores = object_in(read_object(payload), "before")
        except ValueError:
            continue
        for tag, before in befores.items():
            if is_tag(str(tag)) and (before == "" or is_digest(str(before))):
                aliases[str(tag)] = str(before)
    return aliases


def is_yanked(registry: Registry, path: str, digest: str) -> bool:
    return any(entry.artifact_type == YANK_TYPE for entry in registry.referrers(path, digest))


def target_before(registry: Registry, path: str, alias: str, digest: str) -> str:
    """Return an alias's last earlier digest that is there and was not yanked; "" for none."""
    visited = {digest}
    for _ in range(_LONGEST_HISTORY):
        digest = aliases_before(registry, path, digest).get(alias, "")
        if not digest or digest in visited:
            return ""
        visited.add(digest)
        if registry.head(path, digest) is not None and not is_yanked(registry, path, digest):
            return digest
    return ""


def yank_image(
    registry: Registry, repository: str, digest: str, *, reason: str, run: str, dry_run: bool
) -> Yank:
    """Withdraw a digest and move its aliases back to the previous one; it is never published
    again. Nothing is deleted, since that would remove every tag on the digest, fixed tags included.
    """
    path = repository.removeprefix(f"{registry.host}/")
    registry_image = held_image(registry, path, digest)
    if registry_image is None:
        raise TagConflictError(f"{repository} has no {digest}", hint="warpfront release list")
    back, staying = {}, {}
    for alias in aliases_before(registry, path, digest):
        if digest_on(registry, path, alias) != digest:
            continue
        before = target_before(registry, path, alias, digest)
        if before:
            back[alias] = before
        else:
            staying[alias] = "there is no earlier digest to move it back to"
    yank = Yank(repository=repository, digest=digest, reason=reason, moved=back, kept=staying)
    if not dry_run:
        content = {"schema": 1, "run": run, "reason": reason, "moved": back}
        document = Artifact(
            name="yank",
            artifact_type=YANK_TYPE,
            payload=json.dumps(content, sort_keys=True).encode(),
            annotations={"dev.warpfront.run": run, "dev.warpfront.reason": reason},
        )
        registry.attach_all(path, registry_image.manifest.descriptor, [document])
        for alias, before in back.items():
            if (manifest := registry.manifest(path, before)) is None:
                raise TagConflictError(f"{repository} has no {before}", hint="run it again")
            move_tag(registry, path, alias, manifest, before=digest)
    return yank


# Lists of what is attached, and cosign's signatures, where a registry keeps none of its own.
_NOT_IMAGES = "sha256-"
# Tags that cosign 2 adds for an image: signatures, attestations.
_SIGNATURES = frozenset(
    {"application/vnd.dev.cosign.simplesigning.v1+json", "application/vnd.dsse.envelope.v1+json"}
)
_NOTED = "dev.warpfront.noted"


def stock_of(registry: Registry, path: str) -> tuple[Stock, ...]:
    """Return every image under a tag, in the order of their tags, and skip anything else."""
    on: defaultdict[str, list[str]] = defaultdict(list)
    heads = heads_of(registry, path)
    for tag, head in heads.items():
        on[head.digest].append(tag)
    parts, stocks = listed_in(registry, path, heads), []
    for digest, tags in on.items():
        try:
            registry_image = held_image(registry, path, digest)
        except RegistryError as error:
            if error.fault is not RegistryFault.WRONG:
                raise
            continue
        if registry_image is None:
            continue
        attached = registry.referrers(path, digest)
        annotations = [
            entry.annotations for entry in attached if CHANNEL_ANNOTATION in entry.annotations
        ]
        noted = {annotation.get(_NOTED, "") for annotation in annotations} - {""}
        moves = [entry for entry in attached if entry.artifact_type == MOVES_TYPE]
        befores = aliases_before(registry, path, digest)
        yanked = any(entry.artifact_type == YANK_TYPE for entry in attached)
        # The way back of an alias that has gone on does not lead over here; of one taken back it
        # does.
        ways = {before for alias, before in befores.items() if before and (alias in tags or yanked)}
        stock = Stock(
            repository=f"{registry.host}/{path}",
            digest=digest,
            tags=tuple(tags),
            aliases=tuple(tag for tag in tags if tag in befores),
            listed_in=parts.get(digest, ()),
            befores=tuple(sorted(ways)),
            channels=tuple(sorted({annotation[CHANNEL_ANNOTATION] for annotation in annotations})),
            noted=tuple(sorted(noted)),
            runs=tuple(entry.annotations.get("dev.warpfront.run", "") for entry in moves),
            labels=registry_image.labels,
            yanked=yanked,
            attached=tuple((entry.artifact_type or "", entry.digest) for entry in attached),
        )
        stocks.append(stock)
    return tuple(stocks)


def heads_of(registry: ContentStore, path: str) -> Mapping[str, Descriptor]:
    """Return the digest of each tag of an image or index."""
    tags = (tag for tag in registry.tags(path) if not tag.startswith(_NOT_IMAGES))
    heads = ((tag, registry.head(path, tag)) for tag in tags)
    return {tag: head for tag, head in heads if head is not None}


def listed_in(
    registry: Registry, path: str, heads: Mapping[str, Descriptor]
) -> Mapping[str, tuple[str, ...]]:
    """Return the tags of the indexes that list each digest, by digest."""
    tags_by_digest: defaultdict[str, list[str]] = defaultdict(list)
    for tag, head in heads.items():
        if head.media_type in INDEX_TYPES:
            index = _document(registry, path, head.digest)
            for child in index.manifests if isinstance(index, ImageIndex) else ():
                tags_by_digest[child.digest].append(tag)
    return {digest: tuple(tags) for digest, tags in tags_by_digest.items()}


def remove(registry: Registry, delete: Delete, stock: Stock, reason: str) -> Removed:
    """Delete a digest, then its attachments: never the proof before the image. Anybody who may
    push may list anything as attached, so documents about another image stay.
    """
    path = stock.repository.removeprefix(f"{registry.host}/")
    attached = [
        digest
        for _, digest in stock.attached
        if (document := _document(registry, path, digest))
        and document.subject
        and document.subject.digest == stock.digest
    ]
    delete(path, stock.digest, stock.tags)
    for digest in attached:
        delete(path, digest, ())
    for suffix in ("", *SIGNATURE_TAGS):
        tag = f"{fallback_tag(stock.digest)}{suffix}"
        listed = registry.head(path, tag)
        document = _document(registry, path, listed.digest) if listed else None
        if isinstance(document, ImageIndex):
            leads_nowhere = {manifest.digest for manifest in document.manifests} <= {*attached}
        else:
            kinds = {layer.media_type for layer in document.layers} if document else set()
            leads_nowhere = bool(kinds) and kinds <= _SIGNATURES
        if listed and leads_nowhere:
            delete(path, listed.digest, (tag,))
    return Removed(repository=stock.repository, digest=stock.digest, tags=stock.tags, reason=reason)


def _document(registry: Registry, path: str, digest: str) -> Document | None:
    try:
        manifest = registry.manifest(path, digest)
    except RegistryError as error:
        if error.fault is not RegistryFault.WRONG:
            raise
        return None
    return manifest.document if manifest is not None else None
