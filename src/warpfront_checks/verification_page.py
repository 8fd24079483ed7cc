"""Every count of docs/verification.md, drawn from the results of whole runs and put between the
page's markers: `python -m warpfront_checks.verification_page RESULTS PAGE [--write]`.

Without `--write` it only reports whether the page is current (exit 1 if not).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warpfront_checks.check_options import SESSIONS, current_profile, profile_names
from warpfront_checks.mutation_table import draw

# The runs that the page is about: what it calls them, and their folder below the results.
RUNS = {"CPU image": "2026-11-23-cpu-image", "H200": "2026-11-23-h200-whole"}
PAIR = "2026-11-21-h200-x2-devices"
TABLES = Path(__file__).parent
Results = Mapping[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="the folder of all runs: docs/results")
    parser.add_argument("page", type=Path, help="docs/verification.md")
    parser.add_argument("--write", action="store_true", help="write what has changed")
    options = parser.parse_args(arguments)
    before = options.page.read_text(encoding="utf-8")
    after = redrawn(before, options.results)
    if options.write:
        options.page.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {options.page} is not current\n  hint: run this with --write\n")
        return 1
    return 0


def redrawn(page: str, results: Path) -> str:
    """Return the page with every table between its markers drawn anew. Raise `ValueError` for a
    page that lacks a marker.
    """
    for name, draw_part in PARTS.items():
        page = replaced(page, name, draw_part(results))
    return page


def replaced(page: str, name: str, table: str) -> str:
    """Return a page with a table between the markers of its name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, marker, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not marker or not closed:
        raise ValueError(f"the page has no {begin} and {end} to write between")
    return f"{before}{begin}\n{table}{end}{after}"


def draw_counts(results: Path) -> str:
    """Return the number of checks of each run."""
    lines = [f"| | {' | '.join(RUNS)} |", "|---" * (len(RUNS) + 1) + "|"]
    columns = [_counts(results / folder) for folder in RUNS.values()]
    lines += [
        f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]
    ]
    rows = json.loads((TABLES / "opinfo" / "exclusions.json").read_text(encoding="utf-8"))
    excluded, reasons = len(rows["exclusions"]), len(rows["reasons"])
    pair = len(_read(results / PAIR, "selftest-*.json")[0]["checks"])
    note = (
        f"Of the database {excluded} declared rows are not judged, each for one of {reasons}"
        f" reasons. Between two H200s {pair} faults of collectives were seeded and caught."
    )
    return "\n".join(lines) + f"\n\n{note}\n"


def draw_refused(results: Path) -> str:
    """Return the table of correct results that each profile refuses, over all tensors, a
    column per run.
    """
    all_opinions = [_opinions(_sessions(results / folder)) for folder in RUNS.values()]
    heads = " | ".join(f"refused of the {name}'s" for name in RUNS)
    lines = [f"| profile | {heads} |", "|---" * (len(RUNS) + 1) + "|"]
    for profile in profile_names():
        cells = []
        for counts in all_opinions:
            refused, accepted = counts[profile, "refused"], counts[profile, "accepted"]
            cells.append(f"{refused:,} of {refused + accepted:,}")
        lines.append(f"| {profile} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_mutations(results: Path) -> str:
    folders = [results / folder for folder in (*RUNS.values(), PAIR)]
    return draw(
        [check_record for folder in folders for check_record in _read(folder, "selftest*.json")]
    )


PARTS: Mapping[str, Callable[[Path], str]] = {
    "refused": draw_refused,
    "mutations": draw_mutations,
    "counts": draw_counts,
}


def _counts(folder: Path) -> dict[str, str]:
    """Return one run's column, by the label of the line."""
    sessions = _sessions(folder)
    operators = sessions["operators"]["environment"]["counts"]
    required = next(value for name, value in operators.items() if name.startswith("of the "))
    opinfo = [check_record["details"] for check_record in _named(sessions["opinfo"], "samples")]
    backward = [
        check_record["details"]["entries"]
        for check_record in _named(sessions["opinfo"], "samples")
        if check_record["name"].endswith("backward")
    ]
    models = _named(sessions["models"], "tensors")
    seeded = [
        check["details"].get("seeded", 0)
        for document in _read(folder, "selftest*.json")
        for check in document["checks"]
    ]
    return {
        "operators: operations, of these required": f"{operators['operators']}, {required}",
        "operators: fused patterns": f"{operators['patterns']}",
        "operators: cases, in dtypes": (
            f"{operators['cases']:,}, {len(operators['cases per dtype'])}"
        ),
        "opinfo: entries forward, backward": (
            f"{max(details['entries'] for details in opinfo)}, {max(backward)}"
        ),
        "opinfo: samples": f"{sum(details['samples'] for details in opinfo):,}",
        "models: checks, tensors": (
            f"{len(models)}, {sum(model['details']['tensors'] for model in models):,}"
        ),
        "golden: cases and dtypes": f"{len(_named(sessions['golden'], 'three_ways'))}",
        "all checks": f"{sum(len(session['checks']) for session in sessions.values())}",
        "faults seeded": f"{sum(seeded):,}",
    }


def _named(session: Results, detail: str) -> list[Any]:
    """Return the checks of a session whose details say something."""
    return [check for check in session["checks"] if detail in check["details"]]


def _sessions(folder: Path) -> dict[str, Results]:
    """Return the sessions that were run: a session may be younger than a run."""
    return {name: session for name in SESSIONS for session in _read(folder, f"{name}.json")}


def _read(folder: Path, pattern: str) -> list[Results]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(pattern))]


def _opinions(sessions: Mapping[str, Results]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for check in (check for session in sessions.values() for check in session["checks"]):
        for profile, answers in check["details"].get("profiles", {}).items():
            for answer, count in answers.items():
                counts[current_profile(profile), answer] += count
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
