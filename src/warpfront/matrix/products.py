"""Product names of accelerators and their targets. Words.

NVIDIA: https://developer.nvidia.com/cuda-gpus. AMD: the processors of LLVM,
https://llvm.org/docs/AMDGPUUsage.html#processors.
"""

from __future__ import annotations

import re

_TARGETS = {
    "sm_70": "V100",
    "sm_75": "T4 RTX2080",
    "sm_80": "A100 A30",
    "sm_86": "A10 A40 RTX3090 RTXA6000",
    "sm_89": "L4 L40 L40S RTX4090",
    "sm_90": "H100 H200 H800 GH200",
    "sm_100": "B100 B200 GB200",
    "sm_103": "B300 GB300",
    "sm_120": "RTX5090",
    "gfx908": "MI100",
    "gfx90a": "MI210 MI250 MI250X",
    "gfx942": "MI300A MI300X MI308X MI325X",
    "gfx950": "MI350X MI355X",
    "gfx1030": "RX6800 RX6800XT RX6900XT",
    "gfx1100": "RX7900XT RX7900XTX W7900",
    "gfx1201": "RX9070 RX9070XT",
}
_BY_NAME = {name.lower(): target for target, names in _TARGETS.items() for name in names.split()}
_MAKERS = re.compile(r"amd|nvidia|instinct|radeon|geforce|[\s_-]")


def target_of_product(name: str) -> str:
    """Return the target of a product (`MI300X`, `NVIDIA H100`); "" for another name."""
    return _BY_NAME.get(_MAKERS.sub("", name.lower()), "")
