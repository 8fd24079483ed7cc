"""Installation of warpfront in CI by hash or by commit: `install:` of matrix.yaml. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from warpfront.errors import Problem
from warpfront.matrix.language import InstallText
from warpfront.system.document import Document
from warpfront.system.sizes import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """The source of warpfront in CI's jobs. `source` is an installer's requirement: a wheel's
    address, `git+https://...@<commit>`, the path of a requirements file, or `.`.
    """

    kind: Literal["wheel", "git", "requirements", "checkout"]
    source: str
    sha256: str = ""


CHECKOUT = Install(kind="checkout", source=".")
"""warpfront's own repository: what is checked out is what runs."""


def make_install(
    text: InstallText | None, document: Document
) -> tuple[Install | None, list[Problem]]:
    """Return `install:`, and what is wrong with it."""
    if text is None:
        return None, []
    problems = [
        document.problem(("install", *where), message, _FORMS) for where, message in _wrong(text)
    ]
    if problems:
        return None, problems
    if text.wheel:
        return Install(kind="wheel", source=text.wheel, sha256=text.sha256 or ""), []
    if text.git:
        return Install(kind="git", source=f"git+{text.git}@{text.commit}"), []
    return Install(kind="requirements", source=text.requirements or ""), []


_FORMS = (
    "one of `wheel` with `sha256`, `git` with `commit`, and `requirements` (a file with hashes)"
)


def _wrong(text: InstallText) -> Iterator[tuple[tuple[str, ...], str]]:
    ways = [way for way in ("wheel", "git", "requirements") if getattr(text, way)]
    if len(ways) != 1:
        yield (), f"`install` names {counted(len(ways), 'source')}"
    for way, pin in (("wheel", "sha256"), ("git", "commit")):
        if bool(getattr(text, way)) != bool(getattr(text, pin)):
            yield (
                (way,) if getattr(text, way) else (pin,),
                f"`install`: `{way}` and `{pin}` go together",
            )
