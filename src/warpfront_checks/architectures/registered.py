"""The architectures of a library, each in a child process: which run, and run right.

Part of the `models` session where the image has the library, and a run of its own by
`python -m warpfront_checks architectures`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from warpfront_checks.architectures.roster import (
    LIBRARY_OPTIONS,
    USUAL_MODES,
    Library,
    LibraryError,
    architectures,
    chosen,
    library_version,
    read_library,
)
from warpfront_checks.architectures.runs import QUIET, exceptions
from warpfront_checks.check_options import USUAL, CheckOptions, add_options, parsed
from warpfront_checks.children import Begun, begin_beside
from warpfront_checks.claimed_device import find_device
from warpfront_checks.claims import Claims, ClaimsError, read_claims
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.precision import record_full_precision
from warpfront_checks.results import (
    PASSED,
    CheckFinding,
    Checks,
    Find,
    Recorder,
    judged,
    unavailable,
)

WORKER = "warpfront_checks.architectures.runs:try_item"
_MOST_WORKERS = 4
_SHARE_OF_PATIENCE = 0.6


def main(arguments: list[str]) -> int:
    """`architectures --claims FILE --results FOLDER [options]`; exits 2 if it could not begin."""
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks architectures")
    parser.add_argument("--claims", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    add_options(parser, LIBRARY_OPTIONS)
    options = parser.parse_args(arguments)
    os.environ.update(QUIET)
    try:
        library = parsed(options, LIBRARY_OPTIONS, read_library)
        claims = read_claims(options.claims)
        options.results.mkdir(parents=True, exist_ok=True)
        recorder = Recorder(session="models", target=claims.target, folder=options.results)
        recorder.plan(["device"])
        # Found as every session finds it: else nothing is run in its place.
        if find_device(claims, recorder, torch, read_hardware(Machine())):
            record_full_precision(recorder)
            record_architectures(claims, recorder, library)
    except (ClaimsError, LibraryError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0 if recorder.finish() else 1


def begin_usual(
    claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL
) -> tuple[Checks, Callable[[], None]]:
    """Start the most used types in `verify`, if the image has the library. Children run them from
    now on; each check waits for its own. Return a function that waits for the end of the children.
    """
    if find_spec("transformers") is None:
        return {}, lambda: None
    usual = tuple(exceptions()["usual"])
    names = usual[:2] if effort.quick else usual
    # In 16 bits a type that chooses by number, or sums long, may be off by more than its CPU twin.
    modes = USUAL_MODES[:1] if effort.quick else USUAL_MODES
    library = Library(library="transformers", architectures=names, modes=modes)
    checks, workers = _begin(claims, recorder, library, seed=effort.seeds[0])
    return checks, workers.wait


def record_architectures(claims: Claims, recorder: Recorder, library: Library) -> None:
    """Record one check a type; if all were requested, one more a kind: as many ran as ever did."""
    checks, workers = _begin(claims, recorder, library, seed=0)
    recorder.run(checks)
    workers.wait()


def _begin(claims: Claims, recorder: Recorder, library: Library, seed: int) -> tuple[Checks, Begun]:
    architectures_chosen, missing = chosen(architectures(), library.architectures, library.kinds)
    version, every = library_version(), library.architectures == ("all",)
    recorder.environment[library.library] = version
    excluded = exceptions()["excluded"] if every else ()
    reasons = {f"{e['kind']} {e['name']}": f"{e['reason']} ({e['dated']})" for e in excluded}
    run = [each for each in architectures_chosen if each.title not in reasons]
    common: dict[str, Any] = {"device": claims.device, "modes": list(library.modes), "seed": seed}
    common["patience"] = library.limit_seconds * _SHARE_OF_PATIENCE
    workers = begin_beside(
        WORKER,
        [{"architecture": architecture, **common} for architecture in run],
        lanes=library.workers or min(os.cpu_count() or 1, _MOST_WORKERS),
        seconds=library.limit_seconds,
        environment={**QUIET, "OMP_NUM_THREADS": "1"},
    )
    none = f"{library.library} {version} has no architecture"

    def counted(kind: str) -> CheckFinding:
        names = {f"architecture {each.title}" for each in run if each.kind == kind}
        ran = sum(name in names and outcome == PASSED for name, outcome in recorder.found)
        least, since = floor_of(kind, version)
        details = {"ran": ran, "of": len(names), "least": least, "since": since}
        of = f"{ran} of {len(names)} run"
        lost = [f"{of}; with {since} it was {least}"] if ran < least else []
        return judged(lost, f"{of} and are right", **details)

    unclaimed = {each.title: reasons.get(each.title, "") for each in architectures_chosen}
    checks: dict[str, Find | str] = {name: why for name, why in unclaimed.items() if why}
    checks |= {
        f"architecture {each.title}": lambda mine=answer: mine.result().finding()  # type: ignore[misc]
        for each, answer in zip(run, workers.answers, strict=True)
    }
    checks |= {f"architecture {n}": partial(unavailable, f"{none} {n!r}") for n in missing}
    checks |= {f"count of {each.kind}": partial(counted, each.kind) for each in run if every}
    return checks, workers


def floor_of(kind: str, version: str) -> tuple[int, str]:
    """Return how many of a kind ran with the newest release up to this one."""

    def release(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".") if part.isdecimal())

    floors = [
        (release(entry["version"]), int(entry["counts"].get(kind, 0)), str(entry["version"]))
        for entry in exceptions()["floors"]
        if release(entry["version"]) <= release(version)
    ]
    return max(floors, default=((), 0, "no release"))[1:]
