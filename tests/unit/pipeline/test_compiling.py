"""compile as a step: where it runs, what it mounts, and what of the results is believed. The engine
is in memory; real compilers are in tests/integration/test_compile*.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_cell, a_verification, make_project
from fakes import FakeEngine
from invoke.exceptions import Exit

from warpfront.cli import tasks
from warpfront.errors import InputError, MatrixError, NothingSelectedError
from warpfront.images.engine.bases import recipe_digest
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import Selection, Toolkit
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.verify.results import Outcome
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.sources import Site
from warpfront_port.commands.compiling import (
    compile_tree,
    left_files,
    read_compile_target,
)
from warpfront_port.commands.projects import project_trees, with_project_checked
from warpfront_port.compilation_forms import compilation_sarif, compilation_text
from warpfront_port.compile.job_document import CompileRequest
from warpfront_port.compile.outcomes import Compilation
from warpfront_port.scan.catalogue import catalogue

COMPILERS = """
compilers:
  hip:
    vendor: amd
    toolkit: "5.7"
    targets: [gfx942]
    python: "3.13"
    bootstrap: {suite: trixie, include: [g++, hipcc, python3]}
"""
DEVEL = """
  devel:
    parent: torch
    template: torch
    title: With a compiler
    compiler: true
    project: {path: kernels, sources: ["*.cpp"], flags: [-DFAST]}
