"""`warpfront`: the tasks as a program of their own, for projects that have no tasks.py."""

from __future__ import annotations

import sys

from invoke.program import Program

from warpfront import __version__
from warpfront.cli.job_output import job_output
from warpfront.cli.tasks import namespace


class _Program(Program):
    """invoke's program, which also takes a second image by its place: `why A B`."""

    def normalize_argv(self, argv: list[str] | None) -> None:
        super().normalize_argv(second_by_place(sys.argv if argv is None else argv))


def second_by_place(argv: list[str]) -> list[str]:
    """Return the words with `--since` before the second image of `why`. invoke knows no argument
    that may be missing.
    """
    match argv:
        case [program, "why", first, second, *more] if not f"{first[:1]}{second[:1]}".count("-"):
            return [program, "why", first, "--since", second, *more]
        case _:
            return argv


program = _Program(name="warpfront", binary="warpfront", namespace=namespace, version=__version__)


def main() -> None:
    with job_output():
        program.run()


if __name__ == "__main__":
    main()
