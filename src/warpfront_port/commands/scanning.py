"""A scan of one source tree: files listed, read and judged, over processes where it pays."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import FrameType

from packaging.utils import canonicalize_name

from warpfront.errors import StoreError
from warpfront.system.progress import Watch
from warpfront.system.store import read_text as read_file
from warpfront.system.store import write_text
from warpfront.system.texts import counted
from warpfront.system.tree_files import UnreadFile
from warpfront.system.trees import Tree, TreeFile, list_tree, read_text
from warpfront_port.finding_forms import Scan, taken_of, undetermined_files
from warpfront_port.scan import cuda, languages
from warpfront_port.scan.baseline import baseline_text, beyond, read_baseline
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.cuda import headers
from warpfront_port.scan.cuda.warp_size_rules import OF_THE_WAVE
from warpfront_port.scan.engines import Scope, is_read, scan_source
from warpfront_port.scan.evidence import evidence_of
from warpfront_port.scan.findings import Context, ScanFinding, SourceText
from warpfront_port.scan.project import Project, read_project
from warpfront_port.scan.reach import MANIFESTS, read_commands
from warpfront_port.scan.severities import Judged
from warpfront_port.scan.targets import ScanTarget
from warpfront_port.scan.verdict import Verdict, judge_project, required
from warpfront_port.scan.words import is_aside

SECONDS_PER_FILE = 20.0
_CHUNKS = 16
"""The parts of a tree for each process."""
_ALONE_BYTES = 1024 * 1024
"""Below this a scan takes less time than starting processes for it."""

NO_TOOLCHAIN = "no HIP toolchain"
BASELINE = ".warpfront-baseline.json"
_COMMANDS = "compile_commands.json"
_WORTH_SAYING = 500
_THRESHOLDS = 500_000, 3, 3
"""Of the garbage collector: by its defaults a third of a scan goes through living syntax trees."""
_NAMED = re.compile(r"(?m)^[ \t]*name\s*=\s*[\"']?([\w.-]+)")

Progress = Callable[[int, int], None]


_FileResult = tuple[str, Judged | UnreadFile]
"""The path of a file, and its findings or the reason why it was not scanned."""


class _TookTooLongError(Exception):
    """The time of one file is over."""


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A request to scan the tree at `repo` for `target`, without accepted findings. `compiler` is
    where that of its CUDA sources is from: auto, host, fetched, matrix or none.

    With `before`, findings include what an edit of that tree changed for NVIDIA.
    """

    repo: Path
    target: ScanTarget
    exclude: tuple[str, ...] = ()
    vendored: bool = False
    before: Path | None = None
    baseline: str = ""
    write_baseline: bool = False
    compiler: str = "auto"


