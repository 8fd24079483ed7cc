"""Reachability in a graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def followed(starts: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    """Return `starts`, and everything that the edges lead to from there."""
    visited = set(starts)
    pending = list(visited)
    while pending:
        new = edges.get(pending.pop(), set()) - visited
        visited |= new
        pending += new
    return visited
