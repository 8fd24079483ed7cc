"""No accelerator: pytorch.org's CPU wheels on x86-64."""

from __future__ import annotations

from typing import Literal

from warpfront.model import Compiler, DeviceAccess, HostDevices, Toolkit


class Cpu:
    """`warpfront.vendors.Vendor` for plain x86-64 machines."""

    name = "cpu"
    toolkit = None
    torch_from: Literal["index"] = "index"
    device = "cpu"
    known_targets = ("x86_64",)
    target_form = "x86_64"
    protected = ("torch", "torchvision", "torchaudio")
    libraries = ()

    def accepts_target(self, target: str) -> bool:
        return target in self.known_targets

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """None: torch's CPU kernels dispatch at run time and are in no list."""
        del target
        return ()

    def shipped_archs(self, entries: tuple[str, ...]) -> frozenset[str]:
        return frozenset(entries)

    def label(self, index: str) -> str:
        return index

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str
    ) -> Compiler | None:
        del toolkit, targets, python
        return None

    def no_compiler(self, toolkit: Toolkit | None) -> str:
        del toolkit
        return "there is no device compiler for the vendor cpu"

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        del host
        return DeviceAccess()
