"""nox's sessions of the checks.

The checks run inside images (and by `verify -- --here` in the current Python), the other sessions
on the host. This file is read inside images and on GPU machines without our dependencies, by
Python 3.10 too, so at its top it imports the standard library, nox and `warpfront_checks` only.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import nox
import nox.command

from warpfront_checks.architectures.roster import LIBRARY_OPTIONS, Library, read_library
from warpfront_checks.bench.options import BENCH_OPTIONS, BenchEffort, read_bench_effort
from warpfront_checks.check_options import (
    CHECK_SESSIONS,
    EFFORT_OPTIONS,
    SESSIONS,
    CheckOptions,
    add_options,
    parsed,
    read_effort,
)
from warpfront_checks.claims import Claims, ClaimsError
from warpfront_checks.guard.visible import visible, visible_json, visible_output
from warpfront_checks.parallel_sessions import ENDINGS
from warpfront_checks.results import write_json
from warpfront_checks.selftest import FaultsMissingError, faults_folder

HERE_FOLDER = Path("build") / "here"
SOURCE = Path(__file__).resolve().parents[2]
# Long enough to remove containers on Ctrl-C; nox would terminate after 0.3 s.
PATIENCE_SECONDS = 60.0
# OpenMP's threads that spin while they wait make thousands of small operations ten times slower
# where another process has one of the cores; sleeping ones cost nothing (docs/verification.md).
_WAITING = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
_DETECT = (
    "import torch; from warpfront_checks.torch_devices import read_facts;"
    "f = read_facts(torch);"
    "print('target=' + (f.devices[0].arch if f.devices else 'cpu'))"
)


Runs = Callable[[nox.Session], None]
_Effort = CheckOptions | BenchEffort | Library


def _stop(session: nox.Session, text: str) -> NoReturn:
    """End a session. nox prints the text, to a stream that it opened before."""
    session.error(visible(text))


def _verify(session: nox.Session) -> None:
    if "--here" not in session.posargs:
        _hand_over(session, "verify")
        return
    if _selects_cells(session):
        _stop(
            session, "--here checks the current Python: --vendor, --image and --only do not apply"
        )
    parser = _parser_here(session, "verify", "verification")
    add_options(parser, EFFORT_OPTIONS)
    says = "also seed faults into every check, and catch them"
    parser.add_argument("--selftest", action="store_true", help=says)
    options = parser.read()
    target = options.target or _detected_target(session)
    names = (*SESSIONS, *(["selftest"] if options.selftest else []))
    if options.selftest:
        try:
            faults_folder()
        except FaultsMissingError as error:
            _stop(session, str(error))
    stale = (*(f"{name}.json" for name in CHECK_SESSIONS), "verify.json", "junit.xml")
    effort = parsed(options, EFFORT_OPTIONS, read_effort)
    checks = _checks_here(session, target, target, stale, effort)
    started, folder, endings = time.monotonic(), checks.results, checks.together(names)
    outcome, text = _conclude(folder, target, endings, time.monotonic() - started)
    document = visible_json((folder / "verify.json").read_text(encoding="utf-8"))
    sys.stdout.write(document if options.json else text)
    sys.stdout.flush()
    if outcome != "passed":
        _stop(session, f"{target} is not verified here: {outcome}; results in {folder}")


def _hand_over(session: nox.Session, task: str) -> None:
    """Run a command with the words that the session got."""
    _run(session, "-m", "warpfront", *task.split(), *session.posargs)


def _selects_cells(session: nox.Session) -> bool:
    return any(word.startswith(("--vendor", "--image", "--only")) for word in session.posargs)


def _golden(session: nox.Session) -> None:
    if not {"make", "check"} & set(session.posargs):
        _check_inside(session, "golden")
        return
    try:
        _run(session, "-m", "warpfront_checks", "golden", *session.posargs)
    except nox.command.CommandFailed as error:
        _stop(session, f"golden: {error.reason}")


def _models(session: nox.Session) -> None:
    """Inside an image with claims. With `--library` a library's registry: inside an image again,
    in images of this project by the task, or else in this Python.
    """
    if not any(word.startswith("--library") for word in session.posargs):
        _check_inside(session, "models")
        return
    if _selects_cells(session):
        _hand_over(session, "models")
        return
    parser = _Parser(session, "models")
    parser.add_argument("--target", default="")
    parser.add_argument("--claims", type=Path)
    parser.add_argument("--results", type=Path)
    add_options(parser, LIBRARY_OPTIONS)
    options = parser.read()
    library = parsed(options, LIBRARY_OPTIONS, read_library)
    if options.claims and options.results:
        _Checks(session, options.claims, options.results, library).require("architectures")
    else:
        target = options.target or _detected_target(session)
        checks = _checks_here(session, target, f"models-{target}", ["models.json"], library)
        checks.require("architectures")


def _checks_here(
    session: nox.Session, target: str, name: str, stale: Sequence[str], effort: _Effort
) -> _Checks:
    """Return checks of the current Python, in a folder with claims and without results."""
    try:
        claims = claims_for_target(target)
    except ClaimsError as error:
        _stop(session, f"--target: {error}")
    folder = (HERE_FOLDER / name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in stale:
        (folder / old).unlink(missing_ok=True)
    write_json(folder / "claims.json", claims.document())
    return _Checks(session, folder / "claims.json", folder, effort)


def _bench(session: nox.Session) -> None:
    """Inside an image with claims, in this Python with `--here`, else by the task."""
    if not {"--here", "--claims"} & {word.partition("=")[0] for word in session.posargs}:
        _hand_over(session, "bench run")
        return
    parser = _parser_here(session, "bench", "record")
    for name in ("claims", "results"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    add_options(parser, BENCH_OPTIONS)
    options = parser.read()
    effort = parsed(options, BENCH_OPTIONS, read_bench_effort)
    if options.claims and options.results:
        _Checks(session, options.claims, options.results, effort).require("bench")
    else:
        _bench_here(session, options, effort)


def _bench_here(session: nox.Session, options: argparse.Namespace, effort: BenchEffort) -> None:
    """Timings of the current Python, as a record of their own."""
    # Imported here: these need Python 3.11, and inside images nothing but the checks is wanted.
    from warpfront.bench.forms import bench_text  # noqa: PLC0415
    from warpfront.bench.record_files import bench_document, bench_of  # noqa: PLC0415
    from warpfront.cli.display import text_width  # noqa: PLC0415
    from warpfront.system.foreign import result_in  # noqa: PLC0415
    from warpfront.system.provenance import now  # noqa: PLC0415

    target = options.target or _detected_target(session)
    checks = _checks_here(session, target, f"bench-{target}", ["bench.json"], effort)
    checks.require("bench")
    whose = {"cell_id": "here", "image_digest": "", "content_hash": "", "tool": {}}
    whose |= {"verified": "not verified", "target": target, "at": now()}
    bench = bench_of(result_in(checks.results / "bench.json"), whose)
    record = checks.results.with_suffix(".json")
    write_json(record, bench_document(bench))
    document = visible_json(record.read_text(encoding="utf-8"))
    sys.stdout.write(document if options.json else bench_text(bench, width=text_width()))
    sys.stdout.write("" if options.json else f"{record}\n")
    sys.stdout.flush()


def claims_for_target(target: str) -> Claims:
    """Return what can be claimed of the current Python for a target without a lock.

    Raise `ClaimsError` for a target of no vendor; `cpu` is x86_64's other name.
    """
    # Imported here: it needs Python 3.11, and inside images nothing but the checks is wanted.
    from warpfront.matrix.vendors import VENDORS  # noqa: PLC0415

    for vendor in VENDORS.values():
        if target == "cpu" == vendor.name or vendor.accepts_target(target):
            return Claims(
                cell="here",
                target=target,
                vendor=vendor.name,
                device=vendor.device,
                archs=vendor.accepted_archs(target),
                image=False,
            )
    forms = ", ".join(vendor.target_form for vendor in VENDORS.values())
    raise ClaimsError(f"target {target!r} is not of the form of any vendor's: {forms}")


def _conclude(
    folder: Path, target: str, endings: dict[str, str], seconds: float
) -> tuple[str, str]:
    """Write verify.json and junit.xml from the results; return the outcome and a table."""
    # Imported here: these need Python 3.11, and inside images nothing but the checks is wanted.
    from warpfront.report.described import profiles_text  # noqa: PLC0415
    from warpfront.report.junit import junit_xml  # noqa: PLC0415
    from warpfront.system.foreign import result_in  # noqa: PLC0415
    from warpfront.verify import verdict  # noqa: PLC0415
    from warpfront.verify.results import Verification  # noqa: PLC0415

    results = {name: "failed" if ending else "success" for name, ending in endings.items()}
    verification = verdict.read_verification(
        Verification(cell_id="here", target=target, where="here", seconds=round(seconds, 3)),
        {name: result_in(folder / f"{name}.json") for name in endings},
        ended="; ".join(f"{name}: {ending}" for name, ending in endings.items() if ending),
        nox_report={"sessions": [{"name": n, "result": result} for n, result in results.items()]},
    )
    write_json(folder / "verify.json", verdict.verification_document(verification))
    (folder / "junit.xml").write_text(junit_xml([verification]), encoding="utf-8")
    outcome = verdict.outcome_of(verification).value
    rows = [
        f"{check.session:<9} {check.name:<22} {check.outcome.value:<11} {check.seconds:>7.2f} s"
        + (f"  {check.reason}" if check.reason else "")
        for check in verification.checks
    ]
    head = f"\nverify --here on {target}: {outcome} in {verification.seconds:.1f} s"
    return outcome, "\n".join([head, *rows, "", profiles_text(verification)])


def _check_inside(session: nox.Session, name: str) -> None:
    parser = _Parser(session, name, "Runs inside images. On the host: nox -s verify")
    parser.add_argument("--claims", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--together", default="", help="sessions to run side by side, by commas")
    add_options(parser, EFFORT_OPTIONS)
    options = parser.read()
    effort, together = parsed(options, EFFORT_OPTIONS, read_effort), options.together.split(",")
    checks = _Checks(session, options.claims, options.results, effort)
    if name == together[0] and len(together) > 1 and not checks.endings():
        # The first of them starts all; the others tell how theirs ended.
        checks.run(*together)
    if ending := checks.ending_of(name):
        _stop(session, f"{name}: {ending}; what it found is in {options.results / name}.json")


@dataclass(frozen=True)
class _Checks:
    """Checks in a child of this Python, by a file of claims; their results are in a folder."""

    session: nox.Session
    claims: Path
    results: Path
    effort: _Effort

    def run(self, *names: str) -> str:
        """Run sessions; return nothing if all passed, else the child's ending.

        The child starts in the results folder, which has nothing importable, and finds only our
        packages by PYTHONPATH: everything else is the image's own.
        """
        claims, results = self.claims.resolve(), self.results.resolve()
        argv = ["--claims", str(claims), "--results", str(results), *self.effort.arguments()]
        with self.session.chdir(results):
            try:
                _run(self.session, "-m", "warpfront_checks", *names, *argv)
            except nox.command.CommandFailed as error:
                return f"{error.reason}"
        return ""

    def require(self, check: str) -> None:
        """Run a check. End the session unless it passed."""
        file = "models.json" if check == "architectures" else f"{check}.json"
        if ending := self.run(check):
            _stop(self.session, f"{check}: {ending}; {self.results.resolve() / file} has all of it")

    def together(self, names: Sequence[str]) -> dict[str, str]:
        """Run sessions side by side and return their endings."""
        (self.results / ENDINGS).unlink(missing_ok=True)
        self.run(*names)
        return {name: self.ending_of(name) for name in names}

    def ending_of(self, name: str) -> str:
        """Return how a session ended with others; one that none answers for is run now, alone."""
        ending = self.endings().get(name)
        return self.run(name) if ending is None else ending

    def endings(self) -> dict[str, str]:
        """Return how parallel sessions ended, as far as that is known."""
        try:
            codes = json.loads((self.results / ENDINGS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {name: f"Returned code {code}" if code else "" for name, code in codes.items()}


def _detected_target(session: nox.Session) -> str:
    """Return the arch of the first device that torch sees here, or `cpu`."""
    try:
        lines = _run(session, "-c", _DETECT, silent=True).splitlines()
    except nox.command.CommandFailed:
        lines = []
    named = (line for line in reversed(lines) if line.startswith("target="))
    target = next(named, "").removeprefix("target=")
    if not target:
        _stop(session, "no target could be detected in this Python; name one with --target")
    return target


def _run(session: nox.Session, *argv: str, silent: bool = False) -> str:
    """Run a child of this Python; what it printed, where silent. Raises nox's `CommandFailed`.
    PYTHONPATH begins with the folder of our packages, unless they are installed.
    """
    already = os.environ.get("PYTHONPATH", "")
    ours = "" if SOURCE.name in {"site-packages", "dist-packages"} else str(SOURCE)
    printed = session.run(
        sys.executable,
        *argv,
        external=True,
        silent=silent,
        env={"PYTHONPATH": os.pathsep.join(filter(None, (ours, already))), **_WAITING},
        interrupt_timeout=PATIENCE_SECONDS,
        terminate_timeout=PATIENCE_SECONDS,
    )
    return str(printed)


def _parser_here(session: nox.Session, name: str, printed: str) -> _Parser:
    parser = _Parser(session, name, "In the current Python, without Docker.")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    target = "sm_90, gfx942, gaudi3 or cpu (default: detected)"
    parser.add_argument("--target", default="", help=target)
    parser.add_argument("--json", action="store_true", help=f"print the {printed} as JSON")
    return parser


class _Parser(argparse.ArgumentParser):
    """The options of a session. What it cannot read ends the session, not the process."""

    def __init__(self, session: nox.Session, name: str, help_: str = "") -> None:
        super().__init__(prog=f"nox -s {name} --", description=help_)
        self._session = session

    def read(self) -> argparse.Namespace:
        return self.parse_args(self._session.posargs)

    def error(self, message: str) -> NoReturn:
        _stop(self._session, f"{message}\n{self.format_usage().strip()}")


# Every session: its line in `nox --list`, and its function. Those of the checks run inside
# images, and have their rows in `CHECK_SESSIONS`; the others run on the host.
SESSION_TABLE: Mapping[str, tuple[str, Runs]] = {
    **{
        name: (f"Inside an image: {row.says}.", functools.partial(_check_inside, name=name))
        for name, row in CHECK_SESSIONS.items()
    },
    "golden": (f"Inside an image: {CHECK_SESSIONS['golden'].says}.", _golden),
    "models": (
        f"Inside an image: {CHECK_SESSIONS['models'].says}; `-- --library transformers`.",
        _models,
    ),
    "bench": (
        "Time operations in images, or with --here in this Python: `nox -s bench -- --help`.",
        _bench,
    ),
    "static": (
        "What in a source tree will break on a target: `-- PATH --target gfx942`; no image.",
        lambda session: _hand_over(session, "port scan"),
    ),
    "compile": (
        "A source tree's kernels through the vendor's compiler: `-- PATH --target gfx942`.",
        lambda session: _hand_over(session, "port compile"),
    ),
    "verify": (
        "Verify images, or with --here the current Python; options: `nox -s verify -- --help`.",
        _verify,
    ),
}


def _visible(run: Runs, says: str) -> Runs:
    """nox reads the sentence from the function's docstring."""

    def session_of_table(session: nox.Session) -> None:
        with visible_output():
            run(session)

    session_of_table.__doc__ = says
    return session_of_table


for _name, (_says, _run_it) in SESSION_TABLE.items():
    nox.session(name=_name, venv_backend="none", default=_name == "verify")(
        _visible(_run_it, _says)
    )
