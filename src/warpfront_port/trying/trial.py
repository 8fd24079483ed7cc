"""What came of running a program of a project in an image. Words."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A module that was not found, or a distribution of which only the name is known (`module`
    ""), and the line that asked for it.
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
    def asked(self) -> str:
        """What `--provides` calls it: an identifier, also for a distribution."""
        return self.top or self.distribution.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissAnswer:
    """What was missing, and what is to be had for it: `requirement` at its `version`, which leaves
    the image's torch as it is, with `brings` more wheels; or `refusal`, why nothing is. `folder` is
    where the project itself has it. `replaces` is the newer version that lacks the module.
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
        """The line of a requirements file: the version found, or the releases that do."""
        return self.requirement if self.replaces else f"{self.requirement_name}=={self.version}"

    @property
    def requirement_name(self) -> str:
        """With its extras, without its versions: these are what was found."""
        return re.split(r"[\s<>=!~;]", self.requirement, maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One program in one image. `exit_code` and `tail` are those of the last of `runs`, None where
    it was stopped at its time. `torch` is the image's; `by_hand` runs it there without us.
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
        """The program as one could type it, in one line."""
        text = " ".join(shlex.join(self.argv).split())
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    @property
    def way_out(self) -> str:
        """What to do about a program that no missing module ended."""
        if "Read-only file system" in self.tail:
            inside = f"cp -r . /tmp/app && cd /tmp/app && exec {shlex.join(self.argv)}"
            return (
                "the project is read-only: have it write to /tmp, or run it in a copy: "
                f"-- sh -c {shlex.quote(inside)}"
            )
        if "warpfront guard: torch" in self.tail:
            return "rename what the project calls torch, or leave its folder off the search path"
        if self.exit_code is None:
            return "--seconds gives it longer; fewer steps show as much"
        return "the container has no network, and the project is read-only: write to /tmp"

    @property
    def lacking(self) -> tuple[str, ...]:
        """What it was without in the last run."""
        return tuple(
            answer.miss.module or answer.miss.distribution
            for answer in self.found
            if not answer.folder and not (answer.version and self.installed)
        )

    @property
    def requirements(self) -> tuple[str, ...]:
        """What the image needs more, at the versions that were found."""
        return tuple(sorted(answer.line for answer in self.wanted))

    @property
    def wanted(self) -> tuple[MissAnswer, ...]:
        return tuple(answer for answer in self.found if answer.version)
