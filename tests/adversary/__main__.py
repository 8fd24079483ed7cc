"""Run the adversarial suite in real images; write docs/results/guard-suite.json and guard-suite.md.
Exits with 1 if anything came out other than tests/adversary/cases.toml expects.

The CPU image and a ROCm image of stand-ins take minutes each; the CUDA image has to be built first,
and takes longer. What is not run keeps its place in the results, with its day and the guard that
it was run with; `--go-on` goes on where a run was interrupted. `--parts` also takes the guard
apart, one part at a time, and shows what each alone holds.

usage: tools/guard-table [--image cpu|cuda|rocm ...] [--case ID[/TOOL] ...] [--tool TOOL ...]
                           [--go-on] [--parts] [--no-suite] [--reference IMAGE]
       tools/guard-table --page    (the table alone, of the results that are there)
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from adversary.cases import TOOLS, Case, read_cases, read_parts
from adversary.images import build
from adversary.runner import Arena, Result, arena, fetch_tools
from adversary.stacks import STACKS
from adversary.suite import document, entry, held_by, pairs, part_entry
from adversary.table import BEGIN, END, suite_table, with_table

from warpfront.images.engine.protocol import connect
from warpfront.system.process import cache_folder, environment
from warpfront.system.provenance import now

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results" / "guard-suite.json"
_BATCH = 10
PAGE = ROOT / "docs" / "results" / "guard-suite.md"


def main() -> int:
    options = _options()
    cases = read_cases()
    if options.page:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")), cases)
        return 0
    host = connect(environment()).name
    client = docker.DockerClient(base_url=host, timeout=600)
    tools = fetch_tools(cache_folder() / "adversary")
    wrong = []
    for kind in options.image:
        stack = STACKS[kind]
        if options.reference:
            stack = replace(stack, reference=options.reference)
        else:
            with tempfile.TemporaryDirectory() as folder:
                build(stack, Path(folder), host)
        pips = [tool for tool in TOOLS if tool != "uv" and tool in (options.tool or TOOLS)]
        with arena(client, stack, tools, pips) as ring:
            wrong += _run(ring, cases, options)
    for text in wrong:
        print(text)
    print(f"{len(wrong)} came out wrong")
    return int(bool(wrong))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--image", action="append", choices=sorted(STACKS))
    parser.add_argument("--case", action="append", default=[], metavar="ID[/TOOL]")
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--reference", help="attack this image of the kind, and build none")
    parser.add_argument("--go-on", action="store_true", help="what its guard was not tried by yet")
    parser.add_argument("--parts", action="store_true", help="take the guard apart, too")
    parser.add_argument("--no-suite", action="store_true", help="the parts alone")
    parser.add_argument("--workers", type=int, default=2, help="cases at a time")
    parser.add_argument(
        "--page", action="store_true", help="write docs/results/guard-suite.md alone"
    )
    options = parser.parse_args()
    options.image = options.image or ["cpu", "rocm"]
    return options


def _run(ring: Arena, cases: tuple[Case, ...], options: argparse.Namespace) -> list[str]:
    """Run what was asked for on one image, write it down, and say what is wrong."""
    started, kind = time.monotonic(), ring.stack.kind
    chosen = [] if options.no_suite else pairs(cases, kind, options.case)
    chosen = [(case, tool) for case, tool in chosen if tool in (options.tool or TOOLS)]
    done = of_guard(ring) if options.go_on else set()
    chosen = [(case, tool) for case, tool in chosen if (case.id, tool) not in done]
    lock, unwritten = threading.Lock(), list[Result]()

    def keep(result: Result) -> None:
        """What was run before an interruption is kept."""
        _tell(result)
        with lock:
            unwritten.append(result)
            if len(unwritten) >= _BATCH:
                record(ring, cases, unwritten, [])
                unwritten.clear()

    results = ring.run_all(chosen, keep, options.workers)
    record(ring, cases, unwritten, [])
    wrong = [f"{one.case} {one.tool} {one.image}: {one.problem}" for one in results if one.problem]
    print(f"{kind}: {len(results)} runs in {time.monotonic() - started:.0f} s, {len(wrong)} wrong")
    for part in read_parts() if options.parts else ():
        if part.is_of(kind):
            held = held_by(part, ring, cases)
            record(ring, cases, [], [part_entry(part, held)])
            wrong += [f"part {part.id} does not hold {one}" for one in held if one["worse"] == "no"]
            print(f"{kind} without {part.id}: {held}", flush=True)
    return wrong


def of_guard(ring: Arena) -> set[tuple[str, str]]:
    """The cases and tools that this image's guard was tried by already."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    own = [one for one in found if one["image"] == ring.stack.kind and one["guard"] == ring.guard]
    return {(one["case"], one["tool"]) for one in own if not one["problem"]}


def _tell(result: Result) -> None:
    mark = "WRONG" if result.problem else "ok"
    print(f"{mark:5} {result.image} {result.tool} {result.case}: {result.verdict}", flush=True)


def record(
    ring: Arena, cases: tuple[Case, ...], results: list[Result], parts: list[dict[str, object]]
) -> None:
    """Put results in the place of older ones of the same runs, and write the page anew."""
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known = {case.id for case in cases}
    before["results"] = [one for one in before.get("results", []) if one["case"] in known]
    stack = ring.stack
    about = {
        "reference": stack.reference,
        "id": ring.client.images.get(ring.images["uv"]).id,
        "torch": stack.torch,
        "real": stack.real,
    }
    found = document(
        before,
        tools=ring.tools.versions,
        images={stack.kind: about},
        results=[entry(one, day=now()[:10], guard=ring.guard) for one in results],
        parts=parts,
    )
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(found, cases)


def write_page(found: Mapping[str, Any], cases: tuple[Case, ...]) -> None:
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else f"# The guard\n\n{BEGIN}\n{END}\n"
    PAGE.write_text(with_table(page, suite_table(found, cases)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