@_collecting_seldom()
def scan_tree(
    request: ScanRequest,
    *,
    processes: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Scan:
    """Return every finding for the target in the tree.

    The result does not depend on the number of processes. Raise `StoreError` for no folder.
    """
    root, target, before = request.repo, request.target, request.before
    if before is not None and not before.is_dir():
        raise StoreError(f"{before} is no folder", hint="--diff-base names the tree before an edit")
    tree = list_tree(root, exclude=request.exclude, vendored=request.vendored)
    files = [file for file in tree.files if is_read(PurePosixPath(file.path))]
    texts = _texts(root, files)
    project = read_project(texts, _commands(root))
    unread_sources = languages.unread_sources({file.path for file in tree.files}, project.product)
    others = [file for file in tree.files if languages.reads(PurePosixPath(file.path))]
    files, texts = files + others, texts | _texts(root, others)
    deciding = {path: texts[path] for path in unread_sources.keys() & texts.keys()}
    lines = {path: text.count("\n") for path, text in deciding.items()}
    lines |= project.product.lines
    listed = _texts(root, [file for file in tree.files if languages.MANIFEST.fullmatch(file.path)])
    listed = {path: text for path, text in listed.items() if not is_aside(PurePosixPath(path))}
    named, amd = languages.named_for_nvidia(deciding, listed)
    of_nvidia = frozenset() if amd else named
    project = replace(project, product=replace(project.product, lines=lines, of_nvidia=of_nvidia))
    context = _context(tree, texts, project)
    earlier = str(before.absolute()) if before else ""
    scope = Scope(target=target, context=context, before=earlier)
    results = dict(sorted(_results(root, files, scope, processes, progress), key=lambda r: r[0]))
    judged = {path: result for path, result in results.items() if isinstance(result, Judged)}
    idle = {file.path for file in others} - unread_sources.keys()  # unread, they open nothing
    unread = [r for path, r in results.items() if isinstance(r, UnreadFile) and path not in idle]
    manifests = (text for path, text in texts.items() if path.rpartition("/")[2] in MANIFESTS)
    own = {canonicalize_name(name) for text in manifests for name in _NAMED.findall(text)}
    every = (finding for result in judged.values() for finding in result.findings)
    findings = tuple(
        finding
        for finding in every
        if required(finding) not in own
        # What a few files in another language need, the others may go without.
        and (finding.rule != "LG801" or finding.path in unread_sources)
    )
    needed = project.product.is_most(named) or any(f.rule == "LG801" for f in findings)
    return Scan(
        target=target.name,
        findings=findings,
        unread=tuple(sorted((*tree.unread, *unread))),
        files=len(judged),
        lines=sum(texts.get(path, "").count("\n") + 1 for path in judged),
        suppressed=sum(result.suppressed for result in judged.values()),
        project=project,
        evidence=context.evidence if target.is_rocm else {},
        uncompiled=dict.fromkeys(project.units, NO_TOOLCHAIN),
        unread_sources=languages.unread_reason(unread_sources, listed, of_nvidia=needed, amd=amd),
    )


def _texts(root: Path, files: Iterable[TreeFile]) -> dict[str, str]:
    read = ((file.path, read_text(root, file)) for file in files)
    return {path: text for path, text in read if isinstance(text, str)}


def _context(tree: Tree, texts: Mapping[str, str], project: Project) -> Context:
    """Return what engines may know of the tree."""
    product = project.product
    # The packages that the tree installs or runs: folders whose parent is none.
    packages = {
        PurePosixPath(file.path).parent for file in tree.files if file.path.endswith("/__init__.py")
    }
    own_packages = frozenset(folder.name for folder in packages if folder.parent not in packages)
    modules = {path[:-3] for path in texts if path.endswith(".py") and "/" not in path}
    base = Context(
        own_packages=own_packages | modules,
        evidence=evidence_of(texts, project),
        started=product.started,
    )
    code = {path: text for path, text in texts.items() if cuda.reads(PurePosixPath(path))}
    if not code:
        return base
    sources = [SourceText(path=PurePosixPath(path), text=text) for path, text in code.items()]
    facts = [cuda.header_facts(source) for source in sources]
    return replace(
        base,
        own_headers=frozenset(source.path.name for source in sources),
        portable_names=frozenset().union(*(fact.portable for fact in facts)),
        vendor_macros=headers.vendor_macros(facts, headers.twin_macros(code.values())),
        is_hipified=bool(project.builds),
        takes_whole_waves=any(map(OF_THE_WAVE.search, code.values())),
    )


def _commands(root: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the sources of a build that was configured at `root`, with their options."""
    for path in (root / _COMMANDS, *sorted(root.glob(f"*build*/{_COMMANDS}"))):
        try:
            text = read_file(path, missing_ok=True)
            if text is not None:
                return read_commands(text, str(root.resolve()))
        except (StoreError, ValueError, AttributeError, TypeError, RecursionError):
            continue
    return {}


def _results(
    root: Path,
    files: Sequence[TreeFile],
    scope: Scope,
    processes: int | None,
    progress: Progress,
) -> Iterator[_FileResult]:
    process_count = processes or os.cpu_count() or 1
    count = 0
    alone = process_count == 1 or sum(file.size_bytes for file in files) < _ALONE_BYTES
    chunks = (
        ([_scan_file(root, file, scope)] for file in files)
        if alone
        else _over_processes(root, files, scope, process_count)
    )
    for results in chunks:
        yield from results
        count += len(results)
        progress(count, len(files))


def _over_processes(
    root: Path, files: Sequence[TreeFile], scope: Scope, processes: int
) -> Iterator[list[_FileResult]]:
    """Yield results chunk by chunk, as they finish. A file that ends its process costs
    that file only.
    """
    unfinished: list[TreeFile] = []
    with _pool(processes) as pool:
        # Each chunk has large files and small ones, so that none takes much longer than the others.
        ordered = sorted(files, key=lambda file: (-file.size_bytes, file.path))
        parts = [ordered[start :: _CHUNKS * processes] for start in range(_CHUNKS * processes)]
        chunks = {pool.submit(_scan_chunk, root, part, scope): part for part in filter(None, parts)}
        for future in as_completed(chunks):
            try:
                yield future.result()
            except BrokenProcessPool:
                unfinished += chunks[future]
    for file in sorted(unfinished):
        with _pool(1) as pool:
            try:
                yield pool.submit(_scan_chunk, root, [file], scope).result()
            except BrokenProcessPool:
                reason = "its scan ended the process that did it"
                yield [(file.path, UnreadFile(path=file.path, reason=reason))]


def _pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of spawned processes, not forked ones: the display has threads, and a fork
    copies only one of them.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*_THRESHOLDS)


def _scan_chunk(root: Path, files: Iterable[TreeFile], scope: Scope) -> list[_FileResult]:
    return [_scan_file(root, file, scope) for file in files]


def _scan_file(root: Path, file: TreeFile, scope: Scope) -> _FileResult:
    text = read_text(root, file)
    if isinstance(text, UnreadFile):
        return file.path, text
    source = SourceText(path=PurePosixPath(file.path), text=text)
    before = None
    if scope.before and (Path(scope.before) / file.path).is_file():
        earlier = read_text(Path(scope.before), file)
        if isinstance(earlier, str):
            before = SourceText(path=source.path, text=earlier)
    try:
        with _limited(SECONDS_PER_FILE):
            return file.path, scan_source(source, scope, before)
    except _TookTooLongError:
        reason = f"its scan took longer than {SECONDS_PER_FILE:.0f} s"
        return file.path, UnreadFile(path=file.path, reason=reason)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_TookTooLongError` in the block once the time is over.

    Python checks for signals inside long matches too, so that no expression can block a scan.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TookTooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def scan(
    request: ScanRequest, watch: Watch, compiled: Callable[[Scan], Scan] = lambda result: result
) -> tuple[Scan, tuple[ScanFinding, ...]]:
    """Return the scan, and those of its findings that no baseline covers.

    `write_baseline` writes the file first, so that it covers every finding.
    """
    last_tenth = 0

    def progress(count: int, total: int) -> None:
        nonlocal last_tenth
        tenth = 10 * count // max(total, 1)
        if total >= _WORTH_SAYING and tenth > last_tenth:
            last_tenth = tenth
            watch.step("scan", f"{count} of {counted(total, 'file')}" if count < total else "")

    result = compiled(scan_tree(request, progress=progress))
    path = Path(request.baseline) if request.baseline else request.repo / BASELINE
    if request.write_baseline:
        write_text(path, baseline_text(result.findings))
        watch.say(f"wrote {path}: {counted(len(result.findings), 'finding')} accepted")
    text = read_file(path, missing_ok=not request.baseline)
    accepted = read_baseline(text, str(path)) if text is not None else {}
    return result, beyond(result.findings, accepted)


def verdict_of(scanned: Scan, new: Iterable[ScanFinding]) -> Verdict:
    """Return the verdict on a scanned tree, from the findings that no baseline accepts."""
    undetermined: list[str] = []  # sources not compiled, files not read
    by_reason: dict[str, list[str]] = {}
    # A compiler that took the sources of AMD's build leaves nothing open about the others.
    decided = {"optional", "aside", *(["left-out"] if scanned.compiled else [])}
    for unit, reason in scanned.uncompiled.items():
        evidence, aside = scanned.evidence.get(unit), scanned.project.product.is_aside(unit)
        if unit in scanned.project.hips and not scanned.compiler:
            continue  # without one, a HIP source shows itself to be AMD's
        if evidence is None or unit in scanned.unsure:
            by_reason.setdefault(reason, []).append(unit)
        elif evidence.kind not in decided and scanned.project.of_cuda and not aside:
            by_reason.setdefault(f"{reason}, and a branch for AMD is no proof", []).append(unit)
    for reason, units in by_reason.items():
        first = ", ".join(units[:3]) + (", ..." if len(units) > 3 else "")
        undetermined.append(f"{counted(len(units), 'source')} not compiled: {first}: {reason}")
    if scanned.unread_sources:
        undetermined.append(scanned.unread_sources)
    for file in undetermined_files(scanned):
        path = file.partition(":")[0]
        if scanned.project.product.has(path) and not is_aside(PurePosixPath(path)):
            undetermined.append(file)
    return judge_project(
        scanned.target,
        new,
        catalogue(),
        scanned.project,
        undetermined=tuple(undetermined),
        taken=taken_of(scanned.evidence),
        compiler=scanned.compiler,
    )
