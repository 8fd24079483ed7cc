"""The language of matrix.yaml: one frozen dataclass per construct, one anchored pattern
per field. Words.

Every text ends up in a file name, a tag, a Dockerfile or an argv, so each field allows the
characters it needs and nothing that could end a line, a quote or a word there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    Tag,
)
from pydantic_core import PydanticCustomError

from warpfront.matrix.products import target_of_product
from warpfront.matrix.project_values import Allowance
from warpfront.system.strict_values import strict_dataclass

SCHEMA: Literal[1] = 1
"""The version of the language. A matrix that names none is of version 1."""
UNPINNED = "unpinned"
BOOTSTRAPPED = "bootstrap"
DEFAULT_MACHINE: Literal["x86_64"] = "x86_64"
_SHOWN = 60
_REQUIREMENT = (
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]+\])?"
    r"(?: ?(?:===|==|~=|!=|<=|>=|<|>) ?[A-Za-z0-9.*+!_-]+"
    r"(?: ?, ?(?:===|==|~=|!=|<=|>=|<|>) ?[A-Za-z0-9.*+!_-]+)*)?"
)
NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,62}"


_EXAMPLE = re.compile(r"""\((?P<example>"[^"]+"|[^\s,()]+)""")


def _checker(
    pattern: str, kind: str, longest: int, meant: Callable[[str], str], example: str
) -> Callable[[str], str]:
    compiled = re.compile(rf"(?:{pattern})\Z")
    usual = example or _EXAMPLE.findall(kind)[0]

    def check(text: str) -> str:
        better = meant(text)
        if len(text) <= longest and compiled.match(text) and not better:
            return text
        quoted = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
        near = ("".join(text.split()), text.lower(), " ".join(text.split()))
        better = better or next(filter(compiled.match, filter(None, near)), "")
        hint = f"write `{better}`" if better else f"for example `{usual}`"
        hint = f"at most {longest} characters" if len(text) > longest else hint
        facts = {"shown": quoted, "what": kind, "hint": hint}
        raise PydanticCustomError("form", "{shown} is not {what}", facts)

    return check


def _form(
    pattern: str,
    kind: str,
    *,
    longest: int = 200,
    meant: Callable[[str], str] = lambda _text: "",
    example: str = "",
) -> Any:
    """Return the metadata of a text field: its check, and its pattern for editors.

    `meant` returns the text to write in place of another one, "" where that is unknown. `kind`
    ends with an example in parentheses, or `example` is one.
    """
    schema: dict[str, JsonValue] = {"pattern": f"^(?:{pattern})$", "maxLength": longest}
    return AfterValidator(_checker(pattern, kind, longest, meant, example)), Field(
        json_schema_extra=schema
    )


