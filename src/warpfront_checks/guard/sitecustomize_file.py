"""The `sitecustomize.py` of the interpreter that environments are made from.

A virtual environment reads no .pth of the image's. It does import `sitecustomize` from the
standard library's folder, and does so after every .pth, so the watch is put in front of whatever
those put there.
"""

from __future__ import annotations

from .loading import by_file, indented
from .places import Places

_BEGIN = "# warpfront-guard: begin"
_END = "# warpfront-guard: end"
_BLOCK = """\
{begin}
try:
{load}
    warpfront_guard.startup.start({packages!r})
except Exception as error:
    if sys.stderr is not None:
        print(f"warpfront guard: torch is not watched: {{error}}", file=sys.stderr)
{end}
"""


def block(places: Places) -> str:
    return _BLOCK.format(
        begin=_BEGIN,
        end=_END,
        load=indented(by_file(places.library, "startup")).rstrip(),
        packages=str(places.site_packages),
    )


def with_block(theirs: str, places: Places) -> str:
    """Return the file with our block; the base's text stays, before it."""
    before, found, rest = theirs.partition(f"{_BEGIN}\n")
    kept = before + rest.partition(f"{_END}\n")[2] if found else theirs
    return kept + ("\n" if kept and not kept.endswith("\n") else "") + block(places)
