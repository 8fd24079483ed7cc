"""The `stack` session: the behaviour of other people's packages in an image. Imports and
commands run in child processes as their users would start them, without network, each
within its time.

An import that works proves little: LMCache without its C++ operations runs in Python, bitsandbytes
without its library fails at the first call. So the compiled code has to be in the process, and no
output may report that it is missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import re
import secrets
import site
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.compiling.programs import Ended, ran
from warpfront_checks.guard.channels import pth_text
from warpfront_checks.guard.places import places_of_this_python
from warpfront_checks.guarded import check_guard
from warpfront_checks.results import (
    PASSED,
    CheckFinding,
    Checks,
    Find,
    Recorder,
    errored,
    failed,
    judged,
    judged_by_all,
    passed,
    several,
    unavailable,
)
from warpfront_checks.stack.descriptions import Description, description, optional_files, starts

SECONDS = 300.0
GRACE_SECONDS = 5.0
"""What a process that one began may take to end when its parent has."""

_SOURCE = Path(__file__).resolve().parents[2]
_IMPORTING = Path(__file__).with_name("importing.py")
_TAIL_CHARACTERS = 1500
_SHOWN, _SHOWN_CHARACTERS = 5, 80


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """The report of a process that imported modules: its `document`, and its `run`."""

    document: Mapping[str, Any]
    run: Ended

    @property
    def imports(self) -> Mapping[str, Mapping[str, Any]]:
        imports: Mapping[str, Mapping[str, Any]] = self.document.get("imports", {})
        return imports

    @property
    def ending(self) -> str:
        """Why there is no more of it; "" where it came to its end."""
        if self.document.get("finished"):
            return outlived(self.run)
        doing = f" {self.document['doing']}" if self.document.get("doing") else ""
        if self.run.returncode is None:
            return f"stopped after {self.run.seconds:.0f} s{doing}"
        return f"the process ended with {self.run.returncode}{doing}: {tail(self.run.output)}"

    def unknown(self, part: str) -> str:
        """Return why nothing is known of a part of the report; "" where something is."""
        lost = [name for name, facts in self.imports.items() if facts.get("error")]
        why = self.ending or (f"{lost[0]} was not imported" if lost else "")
        return why or ("" if part in self.document else "nothing was said")


Reports = list[tuple[str, ImportReport]]


def record_stack(claims: Claims, recorder: Recorder, _effort: CheckOptions = USUAL) -> None:
    """Record every entry of `smoke:`, then their effects on torch and on this session."""
    before, folder = _others(recorder), [Path(path) for path in site.getsitepackages()]
    meant = tuple(str(name) for entry in claims.smoke for name in entry.get("starts", ()))
    reports: Reports = []
    checks: dict[str, Find | str] = {}
    for entry in claims.smoke:
        checks |= checks_of(entry, claims, reports)
    checks |= {
        "devices": lambda: same_devices(reports),
        "torch is still sealed": lambda: same_torch(claims, reports),
        "what begins with Python": lambda: nothing_starts(folder, meant),
        "results are ours": lambda: same_results(recorder, before),
    }
    recorder.run(checks)


def _others(recorder: Recorder) -> dict[Path, bytes]:
    """Return the other files in the results folder: this session runs last."""
    paths = [path for path in recorder.path.parent.iterdir() if path.is_file()]
    return {path: path.read_bytes() for path in paths if path != recorder.path}


def same_results(recorder: Recorder, before: Mapping[Path, bytes]) -> CheckFinding:
    """Check that no program of this session wrote into the results; undo its changes."""
    after = _others(recorder)
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    for path in changed:
        path.unlink(missing_ok=True)
        if path in before:
            path.write_bytes(before[path])
    changed |= set() if recorder.is_ours() else {recorder.path}
    names = ", ".join(sorted(path.name for path in changed))
    wrong = [f"somebody else wrote {names}"] if changed else []
    return judged(wrong, f"{len(before)} files beside it as they were")


def checks_of(entry: Mapping[str, Any], claims: Claims, reports: Reports) -> Checks:
    """Return the checks of one entry; each adds its process's report to `reports`."""
    name = str(entry["name"])
    if entry.get("needs") == "device" and claims.device == "cpu":
        reason = "needs a device, and this image is for the CPU"
        return {name: lambda: unavailable(reason)}
    checks: dict[str, Find | str] = {}
    if entry.get("uses"):
        checks |= _described(str(entry["uses"]), claims, reports)
    if entry.get("imports"):
        modules = tuple(map(str, entry["imports"]))
        say = _once(name, reports, lambda: imported(modules, diagnose=claims))
        checks[f"{name}: imports"] = lambda: all_imported(say())
        checks[f"{name}: extensions load"] = lambda: extensions_load(say())
    if entry.get("run"):
        checks[f"{name}: runs"] = lambda: command(entry)
    return checks


