"""The layers hold: pure never imports edge, edge never imports pure, inside imports nothing of the
host.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "warpfront"

WORDS = {"errors", "model"}
PURE = {
    "bake",
    "compat",
    "compile",
    "demands",
    "document",
    "labels",
    "lock",
    "matrix",
    "plan",
    "preflight",
    "protection",
    "render",
    "report",
    "requirements",
    "scan",
    "vendors",
    "verdict",
}
EDGE = {
    "archives",
    "engine",
    "hipify",
    "metadata",
    "process",
    "provenance",
    "registry",
    "resolver",
    "scaffold",
    "sources",
    "store",
    "trees",
    "wheelhouse",
}
PATH = {"pipeline"}
DOORS = {"__main__", "display", "sessions", "tasks"}
INSIDE = {"checks", "guard"}

# Which rooms a room of each kind may import. Words are free to all; `sessions` runs inside images
# too, so
# what it needs of the host it imports where it is used.
MAY_IMPORT = {
    "words": WORDS,
    "pure": WORDS | PURE,
    "edge": WORDS | EDGE,
    "path": WORDS | PURE | EDGE | PATH | INSIDE,
    "doors": WORDS | PURE | EDGE | PATH | DOORS | INSIDE,
    "inside": INSIDE,
}
# A guard's policy is one type on both sides: written in `protection`, read in the image.
ALSO = {"demands": {"guard"}, "pipeline": {"guard"}, "protection": {"guard"}}
KINDS = {"words": WORDS, "pure": PURE, "edge": EDGE, "path": PATH, "doors": DOORS, "inside": INSIDE}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def kind_of(room: str) -> str:
    return next(kind for kind, rooms in KINDS.items() if room in rooms)


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_rooms(source: str) -> set[str]:
    names = imported_names(ast.parse(source))
    known = set().union(*KINDS.values())
    rooms = {name.split(".")[1] for name in names if name.startswith("warpfront.")}
    return rooms & known


def violations(room: str, source: str) -> set[str]:
    return imported_rooms(source) - MAY_IMPORT[kind_of(room)] - ALSO.get(room, set()) - {room}


def test_every_module_belongs_to_one_room() -> None:
    rooms = {room_of(path) for path in modules()} - {"__init__"}
    assert rooms == set().union(*KINDS.values())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    if room_of(path) != "__init__":
        assert violations(room_of(path), path.read_text()) == set()


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("render", "from warpfront.system.process import run"),
        ("store", "from warpfront.matrix import select"),
        ("checks", "import warpfront.model"),
        ("model", "from warpfront import store"),
    ],
)
def test_a_forbidden_import_is_found(room: str, source: str) -> None:
    assert violations(room, source)


@pytest.mark.parametrize("room", sorted(INSIDE))
def test_what_runs_inside_images_needs_only_the_standard_library_torch_and_numpy(
    room: str,
) -> None:
    import sys

    allowed = {*sys.stdlib_module_names, "torch", "numpy", "torchvision", "torchaudio", "warpfront"}
    for path in (SOURCE / room).rglob("*.py"):
        names = {name.split(".")[0] for name in imported_names(ast.parse(path.read_text()))}
        assert names - allowed - {"nox"} == set(), path


def test_functions_stay_short_enough_to_read() -> None:
    long = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 45
    ]
    assert long == []
