"""The published schema says what the program reads: an editor takes what `plan` takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.scaffold import make_project

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "src/warpfront/data/matrix.schema.json"
REAL = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")))
POINTER = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
OTHER_FILE = re.compile(r"/[a-z.]+\.yaml`")
IMAGE = {"template": "torch", "title": "An image"}


def seen_by_editors(text: str, folder: Path) -> str:
    """What is wrong with `text` to a validator of YAML 1.2, and to one of YAML 1.1."""
    file = folder / "seen.yaml"
    file.write_text(text, encoding="utf-8")
    ran = CliRunner().invoke(check_jsonschema, ["--schemafile", str(SCHEMA), str(file)])
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    older = Draft202012Validator(schema).iter_errors(with_texts_as_keys(yaml.safe_load(text)))
    assert (ran.exit_code == 0) == (not [*older]), ran.output
    return "" if ran.exit_code == 0 else ran.output


def with_texts_as_keys(value: Any) -> Any:
    """As JSON has it: YAML 1.1's key `on` is `true` there."""
    return json.loads(json.dumps(value))


def examples() -> list[Any]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"([^\n]*\n\n?)^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        found += [
            pytest.param(block, id=f"{page}-{place}")
            for place, (before, block) in enumerate(blocks, start=1)
            if not OTHER_FILE.search(before)
        ]
    return found


def in_a_matrix(example: str) -> str:
    """The example at its place in a whole matrix: rows below `rows:`, an image below `images:`."""
    whole = yaml.safe_load(REAL)
    shown = yaml.safe_load(example)
    if isinstance(shown, list):
        shown = {"rows": shown}
    elif not whole.keys() & shown.keys() and "indexes" not in shown:
        shown = {"images": shown}
    for name, image in shown.get("images", {}).items():
        shown["images"][name] = IMAGE | whole["images"].get(name, {}) | image
    shown["images"] = whole["images"] | shown.get("images", {})
    return yaml.safe_dump(whole | shown, sort_keys=False)


def test_the_pages_have_examples() -> None:
    assert len(examples()) >= 12


@pytest.mark.parametrize("example", examples())
def test_every_example_is_right_to_an_editor(example: str, tmp_path: Path) -> None:
    assert seen_by_editors(in_a_matrix(example), tmp_path) == ""


def test_the_real_matrix_is_right_to_an_editor(tmp_path: Path) -> None:
    assert seen_by_editors(REAL, tmp_path) == ""


@pytest.mark.parametrize("made", ["here", "by init"])
def test_a_matrix_names_a_schema_that_is_there_and_current(tmp_path: Path, made: str) -> None:
    folder = ROOT
    if made == "by init":
        folder = tmp_path / "project"
        make_project(folder)
    text = (folder / "matrix.yaml").read_text(encoding="utf-8")
    (named,) = POINTER.findall(text)
    assert (folder / named).read_bytes() == SCHEMA.read_bytes()
    assert seen_by_editors(text, tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("targets: x86_64", "targets: 64"),
        ("targets: x86_64", "targets: []"),
        ("targets: x86_64", "targets: 'x86 64'"),
        ("parent: torch", "on: torch"),
        ("compiler: true", "compiler: maybe"),
        ("schema: 1", "schema: 2"),
        ('python: "3.11"', "python: 3.11"),
        ("include: [ca-certificates", "includes: [ca-certificates"),
    ],
)
def test_what_plan_refuses_an_editor_underlines(right: str, wrong: str, tmp_path: Path) -> None:
    mistaken = REAL.replace(right, wrong, 1)
    assert mistaken != REAL
    with pytest.raises(MatrixError):
        read_matrix(mistaken, path="matrix.yaml", compat=packaged())
    assert "Schema validation errors" in seen_by_editors(mistaken, tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace("targets: x86_64", "targets: [x86_64]"),
        lambda text: text.replace("targets: [gaudi2, gaudi3]", "targets: gaudi3"),
        lambda text: text.replace("companions: [torchvision]\n", "companions: torchvision\n"),
        lambda text: text.replace("- [gfx90a, gfx942, gfx950, gfx1100]", "- gfx942"),
        lambda text: text + "exclude:\n  - {targets: sm_80, image: serve}\n",
    ],
    ids=["list", "scalar", "companion", "scalar in a list", "filter"],
)
def test_what_plan_takes_an_editor_takes(changed: Callable[[str], str], tmp_path: Path) -> None:
    text = changed(REAL)
    assert text != REAL
    assert read_matrix(text, path="matrix.yaml", compat=packaged()).cells
    assert seen_by_editors(text, tmp_path) == ""


def test_no_key_of_the_language_is_anything_but_a_word_to_yaml_1_1() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    parts = [schema, *schema["$defs"].values()]
    keys = {key for part in parts for key in part["properties"]}
    assert "parent" in keys
    assert {key for key in keys if not isinstance(yaml.safe_load(key), str)} == set()
