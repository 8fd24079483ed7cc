"""The house holds: wings import downward, pure never imports edge, edge never imports pure, and
what runs inside images imports nothing of the host. Read from the tree; no list of rooms.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from source_modules import module_texts, module_tree

SOURCE = Path(__file__).parents[2] / "src" / "warpfront"

# From the door to the ground. A wing imports itself, what stands in its own group without a circle,
# and everything below.
ORDER: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        (
            {"__main__", "doors", "inside"},
            {"warpfront_port"},
            {"cli"},
            {"commands"},
            {"pipeline"},
            {"bench", "ci", "release", "report"},
            {"images", "verify"},
            {"wheels"},
            {"matrix"},
            {"system"},
            {"errors", "step_results", "__init__"},
        ),
    )
)
INSIDE = "warpfront_checks"
PORT = "warpfront_port"
# What a wing's modules are, where they need not say it themselves.
KIND_OF_WING = {
    "__init__": "words",
    "cli": "door",
    "commands": "path",
    "doors": "door",
    "errors": "words",
    "inside": "door",
    "warpfront_checks": "inside",
    "step_results": "words",
    "pipeline": "path",
}
# Loaded where a matrix, a lock or an option asks for them. `images.composing` is of the layers.
OPTIONAL = ("wheels.variants", "wheels.layers")
# Which kinds a kind may import from other modules of the host.
MAY_IMPORT = {
    "words": {"words"},
    "pure": {"words", "pure"},
    "edge": {"words", "edge"},
    "path": {"words", "pure", "edge", "path"},
    "door": {"words", "pure", "edge", "path", "door"},
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LAWFUL = (ast.Import, ast.ImportFrom, *_DOCUMENTED)
_SAYS = re.compile(r"\b(Words|Pure|Edge|Path)\.\Z")


@dataclass(frozen=True)
class Module:
    """One file: its dotted name below the package, and its text."""

    name: str
    text: str
    path: Path = Path()

    @cached_property
    def tree(self) -> ast.Module:
        return tree_of(self.path) or ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """What laws are about."""
        return [node for node in house().statements(self.tree) if isinstance(node, LAWFUL)]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def wing(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def kind(self) -> str:
        """What its wing is, or what the first paragraph of its docstring ends with."""
        if self.name.endswith("__main__"):
            return "door"
        if self.name.startswith((f"{PORT}.commands", f"{PORT}.tasks")):
            return "path" if ".commands" in self.name else "door"
        said = _SAYS.search(_first_paragraph(self.tree))
        return KIND_OF_WING.get(self.wing) or (said.group(1).lower() if said else "")

    @cached_property
    def imports(self) -> set[str]:
        """Other modules of the package, as this one names them."""
        names = imported_names(self.nodes)
        return {
            name.removeprefix("warpfront.")
            for name in names
            if name.startswith(("warpfront.", f"{INSIDE}.", f"{PORT}."))
        }


def tree_of(path: Path) -> ast.Module | None:
    """Return the shared tree of a module of src; None for one that a test makes up."""
    if path.is_relative_to(SOURCE.parent):
        return module_tree(path.relative_to(SOURCE.parent).as_posix())
    return None


def _first_paragraph(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n\n")[0].strip()


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    below = SOURCE if path.is_relative_to(SOURCE) else SOURCE.parent
    parts = path.relative_to(below).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {
    name_of(path): Module(name_of(path), text, path)
    for path, text in ((SOURCE.parent / name, text) for name, text in module_texts().items())
}


def floor_of(wing: str) -> int:
    return next(number for number, wings in enumerate(ORDER) if wing in wings)


def upward(module: Module) -> set[str]:
    """What a module imports of a wing above its own. `inside` stands on its own, below all."""
    targets = {name for name in module.imports if name in MODULES}
    if module.wing == INSIDE:
        return {name for name in targets if name.partition(".")[0] not in {INSIDE, "__init__"}}
    return {
        name
        for name in targets
        if (wing := name.partition(".")[0]) != INSIDE and floor_of(wing) < floor_of(module.wing)
    }


def mixed(module: Module) -> set[str]:
    """What a module imports of a kind that its own may not."""
    if module.kind == "inside":
        return set()
    targets = (MODULES[name] for name in module.imports if name in MODULES)
    return {
        f"{target.name} ({target.kind})"
        for target in targets
        if target.kind != "inside" and target.kind not in MAY_IMPORT[module.kind]
    }


def against(law: Callable[[Module], set[str]]) -> dict[str, set[str]]:
    """Who breaks a law, and what they import that they may not."""
    broken = {name: law(module) for name, module in MODULES.items()}
    return {name: targets for name, targets in broken.items() if targets}


def test_a_module_says_what_it_is() -> None:
    """The first paragraph of its docstring ends in Words. or Pure. or Edge. or Path."""
    assert [name for name, module in MODULES.items() if not module.kind] == []


def test_wings_import_downward_only() -> None:
    assert against(upward) == {}


def test_pure_and_edge_do_not_meet_outside_the_path() -> None:
    assert against(mixed) == {}


def wing_arrows() -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = {}
    for module in MODULES.values():
        wings = {name.partition(".")[0] for name in module.imports if name in MODULES}
        arrows.setdefault(module.wing, set()).update(wings - {module.wing})
    return arrows


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """What is left when everything that leads nowhere is taken away, again and again."""
    left = {wing: set(targets) for wing, targets in arrows.items()}
    while ends := {wing for wing in left if not left[wing] & set(left)}:
        left = {wing: targets for wing, targets in left.items() if wing not in ends}
    return set(left)


def test_wings_have_no_circle() -> None:
    assert circles(wing_arrows()) == set()
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("name", "source", "law"),
    [
        ("images.x", '"""X. Pure."""\nfrom warpfront.system.process import run', mixed),
        ("system.x", '"""X. Edge."""\nfrom warpfront.images.plan import plan_cell', mixed),
        ("images.x", '"""X. Edge."""\nfrom warpfront.images.render import render', mixed),
        ("step_results", "from warpfront.system.store import Store", mixed),
        ("wheels.x", '"""X. Edge."""\nfrom warpfront.images.engine import Engine', upward),
        (
            "report.x",
            '"""X. Pure."""\nfrom warpfront.pipeline.building import build',
            upward,
        ),
        ("warpfront_checks.x", "import warpfront.errors", upward),
        ("commands.x", "from warpfront_port.scan.engines import scan_source", upward),
    ],
)
def test_a_forbidden_import_is_found(
    name: str, source: str, law: Callable[[Module], set[str]]
) -> None:
    assert law(Module(name, source))


def test_what_runs_inside_images_needs_only_the_standard_library_torch_and_numpy() -> None:
    allowed = {*sys.stdlib_module_names, "torch", "numpy", "torchvision", "torchaudio", INSIDE}
    for module in MODULES.values():
        if module.wing == INSIDE:
            names = {name.split(".")[0] for name in imported_names(module.nodes)}
            # `enter` alone has the toolbox on its path.
            beside = {"nox"} if module.name.split(".")[-1] == "enter" else set()
            assert names - allowed - beside == set(), module.name


def test_functions_stay_short_enough_to_read() -> None:
    long = [
        f"{module.name}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1}"
        for module in MODULES.values()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 60
    ]
    assert long == []


@cache
def house() -> Any:
    """tools/house as a module: its `main` is not run."""
    path = SOURCE.parents[1] / "tools" / "house"
    loader = importlib.machinery.SourceFileLoader("house", str(path))
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_optional_parts_are_loaded_where_they_are_asked_for() -> None:
    """A draft standard and an extra: no other module imports them when it is imported itself."""
    assert _eager_imports(MODULES.values()) == []


def test_an_eager_import_of_an_optional_part_is_found() -> None:
    name = "warpfront.wheels.variants.tables"
    eager = Module("wheels.lock", f"from {name} import supports")
    lazy = Module("wheels.lock", f"def read():\n    from {name} import supports")
    assert _eager_imports([eager, lazy]) == [f"wheels.lock imports {name}"]


def _eager_imports(modules: Iterable[Module]) -> list[str]:
    """Return the optional parts that the import of another module itself loads."""
    return [
        f"{module.name} imports {node.module}"
        for module in modules
        if not module.name.startswith(OPTIONAL) and module.name != "images.composing"
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(tuple(f"warpfront.{part}." for part in OPTIONAL))
    ]


def test_an_init_is_no_room() -> None:
    """It says what its package is and lists what is in it; what does something has a name."""
    large, most = house().large_inits, house().LARGEST_INIT
    just, over = (Module("x", "x = 1\n" * n, Path("__init__.py")) for n in (most, most + 1))
    assert large([just, over]) == ["__init__.py"]
    assert large([just]) == []
    assert large(MODULES.values()) == []


def test_no_docstring_was_torn_by_a_wrapper() -> None:
    """None ends in a line of one or two words, and none says a line twice."""
    torn = house().torn_docstrings
    assert torn(Module("x", 'def f():\n    """Says what is\n    so.\n    """\n'))
    assert [line for module in MODULES.values() for line in torn(module)] == []
    assert [
        f"{module.name}: {line}"
        for module in MODULES.values()
        for node in module.nodes
        if isinstance(node, _DOCUMENTED)
        for line, after in itertools.pairwise((ast.get_docstring(node) or "").splitlines())
        if line.strip() and line == after
    ] == []
