"""The language of matrix.yaml: one frozen dataclass per construct, one anchored pattern
per field (`data/matrix-forms.toml`). Words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from warpfront.matrix.products import target_of_product
from warpfront.system.packaged import packaged_toml
from warpfront.system.strict_values import strict_dataclass
from warpfront_checks.check_options import SESSIONS

SCHEMA: Literal[1] = 1
"""The version of the language. A matrix that names none is of version 1."""
UNPINNED = "unpinned"
BOOTSTRAPPED = "bootstrap"
DEFAULT_MACHINE: Literal["x86_64"] = "x86_64"
_EXAMPLE = re.compile(r"""\((?P<example>"[^"]+"|[^\s,()]+)""")
_FORMS = packaged_toml("matrix-forms.toml")
NAME_PATTERN: str = _FORMS["name"]["pattern"]


def _form(name: str, meant: Callable[[str], str] = lambda _text: "") -> Any:
    """Return the metadata of a text field: its check, and its pattern for editors.

    `meant` returns the text to write in place of another one, "" where that is unknown.
    """
    form = _FORMS[name]
    pattern, kind, longest = form["pattern"], form["kind"], form.get("longest", 200)
    usual = form.get("example") or _EXAMPLE.findall(kind)[0]
    compiled = re.compile(rf"(?:{pattern})\Z")

    def check(text: str) -> str:
        better = meant(text)
        if len(text) <= longest and compiled.match(text) and not better:
            return text
        near = ("".join(text.split()), text.lower(), " ".join(text.split()))
        better = better or next(filter(compiled.match, filter(None, near)), "")
        hint = f"write `{better}`" if better else f"for example `{usual}`"
        hint = f"at most {longest} characters" if len(text) > longest else hint
        facts = {"shown": repr(text), "what": kind, "hint": hint}
        raise PydanticCustomError("form", "{shown} is not {what}", facts)

    schema: dict[str, JsonValue] = {"pattern": f"^(?:{pattern})$", "maxLength": longest}
    return AfterValidator(check), Field(json_schema_extra=schema)


Name = Annotated[str, *_form("name")]
Version = Annotated[str, *_form("version")]
TorchVersion = Annotated[str, *_form("torch")]
Python = Annotated[str, *_form("python")]
Target = Annotated[str, *_form("target", target_of_product)]
IndexName = Annotated[str, *_form("index")]
IndexUrl = Annotated[str, *_form("index_url")]
Requirement = Annotated[str, *_form("requirement")]
PackageName = Annotated[str, *_form("distribution")]
Reason = Annotated[str, *_form("words")]
Environment = dict[Annotated[str, *_form("variable")], Annotated[str, *_form("value")]]
VendorName = Annotated[
    Literal["nvidia", "amd", "cpu", "gaudi", "intel"], WithJsonSchema({"type": "string"})
]
MachineName = Literal["x86_64", "aarch64"]
TagTemplate = Annotated[str, *_form("tag_template")]
Companion = Literal["torchvision", "torchaudio"]
Filled = Field(min_length=1)


def _one_or_more(one: Any, more: Any) -> BeforeValidator:
    """Return the check that takes one text as a list of one."""

    def as_list(value: object) -> object:
        return [value] if isinstance(value, str) else value

    return BeforeValidator(as_list, json_schema_input_type=one | more)


_Targets = Annotated[tuple[Target, ...], Filled]
_Companions = tuple[Companion, ...]
Label = Annotated[str, *_form("label")]
_Labels = Annotated[tuple[Label, ...], Filled]
Labels = Annotated[_Labels, _one_or_more(Label, _Labels)]
NotifyWay = Literal["issue", "webhook"]
"""How people learn of a red run that no pull request started."""
NightBench = Literal["", "none", "tiny", "default", "seed", "full"]
"""What the night times on a machine: nothing, or a preset of `bench`; "" for the usual one."""
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
Targets = Annotated[_Targets, _one_or_more(Target, _Targets)]
Companions = Annotated[_Companions, _one_or_more(Companion, _Companions)]


@strict_dataclass
class Project:
    """`project:`, the images as a whole; ends in OCI labels. CI publishes from `branch`, the
    default branch of `source`, and from tags that begin with `release_tags`.
    """

    name: Name
    source: Annotated[str, *_form("https")]
    licenses: Annotated[str, *_form("license")]
    repository: Annotated[str, *_form("repository")]
    branch: Annotated[str, *_form("branch")] = "main"
    release_tags: Annotated[str, *_form("tag_prefix")] = "v"


