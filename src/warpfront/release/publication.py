"""The way of one image to its tags, in steps that can each be done again: what a step finds done is
not done twice, and no public tag is touched before everything before it holds. Edge.

A registry has no transactions. So the digest is proven and documented first, tags that never move
come next, and aliases last; each is asked for before and after, and who finds another digest there
says so and stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from warpfront.errors import (
    InputError,
    RegistryError,
    RegistryFault,
    SignatureError,
    TagConflictError,
    TimedOutError,
    WarpfrontError,
)
from warpfront.images.engine import Engine
from warpfront.release.ledger import (
    CHANNEL_ANNOTATION,
    Attachment,
    Publication,
    Stage,
    Tagging,
)
from warpfront.release.predicate import Predicate
from warpfront.release.registry.attaching import body_of
from warpfront.release.registry.contract import (
    Artifact,
    Descriptor,
    Registry,
    RegistryManifest,
    digest_of_bytes,
)
from warpfront.release.registry.copying import Repository, copy_image
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.registry.manifests import (
    CONFIG_LIMIT_BYTES,
    ImageManifest,
    read_document,
    read_object,
)
from warpfront.release.signing import Signer
from warpfront.system.process import stop_all
from warpfront.system.progress import Watch

MOVES_TYPE = "application/vnd.warpfront.moves.v1+json"
YANK_TYPE = "application/vnd.warpfront.yank.v1+json"
_PUSHES = 3
_PAUSE_SECONDS = 4.0
AHEAD = "ahead of"
"""How the thread is called that is done with an image before it has arrived."""
# By these endings, scanners know what a file is.
_TITLES = {"cyclonedx": "sbom.cdx.json", "spdx": "sbom.spdx.json"}
# Tags that are asked for at once.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Referrer:
    """What is attached to a digest. `name` is what the signature calls it, `predicate` what is
    attested of the image by it, if anything.
    """

    name: str
    artifact_type: str
    payload: bytes
    payload_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    predicate: Predicate | None = None

    @property
    def artifact(self) -> Artifact:
        return Artifact(
            artifact_type=self.artifact_type,
            payload=self.payload,
            payload_type=self.payload_type or self.artifact_type,
            title=_TITLES.get(self.name, f"{self.name}.json"),
            annotations=self.annotations,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An image as a registry holds it: its manifest, its config's digest, what that says, and the
    size of all that it is made of.
    """

    manifest: RegistryManifest
    config: str
    labels: Mapping[str, str]
    size_bytes: int

    @property
    def digest(self) -> str:
        return self.manifest.descriptor.digest

    @property
    def identities(self) -> frozenset[str]:
        """What engines of either store call this image."""
        return frozenset({self.digest, self.config})


Bring = Callable[[Publication], int]
"""Gets an image into its repository by its digest; how many bytes that took."""
Prove = Callable[[Publication, Held], tuple[Referrer, ...]]
"""Whether this very image may be published, by error; what goes with it, by value."""


def held_image(registry: Registry, repository: str, reference: str) -> Held | None:
    """An image and its config, their digests computed here from what came. None where none is."""
    manifest = registry.manifest(repository, reference)
    if manifest is None:
        return None
    descriptor = manifest.descriptor
    if digest_of_bytes(manifest.body) != descriptor.digest:
        raise _wrong(registry, f"{reference} is not what its digest says: {descriptor.digest}")
    try:
        parts = read_document(manifest)
        if not isinstance(parts, ImageManifest):
            raise _wrong(registry, f"{reference} is an index of images, one image is expected")
        content = registry.blob(repository, parts.config.digest, CONFIG_LIMIT_BYTES)
        labels = (read_object(content).get("config") or {}).get("Labels") or {}
        said = {str(name): str(text) for name, text in labels.items()}
    except (ValueError, AttributeError) as error:
        raise _wrong(registry, f"{reference} is no image ({error})") from None
    if digest_of_bytes(content) != parts.config.digest:
        raise _wrong(registry, f"the config of {reference} is not what its digest says")
    sizes = (one.size_bytes for one in (parts.config, *parts.layers))
    return Held(manifest=manifest, config=parts.config.digest, labels=said, size_bytes=sum(sizes))


