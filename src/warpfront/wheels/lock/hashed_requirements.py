"""A requirements file with every distribution by hash, as `pip --require-hashes` reads it. Edge."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from warpfront.errors import LockError
from warpfront.system.process import Run
from warpfront.wheels.resolve.reach import answering
from warpfront.wheels.sources import Site
from warpfront.wheels.uv_program import uv_command

_PYTHON = "3.11"
"""The oldest Python of the machines; uv resolves for this one and all newer ones."""


def hash_requirements(
    requirements: tuple[str, ...], *, site: Site, run: Run, without: tuple[str, ...] = ()
) -> str:
    """Return the text of a requirements file for `requirements` and all that they need, on every
    machine and Python, but for the distributions `without`, which are installed in another way.
    """
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
        folder = Path(name)
        (folder / "wanted.in").write_text("\n".join(requirements) + "\n", "utf-8")
        arguments = (
            *("pip", "compile", "wanted.in", "--quiet", "--universal", "--generate-hashes"),
            *("--python", sys.executable, "--python-version", _PYTHON),
            *("--no-header", "--no-annotate"),
            *(word for name in without for word in ("--no-emit-package", name)),
        )
        command = uv_command(arguments, site=site, indexes=answering(site), folder=folder)
        hint = "the requirements of `install:` in matrix.yaml have to resolve on this machine"
        text = run(command).check(hint=hint).stdout
    if "--hash=sha256:" not in text:
        raise LockError(f"no hash for {', '.join(requirements)}", hint=hint)
    return text
