"""The command of the checks beside a real torch: what it leaves, and how it ends."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402

from warpfront_checks import children, detection  # noqa: E402
from warpfront_checks.__main__ import main  # noqa: E402
from warpfront_checks.cases.catalogue.patterns import PATTERNS  # noqa: E402
from warpfront_checks.cases.special import session as operators  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.children import begin_beside, fork, open_nursery  # noqa: E402
from warpfront_checks.claims import Claims  # noqa: E402
from warpfront_checks.compiling.job import CompileJob, JobUnit, Probe  # noqa: E402
from warpfront_checks.compiling.job_run import CompileJobRun  # noqa: E402
from warpfront_checks.hardware import read_hardware  # noqa: E402
from warpfront_checks.hardware.recording import Recorded  # noqa: E402
from warpfront_checks.models import modes  # noqa: E402
from warpfront_checks.models.families import FAMILIES  # noqa: E402
from warpfront_checks.models.judging import first_over  # noqa: E402
from warpfront_checks.models.modes import Proving  # noqa: E402
from warpfront_checks.precision import COMPUTED, probe_dtypes  # noqa: E402
from warpfront_checks.results import Checks, Recorder, passed, write_json  # noqa: E402

RECORDINGS = Path(__file__).parents[1] / "detect"


def run(folder: Path, session: str, claims: Claims, *options: str) -> tuple[int, dict[str, Any]]:
    write_json(folder / "claims.json", claims.document())
    places = ("--claims", str(folder / "claims.json"), "--results", str(folder / "results"))
    code = main([session, *places, *options])
    document = json.loads((folder / "results" / f"{session}.json").read_text())
    return code, {check["name"]: check for check in document["checks"]}


@pytest.mark.process
def test_this_torch_loads_and_is_what_it_is_claimed_to_be(tmp_path: Path) -> None:
    code, checks = run(tmp_path, "load", CPU)
    wrong = {n: c["reason"] for n, c in checks.items() if c["outcome"] != "passed"}
    assert (code, wrong) == (0, {})
    assert checks["torch imports"]["details"]["version"] == torch.__version__
    assert checks["dependencies"]["details"]["checked"] > 5


@pytest.mark.process
def test_a_torch_of_another_version_and_toolkit_than_claimed_fails(tmp_path: Path) -> None:
    versions = {"torch": "1.0", "no-such-thing": "2"}
    claims = replace(
        CPU, python="3.7", versions=versions, toolkit=("cuda", "13.0"), stack=("torch",)
    )
    code, checks = run(tmp_path, "load", claims)
    assert code == 1
    said = {name: check["reason"] for name, check in checks.items()}
    assert "the lock has 1.0" in said["versions"]
    assert "no-such-thing is not installed, the lock has 2" in said["versions"]
    assert checks["torch build"]["outcome"] == "failed"
    assert checks["python version"]["outcome"] == "failed"
    assert checks["torch imports"]["outcome"] == "passed"


@pytest.mark.process
@pytest.mark.parametrize("own", ["", "active"])
def test_threads_wait_without_spinning_unless_the_machine_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", own)
    if not own:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert run(tmp_path, "devices", CPU, "--quick")[0] == 0
    assert os.environ["OMP_WAIT_POLICY"] == (own or "passive")


@pytest.mark.process
def test_a_session_that_computes_asks_for_its_device_first(tmp_path: Path) -> None:
    code, checks = run(tmp_path, "devices", CPU, "--quick")
    assert code == 0
    assert next(iter(checks)) == "device"
    assert checks["device cpu"]["outcome"] == "passed"
    code, checks = run(
        tmp_path, "numerics", replace(CPU, target="sm_90", vendor="nvidia", device="cuda")
    )
    assert code == 1
    assert list(checks) == ["device"]
    assert checks["device"]["reason"].startswith("torch is a cpu build")


def test_claims_that_cannot_be_read_are_an_exit_code_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "claims.json").write_text("{")
    code = main(["load", "--claims", str(tmp_path / "claims.json"), "--results", str(tmp_path)])
    assert code == 2
    assert "not JSON" in capsys.readouterr().err


def test_detection_of_a_recorded_machine_is_text_or_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--recorded", str(RECORDINGS / "h100")]
    assert main(["detect", *place]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines()[:5])
    assert lines["vendor"] == "nvidia"
    assert lines["arch"] == "sm_90"
    assert lines["devices_torch_sees"] == "unknown"
    assert main(["detect", "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["answer"]["name"] == "NVIDIA H100 80GB HBM3"


def test_a_recording_that_is_none_is_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert detection.main(["--recorded", str(tmp_path)]) == 2
    assert "hint: --record FOLDER makes a recording" in capsys.readouterr().err


@pytest.mark.process
def test_this_machine_is_detected_with_its_torch_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    assert detection.main(["--json", "--record", str(kept), "--source", "a test's machine"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answer"]["torch_build"] == "cpu"
    assert found["dtypes"]["float32"] == COMPUTED
    assert read_hardware(Recorded(kept)).processor.threads > 0


def test_a_dtype_counts_as_computed_only_after_a_right_product() -> None:
    assert {probe_dtypes("cpu")[name] for name in ("float64", "float32", "int8")} == {COMPUTED}
    on_meta = probe_dtypes("meta")
    assert all(answer != COMPUTED for answer in on_meta.values())


# Inductor still uses what torch itself calls deprecated.
OWN_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning")
NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs g++")


@NEEDS_COMPILER
@OWN_WARNINGS
@pytest.mark.process
def test_a_compiled_pattern_is_judged_and_a_wrong_one_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(one for one in PATTERNS if one.name == "add + relu")
    monkeypatch.setattr(operators, "COMPILED", few)
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    recorder.run(operators.compiled_checks("cpu", CheckOptions()))
    right = operators.compiled_function

    def larger(*arguments: Any) -> Any:
        function = right(*arguments)
        return lambda *tensors: function(*tensors) * 1.01

    monkeypatch.setattr(operators, "compiled_function", larger)
    recorder.run(operators.compiled_checks("cpu", CheckOptions()))
    assert [outcome for _, outcome in recorder.found] == ["passed", "failed"]


@OWN_WARNINGS
@pytest.mark.process
def test_a_compiled_model_is_judged_and_a_wrong_one_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a backend that writes no C++: the pattern above is compiled by Inductor."""
    monkeypatch.setattr(modes, "BACKENDS", {"cpu": "aot_eager"})
    monkeypatch.setattr(modes, "COMPILED", {"cpu": ("mlp",)})

    def tamper(model: Any) -> None:
        model.body.layers[-1].register_forward_hook(lambda _, __, output: output * 1.01)

    (mlp,) = (family for family in FAMILIES if family.name == "mlp")
    for bench in (Proving(device="cpu"), Proving(device="cpu", tamper=tamper)):
        first = first_over(modes.judge_mode(mlp, "compiled", bench))
        assert (first is not None) == (bench.tamper is tamper)


MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "own", 0, -1, 0};
PyMODINIT_FUNC PyInit_own(void) { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
setup(name="own", ext_modules=[Extension("own", ["own.c"])])
"""


SOURCES = {
    "right": MODULE,
    "does not compile": MODULE.replace("int(", "int((").replace("return", "retrun"),
    "does not load": MODULE.replace("PyInit_own", "PyInit_other"),
}


@NEEDS_COMPILER
@pytest.mark.process
def test_an_extension_is_built_against_this_torch_and_imported(tmp_path: Path) -> None:
    """One job, for each start of torch takes seconds."""
    copied = [f"{name}/{file}" for name in SOURCES for file in ("own.c", "setup.py")]
    for name, text in SOURCES.items():
        folder = tmp_path / "source" / name
        folder.mkdir(parents=True)
        (folder / "own.c").write_text(text)
        (folder / "setup.py").write_text(SETUP)
    (tmp_path / "results").mkdir()
    argv = ("g++", "-c", "{source}", "-o", "{output}")
    job = CompileJob(
        target="cpu",
        source=tmp_path / "source",
        scratch=tmp_path / "scratch",
        copy=tmp_path / "scratch" / "copy",
        version=("g++", "--version"),
        probe=Probe(name="probe.cc", text="int probe;\n", argv=argv),
        torch_defines=(),
        environment={},
        copied=tuple(copied),
        hipified=(),
        kept=(),
        seconds=120.0,
        memory_bytes=1 << 34,
        jobs=1,
        units=tuple(
            JobUnit(path=path, kind="extension", torch=True, argv=()) for path in copied[1::2]
        ),
    )
    recorder = Recorder(session="compile", target="cpu", folder=tmp_path / "results")
    CompileJobRun(job=job, results=tmp_path / "results").record(recorder)
    recorder.finish()
    document = json.loads((tmp_path / "results" / "compile.json").read_text())
    assert document["environment"]["torch"]["version"] == torch.__version__
    assert document["environment"]["torch"]["standard"].startswith("-std=c++")
    checks = {one["name"].partition("/")[0]: one for one in document["checks"][1:]}
    outcomes = {name: check["outcome"] for name, check in checks.items()}
    assert outcomes == dict(zip(SOURCES, ("passed", "failed", "failed"), strict=True)), checks
    assert "PyInit_own" in checks["does not load"]["details"]["output"]
    assert "retrun" in checks["does not compile"]["details"]["output"]


@NEEDS_COMPILER
@OWN_WARNINGS
@pytest.mark.process
def test_a_compiled_model_is_found_out_by_a_child() -> None:
    found = modes.find_compiled(name="mlp", device="cpu", effort=CheckOptions(seeds=(3,)))
    assert found.outcome == "passed"


@pytest.mark.parametrize(
    ("lanes", "quick", "begun"), [(8, False, 2), (1, False, 1), (0, False, 0), (8, True, 0)]
)
def test_compiled_models_begin_where_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int, begun: int, *, quick: bool
) -> None:
    told: list[int] = []

    def begin(find: str, asked: Any, _: CheckOptions, *, lanes: int) -> Checks:
        assert find == "models.modes:find_compiled"
        assert asked == {"gpt compiled": {"name": "gpt", "device": "cpu"}}
        told.append(lanes)
        return dict.fromkeys(asked, passed)

    monkeypatch.setattr(modes, "lanes_for", lambda _: lanes)
    monkeypatch.setattr(modes, "begin_checks", begin)
    monkeypatch.setattr(modes, "missing_compiler", lambda _: "")
    monkeypatch.setattr(modes, "_planned", lambda _: {})
    monkeypatch.setattr(modes, "QUICK", {})
    recorder = Recorder(session="models", target="cpu", folder=tmp_path)
    modes.record_models(CPU, recorder, CheckOptions(quick=quick))
    assert told == [begun] * (not quick)
    compiled = [name for name in recorder.planned if "compiled" in name]
    assert compiled == ["gpt compiled"] * (not quick)


def test_without_a_compiler_nothing_is_recorded_of_compiled_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes, "missing_compiler", lambda _: "no C++ compiler in this image")
    recorder = Recorder(session="models", target="cpu", folder=tmp_path)
    recorder.run(modes.compiled_checks(CPU, CheckOptions()))
    recorder.finish()
    document = json.loads((tmp_path / "models.json").read_text())
    assert document["checks"] == []
    said = "torch.compile cannot work: no C++ compiler in this image"
    assert {one["reason"] for one in document["unclaimed"]} == {said}


def test_a_device_that_torch_says_is_full_is_out_of_memory(tmp_path: Path) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    recorder.run({"full": full})
    recorder.finish()
    (check,) = json.loads((tmp_path / "operators.json").read_text())["checks"]
    assert check["outcome"] == "error"
    assert check["reason"].startswith("out of memory: OutOfMemoryError at test_programs.py:")


@pytest.mark.process
def test_many_lanes_yield_the_processor_to_a_chain_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "niceness.py").write_text("import os\ndef find(item): return {item: os.nice(0)}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    answers = {n: begin_beside("niceness:find", "abc"[:n], lanes=n, seconds=60) for n in (1, 3)}
    own = os.nice(0)
    documents = {n: [a.result().document for a in begun.answers] for n, begun in answers.items()}
    assert documents == {1: [{"a": own}], 3: [{name: own + 2} for name in "abc"]}


@pytest.mark.process
def test_a_nursery_begins_children_that_know_what_it_knew_and_one_that_dies_costs_its_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(sys.modules, "known_before", sys)

    def session() -> int:
        with open_nursery():
            del sys.modules["known_before"]  # the nursery was forked before
            items, told = ["first", "dies", "leaves", "last"], {"TOLD": "something"}
            work = "raised_child:answer"
            begun = begin_beside(work, items, lanes=1, seconds=60, environment=told)
            answers = [vars(one.result(60)) for one in begun.answers]
        (tmp_path / "answers").write_text(json.dumps([os.getpid(), answers]))
        return 0

    pid = fork(session)
    assert os.waitpid(pid, 0)[1] == 0
    own, (first, died, left, last) = json.loads((tmp_path / "answers").read_text())
    assert (died["outcome"], died["reason"]) == ("crashed", "signal SIGKILL")
    assert left["document"]["pid"] != last["document"]["pid"]
    for one in (first, left, last):
        assert one["outcome"] == "done"
        assert (one["document"]["told"], one["document"]["known"]) == ("something", True)
        assert one["document"]["session"] == one["document"]["pid"] != own


@pytest.mark.parametrize(("initialised", "asked"), [(0, [(0, 4)]), (100, [])])
def test_a_lane_asks_the_driver_to_sleep_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, initialised: int, asked: list[tuple[int, int]]
) -> None:
    flags: list[tuple[int, int]] = []
    driver = SimpleNamespace(
        cuInit=lambda _: initialised, cuDevicePrimaryCtxSetFlags=lambda *both: flags.append(both)
    )
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    children.sleep_while_waiting()
    assert flags == asked


def test_where_the_system_hands_no_orphans_on_there_is_no_nursery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing = SimpleNamespace(prctl=lambda *_: -1)
    for library in (refusing, object()):
        monkeypatch.setattr("ctypes.CDLL", lambda _, one=library: one)
        with children.open_nursery():
            assert children.nursery() is None
