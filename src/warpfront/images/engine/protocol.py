"""The interface of a container engine, as far as warpfront uses one, and which to use. Edge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warpfront.errors import EngineError
from warpfront.matrix.cell import DeviceAccess, HostDevices
from warpfront.system import process
from warpfront.system.progress import Line

DEAD_MAN_SECONDS = 30.0
DEFAULT_HOST = "unix:///var/run/docker.sock"
RUN_LABEL = "dev.warpfront.run"
Progress = Callable[[int, int], None]
"""Gets bytes done and bytes in all while something is transferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features of the engine. `free_bytes` is the space below `root`, None if remote.

    `named_contexts`: BuildKit's `--build-context`, which the chained build needs.
    """

    version: str
    local: bool
    containerd_store: bool
    storage: str
    cdi: bool
    named_contexts: bool
    root: str
    free_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image in the engine. `references` are its tags. `size_bytes` is the sum of its
    unpacked layers for a single image; listings give the engine's own count. `created` is RFC 3339,
    `substance` a digest of the unpacked layers and of the configuration without labels. Both are
    "" in listings.
    """

    id: str
    references: tuple[str, ...]
    labels: Mapping[str, str]
    size_bytes: int
    created: str = ""
    substance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A host path inside a container, read-only by default."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A container to run to its end. Without network, capabilities or a writable root.

    `/tmp` is empty, in memory, and what lies there can be run. `user` is `uid:gid` of this host,
    whatever the engine's containers call it. The image must carry `timeout` (coreutils): a limit
    inside ends the container even if the client was killed.
    """

    image: str
    command: tuple[str, ...]
    time_limit_seconds: float
    memory_bytes: int | None = None
    user: str = ""
    workdir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    devices: DeviceAccess = field(default_factory=DeviceAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a container. At most one of `timed_out` and `oom_killed` is true."""

    exit_code: int
    timed_out: bool
    oom_killed: bool
    seconds: float


class Engine(Protocol):
    """The verbs that warpfront needs of an engine. Every one raises `EngineError` when the engine
    is out of reach or refuses."""

    @property
    def name(self) -> str:
        """Return the engine's address for messages: `unix:///var/run/docker.sock`."""

    @property
    def buildx(self) -> tuple[str, ...]:
        """Return the first words of the buildx command."""

    @property
    def machine(self) -> str:
        """The machine that its containers run on: `x86_64`, `aarch64`; "" if it does not say."""

    @property
    def build_environment(self) -> Mapping[str, str]:
        """Return the environment by which a buildx call reaches this engine."""

    @property
    def builds_elsewhere(self) -> bool:
        """Return true if buildx's builder is another BuildKit than this engine's own: it sees
        none of this engine's images, and its results have to be loaded here.
        """

    def features(self) -> Features: ...

    def images(self, label: str) -> tuple[StoredImage, ...]:
        """Images that carry `label` (`key` or `key=value`), in one call."""

    def image(self, reference: str) -> StoredImage | None:
        """Return an image by reference, digest or id; None if it is not there. Never pulls."""

    def tag(self, image_id: str, reference: str) -> None: ...

    def remove(self, reference: str) -> None:
        """Remove a reference, and the image with its last one. Nothing to remove is no error."""

    def import_rootfs(
        self, tar: Path, reference: str, labels: Mapping[str, str], environment: Mapping[str, str]
    ) -> StoredImage:
        """Make an image of one layer from a tar of a root file system."""

    def content(self, image_id: str) -> Path | None:
        """Return the folder whose blobs/sha256/ has the image's blobs as they were built, where the
        engine keeps them so and this process may read them; None where only the engine itself may.
        """

    def adopt(self, blobs: Iterable[Path]) -> None:
        """Take blobs, each in a file that its digest names, without reading them: the caller
        has hashed them. An engine that cannot receives them when a build needs them.
        """

    def export(self, reference: str, folder: Path) -> str:
        """Return the image as an OCI layout in a new `folder`; the digest by which that has it."""

    def save(self, references: Iterable[str], archive: Path) -> None:
        """Write the images of some tags to one gzipped archive, each shared layer once."""

    def load(self, archive: Path) -> None:
        """Take in the images of an archive that an engine saved."""

    def push(self, reference: str, on_progress: Progress) -> int:
        """Send the image of a tag to the registry that the tag names, with the credentials that
        docker's own configuration has. How many bytes went over the wire, as far as the engine
        tells; which digest it is, only the registry tells. Raise `RegistryError`.
        """

    def pull(self, reference: str, on_progress: Progress) -> StoredImage:
        """Get an image from a registry, by digest if the reference has
        one. Raise `RegistryError`."""

    def host_devices(self) -> HostDevices: ...

    def run(self, request: RunRequest, on_line: Line) -> RunResult:
        """Run to the end, handing over each line of its output; leaves no container behind."""

    def reap(self) -> tuple[str, ...]:
        """Remove containers whose client no longer lives. The names of those removed."""


def connect(variables: Mapping[str, str] | None = None) -> Engine:
    """Return the engine that `variables`, else the environment, names: see `engine.docker.connect`.
    Raise `EngineError` for none.
    """
    environment = process.environment() if variables is None else variables
    configuration = environment.get("DOCKER_CONFIG") or Path.home() / ".docker"
    # Any source of docker's own configuration: the SDK reads it.
    is_named = environment.get("DOCKER_HOST") or environment.get("DOCKER_CONTEXT")
    if not (is_named or Path(configuration, "config.json").exists() or local_hosts(environment)):
        # The SDK and its HTTP take longer to load than a plan without an engine to make.
        raise nowhere(environment)
    from warpfront.images.engine import docker  # noqa: PLC0415 - see above

    return docker.connect(environment)


def _usual_hosts(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the addresses of Docker and of the embedded engine."""
    from warpfront.images.engine import embedded  # noqa: PLC0415 - its reader takes long to load

    return DEFAULT_HOST, embedded.EnginePlace(state=embedded.folders(environment)[1]).host


def local_hosts(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses whose sockets exist: Docker's, and that of the embedded engine."""
    hosts = _usual_hosts(environment)
    return [host for host in hosts if Path(host.removeprefix("unix://")).exists()]


def nowhere(environment: Mapping[str, str]) -> EngineError:
    return EngineError(
        "no container engine: DOCKER_HOST is not set, no docker context is chosen, and neither "
        f"{' nor '.join(_usual_hosts(environment))} exists",
        hint="warpfront engine start",
    )
