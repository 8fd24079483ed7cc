"""The paths of a guard's files."""

from __future__ import annotations

import site
import sysconfig
from dataclasses import dataclass
from pathlib import Path

HOME = Path("/opt/warpfront")
ETC = Path("/etc")
PTH_NAME = "00_warpfront_guard.pth"


class _Below:
    """A path below the folder that another attribute of `Places` names."""

    def __init__(self, folder: str, *parts: str) -> None:
        self._folder, self._parts = folder, parts

    def __get__(self, places: Places, _kind: type | None = None) -> Path:
        folder: Path = getattr(places, self._folder)
        return folder.joinpath(*self._parts)


@dataclass(frozen=True, kw_only=True)
class Places:
    """The files of one guard. `site_packages` is the folder of the interpreter that is
    protected; `standard_library` that of the one which environments are made from, None if
    that one is unprotected.

    The manifest is outside of it: an install that overwrites torch rewrites RECORD too.
    """

    home: Path = HOME
    etc: Path = ETC
    site_packages: Path
    standard_library: Path | None = None

    # The folder on `sys.path` with the package `warpfront_guard`.
    library = _Below("home", "lib")
    programs = _Below("home", "bin")
    folder = _Below("home", "guard")
    policy = _Below("folder", "policy.json")
    manifest = _Below("folder", "stack.json")
    # The part of the manifest that an import of torch reads.
    at_import = _Below("folder", "at-import.bin")
    # The names of the sealed packages, which every start of Python reads.
    packages = _Below("folder", "packages.txt")
    bytecode = _Below("folder", "bytecode.json")
    constraints = _Below("folder", "constraints.txt")
    needs = _Below("folder", "needs.txt")
    overrides = _Below("folder", "overrides.txt")
    pip_configuration = _Below("etc", "pip.conf")
    uv_configuration = _Below("etc", "uv", "uv.toml")
    # Read by login shells, which forget the image's PATH (`su -`, ssh, `bash -l`).
    profile = _Below("etc", "profile.d", "warpfront.sh")
    pth = _Below("site_packages", PTH_NAME)

    @property
    def sitecustomize(self) -> Path | None:
        return self.standard_library / "sitecustomize.py" if self.standard_library else None

    @property
    def interpreters(self) -> Path:
        """The folder with the python3 that reads `site_packages`."""
        return self.site_packages.parents[2] / "bin"


def places_of_this_python(home: Path | None = None, etc: Path | None = None) -> Places:
    """Return the places for the interpreter that runs this. The folder of an installed torch
    decides between its folders for packages (Debian has several). A torch on PYTHONPATH or in a
    user's home is not the image's, and no .pth next to it would be read.
    """
    usual = Path(sysconfig.get_paths()["platlib"])
    folders = [Path(folder) for folder in site.getsitepackages()]
    packages = next((folder for folder in folders if (folder / "torch").is_dir()), usual)
    return Places(
        home=home or HOME,
        etc=etc or ETC,
        site_packages=packages,
        standard_library=Path(sysconfig.get_paths()["stdlib"]) if etc in (None, ETC) else None,
    )
