"""Patches for the mechanical changes of a port.

An edit of C++ or CUDA is offered only where a compiler for the target, if one is at hand, gives no
error after it that it did not give before.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from warpfront.system.store import storing, write_text
from warpfront.system.trees import list_tree, read_text
from warpfront_port.compile.syntax_pass import REFUSED
from warpfront_port.finding_forms import Scan
from warpfront_port.scan import cuda, python
from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.fix import Fix, fix_source
from warpfront_port.scan.python_fixes import fix_python


def fixes_of(root: Path, *, exclude: Iterable[str] = (), vendored: bool = False) -> tuple[Fix, ...]:
    """Return the fixes that put code below `root` behind gates, in order of paths."""
    fixes: list[Fix | None] = []
    for file in list_tree(root, exclude=exclude, vendored=vendored).files:
        path = PurePosixPath(file.path)
        is_python = python.reads(path)
        text = read_text(root, file) if is_python or cuda.reads(path) else None
        if isinstance(text, str):
            source = SourceText(path=path, text=text)
            matches = () if is_python else cuda.rule_matches(source, Context())
            fixes.append(fix_python(source) if is_python else fix_source(source, matches))
    return tuple(filter(None, fixes))


def compiled_fixes(
    root: Path, fixes: Iterable[Fix], scan: Scan, compiled: Callable[[Path, Scan], Scan]
) -> tuple[tuple[Fix, ...], int]:
    """Return the fixes that a compiler takes, and the number of those that it refuses.

    `compiled` compiles the sources of a scan below another root. A refused edit of a header may
    show in any source, so that one new error refuses every edit of C++ and CUDA.
    """
    listed = tuple(fixes)
    code = [fix for fix in listed if cuda.reads(fix.path)]
    if not code or not scan.compiler:
        return listed, 0
    bare = replace(scan, findings=(), compiled=(), uncompiled=dict.fromkeys(scan.project.units, ""))
    with tempfile.TemporaryDirectory(prefix="warpfront-fix-") as folder:
        copy = Path(folder) / "tree"
        with storing(copy):
            shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        write_fixes(copy, code)
        after = compiled(copy, bare)
    lost = set(scan.compiled) - set(after.compiled)
    if not lost and not _errors(after) - _errors(scan):
        return listed, 0
    return tuple(fix for fix in listed if fix not in code), len(code)


def _errors(scan: Scan) -> Counter[tuple[str, str]]:
    return Counter((f.path, f.message) for f in scan.findings if f.rule == REFUSED)


def write_fixes(root: Path, fixes: Iterable[Fix]) -> None:
    """Write the edited files in place."""
    for path, text in ((root / fix.path, fix.after) for fix in fixes):
        with storing(path):
            mode = path.stat().st_mode
            write_text(path, text)
            path.chmod(mode)
