"""The sandbox that templates run in: nothing of Python is in reach, and they come to an end. Pure.

Jinja2's own sandbox lets a few nested loops run for years. Every pass through a loop and every call
of a macro or block takes a step here, and one rendering has so many. A step is an expression that
is put into the parsed template, so that no clock, thread or child is needed.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

# This project's largest template takes 8 of them. All together last half a second.
STEPS = 20_000
LONGEST_RANGE = 1_000
_LARGEST = 10_000
_HAVE_BODIES = (nodes.Template, nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


class Sandbox(ImmutableSandboxedEnvironment):
    """Raises `jinja2.sandbox.SecurityError` in the middle of a rendering that goes on for ever."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._left = STEPS
        self.globals["range"] = _short_range
        del self.globals["lipsum"]
        del self.filters["center"]

    def rendered(self, template: jinja2.Template, variables: dict[str, object]) -> str:
        """The template's text, in as many steps as one rendering has."""
        self._left = STEPS
        return template.render(variables)

    def step(self) -> bool:
        """Counts one."""
        self._left -= 1
        if self._left < 0:
            raise jinja2.sandbox.SecurityError(f"it takes more than {STEPS:,} steps")
        return True

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """What can make much of little: powers, and repeated texts and lists."""
        if operator == "**" and max(abs(left), abs(right)) > LONGEST_RANGE:
            raise jinja2.sandbox.SecurityError("a power that is too large")
        if operator == "*" and _repeated(left, right) > _LARGEST:
            raise jinja2.sandbox.SecurityError("a text or a list is repeated too often")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for node in [template, *template.find_all(_HAVE_BODIES)]:
            node.body.insert(0, nodes.ExprStmt(_a_step(), lineno=node.lineno))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = nodes.And(_a_step(), node.test)
        return template.set_environment(self)  # type: ignore[return-value]


def _a_step() -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)


def _short_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > LONGEST_RANGE:
        raise jinja2.sandbox.SecurityError(f"a range of more than {LONGEST_RANGE:,}")
    return numbers


def _repeated(left: object, right: object) -> int:
    """How long a repeated text or list would be; 0 for numbers."""
    for one, times in ((left, right), (right, left)):
        if isinstance(one, Sized) and isinstance(times, int):
            return len(one) * times
    return 0
