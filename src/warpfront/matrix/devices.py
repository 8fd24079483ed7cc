"""Devices of a host, what a container gets of them, and calls of their compilers. Words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCall:
    """A compiler's command line for one source and target, without a GPU.

    `argv` is the program with its options; `kernel` and `plain` follow for device code and for C++,
    up to the name of the source. `work` are the options for intermediate files, up to a folder's
    name; `kept` are globs of the files that locate an error. `version` is the command that prints
    the compiler's version.
    """

    argv: tuple[str, ...]
    kernel: tuple[str, ...]
    plain: tuple[str, ...]
    version: tuple[str, ...]
    torch_defines: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    hipifies: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices that a machine and its engine offer to containers.

    `cdi` are the CDI device names of the engine (`nvidia.com/gpu=0`); `nodes` maps device nodes to
    their numeric group ids (`/dev/kfd` -> 992); `runtimes` are the engine's OCI runtimes; `gpus` is
    true if the engine serves `--gpus` requests.
    """

    cdi: tuple[str, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccess:
    """Arguments of the engine that give a container its accelerator, and nothing more."""

    cdi: tuple[str, ...] = ()
    gpus: bool = False
    nodes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    runtime: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
