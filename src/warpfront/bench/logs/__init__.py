"""Logs of others' trainings: one reader a format. Pure.

A new format is a file beside these and its line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.bench.logs.facts import Format
from warpfront.bench.logs.madengine import MADENGINE
from warpfront.bench.logs.megatron import MEGATRON
from warpfront.bench.logs.mllog import MLLOG
from warpfront.bench.logs.nemo import NEMO
from warpfront.bench.logs.primus import PRIMUS
from warpfront.bench.logs.tensorprimat import TENSORPRIMAT
from warpfront.bench.logs.torchtitan import TORCHTITAN

FORMATS: Mapping[str, Format] = {
    one.name: one for one in (PRIMUS, MEGATRON, NEMO, TORCHTITAN, MLLOG, TENSORPRIMAT, MADENGINE)
}
