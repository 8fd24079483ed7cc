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
        for name, builder in text.builders.items()
        if len(_ways(builder)) > 1
    ]
    return tuple(_node(name, builder) for name, builder in text.builders.items()), problems


def _ways(node_text: NodeText) -> dict[str, str]:
    """Return arguments for docker and buildx: an address goes before a context."""
    ways = {
        "DOCKER_HOST": node_text.host,
        "DOCKER_CONTEXT": node_text.context,
        BUILDER_VARIABLE: node_text.buildx,
    }
    return {name: value for name, value in ways.items() if value}


def _node(name: str, node_text: NodeText) -> BuildNode:
    cache = {CACHE_VARIABLE: node_text.cache} if node_text.cache else {}
    return BuildNode(
        name=name,
        machine=node_text.machine,
        slots=node_text.slots,
        room_bytes=node_text.room_gb * _GB,
        environment={**_ways(node_text), **cache},
    )
