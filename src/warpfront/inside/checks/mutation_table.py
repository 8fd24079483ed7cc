"""`python -m warpfront.inside.checks.mutation_table RESULTS... [--write PAGE]`: what was caught.

Reads `selftest.json` files and draws one Markdown table over all of them; with `--write`, between
the markers of a page, which is how docs/verification.md gets its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpfront.inside.checks.effort import profile_names

BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
COMMAND = "python -m warpfront.inside.checks.mutation_table"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="selftest.json files")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put it into this page")
    options = parser.parse_args(arguments)
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in options.results]
    text = draw(documents)
    if options.write is None:
        sys.stdout.write(text)
        return 0
    page = options.write.read_text(encoding="utf-8")
    options.write.write_text(replaced(page, text), encoding="utf-8")
    return 0


def draw(documents: Sequence[Mapping[str, Any]]) -> str:
    """The table, below it every reason for which a fault was not demanded, and what the profiles
    would have said.
    """
    caught: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    excused: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for name, counts in _mutations(documents):
        caught[name] += counts["caught"]
        missed[name] += counts["missed"]
        for reason, count in counts["not demanded"].items():
            excused[name] += count
            reasons[reason] += count
    rows = [
        f"| {name} | {caught[name]} | {missed[name]} | {excused[name]} |"
        for name in sorted({*caught, *missed, *excused})
    ]
    total = f"| all | {caught.total()} | {missed.total()} | {excused.total()} |"
    head = ["| seeded | caught | missed | not demanded |", "|---|---|---|---|"]
    why = [f"| {reason} | {count} |" for reason, count in reasons.most_common()]
    below = ["", "| not demanded because | times |", "|---|---|", *why]
    return "\n".join([*head, *rows, total, *below]) + "\n" + _overlooked(documents)


def _overlooked(documents: Sequence[Mapping[str, Any]]) -> str:
    """Which share of the seeded faults each profile lets pass; nothing where none was asked."""
    asked: Counter[tuple[str, str]] = Counter()
    overlooked: Counter[tuple[str, str]] = Counter()
    for name, counts in _mutations(documents):
        for profile, count in counts.get("asked", {}).items():
            asked[name, profile] += count
            overlooked[name, profile] += counts["overlooked"][profile]
    if not asked:
        return ""
    profiles = [one for one in profile_names() if any(one == profile for _, profile in asked)]
    lines = [f"| lets pass | {' | '.join(profiles)} |", "|---" * (len(profiles) + 1) + "|"]
    for name in sorted({name for name, _ in asked}):
        shares = [_share(overlooked[name, one], asked[name, one]) for one in profiles]
        lines.append(f"| {name} | {' | '.join(shares)} |")
    return "\n" + "\n".join(lines) + "\n"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.0f} %)" if of else "-"


def _mutations(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for check in (check for document in documents for check in document["checks"]):
        yield from check["details"].get("mutations", {}).items()


def replaced(page: str, table: str) -> str:
    """A page with the table between its markers. Raises `ValueError` for a page without them."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"the page has no {BEGIN} and {END} to write between")
    return f"{before}{BEGIN}\n{table}{END}{after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
