"""A scan of one source tree: files listed, read and judged, over processes where it pays."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import FrameType

from warpfront.errors import StoreError
from warpfront.model import Unread
from warpfront.system.progress import Watch
from warpfront.system.store import read_text as read_file
from warpfront.system.store import write_text
from warpfront.system.trees import Tree, TreeFile, list_tree, read_text
from warpfront_port.finding_forms import Scan
from warpfront_port.hipify_tables import read_identifiers
from warpfront_port.scan import cuda, structured
from warpfront_port.scan.baseline import baseline_text, beyond, read_baseline
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.cuda import headers
from warpfront_port.scan.engines import BINARIES, Scope, is_read, scan_source
from warpfront_port.scan.findings import Context, ScanFinding, SourceText
from warpfront_port.scan.left_out import (
    beside_amds,
    cudas_beside_amds,
    names_amd,
    unproven_beside,
    unproven_code,
)
from warpfront_port.scan.severities import Judged, said_once
from warpfront_port.scan.targets import ScanTarget
from warpfront_port.scan.words import is_aside

SECONDS_PER_FILE = 20.0
_CHUNK_BYTES = 512 * 1024
_ALONE_BYTES = 1024 * 1024
"""Below this a scan takes less time than starting processes for it."""

BASELINE = ".warpfront-baseline.json"
_WORTH_SAYING = 500

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileResult:
    path: str
    lines: int
    judged: Judged | None
    unread: Unread | None


class _TookTooLongError(Exception):
    """The time of one file is over."""


def scan_tree(
    root: Path,
    target: ScanTarget,
    *,
    exclude: Iterable[str] = (),
    vendored: bool = False,
    before: Path | None = None,
    processes: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Scan:
    """Every finding for `target` in the tree below `root`; with `before`, the tree that it is an
    edit of, what the edit changed for NVIDIA too. Same tree, same result, however many processes.
    Raises `StoreError` if there is no such folder.
    """
    if before is not None and not before.is_dir():
        raise StoreError(f"{before} is no folder", hint="--before names the tree before an edit")
    tree = list_tree(root, exclude=exclude, vendored=vendored)
    files = [file for file in tree.files if is_read(PurePosixPath(file.path))]
    scope = Scope(
        target=target,
        rules=catalogue(),
        context=_context(tree, files),
        before=str(before.absolute()) if before else "",
    )
    results = sorted(_results(root, files, scope, processes, progress), key=lambda r: r.path)
    judged = [result.judged for result in results if result.judged is not None]
    unread = [result.unread for result in results if result.unread is not None]
    return Scan(
        target=target.name,
        findings=tuple(said_once((f for one in judged for f in one.findings), scope.rules)),
        unread=tuple(sorted((*tree.unread, *unread))),
        files=len(judged),
        lines=sum(result.lines for result in results),
        suppressed=sum(one.suppressed for one in judged),
    )


def _context(tree: Tree, files: Sequence[TreeFile]) -> Context:
    """torch's tables are worth reading only where there is CUDA to look up in them."""
    texts = _texts(tree, (file for file in files if cuda.reads(PurePosixPath(file.path))))
    paths = [file.path for file in files]
    heard = _heard_of(tree, files, texts)
    knows_amd = "asked" in heard or _knows_amd(heard, paths)
    base = Context(
        own_packages=_own_packages(tree),
        torchless=torchless_of(tree, files),
        left_out=beside_amds(paths) | cudas_beside_amds(paths),
        unproven=unproven_beside(paths) if knows_amd else frozenset(),
        knows_amd=knows_amd,
        ported=knows_amd,
    )
    if not texts:
        return base
    renamed = not heard.isdisjoint({"extensions", "renaming"})
    known = dict(headers.NO_CUDACC) if "hip" in heard and not renamed else {}
    facing = Context(vendor_macros=known)
    facts = {
        path: cuda.header_facts(SourceText(path=PurePosixPath(path), text=text), facing)
        for path, text in texts.items()
    }
    ported = _is_ported(heard, paths, texts, facts.values())
    if ported:
        heard |= {"hip"}
    elif heard.isdisjoint({"extensions", "renaming"}):
        heard -= {"hip"}
    known |= headers.vendor_macros(facts.values())
    shared = _shared_switches(tree, files) if "hip" not in heard and "extensions" in heard else ()
    return replace(
        base,
        identifiers=read_identifiers(),
        portable_names=frozenset().union(*(one.portable for one in facts.values()), shared),
        vendor_macros=known,
        own_namespaces=frozenset().union(*(one.namespaces for one in facts.values())),
        own_macros=headers.own_macros(facts.values()),
        own_variables=frozenset().union(*(one.variables for one in facts.values())),
        unproven=base.unproven | (unproven_code(texts) if knows_amd else frozenset()),
        untranslated=heard.isdisjoint({"hip", "extensions"}) and headers.has_code(texts),
        hipless="hip" not in heard and ("extensions" in heard or headers.has_code(texts)),
        ported=ported,
        cuda_headers=headers.runtime_headers(texts),
    )


