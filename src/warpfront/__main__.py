"""`warpfront`: the tasks as a program of their own, for projects that have no tasks.py."""

from __future__ import annotations

from invoke.program import Program

from warpfront import __version__
from warpfront.cli.tasks import namespace
from warpfront_checks.guard.visible import visible_output

program = Program(name="warpfront", binary="warpfront", namespace=namespace, version=__version__)


def main() -> None:
    with visible_output():
        program.run()


if __name__ == "__main__":
    main()