_name = _form(
    NAME_PATTERN, "a name (lower case letters, digits, - and _)", longest=63, example="my-image"
)
_version = _form(r"[0-9]+(?:\.[0-9]+){1,3}", 'a version ("13.0")', longest=20)
_torch = _form(
    r"[0-9]+\.[0-9]+\.[0-9]+(?:(?:a|b|rc)[0-9]+)?", 'a full torch version ("2.14.1")', longest=20
)
_python = _form(r"3\.[0-9]{1,2}", 'a Python version ("3.11")', longest=4)
_target = _form(
    r"[a-z0-9]+(?:[_-][a-z0-9]+)*",
    "a target (sm_90, gfx942)",
    longest=32,
    meant=target_of_product,
)
_index = _form(r"[a-z0-9]+(?:[.-][a-z0-9]+)*", "an index name (cu130, rocm6.4, pypi)", longest=32)
_words = _form(
    r"[A-Za-z0-9](?:[A-Za-z0-9 ._:/@+=,;~()-]*[A-Za-z0-9.)])?",
    "plain words",
    example="PyTorch, with tools",
)
_advisory = _form(
    r"[A-Z][A-Z0-9]*-[A-Za-z0-9-]+", "an advisory (CVE-2026-12345, GHSA-..., PYSEC-...)", longest=64
)
_day = _form(r"20[0-9]{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])", 'a day ("2027-01-31")')
_https = _form(
    r"https://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*/?",
    "an https:// address",
    example="https://github.com/me/images",
)
_index_url = _form(
    r"(?:https://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|http://(?:127\.0\.0\.1|localhost))"
    r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*/?",
    "an https:// address without user and password (or http:// on loopback)",
    example="https://mirror.example/whl",
)
_license = _form(
    r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*",
    "an SPDX expression",
    example="Apache-2.0",
)
_repository = _form(
    r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+",
    "a registry and path (ghcr.io/owner)",
)
_reference = _form(
    r"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+|localhost)(?::[0-9]{1,5})?"
    r"(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}",
    "a fully qualified image with tag (docker.io/library/python:3.11-slim-bookworm)",
    longest=300,
)
_digest = _form(
    rf"sha256:[0-9a-f]{{64}}|{UNPINNED}|{BOOTSTRAPPED}",
    f"a digest (sha256: and 64 hex digits), `{UNPINNED}` or `{BOOTSTRAPPED}`",
    example=BOOTSTRAPPED,
)
_interpreter = _form(
    r"(?:/[A-Za-z0-9._/-]+/)?python3(?:\.[0-9]{1,2})?", "a Python command", example="python3"
)
_package = _form(
    r"[a-z0-9][a-z0-9+.-]+(?:/[a-z][a-z0-9-]*)?",
    "a Debian package name (or name/suite)",
    longest=100,
    example="libnuma1",
)
_requirement = _form(
    _REQUIREMENT, "a requirement (name, name>=1.2, name[extra]==1.2)", example="numpy>=2.1"
)
_distribution = _form(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?",
    "a package's name (lower case, - for _ and .)",
    longest=100,
    example="my-package",
)
_name_pattern = _form(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?|[a-z0-9](?:[a-z0-9-]*-)?\*",
    "a package's name, or how such names begin and a * (acme-*)",
    longest=100,
)
_size = _form(r"[0-9]{1,4}(?:\.[0-9])? (?:MB|GB)", "a size: `900 MB`, `6.5 GB`", example="6.5 GB")
_path = _form(
    r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*",
    "a path inside the repository, without .. and leading dots",
    example="images/app/requirements.txt",
)
_folder = _form(
    r"\.|[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*",
    "a folder inside the repository, without .. and leading dots, or . for all of it",
    example="src",
)
_glob = _form(
    r"[A-Za-z0-9_*?-][A-Za-z0-9._*?-]*(?:/[A-Za-z0-9_*?-][A-Za-z0-9._*?-]*)*",
    "a path or glob inside the project (csrc/*.cu)",
)
_flag = _form(r"-[A-Za-z0-9_+=,./:-]+", "one option of a compiler (-DFAST, -std=c++20)")
_module = _form(
    r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*",
    "a module's name",
    example="my_package.module",
)
_word = _form(r"[^\x00]+", "a word of a command", longest=2000, example="python3")
_library = _form(
    r"[A-Za-z0-9_*][A-Za-z0-9_.*+-]*\.so[0-9.*]*",
    "a pattern of a library's name",
    example="libfoo*.so*",
)
_start = _form(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.pth", "the name of a .pth file", example="my_package.pth"
)
_pattern = _form(r"[^\x00\n]*", "a pattern in one line", longest=200, example="^ok")
_sha256 = _form(r"[0-9a-f]{64}", "a sha256 (64 hex digits)", longest=64, example="0" * 64)
_commit = _form(r"[0-9a-f]{40}", "a commit (40 hex digits)", longest=40, example="0" * 40)
_wheel = _form(
    r"https://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~+-]+)*"
    r"/warpfront-[A-Za-z0-9._+]+-[A-Za-z0-9._-]+\.whl",
    "the https:// address of a wheel of warpfront",
    example="https://me.example/warpfront-0.1.0-py3-none-any.whl",
)
_exact = _form(
    r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?",
    'one version ("0.3.9")',
    longest=64,
)
_tag_template = _form(
    r"(?:[A-Za-z0-9_.-]|\{[a-z_]+\})+",
    "a tag, with {words} of what the image holds",
    example="{torch}-{toolkit}",
)
_variable = _form(
    r"[A-Z][A-Z0-9_]*", "an environment variable's name", longest=64, example="MY_VALUE"
)
_value = _form(r"[A-Za-z0-9 ._:/@+=,;%~()-]*", "a plain value", example="on")
_label = _form(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
    "a runner's label (ubuntu-24.04, mi300)",
    longest=100,
)
_branch = _form(r"[A-Za-z0-9_](?:[A-Za-z0-9_/-]|\.(?!\.))*", "a branch's name (main)", longest=100)
_tag_prefix = _form(
    r"[A-Za-z0-9_](?:[A-Za-z0-9_/-]|\.(?!\.))*", "how release tags begin (v)", longest=50
)
_group = _form(
    r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]*[A-Za-z0-9])?", "a group of runners (lab)", longest=100
)
_engine = _form(r"(?:unix|ssh|tcp)://\S+", "an engine's address (ssh://me@host)", longest=300)
_cache = _form(r"[a-z0-9][a-z0-9./:_-]*", "a repository (ghcr.io/me/cache)", longest=300)

