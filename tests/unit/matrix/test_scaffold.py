"""`warpfront init`: a project that plans, from nothing, and never over somebody's files."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from builders import make_project

from warpfront.cli.program import run
from warpfront.commands.project_edits import add_image, add_python, add_row, project_from
from warpfront.errors import InputError, MatrixError, NothingSelectedError, StoreError
from warpfront.matrix.compat import packaged
from warpfront.matrix.editing import with_current_keys, with_item
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.scaffold import Edit, new_project
from warpfront.matrix.selection import nearest
from warpfront.pipeline.workspace import open_workspace
from warpfront.wheels.lock.reading import read_locks
from warpfront.wheels.lock.values import NEVER_BUILT


def test_a_new_project_reads_and_has_a_cell_with_a_template(tmp_path: Path) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    assert [cell.vendor for cell in workspace.matrix.cells] == ["cpu"]
    assert (tmp_path / "images" / workspace.matrix.cells[0].template / "Dockerfile.j2").is_file()
    # Two projects on one machine do not fight over a name.
    reference = workspace.matrix.cells[0].local_reference
    assert reference == "localhost/my-images/torch:2.13.0-cpu-py3.11"
    assert (tmp_path / "tasks.py").exists()
    assert (tmp_path / "noxfile.py").exists()


def test_a_row_of_a_new_project_may_list_the_image_of_models(tmp_path: Path) -> None:
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("images: [torch]", "images: [torch, hf]"))
    cell = open_workspace(tmp_path).matrix.cells[1]
    assert [one.uses for one in cell.smoke] == ["transformers", "accelerate"]
    assert (tmp_path / str(cell.requirements_file)).is_file()
    assert (tmp_path / "images" / cell.template / "Dockerfile.j2").is_file()


def test_an_existing_file_is_kept_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "noxfile.py").write_text("mine")
    with pytest.raises(StoreError, match=r"noxfile\.py exists"):
        make_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["noxfile.py"]
    assert (tmp_path / "noxfile.py").read_text() == "mine"


def a_project(folder: Path, **changes: str) -> Edit:
    facts = {"name": "a", "vendors": "cpu", "base": "debian-12", "registry": "r.test/a"}
    return new_project(folder, **(facts | changes))


def test_a_dry_run_says_what_it_would_write(tmp_path: Path) -> None:
    assert "would write matrix.yaml" in list(a_project(tmp_path).write(tmp_path, dry_run=True))
    assert list(tmp_path.iterdir()) == []


def test_a_new_project_has_the_rows_base_and_registry_that_were_chosen(tmp_path: Path) -> None:
    edit = a_project(tmp_path, vendors="cpu,nvidia:13.0,amd:7.2", base="debian-13")
    list(edit.write(tmp_path, dry_run=False))
    matrix = open_workspace(tmp_path).matrix
    assert [str(cell.toolkit or cell.vendor) for cell in matrix.cells] == [
        "cpu",
        "cuda13.0",
        "rocm7.2",
    ]
    assert {cell.base.name for cell in matrix.cells} == {"debian-13"}
    assert matrix.project.repository == "r.test/a"


def test_each_commented_block_of_a_new_matrix_works_without_its_comments(tmp_path: Path) -> None:
    list(a_project(tmp_path).write(tmp_path, dry_run=False))
    path = tmp_path / "matrix.yaml"
    lines, seen = path.read_text().splitlines(), list[str]()
    for name in ("release", "runners", "compilers"):
        start = lines.index(f"# {name}:")
        end = next(n for n in range(start, len(lines)) if not lines[n].startswith("# "))
        lines[start:end] = [line.removeprefix("# ") for line in lines[start:end]]
        seen.append(name)
    path.write_text("\n".join(lines) + "\n")
    matrix = open_workspace(tmp_path).matrix
    assert seen == ["release", "runners", "compilers"]
    assert len(matrix.runners) == 2
    assert matrix.compilers


@pytest.mark.parametrize(
    ("vendors", "said"),
    [("nvidea", "did you mean `nvidia`?"), ("nvidia:9.9", "with Python 3.11: 13.2, 13.0")],
)
def test_a_vendor_or_toolkit_without_wheels_is_refused_with_what_there_is(
    vendors: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(NothingSelectedError) as error:
        a_project(tmp_path, vendors=vendors)
    assert said in error.value.hint


def added(folder: Path, edit: Edit) -> tuple[list[str], list[str]]:
    """Lines that an edit of matrix.yaml removed and added."""
    before = (folder / "matrix.yaml").read_text().splitlines()
    list(edit.write(folder, dry_run=False))
    after = (folder / "matrix.yaml").read_text().splitlines()
    diff = list(difflib.ndiff(before, after))
    return [x[2:] for x in diff if x[0] == "-"], [x[2:] for x in diff if x[0] == "+"]


def test_an_image_is_added_with_its_template_and_every_comment_stays(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / "r.txt").write_text("einops\n")
    edit = add_image(tmp_path, "app", parent="torch", requirements=str(tmp_path / "r.txt"))
    removed, lines = added(tmp_path, edit)
    assert removed == ["  images: [torch]"]
    assert lines == [
        "  app:",
        "    parent: torch",
        "    template: app",
        "    title: app on PyTorch",
        "    requirements: images/app/requirements.txt",
        "  images: [torch, app]",
    ]
    assert [cell.image for cell in open_workspace(tmp_path).matrix.cells] == ["torch", "app"]
    assert (tmp_path / "images/app/requirements.txt").read_text() == "einops\n"
    with pytest.raises(InputError, match="app is an image already"):
        add_image(tmp_path, "app", parent="torch", requirements="")
    with pytest.raises(InputError, match="--parent troch"):
        add_image(tmp_path, "other", parent="troch", requirements="")


def test_a_row_and_a_python_are_added_and_nothing_is_removed(tmp_path: Path) -> None:
    make_project(tmp_path)
    removed, lines = added(tmp_path, add_row(tmp_path, "nvidia", "13.0"))
    assert (removed, '    toolkit: "13.0"' in lines) == ([], True)
    removed, _ = added(tmp_path, add_python(tmp_path, "3.13"))
    cells = open_workspace(tmp_path).matrix.cells
    assert removed == []
    assert [(cell.vendor, cell.python) for cell in cells] == [
        ("cpu", "3.11"),
        ("nvidia", "3.11"),
        ("cpu", "3.13"),
        ("nvidia", "3.13"),
    ]
    with pytest.raises(NothingSelectedError, match=r"no base has Python 3\.9"):
        add_python(tmp_path, "3.9")


def test_an_edit_that_is_no_matrix_is_not_written(tmp_path: Path) -> None:
    make_project(tmp_path)
    before = (tmp_path / "matrix.yaml").read_text()
    with pytest.raises(MatrixError):
        list(Edit(files={"matrix.yaml": before + "x: 1\n"}).write(tmp_path, dry_run=False))
    assert (tmp_path / "matrix.yaml").read_text() == before


def test_a_list_in_lines_gets_a_line() -> None:
    text = "defaults:\n  # first\n  images:\n    - torch # one\n  python: x\n"
    assert with_item(text, ("defaults", "images"), "app") == text.replace(
        "    - torch # one\n", "    - torch # one\n    - app\n"
    )


def test_a_missing_requirements_file_is_a_problem_of_its_image_alone(tmp_path: Path) -> None:
    make_project(tmp_path)
    list(add_image(tmp_path, "app", parent="torch", requirements="").write(tmp_path, dry_run=False))
    (tmp_path / "images/app/requirements.txt").unlink()
    workspace = open_workspace(tmp_path)
    cells = workspace.matrix.cells
    states = read_locks(cells, workspace.folders)
    torch, app = (states[cell.id].reason for cell in cells)
    assert torch == NEVER_BUILT
    assert app.endswith(": images/app/requirements.txt: no such file")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MI300X", "did you mean `gfx942`? That is the target of MI300X"),
        ("NVIDIA H100", "did you mean `sm_90`? That is the target of NVIDIA H100"),
        ("MI100", "MI100 is gfx908, and there are: sm_90, gfx942"),
        ("gfx94", "did you mean `gfx942`?"),
    ],
)
def test_a_product_stands_for_its_target(name: str, said: str) -> None:
    assert nearest(name, ["sm_90", "gfx942"]) == said


DOCKERFILE = """\
FROM nvidia/cuda:13.0.1-devel-ubuntu22.04
ENV A=1
RUN apt-get update && \\
    pip install torch==2.4.0 --index-url https://a.test 'peft[x]==0.1'
