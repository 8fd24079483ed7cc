"""Machines for CI's jobs: `runners:` of matrix.yaml. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warpfront.errors import Problem
from warpfront.matrix.language import MatrixText, RunnerEngine, RunnerText, Trust
from warpfront.matrix.nearest import nearest
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
    problems = [
        document.problem(("runners", name, *where), message, hint)
        for name, one in text.runners.items()
        for where, message, hint in _wrong(name, one)
    ]
    runners = tuple(_runner(name, one) for name, one in text.runners.items())
    if text.runners and not any(one.builds for one in runners):
        hint = "give one of them `builds: true`; images need no accelerator to be made"
        problems.append(document.problem(("runners",), "no runner builds images", hint))
    return runners, problems


def _wrong(name: str, one: RunnerText) -> Iterator[tuple[Where, str, str]]:
    ways = [way for way in ("labels", "scale_set") if getattr(one, way)]
    if len(ways) != 1:
        message = f"runner `{name}` is found by `labels` or by a `scale_set`"
        yield (), message, "give one of the two; `group` goes with labels"
    if one.scale_set and one.group:
        yield ("group",), f"runner `{name}` has a scale set, which needs no `group`", "remove it"
    if one.image and not one.scale_set:
        yield ("image",), f"runner `{name}` has no pods for an `image`", "it goes with a scale_set"
    if bool(one.vendor) != bool(one.targets):
        message = f"runner `{name}` needs both `vendor` and `targets` to verify"
        yield (), message, "or neither, if it only builds"
    elif not one.vendor and not one.builds:
        yield (), f"runner `{name}` neither builds nor verifies", "`builds: true`, or targets"
    if (one.bench or one.max_slower) and not one.targets:
        where = "bench" if one.bench else "max_slower"
        yield (where,), f"runner `{name}` has no targets to time on", "it goes with `targets`"
    if one.vendor:
        yield from _wrong_targets(name, one)


def _wrong_targets(name: str, one: RunnerText) -> Iterator[tuple[Where, str, str]]:
    vendor = VENDORS.get(one.vendor or "")
    if vendor is None:
        message = f"vendor `{one.vendor}` of runner `{name}` is not known"
        yield ("vendor",), message, nearest(one.vendor or "", VENDORS)
        return
    for target in one.targets or ():
        if not vendor.accepts_target(target):
            hint = f"its targets look like {vendor.target_form}"
            yield ("targets",), f"`{target}` is no target of {vendor.name}", hint
        elif vendor.machine_of(target) not in {None, one.machine}:
            message = f"target `{target}` is a machine, and the runner is {one.machine}"
            yield ("targets",), message, f"give it `machine: {target}`"


def _runner(name: str, one: RunnerText) -> Runner:
    return Runner(
        name=name,
        trust=one.trust,
        labels=one.labels or ((one.scale_set,) if one.scale_set else ()),
        group=one.group or "",
        machine=one.machine,
        builds=one.builds,
        vendor=one.vendor or "",
        targets=one.targets or (),
        count=one.count,
        engine=one.engine,
        scale_set=bool(one.scale_set),
        image=one.image or "",
        bench=_bench(one),
        max_slower=float((one.max_slower or "5%").rstrip("%")) / 100,
    )


def _bench(one: RunnerText) -> str:
    """Return the benches of a row; all of them take hours on a processor."""
    usual = "tiny" if one.vendor == "cpu" else "default"
    chosen = one.bench or usual
    return chosen if one.targets and chosen != "none" else ""
