"""Machines of matrix.yaml: `runners:` for CI's jobs, `builders:` for parallel builds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warpfront.matrix.language import MatrixText, NodeText, RunnerText
from warpfront.matrix.selection import target_faults
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import Document, Where
from warpfront.system.strict_values import extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner(RunnerText):
    """A kind of machine. A forge finds it by all of `labels`, and by `group` where there is one; a
    scale set's name is its one label. It makes images if it `builds`, and verifies cells of
    `vendor` on `targets`. At night it times images by the preset `bench`, "" for nothing.
    """

    name: str

    @property
    def slower_share(self) -> float:
        """Return how much slower than the last release its images may be."""
        return float((self.max_slower or "5%").rstrip("%")) / 100

    def verifies(self, vendor: str, target: str, machine: str) -> bool:
        """Return true if cells of `vendor`, for `machine`, can be verified here on `target`."""
        return (self.vendor, self.machine) == (vendor, machine) and target in self.targets


def make_runners(text: MatrixText, document: Document) -> tuple[Runner, ...]:
    """Return the entries of `runners:`; refuse what is wrong with them."""
    runners = []
    for name, row in text.runners.items():
        for where, message, hint in _wrong(name, row):
            document.refuse(("runners", name, *where), message, hint)
        labels = row.labels or tuple(filter(None, (row.scale_set,)))
        # All benches take hours on a processor.
        usual = "tiny" if row.vendor == "cpu" else "default"
        bench = "" if row.bench == "none" or not row.targets else row.bench or usual
        runners.append(extended(Runner, row, name=name, labels=labels, bench=bench))
    if text.runners and not any(runner.builds for runner in runners):
        hint = "give one of them `builds: true`; images need no accelerator to be made"
        document.refuse(("runners",), "no runner builds images", hint)
    return tuple(runners)


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
    if text.vendor:
        vendor, machine = VENDORS[text.vendor], text.machine
        for message, hint in target_faults(vendor, text.targets, "runner", machine=machine):
            yield ("targets",), message, hint


CACHE_VARIABLE = "WARPFRONT_BUILD_CACHE"
"""A repository: BuildKit keeps the steps of each image there, under a tag of its cell's own."""
BUILDER_VARIABLE = "BUILDX_BUILDER"
_GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildNode(NodeText):
    """An engine with room for `room_bytes` of images that are being built, in so many `slots`."""

    name: str

    @property
    def room_bytes(self) -> int:
        return self.room_gb * _GB

    @property
    def ways(self) -> Mapping[str, str]:
        """Return variables of docker and buildx that name it: an address precedes a context."""
        values = (self.host, self.context, self.buildx)
        names = ("DOCKER_HOST", "DOCKER_CONTEXT", BUILDER_VARIABLE)
        return {name: value for name, value in zip(names, values, strict=True) if value}

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what docker's own programs find it by; nothing where they would anyway."""
        return {**self.ways, **({CACHE_VARIABLE: self.cache} if self.cache else {})}


def make_nodes(text: MatrixText, document: Document) -> tuple[BuildNode, ...]:
    """Return the entries of `builders:`; refuse what is wrong with them."""
    nodes = tuple(extended(BuildNode, node, name=name) for name, node in text.builders.items())
    for name in (node.name for node in nodes if len(node.ways) > 1):
        message = f"builder `{name}` is found by one of `host`, `context` and `buildx`"
        hint = "or by none of them: the engine of this machine"
        document.refuse(("builders", name), message, hint)
    return nodes
