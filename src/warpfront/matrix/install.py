"""Installation of warpfront in CI by hash or by commit: `install:` of matrix.yaml. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warpfront.errors import Problem
from warpfront.matrix.language import InstallText
from warpfront.system.document import Document
from warpfront.system.sizes import counted

_FORMS = (
    "one of `wheel` with `sha256`, `git` with `commit`, and `requirements` (a file with hashes)"
)


def install_problems(text: InstallText | None, document: Document) -> Iterator[Problem]:
    """Yield what is wrong with `install:`."""
    if text is None:
        return
    ways = [way for way in ("wheel", "git", "requirements") if getattr(text, way)]
    if len(ways) != 1:
        message = f"`install` names {counted(len(ways), 'source')}"
        yield document.problem(("install",), message, _FORMS)
    for way, pin in (("wheel", "sha256"), ("git", "commit")):
        if bool(getattr(text, way)) != bool(getattr(text, pin)):
            where = ("install", way if getattr(text, way) else pin)
            yield document.problem(where, f"`install`: `{way}` and `{pin}` go together", _FORMS)
