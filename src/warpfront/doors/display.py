"""What people see while something runs: live lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from warpfront.report.sizes import readable_size

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_PLAIN_EVERY_SECONDS = 5.0
_PLAIN_WIDTH = 120


class Display:
    """A `pipeline.Watch` on stderr, so that stdout stays free for `--json`.

    rich is loaded for a terminal only: it takes a tenth of a second, of the one that a build with
    nothing to do takes (docs/performance.md).
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._transfers: dict[str, tuple[int, int]] = {}
        self._steps: dict[str, tuple[str, float]] = {}
        self._said: dict[str, float] = {}
        self._lock = threading.RLock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._live = self._made_live()
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        with self._lock:
            if self._live is None:
                print(text, file=self._stream, flush=True)
            else:
                self._live.console.print(text, soft_wrap=True, markup=False)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        with self._lock:
            if done_bytes >= total_bytes:
                self._transfers.pop(what, None)
                self.say(f"fetched {what} ({readable_size(total_bytes)})")
                return
            self._transfers[what] = (done_bytes, total_bytes)
            share = f"{readable_size(done_bytes)} of {readable_size(total_bytes)}"
            self._plain(what, f"fetching {what}: {share}")

    def step(self, cell_id: str, text: str) -> None:
        with self._lock:
            if not text:
                self._steps.pop(cell_id, None)
                return
            shown = " ".join(text.split())
            self._steps[cell_id] = (shown, monotonic())
            if self._live is None:
                self.say(f"{cell_id}: {shown[:_PLAIN_WIDTH]}")

    def _plain(self, key: str, text: str) -> None:
        """Without a terminal: one line a key every few seconds."""
        if self._live is None and monotonic() - self._said.get(key, 0.0) > _PLAIN_EVERY_SECONDS:
            self._said[key] = monotonic()
            self.say(text)

    def _made_live(self) -> Live:
        from rich.console import Console  # noqa: PLC0415 - see the class
        from rich.live import Live  # noqa: PLC0415 - see the class

        return Live(
            get_renderable=self._panel,
            console=Console(file=self._stream, highlight=False),
            refresh_per_second=4,
            transient=True,
        )

    def _panel(self) -> Table:
        from rich.table import Table  # noqa: PLC0415 - see the class
        from rich.text import Text  # noqa: PLC0415 - see the class

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for cell_id, (text, since) in self._steps.items():
                elapsed = f"{monotonic() - since:.0f} s"
                table.add_row(Text(cell_id, style="cyan"), elapsed, Text(text, overflow="ellipsis"))
            for what, (done, total) in self._transfers.items():
                share = f"{readable_size(done)} / {readable_size(total)}"
                table.add_row(Text(what, style="cyan"), f"{100 * done // total} %", share)
        return table
