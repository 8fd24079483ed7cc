"""Publication of one image, in steps that can be repeated: a finished step is not done twice,
and no public tag is touched before every earlier step succeeded. Edge.

A registry has no transactions. So the digest is proven and documented first, fixed tags come next,
and aliases last. Each tag is read before and after; another digest there raises an error.

A name of several machines is an index, put when each machine's image of the same revision is
published, by any publisher in any repository. Each publisher stores its image under an unadvertised
tag of its own (`{tag}.{machine}`), and reads the others'. So no publisher writes another's tag, and
the last one puts an index of the same bytes, whichever it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warpfront.errors import InputError, RegistryError, TagConflictError
from warpfront.images.engine.protocol import Engine
from warpfront.release.ledger import (
    CHANNEL_ANNOTATION,
    IndexTagMove,
    Publication,
    Stage,
    TagMove,
    staged_tag,
)
from warpfront.release.publication import (
    RegistryImage,
    attached_as,
    digest_on,
    held_image,
    is_yanked,
    move_tag,
    moved,
    moves_document,
    taken,
    wrong_image,
)
from warpfront.release.registry.architectures import ARCHITECTURES, put_index
from warpfront.release.registry.contract import Artifact, Descriptor, Platform, Registry
from warpfront.release.registry.copying import Repository, copy_image
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.signing import Signer
from warpfront.system.progress import Watch

Bring = Callable[[Publication], int]
"""Gets an image into its repository by its digest; returns the bytes that were sent."""


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
class ImagePublisher:
    """The publication of one image. `mount_from` are repositories that may have some of it; `bring`
    replaces the engine for an image that is in none. `prove` raises where this very image may not
    be published, and returns the documents that go with it; `record` receives every step.
    """

    registry: Registry
    engine: Engine | None
    signer: Signer | None
    watch: Watch
    prove: Callable[[Publication, RegistryImage], tuple[Artifact, ...]]
    record: Callable[[Publication], None]
    bring: Bring | None = None
    mount_from: tuple[str, ...] = ()

    def publish(self, planned: Publication) -> Publication:
        """Publish the image in all stages, or raise an error that names the stage where it ended.
        It is recorded after every step.
        """
        documents: tuple[Artifact, ...] = ()

        def step(stage: Stage, act: Callable[[Publication], Publication]) -> Publication:
            self.watch.step(planned.cell_id, f"publishing: {stage}")
            reached = dataclasses.replace(act(publication), stage=stage)
            self.record(reached)
            return reached

        def prove(publication: Publication) -> Publication:
            nonlocal documents
            documents = self.prove(publication, image)
            return publication

        self.watch.step(planned.cell_id, f"publishing: {Stage.CANDIDATE}")
        image, sent_bytes = self.candidate(planned)
        publication = dataclasses.replace(
            planned,
            stage=Stage.CANDIDATE,
            digest=image.digest,
            config=image.config,
            sent_bytes=sent_bytes,
            present_bytes=max(image.size_bytes - sent_bytes, 0),
        )
        self.record(publication)
        publication = step(Stage.PROVEN, prove)
        publication = step(Stage.DOCUMENTED, lambda current: self.attach(current, image, documents))
        signed = Stage.SIGNED if self.signer else Stage.UNSIGNED
        publication = step(signed, lambda current: self.sign(current, documents))
        publication = step(Stage.TAGGED, lambda current: self.tag(current, image))
        return step(Stage.DONE, self.look_again)

    def candidate(self, publication: Publication) -> tuple[RegistryImage, int]:
        """Return the image in the registry, and the bytes sent: under a tag of no channel,
        unless the registry has it by a tag of its own.
        """
        registry, sent_bytes = self.registry, 0
        registry_image = self.found(publication)
        if registry_image is None:
            sent_bytes = self.send(publication)
            reference = publication.digest if self.bring else publication.candidate
            registry_image = held_image(registry, publication.path, reference)
        if registry_image is None:
            raise wrong_image(registry, f"{publication.candidate} was pushed, and is not there")
        if publication.image_id not in registry_image.identities:
            found = f"{publication.candidate} is {registry_image.digest}"
            sent = f"not the image that was sent ({publication.image_id})"
            raise wrong_image(registry, f"{found}, {sent}")
        return registry_image, sent_bytes

    def found(self, publication: Publication) -> RegistryImage | None:
        """Return the image, where a tag that never moves has it already. Raises `TagConflictError`
        for another image there, before anything was sent.
        """
        for tag in (tagging.tag for tagging in publication.tags if not tagging.moves):
            image = held_image(self.registry, publication.path, tag)
            if image and publication.image_id not in image.identities:
                raise taken(publication, tag, image.digest, image.labels)
            if image:
                return image
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
        except (InputError, OSError, RegistryError) as error:
            if isinstance(error, RegistryError) and error.registry != layout.host:
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
        digests = {f"dev.warpfront.{a.name}": a.digest for a in publication.attached}
        annotations = {CHANNEL_ANNOTATION: publication.channel, **digests}
        self.signer.sign(publication.reference, annotations)
        attested = tuple(predicate.name for predicate in stated)
        return dataclasses.replace(publication, signed_by=self.signer.name, attested=attested)

    def tag(self, publication: Publication, registry_image: RegistryImage) -> Publication:
        """Put fixed tags, then aliases. The previous digest of an alias is recorded in the
        registry before it moves, where every later run finds it.
        """
        path, digest = publication.path, publication.digest
        tags = tuple(
            dataclasses.replace(tag, before=digest_on(self.registry, path, tag.tag))
            for tag in publication.tags
        )
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
            path, manifest = publication.path, registry_image.manifest
            move_tag(self.registry, path, tagging.tag, manifest, before=tagging.before)
        finished = dataclasses.replace(tagging, done=True)
        tags = tuple(finished if tag.tag == tagging.tag else tag for tag in publication.tags)
        publication = dataclasses.replace(publication, tags=tags)
        self.record(publication)
        return publication

    def look_again(self, publication: Publication) -> Publication:
        """Check all tags once more: of two who published at once, the one who lost stops."""
        for tag in publication.tags:
            standing = digest_on(self.registry, publication.path, tag.tag)
            if standing != publication.digest:
                raise moved(publication.repository, tag.tag, standing, publication.digest)
        return publication


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWriter:
    """The writer of a channel's indexes, which signs them if there is a signer."""

    registry: Registry
    signer: Signer | None
    record: Callable[[Publication], None]

    def stage(self, publication: Publication, machine: str) -> Publication:
        """Put a published image under the tag where its twins' publishers find it. Raises
        `TagConflictError` where a newer one is.
        """
        path = publication.path
        image = self._own(publication)
        for name in publication.indexes:
            tag = staged_tag(name.tag, machine)
            standing = held_image(self.registry, path, tag)
            if standing is None or standing.digest != image.digest:
                if standing and standing.created > image.created:
                    raise TagConflictError(
                        f"{publication.repository}:{name.tag} waits for a newer image of {machine},"
                        f" of {standing.created}",
                        hint="publish that one",
                    )
                media_type = image.manifest.descriptor.media_type
                self.registry.put_manifest(path, tag, image.manifest.body, media_type)
        return publication

    def put(self, publication: Publication) -> Publication:
        """Put each index of the publication, signed and then tagged, and return it or the
        reason why it waits.
        """
        image = self._own(publication)
        for name in publication.indexes:
            put = self._put(publication, name, image)
            indexes = tuple(put if index.tag == put.tag else index for index in publication.indexes)
            publication = dataclasses.replace(publication, indexes=indexes)
            self.record(publication)
        return publication

    def _put(
        self, publication: Publication, name: IndexTagMove, registry_image: RegistryImage
    ) -> IndexTagMove:
        path = publication.path
        parts, waits = dict[str, Descriptor](), list[str]()
        for machine in name.machines:
            image = held_image(self.registry, path, staged_tag(name.tag, machine))
            reasons = [*self._against(publication, image, registry_image)]
            if image is None or reasons:
                waits.append(f"{machine}, which {', '.join(reasons)}")
                continue
            platform = Platform(os="linux", architecture=ARCHITECTURES[machine])
            described = image.manifest.descriptor
            parts[platform.architecture] = dataclasses.replace(described, platform=platform)
        before = digest_on(self.registry, path, name.tag)
        if waits:
            return dataclasses.replace(name, waits=tuple(waits), before=before, digest="")
        index = put_index(self.registry, path, [*parts.values()])
        digest = index.descriptor.digest
        if before not in {"", digest} and not name.moves:
            raise taken(dataclasses.replace(publication, digest=digest), name.tag, before)
        if self.signer is not None:
            annotations = {f"dev.warpfront.{key}": part.digest for key, part in parts.items()}
            annotations[CHANNEL_ANNOTATION] = publication.channel
            self.signer.sign(f"{publication.repository}@{digest}", annotations)
        if before != digest:
            if name.moves:
                moves = moves_document(publication, {name.tag: before})
                self.registry.attach_all(path, index.descriptor, [moves])
            # It was looked at before the signature, which takes its time.
            move_tag(self.registry, path, name.tag, index, before=before)
        return dataclasses.replace(name, waits=(), before=before, digest=digest)

    def _against(
        self,
        publication: Publication,
        registry_image: RegistryImage | None,
        own_image: RegistryImage,
    ) -> Iterator[str]:
        """Yield the reasons why the image of another machine is not part of this index. A
        staged tag only leads to the image, since anybody who may push can stage anything.
        """
        if registry_image is None:
            yield "is not there"
            return
        if registry_image.digest == own_image.digest:
            return
        path = publication.path
        if registry_image.revision != own_image.revision or not own_image.revision:
            yield f"is of revision {registry_image.revision or 'unknown'}"
        if is_yanked(self.registry, path, registry_image.digest):
            yield "was yanked"
        proven = {
            descriptor.annotations.get(CHANNEL_ANNOTATION)
            for descriptor in self.registry.referrers(path, registry_image.digest)
        }
        reference = f"{publication.repository}@{registry_image.digest}"
        signed = self.signer is None or self.signer.is_signed(
            reference, {CHANNEL_ANNOTATION: publication.channel}
        )
        if publication.channel not in proven or not signed:
            yield f"nobody proved for {publication.channel}"

    def _own(self, publication: Publication) -> RegistryImage:
        registry_image = held_image(self.registry, publication.path, publication.digest)
        if registry_image is None:
            text = f"{publication.reference} was published, and is gone"
            raise TagConflictError(text, hint="publish it again")
        return registry_image
