"""The steps from a scan to a port: the order of the work, and patches for mechanical changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from warpfront.system.store import storing, write_text
from warpfront.system.trees import Tree, list_tree, read_text
from warpfront_port.commands.scanning import torchless_of
from warpfront_port.scan import cuda, python
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import Context, ScanFinding, SourceText
from warpfront_port.scan.fix import Fix, fix_source
from warpfront_port.scan.phases import Phase, plan_port
from warpfront_port.scan.python_fixes import fix_python
from warpfront_port.scan.script_fixes import fix_script, fixes_scripts


def phases_of(
    root: Path,
    findings: Iterable[ScanFinding],
    *,
    exclude: Iterable[str] = (),
    vendored: bool = False,
) -> tuple[Phase, ...]:
    """Return the phases of a port of the tree below `root`, from its findings."""
    tree = list_tree(root, exclude=exclude, vendored=vendored)
    return plan_port(findings, catalogue(), (PurePosixPath(file.path) for file in tree.files))


def fixes_of(root: Path, *, exclude: Iterable[str] = (), vendored: bool = False) -> tuple[Fix, ...]:
    """Return the fixes that put code below `root` behind gates, in order of paths: Python, C++,
    CUDA, scripts and Dockerfiles.
    """
    tree = list_tree(root, exclude=exclude, vendored=vendored)
    context = Context(torchless=torchless_of(tree, tree.files))
    fixes = (_fix_of(source, context) for source in _sources(tree))
    return tuple(fix for fix in fixes if fix is not None)


def _sources(tree: Tree) -> Iterator[SourceText]:
    for file in tree.files:
        path = PurePosixPath(file.path)
        ours = cuda.reads(path) or python.reads(path) or fixes_scripts(path)
        text = read_text(tree.root, file) if ours else None
        if isinstance(text, str):
            yield SourceText(path=path, text=text)


def _fix_of(source: SourceText, context: Context) -> Fix | None:
    if python.reads(source.path):
        return fix_python(source)
    if fixes_scripts(source.path):
        return fix_script(source, context)
    return fix_source(source, cuda.rule_matches(source, Context()))


def write_fixes(root: Path, fixes: Iterable[Fix]) -> int:
    """Write the edited files in place and return their number."""
    count = 0
    for fix in fixes:
        path = root / fix.path
        with storing(path):
            mode = path.stat().st_mode
        write_text(path, fix.after)
        with storing(path):
            path.chmod(mode)
        count += 1
    return count
