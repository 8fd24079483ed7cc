"""BuildKit's progress, read line by line: steps, logs, and an answer per target."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from pathlib import Path

import pytest

from warpfront.errors import StoreError
from warpfront.images.engine.buildx import BakeRequest, BuildStep, ProgressReader, bake


def vertex(name: str, **facts: object) -> str:
    return json.dumps({"vertexes": [{"digest": f"sha256:{name}", "name": name, **facts}]})


def log(name: str, text: str) -> str:
    data = base64.b64encode(text.encode()).decode()
    return json.dumps({"logs": [{"vertex": f"sha256:{name}", "data": data}]})


def read(targets: tuple[str, ...], lines: list[str], folder: Path) -> list[BuildStep]:
    steps: list[BuildStep] = []
    logs = {target: folder / f"{target}.log" for target in targets}
    with ProgressReader(targets, logs, steps.append) as reader:
        for line in lines:
            reader.read_line(line)
    return steps


def test_a_step_belongs_to_the_target_in_its_name(tmp_path: Path) -> None:
    name = "[cell-a 2/3] RUN make"
    lines = [vertex(name, started="t"), log(name, "compiling\n"), vertex(name, completed="t")]
    steps = read(("cell-a", "cell-b"), lines, tmp_path)
    assert [(step.target, step.state) for step in steps] == [
        ("cell-a", "running"),
        ("cell-a", "done"),
    ]
    assert "compiling" in (tmp_path / "cell-a.log").read_text()
    assert (tmp_path / "cell-b.log").read_text() == ""


def test_a_single_target_owns_every_step(tmp_path: Path) -> None:
    assert read(("cell-a",), [vertex("[2/3] RUN x", cached=True)], tmp_path)[0].target == "cell-a"


def test_the_end_of_an_export_belongs_to_the_image_it_names(tmp_path: Path) -> None:
    steps: list[BuildStep] = []
    done = {"id": "unpacking to localhost/demo/torch:1", "vertex": "x", "completed": "t"}
    other = {"id": "unpacking to localhost/demo/serve:1", "vertex": "x"}
    references = {"localhost/demo/torch:1": "cell-a", "localhost/demo/serve:1": "cell-b"}
    with ProgressReader(("cell-a", "cell-b"), {}, steps.append, references) as reader:
        reader.read_line(json.dumps({"statuses": [done, other]}))
    assert [(step.target, step.state) for step in steps] == [("cell-a", "done")]
    assert not list(tmp_path.iterdir())


def test_a_state_is_told_once(tmp_path: Path) -> None:
    assert len(read(("cell-a",), [vertex("x", started="t")] * 5, tmp_path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        log("[2/3] RUN x", "dd: error writing '/big': No space left on device\n"),
        vertex("x", error="write /big: no space left on device"),
        "ERROR: failed to copy: no space left on device",
    ],
    ids=["a program", "BuildKit", "buildx"],
)
def test_whoever_meets_a_full_disk_it_is_known(tmp_path: Path, line: str) -> None:
    reader = ProgressReader(("cell-a",), {"cell-a": tmp_path / "log"}, ignore)
    with reader:
        reader.read_line(vertex("x", started="t"))
        assert not reader.disk_full
        reader.read_line(line)
    assert reader.disk_full


@pytest.mark.parametrize("line", ["plain text", "{", "[1]", "\ufffd", '{"logs": null}'])
def test_lines_that_are_not_progress_are_kept_or_harmless(tmp_path: Path, line: str) -> None:
    assert read(("cell-a",), [line], tmp_path) == []
    kept = (tmp_path / "cell-a.log").read_text()
    assert line in kept or line.startswith('{"logs"')


FAKE_BUILDX = """
import json, pathlib, sys
arguments = sys.argv[1:]
metadata = pathlib.Path(arguments[arguments.index("--metadata-file") + 1])
targets = [a for a in arguments[arguments.index("--metadata-file") + 2:] if not a.startswith("--")]
calls = metadata.parent / "calls"
with calls.open("a") as file:
    file.write(" ".join(targets) + "\\n")
print("a line of a program", flush=True)
if BROKEN & set(targets):
    print("ERROR: failed to solve: MESSAGE")
    sys.exit(1)
metadata.write_text(json.dumps({t: {"containerimage.digest": f"sha256:{t}"} for t in targets}))
"""


def a_request(folder: Path, broken: set[str], message: str = "exit code: 1") -> BakeRequest:
    """A stand-in for buildx that fails, as bake does, as a whole when one target is broken."""
    script = folder / "buildx.py"
    script.write_text(FAKE_BUILDX.replace("BROKEN", repr(broken)).replace("MESSAGE", message))
    return BakeRequest(
        buildx=(sys.executable, str(script)),
        environment={},
        file=folder / "bake.json",
        targets=("torch", "devel", "serve"),
        leaves=("devel", "serve"),
        readable=(folder,),
        logs={},
    )


def ignore(_step: BuildStep) -> None: ...


@pytest.mark.process
def test_one_bake_is_enough_when_nothing_fails(tmp_path: Path) -> None:
    answers = bake(a_request(tmp_path, set()), ignore)
    assert {name: answer.digest for name, answer in answers.items()} == {
        "torch": "sha256:torch",
        "devel": "sha256:devel",
        "serve": "sha256:serve",
    }
    assert (tmp_path / "calls").read_text() == "torch devel serve\n"


@pytest.mark.process
def test_a_failed_target_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    answers = bake(a_request(tmp_path, {"devel"}), ignore)
    assert {name: bool(answer.error) for name, answer in answers.items()} == {
        "torch": False,
        "devel": True,
        "serve": False,
    }
    assert "exit code: 1" in answers["devel"].error


@pytest.mark.process
def test_a_full_disk_is_told_from_other_failures(tmp_path: Path) -> None:
    answers = bake(a_request(tmp_path, {"serve"}, "write x: no space left on device"), ignore)
    assert answers["serve"].disk_full
    assert not answers["devel"].disk_full


@pytest.mark.process
def test_an_engine_that_went_away_ends_the_bake(tmp_path: Path) -> None:
    answers = bake(a_request(tmp_path, {"torch"}, "error reading from server: EOF"), ignore)
    assert all(answer.engine_gone for answer in answers.values())
    assert (tmp_path / "calls").read_text() == "torch devel serve\n"


@pytest.mark.process
def test_a_disk_too_full_for_the_logs_is_an_error_of_its_own(tmp_path: Path) -> None:
    request = dataclasses.replace(a_request(tmp_path, set()), logs={"torch": Path("/dev/full")})
    with pytest.raises(StoreError, match="No space left on device"):
        bake(request, ignore)
