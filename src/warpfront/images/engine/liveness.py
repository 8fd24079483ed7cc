"""Identity of a process and whether it lives: another process may have its pid now. Edge."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

_STATE_FIELD, _START_FIELD = 0, 19  # of /proc/<pid>/stat behind the name; proc(5) counts from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, distinct from every other one: `started` in clock ticks since `boot`.

    `namespace` is the pid namespace of `pid`; `host` the machine's name.
    """

    pid: str
    started: str
    boot: str
    namespace: str
    host: str

    def is_gone(self) -> bool:
        """True only where that is known: in this pid namespace, or an earlier boot of this host."""
        ours = identity(os.getpid())
        assert ours is not None
        if self.boot != ours.boot:
            return self.host == ours.host
        if self.namespace != ours.namespace:
            return False
        current = identity(int(self.pid)) if self.pid.isdigit() else None
        return current is None or current.started != self.started

    def as_mapping(self) -> dict[str, str]:
        return asdict(self)


def identity(pid: int) -> ProcessIdentity | None:
    """Return the living process `pid` of this machine; None for none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    values = fields.rpartition(")")[2].split()
    if values[_STATE_FIELD] in "ZX":
        return None
    return ProcessIdentity(
        pid=str(pid),
        started=values[_START_FIELD],
        boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        namespace=namespace,
        host=socket.gethostname(),
    )


def read_identity(mapping: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the identity in a mapping of `as_mapping`, or None if a part is missing."""
    names = ("pid", "started", "boot", "namespace", "host")
    if not all(mapping.get(name) for name in names):
        return None
    return ProcessIdentity(**{name: mapping[name] for name in names})
