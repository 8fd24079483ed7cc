"""The command of the checks: `python -m warpfront_checks SESSION... --claims
FILE --results FOLDER`.

Exits 0 only if everything planned was checked and passed, 1 if not, 2 if it could not begin.
Several sessions run in parallel (`parallel_sessions`), each in a process of its own. `python -m
warpfront_checks detect` prints this machine and torch, without claims; `... golden make FILE |
check [FILE...]` makes and checks golden vectors; `... bench` times.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from pathlib import Path

from warpfront_checks.check_options import (
    CHECK_SESSIONS,
    EFFORT_OPTIONS,
    OPTIONS_KEY,
    CheckOptions,
    add_options,
    parsed,
    read_effort,
)
from warpfront_checks.children import open_nursery
from warpfront_checks.claimed_device import find_device
from warpfront_checks.claims import Claims, ClaimsError, read_claims
from warpfront_checks.guard.visible import visible_output
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.parallel_sessions import ENDINGS, run_side_by_side, shared_byte_code
from warpfront_checks.results import Recorder, write_json
from warpfront_checks.selftest import FaultsMissingError, faults_folder

# What is no session, each imported when it is run: `detect` needs no torch, `golden make` and
# `golden check` no claims, `bench` judges nothing, `architectures` runs as many as requested.
_COMMANDS = {
    "detect": "warpfront_checks.detection",
    "golden": "warpfront_checks.golden.vectors",
    "bench": "warpfront_checks.bench.session",
    "architectures": "warpfront_checks.architectures.registered",
}


def main(arguments: list[str]) -> int:
    """Run one session and say by the exit code whether it passed; the results file has the rest."""
    command = arguments[0] if arguments else ""
    if command in _COMMANDS and (command != "golden" or {"make", "check"} & set(arguments)):
        code: int = importlib.import_module(_COMMANDS[command]).main(arguments[1:])
        return code
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks", description=__doc__)
    parser.add_argument("sessions", nargs="+", choices=tuple(CHECK_SESSIONS), metavar="SESSION")
    parser.add_argument("--claims", type=Path, required=True, help="what the image holds (JSON)")
    parser.add_argument("--results", type=Path, required=True, help="folder for SESSION.json")
    add_options(parser, EFFORT_OPTIONS)
    options = parser.parse_args(arguments)
    try:
        claims = read_claims(options.claims)
        if "selftest" in options.sessions:
            faults_folder()
    except (FaultsMissingError, ClaimsError) as error:
        hint = "\nhint: the claims file is written by `nox -s verify` on the host"
        text = str(error) if "\nhint: " in str(error) else f"{error}{hint}"
        sys.stderr.write(f"error: {text}\n".replace("\nhint", "\n  hint"))
        return 2
    options.results.mkdir(parents=True, exist_ok=True)
    effort = parsed(options, EFFORT_OPTIONS, read_effort)
    # Read when torch is loaded. Threads that wait for work by spinning take the cores of the other
    # sessions: 150 processor seconds of a quick verification with other work, 43 without.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    def run(session: str) -> int:
        recorder = Recorder(session=session, target=claims.target, folder=options.results)
        record(session, claims, recorder, effort)
        return 0 if recorder.finish() else 1

    with shared_byte_code():
        if len(options.sessions) == 1:
            return run(options.sessions[0])
        # What a session that cannot be a fork is started with.
        alone = ["--claims", str(options.claims), "--results", str(options.results)]
        codes = run_side_by_side(
            options.sessions,
            run,
            (*alone, *effort.arguments()),
            device=claims.device,
            results=options.results,
        )
    write_json(options.results / ENDINGS, codes)
    return int(any(codes.values()))


def record(session: str, claims: Claims, recorder: Recorder, effort: CheckOptions) -> None:
    """Run a session's checks. `load` imports torch itself, so that its failure is a result."""

    def run() -> None:
        # Imported when it is run: importing most of them is importing torch, which `load` has to
        # time and judge.
        module, _, function = CHECK_SESSIONS[session].record.partition(":")
        recorded = getattr(importlib.import_module(f"warpfront_checks.{module}"), function)
        recorded(claims, recorder, effort)

    recorder.plan(["torch imports" if session == "load" else "device"])
    if session == "load":
        run()
        return
    recorder.environment[OPTIONS_KEY] = effort.document()
    torch = importlib.import_module("torch")
    # Any other device may be one process's alone.
    several = claims.device in {"cpu", "cuda"}
    with open_nursery() if several else contextlib.nullcontext():
        if find_device(claims, recorder, torch, read_hardware(Machine())):
            importlib.import_module("warpfront_checks.precision").record_full_precision(recorder)
            run()


if __name__ == "__main__":
    with visible_output():
        sys.exit(main(sys.argv[1:]))