@strict_dataclass
class Bootstrap:
    """`bases.*.bootstrap:`, arguments of mmdebstrap for a base where no registry answers.

    `updates` is true if the suite has updates and security fixes: releases do, unstable does
    not. `release_may_be_old` accepts a suite whose Release file has expired, which only a
    declared base may. `overlays` are incomplete suites, such as experimental:
    packages come from one where `include` names it (`hipcc/experimental`). `headers` are packages
    that are installed without their dependencies: a library's headers without the library.
    """

    suite: Name
    include: tuple[Annotated[str, *_form("package")], ...] = ()
    headers: tuple[Annotated[str, *_form("package")], ...] = ()
    updates: StrictBool = True
    release_may_be_old: StrictBool = False
    overlays: tuple[Name, ...] = ()

    @property
    def newest_suite(self) -> str:
        """The suite that its compiler is from."""
        return self.overlays[-1] if self.overlays else self.suite


@strict_dataclass
class BaseText:
    """`bases.*:`, an image that cells start from. `reference` is fully qualified, with tag
    (`docker.io/library/python:3.11-slim-bookworm`); `python` is the X.Y of its `interpreter`;
    `glibc` is its C library (`2.36`), which limits the manylinux levels of wheels. The digest
    `unpinned` needs a `reason`, and blocks building; `bootstrap` is a base that no registry has.
    """

    reference: Annotated[str, *_form("reference")]
    digest: Annotated[str, *_form("digest")]
    python: Python
    interpreter: Annotated[str, *_form("interpreter")]
    glibc: Version
    reason: Annotated[str, *_form("words")] | None = None
    bootstrap: Bootstrap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Base(BaseText):
    """A base with its name. `digest` is `sha256:` + 64 hex, or "" for none; `unpinned` is the
    reason for a missing one.
    """

    name: str
    unpinned: str = ""

    @property
    def pinned(self) -> str:
        """`registry/repository:tag@sha256:...`: what a Dockerfile or BuildKit is given."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@strict_dataclass
class SourceTree:
    """`images.*.project:`, a source tree that an image is for: `path` is its folder below the
    project's. `sources` are globs of what `compile` takes (none = the kernels it finds), `include`
    folders of the tree for `-I`, `flags` further options of the compiler.
    """

    path: Annotated[str, *_form("folder")]
    sources: tuple[Annotated[str, *_form("glob")], ...] = ()
    include: tuple[Annotated[str, *_form("folder")], ...] = ()
    flags: tuple[Annotated[str, *_form("flag")], ...] = ()


@strict_dataclass
class CompilerText:
    """An entry of `compilers:`, a compiler without torch, from a bootstrap of Debian and
    the vendor's wheels.
    """

    vendor: VendorName
    targets: Targets
    python: Python
    bootstrap: Bootstrap
    toolkit: Version | None = None


@strict_dataclass
class BuildText:
    """`images.*.builds.*:`, how a package is built against the image's own torch."""

    tools: Annotated[tuple[Requirement, ...], Filled]
    apt: tuple[Annotated[str, *_form("package")], ...] = ()
    environment: Environment = field(default_factory=dict)
    extensions: tuple[Annotated[str, *_form("module")], ...] = ()


@strict_dataclass
class Patch:
    """An entry of `images.*.patches:`, a change to a package, for one `version`. `file` is its path
    below the project, `sha256` the digest of its bytes, `strip` the number of leading folders to
    remove from its paths. `upstream` is its address there, `until` the versions that include it.
    """

    package: PackageName
    version: Annotated[str, *_form("exact")]
    file: Annotated[str, *_form("path")]
    sha256: Annotated[str, *_form("sha256")]
    reason: Reason
    strip: Annotated[int, Field(strict=True, ge=0, le=9)] = 1
    upstream: Annotated[str, *_form("https")] = ""
    until: Requirement = ""

    def __str__(self) -> str:
        where = f", {self.upstream}" if self.upstream else ""
        return f"{self.file} sha256:{self.sha256} ({self.reason}{where})"


@strict_dataclass
class ExpectText:
    """`images.*.smoke.*.expect:`, how a command ends, and a pattern of what it prints."""

    exit: Annotated[int, Field(strict=True, ge=0, le=255)] = 0
    prints: Annotated[str, *_form("pattern")] = ""


@strict_dataclass
class Smoke:
    """An entry of `images.*.smoke:`, a trial of packages by `verify`: a described one (`uses`), or
    modules and a command. `needs` a device or none; `vendors` limits the images, none means all;
    `starts` are .pth files that are meant to run code, `optional` patterns of compiled files that
    need not load.
    """

    name: Name = ""
    uses: PackageName = ""
    run: tuple[Annotated[str, *_form("word")], ...] = ()
    imports: tuple[Annotated[str, *_form("module")], ...] = ()
    needs: Literal["device", "none"] = "none"
    expect: ExpectText = field(default_factory=ExpectText)
    timeout_seconds: Annotated[int, Field(strict=True, ge=1, le=900)] = 120
    vendors: tuple[VendorName, ...] = ()
    starts: tuple[Annotated[str, *_form("start")], ...] = ()
    optional: tuple[Annotated[str, *_form("library")], ...] = ()


