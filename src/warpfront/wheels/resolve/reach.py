"""Indexes that answer, and whether they have a cell's stack. Edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement

from warpfront.errors import without_secrets
from warpfront.matrix.cell import Pin, WheelIndex
from warpfront.system.progress import Line
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.sources import Site, files_of, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The site's sources to use, in uv's order and each with whether it is flat, and why others,
    the cell's own index among them, do not answer.
    """

    sources: tuple[tuple[str, bool], ...]
    silent: Mapping[str, str]

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return the indexes to use, best first: mirrors, then PyPI."""
        return tuple(url for url, flat in self.sources if not flat)


def reach_of(inputs: LockInputs, site: Site, on_line: Line) -> Reach:
    """Ask every index first, briefly: uv would give up at the first that does not answer."""
    names = [Requirement(text).name for text in (*inputs.requirements, *inputs.stack_requirements)]
    silent: dict[str, str] = {}
    for url in site.indexes:
        if names and (reason := why_not(site, url, names[0])) and not says_no_such(reason):
            silent[url] = reason
    if inputs.index and inputs.stack_requirements:
        stack = inputs.index.url
        if reason := why_not(site, stack, Requirement(inputs.stack_requirements[0]).name):
            silent[stack] = reason
    for url, reason in silent.items():
        on_line(without_secrets(f"{inputs.cell_id}: {url}: {reason}; going on without it"))
    sources = tuple((url, flat) for url, flat in site.sources if flat or url not in silent)
    return Reach(sources=sources, silent=silent)


def answering(site: Site) -> tuple[str, ...]:
    """Return the site's indexes without those that do not answer."""
    reasons = {url: why_not(site, url, "pip") for url in site.indexes}
    return tuple(url for url, why in reasons.items() if not why or says_no_such(why))


def why_unresolvable(index: WheelIndex, stack: Iterable[Pin], site: Site) -> str:
    """Why the stack cannot be had here, with the URL; "" if its index or the site has it."""
    pins = tuple(stack)
    if not pins:
        return ""
    reason = why_not(site, index.url, pins[0].name)
    if not reason:
        return ""
    with site.transport(connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        lacking = [
            str(pin)
            for pin in pins
            if not any(
                file.tags and str(file.version) == pin.version
                for source, flat in site.sources
                for file, _ in files_of(source, pin.name, transport, flat=flat)
            )
        ]
    if not lacking:
        return ""
    return without_secrets(f"{index.url}: {reason}; nothing else here has {', '.join(lacking)}")


def why_not(site: Site, url: str, name: str) -> str:
    return "pip's no-index is set" if site.no_index else probe(site, url, name)


def says_no_such(reason: str) -> bool:
    """Return true if a mirror lacks one distribution: it still serves others."""
    return reason.startswith(("HTTP 404", "no such folder")) or "names no files" in reason