"""
KERNEL = "#include <cuda_runtime.h>\n__global__ void k() { __shfl_sync(0xffffffff, 1, 0); }\n"


class Quiet:
    """Somebody to tell, who forgets."""

    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A project with a compiler for gfx942, whose root file system is already here, and a `devel`
    image for CPUs with a project of its own.
    """
    root = tmp_path / "project"
    root.mkdir()
    make_project(root)
    matrix = root / "matrix.yaml"
    text = matrix.read_text().replace("\ndefaults:", f"{DEVEL}\ndefaults:") + COMPILERS
    matrix.write_text(text.replace("images: [torch]", "images: [torch, devel]"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    opened = open_workspace(root)
    (base,) = opened.matrix.compilers
    rootfs = opened.folders.cache / "bases" / f"{recipe_digest(base.bootstrap)}.tar"
    rootfs.parent.mkdir(parents=True)
    rootfs.write_bytes(b"a root file system")
    return opened


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a.cu").write_text(KERNEL)
    return folder


Leave = Callable[[Path, dict[str, Any]], None]


def results(job: dict[str, Any], **said: tuple[str, str]) -> dict[str, Any]:
    """A results file in which everything passed, but for what is `said` (outcome, output)."""
    hipify = ["hipify"] if job["hipified"] else []
    names = ["compiler", *hipify, *(unit["path"] for unit in job["units"])]
    checks = []
    for name in names:
        outcome, output = said.get(name.replace(".", "_"), ("passed", ""))
        details = {"output": output, "compile_seconds": 1.5, "kept": []}
        check = {"name": name, "outcome": outcome, "reason": output, "seconds": 1.0}
        checks.append({**check, "details": details})
    return {
        "schema": 1,
        "session": "compile",
        "target": job["target"],
        "environment": {"compiler": "HIP version: 5.7.31921-0"},
        "planned": names,
        "checks": checks,
        "finished": True,
    }


def leave_results(**said: tuple[str, str]) -> Leave:
    def leave(folder: Path, job: dict[str, Any]) -> None:
        (folder / "compile.json").write_text(json.dumps(results(job, **said)))

    return leave


def an_engine(leave: Leave) -> FakeEngine:
    engine = FakeEngine()

    def program(request: Any, _on_line: object) -> int:
        sources = {bind.target: bind.source for bind in request.binds}
        job = json.loads(sources["/warpfront/job.json"].read_text())
        leave(sources["/results"], job)
        return 0

    engine.programs["python3"] = program
    return engine


def compiled(
    workspace: Workspace,
    repo: Path,
    leave: Leave,
    *,
    selection: Selection | None = None,
    **changes: Any,
) -> tuple[Compilation, FakeEngine]:
    engine = an_engine(leave)
    facts: dict[str, Any] = {"repo": repo, "target": "gfx942", **changes}
    found = compile_tree(
        CompileRequest(**facts),
        workspace.matrix,
        selection or Selection(),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )
    return found, engine


def test_a_tree_is_compiled_in_the_matrix_s_compiler_read_only_and_bounded(
    workspace: Workspace, tree: Path
) -> None:
    found, engine = compiled(workspace, tree, leave_results(), seconds=10, jobs=2)
    assert outcome_of(found.verification) is Outcome.PASSED
    assert found.place == "compiler hip (Debian trixie, no torch)"
    (request,) = engine.requests
    writable = [bind.target for bind in request.binds if bind.writable]
    assert writable == ["/results"]
    assert {bind.target: bind.source for bind in request.binds}["/source"] == tree.resolve()
    assert request.memory_bytes is not None
    assert request.time_limit_seconds == 130.0
    folder = workspace.folders.store.cell_folder("compiler-hip")
    assert [path.name for path in folder.glob("compile-*.json")] == ["compile-gfx942.json"]


def test_a_failure_is_told_at_its_line_in_text_json_and_sarif(
    workspace: Workspace, tree: Path
) -> None:
    said = "/source/a.cu:2:7: error: wrong\n"
    found, _ = compiled(workspace, tree, leave_results(a_cu=("failed", said)))
    assert outcome_of(found.verification) is Outcome.FAILED
    text = compilation_text(found, catalogue())
    assert "failed      a.cu (1.50 s)\n    a.cu:2:7: error: wrong\n" in text
    assert text.endswith("failed: 1 passed, 1 failed in 0.0 s\n") or "1 failed" in text
    sarif = json.loads(compilation_sarif(found, catalogue()))
    (result,) = sarif["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], result["level"]) == ("compile-gfx942", "error")
    assert place["artifactLocation"]["uri"] == "a.cu"
    assert (place["region"]["startLine"], place["region"]["startColumn"]) == (2, 7)


def test_the_compiler_s_version_and_whose_it_is_not_are_facts_of_the_result(
    workspace: Workspace, tree: Path
) -> None:
    found, _ = compiled(workspace, tree, leave_results())
    assert found.notes == ("compiler: HIP version: 5.7.31921-0",)


def test_a_container_that_leaves_nothing_is_an_error(workspace: Workspace, tree: Path) -> None:
    found, _ = compiled(workspace, tree, lambda _folder, _job: None)
    assert outcome_of(found.verification) is Outcome.ERROR


def test_what_hipify_leaves_fails_the_verification_that_the_compiler_passed(
    workspace: Workspace, tree: Path
) -> None:
    found, engine = compiled(workspace, tree, leave_results(), hipify=True)
    assert {finding.rule for finding in found.left} >= {"CU108"}
    outcomes = {check.name: check.outcome for check in found.verification.checks}
    assert outcomes["a.cu"] is Outcome.PASSED
    assert outcomes["what hipify leaves"] is Outcome.FAILED
    assert outcome_of(found.verification) is Outcome.FAILED
    binds = {bind.target: bind.source for bind in engine.requests[0].binds}
    job = json.loads(binds["/warpfront/job.json"].read_text())
    assert (job["hipified"], job["copied"]) == (["a.cu"], ["a.cu"])
    assert "what hipify leaves, and says nothing of:" in compilation_text(found, catalogue())


def test_a_target_without_compiler_says_what_to_do(workspace: Workspace, tree: Path) -> None:
    with pytest.raises(NothingSelectedError, match="no image with a compiler for gfx90a is built"):
        compiled(workspace, tree, leave_results(), target="gfx90a")
    with pytest.raises(NothingSelectedError, match="target 'gfx9' is no vendor's"):
        compiled(workspace, tree, leave_results(), target="gfx9")
    with pytest.raises(NothingSelectedError, match="gaudi has no compiler"):
        compiled(workspace, tree, leave_results(), target="gaudi3")


def test_a_tree_without_kernels_is_no_pass(workspace: Workspace, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no kernel was found"):
        compiled(workspace, empty, leave_results())


def a_devel_image(workspace: Workspace, engine: FakeEngine) -> None:
    """As `build` leaves it: in the engine, and in the store."""
    (cell,) = (cell for cell in workspace.matrix.cells if cell.image == "devel")
    image = engine.build(cell.local_reference, {CONTENT_HASH: "aa"})
    built = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", built)


def test_verify_compiles_and_scans_the_project_of_an_image(workspace: Workspace) -> None:
    folder = workspace.folders.root / "kernels"
    folder.mkdir()
    (folder / "a.cpp").write_text("int a;\n")
    (folder / "use.py").write_text("import pynvml\n")
    engine = an_engine(leave_results())
    a_devel_image(workspace, engine)
    (cell,) = (cell for cell in workspace.matrix.cells if cell.image == "devel")
    built = workspace.folders.store.load(cell.id, "build", (type(a_built_image()),))
    checked = with_project_checked(
        a_verification(target="x86_64"),
        cell,
        built,
        workspace.folders,
        engine=engine,
        watch=Quiet(),
    )
    assert checked.sessions[-2:] == ("static", "compile")
    outcomes = {(check.session, check.name): check for check in checked.checks}
    assert outcomes["compile", "a.cpp"].outcome is Outcome.PASSED
    scan = outcomes["static", "scan"]
    assert scan.outcome is Outcome.FAILED
    assert scan.reason.startswith("cpu: will fail at run time: 1 cause: use.py:1: PY014")
    job = json.loads((_compile_folder(workspace, cell.id) / "job.json").read_text())
    assert job["units"][0]["argv"][0] == "g++"
    assert "-DFAST" in job["units"][0]["argv"]


def test_a_project_of_which_nothing_could_be_scanned_is_no_pass(workspace: Workspace) -> None:
    (workspace.folders.root / "kernels").mkdir()
    engine = an_engine(leave_results())
    (cell,) = (cell for cell in workspace.matrix.cells if cell.image == "devel")
    assert cell.tree is not None
    cell = replace(cell, compiler=None)
    checked = with_project_checked(
        a_verification(target="x86_64"),
        cell,
        a_built_image(cell),
        workspace.folders,
        engine=engine,
        watch=Quiet(),
    )
    assert checked.sessions[-1] == "static"
    assert checked.checks[-1].outcome is Outcome.ERROR
    assert checked.checks[-1].reason == "no file of kernels was scanned"


def _compile_folder(workspace: Workspace, cell_id: str) -> Path:
    return workspace.folders.store.cell_folder(cell_id) / "compile-x86_64"


def test_an_image_without_a_project_is_verified_as_before(workspace: Workspace) -> None:
    (cell,) = (cell for cell in workspace.matrix.cells if cell.image == "torch")
    before = a_verification()
    engine = FakeEngine()
    after = with_project_checked(
        before, cell, a_built_image(cell), workspace.folders, engine=engine, watch=Quiet()
    )
    assert after is before
    with pytest.raises(NothingSelectedError, match="no image of the selection has a `project:`"):
        project_trees([cell])


def test_a_compiler_of_another_toolkit_than_the_images_is_said_to_be(
    workspace: Workspace, tree: Path
) -> None:
    rocm = Toolkit(name="rocm", version="6.4")
    cell = a_cell(vendor="amd", toolkit=rocm, targets=("gfx942",))
    other = replace(workspace, matrix=replace(workspace.matrix, cells=(cell,)))
    said = "this compiler is of rocm5.7; images of the matrix for gfx942 hold rocm6.4"
    assert compiled(other, tree, leave_results())[0].notes[-1] == said
    assert said not in compiled(workspace, tree, leave_results())[0].notes


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_cpu_is_another_name_of_this_machine(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    target, vendor = read_compile_target("cpu")
    assert (target, vendor.name) == (machine, "cpu")


def test_a_built_devel_image_is_taken_before_any_other_compiler(
    workspace: Workspace, tree: Path
) -> None:
    engine = an_engine(leave_results())
    a_devel_image(workspace, engine)
    (tree / "b.cpp").write_text("int b;\n")
    request = CompileRequest(repo=tree, target="cpu", sources=("*.cpp",))
    found = compile_tree(
        request,
        workspace.matrix,
        Selection(),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )
    assert found.verification.target == "x86_64"
    assert found.place.endswith("/devel:2.13.0-cpu-py3.11")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vendor: amd, targets: gfx942", "amd needs a `toolkit`"),
        ("vendor: adm, toolkit: '5.7', targets: gfx942", "`vendor` cannot be `adm`"),
        ("vendor: cpu, toolkit: '5.7', targets: x86_64", "cpu has no toolkit"),
        ("vendor: nvidia, toolkit: '12.8', targets: sm_90", "hold ptxas and no nvcc"),
        ("vendor: nvidia, toolkit: '13.0', targets: gfx942", "`gfx942` is no target of nvidia"),
    ],
)
def test_a_mistaken_compiler_is_refused_on_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    entry = f"{{{text}, python: '3.11', bootstrap: {{suite: trixie}}}}"
    matrix.write_text(f"{matrix.read_text()}\ncompilers:\n  mine: {entry}\n")
    with pytest.raises(MatrixError, match=message) as caught:
        open_workspace(tmp_path)
    assert caught.value.problems[0].line == matrix.read_text().count("\n")


def invoked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """`invoke compile` in the project's folder, on the engine in memory; how it ended."""
    monkeypatch.chdir(workspace.folders.root)
    engine = an_engine(options.pop("leave"))
    monkeypatch.setattr("warpfront.images.engine.protocol.connect", lambda: engine)
    a_devel_image(workspace, engine)
    facts: dict[str, Any] = {
        "target": "gfx942",
        "vendor": "",
        "image": "",
        "only": "",
        "json": False,
        "dry_run": False,
        "repo": "",
        "sources": "",
        "include": "",
        "flags": "",
        "sarif": "",
        "exclude": "",
        "hipify": False,
        "seconds": 300.0,
    }
    try:
        tasks.namespace["compile"].body(None, **(facts | options))
    except Exit as ended:
        return ended
    return None


def test_the_door_ends_with_the_code_of_the_outcome(
    workspace: Workspace, tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sarif = tmp_path / "out.sarif"
    wrong = leave_results(a_cu=("failed", "/source/a.cu:2:7: error: wrong\n"))
    nothing = leave_results(a_cu=("unavailable", ""))
    ended = invoked(workspace, monkeypatch, leave=wrong, repo=str(tree), sarif=str(sarif))
    assert ended.code == 7
    assert json.loads(sarif.read_text())["runs"][0]["results"]
    ended = invoked(workspace, monkeypatch, leave=nothing, repo=str(tree))
    assert ended.code == 11
    assert "not all of it can be compiled for gfx942" in ended.message
    assert invoked(workspace, monkeypatch, leave=leave_results(), repo=str(tree)) is None


def test_the_door_takes_the_project_of_an_image_and_says_what_it_would_do(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace.folders.root / "kernels").mkdir()
    (workspace.folders.root / "kernels" / "a.cpp").write_text("int a;\n")
    facts: dict[str, Any] = {"image": "devel", "target": "cpu", "leave": leave_results()}
    assert invoked(workspace, monkeypatch, dry_run=True, **facts) is None
    assert capsys.readouterr().out == "would compile a.cpp for cpu\n"
    assert not (workspace.folders.root / "build").joinpath("compiler-hip").exists()
    assert invoked(workspace, monkeypatch, **facts) is None
    assert "passed      a.cpp" in capsys.readouterr().out
    ended = invoked(workspace, monkeypatch, leave=leave_results(), image="torch")
    assert (ended.code, "no image of the selection has a `project:`" in ended.message) == (3, True)


@pytest.mark.timeout(20)
def test_what_a_compiled_tree_leaves_for_us_to_read_is_read_inside_its_folder_only(
    workspace: Workspace, tree: Path, tmp_path: Path
) -> None:
    """A setup.py that is compiled may leave what it likes in the results."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("error: the host's own")

    def leave(folder: Path, job: dict[str, Any]) -> None:
        leave_results()(folder, job)
        (folder / "kept").mkdir()
        (folder / "kept" / "a").symlink_to(secret)
        (folder / "hipified").symlink_to(secret)
        os.mkfifo(folder / "kept" / "fifo")
        (folder / "kept" / "large").touch()
        os.truncate(folder / "kept" / "large", 3 * 2**30)
        (folder / "kept" / "fine").write_text("read")

    compiled(workspace, tree, leave)
    (folder,) = tmp_path.glob("project/build/*/compile-gfx942/results")
    assert left_files(folder) == {"kept/fine": "read"}
    compiled(workspace, tree, leave)
    assert (secret / "key").exists()


@pytest.mark.timeout(20)
def test_a_fifo_in_the_place_of_a_compilation_s_results_is_an_error(
    workspace: Workspace, tree: Path
) -> None:
    found, _ = compiled(workspace, tree, lambda folder, _job: os.mkfifo(folder / "compile.json"))
    assert outcome_of(found.verification) is Outcome.ERROR
    assert "a FIFO, not a regular file" in found.verification.checks[0].reason
