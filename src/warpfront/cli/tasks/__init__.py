"""The commands of warpfront, by family. A project's `tasks.py` imports invoke's `namespace`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invoke.collection import Collection

    namespace: Collection


def __getattr__(name: str) -> Collection:
    """Return `namespace`, made when it is first used: `warpfront` itself needs no invoke."""
    if name != "namespace":
        raise AttributeError(name)
    from warpfront.cli.invoke_tasks import tasks_of
    from warpfront.cli.loading import declared_in, modules_for

    globals()[name] = namespace = tasks_of(declared_in(modules_for(sys.argv)))
    return namespace