COPY requirements.txt /tmp/
RUN pip3 install -r /tmp/requirements.txt
CMD ["python", "t.py"]
"""


def test_a_dockerfile_becomes_a_row_and_an_image_and_what_was_not_read_is_listed(
    tmp_path: Path,
) -> None:
    (tmp_path / "requirements.txt").write_text("einops\ntorchvision\n")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    facts = {"name": "a", "vendors": "", "base": "debian-12", "registry": "r.test/a"}
    lines = list(
        project_from(tmp_path, tmp_path / "Dockerfile", **facts).write(tmp_path, dry_run=False)
    )
    cells = open_workspace(tmp_path).matrix.cells
    assert [(str(cell.toolkit), cell.image) for cell in cells] == [
        ("cuda13.0", "torch"),
        ("cuda13.0", "app"),
    ]
    assert (tmp_path / "images/app/requirements.txt").read_text() == "peft[x]==0.1\neinops\n"
    assert [line for line in lines if line.startswith("not read")] == [
        "not read: 2: ENV A=1",
        "not read: 3: RUN apt-get update",
        'not read: 7: CMD ["python", "t.py"]',
        "not read: torch==2.4.0: torch is the row's",
        "not read: torchvision: torch is the row's",
    ]


OLDER = """\
# what is built, by whom
images:
  torch: {template: torch, title: PyTorch}  # the first
  app:
    on:   torch      # its parent
    template: torch  # on: is no key here
    title: on
  flow: {title: x, "on": torch, template: torch}
