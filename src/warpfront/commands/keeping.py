"""Maintenance of a channel's repositories: list, withdraw and remove images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from warpfront.errors import InputError, RegistryError, RegistryFault
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import select
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import demanded_channel
from warpfront.release.ledger import LEDGER_FOLDER, Pruning, Removed, Stock, Yank
from warpfront.release.publication import heads_of, listed_in, remove, stock_of, yank_image
from warpfront.release.publish_context import connected, host_of, path_of, run_name
from warpfront.release.registry.architectures import parts_of
from warpfront.release.registry.contract import Registry
from warpfront.release.registry.deleting import deleter_for
from warpfront.release.retention import newest_first, not_needed
from warpfront.system import provenance
from warpfront.system.process import environment, run
from warpfront.system.references import read_reference
from warpfront.system.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The repositories of a channel's images, in their registry."""

    registry: Registry
    paths: tuple[str, ...]
    store: Store
    now: str = field(default_factory=provenance.now)

    def stock(self) -> tuple[Stock, ...]:
        """Return all images of the channel's repositories, newest first."""
        paths = (stock for path in self.paths for stock in stock_of(self.registry, path))
        return newest_first(paths)

    def yank(self, reference: str, reason: str, *, dry_run: bool) -> Yank:
        """Withdraw the image of a tag or digest, and record the changes in the run's ledger."""
        named = read_reference(reference)
        if named.host != self.registry.host:
            message = f"{reference} is in another registry than the channel, {self.registry.host}"
            raise InputError(message, hint="--channel and --to say which registry is meant")
        descriptor = self.registry.head(named.repository, named.digest or named.tag)
        digest = descriptor.digest if descriptor else named.digest or named.tag
        if (parts := parts_of(self.registry, named.repository, digest)) is not None:
            listed = ", ".join(f"{named.name}@{part}" for part in parts.values())
            message = f"{reference} is an index of several machines: {', '.join(parts)}"
            raise InputError(message, hint=f"take back each image that is wrong: {listed}")
        name, path = run_name(self.now), named.repository
        yanked = yank_image(
            self.registry, named.name, digest, reason=reason, run=name, dry_run=dry_run
        )
        for tag in listed_in(self.registry, path, heads_of(self.registry, path)).get(digest, ()):
            why = "an index of several machines lists it; publish what is to be there instead"
            yanked = dataclasses.replace(yanked, kept={**yanked.kept, tag: why})
        if not dry_run:
            self.store.save(LEDGER_FOLDER, name, yanked)
        return yanked

    def prune(self, channel: str, *, days: int, dry_run: bool) -> tuple[Removed, ...]:
        """Remove old candidates, and old images of a channel, "" for none's. Where one is refused,
        the others are removed, and its error is raised after them.
        """
        if days < 0:
            raise InputError(f"--days {days}: nothing is younger than now")
        unneeded = not_needed(self.stock(), channel=channel, now=self.now, days=days)
        if dry_run or not unneeded:
            return tuple(
                Removed(repository=old.repository, digest=old.digest, tags=old.tags, reason=reason)
                for old, reason in unneeded
            )
        host = f"{self.registry.host}/"
        paths = (stock.repository.removeprefix(host) for stock, _ in unneeded)
        deleter = deleter_for(self.registry, tuple(dict.fromkeys(paths)), environment(), run)
        removed, failed = list[Removed](), list[RegistryError]()
        try:
            for stock, reason in unneeded:
                try:
                    removed.append(remove(self.registry, deleter, stock, reason))
                except RegistryError as error:
                    failed.append(error)
                    if error.fault is not RegistryFault.REFUSED:
                        break  # the next one would meet the same
        finally:
            self.store.save(LEDGER_FOLDER, run_name(self.now), Pruning(removed=tuple(removed)))
        if failed:
            raise failed[0]
        return tuple(removed)


@contextmanager
def open_house(
    workspace: Workspace, selection: Selection, *, channel: str, to: str = ""
) -> Iterator[House]:
    """Yield the selected cells' repositories, as a channel names them."""
    matrix, store = workspace.matrix, workspace.folders.store
    chosen = demanded_channel(matrix.channels, channel, to)
    cells = select(matrix.cells, selection)
    paths = tuple(dict.fromkeys(path_of(chosen, cell) for cell in cells))
    with connected(host_of(chosen)) as registry:
        yield House(registry=registry, paths=paths, store=store)
