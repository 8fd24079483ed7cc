"""A digest's history in a registry: where aliases were before they came to it, and whether it
was yanked. It is attached to the digest, where every machine finds it. Edge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from warpfront.errors import TagConflictError
from warpfront.release.ledger import Yank
from warpfront.release.publication import MOVES_TYPE, YANK_TYPE, digest_on, held_image, move_tag
from warpfront.release.registry.contract import Artifact, Registry
from warpfront.release.registry.manifests import attached_payload, read_object
from warpfront.system.references import is_digest, is_tag

_LIMIT_BYTES = 1 << 20
_LONGEST_HISTORY = 1000


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
        payload = attached_payload(registry, path, referrer.digest, _LIMIT_BYTES)
        try:
            befores = read_object(payload).get("before")
        except ValueError:
            continue
        for tag, before in befores.items() if isinstance(befores, dict) else ():
            if is_tag(str(tag)) and (before == "" or is_digest(str(before))):
                aliases[str(tag)] = str(before)
    return aliases


def is_yanked(registry: Registry, path: str, digest: str) -> bool:
    return any(entry.artifact_type == YANK_TYPE for entry in registry.referrers(path, digest))


def target_before(registry: Registry, path: str, alias: str, digest: str) -> str:
    """Return the last digest that an alias was on before this one, is still there, and was not
    yanked; "" for none.
    """
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
    moved, unmoved = {}, {}
    for alias in aliases_before(registry, path, digest):
        standing = registry.head(path, alias)
        if standing is None or standing.digest != digest:
            continue
        before = target_before(registry, path, alias, digest)
        if before:
            moved[alias] = before
        else:
            unmoved[alias] = "there is no earlier digest to move it back to"
    yank = Yank(repository=repository, digest=digest, reason=reason, moved=moved, kept=unmoved)
    if not dry_run:
        content = {"schema": 1, "run": run, "reason": reason, "moved": moved}
        document = Artifact(
            name="yank",
            artifact_type=YANK_TYPE,
            payload=json.dumps(content, sort_keys=True).encode(),
            annotations={"dev.warpfront.run": run, "dev.warpfront.reason": reason},
        )
        registry.attach_all(path, registry_image.manifest.descriptor, [document])
        for alias, before in moved.items():
            _move_back(registry, path, alias, before, away_from=digest)
    return yank


def _move_back(registry: Registry, path: str, alias: str, before: str, *, away_from: str) -> None:
    manifest = registry.manifest(path, before)
    error = TagConflictError(
        f"{path}:{alias} was moved by another run while it was taken back",
        hint="`warpfront release list` says where it is; run it again",
    )
    if manifest is None or digest_on(registry, path, alias) != away_from:
        raise error
    move_tag(registry, path, alias, manifest, before=away_from, conflict=lambda _: error)
