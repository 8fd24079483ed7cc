"""Engines for parallel builds: `builders:` of matrix.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpfront.errors import Problem
from warpfront.matrix.language import MatrixText
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
    nodes: list[BuildNode] = []
    problems: list[Problem] = []
    for name, builder in text.builders.items():
        # Arguments for docker and buildx: an address goes before a context.
        ways = {
            "DOCKER_HOST": builder.host,
            "DOCKER_CONTEXT": builder.context,
            BUILDER_VARIABLE: builder.buildx,
        }
        variables = {variable: value for variable, value in ways.items() if value}
        if len(variables) > 1:
            message = f"builder `{name}` is found by one of `host`, `context` and `buildx`"
            hint = "or by none of them: the engine of this machine"
            problems.append(document.problem(("builders", name), message, hint))
        node = BuildNode(
            name=name,
            machine=builder.machine,
            slots=builder.slots,
            room_bytes=builder.room_gb * _GB,
            environment={**variables, **({CACHE_VARIABLE: builder.cache} if builder.cache else {})},
        )
        nodes.append(node)
    return tuple(nodes), problems
