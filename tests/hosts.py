"""Machines of a runner table, what the kernel says of their processes, and who hears of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from warpfront.matrix.runners import Runner

H100 = Runner(
    name="h100",
    trust="self-hosted",
    labels=("h100",),
    group="",
    machine="x86_64",
    builds=False,
    vendor="nvidia",
    targets=("sm_90",),
    count=1,
    engine="theirs",
)
BUILDER = dataclasses.replace(H100, name="builder", vendor="", targets=(), builds=True)


def a_process(proc: Path, pid: int, name: str, *opened: str) -> None:
    folder = proc / str(pid) / "fd"
    folder.mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, path in enumerate(opened):
        (folder / str(number)).symlink_to(path)


class Heard:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...
