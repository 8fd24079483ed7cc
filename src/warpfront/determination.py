"""What a command could not determine. *Words*.

"Not determined" is never reported as success: it has its own reasons and exit code.
"""

from __future__ import annotations

from collections.abc import Iterable

from warpfront.errors import UndeterminedError

_SHOWN = 5
"""Reasons in one message: a tree may have thousands of files that cannot be read."""


def require_determined(
    undetermined: Iterable[str], *, allow_undetermined: bool = False, hint: str = ""
) -> None:
    """Raise `UndeterminedError` (exit code 33) with the first reasons and the number of the rest,
    unless there is none or the user allows it.
    """
    reasons = tuple(dict.fromkeys(undetermined))
    if reasons and not allow_undetermined:
        rest = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise UndeterminedError(f"not determined: {'; '.join(reasons[:_SHOWN])}{rest}", hint=hint)
