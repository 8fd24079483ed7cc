"""One line in pytest's own form for what it said in several logs: who reads the last line of a run
of many tiers sees the sum.

usage: scripts/tally.py SECONDS [--failed LOG]... [LOG]...
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_SUM = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+ ?s\b", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (failed|passed|skipped|xfailed|xpassed|error)")
_ORDER = ("failed", "passed", "skipped", "xfailed", "xpassed", "error")


def counts(log: str) -> Counter[str]:
    """What the last sum in a log says; nothing where there is none."""
    sums = _SUM.findall(log)
    return Counter({what: int(number) for number, what in _COUNT.findall(sums[-1] if sums else "")})


def total(logs: Iterable[tuple[str, bool]]) -> Counter[str]:
    """Over texts of logs, each with whether it failed: one that did without a failed test, as a
    linter does, is an error.
    """
    found: Counter[str] = Counter()
    for log, failed in logs:
        own = counts(log)
        found += own
        found["error"] += failed and not (own["failed"] or own["error"])
    return found


def line(found: Mapping[str, int], seconds: int) -> str:
    """As pytest ends with: its order, its plural."""
    said = [f"{found[what]} {what}" for what in _ORDER if found.get(what)]
    if found.get("error", 0) > 1:
        said[-1] += "s"
    return f"=== {', '.join(said) or 'no tests ran'} in {seconds} s ==="


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--failed", type=Path, action="append", default=[])
    parser.add_argument("logs", type=Path, nargs="*")
    given = parser.parse_intermixed_args(arguments)
    logs = [(log.read_text(errors="replace"), log in given.failed) for log in given.logs]
    print(line(total(logs), given.seconds))


if __name__ == "__main__":
    main()
