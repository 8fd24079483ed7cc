"""The toolbox: nox and its dependencies, which run the checks inside images without being in
them. Pinned by hash in our own data (`tools/lock-toolbox`), fetched by the wheelhouse, and made
once for every Python and machine: its wheels are pure Python. Edge.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import cache as cached
from pathlib import Path

from packaging.utils import parse_wheel_filename

from warpfront.system.digests import digest_of
from warpfront.system.packaged import packaged_toml
from warpfront.system.store import folder_aside
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.resolve.index_rules import PYPI
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Progress, Wheelhouse

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
