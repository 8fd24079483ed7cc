"""BuildKit through `docker buildx bake`: one bake for everything, single bakes after
a failure. Edge.

buildx prints `--progress=rawjson`: JSON lines of vertexes, statuses and logs, then plain text if it
fails. Lines that are not JSON are stored as text.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from warpfront.errors import TimedOutError, without_secrets
from warpfront.images.engine.protocol import Engine
from warpfront.system.process import DISK_FULL, Command, run, stop_all, stream
from warpfront.system.store import storing

_LAYER = "sha256:"
_EXPORTS = ("naming", "unpacking")
_NUMBERED = re.compile(r"\[(?:[^\s\]]+ )*(?P<step>\d+)/(?P<steps>\d+)\] (?P<rest>.+)", re.DOTALL)
_INTERNAL = re.compile(r"\[(?:[^\s\]]+ )*(?:internal\]|context )")
_BRACKETED = re.compile(r"^\[[^\]]*\] ")
_PROCESS_FAILED = re.compile(r'.*process ".*" did not complete successfully: ', re.DOTALL)
_TAIL_CHARACTERS = 4_000
_TAIL_LINES = 10
_FORGETTING_SECONDS = 60.0
_PARALLEL = 2
_LONGEST_STEP = 100
_TARGET_PREFIX = re.compile(r"\[(?P<target>[A-Za-z0-9_-]+) (?P<rest>[^\]]*)\]")
_ENGINE_GONE = re.compile(
    # Killed, its socket ends in EOF, or in a reset where it had not read all.
    r"error reading from server: |Cannot connect to the Docker daemon|"
    # A remote builder that never answered.
    r'"\[internal\] waiting for connection".*"error":'
)
# A build that is stopped may take a snapshot with it that BuildKit's cache still names; an engine
# that is killed may leave the folder of one that its books do not have, which goes when it is met.
_CACHE_LOST = re.compile(
    r"snapshot \S* ?does not exist: not found|"
    r"failed to rename: rename \S+/snapshots/\S+ \S+/snapshots/\d+: file exists"
)
# Of two builds that name an image at once, the store refuses the later: it looks for the name, and
# then makes it. On another try the name is there, and moves.
_NAMED_AT_ONCE = re.compile(r'image "[^"]+": already exists')


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """A step of BuildKit: `[torch 2/3] RUN ...`. `target` is "" if it serves no single target.
    `line` is the latest output of its program; the bytes are those that it fetches.
    """

    target: str
    name: str
    state: str
    line: str = ""
    done_bytes: int = 0
    total_bytes: int = 0

    @property
    def words(self) -> str:
        """`2 of 3: RUN uv venv`: without the mounts, which say nothing of what it does."""
        match = _NUMBERED.match(self.name)
        if not match:
            return " ".join(_BRACKETED.sub("", self.name).split())
        instruction, *rest = match["rest"].split()
        words = " ".join(itertools.dropwhile(lambda word: word.startswith("--"), rest))
        return f"{match['step']} of {match['steps']}: {instruction} {words}"

    @property
    def is_internal(self) -> bool:
        """Return true if it only reads the image's sources (the Dockerfile, a context)."""
        return bool(_INTERNAL.match(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Baked:
    """The result of one target. `error` is "" for a built one; `digest` is then the image's.
    `disk_full` is true if the bake, or a program inside it, met a full disk.
    """

    digest: str
    error: str
    engine_gone: bool = False
    disk_full: bool = False
    cache_lost: bool = False
    named_at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeRequest:
    """A bake file on disk and how to run it. `logs` maps a target to the file for its output,
    `references` an image's reference to its target. `cache` is a repository for the steps of each
    target, which other builders read.
    """

    buildx: tuple[str, ...]
    environment: Mapping[str, str]
    file: Path
    targets: tuple[str, ...]
    readable: tuple[Path, ...]
    logs: Mapping[str, Path]
    references: Mapping[str, str] = field(default_factory=dict)
    cache: str = ""
    writable: tuple[Path, ...] = ()


OnStep = Callable[[BuildStep], None]


def local_context(engine: Engine, reference: str, folder: Path) -> str:
    """Return a named context for an image of this engine; a layout below `folder` if remote."""
    if not engine.builds_elsewhere:
        return f"docker-image://{reference}"
    layout = folder / hashlib.sha256(reference.encode()).hexdigest()[:24]
    shutil.rmtree(layout, ignore_errors=True)
    return f"oci-layout://{layout.resolve()}@{engine.export(reference, layout)}"


def bake(request: BakeRequest, on_step: OnStep) -> Mapping[str, Baked]:
    """Build all targets and return a result for each.

    bake stops everything at the first failure without results of the others. So after a failure
    each target is baked by itself: two at a time, and BuildKit shares their common steps.
    """
    answers = _bake_steadily(request, request.targets, on_step)
    first = answers[request.targets[0]]
    if not first.error or first.engine_gone or len(request.targets) == 1:
        return answers

    def bake_one(target: str) -> Mapping[str, Baked]:
        return _bake_steadily(request, (target,), on_step)

    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        try:
            for answer in pool.map(bake_one, request.targets):
                answers.update(answer)
        except BaseException:
            # Ctrl-C reaches the main thread only; the pool would wait for needless bakes.
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
    return answers


def forget_steps(request: BakeRequest, words: str) -> None:
    """Remove unused steps with these words from BuildKit's cache, where there is time to."""
    words = f"--filter=description~={json.dumps(words)}"
    command = Command(
        argv=(*request.buildx, "prune", "--force", words),
        environment=request.environment,
        timeout_seconds=_FORGETTING_SECONDS,
    )
    with contextlib.suppress(TimedOutError):
        run(command)


def _bake_steadily(
    request: BakeRequest, targets: tuple[str, ...], on_step: OnStep
) -> dict[str, Baked]:
    """Bake once more where another build named an image at the same moment, and without the cache
    where BuildKit's had lost something, which it would look for each time.
    """
    answers = _bake_once(request, targets, on_step)
    if answers[targets[0]].named_at_once:
        return _bake_once(request, targets, on_step)
    if answers[targets[0]].cache_lost:
        return _bake_once(request, targets, on_step, "--no-cache")
    return answers


def _bake_once(
    request: BakeRequest, targets: tuple[str, ...], on_step: OnStep, *options: str
) -> dict[str, Baked]:
    name = targets[0] if len(targets) == 1 else "all"
    metadata = request.file.with_name(f"{request.file.stem}-{name}-metadata.json")
    # A tag for each target: caches of one tag replace each other. Failing exports pass.
    cached = targets if request.cache else ()
    caches = [(f"{t}.cache", f"type=registry,ref={request.cache}:{t}") for t in cached]
    command = Command(
        argv=(
            *(*request.buildx, "bake", "--file", str(request.file)),
            *("--progress=rawjson", "--metadata-file", str(metadata)),
            *(f"--allow=fs.read={path}" for path in request.readable),
            *(f"--set={name}-from={cache}" for name, cache in caches),
            *(f"--set={name}-to={cache},mode=max,ignore-error=true" for name, cache in caches),
            *(f"--allow=fs.write={path}" for path in request.writable),
            *options,
            *targets,
        ),
        environment={
            **request.environment,
            # Without this, build arguments and local paths are in the metadata file.
            "BUILDX_METADATA_PROVENANCE": "disabled",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        },
    )
    metadata.unlink(missing_ok=True)
    # A full disk is first noticed by the logs: BuildKit has its own reserve.
    with (
        storing(request.file.parent),
        ProgressReader(targets, request.logs, on_step, request.references) as reader,
    ):
        completed = stream(command, reader.read_line)
    if completed.returncode == 0:
        facts = json.loads(metadata.read_text(encoding="utf-8"))
        # The containerd store names the manifest, overlay2 the config.
        names = ("containerimage.digest", "containerimage.config.digest")
        digests = {t: next(filter(None, map(facts.get(t, {}).get, names)), "") for t in targets}
        return {t: Baked(digest=str(digest), error="") for t, digest in digests.items()}
    output = completed.stdout
    stated = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    last = stated[-1].removeprefix("ERROR: ") if stated else ""
    failed = Baked(
        digest="",
        error=reader.failure or last or f"buildx exited with {completed.returncode}",
        engine_gone=bool(_ENGINE_GONE.search(output)),
        disk_full=reader.disk_full,
        cache_lost=bool(_CACHE_LOST.search(output)),
        named_at_once=bool(_NAMED_AT_ONCE.search(output)),
    )
    return dict.fromkeys(targets, failed)


@dataclass
class ProgressReader:
    """Reader of rawjson progress: steps go to `on_step`, output of each step to its target's
    log. `disk_full` becomes true if BuildKit or a step's program reports it; `failure` is the first
    failed step, with the last output of its program.
    """

    targets: tuple[str, ...]
    logs: Mapping[str, Path]
    on_step: OnStep
    references: Mapping[str, str] = field(default_factory=dict)
    disk_full: bool = False
    failure: str = ""
    _names: dict[str, str] = field(default_factory=dict)
    _tails: dict[str, str] = field(default_factory=dict)
    _parts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    _files: dict[str, TextIO] = field(default_factory=dict)
    _begun: dict[str, str] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)

    def __enter__(self) -> Self:
        for target in self.targets:
            if target in self.logs:
                self.logs[target].parent.mkdir(parents=True, exist_ok=True)
                # A line at a time, for readers of the growing file.
                self._files[target] = self.logs[target].open("a", buffering=1, encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for digest in tuple(self._begun):
                self._finish_line(digest)
        finally:
            for file in self._files.values():
                file.close()

    def read_line(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self._write("", line)
            return
        for vertex in event.get("vertexes") or ():
            digest, name = str(vertex.get("digest", "")), str(vertex.get("name", ""))
            self._names[digest] = name
            state = _state(vertex)
            if state and (digest, state) not in self._told:
                self._told.add((digest, state))
                self._tell(digest, state)
                self._finish_line(digest)
                self._write(digest, f"{state}: {name}")
            if vertex.get("error"):
                self._write(digest, f"error: {vertex['error']}")
                self.failure = self.failure or self._failure(digest, str(vertex["error"]))
        for status in event.get("statuses") or ():
            self._read_status(status)
        for log in event.get("logs") or ():
            data = str(log.get("data", ""))
            with contextlib.suppress(binascii.Error, ValueError):
                data = base64.b64decode(data, validate=True).decode("utf-8", errors="replace")
            self._read_log(str(log.get("vertex", "")), data)

    def _tell(self, digest: str, state: str, line: str = "") -> None:
        name = self._names.get(digest, "")
        parts = self._parts.get(digest, {}).values()
        total = sum(total for _, total in parts)
        done_bytes = sum(shown_bytes for shown_bytes, _ in parts)
        # Until BuildKit calls it done, more layers may come.
        shown_bytes = min(done_bytes, max(total - 1, 0)) if state == "running" else total
        target = self._target(name)
        self.on_step(
            BuildStep(
                target=target,
                name=name,
                state=state,
                line=line,
                done_bytes=shown_bytes,
                total_bytes=total,
            )
        )

    def _failure(self, digest: str, error: str) -> str:
        """Return the step and the last output of its program; "" for one that was only stopped."""
        cause, is_program = _PROCESS_FAILED.subn("", error)
        if "context canceled" in error or not is_program:
            return ""
        words = BuildStep(target="", name=self._names.get(digest, ""), state="failed").words
        command = words if len(words) <= _LONGEST_STEP else f"{words[:_LONGEST_STEP]}..."
        log_lines = [line for line in self._tails.get(digest, "").splitlines() if line.strip()]
        lines = [f"    {without_secrets(line.rstrip())}" for line in log_lines[-_TAIL_LINES:]]
        return "\n".join([f"step {command}: {cause}", *lines])

    def _read_log(self, digest: str, text: str) -> None:
        """Whole lines go to the log: a secret that came in two pieces would not be known."""
        lines, newline, rest = (self._begun.get(digest, "") + text).rpartition("\n")
        self._begun[digest] = rest
        if newline:
            self._write(digest, lines)
        if len(rest) > _TAIL_CHARACTERS:
            self._finish_line(digest)
        tail = (self._tails.get(digest, "") + text)[-_TAIL_CHARACTERS:]
        self._tails[digest] = tail
        whole = [line for line in tail.split("\n") if line.strip()]
        if whole:
            self._tell(digest, "running", whole[-1])

    def _finish_line(self, digest: str) -> None:
        if rest := self._begun.pop(digest, ""):
            self._write(digest, rest)

    def _read_status(self, status: Mapping[str, Any]) -> None:
        """Read bytes of layers in transfer, and the end of an export, which names no target."""
        name, digest = str(status.get("id", "")), str(status.get("vertex", ""))
        total, counts = int(status.get("total") or 0), int(status.get("current") or 0)
        if total and name.startswith(_LAYER):
            self._parts.setdefault(digest, {})[name] = (counts, total)
            self._tell(digest, "running")
        doing, _, reference = name.partition(" to ")
        if doing in _EXPORTS and status.get("completed") and reference in self.references:
            target = self.references[reference]
            self.on_step(BuildStep(target=target, name=name, state="done"))

    def _target(self, name: str) -> str:
        """buildx puts the target's name before the stage only when it bakes several."""
        if len(self.targets) == 1:
            return self.targets[0]
        match = _TARGET_PREFIX.match(name)
        return match["target"] if match and match["target"] in self.targets else ""

    def _write(self, digest: str, text: str) -> None:
        """Write to the log of the step's target; steps of no target go to all logs."""
        self.disk_full = self.disk_full or DISK_FULL in text.lower()
        text = without_secrets(text)
        target = self._target(self._names.get(digest, ""))
        for file in [self._files[target]] if target in self._files else self._files.values():
            file.write(text if text.endswith("\n") else f"{text}\n")


def _state(vertex: Mapping[str, Any]) -> str:
    if vertex.get("error"):
        return "failed"
    if vertex.get("cached"):
        return "cached"
    if vertex.get("completed"):
        return "done"
    return "running" if vertex.get("started") else ""
