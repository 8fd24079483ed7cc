"""A shop in memory: cells that were built and verified, an engine that has their images, and a
registry to publish them to.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builders import FACTS, FULL, a_built_image, a_cell, a_channel, a_check, a_verification
from fakes import FakeEngine, FakeRegistry

from warpfront.images.built import CREATED, REVISION
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import Cell
from warpfront.matrix.release_channels import Alias, Channel
from warpfront.release.evidence import local_evidence
from warpfront.release.ledger import LEDGER_FOLDER, Ledger, Publication
from warpfront.release.publish_context import PublishContext, Published, publish_cells
from warpfront.release.registry.contract import digest_of_bytes
from warpfront.release.signing import Signer
from warpfront.system.process import Command, Completed
from warpfront.system.store import Store
from warpfront.verify.results import CheckResult
from warpfront.verify.verdict import sealed

PROJECT = "registry.test/demo"
REPOSITORY = "demo/torch"
NOW = "2026-11-22T12:00:00+00:00"
CPU = a_cell()


class Quiet:
    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@dataclass
class FakeCosign:
    """Signs and verifies in memory, by the commands that the real one would get."""

    signed: set[tuple[str, ...]] = field(default_factory=set)
    attested: list[tuple[str, str, object]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    wrong: str = ""
    takes: tuple[str, ...] = ()

    def __call__(self, command: Command) -> Completed:
        if command.argv[-1] == "--help":
            known = command.argv[2].removesuffix("=false") in self.takes
            return Completed(command=command, returncode=int(not known), stdout="", stderr="")
        self.commands.append(command)
        verb, reference = command.argv[1], command.argv[-1]
        if verb in {"attest", "verify-attestation"}:
            return self._of_attestations(command, verb, reference)
        said = tuple(word for word in command.argv if word.startswith("--annotations="))
        failed = self.wrong if verb == "sign" else ""
        if verb == "sign" and not failed:
            self.signed.add((reference, *said))
        elif verb == "verify" and not any(
            one[0] == reference and set(said) <= set(one) for one in self.signed
        ):
            failed = "no matching signatures"
        return Completed(command=command, returncode=bool(failed), stdout="", stderr=failed)

    def _of_attestations(self, command: Command, verb: str, reference: str) -> Completed:
        kind, failed, printed = command.argv[command.argv.index("--type") + 1], "", ""
        if verb == "attest" and not (failed := self.wrong):
            self.attested.append((reference, kind, json.loads(command.stdin or "")))
        elif verb == "verify-attestation":
            found = [one for ref, of, one in self.attested if (ref, of) == (reference, kind)]
            printed = "".join(f"{envelope_of(reference, kind, one)}\n" for one in found)
            failed = "" if found else "no matching attestations"
        return Completed(command=command, returncode=bool(failed), stdout=printed, stderr=failed)


def envelope_of(reference: str, kind: str, predicate: object) -> str:
    """A DSSE envelope as `cosign verify-attestation` prints one."""
    subject = {"name": "x", "digest": {"sha256": reference.rpartition("sha256:")[2]}}
    statement = {"subject": [subject], "predicateType": kind, "predicate": predicate}
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps({"payloadType": "application/vnd.in-toto+json", "payload": payload})


def a_signer(cosign: FakeCosign) -> Signer:
    return Signer(run=cosign, key="a.key", public_key="a.pub", environment={})


def a_release_channel(*cells: Cell, **changes: object) -> Channel:
    ids = frozenset(cell.id for cell in cells or (CPU,))
    aliases = tuple(Alias(tag=t, cells=ids) for t in ("latest", "{torch}-{toolkit}"))
    return a_channel(
        **{"aliases": aliases, "allow": ("unsigned",), "repository": PROJECT, **changes}
    )


@dataclass
class World:
    """One machine that publishes, and the registry that it publishes to."""

    store: Store
    engine: FakeEngine = field(default_factory=FakeEngine)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    signer: Signer | None = None
    runs: int = 0

    def __post_init__(self) -> None:
        self.engine.registries[self.registry.host] = self.registry

    def build(
        self,
        cell: Cell = CPU,
        *checks: CheckResult,
        content: str = "a",
        created: str = "2026-11-20T10:00:00+00:00",
        labels: Mapping[str, str] | None = None,
        says: str = "",
        holds: int = 0,
        facts: Mapping[str, object] | None = None,
    ) -> str:
        """Build and verify a cell; the image's id."""
        content_hash = (content.encode().hex() * 64)[:64]
        said = {
            CONTENT_HASH: content_hash,
            BASE_SOURCE: "registry",
            RELAXED: "",
            CREATED: created,
            REVISION: "0123456789ab",
            **(labels or {}),
        }
        image = self.engine.build(
            cell.local_reference, said, content=content, says=says, holds=holds
        )
        built = a_built_image(cell, image_id=image.id, content_hash=content_hash)
        self.store.save(cell.id, "build", built)
        for target in cell.targets:
            verification = a_verification(
                *(checks or (a_check(),)),
                cell_id=cell.id,
                target=target,
                image_id=image.id,
                content_hash=content_hash,
                environment={"check_options": FULL, "facts": {**FACTS, **(facts or {})}},
            )
            sealed_one = sealed(verification, ended="2026-11-22T11:00:00+00:00")
            self.store.save(cell.id, f"verify-{target}", sealed_one)
        return image.id

    @property
    def run_name(self) -> str:
        """Of each run another, a second later."""
        return f"20261122T1200{self.runs:02}-abcdef"

    def shop(self, channel: Channel) -> PublishContext:
        self.runs += 1
        return PublishContext(
            channel=channel,
            registry=self.registry,
            engine=self.engine,
            signer=self.signer,
            store=self.store,
            now=NOW,
            run=self.run_name,
            watch=Quiet(),
        )

    def publish(
        self, *cells: Cell, channel: Channel | None = None, dry_run: bool = False
    ) -> Mapping[str, Published]:
        cells = cells or (CPU,)
        chosen = channel or a_release_channel(*cells)
        return self.publish_of(cells, *cells, channel=chosen, dry_run=dry_run)

    def publish_of(
        self, every: tuple[Cell, ...], *cells: Cell, channel: Channel, dry_run: bool = False
    ) -> Mapping[str, Published]:
        """Some cells of a matrix."""
        return publish_cells(
            cells,
            every,
            self.shop(channel),
            find=lambda cell: local_evidence(cell, self.store, self.engine),
            dry_run=dry_run,
        )

    def published(self, *cells: Cell, channel: Channel | None = None) -> Publication:
        (result,) = self.publish(*cells, channel=channel).values()
        assert isinstance(result, Publication), result
        return result

    def ledger(self) -> Ledger:
        found: Ledger = self.store.load(LEDGER_FOLDER, self.run_name, (Ledger,))
        return found

    @property
    def public(self) -> dict[str, str]:
        """Every tag that people are told of, and the digest it is on."""
        return {
            tag: digest
            for (repository, tag), digest in self.registry.tagged.items()
            if repository == REPOSITORY and not tag.startswith("candidate-")
        }


def a_world(folder: Path) -> World:
    return World(store=Store(folder / "build"))


def content_of(world: World, image: str, folder: Path) -> Path:
    """The blobs of an image as an engine keeps them, where they may be read."""
    blobs = folder / "content" / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for blob in world.engine.parts[image]:
        (blobs / digest_of_bytes(blob)[7:]).write_bytes(blob)
    world.engine.contents[image] = blobs.parent.parent
    return blobs
