"""The path can be read in one place, and a workspace ends at its first line: a step takes values
out of it, and nobody hands it on. Read from the tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from warpfront import pipeline
from warpfront.step_results import StepName

FOLDER = Path(pipeline.__file__).parent
STEPS = {name: FOLDER / f"{file}.py" for name, file in pipeline.STEPS.items()}
SOURCES = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*.py")}
BAG = "Workspace"


def names_the_bag(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        BAG in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "value", ""))
        for node in ast.walk(annotation)
    )


def bags_of(function: ast.FunctionDef) -> set[str]:
    """The parameters that are workspaces."""
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return {one.arg for one in every if names_the_bag(one.annotation)}


def uses(node: ast.AST, names: set[str]) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in names]


def taking(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions, methods and inner functions that are given a workspace."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and bags_of(node):
            yield node


def takers(tree: ast.Module) -> list[str]:
    return [function.name for function in taking(tree)]


def not_at_the_door(tree: ast.Module) -> set[str]:
    """Who is given a workspace without being a public function of the module."""
    top = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name for name in takers(tree) if name.startswith("_") or name not in top}


def handed_on(tree: ast.Module) -> set[str]:
    """Where a workspace is used otherwise than by taking an attribute of it: that is how it would
    get into a call, a field, another name or a return.
    """
    found = set()
    for function in taking(tree):
        taken_from = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Attribute)}
        for use in uses(function, bags_of(function)):
            if id(use) not in taken_from:
                found.add(f"{function.name}:{use.lineno}")
    return found


def used_late(tree: ast.Module) -> set[str]:
    """Functions that come back to their workspace after a line that does without."""
    found = set()
    for function in taking(tree):
        lines = [bool(uses(line, bags_of(function))) for line in _after_docstring(function)]
        first_without = (*lines, False).index(False)
        if not lines[0] or True in lines[first_without:]:
            found.add(function.name)
    return found


def _after_docstring(function: ast.FunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) else function.body


def kept(tree: ast.Module) -> set[str]:
    """Classes with a workspace among their fields."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and names_the_bag(field.annotation)
    }


def test_the_path_is_one_list_of_steps_in_the_order_of_their_names() -> None:
    assert list(STEPS) == [name for name in get_args(StepName) if name in STEPS]
    assert len((FOLDER / "__init__.py").read_text().splitlines()) <= 80


def test_the_folder_shows_the_steps_and_nothing_else() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == {path.stem for path in STEPS.values()} | {"__init__", "workspace"}
    for name, path in STEPS.items():
        function = name.replace("-", "_")
        assert takers(ast.parse(path.read_text())) == [function]
        assert getattr(pipeline, function).__name__ == function


def steps_imported(text: str) -> set[str]:
    """Return the steps whose module, or whose function by `pipeline`, a module imports."""
    if "pipeline" not in text:
        return set()
    names = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    own = {f"warpfront.pipeline.{path.stem}": step for step, path in STEPS.items()}
    return {step for module, step in own.items() if module in names} | {
        f"pipeline.{node.attr}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pipeline"
    }


def test_a_step_calls_no_other_step() -> None:
    """Neither does the code that steps share: what runs several is a command."""
    root = FOLDER.parent
    shared = [
        path for name in ("images", "wheels", "verify") for path in (root / name).rglob("*.py")
    ]
    for path in (*STEPS.values(), *shared):
        assert steps_imported(path.read_text()) == set(), path
    assert steps_imported("from warpfront.pipeline.locking import lock") == {"lock"}
    assert steps_imported("pipeline.build(workspace)") == {"pipeline.build"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_workspace_ends_at_the_first_lines(name: str) -> None:
    tree = ast.parse(SOURCES[name].read_text())
    assert [not_at_the_door(tree), handed_on(tree), used_late(tree), kept(tree)] == [set()] * 4
    assert len(takers(tree)) <= 1, "a journey has one door"


@pytest.mark.parametrize(
    ("source", "law"),
    [
        ("def _inner(workspace: Workspace): workspace.matrix", not_at_the_door),
        ("class A:\n    def run(self, workspace: Workspace): workspace.matrix", not_at_the_door),
        ("def plan(workspace: Workspace):\n    plan_cells(workspace)", handed_on),
        ("def plan(workspace: Workspace):\n    plan_cells(bag=workspace)", handed_on),
        ("def plan(space: 'Workspace'):\n    self.space = space", handed_on),
        ("def plan(workspace: pipeline.Workspace | None):\n    return workspace", handed_on),
        ("def plan(workspace: Workspace):\n    a = 1\n    b = workspace.matrix", used_late),
        ("def plan(w: Workspace):\n    a = w.matrix\n    b = 1\n    c = w.matrix", used_late),
        ("class Planning:\n    workspace: Workspace", kept),
    ],
)
def test_a_workspace_that_travels_is_found(source: str, law: object) -> None:
    assert callable(law)
    assert law(ast.parse(source))