"""


def test_migrate_renames_keys_and_leaves_every_other_byte() -> None:
    text, notes = with_current_keys(OLDER, "matrix.yaml")
    assert text == OLDER.replace("    on:   torch", "    parent:   torch").replace('"on"', "parent")
    assert notes == (
        "matrix.yaml:5: `on` is `parent` now",
        "matrix.yaml:8: `on` is `parent` now",
    )
    assert with_current_keys(text, "matrix.yaml") == (text, ())


def test_a_project_of_an_older_warpfront_migrates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path)
    current = {
        name: (tmp_path / name).read_text() for name in ("matrix.yaml", "tasks.py", "noxfile.py")
    }
    older = {
        "matrix.yaml": current["matrix.yaml"].replace("    parent: torch", "    on: torch  # base"),
        "tasks.py": current["tasks.py"].replace("warpfront.cli", "warpfront.doors"),
        "noxfile.py": current["noxfile.py"].replace("warpfront.cli", "warpfront.doors"),
    }
    for name, text in older.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run(["plan"]) == 2
    assert "`warpfront migrate` writes it" in capsys.readouterr().err
    assert run(["migrate", "--dry-run"]) == 0
    assert (tmp_path / "matrix.yaml").read_text() == older["matrix.yaml"]
    assert run(["migrate"]) == 0
    for name, text in current.items():
        expected = text.replace("    parent: torch", "    parent: torch  # base")
        assert (tmp_path / name).read_text() == (expected if name == "matrix.yaml" else text)
    open_workspace(tmp_path)
    capsys.readouterr()
    assert run(["migrate"]) == 0
    assert capsys.readouterr().err == "nothing to migrate\n"


@pytest.mark.parametrize("rest", ["", "\nrooms: {a: b}\nrows: nothing"])
def test_a_newer_schema_says_to_upgrade_and_nothing_else(rest: str) -> None:
    with pytest.raises(MatrixError) as caught:
        read_matrix(f"# x\nschema: 2{rest}\n", path="matrix.yaml", compat=packaged())
    (problem,) = caught.value.problems
    assert str(problem).startswith(
        "matrix.yaml:2: schema 2 is newer than schema 1, which warpfront "
    )
    assert problem.hint == "upgrade: pip install --upgrade warpfront"


def test_a_matrix_that_names_no_schema_is_of_the_first(tmp_path: Path) -> None:
    make_project(tmp_path)
    text = (tmp_path / "matrix.yaml").read_text()
    without = text.replace("schema: 1\n", "")
    assert without != text
    read = [read_matrix(one, path="m", compat=packaged()).cells for one in (text, without)]
    assert [cell.id for cell in read[0]] == [cell.id for cell in read[1]]
