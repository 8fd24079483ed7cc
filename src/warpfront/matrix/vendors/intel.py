"""Intel GPUs (Arc, Data Center GPU Max): pytorch.org's XPU wheels, targets of torch's own list,
CDI or the render nodes. Pure.
"""

from __future__ import annotations

import re

from warpfront.matrix.cell import DeviceAccess, HostDevices, Toolkit
from warpfront.matrix.vendors.vendor import Vendor, cdi_access, node_access

_CDI_KIND = "intel.com/gpu="


class Intel(Vendor):
    """`warpfront.matrix.vendors.Vendor` for Intel GPUs. CUDA's sources do not compile as SYCL, they
    are rewritten. The provider of wheel variants tells devices by an IP version, which a target
    does not say.
    """

    name = "intel"
    # The wheels bring the runtime of oneAPI; the release decides which one, not a row.
    toolkit = None
    torch_from = "index"
    device = "xpu"
    # Of Intel's device plugin for the kernel driver `xe`; i915's is another name.
    kubernetes_resource = "gpu.intel.com/xe"
    # As TORCH_XPU_ARCH_LIST and torch.xpu.get_arch_list() name them
    # (pytorch/pytorch setup.py; intel/torch-xpu-ops cmake/BuildFlags.cmake).
    known_targets = ("pvc", "dg2", "mtl-h", "arl-h", "lnl-m", "bmg", "ptl-h", "ptl-u")
    target_form = "bmg"
    target_pattern = re.compile(
        r"(?:dg[0-9]|pvc(?:-vg)?|bmg(?:-g[0-9]{2})?|[a-z]{3}-[a-z][0-9a-z]{0,3})\Z"
    )

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """Return the target itself. Kernels for others are compiled at their first call, which
        is slow and needs the driver's compiler: no device that a tag names should depend on it.
        """
        return (target,)

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> str:
        return "icpx is in Intel's own repository, and neither Debian nor a wheel holds it"

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """CDI where the engine knows devices, else each render node. Which vendor's a node is does
        not show in its name: other vendors' access comes first.
        """
        is_other = not host.nodes.keys().isdisjoint(("/dev/kfd", "/dev/nvidiactl"))
        return cdi_access(host, _CDI_KIND) or (None if is_other else node_access(host))
