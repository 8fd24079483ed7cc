"""Work in child processes, an item at a time: a crash or a hang costs its own item only.

The child is a module whose `main` calls `serve`: it reports the start of an item and its
result. A child that dies or takes too long is ended with its group, and another continues with
the rest. It is a Python of its own, or a fork of this one or of its fork server. A fork need
not import torch again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from warpfront_checks.forkserver import Adopted, fork, nursery, run_job

# Keys of a child's pipes in its job, and the outcomes of an item.
_PIPES = ("places", "answers")
DONE, CRASHED, HUNG = "done", "crashed", "hung"
_SAID_BYTES = 4000
_LONGEST_BYTES = 16 * 2**20
# Importing torch and a library takes a while, and longer on a loaded machine.
START_SECONDS = 240.0


@dataclass(frozen=True, kw_only=True)
class Returned:
    """The result of an item: the child's document, or the end of the child that worked on it."""

    item: Any
    place: int
    outcome: str
    seconds: float
    document: Mapping[str, Any]
    reason: str = ""


def each_in_a_child(
    module: str,
    items: Sequence[Any],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    forked: bool = False,
    places: Iterator[int] | None = None,
) -> Iterator[Returned]:
    """Yield the result of every item in order; `seconds` is the limit for one. Use `forked`
    only in a process that has computed nothing: neither drivers nor pools of threads survive a
    fork. `places` are the indices of the items to run in this call, all by default. The next index
    is taken when the item before has ended.
    """
    raised = nursery()
    child = _Fork if forked else raised.begin if raised else _python
    begin = partial(child, module, environment or {})
    rest = iter(range(len(items))) if places is None else places
    for place in rest:
        still = itertools.chain([place], rest)
        yield from _one_child(begin, items, still, seconds)


@dataclass(frozen=True)
class Begun:
    """Children that have begun: what will come of every item, in their order."""

    answers: Sequence[Future[Returned]]
    lanes: Sequence[threading.Thread] = ()

    def wait(self) -> None:
        """Wait until every child has ended."""
        for lane in self.lanes:
            lane.join()


