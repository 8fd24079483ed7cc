"""The result of running a program of a project in an image. Words."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A missing module, or a distribution of which only the name is known (`module` ""), and
    the line that required it.
    """

    module: str
    distribution: str = ""
    path: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.path else ""

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def name(self) -> str:
        return self.module or self.distribution

    @property
    def asked(self) -> str:
        """Return the name for `--provides`: an identifier, also for a distribution."""
        return self.top or self.distribution.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissAnswer:
    """An answer to a miss: a requirement that brings it, or the refusal with its reason.

    `requirement` at its `version` keeps the image's torch, and adds `brings` more wheels.
    `folder` is the project's own folder with the module. `replaces` is the newer version that
    lacks the module.
    """

    miss: Miss
    requirement: str = ""
    said_by: str = ""
    version: str = ""
    brings: int = 0
    size_bytes: int = 0
    refusal: str = ""
    hint: str = ""
    folder: str = ""
    replaces: str = ""

    @property
    def line(self) -> str:
        """Return the line of a requirements file: the chosen version, or the releases that
        have the module.
        """
        return self.requirement if self.replaces else f"{self.requirement_name}=={self.version}"

    @property
    def requirement_name(self) -> str:
        """Return the requirement with its extras, without its versions."""
        return re.split(r"[\s<>=!~;]", self.requirement, maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial of one program in one image.

    `exit_code` and `tail` are those of the last of `runs`, None where the time limit stopped it.
    `torch` is the image's; `by_hand` runs the program there without warpfront.
    """

    cell_id: str
    image: str
    torch: str
    argv: tuple[str, ...]
    runs: int
    exit_code: int | None
    tail: str
    found: tuple[MissAnswer, ...] = ()
    installed: bool = False
    by_hand: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return self.exit_code == 0

    @property
    def said(self) -> str:
        """Return the program as one could type it, in one line."""
        text = " ".join(shlex.join(self.argv).split())
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    @property
    def way_out(self) -> str:
        """Return the next step for a program that failed without a missing module."""
        if "Read-only file system" in self.tail:
            inside = f"cp -r . /tmp/app && cd /tmp/app && exec {shlex.join(self.argv)}"
            copy = f"run it in a copy: -- sh -c {shlex.quote(inside)}"
            return f"the project is read-only: have it write to /tmp, or {copy}"
        if "warpfront guard: torch" in self.tail:
            return "rename what the project calls torch, or leave its folder off the search path"
        if self.exit_code is None:
            return "--seconds gives it longer; fewer steps show as much"
        return "the container has no network, and the project is read-only: write to /tmp"

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the modules that the program lacked in the last run."""
        open_ones = (a for a in self.found if not (a.folder or (a.version and self.installed)))
        return tuple(answer.miss.name for answer in open_ones)

    @property
    def requirements(self) -> tuple[str, ...]:
        """Return the requirements to add to the image, at the versions of the answers."""
        return tuple(sorted(answer.line for answer in self.wanted))

    @property
    def wanted(self) -> tuple[MissAnswer, ...]:
        return tuple(answer for answer in self.found if answer.version)
