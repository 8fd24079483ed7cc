"""NVIDIA: CUDA wheels, sm targets, CDI or `--gpus`. Pure."""

from __future__ import annotations

import re

from warpfront.matrix.cell import (
    Compiler,
    CompilerCall,
    DeviceAccess,
    HostDevices,
    Properties,
    Toolkit,
)
from warpfront.matrix.vendors.vendor import Vendor, cdi_access
from warpfront.system.digests import frozen

_CDI_KIND = "nvidia.com/gpu="
# Compute capabilities as major * 10 + minor: https://developer.nvidia.com/cuda-gpus
_KNOWN = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121)
# Integrated GPUs run cubins of their exact capability only, and no other GPU runs theirs
# (CUDA C++ Programming Guide, "Binary Compatibility": not supported for Tegra).
_INTEGRATED = frozenset({53, 62, 72, 87, 101, 110})
_FIRST_MAJOR_WITH_NVCC_WHEEL = 13
# CUDA's versions in wheel variants; -1 is a major without a minor.
_CUDAS, _MINORS = range(11, 16), range(20, -2, -1)


class Nvidia(Vendor):
    """`warpfront.matrix.vendors.Vendor` for NVIDIA."""

    name = "nvidia"
    toolkit = "cuda"
    torch_from = "index"
    device = "cuda"
    kubernetes_resource = "nvidia.com/gpu"
    known_targets = tuple(f"sm_{capability}" for capability in _KNOWN)
    target_form = "sm_90"
    target_pattern = re.compile(r"sm_([1-9][0-9]{1,2})\Z")

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """Cubins of the same major and a minor not above (sm_89 runs sm_86 and sm_80), then PTX of
        any capability not above, which the driver compiles forward.

        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
        """
        capability = _capability(target)
        below = sorted(capable for capable in {*_KNOWN, capability} if capable <= capability)[::-1]
        cubins = [f"sm_{capable}" for capable in below if _runs_cubin(capable, on=capability)]
        own_features = [f"sm_{capability}a"]
        return (
            *cubins[:1],
            *own_features,
            *cubins[1:],
            *(f"compute_{capability}" for capability in below),
        )

    def shipped_archs(self, entries: tuple[str, ...]) -> frozenset[str]:
        archs = set()
        for entry in entries:
            number = entry.removesuffix("+PTX").replace(".", "")
            archs.add(f"sm_{number}")
            if entry.endswith("+PTX"):
                archs.add(f"compute_{number}")
        return frozenset(archs)

    def label(self, index: str) -> str:
        """PyPI strips the label (test-infra release/pypi/prep_binary_for_pypi.py)."""
        return "" if index == "pypi" else index

    def variant_properties(self, toolkit: Toolkit | None, target: str) -> Properties:
        """Return the properties that nvidia-variant-provider @ffea5d3 (plugin.py,
        `get_supported_configs`) gives on a machine whose driver is of that CUDA, less cubins of
        other families of chips.
        """
        if toolkit is None:
            return ()
        capability = _capability(target)
        cubins = sorted({*_KNOWN, capability}, reverse=True)
        major, minor = (int(part) for part in toolkit.version.split(".")[:2])
        driver = [(cuda, part) for cuda in reversed(_CUDAS) for part in _MINORS]
        lower = tuple(_bound(*number) for number in driver if number <= (major, minor))
        upper = tuple(_bound(*number) for number in driver if number > (major, minor))
        real = tuple(f"{cubin}_real" for cubin in cubins if _runs_cubin(cubin, on=capability))
        return (
            (
                "nvidia",
                (
                    ("cuda_version_lower_bound", lower),
                    ("cuda_version_upper_bound", upper),
                    ("sm_arch", (*real, f"{capability // 10}0_virtual")),
                ),
            ),
        )

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler | str:
        """Return nvcc of the toolkit's wheels; those for CUDA 12 (to 12.9.86) have only ptxas."""
        if toolkit is None or _major(toolkit) < _FIRST_MAJOR_WITH_NVCC_WHEEL:
            return (
                f"NVIDIA's wheels for {toolkit} hold ptxas and no nvcc; "
                f"they do from cuda{_FIRST_MAJOR_WITH_NVCC_WHEEL}.0"
            )
        home = f"/opt/venv/lib/python{python}/site-packages/nvidia/cu{_major(toolkit)}"
        # `8.0;9.0+PTX`, with PTX of the newest for what comes after it.
        archs = ";".join(map(_dotted, sorted(map(_capability, targets)))) + "+PTX"
        return Compiler(
            # `cuda-toolkit` pins which nvcc, nvvm, crt and runtime belong together; headers of CCCL
            # may be newer than the toolkit, and torch 2.15 brings such:
            # https://pypi.org/project/cuda-toolkit/
            requirements=(
                f"cuda-toolkit[nvcc]=={toolkit.version}.*",
                f"nvidia-cuda-cccl=={_major(toolkit)}.*",
            ),
            # `python:slim` has Python's headers already; a bootstrapped base has them from here.
            apt=("g++", "python3-dev"),
            programs=f"{home}/bin",
            libraries=f"{home}/lib",
            environment=frozen({"CUDA_HOME": home, "TORCH_CUDA_ARCH_LIST": archs}),
        )

    def compiler_call(self, target: str) -> CompilerCall | None:
        """Return the call of nvcc (https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/).
        ptxas names lines of its own input only; that input, stored with line information, names
        lines of the source.
        """
        return CompilerCall(
            argv=("nvcc", f"-arch={target}", "-Xcompiler=-fPIC", "-lineinfo"),
            kernel=("-x", "cu"),
            plain=("-x", "c++"),
            version=("nvcc", "--version"),
            work=("--keep", "--keep-dir"),
            kept=("*.ptx",),
            environment=frozen({"TORCH_CUDA_ARCH_LIST": _dotted(_capability(target))}),
        )

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """CDI where the engine knows devices, else `--gpus`."""
        return cdi_access(host, _CDI_KIND) or (DeviceAccess(gpus=True) if host.gpus else None)


def _capability(target: str) -> int:
    match = Nvidia.target_pattern.match(target)
    if match is None:
        raise ValueError(f"not an NVIDIA target: {target!r}")
    return int(match.group(1))


def _bound(major: int, minor: int) -> str:
    return str(major) if minor < 0 else f"{major}.{minor}"


def _runs_cubin(cubin: int, *, on: int) -> bool:
    if _INTEGRATED & {cubin, on}:
        return cubin == on
    return cubin // 10 == on // 10 and cubin <= on


def _major(toolkit: Toolkit) -> int:
    return int(toolkit.version.partition(".")[0])


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"
