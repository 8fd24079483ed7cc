#!/usr/bin/env python3
"""Compare the exit code of `preflight` with uv's dry run, for folders of real projects.

    tools/preflight_gate.py truth FOLDER OUT     uv's answers, one JSON file
    tools/preflight_gate.py compare FOLDER OUT   preflight's answers beside them

Each folder of FOLDER is a project. uv installs the project itself, where it has project files, and
its requirements.txt, without installing anything: `--dry-run` into stand-ins of the stack. uv may
build metadata, so that run it only where strangers' build scripts may run. Where a build fails, the
packages that need one are left out, and the answer says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpus import PYTHON, ROOT, Silence, chosen_stacks, judged_by
from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.process import run
from warpfront.wheels.metadata import write_environment
from warpfront.wheels.sources import read_site
from warpfront.wheels.uv_program import uv_binary
from warpfront_port.commands.preflighting import examine, with_own_metadata
from warpfront_port.commands.project_files import read_files
from warpfront_port.preflight.declared import chosen
from warpfront_port.preflight.stacks import CellStack

TORCHES = ("2.13.0+cpu", "2.9.1+rocm6.4")
SECONDS = 240
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
INSTALLED = re.compile(r"^ \+ ([A-Za-z0-9._-]+)==(\S+)$", re.MULTILINE)
FAILED_BUILD = re.compile(
    r"(?:Failed to (?:build|download and build|fetch)|build backend|Failed to prepare) `"
    r"([A-Za-z0-9._-]+)(?:==[^`]*|[ @][^`]*)?`"
)


def main() -> int:
    step, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    chosen_ones = tuple(one for one in chosen_stacks() if one.torch in TORCHES)
    wheelhouse = open_workspace(ROOT).folders.wheelhouse
    stacks = with_own_metadata(chosen_ones, wheelhouse, offline=False)
    found: dict[str, Any] = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    projects = [one for one in sorted(folder.iterdir()) if one.is_dir()]
    wanted = sys.argv[4].split(",") if len(sys.argv) > 4 else [one.name for one in projects]
    for project in projects:
        if project.name in wanted:
            rows = found.setdefault(project.name, {})
            if step == "truth":
                rows |= truth(project, stacks)
            else:
                rows |= answers(project, stacks, rows)
            print(project.name, json.dumps(rows)[:600], flush=True)
            out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print_table(found)
    return 0


def truth(project: Path, stacks: Iterable[CellStack]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name, ThreadPoolExecutor(2) as pool:
        place = Path(name)
        rows = pool.map(lambda stack: dry_run(project, stack, place), stacks)
        return {stack.torch: {"truth": row} for stack, row in zip(stacks, rows, strict=True)}


def dry_run(project: Path, stack: CellStack, place: Path) -> dict[str, Any]:
    environment = place / stack.torch
    write_environment(environment, stack.installed)
    venv = place / f"venv-{stack.torch}"
    subprocess.run((str(uv_binary()), "venv", "-q", "--python", PYTHON, str(venv)), check=True)
    site = read_site(run)
    argv = [
        str(uv_binary()),
        "pip",
        "install",
        "--dry-run",
        "--no-config",
        "--verbose",
        "--target",
        str(environment),
        "--python",
        str(venv / "bin" / "python"),
        "--index-strategy",
        "unsafe-best-match",
        "--default-index",
        site.index_url,
        *(word for one in site.extra_index_urls for word in ("--index", one)),
        *(word for one in site.find_links for word in ("--find-links", one)),
    ]
    if any((project / one).is_file() for one in PROJECT_FILES):
        argv.append(str(project))
    if (project / "requirements.txt").is_file():
        argv += ["-r", "requirements.txt"]
    left_out: tuple[str, ...] = ()
    text = ""
    for _ in range(8):
        (place / f"x-{stack.torch}.txt").write_text("\n".join(left_out))
        more = ("--excludes", str(place / f"x-{stack.torch}.txt")) if left_out else ()
        try:
            done = subprocess.run(
                (*argv, *more),
                cwd=project,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "failed", "reason": "timeout", "left_out": left_out}
        text = done.stdout + done.stderr
        if done.returncode == 0:
            return {**outcome(text, stack), "left_out": left_out}
        names = [canonicalize_name(one) for one in FAILED_BUILD.findall(text)]
        new = tuple(one for one in dict.fromkeys(names) if one not in left_out)
        if not new or canonicalize_name(project.name) in new:
            break
        left_out += new
    said = [one for one in text.splitlines() if not one.startswith(("DEBUG", "TRACE"))]
    return {"outcome": "failed", "reason": " ".join(said)[-600:], "left_out": left_out}


def outcome(text: str, stack: CellStack) -> dict[str, Any]:
    installed: dict[str, str] = {canonicalize_name(n): v for n, v in INSTALLED.findall(text)}
    row = judged_by(installed, stack, ())
    others = {*stack.stack.foreign, *stack.stack.answered}
    changed = {**row.changed, **{n: v for n, v in installed.items() if n in others}}
    return {"outcome": "moved" if changed else "stays", "changed": changed}


def answers(project: Path, stacks: tuple[CellStack, ...], rows: dict[str, Any]) -> dict[str, Any]:
    """One examination of all stacks, as a user makes it, and its answer for each of them."""
    started = time.monotonic()
    try:
        found = examine(chosen(read_files(project, ()), ()), stacks, Silence())
    except InputError as error:
        wrong = {"answer": "error", "why": [str(error)]}
        return {one.torch: {**rows.get(one.torch, {}), **wrong} for one in stacks}
    seconds = round(time.monotonic() - started, 1)
    result: dict[str, Any] = {}
    for stack in stacks:
        moved = [
            f"{one.text}: {one.why[stack.title].splitlines()[0]}"
            for one in found.findings
            if one.decides and stack.title in one.why
        ]
        open_ = [one for one in found.unknown if "[" not in one or stack.title in one]
        answer = "moved" if moved else "unknown" if open_ else "stays"
        result[stack.torch] = {
            **rows.get(stack.torch, {}),
            "answer": answer,
            "why": moved or open_,
            "seconds": seconds,
        }
    return result


def print_table(found: dict[str, Any]) -> None:
    counts: dict[tuple[str, str], int] = {}
    for name, rows in found.items():
        for torch, row in rows.items():
            if "truth" in row and "answer" in row:
                pair = row["truth"]["outcome"], row["answer"]
                counts[pair] = counts.get(pair, 0) + 1
                if pair[0] != pair[1] and pair[0] != "failed":
                    why = str(row["why"][:2])[:300]
                    print(f"{name} {torch}: {pair[0]}, {pair[1]}: {why} {row['truth']}")
    for outcome_ in ("moved", "stays", "failed"):
        print(outcome_, {k[1]: n for k, n in sorted(counts.items()) if k[0] == outcome_})


if __name__ == "__main__":
    raise SystemExit(main())
