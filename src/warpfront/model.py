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
    """Where the bytes of a base image came from; written into the image's labels."""

    REGISTRY = "registry"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """How a base is made with mmdebstrap where no registry can be reached.

    `updates` says whether the suite has updates and security fixes beside it: releases do,
    unstable has not. `release_may_be_old` takes a suite whose Release file is past the date that
    it gives itself, which only a declared base may.
    """

    suite: str
    include: tuple[str, ...]
    updates: bool = True
    release_may_be_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An image that cells start from.

    `reference` is fully qualified, with tag (`docker.io/library/python:3.11-slim-bookworm`);
    `digest` is `sha256:` + 64 hex; `python` is the X.Y of the interpreter that the base carries at
    `interpreter`; `glibc` is its C library (`2.36`), which decides the manylinux levels that may be
    locked. `unpinned` says why there is no `digest` yet; such a base must not be built on.
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
    """One distribution of the torch stack at its full version (`torch`, `2.13.0+cpu`).

    `str()` is the requirement: `==` when there is a local label, `===` when there is none, because
    `torch==2.15.0` would also accept `2.15.0+cpu` (PEP 440).
    """

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}{'==' if '+' in self.version else '==='}{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """What a `devel` image adds: wheels (requirement strings), Debian packages, environment, and
    the folder of its programs where that is not on PATH anyway. `libraries` is a folder of
    versioned libraries (`libcudart.so.13`) that linkers have to find by their plain names, there
    and as `lib64` beside it.
    """

    requirements: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    programs: str = ""
    libraries: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCall:
    """How a vendor's compiler makes an object of one source, without a GPU.

    `argv` is the program with its options for one target; `kernel` and `plain` are what follows
    for device code and for C++, up to the name of the source. `work` are the options that keep
    intermediate files, up to the name of a folder; `kept` are globs of those that say where an
    error is. `version` is the command that says what the compiler is.
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
    """A compiler without torch: a base made by a bootstrap, and what the vendor adds to it.

    It serves `targets` where no `devel` image was built. `toolkit` is the version of what the
    suite or the vendor's wheels hold, which need not be that of any cell.
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
    """How a package is built against a cell's own torch, in a container of the image it is for:
    `tools` are requirements of its build, `apt` Debian packages, `extensions` the modules that have
    to import afterwards.
    """

    package: str
    tools: tuple[str, ...]
    apt: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Patch:
    """A change to somebody else's package, for one `version` of it. `file` is its path below the
    project, `sha256` that of its bytes, `strip` how many folders its paths begin with that the
    package has not. `upstream` is where it was offered, `until` whose versions have it.
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
    """What of somebody else's packages has to work in an image: one that is described (`uses`), or
    modules and a command. `needs` a device or none; `prints` is a pattern; `vendors` are those on
    whose images it is tried, none for all; `starts` are its .pth files that are meant to run code,
    `optional` patterns of its compiled files that need not load.
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
    """A requirement that is no distribution of an index. `location` is a folder below the project,
    a git repository's address or a wheel's; `pin` says which of it: the sha256 of the folder's
    files or of the wheel, or a commit. `name` is "" where only building tells it.
    """

    kind: Literal["folder", "git", "wheel"]
    location: str
    name: str = ""
    extras: tuple[str, ...] = ()
    subdirectory: str = ""
    pin: str = ""

    def __str__(self) -> str:
        """Where it is, as a lock names it."""
        if self.kind == "git":
            below = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
            return f"git+{self.location}@{self.pin}{below}"
        return self.location if self.kind == "wheel" else f"./{self.location}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePolicy:
    """What a variable of an image's environment should be, or must not match; `effect` is what
    follows. `toolkit` and `torch` are ranges of versions, and empty ones hold for all.
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
    """Which of several builds of one version a wheel is: the label in its file name, and what that
    stands for. `schema` is the format it was said in, `namespaces` the order of preference.
    """

    label: str = ""
    schema: str = ""
    namespaces: tuple[str, ...] = ()
    properties: Properties = ()


NO_VARIANT = Variant()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRule:
    """What a cell takes of wheel variants: of these `packages`, what every one of its targets
    supports (`supported`, one for each, best first within). `namespace` is the vendor's, which a
    variant of the stack has to be of ("" where any will do), `toolkit` the version in its labels.
    """

    packages: tuple[str, ...]
    supported: tuple[Properties, ...]
    namespace: str = ""
    toolkit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row of the expanded matrix: one image. `id` names its lock, folder, log, tag part and CI
    row.

    `id` has no dots (PEP 751 file names forbid them), is unique, and is never parsed back. `line`
    is where in matrix.yaml the row stands. `machine` is what its image runs on (`x86_64`,
    `aarch64`). `parent` is the id of the cell whose image this one is
    built on. `torch` is the bare version asked for; `stack` the exact pins (empty when torch
    arrives with the base). `relax` maps a package, whose demands on the torch stack may go unmet,
    to the reason somebody gave; `builds` are the packages that are built for it, `patches` what is
    changed in others, `smoke` what of them `verify` tries. `own_indexes`, `allow_builds` and
    `allow_variants` are the matrix's. `tree` is the source tree it is for. `slim` are globs of what
    its wheels are without, `policies` are about its environment at run time.
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
        """The local name of the image, without tag. `localhost/` keeps a missing image from
        becoming a look-up in somebody's registry.
        """
        return f"localhost/{self.project}/{self.image}"

    @property
    def local_reference(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What matrix.yaml says of the images as a whole; ends in OCI labels. CI publishes from
    `branch`, the default branch of `source`, and from tags that begin with `release_tags`.
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
    """What is published under some kind of name, and what has to be proven for that.

    `tags` are templates of tags that never move, `aliases` of those that do. `repository` is where,
    "" for the project's. `sessions` have to pass on `all` targets of a cell, or on `any`, no longer
    ago than `max_age_hours`; `allow` is what may be otherwise.
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
    """How old bases may get before `plan` names them, and which vulnerabilities are accepted."""

    base_max_age_days: int = 180
    allowed: tuple[AllowedVulnerability, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What `--target --vendor --image --only` ask for. Empty = everything.

    `target` also accepts a vendor's name, meaning all of its targets (`--target cpu`).
    """

    target: str = ""
    vendor: str = ""
    image: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInputs:
    """Everything a lock depends on, as values. `digest` is what makes a lock stale when it changes.

    `stack_requirements` may come from `index` only, what matches an own index's patterns from
    that; `requirements` from PyPI. `allow_builds` are distributions that may be built of their
    index's source archive where it has no wheel, `variants` what is taken of wheel variants.
    `parent` are the
    exact pins (`name==version`) of the parent's lock, which a child may extend and never change.
    `machine` is the cell's; `glibc` is the base's C library, e.g. `2.36`. `relax` are (package,
    reason) of this image and of those it is built on. `sources` are its requirements that no index
    has, `builds` how some packages are built, `patches` what is changed in which. `targets` are the
    cell's where each has wheels of its own, else none. `unfit` says which of the files that it
    names are not what the matrix says.

    What follows from the vendor: `toolkit` (`cuda`, `rocm`, `synapseai`, `cpu`); and, as fnmatch
    patterns of normalized names, `protected`, which only `index` has in earnest, and `libraries`,
    which torch loads and whose versions go with it.
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
    """A resolved distribution and what its metadata demands (`Requires-Dist`, as it stands)."""

    name: str
    version: str
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UnmetDemand:
    """A demand on the torch stack that does not hold in a cell.

    `chain` are the packages that asked, from the image's own requirement to the one that demands
    (`vllm 0.11.0`, `xformers 0.0.32`); empty when the image's own requirement demands it.
    `asker` is the name of the last. `wanted` is the demand, `instead` what is true of the cell
    (`holds torch 2.13.0+cpu`).
    """

    asker: str
    wanted: str
    instead: str
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' -> '.join((*self.chain, self.wanted))}, but this cell {self.instead}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Relaxed:
    """A package of a lock whose demands on the torch stack go unmet by the matrix's leave. `unmet`
    are those demands (`torch==2.8.0`), `reason` what the matrix says of it.
    """

    package: str
    version: str
    reason: str
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LockedWheel:
    """One wheel, named by index, file name and hash: the same wherever the lock was made. `sha256`
    is bare hex.

    `sdist` and `sdist_sha256` name the source archive of a wheel that its index does not offer and
    that we build once (AMD's `rocm`); empty for all others. `source` is where that archive, or a
    wheel by its address, comes from if from no index (`index` is then ""). `targets` are those that
    a wheel was made for of an archive that serves more. `variant` is which of several builds of
    this version it is, where its file name says that it is one.
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
        """The file name for whoever installs it: pip reads no label of a variant."""
        label = self.variant.label
        return f"{self.filename.removesuffix(f'-{label}.whl')}.whl" if label else self.filename


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WheelBuild:
    """How a wheel of a lock was built in a container: with exactly these `tools`. The rest
    is its recipe's.
    """

    package: str
    tools: tuple[str, ...]
    apt: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PatchedWheel:
    """Of what a wheel of a lock was made, and by which `patches`, in their order: of the `original`
    wheel, or, where that is None, of the sources that the wheel itself names.
    """

    package: str
    patches: tuple[Patch, ...]
    original: LockedWheel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelLock:
    """Every wheel of a cell, its parents' included. `inputs_digest` is `LockInputs.digest` at the
    time of locking. `relaxed` are the packages whose demands on the torch stack go unmet, `builds`
    those that were built against it, `patched` those that are not as their authors published them;
    those of the parents included.
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
        """What it has in a build context, whatever it has here."""
        return 0o755 if self.executable else 0o644

    @property
    def identity(self) -> list[str]:
        """All that makes it the file it is."""
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
    """What lies in an image's folder and cannot go into an image, and why."""

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
        """All files, by their path in the build context."""
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
    """What the clock and the repository say of a build. `created` is RFC 3339; `revision` a
    commit, or "".
    """

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
    """What a machine and its engine offer to containers: facts, no judgement.

    `cdi` are the CDI device names the engine knows (`nvidia.com/gpu=0`); `nodes` maps device nodes
    to their numeric group ids (`/dev/kfd` -> 992); `runtimes` are the engine's OCI runtimes; `gpus`
    says whether the engine can serve `--gpus` requests.
    """

    cdi: tuple[str, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccess:
    """How a container is given its accelerator: exactly what is passed to the engine,
    and nothing more.
    """

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
    """A cell whose step went wrong; the others go on. `exit_code` is the error's own, `kind` what
    follows from it unless somebody knows better, `repeat` the line that repeats it on a laptop.
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
    """One check of a session. `details` are small JSON values: what was measured,
    what was expected.
    """

    session: str
    name: str
    outcome: Outcome
    reason: str
    seconds: float
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the checks found, for one cell on one target.

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
    """What repeats a step of one cell from what is committed, as one types it."""
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
