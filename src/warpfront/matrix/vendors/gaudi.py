"""Intel Gaudi: torch is the vendor's fork, already in the vendor's base image. Pure."""

from __future__ import annotations

from typing import Literal

from warpfront.model import (
    Compiler,
    CompilerCall,
    DeviceAccess,
    HostDevices,
    Properties,
    Toolkit,
    frozen,
)

_CDI_KINDS = ("habana.ai/gaudi=", "intel.com/gaudi=")
_RUNTIME = "habana"
# https://docs.habana.ai/en/latest/Installation_Guide/Additional_Installation/Docker_Installation.html
_ENVIRONMENT = {
    "HABANA_VISIBLE_DEVICES": "all",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Gaudi:
    """`warpfront.matrix.vendors.Vendor` for Intel Gaudi."""

    name = "gaudi"
    toolkit: Literal["synapseai"] = "synapseai"
    torch_from: Literal["base"] = "base"
    device = "hpu"
    kubernetes_resource = "habana.ai/gaudi"
    known_targets = ("gaudi2", "gaudi3")
    target_form = "gaudi3"
    protected = ("torch", "torchvision", "torchaudio", "habana-*")
    libraries = ()

    def accepts_target(self, target: str) -> bool:
        return target in self.known_targets

    def machine_of(self, target: str) -> None:
        del target

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """None: Gaudi compiles graphs at run time, torch lists nothing."""
        del target
        return ()

    def shipped_archs(self, entries: tuple[str, ...]) -> frozenset[str]:
        return frozenset(entries)

    def label(self, index: str) -> str:
        del index
        return ""

    def has_device_wheels(self, toolkit: Toolkit | None) -> bool:
        del toolkit
        return False

    def variant_properties(self, toolkit: Toolkit | None, target: str) -> Properties:
        """No provider knows it."""
        del toolkit, target
        return ()

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler | None:
        del toolkit, targets, python, suite
        return None

    def no_compiler(self, toolkit: Toolkit | None, suite: str) -> str:
        del suite
        return f"the base image of {toolkit} already holds the vendor's tools"

    def compiler_call(self, target: str) -> CompilerCall | None:
        """None: kernels of Gaudi are written in TPC-C, for the vendor's own tools."""
        del target
        return None

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """CDI where the engine knows devices, else the vendor's OCI runtime."""
        devices = tuple(sorted(name for name in host.cdi if name.startswith(_CDI_KINDS)))
        if devices:
            everything = tuple(name for name in devices if name.endswith("=all"))
            return DeviceAccess(cdi=everything[:1] or devices)
        if _RUNTIME not in host.runtimes:
            return None
        return DeviceAccess(runtime=_RUNTIME, environment=frozen(_ENVIRONMENT))
