"""Wheels built from source archives, always with the same tools; and folders of tools for programs
in an image that lacks them. Edge.

The toolbox has nox and its dependencies, which run the checks inside images. It is pinned by hash
in our own data (`tools/lock-toolbox`), fetched by the wheelhouse, and made once for every Python
and machine: its wheels are pure Python.
"""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from collections.abc import Callable
from functools import cache as cached
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from warpfront.errors import CommandFailedError, LockError
from warpfront.system.digests import digest_of
from warpfront.system.packaged import packaged_toml
from warpfront.system.process import run
from warpfront.system.store import folder_aside, scratch_folder
from warpfront.wheels.lock.values import PYPI, LockedWheel
from warpfront.wheels.sources import Site
from warpfront.wheels.store.archives import unpack
from warpfront.wheels.store.wheelhouse import Progress, Wheelhouse
from warpfront.wheels.uv_program import option_file, uv_command, wheels_for

BUILD_TOOLS = ("setuptools==80.9.0", "wheel==0.45.1")
"""What a source archive is built with where nothing else is said: fixed, or two machines would
build wheels with two hashes.
"""
# A build that asks for torch gets none in isolation: it would be another than the cell's.
NO_TORCH = tuple(
    f"{name}==0+name.the.package.under.builds" for name in ("torch", "torchvision", "torchaudio")
)


def pure_wheel(sdist: Path, folder: Path, *, site: Site) -> Path:
    """Build a wheel of pure Python from sources, in isolation, with fixed build tools and
    timestamps. Raise `LockError` for one that needs torch to build, or contains compiled code:
    those need the cell's own container.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fixed = folder / "build-constraints.txt"
    fixed.write_text("\n".join((*BUILD_TOOLS, *NO_TORCH)) + "\n", "utf-8")
    with scratch_folder() as scratch:
        source = unpack(sdist, scratch / sdist.stem)
        command = uv_command(
            (
                *("build", "--wheel", "--python", sys.executable),
                *("--build-constraints", str(fixed), "--out-dir", str(folder), str(source)),
            ),
            site=site,
            folder=folder,
            public_first=True,
            extra={"SOURCE_DATE_EPOCH": "315532800"},
        )
        run(command).check(hint=f"{source.name} must build with {', '.join(BUILD_TOOLS)}")
    built = sorted(folder.glob("*.whl"))
    if len(built) != 1:
        raise CommandFailedError(f"{source.name}: built {len(built)} wheels, not one")
    if not built[0].name.endswith("-none-any.whl"):
        raise LockError(
            f"{built[0].name}: holds compiled code, for the machine that built it",
            hint="name it under `builds:` of its image in matrix.yaml: it is then built in the "
            "image's own container",
        )
    return built[0]


def install_tools(
    tools: Path,
    requirements: tuple[str, ...],
    *,
    python: str,
    machine: str,
    site: Site,
    hint: str,
) -> Path:
    """Return a folder in `tools` with requirements that the image lacks, for Python `python` (X.Y)
    on `machine`. Made once in another folder and moved into place. torch is never among them.
    """
    folder = tools / digest_of([machine, python, *requirements])[:24]
    if not folder.is_dir():
        with folder_aside(folder) as aside, scratch_folder() as scratch:
            arguments = (
                *("pip", "install", "--target", str(aside), *requirements),
                *wheels_for(python, f"{machine}-manylinux_2_28"),
                *option_file(scratch, "constraints", NO_TORCH),
            )
            command = uv_command(arguments, site=site, folder=scratch, public_first=True)
            run(command).check(hint=hint)
    return folder


def installed_in(folder: Path) -> tuple[str, ...]:
    """Return the distributions in a folder of tools, as exact pins."""
    distributions = importlib.metadata.distributions(path=[str(folder)])
    return tuple(
        sorted(f"{canonicalize_name(package.name)}=={package.version}" for package in distributions)
    )


DATA = "toolbox.toml"


@cached
def toolbox_wheels() -> tuple[LockedWheel, ...]:
    wheels = []
    for row in packaged_toml(DATA)["wheels"]:
        name, version, _, _ = parse_wheel_filename(row["filename"])
        wheels.append(LockedWheel(name=name, version=str(version), index=PYPI, **row))
    return tuple(wheels)


def install_toolbox(
    cache: Path, house: Wheelhouse, *, site: Callable[[], Site], on_progress: Progress
) -> Path:
    """Return the folder of the toolbox below `cache`, without the network if it or its wheels
    are present. Made aside, and moved into place. Raise `WheelError` or `StoreError`.
    """
    wheels = toolbox_wheels()
    folder = cache / "toolbox" / digest_of([wheel.sha256 for wheel in wheels])[:24]
    if folder.is_dir():
        return folder
    if house.missing(wheels):
        house.fetch(wheels, site(), on_progress=on_progress)
    with folder_aside(folder) as aside:
        for wheel in wheels:
            with zipfile.ZipFile(house.path(wheel)) as archive:
                archive.extractall(aside)
    return folder
