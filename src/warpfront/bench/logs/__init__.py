"""Readers of other projects' training logs: declared formats (`data/logs/*.toml`), and readers
of documents. Pure.

A new format of lines is a TOML file and its name here. A format whose lines need more than names
and units is a module of this package.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.bench.logs.declared import declared
from warpfront.bench.logs.facts import Format
from warpfront.bench.logs.mllog import MLLOG
from warpfront.bench.logs.tables import KERNELS, MADENGINE, TABLES

# The first of two formats wins where both recognise a line.
DECLARED = (
    "primus",
    "megatron",
    "nemo",
    "dllogger",
    "torchtitan",
    "maxtext",
    "nanotron",
    "olmo",
    "torchtune",
    "verl",
    "llmc",
    "nanogpt",
    "lightning",
    "hf-trainer",
    "trainer-state",
    "deepspeed",
    "serving",
    "serving-json",
    "mlperf-inference",
    "tensorprimat",
)
FORMATS: Mapping[str, Format] = {
    form.name: form for form in (*map(declared, DECLARED), MLLOG, MADENGINE, TABLES, KERNELS)
}
