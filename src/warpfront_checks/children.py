"""Work in child processes, an item at a time: a crash or a hang costs its own item only.

The work is a function, `module:function`, that returns a document for an item. A child that dies or
takes too long is ended with its group, and another continues with the rest. It is a fork of this
process's fork server, which need not import torch again; without one, a Python of its own.
`python -m warpfront_checks.children JOB`

The fork server has imported torch and done nothing else with it. A process that computes on a GPU
cannot fork children itself, for no driver survives a fork. The server is forked while its session
has touched no driver yet. Its forks are handed on to the session by `PR_SET_CHILD_SUBREAPER`: an
orphan becomes the child of its nearest ancestor with that flag, which waits for it as for any.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.results import CheckFinding, Find, errored

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

    def finding(self) -> CheckFinding:
        """Return the document as a check's; a child without one is an error."""
        if self.outcome != DONE:
            return errored(f"{self.outcome}: {self.reason}", ended=self.outcome)
        return CheckFinding(**self.document)


def each_in_a_child(
    work: str,
    items: Sequence[Any],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    places: Iterator[int] | None = None,
    yields: int = 0,
) -> Iterator[Returned]:
    """Yield the result of every item in order; `seconds` is the limit for one. `places` are the
    indices of the items to run in this call, all by default. The next index is taken when the item
    before has ended. The child `yields` the processor by so many steps of niceness.
    """
    raised = nursery()
    begin = partial(raised.begin if raised else _python, environment or {})
    at_work: _ChildAtWork | None = None
    try:
        for place in range(len(items)) if places is None else places:
            at_work = at_work or _ChildAtWork(
                begin, {"work": work, "items": items, "yields": yields}
            )
            yield at_work.answer(place, seconds)
            if at_work.is_through:
                at_work.end()
                at_work = None
    finally:
        if at_work is not None:
            at_work.end()


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
    work: str,
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

        # A chain of few lanes ends last, and goes first: the items of many go on side by side.
        limits: Mapping[str, Any] = {"seconds": seconds, "environment": environment}
        try:
            lane = each_in_a_child(work, items, places=places(), yields=count - 1, **limits)
            for returned in lane:
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


