"""A failure for a vendor: a case is a script, and each other failure has the same frame."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.kernel import WrongKernel, seeded  # noqa: E402
from result_files import results_document  # noqa: E402

from warpfront_checks.cases import session  # noqa: E402
from warpfront_checks.check_options import CheckOptions, drawn_seeds  # noqa: E402
from warpfront_checks.explaining import UnexplainedError, explained  # noqa: E402
from warpfront_checks.models.families import NETWORKS  # noqa: E402
from warpfront_checks.models.modes import Proving, finding_of, judge_mode  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

EFFORT = CheckOptions(run="explained", seeds=drawn_seeds("explained", 1))
LARGER = WrongKernel("larger", ("tanh",), lambda right, *args: right(*args) * 1.01)


def written(folder: Path, session: str, check: str, fault: str, outcome: str = "failed") -> Path:
    path = folder / f"{session}.json"
    path.write_text(json.dumps(results_document(session, check, fault, outcome)))
    return path


@pytest.mark.process
def test_a_case_is_a_frame_and_a_script_of_torch_alone(tmp_path: Path) -> None:
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    with seeded(LARGER, CPU.device):
        find = partial(session.find_operation, "tanh", CPU.device, EFFORT)
        recorder.run({"tanh, cases": find})
    recorder.finish()
    script = explained(recorder.path, "tanh, cases")
    frame = [line for line in script.splitlines() if line.startswith("# ")]
    assert 10 <= len(script.splitlines()) <= 30
    assert frame[0] == "# tanh: result is wrong on cpu"
    assert f"# torch {torch.__version__}" in frame[1]
    assert any(line.startswith("# call: found = torch.tanh(a)") for line in frame)
    assert any("aten.tanh" in line for line in frame if line.startswith("# overloads"))
    assert "warpfront" not in script
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    )
    assert "largest difference" in done.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("wrong", "lines"), [("addmm", "aten.addmm.default(bias, "), ("gelu", "aten.gelu.default(")]
)
def test_a_layer_is_a_frame_and_a_script_of_the_operators_that_it_called(
    wrong: str, lines: str, tmp_path: Path
) -> None:
    larger = WrongKernel(
        f"a larger {wrong}", (wrong,), lambda right, *a, **k: right(*a, **k) * 1.01
    )
    network = next(one for one in NETWORKS if one.name == "mlp")
    recorder = Recorder(session="numerics", target="cpu", folder=tmp_path)
    with seeded(larger, CPU.device):
        find = partial(judge_mode, network, "float32", Proving(device="cpu"))
        recorder.run({"mlp float32": lambda: finding_of({0: find()}, "mlp float32 on cpu")})
    recorder.finish()
    text = explained(recorder.path, "mlp float32").splitlines()
    assert all(line.startswith("# ") for line in text), "a file's own text runs by no accident"
    assert any("shape (1, " in line for line in text), "it was made small"
    assert any(lines in line for line in text)
    start = next(n for n, line in enumerate(text) if "import math, torch" in line)
    assert 10 <= start <= 25
    script = "\n".join(line[4:] for line in text[start:-1])
    assert "warpfront" not in script
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    )
    assert "largest difference" in done.stdout


@pytest.mark.parametrize("name", ["numerics", "models", "attention", "golden", "opinfo"])
def test_a_failure_that_is_no_case_has_the_frame_and_the_command_that_runs_it_again(
    name: str, tmp_path: Path
) -> None:
    path = written(tmp_path, name, "a check", "seed 7: worst\nimport os")
    lines = explained(path, "a check").splitlines()
    assert all(line.startswith("# ") for line in lines)
    assert lines[0] == f"# {name}: a check is wrong on cpu"
    assert f"{name} has no script; this runs it again with the same inputs" in lines[-1]
    assert any("seed 7: worst" in line for line in lines)


def test_what_has_not_failed_is_not_explained(tmp_path: Path) -> None:
    path = written(tmp_path, "operators", "mm, cases", "", "passed")
    with pytest.raises(UnexplainedError, match="mm, cases is passed: no case of it failed"):
        explained(path, "mm, cases")
    with pytest.raises(UnexplainedError, match="has no check 'other'\nhint: it has"):
        explained(path, "other")
