#!/usr/bin/env python3
"""How much of what a ROCm port changed the scanner had pointed at in the tree before it.

    tools/scan-recall.py BEFORE AFTER [--target gfx942] [--misses]
        [--hipify-perl PROGRAM] [--torch-utils FOLDER]

Both are folders with the source of one repository, before and after its port. A *change* is a run
of lines of a C++, CUDA or Python file that the port replaced, deleted or added beside; changes in
white space and comments alone are left out. It counts as found if a finding of the tree before lies
on one of its lines (a note counts apart), or, for lines added, within three lines of the place.
That is counted twice: for these files alone, and with every other file that the scan reads (CMake,
Makefiles, Dockerfiles, scripts, requirements, YAML, TOML, JSON) and templates (`.in`). Files that
are new, gone or renamed count nowhere. What a port left alone says how much of it was noise: of the
lines that were pointed at in files that the port changed, how many it changed (within three lines).

Beside it, the same count for the lines that hipify-perl warns of, and for those that
torch.utils.hipify (FOLDER is torch/utils) rewrites or has something to say of; both read the C++
and CUDA files that the port changed, hipify-perl one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan.engines import is_read
from warpfront_port.scan.findings import Severity
from warpfront_port.scan.targets import read_target

SUFFIXES = {".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".c", ".hip", ".py"}
NEAR = 3
COMMENT = re.compile(r"//.*|#(?!\s*(?:if|endif|else|el|def|inc|und|pra)).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Lines `first` to `last` (1-based, inclusive) of the file before; `text` says what."""

    path: str
    first: int
    last: int
    lines: int
    text: str

    @property
    def is_code(self) -> bool:
        return Path(self.path).suffix in SUFFIXES


def bare(line: str) -> str:
    return "".join(COMMENT.sub("", line).split())


def changes(before: Path, after: Path) -> Iterator[Change]:
    for old in sorted(before.rglob("*")):
        path = old.relative_to(before)
        new = after / path
        counts = old.suffix in SUFFIXES | {".in"} or is_read(PurePosixPath(path))
        if not counts or not old.is_file() or not new.is_file() or same(old, new):
            continue
        yield from changes_of(str(path), read(old), read(new))