def _described(name: str, claims: Claims, reports: Reports) -> Checks:
    version = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(name)
    package = description(name, vendor=claims.vendor, version=version)
    if package.not_for:
        return {name: lambda: unavailable(package.not_for)}
    attributes = tuple(sign.attribute for sign in package.signs if sign.attribute)
    # This version has no description for this vendor's devices: only the import is judged.
    nothing = not (package.compiled or package.signs or package.computes)
    options: dict[str, Any] = {"compiled": package.compiled, "attributes": attributes}
    options["diagnose"] = claims if nothing else None
    say = _once(name, reports, lambda: imported(package.imports, **options))
    checks: dict[str, Find | str] = {f"{name}: imports": lambda: all_imported(say(), package)}
    if nothing:
        return {**checks, f"{name}: extensions load": lambda: extensions_load(say())}
    if package.compiled:
        checks[f"{name}: compiled"] = lambda: all_compiled(say())
    checks[f"{name}: no fallback"] = lambda: no_fallback(say(), package)
    if package.computes:
        checks[f"{name}: computes"] = lambda: computed(package)
    return checks


def _once(
    name: str, reports: Reports, act: Callable[[], ImportReport]
) -> Callable[[], ImportReport]:
    """Run one process for all checks that need its report."""

    @functools.cache
    def say() -> ImportReport:
        reports.append((name, act()))
        return reports[-1][1]

    return say


def imported(
    modules: tuple[str, ...],
    *,
    compiled: tuple[str, ...] = (),
    attributes: tuple[str, ...] = (),
    diagnose: Claims | None = None,
) -> ImportReport:
    """Return what a process reports of these imports; with claims, of every extension."""
    request = {
        "imports": list(modules),
        "compiled": list(compiled),
        "attributes": list(attributes),
        "diagnose": diagnose is not None,
        "optional": optional_files(diagnose.vendor, diagnose.smoke) if diagnose else (),
        "word": secrets.token_hex(),
    }
    with tempfile.TemporaryFile() as answer:
        argv = [sys.executable, str(_IMPORTING), str(answer.fileno())]
        request_json, hears = json.dumps(request).encode(), (answer.fileno(),)
        completed = _ran(argv, seconds=SECONDS, given=request_json, hears=hears)
        document = _read_report(answer.read(), request["word"])
    return ImportReport(document=document, run=completed)


def _read_report(data: bytes, word: object) -> dict[str, Any]:
    """Return the report; an empty one if another program, without the word, wrote in its place."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) and document.get("word") == word else {}


def _ran(argv: Sequence[str], *, seconds: float, **given: Any) -> Ended:
    """Run a program of an image's user, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return ran(
            argv,
            seconds=seconds,
            cwd=Path(folder),
            environment=users_environment(),
            grace_seconds=GRACE_SECONDS,
            **given,
        )


def outlived(completed: Ended) -> str:
    """Return the processes that outlived their parent; "" for none."""
    count = len(completed.left)
    many = "process" if count == 1 else "processes"
    return f"{count} {many} outlived it: {'; '.join(completed.left[:_SHOWN])}" if count else ""


