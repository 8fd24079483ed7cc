"""The torch stacks of a matrix: cells whose images have the same torch are judged once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from warpfront.matrix.cell import Cell
from warpfront.matrix.compat import Compat
from warpfront.matrix.compat_table import COMPANIONS
from warpfront.wheels.core_metadata import Distribution
from warpfront.wheels.lock.pylock import lock_inputs
from warpfront.wheels.lock.values import LockedWheel, LockInputs, WheelLock
from warpfront.wheels.resolve.demands import Stack, needs_of, stack_of

_FORKED = "a0"
"""A vendor's fork in a base calls itself a pre-release of the version (`2.10.0a0+git...`), so that
`==2.10.0` and `>=2.10` do not accept it (huggingface/optimum-habana#2366).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStack:
    """The torch stack, the Python and the index that the images of some cells share.

    `index` is the name of the index that torch comes from (`cpu`, `rocm6.4`, `pypi`), "" where it
    comes with the base. `paired` are the companions of this torch that the images lack, by bare
    version. `inputs` are those of one of the cells, without its own requirements. `variants` are
    the labels of those of its locked wheels that are one of several builds of their version.
    `wheels` are the locked wheels of the stack. `own` are its distributions with the metadata that
    was read, None where none was looked for.
    """

    title: str
    cell_ids: tuple[str, ...]
    python: str
    index: str
    stack: Stack
    paired: Mapping[str, str]
    inputs: LockInputs
    variants: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[LockedWheel, ...] = ()
    own: tuple[Distribution, ...] | None = None

    @property
    def with_needs(self) -> tuple[str, ...]:
        """Return the names whose demands on others count: torch, its companions and its triton.

        Their libraries demand only one another.
        """
        names = ("torch", *COMPANIONS)
        return tuple(n for n in self.stack.versions if n in names or "triton" in n)

    @property
    def installed(self) -> tuple[Distribution, ...]:
        """Return the distributions of the stack, with their metadata as far as it is known."""
        by_name = {distribution.name: distribution for distribution in self.own or ()}
        return tuple(
            by_name.get(name) or Distribution(name=name, version=version, requires=())
            for name, version in self.stack.versions.items()
        )

    def knowing(self, distributions: Iterable[Distribution]) -> CellStack:
        """Return this stack with its distributions' metadata, and their demands."""
        distributions = tuple(distributions)
        asking = [package for package in distributions if package.name in self.with_needs]
        needs = needs_of(asking, self.stack, python=self.python, machine=self.inputs.machine)
        return replace(self, own=distributions, stack=replace(self.stack, needs=needs))

    @property
    def torch(self) -> str:
        """Return the full version (`2.9.1+rocm6.4`)."""
        return self.stack.versions["torch"]


def stacks_of(
    cells: Iterable[Cell], locks: Mapping[str, WheelLock], compat: Compat
) -> tuple[CellStack, ...]:
    """Return one stack for all cells with the same vendor, toolkit, Python and torch,
    in matrix order.

    Without a lock of any cell, the libraries that torch brings are not known and not judged.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.vendor, cell.toolkit, cell.python, cell.torch, cell.index, cell.stack)
        groups.setdefault(key, []).append(cell)
    stacks: list[CellStack] = []
    for group in groups.values():
        cell = next((cell for cell in group if cell.id in locks), group[0])
        inputs = lock_inputs(cell, None, None)
        wheels = locks[cell.id].wheels if cell.id in locks else ()
        pins = {pin.name: pin.version for pin in cell.stack}
        pins |= {wheel.name: wheel.version for wheel in wheels}
        stack = stack_of(inputs, pins)
        if not cell.stack:
            versions = {"torch": f"{cell.torch}{_FORKED}"}
            foreign = {n: why for n, why in stack.foreign.items() if n not in inputs.protected}
            stack = Stack(versions=versions, answered={}, foreign=foreign)
        toolkit = str(cell.toolkit or "")
        names = (cell.vendor, toolkit, f"torch {stack.versions['torch']}", f"Python {cell.python}")
        release = compat.release(cell.torch)
        paired = {
            name: release.companion(name).version
            for name in COMPANIONS
            if release is not None and name not in stack.versions
        }
        stacks.append(
            CellStack(
                title=" ".join(filter(None, names)),
                cell_ids=tuple(cell.id for cell in group),
                python=cell.python,
                index=cell.index.name if cell.index else "",
                stack=stack,
                paired=paired,
                inputs=inputs,
                variants={
                    wheel.name: wheel.variant.label for wheel in wheels if wheel.variant.label
                },
                wheels=tuple(wheel for wheel in wheels if wheel.name in stack.versions),
            )
        )
    return tuple(stacks)
