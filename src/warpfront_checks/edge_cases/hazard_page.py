"""`python -m warpfront_checks.edge_cases.hazard_page PAGE [--write]`: the tables of
docs/hazards.md, drawn from the rows and the wrong kernels that there are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from warpfront_checks.edge_cases.hazard_table import HAZARDS
from warpfront_checks.edge_cases.kernel_faults import KERNEL_FAULTS
from warpfront_checks.verification_page import replaced


def main(arguments: list[str]) -> int:
    path, write = Path(arguments[0]), "--write" in arguments[1:]
    before = path.read_text(encoding="utf-8")
    after = redrawn(before)
    if write:
        path.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {path} is not current\n  hint: run this with --write\n")
        return 1
    return 0


def redrawn(page: str) -> str:
    page = replaced(page, "classes", "\n".join(_classes()) + "\n")
    return replaced(page, "kernels", "\n".join(_kernels()) + "\n")


def _classes() -> Iterator[str]:
    yield "| class | asks | rows | wrong kernels |"
    yield "|---|---|---|---|"
    for hazard in HAZARDS:
        seeded = sum(fault.hazard_class == hazard.name for fault in KERNEL_FAULTS)
        yield f"| {hazard.name} | {hazard.asks} | {len(hazard.hazards)} | {seeded or '-'} |"


def _kernels() -> Iterator[str]:
    yield "| class | the kernel does this | as in | seen by |"
    yield "|---|---|---|---|"
    for fault in KERNEL_FAULTS:
        rows = ", ".join(fault.rows)
        yield f"| {fault.hazard_class} | {fault.name} | {fault.like or '-'} | {rows} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
