"""matrix.yaml: the one input, read, checked and expanded to cells: each combination judged by the
compat table, each image named, and the files that it omits (`slim:`) as globs. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal

from packaging.requirements import Requirement as PackagingRequirement
from packaging.utils import canonicalize_name

from warpfront import __version__
from warpfront.errors import MatrixError, Problem
from warpfront.matrix.cell import (
    Cell,
    Compiler,
    CompilerBase,
    Pin,
    Recipe,
    RequirementList,
    RuntimePolicy,
    Toolkit,
    WheelIndex,
)
from warpfront.matrix.compat import Compat, Contradicted
from warpfront.matrix.compat_table import Combination
from warpfront.matrix.expansion import CELL_LIMIT, Point, cell_id, cell_tag, expand_points, is_id
from warpfront.matrix.language import (
    BOOTSTRAPPED,
    SCHEMA,
    UNPINNED,
    Base,
    BaseText,
    CiOptions,
    ImageText,
    InstallText,
    Maintenance,
    MatrixText,
    OwnIndex,
    Patch,
    Project,
    Smoke,
)
from warpfront.matrix.release_channels import Channel, read_channels
from warpfront.matrix.runners import BuildNode, Runner, make_nodes, make_runners
from warpfront.matrix.runtime_policies import (
    device_fault,
    packaged_policies,
    policies_of,
    refusals,
)
from warpfront.matrix.selection import nearest, target_faults
from warpfront.matrix.vendors import VENDORS, Vendor
from warpfront.system.digests import frozen
from warpfront.system.document import Document, checked, read_document
from warpfront.system.packaged import packaged_toml
from warpfront.system.references import is_tag
from warpfront.system.strict_values import extended, read_as
from warpfront.system.texts import counted
from warpfront_checks.stack.descriptions import names as described_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A project's cells, parents before children, with warnings, compilers without torch,
    channels, machines of CI, and the source of warpfront there.
    """

    project: Project
    cells: tuple[Cell, ...]
    warnings: tuple[Problem, ...]
    compilers: tuple[CompilerBase, ...] = ()
    channels: tuple[Channel, ...] = ()
    runners: tuple[Runner, ...] = ()
    nodes: tuple[BuildNode, ...] = ()
    ci: CiOptions = field(default_factory=CiOptions)
    install: InstallText | None = None
    maintenance: Maintenance = field(default_factory=Maintenance)

    @property
    def repositories(self) -> frozenset[str]:
        """The local names of all images, without tags."""
        return frozenset(cell.repository for cell in self.cells)


