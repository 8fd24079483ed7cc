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

from warpfront_checks.hardware.values import Visibility

# The variable that decides, then what a container's runtime reads.
_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "gaudi": ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES"),
    "intel": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
}


def resolve_visibility(vendor: str, environment: Mapping[str, str], count: int) -> Visibility:
    """Return the devices that a process with this environment sees among `count` of a vendor."""
    if vendor == "amd":
        return _of_amd(environment, count)
    name, *runtime = _VARIABLES[vendor]
    variables = _set_ones(environment, (name, *runtime))
    if name not in variables:
        return Visibility(vendor=vendor, variables=variables, visible=tuple(range(count)))
    chosen = _chosen(variables[name], count)
    return Visibility(
        vendor=vendor,
        variables=variables,
        winner=name,
        visible=chosen,
        problems=_hidden(name, variables[name], chosen, count),
    )


def _of_amd(environment: Mapping[str, str], count: int) -> Visibility:
    names = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "HSA_OVERRIDE_GFX_VERSION",
    )
    variables = _set_ones(environment, names)
    problems = list(_amd_contradictions(variables))
    visible: tuple[int, ...] | None = tuple(range(count))
    winner = ""
    if names[0] in variables:
        winner, visible = names[0], _chosen(variables[names[0]], count)
        problems += _hidden(winner, variables[winner], visible, count)
    second = next((name for name in names[1:3] if name in variables), "")
    if second:
        before = None if visible is None else len(visible)
        picked = _chosen(variables[second], count if before is None else before)
        problems += _hidden(second, variables[second], picked, before or 0)
        visible = (
            None if visible is None or picked is None else tuple(visible[place] for place in picked)
        )
        winner = f"{winner}, then {second}" if winner else second
    return Visibility(
        vendor="amd", variables=variables, winner=winner, visible=visible, problems=tuple(problems)
    )


def _amd_contradictions(variables: Mapping[str, str]) -> list[str]:
    hip, cuda = variables.get("HIP_VISIBLE_DEVICES"), variables.get("CUDA_VISIBLE_DEVICES")
    ordinal, rocr = variables.get("GPU_DEVICE_ORDINAL"), variables.get("ROCR_VISIBLE_DEVICES")
    problems = []
    if hip is not None and cuda is not None and hip != cuda:
        problems.append(
            f"HIP_VISIBLE_DEVICES={hip} and CUDA_VISIBLE_DEVICES={cuda} differ: HIP_ wins where it"
            " is accepted, newer ROCm refuses; unset CUDA_VISIBLE_DEVICES"
        )
    if hip is not None and ordinal is not None and hip != ordinal:
        problems.append(
            f"HIP_VISIBLE_DEVICES={hip} and GPU_DEVICE_ORDINAL={ordinal} differ, which newer ROCm"
            " refuses; unset GPU_DEVICE_ORDINAL"
        )
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


def _set_ones(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: environment[name] for name in names if name in environment}
