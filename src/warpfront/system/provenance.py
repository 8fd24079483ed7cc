"""The time and commit of a build: the one place that asks the clock and git for it. Edge."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from pathlib import Path

from warpfront.errors import CommandFailedError
from warpfront.system.process import Command, Run, environment
from warpfront.system.tree_files import Provenance


def read_provenance(root: Path, run: Run) -> Provenance:
    """Now (or `SOURCE_DATE_EPOCH`, https://reproducible-builds.org/specs/source-date-epoch/) and
    the commit checked out at `root`; the revision is "" where there is no repository.
    """
    created = fixed_moment() or datetime.now(UTC).isoformat(timespec="seconds")
    revision = ""
    with contextlib.suppress(CommandFailedError):
        git = run(Command(argv=("git", "rev-parse", "HEAD"), cwd=root, timeout_seconds=10))
        revision = git.stdout.strip() if git.returncode == 0 else ""
    return Provenance(created=created, revision=revision)


def fixed_moment() -> str:
    """Return `SOURCE_DATE_EPOCH` as RFC 3339; "" if it is not set."""
    epoch = environment().get("SOURCE_DATE_EPOCH", "")
    if not re.fullmatch(r"[0-9]{1,11}", epoch):
        return ""
    return datetime.fromtimestamp(int(epoch), UTC).isoformat(timespec="seconds")


def now() -> str:
    """Return the current time as RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
