"""The CPU: what this process may use of it, and its instructions for low precision."""

from __future__ import annotations

import re

from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Processor

# Flags of /proc/cpuinfo that change what torch computes with (oneDNN dispatches on them).
_FEATURES = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "amx_fp16"),
    *("amx_int8", "bf16", "fphp", "asimdhp", "sve"),
)


def read_processor(reader: Machine) -> Processor:
    text = reader.text("/proc/cpuinfo") or ""
    name = re.search(r"(?m)^model name\s*:\s*(.*)$", text)
    flags = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.*)$", text)
    listed = set(flags[1].split()) if flags else set()
    return Processor(
        name=name[1].strip() if name else "",
        machine=reader.run(("uname", "-m")).text.strip(),
        threads=_threads(reader, text),
        memory_bytes=_memory_bytes(reader),
        features=tuple(feature for feature in _FEATURES if feature in listed),
    )


def _threads(reader: Machine, cpuinfo: str) -> int:
    """Return the number of listed threads, at most those this process is bound to and its quota."""
    listed = len(re.findall(r"(?m)^processor\s*:", cpuinfo))
    bound = _length(reader.text("/proc/self/status") or "")
    quota = (reader.text("/sys/fs/cgroup/cpu.max") or "max 1").split()
    allowed = max(1, int(quota[0]) // int(quota[1])) if quota[0].isdecimal() else listed
    return min((number for number in (listed, bound, allowed) if number), default=1)


def _memory_bytes(reader: Machine) -> int | None:
    total = re.search(r"(?m)^MemTotal:\s*(\d+) kB", reader.text("/proc/meminfo") or "")
    limit = (reader.text("/sys/fs/cgroup/memory.max") or "").strip()
    sizes = [int(total[1]) * 1024] if total else []
    sizes += [int(limit)] if limit.isdecimal() else []
    return min(sizes, default=None)


def _length(status: str) -> int:
    """Return the number of CPUs in `Cpus_allowed_list: 0-3,8`."""
    match = re.search(r"(?m)^Cpus_allowed_list:\s*([0-9,-]+)$", status)
    spans = [span.split("-") for span in match[1].split(",")] if match else []
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
