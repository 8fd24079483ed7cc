"""Folders of packages for programs in an image that the image lacks. Edge."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from warpfront.system.process import Run
from warpfront.system.store import folder_aside
from warpfront.wheels.resolve.reach import answering
from warpfront.wheels.sources import Site
from warpfront.wheels.store.sdists import NO_TORCH
from warpfront.wheels.uv_program import option_file, uv_command, wheels_for


def install_tools(
    folder: Path,
    requirements: tuple[str, ...],
    *,
    python: str,
    machine: str,
    site: Site,
    run: Run,
    hint: str,
) -> Path:
    """Install requirements that the image lacks below `folder`, for Python `python` (X.Y) on
    `machine`. Made once in another folder and moved into place. torch is never among them.
    """
    text, mark = " ".join(requirements), folder / ".made-of"
    if mark.is_file() and mark.read_bytes() == text.encode():
        return folder
    with folder_aside(folder) as aside:
        with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
            arguments = (
                *("pip", "install", "--target", str(aside), *requirements),
                *wheels_for(python, f"{machine}-manylinux_2_28"),
                *option_file(Path(name), "constraints", NO_TORCH),
            )
            command = uv_command(
                arguments,
                site=site,
                indexes=answering(site),
                folder=Path(name),
                public_first=True,
            )
            run(command).check(hint=hint)
        (aside / ".made-of").write_text(text, "utf-8")
    return folder


def installed_in(folder: Path) -> tuple[str, ...]:
    """Return the distributions in a folder of tools, as exact pins."""
    distributions = importlib.metadata.distributions(path=[str(folder)])
    return tuple(
        sorted(f"{canonicalize_name(package.name)}=={package.version}" for package in distributions)
    )
