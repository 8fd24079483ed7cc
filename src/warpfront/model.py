"""The nouns of warpfront: frozen values that the steps hand to each other. No I/O.

matrix.yaml -> Cell -> LockInputs -> WheelLock -> RenderedImage -> BuiltImage -> Verification
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from warpfront.errors import FailureKind, kind_of_exit

ENVIRONMENT_PYTHON = "/opt/venv/bin/python"
"""The interpreter of an image whose torch warpfront installed."""

StepName = Literal["plan", "lock", "render", "build", "verify", "bench", "publish", "report"]


class Outcome(StrEnum):
    """The result of a check, a session or a verification. Only `PASSED` is a pass.

    `EMULATED`: the results are right, and an emulator or an interposer answered for the device.
    `UNDETERMINED`: they are right, and whether hardware computed them could not be determined.
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNAVAILABLE = "unavailable"
    EMULATED = "emulated"
    UNDETERMINED = "undetermined"
    ERROR = "error"


class BaseSource(StrEnum):
    """Source of a base image's bytes; written into the image's labels."""

    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """Arguments of mmdebstrap for a base where no registry answers.

    `updates` is true if the suite has updates and security fixes: releases do, unstable does
    not. `release_may_be_old` accepts a suite whose Release file has expired, which only a
    declared base may. `overlays` are incomplete suites, such as experimental:
    packages come from one where `include` names it (`hipcc/experimental`).
    """

    suite: str
    include: tuple[str, ...]
    updates: bool = True
    release_may_be_old: bool = False
    overlays: tuple[str, ...] = ()

    @property
    def newest_suite(self) -> str:
        """The suite that its compiler is from."""
        return self.overlays[-1] if self.overlays else self.suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An image that cells start from.

    `reference` is fully qualified, with tag (`docker.io/library/python:3.11-slim-bookworm`);
    `digest` is `sha256:` + 64 hex; `python` is the X.Y of its `interpreter`; `glibc` is its C
    library (`2.36`), which limits the manylinux levels of wheels. `unpinned` is the reason for a
    missing `digest`; such a base is not built on.
    """

    name: str
    reference: str
    digest: str
    python: str
    interpreter: str
    glibc: str
    bootstrap: Bootstrap | None = None
    unpinned: str = ""

    @property
    def pinned(self) -> str:
        """`registry/repository:tag@sha256:...`: what a Dockerfile or BuildKit is given."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """CUDA 13.0, ROCm 6.4, SynapseAI 1.22.1. Versions are strings, never numbers."""

    name: Literal["cuda", "rocm", "synapseai"]
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelIndex:
    """The package index a cell's torch stack comes from: `name` (`pypi`, `cpu`, `cu130`, `rocm6.4`)
    and PEP 503 URL.
    """

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnIndex:
    """A company's package index: `packages` are fnmatch patterns of normalized names that come
    from there and from nowhere else.
    """

    name: str
    url: str
    packages: tuple[str, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """A source tree that an image is for: `path` is its folder below the project's. `sources` are
    globs of what `compile` takes (none = the kernels it finds), `include` folders of the tree for
    `-I`, `flags` further options of the compiler.
    """

    path: str
    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A build of a package against a cell's own torch, in a container of the cell's image:
    `tools` are requirements of the build, `apt` Debian packages, `extensions` the modules
    that have to import afterwards.
    """

    package: str
    tools: tuple[str, ...]
    apt: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Patch:
    """A change to a package, for one `version`. `file` is its path below the project, `sha256` the
    digest of its bytes, `strip` the number of leading folders to remove from its paths. `upstream`
    is its address there, `until` the versions that include it.
    """

    package: str
    version: str
    file: str
    sha256: str
    reason: str
    strip: int = 1
    upstream: str = ""
    until: str = ""

    def __str__(self) -> str:
        where = f", {self.upstream}" if self.upstream else ""
        return f"{self.file} sha256:{self.sha256} ({self.reason}{where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """A trial of a package in an image: a described one (`uses`), or modules and a command.
    `needs` a device or none; `prints` is a pattern; `vendors` limits the images, none means
    all; `starts` are .pth files that are meant to run code, `optional` patterns of compiled
    files that need not load.
    """

    name: str
    uses: str = ""
    run: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    needs: Literal["device", "none"] = "none"
    exit_code: int = 0
    prints: str = ""
    seconds: float = 120.0
    vendors: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


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
    its meaning. `schema` is the format of that, `namespaces` the order of preference.
    """

    label: str = ""
    schema: str = ""
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
    """One image of one row of the matrix. `id` names its lock, folder, log, tag part and CI row.

    `id` has no dots (PEP 751 file names forbid them), is unique, and is never parsed back. `line`
    is the row's line in matrix.yaml. `machine` is the platform (`x86_64`, `aarch64`). `parent` is
    the id of the cell whose image it extends. `torch` is the bare version; `stack` the exact pins
    (empty if torch comes with the base). `relax` maps a package, whose demands on the torch stack
    are waived, to the reason; `builds` are the packages built for it, `patches` changes to others,
    `smoke` the trials of `verify`. `own_indexes`, `allow_builds` and `allow_variants` are the
    matrix's. `tree` is the source tree it serves. `slim` are globs of files removed from its
    wheels, `policies` are rules on its environment.
    """

    id: str
    project: str
    line: int
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
        """Return the local name of the image, without tag. `localhost/` keeps a missing image from
        becoming a look-up in a public registry.
        """
        return f"localhost/{self.project}/{self.image}"

    @property
    def local_reference(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The images as a whole, in matrix.yaml; ends in OCI labels. CI publishes from `branch`, the
    default branch of `source`, and from tags that begin with `release_tags`.
    """

    name: str
    source: str
    licenses: str
    repository: str
    branch: str = "main"
    release_tags: str = "v"


NotifyWay = Literal["issue", "webhook"]
"""How people learn of a red run that no pull request started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CiOptions:
    """`ci:` of matrix.yaml. `unchecked` is what a pull request is whose changed cells have targets
    that no machine of its scope has: `red`, or green with those `listed` first. `queue_hours` is
    how long a job waits for a machine of one's own.
    """

    unchecked: Literal["red", "listed"] = "red"
    notify: tuple[NotifyWay, ...] = ("issue",)
    queue_hours: int = 6


Allowance = Literal[
    "unavailable",
    "emulated",
    "undetermined",
    "skipped",
    "quick",
    "profile",
    "relaxed",
    "bootstrap",
    "unsigned",
]
"""What a channel may let pass, which is then written beside what is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A tag that moves: its template, and the ids of the cells that may claim it."""

    template: str
    cells: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A set of tags with its policy.

    `tags` are templates of tags that never move, `aliases` of tags that do. `repository` is "" for
    the project's. `sessions` have to pass on `all` targets of a cell, or on `any`, at most
    `max_age_hours` ago; `allow` are the accepted exceptions.
    """

    name: str
    repository: str
    tags: tuple[str, ...]
    aliases: tuple[Alias, ...]
    sessions: tuple[str, ...]
    targets: Literal["all", "any"]
    max_age_hours: int
    allow: tuple[Allowance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedVulnerability:
    """A vulnerability that is accepted for a time: of one `package`, "" for any, until a day
    (YYYY-MM-DD). `line` is its place in matrix.yaml.
    """

    id: str
    package: str
    until: str
    reason: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The age at which `plan` names a base, and accepted vulnerabilities."""

    base_max_age_days: int = 180
    allowed: tuple[AllowedVulnerability, ...] = ()


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
class LockInputs:
    """Everything that a lock depends on. A lock is stale if its `digest` changes.

    `stack_requirements` come from `index` only, matches of an own index's patterns from that;
    `requirements` from PyPI. `allow_builds` are distributions that may be built from their index's
    source archive if it has no wheel, `variants` the accepted wheel variants. `parent` are the
    exact pins (`name==version`) of the parent's lock, which a child may extend and never change.
    `machine` is the cell's; `glibc` is the base's C library, e.g. `2.36`. `relax` are (package,
    reason) of this image and of its parents. `sources` are its requirements that no index has,
    `builds` the recipes of packages, `patches` the changes to packages. `targets` are the cell's if
    each has wheels of its own, else none. `unfit` are the files that differ from the matrix.

    From the vendor come `toolkit` (`cuda`, `rocm`, `synapseai`, `cpu`) and two sets of fnmatch
    patterns of normalized names: `protected`, which only `index` provides, and `libraries`, which
    torch loads and whose versions go with it.
    """

    cell_id: str
    python: str
    machine: str
    glibc: str
    index: WheelIndex | None
    stack_requirements: tuple[str, ...]
    requirements: tuple[str, ...]
    parent: tuple[str, ...] = ()
    relax: tuple[tuple[str, str], ...] = ()
    sources: tuple[Source, ...] = ()
    builds: tuple[Recipe, ...] = ()
    patches: tuple[Patch, ...] = ()
    targets: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    toolkit: str = "cpu"
    protected: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    own_indexes: tuple[OwnIndex, ...] = ()
    allow_builds: tuple[str, ...] = ()
    variants: VariantRule | None = None

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON of the inputs, without the cell's name and what follows
        from the vendor.
        """
        return digest_of(
            {
                "python": self.python,
                "machine": self.machine,
                "glibc": self.glibc,
                "index": [self.index.name, self.index.url] if self.index else None,
                "stack": sorted(self.stack_requirements),
                "requirements": sorted(self.requirements),
                "parent": sorted(self.parent),
                **({"relax": sorted(self.relax)} if self.relax else {}),
                **({"sources": _texts(self.sources)} if self.sources else {}),
                **({"builds": _texts(self.builds)} if self.builds else {}),
                # In their order: a second patch may stand on the first.
                **({"patches": [asdict(one) for one in self.patches]} if self.patches else {}),
                **({"own_indexes": _texts(self.own_indexes)} if self.own_indexes else {}),
                **({"targets": sorted(self.targets)} if self.targets else {}),
                **({"variants": asdict(self.variants)} if self.variants else {}),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A resolved distribution with the `Requires-Dist` of its metadata, unparsed."""

    name: str
    version: str
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UnmetDemand:
    """A demand on the torch stack that does not hold in a cell.

    `chain` are the packages from the image's own requirement to the one that demands
    (`vllm 0.11.0`, `xformers 0.0.32`); empty if the image's own requirement demands it.
    `asker` is the name of the last. `wanted` is the demand, `instead` the state of the
    cell (`holds torch 2.13.0+cpu`).
    """

    asker: str
    wanted: str
    instead: str
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' -> '.join((*self.chain, self.wanted))}, but this cell {self.instead}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Relaxed:
    """A package of a lock whose demands on the torch stack the matrix waives. `unmet` are those
    demands (`torch==2.8.0`), `reason` the matrix's.
    """

    package: str
    version: str
    reason: str
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LockedWheel:
    """A wheel by index, file name and hash, independent of the machine. `sha256` is bare hex.

    `sdist` and `sdist_sha256` name the source archive of a wheel that its index does not have and
    that we build once (AMD's `rocm`); empty for all others. `source` is the origin of that archive,
    or of a wheel by its address, if no index has it (`index` is then ""). `targets` are the targets
    of a wheel made from an archive that serves more. `variant` is the variant in its file name.
    """

    name: str
    version: str
    filename: str
    sha256: str
    size_bytes: int
    index: str
    sdist: str = ""
    sdist_sha256: str = ""
    source: str = ""
    targets: tuple[str, ...] = ()
    variant: Variant = NO_VARIANT

    @property
    def kept_as(self) -> str:
        """Return the file name without a variant's label, which pip does not read."""
        label = self.variant.label
        return f"{self.filename.removesuffix(f'-{label}.whl')}.whl" if label else self.filename


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WheelBuild:
    """The build of a wheel of a lock in a container, with exactly these `tools` and its recipe."""

    package: str
    tools: tuple[str, ...]
    apt: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PatchedWheel:
    """A wheel of a lock changed by `patches`, in their order: from the `original` wheel, or, if
    that is None, from the sources that the wheel names.
    """

    package: str
    patches: tuple[Patch, ...]
    original: LockedWheel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelLock:
    """Every wheel of a cell, its parents' included. `inputs_digest` is `LockInputs.digest` at
    the time of locking. `relaxed` are the packages with waived demands on the torch stack,
    `builds` those built against it, `patched` those that differ from their authors'; those
    of the parents included.
    """

    cell_id: str
    python: str
    inputs_digest: str
    wheels: tuple[LockedWheel, ...]
    relaxed: tuple[Relaxed, ...] = ()
    builds: tuple[WheelBuild, ...] = ()
    patched: tuple[PatchedWheel, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 over (file name, hash) of every wheel: equal for equal contents, whatever
        cell they serve.
        """
        return digest_of([[wheel.filename, wheel.sha256] for wheel in sorted(self.wheels)])

    @property
    def size_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """A file of an image's folder as it is: its bytes, or where the link points, and whether it
    may be executed.
    """

    content: bytes = b""
    link: str = ""
    executable: bool = False

    @property
    def mode(self) -> int:
        """Return its mode in a build context, whatever it is here."""
        return 0o755 if self.executable else 0o644

    @property
    def identity(self) -> list[str]:
        """Return everything that identifies the file."""
        if self.link:
            return ["link", self.link]
        return [f"{self.mode:o}", hashlib.sha256(self.content).hexdigest()]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Unread:
    """A file or folder (ends with `/`) of a tree that was not read, and the reason. `left_out`
    marks a choice (ignored by git, a submodule, a third party) instead of a failure.
    """

    path: str
    reason: str
    left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file of an image's folder that cannot go into an image, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedImage:
    """The build context of one cell: what was written for it, file name -> text, `Dockerfile` among
    them, and the files of its folder as they are. Same cell and lock, same bytes and modes.

    `wheels` are those this image itself installs (the parent's are already there).
    """

    cell_id: str
    files: Mapping[str, str]
    wheels: tuple[LockedWheel, ...]
    assets: Mapping[str, ImageFile] = field(default_factory=dict)

    @property
    def context(self) -> dict[str, ImageFile]:
        """Return all files by their path in the build context."""
        written = {name: ImageFile(content=text.encode()) for name, text in self.files.items()}
        return dict(sorted({**self.assets, **written}.items()))

    @property
    def digest(self) -> str:
        return digest_of(
            [
                {name: file.identity for name, file in self.context.items()},
                [[w.filename, w.sha256] for w in sorted(self.wheels)],
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBase:
    """A base as it will be used: `identity` is the registry digest or the imported image's id,
    `recipe` the digest of what a bootstrap was made by.
    """

    name: str
    source: BaseSource
    reference: str
    identity: str
    recipe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The time and revision of a build. `created` is RFC 3339; `revision` a commit, or ""."""

    created: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image in the engine. `content_hash` is what a verification is about. `seconds` run from
    the start of the bake, which a chain of images shares, until this image was there. `builder` and
    `invocation` are the addresses of the CI workflow and of its run, "" outside CI.
    """

    cell_id: str
    reference: str
    image_id: str
    content_hash: str
    size_bytes: int
    base: ResolvedBase
    reused: bool
    seconds: float
    log: str | None
    builder: str = ""
    invocation: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A cell that cannot be made from here: what is out of reach, and why."""

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A failed step of a cell; the others go on. `exit_code` is the error's own, `kind` follows
    from it by default, `repeat` is the line that repeats it on a laptop.
    """

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""
    log: str | None = None
    exit_code: int = 1
    kind: FailureKind | None = None
    repeat: str = ""

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", kind_of_exit(self.exit_code))
        if not self.repeat:
            object.__setattr__(self, "repeat", repeat_line(self.step, self.cell_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check of a session. `details` are small JSON values: measured and expected ones."""

    session: str
    name: str
    outcome: Outcome
    reason: str
    seconds: float
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Results of the checks for a cell on one target.

    `where` is `image` (inside the built image) or `here` (the current Python). `content_hash` and
    `image_id` are empty for `here`. `environment` is what the checks saw: torch, python, devices.
    """

    cell_id: str
    target: str
    where: Literal["image", "here"]
    image_id: str
    content_hash: str
    sessions: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    seconds: float
    environment: Mapping[str, object] = field(default_factory=dict)
    ended: str = ""
    seal: str = ""


def repeat_line(step: StepName, cell_id: str, target: str = "") -> str:
    """Return the command line that repeats a step of a cell from what is committed."""
    locked = " --locked" if step in {"render", "build"} else ""
    on = f" --target {target}" if target else ""
    return f"invoke {step}{locked} --only {cell_id}{on}"


def digest_of(value: object) -> str:
    """sha256 hex of the canonical JSON of `value`; equal values give equal digests
    on every machine.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _texts(values: tuple[Recipe | Source | OwnIndex, ...]) -> list[str]:
    """Values as texts that sort."""
    return sorted(json.dumps(dataclasses.asdict(one), sort_keys=True) for one in values)


def frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """A read-only copy, so that a frozen value stays frozen."""
    return MappingProxyType(dict(mapping))
