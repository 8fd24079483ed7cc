"""Known vulnerabilities of an image: what a scanner printed, and what matrix.yaml accepts. Pure.

Read are the JSON of grype (anchore/grype@153a1d9aabd7f6c085962cef880928e745ad2881,
`grype/presenter/models/document.go`, `match.go`, `vulnerability.go`, `alert.go`, `ignore.go`) and
of pip-audit (https://github.com/pypa/pip-audit, `pip_audit/_format/json.py`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from packaging.utils import canonicalize_name

from warpfront.matrix.language import AllowedVulnerability
from warpfront.release.registry.contract import read_object
from warpfront.release.sbom.parts import Part
from warpfront.release.statements.statement import text_in
from warpfront.system.strict_values import object_in

_ORDER = attrgetter("package", "version", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vulnerability:
    """An advisory about a package of an image. `aliases` are its other names, `fixed` versions
    without it, `accepted` why matrix.yaml allows it, "" if it does not.
    """

    id: str
    package: str
    version: str
    aliases: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    severity: str = ""
    accepted: str = ""

    def __str__(self) -> str:
        fixed = f", fixed in {', '.join(self.fixed)}" if self.fixed else ", no fix known"
        severity = f" ({self.severity})" if self.severity else ""
        accepted = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{self.package} {self.version}: {self.id}{severity}{fixed}{accepted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A scanner's findings in a cell's image; `undetermined` has what it could not scan."""

    cell_id: str
    scanner: str
    found: tuple[Vulnerability, ...]
    undetermined: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[Vulnerability, ...]:
        return tuple(vulnerability for vulnerability in self.found if not vulnerability.accepted)

    def __str__(self) -> str:
        counts = f"{len(self.open)} open, {len(self.found) - len(self.open)} accepted"
        counted = f"known vulnerabilities by {self.scanner}: {counts}"
        lines = [counted if self.scanner else "not determined"]
        lines += [f"    {vulnerability}" for vulnerability in self.found]
        lines += [f"    not determined: {reason}" for reason in self.undetermined]
        return "\n".join(lines)


def audited_requirements(parts: Iterable[Part]) -> str:
    """Return the wheels as requirements of their public versions: advisories know no local labels
    (`2.13.0`, not `2.13.0+cpu`).
    """
    lines = {
        f"{part.name}=={part.version.partition('+')[0]}"
        for part in parts
        if part.purl.startswith("pkg:pypi/") and not part.within
    }
    return "".join(f"{line}\n" for line in sorted(lines))


def read_grype(text: str) -> tuple[tuple[Vulnerability, ...], tuple[str, ...]]:
    """Return what `grype sbom:FILE -o json` printed: its matches, with those that its own
    configuration ignores, since matrix.yaml alone accepts advisories; and the packages that it
    could not match. Raises `ValueError`.
    """
    document = read_object(text.encode())
    ignored = _objects(document, "ignoredMatches") if document.get("ignoredMatches") else []
    vulnerabilities = []
    for match in (*_objects(document, "matches"), *ignored):
        about, artifact = object_in(match, "vulnerability"), object_in(match, "artifact")
        related = _objects(match, "relatedVulnerabilities")
        fix = object_in(about, "fix").get("versions")
        found = _known(about, artifact, sorted({text_in(entry, "id") for entry in related}), fix)
        severity = text_in(about, "severity").lower()
        vulnerabilities.append(dataclasses.replace(found, severity=severity))
    # Grype's alerts, by their words: distributions past their end or without a database, whose
    # packages have no matches for that reason.
    listed = _objects(document, "alertsByPackage") if document.get("alertsByPackage") else []
    packages = Counter(
        text_in(alert, "message") or text_in(alert, "type")
        for target in listed
        for alert in _objects(target, "alerts")
    )
    unmatched = tuple(f"{count} packages: {message}" for message, count in sorted(packages.items()))
    return tuple(sorted(set(vulnerabilities), key=_ORDER)), unmatched


def read_pip_audit(text: str) -> tuple[tuple[Vulnerability, ...], tuple[str, ...]]:
    """Return what `pip-audit -f json` found, and could not audit. Raises `ValueError`."""
    vulnerabilities: list[Vulnerability] = []
    skipped = []
    for dependency in _objects(read_object(text.encode()), "dependencies"):
        if "skip_reason" in dependency:
            skipped.append(f"{text_in(dependency, 'name')}: {text_in(dependency, 'skip_reason')}")
        for vuln in _objects(dependency, "vulns") if "vulns" in dependency else ():
            fixed = vuln.get("fix_versions")
            vulnerabilities.append(_known(vuln, dependency, vuln.get("aliases"), fixed))
    return tuple(sorted(set(vulnerabilities), key=_ORDER)), tuple(skipped)


def _known(
    about: Mapping[str, Any], part: Mapping[str, Any], aliases: object, fixed: object
) -> Vulnerability:
    return Vulnerability(
        id=text_in(about, "id"),
        package=text_in(part, "name"),
        version=text_in(part, "version"),
        aliases=tuple(map(str, aliases)) if isinstance(aliases, list) else (),
        fixed=tuple(map(str, fixed)) if isinstance(fixed, list) else (),
    )


def with_accepted(audit: Audit, allowed: Iterable[AllowedVulnerability]) -> Audit:
    """Return the audit with what matrix.yaml accepts marked as such, by any name of an advisory."""
    allowed = tuple(allowed)

    def marked(vulnerability: Vulnerability) -> Vulnerability:
        for entry in allowed:
            is_named = entry.id in {vulnerability.id, *vulnerability.aliases}
            package = canonicalize_name(vulnerability.package)
            if is_named and entry.package in {"", package}:
                reason = f"{entry.reason} (until {entry.until})"
                return dataclasses.replace(vulnerability, accepted=reason)
        return vulnerability

    return dataclasses.replace(audit, found=tuple(map(marked, audit.found)))


def _objects(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = document.get(name)
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ValueError(f"it has no list of {name}")
    return listed
