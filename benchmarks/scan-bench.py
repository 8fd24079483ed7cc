#!/usr/bin/env python3
"""How fast the scanner is, beside hipify-perl and ripgrep on the same files in the same run.

    benchmarks/scan-bench.py TREE [--hipify-perl PATH] [--rg PATH] [--hipify-lines 400]

Times are processor seconds, the children's too, so that a busy machine does not blur the ratios;
the last figure, the whole tree over two processes, is also given in seconds of the clock.
hipify-perl gets the shortest C++ and CUDA files of the tree, up to --hipify-lines lines.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan import cuda
from warpfront_port.scan.cuda.name_rows import rows
from warpfront_port.scan.cuda.reading_code import SUFFIXES
from warpfront_port.scan.cuda.warp_size_rules import MASK_NAMES
from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.targets import read_target


def processor_seconds() -> float:
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(act: Callable[[], object]) -> float:
    before = processor_seconds()
    act()
    return processor_seconds() - before


def sources(root: Path) -> list[tuple[Path, SourceText, int]]:
    found = []
    for path in sorted(root.rglob("*")):
        name = PurePosixPath(path.relative_to(root))
        if path.is_file() and cuda.reads(name):
            text = path.read_text(encoding="utf-8", errors="replace")
            found.append((path, SourceText(path=name, text=text), text.count("\n")))
    return found


def scanned(files: list[tuple[Path, SourceText, int]]) -> Callable[[], None]:
    def act() -> None:
        for _path, source, _lines in files:
            list(cuda.rule_matches(source, Context()))

    return act


def rates(name: str, lines: int, seconds: float, ours: float | None = None) -> None:
    ratio = "" if ours is None else f", {seconds / ours:.2f} times ours"
    if ours is not None and seconds > 10 * ours:
        ratio = f", {seconds / ours:.0f} times ours"
    print(f"{name}: {lines} lines in {seconds:.2f} s, {lines / seconds:,.0f} lines/s{ratio}")


def hipify(program: str, files: list[tuple[Path, SourceText, int]], most: int) -> None:
    some: list[tuple[Path, SourceText, int]] = []
    for file in sorted(files, key=lambda one: one[2]):
        if file[2] > 20 and sum(one[2] for one in some) < most:
            some.append(file)
    lines = sum(one[2] for one in some)
    ours = min(timed(scanned(some)) for _ in range(3))
    rates("CUDA engine, hipify-perl's files", lines, ours)

    def act() -> None:
        for path, _source, _lines in some:
            command = ["perl", program, "-examine", str(path)]
            subprocess.run(command, capture_output=True, check=False)

    rates("hipify-perl -examine", lines, timed(act), ours)


def ripgrep(program: str, root: Path, lines: int, ours: float) -> None:
    patterns = [rf"\b{name}\b" for name in sorted(MASK_NAMES)] + [r"\basm\b", r"\batomicAdd\b"]
    for row in rows():
        patterns += [rf"\b{name}\b" for name in sorted(row.names)]
        patterns += [family.pattern.strip("^$").replace("(?!Lt)", "") for family in row.families]
        patterns += [
            rf"#\s*include\s*[<\x22]{header.pattern.strip('^$')}"
            for header in row.headers
            if "(?!" not in header.pattern
        ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(patterns))
        file.flush()
        globs = [f"--glob=*{suffix}" for suffix in sorted(SUFFIXES)]
        command = [program, "--no-ignore", "-j1", "-n", "-f", file.name, *globs, str(root)]
        done: list[subprocess.CompletedProcess[bytes]] = []
        seconds = timed(
            lambda: done.append(subprocess.run(command, capture_output=True, check=False))
        )
    if done[0].returncode > 1:
        raise SystemExit(done[0].stderr.decode())
    hits = done[0].stdout.count(b"\n")
    rates(f"ripgrep, {len(patterns)} patterns, {hits} lines found", lines, seconds)
    print(f"  ours takes {ours / seconds:.1f} times as long, with polarity, types and arguments")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--hipify-perl", default="")
    parser.add_argument("--rg", default="")
    parser.add_argument("--hipify-lines", type=int, default=400)
    options = parser.parse_args()
    files = sources(options.tree)
    lines = sum(one[2] for one in files)
    ours = min(timed(scanned(files)) for _ in range(3))
    rates(f"CUDA engine, {len(files)} files, one core", lines, ours)
    if options.hipify_perl:
        hipify(options.hipify_perl, files, options.hipify_lines)
    if options.rg:
        ripgrep(options.rg, options.tree, lines, ours)
    for processes in (1, 2):
        whole_tree(options.tree, processes)


def whole_tree(root: Path, processes: int) -> None:
    target = read_target("gfx942")
    start, before = time.perf_counter(), processor_seconds()
    found = scan_tree(ScanRequest(repo=root, target=target), processes=processes)
    clock, seconds = time.perf_counter() - start, processor_seconds() - before
    rates(f"whole tree, {found.files} files, {processes} processes", found.lines, seconds)
    print(f"  {clock:.1f} s by the clock")


if __name__ == "__main__":
    main()
