"""The base install: every module of `warpfront` imports without the modules of the extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warpfront.system.extras import EXTRAS

SOURCE = Path(__file__).parents[3] / "src/warpfront"
# What `build --layers` alone imports, when it runs.
OPTIONAL = ("warpfront.wheels.layers", "warpfront.images.composing")
PROGRAM = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, "imports", error.name)
"""


def modules() -> list[str]:
    names = (
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in sorted(SOURCE.rglob("*.py"))
    )
    plain = (name.removesuffix(".__init__") for name in names)
    return [name for name in plain if not name.startswith(OPTIONAL) and "__main__" not in name]


def complaints(names: list[str]) -> list[str]:
    program = PROGRAM.format(extras=set(EXTRAS), names=names)
    command = (sys.executable, "-W", "ignore", "-c", program)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.process
def test_the_base_install_has_no_dead_import() -> None:
    assert complaints(modules()) == []


@pytest.mark.process
def test_a_dead_import_is_seen() -> None:
    (line,) = complaints(["warpfront.wheels.layers.layer_store"])
    assert line == "warpfront.wheels.layers.layer_store imports zstandard"
