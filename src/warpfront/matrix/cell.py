"""A cell of the matrix and all that it is made of; devices of a host, what a container gets of
them, and calls of their compilers. Words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    # A machine that verifies itself may lack pydantic.
    from warpfront.matrix.language import Base, Bootstrap, OwnIndex, Patch, Smoke, SourceTree


ENVIRONMENT_PYTHON = "/opt/venv/bin/python"
"""The interpreter of an image whose torch warpfront installed."""


class BaseSource(StrEnum):
    """Source of a base image's bytes; written into the image's labels."""

    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """CUDA 13.0, ROCm 6.4, SynapseAI 1.22.1. Versions are strings, never numbers."""

    name: Literal["cuda", "rocm", "synapseai"]
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelIndex:
    """The index of a cell's torch stack: `name` (`pypi`, `cu130`, `rocm6.4`) and PEP 503 URL."""

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A distribution of the torch stack at its full version (`torch`, `2.13.0+cpu`).

    `str()` is the requirement: `==` with a local label, `===` without one, because `torch==2.15.0`
    would also accept `2.15.0+cpu` (PEP 440). `extras` bring the device code of the cell's targets,
    where that is in distributions of its own.
    """

    name: str
    version: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{'==' if '+' in self.version else '==='}{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Additions of a `devel` image: wheels (requirement strings), Debian packages, environment, and
    the folder of its programs if it is not on PATH. `libraries` is a folder of versioned libraries
    (`libcudart.so.13`), which linkers find by their plain names, there and as `lib64`.
    """

    requirements: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    programs: str = ""
    libraries: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerBase:
    """A compiler without torch: a bootstrapped base with the vendor's packages.

    It serves `targets` without a built `devel` image. `toolkit` is the version in the suite or in
    the vendor's wheels, which need not be any cell's.
    """

    name: str
    vendor: str
    toolkit: Toolkit | None
    targets: tuple[str, ...]
    python: str
    bootstrap: Bootstrap
    compiler: Compiler


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Recipe:
    """A build of a package against a cell's own torch, in a container of the cell's image:
    `tools` are requirements of the build (exact ones in a lock), `apt` Debian packages,
    `extensions` the modules that have to import afterwards.
    """

    package: str
    tools: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A requirement that no index has. `location` is a folder below the project, the address of a
    git repository or of a wheel; `pin` is the sha256 of the folder's files or of the wheel, or a
    commit. `name` is "" if only a build shows it.
    """

    kind: Literal["folder", "git", "wheel"]
    location: str
    name: str = ""
    extras: tuple[str, ...] = ()
    subdirectory: str = ""
    pin: str = ""

    def __str__(self) -> str:
        """Return the location as a lock names it."""
        if self.kind == "git":
            below = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
            return f"git+{self.location}@{self.pin}{below}"
        return self.location if self.kind == "wheel" else f"./{self.location}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementList:
    """The lines of a requirements file, in its order: `requirements` of an index, and `sources`.
    `problem` is why the file cannot be read, and `hint` the remedy: its images alone have no lock.
    """

    requirements: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePolicy:
    """A rule on a variable of an image's environment: the value it should have, or must not match;
    `effect` is the consequence. `toolkit` and `torch` are version ranges, empty for all.
    """

    name: str
    value: str
    level: Literal["set", "advise", "forbid"]
    vendor: str
    effect: str
    source: str
    dated: str
    archs: tuple[str, ...] = ()
    toolkit: str = ""
    torch: str = ""


Properties = tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]
"""Of wheel variants (PEP 825, a draft): namespace, its features, their values."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Variant:
    """The variant of a wheel among several builds of one version: the label of its file name, and
    its meaning. `namespaces` is the order of preference.
    """

    label: str = ""
    namespaces: tuple[str, ...] = ()
    properties: Properties = ()


NO_VARIANT = Variant()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRule:
    """Wheel variants that a cell accepts: of these `packages`, what each of its targets supports
    (`supported`, one entry per target, best first). `namespace` is the vendor's, which a variant of
    the stack has to have ("" for any), `toolkit` the version in its labels.
    """

    packages: tuple[str, ...]
    supported: tuple[Properties, ...]
    namespace: str = ""
    toolkit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An image of one row of the matrix. `id` names its lock, folder, log, tag part and CI row.

    `id` has no dots (PEP 751 file names forbid them), is unique, and is never parsed back. `line`
    is the row's line in matrix.yaml. `machine` is the platform (`x86_64`, `aarch64`). `parent` is
    the id of the cell whose image it extends. `torch` is the bare version; `stack` the exact pins
    (empty if torch comes with the base). `listed` are the lines of its requirements file,
    read when the project is opened. `relax` maps a package, whose demands on the torch stack are
    waived, to the reason; `builds` are the packages built for it, `patches` changes to others,
    `smoke` the trials of `verify`. `own_indexes`, `allow_builds` and `allow_variants` are the
    matrix's. `tree` is the source tree it serves. `slim` are globs of files removed from its
    wheels, `policies` are rules on its environment.
    """

    id: str
    project: str
    line: int
    image_line: int = 0
    vendor: str
    toolkit: Toolkit | None
    targets: tuple[str, ...]
    machine: str
    python: str
    torch: str
    image: str
    base: Base
    index: WheelIndex | None
    stack: tuple[Pin, ...]
    requirements: tuple[str, ...]
    requirements_file: str | None
    listed: RequirementList = RequirementList()
    compiler: Compiler | None
    template: str
    parent: str | None
    tag: str
    title: str
    environment: Mapping[str, str] = field(default_factory=dict)
    relax: Mapping[str, str] = field(default_factory=dict)
    builds: tuple[Recipe, ...] = ()
    patches: tuple[Patch, ...] = ()
    smoke: tuple[Smoke, ...] = ()
    tree: SourceTree | None = None
    own_indexes: tuple[OwnIndex, ...] = ()
    allow_builds: tuple[str, ...] = ()
    allow_variants: tuple[str, ...] = ()
    budget_bytes: int | None = None
    policies: tuple[RuntimePolicy, ...] = ()
    slim: tuple[str, ...] = ()

    @property
    def repository(self) -> str:
        """Return the local name of the image. With `localhost/`, no registry is searched for it."""
        return f"localhost/{self.project}/{self.image}"

    @property
    def local_reference(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options `--target --vendor --image --only`. Empty = everything.

    `target` also accepts a vendor's name, meaning all of its targets (`--target cpu`).
    """

    target: str = ""
    vendor: str = ""
    image: str = ""
    only: str = ""


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
