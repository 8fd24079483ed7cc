"""The Protocol of a vendor, which each module of this package implements. Pure."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Literal, Protocol

from warpfront.matrix.cell import (
    Compiler,
    CompilerCall,
    DeviceAccess,
    HostDevices,
    Properties,
    Toolkit,
)
from warpfront.system.packaged import packaged_toml

_stacks = cache(partial(packaged_toml, "stacks.toml"))
_RENDER_NODE = re.compile(r"/dev/dri/renderD[0-9]+\Z")


class Vendor(Protocol):
    """Facts and rules of a vendor, as pure values. Answers that most vendors share are here."""

    name: str
    """How matrix.yaml, ids and `--vendor` call it."""
    toolkit: Literal["cuda", "rocm", "synapseai"] | None
    """The toolkit whose version a row gives; None where there is none to choose."""
    torch_from: Literal["index", "base"]
    """Whether torch is installed from a wheel index, or is already in the base image."""
    device: str
    """What torch calls the device: `torch.device("cuda")` on AMD too."""
    known_targets: tuple[str, ...]
    """Targets whose hardware we know; others of the right form are warned about."""
    kubernetes_resource: str
    """What a pod of Kubernetes asks for to get one device; "" for no device."""
    target_form: str
    """How a target is written, for messages: "sm_90"."""
    target_pattern: re.Pattern[str] | None = None
    """The form of targets besides the known ones; None where there are no others."""

    @property
    def protected(self) -> tuple[str, ...]:
        """Return the distributions that belong to torch: a lock takes them from the cell's own
        index only, and a guard keeps them.
        """
        return tuple(_stacks()[self.name]["protected"])

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return libraries that torch loads: where torch brings them, their versions go with it."""
        return tuple(_stacks()[self.name].get("libraries", ()))

    def accepts_target(self, target: str) -> bool:
        """Return true if `target` has this vendor's form (known hardware or not)."""
        form = self.target_pattern
        return target in self.known_targets or bool(form and form.match(target))

    def machine_of(self, target: str) -> str | None:
        """Return the machine that a `target` is; None for a device that any machine may have."""
        return None

    def accepted_archs(self, target: str) -> tuple[str, ...]:
        """Entries of `torch.cuda.get_arch_list()` that would serve `target`, best first; empty
        where torch has no such list: its CPU kernels dispatch at run time, Gaudi compiles graphs.
        """
        return ()

    def shipped_archs(self, entries: tuple[str, ...]) -> frozenset[str]:
        """Return a table's arch list (`12.0+PTX`, `gfx90a`) as `get_arch_list()` has it."""
        return frozenset(entries)

    def label(self, index: str) -> str:
        """Return the local version label of torch from that index (`cu130`), "" for none."""
        return index

    def has_device_wheels(self, toolkit: Toolkit | None) -> bool:
        """Return true if each target's code has wheels of its own, so that a lock depends on it."""
        return False

    def device_extra(self, target: str) -> str:
        """Return the extra of torch that brings the code of `target`, on indexes whose wheels
        have one for each target; "" where no index of this vendor has.
        """
        return ""

    def variant_properties(self, toolkit: Toolkit | None, target: str) -> Properties:
        """Return the properties of wheel variants for this vendor's `target` under that
        toolkit, preferred ones first, as the vendor's provider of the drafts gives them on a
        machine with that device; none without variants of this vendor. Asks no machine.
        """
        return ()

    def compiler(
        self, toolkit: Toolkit | None, targets: tuple[str, ...], python: str, suite: str
    ) -> Compiler | str:
        """Return the compiler that builds extensions for `targets` with that toolkit, on a base
        of the Debian `suite` ("" if unknown), or why there is none.
        """

    def compiler_call(self, target: str) -> CompilerCall | None:
        """Return the compile command of one source for `target`; None without a compiler."""
        return None

    def emulated_version(self, target: str) -> int | None:
        """Return the number that an emulator's configuration has for `target`; None without an
        emulator of this vendor's devices.
        """
        return None

    def device_access(self, host: HostDevices) -> DeviceAccess | None:
        """Return the container's access to the device on `host`; None without such a device."""


def cdi_access(host: HostDevices, kinds: str | tuple[str, ...]) -> DeviceAccess | None:
    """Return access by the engine's CDI devices of these kinds: by `all`, else by every one."""
    devices = tuple(sorted(name for name in host.cdi if name.startswith(kinds)))
    everything = tuple(name for name in devices if name.endswith("=all"))
    return DeviceAccess(cdi=everything[:1] or devices) if devices else None


def node_access(host: HostDevices, *control: str) -> DeviceAccess | None:
    """Return access by the nodes `control` and each render node; None where one is missing.

    Groups are the numeric ids of the nodes' owners: the names `video` and `render` have other
    numbers in the image, or none.
    """
    render = sorted(node for node in host.nodes if _RENDER_NODE.match(node))
    if not render or not host.nodes.keys() >= {*control}:
        return None
    nodes = (*control, *render)
    return DeviceAccess(nodes=nodes, groups=tuple(sorted({host.nodes[node] for node in nodes})))
