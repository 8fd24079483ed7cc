"""A scan of a whole tree: hostile files, processes, suppressions, baselines, forms of output."""

from __future__ import annotations

import gc
import json
import random
import time
from pathlib import Path, PurePosixPath

import pytest
from invoke.exceptions import Exit
from rule_files import read_examples

from warpfront.cli import tasks
from warpfront.errors import MatrixError, NothingSelectedError, UndeterminedError
from warpfront.system.trees import LINE_LIMIT
from warpfront_port.commands import scanning
from warpfront_port.commands.scanning import ScanRequest, scan, scan_tree
from warpfront_port.finding_forms import (
    Scan,
    annotation_lines,
    counted,
    scan_summary,
    undetermined_files,
    verdict_sarif,
    verdict_text,
)
from warpfront_port.scan.baseline import baseline_text, beyond, read_baseline
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import Context, Severity, SourceText
from warpfront_port.scan.targets import read_target

MI300X = read_target("gfx942")
SCOPE = Scope(target=MI300X, context=Context())


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        raise AssertionError((what, done_bytes, total_bytes))

    def step(self, cell_id: str, text: str) -> None:
        self.said.append(f"{cell_id}: {text}")

    def line(self, cell_id: str, text: str) -> None:
        raise AssertionError((cell_id, text))


def a_tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)
    return root


def rules_of(found: Scan) -> list[str]:
    return [finding.rule for finding in found.findings]


def judge_text(text: str, path: str = "m.py") -> Scan:
    judged = scan_source(SourceText(path=PurePosixPath(path), text=text), SCOPE)
    return Scan(
        target="gfx942",
        findings=judged.findings,
        unread=(),
        files=1,
        lines=1,
        suppressed=judged.suppressed,
    )


def test_every_kind_of_file_is_read_by_its_engine(tmp_path: Path) -> None:
    a_tree(
        tmp_path,
        a__py="import pynvml\n",
        b__cu='__global__ void k() { asm volatile("mov.u32 %0, %laneid;"); }\n',
        Dockerfile="FROM nvidia/cuda:12.2.2-runtime\n",
        README="import pynvml\n",
    )
    found = scan_tree(ScanRequest(repo=tmp_path, target=MI300X))
    assert found.files == 3
    assert {"PY014", "CU107", "CT401"} <= set(rules_of(found))


