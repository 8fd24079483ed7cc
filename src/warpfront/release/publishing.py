"""Publication of one image, in steps that can be repeated: a finished step is not done twice,
and no public tag is touched before every earlier step succeeded. Edge.

A registry has no transactions. So the digest is proven and documented first, fixed tags come next,
and aliases last. Each tag is read before and after; another digest there raises an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from warpfront.errors import InputError, RegistryError
from warpfront.images.engine import Engine
from warpfront.release.ledger import Publication, Stage, TagMove
from warpfront.release.publication import (
    RegistryImage,
    attached_as,
    digest_on,
    held_image,
    move_tag,
    moved,
    moves_document,
    signed_annotations,
    taken,
    wrong_image,
)
from warpfront.release.registry.contract import Artifact, Registry
from warpfront.release.registry.copying import Repository, copy_image
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.signing import Signer
from warpfront.system.progress import Watch

Bring = Callable[[Publication], int]
"""Gets an image into its repository by its digest; returns the bytes that were sent."""
Prove = Callable[[Publication, RegistryImage], tuple[Artifact, ...]]
"""Raises where this very image may not be published; returns the documents that go with it."""
Record = Callable[[Publication], None]


@contextlib.contextmanager
def metered(watch: Watch, transfer: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield the counter of a transfer's bytes, for any thread, and show its progress: `total`
    bytes, if nothing of it is there yet.
    """
    lock, moved_bytes, end = threading.Lock(), 0, 0

    def count(size: int) -> None:
        nonlocal moved_bytes
        with lock:
            moved_bytes += size
            watch.advance(transfer, moved_bytes, max(total, moved_bytes + 1))

    try:
        yield count
        end = moved_bytes
    finally:
        watch.advance(transfer, end, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploader:
    """Gets an image into the registry. `mount_from` are repositories that may have some of the
    image; `bring` replaces the engine for an image that is in none.
    """

    registry: Registry
    engine: Engine | None
    watch: Watch
    bring: Bring | None = None
    mount_from: tuple[str, ...] = ()

    def found(self, publication: Publication) -> RegistryImage | None:
        """Return the image, where a tag that never moves has it already. Raises `TagConflictError`
        for another image there, before anything was sent.
        """
        for tagging in publication.tags:
            if tagging.moves:
                continue
            registry_image = held_image(self.registry, publication.path, tagging.tag)
            if registry_image is not None and publication.image_id not in registry_image.identities:
                raise taken(publication, tagging.tag, registry_image.digest, registry_image.labels)
            if registry_image is not None:
                return registry_image
        return None

    def send(self, publication: Publication) -> int:
        """Send the image under its candidate's tag, or bring it; return the bytes sent. The
        engine's own blobs are sent if they can be read here: that takes less than a push.
        """
        if self.bring is not None:
            return self.bring(publication)
        assert self.engine is not None, "what is in no engine is brought"
        content = self.engine.content(publication.image_id)
        if content is None:
            return self._pushed(publication)
        layout = LayoutRegistry(folder=content, checked=True)
        try:
            image = held_image(layout, "", publication.image_id)
            size = image.size_bytes if image else 0
            with metered(self.watch, f"push {publication.cell_id}", size) as count:
                return copy_image(
                    Repository(registry=layout, repository=""),
                    Repository(registry=self.registry, repository=publication.path),
                    publication.image_id,
                    tag=publication.candidate,
                    mount_from=self.mount_from,
                    on_bytes=count,
                )
        except (InputError, OSError):
            return self._pushed(publication)
        except RegistryError as error:
            if error.registry != layout.host:
                raise
            return self._pushed(publication)  # not all of it is there: what next, the engine knows

    def _pushed(self, publication: Publication) -> int:
        """Have the engine push the image. Transferred blobs stay in the registry, so that a
        second run transfers only the missing ones.
        """
        reference = f"{publication.repository}:{publication.candidate}"

        def report(pushed: int, total: int) -> None:
            self.watch.advance(f"push {publication.cell_id}", pushed, total)

        assert self.engine is not None
        self.engine.tag(publication.image_id, reference)
        try:
            return self.engine.push(reference, report)
        finally:
            self.engine.remove(reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attester:
    """Attaches documents to an image, attests and signs them."""

    registry: Registry
    signer: Signer | None
    prove: Prove

    def attach(
        self,
        publication: Publication,
        registry_image: RegistryImage,
        documents: tuple[Artifact, ...],
    ) -> Publication:
        """Attach every document, and find it among what is attached: where a registry keeps no list
        of its own, another publisher may have written the list meanwhile.
        """
        path, subject = publication.path, registry_image.manifest.descriptor
        expected = {document.name: attached_as(subject, document) for document in documents}

        def missing() -> list[Artifact]:
            listed = {entry.digest for entry in self.registry.referrers(path, subject.digest)}
            return [
                document for document in documents if expected[document.name].digest not in listed
            ]

        for _ in range(2):
            if not (absent := missing()):
                break
            self.registry.attach_all(path, subject, absent)
        else:
            if names := ", ".join(sorted(attachment.name for attachment in missing())):
                text = f"{names}: attached to {subject.digest}, and not listed"
                raise wrong_image(self.registry, text)
        return dataclasses.replace(publication, attached=tuple(expected.values()))

    def sign(self, publication: Publication, documents: tuple[Artifact, ...]) -> Publication:
        """Attest each statement and SBOM, and sign the digest with all that is attached to it, if
        there is a signer. cosign keeps all of a digest in one list, which two writers would take
        from each other, so one follows the other.
        """
        if self.signer is None:
            return publication
        stated = [document.predicate for document in documents if document.predicate is not None]
        for predicate in stated:
            self.signer.attest(publication.reference, predicate)
        self.signer.sign(publication.reference, signed_annotations(publication))
        attested = tuple(predicate.name for predicate in stated)
        return dataclasses.replace(publication, signed_by=self.signer.name, attested=attested)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagger:
    """Puts tags on a digest that is proven, documented and signed."""

    registry: Registry
    record: Record

    def tag(self, publication: Publication, registry_image: RegistryImage) -> Publication:
        """Put fixed tags, then aliases. The previous digest of an alias is recorded in the
        registry before it moves, where every later run finds it.
        """
        path, digest = publication.path, publication.digest
        befores = self._all_now_on(path, publication.tags)
        tags = tuple(dataclasses.replace(tag, before=befores[tag.tag]) for tag in publication.tags)
        for tag in tags:
            if not tag.moves and tag.before not in {"", digest}:
                raise taken(publication, tag.tag, tag.before)
        publication = dataclasses.replace(publication, tags=tags)
        self.record(publication)
        for tag in tags:
            if not tag.moves:
                publication = self.set_tag(publication, tag, registry_image)
        if moving := {tag.tag: tag.before for tag in tags if tag.moves and tag.before != digest}:
            moves = moves_document(publication, moving)
            self.registry.attach_all(path, registry_image.manifest.descriptor, [moves])
        for tag in tags:
            if tag.moves:
                publication = self.set_tag(publication, tag, registry_image)
        return publication

    def set_tag(
        self, publication: Publication, tagging: TagMove, registry_image: RegistryImage
    ) -> Publication:
        """Put one tag on the digest, unless it was there when all were looked at."""
        if tagging.before != publication.digest:  # all are looked at again in the end
            move_tag(
                self.registry,
                publication.path,
                tagging.tag,
                registry_image.manifest,
                before=tagging.before,
                conflict=lambda standing: moved(publication, tagging.tag, standing),
            )
        finished = dataclasses.replace(tagging, done=True)
        tags = tuple(finished if tag.tag == tagging.tag else tag for tag in publication.tags)
        publication = dataclasses.replace(publication, tags=tags)
        self.record(publication)
        return publication

    def look_again(self, publication: Publication) -> Publication:
        """Check all tags once more: of two who published at once, the one who lost stops."""
        for tag, standing in self._all_now_on(publication.path, publication.tags).items():
            if standing != publication.digest:
                raise moved(publication, tag, standing)
        return publication

    def _all_now_on(self, path: str, tags: Iterable[TagMove]) -> dict[str, str]:
        return {tag.tag: digest_on(self.registry, path, tag.tag) for tag in tags}


def publish_image(
    planned: Publication,
    uploader: Uploader,
    attester: Attester,
    tagger: Tagger,
) -> Publication:
    """Publish an image in all stages, or raise an error that names the stage where it ended. It is
    recorded after every step.
    """
    record, watch = tagger.record, uploader.watch
    documents: tuple[Artifact, ...] = ()

    def step(stage: Stage, act: Callable[[Publication], Publication]) -> Publication:
        watch.step(planned.cell_id, f"publishing: {stage}")
        reached = dataclasses.replace(act(publication), stage=stage)
        record(reached)
        return reached

    def prove(publication: Publication) -> Publication:
        nonlocal documents
        documents = attester.prove(publication, image)
        return publication

    watch.step(planned.cell_id, f"publishing: {Stage.CANDIDATE}")
    image, sent_bytes = candidate(planned, uploader)
    publication = dataclasses.replace(
        planned,
        stage=Stage.CANDIDATE,
        digest=image.digest,
        config=image.config,
        sent_bytes=sent_bytes,
        present_bytes=max(image.size_bytes - sent_bytes, 0),
    )
    record(publication)
    publication = step(Stage.PROVEN, prove)
    publication = step(Stage.DOCUMENTED, lambda current: attester.attach(current, image, documents))
    signed = Stage.SIGNED if attester.signer else Stage.UNSIGNED
    publication = step(signed, lambda current: attester.sign(current, documents))
    publication = step(Stage.TAGGED, lambda current: tagger.tag(current, image))
    return step(Stage.DONE, tagger.look_again)


def candidate(publication: Publication, uploader: Uploader) -> tuple[RegistryImage, int]:
    """Return the image in the registry, and the bytes sent. It is sent under a tag of no channel,
    unless the registry has it by a tag of its own.
    """
    registry, sent_bytes = uploader.registry, 0
    registry_image = uploader.found(publication)
    if registry_image is None:
        sent_bytes = uploader.send(publication)
        reference = publication.digest if uploader.bring else publication.candidate
        registry_image = held_image(registry, publication.path, reference)
    if registry_image is None:
        raise wrong_image(registry, f"{publication.candidate} was pushed, and is not there")
    if publication.image_id not in registry_image.identities:
        raise wrong_image(
            registry,
            f"{publication.candidate} is {registry_image.digest}, not the image that was sent "
            f"({publication.image_id})",
        )
    return registry_image, sent_bytes
