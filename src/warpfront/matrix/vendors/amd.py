"""AMD: ROCm wheels, gfx targets, CDI or /dev/kfd with the render nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.version import Version
from rocm_bootstrap.package_metadata import package_owner
from rocm_bootstrap.targets import ALL_FAMILIES, ALL_SUB_FAMILIES, ALL_TARGETS

from warpfront.matrix.cell import (
    Compiler,
    CompilerCall,
    DeviceAccess,
    HostDevices,
    Properties,
    Toolkit,
)
from warpfront.matrix.vendors.vendor import Vendor, cdi_access, node_access
from warpfront.system.digests import frozen

_CDI_KIND = "amd.com/gpu="
# Code objects of a generic target run on each member: https://llvm.org/docs/AMDGPUUsage.html. AMD's
# table groups by version number, and names two groups whose generic target covers other members.
_GENERIC: Mapping[str, tuple[str, ...]] = {
    **{
        group.llvm_generic: tuple(member.name for member in group.members)
        for group in (*ALL_SUB_FAMILIES, *ALL_FAMILIES)
        if group.llvm_generic
    },
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx942", "gfx950"),
}
# The ROCm whose HIP and device libraries a suite's hipcc brings, as found there: docs/compile.md.
_HIPCC: Mapping[str, str] = {"trixie": "5.7", "sid": "6.4", "experimental": "7.2"}
_INCOMPLETE = "experimental"
_FIRST_WITH_DEVICE_WHEELS = Version("7.14")
_FAMILY = {member: family for family, members in _GENERIC.items() for member in members}


class Amd(Vendor):
    """`warpfront.matrix.vendors.Vendor` for AMD."""

    name = "amd"
    toolkit = "rocm"
    torch_from = "index"
    device = "cuda"
    kubernetes_resource = "amd.com/gpu"
    known_targets = (*(target.name for target in ALL_TARGETS), *_GENERIC)
    target_form = "gfx942"
    target_pattern = re.compile(r"gfx(?:[0-9]{2,3}[0-9a-f]|[0-9]{1,2}(?:-[0-9])?-generic)\Z")

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """Return the target, then its generic family: nothing else is forward compatible."""
        family = _FAMILY.get(target)
        return (target, family) if family else (target,)

    def has_device_wheels(self, toolkit: Toolkit | None) -> bool:
        """Return true from ROCm 7.14 on: `rocm-sdk-device-gfx942`
        (ROCm/TheRock @89553ce, docs/packaging/python_packaging.md).
        """
        return toolkit is not None and Version(toolkit.version) >= _FIRST_WITH_DEVICE_WHEELS

    def device_extra(self, target: str) -> str:
        """`device-gfx942`: several targets may be in the package of one (`gfx1250-strict`)."""
        return f"device-{package_owner(target)}"

    def variant_properties(self, toolkit: Toolkit | None, target: str) -> Properties:
        """Return the properties that amd-variant-provider @4d985a9 (plugin.py,
        `get_supported_configs`) gives on a machine with that GPU and that ROCm. The provider in
        `rocm-bootstrap` 0.3.0 gives `gfx_arch` alone, by the owner of a target's package.
        """
        if toolkit is None:
            return ()
        version = ".".join(toolkit.version.split(".")[:2])
        return (("amd", (("gfx_arch", (package_owner(target),)), ("rocm_version", (version,)))),)

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler | str:
        """Debian's hipcc, which depends on its clang, lld, device libraries and HIP headers, where
        it is of that ROCm. A suite that is not whole is a base's own, which names its packages.
        """
        if toolkit is None or _HIPCC.get(suite) != toolkit.version:
            version = _HIPCC.get(suite)
            debian = (
                f"Debian {suite}'s hipcc is of ROCm {version}"
                if version
                else f"which ROCm the hipcc of {suite or 'this base'} is of is not known"
            )
            # AMD's own is in `rocm-sdk-devel`, which pytorch.org's index does not mirror
            # (pytorch/test-infra#8436) and which unpacks itself where it is installed
            # (ROCm/TheRock @89553ce, templates/rocm/src/rocm_sdk/_devel.py).
            if self.has_device_wheels(toolkit):
                return f"{debian}, and the index of {toolkit} has no rocm-sdk-devel"
            return f"{debian}, and no wheel holds the compiler of {toolkit}"
        added = () if suite == _INCOMPLETE else ("g++", "hipcc", "hipify-perl", "python3-dev")
        return Compiler(
            apt=added,
            # torch looks for hipcc below ROCM_HOME. Not ROCM_PATH: given one, Debian's clang looks
            # for the device libraries there, and not where Debian has them.
            environment=frozen(
                {"HIP_PLATFORM": "amd", "PYTORCH_ROCM_ARCH": ";".join(targets), "ROCM_HOME": "/usr"}
            ),
        )

    def compiler_call(self, target: str) -> CompilerCall | None:
        """clang's options and messages: https://rocm.docs.amd.com/projects/HIPCC/en/latest/."""
        return CompilerCall(
            argv=(
                "hipcc",
                f"--offload-arch={target}",
                "-O2",
                "-fPIC",
                "-fno-color-diagnostics",
                "-fno-caret-diagnostics",
            ),
            kernel=("-x", "hip"),
            plain=("-x", "c++"),
            version=("hipcc", "--version"),
            torch_defines=("-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1"),
            hipifies=True,
            environment=frozen({"PYTORCH_ROCM_ARCH": target}),
        )

    def emulated_version(self, target: str) -> int | None:
        """Return the kernel's `gfx_target_version`, which rocJITsu's configurations have."""
        return next((gfx.gfx_target_version for gfx in ALL_TARGETS if gfx.name == target), None)

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """CDI where the engine knows devices, else /dev/kfd and each render node."""
        return cdi_access(host, _CDI_KIND) or node_access(host, "/dev/kfd")