@strict_dataclass
class ImageText:
    """`images.*:`; `parent` is the image it is built on. `relax` maps a package, whose demands
    on the torch stack may go unmet, to the reason; `builds` how packages are built in that;
    `patches` what is changed in packages of others, `smoke` what of them is tried; `budget` is the
    most that its layers may take, unpacked, and `slim` what its wheels are without."""

    template: Name
    title: Annotated[str, *_form("words")]
    parent: Name | None = field(default=None, metadata={"formerly": "on"})
    packages: tuple[Requirement, ...] = ()
    requirements: Annotated[str, *_form("path")] | None = None
    compiler: StrictBool = False
    project: SourceTree | None = None
    relax: Mapping[PackageName, Reason] = field(default_factory=dict)
    builds: Mapping[PackageName, BuildText] = field(default_factory=dict)
    patches: tuple[Patch, ...] = ()
    smoke: tuple[Smoke, ...] = ()
    budget: Annotated[str, *_form("size")] | None = None
    slim: tuple[Name, ...] = ()
    environment: Environment = field(default_factory=dict)


@strict_dataclass
class _CellAxes:
    """Axes that a row gives and that a filter asks for. None = not set here."""

    vendor: VendorName | None = None
    toolkit: Version | None = None
    targets: Targets | None = None
    machine: MachineName | None = None
    python: Python | None = None
    torch: TorchVersion | None = None
    index: IndexName | None = None
    base: Name | None = None


@strict_dataclass
class Axes(_CellAxes):
    """Values of `defaults:`, `rows:` and `set:`."""

    images: Annotated[tuple[Name, ...], Filled] | None = None
    companions: Companions | None = None
    environment: Environment | None = None
    tag_targets: StrictBool | None = None


@strict_dataclass
class AxisLists:
    """`product:` crosses these lists, `zip:` walks them together."""

    toolkit: Annotated[tuple[Version, ...], Filled] | None = None
    targets: Annotated[tuple[Targets, ...], Filled] | None = None
    machine: Annotated[tuple[MachineName, ...], Filled] | None = None
    python: Annotated[tuple[Python, ...], Filled] | None = None
    torch: Annotated[tuple[TorchVersion, ...], Filled] | None = None
    index: Annotated[tuple[IndexName, ...], Filled] | None = None
    base: Annotated[tuple[Name, ...], Filled] | None = None
    companions: Annotated[tuple[Companions, ...], Filled] | None = None


@strict_dataclass
class RowText(Axes):
    """An entry of `rows:`."""

    product: AxisLists | None = None
    zip: AxisLists | None = None


@strict_dataclass
class Filter(_CellAxes):
    """`where:` and the entries of `exclude:`: every key given must match. `targets` are among the
    cell's; `image` narrows it to one image."""

    image: Name | None = None


@strict_dataclass
class IncludeText:
    """An entry of `include:`: a `row`, or a `set` of fields for the cells `where` matches."""

    row: RowText | None = None
    where: Filter | None = None
    set: Axes | None = None


@strict_dataclass
class OwnIndexText:
    """`indexes.*:`, a company's own index: `packages` come from there and from nowhere else."""

    url: IndexUrl
    packages: Annotated[tuple[Annotated[str, *_form("name_pattern")], ...], Filled]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnIndex(OwnIndexText):
    """A company's index with its name."""

    name: str


@strict_dataclass
class AliasText:
    """An entry of `release.*.aliases:`, a tag that moves; `where` chooses who claims it."""

    tag: TagTemplate
    where: Filter | None = None


@strict_dataclass
class ChannelText:
    """`release.*:`, a channel: templates of `tags` that never move, and of `aliases` that do.
    `repository` is "" for the project's. `sessions` have to pass on `all` targets of a cell, or on
    `any`, at most `max_age_hours` ago; `allow` are the accepted exceptions.
    """

    tags: Annotated[tuple[TagTemplate, ...], Filled]
    aliases: tuple[AliasText, ...] = ()
    repository: Annotated[str, *_form("repository")] = ""
    sessions: Annotated[tuple[Name, ...], Filled] = SESSIONS
    targets: Literal["all", "any"] = "all"
    max_age_hours: Annotated[int, Field(strict=True, ge=1, le=8784)] = 168
    allow: tuple[Allowance, ...] = ()


