"""Pieces of foreign lines: colours, ranks, numbers, units, names of vendors. Pure.

Nothing here raises: what is no number is None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from warpfront.system.strict_values import refuse_constant

_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
# The same, where a log service or `repr` wrote the control character as text.
_COLOUR_AS_TEXT = re.compile(r"(?:#033|\^\[|\\x1b|\\u001b|\\033)\[[0-?]*[ -/]*[@-~]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# torch's, Primus's, torchrun's (with NeMo-Run's replica), srun's, Open MPI's, Nanotron's, Ray's.
_RANK = re.compile(
    r"\[[Rr]ank[- ]?(\d{1,7})(?:/\d+)?\]|(?:/(\d{1,5}) )?\[default(\d{1,7})\]:|^\s*(\d{1,7}): "
    r"|^\[\d{1,5},(\d{1,7})\]<std|\|(DP=\d{1,5}(?:\|[A-Z]{2}=\d{1,5})+)|\(\w{1,40} (pid=\d{1,9})"
)
_NUMBER = re.compile(
    r"\s*(?:np\.\w{1,10}\(|tensor\()?([-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d{0,25})?|\d{1,25},\d{1,25}(?![\d,.])"
    r"|\d{1,25}(?:\.\d{0,25})?|\.\d{1,25})(?:[eE][-+]?\d{1,4})?)"
)
_DECIMAL_COMMA = re.compile(r"[-+]?(?:0|\d{1,25}),(?!\d{3}(?!\d))|[-+]?(?:0|\d{4,25}),")
_SUFFIX = re.compile(r"\s?([kKMBGT])(?![A-Za-z])")
_SUFFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_NAN = re.compile(r"\s*[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_LARGEST = 2**62
_LARGEST_AMOUNT = 10**15
# Primus writes GB and divides by 1024 three times; torchtitan writes GiB.
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"\s*([\d.,]{1,30})\s*((?:[KMGT]i?)?B)?(?![\w.,])", re.IGNORECASE)
_VENDORS = {
    "amd": r"\b(?:amd|rocm|hip|radeon|instinct|gfx\w+|mi\d{2,3}[ax]?)\b",
    "gaudi": r"\b(?:gaudi\d?|hpu|habana)\b",
    "nvidia": r"\b(?:nvidia|nvd|cuda|nemo|geforce|g?[abhv]\d{2,3}|gh200)\b",
}
_DTYPES = {
    "fp8": r"fp8|float8|e4m3|e5m2|hybrid",
    "fp4": r"fp4|float4|e2m1",
    "bfloat16": r"bf16|bfloat16",
    "float16": r"fp16|float16|\bhalf\b",
    "float32": r"fp32|float32|tf32",
}


def cleaned(line: str) -> str:
    """Return foreign text without colours, and with blanks for control characters of terminals."""
    if not line.isprintable():
        line = _CONTROL.sub(" ", _COLOUR.sub("", line))
    is_escaped = "033" in line or "^[" in line or "1b" in line
    return _COLOUR_AS_TEXT.sub("", line) if is_escaped else line


def rank_of(line: str) -> str:
    """Return the rank that a line's prefix names; "" without one."""
    match = _RANK.search(line)
    return ".".join(rank for rank in match.groups() if rank) if match else ""


def number(text: str) -> float | None:
    """Return the finite number that a text begins with: `9,982`, `1.249e+03`, `32066.9/32789.1`,
    and with a decimal comma `87,9`; None without one.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    comma = "." if _DECIMAL_COMMA.match(match[1]) else ""
    value = float(match[1].replace(",", comma, 1 if comma else -1))
    return value if math.isfinite(value) else None


def scaled(text: str) -> float | None:
    """Return the number like `number`, with the suffix that may follow: `20.5K`, `1.9M`, `7.2B`."""
    value, digits = number(text), _NUMBER.match(text)
    suffix = _SUFFIX.match(text, digits.end()) if digits else None
    return value * _SUFFIXES[suffix[1]] if suffix and value is not None else value


def positive(text: str) -> float | None:
    """Return the number like `number`; None unless it is above zero."""
    value = number(text)
    return value if value is not None and value > 0 else None


def is_no_number(text: str) -> bool:
    """Return whether a text is `nan` or `inf`."""
    return _NAN.match(text) is not None


def size_bytes(text: str) -> int | None:
    """Return the bytes of `168.57GiB(94.52%)`, `33.81GB/254.18GB` or `115792977920`."""
    match = _SIZE.match(text)
    value = positive(match[1]) if match else None
    if match is None or value is None:
        return None
    size = value * 2 ** (10 * _POWERS[(match[2] or "")[:1].upper()])
    return round(size) if size < _LARGEST else None


def vendor_of(text: str | None) -> str | None:
    """Return the vendor that a text names, by any of the names in use."""
    return _named((text or "").replace("_", " "), _VENDORS)


def _named(text: str, forms: Mapping[str, str]) -> str | None:
    return next((n for n, form in forms.items() if re.search(form, text, re.IGNORECASE)), None)


def json_object(text: str) -> Mapping[str, Any]:
    """Return a JSON text's object; an empty one for any other value or text."""
    try:
        document = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def amount(value: object) -> float | None:
    """Return a JSON value as a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _LARGEST_AMOUNT else None


def precision_of(text: str) -> str | None:
    """Return torch's name of the number format that a text names."""
    return _named(text, _DTYPES)
