"""Known vulnerabilities: what scanners print, what matrix.yaml accepts, what is not determined."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import cast

import pytest
from bills import a_bill

from warpfront.commands.bills import audit_bill, require_current
from warpfront.errors import CommandFailedError, MatrixError
from warpfront.matrix import compat
from warpfront.matrix.language import AllowedVulnerability
from warpfront.matrix.reading import read_matrix
from warpfront.release.vulnerabilities import (
    Audit,
    Vulnerability,
    audited_requirements,
    read_grype,
    read_pip_audit,
    with_accepted,
)
from warpfront.system.process import Command, Completed

ROOT = Path(__file__).parents[3]
# In the form of `grype sbom:FILE -o json` (anchore/grype@153a1d9a, grype/presenter/models).
GRYPE = {
    "matches": [
        {
            "vulnerability": {
                "id": "GHSA-aaaa-bbbb-cccc",
                "severity": "High",
                "fix": {"versions": ["3.1.6"], "state": "fixed"},
            },
            "relatedVulnerabilities": [{"id": "CVE-2025-1"}],
            "artifact": {"name": "Jinja2", "version": "3.1.5", "type": "python"},
        },
        {
            "vulnerability": {"id": "CVE-2026-2", "severity": "Low", "fix": {"versions": []}},
            "relatedVulnerabilities": [],
            "artifact": {"name": "bash", "version": "5.2", "type": "deb"},
        },
    ],
    "descriptor": {"name": "grype", "version": "0.121.2"},
}
# In the form of pip_audit/_format/json.py.
PIP_AUDIT = {
    "dependencies": [
        {
            "name": "jinja2",
            "version": "3.1.5",
            "vulns": [
                {
                    "id": "GHSA-aaaa-bbbb-cccc",
                    "fix_versions": ["3.1.6"],
                    "aliases": ["CVE-2025-1"],
                    "description": "x",
                }
            ],
        },
        {"name": "uv", "version": "0.13.9", "vulns": []},
        {"name": "torch", "skip_reason": "Dependency not found on PyPI: torch (2.13.0)"},
    ],
    "fixes": [],
}
JINJA = AllowedVulnerability(
    id="CVE-2025-1", package="jinja2", until="2026-12-31", reason="no templates of others"
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return tmp_path


def install(folder: Path, name: str) -> dict[str, str]:
    (folder / name).touch(0o755)
    return {"PATH": str(folder)}


def printing(text: str, *, code: int = 0, stderr: str = "", ran: list[Command] | None = None):  # type: ignore[no-untyped-def]
    def run(command: Command) -> Completed:
        if ran is not None:
            ran.append(command)
        return Completed(command=command, returncode=code, stdout=text, stderr=stderr)

    return run


def test_grype_finds_wheels_and_debian_packages() -> None:
    (jinja, bash), unmatched = read_grype(json.dumps(GRYPE))
    assert unmatched == ()
    assert str(bash) == "bash 5.2: CVE-2026-2 (low), no fix known"
    assert (jinja.id, jinja.aliases, jinja.fixed, jinja.severity) == (
        "GHSA-aaaa-bbbb-cccc",
        ("CVE-2025-1",),
        ("3.1.6",),
        "high",
    )


def test_what_a_project_has_grype_ignore_is_found_all_the_same() -> None:
    """grype reads a `.grype.yaml` of the folder that it runs in, which a pull request may bring."""
    hidden = {
        **cast("list[dict[str, object]]", GRYPE["matches"])[0],
        "appliedIgnoreRules": [{"vulnerability": "x"}],
    }
    text = json.dumps({**GRYPE, "matches": [], "ignoredMatches": [hidden]})
    assert [one.package for one in read_grype(text)[0]] == ["Jinja2"]


def test_packages_that_grype_cannot_match_are_not_determined(tools: Path) -> None:
    """Those of a distribution past its end, or without a database, have no matches."""
    package = {"name": "bash", "version": "5.2", "type": "deb"}
    message = "Package is from end-of-life distro: debian 9"
    alerts = [{"package": package, "alerts": [{"type": "distro-eol", "message": message}]}] * 2
    printed = printing(json.dumps({**GRYPE, "matches": [], "alertsByPackage": alerts}))
    found = audit_bill(a_bill(), printed, install(tools, "grype"))
    assert found.found == ()
    assert found.undetermined == (f"2 packages: {message}",)


def test_pip_audit_finds_wheels_and_says_what_it_skipped() -> None:
    found, skipped = read_pip_audit(json.dumps(PIP_AUDIT))
    assert [one.id for one in found] == ["GHSA-aaaa-bbbb-cccc"]
    assert skipped == ("torch: Dependency not found on PyPI: torch (2.13.0)",)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"matches": {}, "dependencies": [1]}'])
def test_what_is_no_answer_is_never_no_finding(text: str) -> None:
    with pytest.raises(ValueError, match=r"it |JSON|Expecting"):
        read_grype(text)
    with pytest.raises(ValueError, match=r"it |JSON|Expecting"):
        read_pip_audit(text)


def test_local_labels_are_not_asked_for() -> None:
    """No advisory names `2.13.0+cpu`: with the label, nothing would be found."""
    lines = audited_requirements(a_bill().parts).splitlines()
    assert "torch==2.13.0" in lines
    assert not [line for line in lines if "+" in line or line.startswith("bash")]


# --- which scanner, and what it could not look at ---


def test_without_a_scanner_nothing_is_determined_and_no_number_is_shown(tools: Path) -> None:
    found = audit_bill(a_bill(), printing(""), {"PATH": str(tools)})
    assert (found.scanner, found.found) == ("", ())
    assert "no scanner is installed" in found.undetermined[0]
    assert str(found).startswith("not determined\n")


def test_grype_goes_first_and_gets_the_sbom(tools: Path) -> None:
    install(tools, "pip-audit")
    ran: list[Command] = []
    found = audit_bill(a_bill(), printing(json.dumps(GRYPE), ran=ran), install(tools, "grype"))
    assert (found.scanner, len(found.found), found.undetermined) == ("grype", 2, ())
    assert ran[0].argv[:2][0] == "grype"
    assert ran[0].argv[1].startswith("sbom:")


def test_pip_audit_leaves_debian_packages_undetermined(tools: Path) -> None:
    here = install(tools, "pip-audit")
    found = audit_bill(a_bill(), printing(json.dumps(PIP_AUDIT), code=1), here)
    assert len(found.found) == 1
    assert any("knows wheels only" in one for one in found.undetermined)
    assert any(one.startswith("torch: ") for one in found.undetermined)


@pytest.mark.parametrize("scanner", ["grype", "pip-audit"])
def test_a_scanner_without_its_database_has_not_looked(tools: Path, scanner: str) -> None:
    here = install(tools, scanner)
    failing = printing("", code=1, stderr="x\nfailed to load vulnerability db: no such host")
    found = audit_bill(a_bill(), failing, here)
    assert found.scanner == ""
    assert "no such host" in found.undetermined[0]
    assert "open" not in str(found)

    def stopped(command: Command) -> Completed:
        raise CommandFailedError(f"{command.argv[0]} was stopped after 900 s")

    assert "was stopped" in audit_bill(a_bill(), stopped, here).undetermined[0]


# --- what matrix.yaml accepts ---


def an_audit() -> Audit:
    found, _ = read_pip_audit(json.dumps(PIP_AUDIT))
    return Audit(cell_id="a", scanner="pip-audit", found=found)


def test_an_advisory_is_accepted_by_any_of_its_names_for_its_package() -> None:
    assert with_accepted(an_audit(), [JINJA]).open == ()
    by_id = dataclasses.replace(JINJA, id="GHSA-aaaa-bbbb-cccc", package="")
    accepted = with_accepted(an_audit(), [by_id])
    assert accepted.open == ()
    assert "accepted: no templates of others (until 2026-12-31)" in str(accepted)
    for other in (
        dataclasses.replace(JINJA, id="CVE-2025-11"),
        dataclasses.replace(JINJA, package="markupsafe"),
    ):
        assert len(with_accepted(an_audit(), [other]).open) == 1


def test_a_name_is_compared_as_pypi_does() -> None:
    found = Vulnerability(id="CVE-1", package="Ruamel.YAML", version="1")
    entry = dataclasses.replace(JINJA, id="CVE-1", package="ruamel-yaml")
    audit = Audit(cell_id="a", scanner="grype", found=(found,))
    assert with_accepted(audit, [entry]).open == ()


def test_an_entry_whose_day_is_over_is_an_error_that_names_it() -> None:
    matrix = "maintenance:\n  allow_vulnerabilities:\n    - {id: CVE-2025-1}\n"
    require_current((JINJA,), matrix, today="2026-12-31")
    with pytest.raises(MatrixError, match="CVE-2025-1 is accepted until 2026-12-31") as caught:
        require_current((JINJA,), matrix, today="2027-01-01")
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("matrix.yaml", 3)


def test_matrix_yaml_names_what_is_accepted_with_its_line() -> None:
    text = (ROOT / "matrix.yaml").read_text("utf-8")
    lines = (
        "maintenance:\n  base_max_age_days: 90\n  allow_vulnerabilities:\n"
        "    - {id: CVE-2025-1, package: jinja2, until: '2026-12-31', reason: no templates}\n"
    )
    read = read_matrix(f"{text}\n{lines}", path="matrix.yaml", compat=compat.packaged())
    (one,) = read.maintenance.allow_vulnerabilities
    assert (one.id, one.package, one.until) == ("CVE-2025-1", "jinja2", "2026-12-31")
    with pytest.raises(MatrixError, match=f"matrix.yaml:{len(text.splitlines()) + 5}: "):
        require_current((one,), f"{text}\n{lines}", today="2027-01-01")
    assert read.maintenance.base_max_age_days == 90


@pytest.mark.parametrize(
    "entry",
    [
        "{id: CVE-2025-1, until: '2026-12-31'}",
        "{id: CVE-2025-1, until: soon, reason: x}",
        "{id: x, until: '2026-12-31', reason: x}",
        "{until: '2026-12-31', reason: x}",
    ],
)
def test_an_entry_without_an_advisory_a_day_or_a_reason_is_refused(entry: str) -> None:
    text = (ROOT / "matrix.yaml").read_text("utf-8")
    lines = f"maintenance:\n  allow_vulnerabilities:\n    - {entry}\n"
    with pytest.raises(MatrixError):
        read_matrix(f"{text}\n{lines}", path="matrix.yaml", compat=compat.packaged())
