"""What others' tools say of the workflows and entry points: nothing without a reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import make_project

from warpfront.ci.flow import packaged_limits
from warpfront.ci.gitlab import child_pipeline
from warpfront.ci.schedule import SCOPES, schedule
from warpfront.commands.workflows import ci_files, flow_of, write
from warpfront.pipeline.workspace import open_workspace

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(sys.executable).parent
INSTALL = f"""
install:
  wheel: https://example.test/warpfront-0.1.0-py3-none-any.whl
  sha256: {"ab" * 32}
"""
ROWS = """
  - {vendor: nvidia, toolkit: "12.8", targets: [sm_90], torch: "2.11.0"}
  - {vendor: amd, toolkit: "6.4", targets: [gfx942], torch: "2.9.1"}
"""
RUNNERS = """
runners:
  ubuntu: {labels: ubuntu-24.04, trust: hosted, builds: true, vendor: cpu, targets: x86_64}
  h100: {group: lab, labels: [gpu], trust: self-hosted, vendor: nvidia, targets: sm_90}
  arc: {scale_set: linux-mi300, trust: self-hosted, vendor: amd, targets: gfx942}
"""


@pytest.fixture(params=["ours", "a new project's"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A project with workflows, as git sees one."""
    if request.param == "ours":
        return ROOT
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("\nrows:\n", f"\nrows:{ROWS}") + INSTALL + RUNNERS)
    write(ci_files(open_workspace(tmp_path)), tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


MACHINE = "  m{number}: {{labels: m{number}, trust: self-hosted, vendor: nvidia, targets: sm_90}}\n"
OTHERS = tomllib.loads((ROOT / "tests" / "forge" / "matrices.toml").read_text())["matrix"]


def a_project(folder: Path, told: Mapping[str, Any]) -> Path:
    """A project with the machines, rows, registry and images of somebody else, as git sees one."""
    make_project(folder)
    path = folder / "matrix.yaml"
    text = path.read_text() + f"{INSTALL}\nrunners:\n{told['runners']}"
    text += "".join(MACHINE.format(number=number) for number in range(told.get("many_runners", 0)))
    text = text.replace("\nrows:\n", f"\nrows:\n{told.get('rows', '').lstrip(chr(10))}")
    matrix = yaml.safe_load(text)
    # As they are written, so that YAML's own readings of names are tried.
    text = text.replace(matrix["project"]["repository"], told.get("repository", "ghcr.io/my"))
    names = [f"app{number}" for number in range(told.get("images", 0))]
    for name in names:
        (folder / "images" / name).mkdir()
        (folder / "images" / name / "Dockerfile.j2").write_text("FROM {{ from_reference }}\n")
    more = "".join(
        f"  {name}: {{parent: torch, template: {name}, title: {name}}}\n" for name in names
    )
    text = text.replace("\nimages:\n", f"\nimages:\n{more}")
    if names:
        text = text.replace("images: [torch]", f"images: [torch, {', '.join(names)}]")
    path.write_text(text)
    write(ci_files(open_workspace(folder)), folder)
    (folder / ".git").mkdir()
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("told", OTHERS, ids=lambda told: told["title"])
def test_what_others_tables_lead_to_is_taken_by_every_tool(
    told: Mapping[str, Any], tmp_path: Path
) -> None:
    root = a_project(tmp_path / "project", told)
    assert len(open_workspace(root).matrix.cells) > told.get("images", 0)
    test_the_schema_of_workflows_takes_them(root)
    test_the_schema_of_gitlab_takes_the_parent_and_a_child(root, tmp_path)
    test_zizmor_as_an_auditor_finds_nothing(root)
    test_actionlint_finds_nothing(root)
    test_shellcheck_finds_nothing_in_the_entry_points(root)


def said(root: Path, program: str, *words: str) -> str:
    """What a program finds; "" for nothing."""
    ran = subprocess.run(
        [str(PROGRAMS / program), *words],
        cwd=root,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def workflows(root: Path) -> list[str]:
    return sorted(str(path) for path in (root / ".github" / "workflows").glob("*.yml"))


def schema_fault(*asked: str) -> str:
    from check_jsonschema import main
    from click.testing import CliRunner

    ran = CliRunner().invoke(main, asked)
    return "" if ran.exit_code == 0 else ran.output


def test_the_schema_of_workflows_takes_them(root: Path) -> None:
    assert schema_fault("--builtin-schema", "vendor.github-workflows", *workflows(root)) == ""


def test_the_schema_of_gitlab_takes_the_parent_and_a_child(root: Path, tmp_path: Path) -> None:
    workspace = open_workspace(root)
    matrix = workspace.matrix
    planned = schedule(
        matrix.cells,
        scope=SCOPES["nightly"],
        runners=matrix.runners,
        now=dict.fromkeys((cell.id for cell in matrix.cells), "x"),
        before=None,
        blocked={},
    )
    child = tmp_path / "child.yml"
    flow = flow_of(matrix, root)
    child.write_text(child_pipeline(flow, planned, packaged_limits())[0])
    for file in (root / ".gitlab" / "warpfront.yml", child):
        schema = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
        assert schema_fault(*schema, str(file)) == ""


def test_the_schemas_of_robots_take_their_configuration(root: Path) -> None:
    dependabot, renovate = (str(root / ".github" / n) for n in ("dependabot.yml", "renovate.json"))
    assert schema_fault("--builtin-schema", "vendor.dependabot", dependabot) == ""
    assert schema_fault("--builtin-schema", "vendor.renovate", renovate) == ""


def test_zizmor_as_an_auditor_finds_nothing(root: Path) -> None:
    assert said(root, "zizmor", "--offline", "--persona", "auditor", ".github") == ""


def test_zizmor_finds_a_seeded_fault(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    name = "warpfront-verify-own.yml"
    text = (ROOT / ".github" / "workflows" / name).read_text()
    (folder / name).write_text(
        text.replace("run: ci/verify.sh", "run: echo ${{ github.head_ref }}")
    )
    assert "template-injection" in said(tmp_path, "zizmor", "--offline", ".github")


def test_actionlint_finds_nothing(root: Path) -> None:
    assert (
        said(root, "actionlint", "-config-file", ".github/actionlint.yaml", *workflows(root)) == ""
    )


def test_shellcheck_finds_nothing_in_the_entry_points(root: Path) -> None:
    scripts = sorted(str(path) for path in (root / "ci").rglob("*.sh"))
    assert len(scripts) >= 11
    assert said(root, "shellcheck", *scripts) == ""


def test_systemd_takes_the_service_of_a_machine(root: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd here")
    unit = (root / "ci" / "runner" / "warpfront-runner@.service").read_text()
    # What it starts lies elsewhere than here; all else is as on the machine.
    here = root / "ci" / "runner" / "serve.sh"
    assert _verified(analyze, unit.replace("/opt/warpfront/ci/runner/serve.sh", str(here))) == ""
    assert "Unknown key" in _verified(analyze, unit + "\n[Service]\nTokens=here\n")


def _verified(analyze: str, unit: str) -> str:
    """What it says of this unit; of others it says nothing that is ours."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warpfront-runner@h100.service"
        path.write_text(unit)
        words = [analyze, "verify", "--man=no", "--generators=no", str(path)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
    return "".join(line for line in ran.stderr.splitlines() if "warpfront" in line)
