"""`warpfront`: the tasks as a program of their own, for projects that have no tasks.py."""

from __future__ import annotations

from invoke.program import Program

from warpfront import __version__
from warpfront.doors.tasks import namespace

program = Program(name="warpfront", binary="warpfront", namespace=namespace, version=__version__)


def main() -> None:
    program.run()


if __name__ == "__main__":
    main()
