"""Constraints for pip and uv: exact versions of the protected, impossible ones of sentinels."""

from __future__ import annotations

from collections.abc import Mapping

from .policy import Policy

_BUILD_TOOLS = frozenset(("pip", "setuptools", "wheel"))


def requirement(name: str, version: str) -> str:
    """Return the one version of a distribution. `===` where there is no local label:
    `torch==2.15.0` would also accept `2.15.0+cpu` (PEP 440, version matching).
    """
    return f"{name}{'==' if '+' in version else '==='}{version}"


def sentinel(name: str, why: str) -> str:
    """Return a version that no index has; the reason is in its label, where pip and uv print it."""
    return f"{name}==0+{why}"


def pins(policy: Policy) -> list[str]:
    return [requirement(name, version) for name, version in policy.pinned().items()]


def needs(policy: Policy) -> list[str]:
    """Return the stack's needs of others, as wide as its own metadata allows: those may move.
    Builds are checked by `verify` alone: with its constraint `python -m venv` could not bring the
    setuptools of its Python, nor pip 23 give an isolated build the one that it requires.
    """
    needed = policy.needed().items()
    return [f"{name}{accepted}" for name, accepted in needed if name not in _BUILD_TOOLS]


def constraint_lines(policy: Policy) -> list[str]:
    """Return constraints without hashes: with one, pip demands hashes of everything."""
    forbidden = [sentinel(name, why) for name, why in policy.forbidden().items()]
    return [*pins(policy), *forbidden]


def constraints_text(policy: Policy) -> str:
    return _file(policy, "Constraints of this image", constraint_lines(policy))


def needs_text(policy: Policy) -> str:
    """Return the needs, for pip alone: with hashes uv refuses a constraint that is no `==`."""
    return _file(policy, "What this image's torch needs of others", needs(policy))


def overrides_text(policy: Policy) -> str:
    """Return exact versions alone, for `uv pip install --override` with other demands."""
    return _file(policy, "Overrides that keep this image's torch", pins(policy))


def uv_settings(policy: Policy) -> Mapping[str, list[str]]:
    """Return uv's settings. Builds are constrained too: another torch gives another ABI."""
    return {
        "constraint-dependencies": constraint_lines(policy),
        "build-constraint-dependencies": pins(policy),
    }


def _file(policy: Policy, what: str, lines: list[str]) -> str:
    head = (
        f"# {what}, {policy.cell or policy.title}. Written by warpfront-guard; see its `explain`.\n"
    )
    return head + "".join(f"{line}\n" for line in lines)
