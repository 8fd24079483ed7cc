"""`explain`: a results file is foreign text, and none of it becomes code of the script."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_files import results_document

from warpfront_checks.explaining import UnexplainedError, explained
from warpfront_checks.results import ResultsError

PLAIN = "plain case"
PIECES = (
    '"""',
    "'''",
    '"',
    "'",
    "\\",
    "\n",
    "\r",
    "\u2028",
    "\u2029",
    "\x85",
    "\x0c",
    "\0",
    "#",
    "%s",
    "__import__('os').system('id')",
    "{case}",
    "QUICK",
    "DRAWN",
    "\ud800",
    "add",
)
HOSTILE = st.one_of(
    st.text(min_size=1, max_size=40),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join),
)
# A way to each root, `{}` where a results file is free to write anything: session, check, fault.
WAYS = (
    ("operators", "add", "float32, {}, seed 3: {}"),
    ("operators", "matmul + bias + relu", "bfloat16, {}, seed 3: {}"),
    ("operators", "far out", "{}, float32, seed 3: {}"),
    ("opinfo", "float32 backward", "{}, sample 0, seed 3: {}"),
    ("numerics", "mlp {}", "seed 7: {}"),
    ("models", "gpt {}", "seed 7: {}"),
    ("golden", "cpu: {} float32", "{}: this device is off by 3"),
    ("devices", "device cpu", "cuda:1: {} float32 grad/1: 3.1 times {}"),
    ("attention", "tier sdpa math", "float32 width 64, mask, grouped, forward: wrong: {}"),
)
FREE = (
    ("operators", "{}", "{}"),
    ("opinfo", "{}", "add, sample 0, seed 3: off"),
    ("opinfo", "{} forward", "{}"),
    ("models", "{} training", "seed 7: {}"),
    ("attention", "tier {}", "{}"),
    ("{}", "{}", "{}"),
)

# Per way: enough over all of them, ten times as many with --exhaustive.
FEW = settings(max_examples=settings.default.max_examples // 3 if settings.default else 10)

SHAPES: dict[str, str] = {}
"""The dump of a statement by its text."""


def script_of(folder: Path, document: object, check: str) -> str:
    path = folder / "results.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return explained(path, check)


def skeleton(script: str) -> tuple[str, ...]:
    """Return the script's code, statement by statement, with the type in place of each constant.

    Scripts share most of their text, so that a statement's dump is looked up by its lines.
    """
    lines, shapes, begin = re.split("\r\n|\r|\n", script), [], 0  # as Python counts them
    for node in ast.parse(script).body:
        text = "\n".join(lines[begin : node.end_lineno])
        if not text.strip():  # it shares its lines with the statement before it
            shapes.append(shape(node))
            continue
        begin = node.end_lineno or begin
        if text not in SHAPES:
            SHAPES[text] = shape(node)
        shapes.append(SHAPES[text])
    return tuple(shapes)


def shape(statement: ast.stmt) -> str:
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant):
            node.value, node.kind = type(node.value).__name__, None
    return ast.dump(statement)


def known_skeletons(folder: Path) -> frozenset[tuple[str, ...]]:
    """Of every script that harmless texts come to."""
    ways = [(one[0], *(text.replace("{}", PLAIN) for text in one[1:])) for one in WAYS]
    return frozenset(skeleton(script_of(folder, results_document(*way), way[1])) for way in ways)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explained")


@pytest.fixture(scope="module")
def known(folder: Path) -> frozenset[tuple[str, ...]]:
    return known_skeletons(folder)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]}: {way[1]}")
@FEW
@given(data=st.data())
def test_what_a_results_file_writes_into_a_known_failure_stays_a_constant(
    folder: Path, known: frozenset[tuple[str, ...]], way: tuple[str, str, str], data: Any
) -> None:
    session, check, fault = (re.sub(r"\{\}", lambda _: data.draw(HOSTILE), text) for text in way)
    try:
        script = script_of(folder, results_document(session, check, fault), check)
    except UnexplainedError:
        return  # a line break ends what the pattern of a fault takes
    assert skeleton(script) in known


@pytest.mark.parametrize("way", FREE, ids=lambda way: f"{way[0]}: {way[1]}")
@FEW
@given(data=st.data())
def test_an_arbitrary_results_file_is_refused_or_is_one_of_the_known_scripts(
    folder: Path, known: frozenset[tuple[str, ...]], way: tuple[str, str, str], data: Any
) -> None:
    session, check, fault = (re.sub(r"\{\}", lambda _: data.draw(HOSTILE), text) for text in way)
    environment = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "device": HOSTILE | st.none() | st.integers(),
                "machine": HOSTILE,
                "check_options": st.fixed_dictionaries(
                    {},
                    optional={"quick": HOSTILE | st.booleans(), "seed_values": st.lists(HOSTILE)},
                ),
            },
        )
    )
    document = results_document(session, check, fault, **environment)
    document["target"] = data.draw(HOSTILE)
    try:
        script = script_of(folder, document, check)
    except (UnexplainedError, ResultsError):
        return
    assert skeleton(script) in known


@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["session", "checks", "schema", "details", "x"]), inner
            )
        ),
    )
)
def test_what_is_no_results_file_is_refused_in_words(folder: Path, document: object) -> None:
    with pytest.raises((UnexplainedError, ResultsError)):
        script_of(folder, document, "add")


@pytest.mark.parametrize(
    ("session", "check", "fault"),
    [
        (
            "operators",
            "add",
            'float32, plain, seed 3: """\nimport os; os.system(\'id > /pwned\')\n"""',
        ),
        (
            "opinfo",
            "float32,__import__('os').system('id>/pwned2') forward",
            "add, sample 0, seed 3: off",
        ),
    ],
    ids=["breaks out of the title", "a check's name as code"],
)
def test_the_two_files_that_wrote_code_write_none(
    folder: Path, known: frozenset[tuple[str, ...]], session: str, check: str, fault: str
) -> None:
    document = results_document(
        session, check, fault, check_options={"quick": True, "seed_values": [0]}
    )
    script = script_of(folder, document, check)
    assert skeleton(script) in known
    assert all(line.startswith("# ") for line in script.splitlines())


def test_a_file_nested_without_end_is_refused(folder: Path) -> None:
    path = folder / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises((ResultsError, ValueError)):
        explained(path, "add")


def test_no_name_of_a_value_hides_a_definition_of_the_script(folder: Path) -> None:
    for session, check, fault in WAYS:
        texts = (text.replace("{}", PLAIN) for text in (check, fault))
        check, fault = texts  # noqa: PLW2901 - the same two, filled in
        script = script_of(folder, results_document(session, check, fault), check)
        tree = ast.parse(script)
        defined = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        constants = {
            target.id
            for n in tree.body
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
            for target in n.targets
            if isinstance(target, ast.Name)
        }
        assert not defined & constants
