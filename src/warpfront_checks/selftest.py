"""The `selftest` session: every fault that is seeded into the checks has to be caught.

The faults are a data set of their own, which neither the package nor an image has. A checkout has
it in tests/kernels; without one `WARPFRONT_SELFTEST_FAULTS` names a copy of that folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.results import Recorder

VARIABLE = "WARPFRONT_SELFTEST_FAULTS"
PACKAGE = "warpfront_selftest_faults"
CHECKOUT = Path(__file__).resolve().parents[2] / "tests" / "kernels"
SESSION = Path("seeding") / "session.py"


class FaultsMissingError(Exception):
    """There is no data set of faults; the message names the place and the next step."""


def faults_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the faults: that of the variable, or the checkout's."""
    named = environment.get(VARIABLE, "")
    folder = Path(named) if named else CHECKOUT
    if not (folder / SESSION).is_file():
        where = f"{VARIABLE}={named}" if named else f"{folder}: this is no checkout"
        raise FaultsMissingError(
            f"the selftest has no faults to seed: {where} has no {SESSION}\n"
            f"hint: set {VARIABLE} to the folder tests/kernels of a checkout of this version"
        )
    return folder


def record_selftest(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Load the faults, and record one check for each group of them."""
    session = f"{load_faults(faults_folder())}.seeding.session"
    import_module(session).record(claims, recorder, effort)


def load_faults(folder: Path) -> str:
    """Import the package in a folder by a name that no distribution has, and return the name."""
    if PACKAGE not in sys.modules:
        places = [str(folder)]
        spec = spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=places
        )
        if spec is None or spec.loader is None:
            raise FaultsMissingError(f"{folder} is no package of faults")
        package = module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
    return PACKAGE
