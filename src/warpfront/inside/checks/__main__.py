"""`python -m warpfront.inside.checks SESSION --claims FILE --results FOLDER`: one session, here.

Exits 0 only if everything planned was checked and passed, 1 if not, 2 if it could not begin.
`python -m warpfront.inside.checks detect` says what this machine and torch are, without claims;
`... golden make FILE | check [FILE...]` makes and checks golden vectors.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from warpfront.inside.checks.claimed_device import find_device
from warpfront.inside.checks.claims import Claims, ClaimsError, read_claims
from warpfront.inside.checks.effort import STRICT, Effort, asked_profile, profile_names
from warpfront.inside.checks.hardware import Machine, read_hardware
from warpfront.inside.checks.results import Recorder


def main(arguments: list[str]) -> int:
    """Run one session and say by the exit code whether it passed; the results file has the rest."""
    if arguments[:1] == ["detect"]:
        # Needs no claims: it says what is here, and judges nothing.
        from warpfront.inside.checks.detection import main as detect  # noqa: PLC0415

        return detect(arguments[1:])
    if arguments[:1] == ["golden"] and {"make", "check"} & set(arguments):
        # Without claims: the golden suite made or checked on what is here.
        from warpfront.inside.checks.golden.vectors import main as golden  # noqa: PLC0415

        return golden(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        claims = read_claims(options.claims)
    except ClaimsError as error:
        sys.stderr.write(
            f"error: {error}\n  hint: the claims file is written by `nox -s verify` on the host\n"
        )
        return 2
    options.results.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(session=options.session, target=claims.target, folder=options.results)
    effort = Effort(quick=options.quick, profile=options.profile, seeds=tuple(range(options.seeds)))
    record(options.session, claims, recorder, effort)
    return 0 if recorder.finish() else 1


def record(session: str, claims: Claims, recorder: Recorder, effort: Effort) -> None:
    """Run a session's checks. `load` imports torch itself, so that its failure is a result."""
    if session == "load":
        recorder.plan(["torch imports"])
        _load(claims, recorder)
        return
    recorder.plan(["device"])
    recorder.environment["effort"] = effort.document()
    torch = importlib.import_module("torch")
    if find_device(claims, recorder, torch, read_hardware(Machine())):
        _RECORDERS[session](claims, recorder, effort)


# Each imports its session only when it is run: importing it is importing torch, which `load` has to
# time and judge.


def _load(claims: Claims, recorder: Recorder) -> None:
    from warpfront.inside.checks.load import record_load  # noqa: PLC0415

    record_load(claims, recorder)


def _numerics(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.numerics import record_numerics  # noqa: PLC0415

    record_numerics(claims, recorder, effort=effort)


def _operators(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.operators.trials import record_operators  # noqa: PLC0415

    record_operators(claims, recorder, effort=effort)


def _opinfo(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.opinfo.sweep import record_opinfo  # noqa: PLC0415

    record_opinfo(claims, recorder, effort=effort)


def _models(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.models.modes import record_models  # noqa: PLC0415

    record_models(claims, recorder, effort=effort)


def _golden(claims: Claims, recorder: Recorder, _: Effort) -> None:
    from warpfront.inside.checks.golden.vectors import record_golden  # noqa: PLC0415

    record_golden(claims, recorder)


def _devices(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.devices.roll_call import record_devices  # noqa: PLC0415

    record_devices(claims, recorder, quick=effort.quick)


def _selftest(claims: Claims, recorder: Recorder, effort: Effort) -> None:
    from warpfront.inside.checks.devices.roll_call import record_device_faults  # noqa: PLC0415
    from warpfront.inside.checks.models.layer_faults import record_model_faults  # noqa: PLC0415
    from warpfront.inside.checks.selftest import record_opinfo_faults, record_selftest  # noqa: PLC0415

    record_selftest(claims, recorder, effort=effort)
    record_model_faults(claims, recorder, quick=effort.quick)
    record_device_faults(claims, recorder)
    # Last: torch's test package freezes the settings of precision.
    record_opinfo_faults(claims, recorder, effort=effort)


_RECORDERS: dict[str, Callable[[Claims, Recorder, Effort], None]] = {
    "numerics": _numerics,
    "operators": _operators,
    "opinfo": _opinfo,
    "models": _models,
    "golden": _golden,
    "devices": _devices,
    "selftest": _selftest,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m warpfront.inside.checks", description=__doc__)
    parser.add_argument("session", choices=("load", *_RECORDERS))
    parser.add_argument(
        "--claims", type=Path, required=True, help="what the image is said to hold (JSON)"
    )
    parser.add_argument("--results", type=Path, required=True, help="folder for SESSION.json")
    parser.add_argument("--seeds", type=int, default=1, help="how many sets of random inputs")
    parser.add_argument("--quick", action="store_true", help="every operation, fewer cases of each")
    parser.add_argument(
        "--profile",
        type=asked_profile,
        choices=profile_names(),
        default=STRICT,
        help="whose tolerances decide (every result says what each would have said)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