def users_environment() -> dict[str, str]:
    """Return the image's own environment, without the folder by which this session finds itself."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {"PYTHONPATH": os.pathsep.join(entry for entry in entries if entry != str(_SOURCE))}


def all_imported(report: ImportReport, package: Description | None = None) -> CheckFinding:
    """Check that each module was imported, and report its origin."""
    details: dict[str, object] = {"modules": report.imports}
    if package is not None:
        details |= {"read": package.read, "of": package.of, "sources": list(package.sources)}
    for name, facts in report.imports.items():
        if facts.get("error"):
            more = f"; {report.ending}" if report.ending else ""
            output = tail(report.run.output)
            return failed(f"import {name}: {facts['error']}{more}", output=output, **details)
    if report.run.left:
        return failed(outlived(report.run), **details)
    if report.ending and not report.document.get("imported"):
        return errored(report.ending, **details)
    imports = report.imports.items()
    parts = (f"{name} {facts['version'] or '(no wheel)'}" for name, facts in imports)
    return passed(", ".join(parts), **details)


def all_compiled(report: ImportReport) -> CheckFinding:
    """Check that all required compiled code is in the process."""
    if report.ending or not report.document.get("compiled"):
        return failed(f"not known: {report.ending or 'nothing was said'}")
    compiled: Mapping[str, Mapping[str, Any]] = report.document["compiled"]
    wrong = [f"{name}: {why_not(facts)}" for name, facts in compiled.items() if facts.get("error")]
    files = [Path(file).name for facts in compiled.values() for file in facts["loaded"]]
    return judged_by_all(wrong, ", ".join(files), compiled=compiled)


def why_not(facts: Mapping[str, Any]) -> str:
    """Return why compiled code is missing, as exactly as its file shows."""
    if facts.get("libraries"):
        return f"lacks {', '.join(facts['libraries'])}"
    if facts.get("symbols"):
        symbols = several(facts["symbols"], _SHOWN)
        return f"lacks symbols (built against another torch?): {symbols}"
    none = " (its wheel brings no such file)" if facts.get("file", "") is None else ""
    return f"{facts.get('said') or facts['error']}{none}"


def extensions_load(report: ImportReport) -> CheckFinding:
    """Check a package without a description: every extension that it brings for this Python loads.
    Libraries that its plug-ins need are a check of the session `load`.
    """
    if why := report.unknown("extensions"):
        return failed(f"not known: {why}")
    extensions = report.document["extensions"]
    wrong = [
        f"{Path(file).name}: {why_not({**facts, 'error': facts['said']})}"
        for file, facts in extensions["lacking"].items()
        if facts["said"]
    ]
    if wrong:
        return failed(f"a fallback is taken: {'; '.join(wrong)}", extensions=extensions)
    count = len(extensions["loaded"])
    return passed(f"{count} compiled files in the process", extensions=extensions)


def no_fallback(report: ImportReport, package: Description) -> CheckFinding:
    """Check that neither the import's output nor an object shows a slower fallback."""
    if why := report.unknown("imports"):
        return failed(f"not known: {why}")
    attributes = report.document.get("attributes", {})
    for sign in package.signs:
        line = re.search(sign.log, report.run.output) if sign.log else None
        if line:
            return failed(f"a fallback was taken: {sign.means} ({line.group(0)[:200]})")
        attribute = attributes.get(sign.attribute, {})
        for key, pattern, article in (("type", sign.type, "a "), ("value", sign.value, "")):
            if pattern and re.fullmatch(pattern, str(attribute.get(key, ""))):
                reason = f"{sign.attribute} is {article}{attribute[key]}"
                return failed(f"a fallback was taken: {sign.means} ({reason})", found=attribute)
    looked = len(package.signs)
    return passed(f"none of {looked} known signs", attributes=attributes, of=package.of)


def computed(package: Description) -> CheckFinding:
    """Run a small computation with the package, and check its device: the program prints it in
    its last line, and then ends. Output of an import comes before that.
    """
    word = secrets.token_hex()
    program = f"{package.computes}\nprint({word!r})\n"
    completed = _ran([sys.executable, "-"], seconds=SECONDS, given=program.encode())
    lines = completed.output.splitlines()
    if word in lines:
        completed = replace(completed, output="\n".join(lines[: lines.index(word)][-1:]))
    finding = _judged(completed, exit_code=0, prints=package.prints, seconds=SECONDS)
    if finding.outcome == PASSED and word not in lines:
        return failed("it ended with 0 before its end", **finding.details)
    return finding


