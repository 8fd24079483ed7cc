"""Where a guard's files are."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

HOME = Path("/opt/warpfront")
PTH_NAME = "00_warpfront_guard.pth"


@dataclass(frozen=True, kw_only=True)
class Places:
    """The files of one guard. `site_packages` is the folder of the interpreter that is protected.

    The manifest is outside of it: an install that overwrites torch rewrites RECORD too.
    """

    home: Path = HOME
    etc: Path = Path("/etc")
    site_packages: Path

    @property
    def library(self) -> Path:
        """The folder on `sys.path` that holds the package `warpfront_guard`."""
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
    def constraints(self) -> Path:
        return self.folder / "constraints.txt"

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
    def pth(self) -> Path:
        return self.site_packages / PTH_NAME


def places_of_this_python(home: Path | None = None) -> Places:
    """The places for the interpreter that runs this. Where torch already is decides between its two
    folders for packages, which are one in a virtual environment.
    """
    paths = sysconfig.get_paths()
    candidates = [Path(entry) for entry in sys.path if (Path(entry) / "torch").is_dir()]
    usual = [Path(paths["platlib"]), Path(paths["purelib"])]
    found = next(
        (path for path in candidates if path.name in {"site-packages", "dist-packages"}), usual[0]
    )
    return Places(home=home or HOME, site_packages=found)
