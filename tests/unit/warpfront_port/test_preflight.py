"""What a project's files ask for, and what that does to each torch stack."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from warpfront.errors import InputError
from warpfront.wheels.core_metadata import Distribution
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.resolve.candidates import requirers_without_wheels
from warpfront.wheels.resolve.demands import Stack
from warpfront_port.commands.preflighting import examine
from warpfront_port.commands.project_files import read_file, read_files
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import (
    DeclaredRequirement,
    FileRequirements,
    Kind,
    Part,
    chosen,
)
from warpfront_port.preflight.effects import ProjectLines, breach_from, breach_of, torch_index
from warpfront_port.preflight.findings import LineBreach, Preflight, preflight_sarif, preflight_text
from warpfront_port.preflight.pyproject import read_pyproject
from warpfront_port.preflight.requirement_files import (
    read_environment_yml,
    read_requirements,
    read_setup_cfg,
    read_setup_py,
)
from warpfront_port.preflight.stacks import CellStack


class Nobody:
    def say(self, text: str) -> None:
        raise AssertionError(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        raise AssertionError((what, done_bytes, total_bytes))

    def step(self, cell_id: str, text: str) -> None:
        raise AssertionError((cell_id, text))

    def line(self, cell_id: str, text: str) -> None:
        raise AssertionError((cell_id, text))


def made_stack(
    title: str,
    held: dict[str, str],
    *,
    index: str,
    python: str = "3.11",
    answered: dict[str, str] | None = None,
    foreign: tuple[str, ...] = (),
    paired: dict[str, str] | None = None,
) -> CellStack:
    inputs = LockInputs(
        cell_id=title,
        python=python,
        machine="x86_64",
        glibc="2.36",
        index=None,
        stack_requirements=(),
        requirements=(),
    )
    stack = Stack(
        versions=held,
        answered=answered or {},
        foreign=dict.fromkeys(foreign, "image.has.no.such.thing"),
    )
    return CellStack(
        title=title,
        cell_ids=(f"{title}-cell",),
        python=python,
        index=index,
        stack=stack,
        paired=paired or {},
        inputs=inputs,
    )


CPU = made_stack(
    "cpu",
    {"torch": "2.13.0+cpu"},
    index="cpu",
    foreign=("nvidia-cublas-cu12",),
    paired={"torchvision": "0.28.0", "torchaudio": "2.11.0"},
)
CUDA = made_stack("cuda", {"torch": "2.14.1", "triton": "3.8.0"}, index="pypi")
ROCM = made_stack(
    "rocm",
    {"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.5.1"},
    index="rocm6.4",
    python="3.13",
    answered={"triton": "3.5.1+pytorch.triton.rocm"},
    foreign=("nvidia-cublas-cu12", "cuda-toolkit"),
)
EVERY = (CPU, CUDA, ROCM)


def one(text: str, kind: Kind = Kind.REQUIREMENT) -> DeclaredRequirement:
    return DeclaredRequirement(
        path="r.txt", line=1, end_line=1, source=text, text=text, literal=text, kind=kind
    )


def ruled(text: str, stack: CellStack, kind: Kind = Kind.REQUIREMENT) -> str:
    breach = breach_of(one(text, kind), stack)
    return breach.rule if breach else ""


def found_in(text: str, *stacks: CellStack, name: str = "requirements.txt") -> list[LineBreach]:
    read = (
        read_requirements(text, path=name)
        if name.endswith(".txt")
        else read_pyproject(text, path=name)
    )
    return list(examine((read,), stacks or EVERY, Nobody(), offline=True).findings)


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "torch>=2.0",
        "torch==2.9.1",
        "torch==2.9.1.*",
        "torch~=2.9.1",
        "torch==2.9.1+rocm6.4",
        "torch===2.9.1+rocm6.4",
        "torch>=2.8,!=2.10",
        "Torch[opt]>=2",
        "torch==2.3.1; python_version < '3.9'",
        "torch==2.3.1; sys_platform == 'darwin'",
        "torch @ https://x.org/torch-2.9.1%2Brocm6.4-cp313-cp313-linux_x86_64.whl",
        "numpy==1.0",
        "onnxruntime-gpu",
    ],
)
def test_what_holds_is_quiet(text: str) -> None:
    assert ruled(text, ROCM) == ""


@pytest.mark.parametrize(
    "text",
    [
        "torch>=2.10",
        "torch===2.9.1",
        "torch==2.9.1+cpu",
        "torch==2.8.0",
        "torch<2.9.1",
        "torch~=2.8.0",
        "torch @ https://x.org/torch-2.9.1%2Bcu128-cp313-cp313-linux_x86_64.whl",
        "torch @ git+https://github.com/pytorch/pytorch",
        "triton>=3.6",
    ],
)
def test_what_does_not_accept_the_stack_moves_it(text: str) -> None:
    assert ruled(text, ROCM) == findings.MOVED


def test_another_variant_of_the_images_version_moves_it() -> None:
    url = "torch @ https://x.org/torch-2.14.1-cp313-cp313-linux_x86_64{}.whl"
    locked = dataclasses.replace(CUDA, variants={"torch": "cuda13.0"})
    for stack, label in ((CUDA, ""), (locked, "-cuda13.0")):
        assert ruled(url.format(label), stack) == ""
    for stack, label in ((CUDA, "-cuda13.0"), (locked, ""), (locked, "-rocm7.2")):
        assert ruled(url.format(label), stack) == findings.MOVED


def test_an_exact_version_without_label_accepts_the_labelled_build_and_a_string_does_not() -> None:
    assert ruled("torch==2.13.0", CPU) == ""
    assert ruled("torch===2.13.0", CPU) == findings.MOVED
    assert ruled("torch===2.14.1", CUDA) == ""


def test_another_vendors_library_is_foreign_there_only() -> None:
    assert ruled("nvidia-cublas-cu12", ROCM) == findings.FOREIGN
    assert ruled("nvidia-cublas-cu12", CUDA) == ""


def test_triton_on_rocm_is_replaced_and_on_cuda_it_is_the_images_own() -> None:
    assert ruled("triton", ROCM) == findings.TRITON
    assert ruled("triton", CUDA) == ""


def test_a_companion_of_another_torch_moves_torch() -> None:
    assert ruled("torchvision==0.19.0", CPU) == findings.MOVED
    assert ruled("torchvision==0.28.0", CUDA) == ""


def test_a_companion_that_a_labelled_image_lacks_would_come_as_another_build() -> None:
    assert ruled("torchvision", CPU) == findings.COMPANION
    assert ruled("torchaudio==2.11.0", CPU) == findings.COMPANION
    assert ruled("torchaudio", CUDA) == ""


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://download.pytorch.org/whl/cu118", "cu118"),
        ("https://download.pytorch.org/whl/rocm6.4/", "rocm6.4"),
        ("https://download.pytorch.org/whl/nightly/cu130", "nightly cu130"),
        ("https://download.pytorch.org/whl/torch_stable.html", "torch_stable.html"),
        ("https://pypi.org/simple", None),
        ("https://download.pytorch.org.example.com/whl/cu118", None),
    ],
)
def test_an_index_with_torch_is_known_by_its_name(url: str, name: str | None) -> None:
    assert torch_index(url) == name


def test_a_torch_index_is_wrong_where_the_torch_is_from_another() -> None:
    url = "https://download.pytorch.org/whl/rocm6.4"
    assert ruled(url, ROCM, Kind.INDEX) == ""
    assert ruled(url, CPU, Kind.INDEX) == findings.INDEX


@pytest.mark.parametrize(
    "text",
    [
        "flash-attn @ https://x.org/flash_attn-2.7.4+cu12torch2.6cxx11abiTRUE-cp311-cp311-linux_x86_64.whl",
        "x @ https://x.org/x-1.0+pt26cu124-cp311-cp311-linux_x86_64.whl",
    ],
)
def test_a_binary_for_another_torch_is_named(text: str) -> None:
    assert ruled(text, CPU) == findings.OTHER_ABI


def test_a_binary_for_this_torch_is_quiet() -> None:
    text = "x @ https://x.org/x-1.0+cu12torch2.13-cp311-cp311-linux_x86_64.whl"
    assert ruled(text, CPU) == ""
    assert (
        ruled("https://data.pyg.org/whl/torch-2.0.0+cu118.html", CPU, Kind.INDEX)
        == findings.OTHER_ABI
    )


def test_torch_in_build_requirements_is_an_isolated_build() -> None:
    assert ruled("torch", CPU, Kind.BUILD) == findings.ISOLATED
    assert ruled("setuptools>=61", CPU, Kind.BUILD) == ""


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("torch==2.3.1", "torch>=2.3.1"),
        ("torch>=2.0,<2.6", "torch>=2.0"),
        ("torch>=3", "torch"),
        ("torch[opt]===2.13.0 ; sys_platform == 'linux'", 'torch[opt] ; sys_platform == "linux"'),
        ("torch>=2.10", "torch"),
    ],
)
def test_the_line_to_write_holds_on_every_stack(text: str, written: str) -> None:
    finding = found_in(text)[0]
    assert finding.write == written
    assert found_in(written) == []


def test_a_finding_names_its_line_and_the_cells() -> None:
    finding = found_in("numpy\n\ntorch>=2.10  # new\n")[0]
    assert (finding.path, finding.line, finding.source) == (
        "requirements.txt",
        3,
        "torch>=2.10  # new",
    )
    assert finding.cells == ("rocm-cell",)
    assert list(finding.why) == ["rocm"]


PYPROJECT = """\
[build-system]
requires = ["setuptools", "torch==2.14.1"]

