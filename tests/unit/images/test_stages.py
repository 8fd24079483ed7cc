"""Which Dockerfiles layers can be put into, and what a build begins with then."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import a_cell, a_lock
from rendering import render, templates_of

from warpfront.images.composing import config_on, manifest_on
from warpfront.images.render import (
    BYTE_CODE_CONTEXT,
    BYTE_CODE_FILES,
    COMPILER,
    before_wheels,
)
from warpfront.system.store import read_tree

GOLDEN = Path(__file__).parents[2] / "golden" / "dockerfiles"
CPU = (GOLDEN / "cpu-x86_64-py311-torch2130-torch.Dockerfile").read_text("utf-8")


def test_every_image_that_makes_an_environment_can_stand_on_layers_and_no_other() -> None:
    texts = [path.read_text("utf-8") for path in sorted(GOLDEN.iterdir())]
    assert [bool(before_wheels(text)) for text in texts] == ["uv venv" in text for text in texts]
    assert any(map(before_wheels, texts))
    assert not all(map(before_wheels, texts))


def test_what_comes_before_the_wheels_is_what_they_stand_on() -> None:
    before = before_wheels(CPU)
    assert before is not None
    assert "uv venv" in before
    assert "uv pip install" not in before


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("/tools/uv pip install", "/tools/uv pip install --no-binary :all:"),
        ("\n\nFROM installed", "\nRUN rm -r /opt/venv/share\n\nFROM installed"),
        ("FROM environment AS installed", "FROM environment AS wheels"),
        (" AS environment", " AS base"),
        ("/opt/venv/lib/python3 && \\", "/opt/venv/lib/elsewhere && \\"),
        ("FROM installed", "FROM scratch AS installed\nFROM installed"),
    ],
)
def test_a_changed_stage_is_built_as_it_is_written(text: str, other: str) -> None:
    assert text in CPU
    assert before_wheels(CPU.replace(text, other)) is None


def test_a_template_that_sets_no_stages_has_one() -> None:
    own = 'FROM {{ from_reference }}\n{% include "_shared/wheels.j2" %}\n'
    shared = read_tree(Path(__file__).parents[3] / "images")
    templates = templates_of({**shared, "torch/Dockerfile.j2": own})
    text = render(a_cell(), a_lock(), templates).files["Dockerfile"]
    assert text.count("FROM ") == 1
    assert text.count("uv pip install") == 1
    assert "lib/python3 &&" in text
    assert before_wheels(text) is None


def test_an_image_that_leaves_something_out_can_stand_on_layers_that_are_without_it() -> None:
    shared = read_tree(Path(__file__).parents[3] / "images")
    cell = dataclasses.replace(a_cell(), slim=("torch/test/*",))
    image = render(cell, a_lock(cell), templates_of(shared))
    text, whole = image.files["Dockerfile"], render(a_cell(), a_lock(), templates_of(shared))
    assert image.files["slim/globs.txt"] == "torch/test/*\n"
    assert text.count("/run/slim/slim.py") == 1
    assert before_wheels(text) == before_wheels(whole.files["Dockerfile"]) is not None
    assert before_wheels(text.replace("slim.py", "own.py")) is None
    assert not any("slim" in name for name in whole.files)


def test_byte_code_is_compiled_as_the_image_itself_does_it() -> None:
    installed, step = BYTE_CODE_CONTEXT["Dockerfile"].split("\n", 1)
    assert installed == "FROM installed"
    (compiles,) = (line.split() for line in CPU.splitlines() if "compile.py" in line)
    _, site, theirs, settles = step.rstrip().splitlines()
    assert theirs.split()[:3] == compiles[:3], "the same Python with the same seed"
    assert theirs.split()[3] == COMPILER not in CPU
    assert theirs.split()[4] == '"$site"'
    assert site in CPU
    assert settles in CPU
    assert BYTE_CODE_CONTEXT["compile.py"] == BYTE_CODE_FILES["byte-code/compile.py"]


@pytest.mark.process
def test_byte_code_is_compiled_of_what_has_none_and_of_nothing_else(tmp_path: Path) -> None:
    program, chosen = tmp_path / "compile.py", tmp_path / "0.txt"
    program.write_text(BYTE_CODE_FILES["byte-code/compile.py"], "utf-8")
    for name in ("a.py", "deep/b.py", "deep/__pycache__/c.py", "broken.py"):
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("(" if name == "broken.py" else "a = 1\n", "utf-8")
        os.utime(path, (315_532_800, 315_532_800))

    def compiled(*options: Path) -> dict[str, int]:
        argv = (sys.executable, str(program), str(tmp_path / "site"), *map(str, options))
        subprocess.run(argv, check=True, capture_output=True)
        found = tmp_path.rglob("*.pyc")
        return {path.name.partition(".")[0]: path.stat().st_mtime_ns for path in found}

    chosen.write_text("deep/b.py", "utf-8")
    first = compiled(chosen)
    assert set(first) == {"b"}
    assert set(compiled()) == {"a", "b"}
    assert compiled()["b"] == first["b"]


def test_a_base_with_layers_keeps_what_it_says_and_says_what_was_added() -> None:
    moment = "1980-01-01T00:00:00+00:00"
    config = {
        "created": "2026-01-01T00:00:00Z",
        "config": {"Env": ["A=1"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "RUN a"}],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:a"]},
    }
    standing = config_on(config, [("sha256:b", ["torch==1", "numpy==2"])], created=moment)
    assert standing["config"] == {"Env": ["A=1"]}
    assert standing["rootfs"]["diff_ids"] == ["sha256:a", "sha256:b"]
    told = ["RUN a", "warpfront layer: torch==1 numpy==2"]
    assert [one["created_by"] for one in standing["history"]] == told
    assert {standing["created"], *(one["created"] for one in standing["history"])} == {moment}
    base = {"mediaType": "x", "config": {}, "layers": [{"digest": "sha256:0"}], "annotations": {}}
    manifest = manifest_on(base, [("sha256:1", 10)], ("sha256:c", 5))
    assert [layer["digest"] for layer in manifest["layers"]] == ["sha256:0", "sha256:1"]
    assert manifest["layers"][1]["mediaType"].endswith("tar+zstd")
    assert (manifest["config"]["digest"], manifest["config"]["size"]) == ("sha256:c", 5)
    assert set(manifest) == {"schemaVersion", "mediaType", "config", "layers"}
