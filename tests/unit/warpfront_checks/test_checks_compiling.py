"""The session inside, with stand-in compilers: shell scripts that behave as compilers do, well and
badly. Real compilers are in tests/integration/test_compile*.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warpfront_checks.compiling.__main__ import main
from warpfront_checks.compiling.job import filled, read_job
from warpfront_checks.compiling.job_run import CopyError, copy_tree
from warpfront_checks.compiling.programs import HEAD_BYTES, TAIL_BYTES, ran

pytestmark = pytest.mark.process

# Writes the output that it is asked for, unless its source says otherwise.
COMPILER = """#!/bin/sh
[ "$1" = --version ] && { echo "fakecc version 1.0"; exit 0; }
for word; do case $last in -c) source=$word;; -o) output=$word;; esac; last=$word; done
case $(cat "$source") in
    *wrong*) echo "$source:1:1: error: wrong" >&2; exit 1;;
    *slow*) sleep 60;;
    *flood*) head -c 1000000 /dev/zero | tr '\\0' x; exit 1;;
    *killed*) kill -KILL $$;;
    *memory*) echo "LLVM ERROR: out of memory" >&2; exit 1;;
    *part*) echo "clang: error: unable to execute command: Killed" >&2; exit 254;;
    *keeps*) echo kept > "$(dirname "$output")/a.ptx"; echo "ptxas error : bad"; exit 1;;
    *child*) sleep 60 & echo $! > "$(dirname "$output")/../child"; exit 0;;
esac
echo object > "$output"
"""

Compile = Callable[..., dict[str, Any]]


@pytest.fixture
def compile_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Runs the session over sources (name to text); the document that it leaves."""
    programs = tmp_path / "bin"
    programs.mkdir()
    compiler = programs / "fakecc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    # Its Python has no torch, whether or not the one of these tests has.
    bare = programs / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))

    def compile_all(sources: dict[str, str], **changes: Any) -> dict[str, Any]:
        for name, text in sources.items():
            path = tmp_path / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        results = tmp_path / "results"
        results.mkdir(exist_ok=True)
        job = tmp_path / "job.json"
        job.write_text(json.dumps(a_job(tmp_path, sources) | changes))
        main(["--job", str(job), "--results", str(results)])
        document: dict[str, Any] = json.loads((results / "compile.json").read_text())
        return document

    return compile_all


def a_job(root: Path, sources: dict[str, str]) -> dict[str, Any]:
    argv = ["fakecc", "-c", "{source}", "-o", "{output}"]
    return {
        "schema": 1,
        "target": "gfx942",
        "source": str(root / "source"),
        "scratch": str(root / "scratch"),
        "copy": str(root / "scratch" / "tree"),
        "version": ["fakecc", "--version"],
        "probe": {"text": "int probe;\n", "name": "probe.cu", "argv": argv},
        "torch_defines": [],
        "environment": {},
        "copied": [],
        "hipified": [],
        "kept": ["*.ptx"],
        "seconds": 20.0,
        "memory_bytes": 1 << 32,
        "jobs": 2,
        "units": [
            {"path": name, "kind": "kernel", "torch": False, "argv": argv} for name in sources
        ],
    }


