"""The engine over the docker SDK: containers with lines of their bytes, pushes and pulls by event.
The SDK's exceptions, requests' and urllib3's end here. Edge.

Errors are events of a stream that ends normally. A registry that hangs sends 20 events a second
and never ends.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import json
import math
import os
import re
import shutil
import socket
import stat
import tarfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
import urllib3
from docker.context import ContextAPI
from docker.tls import TLSConfig
from docker.types import DeviceRequest, LogConfig, Mount
from docker.utils import kwargs_from_env
from docker.utils.socket import frames_iter

from warpfront.errors import CommandFailedError, EngineError, RegistryError, RegistryFault
from warpfront.images.engine import embedded
from warpfront.images.engine.bases import image_archive
from warpfront.images.engine.protocol import (
    DEAD_MAN_SECONDS,
    RUN_LABEL,
    Features,
    Progress,
    RunRequest,
    RunResult,
    StoredImage,
    local_hosts,
    nowhere,
)
from warpfront.matrix.cell import HostDevices
from warpfront.system import process
from warpfront.system.digests import digest_of, frozen
from warpfront.system.http_answers import causes_of
from warpfront.system.packaged import packaged_toml
from warpfront.system.process import Command
from warpfront.system.progress import Line
from warpfront.system.store import storing

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 600  # an import of gigabytes is silent for minutes
_END_SECONDS = 30.0
_LISTINGS, _BETWEEN_LISTINGS_SECONDS = 5, 0.2
_KILLED = (137, 143)
_NODES = ("kfd", "dri/renderD*", "nvidia*", "nvidia-caps/*", "accel/accel*", "hl*")
_FOREIGN = (
    docker.errors.DockerException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)
# podman answers with Go's names for them.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_DRIVER = re.compile(r"^Driver: +(?P<name>\S+)", re.MULTILINE)
# Where containerd keeps blobs by digest, below its own folder: the engine's, or the machine's.
_CONTENT = "io.containerd.content.v1.content"
_CONTAINERD = Path("/var/lib/containerd")
# dockerd mounts its folder on itself where the machine's root is not shared, and no link leads into
# a mount: in a namespace of our own it is taken away. Where one may not do that, nothing is linked.
_LINKS = 'umount --lazy "$0" 2>/dev/null; to=$1; shift; for one do ln "$one" "$to/"; done'
# The first Docker whose BuildKit has named contexts: 0.10, with the frontend 1.4.
_NAMED_SINCE = 23


def connect(environment: Mapping[str, str]) -> DockerEngine:
    """Return the engine that the user's own docker command would use, else the embedded one
    if it runs.

    DOCKER_HOST, the current docker context, /var/run/docker.sock, our own socket: the first that is
    there. What was named and does not answer is an `EngineError`, never passed over.
    """
    cache, _ = embedded.folders(environment)
    if environment.get("DOCKER_HOST"):
        names = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG")
        variables = {name: environment[name] for name in names if environment.get(name)}
        with _names_host(variables["DOCKER_HOST"]):
            options = kwargs_from_env(environment=variables)
        return _connected(
            variables["DOCKER_HOST"], cache=cache, tls=options.get("tls"), build=variables
        )
    with _names_host("docker context"):
        context = ContextAPI.get_current_context()
    if context.Name != "default":
        build = {"DOCKER_CONTEXT": str(context.Name)}
        return _connected(str(context.Host), cache=cache, tls=context.TLSConfig, build=build)
    hosts = local_hosts(environment)
    for host in hosts:
        try:
            return _connected(host, cache=cache)
        except EngineError:
            if host == hosts[-1]:
                raise
    raise nowhere(environment)


class DockerEngine:
    """A Docker daemon, local or remote, behind `engine.Engine`. Made by `connect`."""

    def __init__(
        self,
        client: docker.DockerClient,
        host: str,
        *,
        build_environment: Mapping[str, str],
        cache: Path,
        again: functools.partial[docker.DockerClient],
    ) -> None:
        self._client = client
        weakref.finalize(self, client.close)
        self.name = host
        self.build_environment = frozen(build_environment)
        self._cache = cache
        self._again = again

    @functools.cached_property
    def buildx(self) -> tuple[str, ...]:
        # `docker buildx` if that answers, else a docker-buildx: the user's or ours.
        package_tree = embedded.unpacked("engine", self._cache)
        own = [(str(package_tree.buildx),)] if package_tree else []
        for argv in (("docker", "buildx"), ("docker-buildx",), *own):
            command = Command(
                argv=(*argv, "version"), environment=self.build_environment, timeout_seconds=20.0
            )
            with contextlib.suppress(CommandFailedError):  # also: no such program
                if process.run(command).returncode == 0:
                    return argv
        raise EngineError(
            "docker buildx is missing",
            hint="install docker-buildx (or docker-buildx-plugin), or `warpfront engine start`",
        )

    @property
    def machine(self) -> str:
        name = str(self._info().get("Architecture", ""))
        return _MACHINES.get(name, name)

    @functools.cached_property
    def builds_elsewhere(self) -> bool:
        command = Command(argv=(*self.buildx, "inspect"), environment=self.build_environment)
        driver = _DRIVER.search(process.run(command).stdout)
        return driver is not None and driver["name"] != "docker"

    def features(self) -> Features:
        info, local = self._info(), self.name.startswith("unix://")
        root, status = str(info.get("DockerRootDir", "")), info.get("DriverStatus") or []
        containerd = any("io.containerd.snapshotter" in str(value) for _, value in status)
        free_bytes = None
        with contextlib.suppress(OSError):  # not ours to look into, or another machine's path
            free_bytes = shutil.disk_usage(root).free if local else None
        version = str(info.get("ServerVersion", ""))
        return Features(
            version=version,
            local=local,
            containerd_store=containerd,
            storage=str(info.get("Driver", "")),
            cdi=bool(info.get("CDISpecDirs")),
            named_contexts=containerd or int(re.split(r"\D", version)[0] or 0) >= _NAMED_SINCE,
            root=root,
            free_bytes=free_bytes,
        )

    def _info(self) -> Mapping[str, Any]:
        with _names_host(self.name):
            info: Mapping[str, Any] = self._client.info()
        return info

    def images(self, label: str) -> tuple[StoredImage, ...]:
        """Return images as every engine does, with retries: one may be removed meanwhile."""
        rows: Sequence[Mapping[str, Any]] = ()
        with _names_host(self.name):
            for attempt in reversed(range(_LISTINGS)):
                try:
                    rows = self._client.api.images(filters={"label": label})
                    break
                except docker.errors.NotFound:
                    if not attempt:
                        raise
                    time.sleep(_BETWEEN_LISTINGS_SECONDS)
        # One that is being removed meanwhile is listed without its labels.
        name = label.partition("=")[0]
        return tuple(image for image in map(_listed_image, rows) if name in image.labels)

    def image(self, reference: str) -> StoredImage | None:
        with _names_host(self.name):
            try:
                row = self._client.api.inspect_image(reference)  # type: ignore[no-untyped-call]
                layers = self._client.api.history(row["Id"])  # type: ignore[no-untyped-call]
            except docker.errors.ImageNotFound:
                return None
        config = row.get("Config") or {}
        settings = {name: config.get(name) for name in _SETTINGS}
        stack = (row.get("RootFS") or {}).get("Layers") or []
        # The containerd store's own `Size` counts packed blobs; layers are what a container sees.
        size = sum(layer["Size"] for layer in layers)
        return replace(
            _listed_image({**row, "Labels": config.get("Labels"), "Size": size}),
            created=str(row.get("Created") or ""),
            substance=digest_of([stack, settings]) if stack else "",
        )

    def tag(self, image_id: str, reference: str) -> None:
        repository, _, name = reference.rpartition(":")
        with _names_host(self.name):
            self._client.api.tag(image_id, repository, name)

    def remove(self, reference: str) -> None:
        with _names_host(self.name), contextlib.suppress(docker.errors.ImageNotFound):
            self._client.api.remove_image(reference)

    def import_rootfs(
        self, tar: Path, reference: str, labels: Mapping[str, str], environment: Mapping[str, str]
    ) -> StoredImage:
        names = {ours: theirs for theirs, ours in _MACHINES.items()}
        body = image_archive(
            tar,
            reference,
            architecture=names.get(self.machine, self.machine),
            labels=labels,
            environment=environment,
        )
        self._load(body, tar)
        return self._present(reference, "loaded")

    def _load(self, body: Any, source: Path) -> None:
        with _names_host(self.name):
            events = list(self._client.api.load_image(body, quiet=True))  # type: ignore[no-untyped-call]
        # The status is 200 even when it broke off.
        if output := next((event["error"] for event in events if "error" in event), ""):
            raise EngineError(f"{source}: the engine could not load it: {output[-500:].strip()}")

    def save(self, references: Iterable[str], archive: Path) -> None:
        api = self._client.api
        with storing(archive), gzip.open(archive, "wb", 1) as into, _names_host(self.name):
            answer = api.get(
                f"{api.base_url}/v{api.api_version}/images/get",
                params={"names": list(references)},
                stream=True,
                timeout=_ANSWER_SECONDS,
            )
            answer.raise_for_status()
            into.writelines(answer.iter_content(1 << 20))

    def load(self, archive: Path) -> None:
        with archive.open("rb") as body:
            self._load(body, archive)

    def content(self, image_id: str) -> Path | None:
        root = Path(str(self._info().get("DockerRootDir", "")))
        blob = Path("blobs", image_id.replace(":", "/"))
        places = (root / "containerd" / "daemon", _CONTAINERD)
        return next(
            (place / _CONTENT for place in places if os.access(place / _CONTENT / blob, os.R_OK)),
            None,
        )

    def adopt(self, blobs: Iterable[Path]) -> None:
        root = Path(str(self._info().get("DockerRootDir", "")))
        # Only an engine of our own: in another's folders we have no business.
        if embedded.EnginePlace(state=root.parent).host == self.name and not self.builds_elsewhere:
            folder = root / "containerd" / "daemon" / _CONTENT / "blobs" / "sha256"
            link_blobs(blobs, folder, mounted=root)

    def export(self, reference: str, folder: Path) -> str:
        aside = folder.with_suffix(".tar")
        with storing(aside):
            folder.mkdir(parents=True)
            with _names_host(self.name), aside.open("wb") as file:
                file.writelines(self._client.images.get(reference).save())
            with tarfile.open(aside) as saved:
                saved.extractall(folder)  # noqa: S202 - the engine's own, which has root anyway
            aside.unlink()
        index = folder / "index.json"
        if not index.is_file():
            raise EngineError(
                f"{self.name} gives no image as an OCI layout, and a builder elsewhere needs it",
                hint="Docker Engine 25 does; or a base that the builder can pull from a registry",
            )
        return str(json.loads(index.read_text(encoding="utf-8"))["manifests"][0]["digest"])

    def push(self, reference: str, on_progress: Progress) -> int:
        repository, _, tag = reference.rpartition(":")
        transfer = Transfer(verb="push", reference=reference, on_progress=on_progress)
        return self._transferred(transfer, repository, tag)

    def pull(self, reference: str, on_progress: Progress) -> StoredImage:
        name, parts, digest = reference.partition("@")
        repository, tag = (name, digest) if parts else reference.rsplit(":", 1)
        transfer = Transfer(verb="pull", reference=reference, on_progress=on_progress)
        self._transferred(transfer, repository, tag)
        return self._present(reference, "pulled")

    def _transferred(self, transfer: Transfer, repository: str, tag: str) -> int:
        """Return the bytes moved over a separate connection: closed, it ends a transfer that still
        runs. A silence is cut by its timeout, and one that is filled with words by `Transfer`.
        """
        with _names_host(self.name):
            try:
                with contextlib.closing(self._again()) as client:
                    client.api.timeout = STALL_SECONDS
                    send: Any = getattr(client.api, transfer.verb)
                    events = send(repository, tag=tag, stream=True, decode=True)
                    with contextlib.closing(events):
                        transfer.follow(events)
            except docker.errors.APIError as error:  # before the stream: the registry's words
                raise transfer.fault(_api_words(error)) from None
        return transfer.moved_bytes

    def _present(self, reference: str, done: str) -> StoredImage:
        image = self.image(reference)
        if image is None:
            raise EngineError(f"{reference}: {done}, and yet the engine does not have it")
        return image

    def host_devices(self) -> HostDevices:
        info, local = self._info(), self.name.startswith("unix://")
        runtimes = tuple(sorted(info.get("Runtimes") or {}))
        hook = local and shutil.which("nvidia-container-runtime-hook") is not None
        devices = info.get("DiscoveredDevices") or []
        return HostDevices(
            cdi=tuple(sorted(str(row["ID"]) for row in devices if row.get("Source") == "cdi")),
            nodes=device_nodes(Path("/dev")) if local else {},
            runtimes=runtimes,
            gpus=hook or "nvidia" in runtimes,
        )

    def run(self, request: RunRequest, on_line: Line) -> RunResult:
        run_id = uuid.uuid4().hex[:12]
        name = f"warpfront-run-{run_id}"
        try:
            api = self._client.api
            inside = f"{request.time_limit_seconds + DEAD_MAN_SECONDS:g}"
            with _names_host(self.name):
                user, namespace = user_inside(request.user, self._client.info())
                client = embedded.identity(os.getpid())
                assert client is not None
                named = {f"{RUN_LABEL}.{key}": value for key, value in asdict(client).items()}
                api.create_container(
                    request.image,
                    ["timeout", "--signal=KILL", inside, *request.command],
                    name=name,
                    entrypoint=[],
                    user=user or None,
                    working_dir=request.workdir or None,
                    environment={**request.environment, **request.devices.environment},
                    labels={RUN_LABEL: run_id, **named},
                    host_config=api.create_host_config(
                        **_host_settings(request), userns_mode=namespace or None
                    ),
                )
            return self._followed(name, request, on_line)
        finally:
            self._discard(name)

    def reap(self) -> tuple[str, ...]:
        removed = []
        with _names_host(self.name):
            for row in self._client.api.containers(all=True, filters={"label": RUN_LABEL}):
                labels = {
                    key.removeprefix(f"{RUN_LABEL}."): value for key, value in row["Labels"].items()
                }
                client = embedded.read_identity(labels)
                if client is not None and client.is_gone():
                    self._discard(row["Id"])
                    removed.append(row["Names"][0].removeprefix("/"))
        return tuple(removed)

    def _followed(self, name: str, request: RunRequest, on_line: Line) -> RunResult:
        """Start, pass on every line, stop at the limit, and tell how it ended."""
        with _names_host(self.name):
            stream = self._client.api.attach_socket(name)
        # The stream shares its socket with the SDK's response, which keeps it open until both are
        # closed.
        response = getattr(stream, "_response", stream)
        with contextlib.closing(stream), contextlib.closing(response):
            with _names_host(self.name):
                self._client.api.start(name)
            started = time.monotonic()
            watchdog = _Watchdog(request.time_limit_seconds, stream, lambda: self._kill(name))
            try:
                for line in self._lines(stream):
                    on_line(line)
                seconds_left = started + request.time_limit_seconds - time.monotonic()
                with _names_host(self.name):
                    patience = math.ceil(max(seconds_left, 0.0) + _END_SECONDS)
                    code = int(self._client.api.wait(name, timeout=patience)["StatusCode"])
            finally:
                watchdog.stop()
        seconds = time.monotonic() - started
        with _names_host(self.name):
            oom_killed = bool(self._client.api.inspect_container(name)["State"]["OOMKilled"])
            if code in _KILLED and not watchdog.expired and not oom_killed:
                # A daemon that is ending kills its containers first and answers a little longer:
                # their 137 must not pass for their own failure.
                for _ in range(6):
                    self._client.ping()
                    time.sleep(0.5)
        return RunResult(
            exit_code=code,
            timed_out=watchdog.expired,
            oom_killed=oom_killed and not watchdog.expired,
            seconds=seconds,
        )

    def _lines(self, stream: Any) -> Iterator[str]:
        """Yield each line of a container's output. What the caller does with a line happens
        outside: its errors are not the engine's.
        """
        with _names_host(self.name):
            yield from lines_of(chunk for _, chunk in frames_iter(stream, tty=False))  # type: ignore[no-untyped-call]

    def _kill(self, name: str) -> None:
        """Called on the watchdog's thread, so with a connection of its own."""
        # Ended by itself, or engine gone: `run` sees which.
        with contextlib.suppress(*_FOREIGN), contextlib.closing(self._again()) as client:
            client.api.kill(name)

    def _discard(self, name: str) -> None:
        """Remove a container, running or not. That it is gone already is what was wanted."""
        with _names_host(self.name), contextlib.suppress(docker.errors.NotFound):
            try:
                self._client.api.remove_container(name, force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:  # 409: its removal is already under way
                    raise


class _Watchdog:
    """Kills at the limit. Where even that ends nothing the engine hangs, and the stream is cut."""

    def __init__(self, seconds: float, stream: Any, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._stream = socket.socket(fileno=os.dup(stream.fileno()))
        self._timers = [
            threading.Timer(seconds, self._expire),
            threading.Timer(seconds + _END_SECONDS, self._cut),
        ]
        self.expired = False
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._stream.close()

    def _expire(self) -> None:
        self.expired = True
        self._kill()

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)


def device_nodes(dev: Path) -> Mapping[str, int]:
    """Accelerator device nodes below `dev` -> their numeric group ids."""
    nodes = {}
    for pattern in _NODES:
        for path in sorted(dev.glob(pattern)):
            status = path.stat()
            if stat.S_ISCHR(status.st_mode):
                nodes[str(path)] = status.st_gid
    return nodes


def user_inside(user: str, info: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the host's `user` (`uid:gid`) in a container, and the user namespace
    for it ("" = the engine's own).

    A rootless engine maps its own user to root in containers. One with userns-remap maps no user of
    the host: its containers that write for the host use the host's namespace, without capabilities,
    as those of every other engine do.
    """
    options = {
        word.removeprefix("name=")
        for text in info.get("SecurityOptions") or ()
        for word in str(text).split(",")
    }
    if "rootless" in options:
        return ("0:0" if user == f"{os.getuid()}:{os.getgid()}" else user), ""
    return user, ("host" if "userns" in options and user else "")


def _connected(
    host: str,
    *,
    cache: Path,
    tls: TLSConfig | bool | None = None,
    build: Mapping[str, str] | None = None,
) -> DockerEngine:
    again = functools.partial(
        docker.DockerClient,
        base_url=host,
        tls=tls or False,
        timeout=_CONNECT_SECONDS,
        use_ssh_client=host.startswith("ssh://"),
        version="auto",
    )
    with _names_host(host):
        if host.startswith("unix://"):  # the SDK hides why a socket cannot be reached, and leaks it
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(_CONNECT_SECONDS)
                trial.connect(host.removeprefix("unix://"))
        client = again()
        client.api.timeout = _ANSWER_SECONDS
    return DockerEngine(
        client, host, build_environment=build or {"DOCKER_HOST": host}, cache=cache, again=again
    )


@contextlib.contextmanager
def _names_host(host: str) -> Iterator[None]:
    try:
        yield
    except _FOREIGN as error:
        raise _engine_error(host, error) from error


def _engine_error(host: str, error: Exception) -> EngineError:
    """Return the error for users: its cause is read from types and errno."""
    causes = tuple(causes_of(error))
    if any(isinstance(cause, PermissionError) for cause in causes):
        hint = "use sudo, or join the group that owns the socket (`usermod -aG docker $USER`)"
        return EngineError(f"{host}: permission denied", hint=hint)
    if any(isinstance(cause, (FileNotFoundError, ConnectionRefusedError)) for cause in causes):
        return EngineError(
            f"{host}: the engine went away, or never was there: {_words(causes)}",
            hint="`systemctl start docker`, or `warpfront engine start` for the embedded one",
        )
    if any(isinstance(cause, docker.errors.APIError) for cause in causes):
        words, rows = _api_words(error), packaged_toml("daemon-errors.toml")["engine"]
        hints = (row["hint"] for row in rows if row["words"] in words.lower())
        return EngineError(f"{host}: {words}", hint=next(hints, ""))
    timeouts = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)
    if any(isinstance(cause, timeouts) for cause in causes):
        return EngineError(f"{host}: the engine does not answer", hint="see its log")
    return EngineError(
        f"{host}: the engine went away: {_words(causes)}", hint="see its log; it may be restarting"
    )


def _words(causes: tuple[BaseException, ...]) -> str:
    words = (cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror)
    return next(words, str(causes[0]))


def _api_words(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error).strip()


# What a container of an image runs with: https://github.com/opencontainers/image-spec, config.md.
_SETTINGS = ("Cmd", "Entrypoint", "Env", "Healthcheck", "User", "Volumes", "WorkingDir")


def _listed_image(row: Mapping[str, Any]) -> StoredImage:
    return StoredImage(
        id=str(row["Id"]),
        references=tuple(tag for tag in row.get("RepoTags") or () if tag != "<none>:<none>"),
        labels=frozen(row.get("Labels") or {}),
        size_bytes=int(row["Size"]),
    )


def _host_settings(request: RunRequest) -> dict[str, Any]:
    devices = request.devices
    return {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "init": True,
        "ipc_mode": "private",
        "mem_limit": request.memory_bytes,
        "memswap_limit": request.memory_bytes,
        "pids_limit": 4096,
        "shm_size": 1 << 30,
        # What is compiled inside (inductor, Triton, extensions) is loaded from there.
        "tmpfs": {"/tmp": "mode=1777,exec"},  # noqa: S108 - inside
        "mounts": [
            Mount(bind.target, str(bind.source), type="bind", read_only=not bind.writable)
            for bind in request.binds
        ],
        "log_config": LogConfig(type=LogConfig.types.NONE),  # we read the stream; nothing on disk
        "device_requests": [
            *([DeviceRequest(driver="cdi", device_ids=list(devices.cdi))] if devices.cdi else []),
            *([DeviceRequest(count=-1, capabilities=[["gpu"]])] if devices.gpus else []),
        ],
        "devices": [f"{node}:{node}:rwm" for node in devices.nodes],
        "group_add": [str(group) for group in devices.groups],
        "runtime": devices.runtime,
    }


def link_blobs(blobs: Iterable[Path], folder: Path, *, mounted: Path) -> None:
    """Link `blobs` into `folder`, which may be below a mount of `mounted` on itself. Existing
    and impossible links are skipped. Their names are trusted: nothing hashes them again.

    containerd has one file per digest: a blob whose file exists counts as written. A linked blob is
    adopted by the first build on it, and collected if no build uses it; later builds send it as to
    any other engine.
    """
    argv = ("unshare", "--mount", "sh", "-c", _LINKS, str(mounted), str(folder))
    with contextlib.suppress(CommandFailedError):  # no such program
        process.run(Command(argv=(*argv, *map(str, blobs))))


LONGEST_LINE = 16_384
STALL_SECONDS = 90
_WAITING = re.compile(r"Waiting|Preparing|Retrying in|Unavailable")
_MOVING = ("Pushing", "Downloading", "Pushed")
_ERRORS = packaged_toml("daemon-errors.toml")["registry"]


@dataclass(kw_only=True)
class Transfer:
    """A push or pull, event by event. `moved_bytes` is the engine's own count of the wire; a
    layer that was mounted or already there counts nothing.
    """

    verb: str
    reference: str
    on_progress: Progress
    stall_seconds: float = STALL_SECONDS
    clock: Callable[[], float] = time.monotonic
    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _last: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        return sum(moved for moved, _ in self._layers.values())

    def follow(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Read the stream. Raise `RegistryError` for an error event, and if no byte moves."""
        moved = self.clock()
        for event in events:
            detail = event.get("errorDetail")
            error = detail.get("message") if isinstance(detail, Mapping) else ""
            if message := str(error or event.get("error") or "").strip():
                raise self.fault(message)
            layer, status = str(event.get("id", "")), str(event.get("status", ""))
            sizes = event.get("progressDetail") or {}
            current, total = int(sizes.get("current") or 0), int(sizes.get("total") or 0)
            is_waiting = bool(_WAITING.match(status))
            if status.startswith(_MOVING) and current and not is_waiting:
                self._layers[layer] = (current, max(total, current))
                every = sum(each for _, each in self._layers.values())
                self.on_progress(self.moved_bytes, every + 1)
            # Bytes move where an event differs from the last one of its layer.
            if not is_waiting and self._last.get(layer) != (status, current):
                self._last[layer] = (status, current)
                moved = self.clock()
            elif self.clock() - moved > self.stall_seconds:
                hint = "is the registry hanging? a rerun goes on where this one was"
                message = f"no byte moved for {self.stall_seconds:g} s"
                raise self._error(message, RegistryFault.SLOW, hint)
        total = self.moved_bytes
        self.on_progress(total, total)

    def fault(self, message: str) -> RegistryError:
        """Return the engine's error, of its stream or before there was one."""
        row = next(row for row in _ERRORS if re.search(row["words"], message, re.IGNORECASE))
        return self._error(message, RegistryFault(row["fault"]), row["hint"])

    def _error(self, message: str, fault: RegistryFault, hint: str) -> RegistryError:
        host = self.reference.partition("/")[0]
        self.on_progress(0, 0)
        step = f"{self.verb} {self.reference}"
        return RegistryError(message, registry=host, step=step, fault=fault, hint=hint)


def lines_of(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream, in memory that is bounded by the longest line.

    Bytes that are not UTF-8 become U+FFFD. A line beyond `LONGEST_LINE` characters is cut, with the
    number of missing ones. `\r` progress bars stay within their line.
    """
    line, length = "", 0
    for text in codecs.iterdecode(chunks, "utf-8", errors="replace"):
        for place, part in enumerate(text.split("\n")):
            if place:
                yield _shown(line, length)
                line, length = "", 0
            line += part[: LONGEST_LINE - len(line)]
            length += len(part)
    if length:
        yield _shown(line, length)


def _shown(line: str, length: int) -> str:
    cut = length - len(line)
    return line.removesuffix("\r") + (f"... ({cut} more characters)" if cut else "")
