"""Blobs linked into the store of an engine of our own, which then receives none of them. Edge.

containerd has one file per digest: a blob whose file exists counts as written. A linked blob is
adopted by the first build on it, and collected if no build uses it; later builds send it as to
any other engine.
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
    """Link `blobs` into `folder`, which may be below a mount of `mounted` on itself. Existing
    and impossible links are skipped. Their names are trusted: nothing hashes them again.
    """
    argv = ("unshare", "--mount", "sh", "-c", _LINKS, str(mounted), str(folder))
    with contextlib.suppress(CommandFailedError):  # no such program
        run(Command(argv=(*argv, *map(str, blobs))))
