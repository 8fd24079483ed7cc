"""The published schema says what the program reads: an editor takes what `plan` takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import make_project
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "src/warpfront/data/matrix.schema.json"
REAL = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")))
POINTER = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
OTHER_FILE = re.compile(r"/[a-z.]+\.yaml`")
IMAGE = {"template": "torch", "title": "An image"}
VALIDATOR = Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def newest(text: str) -> Any:
    """As an editor reads it: YAML 1.2."""
    return YAML(typ="safe", pure=True).load(text)


def older(text: str) -> Any:
    """YAML 1.1, whose key `on` is `true` in JSON."""
    return json.loads(json.dumps(yaml.load(text, yaml.CSafeLoader)))


READERS: tuple[Callable[[str], Any], ...] = (newest, older)
WHOLE = {reader: reader(REAL) for reader in READERS}


def wrong_to_editors(*readings: Any) -> list[str]:
    """What is wrong with a matrix, on which its readings have to agree."""
    first, *others = ([error.message for error in VALIDATOR.iter_errors(one)] for one in readings)
    assert all(bool(other) == bool(first) for other in others)
    return first


def read_by_both(text: str) -> list[Any]:
    return [reader(text) for reader in READERS]


def read_by_older(text: str) -> list[Any]:
    return [older(text)]


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


OTHER_KEYS = {"indexes", "builders", "allow_variants", "maintenance", "ci"}


def in_a_matrix(example: str, reader: Callable[[str], Any]) -> Any:
    """The example at its place in a whole matrix: rows below `rows:`, an image below `images:`."""
    whole, shown = WHOLE[reader], reader(example)
    if isinstance(shown, list):
        shown = {"rows": shown}
    elif not (whole.keys() | OTHER_KEYS) & shown.keys():
        shown = {"images": shown}
    for name, image in shown.get("images", {}).items():
        shown["images"][name] = IMAGE | whole["images"].get(name, {}) | image
    if "project" in shown:
        shown["project"] = whole["project"] | shown["project"]
    shown["images"] = whole["images"] | shown.get("images", {})
    return whole | shown


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(VALIDATOR.schema)


def test_the_pages_have_examples() -> None:
    assert len(examples()) >= 12


@pytest.mark.parametrize("example", examples())
def test_every_example_is_right_to_an_editor(example: str) -> None:
    assert wrong_to_editors(*(in_a_matrix(example, reader) for reader in READERS)) == []


def test_the_real_matrix_is_right_to_an_editor() -> None:
    assert wrong_to_editors(*WHOLE.values()) == []


@pytest.mark.parametrize("made", ["here", "by init"])
def test_a_matrix_names_a_schema_that_is_there_and_current(tmp_path: Path, made: str) -> None:
    folder = ROOT
    if made == "by init":
        folder = tmp_path / "project"
        make_project(folder)
    text = (folder / "matrix.yaml").read_text(encoding="utf-8")
    (named,) = POINTER.findall(text)
    assert (folder / named).read_bytes() == SCHEMA.read_bytes()
    assert wrong_to_editors(*read_by_both(text)) == []


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
def test_what_plan_refuses_an_editor_underlines(right: str, wrong: str) -> None:
    mistaken = REAL.replace(right, wrong, 1)
    assert mistaken != REAL
    with pytest.raises(MatrixError):
        read_matrix(mistaken, path="matrix.yaml", compat=packaged())
    # The whole takes the slow reader long; the two differ about this word only.
    assert wrong_to_editors(*(read_by_both if "on:" in wrong else read_by_older)(mistaken)) != []


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
def test_what_plan_takes_an_editor_takes(changed: Callable[[str], str]) -> None:
    text = changed(REAL)
    assert text != REAL
    assert read_matrix(text, path="matrix.yaml", compat=packaged()).cells
    assert wrong_to_editors(*read_by_older(text)) == []


def test_no_key_of_the_language_is_anything_but_a_word_to_yaml_1_1() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    parts = [schema, *schema["definitions"].values()]
    keys = {key for part in parts for key in part["properties"]}
    assert "parent" in keys
    assert {key for key in keys if not isinstance(yaml.load(key, yaml.CSafeLoader), str)} == set()
