"""Inside a running pip: it is explained when it refuses, and stopped when it goes back too far."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .going_back import Releases
from .policy import GuardError, read_policy
from .refusal import explanation, going_back, stopped


class _Listener(logging.Handler):
    """Keeps pip's messages about conflicts, which it writes for people, in no other form."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or "conflict is caused by" in str(record.msg):
            self.messages.append(record.getMessage())


def listen_to_pip(folder: str | Path) -> None:
    """Explain at the end of this pip what it refused because of the guard. The handler sits above
    pip's own loggers, which it makes and sets up itself.
    """
    listener = _Listener()
    logging.getLogger("pip._internal").addHandler(listener)
    atexit.register(_explain_at_exit, listener, Path(folder))


def _explain_at_exit(listener: _Listener, folder: Path) -> None:
    if not listener.messages or sys.stderr is None or sys.stderr.closed:
        return
    try:
        policy = read_policy(folder / "policy.json")
    except GuardError as error:
        sys.stderr.write(f"warpfront guard: {error}\n")
        return
    sys.stderr.write(explanation("\n".join(listener.messages), policy))


def watch_releases(candidates: ModuleType, folder: str | Path) -> None:
    """Look at every release that this pip's resolver considers, by its metadata: `candidates`
    is pip's own module of them. Report the first step back at once; too many are an error of pip's.
    """
    releases = Releases(policy=read_policy(Path(folder) / "policy.json"))
    kind: Any = candidates._InstallRequirementBackedCandidate  # noqa: SLF001 - pip has no hook for this
    real, reported = kind.iter_dependencies, set()

    def iter_dependencies(self: Any, with_requires: bool, *rest: Any) -> Iterable[Any]:  # noqa: FBT001 - pip's
        name, number = str(self.project_name), str(self.version)
        if with_requires:
            releases.add(name, number, [str(need) for need in self.dist.iter_dependencies()])
        if text := stopped(releases, name, number):
            error: Any = sys.modules["pip._internal.exceptions"]  # of the pip that runs
            raise error.InstallationError(f"{name} goes back to {number}\n{text.rstrip()}")
        if name not in reported and (text := going_back(releases, name, number)):
            reported.add(name)
            sys.stderr.write(text)
        dependencies: Iterable[Any] = real(self, with_requires, *rest)
        return dependencies

    kind.iter_dependencies = iter_dependencies
