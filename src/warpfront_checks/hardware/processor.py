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
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def read_processor(reader: Machine) -> Processor:
    text = reader.text("/proc/cpuinfo") or ""
    name = re.search(r"(?m)^model name\s*:\s*(.*)$", text)
    flags = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.*)$", text)
    listed = set(flags[1].split()) if flags else set()
    # Listed threads, at most those this process is bound to and its quota.
    threads = len(re.findall(r"(?m)^processor\s*:", text))
    match = re.search(
        r"(?m)^Cpus_allowed_list:\s*([0-9,-]+)$", reader.text("/proc/self/status") or ""
    )
    spans = [span.split("-") for span in match[1].split(",")] if match else []
    bound = sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
    quota = (reader.text("/sys/fs/cgroup/cpu.max") or "max 1").split()
    allowed = max(1, int(quota[0]) // int(quota[1])) if quota[0].isdecimal() else threads
    return Processor(
        name=name[1].strip() if name else "",
        machine=reader.run(("uname", "-m")).text.strip(),
        threads=min((number for number in (threads, bound, allowed) if number), default=1),
        memory_bytes=memory_bytes(reader),
        features=tuple(feature for feature in _FEATURES if feature in listed),
    )


def memory_bytes(reader: Machine) -> int | None:
    """Return what this process may use: its group's limit, or the machine's memory."""
    total = re.search(r"(?m)^MemTotal:\s*(\d+) kB", reader.text("/proc/meminfo") or "")
    limits = [(reader.text(path) or "").strip() for path in _MEMORY_LIMITS]
    sizes = [int(total[1]) * 1024] if total else []
    return min([*sizes, *(int(limit) for limit in limits if limit.isdecimal())], default=None)
