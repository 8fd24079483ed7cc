"""Assignment of images to builders: a chain goes to the builder with its layers from last time,
by its fingerprint alone. It goes to another only where a builder would be idle. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warpfront.matrix.runners import BuildNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A chain of images that one builder makes, parents first. `fingerprint` is the digest of
    its base; `size_bytes` is the room that it takes while it is built. `made_on` is the node that
    has all of it already, from before.
    """

    name: str
    machine: str
    fingerprint: str
    size_bytes: int
    cells: tuple[str, ...]
    made_on: str = ""


@dataclass(slots=True, kw_only=True)
class Pool:
    """Living builders and what they have to do. `waiting` goes from the largest; `running` maps a
    load to the node that has it.
    """

    nodes: list[BuildNode]
    waiting: list[Load]
    running: dict[Load, BuildNode] = field(default_factory=dict)

    def begin(self) -> Iterator[tuple[Load, BuildNode]]:
        """Start every load that can be, and yield each with its node."""
        while assignment := self._next():
            load, node = assignment
            self.waiting.remove(load)
            self.running[load] = node
            yield assignment

    def lose(self, node: BuildNode) -> None:
        """Take a node out whose engine is gone: its loads wait for the others."""
        self.nodes.remove(node)
        back = [load for load, other in self.running.items() if other == node]
        for load in back:
            del self.running[load]
        self.waiting = _largest_first([*self.waiting, *back])

    def _next(self) -> tuple[Load, BuildNode] | None:
        """Return the next load and its node: first each node's own; then, for an idle node, the
        load that is furthest from its turn.
        """
        busy = [*self.running.values()]
        free = [node for node in self.nodes if busy.count(node) < node.slots]
        if not free:
            return None
        for load in self.waiting:
            home = self._home(load)
            if home in free and self._has_room(home, load):
                return load, home
        idle = [node for node in free if node not in self.running.values()]
        moving = [load for load in self.waiting if not self._owner(load)]
        for load in reversed(moving):
            for node in preference(load.fingerprint, idle):
                if self._has_room(node, load):
                    return load, node
        return None

    def _owner(self, load: Load) -> BuildNode | None:
        """Return the node that has it already, and can look it up in no time."""
        return next((node for node in self.nodes if node.name == load.made_on), None)

    def _home(self, load: Load) -> BuildNode | None:
        if owner := self._owner(load):
            return owner
        able = (node for node in self.nodes if _could(node, load))
        return next(iter(preference(load.fingerprint, able)), None)

    def _has_room(self, node: BuildNode, load: Load) -> bool:
        running = (other for other, its_node in self.running.items() if its_node == node)
        used_bytes = sum(other.size_bytes for other in running)
        return _could(node, load) and used_bytes + load.size_bytes <= node.room_bytes


def make_pool(nodes: Iterable[BuildNode], loads: Iterable[Load]) -> Pool:
    """Return a pool in which nothing has begun."""
    return Pool(nodes=[*nodes], waiting=_largest_first(loads))


def preference(fingerprint: str, nodes: Iterable[BuildNode]) -> list[BuildNode]:
    """Return the nodes in the order of preference for a fingerprint: the highest random weight
    first. A node that joins or leaves then moves only its own loads (Thaler and Ravishankar, 1998).
    """

    def weight(node: BuildNode) -> bytes:
        return hashlib.sha256(f"{fingerprint}\0{node.name}".encode()).digest()

    return sorted(nodes, key=weight, reverse=True)


def _could(node: BuildNode, load: Load) -> bool:
    return node.machine == load.machine and load.size_bytes <= node.room_bytes


def _largest_first(loads: Iterable[Load]) -> list[Load]:
    return sorted(loads, key=lambda load: (-load.size_bytes, load.name))
