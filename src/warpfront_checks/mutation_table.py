"""The table of a selftest: what was seeded and caught, what was not demanded and why, and what each
profile would have let pass. `verification_page` puts it into docs/verification.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpfront_checks.check_options import current_profile, profile_names


def draw(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the table, below it every reason for which a fault was not demanded, and the
    verdicts that the profiles would have given.
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
    """Return the share of the seeded faults that each profile lets pass; nothing if
    none was seeded.
    """
    totals: Counter[tuple[str, str]] = Counter()
    overlooked: Counter[tuple[str, str]] = Counter()
    for name, counts in _mutations(documents):
        for profile, count in counts.get("asked", {}).items():
            key = (name, current_profile(profile))
            totals[key] += count
            overlooked[key] += counts["overlooked"][profile]
    if not totals:
        return ""
    profiles = [name for name in profile_names() if any(name == profile for _, profile in totals)]
    lines = [f"| lets pass | {' | '.join(profiles)} |", "|---" * (len(profiles) + 1) + "|"]
    for name in sorted({name for name, _ in totals}):
        shares = [_share(overlooked[name, profile], totals[name, profile]) for profile in profiles]
        lines.append(f"| {name} | {' | '.join(shares)} |")
    return "\n" + "\n".join(lines) + "\n"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.0f} %)" if of else "-"


def _mutations(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for check in (check for document in documents for check in document["checks"]):
        yield from check["details"].get("mutations", {}).items()
