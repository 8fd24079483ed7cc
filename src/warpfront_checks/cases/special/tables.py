"""The tables of rows: a check for each, every row in each dtype that the device computes."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from warpfront_checks.cases.known_defects import thread_of
from warpfront_checks.cases.run import lacks_kernel
from warpfront_checks.cases.special.attention_layers import ATTENTION
from warpfront_checks.cases.special.int64_indexing import INT64_INDEXING
from warpfront_checks.cases.special.linear_systems import LINEAR_SYSTEMS
from warpfront_checks.cases.special.random_numbers import RANDOM_NUMBERS
from warpfront_checks.cases.special.rows import CaseContext, Row, Table
from warpfront_checks.cases.special.streams import STREAMS
from warpfront_checks.cases.special.transforms import TRANSFORMS
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.precision import kind_of, require_full_precision, tested_dtypes
from warpfront_checks.results import SKIPPED, CheckFinding, Recorder, failed, judged

TABLES: tuple[Table, ...] = (
    INT64_INDEXING,
    RANDOM_NUMBERS,
    STREAMS,
    ATTENTION,
    LINEAR_SYSTEMS,
    TRANSFORMS,
)
FIND_TABLE = "cases.special.tables:find_table"
SHOWN = 20


@dataclass(kw_only=True)
class TableTally:
    """The mutable counts of the rows of a table."""

    answers: int = 0
    largest: float = 0.0
    faults: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    defects: dict[str, int] = field(default_factory=dict)

    def finding(self) -> CheckFinding:
        details: dict[str, object] = {
            "answers": self.answers,
            "budget_used": float(f"{self.largest:.4g}"),
            "no such kernel": self.lacking,
            "no memory": self.too_large,
            "known defects of torch": self.defects,
        }
        if self.faults:
            details["faults"] = self.faults[:SHOWN]
        elif not self.answers and self.too_large:
            return CheckFinding(outcome=SKIPPED, reason=self.too_large[0], details=details)
        elif not self.answers:
            return failed("no row of it could be computed", **details)
        suffix = "".join(f"; torch gets {thread} wrong" for thread in self.defects)
        return judged(self.faults, f"{self.answers} answers{suffix}", **details)


def claimed_tables(device: str, recorder: Recorder) -> list[Table]:
    """Return the tables that can run on the device, and record why others cannot."""
    obstacles = {table.name: _obstacle(table, device) for table in TABLES}
    for name, reason in obstacles.items():
        if reason:
            recorder.note_unclaimed(name, reason)
    return [table for table in TABLES if not obstacles[table.name]]


def find_table(name: str, device: str, effort: CheckOptions) -> CheckFinding:
    require_full_precision()
    table = table_named(name)
    return judge_rows(rows_for(table, device), device, tested_dtypes(device), effort).finding()


def rows_for(table: Table, device: str) -> list[Row]:
    return [row for row in table.rows if not row.devices or kind_of(device) in row.devices]


def _obstacle(table: Table, device: str) -> str:
    """Return the reason why no row of a table can run on the device, or an empty string."""
    rows = rows_for(table, device)
    if not rows:
        return f"says nothing about {device}"
    least, free = min(row.needed_bytes for row in rows), free_bytes(device)
    if least and least > free:
        return f"needs {least / 2**30:.0f} GiB of the device's memory, {free / 2**30:.0f} are free"
    return ""


def free_bytes(device: str) -> int:
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def judge_rows(
    rows: Sequence[Row], device: str, dtypes: Sequence[str], effort: CheckOptions
) -> TableTally:
    """Judge rows in their dtypes, of a quick run the first. A row that raises is a fault, and the
    others still run.
    """
    tally = TableTally()
    for row in rows:
        if row.needed_bytes > free_bytes(device) and row.needed_bytes:
            tally.too_large.append(f"{row.name}: {row.needed_bytes / 2**30:.0f} GiB are not free")
            continue
        tried = [name for name in row.dtypes if name in dtypes]
        for dtype in tried[:1] if effort.quick else tried:
            for seed in effort.seeds:
                ground = CaseContext(
                    device=device,
                    dtype=getattr(torch, dtype),
                    seed=seed,
                    generator=torch.Generator().manual_seed(seed),
                )
                _judge_row(row, ground, tally)
    return tally


def _judge_row(row: Row, ground: CaseContext, tally: TableTally) -> None:
    where = f"{row.name}, {str(ground.dtype).removeprefix('torch.')}, seed {ground.seed}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for answer in row.answers(ground):
                fault, share = answer.judged()
                tally.answers += 1
                if fault and (thread := thread_of(row.defects, answer.label, ground.device)):
                    tally.defects[thread] = tally.defects.get(thread, 0) + 1
                    continue
                tally.largest = max(tally.largest, share if not fault else 0.0)
                tally.faults += [f"{where}: {fault}"] if fault else []
    except torch.OutOfMemoryError:
        tally.too_large.append(f"{where}: the device's memory was taken meanwhile")
    except Exception as error:  # noqa: BLE001 - a row that raises is a result; the rest go on
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        if isinstance(error, (RuntimeError, NotImplementedError)) and lacks_kernel(error):
            tally.lacking.append(f"{where}: {first}")
        else:
            tally.faults.append(f"{where}: raised {type(error).__name__}: {first}")
    if row.needed_bytes:
        gc.collect()
        torch.cuda.empty_cache()


def table_named(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)
