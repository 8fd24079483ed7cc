"""Devices that a process may see, from the variables that vendors' drivers read.

AMD: ROCR_VISIBLE_DEVICES filters first, HIP_VISIBLE_DEVICES indexes into the result,
CUDA_VISIBLE_DEVICES counts only without it, and ROCm is giving it up
(https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html; pytorch torch/cuda/__init__.py,
_parse_visible_devices). NVIDIA: CUDA C++ Programming Guide, "CUDA environment variables". Gaudi:
docs.habana.ai, "HABANA_VISIBLE_MODULES". Intel: Level Zero's programming guide, "Affinity Mask"; of
`0.1`, a tile, only the driver can tell the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from warpfront_checks.hardware.values import Visibility, device_table

# By vendor, the filters in their order: of each the first variable that is set decides; and what a
# container's runtime reads, or changes the devices of a process in another way.
_VARIABLES: Mapping[str, Mapping[str, Any]] = device_table()["visibility"]


def variables_of(vendor: str) -> tuple[str, ...]:
    """Return the variables that decide which of a vendor's devices a process sees."""
    return (*chain(*_VARIABLES[vendor]["filters"]), *_VARIABLES[vendor]["others"])


EVERY_VARIABLE = tuple(dict.fromkeys(chain(*map(variables_of, _VARIABLES))))


def resolve_visibility(vendor: str, environment: Mapping[str, str], count: int) -> Visibility:
    """Return the devices that a process with this environment sees among `count` of a vendor."""
    names = variables_of(vendor)
    variables = {name: environment[name] for name in names if name in environment}
    problems = _amd_contradictions(variables) if vendor == "amd" else []
    visible: tuple[int, ...] | None = tuple(range(count))
    winners = []
    for choice in _VARIABLES[vendor]["filters"]:
        name = next((name for name in choice if name in variables), "")
        if not name:
            continue
        known = 0 if visible is None else len(visible)
        chosen = _chosen(variables[name], count if visible is None else known)
        problems += _hidden(name, variables[name], chosen, known)
        both = visible is not None and chosen is not None
        visible = tuple(visible[place] for place in chosen) if both else None  # type: ignore[index, union-attr]
        winners.append(name)
    return Visibility(
        vendor=vendor,
        variables=variables,
        winner=", then ".join(winners),
        visible=visible,
        problems=tuple(problems),
    )


def _amd_contradictions(variables: Mapping[str, str]) -> list[str]:
    hip, rocr = variables.get("HIP_VISIBLE_DEVICES"), variables.get("ROCR_VISIBLE_DEVICES")
    refuses = {
        "CUDA_VISIBLE_DEVICES": "HIP_ wins where it is accepted, newer ROCm refuses",
        "GPU_DEVICE_ORDINAL": "newer ROCm refuses",
    }
    problems = [
        f"HIP_VISIBLE_DEVICES={hip} and {name}={variables[name]} differ: {result}; unset {name}"
        for name, result in refuses.items()
        if hip is not None and variables.get(name, hip) != hip
    ]
    if rocr is not None and hip is not None and len(hip.split(",")) > len(rocr.split(",")):
        problems.append(
            f"HIP_VISIBLE_DEVICES={hip} names more devices than ROCR_VISIBLE_DEVICES={rocr} leaves:"
            " torch refuses"
        )
    if "HSA_OVERRIDE_GFX_VERSION" in variables:
        problems.append(
            f"HSA_OVERRIDE_GFX_VERSION={variables['HSA_OVERRIDE_GFX_VERSION']} makes devices report"
            " another arch than they have"
        )
    return problems


def _chosen(value: str, count: int) -> tuple[int, ...] | None:
    """Return indices up to the first that is none; None where a device is named by identity."""
    chosen: list[int] = []
    for entry in (part.strip() for part in value.split(",")):
        if entry.startswith(("GPU-", "MIG-")) or "." in entry:
            return None
        if not entry.isdecimal() or int(entry) >= count or int(entry) in chosen:
            break
        chosen.append(int(entry))
    return tuple(chosen)


def _hidden(name: str, value: str, chosen: tuple[int, ...] | None, count: int) -> tuple[str, ...]:
    if chosen == () and count:
        return (f"{name}={value!r} hides all {count} devices",)
    return ()
