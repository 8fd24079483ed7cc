"""The installed distributions of this Python, by their metadata, and their conflicts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront_checks.guard.policy import normalized
from warpfront_checks.guard.requires_dist import UnreadableError, read_requirement

# Who brings which import package: all of these own the directory `triton/`.
TRITON_NAMES = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "triton-xpu")
IMPORT_NAMES = {name: name for name in ("torchvision", "torchaudio")}
IMPORT_NAMES |= dict.fromkeys(TRITON_NAMES, "triton")
_NVIDIA = re.compile(r"nvidia-(cu|nccl|nvjitlink|nvtx|nvshmem)|cuda-")
_ROCM = re.compile(r"rocm\Z|rocm-sdk|amd-torch-device|pytorch-triton-rocm|triton-rocm|hip-python")
PIP_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Conflicts:
    """Unmet requirements, lines that could not be read, and the distributions reached."""

    conflicts: tuple[str, ...]
    unread: tuple[str, ...]
    checked: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Normalised name -> every version found, and the raw requirements of the first."""

    versions: Mapping[str, tuple[str, ...]]
    requirements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_installed() -> Installed:
    """Read every distribution on the path, with its duplicates."""
    versions: dict[str, list[str]] = {}
    requirements: dict[str, tuple[str, ...]] = {}
    for distribution in importlib.metadata.distributions():
        raw = distribution.metadata["Name"]
        name = normalized(raw.strip()) if raw else f"(no name in {distribution})"
        versions.setdefault(name, []).append(distribution.version or "")
        requirements.setdefault(name, tuple(distribution.requires or ()))
    sorted_versions = {name: tuple(listed) for name, listed in sorted(versions.items())}
    return Installed(versions=sorted_versions, requirements=requirements)


def version_differences(installed: Installed, claimed: Mapping[str, str]) -> list[str]:
    """Return each claimed distribution that is missing, or there in another version."""
    differences = []
    for name, version in sorted(claimed.items()):
        listed = installed.versions.get(normalized(name))
        if listed is None:
            differences.append(f"{name} is not installed, the lock has {version}")
        elif _canonical(listed[0]) != _canonical(version):
            differences.append(f"{name} is {listed[0]}, the lock has {version}")
    return differences


def duplicates(installed: Installed, names: Iterable[str]) -> list[str]:
    """Return which of these are there more than once by metadata, and a triton with two owners."""
    problems = [
        f"{name} is installed more than once: {', '.join(installed.versions[name])}"
        for name in sorted({normalized(name) for name in names})
        if len(installed.versions.get(name, ())) > 1
    ]
    present = [name for name in TRITON_NAMES if name in installed.versions]
    # A guard's shim owns nothing, and requires the real owner.
    real = tuple(f"{name}=" for name in present)
    requires = {name: installed.requirements.get(name, ()) for name in present}
    owners = [n for n in present if not any(line.startswith(real) for line in requires[n])]
    return problems + ([f"{' and '.join(owners)} both own triton/"] if len(owners) > 1 else [])


def foreign_toolkit(installed: Installed, toolkit: str, version: str) -> list[str]:
    """Return distributions of another vendor's toolkit than `cuda`, `rocm`, `synapseai`, `cpu`."""
    nvidia, rocm = (list(filter(form.match, installed.versions)) for form in (_NVIDIA, _ROCM))
    wrong = [f"{name} belongs to CUDA" for name in nvidia if toolkit != "cuda"]
    wrong += [f"{name} belongs to ROCm" for name in rocm if toolkit != "rocm"]
    major = version.split(".", maxsplit=1)[0]
    return wrong + [
        f"{name} is for another CUDA than {version}"
        for name in nvidia
        if toolkit == "cuda" and major and "-cu1" in name and not name.endswith(f"-cu{major}")
    ]


def closure_conflicts(installed: Installed, roots: Iterable[str]) -> Conflicts:
    """Return our own reading of the requirements reachable from `roots`, extras followed."""
    conflicts, unread = [], []
    pending = [(normalized(root), tuple[str, ...]()) for root in roots]
    visited: set[tuple[str, tuple[str, ...]]] = set()
    while pending:
        name, extras = pending.pop()
        if (name, extras) in visited or name not in installed.versions:
            continue
        visited.add((name, extras))
        for line in installed.requirements.get(name, ()):
            try:
                need = read_requirement(line)
                if not need.applies(extras):
                    continue
                versions = installed.versions.get(need.name)
                if versions is None:
                    conflicts.append(f"{name} requires {line}, which is not installed")
                elif not need.accepts(versions[0]):
                    conflicts.append(f"{name} requires {line}, but {need.name} is {versions[0]}")
                pending.append((need.name, need.extras))
            except UnreadableError as error:
                unread.append(f"{name} requires {line}: cannot read {error}")
    return Conflicts(
        conflicts=tuple(dict.fromkeys(conflicts)),
        unread=tuple(dict.fromkeys(unread)),
        checked=tuple(sorted({name for name, _ in visited})),
    )


def pip_conflicts() -> tuple[str, ...] | None:
    """Return the complaints of `pip check` of this very Python; None where it has no pip."""
    if importlib.util.find_spec("pip") is None:
        return None
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "check"]
    completed = subprocess.run(
        argv, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
    )
    lines = (completed.stdout + completed.stderr).strip().splitlines()
    code = completed.returncode
    return (tuple(lines) or (f"pip check exited with {code}",)) if code else ()


def _canonical(version: str) -> str:
    """Return a published version without what does not count: case, and a label's separators."""
    public, plus, local = version.strip().lower().partition("+")
    return public + plus + local.replace("-", ".").replace("_", ".")