[project]
name = "x"
dependencies = [
  "numpy", "xformers",
  # "torch==1.0",
  'torch==2.3.1',
]
[project.optional-dependencies]
gpu = ["nvidia-cublas-cu12"]

[dependency-groups]
dev = ["torch<2", {include-group = "x"}]

[tool.uv.sources]
torch = {index = "other"}
xformers = {git = "https://github.com/facebookresearch/xformers"}
[[tool.uv.index]]
name = "other"
url = "https://download.pytorch.org/whl/cu128"
"""


def test_a_pyproject_is_read_with_its_lines() -> None:
    read = read_pyproject(PYPROJECT, path="pyproject.toml")
    at = {
        (asked.line, asked.text.split(" ")[0], asked.kind, asked.group) for asked in read.declared
    }
    assert (2, "torch==2.14.1", Kind.BUILD, "") in at
    assert (9, "torch==2.3.1", Kind.REQUIREMENT, "") in at
    assert (12, "nvidia-cublas-cu12", Kind.REQUIREMENT, "gpu") in at
    assert (15, "torch<2", Kind.REQUIREMENT, "dev") in at
    assert (19, "xformers", Kind.REQUIREMENT, "") in at
    assert (22, "https://download.pytorch.org/whl/cu128", Kind.INDEX, "") in at


def test_the_line_to_write_in_a_pyproject_keeps_its_quotes() -> None:
    found = found_in(PYPROJECT, name="pyproject.toml")
    assert [one.write for one in found if one.line == 9] == ["  'torch>=2.3.1',"]


def test_a_line_is_dropped_only_where_nothing_else_stands_on_it() -> None:
    shared = '[project]\nname = "x"\ndependencies = ["triton", "numpy"]\n'
    assert [one.write for one in found_in(shared, name="pyproject.toml")] == [None]
    alone = '[project]\nname = "x"\ndependencies = [\n  "triton",  # fast\n]\n'
    assert [one.write for one in found_in(alone, name="pyproject.toml")] == [""]
    assert found_in("triton # fast\n")[0].write == ""


def test_what_belongs_to_an_extra_is_a_warning() -> None:
    found = found_in(PYPROJECT, name="pyproject.toml")
    assert {one.level for one in found if one.group} == {"warning"}


POETRY = """\
[tool.poetry.dependencies]
python = "^3.10"
torch = "^2.3"
torchvision = {version = "~0.18.0", source = "cuda", optional = true}
numpy = "*"
[tool.poetry.group.dev.dependencies]
torchaudio = "2.3.*"
[[tool.poetry.source]]
name = "cuda"
url = "https://download.pytorch.org/whl/cu121"
"""


def test_poetry_versions_are_read_as_pep_440() -> None:
    read = read_pyproject(POETRY, path="pyproject.toml")
    assert [(asked.line, asked.text, asked.group) for asked in read.declared] == [
        (3, "torch>=2.3,<3", ""),
        (4, "torchvision>=0.18.0,<0.19", "optional torchvision"),
        (5, "numpy", ""),
        (7, "torchaudio==2.3.*", "dev"),
        (10, "https://download.pytorch.org/whl/cu121", ""),
    ]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("^0.2.3", "torch>=0.2.3,<0.3"),
        ("^0.0.3", "torch>=0.0.3,<0.0.4"),
        ("~1", "torch>=1,<2"),
        (">=2,<3", "torch>=2,<3"),
        ("2.1.0", "torch==2.1.0"),
    ],
)
def test_carets_and_tildes(version: str, text: str) -> None:
    document = f'[tool.poetry.dependencies]\ntorch = "{version}"\n'
    assert [one.text for one in read_pyproject(document, path="p").declared] == [text]


REQUIREMENTS = """\
--extra-index-url=https://download.pytorch.org/whl/cu118
-f https://data.pyg.org/whl/torch-2.0.0+cu118.html
-r more.txt
-c constraints.txt
-e .[gpu]
torch==2.3.1 \\
    --hash=sha256:00
