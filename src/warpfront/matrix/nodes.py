"""Engines for parallel builds: `builders:` of matrix.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpfront.errors import Problem
from warpfront.matrix.language import MatrixText, NodeText
from warpfront.system.document import Document

CACHE_VARIABLE = "WARPFRONT_BUILD_CACHE"
"""A repository: BuildKit keeps the steps of each image there, under a tag of its cell's own."""
BUILDER_VARIABLE = "BUILDX_BUILDER"
_GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildNode:
    """An engine with room for `room_bytes` of images that are being built, in so many `slots`.
    `environment` is what docker's own programs find it by; `{}`: they would anyway.
    """

    name: str
    machine: str
    slots: int
    room_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict)


def make_nodes(text: MatrixText, document: Document) -> tuple[tuple[BuildNode, ...], list[Problem]]:
    """Return the entries of `builders:`, and their problems."""
    problems = [
        document.problem(
            ("builders", name),
            f"builder `{name}` is found by one of `host`, `context` and `buildx`",
            "or by none of them: the engine of this machine",
        )
        for name, one in text.builders.items()
        if len(_ways(one)) > 1
    ]
    return tuple(_node(name, one) for name, one in text.builders.items()), problems


def _ways(one: NodeText) -> dict[str, str]:
    """Return arguments for docker and buildx: an address goes before a context."""
    ways = {"DOCKER_HOST": one.host, "DOCKER_CONTEXT": one.context, BUILDER_VARIABLE: one.buildx}
    return {name: value for name, value in ways.items() if value}


def _node(name: str, one: NodeText) -> BuildNode:
    cache = {CACHE_VARIABLE: one.cache} if one.cache else {}
    return BuildNode(
        name=name,
        machine=one.machine,
        slots=one.slots,
        room_bytes=one.room_gb * _GB,
        environment={**_ways(one), **cache},
    )
