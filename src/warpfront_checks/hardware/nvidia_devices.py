"""NVIDIA without torch: nvidia-smi, NVML, and what the kernel module shows below /proc."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

from warpfront_checks.hardware.kernel_view import NVIDIA_PROC, nvidia_boards
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Detected, device_table, read_json

# Query fields: `nvidia-smi --help-query-gpu`.
_FIELDS = "--query-gpu=index,name,compute_cap,driver_version,memory.total"
_QUERY = ("nvidia-smi", _FIELDS, "--format=csv,noheader,nounits")
_NODE = re.compile(r"nvidia[0-9]+\Z")


def read_nvidia(reader: Machine) -> Detected:
    """Return devices from nvidia-smi, else from /proc. NVML adds cores and CUDA."""
    version = reader.text(f"{NVIDIA_PROC}/version") or ""
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
    match = re.search(r"NVRM version:.*?\s([0-9]+\.[0-9.]+)\s", version)
    kernel = match[1] if match else ""
    names = [name for _, name in nvidia_boards(reader)]
    boards: list[dict[str, Any]] = [{"index": n, "name": name} for n, name in enumerate(names)]
    answer, toolkits = reader.run(_QUERY), _toolkits(reader)
    smi = [*_rows(answer.text)]
    if not (kernel or boards or smi or answer.status is not None):
        return Detected(toolkits=toolkits)
    document = read_json(reader.run(("warpfront-nvml",)).text)
    nvml: dict[str, Any] = document if isinstance(document, dict) else {}
    nodes = [f"/dev/{name}" for name in reader.names("/dev") if _NODE.match(name)]
    usable = all(reader.access(node) for node in ("/dev/nvidiactl", *nodes))
    # A device of a source is completed from NVML's row of its index and name.
    twins = {(row["index"], row["name"]): row for row in nvml.get("devices", [])}
    table, devices = device_table()["nvidia"], []
    for row in smi or nvml.get("devices") or boards:
        twin = twins.get((row["index"], row["name"]), {})
        arch = str(row.get("arch") or twin.get("arch") or "")
        cores, lanes = twin.get("cores"), table["lanes"].get(arch)
        device = Accelerator(
            vendor="nvidia",
            index=int(row["index"]),
            name=str(row["name"]),
            arch=arch,
            memory_bytes=twin.get("memory_bytes") or row.get("memory_bytes"),
            units=cores // lanes if cores and lanes else None,
            cores=cores,
            wave=table["wave"],
            usable=usable,
        )
        devices.append(device)
    problems = []
    if answer.status != 0 and (kernel or boards):
        lines = (answer.complaint or answer.output).strip().splitlines()
        reason = lines[0] if lines else f"exit {answer.status}"
        problems.append(f"the NVIDIA driver is loaded, but nvidia-smi does not answer: {reason}")
    if smi and boards and len(smi) != len(boards):
        problems.append(f"nvidia-smi lists {len(smi)} GPUs, {NVIDIA_PROC}/gpus {len(boards)}")
    if devices and not usable:
        problems.append("the NVIDIA device nodes may not be opened by this user")
    driver = next((str(row["driver"]) for row in smi), "") or str(nvml.get("driver", "")) or kernel
    return Detected(
        accelerators=tuple(devices),
        drivers={"nvidia": driver} if driver else {},
        toolkits=toolkits | ({"cuda driver": str(nvml["cuda"])} if nvml.get("cuda") else {}),
        problems=tuple(problems),
    )


def _rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield rows of `nvidia-smi --query-gpu`. Lines that are no rows (warnings) are skipped."""
    for fields in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(fields) == 5 and fields[0].isdecimal():
            index, name, capability, driver, memory = fields
            match = re.fullmatch(r"([0-9]+)\.([0-9]+)", capability)
            yield {
                "index": int(index),
                "name": name,
                "arch": f"sm_{match[1]}{match[2]}" if match else "",
                "driver": driver,
                "memory_bytes": int(memory) * 2**20 if memory.isdecimal() else None,
            }


def _toolkits(reader: Machine) -> dict[str, str]:
    """Return the installed CUDA toolkit, which need not be the one torch was built with."""
    try:
        document = json.loads(reader.text("/usr/local/cuda/version.json") or "{}")
        return {"cuda": str(document["cuda"]["version"])}
    except (ValueError, KeyError, TypeError):
        pass
    release = re.search(r"release ([0-9.]+)", reader.run(("nvcc", "--version")).text)
    return {"cuda": release[1]} if release else {}
