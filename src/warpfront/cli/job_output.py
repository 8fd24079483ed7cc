"""Output of a job of GitHub Actions, where a line of text may be a command to the runner."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TextIO

from warpfront.system.process import environment
from warpfront_checks.guard.visible import VisibleStream, terminal_of, visible, visible_output

# Commands as the runner reads them (src/Runner.Common/ActionCommand.cs of actions/runner 079cdb1d):
# `::` after any white space at the start of a line, `##[` anywhere in it.
_COMMAND = re.compile(r"\A\s*::|##\[")


def without_commands(text: str) -> str:
    """Return the text with a space in each mark by which the runner knows a command."""
    return "\n".join(_inert(line) for line in text.split("\n"))


class JobStream(VisibleStream):
    """A stream that writes `visible` text, free of runner commands however the text is split.
    Warpfront's own commands go to its `terminal`.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__(terminal)
        self._line = ""

    def write(self, text: str) -> int:
        """Write the text; its length is returned."""
        # A carriage return ends a line of a log, too.
        for piece in re.split(r"(?<=[\n\r])", text):
            super().write(_inert(piece, after=self._line))
            self._line = "" if piece.endswith(("\n", "\r")) else self._line + piece
        return len(text)


def shown(message: str) -> str:
    """Return a message as it may be printed past the streams of `job_output`."""
    return without_commands(visible(message)) if _is_job() else visible(message)


@contextlib.contextmanager
def job_output() -> Iterator[None]:
    """Within it, all that this process prints is `visible`, and in a job no command."""
    with visible_output():
        before = sys.stdout, sys.stderr
        if _is_job():
            sys.stdout, sys.stderr = (JobStream(terminal_of(stream)) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _is_job() -> bool:
    return environment().get("GITHUB_ACTIONS") == "true"


def _inert(piece: str, after: str = "") -> str:
    """`piece` of a line, whose text so far is `after`."""
    ends = (match.end() - 1 - len(after) for match in _COMMAND.finditer(after + piece))
    for end in sorted((end for end in ends if end >= 0), reverse=True):
        piece = f"{piece[:end]} {piece[end:]}"
    return piece
