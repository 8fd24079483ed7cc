"""Wheels built from source archives, always with the same tools. Edge."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from warpfront.errors import CommandFailedError, LockError
from warpfront.system.process import Run
from warpfront.wheels.resolve.reach import answering
from warpfront.wheels.resolve.resolution import BUILD_TOOLS
from warpfront.wheels.sources import Site
from warpfront.wheels.store.archives import unpack
from warpfront.wheels.store.wheelhouse import Build
from warpfront.wheels.uv_program import uv_command

# A build that asks for torch gets none in isolation: it would be another than the cell's.
NO_TORCH = tuple(
    f"{name}==0+name.the.package.under.builds" for name in ("torch", "torchvision", "torchaudio")
)


def sdist_builder(site: Site, run: Run, *, constraints: tuple[str, ...] = ()) -> Build:
    """Builds a wheel from an sdist or an unpacked one in isolation, with fixed build tools and
    timestamps, and whatever `constraints` allow.
    """

    def build(sdist: Path, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        fixed = folder / "build-constraints.txt"
        fixed.write_text("\n".join((*BUILD_TOOLS, *constraints)) + "\n", "utf-8")
        command = uv_command(
            (
                *("build", "--wheel", "--python", sys.executable),
                *("--build-constraints", str(fixed), "--out-dir", str(folder), str(sdist)),
            ),
            site=site,
            indexes=answering(site),
            folder=folder,
            public_first=True,
            extra={"SOURCE_DATE_EPOCH": "315532800"},
        )
        run(command).check(hint=f"{sdist.name} must build with {', '.join(BUILD_TOOLS)}")
        built = sorted(folder.glob("*.whl"))
        if len(built) != 1:
            raise CommandFailedError(f"{sdist.name}: built {len(built)} wheels, not one")
        return built[0]

    return build


def pure_builder(site: Site, run: Run) -> Build:
    """Build a wheel of pure Python from sources in isolation. Raise `LockError` for one that
    needs torch to build, or contains compiled code: those need the cell's own container.
    """
    build = sdist_builder(site, run, constraints=NO_TORCH)

    def pure(sdist: Path, folder: Path) -> Path:
        with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
            wheel = build(unpack(sdist, Path(name) / sdist.stem), folder)
        if not wheel.name.endswith("-none-any.whl"):
            raise LockError(
                f"{wheel.name}: holds compiled code, for the machine that built it",
                hint="name it under `builds:` of its image in matrix.yaml: it is then built in the "
                "image's own container",
            )
        return wheel

    return pure
