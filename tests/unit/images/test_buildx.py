"""BuildKit's progress, read line by line: steps, logs, and an answer per target."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import time
from pathlib import Path

import pytest
from fakes import FakeEngine

from warpfront.errors import StoreError, keep_secret
from warpfront.images.engine import buildx
from warpfront.images.engine.buildx import (
    BakeRequest,
    BuildStep,
    ProgressReader,
    bake,
    forget_steps,
    local_context,
)


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
    assert [(step.target, step.state) for step in steps if not step.line] == [
        ("cell-a", "running"),
        ("cell-a", "done"),
    ]
    assert "compiling" in (tmp_path / "cell-a.log").read_text()
    assert (tmp_path / "cell-b.log").read_text() == ""


def test_no_secret_gets_into_a_log_whole_or_in_two_pieces(tmp_path: Path) -> None:
    """`set -x` prints what a step was given; BuildKit cuts what is printed where it likes."""
    secret = f"canary-of-{tmp_path.name}"
    keep_secret(secret)
    name = "[2/3] RUN set -x"
    told = [
        vertex(name, started="t"),
        log(name, f"+ use {secret}\n+ again {secret[:9]}"),
        log(name, f"{secret[9:]} and\nthe last {secret}"),
        vertex(name, completed="t"),
        vertex(name, error=f"failed with {secret}"),
        log(name, f"after all {secret}"),
        f"ERROR: {secret}",
    ]
    read(("cell-a",), told, tmp_path)
    said = (tmp_path / "cell-a.log").read_text()
    assert secret not in said
    for line in ("+ use ***", "+ again *** and", "the last ***", "after all ***", "ERROR: ***"):
        assert f"{line}\n" in said


def test_who_follows_the_log_sees_each_line_as_it_comes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ProgressReader(("cell-a",), {"cell-a": log}, ignore) as reader:
        reader.read_line('{"vertexes": [{"digest": "1", "name": "RUN sleep", "started": "now"}]}')
        assert log.read_text() == "running: RUN sleep\n"


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


NAME = (
    "[cell-a stage-1 3/9] RUN --network=none     --mount=type=bind,from=wheels   uv   venv && make"
)
COMMAND = '"/bin/sh -c uv venv && \\\n  make \\"it\\""'
FAILED = f"process {COMMAND} did not complete successfully: exit code: 2"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (NAME, "3 of 9: RUN uv venv && make"),
        ("[cell-a 1/9] FROM docker.io/x@sha256:0", "1 of 9: FROM docker.io/x@sha256:0"),
        ("[2/3] COPY a b", "2 of 3: COPY a b"),
        ("[cell-a internal] load build definition", "load build definition"),
        ("exporting to image", "exporting to image"),
        ("[1/2] RUN", "1 of 2: RUN "),
        ("", ""),
    ],
)
def test_a_step_says_which_of_how_many_and_what_it_does(name: str, words: str) -> None:
    assert BuildStep(target="", name=name, state="running").words == words


def test_a_step_that_only_reads_is_known() -> None:
    for name, internal in [
        ("[internal] load build definition", True),
        ("[cell-a internal] load .dockerignore", True),
        ("[context wheels] load from client", True),
        ("[cell-a context tools] load .dockerignore", True),
        ("[cell-a 1/2] RUN internal]", False),
        ("exporting to image", False),
    ]:
        assert BuildStep(target="", name=name, state="running").is_internal is internal


def failing(lines: list[str], folder: Path) -> str:
    with ProgressReader(("cell-a",), {"cell-a": folder / "log"}, ignore) as reader:
        for line in lines:
            reader.read_line(line)
    return reader.failure


def test_a_failure_is_what_the_program_said_last(tmp_path: Path) -> None:
    said = [log(NAME, f"line {n}\n") for n in range(40)]
    half = [log(NAME, "error: no inter"), log(NAME, "preter\n\n")]
    ended = [vertex(NAME, started="t"), *said, *half, vertex(NAME, started="t", error=FAILED)]
    first, *last = failing(ended, tmp_path).splitlines()
    assert first == "step 3 of 9: RUN uv venv && make: exit code: 2"
    assert last == [f"    line {n}" for n in range(31, 40)] + ["    error: no interpreter"]


def test_what_is_said_of_a_failure_is_short_and_has_no_password(tmp_path: Path) -> None:
    name = f"[cell-a 2/9] RUN {'x' * 5_000}"
    lines = [vertex(name, started="t"), log(name, "y" * 9_000 + "\nhttps://me:secret@host/ gone\n")]
    failure = failing([*lines, vertex(name, error=FAILED)], tmp_path)
    assert len(failure) < 4_500
    assert "secret" not in failure
    assert "@host/ gone" in failure


def test_the_first_step_that_failed_is_the_reason_and_no_step_that_was_stopped(
    tmp_path: Path,
) -> None:
    lines = [
        vertex("[1/3] RUN a", error="context canceled"),
        vertex("[2/3] RUN b", error=FAILED),
        vertex("[3/3] RUN c", error=FAILED),
    ]
    assert failing(lines, tmp_path) == "step 2 of 3: RUN b: exit code: 2"
    assert failing([vertex("x", error="docker.io/x: not found")], tmp_path) == ""


def test_who_watches_hears_the_latest_line_of_a_step(tmp_path: Path) -> None:
    name = "[cell-a 2/3] RUN make"
    lines = [vertex(name, started="t"), log(name, "one\ntwo"), log(name, " three\n\n")]
    heard = [step.line for step in read(("cell-a",), lines, tmp_path)]
    assert heard == ["", "two", "two three"]


def test_bytes_of_layers_add_up_and_end_with_their_step(tmp_path: Path) -> None:
    name = "[cell-a 1/3] FROM docker.io/x"

    def status(layer: str, current: int, **more: object) -> str:
        fact = {"id": layer, "vertex": f"sha256:{name}", "current": current, **more}
        return json.dumps({"statuses": [fact]})

    lines = [
        vertex(name, started="t"),
        status("sha256:a", 10, total=100),
        status("sha256:b", 50, total=50),
        status("extracting sha256:a", 3),
        status("sha256:a", 100, total=100),
        vertex(name, completed="t"),
    ]
    steps = read(("cell-a",), lines, tmp_path)
    assert [(step.state, step.done_bytes, step.total_bytes) for step in steps] == [
        ("running", 0, 0),
        ("running", 10, 100),
        ("running", 60, 150),
        ("running", 149, 150),
        ("done", 150, 150),
    ]


FAKE_BUILDX = """
import json, pathlib, sys
arguments = sys.argv[1:]
metadata = pathlib.Path(arguments[arguments.index("--metadata-file") + 1])
targets = [a for a in arguments[arguments.index("--metadata-file") + 2:] if not a.startswith("--")]
calls = metadata.parent / "calls"
with calls.open("a") as file:
    file.write(" ".join(targets) + " anew" * ("--no-cache" in arguments) + "\\n")
