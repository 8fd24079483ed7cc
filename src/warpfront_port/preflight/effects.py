"""The effect of a requirement on one torch stack: of its own line, from the file alone; and of the
packages behind it: what to resolve, and whose demands lead back to the line. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.wheels.core_metadata import (
    Distribution,
    marker_environment,
    marker_holds,
    plain_requirement,
    read_wheel_name,
    split_label,
)
from warpfront.wheels.lock.values import UnmetDemand
from warpfront.wheels.resolve.demands import unmet_demands
from warpfront_checks.guard.policy import Policy
from warpfront_checks.guard.refusal import explanation
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import DeclaredRequirement, Kind
from warpfront_port.preflight.findings import Breach
from warpfront_port.preflight.stacks import CellStack

TORCH_HOSTS = ("download.pytorch.org", "download-r2.pytorch.org", "repo.amd.com", "repo.radeon.com")
_NIGHTLIES = "rocm.nightlies.amd.com"
_CHANNELS = frozenset({"whl", "nightly", "test", "release", "v2"})
# Labels of wheels for the torch of their build: torch2.6, torch-2.0.0+cu118, pt24cu121.
_BUILT_FOR = re.compile(r"(?:torch-?|(?<![a-z])pt)(\d)\.?(\d{1,2})(?!\d)", re.IGNORECASE)
_OF_CONDA = frozenset({"torch", "pytorch", "pytorch-cuda", "torchvision"})
# From these on the companion no longer pins one torch (PyPI metadata).
_FLOATS_FROM = {"torchvision": Version("2.14.0"), "torchaudio": Version("2.11.0")}


def breach_of(declared: DeclaredRequirement, stack: CellStack) -> Breach | None:
    """Return the breach of a requirement on this stack; None if it is met or excluded."""
    if declared.kind is Kind.INDEX:
        name = torch_index(declared.text)
        if name is None:
            return _of_other_abi(declared.text, stack)
        why = f"{name} has other builds than this torch"
        return Breach(rule=findings.INDEX, why=why) if name != stack.index else None
    if declared.kind is Kind.CONDA:
        why = f"conda's {declared.text} is not the image's torch"
        is_torch = canonicalize_name(declared.text) in _OF_CONDA
        return Breach(rule=findings.CONDA, why=why) if is_torch else None
    requirement = declared.requirement
    if not applies(requirement, stack, declared.group):
        return None
    if declared.kind is Kind.BUILD:
        why = "the build sees the newest torch that fits, not this one"
        return Breach(rule=findings.ISOLATED, why=why) if declared.name == "torch" else None
    of = _of_url if requirement.url else _of_requirement
    return of(requirement, stack)


def applies(requirement: Requirement, stack: CellStack, group: str = "") -> bool:
    """Return whether the requirement's marker is true for this stack's Python, on Linux."""
    if requirement.marker is None:
        return True
    environment = {**marker_environment(stack.python, stack.inputs.machine), "extra": group}
    try:
        return marker_holds(requirement.marker, environment)
    except UndefinedEnvironmentName:
        return True


def _of_requirement(requirement: Requirement, stack: CellStack) -> Breach | None:
    versions, name = stack.stack.versions, canonicalize_name(requirement.name)
    version = versions.get(name, stack.stack.answered.get(name))
    if version is not None and not requirement.specifier.contains(version, prereleases=True):
        refusing = (c for c in requirement.specifier if not c.contains(version, prereleases=True))
        text = ",".join(sorted(map(str, refusing))) or str(requirement.specifier)
        image_has = "this torch" if name == "torch" else f"{name} {version}"
        return Breach(rule=findings.MOVED, why=f"`{text}` does not accept {image_has}")
    if name in versions:
        return None
    if name in stack.stack.excluded:
        return _of_foreign(name, stack)
    need = stack.stack.needs.get(name)
    if need is not None and not need.accepts_some(requirement.specifier):
        return Breach(rule=findings.NEEDS, why=need.text(name))
    return _of_companion(requirement, name, stack)


def joint_breaches(
    declared_requirements: Iterable[DeclaredRequirement], stack: CellStack
) -> Iterator[tuple[DeclaredRequirement, Breach]]:
    """Return the lines that leave no version of what torch needs together, though each does."""
    by_name: dict[str, list[tuple[DeclaredRequirement, SpecifierSet]]] = {}
    for declared in declared_requirements:
        if declared.is_installed and declared.kind in {Kind.REQUIREMENT, Kind.CONSTRAINT}:
            requirement, name = declared.requirement, declared.name
            if name in stack.stack.needs and not requirement.url and applies(requirement, stack):
                by_name.setdefault(name, []).append((declared, requirement.specifier))
    for name, lines in by_name.items():
        need, together = stack.stack.needs[name], SpecifierSet()
        for _, specifier in lines:
            together &= specifier
        alone = all(need.accepts_some(specifier) for _, specifier in lines)
        if alone and not together.is_unsatisfiable() and not need.accepts_some(together):
            places = ", ".join(dict.fromkeys(declared.where for declared, _ in lines))
            why = f"{need.text(name)}; {places} together accept {together} alone"
            breach = Breach(rule=findings.NEEDS, why=why)
            yield from ((declared, breach) for declared, specifier in lines if specifier)


def _of_foreign(name: str, stack: CellStack) -> Breach:
    """Return the breach of a name that is forbidden here, or that a shim answers for: triton's."""
    if name == "triton":
        why = "pip's triton is another build's than this torch's"
        return Breach(rule=findings.TRITON, why=why)
    why = stack.stack.foreign[name].replace(".", " ")
    return Breach(rule=findings.FOREIGN, why=f"{name} must not come: {why}")


