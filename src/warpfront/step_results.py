"""Results of a step for a cell without a value. Words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from warpfront.errors import FailureKind, kind_of_exit

StepName = Literal[
    "plan", "lock", "build-wheels", "render", "build", "verify", "bench", "publish", "report"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A cell that cannot be made from here: what is out of reach, and why."""

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A failed step of a cell; the others go on. `exit_code` is the error's own, `kind` follows
    from it by default, `repeat` is the line that repeats it on a laptop.
    """

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""
    log: str | None = None
    exit_code: int = 1
    kind: FailureKind | None = None
    repeat: str = ""

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", kind_of_exit(self.exit_code))
        if not self.repeat:
            object.__setattr__(self, "repeat", repeat_line(self.step, self.cell_id))


def repeat_line(step: StepName, cell_id: str, target: str = "") -> str:
    """Return the command line that repeats a step of a cell from what is committed."""
    locked = " --locked" if step in {"render", "build"} else ""
    on = f" --target {target}" if target else ""
    return f"warpfront {step}{locked} --only {cell_id}{on}"
