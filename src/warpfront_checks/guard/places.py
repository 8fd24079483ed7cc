"""The paths of a guard's files."""

from __future__ import annotations

import site
import sysconfig
from dataclasses import dataclass
from pathlib import Path

HOME = Path("/opt/warpfront")
ETC = Path("/etc")
PTH_NAME = "00_warpfront_guard.pth"


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

    @property
    def library(self) -> Path:
        """The folder on `sys.path` with the package `warpfront_guard`."""
        return self.home / "lib"

    @property
    def programs(self) -> Path:
        return self.home / "bin"

    @property
    def folder(self) -> Path:
        return self.home / "guard"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.json"

    @property
    def manifest(self) -> Path:
        return self.folder / "stack.json"

    @property
    def at_import(self) -> Path:
        """The part of the manifest that an import of torch reads."""
        return self.folder / "at-import.bin"

    @property
    def packages(self) -> Path:
        """The names of the sealed packages, which every start of Python reads."""
        return self.folder / "packages.txt"

    @property
    def bytecode(self) -> Path:
        return self.folder / "bytecode.json"

    @property
    def sitecustomize(self) -> Path | None:
        return self.standard_library / "sitecustomize.py" if self.standard_library else None

    @property
    def constraints(self) -> Path:
        return self.folder / "constraints.txt"

    @property
    def needs(self) -> Path:
        return self.folder / "needs.txt"

    @property
    def overrides(self) -> Path:
        return self.folder / "overrides.txt"

    @property
    def pip_configuration(self) -> Path:
        return self.etc / "pip.conf"

    @property
    def uv_configuration(self) -> Path:
        return self.etc / "uv" / "uv.toml"

    @property
    def profile(self) -> Path:
        """Read by login shells, which forget the image's PATH (`su -`, ssh, `bash -l`)."""
        return self.etc / "profile.d" / "warpfront.sh"

    @property
    def interpreters(self) -> Path:
        """The folder with the python3 that reads `site_packages`."""
        return self.site_packages.parents[2] / "bin"

    @property
    def pth(self) -> Path:
        return self.site_packages / PTH_NAME


def places_of_this_python(home: Path | None = None, etc: Path | None = None) -> Places:
    """Return the places for the interpreter that runs this. The folder of an installed torch
    decides between its folders for packages (Debian has several). A torch on PYTHONPATH or in a
    user's home is not the image's, and no .pth next to it would be read.
    """
    usual = Path(sysconfig.get_paths()["platlib"])
    folders = [Path(folder) for folder in site.getsitepackages()]
    found = next((folder for folder in folders if (folder / "torch").is_dir()), usual)
    return Places(
        home=home or HOME,
        etc=etc or ETC,
        site_packages=found,
        standard_library=Path(sysconfig.get_paths()["stdlib"]) if etc in (None, ETC) else None,
    )
