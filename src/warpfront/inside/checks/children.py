"""Work in child processes, an item at a time: what crashes or hangs costs its own item only.

The child is a module whose `main` calls `serve`: it says when it begins an item and what came of
it. One that dies or takes too long is ended with its group, and another goes on with the rest. It
is a Python of its own, or a fork of this one, which need not import torch again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from warpfront.inside.checks.forks import fork

DONE, CRASHED, HUNG = "done", "crashed", "hung"
_SAID_BYTES = 4000
_LONGEST_BYTES = 16 * 2**20
# Importing torch and a library takes a while, and longer on a loaded machine.
START_SECONDS = 240.0


@dataclass(frozen=True, kw_only=True)
class Returned:
    """What came of one item: the child's own document, or how the child ended over it."""

    item: Any
    how: str
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
) -> Iterator[Returned]:
    """Every item in its order; `seconds` is what one may take. `forked` only where this process has
    computed nothing: neither drivers nor pools of threads live on in a fork.
    """
    begin = _Fork if forked else _python
    rest = list(items)
    while rest:
        for returned in _one_child(begin, module, tuple(rest), seconds, environment or {}):
            rest.remove(returned.item)
            yield returned


def begin_beside(
    module: str,
    items: Sequence[Any],
    *,
    lanes: int,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> tuple[Future[Returned], ...]:
    """The same in several children at once, which begin now, to each an item in turn: what will
    come of every item, in their order.
    """
    answers: tuple[Future[Returned], ...] = tuple(Future() for _ in items)

    def go_through(lane: int) -> None:
        mine = answers[lane::lanes]
        try:
            returned = each_in_a_child(
                module, items[lane::lanes], seconds=seconds, environment=environment
            )
            for answer, one in zip(mine, returned, strict=True):
                answer.set_result(one)
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer has to hear of it
            for answer in mine:
                if not answer.done():
                    answer.set_exception(error)

    for lane in range(min(lanes, len(items))):
        threading.Thread(target=go_through, args=(lane,), daemon=True).start()
    return answers


def serve(work: Callable[[Any], Mapping[str, Any]]) -> None:
    """The child's side: items from the job file in the last argument, answers to its own file."""
    faulthandler.enable()
    if find_spec("habana_frameworks") is not None:
        # `torch.hpu` is there only after that, and a child begins without it.
        importlib.import_module("habana_frameworks.torch.core")
    job = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    with Path(job["answers"]).open("wb", buffering=0) as answers:
        for place, item in enumerate(job["items"]):
            answers.write(_line({"begins": place}))
            answers.write(_line({"ends": place, "document": work(item)}))


def _line(document: object) -> bytes:
    return json.dumps(document, default=str).encode() + b"\n"


class Child(Protocol):
    """What is used of `subprocess.Popen`, which a fork has as well."""

    pid: int
    returncode: Any

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


def _python(module: str, job: Path, environment: Mapping[str, str], said: Any) -> Child:
    child: Child = subprocess.Popen(
        [sys.executable, "-m", module, str(job)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return child


class _Fork:
    """The module's `main` in a fork of this process."""

    def __init__(self, module: str, job: Path, environment: Mapping[str, str], said: Any) -> None:
        self.returncode: int | None = None

        def run() -> int:
            os.setsid()
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            os.environ.update(environment)
            sys.argv = [module, str(job)]
            importlib.import_module(module).main()
            return 0

        self.pid = fork(run)

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        return self._reap(0) or 0

    def _reap(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _one_child(
    begin: Callable[..., Child],
    module: str,
    items: Sequence[Any],
    seconds: float,
    environment: Mapping[str, str],
) -> Iterator[Returned]:
    """Until it is through, or ends over an item, which is the last that this returns."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        answers, job = Path(name) / "answers", Path(name) / "job.json"
        os.mkfifo(answers)
        job.write_text(json.dumps({"items": items, "answers": str(answers)}), encoding="utf-8")
        said = stack.enter_context((Path(name) / "said").open("w+b"))
        # Read and write, so that opening does not wait for the child, and its end is seen by it.
        reading = stack.enter_context(answers.open("r+b", buffering=0))
        child = begin(module, job, environment, said)
        stack.callback(_end_group, child)
        yield from _heard(child, reading, items, seconds, Path(said.name))


def _heard(
    child: Child, reading: Any, items: Sequence[Any], seconds: float, said: Path
) -> Iterator[Returned]:
    lines, place, began = _AnswerLines(reading), 0, time.monotonic()
    limit = max(START_SECONDS, seconds)
    while place < len(items):
        line = lines.next(child, began + limit)
        spent = time.monotonic() - began
        if line is None:
            how = HUNG if child.poll() is None else CRASHED
            reason = f"no answer in {spent:.0f} s" if how == HUNG else _ending(child, said)
            document: Mapping[str, Any] = {}
            yield Returned(
                item=items[place], how=how, seconds=spent, document=document, reason=reason
            )
            return
        if "ends" in line:
            document = line["document"]
            yield Returned(item=items[place], how=DONE, seconds=spent, document=document)
            place += 1
        elif "begins" not in line:
            reason = "what it answered cannot be read"
            yield Returned(
                item=items[place], how=CRASHED, seconds=spent, document={}, reason=reason
            )
            return
        # Libraries load and profilers start with a child's first item.
        began, limit = time.monotonic(), seconds if place else limit


class _AnswerLines:
    """Whole lines of a pipe, while its writer lives and until a time."""

    def __init__(self, reading: Any) -> None:
        self._reading, self._kept = reading, b""

    def next(self, child: Child, until: float) -> dict[str, Any] | None:
        """{} for a line that no child of ours writes: a library may write to any file."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reading, selectors.EVENT_READ)
            while b"\n" not in self._kept and len(self._kept) <= _LONGEST_BYTES:
                ended = child.poll() is not None
                if selector.select(0.0 if ended else 0.05):
                    self._kept += os.read(self._reading.fileno(), 1 << 16)
                elif ended or time.monotonic() > until:
                    return None
        line, _, self._kept = self._kept.partition(b"\n")
        try:
            found = json.loads(line)
            sound = isinstance(found, dict) and isinstance(found.get("document", {}), dict)
        except (ValueError, RecursionError):
            return {}
        return found if sound and ("document" in found) == ("ends" in found) else {}


def _ending(child: Child, said: Path) -> str:
    """A signal by its name, and what a child said last."""
    code = child.returncode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    text = said.read_bytes()[-_SAID_BYTES:].decode("utf-8", "replace").strip().splitlines()
    told = [line for line in text if line.startswith(("Fatal", "RuntimeError", "terminate"))]
    return ": ".join([how, *(told[:1] or text[-1:])])[:400]


def _end_group(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
