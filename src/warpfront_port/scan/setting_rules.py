"""The rules for a setting, by its name and value, in any kind of file. Pure.

A name is the text before the value. It is a keyword, an attribute with its owner
(`torch._inductor.config.triton.cudagraphs`), or a key with the keys above it. It may also be an
option of a command line or a variable of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpfront_port.scan.catalogue import catalogue

_TRUE = frozenset({"1", "true", "yes", "on"})
WORDS = ("overhead", "autotune", "cudagraph", "memory_planning", "tf32", "matmul_precision",
         "fp32_precision", "flash_att", "attn_backend", "attention_backend",
         "attention-backend", "num_warps", "num_ctas", "warp_size", "warpsize", "per_warp",
         "num_lanes")  # fmt: skip
"""One of these is in every text that gives a setting of these rules."""


_NAMES = re.compile(
    r"(?i)mode|compil|dynamo|attn|attention|precision|tf32|cudagraph|memory_planning|flash|backend|warp"
    r"|num_ctas|num_lanes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingUse:
    """A rule that a setting falls under, and how it is shown."""

    rule: str
    excerpt: str


def may_be_setting(name: str) -> bool:
    """Return true if any rule can be about a setting of this name, as a quick first check."""
    return _NAMES.search(name) is not None


_ROWS: Sequence[tuple[str, re.Pattern[str], re.Pattern[str] | None, Mapping[str, Any]]] = [
    (rule.id, re.compile(row["settings"]), row.get("value") and re.compile(row["value"]), row)
    for rule in catalogue().values()
    for row in rule.seen
    if "settings" in row
]


def read_setting(name: str, value: str, *, own: bool = False) -> Iterator[SettingUse]:
    """Yield the rules for `name` with `value`. Text that means yes counts as true.

    `own` marks a name of the program's own, such as tf32, which no library may read.
    """
    plain, text = name.strip("-").replace("-", "_").lower(), value.strip()
    is_yes = text.lower() in _TRUE
    for rule, names, values, row in _ROWS:
        fits = is_yes if values is None else values.fullmatch(text)
        owned = row.get("own", own) is own and not (own and row.get("library"))
        if fits and owned and names.fullmatch(plain):
            excerpt = row.get("shown", "{name}={value}").format(name=name, value=text)
            yield SettingUse(rule=rule, excerpt=excerpt)