def read_matrix(text: str, *, path: str, compat: Compat) -> Matrix:
    """Return `text` as a matrix. Raise `MatrixError` with every problem of it and its line."""
    document = read_document(text, path=path)
    schema = document.value.get("schema") if isinstance(document.value, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:  # by that alone: its keys are not known here
        newer = f"schema {schema} is newer than schema {SCHEMA}"
        message = f"{newer}, which warpfront {__version__} reads"
        hint = "upgrade: pip install --upgrade warpfront"
        raise MatrixError((document.problem(("schema",), message, hint),))
    written = checked(document, MatrixText)
    points = expand_points(written, document)
    maker = CellMaker(text=written, document=document, compat=compat)
    maker.check_images()
    maker.check_indexes()
    maker.make_compilers()
    maker.make(points)
    channels = read_channels(written, document, tuple(maker.cells))
    runners, nodes = make_runners(written, document), make_nodes(written, document)
    _check_install(written.install, document)
    if not (maker.cells or document.problems):
        hint = "`exclude:` leaves none; remove one of it"
        document.refuse(("rows",), "the matrix has no cells", hint)
    if document.problems:
        raise document.error
    return extended(
        Matrix,
        written,
        cells=tuple(maker.cells),
        warnings=tuple(sorted(set(maker.warnings))),
        compilers=tuple(maker.compilers),
        channels=channels,
        runners=runners,
        nodes=nodes,
    )


_INSTALL_FORMS = (
    "one of `wheel` with `sha256`, `git` with `commit`, and `requirements` (a file with hashes)"
)


def _check_install(text: InstallText | None, document: Document) -> None:
    if text is None:
        return
    ways = [way for way in ("wheel", "git", "requirements") if getattr(text, way)]
    if len(ways) != 1:
        message = f"`install` names {counted(len(ways), 'source')}"
        document.refuse(("install",), message, _INSTALL_FORMS)
    for way, pin in (("wheel", "sha256"), ("git", "commit")):
        if bool(getattr(text, way)) != bool(getattr(text, pin)):
            where = ("install", way if getattr(text, way) else pin)
            message = f"`install`: `{way}` and `{pin}` go together"
            document.refuse(where, message, _INSTALL_FORMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foundation:
    """Common values of the images of one point. `compiler` may be why there is none."""

    toolkit: Toolkit | None
    base: Base
    index: WheelIndex | None
    stack: tuple[Pin, ...]
    compiler: Compiler | str


@dataclass(kw_only=True)
class CellMaker:
    """Makes the cells of a matrix, refusing what is wrong and collecting warnings on the way."""

    text: MatrixText
    document: Document
    compat: Compat
    warnings: list[Problem] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    compilers: list[CompilerBase] = field(default_factory=list)
    _ids: dict[str, Point] = field(default_factory=dict)
    _tags: dict[tuple[str, str], Point] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refuse = self.document.refuse

    def make(self, points: list[Point]) -> None:
        """Return the cells of `points`, parents before children within a point."""
        count = sum(len(point.images) for point in points)
        if count > CELL_LIMIT:
            message = f"{count} cells are more than {CELL_LIMIT}"
            self.refuse(("rows",), message, "split the matrix")
            return
        for point in points:
            foundation = self._found(point)
            if foundation is not None and self._images_known(point):
                self._add_cells(point, foundation)

    @cached_property
    def _image_order(self) -> tuple[str, ...]:
        """Return all images, parents first, else in the order of matrix.yaml."""
        ordered = [link for name in self.text.images for link in reversed(self._chain(name))]
        return tuple(dict.fromkeys(ordered))

    def _chain(self, name: str) -> list[str]:
        """Return the image and its parents, each once, as far as `parent:` names images."""
        images = self.text.images
        chain = [name]
        while (parent := images[chain[-1]].parent) and parent in images and parent not in chain:
            chain.append(parent)
        return chain

    def check_images(self) -> None:
        """Check that `parent:` leads to an image, and that unpinned bases have a reason."""
        for name, image in self.text.images.items():
            where = ("images", name, "parent")
            parent = image.parent
            if parent is not None and parent not in self.text.images:
                hint = nearest(parent, self.text.images)
                self.refuse(where, f"image `{parent}` is not in images:", hint)
            elif self.text.images[self._chain(name)[-1]].parent == name:
                message = f"image `{name}` is built on itself through `parent:`"
                self.refuse(where, message, "give it another `parent:`, or none")
            if image.builds and parent is None:
                message = f"image `{name}` builds packages, and is built on no image to do so in"
                hint = "`builds:` needs a `parent:` image that holds torch"
                self.refuse(("images", name, "builds"), message, hint)
            self._check_patches(name, image.patches)
            self._check_smoke(name, image.smoke)
            self._check_slim(name, image)
        for name, base in self.text.bases.items():
            self._check_base(name, base)
        names = sorted({runtime_policy.name for runtime_policy in packaged_policies()})
        for name in self.text.policy if isinstance(self.text.policy, tuple) else ():
            if name not in names:
                self.refuse(("policy",), f"no policy `{name}`", f"known: {', '.join(names)}")

    def _check_patches(self, image: str, patches: tuple[Patch, ...]) -> None:
        """Patches of a package are of one version of it, and end with versions of that package."""
        versions: dict[str, str] = {}
        for place, patch in enumerate(patches):
            where = ("images", image, "patches", place)
            first = versions.setdefault(patch.package, patch.version)
            if first != patch.version:
                message = f"{patch.package} is patched at {first} and at {patch.version}"
                self.refuse(where, message, "an image holds one version of a package")
            ends = canonicalize_name(PackagingRequirement(patch.until).name) if patch.until else ""
            if ends not in {"", patch.package}:
                message = f"`until` of a patch of {patch.package} names {ends}"
                self.refuse(where, message, f"until: {patch.package}>=...")

    def _check_slim(self, name: str, image: ImageText) -> None:
        """Check that the removed files are known, and that no child image needs them."""
        where = ("images", name, "slim")
        if image.slim and image.parent is not None:
            hint = f"`slim:` belongs to the image at the bottom, which `{image.parent}` leads to"
            self.refuse(where, f"image `{name}` has its wheels from its parent", hint)
        above = [image for image in self.text.images if name in self._chain(image)]
        images = self.text.images
        users = [name for name in above if images[name].compiler or images[name].builds]
        for recipe in image.slim:
            if recipe not in (recipes := slim_recipes()):
                self.refuse(where, f"slim: `{recipe}` is not known", nearest(recipe, recipes))
            elif users and recipes[recipe].needed == COMPILER:
                hint = "take it out of `slim:`, or give them another `parent:`"
                self.refuse(where, f"{recipe} is needed to compile in: {', '.join(users)}", hint)

    def _check_smoke(self, image: str, entries: tuple[Smoke, ...]) -> None:
        """Each entry has a name of its own and something to do, and names what is known."""
        names: set[str] = set()
        for place, entry in enumerate(entries):
            where = ("images", image, "smoke", place)
            name = entry.name or entry.uses
            if not name or not (
                entry.uses or entry.run or entry.imports or entry.starts or entry.optional
            ):
                hint = "`uses:` a described package, or a `name:` with `imports:` or `run:`"
                self.refuse(where, "an entry of `smoke:` says nothing to do", hint)
            if name in names:
                self.refuse(where, f"`smoke:` has {name} twice", "give one another `name:`")
            names.add(name)
            if entry.uses and entry.uses not in (described := described_names()):
                hint = nearest(entry.uses, described)
                self.refuse(where, f"{entry.uses} is not described", hint)
            try:
                re.compile(entry.expect.prints)
            except re.error as error:
                message = f"`prints: {entry.expect.prints}` is no pattern: {error}"
                self.refuse(where, message, "write a pattern of Python's `re`; `\\\\.` is a dot")

    def check_indexes(self) -> None:
        """`indexes:` readdresses indexes of the compat table, and gives others their packages."""
        indexes = self.compat.table.indexes
        for name, index in self.text.indexes.items():
            if isinstance(index, str) and name not in indexes:
                message = f"index `{name}` is not in the compat table"
                hint = nearest(name, indexes) or "an index of your own says its `packages`"
                self.refuse(("indexes", name), message, hint)
            elif not isinstance(index, str) and name in indexes:
                message = f"index `{name}` is one of the compat table, which has no `packages`"
                self.refuse(("indexes", name), message, f"write `{name}: {index.url}`")

    def make_compilers(self) -> None:
        """Return the entries of `compilers:`."""
        for name, text in self.text.compilers.items():
            where, before = ("compilers", name), len(self.document.problems)
            vendor = VENDORS[text.vendor]
            for message, hint in target_faults(vendor, text.targets, "compiler"):
                self.refuse((*where, "targets"), message, hint)
            if len(self.document.problems) > before:
                continue
            if bool(vendor.toolkit) != bool(text.toolkit):
                self.refuse(where, *_other_toolkit(vendor))
                continue
            suite, kind = text.bootstrap.suite, vendor.toolkit
            toolkit = Toolkit(name=kind, version=text.toolkit or "") if kind else None
            python = _SUITES.get(suite, (text.python,))[0]
            if python != text.python:
                message = f"compiler `{name}` says python {text.python}, its suite has {python}"
                self.refuse((*where, "python"), message, f'python: "{python}"')
            newest = text.bootstrap.newest_suite
            compiler = vendor.compiler(toolkit, text.targets, text.python, newest)
            if isinstance(compiler, str):
                self.refuse(where, compiler, "give it another toolkit")
                continue
            self.compilers.append(
                extended(CompilerBase, text, name=name, toolkit=toolkit, compiler=compiler)
            )

    def _check_base(self, name: str, base: BaseText) -> None:
        for place, field_name, value in _said_of(base):
            ours = getattr(base, field_name)
            if value != ours:
                where = ("bases", name, *place)
                message = f"base `{name}` says {field_name} {ours}, its {place[-1]} {value}"
                hint = f'{field_name}: "{value}", or what has {ours}: docs/matrix.md, Pythons'
                self.refuse(where, message, hint)
        where = ("bases", name, "digest")
        if base.digest == BOOTSTRAPPED and base.bootstrap is None:
            self.refuse(where, f"base `{name}` has no `bootstrap:`", "say how it is made")
        if base.digest == UNPINNED and base.reason is None:
            self.refuse(where, f"base `{name}` is unpinned without a `reason`", "say why")
        elif base.digest == UNPINNED:
            message = f"base `{name}` is unpinned and cannot be built on: {base.reason}"
            hint = "replace `unpinned` with the digest of the image"
            self.warnings.append(self.document.problem(where, message, hint))

    def _images_known(self, point: Point) -> bool:
        before, images = len(self.document.problems), self.text.images
        for name in point.images:
            parent = images[name].parent if name in images else None
            if name not in images:
                self._tell(point, f"image `{name}` is not in images:", nearest(name, images))
            elif parent is not None and parent not in point.images:
                message = f"image `{name}` is built on `{parent}`, which this row does not make"
                self._tell(point, message, f"add {parent} to its images:, or leave {name} out")
        return len(self.document.problems) == before

    def _found(self, point: Point) -> _Foundation | None:
        vendor, base = VENDORS[point.vendor], self.text.bases.get(point.base)
        if base is None:
            message = f"base `{point.base}` is not in bases:"
            self._tell(point, message, nearest(point.base, self.text.bases))
        if base is None or not self._axes_fit(point, vendor, base):
            return None
        index = self._index(point, vendor)
        if index is None and vendor.torch_from == "index":
            return None
        combination = dataclasses.replace(
            point,
            index=index.name if index else "",
            glibc=base.glibc,
            variants=self.text.allow_variants,
        )
        if not self._judged(point, combination):
            return None
        toolkit = Toolkit(name=vendor.toolkit, version=point.toolkit) if vendor.toolkit else None
        suite = base.bootstrap.newest_suite if base.bootstrap else ""
        return _Foundation(
            toolkit=toolkit,
            base=extended(
                Base,
                base,
                name=point.base,
                digest="" if base.digest in {UNPINNED, BOOTSTRAPPED} else base.digest,
                unpinned=(base.reason or "") if base.digest == UNPINNED else "",
            ),
            index=index,
            stack=self.compat.stack(combination),
            compiler=vendor.compiler(toolkit, point.targets, point.python, suite),
        )

    def _axes_fit(self, point: Point, vendor: Vendor, base: BaseText) -> bool:
        before = len(self.document.problems)
        for message, hint in target_faults(vendor, point.targets, "row", machine=point.machine):
            self._tell(point, message, hint)
        if len(set(point.targets)) != len(point.targets):
            message = f"a target is listed twice: {', '.join(point.targets)}"
            self._tell(point, message, f"targets: [{', '.join(dict.fromkeys(point.targets))}]")
        if bool(vendor.toolkit) != bool(point.toolkit):
            self._tell(point, *_other_toolkit(vendor))
        if point.python != base.python:
            message = f"base `{point.base}` has python {base.python}, not {point.python}"
            fits = [name for name, other in self.text.bases.items() if other.python == point.python]
            suite = base.bootstrap.suite if base.bootstrap else "bookworm"
            hint = (
                f"no base has it: add one of docker.io/library/python:{point.python}-slim-{suite} "
                f'with its digest, python: "{point.python}" and interpreter: python{point.python} '
                "(docs/matrix.md, Pythons)"
            )
            self._tell(point, message, f"bases with it: {', '.join(fits)}" if fits else hint)
        for axis in ("index", "companions"):
            if getattr(point, axis) and vendor.torch_from == "base":
                self._tell(point, f"torch of {vendor.name} comes with its base", f"remove `{axis}`")
        return len(self.document.problems) == before

    def _index(self, point: Point, vendor: Vendor) -> WheelIndex | None:
        """Return the row's index, at the address that `indexes:` gives it, if any."""
        if vendor.torch_from == "base":
            return None
        indexes = self.compat.table.indexes
        name = point.index or self.compat.index_for(point.vendor, point.toolkit, point.torch)
        if name in indexes:
            own_index = self.text.indexes.get(name)
            url = own_index if isinstance(own_index, str) else indexes[name].url
            return WheelIndex(name=name, url=url)
        if point.index:
            hint = nearest(point.index, indexes)
            self._tell(point, f"index `{point.index}` is not in the compat table", hint)
        else:
            contradicted = self.compat.contradiction_of_no_index(point)
            self._tell(point, contradicted.reason, f"what fits: {contradicted.fits}")
        return None

    def _judged(self, point: Point, combination: Combination) -> bool:
        judgement, before = self.compat.judge(combination), len(self.document.problems)
        if isinstance(judgement, Contradicted):
            self._tell(point, judgement.reason, f"what fits: {judgement.fits}")
            return False
        for reason in judgement:
            if self.text.strict:
                self._tell(point, reason, "`strict: true` makes this an error")
            else:
                hint = "if you know better, add it to the compat table with its source"
                self.warnings.append(self.document.problem(point.line, reason, hint))
        return len(self.document.problems) == before

    def _add_cells(self, point: Point, foundation: _Foundation) -> None:
        tag = cell_tag(point, foundation.toolkit)
        ids = {image: cell_id(point, foundation.toolkit, image) for image in point.images}
        for name in self._image_order:
            if name not in ids:
                continue
            image = self.text.images[name]
            if image.compiler and isinstance(foundation.compiler, str):
                message = f"image `{name}`: {foundation.compiler}"
                self._tell(point, message, f"leave {name} out of this row's images:")
            elif self._is_free(point, name, ids[name], tag):
                cell = self._cell(point, foundation, name, ids, tag)
                self.cells.append(cell)
                self._check_environment(point, cell)

    def _cell(
        self, point: Point, foundation: _Foundation, name: str, ids: Mapping[str, str], tag: str
    ) -> Cell:
        text, image = self.text, self.text.images[name]
        policies, compiler = _policies(point, foundation, text, image), foundation.compiler
        policy_values = {policy.name: policy.value for policy in policies if policy.level == "set"}
        return extended(
            Cell,
            point,
            image,
            foundation,
            id=ids[name],
            project=text.project.name,
            image_line=self.document.line(("images", name)),
            image=name,
            requirements=image.packages if image.parent or _installs_torch(point) else (),
            requirements_file=image.requirements,
            listed=RequirementList(problem=f"{image.requirements}: nobody has read it")
            if image.requirements
            else RequirementList(),
            compiler=compiler if image.compiler and isinstance(compiler, Compiler) else None,
            parent=ids[image.parent] if image.parent is not None else None,
            tag=tag,
            environment=frozen({**policy_values, **image.environment, **point.environment}),
            relax=frozen(image.relax),
            builds=tuple(
                Recipe(
                    package=package,
                    environment=tuple(sorted(build.environment.items())),
                    **{n: tuple(sorted(getattr(build, n))) for n in ("tools", "apt", "extensions")},
                )
                for package, build in sorted(image.builds.items())
            ),
            tree=image.project,
            own_indexes=tuple(
                extended(OwnIndex, entry, name=name, packages=tuple(sorted(entry.packages)))
                for name, entry in sorted(text.indexes.items())
                if not isinstance(entry, str)
            ),
            allow_builds=tuple(sorted(text.allow_builds)),
            allow_variants=tuple(sorted(text.allow_variants)),
            budget_bytes=_bytes(image.budget) if image.budget else None,
            policies=policies,
            slim=removed(image.slim, point.targets) if _installs_torch(point) else (),
        )

    def _check_environment(self, point: Point, cell: Cell) -> None:
        """Check that `environment:` is not wrong on that vendor, and hides or fakes no devices."""
        for variable, value in cell.environment.items():
            for why in refusals(cell.policies, variable, value):
                hint = "take it out of `environment:`; docs/stacks.md, Runtime policies"
                self._tell(point, f"`{variable}={value}`: {why}", hint)
            fault, hint = device_fault(variable, value, vendor=cell.vendor, targets=cell.targets)
            if fault:
                # The line that sets it: the image's, that of `defaults:`, or the row.
                line, ours = point.line, self.text.images[cell.image].environment
                if variable in ours and variable not in point.environment:
                    line = self.document.line(("images", cell.image, "environment", variable))
                elif variable in (self.text.defaults.environment or {}):
                    line = self.document.line(("defaults", "environment", variable))
                self.refuse(line, f"`{variable}={value}`: {fault}", hint)

    def _is_free(self, point: Point, image: str, identity: str, tag: str) -> bool:
        before = len(self.document.problems)
        if not is_id(identity) or not is_tag(tag):
            message = f"`{identity}` with tag `{tag}` is too long for a name"
            self._tell(point, message, "give the image a shorter name, or the row fewer targets")
        elif (first := self._ids.setdefault(identity, point)) is not point:
            message = f"a second cell with the id `{identity}` (the first is of line {first.line})"
            self._tell(point, message, "cells must differ in an axis that the id shows")
        elif (first := self._tags.setdefault((image, tag), point)) is not point:
            message = f"a second cell of image `{image}` with the tag `{tag}`"
            where = f" (the first is of line {first.line})"
            self._tell(point, message + where, "`tag_targets: true` puts targets into the tag")
        return len(self.document.problems) == before

    def _tell(self, point: Point, message: str, hint: str) -> None:
        self.refuse(point.line, message, hint)


# The one Python and the C library of a Debian release (packages.debian.org: python3, libc6).
_SUITES = {"bullseye": ("3.9", "2.31"), "bookworm": ("3.11", "2.36"), "trixie": ("3.13", "2.41")}
_NAMED_PYTHON = re.compile(r"python(3\.[0-9]{1,2})\Z")
_OFFICIAL = re.compile(r"(?:.*/)?python:(3\.[0-9]{1,2})(?![0-9])(?:.*-([a-z]+)\Z)?")


def _said_of(base: BaseText) -> Iterator[tuple[tuple[str, ...], Literal["python", "glibc"], str]]:
    """Return the Python and C library in each part of a base's name; the build asks the image."""
    if match := _NAMED_PYTHON.search(base.interpreter):
        yield ("interpreter",), "python", match[1]
    if match := _OFFICIAL.match(base.reference):
        yield ("reference",), "python", match[1]
        if match[2] in _SUITES:
            yield ("reference",), "glibc", _SUITES[match[2]][1]
    if base.bootstrap and (suite := base.bootstrap.suite) in _SUITES:
        yield ("bootstrap", "suite"), "python", _SUITES[suite][0]
        yield ("bootstrap", "suite"), "glibc", _SUITES[suite][1]


def _other_toolkit(vendor: Vendor) -> tuple[str, str]:
    """Return the problem of a vendor's missing or needless toolkit, and the remedy."""
    if vendor.toolkit is None:
        return f"{vendor.name} has no toolkit", "remove `toolkit`"
    message = f"{vendor.name} needs a `toolkit` (the {vendor.toolkit} version)"
    return message, 'write `toolkit: "13.0"`, with its version'


def _installs_torch(point: Point) -> bool:
    """Return true if torch comes from an index. A base's torch and companions stay as they are."""
    return VENDORS[point.vendor].torch_from == "index"


def _policies(
    point: Point, foundation: _Foundation, text: MatrixText, image: ImageText
) -> tuple[RuntimePolicy, ...]:
    """Return policies of a child: inherited values, overridden by explicit ones."""
    if text.policy == "none":
        return ()
    names = {*image.environment, *point.environment}
    return tuple(
        policy
        for policy in policies_of(point.vendor, foundation.toolkit, point.targets, point.torch)
        if (text.policy == "default" or policy.name in text.policy)
        and (policy.level != "set" or not (image.parent or policy.name in names))
    )


def _bytes(size: str) -> int:
    number, unit = size.split()
    return round(float(number) * {"MB": 1e6, "GB": 1e9}[unit])


COMPILER = "compiler"
_EACH_GFX = "{gfx}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimRecipe:
    """`removes` are globs; `needed` is what an image has that needs them (`compiler`), or ""."""

    removes: tuple[str, ...]
    why: str
    needed: str = ""


@cache
def slim_recipes() -> Mapping[str, SlimRecipe]:
    return read_as(dict[str, SlimRecipe], packaged_toml("slim.toml"))


def removed(names: Iterable[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Return the globs of these recipes, if they are known, for an image for `targets`."""
    other_targets = sorted(set(VENDORS["amd"].known_targets) - set(targets))
    globs: set[str] = set()
    for name in slim_recipes().keys() & set(names):
        for glob in slim_recipes()[name].removes:
            targeted = other_targets if _EACH_GFX in glob else [""]
            globs |= {glob.replace(_EACH_GFX, gfx) for gfx in targeted}
    return tuple(sorted(globs))
