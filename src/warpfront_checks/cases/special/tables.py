"""The tables of rows: a check for each, every row in each dtype that the device computes."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping, Sequence

import torch

from warpfront_checks.cases.bounds import Tally
from warpfront_checks.cases.known_defects import thread_of
from warpfront_checks.cases.run import lacks_kernel
from warpfront_checks.cases.special.attention_layers import ATTENTION
from warpfront_checks.cases.special.int64_indexing import INT64_INDEXING
from warpfront_checks.cases.special.random_numbers import RANDOM_NUMBERS
from warpfront_checks.cases.special.rows import CaseContext, Row, Table
from warpfront_checks.cases.special.streams import STREAMS
from warpfront_checks.cases.special.systems import ANY_TRANSFORM, LINEAR_SYSTEMS
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.precision import kind_of, tested_dtypes
from warpfront_checks.results import CheckFinding

TABLES: Mapping[str, Table] = {
    "more than 2^31": INT64_INDEXING,
    "random numbers": RANDOM_NUMBERS,
    "streams": STREAMS,
    "attention layers": ATTENTION,
    "linear algebra": LINEAR_SYSTEMS,
    "transforms": ANY_TRANSFORM,
}
FIND_TABLE = "cases.special.tables:find_table"


def table_obstacles(device: str) -> dict[str, str]:
    """Return for each table why no row of it can run on the device, or an empty string."""
    obstacles = {}
    for name, table in TABLES.items():
        needed = [row.needed_bytes for row in rows_for(table, device)]
        least, free = min(needed, default=0), free_bytes(device)
        short = f"needs {least / 2**30:.0f} GiB of the device's memory, {free / 2**30:.0f} are free"
        obstacles[name] = "" if needed else f"says nothing about {device}"
        obstacles[name] = short if least > free else obstacles[name]
    return obstacles


def find_table(name: str, device: str, effort: CheckOptions) -> CheckFinding:
    rows = rows_for(TABLES[name], device)
    return judge_rows(rows, device, tested_dtypes(device), effort).finding("answers")


def rows_for(table: Table, device: str) -> list[Row]:
    return [row for row in table if not row.devices or kind_of(device) in row.devices]


def free_bytes(device: str) -> int:
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def judge_rows(
    rows: Sequence[Row], device: str, dtypes: Sequence[str], effort: CheckOptions
) -> Tally:
    """Judge rows in their dtypes, quickly in the first. A row that raises is a fault."""
    tally = Tally()
    for row in rows:
        if row.needed_bytes > free_bytes(device) and row.needed_bytes:
            tally.too_large.append(f"{row.name}: {row.needed_bytes / 2**30:.0f} GiB are not free")
            continue
        supported = [name for name in row.dtypes if name in dtypes]
        for dtype in supported[:1] if effort.quick else supported:
            for seed in effort.seeds:
                ground = CaseContext(
                    device=device,
                    dtype=getattr(torch, dtype),
                    seed=seed,
                    generator=torch.Generator().manual_seed(seed),
                )
                _judge_row(row, ground, tally)
    return tally


def _judge_row(row: Row, ground: CaseContext, tally: Tally) -> None:
    where = f"{row.name}, {str(ground.dtype).removeprefix('torch.')}, seed {ground.seed}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for verdict in row.answers(ground):
                tally.cases += 1
                thread = thread_of(row.defects, verdict.name, ground.device)
                tally.enter(verdict, f"{where}: {verdict.name}: {verdict.fault}", thread)
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
