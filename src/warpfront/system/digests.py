"""Digests of values, and mappings that cannot be changed. Words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType


def digest_of(value: object) -> str:
    """sha256 hex of the canonical JSON of `value`; the same on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return a read-only copy, so that a frozen value stays frozen."""
    return MappingProxyType(dict(mapping))