def outcomes(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {check["name"]: (check["outcome"], check["reason"]) for check in document["checks"]}


def test_every_source_is_one_check_in_its_order(compile_all: Compile) -> None:
    document = compile_all({"b.cu": "", "a.cu": "wrong", "c.cu": ""})
    assert document["planned"] == ["compiler", "b.cu", "a.cu", "c.cu"]
    assert document["finished"] is True
    found = outcomes(document)
    assert [found[name][0] for name in document["planned"]] == [
        "passed",
        "passed",
        "failed",
        "passed",
    ]
    assert "a.cu:1:1: error: wrong" in found["a.cu"][1]
    assert document["environment"]["compiler"] == "fakecc version 1.0"


def test_a_compiler_that_does_not_know_the_target_is_no_failure_of_the_sources(
    compile_all: Compile,
) -> None:
    probe = {"text": "wrong\n", "name": "p.cu", "argv": ["fakecc", "-c", "{source}"]}
    found = outcomes(compile_all({"a.cu": ""}, probe=probe))
    assert found["compiler"][0] == "unavailable"
    assert found["a.cu"] == ("unavailable", "this fakecc cannot compile for gfx942")


def test_a_missing_compiler_is_unavailable(compile_all: Compile) -> None:
    found = outcomes(compile_all({"a.cu": ""}, version=["nocc", "--version"]))
    assert found["compiler"] == ("unavailable", "no nocc in this image")
    assert found["a.cu"][0] == "unavailable"


def test_a_source_that_needs_torch_is_unavailable_without_one(compile_all: Compile) -> None:
    argv = ["fakecc", "{torch}", "-c", "{source}", "-o", "{output}"]
    units = [{"path": "a.cu", "kind": "kernel", "torch": True, "argv": argv}]
    found = outcomes(compile_all({"a.cu": ""}, units=units))
    assert found["a.cu"][0] == "unavailable"
    assert "no torch" in found["a.cu"][1]


def test_a_compiler_that_hangs_is_stopped_and_the_others_go_on(compile_all: Compile) -> None:
    found = outcomes(compile_all({"a.cu": "slow", "b.cu": ""}, seconds=1.0))
    assert found["a.cu"] == ("error", "stopped after 1 s")
    assert found["b.cu"][0] == "passed"


@pytest.mark.parametrize("text", ["killed", "memory", "part"])
def test_a_compiler_out_of_memory_is_an_error_and_no_failure(
    compile_all: Compile, text: str
) -> None:
    found = outcomes(compile_all({"a.cu": text}))
    assert found["a.cu"] == ("error", "the compiler ran out of its 4 GiB")


def test_a_flood_of_output_is_kept_in_part(compile_all: Compile) -> None:
    document = compile_all({"a.cu": "flood"})
    output = document["checks"][1]["details"]["output"]
    assert len(output) < HEAD_BYTES + TAIL_BYTES + 100
    assert "bytes left out]" in output


def test_what_says_where_an_error_is_comes_back_with_it(
    compile_all: Compile, tmp_path: Path
) -> None:
    document = compile_all({"a.cu": "keeps"})
    (kept,) = document["checks"][1]["details"]["kept"]
    assert (tmp_path / "results" / kept).read_text() == "kept\n"
    assert not (tmp_path / "scratch" / "unit-0").exists()


def test_nothing_that_a_compiler_started_outlives_it(compile_all: Compile, tmp_path: Path) -> None:
    compile_all({"a.cu": "child"})
    pid = int((tmp_path / "scratch" / "child").read_text())
    deadline = time.monotonic() + 60  # killed is not yet gone, on a machine with other work
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_names_that_look_like_options_or_commands_are_names(compile_all: Compile) -> None:
    names = {"-o.cu": "", "a b;c$(d).cu": "", "{output}.cu": "wrong"}
    found = outcomes(compile_all(names))
    assert found["-o.cu"][0] == found["a b;c$(d).cu"][0] == "passed"
    assert found["{output}.cu"][0] == "failed"


def test_a_place_is_filled_once_and_other_words_stay() -> None:
    places = {"{source}": ("{output}",), "{output}": ("o",), "{torch}": ("-I1", "-I2")}
    assert filled(("cc", "{torch}", "-c", "{source}", "-D{x}"), places) == (
        "cc",
        "-I1",
        "-I2",
        "-c",
        "{output}",
        "-D{x}",
    )


def test_a_job_comes_back_from_its_document_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(a_job(tmp_path, {"a.cu": "int a;"})))
    job = read_job(file)
    assert job.document() == a_job(tmp_path, {"a.cu": "int a;"})
    file.write_text(json.dumps(job.document()))
    assert read_job(file) == job


def test_a_job_of_another_schema_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text('{"schema": 2}')
    with pytest.raises(ValueError, match="schema is 2, not 1"):
        read_job(job)


def test_hipify_reads_the_copy_and_never_the_source(compile_all: Compile, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "hipify-perl"
    tool.write_text('#!/bin/sh\nsed s/cuda/hip/g "$3" > "$2"\n')
    tool.chmod(0o755)
    document = compile_all(
        {"a.cu": "cudaMalloc\n", "d/b.cu": "cudaFree\n"},
        copied=["a.cu", "d/b.cu"],
        hipified=["a.cu", "d/b.cu"],
    )
    assert outcomes(document)["hipify"] == ("passed", "hipify-perl over 2 files")
    assert (tmp_path / "source" / "a.cu").read_text() == "cudaMalloc\n"
    assert (tmp_path / "results" / "hipified" / "d" / "b.cu").read_text() == "hipFree\n"
    assert document["checks"][2]["details"]["argv"][2] == str(tmp_path / "scratch/tree/a.cu")


def test_a_file_that_hipify_breaks_on_is_an_error_of_its_own(
    compile_all: Compile, tmp_path: Path
) -> None:
    tool = tmp_path / "bin" / "hipify-perl"
    tool.write_text("#!/bin/sh\necho Died at line 7; exit 2\n")
    tool.chmod(0o755)
    found = outcomes(compile_all({"a.cu": ""}, copied=["a.cu"], hipified=["a.cu"]))
    outcome, reason = found["hipify"]
    assert outcome == "error"
    assert reason == "1 of 1 files as they were: a.cu: hipify-perl exited with 2: Died at line 7"


def test_a_tree_too_large_to_copy_is_an_error(
    compile_all: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpfront_checks.compiling.job_run.COPY_LIMIT_BYTES", 3)
    compile_all({"a.cu": "four"})
    job = read_job(tmp_path / "job.json")
    with pytest.raises(CopyError, match="larger than 0 MiB"):
        copy_tree(job, ["a.cu"])


def test_a_program_gets_no_more_memory_than_its_bound(tmp_path: Path) -> None:
    argv = ("python3", "-c", "b = bytearray(1 << 30)")
    ended = ran(argv, seconds=20, memory_bytes=256 << 20, cwd=tmp_path)
    assert ended.returncode not in {0, None}
    assert "MemoryError" in ended.output
