"""Small honest stand-ins: they keep the promises that tests/contract checks on the real thing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import elf_images
from stub_registry import attach_one

from warpfront.errors import EngineError, RegistryError, RegistryFault
from warpfront.images.engine.protocol import Features, Progress, RunRequest, RunResult, StoredImage
from warpfront.matrix.cell import HostDevices
from warpfront.release.registry.contract import (
    IMAGE_MANIFEST,
    Artifact,
    Blob,
    Descriptor,
    RegistryManifest,
    bytes_blob,
    digest_of_bytes,
    read_manifest,
    referrer_of,
)
from warpfront.system.progress import Line

_IMAGES = "images.json"
"""Where `FakeEngine.save` keeps what it knows of its images."""
Program = Callable[[RunRequest, Line], int]


def _echo(request: RunRequest, on_line: Line) -> int:
    on_line(" ".join(request.command[1:]))
    return 0


def _printenv(request: RunRequest, on_line: Line) -> int:
    given = {**request.environment, **request.devices.environment}
    for name in request.command[1:]:
        if name not in given:
            return 1
        on_line(given[name])
    return 0


class FakeEngine:
    """An engine in memory. `programs` are what its containers can run; `gone` makes it unreachable.

    `build` is the stand-in for buildx: it puts an image there as a build would.
    """

    def __init__(self, *, devices: HostDevices | None = None, machine: str = "x86_64") -> None:
        self._machine = machine
        self.stored: dict[str, StoredImage] = {}
        self.requests: list[RunRequest] = []
        self.abandoned: list[str] = []
        self.gone = False
        self.elsewhere = False
        self.parts: dict[str, tuple[bytes, bytes, bytes]] = {}
        self.contents: dict[str, Path] = {}
        self.registries: dict[str, FakeRegistry] = {}
        self.devices = devices or HostDevices()
        self.programs: dict[str, Program] = {
            "echo": _echo,
            "printenv": _printenv,
            "true": lambda _request, _line: 0,
            "false": lambda _request, _line: 1,
            "sleep": lambda _request, _line: 0,
        }

    @property
    def name(self) -> str:
        return "fake://engine"

    @property
    def buildx(self) -> tuple[str, ...]:
        return ("fake-buildx",)

    @property
    def machine(self) -> str:
        self._answer()
        return self._machine

    @property
    def build_environment(self) -> Mapping[str, str]:
        return {"DOCKER_HOST": self.name}

    @property
    def builds_elsewhere(self) -> bool:
        return self.elsewhere

    def features(self) -> Features:
        self._answer()
        return Features(
            version="fake",
            local=True,
            containerd_store=True,
            storage="memory",
            cdi=True,
            named_contexts=True,
            root="/",
            free_bytes=1 << 40,
        )

    def images(self, label: str) -> tuple[StoredImage, ...]:
        self._answer()
        key, equals, value = label.partition("=")
        return tuple(
            image
            for image in self.stored.values()
            if key in image.labels and (not equals or image.labels[key] == value)
        )

    def image(self, reference: str) -> StoredImage | None:
        self._answer()
        for image in self.stored.values():
            if reference == image.id or reference in image.references:
                return image
        return None

    def tag(self, image_id: str, reference: str) -> None:
        found = self.image(image_id)
        if found is None:
            raise EngineError(f"{self.name}: No such image: {image_id}")
        if reference in found.references:
            return
        self._untag(reference)
        found = self.stored[found.id]
        self._put(found, (*found.references, reference))

    def remove(self, reference: str) -> None:
        self._answer()
        self._untag(reference)

    def import_rootfs(
        self, tar: Path, reference: str, labels: Mapping[str, str], environment: Mapping[str, str]
    ) -> StoredImage:
        content = hashlib.sha256(tar.read_bytes() + repr(sorted(environment.items())).encode())
        return self.build(reference, labels, content=content.hexdigest())

    def build(
        self,
        reference: str,
        labels: Mapping[str, str],
        *,
        content: str = "",
        says: str = "",
        holds: int = 0,
    ) -> StoredImage:
        """As a finished build leaves it: equal content and labels give an equal id, which is the
        digest of its manifest, as in the containerd store.
        """
        self._answer()
        parts = image_parts(content, labels, says, holds)
        image_id = digest_of_bytes(parts[0])
        self.parts[image_id] = parts
        self._untag(reference)
        known = self.stored.get(image_id)
        image = StoredImage(
            id=image_id,
            references=known.references if known else (),
            labels=dict(labels),
            size_bytes=sum(map(len, parts)),
            substance=content or says,
        )
        return self._put(image, (*image.references, reference))

    def content(self, image_id: str) -> Path | None:
        return self.contents.get(image_id)

    def adopt(self, blobs: Iterable[Path]) -> None:
        """It is sent them."""

    def export(self, reference: str, folder: Path) -> str:
        self._answer()
        image = self.image(reference)
        if image is None:
            raise EngineError(f"{self.name}: No such image: {reference}")
        folder.mkdir(parents=True)
        (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": image.id}]}))
        return image.id

    def save(self, references: Iterable[str], archive: Path) -> None:
        """As docker does, but for the blobs: the images themselves are a file of their own."""
        self._answer()
        found = {reference: self.image(reference) for reference in references}
        if missing := [name for name, image in found.items() if image is None]:
            raise EngineError(f"{self.name}: No such image: {missing[0]}")
        images = {name: image for name, image in found.items() if image is not None}
        configs = {name: digest_of_bytes(self.parts[one.id][1]) for name, one in images.items()}
        listed = [
            {"Config": f"blobs/{config.replace(':', '/')}", "RepoTags": [name]}
            for name, config in configs.items()
        ]
        index = [
            {"digest": one.id, "annotations": {"io.containerd.image.name": name}}
            for name, one in images.items()
        ]
        parts = [
            {"id": one.id, "name": name, "labels": dict(one.labels), "size": one.size_bytes}
            for name, one in images.items()
        ]
        documents = {
            "manifest.json": listed,
            "index.json": {"manifests": index},
            _IMAGES: parts,
        }
        with tarfile.open(archive, "w:gz") as tar:
            for name, document in documents.items():
                body = json.dumps(document).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(body)
                tar.addfile(entry, io.BytesIO(body))

    def load(self, archive: Path) -> None:
        self._answer()
        with tarfile.open(archive) as tar:
            stream = tar.extractfile(_IMAGES)
            assert stream is not None
            images = json.load(stream)
        for one in images:
            image = StoredImage(
                id=one["id"], references=(), labels=one["labels"], size_bytes=one["size"]
            )
            self._put(self.stored.get(image.id, image), (one["name"],))

    def push(self, reference: str, on_progress: Progress) -> int:
        self._answer()
        image = self.image(reference)
        if image is None:
            raise EngineError(f"{self.name}: No such image: {reference}")
        registry, repository = self._registry(reference, "push")
        on_progress(image.size_bytes, image.size_bytes)
        name, _, tag = repository.rpartition(":")
        body, *blobs = self.parts[image.id]
        moved = [registry.put_blob(name, bytes_blob(blob)) for blob in blobs]
        registry.put_manifest(name, tag, body, IMAGE_MANIFEST)
        return sum(moved)

    def pull(self, reference: str, on_progress: Progress) -> StoredImage:
        self._answer()
        registry, repository = self._registry(reference, "pull")
        on_progress(1, 1)
        name, _, digest = repository.partition("@")
        manifest = registry.manifest(name, digest)
        if manifest is None:
            raise registry.error("pull", f"{reference}: manifest unknown")
        parts = json.loads(manifest.body)
        config = registry.blob(name, parts["config"]["digest"], 1 << 20)
        labels = json.loads(config)["config"]["Labels"]
        layer = registry.blob(name, parts["layers"][0]["digest"], 1 << 20)
        return self.build(reference, labels, content=layer.decode())

    def _registry(self, reference: str, step: str) -> tuple[FakeRegistry, str]:
        host, _, repository = reference.partition("/")
        if host not in self.registries:
            raise FakeRegistry(host).error(step, "connection refused")
        return self.registries[host], repository

    def host_devices(self) -> HostDevices:
        self._answer()
        return self.devices

    def run(self, request: RunRequest, on_line: Line) -> RunResult:
        self._answer()
        self.requests.append(request)
        if self.image(request.image) is None:
            raise EngineError(
                f"{self.name}: No such image: {request.image}", hint="warpfront build"
            )
        for device in request.devices.cdi:
            if device not in self.devices.cdi:
                raise EngineError(f"{self.name}: unresolvable CDI devices {device}")
        if request.command[0] == "sleep" and float(request.command[1]) > request.time_limit_seconds:
            seconds = request.time_limit_seconds
            return RunResult(exit_code=137, timed_out=True, oom_killed=False, seconds=seconds)
        program = self.programs.get(request.command[0])
        code = 127 if program is None else program(request, on_line)
        self._answer()
        return RunResult(exit_code=code, timed_out=False, oom_killed=False, seconds=0.0)

    def reap(self) -> tuple[str, ...]:
        self._answer()
        removed, self.abandoned = tuple(self.abandoned), []
        return removed

    def _answer(self) -> None:
        if self.gone:
            raise EngineError(f"{self.name}: the engine went away", hint="warpfront engine start")

    def _put(self, image: StoredImage, references: tuple[str, ...]) -> StoredImage:
        self.stored[image.id] = dataclasses.replace(image, references=references)
        return self.stored[image.id]

    def _untag(self, reference: str) -> None:
        for image in tuple(self.stored.values()):
            if reference in image.references:
                left = tuple(name for name in image.references if name != reference)
                if left:
                    self._put(image, left)
                else:
                    del self.stored[image.id]


def image_parts(
    content: str, labels: Mapping[str, str], says: str = "", holds: int = 0
) -> tuple[bytes, bytes, bytes]:
    """Manifest, config and one layer of an image that `says` it is of an architecture, and `holds`
    a program for the machine of an ELF header's number.
    """
    files = {"etc/content": content.encode(), "usr/bin/env": elf_images.elf(holds)}
    layer = elf_images.layer(files) if holds else content.encode()
    said: dict[str, object] = {"architecture": says} if says else {}
    said |= {"os": "linux", "config": {"Labels": dict(sorted(labels.items()))}}
    config = json.dumps(said)
    made: list[dict[str, object]] = [
        {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": digest_of_bytes(blob),
            "size": len(blob),
        }
        for kind, blob in (("config.v1+json", config.encode()), ("layer.v1.tar", layer))
    ]
    manifest = {"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": made[0]}
    return json.dumps({**manifest, "layers": made[1:]}).encode(), config.encode(), layer


@dataclass
class FakeRegistry:
    """A registry in memory. Each call is first told to `on_call`, which may raise."""

    host: str = "registry.test"
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[bytes, str]] = field(default_factory=dict)
    tagged: dict[tuple[str, str], str] = field(default_factory=dict)
    attached: dict[tuple[str, str], list[Descriptor]] = field(default_factory=dict)
    on_call: Callable[[str], None] = lambda _name: None
    after_call: Callable[[str], None] = lambda _name: None
    calls: list[str] = field(default_factory=list)
    may_delete: bool = True

    def error(self, step: str, message: str) -> RegistryError:
        return RegistryError(
            message, registry=self.host, step=step, fault=RegistryFault.WRONG, hint=""
        )

    def manifest(self, repository: str, reference: str) -> RegistryManifest | None:
        self._called("manifest")
        digest = self.tagged.get((repository, reference), reference)
        found = self.manifests.get((repository, digest))
        if found is None:
            return None
        if digest_of_bytes(found[0]) != digest:
            raise self.error("manifest", f"{digest} is not what its digest says")
        try:
            return read_manifest(*found)
        except ValueError as error:
            raise self.error("manifest", str(error)) from None

    def head(self, repository: str, reference: str) -> Descriptor | None:
        self._called("head")
        digest = self.tagged.get((repository, reference), reference)
        found = self.manifests.get((repository, digest))
        return self._described(*found) if found else None

    def put_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        self._called("put_manifest")
        made = self._described(body, media_type)
        self.manifests[repository, made.digest] = (body, media_type)
        if reference != made.digest:
            self.tagged[repository, reference] = made.digest
        subject = json.loads(body).get("subject")
        if subject:
            listed = self.attached.setdefault((repository, subject["digest"]), [])
            one = referrer_of(read_manifest(body, media_type))
            listed += [] if one in listed else [one]
        self.after_call("put_manifest")
        return made

    def blob(self, repository: str, digest: str, limit_bytes: int) -> bytes:
        self._called("blob")
        found = self.blobs.get((repository, digest))
        if found is None or len(found) > limit_bytes:
            raise self.error("blob", f"no {digest}")
        if digest_of_bytes(found) != digest:
            raise self.error("blob", f"{digest} is not what its digest says")
        return found

    @contextlib.contextmanager
    def open_blob(self, repository: str, digest: str) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.blob(repository, digest, 1 << 40))

    def save_blob(self, repository: str, digest: str, destination: Path, size_bytes: int) -> None:
        destination.write_bytes(self.blob(repository, digest, size_bytes))

    def put_blob(self, repository: str, source: Blob, mount_from: Sequence[str] = ()) -> int:
        self._called("put_blob")
        has = any((name, source.digest) in self.blobs for name in (repository, *mount_from))
        with source.open() as stream:
            self.blobs[repository, source.digest] = stream.read()
        self.after_call("put_blob")
        return 0 if has else source.size_bytes

    def referrers(self, repository: str, digest: str) -> tuple[Descriptor, ...]:
        self._called("referrers")
        return tuple(self.attached.get((repository, digest), ()))

    def attach_all(
        self, repository: str, subject: Descriptor, artifacts: Sequence[Artifact]
    ) -> None:
        for one in artifacts:
            self._called("attach")
            attach_one(self, repository, subject, one)
            self.after_call("attach")

    def tags(self, repository: str) -> tuple[str, ...]:
        self._called("tags")
        return tuple(sorted(tag for name, tag in self.tagged if name == repository))

    def deletes(self, repository: str) -> bool:
        del repository
        return self.may_delete

    def delete(self, repository: str, digest: str) -> None:
        assert self.may_delete
        self._called("delete")
        self.manifests.pop((repository, digest), None)
        gone = [key for key, on in self.tagged.items() if key[0] == repository and on == digest]
        for key in gone:
            del self.tagged[key]
        self.after_call("delete")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.on_call(name)

    @staticmethod
    def _described(body: bytes, media_type: str) -> Descriptor:
        return Descriptor(media_type=media_type, digest=digest_of_bytes(body), size_bytes=len(body))
