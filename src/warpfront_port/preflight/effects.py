"""The effect of one requirement on one torch stack, from the file alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.wheels.requirement_lines import marker_environment, marker_holds
from warpfront.wheels.resolve.variants import split_label
from warpfront.wheels.wheel_names import read_wheel_name
from warpfront_port.preflight import rule_texts
from warpfront_port.preflight.breaches import Breach
from warpfront_port.preflight.declared import DeclaredRequirement, Kind
from warpfront_port.preflight.stacks import CellStack

TORCH_HOSTS = ("download.pytorch.org", "download-r2.pytorch.org", "repo.amd.com", "repo.radeon.com")
_NIGHTLIES = "rocm.nightlies.amd.com"
_CHANNELS = frozenset({"whl", "nightly", "test", "release", "v2"})
# Labels of wheels for the torch of their build: torch2.6, torch-2.0.0+cu118, pt24cu121.
_BUILT_FOR = re.compile(r"(?:torch-?|(?<![a-z])pt)(\d)\.?(\d{1,2})(?!\d)", re.IGNORECASE)
# From these on the companion no longer pins one torch (PyPI metadata).
_FLOATS_FROM = {"torchvision": Version("2.14.0"), "torchaudio": Version("2.11.0")}


def breach_of(declared_requirement: DeclaredRequirement, stack: CellStack) -> Breach | None:
    """Return the breach of a requirement on this stack; None if it is met or excluded."""
    if declared_requirement.kind is Kind.INDEX:
        return _of_index(declared_requirement.text, stack)
    if declared_requirement.kind is Kind.CONDA:
        return _of_conda(declared_requirement.text)
    requirement = Requirement(declared_requirement.text)
    if not applies(requirement, stack, declared_requirement.group):
        return None
    if declared_requirement.kind is Kind.BUILD:
        return _of_build(requirement)
    if requirement.url:
        return _of_url(requirement, stack)
    return _of_requirement(requirement, stack)


def applies(requirement: Requirement, stack: CellStack, group: str = "") -> bool:
    """Return whether the requirement's marker is true for this stack's Python, on Linux."""
    if requirement.marker is None:
        return True
    environment = {**marker_environment(stack.python, stack.inputs.machine), "extra": group}
    try:
        return marker_holds(requirement.marker, environment)
    except UndefinedEnvironmentName:
        return True


def holds(requirement: Requirement, stack: CellStack) -> bool:
    """Return whether the stack's own distribution meets the requirement."""
    return not requirement.url and _of_requirement(requirement, stack) is None


def _of_requirement(requirement: Requirement, stack: CellStack) -> Breach | None:
    name = canonicalize_name(requirement.name)
    version = stack.stack.held.get(name)
    if version is not None:
        if requirement.specifier.contains(version, prereleases=True):
            return None
        return Breach(rule=rule_texts.MOVED, why=_refusal(requirement, name, version))
    shim = stack.stack.answered.get(name)
    if shim is not None:
        return _of_answered(requirement, name, shim)
    if name in stack.stack.foreign:
        return _of_foreign(name, stack)
    need = stack.stack.needs.get(name)
    if need is not None and not need.accepts_some(requirement.specifier):
        return Breach(rule=rule_texts.NEEDS, why=need.text(name))
    return _of_companion(requirement, name, stack)


def joint_breaches(
    declared_requirements: Iterable[DeclaredRequirement], stack: CellStack
) -> Iterator[tuple[DeclaredRequirement, Breach]]:
    """Return the lines that leave no version of what torch needs together, though each does."""
    by_name: dict[str, list[tuple[DeclaredRequirement, SpecifierSet]]] = {}
    for declared in declared_requirements:
        if declared.is_installed and declared.kind in {Kind.REQUIREMENT, Kind.CONSTRAINT}:
            requirement = Requirement(declared.text)
            name = str(canonicalize_name(requirement.name))
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
            narrowing = (declared for declared, specifier in lines if specifier)
            yield from (
                (declared, Breach(rule=rule_texts.NEEDS, why=why)) for declared in narrowing
            )


def _of_foreign(name: str, stack: CellStack) -> Breach:
    why = stack.stack.foreign.get(name, "another.distribution.answers.for.it")
    if name == "triton":
        return Breach(
            rule=rule_texts.TRITON, why="pip's triton is another build's than this torch's"
        )
    return Breach(rule=rule_texts.FOREIGN, why=f"{name} must not come: {why.replace('.', ' ')}")


def _refusal(requirement: Requirement, name: str, version: str) -> str:
    clauses = [
        str(clause)
        for clause in requirement.specifier
        if not clause.contains(version, prereleases=True)
    ]
    text = ",".join(sorted(clauses)) or str(requirement.specifier)
    return f"`{text}` does not accept {'this torch' if name == 'torch' else f'{name} {version}'}"


def _of_answered(requirement: Requirement, name: str, shim: str) -> Breach:
    if requirement.specifier.contains(shim, prereleases=True):
        why = f"pip's {name} is another build's than this torch's"
        return Breach(rule=rule_texts.TRITON, why=why)
    return Breach(rule=rule_texts.MOVED, why=_refusal(requirement, name, shim))


