"""The requirers of each wheel of a lock: the image's own requirements, and the metadata of the
packages that they bring. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from packaging.requirements import Requirement

from warpfront.matrix.cell import Cell
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.requirement_lines import marker_environment
from warpfront.wheels.resolve.demands import demands_from

Edge = tuple[str, str, str]
"""The requirer, "" for the image; the required package; and the requirement's text."""


def asked_for(
    requires: Mapping[str, tuple[str, ...]], roots: Iterable[str], *, python: str, machine: str
) -> tuple[Edge, ...]:
    """Return the edges that apply on this Python and machine. `requires` maps a normalized name
    to its `Requires-Dist`; `roots` are the image's own requirements. An extra counts only if a
    requirement names it.
    """
    edges = {
        (chain[-1][0] if chain else "", name, _plain(demand))
        for chain, name, demand in demands_from(
            roots, requires, marker_environment(python, machine)
        )
    }
    return tuple(sorted(edges))


def requirers_of(name: str, edges: tuple[Edge, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (the shortest chain from the image to the requirer, the requirement) for each
    requirer of `name`; an empty chain is the image itself.
    """
    for asker, required, requirement in edges:
        if required == name:
            yield _chain(asker, edges), requirement


def asking_line(name: str, edges: tuple[Edge, ...]) -> str:
    """Return a line like `numpy: asked for by torch (numpy>=1.22)`, with the shortest chains."""
    requirers = [
        f"asked for by {' -> '.join(chain) or 'the image itself'}"
        + (f" ({text})" if text not in ("", name) else "")
        for chain, text in requirers_of(name, edges)
    ]
    return f"{name}: {'; '.join(requirers) or 'not in this lock'}"


def _chain(name: str, edges: tuple[Edge, ...]) -> tuple[str, ...]:
    """Return the shortest chain from the image to a package, the package last."""
    pending: deque[tuple[str, ...]] = deque([(name,)] if name else [])
    visited = {name}
    while pending:
        chain = pending.popleft()
        requirers = [asker for asker, required, _ in edges if required == chain[0]]
        if "" in requirers:
            return chain
        pending.extend((asker, *chain) for asker in requirers if asker not in visited)
        visited.update(requirers)
    return (name,) if name else ()


def _plain(requirement: Requirement) -> str:
    """Return the requirement without its marker, which is true, and without an address, which
    may contain a secret.
    """
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def roots_of(chain: Iterable[Cell], wheels: Iterable[LockedWheel]) -> tuple[str, ...]:
    """Return what an image and those it is built on ask for themselves. A source without a name has
    that of the one of `wheels` which is made of it.
    """
    built = {wheel.source: wheel.name for wheel in wheels if wheel.source}
    roots: dict[str, None] = {}
    for cell in chain:
        tools = cell.compiler.requirements if cell.compiler else ()
        named = [
            f"{name}[{','.join(source.extras)}]" if source.extras else name
            for source in cell.listed.sources
            if (name := source.name or built.get(str(source), ""))
        ]
        roots.update(dict.fromkeys((*map(str, cell.stack), *cell.requirements)))
        roots.update(dict.fromkeys((*tools, *cell.listed.requirements, *named)))
    return tuple(roots)
