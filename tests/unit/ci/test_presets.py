"""What other projects take from `integrations/` and `examples/` is valid, and is our own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from jsonschema import Draft7Validator

from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix

ROOT = Path(__file__).parents[3]
INTEGRATIONS = ROOT / "integrations"
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/matrix.yaml"))
MATRICES = [ROOT / "matrix.yaml", *(ROOT / "examples" / name / "matrix.yaml" for name in EXAMPLES)]


def read(name: str) -> Any:
    return json.loads((INTEGRATIONS / name).read_text(encoding="utf-8"))


def found_by(preset: Any, text: str) -> list[dict[str, str]]:
    """Return what the preset's managers find in a file, as Renovate's regular expressions do."""
    patterns = [
        pattern.replace("(?<", "(?P<")
        for manager in preset["customManagers"]
        for pattern in manager["matchStrings"]
    ]
    return [one.groupdict() for pattern in patterns for one in re.finditer(pattern, text)]


def test_the_schema_of_renovate_takes_the_preset() -> None:
    words = ("--builtin-schema", "vendor.renovate", str(INTEGRATIONS / "renovate.json"))
    assert CliRunner().invoke(check_jsonschema, words).output == "ok -- validation done\n"


@pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.parent.name)
def test_the_preset_finds_every_pinned_base(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    pinned = [found["currentDigest"] for found in found_by(read("renovate.json"), text)]
    assert pinned == re.findall(r"^ +digest: (sha256:\S+)$", text, re.MULTILINE) != []


def test_a_base_on_a_registry_with_a_port_keeps_its_name_and_tag() -> None:
    text = f"reference: registry.test:5000/a/base:1.2\n    digest: sha256:{'0' * 64}\n"
    (found,) = found_by(read("renovate.json"), text)
    assert (found["depName"], found["currentValue"]) == ("registry.test:5000/a/base", "1.2")


def test_the_preset_has_the_managers_that_ci_write_writes() -> None:
    written = json.loads((ROOT / "src/warpfront/data/ci/renovate.json").read_text("utf-8"))
    assert read("renovate.json")["customManagers"] == written["customManagers"]
    assert read("renovate.json")["packageRules"] == [
        rule for rule in written["packageRules"] if rule["matchManagers"] == ["custom.regex"]
    ]


def test_the_catalog_entry_names_the_schema_of_this_repository() -> None:
    entry = read("schemastore.json")
    assert set(entry) == {"name", "description", "fileMatch", "url"}
    _, _, path = urlsplit(entry["url"]).path.partition("/main/")
    schema = json.loads((ROOT / path).read_text(encoding="utf-8"))
    assert entry["fileMatch"] == ["matrix.yaml"]
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(schema)


def keywords(schema: Any) -> set[str]:
    """Return the keywords of a schema; names of properties and definitions are none."""
    if isinstance(schema, list):
        return {word for part in schema for word in keywords(part)}
    if not isinstance(schema, dict):
        return set()
    found = set()
    for word, part in schema.items():
        found.add(word)
        is_named = word in {"properties", "definitions", "patternProperties"}
        found |= keywords(list(part.values()) if is_named else part)
    return found


def test_the_schema_has_only_keywords_of_draft_07() -> None:
    schema = json.loads((ROOT / "src/warpfront/data/matrix.schema.json").read_text("utf-8"))
    known = set(Draft7Validator.META_SCHEMA["properties"]) | {"$ref"}
    assert keywords(schema) - known == set()
    assert keywords({"properties": {"x": {"prefixItems": []}}}) - known == {"prefixItems"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_matrix_that_a_test_builds_and_the_readme_lists(name: str) -> None:
    text = (ROOT / "examples" / name / "matrix.yaml").read_text(encoding="utf-8")
    matrix = read_matrix(text, path="matrix.yaml", compat=packaged())
    assert {cell.vendor for cell in matrix.cells} == {"cpu", "nvidia", "amd"}
    assert name in {cell.image for cell in matrix.cells}
    assert (ROOT / "examples" / name / "images" / name / "Dockerfile.j2").is_file()
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert f"[{name}]({name})" in readme
    tests = (ROOT / "tests/integration/test_examples.py").read_text(encoding="utf-8")
    assert f'pytest.param("{name}"' in tests
