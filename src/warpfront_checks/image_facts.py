"""Facts of an image, read inside the image itself: its labels and tag have to agree with them."""

from __future__ import annotations

import importlib
import platform
import re
import sys
from typing import Any

from warpfront_checks.distributions import Installed
from warpfront_checks.guard.policy import Policy, normalized
from warpfront_checks.torch_devices import read_arch_list, rocm_release


def stack_facts(installed: Installed, policy: Policy | None) -> dict[str, object]:
    """Return versions as installed, not as planned. `toolkit` is name and version as in a
    matrix (`cuda13.0`), "" for a CPU build; `protected` are the guard's distributions,
    None without one.
    """
    torch: Any = importlib.import_module("torch")
    return {
        "torch": installed.versions["torch"][0],
        "toolkit": _toolkit(torch),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "machine": platform.machine(),
        "archs": list(read_arch_list(torch)),
        "protected": None if policy is None else policy.pinned(),
        "relaxed": None if policy is None else sorted(policy.relaxed),
        "patched": patched_versions(installed),
    }


def patched_versions(installed: Installed) -> list[str]:
    """Return the distributions rebuilt with patches, by the local label of their version."""
    return sorted(
        f"{normalized(name)} {version}"
        for name, versions in installed.versions.items()
        for version in versions
        if re.search(r"[+.]wf\.p[0-9a-f]{8}$", version)
    )


def _toolkit(torch: Any) -> str:
    if release := rocm_release(torch):
        return f"rocm{release}"
    cuda = getattr(torch.version, "cuda", None)
    if cuda:
        return f"cuda{cuda}"
    return "xpu" if getattr(torch.version, "xpu", None) else ""
