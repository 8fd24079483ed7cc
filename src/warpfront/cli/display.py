"""Progress as live lines on a terminal, and as plain lines in other streams; a command's result."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TextIO

from warpfront.errors import without_secrets
from warpfront.system.texts import readable_seconds, readable_size
from warpfront_checks.guard.visible import terminal_of, visible

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

_PLAIN_EVERY_SECONDS = 30.0
_REMINDER_SECONDS = 5.0
_PLAIN_WIDTH = 120
_TELLING_SECONDS = 1.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")


def text_width() -> int:
    """Return the width of lines without a terminal: COLUMNS, or 120."""
    return shutil.get_terminal_size((_PLAIN_WIDTH, 25)).columns


@dataclass(slots=True, kw_only=True)
class _ShownLine:
    text: str
    since: float
    printed_at: float
    line: str = ""


@dataclass(slots=True, kw_only=True)
class _Transfer:
    """`begun_bytes` were there before it: they say nothing of its rate."""

    since: float
    begun_bytes: int
    printed_at: float
    done_bytes: int = 0
    total_bytes: int = 0

    def rate(self, now: float) -> str:
        """`, 12 MB/s`, once there is something to tell it from."""
        seconds = now - self.since
        if seconds < _TELLING_SECONDS:
            return ""
        return f", {readable_size(int((self.done_bytes - self.begun_bytes) / seconds))}/s"

    def share(self, now: float) -> str:
        part = f"{readable_size(self.done_bytes)} of {readable_size(self.total_bytes)}"
        return f"{100 * self.done_bytes // max(self.total_bytes, 1)} %, {part}{self.rate(now)}"


class Volume(StrEnum):
    """How much a command prints of its progress: `--quiet`, nothing; `--verbose`, every line."""

    NORMAL = "normal"
    QUIET = "quiet"
    VERBOSE = "verbose"


class Display:
    """A `pipeline.Watch` on stderr, and the result of a command for stdout.

    rich is loaded for a terminal only, and when something runs there: it takes a tenth of a second,
    of the one that a build with nothing to do takes (docs/performance.md). The live lines end with
    what they are about, so that a result may be printed to the same terminal.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
        volume: Volume = Volume.NORMAL,
        *,
        as_json: bool = False,
    ) -> None:
        self._volume = volume
        self._as_json = as_json
        self._value: Any = None
        self._printed_lines: list[str] = []
        self._stream = stream or sys.stderr
        self._clock = clock
        self._start = clock()
        self._transfers: dict[str, _Transfer] = {}
        self._steps: dict[str, _ShownLine] = {}
        self._said: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._live: Live | None = None
        # Live lines are for the one volume between nothing and everything.
        self._is_terminal = self._stream.isatty() and volume is Volume.NORMAL
        self._ended = threading.Event()
        self._reminder: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with self._lock:
            self._steps.clear()
            self._transfers.clear()
            self._show()

    def result(self, value: object, text: str | Callable[[], object] = "") -> None:
        """Take a command's result: `value` for `--json`, else print `text`, or call what prints."""
        if self._as_json:
            self._value = value
        elif callable(text):
            text()
        else:
            print(text, end="")

    @property
    def has_result(self) -> bool:
        return self._value is not None

    @property
    def document(self) -> object:
        """Return the result as JSON has it; without one, the lines that were printed."""
        return self._value if self.has_result else {"lines": self._printed_lines}

    def say(self, text: str) -> None:
        """Print a line on stderr; it is the result of a command that has no other."""
        if self._as_json:
            self._printed_lines.append(without_secrets(text))
        self._print(text)

    def _print(self, text: str) -> None:
        text = visible(without_secrets(text))
        with self._lock:
            if self._live is None:
                print(text, file=self._stream, flush=True)
            else:
                self._live.console.print(text, soft_wrap=True)

    def advance(self, transfer_name: str, done_bytes: int, total_bytes: int) -> None:
        with self._lock:
            now = self._clock()
            new_transfer = _Transfer(since=now, begun_bytes=done_bytes, printed_at=now)
            transfer = self._transfers.setdefault(transfer_name, new_transfer)
            transfer.done_bytes, transfer.total_bytes = done_bytes, total_bytes
            is_over = done_bytes >= total_bytes
            if is_over:
                del self._transfers[transfer_name]
            self._show()
            is_due = now - transfer.printed_at >= _PLAIN_EVERY_SECONDS
            if total_bytes and is_over:
                rate = transfer.rate(now)
                seconds = f" in {readable_seconds(now - transfer.since)}{rate}" if rate else ""
                self._say_briefly(f"{readable_size(total_bytes)}{seconds}: {transfer_name}")
            elif total_bytes and not self._is_terminal and is_due:
                transfer.printed_at = now
                self._say_briefly(f"{transfer.share(now)}: {transfer_name}")

    def step(self, cell_id: str, text: str) -> None:
        with self._lock:
            if not text:
                self._steps.pop(cell_id, None)
                self._show()
                return
            line = _one_line(text)
            now = self._clock()
            self._steps[cell_id] = _ShownLine(text=line, since=now, printed_at=now)
            self._show()
            if not self._is_terminal and self._reminder is None:
                self._reminder = threading.Thread(target=self._keep_reminding, daemon=True)
                self._reminder.start()
            if not self._is_terminal and (cell_id, line) not in self._said:
                self._said.add((cell_id, line))
                self._say_briefly(f"{cell_id}: {line}")

    def line(self, cell_id: str, text: str) -> None:
        running, previous = self._steps.get(cell_id), _one_line(text)
        if previous and self._volume is Volume.VERBOSE:
            self._print(f"{cell_id}: {previous}")
        if running is not None and previous:
            running.line = previous

    def _keep_reminding(self) -> None:
        while not self._ended.wait(_REMINDER_SECONDS):
            self.remind()

    def remind(self) -> None:
        """Print the last line of each step that printed nothing for 30 s."""
        with self._lock, contextlib.suppress(OSError, ValueError):  # its reader has gone
            now = self._clock()
            for cell_id, step in tuple(self._steps.items()):
                if now - step.printed_at >= _PLAIN_EVERY_SECONDS:
                    step.printed_at = now
                    line = f": {step.line}" if step.line else ""
                    self._say_briefly(f"{cell_id}: {step.text}{line}")

    def _say_briefly(self, text: str) -> None:
        """Print one line that fits, with the time since this display began."""
        if self._volume is Volume.QUIET:
            return
        line = f"{readable_seconds(self._clock() - self._start):>9}  {text}"
        width = self._live.console.width if self._live is not None else text_width()
        self._print(line if len(line) <= width else f"{line[: width - 3]}...")

    def _show(self) -> None:
        """Live lines while something runs, on a terminal."""
        is_busy = bool(self._steps or self._transfers)
        if self._is_terminal and is_busy and self._live is None:
            from rich.live import Live  # noqa: PLC0415 - see the class

            from warpfront.report.text import plain_console  # noqa: PLC0415 - see the class

            self._live = Live(
                get_renderable=self.panel,
                # It draws; every text that comes here is visible.
                console=plain_console(terminal_of(self._stream)),
                refresh_per_second=4,
                transient=True,
                # What is printed to stdout belongs there, also while this terminal is watched.
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        elif not is_busy and self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def panel(self) -> Group:
        """Return a line or three for each running step. rich's thread calls it with rich's lock:
        our lock would deadlock with a thread that prints.
        """
        from rich.console import Group  # noqa: PLC0415 - see the class
        from rich.text import Text  # noqa: PLC0415 - see the class

        lines = self._lines(self._clock())
        texts = (Text(text, style, no_wrap=True, overflow="ellipsis") for text, style in lines)
        return Group(*texts)

    def _lines(self, now: float) -> Iterator[tuple[str, str]]:
        for cell_id, step in tuple(self._steps.items()):
            yield f"{readable_seconds(now - step.since):>9}  {cell_id}", "cyan"
            yield f"{'':9}  {step.text}", ""
            if step.line:
                yield f"{'':9}  {step.line}", "dim"
        for transfer_name, transfer in tuple(self._transfers.items()):
            yield f"{transfer.share(now):>32}  {transfer_name}", ""


def _one_line(text: str) -> str:
    """Foreign text as one line of a terminal: without colours, as it was drawn last."""
    last = without_secrets(_ESCAPES.sub("", text).rstrip().rpartition("\r")[2])
    return visible(" ".join(last.split()))