def _of_companion(requirement: Requirement, name: str, stack: CellStack) -> Breach | None:
    """Return the breach of torchvision or torchaudio, which the image lacks: every other
    version pins another torch.
    """
    paired = stack.paired.get(name)
    if paired is None:
        return None
    torch = Version(stack.torch)
    if requirement.specifier.contains(paired, prereleases=True):
        # PyPI's build of a companion is CUDA's: right where torch is PyPI's own, without a label.
        why = f"the image lacks {name}, and PyPI's {paired} is another build than this torch's"
        return Breach(rule=findings.COMPANION, why=why) if torch.local is not None else None
    why = (
        f"{name} {paired} is the one for torch {stack.torch}; "
        f"`{requirement.specifier}` accepts none but those that pin another torch"
    )
    return None if torch >= _FLOATS_FROM[name] else Breach(rule=findings.MOVED, why=why)


def _of_url(requirement: Requirement, stack: CellStack) -> Breach | None:
    name = canonicalize_name(requirement.name)
    plain, label = split_label(unquote(urlsplit(str(requirement.url)).path.rpartition("/")[2]))
    wheel = read_wheel_name(plain)
    version, label = (str(wheel.version), label) if wheel else ("", "")
    torch_version = stack.stack.versions.get(name)
    if torch_version is not None:
        ours = stack.variants.get(name, "")
        if (version, label) == (torch_version, ours):
            return None
        brings = _build(f"{name} {version}", label) if version else f"another {name}"
        why = f"the URL brings {brings}; the image has {_build(torch_version, ours)}"
        return Breach(rule=findings.MOVED, why=why)
    if name in stack.stack.excluded:
        return _of_foreign(name, stack)
    return _of_other_abi(str(requirement.url), stack)


def _build(version: str, label: str) -> str:
    return f"{version} (variant {label})" if label else version


def _of_other_abi(url: str, stack: CellStack) -> Breach | None:
    match = _BUILT_FOR.search(unquote(url))
    ours = ".".join(str(part) for part in Version(stack.torch).release[:2])
    built_for = f"{match[1]}.{match[2]}" if match else ours
    if built_for == ours:
        return None
    return Breach(rule=findings.OTHER_ABI, why=f"built for torch {built_for}")


