"""Golden vectors on the CPU: made, checked, and every way in which they can be wrong.

Needs torch, so it is skipped where that is not installed; the integration tests run it inside the
image.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402

from warpfront_checks.cases.run import reference_of  # noqa: E402
from warpfront_checks.golden import vectors  # noqa: E402
from warpfront_checks.golden.vectors import (  # noqa: E402  # noqa: E402  # noqa: E402
    SUITE,
    Golden,
    GoldenError,
    case_of,
    check_case,
    complete,
    compute,
    expect,
    from_bytes,
    main,
    make_golden,
    read_golden,
    record_golden,
    shipped,
    table,
    to_bytes,
)
from warpfront_checks.hardware import read_hardware  # noqa: E402
from warpfront_checks.hardware.recording import Recorded  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

NO_GPU = Recorded(Path(__file__).parents[1] / "detect" / "none")
DTYPES = ("float32", "bfloat16", "float16")


@pytest.fixture(autouse=True)
def recorded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware is read from a recording: unit tests start no programs."""
    monkeypatch.setattr(vectors, "Machine", lambda: NO_GPU)
    torch.set_num_threads(1)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A golden file of this CPU."""
    path = tmp_path / "here.safetensors"
    make_golden(path, CPU, read_hardware(NO_GPU), DTYPES)
    return path


def doctored(path: Path, change: Mapping[str, Any]) -> Path:
    """The file with changed tensors, and a manifest whose hashes are right again."""
    tensors = {**from_bytes(path.read_bytes()), **change}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    data = to_bytes(tensors, {})
    manifest = json.loads(path.with_suffix(".json").read_text())
    manifest["sha256"] = hashlib.sha256(data).hexdigest()
    from warpfront_checks.golden.vectors import _hash

    manifest["tensors"] = {name: _hash(tensor) for name, tensor in tensors.items()}
    path.write_bytes(data)
    path.with_suffix(".json").write_text(json.dumps(manifest))
    return path


def check_all(golden: Golden) -> list[Any]:
    return [check_case(golden, case, dtype, "cpu") for case, dtype in golden.entries()]


def test_what_was_made_here_is_right_here(made: Path) -> None:
    golden = read_golden(made)
    findings = check_all(golden)
    assert {finding.outcome for finding in findings} == {"passed"}
    assert len(findings) == len(SUITE) * len(DTYPES)
    assert complete(golden, "cpu").outcome == "passed"


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_the_shipped_files_are_right_here(path: Path) -> None:
    golden = read_golden(path)
    findings = check_all(golden)
    assert {finding.outcome for finding in findings} == {"passed"}, findings
    assert complete(golden, "cuda").outcome == "passed"
    assert path.stat().st_size < 500_000


def test_the_same_suite_is_the_same_bytes(made: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    make_golden(again, CPU, read_hardware(NO_GPU), DTYPES)
    assert again.read_bytes() == made.read_bytes()


def test_the_manifest_says_what_decides_about_numbers_and_nothing_of_the_host(made: Path) -> None:
    manifest = json.loads(made.with_suffix(".json").read_text())
    provenance = manifest["provenance"]
    assert provenance["torch"] == torch.__version__
    assert provenance["precision"]["matmul.allow_fp16_reduced_precision_reduction"] == "False"
    assert "/" not in json.dumps(provenance["environment"])


FAULTS = {
    "3 percent": lambda x: x * 1.03,
    "one element": lambda x: x.index_fill(0, torch.tensor([0]), 9.0),
    "zeros": torch.zeros_like,
    "not a number": lambda x: x * float("nan"),
    "wider dtype": lambda x: x.double(),
    "too short": lambda x: x[..., :-1],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tensor", ["out", "grad/1"])
def test_a_device_that_computes_wrong_is_caught(
    made: Path, monkeypatch: pytest.MonkeyPatch, fault: str, dtype: str, tensor: str
) -> None:
    def run(*arguments: Any) -> dict[str, Any]:
        found = dict(compute(*arguments))
        return {**found, tensor: FAULTS[fault](found[tensor])}

    monkeypatch.setattr(vectors, "compute", run)
    for case in ("linear", "attention"):
        finding = check_case(read_golden(made), case, dtype, "cpu")
        assert finding.outcome == "failed"
        assert f"{case} in {dtype}: {tensor}: " in finding.reason


def test_a_gradient_that_is_missing_and_one_from_elsewhere_are_caught(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropping(*arguments: Any) -> dict[str, Any]:
        return {"out": compute(*arguments)["out"]}

    def elsewhere(*arguments: Any) -> dict[str, Any]:
        return {name: tensor.to("meta") for name, tensor in compute(*arguments).items()}

    golden = read_golden(made)
    monkeypatch.setattr(vectors, "compute", dropping)
    assert "grad/0: missing" in check_case(golden, "gelu", "float32", "cpu").reason
    monkeypatch.setattr(vectors, "compute", elsewhere)
    moved = check_case(golden, "gelu", "float32", "cpu").reason
    assert "on meta, expected on cpu" in moved


def test_a_maker_that_was_wrong_is_told_from_a_device_that_is(made: Path) -> None:
    name = "linear/float32/made/out"
    wrong = from_bytes(made.read_bytes())[name] * 1.03
    finding = check_case(read_golden(doctored(made, {name: wrong})), "linear", "float32", "cpu")
    assert finding.outcome == "failed"
    assert "out: the maker (cpu cpu) is off by" in finding.reason
    assert "this device" not in finding.reason


def test_float64_references_that_differ_are_a_failure(made: Path) -> None:
    name = "linear/float32/ref64/out"
    wrong = from_bytes(made.read_bytes())[name] * (1 + 1e-9)
    finding = check_case(read_golden(doctored(made, {name: wrong})), "linear", "float32", "cpu")
    assert "the float64 references differ" in finding.reason


def test_two_right_devices_that_differ_are_explained_by_their_bounds(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_order(case: Any, reference: Any) -> Any:
        wide = compute(replace(case, dtype="float64"), reference)
        return {name: tensor.to(getattr(torch, case.dtype)) for name, tensor in wide.items()}

    monkeypatch.setattr(vectors, "compute", other_order)
    finding = check_case(read_golden(made), "layer norm", "bfloat16", "cpu")
    assert finding.outcome == "passed"
    ways = finding.details["three_ways"]
    assert isinstance(ways, dict)
    assert 0 < ways["grad/1"]["apart"] < 1
    text = table(read_golden(made), [("layer norm bfloat16", finding)])
    assert "cpu cpu : ref" in text
    assert f"{ways['out']['apart']:.3f}" in text


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p.unlink(), "No such file"),
        (lambda p: p.write_bytes(p.read_bytes()[:-1]), "wrong hash: sha256"),
        (lambda p: p.write_bytes(p.read_bytes()[:-1] + b"x"), "wrong hash: sha256"),
        (lambda p: p.with_suffix(".json").unlink(), "the manifest cannot be read"),
        (lambda p: p.with_suffix(".json").write_text("{"), "the manifest cannot be read"),
        (lambda p: p.with_suffix(".json").write_text('{"schema": 9}'), "not of schema 1"),
        (lambda p: p.with_suffix(".json").write_text('{"schema": 1}'), "is missing or not"),
    ],
    ids=["no file", "short", "changed", "no manifest", "half manifest", "schema", "empty"],
)
def test_a_broken_file_is_one_clear_error(
    made: Path, capsys: pytest.CaptureFixture[str], spoil: Any, words: str
) -> None:
    spoil(made)
    with pytest.raises(GoldenError, match=words):
        read_golden(made)
    assert main(["check", str(made)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "hint: make it anew with `golden make`" in said


def test_a_tensor_that_its_manifest_does_not_list_is_a_wrong_hash(made: Path) -> None:
    manifest = json.loads(made.with_suffix(".json").read_text())
    manifest["tensors"]["gelu/float32/in/0"] = "0" * 64
    made.with_suffix(".json").write_text(json.dumps(manifest))
    with pytest.raises(GoldenError, match="wrong hash: gelu/float32/in/0"):
        read_golden(made)


def test_a_dtype_missing_in_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "poor.safetensors"
    make_golden(path, CPU, read_hardware(NO_GPU), ("float32",))
    golden = read_golden(path)
    assert complete(golden, "cpu").outcome == "passed"
    finding = complete(golden, "cuda")
    assert finding.outcome == "failed"
    assert "has no linear in bfloat16 (and 15 more)" in finding.reason


def test_a_case_that_the_suite_does_not_know_is_an_error(made: Path) -> None:
    golden = read_golden(doctored(made, {"new/float32/in/0": torch.ones(1)}))
    with pytest.raises(GoldenError, match="no case 'new'"):
        check_case(golden, "new", "float32", "cpu")


def test_a_missing_tensor_is_an_error(made: Path) -> None:
    golden = read_golden(doctored(made, {"gelu/float32/cotangent": None}))
    with pytest.raises(GoldenError, match="gelu/float32/cotangent is missing"):
        check_case(golden, "gelu", "float32", "cpu")


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("in/2", None, "in/2 has to be 9 numbers of torch.float32"),
        ("in/3", torch.ones(2), "in/3 has to be 0 numbers"),
        ("in/0", torch.ones(3, 3), "in/0 has to be 561 numbers"),
        ("in/0", torch.ones(561, dtype=torch.int64), "in/0 has to be 561 numbers of torch.float32"),
        ("made/out", torch.ones(0), "made/out has to be 153 numbers"),
        ("made/out", torch.ones(153).double(), "made/out has to be 153 numbers of torch.float32"),
        ("cotangent", torch.ones(7), "cotangent is missing, or of no result"),
    ],
)
def test_tensors_that_are_none_of_the_call_s_are_one_clear_error(
    made: Path, capsys: pytest.CaptureFixture[str], name: str, tensor: Any, words: str
) -> None:
    doctored(made, {f"linear/float32/{name}": tensor})
    assert main(["--target", "cpu", "check", str(made)]) == 2
    said = capsys.readouterr().err
    assert f"linear/float32/{words}" in said
    assert "hint:" in said


def record(folder: Path, files: tuple[Path, ...]) -> dict[str, Any]:
    recorder = Recorder(session="golden", target="cpu", folder=folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vectors, "shipped", lambda: files)
        record_golden(CPU, recorder)
    recorder.finish()
    document: dict[str, Any] = json.loads((folder / "golden.json").read_text())
    assert document["planned"] == [check["name"] for check in document["checks"]]
    return document


def test_the_session_passes_on_the_cpu(tmp_path: Path, made: Path) -> None:
    document = record(tmp_path, (made,))
    assert {check["outcome"] for check in document["checks"]} == {"passed"}
    assert document["checks"][0]["details"]["provenance"]["torch"] == torch.__version__


def test_no_file_at_all_is_no_pass(tmp_path: Path) -> None:
    checks = record(tmp_path, ())["checks"]
    assert [check["outcome"] for check in checks] == ["failed"]


def test_a_broken_file_is_an_error_of_the_session_and_the_others_go_on(
    tmp_path: Path, made: Path
) -> None:
    broken = tmp_path / "broken.safetensors"
    checks = record(tmp_path, (broken, made))["checks"]
    assert checks[0]["outcome"] == "error"
    assert "GoldenError" in checks[0]["reason"]
    assert {check["outcome"] for check in checks[1:]} == {"passed"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_door_computes_nothing_where_there_is_no_gpu(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--target", "sm_90", "check", str(made)]) == 1
    assert "torch is a cpu build" in capsys.readouterr().err


def test_out_of_memory_is_one_clear_error(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: Any) -> dict[str, Any]:
        del arguments
        return {"out": torch.empty(1 << 60)}

    def device_full(*arguments: Any) -> dict[str, Any]:
        del arguments
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    for one in (run, device_full):
        monkeypatch.setattr(vectors, "compute", one)
        check = record(tmp_path, (made,))["checks"][1]
        assert check["outcome"] == "error"
        assert check["reason"].startswith("out of memory: ")


def test_the_door_makes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a" / "one"
    assert main(["make", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "25 of 25 passed on cpu" in said
    assert "here : cpu cpu" in said


def test_the_door_fails_with_what_is_wrong(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "gelu/float32/made/out"
    doctored(made, {name: from_bytes(made.read_bytes())[name] * 1.03})
    assert main(["check", str(made)]) == 1
    assert "failed: gelu float32: gelu in float32: out: the maker" in capsys.readouterr().out


def test_the_door_judges_what_a_device_must_compute_whatever_a_probe_says(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vectors, "probe", lambda *_: "no kernel")
    assert main(["check", str(made)]) == 0
    said = capsys.readouterr().out
    assert "unavailable: gelu bfloat16: bfloat16 is not computed here: no kernel" in said
    assert "9 of 9 passed on cpu" in said, "the file and its eight cases in float32"


def test_every_case_of_the_suite_has_gradients_and_a_bound_above_zero() -> None:
    for name in SUITE:
        case = case_of(name, "float32", "cpu")
        expected = expect(case, reference_of(case))
        assert len(expected) == 1 + len(case.arguments)
        assert all(bool((bound.slack > 0).all()) for _, bound in expected.values())
        assert all(0 < bound.rms < 1 for _, bound in expected.values())


def test_a_wrong_float64_kernel_of_the_cpu_that_checks_is_seen(made: Path) -> None:
    """The reference is other code than the kernels, so a fault in all dtypes is no agreement."""
    golden = read_golden(made)
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("silu", lambda x: x.sigmoid() * x * 1.03, "CPU")
    try:
        finding = check_case(golden, "silu", "float32", "cpu")
    finally:
        library._destroy()
    assert finding.outcome == "failed"
    assert "out: this device is off by" in finding.reason


SAMPLE = {
    "a": torch.tensor([[1.5, -2.0]]),
    "b": torch.tensor([], dtype=torch.float64),
    "c": torch.tensor(7),
    "d": torch.tensor([0.1, 3.0]).bfloat16(),
    "e": torch.tensor([1e-7]).half(),
}


def test_tensors_survive_a_file() -> None:
    found = from_bytes(to_bytes(SAMPLE, {"made": "by a test"}))
    assert set(found) == set(SAMPLE)
    for name, tensor in SAMPLE.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_the_library_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    path = tmp_path / "x.safetensors"
    path.write_bytes(to_bytes(SAMPLE, {}))
    theirs = library.load_file(path)
    ours = from_bytes(library.save(SAMPLE))
    for name, tensor in SAMPLE.items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(ours[name], tensor)


def raw_file(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(**changes: object) -> dict[str, object]:
    return {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends within its header"),
        (b"\xff" * 16, "ends within its header"),
        (raw_file(b"{"), "no JSON"),
        (raw_file(b"[" * 100_000), "no JSON"),
        (raw_file([]), "no object"),
        (raw_file(b'{"x": 1, "x": 2}'), "appears twice"),
        (raw_file({"x": 1}), "cannot be read"),
        (raw_file(entry(dtype="U128"), b"0000"), "cannot be read"),
        (raw_file(entry(shape=[-1]), b"0000"), "is none"),
        (raw_file(entry(shape=[2]), b"0000"), "4 bytes for shape"),
        (raw_file(entry(data_offsets=[4, 8]), b"00000000"), "do not follow"),
        (raw_file(entry(), b"000000"), "speaks of 4 bytes, the file has 6"),
    ],
)
def test_what_the_format_does_not_allow_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(GoldenError, match=words):
        from_bytes(data)
