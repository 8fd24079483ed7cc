"""Small honest stand-ins: they keep the promises that tests/contract checks on the real thing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from warpfront.errors import EngineError
from warpfront.images.engine import Features, RunRequest, RunResult, StoredImage
from warpfront.model import HostDevices
from warpfront.system.watch import Line

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
        self._untag(reference)
        found = self.stored[found.id]
        self._put(found, (*found.references, reference))

    def remove(self, reference: str) -> None:
        self._answer()
        self._untag(reference)

    def import_rootfs(
        self,
        tar: Path,
        reference: str,
        labels: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> StoredImage:
        content = hashlib.sha256(
            tar.read_bytes() + repr(sorted((environment or {}).items())).encode()
        )
        return self.build(reference, labels, content=content.hexdigest())

    def build(self, reference: str, labels: Mapping[str, str], *, content: str = "") -> StoredImage:
        """As a finished build leaves it: equal content and labels give an equal id."""
        self._answer()
        text = repr((content, sorted(labels.items())))
        image_id = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        self._untag(reference)
        known = self.stored.get(image_id)
        image = StoredImage(
            id=image_id,
            references=known.references if known else (),
            labels=dict(labels),
            size_bytes=len(text),
        )
        return self._put(image, (*image.references, reference))

    def host_devices(self) -> HostDevices:
        self._answer()
        return self.devices

    def run(self, request: RunRequest, on_line: Line) -> RunResult:
        self._answer()
        self.requests.append(request)
        if self.image(request.image) is None:
            raise EngineError(f"{self.name}: No such image: {request.image}", hint="invoke build")
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
            raise EngineError(f"{self.name}: the engine went away", hint="invoke engine --start")

    def _put(self, image: StoredImage, references: tuple[str, ...]) -> StoredImage:
        self.stored[image.id] = StoredImage(
            id=image.id, references=references, labels=image.labels, size_bytes=image.size_bytes
        )
        return self.stored[image.id]

    def _untag(self, reference: str) -> None:
        for image in tuple(self.stored.values()):
            if reference in image.references:
                left = tuple(name for name in image.references if name != reference)
                if left:
                    self._put(image, left)
                else:
                    del self.stored[image.id]
