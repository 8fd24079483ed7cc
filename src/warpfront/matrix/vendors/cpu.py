"""No accelerator: pytorch.org's CPU wheels, for the machine itself. Pure."""

from __future__ import annotations

from typing import Literal

from warpfront.model import Compiler, CompilerCall, DeviceAccess, HostDevices, Properties, Toolkit


class Cpu:
    """`warpfront.matrix.vendors.Vendor` for plain machines, each of which is its own target."""

    name = "cpu"
    toolkit = None
    torch_from: Literal["index"] = "index"
    device = "cpu"
    kubernetes_resource = ""
    known_targets = ("x86_64", "aarch64")
    target_form = "x86_64"
    protected = ("torch", "torchvision", "torchaudio")
    libraries = ()

    def accepts_target(self, target: str) -> bool:
        return target in self.known_targets

    def machine_of(self, target: str) -> str:
        return target

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """None: torch's CPU kernels dispatch at run time and are in no list."""
        del target
        return ()

    def shipped_archs(self, entries: tuple[str, ...]) -> frozenset[str]:
        return frozenset(entries)

    def label(self, index: str) -> str:
        return index

    def has_device_wheels(self, toolkit: Toolkit | None) -> bool:
        del toolkit
        return False

    def variant_properties(self, toolkit: Toolkit | None, target: str) -> Properties:
        """What a machine has whatever its device, `wheels.variants` says."""
        del toolkit, target
        return ()

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler | None:
        """g++, for extensions in C++."""
        del toolkit, targets, python, suite
        return Compiler(apt=("g++", "python3-dev"))

    def no_compiler(self, toolkit: Toolkit | None, suite: str) -> str:
        del toolkit, suite
        return "g++ is the compiler for the vendor cpu"

    def compiler_call(self, target: str) -> CompilerCall | None:
        """For C++ only: g++ does not know what a kernel is."""
        del target
        return CompilerCall(
            argv=("g++", "-O2", "-fPIC", "-fno-diagnostics-show-caret"),
            kernel=(),
            plain=("-x", "c++"),
            version=("g++", "--version"),
        )

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        del host
        return DeviceAccess()
