"""The rules for a setting, by its name and value, in any kind of file. Pure.

A name is the text before the value. It is a keyword, an attribute with its owner
(`torch._inductor.config.triton.cudagraphs`), or a key with the keys above it. It may also be an
option of a command line or a variable of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MODES: Mapping[str, str] = {"reduce-overhead": "PY001", "max-autotune": "PY002"}
ATTENTION = frozenset({"flash_attention_2", "flash_attention_3"})
_TRUE = frozenset({"1", "true", "yes", "on"})
_MODE = re.compile(r"(?:.*[._])?(?:compile\w*|compiler|mode|\w*_mode|mode_\w+|dynamo_\w+)\Z")
_ATTENTION = re.compile(r"(?:.*[._])?_?(?:attn|attention)(?:_impl\w*|_backend|_type|_kind)?\Z")
_PRECISION = re.compile(r"(?:.*[._])?(?:float32_)?matmul_precision\Z")
SWITCHES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:.*[._])?triton\.cudagraph(?:s|_trees)\Z"), "PY001"),
    (re.compile(r".*inductor.*\.cudagraph(?:s|_trees)\Z"), "PY001"),
    (re.compile(r"torchinductor_cudagraphs\Z"), "PY001"),
    (re.compile(r"(?:.*(?:inductor|compile)\w*\.)(?:.*\.)?memory_planning\Z"), "PY004"),
    (re.compile(r"torchinductor_memory_planning\Z"), "PY004"),
    (re.compile(r"torch\.backends\..*allow_tf32\Z"), "PY008"),
    (re.compile(r"(?:nvidia|torch_allow)_tf32(?:_cublas)?_override\Z"), "PY008"),
    (re.compile(r"(?:.*[._])?(?:use|enable)_flash_attention_2\Z"), "PY025"),
)
_TF32 = re.compile(r"(?:.*[._])?(?:(?:allow|use|enable)_)?tf32\Z")
WORDS = ("overhead", "autotune", "cudagraph", "memory_planning", "tf32", "matmul_precision",
         "fp32_precision", "flash_att")  # fmt: skip
"""One of these is in every text that gives a setting of these rules."""


_NAMES = re.compile(
    r"(?i)mode|compil|dynamo|attn|attention|precision|tf32|cudagraph|memory_planning|flash|backend"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingUse:
    """A rule that a setting falls under, and how it is shown."""

    rule: str
    excerpt: str


def may_be_setting(name: str) -> bool:
    """Return true if any rule can be about a setting of this name, as a quick first check."""
    return _NAMES.search(name) is not None


def read_setting(name: str, value: str, *, own: bool = False) -> tuple[SettingUse, ...]:
    """Return the rules for `name` with `value`. Text that means yes counts as true.

    `own` marks a name of the program's own, such as tf32, which no library may read.
    """
    plain = name.strip("-").replace("-", "_").lower()
    if value.strip().lower() not in _TRUE:
        return tuple(_of_text(plain, value.strip()))
    rule = next((rule for pattern, rule in SWITCHES if pattern.match(plain)), "")
    rule = rule or ("PY008" if not own and _TF32.match(plain) else "")
    return (SettingUse(rule=rule, excerpt=f"{name}={value}"),) if rule else ()


def _of_text(name: str, value: str) -> Iterator[SettingUse]:
    if value in MODES and _MODE.match(name):
        yield SettingUse(rule=MODES[value], excerpt=f'"{value}"')
    elif value == "cudagraphs" and name.endswith("backend"):
        yield SettingUse(rule="PY001", excerpt='backend="cudagraphs"')
    elif value in ATTENTION and _ATTENTION.match(name):
        yield SettingUse(rule="PY025", excerpt=f'"{value}"')
    elif value in {"high", "medium"} and _PRECISION.match(name):
        yield SettingUse(rule="PY008", excerpt=f'matmul precision "{value}"')
    elif value == "tf32" and name.endswith("fp32_precision"):
        yield SettingUse(rule="PY008", excerpt=f'{name} "tf32"')