def same(old: Path, new: Path) -> bool:
    return old.read_bytes() == new.read_bytes()


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def changes_of(path: str, old: list[str], new: list[str]) -> Iterator[Change]:
    left, right = [bare(line) for line in old], [bare(line) for line in new]
    matcher = difflib.SequenceMatcher(a=left, b=right, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal" or not any(left[first:last] + right[start:end]):
            continue
        text = " | ".join(line.strip() for line in (old[first:last] or new[start:end])[:3])
        inserted = tag == "insert"
        yield Change(
            path=path,
            first=first + 1 - (NEAR if inserted else 0),
            last=last + (NEAR if inserted else 0),
            lines=sum(bool(line) for line in left[first:last]),
            text=text[:110],
        )


Places = set[tuple[str, int]]
HIPIFIED = {".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".c"}
WARNING = re.compile(r"warning: .*?:(\d+): ")


def warned_by_perl(program: str, before: Path, paths: Iterable[str]) -> Places:
    """Lines that hipify-perl warns of; all other lines it translates, or says nothing of."""
    places = set()
    for path in paths:
        command = ["perl", program, "-examine", str(before / path)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True)
        said = WARNING.finditer(done.stdout + done.stderr)
        places |= {(path, int(one[1])) for one in said}
    return places


def rewritten_by_torch(utils: str, before: Path, paths: list[str]) -> tuple[Places, str]:
    """Lines that torch.utils.hipify changes in a copy, and what it prints of the rest."""
    sys.path.insert(0, utils)
    tool = importlib.import_module("hipify.hipify_python")
    printed, places = io.StringIO(), set()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        copy = Path(folder) / "tree"
        shutil.copytree(before, copy, symlinks=True)
        try:
            made = tool.hipify(
                project_directory=str(copy),
                output_directory=str(copy),
                includes=[f"{copy}/*"],
                extra_files=[str(copy / path) for path in paths],
                is_pytorch_extension=True,
                show_detailed=True,
            )
        except (KeyError, IndexError, ValueError) as error:
            return set(), f"it ended with {error!r}"
        for path in paths:
            result = made.get(str(copy / path))
            if result is not None and result.hipified_path:
                old, new = read(before / path), read(Path(result.hipified_path))
                places |= {(path, line) for line in rewritten(old, new)}
    said = [line for line in printed.getvalue().splitlines() if "unsupported" in line]
    return places, "; ".join(said)


def rewritten(old: list[str], new: list[str]) -> Iterator[int]:
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, first, last, _start, _end in matcher.get_opcodes():
        if tag in {"replace", "delete"}:
            yield from range(first + 1, last + 1)


def pointed_at(change: Change, places: Places) -> int:
    """How many lines of a change somebody named."""
    return sum((change.path, line) in places for line in range(change.first, change.last + 1))


def print_recall(touched: Sequence[Change], said: Iterable[tuple[str, Places]]) -> None:
    """For each who names places: of how many changes, and of how many replaced lines."""
    replaced = [change for change in touched if change.lines]
    of = sum(change.lines for change in replaced)
    for name, places in said:
        hit = sum(pointed_at(change, places) > 0 for change in touched)
        lines = sum(min(pointed_at(change, places), change.lines) for change in replaced)
        print(f"  {name}: {hit} of {len(touched)} changes, {lines} of {of} replaced lines")


def print_noise(touched: Sequence[Change], loud: Places) -> None:
    files = {change.path for change in touched}
    near = {
        (change.path, line)
        for change in touched
        for line in range(change.first - NEAR, change.last + NEAR + 1)
    }
    said = {place for place in loud if place[0] in files}
    print(f"  loud lines in files of the port: {len(said)}, changed there: {len(said & near)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--target", default="gfx942")
    parser.add_argument("--misses", action="store_true", help="say which changes nobody pointed at")
    parser.add_argument("--hipify-perl", default="")
    parser.add_argument("--torch-utils", default="")
    options = parser.parse_args()
    found = scan_tree(ScanRequest(repo=options.before, target=read_target(options.target)))
    loud = {
        (one.path, line)
        for one in found.findings
        for line in (*range(one.line, one.end_line + 1), *one.uses)
        if one.severity in (Severity.WARNING, Severity.ERROR)
    }
    every = {
        (one.path, line)
        for one in found.findings
        for line in (*range(one.line, one.end_line + 1), *one.uses)
    }
    touched = list(changes(options.before, options.after))

    said = [("loud", loud), ("any", every)]
    translated = sorted({one.path for one in touched if Path(one.path).suffix in HIPIFIED})
    if options.hipify_perl:
        warned = warned_by_perl(options.hipify_perl, options.before, translated)
        said.append((f"hipify-perl warns of {len(warned)} lines", warned))
    if options.torch_utils:
        places, words = rewritten_by_torch(options.torch_utils, options.before, translated)
        said.append((f"torch.utils.hipify rewrites {len(places)} lines ({words})", places))

    print(
        f"{options.before}: {found.files} files, {found.lines} lines, "
        f"{len(found.findings)} findings"
    )
    print(
        f"  loud (warning, error): {len(loud)} lines, "
        f"{1000 * len(loud) / found.lines:.1f} a thousand"
    )
    print(" code alone:")
    print_recall([change for change in touched if change.is_code], said)
    print(" and build files:")
    print_recall(touched, said)
    print_noise(touched, loud)
    if options.misses:
        for change in touched:
            if not pointed_at(change, loud):
                print(f"  - {change.path}:{change.first}-{change.last} {change.text}")


if __name__ == "__main__":
    main()
