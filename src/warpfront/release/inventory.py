"""The content of a repository: each digest with its tags and its own labels. Edge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.ledger import CHANNEL_ANNOTATION, Removed, Stock
from warpfront.release.publication import MOVES_TYPE, YANK_TYPE, aliases_before, held_image
from warpfront.release.registry.contract import (
    INDEX_TYPES,
    Descriptor,
    Document,
    ImageIndex,
    Registry,
)
from warpfront.release.registry.copying import SIGNATURE_TAGS
from warpfront.release.registry.deleting import Delete
from warpfront.system.references import fallback_tag

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
    parts = listed_in(registry, path, heads)
    stocks = (
        _stock(registry, path, digest, tuple(tags), parts.get(digest, ()))
        for digest, tags in on.items()
    )
    return tuple(stock for stock in stocks if stock is not None)


def heads_of(registry: Registry, path: str) -> Mapping[str, Descriptor]:
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


def _stock(
    registry: Registry, path: str, digest: str, tags: tuple[str, ...], parts_of: tuple[str, ...]
) -> Stock | None:
    try:
        registry_image = held_image(registry, path, digest)
    except RegistryError as error:
        if error.fault is not RegistryFault.WRONG:
            raise
        return None
    if registry_image is None:
        return None
    attached = registry.referrers(path, digest)
    annotations = [
        entry.annotations for entry in attached if CHANNEL_ANNOTATION in entry.annotations
    ]
    befores = aliases_before(registry, path, digest)
    yanked = any(entry.artifact_type == YANK_TYPE for entry in attached)
    # The way back of an alias that has gone on does not lead over here; of one taken back it does.
    ways = {before for alias, before in befores.items() if before and (alias in tags or yanked)}
    return Stock(
        repository=f"{registry.host}/{path}",
        digest=digest,
        tags=tags,
        aliases=tuple(tag for tag in tags if tag in befores),
        listed_in=parts_of,
        befores=tuple(sorted(ways)),
        channels=tuple(sorted({annotation[CHANNEL_ANNOTATION] for annotation in annotations})),
        noted=tuple(
            sorted({annotation[_NOTED] for annotation in annotations if annotation.get(_NOTED)})
        ),
        runs=tuple(
            entry.annotations.get("dev.warpfront.run", "")
            for entry in attached
            if entry.artifact_type == MOVES_TYPE
        ),
        labels=registry_image.labels,
        yanked=yanked,
        attached=tuple((entry.artifact_type or "", entry.digest) for entry in attached),
    )


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