def _of_companion(requirement: Requirement, name: str, stack: CellStack) -> Breach | None:
    """Return the breach of torchvision or torchaudio, which the image lacks: every other
    version pins another torch.
    """
    paired = stack.paired.get(name)
    if paired is None:
        return None
    if requirement.specifier.contains(paired, prereleases=True):
        # PyPI's build of a companion is CUDA's: it is right where torch is PyPI's own, without a
        # label.
        why = f"the image lacks {name}, and PyPI's {paired} is another build than this torch's"
        return Breach(rule=rule_texts.COMPANION, why=why) if Version(stack.torch).local else None
    if Version(stack.torch) >= _FLOATS_FROM[name]:
        return None
    why = (
        f"{name} {paired} is the one for torch {stack.torch}; "
        f"`{requirement.specifier}` accepts none but those that pin another torch"
    )
    return Breach(rule=rule_texts.MOVED, why=why)


def _of_build(requirement: Requirement) -> Breach | None:
    if canonicalize_name(requirement.name) != "torch":
        return None
    why = "the build sees the newest torch that fits, not this one"
    return Breach(rule=rule_texts.ISOLATED, why=why)


def _of_url(requirement: Requirement, stack: CellStack) -> Breach | None:
    name = canonicalize_name(requirement.name)
    # The version and the variant's label of a wheel's URL; "" of anything else.
    plain, label = split_label(unquote(urlsplit(str(requirement.url)).path.rpartition("/")[2]))
    wheel = read_wheel_name(plain)
    version, label = (str(wheel.version), label) if wheel else ("", "")
    torch_version = stack.stack.held.get(name)
    if torch_version is not None:
        ours = stack.variants.get(name, "")
        if (version, label) == (torch_version, ours):
            return None
        brings = _build(f"{name} {version}", label) if version else f"another {name}"
        why = f"the URL brings {brings}; the image has {_build(torch_version, ours)}"
        return Breach(rule=rule_texts.MOVED, why=why)
    if name in stack.stack.foreign or name in stack.stack.answered:
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
    return Breach(rule=rule_texts.OTHER_ABI, why=f"built for torch {built_for}")


def _of_index(url: str, stack: CellStack) -> Breach | None:
    name = torch_index(url)
    if name is None:
        return _of_other_abi(url, stack)
    if name == stack.index:
        return None
    return Breach(rule=rule_texts.INDEX, why=f"{name} has other builds than this torch")


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


def _of_conda(name: str) -> Breach | None:
    if canonicalize_name(name) not in {"torch", "pytorch", "pytorch-cuda", "torchvision"}:
        return None
    return Breach(rule=rule_texts.CONDA, why=f"conda's {name} is not the image's torch")


def line_to_write(
    declared_requirement: DeclaredRequirement, rule: str, stacks: Iterable[CellStack]
) -> str | None:
    """Return the line to write instead of `asked`, so that all `stacks` meet it.

    It has those of its clauses that they meet, and an exact pin as the floor that it meant. "" =
    drop it, None = no line would help.
    """
    if rule in {rule_texts.INDEX, rule_texts.FOREIGN, rule_texts.TRITON}:
        return ""
    if rule not in {rule_texts.MOVED, rule_texts.NEEDS} or declared_requirement.kind is Kind.CONDA:
        return None
    requirement = Requirement(declared_requirement.text)
    name = requirement.name + (
        f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    )
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    stacks = tuple(stacks)
    needed = SpecifierSet()
    for stack in stacks if rule == rule_texts.NEEDS else ():
        need = stack.stack.needs.get(canonicalize_name(requirement.name))
        needed &= need.specifier if need else SpecifierSet()
    clauses = _clauses_that_hold(requirement, stacks)
    narrower = [clause for clause in clauses if not SpecifierSet(clause).is_superset(needed)]
    specifiers = SpecifierSet(",".join(narrower)) & needed if rule == rule_texts.NEEDS else None
    if specifiers is not None and specifiers.is_unsatisfiable():
        return None
    return f"{name}{','.join(clauses) if specifiers is None else _shortest(specifiers)}{marker}"


def _shortest(specifier: SpecifierSet) -> SpecifierSet:
    """Return the same versions without the clauses that others imply."""
    clauses = sorted(specifier, key=str)
    for clause in tuple(clauses):
        rest = SpecifierSet(",".join(str(other) for other in clauses if other is not clause))
        if rest and rest.is_subset(SpecifierSet(str(clause))):
            clauses.remove(clause)
    return SpecifierSet(",".join(map(str, clauses)))


def _clauses_that_hold(requirement: Requirement, stacks: tuple[CellStack, ...]) -> tuple[str, ...]:
    clauses: list[str] = []
    for clause in () if requirement.url else sorted(requirement.specifier, key=str):
        floor = clause.version.removesuffix(".*").partition("+")[0]
        meant = f">={floor}" if clause.operator in {"==", "===", "~="} else str(clause)
        for text in dict.fromkeys((str(clause), meant)):
            if all(_accepts(requirement.name, text, stack) for stack in stacks):
                clauses.append(text)
                break
    return tuple(dict.fromkeys(clauses))


def _accepts(name: str, clause: str, stack: CellStack) -> bool:
    try:
        specifier = SpecifierSet(clause)
    except InvalidSpecifier:
        return False
    key = canonicalize_name(name)
    if need := stack.stack.needs.get(key):
        return need.accepts_some(specifier)
    version = stack.stack.held.get(key) or stack.stack.answered.get(key) or stack.paired.get(key)
    return version is None or specifier.contains(version, prereleases=True)
