"""What a repository holds: each digest with its tags, and what it says of itself. Edge."""

from __future__ import annotations

from collections import defaultdict

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.history import aliases_before
from warpfront.release.ledger import Removed, Stock
from warpfront.release.publication import YANK_TYPE, held_image
from warpfront.release.registry.contract import Registry

# Lists of what is attached, and cosign's signatures, where a registry keeps none of its own.
_NOT_IMAGES = "sha256-"
_CHANNEL = "dev.warpfront.channel"
_NOTED = "dev.warpfront.noted"


def stock_of(registry: Registry, path: str) -> tuple[Stock, ...]:
    """Every image under a tag, in the order of their tags. What is no image is passed over."""
    on: defaultdict[str, list[str]] = defaultdict(list)
    for tag in registry.tags(path):
        found = None if tag.startswith(_NOT_IMAGES) else registry.head(path, tag)
        if found is not None:
            on[found.digest].append(tag)
    stocks = (_stock(registry, path, digest, tuple(tags)) for digest, tags in on.items())
    return tuple(one for one in stocks if one is not None)


def _stock(registry: Registry, path: str, digest: str, tags: tuple[str, ...]) -> Stock | None:
    try:
        held = held_image(registry, path, digest)
    except RegistryError as error:
        if error.fault is not RegistryFault.WRONG:
            raise
        return None
    if held is None:
        return None
    attached = registry.referrers(path, digest)
    said = [one.annotations for one in attached if _CHANNEL in one.annotations]
    befores = aliases_before(registry, path, digest)
    return Stock(
        repository=f"{registry.host}/{path}",
        digest=digest,
        tags=tags,
        aliases=tuple(tag for tag in tags if tag in befores),
        befores=tuple(sorted({before for before in befores.values() if before})),
        channels=tuple(sorted({one[_CHANNEL] for one in said})),
        noted=tuple(sorted({one[_NOTED] for one in said if one.get(_NOTED)})),
        labels=held.labels,
        yanked=any(one.artifact_type == YANK_TYPE for one in attached),
        attached=tuple((one.artifact_type or "", one.digest) for one in attached),
    )


def remove(registry: Registry, stock: Stock, reason: str) -> Removed:
    """Delete a digest, then what was attached to it: never the proof before the image."""
    path = stock.repository.removeprefix(f"{registry.host}/")
    registry.delete(path, stock.digest)
    for _, digest in stock.attached:
        registry.delete(path, digest)
    return Removed(repository=stock.repository, digest=stock.digest, tags=stock.tags, reason=reason)