def torch_index(url: str) -> str | None:
    """Return the name of an index that serves torch (`cu128`, `rocm6.4`); None for any other."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host not in {*TORCH_HOSTS, _NIGHTLIES}:
        return None
    names = [part for part in parts.path.split("/") if part]
    tags = [part for part in names if part not in _CHANNELS]
    nightly = "nightly " if "nightly" in names or host == _NIGHTLIES else ""
    return nightly + (tags[-1] if tags else host)


def line_to_write(
    declared: DeclaredRequirement, rule: str, stacks: Iterable[CellStack]
) -> str | None:
    """Return the line to write instead of `declared`, so that all `stacks` meet it.

    It has those of its clauses that they meet, and an exact pin as the floor that it meant. "" =
    drop it, None = no line would help.
    """
    if rule in {findings.INDEX, findings.FOREIGN, findings.TRITON}:
        return ""
    if rule not in {findings.MOVED, findings.NEEDS} or declared.kind is Kind.CONDA:
        return None
    requirement, stacks = declared.requirement, tuple(stacks)
    met: list[str] = []
    for clause in () if requirement.url else sorted(requirement.specifier, key=str):
        floor = clause.version.removesuffix(".*").partition("+")[0]
        meant = f">={floor}" if clause.operator in {"==", "===", "~="} else str(clause)
        texts = (str(clause), meant)
        hold = (t for t in texts if all(_accepts(requirement.name, t, s) for s in stacks))
        met += list(hold)[:1]
    clauses = ",".join(dict.fromkeys(met))
    if rule == findings.NEEDS:
        needs = (stack.stack.needs.get(declared.name) for stack in stacks)
        needed = SpecifierSet(",".join(str(need.specifier) for need in needs if need))
        wider = (clause for clause in clauses.split(",") if clause)
        narrower = [clause for clause in wider if not SpecifierSet(clause).is_superset(needed)]
        specifiers = SpecifierSet(",".join(narrower)) & needed
        if specifiers.is_unsatisfiable():
            return None
        # The same versions, without the clauses that others imply.
        shortest = sorted(specifiers, key=str)
        for clause in tuple(shortest):
            rest = SpecifierSet(",".join(str(other) for other in shortest if other is not clause))
            if rest and rest.is_subset(SpecifierSet(str(clause))):
                shortest.remove(clause)
        clauses = ",".join(map(str, shortest))
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{clauses}{marker}"


def _accepts(name: str, clause: str, stack: CellStack) -> bool:
    try:
        specifier = SpecifierSet(clause)
    except ValueError:
        return False
    key = canonicalize_name(name)
    if need := stack.stack.needs.get(key):
        return need.accepts_some(specifier)
    torch = stack.stack
    version = torch.versions.get(key) or torch.answered.get(key) or stack.paired.get(key)
    return version is None or specifier.contains(version, prereleases=True)


_PREFIX = "warpfront guard: "


@dataclass(frozen=True, slots=True, kw_only=True)
class StackBreaches:
    """The breaches of a stack by packages, each with the line that leads to it; `unknown` is what
    could not be followed, `notes` what changes nothing.
    """

    breaches: tuple[tuple[DeclaredRequirement, Breach], ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLines:
    """The lines of a project on one stack. `local` are names that no index serves."""

    declared: tuple[DeclaredRequirement, ...]
    stack: CellStack
    local: frozenset[str] = frozenset()

    def followed(self, kind: Kind = Kind.REQUIREMENT) -> tuple[DeclaredRequirement, ...]:
        """Return the lines that an installer resolves on this stack: installed, from an index, and
        without a marker that is false on it.
        """
        return tuple(
            line
            for line in self.declared
            if line.kind is kind
            and line.is_installed
            and not line.requirement.url
            and line.name not in self.local
            and applies(line.requirement, self.stack, line.group)
        )

    def constraints(self) -> tuple[str, ...]:
        """Return the constraints that an installer applies, without those that are findings."""
        lines = (n for n in self.followed(Kind.CONSTRAINT) if not breach_of(n, self.stack))
        return tuple(plain_requirement(line.requirement) for line in lines)

    def rehearsed(self) -> tuple[str, ...]:
        """Return the lines to try on the stack as it is installed.

        They have no markers: a resolver may know no extra of the project. Lines that are findings
        already are skipped or lose their versions, so that they hide no other finding.
        """
        lines: list[str] = []
        for line in self.followed():
            if line.name in self.stack.stack.excluded:
                continue
            breach = breach_of(line, self.stack)
            if breach is None or breach.rule == findings.COMPANION:
                lines.append(plain_requirement(line.requirement))
            elif line.name in self.stack.stack.versions:
                lines.append(line.requirement.name)
        return tuple(dict.fromkeys(lines))

    def unfollowed(self) -> Iterator[str]:
        """Yield the lines whose packages are at a URL: only a build might tell their demands."""
        for line in self.declared:
            if line.kind is Kind.REQUIREMENT and line.is_installed and line.requirement.url:
                is_held = line.name in self.stack.stack.versions
                if applies(line.requirement, self.stack, line.group) and not is_held:
                    name = line.requirement.name
                    yield f"{line.where}: {name} is at a URL; what it demands is not known"

    def unmet(
        self, lines: tuple[str, ...], distributions: Iterable[Distribution]
    ) -> Iterator[tuple[DeclaredRequirement, UnmetDemand]]:
        """Yield each unmet demand of a package with the line that brought the package."""
        stack, machine = self.stack, self.stack.inputs.machine
        demands = unmet_demands(
            distributions, lines, stack.stack, python=stack.python, machine=machine, has_shims=False
        )
        by_name: dict[str, DeclaredRequirement] = {}
        for line in self.declared:
            if line.kind is Kind.REQUIREMENT and line.is_installed:
                by_name.setdefault(line.name, line)
        for demand in demands:
            if demand.chain:
                first = demand.chain[0].partition(" ")[0].partition("[")[0]
                asking = by_name.get(canonicalize_name(first))
                if asking is not None:
                    yield asking, demand


def breach_from(demand: UnmetDemand, stack: CellStack) -> Breach:
    """Return the breach by a package's demand: its chain (`vllm 0.11.0 -> torch==2.8.0`), the
    reason and the way out.
    """
    name = canonicalize_name(Requirement(demand.wanted).name)
    if name == "triton" and name not in stack.stack.versions:
        rule = findings.TRITON
    elif name in stack.stack.foreign:
        rule = findings.FOREIGN
    elif name in stack.stack.needs:
        rule = findings.NEEDS
    else:
        rule = findings.MOVED_BY_DEPENDENCY
    chain = " -> ".join((*demand.chain, demand.wanted))
    # The guard's own sentences about a demand: the image's version, and the next step.
    shims = {name: version.partition("+")[0] for name, version in stack.stack.answered.items()}
    reasons = dict.fromkeys(shims, "this torch has another build of it")
    policy = Policy(
        cell="",
        title=stack.title,
        protected=dict(stack.stack.versions),
        sentinels={**stack.stack.foreign, **reasons},
        needs={name: str(need.specifier) for name, need in stack.stack.needs.items()},
    )
    asker, requirement = demand.chain[-1], Requirement(demand.wanted)
    text = f"{asker} depends on {requirement.name}{requirement.specifier}"
    lines = (line.removeprefix(_PREFIX) for line in explanation(text, policy).splitlines())
    return Breach(rule=rule, why="\n".join((chain, *lines)))