git+https://github.com/huggingface/transformers.git@main
https://x.org/flash_attn-2.7.4+cu12torch2.6-cp311-cp311-linux_x86_64.whl ; python_version >= "3.9"
./local
--pre
"""


def test_a_requirements_file_is_read_as_pip_reads_it() -> None:
    read = read_requirements(REQUIREMENTS, path="r.txt")
    assert [(one.line, one.text) for one in read.declared] == [
        (1, "https://download.pytorch.org/whl/cu118"),
        (2, "https://data.pyg.org/whl/torch-2.0.0+cu118.html"),
        (6, "torch==2.3.1"),
        (8, "transformers @ git+https://github.com/huggingface/transformers.git@main"),
        (
            9,
            (
                "flash-attn @ https://x.org/flash_attn-2.7.4+cu12torch2.6-cp311-cp311-linux_x86_64.whl"
                ' ; python_version >= "3.9"'
            ),
        ),
    ]
    assert [(one.path, one.kind, one.project) for one in read.includes] == [
        ("more.txt", Kind.REQUIREMENT, False),
        ("constraints.txt", Kind.CONSTRAINT, False),
        (".", Kind.REQUIREMENT, True),
        ("./local", Kind.REQUIREMENT, True),
    ]
    assert read.declared[2].end_line == 7


def test_setup_py_is_read_and_not_run() -> None:
    text = (
        "raise SystemExit\nneeds = ['torch==2.3']\nfrom setuptools import setup\n"
        "setup(install_requires=needs + ['numpy'], extras_require={'a': ['triton']})\n"
    )
    read = read_setup_py(text, path="setup.py")
    assert [(one.line, one.text, one.group) for one in read.declared] == [
        (2, "torch==2.3", ""),
        (4, "numpy", ""),
        (4, "triton", "a"),
    ]


def test_what_setup_py_computes_is_unknown() -> None:
    read = read_setup_py("setup(install_requires=get_requirements())\n", path="setup.py")
    assert read.declared == ()
    assert "computed" in read.unknown[0]


def test_setup_cfg_is_read() -> None:
    text = "[options]\ninstall_requires =\n  torch<2.6\n[options.extras_require]\na = triton\n"
    read = read_setup_cfg(text, path="setup.cfg")
    assert [(one.line, one.text, one.group) for one in read.declared] == [
        (3, "torch<2.6", ""),
        (5, "triton", "a"),
    ]


def test_condas_torch_is_a_note_and_its_pip_list_is_judged() -> None:
    text = "dependencies:\n  - pytorch=2.3\n  - pip:\n    - torch==2.3\n"
    read = read_environment_yml(text, path="environment.yml")
    found = examine((read,), EVERY, Nobody(), offline=True)
    assert [(one.line, one.rule) for one in found.findings] == [
        (2, findings.CONDA),
        (4, findings.MOVED),
    ]
    assert found.count == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.txt", b"\xff\xfa", "not UTF-8"),
        ("r.txt", b"x" * 200_000, "a line of"),
        ("r.txt", b"#" * (5 * 2**20), "larger than"),
        ("r.txt", b"\0\0", "NUL"),
        ("r.txt", b"this is prose, not a list\n", "r.txt:1: not a requirement"),
        ("r.txt", b"a; %b\n" % (b"(" * 5000), "r.txt:1: not a requirement"),
        (
            "r.txt",
            b"a; " + b"(" * 5000 + b"python_version>'3'" + b")" * 5000,
            "nested",
        ),
        ("r.txt", b"a\n" * 20_001, "more than 20,000 requirements"),
        ("pyproject.toml", b"a = " + b"9" * 5000, "broken TOML"),
        ("pyproject.toml", b"a = " + b"[" * 5000, "nested too deeply"),
        ("r.txt", b"-r missing.txt\n", "r.txt:1: no such file"),
        ("r.txt", b"-r r.txt\n", "includes itself"),
        ("pyproject.toml", b"[project\n", "broken TOML"),
        ("pyproject.toml", b"[project]\ndependencies = 'torch'\n", "not a list"),
        ("pyproject.toml", b"[project]\ndependencies = ['?']\n", "pyproject.toml:2"),
        ("setup.py", b"def (\n", "not Python"),
        ("setup.cfg", b"x\n", "not a setup.cfg"),
        ("environment.yml", b"- [\n", "broken YAML"),
        ("environment.yml", b"- x\n", "not an environment"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_files(tmp_path, (str(tmp_path / name),))
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 16


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_files(tmp_path, (str(tmp_path / "none.txt"),))
    with pytest.raises(InputError, match="no requirements file"):
        read_files(tmp_path, ())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "r.txt: a FIFO, not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "r.txt: a device, not a regular file"),
        (Path.mkdir, "r.txt: a folder, not a regular file"),
    ],
)
def test_what_is_no_file_is_no_list(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "r.txt")
    with pytest.raises(InputError, match=said):
        read_file(tmp_path / "r.txt", label="r.txt")


def test_a_chain_of_includes_has_an_end(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n")
    with pytest.raises(InputError, match=r"r51.txt: the 51th file"):
        read_files(tmp_path, (str(tmp_path / "r0.txt"),))


def test_a_circle_of_includes_names_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-r b.txt\n")
    (tmp_path / "b.txt").write_text("-r a.txt\n")
    with pytest.raises(InputError, match=r"a.txt -> b.txt -> a.txt"):
        read_files(tmp_path, (str(tmp_path / "a.txt"),))


def test_what_a_project_includes_is_read_once_and_an_editable_is_followed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["requirements.txt"]}\n'
    )
    (tmp_path / "requirements.txt").write_text("torch\n-r base.txt\n-e lib\n")
    (tmp_path / "base.txt").write_text("numpy\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "setup.cfg").write_text("[options]\ninstall_requires = torch<2\n")
    read = read_files(tmp_path, ())
    assert [file.path for file in read] == [
        "pyproject.toml",
        "requirements.txt",
        "base.txt",
        "lib/setup.cfg",
    ]


def test_a_constraint_is_judged_as_what_it_pins(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-c c.txt\n")
    (tmp_path / "c.txt").write_text("torch==2.3.1\n")
    read = read_files(tmp_path, (str(tmp_path / "r.txt"),))
    found = examine(read, (CPU,), Nobody(), offline=True).findings
    assert [(one.path, one.rule) for one in found] == [("c.txt", findings.MOVED)]


def test_a_package_that_leads_to_another_torch_is_named_with_its_chain() -> None:
    asked = (one("app>=1"), one("numpy"))
    distributions = (
        Distribution(name="app", version="1.0", requires=("engine",)),
        Distribution(name="engine", version="2.0", requires=("torch==2.8.0",)),
        Distribution(name="numpy", version="2.0", requires=()),
    )
    lines = ProjectLines(declared=asked, stack=CPU)
    ((line, demand),) = lines.unmet(("app>=1", "numpy"), distributions)
    chain = "app 1.0 -> engine 2.0 -> torch==2.8.0"
    assert (line.text, breach_from(demand, CPU).why.splitlines()[0]) == ("app>=1", chain)


def test_only_what_is_installed_from_an_index_is_resolved() -> None:
    asked = (
        one("numpy"),
        one("x @ https://x.org/x.whl"),
        one("y; sys_platform == 'win32'"),
        one("setuptools", Kind.BUILD),
    )
    assert ProjectLines(declared=asked, stack=CPU).rehearsed() == ("numpy",)


def test_packages_without_wheels_are_told_from_uvs_words() -> None:
    text = "Because fairscale==0.4.4 has no usable wheels and you require fairscale, ..."
    assert requirers_without_wheels(text, ()) == ("fairscale",)
    assert requirers_without_wheels(text, ("fairscale",)) == ()
    marked = "Because evdev{'linux' in sys_platform}>=1.3.0 has no usable wheels and"
    assert requirers_without_wheels(marked, ()) == ("evdev",)


def test_offline_is_said_and_is_no_pass() -> None:
    preflight = examine((FileRequirements(path="r.txt"),), EVERY, Nobody(), offline=True)
    assert preflight.unknown
    assert preflight_text(preflight).startswith("not determined: ")
    assert "was not followed" in preflight_sarif(preflight)


def test_files_that_ask_for_nothing_are_no_green() -> None:
    preflight = Preflight(files=("r.txt",), stacks={}, findings=(), unknown=())
    assert preflight_text(preflight).startswith("nothing to determine: ")


def test_the_text_and_the_sarif_name_place_reason_and_remedy() -> None:
    read = read_requirements("torch==2.3.1\n", path="r.txt")
    preflight = examine((read,), EVERY, Nobody(), offline=True)
    text = preflight_text(preflight)
    assert "r.txt:1: error: torch-moved" in text
    assert "write: torch>=2.3.1" in text
    assert '"text": "torch>=2.3.1"' in preflight_sarif(preflight)


def test_every_rule_is_explained_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "preflight.md").read_text("utf-8")
    assert [rule.id for rule in findings.RULES if f"### {rule.id}" not in page] == []


def test_a_file_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "dev.toml").write_text("[project]\nname = 'x'\ndependencies = ['torch']\n")
    assert len(read_file(tmp_path / "dev.toml", label="dev.toml").declared) == 1


NEEDS = {
    "cpu": ("sympy>=1.13.3", "typing-extensions>=4.10.0", "setuptools>=77.0.3", "jinja2"),
    "rocm": ("sympy>=1.13.3", "typing-extensions>=4.10.0", "setuptools; python_version>'3.11'"),
}


def with_needs(stack: CellStack) -> CellStack:
    torch = Distribution(
        name="torch", version=stack.torch, requires=NEEDS.get(stack.title, NEEDS["cpu"])
    )
    return stack.knowing([torch])


@pytest.mark.parametrize(
    ("text", "stacks", "written"),
    [
        ("typing-extensions==4.9.0\n", ("cpu", "cuda", "rocm"), "typing-extensions>=4.10.0"),
        ("sympy<1.13\n", ("cpu", "cuda", "rocm"), "sympy>=1.13.3"),
        ("Setuptools==69.5.1\n", ("cpu", "cuda"), "Setuptools>=77.0.3"),
        ("setuptools<82,!=78.0\n", (), None),
        ("jinja2==1.0\n", (), None),
        ("typing_extensions~=4.9.0; python_version<'3.12'\n", ("cpu", "cuda"), None),
        ("setuptools==69.5.1; python_version<'3.9'\n", (), None),
    ],
)
def test_a_pin_that_torch_cannot_work_with_is_a_finding_where_its_torch_says_so(
    text: str, stacks: tuple[str, ...], written: str | None
) -> None:
    found = found_in(text, *map(with_needs, EVERY))
    assert [tuple(one.why) for one in found] == ([stacks] if stacks else [])
    assert {one.rule for one in found} <= {findings.NEEDS}
    assert all("torch needs " in why for one in found for why in one.why.values())
    if written:
        assert [one.write for one in found] == [written]


def test_lines_that_leave_no_version_of_what_torch_needs_together_are_findings() -> None:
    text = "sympy<=1.13.3\nnumpy\nsympy!=1.13.3\n"
    found = found_in(text, with_needs(CPU))
    assert [(one.line, one.rule) for one in found] == [
        (1, findings.NEEDS),
        (3, findings.NEEDS),
    ]
    assert "requirements.txt:1, requirements.txt:3 together" in found[0].why["cpu"]
    contradictory = "sympy<1.14\nsympy>1.14\n"
    assert found_in(contradictory, with_needs(CPU)) == [], "that is not about torch"


def test_a_constraint_is_held_against_what_torch_needs_too() -> None:
    asked = one("sympy<1.13", Kind.CONSTRAINT)
    breach = breach_of(asked, with_needs(CPU))
    assert breach is not None
    assert breach.rule == findings.NEEDS
    assert breach_of(one("setuptools<70", Kind.BUILD), with_needs(CPU)) is None


def test_a_stack_whose_metadata_was_not_found_is_not_determined() -> None:
    read = read_requirements("sympy<1.13\n", path="r.txt")
    found = examine((read,), (CPU.knowing([]),), Nobody(), offline=True)
    assert found.unknown[0].startswith("cpu: no source here has this torch's metadata")


OPTIONAL = """\
[project]
name = "app"
dependencies = ["numpy"]
[project.optional-dependencies]
gpu = ["torch==2.3.1"]
all = ["App[gpu]"]
[dependency-groups]
dev = ["torch<2", {include-group = "lint"}]
lint = ["nvidia-cublas-cu12"]
[[tool.uv.index]]
url = "https://download.pytorch.org/whl/cu128"
explicit = true
[tool.uv.sources]
torch = [{index = "x", extra = "gpu"}]
"""


def deciding(text: str, parts: tuple[tuple[Part, str], ...], stack: CellStack = ROCM) -> list[int]:
    read = chosen((read_pyproject(text, path="pyproject.toml"),), parts)
    found = examine(read, (stack,), Nobody(), offline=True)
    return [one.line for one in found.findings if one.decides]


def test_what_is_not_installed_by_default_decides_nothing_unless_it_is_chosen() -> None:
    assert deciding(OPTIONAL, ()) == []
    assert deciding(OPTIONAL, ((Part.EXTRA, "gpu"),)) == [5]
    assert deciding(OPTIONAL, ((Part.EXTRA, "all"),)) == [5], "by the extra that it includes"
    assert deciding(OPTIONAL, ((Part.GROUP, "lint"),)) == [9]
    assert deciding(OPTIONAL, ((Part.GROUP, "dev"),)) == [8, 9]
    with pytest.raises(InputError) as caught:
        deciding(OPTIONAL, ((Part.EXTRA, "gpus"),))
    assert caught.value.message == "--extra gpus: the project has none of this name"
    assert "gpu" in caught.value.hint


def test_what_decides_nothing_is_shown_apart() -> None:
    read = (read_pyproject(OPTIONAL, path="pyproject.toml"),)
    found = examine(read, (ROCM,), Nobody(), offline=True)
    assert found.count == 0
    text = preflight_text(found)
    apart = text.partition("These change no torch, or are not installed by default:")[2]
    assert "torch-moved (only with `--extra gpu`)" in apart
    assert "foreign-library (only with `--group lint`)" in apart
    assert "note: torch-index" in apart


def test_poetry_s_extras_choose_their_optional_dependencies() -> None:
    text = POETRY + '[tool.poetry.extras]\nvision = ["torchvision"]\n'
    assert deciding(text, (), CPU) == []
    assert deciding(text, ((Part.EXTRA, "vision"),), CPU) == [4]
    assert deciding(text, ((Part.GROUP, "dev"),), CPU) == []


def test_an_extra_that_a_requirements_file_installs_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(OPTIONAL)
    (tmp_path / "requirements.txt").write_text("-e .[gpu]\n")
    read = chosen(read_files(tmp_path, ()), ())
    found = examine(read, (ROCM,), Nobody(), offline=True)
    assert [one.line for one in found.findings if one.decides] == [5]


def test_further_requirements_files_beside_an_installable_project_are_optional(
    tmp_path: Path,
) -> None:
    (tmp_path / "requirements-rocm.txt").write_text("torch<2\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("torch==1.0\n")

    def decided() -> int:
        return examine(read_files(tmp_path, ()), (CPU,), Nobody(), offline=True).count

    assert decided() == 2, "there is nothing else to install"
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert decided() == 2, "a file of settings installs nothing"
    (tmp_path / "pyproject.toml").write_text(OPTIONAL)
    assert decided() == 0
    named = read_files(tmp_path, (str(tmp_path / "requirements-rocm.txt"),))
    assert examine(named, (CPU,), Nobody(), offline=True).count == 2


def test_a_source_of_uv_is_for_who_demands_the_name() -> None:
    text = (
        '[project]\nname = "x"\ndependencies = ["numpy"]\n'
        '[project.optional-dependencies]\nfast = ["xformers"]\n'
        '[tool.uv.sources]\nxformers = {git = "https://x.org/xformers"}\n'
        'nobody = {url = "https://x.org/nobody-1-py3-none-any.whl"}\n'
        "member = {workspace = true}\n"
    )
    asked = read_pyproject(text, path="p").declared
    assert [(a.text.partition(" ")[0], a.group) for a in asked] == [
        ("numpy", ""),
        ("xformers", "fast"),
        ("xformers", "fast"),
    ]


SECRET = "root:$y$j9T$hush:19000:0:99999"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("requirements.txt", "-r {outside}/shadow\n"),
        ("requirements.txt", "-c {outside}/shadow\n"),
        ("requirements.txt", "-r ../outside/shadow\n"),
        ("requirements.txt", "-r link.txt\n"),
        ("requirements.txt", "-r folder/shadow\n"),
        ("requirements.txt", "-e ../outside\n"),
        ("requirements.txt", "file://{outside}\n"),
        ("requirements.txt", "-e folder\n"),
        ("setup.cfg", "[options]\ninstall_requires = file: ../outside/shadow\n"),
        (
            "pyproject.toml",
            (
                "[project]\nname='x'\ndynamic=['dependencies']\n"
                "[tool.setuptools.dynamic]\ndependencies={{file=['../outside/shadow']}}\n"
            ),
        ),
        (
            "pyproject.toml",
            "[project]\nname='x'\ndependencies=['y']\n[tool.uv.sources]\ny={{path='../outside'}}\n",
        ),
        ("pyproject.toml", "[tool.poetry.dependencies]\ny={{path='{outside}'}}\n"),
    ],
)
def test_nothing_outside_of_the_project_is_read(tmp_path: Path, name: str, content: str) -> None:
    outside, repo = tmp_path / "outside", tmp_path / "repo"
    outside.mkdir()
    repo.mkdir()
    for file in ("shadow", "requirements.txt", "pyproject.toml", "setup.py"):
        (outside / file).write_text(SECRET)
    (repo / "link.txt").symlink_to(outside / "shadow")
    (repo / "folder").symlink_to(outside)
    (repo / name).write_text(content.format(outside=outside))
    for files in ((), (str(repo / name),)):
        with pytest.raises(InputError) as caught:
            read_files(repo, files)
        message = caught.value.message
        assert message.startswith(f"{name}:")
        assert message.endswith("it leads out of the project's folder and was not read")
        assert SECRET[:6] not in message
    with pytest.raises(InputError, match="leads out"):
        read_files(tmp_path / "elsewhere", (str(repo / name),))


def test_a_link_out_of_the_project_is_not_read_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text(SECRET)
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "requirements.txt").symlink_to(tmp_path / "shadow")
    for files in ((), (str(repo / "requirements.txt"),)):
        with pytest.raises(InputError, match=r"requirements.txt: it leads out") as caught:
            read_files(repo, files)
        assert SECRET[:6] not in caught.value.message


def test_includes_within_the_project_may_go_up(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "dev.txt").write_text("-r ../base.txt\n")
    (tmp_path / "base.txt").write_text("torch<2\n")
    read = read_files(tmp_path / "other", (str(tmp_path / "deep" / "dev.txt"),))
    assert [file.path for file in read] == ["deep/dev.txt", "base.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.txt", SECRET),
        ("r.txt", f"-{SECRET}"),
        ("r.txt", f"numpy\n{SECRET}"),
        ("p.toml", SECRET),
        ("p.toml", f"[a]\n{SECRET[:4]} = 1\n{SECRET[:4]} = 2\n"),
        ("p.toml", f"[project]\ndependencies = ['{SECRET}']\n"),
        ("p.toml", f"[tool.poetry.dependencies]\nx = '^{SECRET}'\n"),
        ("setup.cfg", SECRET),
        ("setup.cfg", f"[options]\n{SECRET[:4]}\n"),
        ("setup.py", SECRET),
        ("setup.py", f"x = '{SECRET}\n"),
        ("environment.yml", f"!{SECRET[:4]} x"),
        ("environment.yml", f"{SECRET}: ["),
        ("environment.yml", f"dependencies:\n- pip:\n  - '{SECRET}'\n"),
    ],
)
def test_no_part_of_a_file_that_cannot_be_read_is_printed(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        read_files(tmp_path, (str(tmp_path / name),))
    text = caught.value.message + caught.value.hint
    assert name in text
    assert "root" not in text
    assert "hush" not in text


XY, XY2, XYZ = [(3, "x"), (1, "y")], [(2, "x"), (2, "y")], [(1, "x"), (2, "y"), (3, "z")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            (
                "import re\n_all = ['mover==1.0', 'torch>=2.6', 'packaging']\n"
                "table = {re.split(r'[=<>]', line)[0]: line for line in _all}\n"
                "setup(install_requires=[table['mover'], table['packaging']])\n"
            ),
            [(2, "mover==1.0"), (2, "packaging")],
        ),
        ("v = '2.3'\nsetup(install_requires=[f'torch=={v}'])\n", [(2, "torch==2.3")]),
        (
            "a, *b = ['x', 'torch<2', 'y']\nsetup(install_requires=b)\n",
            [(1, "torch<2"), (1, "y")],
        ),
        ("v = '2.3'\nsetup(install_requires=['torch==%s' % v])\n", [(2, "torch==2.3")]),
        ("dict_ = {'install_requires': 'a\\nb'}\nsetup(**dict_)\n", [(1, "a"), (1, "b")]),
        ("d = dict(name=f())\nd['install_requires'] = ['a']\nsetup(**d)\n", [(2, "a")]),
        ("a = ['x']\na += ['y']\na.append('z')\nsetup(install_requires=a)\n", XYZ),
        ("def main():\n    setup(install_requires=['x'])\nmain()\n", [(2, "x")]),
        (
            (
                "import re\n_all = ['x==1', 'y']\n"
                "deps = {b: a for a, b in (re.findall(r'^(([^!=<>~ ]+)(?:[!=<>~ ].*)?$)', x)[0]"
                " for x in _all)}\n"
                "def listed(*names):\n    return [deps[name] for name in names]\n"
                "setup(install_requires=listed('x', 'y'))\n"
            ),
            [(2, "x==1"), (2, "y")],
        ),
        ("def f(a, b='y'):\n    return [a, b]\nsetup(install_requires=f('x'))\n", XY),
        ("def f():\n    for a in 'x', 'y':\n        yield a\nsetup(install_requires=f())\n", XY2),
        ("try:\n    import a\nexcept E:\n    a = 0\nsetup(install_requires=['x'])\n", [(5, "x")]),
        ("import sys\nif sys.platform == 'win32':\n    a = b\nsetup(install_requires=[])\n", []),
        ("a = ['x', 'y']\nsetup(install_requires=[p for p in a if p != 'y'])\n", [(1, "x")]),
        ("e = {'a': ['x']}\nsetup(install_requires=sum(e.values(), []))\n", [(1, "x")]),
        ("a, b = [], {}\nb['c'] = a\na.append('x')\nsetup(install_requires=b['c'])\n", [(3, "x")]),
        ("setup(install_requires=None)\n", []),
    ],
)
def test_a_literal_table_of_setup_py_is_evaluated(text: str, wanted: list[object]) -> None:
    read = read_setup_py(text, path="setup.py")
    assert [(one.line, one.text) for one in read.declared] == wanted
    assert (read.unknown, read.unless_included) == ((), ())


@pytest.mark.parametrize("read", ["os.environ.get('A', 'x')", "os.getenv('A', 'x')"])
def test_a_variable_of_the_environment_is_unset_and_that_is_a_note(read: str) -> None:
    found = read_setup_py(f"import os\nsetup(install_requires={read})\n", path="setup.py")
    assert [one.text for one in found.declared] == ["x"]
    told = examine((found,), (CPU,), Nobody(), offline=True)
    assert told.notes == (
        "setup.py: it reads variables of the environment, which were taken as unset",
    )


def test_what_is_under_a_condition_is_named_with_it() -> None:
    """It is followed, and where it replaces torch the answer is not determined."""
    text = "a = ['x']\nif cuda():\n    a.append('torch<2')\nsetup(install_requires=a)\n"
    read = read_setup_py(text, path="setup.py")
    assert [(one.text, one.condition) for one in read.declared] == [
        ("x", ""),
        ("torch<2", "setup.py:2"),
    ]
    found = examine((read,), (CPU,), Nobody(), offline=True)
    assert found.findings == ()
    assert found.unknown[0] == (
        "setup.py:3: torch<2, under a condition that was not evaluated (setup.py:2): "
        "`<2` does not accept this torch"
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a = {}\nif b:\n    a['x'] = 'torch'\nsetup(install_requires=a['x'])\n",
        "if b:\n    a = 'x'\nelse:\n    a = 'y'\nsetup(install_requires=a)\n",
        "def f():\n    if b:\n        return 'x'\n    return 'y'\nsetup(install_requires=f())\n",
        "a = {'x': 'y'}\nchange(a)\nsetup(install_requires=a['x'])\n",
        "for a in b:\n    c = ['x']\nsetup(install_requires=c)\n",
        "while b:\n    c = ['x']\nsetup(install_requires=c)\n",
        "import os\nsetup(install_requires=os.environ['A'])\n",
        "setup(install_requires=open('../outside').read().split())\n",
        "def f():\n    return f()\nsetup(install_requires=f())\n",
        "def f(a):\n    setup(install_requires=a)\na = ['x']\n",
        "setup(install_requires=open('list').read().split())\n",
        "setup(install_requires=__import__('os').listdir('/'))\n",
        "setup(**settings())\n",
        "main()\n",
        "a = 'x' * 10**9\nsetup(install_requires=[a])\n",
        "a = '%999999999d' % 1\nsetup(install_requires=[a])\n",
        "a = 'x'.join(['y'] * 10**9)\nsetup(install_requires=[a])\n",
        "b = 'a'.replace('', 'x' )\nsetup(install_requires=[b" + ".replace('', b)" * 30 + "])\n",
        "setup(install_requires=[i for a in '1'*9 for i in a])\n",
        (
            "b = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]\nsetup(install_requires=["
            "0 for a in b for c in b for d in b for e in b for f in b for g in b])\n"
        ),
        "import re\nsetup(install_requires=re.split('(a+)+$', 'a' * 50))\n",
        "a = b\nb = a\nsetup(install_requires=a)\n",
        "import re\nsetup(install_requires=re.findall('(a|b|ab)*c', 'ab' * 40))\n",
        (
            "import re\na = 'a' * 90\nb = ['x'] * 9\nsetup(install_requires="
            "[re.findall('a?a?.*a.*b', a) for i in b for j in b for k in b])\n"
        ),
    ],
)
def test_what_does_not_follow_from_literals_is_not_determined(text: str) -> None:
    read = read_setup_py(text, path="setup.py")
    assert read.declared == ()
    assert len(read.unknown) == 1


LIST = """\
import os
from pathlib import Path
def read(name, *more, folder='.'):
    with open(os.path.join(os.path.dirname(__file__), folder, name)) as file:
        lines = file.read().splitlines()
    return [one.strip() for one in lines if one and not one.startswith('#')]
