"""A failure for a vendor's issue: its frame in comments, and the script that repeats it.

A case of the catalogue or of attention prints itself. The script of a layer or of a sample is a
foreign text, so it is printed in comments. Any other failure has the same frame, and the command
that runs the session again with its inputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpfront_checks.attention.provider import case_of, stored_item
from warpfront_checks.cases.axes import RECONCILED, axes_of, build
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.check_options import OPTIONS_KEY, stored_options
from warpfront_checks.claims import DEVICES
from warpfront_checks.results import FAILED, CheckRecord, ResultsError, read_results, surroundings

FLOATS = ("float32", "bfloat16", "float16", "float64")
_SHOWN, _FAULTS = 500, 3
# Of the session's environment, the facts that a vendor asks for first.
_FACTS = ("torch", "device", "driver", "machine", "precision", "threads", OPTIONS_KEY)


class UnexplainedError(Exception):
    """There is no such failure; the message names it."""


def explained(result: Path, check: str) -> str:
    """Return the first failure of a check, as lines of a script.

    Raises `UnexplainedError` where nothing failed, and `ResultsError` for any other file.
    """
    try:
        document = json.loads(result.read_text(encoding="utf-8"))
    except RecursionError:
        raise ResultsError("it is nested too deeply") from None
    named = document if isinstance(document, dict) else {}
    session, target = str(named.get("session")), str(named.get("target"))
    checks = read_results(document, session=session, target=target).checks
    check_record = next((candidate for candidate in checks if candidate.name == check), None)
    if check_record is None:
        names = ", ".join(candidate.name for candidate in checks) or "none"
        raise UnexplainedError(f"{result} has no check {check!r}\nhint: it has {names}")
    if check_record.outcome != FAILED:
        raise UnexplainedError(f"{check} is {check_record.outcome}: no case of it failed")
    if "case" in check_record.details:
        return _case_script(check_record)
    environment = surroundings(document, session=session)
    lines = [f"{session}: {check} is wrong on {target}"]
    lines += [f"{name}: {environment[name]}" for name in _FACTS if name in environment]
    lines.append(f"wrong: {check_record.reason}")
    details = check_record.details
    for name, most in (("faults", _FAULTS), ("bad", _FAULTS), ("report", None), ("script", None)):
        listed = details.get(name)
        lines += [f"  {line}" for line in (listed if isinstance(listed, list) else [])[:most]]
    run = (stored_options(environment) or {}).get("run")
    again = f"python -m warpfront_checks {session} --claims FILE --results FOLDER --run {run}"
    script = "its script is above" if "script" in details else f"{session} has no script"
    lines.append(f"{script}; this runs it again with the same inputs: {again}")
    return "\n".join(map(_comment, lines)) + "\n"


def _comment(line: object) -> str:
    """Return text of a results file as one comment: no line of it can end the comment."""
    return f"# {str(line)[:_SHOWN].encode('unicode_escape').decode()}"


def _case_script(check_record: CheckRecord) -> str:
    """Return a failed case's report as comments, and its script: of values that are ours."""
    stored_case = check_record.details.get("case")
    case = stored_case if isinstance(stored_case, dict) else {}
    if item := stored_item(case):
        return _printed(check_record, case_of(item))
    operation = CATALOGUE.get(str(case.get("operation")))
    stored, device = case.get("assignment"), case.get("device")
    if operation is None or not isinstance(stored, dict) or device not in DEVICES:
        raise UnexplainedError(f"{check_record.name}: the file has no case of the catalogue")
    assignment: dict[str, Any] = {}
    for axis, values in axes_of(operation, FLOATS).items():
        if axis in stored:
            allowed = [*values, *RECONCILED.get(axis, ())]
            matching = [value for value in allowed if _as_json(value) == _as_json(stored[axis])]
            if not matching and not axis.startswith("memory"):
                raise UnexplainedError(f"{check_record.name}: {axis} is not one of the catalogue's")
            assignment[axis] = matching[0] if matching else "contiguous"
    lengths = stored.get("lengths")
    numbers = {key: stored.get(key) for key in ("seed", "wide", "rank")}
    sizes = lengths if isinstance(lengths, dict) else {}
    if any(type(n) is not int or n < 0 for n in (*numbers.values(), *sizes.values())):
        raise UnexplainedError(f"{check_record.name}: a size or the seed is no number")
    script = build(operation, {**assignment, **numbers, "lengths": sizes}, str(device))
    return _printed(check_record, script)


def _printed(check_record: CheckRecord, script: Case) -> str:
    listed = check_record.details.get("report")
    lines = listed if isinstance(listed, list) else []
    return "\n".join([*map(_comment, lines), repr(script)]) + "\n"


def _as_json(value: object) -> str:
    return json.dumps(value, default=str)