(metadata.parent / "settings").write_text("\\n".join(a for a in arguments if a[:6] == "--set="))
print("a line of a program", flush=True)
if BROKEN & set(targets) and len(calls.read_text().splitlines()) <= TIMES:
    print('ERROR: failed to solve: MESSAGE')
    sys.exit(1)
metadata.write_text(json.dumps({t: {"containerimage.digest": f"sha256:{t}"} for t in targets}))
"""


def a_request(
    folder: Path, broken: set[str], message: str = "exit code: 1", times: int = 9
) -> BakeRequest:
    """A stand-in for buildx that fails, as bake does, as a whole when one target is broken, in the
    first calls.
    """
    script = folder / "buildx.py"
    text = FAKE_BUILDX.replace("BROKEN", repr(broken)).replace("MESSAGE", message)
    script.write_text(text.replace("TIMES", str(times)))
    return BakeRequest(
        buildx=(sys.executable, str(script)),
        environment={},
        file=folder / "bake.json",
        targets=("torch", "devel", "serve"),
        readable=(folder,),
        logs={},
    )


def ignore(_step: BuildStep) -> None: ...


@pytest.mark.process
def test_an_engine_that_hangs_over_forgetting_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildx, "_FORGETTING_SECONDS", 0.2)
    hanging = (sys.executable, "-c", "import time; time.sleep(60)")
    request = dataclasses.replace(a_request(tmp_path, set()), buildx=hanging)
    began = time.monotonic()
    forget_steps(request, "a step")
    assert time.monotonic() - began < 30


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 1])
def test_steps_are_forgotten_by_their_words_and_one_that_cannot_is_left(
    tmp_path: Path, code: int
) -> None:
    script, told = tmp_path / "prunes.py", tmp_path / "told"
    text = f"import pathlib, sys\npathlib.Path({str(told)!r}).write_text(repr(sys.argv[1:]))\n"
    script.write_text(f"{text}sys.exit({code})\n")
    request = dataclasses.replace(a_request(tmp_path, set()), buildx=(sys.executable, str(script)))
    forget_steps(request, "/run/a step.py")
    # BuildKit reads a value of other signs than letters within quotes.
    assert told.read_text() == repr(["prune", "--force", '--filter=description~="/run/a step.py"'])


@pytest.mark.process
def test_one_bake_is_enough_when_nothing_fails(tmp_path: Path) -> None:
    answers = bake(a_request(tmp_path, set()), ignore)
    assert {name: answer.digest for name, answer in answers.items()} == {
        "torch": "sha256:torch",
        "devel": "sha256:devel",
        "serve": "sha256:serve",
    }
    assert (tmp_path / "calls").read_text() == "torch devel serve\n"
    assert (tmp_path / "settings").read_text() == ""


@pytest.mark.process
def test_each_target_keeps_its_steps_under_a_tag_of_its_own(tmp_path: Path) -> None:
    kept = "registry.example.com/cache"
    bake(dataclasses.replace(a_request(tmp_path, set()), cache=kept), ignore)
    settings = (tmp_path / "settings").read_text().splitlines()
    assert [one for one in settings if one.startswith("--set=devel.")] == [
        f"--set=devel.cache-from=type=registry,ref={kept}:devel",
        f"--set=devel.cache-to=type=registry,ref={kept}:devel,mode=max,ignore-error=true",
    ]
    assert len(settings) == 6


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
    assert not answers["serve"].cache_lost
    assert (tmp_path / "calls").read_text().splitlines().count("serve") == 1


# As buildx's driver `remote` prints it where nobody listens.
NOBODY = vertex("[internal] waiting for connection", completed="t", error="deadline exceeded")


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [
        "failed to solve: Unavailable: error reading from server: EOF",
        "desc = error reading from server: read unix @->/d.sock: read: connection reset by peer",
        NOBODY,
    ],
    ids=["EOF", "reset", "remote"],
)
def test_an_engine_that_went_away_ends_the_bake(tmp_path: Path, words: str) -> None:
    answers = bake(a_request(tmp_path, {"torch"}, words), ignore)
    assert all(answer.engine_gone for answer in answers.values())
    assert (tmp_path / "calls").read_text() == "torch devel serve\n"


LOST = (
    "failed to commit a to b: failed to stat active key: snapshot a does not exist: not found",
    "failed to stat lower snapshot oqp2tt0j: snapshot oqp2tt0j does not exist: not found",
    "failed to mount /x: parent snapshot sha256:c032 does not exist: not found",
    "snapshot  does not exist: not found",
    "failed to rename: rename /a/snapshots/new-1085706100 /a/snapshots/11: file exists",
)


@pytest.mark.process
def test_what_buildkits_cache_lost_is_built_once_more_without_it_and_told_from_other_failures(
    tmp_path: Path,
) -> None:
    answers = bake(a_request(tmp_path, {"torch"}, LOST[0], times=1), ignore)
    assert {answer.error for answer in answers.values()} == {""}
    calls = tmp_path / "calls"
    assert calls.read_text() == "torch devel serve\ntorch devel serve anew\n"
    for message in LOST[1:]:
        calls.unlink()
        request = dataclasses.replace(a_request(tmp_path, {"torch"}, message), targets=("torch",))
        (answer,) = bake(request, ignore).values()
        assert (answer.cache_lost, message in answer.error) == (True, True)
        assert calls.read_text() == "torch\ntorch anew\n"


AT_ONCE = 'failed to solve: image "localhost/mine/torch:2.13.0": already exists'


@pytest.mark.process
def test_an_image_that_another_build_named_at_the_same_moment_is_named_on_another_try(
    tmp_path: Path,
) -> None:
    answers = bake(a_request(tmp_path, {"torch"}, AT_ONCE, times=1), ignore)
    assert {answer.error for answer in answers.values()} == {""}
    calls = tmp_path / "calls"
    assert calls.read_text() == "torch devel serve\n" * 2, "its cache is used"
    calls.unlink()
    request = dataclasses.replace(a_request(tmp_path, {"torch"}, AT_ONCE), targets=("torch",))
    (answer,) = bake(request, ignore).values()
    assert AT_ONCE in answer.error
    assert calls.read_text() == "torch\n" * 2, "and then it is an error"


@pytest.mark.process
def test_a_disk_too_full_for_the_logs_is_an_error_of_its_own(tmp_path: Path) -> None:
    request = dataclasses.replace(a_request(tmp_path, set()), logs={"torch": Path("/dev/full")})
    with pytest.raises(StoreError, match="No space left on device"):
        bake(request, ignore)


def test_a_builder_elsewhere_gets_this_engine_s_images_as_layouts(tmp_path: Path) -> None:
    engine = FakeEngine()
    (tmp_path / "a.tar").write_bytes(b"")
    image = engine.import_rootfs(tmp_path / "a.tar", "localhost/x/a:1", {}, {})
    folder = tmp_path / "layouts"
    assert local_context(engine, "localhost/x/a:1", folder) == "docker-image://localhost/x/a:1"
    assert not folder.exists()
    engine.elsewhere = True
    for _ in range(2):  # what an earlier one left there is not in its way
        found = local_context(engine, "localhost/x/a:1", folder)
        (layout,) = folder.iterdir()
        assert found == f"oci-layout://{layout}@{image.id}"
        assert (layout / "index.json").is_file()