def _is_ported(
    heard: frozenset[str],
    paths: Iterable[str],
    texts: Mapping[str, str],
    facts: Collection[headers.HeaderFacts],
) -> bool:
    if "hipify" in heard or len(cudas_beside_amds(paths)) > headers.BEGUN:
        return True
    product = [text for path, text in texts.items() if not is_aside(PurePosixPath(path))]
    asked = "asked" in heard and not headers.is_untouched(product)
    return asked or headers.is_ported(heard, product or texts.values(), facts)


def torchless_of(tree: Tree, files: Iterable[TreeFile]) -> frozenset[str]:
    """The files of requirements that bring no torch (`Context.torchless`)."""
    listed = (one for one in files if structured.lists_requirements(PurePosixPath(one.path)))
    return structured.torchless(_texts(tree, listed))


def _texts(tree: Tree, files: Iterable[TreeFile]) -> dict[str, str]:
    read = ((file.path, read_text(tree.root, file)) for file in files)
    return {path: text for path, text in read if isinstance(text, str)}


def _heard_of(tree: Tree, files: Sequence[TreeFile], texts: Mapping[str, str]) -> frozenset[str]:
    """What the files of a tree have heard of; those that were not read yet come last. A script or
    a notebook says what somebody ran, not what the code has. A README that names AMD's devices has
    "asked", where the code knows of them or needs to know nothing: else it says what is to come.
    """
    rest = (
        read_text(tree.root, file)
        for file in files
        if file.path not in texts and not _is_only_run(PurePosixPath(file.path))
    )
    heard = headers.heard_of(texts.values(), (text for text in rest if isinstance(text, str)))
    readmes = (file for file in tree.files if file.path.lower().startswith("readme"))
    says = headers.says_amd(_texts(tree, readmes).values())
    begun = "extensions" in heard or not headers.has_code(texts) or headers.is_begun(texts.values())
    return heard | {"asked"} if says and begun else heard


def _knows_amd(heard: frozenset[str], paths: Iterable[str]) -> bool:
    return not heard.isdisjoint({"hip", "rocm"}) or names_amd(paths)


def _is_only_run(path: PurePosixPath) -> bool:
    return path.suffix == ".ipynb" or structured.kind_of(path) == "shell"


def _shared_switches(tree: Tree, files: Iterable[TreeFile]) -> frozenset[str]:
    modules = _texts(tree, (file for file in files if file.path.endswith(".py")))
    return headers.shared_switches(modules.values())


def _own_packages(tree: Tree) -> frozenset[str]:
    """Folders with an `__init__.py` whose parent has none: what the tree installs or runs."""
    packages = {
        PurePosixPath(file.path).parent for file in tree.files if file.path.endswith("/__init__.py")
    }
    return frozenset(folder.name for folder in packages if folder.parent not in packages)


def _results(
    root: Path,
    files: Sequence[TreeFile],
    scope: Scope,
    processes: int | None,
    progress: Progress,
) -> Iterator[_FileResult]:
    wanted = processes or os.cpu_count() or 1
    done = 0
    if wanted == 1 or sum(file.size_bytes for file in files) < _ALONE_BYTES:
        for file in files:
            yield _scan_file(root, file, scope)
            done += 1
            progress(done, len(files))
        return
    for results in _over_processes(root, files, scope, wanted):
        yield from results
        done += len(results)
        progress(done, len(files))


