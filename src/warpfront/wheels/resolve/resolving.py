"""A cell's lock: resolved against the cell's own torch, or refused with the packages that
demand another. Path.

uv reports that requirements contradict each other, not always which one began. So requirements that
would move torch are resolved again with the stack fixed, and the metadata of the result shows which
packages demand another version.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from warpfront.errors import LockError
from warpfront.matrix.cell import Recipe
from warpfront.matrix.language import Patch
from warpfront.system.progress import Line
from warpfront.wheels.core_metadata import Distribution, requirement_name
from warpfront.wheels.lock.pylock import foreign_wheel, placeholder
from warpfront.wheels.lock.values import (
    NO_LOCK,
    LockedWheel,
    LockInputs,
    PatchedWheel,
    RelaxedPackage,
    UnbuiltWheel,
    UnmetDemand,
    WheelLock,
    matches,
)
from warpfront.wheels.resolve.candidates import explain_absences, refusal, way_out, wheelless
from warpfront.wheels.resolve.demands import (
    Stack,
    belonging_to_a_stack,
    relaxed_of,
    stack_of,
    unmet_demands,
)
from warpfront.wheels.resolve.resolver import (
    NO_TERMS,
    Contradiction,
    Outcome,
    Resolution,
    Terms,
    UvResolver,
    WheelMaker,
)
from warpfront.wheels.rocm import refuse_every_device
from warpfront.wheels.sources import Site
from warpfront.wheels.store.patching import UNREAD
from warpfront.wheels.store.sdists import BUILD_TOOLS
from warpfront.wheels.store.wheelhouse import Wheelhouse

_TOGETHER = "its requirements cannot be met together"
_STACK = "the stack's versions are fixed by matrix.yaml: change the requirement, or the row"
_EACH_OTHER = "these requirements exclude each other: change one of them"
# How often a package that is not relaxed may give way to another of its versions.
_ROUNDS = 12
_RELAX = (
    "say `relax: {package: reason}` for the image in matrix.yaml to install it beside this torch "
    "as it is"
)


def resolve_by_uv(
    inputs: LockInputs,
    site: Site,
    *,
    on_line: Line,
    wheelhouse: Wheelhouse,
    parent: WheelLock | None = None,
    crafting: WheelMaker | None = None,
) -> WheelLock:
    """Return the lock for `inputs`: one wheel per distribution, the best for the base's Python
    and glibc, from the sources that the site can reach. `parent` is the lock with the pins of
    `inputs`; `crafting` builds what no index has as a wheel.

    Raise `LockError` if the requirements contradict each other or the torch stack, with
    the demands' chains; `BlockedError` if the index or PyPI is out of reach and no other
    source has them.
    """
    refuse_every_device(inputs)
    parent = parent or NO_LOCK
    with site.transport() as transport:
        resolver = UvResolver(
            inputs, transport, on_line=on_line, wheelhouse=wheelhouse, held=parent.wheels
        )
        if inputs.unfit:
            raise LockError(f"{inputs.cell_id}: {'; '.join(inputs.unfit)}", hint=UNREAD)
        built = {build.package for build in parent.builds}
        for wheel in parent.wheels:
            if wheel.source or wheel.name in built:  # no index has it
                resolver.give(wheel)
        resolving = _Resolving(
            inputs=inputs,
            resolver=resolver,
            on_line=on_line,
            builds=parent.builds,
            patched=parent.patched,
        )
        if crafting is not None:
            resolving.add_sources(crafting)
            resolving.add_builds(crafting)
            resolving.add_patches(crafting)
            resolving.add_allowed_builds(crafting)
        return resolving.lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A resolution with the stack fixed, and its unmet demands."""

    resolution: Resolution
    distributions: tuple[Distribution, ...]
    demands: tuple[UnmetDemand, ...]


