"""The steps of a publish run: the facts that a rerun, a rollback and a reader of the
release need. Words.

A ledger is written after every step, so that a killed run leaves a record of its steps. A rerun
still queries the registry: a ledger records actions, the registry has the present state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LEDGER_FOLDER = "release"
"""Beside the cells' own folders, in which no cell's name can be: ids have a vendor in them."""


CHANNEL_ANNOTATION = "dev.warpfront.channel"
"""What documents and signatures say that an image was proven for."""
CANDIDATE_PREFIX = "candidate-"
"""What the tags begin with that are not announced."""
NOT_PUBLIC = (CANDIDATE_PREFIX, "sha256-")
"""These, and those of what is attached, where a registry keeps no list of it."""


def is_candidate(reference: str) -> bool:
    """Return whether an image has a candidate's name, the one before it is proven."""
    return reference.rpartition("/")[2].partition(":")[2].startswith(CANDIDATE_PREFIX)


def staged_tag(tag: str, machine: str) -> str:
    """Return the tag of one machine's image until an index of all can be put."""
    return f"{CANDIDATE_PREFIX}{tag}.{machine}"


class Stage(StrEnum):
    """Progress of the publication of one image. Only `DONE` is published; `UNSIGNED` is in the
    place of `SIGNED` where there is no key.
    """

    PLANNED = "planned"
    CANDIDATE = "candidate"
    PROVEN = "proven"
    DOCUMENTED = "documented"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    TAGGED = "tagged"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagMove:
    """A tag of a publication. `before` is its previous digest, "" for none; `done` is true
    once the registry has it on the new one.
    """

    tag: str
    moves: bool
    before: str = ""
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTagMove:
    """A name of one image for several machines: an index that lists one for each. `machines`
    are those in it, `waits` is the reason why there is none yet. `before` is the name's previous
    digest, `digest` the index's, "" as long as it waits.
    """

    tag: str
    moves: bool
    machines: tuple[str, ...]
    waits: tuple[str, ...] = ()
    before: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A document that is attached to the published digest. `name` is its name in the signature."""

    name: str
    artifact_type: str
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An image on its way into a channel. `repository` has its host; `config` is the digest of
    its config. `targets` are its verified targets, `noted` the findings that the channel let pass.
    `signed_by` is "" for an unsigned image; `attested` names the documents that are attested as
    well. Bytes are those of the image: sent over the wire, and already in the registry.
    """

    cell_id: str
    channel: str
    run: str
    repository: str
    image_id: str
    content_hash: str
    targets: tuple[str, ...]
    noted: tuple[str, ...]
    tags: tuple[TagMove, ...]
    indexes: tuple[IndexTagMove, ...] = ()
    stage: Stage = Stage.PLANNED
    candidate: str = ""
    digest: str = ""
    config: str = ""
    attached: tuple[Attachment, ...] = ()
    signed_by: str = ""
    attested: tuple[str, ...] = ()
    sent_bytes: int = 0
    present_bytes: int = 0
    seconds: float = 0.0

    @property
    def reference(self) -> str:
        """Return the reference that pulls exactly this image."""
        return f"{self.repository}@{self.digest}"

    @property
    def path(self) -> str:
        """Return the repository without its host."""
        return self.repository.partition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished:
    """A cell that a run did not publish, and why."""

    cell_id: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The actions of one run. `run` names its file and its candidates."""

    run: str
    channel: str
    action: str
    started: str
    publications: tuple[Publication, ...] = ()
    refusals: tuple[Unpublished, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A digest of a repository: its tags, which of them are `aliases`, and of which indexes it is a
    part (`listed_in`, their tags). `befores` are the digests that aliases were on, of a yanked one
    all that ever were on it; `channels` are what it was proven for, `runs` moved an alias to it.
    """

    repository: str
    digest: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    listed_in: tuple[str, ...] = ()
    befores: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    yanked: bool = False
    attached: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A digest that was deleted, with the tags that went with it, and why."""

    repository: str
    digest: str
    tags: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The digests that one run removed."""

    removed: tuple[Removed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Yank:
    """A withdrawn digest: `moved` has the new digest of each alias, `kept` why one stays."""

    repository: str
    digest: str
    reason: str
    moved: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
