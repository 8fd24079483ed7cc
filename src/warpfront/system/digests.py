"""Digests of values, foreign values without harm, and mappings that cannot be changed. Words.

Imports the standard library only, because `verify --here` uses it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from types import MappingProxyType

JSON_DEPTH_LIMIT = 40
_LARGEST_INTEGER = 2**63
# Not valid in terminals, XML and UTF-8 files; what shows text in another order.
_NOT_TEXT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def digest_of(value: object) -> str:
    """sha256 hex of the canonical JSON of `value`; the same on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def clean_json(value: object, depth: int = 0) -> object:
    """Return the value, if everything that reads ours can take it: numbers that are finite, no
    deeper than ours, text without control characters (U+FFFD in their place). Raise `ValueError`.
    """
    if depth > JSON_DEPTH_LIMIT:
        raise ValueError(f"deeper than {JSON_DEPTH_LIMIT} levels")
    if isinstance(value, str):
        return _NOT_TEXT.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {str(clean_json(key)): clean_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a number beyond all bounds: {value}")
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        raise ValueError("an integer of more than 64 bits")
    return value


def frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return a read-only copy, so that a frozen value stays frozen."""
    return MappingProxyType(dict(mapping))