Name = Annotated[str, *_name]
Version = Annotated[str, *_version]
TorchVersion = Annotated[str, *_torch]
Python = Annotated[str, *_python]
Target = Annotated[str, *_target]
IndexName = Annotated[str, *_index]
IndexUrl = Annotated[str, *_index_url]
NamePattern = Annotated[str, *_name_pattern]
Requirement = Annotated[str, *_requirement]
PackageName = Annotated[str, *_distribution]
Reason = Annotated[str, *_words]
Environment = dict[Annotated[str, *_variable], Annotated[str, *_value]]
VendorName = Name
MachineName = Literal["x86_64", "aarch64"]
TagTemplate = Annotated[str, *_tag_template]
Companion = Literal["torchvision", "torchaudio"]
Filled = Field(min_length=1)


def _one_as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Targets = Annotated[tuple[Target, ...], Filled]
_Companions = tuple[Companion, ...]
Label = Annotated[str, *_label]
GroupName = Annotated[str, *_group]
_Labels = Annotated[tuple[Label, ...], Filled]
Labels = Annotated[_Labels, BeforeValidator(_one_as_list, json_schema_input_type=Label | _Labels)]
PinnedImage = Annotated[
    str,
    *_form(
        r"[a-z0-9./:_-]+@sha256:[0-9a-f]{64}",
        "an image with its digest",
        longest=300,
        example=f"ghcr.io/me/engine@sha256:{'0' * 64}",
    ),
]
NotifyWay = Literal["issue", "webhook"]
"""How people learn of a red run that no pull request started."""
Trust = Literal["hosted", "self-hosted"]
RunnerEngine = Literal["theirs", "embedded"]
NightBench = Literal["none", "tiny", "default", "seed", "full"]
"""What the night times on a machine: nothing, or a preset of `bench`."""
ShareText = Annotated[str, *_form(r"\d{1,3}(?:\.\d+)?%", "a share (5%)", longest=20)]
Targets = Annotated[
    _Targets, BeforeValidator(_one_as_list, json_schema_input_type=Target | _Targets)
]
Companions = Annotated[
    _Companions, BeforeValidator(_one_as_list, json_schema_input_type=Companion | _Companions)
]


@strict_dataclass
class Project:
    """`project:`, the images as a whole; ends in OCI labels. CI publishes from `branch`, the
    default branch of `source`, and from tags that begin with `release_tags`.
    """

    name: Name
    source: Annotated[str, *_https]
    licenses: Annotated[str, *_license]
    repository: Annotated[str, *_repository]
    branch: Annotated[str, *_branch] = "main"
    release_tags: Annotated[str, *_tag_prefix] = "v"


