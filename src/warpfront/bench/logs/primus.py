"""Primus: Megatron-LM's lines behind a prefix with the rank, each printed twice. Pure.

Its table of settings is `name : value (type)`; its GB are GiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpfront.bench.logs import megatron
from warpfront.bench.logs.facts import Fact, Format, Setting

_RANKED = re.compile(r"\[rank-\d+/(\d{1,7})\]")
_SETTING = re.compile(r"([a-z][a-z0-9_]{1,60})\s+: (\S.{0,200}) \((?:int|str|bool|float)\)$")
_DEVICE = re.compile(r"Detected GPU model: ([\w .-]{2,60})")


class PrimusReader:
    """What Megatron-LM says, and what Primus says before it."""

    def __init__(self, path: str) -> None:
        self._megatron = megatron.MegatronReader(path)
        self._is_unranked = True

    def read(self, text: str) -> Iterable[Fact]:
        line = text.rstrip()
        ranked = _RANKED.search(line) if self._is_unranked else None
        if ranked:
            self._is_unranked = False
            yield Setting("devices", int(ranked[1]))
            yield Setting("framework", "primus")
        if line.endswith(")") and (found := _SETTING.search(line)):
            yield from _setting(found[1], found[2])
        elif device := _DEVICE.search(line):
            yield Setting("device_name", device[1].strip())
        else:
            yield from self._megatron.read(line)


def _setting(name: str, value: str) -> Iterable[Fact]:
    if name == "model":
        return [Setting("model", value.strip().removesuffix(".yaml"))]
    return megatron.setting_of(name, value)


def marks(line: str) -> bool:
    """One of Megatron's lines with Primus's prefix, or with its memory."""
    return megatron.marks(line) and (
        _RANKED.search(line) is not None or "mem usage/free/total" in line
    )


PRIMUS = Format(name="primus", marks=marks, reader=PrimusReader, averages=True)