@strict_dataclass
class CiOptions:
    """`ci:`. `unchecked` is what a pull request is whose changed cells have targets that no machine
    of its scope has: `red`, or green with those `listed` first. `queue_hours` is how long a job
    waits for a machine of one's own.
    """

    unchecked: Literal["red", "listed"] = "red"
    notify: tuple[NotifyWay, ...] = ("issue",)
    queue_hours: Annotated[int, Field(strict=True, ge=1, le=24)] = 6


@strict_dataclass
class AllowedVulnerability:
    """`maintenance.allow_vulnerabilities`, an entry: the advisory (`CVE-2026-12345`), the last day
    that it is accepted, and the reason; of one `package` only, if it names one."""

    id: Annotated[str, *_form("advisory")]
    until: Annotated[str, *_form("day")]
    reason: Annotated[str, *_form("words")]
    package: PackageName = ""


@strict_dataclass
class Maintenance:
    """`maintenance:`, what `plan` and `audit` warn of: bases older than `base_max_age_days`, and
    vulnerabilities that are not in `allow_vulnerabilities`."""

    base_max_age_days: Annotated[int, Field(strict=True, ge=1, le=3660)] = 180
    allow_vulnerabilities: tuple[AllowedVulnerability, ...] = ()


@strict_dataclass
class RunnerText:
    """`runners.*:`, machines that take CI's jobs: what a forge calls them (`labels`, with or
    without a `group`, or the name of a `scale_set`), and what they have. `count` are the machines,
    each with one job at a time. `image` is that of the engine in the pods of a scale set. `bench`
    is what a night times here, `max_slower` how much slower than the last release that may be."""

    trust: Literal["hosted", "self-hosted"]
    labels: Labels = ()
    group: Annotated[str, *_form("group")] = ""
    scale_set: Label = ""
    machine: MachineName = DEFAULT_MACHINE
    builds: StrictBool = False
    vendor: VendorName | Literal[""] = ""
    targets: Targets = ()
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    engine: Literal["theirs", "embedded"] = "theirs"
    image: Annotated[str, *_form("pinned_image")] = ""
    bench: NightBench = ""
    max_slower: Annotated[str, *_form("share")] = ""


@strict_dataclass
class InstallText:
    """`install:`, where CI's jobs get warpfront from: a `wheel` by its `sha256`, a `git` repository
    by its `commit`, or a `requirements` file with a hash for everything."""

    wheel: Annotated[str, *_form("wheel")] | None = None
    sha256: Annotated[str, *_form("sha256")] | None = None
    git: Annotated[str, *_form("https")] | None = None
    commit: Annotated[str, *_form("commit")] | None = None
    requirements: Annotated[str, *_form("path")] | None = None


@strict_dataclass
class NodeText:
    """An entry of `builders:`, engines for parallel builds: by `host` (as DOCKER_HOST), by
    docker `context`, or a builder of `buildx` (remote, in Kubernetes), whose images come to this
    machine's engine; without any, this machine's own. `room_gb` bounds what is built there at once,
    `cache` is a repository for BuildKit's steps.
    """

    host: Annotated[str, *_form("engine")] = ""
    context: Label = ""
    buildx: Label = ""
    machine: MachineName = DEFAULT_MACHINE
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    room_gb: Annotated[int, Field(ge=1, le=100_000)] = 100
    cache: Annotated[str, *_form("cache")] = ""


IndexText = Annotated[
    Annotated[IndexUrl, Tag("address")] | Annotated[OwnIndexText, Tag("own")],
    Discriminator(lambda value: "address" if isinstance(value, str) else "own"),
]


@strict_dataclass
class MatrixText:
    """matrix.yaml, whole."""

    schema: Literal[1] = SCHEMA
    project: Project
    bases: Annotated[Mapping[Name, BaseText], Filled]
    images: Annotated[Mapping[Name, ImageText], Filled]
    rows: Annotated[tuple[RowText, ...], Filled]
    strict: StrictBool = False
    policy: Literal["default", "none"] | tuple[str, ...] = "default"
    compilers: Mapping[Name, CompilerText] = field(default_factory=dict)
    runners: Mapping[Name, RunnerText] = field(default_factory=dict)
    ci: CiOptions = field(default_factory=CiOptions)
    install: InstallText | None = None
    builders: Mapping[Name, NodeText] = field(default_factory=dict)
    indexes: Mapping[IndexName, IndexText] = field(default_factory=dict)
    allow_builds: tuple[PackageName, ...] = ()
    allow_variants: tuple[PackageName, ...] = ()
    defaults: Axes = field(default_factory=Axes)
    include: tuple[IncludeText, ...] = ()
    exclude: tuple[Filter, ...] = ()
    release: Mapping[Name, ChannelText] = field(default_factory=dict)
    maintenance: Maintenance = field(default_factory=Maintenance)