@strict_dataclass
class Bootstrap:
    """`bases.*.bootstrap:`, arguments of mmdebstrap for a base where no registry answers.

    `updates` is true if the suite has updates and security fixes: releases do, unstable does
    not. `release_may_be_old` accepts a suite whose Release file has expired, which only a
    declared base may. `overlays` are incomplete suites, such as experimental:
    packages come from one where `include` names it (`hipcc/experimental`).
    """

    suite: Name
    include: tuple[Annotated[str, *_package], ...] = ()
    updates: StrictBool = True
    release_may_be_old: StrictBool = False
    overlays: tuple[Name, ...] = ()

    @property
    def newest_suite(self) -> str:
        """The suite that its compiler is from."""
        return self.overlays[-1] if self.overlays else self.suite


@strict_dataclass
class BaseText:
    """`bases.*:`; `digest: unpinned` needs a `reason`, and blocks building; `digest: bootstrap` is
    a base that no registry has.
    """

    reference: Annotated[str, *_reference]
    digest: Annotated[str, *_digest]
    python: Python
    interpreter: Annotated[str, *_interpreter]
    glibc: Version
    reason: Annotated[str, *_words] | None = None
    bootstrap: Bootstrap | None = None


@strict_dataclass
class SourceTree:
    """`images.*.project:`, a source tree that an image is for: `path` is its folder below the
    project's. `sources` are globs of what `compile` takes (none = the kernels it finds), `include`
    folders of the tree for `-I`, `flags` further options of the compiler.
    """

    path: Annotated[str, *_folder]
    sources: tuple[Annotated[str, *_glob], ...] = ()
    include: tuple[Annotated[str, *_folder], ...] = ()
    flags: tuple[Annotated[str, *_flag], ...] = ()


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
    apt: tuple[Annotated[str, *_package], ...] = ()
    environment: Environment = field(default_factory=dict)
    extensions: tuple[Annotated[str, *_module], ...] = ()


@strict_dataclass
class Patch:
    """An entry of `images.*.patches:`, a change to a package, for one `version`. `file` is its path
    below the project, `sha256` the digest of its bytes, `strip` the number of leading folders to
    remove from its paths. `upstream` is its address there, `until` the versions that include it.
    """

    package: PackageName
    version: Annotated[str, *_exact]
    file: Annotated[str, *_path]
    sha256: Annotated[str, *_sha256]
    reason: Reason
    strip: Annotated[int, Field(strict=True, ge=0, le=9)] = 1
    upstream: Annotated[str, *_https] = ""
    until: Requirement = ""

    def __str__(self) -> str:
        where = f", {self.upstream}" if self.upstream else ""
        return f"{self.file} sha256:{self.sha256} ({self.reason}{where})"


@strict_dataclass
class ExpectText:
    """`images.*.smoke.*.expect:`, how a command ends, and a pattern of what it prints."""

    exit: Annotated[int, Field(strict=True, ge=0, le=255)] = 0
    prints: Annotated[str, *_pattern] = ""


@strict_dataclass
class Smoke:
    """An entry of `images.*.smoke:`, a trial of packages by `verify`: a described one (`uses`), or
    modules and a command. `needs` a device or none; `vendors` limits the images, none means all;
    `starts` are .pth files that are meant to run code, `optional` patterns of compiled files that
    need not load.
    """

    name: Name = ""
    uses: PackageName = ""
    run: tuple[Annotated[str, *_word], ...] = ()
    imports: tuple[Annotated[str, *_module], ...] = ()
    needs: Literal["device", "none"] = "none"
    expect: ExpectText = field(default_factory=ExpectText)
    timeout_seconds: Annotated[int, Field(strict=True, ge=1, le=900)] = 120
    vendors: tuple[VendorName, ...] = ()
    starts: tuple[Annotated[str, *_start], ...] = ()
    optional: tuple[Annotated[str, *_library], ...] = ()


