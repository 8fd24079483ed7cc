"""Megatron-LM's lines, and those of what is built on it. Pure.

    iteration  16/ 20 | consumed samples: 14336 | elapsed time per iteration (ms): 32057.4 | ...

Fields in any order, unknown ones too. `a/b` is now and a running mean: the mean is of a window that
is reset, and no mean of the run, so `a` counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting
from warpfront.bench.logs.fields import (
    is_no_number,
    number,
    positive,
    precision_of,
    rank_of,
    size_bytes,
    whole,
)
from warpfront.bench.records import MemoryKind, Step

_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*\d+\s*\|")
_AT = re.compile(r"\[(\d{4}-\d\d-\d\d[ T][\d:.]{8,15})\]")
_ARGUMENT = re.compile(r"(?<![\w.])([a-z][a-z0-9_]{1,60}) \.{3,} (\S.{0,200})$")
_PARAMETERS = re.compile(r"Total number of parameters in billions:\s*([\d.]{1,12})")
_ELAPSED = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0}
# DeepSpeed's line says TFLOPs, of a device, and samples of all; newer ones shorten tokens.
_TERAFLOP = ("(TFLOP/s/GPU)", "TFLOPs")
_TOKENS = ("tokens/s/GPU", "Tok/s/GPU")
# Arguments that say something of the run, and the field that they say.
SETTINGS = {
    "seq_length": "sequence",
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "world_size": "devices",
    "tensor_model_parallel_size": "parallel.tensor",
    "pipeline_model_parallel_size": "parallel.pipeline",
    "data_parallel_size": "parallel.data",
    "expert_model_parallel_size": "parallel.expert",
    "context_parallel_size": "parallel.context",
    "num_layers": "layers",
    "hidden_size": "hidden_size",
    "padded_vocab_size": "vocabulary",
    "vocab_size": "vocabulary",
}
_DTYPE_FLAGS = ("fp4", "fp8", "bf16", "fp16")
_UNSET = {"", "None", "null", "False", "0", "no"}


class MegatronReader:
    """Step lines, and the table of arguments above them. A line that is printed twice, as Primus
    does, is taken apart once.
    """

    def __init__(self, _path: str) -> None:
        self._said = ""
        self._facts: tuple[Fact, ...] = ()

    def read(self, text: str) -> Iterable[Fact]:
        if (at := text.find("iteration")) >= 0:
            if text[at:] != self._said:
                self._said, self._facts = text[at:], tuple(steps_of(text))
            yield from self._facts
        elif " ..." in text:
            if argument := _ARGUMENT.search(text):
                yield from setting_of(argument[1], argument[2])
        elif parameters := _PARAMETERS.search(text):
            yield from _billions(parameters[1])


def _billions(text: str) -> Iterator[Fact]:
    value = positive(text)
    if value is not None:
        yield Setting("parameters", round(value * 1e9))


def setting_of(name: str, said: str) -> Iterator[Fact]:
    """What an argument says of the run; the number format, where it is switched on."""
    value = said.strip()
    if name in _DTYPE_FLAGS:
        if value not in _UNSET and (precision := precision_of(name)):
            yield Setting(f"is_{precision}", value=True)
    elif name == "tokenizer_model" and value not in _UNSET:
        yield Setting("tokenizer", value)
    elif (field := SETTINGS.get(name)) and (count := whole(value)):
        yield Setting(field, count)


def steps_of(line: str) -> Iterator[Fact]:
    """The steps of one line. Where several ranks share a stream, it may hold more than one."""
    marks = list(_ITERATION.finditer(line))
    ends = [*(mark.start() for mark in marks[1:]), len(line)]
    for mark, end in zip(marks, ends, strict=False):
        fields = fields_of(line[mark.end() : end])
        begun = line[: mark.start()]
        at = _AT.findall(begun)
        yield from _facts(int(mark[1]), fields, rank_of(begun), at[-1] if at else None)


def fields_of(text: str) -> dict[str, str]:
    """Name to value, with a blank between in the oldest lines. A last field that no `|` ends may be
    half of one.
    """
    every = text.split("|")[:-1]
    pieces = (piece.rstrip().rpartition(":" if ":" in piece else " ") for piece in every)
    return {" ".join(name.split()): value.strip() for name, _, value in pieces if name}


def _facts(step: int, fields: Mapping[str, str], rank: str, at: str | None) -> Iterator[Fact]:
    seconds = _seconds(fields)
    if seconds is None:
        return
    if batch := whole(fields.get("global batch size", "")):
        yield Setting("global_batch", batch)
    memory = _first(fields, "mem usage/free/total")
    if memory is not None:
        yield Setting("memory_kind", MemoryKind.DEVICE)
        yield Setting("vendor", "amd")
    loss = fields.get("lm loss", "")
    teraflop = number(_first(fields, *_TERAFLOP) or "")
    yield LoggedStep(
        Step(
            step=step,
            seconds=seconds,
            tokens_per_second_per_device=positive(_first(fields, *_TOKENS) or ""),
            samples_per_second=positive(fields.get("samples per second", "")),
            flop_per_second_per_device=teraflop * 1e12 if teraflop else None,
            loss=number(loss),
            grad_norm=number(fields.get("grad norm", "")),
            samples=whole(fields.get("consumed samples", "")),
            skipped=whole(fields.get("number of skipped iterations", "")),
            nan=int(is_no_number(loss)) or whole(fields.get("number of nan iterations", "")),
            memory_bytes=size_bytes(memory or ""),
            power_watts=positive(fields.get("power per GPU (W/GPU)", "")),
            at=at,
        ),
        rank,
    )


def _seconds(fields: Mapping[str, str]) -> float | None:
    for name, scale in _ELAPSED.items():
        elapsed = positive(fields.get(name, ""))
        if elapsed is not None:
            return elapsed * scale
    return None


def _first(fields: Mapping[str, str], *parts: str) -> str | None:
    return next((fields[name] for part in parts for name in fields if part in name), None)


def marks(line: str) -> bool:
    """A step's line, and none of Primus's."""
    return "elapsed time per iteration" in line and _ITERATION.search(line) is not None


MEGATRON = Format(name="megatron", marks=marks, reader=MegatronReader, averages=True)
