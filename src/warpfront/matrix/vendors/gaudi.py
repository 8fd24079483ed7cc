"""Intel Gaudi: torch is the vendor's fork, already in the vendor's base image. Pure."""

from __future__ import annotations

from warpfront.matrix.cell import DeviceAccess, HostDevices, Toolkit
from warpfront.matrix.vendors.vendor import Vendor, cdi_access
from warpfront.system.digests import frozen

_CDI_KINDS = ("habana.ai/gaudi=", "intel.com/gaudi=")
_RUNTIME = "habana"
# https://docs.habana.ai/en/latest/Installation_Guide/Additional_Installation/Docker_Installation.html
_ENVIRONMENT = {
    "HABANA_VISIBLE_DEVICES": "all",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Gaudi(Vendor):
    """`warpfront.matrix.vendors.Vendor` for Intel Gaudi. Its kernels are written in TPC-C, for the
    vendor's own tools: there is no compiler to call.
    """

    name = "gaudi"
    toolkit = "synapseai"
    torch_from = "base"
    device = "hpu"
    kubernetes_resource = "habana.ai/gaudi"
    known_targets = ("gaudi2", "gaudi3")
    target_form = "gaudi3"

    def label(self, index: str) -> str:
        return ""

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> str:
        return f"the base image of {toolkit} already holds the vendor's tools"

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """CDI where the engine knows devices, else the vendor's OCI runtime."""
        if by_cdi := cdi_access(host, _CDI_KINDS):
            return by_cdi
        if _RUNTIME not in host.runtimes:
            return None
        return DeviceAccess(runtime=_RUNTIME, environment=frozen(_ENVIRONMENT))
