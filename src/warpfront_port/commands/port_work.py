"""From a scan to a port: the order of the work, and patches for what is mechanical."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from warpfront.system.store import storing, write_text
from warpfront.system.trees import Tree, list_tree, read_text
from warpfront_port.commands.scanning import torchless_of
from warpfront_port.scan import cuda, python
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import Context, ScanFinding, SourceText
from warpfront_port.scan.fix import Fix, fix_source, opens_cub
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
    """The phases of a port of the tree below `root`, whose findings these are."""
    tree = list_tree(root, exclude=exclude, vendored=vendored)
    return plan_port(findings, catalogue(), (PurePosixPath(file.path) for file in tree.files))


def users_of(root: Path, folders: Iterable[str]) -> Mapping[str, int]:
    """How many files outside each of `folders` include or import something of it."""
    counts = dict.fromkeys(folders, 0)
    files = list_tree(root).files if counts else ()
    for file in files:
        path = PurePosixPath(file.path)
        text = read_text(root, file) if cuda.reads(path) or python.reads(path) else ""
        for folder in counts:
            outside = isinstance(text, str) and not file.path.startswith(f"{folder}/")
            counts[folder] += outside and _uses(str(text), folder)
    return counts


def _uses(text: str, folder: str) -> bool:
    """Whether a source names the folder in an include or an import."""
    last = re.escape(folder.rpartition("/")[2])
    dotted = re.escape(folder.replace("/", "."))
    pattern = rf"(?m)^\s*(?:#\s*include\s*[<\"][^>\"\n]*\b{last}/|(?:from|import)\s+{dotted}\b)"
    return re.search(pattern, text) is not None


def fixes_of(root: Path, *, exclude: Iterable[str] = (), vendored: bool = False) -> tuple[Fix, ...]:
    """What can be put behind gates in the Python, C++, CUDA, scripts and Dockerfiles below `root`,
    in order of paths.
    """
    tree = list_tree(root, exclude=exclude, vendored=vendored)
    context = Context(torchless=torchless_of(tree, tree.files))
    opened_cub = any(opens_cub(one.text) for one in _sources(tree) if cuda.reads(one.path))
    found = (_fix_of(source, context, opened_cub=opened_cub) for source in _sources(tree))
    return tuple(fix for fix in found if fix is not None)


def _sources(tree: Tree) -> Iterator[SourceText]:
    for file in tree.files:
        path = PurePosixPath(file.path)
        ours = cuda.reads(path) or python.reads(path) or fixes_scripts(path)
        text = read_text(tree.root, file) if ours else None
        if isinstance(text, str):
            yield SourceText(path=path, text=text)


def _fix_of(source: SourceText, context: Context, *, opened_cub: bool) -> Fix | None:
    if python.reads(source.path):
        return fix_python(source)
    if fixes_scripts(source.path):
        return fix_script(source, context)
    return fix_source(source, cuda.rule_matches(source, Context()), opened_cub=opened_cub)


def write_fixes(root: Path, fixes: Iterable[Fix]) -> int:
    """The files with their edits, in place; how many."""
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