def test_a_notebook_is_scanned_by_its_code_cells(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["import cupy\n"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!nvidia-smi\n", "import pynvml"]},
        {
            "cell_type": "code",
            "source": "!python run.py \\\n    --fast \\\n    # --slow\nimport cudf",
        },
        {"cell_type": "code", "source": "%%bash\nimport tensorrt\n"},
        {"cell_type": "code", "source": "import cupy, (\n"},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "broken.ipynb").write_text("{]")
    found = scan_tree(ScanRequest(repo=tmp_path, target=MI300X))
    assert rules_of(found) == ["SC003", "PY014", "PY035", "SC003"]
    assert "cell 5 is no Python" in found.findings[-1].message
    assert len(undetermined_files(found)) == 2  # there is nothing else
    (tmp_path / "a.py").write_text("import torch\n")
    assert not undetermined_files(scan_tree(ScanRequest(repo=tmp_path, target=MI300X)))
    (tmp_path / "broken.py").write_text("import torch, (\n")
    assert len(undetermined_files(scan_tree(ScanRequest(repo=tmp_path, target=MI300X)))) == 1


DEEP = 30_000
HOSTILE: dict[str, str] = {
    "parentheses.py": "import torch\nx = " + "(" * 10_000 + "1" + ")" * 10_000 + "\n",
    "chain.py": "import torch\nx = 1" + "\\\n + 1" * DEEP + "\n",
    "attributes.py": "import torch\nx = torch" + "\\\n.a" * 5_000 + "\n",
    "calls.py": "import torch\nx = torch" + ".a()\\\n" * 300 + "\n",
    "nots.py": "import torch\nif " + "not " * 3_000 + "torch.version.hip:\n    import pynvml\n",
    "ors.py": "import torch\nif "
    + " or \\\n".join(["torch.version.hip"] * 4_000)
    + ":\n    pass\n",
    "ifs.py": "import torch\n" + "".join(" " * n + "if x:\n" for n in range(95)) + " " * 95 + "y\n",
    "names.py": "import torch\n" + "a = b\nb = a\n" * 500 + "if a:\n    import pynvml\n",
    "null.py": "import torch\nx = '\x00'\n",
    "quote.py": "import torch\nx = '" + "\\'" * 9_000,
    "backslashes.sh": "pip install " + "\\\n" * DEEP + ".\n",
    "substitutions.sh": "x=" + "$(" * 5_000 + "nvidia-smi" + ")" * 5_000 + "\n",
    "quotes.sh": "echo " + "'\"" * 5_000 + "\n",
    "anchors.yaml": "a: &a [cuda, cuda]\n"
    + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [" + f"*{chr(97 + n)}," * 9 + "]\n" for n in range(20)
    ),
    "nested.yaml": "cuda:\n" + "".join(" " * n + "a:\n" for n in range(1, 150)),
    "nested.toml": "a = " + "[" * 3_000 + "]" * 3_000 + "\n",
    "CMakeLists.txt": "if(" * 3_000 + "\n" + "#[[" * 3_000,
    "Dockerfile": "RUN " + "\\\n" * DEEP + "<<EOF\n" * 100,
    "requirements.txt": "torch" + "=" * 15_000 + "\n" + "-e " * 5_000 + "\n",
    "setup.cfg": "[options]\ninstall_requires =\n" + "    [\n" * 10_000,
    "words.rs": ("cuda;" * 3_900 + "\n") * 100,
    "stages.Dockerfile": "FROM nvidia/cuda:12.6.0\n" * 60_000,
    "spaces.py": "import torch\nx = 'expandable_segments:True" + " " * 15_000 + "!'\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_dealt_with_in_bounded_time(name: str) -> None:
    began = time.process_time()
    scan_source(SourceText(path=PurePosixPath(name), text=HOSTILE[name]), SCOPE)
    assert time.process_time() - began < 10


NAMES = ["a.go", "a.h", "a.cu", "CMakeLists.txt", "Makefile", "setup.py", "setup.cfg"]
NAMES += ["pyproject.toml", ".gitmodules", ".gitignore", "compile_commands.json", "README.md"]
LINES = [
    "a" * 18_000,
    "a." * 9_000,
    "path = a" + " " * 9_000 + "b",
    "",
    "project(",
    "LANGUAGES",
    "/*",
]
LINES += ["#[[", "[", "(", "name", "path =", "from a import (", "py_modules = [", "#if A", "$("]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:9])
def test_a_hostile_tree_is_read_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """The time of one file is limited, that of the project's facts is not: no square is in it."""
    monkeypatch.setattr(scanning, "SECONDS_PER_FILE", 0.01)
    (tmp_path / "a").mkdir()
    for path in (*(tmp_path / name for name in NAMES), tmp_path / "a" / "__init__.py"):
        path.write_text(f"{line}\n" * (60_000 // (len(line) + 1)))
    began = time.process_time()
    scan_tree(ScanRequest(repo=tmp_path, target=MI300X), processes=1)
    assert time.process_time() - began < 3


PIECES = [
    "'",
    '"',
    "\\",
    "\n",
    "#",
    "(",
    ")",
    "{",
    "[",
    "$(",
    "`",
    "=",
    ":",
    "\0",
    "\t",
    '"""',
    "if ",
]


def mangled(text: str, chance: random.Random) -> str:
    """`text` with pieces put in, taken out, repeated, and its end cut off."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.randint(1, 40))
        text = chance.choice(
            [
                text[:start] + chance.choice(PIECES) * chance.choice([1, 1, 40]) + text[start:],
                text[:start] + text[end:],
                text[:start] + text[start:end] * 9 + text[end:],
                text[:start],
            ]
        )
    return text


@pytest.mark.parametrize("seed", range(8))
def test_mangled_examples_end_in_findings_and_not_in_an_error(seed: int) -> None:
    chance = random.Random(seed)
    for example in read_examples(cuda=False).values():
        path = PurePosixPath(example.get("path", "module.py"))
        text = mangled(example["hit"], chance)
        judged = scan_source(SourceText(path=path, text=text), SCOPE)
        lines = len(text.splitlines()) + 1
        assert all(1 <= finding.line <= lines for finding in judged.findings), text


def test_what_cannot_be_parsed_is_said_and_no_crash() -> None:
    found = judge_text(HOSTILE["parentheses.py"])
    assert rules_of(found) == ["SC003"]
    assert "not scanned" in found.findings[0].message


def test_a_setup_cfg_that_is_none_is_a_finding() -> None:
    source = SourceText(path=PurePosixPath("setup.cfg"), text="[options]\nrequires\nx y\n")
    assert [one.rule for one in scan_source(source, SCOPE).findings] == ["SC003"]


def test_a_file_that_takes_too_long_is_unread_and_the_others_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tree(tmp_path, slow__py="import pynvml\n", quick__py="import pynvml\n")

    def sleepy(source: SourceText, scope: Scope, _before: SourceText | None) -> object:
        while source.path.name == "slow.py":
            time.sleep(0.01)
        return scan_source(source, scope)

    monkeypatch.setattr(scanning, "SECONDS_PER_FILE", 0.2)
    monkeypatch.setattr(scanning, "scan_source", sleepy)
    found = scan_tree(ScanRequest(repo=tmp_path, target=MI300X), processes=1)
    assert [finding.path for finding in found.findings] == ["quick.py"]
    assert [item.path for item in found.unread] == ["slow.py"]


@pytest.mark.process
def test_several_processes_find_what_one_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_ALONE_BYTES", 0)
    for number in range(12):
        (tmp_path / f"m{number}.py").write_text(f"import pynvml\nx = {number}\nimport cupy\n")
    request = ScanRequest(repo=tmp_path, target=MI300X)
    assert scan_tree(request, processes=2) == scan_tree(request, processes=1)


def test_a_tree_does_not_report_imports_of_its_own_packages(tmp_path: Path) -> None:
    package = tmp_path / "src" / "bitsandbytes"
    package.mkdir(parents=True)
    a_tree(package, __init____py="")
    (package / "__init__.py").write_text("import bitsandbytes.functional\nimport xformers\n")
    assert rules_of(scan_tree(ScanRequest(repo=tmp_path, target=MI300X))) == ["PY025"]


@pytest.mark.parametrize(
    ("target", "severity"),
    [
        ("gfx942", Severity.WARNING),
        ("gfx950", Severity.NONE),
        ("gfx1201", Severity.NONE),
        ("gfx1100", Severity.WARNING),
        ("gfx90a", Severity.WARNING),
        ("gaudi3", Severity.ERROR),
        ("cpu", Severity.WARNING),
    ],
)
def test_the_narrowest_class_of_a_target_decides(target: str, severity: Severity) -> None:
    assert catalogue()["PY037"].severity_for(read_target(target)) is severity


@pytest.mark.parametrize("name", ["sm_90", "gfx", "cuda", ""])
def test_a_target_without_rules_is_refused(name: str) -> None:
    with pytest.raises(NothingSelectedError):
        read_target(name)


@pytest.mark.parametrize("name", ["bmg", "pvc", "gfx11-generic"])
def test_a_vendors_target_that_no_rule_is_for_is_not_determined(name: str) -> None:
    with pytest.raises(
        UndeterminedError, match=r"not determined: no rules for \w+ targets"
    ) as caught:
        read_target(name)
    assert caught.value.exit_code == 33


def test_what_may_be_wrong_in_the_arm_for_amd_was_a_decision() -> None:
    text = "import torch\nif torch.version.hip:\n    torch.backends.cuda.enable_cudnn_sdp(True)\n"
    (finding,) = judge_text(text).findings
    assert (finding.severity, finding.gate, finding.gate_line) == ("note", "own-arm", 2)


@pytest.mark.parametrize(
    ("text", "rules", "suppressed"),
    [
        ("import pynvml  # warpfront: ignore[PY014] NVIDIA image only\n", [], 1),
        ("# warpfront: ignore[PY014] NVIDIA image only\nimport pynvml\n", [], 1),
        ("import pynvml  # warpfront: ignore[PY014, PY019] NVIDIA only\n", [], 1),
        ("import pynvml  # warpfront: ignore[PY014]\n", ["PY014", "SC001"], 0),
        ("import pynvml  # warpfront: ignore[PY019] other\n", ["PY014", "SC002"], 0),
        ("x = 'warpfront: ignore[PY014] text'; import pynvml\n", ["PY014"], 0),
        ("# warpfront: ignore[PY014] far\n\nimport pynvml\n", ["SC002", "PY014"], 0),
    ],
)
def test_a_suppression_needs_a_rule_a_reason_and_its_line(
    text: str, rules: list[str], suppressed: int
) -> None:
    found = judge_text(text)
    assert (rules_of(found), found.suppressed) == (rules, suppressed)


def test_a_baseline_survives_moved_lines_and_sees_one_more() -> None:
    line = "r = subprocess.run(['nvidia-smi'])\n"
    before = judge_text(f"{line}x = 1\n{line}").findings
    accepted = read_baseline(baseline_text(before), "b.json")
    moved = judge_text(f"# new\n\n{line.replace(' =', '  =')}x = 2\n{line}").findings
    assert (len(moved), beyond(moved, accepted)) == (2, ())
    third = judge_text(f"{line}{line}x = 1\n{line}").findings
    assert [finding.line for finding in beyond(third, accepted)] == [4]


def test_an_optional_package_is_no_finding_and_one_behind_no_gate_is_one() -> None:
    text = "try:\n    import pynvml\nexcept ImportError:\n    pass\nimport pynvml\nimport pynvml\n"
    assert [finding.line for finding in judge_text(text).findings] == [5]


COUNTED = '{"schema": 2, "findings": [{"fingerprint": "a", "count": Infinity}]}'
NO_BASELINES = ["", "[]", '{"schema": 1, "findings": []}', '{"schema": 1}', "[" * 9999, COUNTED]


@pytest.mark.parametrize("text", NO_BASELINES)
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(MatrixError, match="not a baseline"):
        read_baseline(text, "b.json")


def test_a_written_baseline_is_used_by_the_next_scan(tmp_path: Path) -> None:
    a_tree(tmp_path, a__py="import pynvml\n")
    listener = Listener()
    _, left = scan(ScanRequest(repo=tmp_path, target=MI300X, write_baseline=True), listener)
    assert left == ()
    assert "1 finding accepted" in listener.said[0]
    a_tree(tmp_path, b__py="import cupy\n")
    found, left = scan(ScanRequest(repo=tmp_path, target=MI300X), listener)
    assert (len(found.findings), [finding.rule for finding in left]) == (2, ["PY035"])


def test_progress_is_said_in_tenths_of_a_large_tree_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    for total in (1000, 10):

        def scan_tree(
            *_tree: object, progress: scanning.Progress, total: int = total, **_options: object
        ) -> Scan:
            for done in range(1, total + 1):
                progress(done, total)
            return FORMS

        monkeypatch.setattr(scanning, "scan_tree", scan_tree)
        scan(ScanRequest(repo=tmp_path, target=MI300X), listener)
    assert listener.said[0] == "scan: 100 of 1,000 files"
    assert len(listener.said) == 10


FORMS = judge_text(
    "import pynvml\nimport torch\ntorch.backends.cuda.enable_cudnn_sdp(True)\n"
    "torch.backends.cudnn.benchmark = True\n",
    "pkg/a,b:c.py",
)


def test_the_text_begins_with_the_verdict_and_says_what_to_do() -> None:
    text = verdict_text(scanning.verdict_of(FORMS, FORMS.findings), FORMS)
    assert text.startswith("gfx942: will fail at run time: 1 cause\n")
    assert "\n  PY014 pynvml needs NVIDIA's driver: pkg/a,b:c.py:1\n" in text
    assert "\nto check (1)\n  PY050" in text
    assert f"        {catalogue()['PY014'].fix}\n" in text
    assert counted(FORMS.findings) == "1 error, 1 warning"
    assert scan_summary(FORMS, FORMS.findings[:1]).startswith("1 error for gfx942 in 1 file")


def test_annotations_are_escaped_and_errors_come_first() -> None:
    lines = annotation_lines(reversed(FORMS.findings), catalogue()).splitlines()
    assert lines[0].startswith("::error file=pkg/a%2Cb%3Ac.py,line=1,endLine=1,col=1,title=PY014")
    assert "%0Afix:" in lines[0]
    assert lines[-1].startswith("::warning ")


def test_sarif_names_rules_places_and_what_was_not_read() -> None:
    verdict = scanning.verdict_of(FORMS, FORMS.findings)
    text = verdict_sarif(verdict, FORMS.findings, catalogue(), unread=["x.py: binary"])
    (run,) = json.loads(text)["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["PY014", "PY050"]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (1, 1, 14)
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert [note["message"]["text"] for note in notes] == [verdict.line, "x.py: binary"]


def run_scan(repo: Path, **options: object) -> int:
    """The exit code of `invoke scan`."""
    given: dict[str, object] = {
        "target": "gfx942",
        "vendor": "",
        "image": "",
        "only": "",
        "json": False,
        "dry_run": False,
        "repo": str(repo),
    }
    try:
        tasks.namespace["scan"].body(None, **(given | DEFAULTS | options))
    except Exit as ended:
        return int(ended.code)
    return 0


DEFAULTS: dict[str, object] = {
    "sarif": "",
    "markdown": "",
    "annotations": False,
    "baseline": "",
    "write_baseline": False,
    "exclude": "",
    "vendored": False,
    "all_": False,
    "fail_on": "any",
    "compiler": "none",
}


def test_errors_end_with_15_warnings_with_0_and_no_such_target_with_3(tmp_path: Path) -> None:
    a_tree(tmp_path, a__py="import pynvml\n")
    assert run_scan(tmp_path) == 15
    assert run_scan(tmp_path, target="sm_90") == 3
    assert run_scan(tmp_path, exclude="a.py") == 16
    a_tree(tmp_path, a__py="import bitsandbytes\n")
    assert run_scan(tmp_path) == 0
    assert run_scan(tmp_path / "missing") == 13


def test_what_cannot_be_read_or_parsed_is_not_determined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_tree(tmp_path, a__py="import torch\nprint 'python 2'\n")
    assert run_scan(tmp_path) == 33
    assert capsys.readouterr().out.startswith("gfx942: not determined: a.py: ")
    assert run_scan(tmp_path, allow_undetermined=True) == 0
    a_tree(tmp_path, a__py="import torch\n", a__cu="x" * (LINE_LIMIT + 1))
    assert run_scan(tmp_path) == 33
    a_tree(tmp_path, b__py="import pynvml\n")
    assert run_scan(tmp_path) == 15


def test_a_gate_of_the_command_line_chooses_by_consequence(tmp_path: Path) -> None:
    a_tree(tmp_path, a__py="import pynvml\n")
    codes = {gate: run_scan(tmp_path, fail_on=gate) for gate in ("any", "build", "runtime")}
    assert codes == {"any": 15, "build": 0, "runtime": 15}
    assert run_scan(tmp_path, fail_on="doom") == 2
    assert run_scan(tmp_path, compiler="gcc") == 2


def test_a_cuda_project_whose_build_nothing_judges_is_not_determined(tmp_path: Path) -> None:
    a_tree(tmp_path, k__cu="__global__ void k() {}\n")
    assert run_scan(tmp_path) == 33
    assert run_scan(tmp_path, allow_undetermined=True) == 0


def test_what_is_left_out_by_choice_is_determined_by_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "third_party"
    folder.mkdir()
    (folder / "a.py").write_text("import torch\nprint 'python 2'\n")
    assert run_scan(tmp_path) == 16
    a_tree(tmp_path, a__py="import torch\n")
    assert run_scan(tmp_path) == 0
    assert run_scan(tmp_path, vendored=True) == 33


def test_files_asked_for_are_written_and_a_dry_run_writes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    a_tree(tree, a__py="import pynvml\n")
    names = {"sarif": str(tmp_path / "s.sarif"), "markdown": str(tmp_path / "s.md")}
    assert run_scan(tree, **names, write_baseline=True, dry_run=True) == 15
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.py", "tree"]
    assert run_scan(tree, **names, annotations=True) == 15
    assert "::error file=a.py,line=1" in capsys.readouterr().out
    assert "PY014" in (tmp_path / "s.md").read_text()
    assert json.loads((tmp_path / "s.sarif").read_text())["version"] == "2.1.0"


def test_json_holds_every_finding_with_its_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_tree(tmp_path, a__py="import pynvml\n", b__ipynb="{]")
    assert run_scan(tmp_path, json=True) == 15
    said = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in said["findings"]] == ["PY014", "SC003"]
    assert said["findings"][0]["fix"] == catalogue()["PY014"].fix


PTX = '__global__ void k() { asm("mov.u32 %0, %laneid;"); }\n'


def gates_of(tree: Path) -> dict[str, str]:
    found = scan_tree(ScanRequest(repo=tree, target=MI300X), processes=1).findings
    return {one.path: f"{one.severity} {one.gate}" for one in found if one.rule == "CU107"}


def test_a_macro_that_is_asked_for_beside_amds_amd_does_not_have(tmp_path: Path) -> None:
    blas = f"// CUDA\n#if MY_HAVE_CUDA\n{PTX}#elif MY_HAVE_ROCM\n#endif\n"
    (tmp_path / "a.cu").write_text(blas)
    assert gates_of(tmp_path) == {}
    (tmp_path / "a.cu").write_text(blas.replace("ROCM", "SYCL"))
    assert gates_of(tmp_path) == {"a.cu": "error open"}


@pytest.mark.parametrize("name", ["main-cuda.Dockerfile", "cublas.Dockerfile", "Dockerfile.nvidia"])
def test_a_dockerfile_that_is_nvidias_by_name_is_notes(tmp_path: Path, name: str) -> None:
    for file in (name, "Dockerfile"):
        (tmp_path / file).write_text("FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n")
    found = scan_tree(ScanRequest(repo=tmp_path, target=MI300X)).findings
    assert {(one.path, one.severity) for one in found} == {
        (name, Severity.NOTE),
        ("Dockerfile", Severity.ERROR),
    }


def test_a_scan_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    before = gc.get_threshold()
    during: list[tuple[int, int, int]] = []
    tree = a_tree(tmp_path, a__py="")
    scan_tree(
        ScanRequest(repo=tree, target=MI300X), progress=lambda *_: during.append(gc.get_threshold())
    )
    assert (during, gc.get_threshold()) == ([(500_000, 3, 3)], before)