@dataclass(slots=True, kw_only=True)
class _Resolving:
    """The resolution of one cell. `added` are the requirements that ask for wheels of no index."""

    inputs: LockInputs
    resolver: UvResolver
    on_line: Line
    builds: tuple[Recipe, ...]
    patched: tuple[PatchedWheel, ...]
    added: tuple[str, ...] = ()
    unbuilt: tuple[UnbuiltWheel, ...] = ()

    def add_sources(self, crafting: WheelMaker) -> None:
        """Add the wheels of its folders, commits and addresses."""
        for source in self.inputs.sources:
            if source.kind == "wheel":
                wheel, build = self.resolver.wheel_at(source), None
            else:
                wheel, build = crafting.from_source(source)
            if source.name and source.name != wheel.name:
                raise LockError(f"{self.inputs.cell_id}: {source} is {wheel.name}")
            self._add(wheel, build, source.extras)

    def _add(
        self,
        wheel: LockedWheel,
        build: Recipe | UnbuiltWheel | None = None,
        extras: tuple[str, ...] = (),
    ) -> None:
        """Add a wheel, and how it was or is to be built."""
        self.added += (self.resolver.give(wheel, extras),)
        if isinstance(build, UnbuiltWheel):
            self.unbuilt += (build,)
        elif build is not None:
            self.builds += (build,)

    @property
    def _made_names(self) -> set[str]:
        """Return the packages that are built, and those that are to be built."""
        unbuilt = {wheel.package for wheel in self.unbuilt}
        return unbuilt | {build.package for build in self.builds}

    def add_builds(self, crafting: WheelMaker) -> None:
        """Add the wheels built of an index's source archives, at versions that the rest allows."""
        built = self._made_names
        recipes = {
            build.package: build for build in self.inputs.builds if build.package not in built
        }
        if not recipes:
            return
        resolution = self._undecided(tuple(recipes))
        self._refuse_absent("builds", recipes, resolution)
        for name, recipe in recipes.items():
            self._add(*crafting.from_sdist(self.resolver.sdist(resolution, name), recipe))

    def _undecided(self, unread: tuple[str, ...] = ()) -> Resolution:
        """Resolve everything with the stack fixed, whichever package demands another."""
        outcome = self._with_fixed(self._stack(), unread=unread)
        if isinstance(outcome, Contradiction):
            raise self._contradiction(outcome)
        return outcome

    def _refuse_absent(self, key: str, names: Iterable[str], resolution: Resolution) -> None:
        """Raise `LockError` for names below `key` of matrix.yaml that nothing brings."""
        if absent := sorted(set(names) - set(resolution.versions)):
            raise LockError(
                f"{self.inputs.cell_id}: `{key}` names {', '.join(absent)}, which nothing here "
                "asks for",
                hint="remove the entry, or correct its name",
            )

    def add_patches(self, crafting: WheelMaker) -> None:
        """Add the wheels that this image changes, and builds of patched sources."""
        if not self.inputs.patches:
            return
        by_name: dict[str, tuple[Patch, ...]] = {}  # in the order of the matrix
        for patch in self.inputs.patches:
            by_name[patch.package] = (*by_name.get(patch.package, ()), patch)
        inputs = self.inputs
        theirs = {canonicalize_name(Requirement(text).name) for text in inputs.parent}
        patterns = (*inputs.protected, *inputs.libraries)
        for name in by_name:
            if matches(name, patterns):  # the guard vouches for it
                raise LockError(
                    f"{inputs.cell_id}: {name} is of the torch stack, which is what its tag claims",
                    hint="a patched torch is another torch: build it, and give it an index",
                )
            if name in theirs:
                raise LockError(
                    f"{inputs.cell_id}: {name} is of the image that this one is built on",
                    hint="patch it in `patches:` of that image",
                )
        resolution = self._undecided()
        self._refuse_absent("patches", by_name, resolution)
        built = self._made_names | {source.name for source in self.inputs.sources}
        for name, patches in by_name.items():
            original = None
            if name not in built:
                original = self.resolver.wheel(resolution.package(name))
                self._add(crafting.from_wheel(original, patches))
            self.patched += (PatchedWheel(package=name, patches=patches, original=original),)

    def add_allowed_builds(self, crafting: WheelMaker) -> None:
        """Add the wheels that their index has as a source archive only and that matrix.yaml
        allows to build. Their demands are known once they are built, and may add more of them.
        """
        allowed = self.inputs.allow_builds
        while allowed and isinstance(outcome := self._resolution(), Resolution):
            unbuilt = [name for name in outcome.unbuilt if name in allowed]
            if not unbuilt:
                break
            for name in unbuilt:
                recipe = Recipe(package=name, tools=BUILD_TOOLS)
                self._add(*crafting.from_sdist(self.resolver.sdist(outcome, name), recipe))

    def lock(self) -> WheelLock:
        if self.inputs.relax:
            return self._relaxed_lock(self._stack())
        outcome = self._resolution()
        if isinstance(outcome, Contradiction):
            return self._lock_or_refusal(outcome, self._stack())
        if not belonging_to_a_stack(self.inputs, outcome.versions):
            return self._lock(outcome)
        stack = self._stack()
        if not set(outcome.versions) & set(stack.excluded):
            return self._lock(outcome)
        outcome = self._resolution(_constrained(stack))
        if isinstance(outcome, Contradiction):
            return self._lock_or_refusal(outcome, stack)
        return self._lock(outcome.without(stack.answered))

    def _resolution(self, terms: Terms = NO_TERMS) -> Outcome:
        return self.resolver.resolution(self._everything(), terms)

    def _everything(self, requirements: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return all requirements, or with these in the place of the image's own."""
        inputs = self.inputs
        own = inputs.requirements if requirements is None else requirements
        parent = (self.resolver.given_for(text) for text in inputs.parent)
        return (*inputs.stack_requirements, *own, *self.added, *parent)

    def _stack(self) -> Stack:
        """Return the stack without other requirements: its parent's, or what its own pins bring."""
        inputs = self.inputs
        if inputs.parent:
            pins = [Requirement(text) for text in inputs.parent]
            # A parent's pin allows one version.
            versions: dict[str, str] = {
                canonicalize_name(pin.name): clause.version
                for pin in pins
                for clause in pin.specifier
            }
            return stack_of(inputs, versions)
        if not inputs.stack_requirements:
            return stack_of(inputs, {})
        built = sorted(self._made_names & {*inputs.allow_builds})
        built_wheels = (self.resolver.given_for(name) for name in built)
        alone = self.resolver.resolution((*inputs.stack_requirements, *built_wheels))
        if isinstance(alone, Contradiction):
            raise self._contradiction(alone)
        return stack_of(inputs, alone.versions)

    def _with_fixed(self, stack: Stack, **terms: tuple[str, ...]) -> Outcome:
        """Resolve the requirements with the stack fixed, whichever package demands another."""
        fixed = Terms(overrides=stack.pins, excludes=stack.excluded, **terms)  # type: ignore[arg-type]
        return self.resolver.resolution((*self._everything(), *stack.pins), fixed)

    def _held(self, stack: Stack, constraints: tuple[str, ...] = ()) -> _Judged | Contradiction:
        """Resolve with the stack fixed, and find the demands on it that are not met."""
        outcome = self._with_fixed(stack, constraints=constraints)
        if isinstance(outcome, Contradiction):
            return outcome
        distributions = self.resolver.distributions(outcome, without=stack.versions)
        demands = unmet_demands(
            distributions,
            (*self.inputs.requirements, *self.added, *self.inputs.parent),
            stack,
            python=self.inputs.python,
            machine=self.inputs.machine,
        )
        return _Judged(resolution=outcome, distributions=distributions, demands=demands)

    def _relaxed_lock(self, stack: Stack) -> WheelLock:
        """Resolve with the stack fixed; unmet demands are waived, or take another version."""
        reasons: dict[str, str] = {
            canonicalize_name(name): reason for name, reason in self.inputs.relax
        }
        judged = self._held(stack)
        if isinstance(judged, Contradiction):
            raise self._contradiction(judged)
        first = judged
        refused = unmet = _without(judged.demands, reasons)
        constraints: tuple[str, ...] = ()
        for _ in range(_ROUNDS):
            if not unmet:
                break
            requirers = sorted({demand.asker for demand in unmet})
            if not all(requirers):  # the image's own requirement has no other version
                break
            versions = judged.resolution.versions
            constraints += tuple(f"{name}!={versions[name]}" for name in requirers)
            following = self._held(stack, constraints)
            if isinstance(following, Contradiction):  # no version remains
                break
            judged, unmet = following, _without(following.demands, reasons)
        if unmet:
            raise self._refused(dataclasses.replace(first, demands=refused), stack)
        self._refuse_absent("relax", reasons, judged.resolution)
        relaxed = relaxed_of(judged.demands, judged.distributions, reasons)
        for name in sorted(set(reasons) - {entry.package for entry in relaxed}):
            version = judged.resolution.versions[name]
            self.on_line(
                f"{self.inputs.cell_id}: `relax` of {name} is not needed here: {name} {version} "
                "takes this cell's torch stack as it is"
            )
        return self._lock(judged.resolution, relaxed=relaxed)

    def _lock(self, resolution: Resolution, relaxed: tuple[RelaxedPackage, ...] = ()) -> WheelLock:
        inputs = self.inputs
        wheels = self.resolver.wheels(resolution)
        unbuilt = {wheel.package for wheel in self.unbuilt}
        wheels = tuple(wheel for wheel in wheels if wheel.name not in unbuilt)
        foreign = foreign_wheel(wheels, inputs.machine)
        if foreign:
            raise LockError(
                f"{inputs.cell_id}: its requirements bring {foreign}",
                hint=f"name the wheel for {inputs.machine}, or a version that has one",
            )
        if reserved := placeholder(wheels):
            raise LockError(
                f"{inputs.cell_id}: its requirements bring {reserved}",
                hint="leave the requirement out, or lock it in a row of `vendor: amd`",
            )
        return WheelLock(
            cell_id=inputs.cell_id,
            python=inputs.python,
            inputs_digest=inputs.digest,
            wheels=wheels,
            relaxed=relaxed,
            builds=tuple(sorted(self.builds)),
            patched=tuple(sorted(self.patched)),
            unbuilt=tuple(sorted(self.unbuilt)),
        )

    def _lock_or_refusal(self, contradiction: Contradiction, stack: Stack) -> WheelLock:
        """Return the lock. Raise for packages that demand another torch stack, if they do."""
        judged = self._held(stack)
        if isinstance(judged, Contradiction):  # something else contradicts too
            raise self._contradiction(contradiction)
        if judged.demands:
            raise self._refused(judged, stack)
        return self._lock(judged.resolution)

    def _contradiction(self, contradiction: Contradiction) -> LockError:
        inputs, resolver, explanation = self.inputs, self.resolver, contradiction.explanation
        if name := wheelless(explanation):
            return LockError(f"{inputs.cell_id}: {refusal(name)}", hint=way_out(name))
        # Names that no source has, or only one that another hides.
        site, reach = resolver.site, resolver.reach
        reasons, remedies = explain_absences(explanation, inputs, site, reach, resolver.tags)
        lines = "".join(f"\n    {line}" for line in reasons)
        problem = "something that it requires is not to be had" if lines else _TOGETHER
        pinned = [Requirement(text).name for text in (*inputs.stack_requirements, *inputs.parent)]
        text = explanation.replace(inputs.cell_id, "")
        is_about_stack = any(re.search(rf"\b{re.escape(name)}\b", text) for name in pinned)
        hint = remedies or (_STACK if is_about_stack else _EACH_OTHER)
        return LockError(f"{inputs.cell_id}: {problem}\n{explanation}{lines}", hint=hint)

    def _refused(self, judged: _Judged, stack: Stack) -> LockError:
        demands = judged.demands
        lines = "".join(f"\n    {demand}" for demand in demands)
        requirers = sorted({demand.asker for demand in demands})
        if not all(requirers):
            hint = "change the requirement, or choose another torch for the row in matrix.yaml"
        elif fitting := (
            self._fitting_extras(judged.distributions, stack)
            or self._fitting_versions(demands, stack)
        ):
            hint = f"{fitting} would leave the stack as it is; or {_RELAX}"
        else:
            names = " or ".join(requirers)
            hint = f"no version of {names} was found that takes this stack; {_RELAX}"
        return LockError(
            f"{self.inputs.cell_id}: its requirements ask for another torch stack{lines}", hint=hint
        )

    def _fitting_extras(self, distributions: Iterable[Distribution], stack: Stack) -> str:
        """Return a requirement of the image with an extra for another release of a toolkit
        (`jax[cuda13]` for `jax[cuda12]`) that would leave the stack as it is; "" where
        there is none.
        """
        requires = {package.name: " ".join(package.requires) for package in distributions}
        for text in self.inputs.requirements:
            requirement = Requirement(text)
            for extra in sorted(requirement.extras):
                for other in _alike(extra, requires.get(canonicalize_name(requirement.name), "")):
                    changed = Requirement(text)
                    changed.extras = {*requirement.extras, other} - {extra}
                    others = [each for each in self.inputs.requirements if each != text]
                    if self._fitting((*others, str(changed)), stack) is not None:
                        return str(changed)
        return ""

    def _fitting_versions(self, demands: tuple[UnmetDemand, ...], stack: Stack) -> str:
        """Return versions of open requirements of the image that fit the stack, or ""."""
        inputs = self.inputs
        roots = {requirement_name(demand.chain[0]) for demand in demands}
        opened = []
        for requirement in map(Requirement, inputs.requirements):
            if canonicalize_name(requirement.name) in roots:  # at any version
                requirement.specifier = SpecifierSet()
            opened.append(str(requirement))
        if (*opened,) == inputs.requirements:
            return ""
        fitting = self._fitting(opened, stack)
        if fitting is None or not roots <= set(fitting.versions):
            return ""
        return " with ".join(f"{name} {fitting.versions[name]}" for name in sorted(roots))

    def _fitting(self, requirements: Iterable[str], stack: Stack) -> Resolution | None:
        """Resolve with these in the place of the image's own, the stack as it is."""
        everything = self._everything(requirements)
        outcome = self.resolver.resolution(everything, _constrained(stack))
        return outcome if isinstance(outcome, Resolution) else None


def _alike(extra: str, requires: str) -> list[str]:
    """Return the extras that demands name and that differ from `extra` in their digits alone."""
    named = set(re.findall(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requires)) - {extra}
    if not any(candidate.isdigit() for candidate in extra):
        return []
    shape = re.sub(r"\d+", "#", extra)
    return sorted(
        (candidate for candidate in named if re.sub(r"\d+", "#", candidate) == shape), reverse=True
    )


def _constrained(stack: Stack) -> Terms:
    return Terms(constraints=stack.constraints, answered=stack.shims)


def _without(demands: Iterable[UnmetDemand], names: Collection[str]) -> tuple[UnmetDemand, ...]:
    return tuple(demand for demand in demands if demand.asker not in names)