def _over_processes(
    root: Path, files: Sequence[TreeFile], scope: Scope, processes: int
) -> Iterator[list[_FileResult]]:
    """Chunk by chunk, as they are done. A file that ends its process costs that file only."""
    left: list[TreeFile] = []
    with _pool(processes, scope) as pool:
        chunks = {pool.submit(_scan_chunk, root, chunk): chunk for chunk in _chunks(files)}
        for future in as_completed(chunks):
            results = _result_of(future)
            if results is None:
                left += chunks[future]
            else:
                yield results
    for file in sorted(left):
        with _pool(1, scope) as pool:
            results = _result_of(pool.submit(_scan_chunk, root, [file]))
        reason = "its scan ended the process that did it"
        yield results or [_unread_result(Unread(path=file.path, reason=reason))]


def _pool(processes: int, scope: Scope) -> ProcessPoolExecutor:
    """Spawned, not forked: the display has threads, and a fork copies only one of them."""
    plain = (scope.target, scope.context, scope.before)
    return ProcessPoolExecutor(
        max_workers=processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=plain,
    )


_worker_scope: list[Scope] = []


def _begin_worker(target: ScanTarget, context: Context, before: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scope = Scope(target=target, rules=catalogue(), context=context, before=before)
    _worker_scope[:] = [scope]


def _result_of(future: Future[list[_FileResult]]) -> list[_FileResult] | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


def _chunks(files: Sequence[TreeFile]) -> Iterator[list[TreeFile]]:
    """Large files first, so that the last one to finish is a short one."""
    chunk: list[TreeFile] = []
    size = 0
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.path)):
        chunk.append(file)
        size += file.size_bytes
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _scan_chunk(root: Path, files: Iterable[TreeFile]) -> list[_FileResult]:
    return [_scan_file(root, file, _worker_scope[0]) for file in files]


def _scan_file(root: Path, file: TreeFile, scope: Scope) -> _FileResult:
    text = read_text(root, file)
    if isinstance(text, Unread):
        if PurePosixPath(file.path).suffix not in BINARIES:
            return _unread_result(text)
        text = ""
    source = SourceText(path=PurePosixPath(file.path), text=text)
    before = _before(file, scope)
    try:
        judged = _within(SECONDS_PER_FILE, functools.partial(scan_source, source, scope, before))
    except _TookTooLongError:
        reason = f"its scan took longer than {SECONDS_PER_FILE:.0f} s"
        return _unread_result(Unread(path=file.path, reason=reason))
    return _FileResult(path=file.path, lines=text.count("\n") + 1, judged=judged, unread=None)


def _before(file: TreeFile, scope: Scope) -> SourceText | None:
    """The file as it was; None for a new one, and for one that cannot be read as text."""
    if not scope.before or not (Path(scope.before) / file.path).is_file():
        return None
    text = read_text(Path(scope.before), file)
    return SourceText(path=PurePosixPath(file.path), text=text) if isinstance(text, str) else None


def _unread_result(unread: Unread) -> _FileResult:
    return _FileResult(path=unread.path, lines=0, judged=None, unread=unread)


def _within(seconds: float, act: Callable[[], Judged]) -> Judged:
    """What `act` gives, or `_TookTooLongError`. Python looks for signals inside long matches too,
    so that no expression can hold a scan up.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TookTooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return act()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What somebody wants scanned: the tree at `repo` for `target`, accepted findings left out."""

    repo: Path
    target: ScanTarget
    exclude: tuple[str, ...] = ()
    vendored: bool = False
    before: Path | None = None
    baseline: str = ""
    write_baseline: bool = False


def scan(request: ScanRequest, watch: Watch) -> tuple[Scan, tuple[ScanFinding, ...]]:
    """The scan, and those of its findings that no baseline covers. With `write_baseline` the file
    is written first, and nothing is left to say.
    """
    found = scan_tree(
        request.repo,
        request.target,
        exclude=request.exclude,
        vendored=request.vendored,
        before=request.before,
        progress=_said_in_tenths(watch),
    )
    path = Path(request.baseline) if request.baseline else request.repo / BASELINE
    if request.write_baseline:
        write_text(path, baseline_text(found.findings))
        watch.say(f"wrote {path}: {len(found.findings)} findings are accepted")
    text = read_file(path, missing_ok=not request.baseline)
    accepted = read_baseline(text, str(path)) if text is not None else {}
    return found, beyond(found.findings, accepted)


def _said_in_tenths(watch: Watch) -> Progress:
    said = [0]

    def progress(done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if total >= _WORTH_SAYING and tenth > said[0]:
            said[0] = tenth
            watch.step("scan", f"{done} of {total} files" if done < total else "")

    return progress