def run_job(job: Path) -> None:
    """The child's side: work on the job's items, each when its place is read. The threads of
    several children would wait for each other.
    """
    faulthandler.enable()
    job_document = pickle.loads(job.read_bytes())  # noqa: S301 - of the process that began this one
    os.nice(job_document["yields"])
    module, _, name = job_document["work"].partition(":")
    work: Callable[[Any], Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    if find_spec("habana_frameworks") is not None:
        # `torch.hpu` is there only after that, and a child begins without it.
        importlib.import_module("habana_frameworks.torch.core")
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    if torch.version.cuda:
        sleep_while_waiting()
    # A fork of the fork server has none of the session's settings.
    importlib.import_module("warpfront_checks.precision").require_full_precision()
    with (
        job_document["places"].open("rb", buffering=0) as places,
        job_document["answers"].open("wb", buffering=0) as answers,
    ):
        for place in places:
            document = work(job_document["items"][int(place)])
            line = json.dumps({"document": document, "last": bool(_LEAVES)}, default=str)
            answers.write(line.encode() + b"\n")
            if _LEAVES:
                return


def sleep_while_waiting() -> None:
    """Let this process sleep, not spin, while it waits for an NVIDIA GPU: lanes share the cores.
    It must not have a context there yet.
    """
    with contextlib.suppress(OSError):
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxSetFlags(0, _BLOCKING_SYNC)


def _python(environment: Mapping[str, str], job: Path, log: Any) -> Child:
    return subprocess.Popen(
        [sys.executable, "-m", "warpfront_checks.children", str(job)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


class _ChildAtWork:
    """A child with its pipes. It `is_through` after an item over which it ended, or was ended."""

    def __init__(self, begin: Callable[..., Child], job: Mapping[str, Any]) -> None:
        self.is_through = False
        self._items, self._kept, self._start = job["items"], b"", START_SECONDS
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            paths = {pipe: folder / pipe for pipe in _PIPES}
            for path in paths.values():
                os.mkfifo(path)
            # Read and write, so that opening does not wait for the child, and it sees their end.
            self._writing, self._reading = (
                stack.enter_context(path.open("r+b", buffering=0)) for path in paths.values()
            )
            (folder / "job").write_bytes(pickle.dumps({**job, **paths}))
            self._log = stack.enter_context((folder / "said").open("w+b"))
            self._child = begin(folder / "job", self._log)
            self._stack = stack.pop_all()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._stack.close()

    def answer(self, place: int, seconds: float) -> Returned:
        """Return what comes of an item. Libraries load and profilers start with the first."""
        start = time.monotonic()
        self._writing.write(b"%d\n" % place)
        line = self._line(start + max(self._start, seconds))
        spent, self._start = time.monotonic() - start, 0.0
        returned = partial(Returned, item=self._items[place], place=place, seconds=spent)
        if line:
            self.is_through = bool(line.get("last"))
            return returned(outcome=DONE, document=line["document"])
        self.is_through, outcome = True, CRASHED
        if line is not None:
            reason = "what it answered cannot be read"
        elif (code := self._child.poll()) is None:
            outcome, reason = HUNG, f"no answer in {spent:.0f} s"
        else:
            # The signal or the exit code, and the child's last line.
            ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
            log = Path(self._log.name).read_bytes()[-_SAID_BYTES:].decode("utf-8", "replace")
            text = log.strip().splitlines()
            why = [line for line in text if line.startswith(("Fatal", "RuntimeError", "terminate"))]
            reason = ": ".join([ending, *(why[:1] or text[-1:])])[:400]
        return returned(outcome=outcome, document={}, reason=reason)

    def _line(self, until: float) -> dict[str, Any] | None:
        """Return a whole line of the child, while it lives and until a time; {} for one that no
        child of ours writes: a library may write to any file.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._reading, selectors.EVENT_READ)
            while b"\n" not in self._kept and len(self._kept) <= _LONGEST_BYTES:
                exited = self._child.poll() is not None
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


CHILD = "warpfront_checks.children:find_out"
SECONDS = 300.0
# A function, its arguments, and the effort.
Item = tuple[str, Mapping[str, Any], CheckOptions]
# Other sessions run too, and each lane has a context and its tensors on the device.
CORES_A_LANE, BYTES_A_LANE, MOST_LANES = 2, 4 << 30, 5


def lanes_for(device: str, *, times: float = 1.0) -> int:
    """Return the number of parallel lanes: none on few cores, or where a device may be one
    process's alone. Work that would end last gets a multiple.
    """
    if device != "cuda" or (cores := len(os.sched_getaffinity(0))) < 2 * CORES_A_LANE:
        return 0
    most = int(min(MOST_LANES, cores // CORES_A_LANE) * times)
    return min(most, max(1, memory_of_gpu() // BYTES_A_LANE))


def memory_of_gpu() -> int:
    """Return bytes of the GPU that sessions compute on."""
    torch: Any = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).total_memory)


def begin_checks(
    find: str,
    calls: Mapping[str, Mapping[str, object]],
    effort: CheckOptions,
    *,
    lanes: int,
) -> Mapping[str, Find]:
    """Begin a check for each name, in order. `find` is `module:function` below this package, called
    with the name's arguments and the effort. Without lanes each is found out by this process.
    """
    items: Mapping[str, Item] = {name: (find, dict(call), effort) for name, call in calls.items()}
    if not lanes:
        return {name: partial(_found, *item) for name, item in items.items()}
    children = begin_beside(CHILD, [*items.values()], lanes=lanes, seconds=SECONDS)
    return {
        name: partial(_finding_of, answer)
        for name, answer in zip(items, children.answers, strict=True)
    }


def _finding_of(answer: Future[Returned]) -> CheckFinding:
    return answer.result().finding()


def _found(find: str, arguments: Mapping[str, Any], effort: CheckOptions) -> CheckFinding:
    module, _, name = find.partition(":")
    function = getattr(importlib.import_module(f"warpfront_checks.{module}"), name)
    finding: CheckFinding = function(**arguments, effort=effort)
    return finding


def find_out(item: Item) -> Mapping[str, Any]:
    """Make a check in the child."""
    return vars(_found(*item))


_CHILD_SUBREAPER, _DIE_WITH_PARENT = 36, 1
# CU_CTX_SCHED_BLOCKING_SYNC of cuda.h.
_BLOCKING_SYNC = 4
_OPEN: list[Nursery] = []


class Nursery:
    """This process's side: asks for children, one after the other."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._pipe, theirs = Pipe()
        pid = os.getpid()

        def serve() -> int:
            self._pipe.close()
            _serve(theirs, pid)
            return 0

        self._pid = fork(serve)
        theirs.close()

    def end(self) -> None:
        self._pipe.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def begin(self, environment: Mapping[str, str], job: Path, log: Any) -> Any:
        with self._asking:
            self._pipe.send(({**environment}, job, log.name))
            return Adopted(self._pipe.recv())


class Adopted:
    """The part of `subprocess.Popen` in use, for a process that another process began."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        return self._reap(0) or 0

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


Child = Adopted | subprocess.Popen[bytes]


@contextlib.contextmanager
def open_nursery() -> Iterator[None]:
    """Within it this process has a fork server, which begins before a driver and before threads.
    Where the system has no such thing, children begin as before.
    """
    before = len(_OPEN)
    with contextlib.suppress(AttributeError, OSError):
        if ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
            _OPEN.append(Nursery())
    try:
        yield
    finally:
        for nursery in _OPEN[before:]:
            nursery.end()
        del _OPEN[before:]


def nursery() -> Nursery | None:
    return _OPEN[-1] if _OPEN else None


def _serve(asking: Any, session: int) -> None:
    """Begin children until the session closes its end, or is gone. Each is a grandchild, whose
    parent has ended by then.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)

    def begin(environment: Mapping[str, str], job: Path, path: str) -> int:
        reading, writing = os.pipe()

        def child() -> int:
            asking.close()
            for descriptor in (reading, writing):
                os.close(descriptor)
            with open(os.devnull, "rb") as nothing, open(path, "ab") as log:  # noqa: PTH123
                # As a Python of its own would begin.
                os.setsid()
                for stream, file in enumerate((nothing, log, log)):
                    os.dup2(file.fileno(), stream)
            os.environ.update(environment)
            run_job(job)
            return 0

        os.waitpid(fork(lambda: 0 * os.write(writing, b"%d" % fork(child))), 0)
        os.close(writing)
        with os.fdopen(reading, "rb") as reply:
            return int(reply.read())

    if os.getppid() == session:
        with contextlib.suppress(EOFError):
            while True:
                asking.send(begin(*asking.recv()))


def fork(work: Callable[[], int]) -> int:
    """Return the new process, which ends with what `work` returns: nothing of the parent's goes
    on there, nor is ended there a second time. What escapes `work` is printed, and it ends with 1,
    as a Python does that ends by an exception.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - as Python ends a process: the words, and 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    # By its name: the work may import it, too.
    importlib.import_module("warpfront_checks.children").run_job(Path(sys.argv[1]))
    sys.stdout.flush()
    # A library's threads and caches are not waited for.
    os._exit(0)
