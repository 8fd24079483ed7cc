"""Machines of matrix.yaml: `runners:` for CI's jobs, `builders:` for parallel builds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warpfront.errors import Problem
from warpfront.matrix.language import MatrixText, RunnerEngine, RunnerText, Trust
from warpfront.matrix.nearest import nearest, target_fault
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import Document, Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A kind of machine. A forge finds it by all of `labels`, and by `group` where there is one; a
    scale set's name is its one label, and `image` that of the engine in its pods. It makes images
    if it `builds`, and verifies cells of `vendor` on `targets`. At night it times images by the
    preset `bench`, "" for nothing; slower than the last release by `max_slower` is red.
    """

    name: str
    trust: Trust
    labels: tuple[str, ...]
    group: str
    machine: str
    builds: bool
    vendor: str
    targets: tuple[str, ...]
    count: int
    engine: RunnerEngine
    scale_set: bool = False
    image: str = ""
    bench: str = ""
    max_slower: float = 0.05

    def verifies(self, vendor: str, target: str, machine: str) -> bool:
        """Return true if cells of `vendor`, for `machine`, can be verified here on `target`."""
        return (self.vendor, self.machine) == (vendor, machine) and target in self.targets


def make_runners(text: MatrixText, document: Document) -> tuple[tuple[Runner, ...], list[Problem]]:
    """Return the entries of `runners:`, and their problems."""
    problems = []
    for name, runner in text.runners.items():
        for where, message, hint in _wrong(name, runner):
            problems.append(document.problem(("runners", name, *where), message, hint))
    runners = tuple(_runner(name, runner) for name, runner in text.runners.items())
    if text.runners and not any(runner.builds for runner in runners):
        hint = "give one of them `builds: true`; images need no accelerator to be made"
        problems.append(document.problem(("runners",), "no runner builds images", hint))
    return runners, problems


def _wrong(name: str, text: RunnerText) -> Iterator[tuple[Where, str, str]]:
    if bool(text.labels) == bool(text.scale_set):
        message = f"runner `{name}` is found by `labels` or by a `scale_set`"
        yield (), message, "give one of the two; `group` goes with labels"
    if text.scale_set and text.group:
        yield ("group",), f"runner `{name}` has a scale set, which needs no `group`", "remove it"
    if text.image and not text.scale_set:
        yield ("image",), f"runner `{name}` has no pods for an `image`", "it goes with a scale_set"
    if bool(text.vendor) != bool(text.targets):
        message = f"runner `{name}` needs both `vendor` and `targets` to verify"
        yield (), message, "or neither, if it only builds"
    elif not text.vendor and not text.builds:
        yield (), f"runner `{name}` neither builds nor verifies", "`builds: true`, or targets"
    if (text.bench or text.max_slower) and not text.targets:
        where = "bench" if text.bench else "max_slower"
        yield (where,), f"runner `{name}` has no targets to time on", "it goes with `targets`"
    vendor = VENDORS.get(text.vendor or "")
    if text.vendor and vendor is None:
        message = f"vendor `{text.vendor}` of runner `{name}` is not known"
        yield ("vendor",), message, nearest(text.vendor, VENDORS)
    for target in text.targets or ():
        message, hint = target_fault(vendor, target, text.machine, "runner") if vendor else ("", "")
        if message:
            yield ("targets",), message, hint


def _runner(name: str, text: RunnerText) -> Runner:
    # All benches take hours on a processor.
    bench = text.bench or ("tiny" if text.vendor == "cpu" else "default")
    return Runner(
        name=name,
        trust=text.trust,
        labels=text.labels or ((text.scale_set,) if text.scale_set else ()),
        group=text.group or "",
        machine=text.machine,
        builds=text.builds,
        vendor=text.vendor or "",
        targets=text.targets or (),
        count=text.count,
        engine=text.engine,
        scale_set=bool(text.scale_set),
        image=text.image or "",
        bench=bench if text.targets and bench != "none" else "",
        max_slower=float((text.max_slower or "5%").rstrip("%")) / 100,
    )


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
