"""The one way detection looks at a machine: files, device nodes, programs and the environment.

Everything that detection knows without torch comes through a `Machine`, so a recorded one
(`recording.py`) is detected by the same code as this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Tools ask drivers, and a broken driver does not answer; rocminfo also queues behind other users.
PATIENCE_SECONDS = 20.0
# Ours, by the name that recordings know it by.
_OWN_PROGRAMS = {"warpfront-nvml": (sys.executable, str(Path(__file__).with_name("nvml.py")))}


@dataclass(frozen=True, kw_only=True)
class ProgramOutput:
    """The output of a program. `status` is None if it did not run or end; `complaint` is why."""

    status: int | None
    output: str = ""
    complaint: str = ""

    @property
    def text(self) -> str:
        """Return the output of a program that succeeded; else ""."""
        return self.output if self.status == 0 else ""


class Machine:
    """This machine. Nothing here changes it or raises for what is missing."""

    root = Path("/")

    @cached_property
    def environment(self) -> Mapping[str, str]:
        return dict(os.environ)

    def text(self, path: str) -> str | None:
        """Return a file's text, or None where it cannot be read."""
        try:
            return self._place(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        try:
            return tuple(sorted(entry.name for entry in self._place(path).iterdir()))
        except OSError:
            return ()

    def _place(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def access(self, path: str) -> bool | None:
        """Return whether this process may read and write a device node, None without one: by
        permission bits only, for opening a Gaudi's would take it from another process.
        """
        place = Path(path)
        return os.access(path, os.R_OK | os.W_OK) if place.is_char_device() else None

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        """Return the output of a program."""
        program = (*_OWN_PROGRAMS.get(argv[0], argv[:1]), *argv[1:])
        try:
            completed = subprocess.run(
                program,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            return ProgramOutput(status=None, complaint="not found")
        except OSError as error:
            return ProgramOutput(status=None, complaint=f"cannot be run: {error.strerror}")
        except subprocess.TimeoutExpired:
            return ProgramOutput(status=None, complaint=f"no answer in {PATIENCE_SECONDS:g} s")
        complaint = completed.stderr.strip()[-500:]
        return ProgramOutput(
            status=completed.returncode, output=completed.stdout, complaint=complaint
        )
