"""Verdicts of each tolerance profile on a verification's tensors. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from warpfront.verify.results import Verification
from warpfront_checks.check_options import current_profile, stored_options

ANSWERS = ("accepted", "refused", "silent")


def profile_counts(verification: Verification) -> dict[str, Counter[str]]:
    """Per profile how many tensors it accepted, refused, and has no tolerance for; empty where
    nothing was compared.
    """
    counts: dict[str, Counter[str]] = {}
    for check in verification.checks:
        profiles = check.details.get("profiles")
        for profile, answers in profiles.items() if isinstance(profiles, Mapping) else ():
            counts.setdefault(current_profile(profile), Counter()).update(_counted(answers))
    return counts


def _counted(answers: object) -> dict[str, int]:
    """Return the number of tensors per verdict; values that are no numbers are not counted."""
    verdicts = answers if isinstance(answers, Mapping) else {}
    return {answer: verdicts[answer] for answer in ANSWERS if isinstance(verdicts.get(answer), int)}


def profiles_text(verification: Verification) -> str:
    """Return a table in plain text; nothing where nothing was compared."""
    counts = profile_counts(verification)
    if not sum(answers.total() for answers in counts.values()):
        return ""
    options = stored_options(verification.environment)
    decided = current_profile(str(options.get("profile"))) if options is not None else None
    lines = [f"{'tensors by tolerance':<22}{'accepted':>9}{'refused':>9}{'silent':>9}"]
    for profile in sorted(counts, key=lambda count: (count != decided, count)):
        numbers = "".join(f"{counts[profile][answer]:>9}" for answer in ANSWERS)
        lines.append(f"{profile:<22}{numbers}{'  decides' if profile == decided else ''}")
    return "\n".join(lines) + "\n"
