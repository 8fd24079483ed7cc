"""No accelerator: pytorch.org's CPU wheels, for the machine itself. Pure."""

from __future__ import annotations

from warpfront.matrix.cell import Compiler, CompilerCall, DeviceAccess, HostDevices, Toolkit
from warpfront.matrix.vendors.vendor import Vendor


class Cpu(Vendor):
    """`warpfront.matrix.vendors.Vendor` for plain machines, each of which is its own target."""

    name = "cpu"
    toolkit = None
    torch_from = "index"
    device = "cpu"
    kubernetes_resource = ""
    known_targets = ("x86_64", "aarch64")
    target_form = "x86_64"

    def machine_of(self, target: str) -> str:
        return target

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler:
        """g++, for extensions in C++."""
        return Compiler(apt=("g++", "python3-dev"))

    def compiler_call(self, target: str) -> CompilerCall | None:
        """Return the call for C++ only: g++ compiles no kernels."""
        return CompilerCall(
            argv=("g++", "-O2", "-fPIC", "-fno-diagnostics-show-caret"),
            kernel=(),
            plain=("-x", "c++"),
            version=("g++", "--version"),
        )

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        return DeviceAccess()
