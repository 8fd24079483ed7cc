"""The state of a cell's lock: missing, stale or fresh. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from warpfront.step_results import Blocked, Failed
from warpfront.wheels.lock.values import WheelLock

NEVER_BUILT = "never built: it has no lock yet"
"""What a lock's absence says, for locks are committed: nobody has resolved the cell from a real
index.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """The state of a cell's lock before resolving. `reason` is why it is not usable, else "";
    `fault` is why none can be made of the project's files.
    """

    lock: WheelLock | None
    reason: str
    fault: Blocked | Failed | None = None