class Meter:
    """Counts the bytes of blobs on their way, from any thread, and tells who watches."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._lock = watch, threading.Lock()
        self._what, self._done, self._total = "", 0, 0

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._what:
                self._watch.advance(self._what, self._done, max(self._total, self._done + 1))

    @contextlib.contextmanager
    def over(self, what: str, total: int) -> Iterator[None]:
        """While `what` is on its way: `total` bytes, if nothing of it is there yet."""
        self._what, self._done, self._total = what, 0, total
        ended = 0
        try:
            yield
            ended = self._done
        finally:
            self._watch.advance(what, ended, ended)
            self._what = ""


@dataclass(kw_only=True)
class Publishing:
    """Who takes images to their tags. `record` is told after every step, `pause` waits;
    `mount_from` are repositories that may have some of the image.
    """

    registry: Registry
    engine: Engine | None
    signer: Signer | None
    prove: Prove
    record: Callable[[Publication], None]
    pause: Callable[[float], None]
    watch: Watch
    meter: Meter
    bring: Bring | None = None
    mount_from: tuple[str, ...] = ()
    _held: Held | None = None
    _is_new: bool = False
    _documents: tuple[Referrer, ...] = ()
    _signed: Publication | None = None
    _silence: WarpfrontError | None = None

    def publish(self, planned: Publication) -> Publication:
        """All of the way, or an error that says where it ended."""
        publication = planned
        for stage, advance in (
            (Stage.CANDIDATE, self._candidate),
            (Stage.PROVEN, self._proof),
            (Stage.DOCUMENTED, self._document),
            (Stage.SIGNED if self.signer else Stage.UNSIGNED, self.signed),
            (Stage.TAGGED, self._tag),
            (Stage.DONE, self._look_again),
        ):
            self.watch.step(planned.cell_id, f"publishing: {stage}")
            publication = dataclasses.replace(advance(publication), stage=stage)
            self.record(publication)
        return publication

    def _path(self, publication: Publication) -> str:
        return publication.repository.removeprefix(f"{self.registry.host}/")

    # --- the candidate ---

    def _candidate(self, publication: Publication) -> Publication:
        """The image under a name that nobody was told, unless the registry has it by its own."""
        path = self._path(publication)
        held, sent = self._published_before(publication), 0
        self._is_new = held is None
        if held is None:
            sent = self.bring(publication) if self.bring else self._sent(publication)
            reference = publication.digest if self.bring else publication.candidate
            held = held_image(self.registry, path, reference)
        if held is None:
            raise _wrong(self.registry, f"{publication.candidate} was pushed, and is not there")
        if publication.image_id not in held.identities:
            raise _wrong(
                self.registry,
                f"{publication.candidate} is {held.digest}, not the image that was sent "
                f"({publication.image_id})",
            )
        self._held = held
        return dataclasses.replace(
            publication,
            digest=held.digest,
            config=held.config,
            sent_bytes=sent,
            present_bytes=max(held.size_bytes - sent, 0),
        )

    def _published_before(self, publication: Publication) -> Held | None:
        """The image, where a tag that never moves has it already. Another image there is a conflict
        before anything was sent.
        """
        path = self._path(publication)
        for tagging in publication.tags:
            if tagging.moves:
                continue
            held = held_image(self.registry, path, tagging.tag)
            if held is not None and publication.image_id not in held.identities:
                raise taken(publication, tagging.tag, held.digest, held.labels)
            if held is not None:
                return held
        return None

    def _sent(self, publication: Publication) -> int:
        """Bytes sent: the blobs as the engine keeps them, if they can be read here; that takes less
        than having it push them, and it does no more than that.
        """
        assert self.engine is not None, "what is in no engine is brought"
        content = self.engine.content(publication.image_id)
        if content is None:
            return self._pushed(publication)
        kept = LayoutRegistry(folder=content, checked=True)
        try:
            with self._ahead(kept, publication):
                return self._copied(kept, publication)
        except (InputError, OSError):
            return self._pushed(publication)
        except RegistryError as error:
            if error.registry != kept.host:
                raise
            return self._pushed(publication)  # not all of it is there: what next, the engine knows

    @contextlib.contextmanager
    def _ahead(self, kept: LayoutRegistry, publication: Publication) -> Iterator[None]:
        """While an image is on its way, what needs no more than its digest. Each step of that comes
        again in its place, and does what is missing then: nothing that fails here counts, but that
        nobody answered, for which nobody waits twice. Who is stopped does not wait for it.
        """
        stopped = threading.Event()
        beside = threading.Thread(
            target=self._go_ahead,
            args=(kept, publication, stopped),
            name=f"{AHEAD} {publication.cell_id}",
            daemon=True,
        )
        beside.start()
        try:
            yield
            beside.join()
        except BaseException:
            stopped.set()
            stop_all()
            raise
        if self._silence is not None:
            raise self._silence

    def _go_ahead(
        self, kept: LayoutRegistry, publication: Publication, stopped: threading.Event
    ) -> None:
        """Judge the bytes that are sent, as those that come back will be judged; attach what goes
        with them, and sign.
        """
        with contextlib.suppress(Exception):
            held = held_image(kept, "", publication.image_id)
            if held is None:
                return
            own = dataclasses.replace(self, _held=held)
            expected = dataclasses.replace(publication, digest=held.digest, config=held.config)
            try:
                expected = own.documented(expected)
                if self.signer is not None and self.signer.signs_ahead and not stopped.is_set():
                    self._is_new = False  # if that fails, it may be signed and nobody knows
                    self._signed = own.signed(expected)
            except (RegistryError, SignatureError) as error:
                self._silence = error if _is_silence(error) else None

    def _copied(self, kept: LayoutRegistry, publication: Publication) -> int:
        held = held_image(kept, "", publication.image_id)
        with self.meter.over(f"push {publication.cell_id}", held.size_bytes if held else 0):
            copied = copy_image(
                Repository(registry=kept, repository=""),
                Repository(registry=self.registry, repository=self._path(publication)),
                publication.image_id,
                tag=publication.candidate,
                mount_from=self.mount_from,
            )
        return copied.sent_bytes

    def _pushed(self, publication: Publication) -> int:
        """Bytes sent. What was sent stays in the registry, so that trying again costs the rest."""
        reference = f"{publication.repository}:{publication.candidate}"

        def told(done: int, total: int) -> None:
            self.watch.advance(f"push {publication.cell_id}", done, total)

        assert self.engine is not None
        self.engine.tag(publication.image_id, reference)
        try:
            for tried in range(1, _PUSHES + 1):
                try:
                    return self.engine.push(reference, told)
                except RegistryError as error:
                    if error.fault is not RegistryFault.UNREACHABLE or tried == _PUSHES:
                        raise
                    self.watch.say(f"{error.message}; trying again")
                    self.pause(_PAUSE_SECONDS * tried)
            raise AssertionError("unreachable")
        finally:
            self.engine.remove(reference)

    # --- what goes with the digest ---

    def documented(self, publication: Publication) -> Publication:
        """The image judged, and what goes with it attached."""
        return self._document(self._proof(publication))

    def _proof(self, publication: Publication) -> Publication:
        assert self._held is not None
        self._documents = self.prove(publication, self._held)
        return publication

    def _document(self, publication: Publication) -> Publication:
        """Every document is attached, and found among what is attached afterwards: where a registry
        keeps no list of its own, somebody else may have written the list meanwhile.
        """
        assert self._held is not None
        path, subject = self._path(publication), self._held.manifest.descriptor
        expected = {one.name: attached_as(subject, one) for one in self._documents}
        for _ in range(2):
            listed = {one.digest for one in self.registry.referrers(path, subject.digest)}
            missing = [one for one in self._documents if expected[one.name].digest not in listed]
            if not missing:
                break
            self.registry.attach_all(path, subject, [one.artifact for one in missing])
        else:
            listed = {one.digest for one in self.registry.referrers(path, subject.digest)}
        lost = sorted(name for name, one in expected.items() if one.digest not in listed)
        if lost:
            names = ", ".join(lost)
            raise _wrong(self.registry, f"{names}: attached to {subject.digest}, and not listed")
        return dataclasses.replace(publication, attached=tuple(expected.values()))

    def signed(self, publication: Publication) -> Publication:
        """Attest each statement and SBOM, and sign the digest with all that is attached to it.
        Without a signer, neither.
        """
        if self.signer is None:
            return publication
        reference, annotations = publication.reference, signed_annotations(publication)
        ahead = self._signed
        if ahead is not None and (ahead.reference, signed_annotations(ahead)) == (
            reference,
            annotations,
        ):
            return dataclasses.replace(
                publication, signed_by=ahead.signed_by, attested=ahead.attested
            )
        attested = self._attested(publication.reference, self.signer)
        # What is new is not asked for a signature: cosign makes none twice.
        self.signer.sign(reference, annotations, anew=self._is_new)
        return dataclasses.replace(publication, signed_by=self.signer.name, attested=attested)

    def _attested(self, reference: str, signer: Signer) -> tuple[str, ...]:
        """Attest what is not attested, one after the other: cosign keeps all of a digest in one
        list, which two writers would take from each other.
        """
        stated = [one.predicate for one in self._documents if one.predicate is not None]
        for predicate in stated:
            signer.attest(reference, predicate)
        return tuple(predicate.name for predicate in stated)

    # --- names ---

    def _tag(self, publication: Publication) -> Publication:
        """Tags that never move, then aliases. What an alias was on is kept in the registry before
        it moves, where every later run finds it.
        """
        path, digest = self._path(publication), publication.digest
        befores = self._all_now_on(path, publication.tags)
        tags = tuple(dataclasses.replace(one, before=befores[one.tag]) for one in publication.tags)
        for one in tags:
            if not one.moves and one.before not in {"", digest}:
                raise taken(publication, one.tag, one.before)
        publication = dataclasses.replace(publication, tags=tags)
        self.record(publication)
        fixed = [one for one in tags if not one.moves]
        moving = [one for one in tags if one.moves and one.before != digest]
        for one in fixed:
            publication = self._set(publication, one)
        if moving:
            assert self._held is not None
            moves = moves_document(publication, {one.tag: one.before for one in moving})
            self.registry.attach_all(path, self._held.manifest.descriptor, [moves.artifact])
        for one in (one for one in tags if one.moves):
            publication = self._set(publication, one)
        return publication

    def _set(self, publication: Publication, tagging: Tagging) -> Publication:
        """One tag on the digest, unless it is there. It has to be as it was found just before, and
        as it was put just after.
        """
        assert self._held is not None
        path, body = self._path(publication), self._held.manifest.body
        standing = tagging.before
        if standing != publication.digest:  # all are looked at again in the end
            standing = self._now_on(path, tagging.tag)
        if standing not in {tagging.before, publication.digest}:
            raise moved(publication, tagging.tag, standing)
        if standing != publication.digest:
            media_type = self._held.manifest.descriptor.media_type
            self.registry.put_manifest(path, tagging.tag, body, media_type)
            standing = self._now_on(path, tagging.tag)
            if standing != publication.digest:
                raise moved(publication, tagging.tag, standing)
        done = dataclasses.replace(tagging, done=True)
        tags = tuple(done if one.tag == tagging.tag else one for one in publication.tags)
        publication = dataclasses.replace(publication, tags=tags)
        self.record(publication)
        return publication

    def _look_again(self, publication: Publication) -> Publication:
        """All tags once more: of two who published at once, the one who lost says so."""
        path = self._path(publication)
        for tag, standing in self._all_now_on(path, publication.tags).items():
            if standing != publication.digest:
                raise moved(publication, tag, standing)
        return publication

    def _all_now_on(self, path: str, tags: Iterable[Tagging]) -> dict[str, str]:
        names = [one.tag for one in tags]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda tag: self._now_on(path, tag), names)
            return dict(zip(names, found, strict=True))

    def _now_on(self, path: str, tag: str) -> str:
        found = self.registry.head(path, tag)
        return found.digest if found else ""


def _is_silence(error: WarpfrontError) -> bool:
    slow = isinstance(error, RegistryError) and error.fault is RegistryFault.SLOW
    return slow or isinstance(error.__cause__, TimedOutError)


def attached_as(subject: Descriptor, document: Referrer) -> Attachment:
    """What a document is once it is attached: same document, same digest, in every registry."""
    return Attachment(
        name=document.name,
        artifact_type=document.artifact_type,
        digest=digest_of_bytes(body_of(subject, document.artifact)),
        size_bytes=len(document.payload),
    )


def signed_annotations(publication: Publication) -> Mapping[str, str]:
    """What a signature says beside the digest: which documents belong to it."""
    documents = {f"dev.warpfront.{one.name}": one.digest for one in publication.attached}
    return {CHANNEL_ANNOTATION: publication.channel, **documents}


def moves_document(publication: Publication, befores: Mapping[str, str]) -> Referrer:
    """Where aliases were before they came to a digest: what a rollback goes by."""
    content = {"schema": 1, "channel": publication.channel, "run": publication.run}
    return Referrer(
        name="moves",
        artifact_type=MOVES_TYPE,
        payload=json.dumps({**content, "before": dict(befores)}, sort_keys=True).encode(),
        annotations={"dev.warpfront.run": publication.run},
    )


def _wrong(registry: Registry, message: str) -> RegistryError:
    return RegistryError(
        message,
        registry=registry.host,
        step="publish",
        fault=RegistryFault.WRONG,
        hint="nothing public was changed; ask who runs the registry, then run it again",
    )


def taken(
    publication: Publication, tag: str, digest: str, labels: Mapping[str, str] | None = None
) -> TagConflictError:
    """The error for a tag that never moves and is on another image. `labels` are those of the image
    that it is on: the same content needs no second digest, another one needs another tag.
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


def moved(publication: Publication, tag: str, digest: str) -> TagConflictError:
    return TagConflictError(
        f"{publication.repository}:{tag} is on {digest or 'nothing'}: somebody else published "
        f"while {publication.digest} was",
        hint="see who it was: `invoke release --list`; then publish again, one at a time",
    )
