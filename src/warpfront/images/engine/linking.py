"""Blobs linked into the store of an engine of our own, which then is sent none of them. Edge.

containerd has one file for a digest, whoever asks for it: a blob that somebody is about to write
and whose file is there counts as written. So what is linked in is taken up when a build first
stands on it, and swept away by the next collection if none does; then it is sent, as to any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from warpfront.errors import CommandFailedError
from warpfront.system.process import Command, run

# dockerd mounts its folder on itself where the machine's root is not shared, and no link leads into
# a mount: in a namespace of our own it is taken away. Where one may not do that, nothing is linked.
_LINKS = 'umount --lazy "$0" 2>/dev/null; to=$1; shift; for one do ln "$one" "$to/"; done'


def link_blobs(blobs: Iterable[Path], folder: Path, *, mounted: Path) -> None:
    """Link `blobs` into `folder`, which may lie below a mount of `mounted` on itself. Those that
    are there, or cannot be, are left. Nobody hashes them again: their names have to be true.
    """
    argv = ("unshare", "--mount", "sh", "-c", _LINKS, str(mounted), str(folder))
    with contextlib.suppress(CommandFailedError):  # no such program
        run(Command(argv=(*argv, *map(str, blobs))))