"""


@pytest.mark.parametrize(
    "value",
    [
        "read('list.txt', folder='needs')",
        "[one for one in read('needs/list.txt')]",
        "(Path(__file__).parent / 'needs' / 'list.txt').read_text().split('\\n')",
        "open('needs/list.txt').readlines()",
        "open('needs/list.txt').read()",
    ],
)
def test_a_setup_py_reads_files_of_its_project(tmp_path: Path, value: str) -> None:
    (tmp_path / "setup.py").write_text(f"{LIST}setup(install_requires={value})\n")
    (read,) = read_files(tmp_path, ())
    assert "computed" in read.unknown[0], "the file is not there"
    (tmp_path / "needs").mkdir()
    (tmp_path / "needs" / "list.txt").write_text("numpy\ntorch<2\n")
    (read,) = read_files(tmp_path, ())
    assert read.unknown == ()
    torch = next(one for one in read.declared if one.text == "torch<2")
    if "read()" not in value and "read_text" not in value:
        assert (torch.path, torch.line, torch.source) == ("needs/list.txt", 2, "torch<2")
    (tmp_path / "needs" / "list.txt").unlink()
    (tmp_path / "outside.txt").write_text("numpy\n")
    (tmp_path / "needs" / "list.txt").symlink_to("/etc/hostname")
    (read,) = read_files(tmp_path, ())
    assert "computed" in read.unknown[0], "the file is outside of the project"


def test_a_project_whose_metadata_is_static_is_asked_for_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(OPTIONAL)
    (tmp_path / "setup.py").write_text("setup(install_requires=compute())\n")
    assert [file.path for file in read_files(tmp_path, ())] == ["pyproject.toml"]


def test_dependencies_that_a_backend_computes_are_not_determined(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires=[]\nbuild-backend='own.backend'\n"
        "[project]\nname='x'\ndynamic=['dependencies']\n"
    )
    (read,) = read_files(tmp_path, ())
    assert read.unknown == ("pyproject.toml:6: dependencies are computed, by own.backend",)


SELF = """\
[project]
name = "p"
dependencies = ["p[x]"]
[project.optional-dependencies]
x = ["torch<2"]
"""
SCRIPT = """\
# /// script
# requires-python = ">=3.10"
# dependencies = ["torch<2"]
# ///
import torch
"""
PYLOCK = """\
lock-version = "1.0"
[[packages]]
name = "torch"
version = "2.3.0"
marker = "sys_platform == 'linux'"
[[packages]]
name = "local"
[packages.directory]
path = "."
"""
PIPFILE = '[packages]\ntorch = "==2.3"\n[dev-packages]\ny = "*"\n'
CONDA_PIP = (
    "dependencies:\n- pip:\n  - -r more.txt\n  - torch<2\n  - git+https://h.org/o/repo.git\n"
)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("requirements.txt", "torch<2\n".encode("utf-16"), [(1, "torch<2", True)]),
        ("r.txt", b"# coding: latin-1\n# caf\xe9\ntorch<2\n", [(3, "torch<2", True)]),
        ("r.txt", b"\xef\xbb\xbftorch<2 \\\n --hash=sha256:a\n", [(1, "torch<2", True)]),
        ("pyproject.toml", SELF.encode(), [(5, "torch<2", True)]),
        ("script.py", SCRIPT.encode(), [(3, "torch<2", True)]),
        ("pylock.toml", PYLOCK.encode(), [(3, "torch==2.3.0 ; sys_platform == 'linux'", True)]),
        ("Pipfile", PIPFILE.encode(), [(2, "torch==2.3", True), (4, "y", False)]),
        (
            "environment.yml",
            CONDA_PIP.encode(),
            [
                (4, "torch<2", True),
                (5, "repo @ git+https://h.org/o/repo.git", True),
                (1, "z", True),
            ],
        ),
    ],
)
def test_other_files_of_requirements_are_read(
    tmp_path: Path, name: str, content: bytes, wanted: list[tuple[int, str, bool]]
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "more.txt").write_text("z\n")
    read = chosen(read_files(tmp_path, (str(tmp_path / name),)), ())
    assert [(one.line, one.text, one.is_installed) for f in read for one in f.declared] == wanted
    unknown = [text for file in read for text in file.unknown]
    assert unknown == (["pylock.toml:7: local is in a folder"] if name == "pylock.toml" else [])


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"])
def test_a_lock_for_several_environments_is_refused_with_the_way_out(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text('[[package]]\nname = "torch"\nversion = "2.3.0"\n')
    with pytest.raises(InputError, match="for several environments") as caught:
        read_files(tmp_path, (str(tmp_path / name),))
    assert "export" in caught.value.hint or "pipenv requirements" in caught.value.hint


def test_a_file_of_no_installer_is_not_determined(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[torch]\nversion = "2"\n')
    (read,) = read_files(tmp_path, (str(tmp_path / "a.toml"),))
    assert read.unknown == ("a.toml: no table in which installers read",)


def test_a_link_to_itself_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-r loop.txt\n")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(InputError, match="leads out of the project's folder"):
        read_files(tmp_path, ())