def command(entry: Mapping[str, Any]) -> CheckFinding:
    """Run a declared command, as a user would type it in the image."""
    seconds = float(entry.get("seconds", SECONDS))
    completed = _ran([str(word) for word in entry["run"]], seconds=seconds)
    code, prints = int(entry.get("exit", 0)), entry.get("prints", "")
    return _judged(completed, exit_code=code, prints=prints, seconds=seconds)


def _judged(completed: Ended, *, exit_code: int, prints: str, seconds: float) -> CheckFinding:
    wrong = ""
    if completed.missing:
        wrong = f"{completed.argv[0]}: not in the image"
    elif completed.returncode is None:
        wrong = f"stopped after {seconds:g} s"
    elif completed.returncode != exit_code:
        last = tail(completed.output).splitlines()[-1:] or ["it printed nothing"]
        wrong = f"exit {completed.returncode}, not {exit_code}: {last[0]}"
    elif completed.left:
        wrong = outlived(completed)
    elif prints and not re.search(prints, completed.output, re.MULTILINE):
        wrong = f"it printed nothing that matches {prints!r}"
    details = {"output": tail(completed.output), "seconds": round(completed.seconds, 2)}
    return judged([wrong] if wrong else [], f"exit {completed.returncode}", **details)


def same_devices(reports: Reports) -> CheckFinding:
    """Check that no import hides devices from torch, or shows others."""
    counts = {}
    for name, report in reports:
        before, after = report.document.get("torch before"), report.document.get("torch after")
        if before and after:
            counts[name] = after["devices"]
            if before["devices"] != after["devices"]:
                counted = f"{before['devices']} before it and {after['devices']} after it"
                return failed(f"{name}: torch sees {counted}")
    if len({json.dumps(count, sort_keys=True) for count in counts.values()}) > 1:
        return failed("torch saw other devices in other processes", counts=counts)
    return passed(f"the same in {len(counts)} processes", counts=counts)


def same_torch(claims: Claims, reports: Reports) -> CheckFinding:
    """Check that every process used the claimed torch, and that it is as it was sealed."""
    wrong = []
    for name, report in reports:
        for moment in ("torch before", "torch after"):
            facts = report.document.get(moment, {})
            if facts and facts["version"] != claims.versions.get("torch", facts["version"]):
                wrong.append(f"{name}: torch is {facts['version']} from {facts['file']}")
            if facts.get("swapped"):
                wrong.append(f"{name}: another module is in the place of torch")
    if wrong:
        return failed("; ".join(dict.fromkeys(wrong)))
    if claims.guard is None:
        return passed(f"in {len(reports)} processes; no guard is claimed")
    return check_guard(claims.guard)


def tail(text: str) -> str:
    return text.strip()[-_TAIL_CHARACTERS:]


def nothing_starts(folders: Iterable[Path], meant: Iterable[str]) -> CheckFinding:
    """Check that only known files run at a start: the guard's, and `starts:` of `smoke:`."""
    guard = places_of_this_python()
    allowed = {guard.pth.name: re.escape(pth_text(guard)), **starts(), **dict.fromkeys(meant, ".*")}
    wrong, names = [], []
    for path in (path for folder in folders for path in sorted(folder.glob("*.pth"))):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if re.match(r"import[ \t]", line)]
        names += [path.name] if lines else []
        if lines and not re.fullmatch(rf"(?s:{allowed.get(path.name, '(?!)')})\n?", text):
            owners = (
                f"{owner.metadata['Name']} {owner.version}"
                for owner in importlib.metadata.distributions(path=[str(path.parent)])
                if any(str(file) == path.name for file in owner.files or ())
            )
            problem = f"{path.name} of {next(owners, 'nobody')} begins with every Python"
            wrong.append(f"{problem}: {lines[0][:_SHOWN_CHARACTERS]}")
    return judged(wrong, ", ".join(names))