@strict_dataclass
class ImageText:
    """`images.*:`; `parent` is the image it is built on. `relax` maps a package, whose demands
    on the torch stack may go unmet, to the reason; `builds` how packages are built in that;
    `patches` what is changed in packages of others, `smoke` what of them is tried; `budget` is the
    most that its layers may take, unpacked, and `slim` what its wheels are without."""

    template: Name
    title: Annotated[str, *_words]
    parent: Name | None = field(default=None, metadata={"formerly": "on"})
    packages: tuple[Requirement, ...] = ()
    requirements: Annotated[str, *_path] | None = None
    compiler: StrictBool = False
    project: SourceTree | None = None
    relax: Mapping[PackageName, Reason] = field(default_factory=dict)
    builds: Mapping[PackageName, BuildText] = field(default_factory=dict)
    patches: tuple[Patch, ...] = ()
    smoke: tuple[Smoke, ...] = ()
    budget: Annotated[str, *_size] | None = None
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
    packages: Annotated[tuple[NamePattern, ...], Filled]


@strict_dataclass
class AliasText:
    """An entry of `release.*.aliases:`, a tag that moves; `where` chooses who claims it."""

    tag: TagTemplate
    where: Filter | None = None


@strict_dataclass
class ChannelText:
    """`release.*:`, a channel: the tags it gives, and what has to be proven for them."""

    tags: Annotated[tuple[TagTemplate, ...], Filled]
    aliases: tuple[AliasText, ...] = ()
    repository: Annotated[str, *_repository] | None = None
    sessions: Annotated[tuple[Name, ...], Filled] | None = None
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
class AllowedText:
    """`maintenance.allow_vulnerabilities`, an entry: the advisory (`CVE-2026-12345`), the last day
    that it is accepted, and the reason; of one `package` only, if it names one."""

    id: Annotated[str, *_advisory]
    until: Annotated[str, *_day]
    reason: Annotated[str, *_words]
    package: PackageName | None = None


@strict_dataclass
class MaintenanceText:
    """`maintenance:`, what `plan` and `audit` warn of: bases older than `base_max_age_days`, and
    vulnerabilities that are not in `allow_vulnerabilities`."""

    base_max_age_days: Annotated[int, Field(strict=True, ge=1, le=3660)] = 180
    allow_vulnerabilities: tuple[AllowedText, ...] = ()


@strict_dataclass
class RunnerText:
    """`runners.*:`, machines that take CI's jobs: what a forge calls them (`labels`, with or
    without a `group`, or the name of a `scale_set`), and what they have. `count` are the machines,
    each with one job at a time. `image` is that of the engine in the pods of a scale set. `bench`
    is what a night times here, `max_slower` how much slower than the last release that may be."""

    trust: Trust
    labels: Labels | None = None
    group: GroupName | None = None
    scale_set: Label | None = None
    machine: MachineName = DEFAULT_MACHINE
    builds: StrictBool = False
    vendor: VendorName | None = None
    targets: Targets | None = None
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    engine: RunnerEngine = "theirs"
    image: PinnedImage | None = None
    bench: NightBench | None = None
    max_slower: ShareText | None = None


@strict_dataclass
class InstallText:
    """`install:`, where CI's jobs get warpfront from: a `wheel` by its `sha256`, a `git` repository
    by its `commit`, or a `requirements` file with a hash for everything."""

    wheel: Annotated[str, *_wheel] | None = None
    sha256: Annotated[str, *_sha256] | None = None
    git: Annotated[str, *_https] | None = None
    commit: Annotated[str, *_commit] | None = None
    requirements: Annotated[str, *_path] | None = None


@strict_dataclass
class NodeText:
    """An entry of `builders:`, engines for parallel builds: by `host` (as DOCKER_HOST), by
    docker `context`, or a builder of `buildx` (remote, in Kubernetes), whose images come to this
    machine's engine; without any, this machine's own. `room_gb` bounds what is built there at once,
    `cache` is a repository for BuildKit's steps.
    """

    host: Annotated[str, *_engine] | None = None
    context: Label | None = None
    buildx: Label | None = None
    machine: MachineName = DEFAULT_MACHINE
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    room_gb: Annotated[int, Field(ge=1, le=100_000)] = 100
    cache: Annotated[str, *_cache] | None = None


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
    maintenance: MaintenanceText = field(default_factory=MaintenanceText)
