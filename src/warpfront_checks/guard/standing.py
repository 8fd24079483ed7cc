"""The present state of a stack. The seal applies only to distributions that still have to be as
they were: after `relax` it may be another torch, half of one, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution
from pathlib import Path

from .measuring import recorded_paths, versions_of
from .policy import GuardError, Policy


def sentence(policy: Policy, there: Mapping[str, list[Distribution]]) -> str:
    """Return the torch that is here, and whether it has to be the one that was sealed."""
    sealed = policy.protected.get("torch", "")
    if not policy.is_relaxed("torch"):
        rest = sorted({*policy.protected} & {*policy.relaxed})
        but = f", all but {', '.join(rest)}, which may be another" if rest else ""
        return f"{policy.holds()}: as it was sealed{but}"
    found = versions_of(there, "torch")
    here = f"torch {' and '.join(found)}" if found else "no torch"
    return f"{here} is here; sealed was {sealed or 'the torch of its base'}, which was relaxed"


def relaxed_problems(
    policy: Policy, there: Mapping[str, list[Distribution]], location: Path
) -> Iterator[tuple[str, str]]:
    """Return (distribution, fault) for relaxed distributions that are no longer whole: the
    metadata is present, and the files are gone.
    """
    for name in sorted(policy.protected):
        for distribution in there.get(name, []) if policy.is_relaxed(name) else ():
            try:
                paths = recorded_paths(distribution, location)
            except GuardError as error:
                yield name, str(error)
                continue
            missing = [path for path in paths if not (location / path).is_file()]
            if missing:
                text = f"{len(missing)} of its {len(paths)} files are missing, {missing[0]} first"
                yield name, f"{distribution.version} was installed, and {text}"
