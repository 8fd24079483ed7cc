"""NVIDIA without torch: nvidia-smi, NVML, and what the kernel module shows below /proc."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from warpfront_checks.hardware.kernel_view import NVIDIA_PROC, nvidia_boards
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Detected, device_table

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
    boards = [{"index": index, "name": name} for index, name in enumerate(names)]
    answer = reader.run(_QUERY)
    smi = _read_query(answer.text)
    if not (kernel or boards or smi or answer.status is not None):
        return Detected(toolkits=_toolkits(reader))
    nvml = _read_nvml(reader.run(("warpfront-nvml",)).text)
    nodes = [f"/dev/{name}" for name in reader.names("/dev") if _NODE.match(name)]
    usable = all(reader.access(node) for node in ("/dev/nvidiactl", *nodes))
    rows = smi or nvml.get("devices") or boards
    devices = tuple(_accelerator(row, nvml, usable=usable) for row in rows)
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
    toolkits = _toolkits(reader)
    if nvml.get("cuda"):
        toolkits["cuda driver"] = str(nvml["cuda"])
    return Detected(
        accelerators=devices,
        drivers={"nvidia": driver} if driver else {},
        toolkits=toolkits,
        problems=tuple(problems),
    )


def _read_query(text: str) -> list[dict[str, Any]]:
    """Return rows of `nvidia-smi --query-gpu`. Lines that are no rows (warnings) are skipped."""
    rows = []
    for fields in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(fields) != 5 or not fields[0].isdecimal():
            continue
        index, name, capability, driver, memory = fields
        match = re.fullmatch(r"([0-9]+)\.([0-9]+)", capability)
        rows.append(
            {
                "index": int(index),
                "name": name,
                "arch": f"sm_{match[1]}{match[2]}" if match else "",
                "driver": driver,
                "memory_bytes": int(memory) * 2**20 if memory.isdecimal() else None,
            }
        )
    return rows


def _read_nvml(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _accelerator(row: dict[str, Any], nvml: dict[str, Any], *, usable: bool) -> Accelerator:
    """Return a device of a source, completed from NVML's row of its index and name."""
    same = (row["index"], row["name"])
    twins = (
        device for device in nvml.get("devices", []) if (device["index"], device["name"]) == same
    )
    twin: dict[str, Any] = next(twins, {})
    table = device_table()["nvidia"]
    arch = str(row.get("arch") or twin.get("arch") or "")
    cores, lanes = twin.get("cores"), table["lanes"].get(arch)
    return Accelerator(
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


def _toolkits(reader: Machine) -> dict[str, str]:
    """Return the installed CUDA toolkit, which need not be the one torch was built with."""
    try:
        document = json.loads(reader.text("/usr/local/cuda/version.json") or "{}")
        return {"cuda": str(document["cuda"]["version"])}
    except (ValueError, KeyError, TypeError):
        pass
    release = re.search(r"release ([0-9.]+)", reader.run(("nvcc", "--version")).text)
    return {"cuda": release[1]} if release else {}
