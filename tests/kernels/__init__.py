"""Wrong kernels by topic: each repeats a defect that public trackers tell of, or a likely one.

`KERNELS` has them by name. No code is from a tracker: `like` names the thread of the same symptom.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .kernel import KERNELS, WrongKernel, seeded

__all__ = ["KERNELS", "WrongKernel", "seeded"]
_OTHERS = {"__init__", "kernel", "calls"}
TOPICS = tuple(sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - _OTHERS))
for _topic in TOPICS:
    import_module(f".{_topic}", __name__)


def topic_of(fault: WrongKernel) -> str:
    """Return the topic of a kernel: the module that has it."""
    return fault.wrong.__module__.rpartition(".")[2]