def begin_beside(
    module: str,
    items: Sequence[Any],
    *,
    lanes: int,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Begun:
    """The same in several children at once, which begin now and go on with the next item."""
    answers: tuple[Future[Returned], ...] = tuple(Future() for _ in items)
    waiting = deque(range(len(items)))

    def go_through() -> None:
        indices: list[int] = []

        def places() -> Iterator[int]:
            with contextlib.suppress(IndexError):
                while True:
                    indices.append(waiting.popleft())
                    yield indices[-1]

        limits: Mapping[str, Any] = {"seconds": seconds, "environment": environment}
        try:
            for returned in each_in_a_child(module, items, places=places(), **limits):
                answers[returned.place].set_result(returned)
        except Exception as error:  # noqa: BLE001 - the futures that wait for an answer receive it
            for place in [*indices, *places()]:
                if not answers[place].done():
                    answers[place].set_exception(error)

    count = min(lanes, len(items))
    threads = [threading.Thread(target=go_through, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return Begun(answers, threads)


_LEAVES: list[bool] = []


def leave_after_this() -> None:
    """End this child after the answer to its item: what it has of a device is of no use."""
    _LEAVES.append(True)


def serve(work: Callable[[Any], Mapping[str, Any]]) -> None:
    """The child's side: work on items of the last argument's job, each when its place is read."""
    faulthandler.enable()
    if find_spec("habana_frameworks") is not None:
        # `torch.hpu` is there only after that, and a child begins without it.
        importlib.import_module("habana_frameworks.torch.core")
    job = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    with (
        Path(job["places"]).open("rb", buffering=0) as places,
        Path(job["answers"]).open("wb", buffering=0) as answers,
    ):
        for place in places:
            document = work(job["items"][int(place)])
            answers.write(_line({"document": document, "last": bool(_LEAVES)}))
            if _LEAVES:
                return


def _line(document: object) -> bytes:
    return json.dumps(document, default=str).encode() + b"\n"


class Child(Protocol):
    """The part of `subprocess.Popen` in use, which a fork has as well."""

    pid: int
    returncode: Any

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


def _python(module: str, environment: Mapping[str, str], job: Path, log: Any) -> Child:
    child: Child = subprocess.Popen(
        [sys.executable, "-m", module, str(job)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return child


class _Fork(Adopted):
    """The module's `main` in a fork of this process."""

    def __init__(self, module: str, environment: Mapping[str, str], job: Path, said: Any) -> None:
        super().__init__(fork(lambda: run_job(module, environment, str(job), said.fileno())))


def _one_child(
    begin: Callable[..., Child], items: Sequence[Any], places: Iterator[int], seconds: float
) -> Iterator[Returned]:
    """Yield results until no index remains; the last is of an item over which the child ends."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        job, paths = Path(name) / "job.json", {pipe: Path(name) / pipe for pipe in _PIPES}
        for path in paths.values():
            os.mkfifo(path)
        job_document = {"items": items, **{key: str(path) for key, path in paths.items()}}
        job.write_text(json.dumps(job_document), encoding="utf-8")
        log = stack.enter_context((Path(name) / "said").open("w+b"))
        # Read and write, so that opening does not wait for the child, and its end is seen by it.
        writing, reading = (
            stack.enter_context(paths[pipe].open("r+b", buffering=0)) for pipe in _PIPES
        )
        child = begin(job, log)
        stack.callback(_end_group, child)
        dealt = _dealt(items, places, writing)
        yield from _heard(child, reading, dealt, seconds, Path(log.name))


def _dealt(
    items: Sequence[Any], places: Iterator[int], writing: Any
) -> Iterator[Callable[..., Returned]]:
    """Write each index to the child when it is reached; yield constructors of its results."""
    for place in places:
        writing.write(b"%d\n" % place)
        yield partial(Returned, item=items[place], place=place)


def _heard(
    child: Child,
    reading: Any,
    dealt: Iterator[Callable[..., Returned]],
    seconds: float,
    log_path: Path,
) -> Iterator[Returned]:
    lines, limit = _AnswerLines(reading), max(START_SECONDS, seconds)
    for returned in dealt:
        start = time.monotonic()
        line = lines.next(child, start + limit)
        spent = time.monotonic() - start
        if line:
            yield returned(outcome=DONE, seconds=spent, document=line["document"])
            if line.get("last"):
                return
            # Libraries load and profilers start with a child's first item.
            limit = seconds
            continue
        if line is not None:
            outcome, reason = CRASHED, "what it answered cannot be read"
        elif child.poll() is None:
            outcome, reason = HUNG, f"no answer in {spent:.0f} s"
        else:
            outcome, reason = CRASHED, _ending(child, log_path)
        yield returned(outcome=outcome, seconds=spent, document={}, reason=reason)
        return


class _AnswerLines:
    """Whole lines of a pipe, while its writer lives and until a time."""

    def __init__(self, reading: Any) -> None:
        self._reading, self._kept = reading, b""

    def next(self, child: Child, until: float) -> dict[str, Any] | None:
        """{} for a line that no child of ours writes: a library may write to any file."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reading, selectors.EVENT_READ)
            while b"\n" not in self._kept and len(self._kept) <= _LONGEST_BYTES:
                exited = child.poll() is not None
                if selector.select(0.0 if exited else 0.05):
                    self._kept += os.read(self._reading.fileno(), 1 << 16)
                elif exited or time.monotonic() > until:
                    return None
        line, _, self._kept = self._kept.partition(b"\n")
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        sound = isinstance(document, dict) and isinstance(document.get("document"), dict)
        return document if sound else {}


def _ending(child: Child, log_path: Path) -> str:
    """Return the name of the signal or the exit code, and the child's last line."""
    code = child.returncode
    ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    text = log_path.read_bytes()[-_SAID_BYTES:].decode("utf-8", "replace").strip().splitlines()
    reasons = [line for line in text if line.startswith(("Fatal", "RuntimeError", "terminate"))]
    return ": ".join([ending, *(reasons[:1] or text[-1:])])[:400]


def _end_group(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
