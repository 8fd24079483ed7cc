"""Differences between accelerator vendors: one module each, one Protocol and one dict. Pure.

Nothing outside this package compares vendors' names; it calls the vendor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from warpfront.matrix.vendors.amd import Amd
from warpfront.matrix.vendors.cpu import Cpu
from warpfront.matrix.vendors.gaudi import Gaudi
from warpfront.matrix.vendors.intel import Intel
from warpfront.matrix.vendors.nvidia import Nvidia
from warpfront.matrix.vendors.vendor import Vendor

_ALL: tuple[Vendor, ...] = (Nvidia(), Amd(), Cpu(), Gaudi(), Intel())
VENDORS: Mapping[str, Vendor] = MappingProxyType({vendor.name: vendor for vendor in _ALL})

__all__ = ["VENDORS", "Vendor"]
