"""Who comes to a line of Python: the shapes of conditions that projects really write."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from warpfront_port.scan import python
from warpfront_port.scan.findings import Context, Gate, Match, SourceText

EVERYONE = {"nvidia", "amd", "other"}
HEAD = "import torch\n"


def seen(text: str, *, path: str = "module.py", rule: str = "PY014") -> Match:
    source = SourceText(path=PurePosixPath(path), text=HEAD + text)
    found = [one for one in python.rule_matches(source, Context()) if one.rule == rule]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("import pynvml\n", EVERYONE),
        ("if torch.version.hip:\n    pass\nelse:\n    import pynvml\n", {"nvidia", "other"}),
        ("if torch.version.hip is None:\n    import pynvml\n", {"nvidia", "other"}),
        ("if not torch.version.hip:\n    import pynvml\n", {"nvidia", "other"}),
        ("if torch.version.hip is not None:\n    import pynvml\n", {"amd"}),
        ("if torch.version.cuda:\n    import pynvml\n", {"nvidia"}),
        ("if torch.cuda.is_available():\n    import pynvml\n", {"nvidia", "amd"}),
        ("is_rocm = torch.version.hip is not None\nif not is_rocm:\n    import pynvml\n",
         {"nvidia", "other"}),
        (("is_rocm = hasattr(torch.version, 'hip') and torch.version.hip is not None\n"
         "if not is_rocm:\n    import pynvml\n"), {"nvidia", "other"}),
        (("def on_hip():\n    return torch.version.hip is not None\n"
         "if not on_hip():\n    import pynvml\n"), {"nvidia", "other"}),
        ("from .platforms import is_hip\nif is_hip():\n    pass\nelse:\n    import pynvml\n",
         {"nvidia", "other"}),
        ("if current_platform.is_rocm():\n    import pynvml\n", {"amd"}),
        ("if current_platform.is_cuda():\n    import pynvml\n", {"nvidia"}),
        ("if getattr(torch.version, 'hip', None):\n    import pynvml\n", {"amd"}),
        (("from torch.utils.cpp_extension import IS_HIP_EXTENSION\n"
         "if not IS_HIP_EXTENSION:\n    import pynvml\n"), {"nvidia", "other"}),
        (("BACKEND = 'hip' if torch.version.hip else 'cuda'\n"
         "if BACKEND == 'hip':\n    import pynvml\n"), {"amd"}),
        ("if 'rocm' in torch.__version__:\n    pass\nelse:\n    import pynvml\n",
         {"nvidia", "other"}),
        ("if debug and not torch.version.hip:\n    import pynvml\n", {"nvidia", "other"}),
        ("if debug or not torch.version.hip:\n    import pynvml\n", EVERYONE),
        ("if debug:\n    import pynvml\n", EVERYONE),
        ("if torch.version.hip:\n    raise RuntimeError('no')\nimport pynvml\n",
         {"nvidia", "other"}),
        ("assert torch.version.hip is None\nimport pynvml\n", {"nvidia", "other"}),
        ("def f():\n    if torch.version.hip:\n        return None\n    import pynvml\n",
         {"nvidia", "other"}),
        ("def f():\n    if torch.version.hip:\n        x = 1\n    import pynvml\n", EVERYONE),
        (("def f():\n    if debug:\n        return\n    elif torch.version.hip:\n        return\n"
         "    import pynvml\n"), {"nvidia", "other"}),
        ("while not torch.version.hip:\n    import pynvml\n", {"nvidia", "other"}),
        ("x = [__import__('pynvml') for d in y if not torch.version.hip]\n", {"nvidia", "other"}),
        ("if torch.version.hip:\n    pass\nelif debug:\n    import pynvml\n", {"nvidia", "other"}),
    ],
)  # fmt: skip
def test_conditions_say_who_comes_to_a_line(text: str, sides: set[str]) -> None:
    assert seen(text).sides == sides


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("try:\n    import pynvml\nexcept ImportError:\n    pynvml = None\n", Gate.AVAILABILITY),
        ("try:\n    import pynvml\nexcept:\n    pynvml = None\n", Gate.AVAILABILITY),
        ("try:\n    import pynvml\nexcept ImportError:\n    raise\n", Gate.OPEN),
        ("try:\n    import pynvml\nexcept ImportError:\n    import flash_attn\n", Gate.OPEN),
        ("try:\n    pass\nexcept ImportError:\n    import pynvml\n", Gate.OPEN),
        ("try:\n    import amdsmi\nexcept ImportError:\n    import pynvml\n", Gate.AVAILABILITY),
        ("try:\n    import flash_attn\nexcept ImportError:\n    import pynvml\n", Gate.OPEN),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import pynvml\n",
         Gate.AVAILABILITY),
        ("with open('x') as file:\n    import pynvml\n", Gate.OPEN),
        ("if HAS_NVML:\n    import pynvml\n", Gate.AVAILABILITY),
        ("if is_pynvml_available():\n    import pynvml\n", Gate.AVAILABILITY),
        ("if importlib.util.find_spec('pynvml'):\n    import pynvml\n", Gate.AVAILABILITY),
        ("if verbose:\n    import pynvml\n", Gate.OPEN),
        ("HAS_NVML and __import__('pynvml')\n", Gate.AVAILABILITY),
        ("verbose and __import__('pynvml')\n", Gate.OPEN),
        ("if torch.cuda.is_available():\n    import pynvml\n", Gate.OPEN),
        ("USE_GPU = torch.cuda.is_available()\nif USE_GPU:\n    import pynvml\n", Gate.OPEN),
        ("if torch.cuda.is_available() and HAS_NVML:\n    import pynvml\n", Gate.AVAILABILITY),
        ("from numba import cuda\nif cuda.is_available():\n    import pynvml\n",
         Gate.AVAILABILITY),
    ],
)  # fmt: skip
def test_checks_for_a_package_soften_and_other_checks_do_not(text: str, gate: Gate) -> None:
    assert seen(text).gate is gate


def test_an_import_inside_a_function_is_one_level_better() -> None:
    assert seen("def f():\n    import pynvml\n").shift == -1
    assert seen("if True:\n    import pynvml\n").shift == 0


def test_test_code_is_told_from_the_program_and_conftest_is_program() -> None:
    text = "import pynvml\n"
    assert seen(text, path="tests/test_x.py").gate is Gate.TEST
    assert seen(text, path="src/pkg/conftest.py").gate is Gate.OPEN
    assert seen(text, path="src/contest.py").gate is Gate.OPEN


def test_cuda_inside_a_string_is_read_where_it_stands() -> None:
    text = 'source = """\n__global__ void f() {\n  asm("mov.u32 %0, %1;");\n}\n"""\n'
    source = SourceText(path=PurePosixPath("kernels.py"), text=text)

    def read(inner: SourceText, _: Context) -> list[Match]:
        start = inner.text.index("asm")
        return [Match(rule="CU107", start=start, end=start + 3)]

    found = [
        one
        for one in python.rule_matches(source, Context(), lambda s, c: iter(read(s, c)))
        if one.rule == "CU107"
    ]
    assert [text[one.start : one.end] for one in found] == ["asm"]


def test_columns_count_characters_and_not_bytes() -> None:
    text = "é = '日本'; import pynvml\n"
    source = SourceText(path=PurePosixPath("m.py"), text=text)
    (found,) = python.rule_matches(source, Context())
    assert text[found.start : found.end] == "import pynvml"


def build_rules(text: str) -> set[str]:
    source = SourceText(path=PurePosixPath("setup.py"), text=text)
    return {one.rule for one in python.rule_matches(source, Context())}


@pytest.mark.parametrize(
    ("arm", "rule", "shifts"),
    [
        ("if CUDA_HOME is not None:\n    flags += ['-O3']", "PY047", []),
        ("if CUDA_HOME is not None:\n    ext = CUDAExtension('k', ['k.cu'])", "PY047", [0]),
        (
            "def f():\n  if CUDA_HOME is None:\n    return []\n  return [CUDAExtension()]",
            "PY047",
            [0],
        ),
        (
            "def f():\n if CUDA_HOME is not None:\n  CUDAExtension\n else:\n  'HIP'\n  return 1",
            "PY047",
            [-1],
        ),
        ("nvcc = join(CUDA_HOME, 'b') if CUDA_HOME is not None else find()", "PY047", []),
        ("with_cuda = CUDA_HOME is not None", "PY047", [0]),
        ("if CUDA_HOME is None:\n    raise RuntimeError('no toolkit')", "BL216", [0]),
    ],
)
def test_a_condition_about_the_toolkit_is_judged_by_what_its_arm_leaves_out(
    arm: str, rule: str, shifts: list[int]
) -> None:
    text = f"from torch.utils.cpp_extension import CUDA_HOME, load\n{arm}\n"
    source = SourceText(path=PurePosixPath("build.py"), text=text)
    found = [one.shift for one in python.rule_matches(source, Context()) if one.rule == rule]
    assert sorted(found) == sorted(shifts)


def test_a_sentence_that_names_an_architecture_chooses_none() -> None:
    option = "from setuptools import setup\nA = {}\n"
    assert "BL203" in build_rules(option.format("['--offload-arch=gfx90a', 'gfx906;gfx908']"))
    assert "BL203" not in build_rules(option.format("'architectures, such as gfx906;gfx908'"))


def test_an_fp8_type_that_is_only_a_parameters_default_is_a_callers_choice() -> None:
    text = "def f(x, t=torch.float8_e4m3fn):\n    return x\n"
    assert seen(text, rule="PY037").shift == -1
    assert seen("def f(x):\n    return x.to(torch.float8_e4m3fn)\n", rule="PY037").shift == 0


@pytest.mark.parametrize(
    ("flag", "rules"),
    [
        ("f'-arch={arch}'", {"BL202"}),
        ("'-arch=native'", {"BL202"}),
        ("'-arch=sm_80'", {"BL202"}),
        ("'-arch=gfx942'", set()),
        ("f'--offload-arch={arch}'", set()),
        ("'-arch', 'arm64'", set()),
    ],
)
def test_an_architecture_that_is_computed_is_nvidia_s_too(flag: str, rules: set[str]) -> None:
    found = build_rules(f"import setuptools\narch = ask()\nflags.extend([{flag}])\n")
    assert found & {"BL202"} == rules


@pytest.mark.parametrize(
    ("use", "gate"),
    [
        ("os.path.join(CUDA_HOME, 'lib')", Gate.OPEN),
        ("CUDA_HOME + '/lib'", Gate.OPEN),
        ("CUDA_HOME and os.path.join(CUDA_HOME, 'lib')", None),
        ("os.path.join(CUDA_HOME, 'lib') if CUDA_HOME else ''", None),
        ("os.path.join(CUDA_HOME or ROCM_HOME, 'lib')", None),
        ("f'{CUDA_HOME}/lib'", None),
        ("str(CUDA_HOME) + '/lib'", None),
    ],
)
def test_a_folder_that_only_cuda_has_cannot_be_joined(use: str, gate: Gate | None) -> None:
    text = f"import os\nfrom torch.utils.cpp_extension import CUDA_HOME, ROCM_HOME\nlib = {use}\n"
    source = SourceText(path=PurePosixPath("setup.py"), text=text)
    found = [one.gate for one in python.rule_matches(source, Context()) if one.rule == "PY061"]
    assert found == ([] if gate is None else [gate])


def test_the_environment_takes_no_folder_that_is_none() -> None:
    text = "import cupy, os\n{} = cupy.cuda.get_cuda_path()\n"
    assert "PY061" in build_rules(text.format("os.environ['CUDA_HOME']"))
    assert "PY061" not in build_rules(text.format("homes['cuda']"))


def test_a_library_that_is_added_to_a_list_is_linked() -> None:
    assert "BL207" in build_rules("import setuptools\next_libs.append('nccl')\n")
    assert "BL207" in build_rules("import setuptools\nlibraries = ['cublas', 'mine']\n")
    assert "BL207" not in build_rules("import setuptools\nwords.append('nccl')\n")


@pytest.mark.parametrize(
    "head",
    [
        "def f(verbose=False):\n    if verbose:\n        ",
        "READY = False\ndef f():\n    if READY:\n        ",
        (
            "READY = False\ndef g():\n    global READY\n    READY = True\n"
            "def f():\n    if READY:\n        "
        ),
        "def f(on=torch.version.cuda is not None):\n    if on:\n        ",
        (
            "ON = torch.version.cuda is not None\ndef g():\n    global ON\n    ON = True\n"
            "def f():\n    if ON:\n        "
        ),
        (
            "class Base:\n    def wants(self):\n        return False\n"
            "    def go(self):\n        if self.wants():\n            "
        ),
    ],
)
def test_a_default_or_a_flag_of_a_module_makes_no_code_dead(head: str) -> None:
    assert seen(head + "import pynvml\n").sides == EVERYONE


def test_a_constant_in_the_condition_itself_makes_code_dead() -> None:
    assert seen("if False:\n    import pynvml\n").sides == set()


def test_a_module_value_that_nothing_reassigns_decides() -> None:
    text = "ON = torch.version.cuda is not None\ndef f():\n    if ON:\n        import pynvml\n"
    assert seen(text).sides == {"nvidia"}


def test_variables_made_of_each_other_are_read_in_bounded_time() -> None:
    steps = "".join(f"    x = x + 'a{n}' + x\n" for n in range(40))
    text = f"def f(x):\n{steps}    import pynvml\n    os.system(x)\n"
    assert seen(text).sides == EVERYONE


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("if torch.version.hip:\n    args = ['-O3']\nelse:\n    args = [*FLAGS]\n", False),
        ("args = []\nif not torch.version.hip:\n    args.extend(FLAGS)\n", False),
        ("more = FLAGS + ['-O3']\nargs = [] if torch.version.hip else more\n", False),
        ("args = list(FLAGS)\nif torch.version.hip:\n    args.append('-O3')\n", True),
        ("args = FLAGS if torch.version.hip else []\n", True),
        ("args = []\n", True),
    ],
)
def test_a_flag_reaches_the_compilers_that_a_use_of_its_list_reaches(
    use: str, *, expected: bool
) -> None:
    text = "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    text += f"FLAGS = ['-gencode=arch=compute_80,code=sm_80']\n{use}"
    text += "CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': args})\n"
    source = SourceText(path=PurePosixPath("setup.py"), text=text)
    matches = [one for one in python.rule_matches(source, Context()) if one.rule == "BL202"]
    assert any("amd" in one.sides for one in matches) is expected


@pytest.mark.parametrize(
    "required",
    [
        "BASE + ['torch==2.7.1']",
        "['einops'] + (['numpy'] if plain else ['torch==2.7.1'])",
        "['einops', *read(), *OURS]",
        "list(OURS)",
        "{'torch==2.7.1'}",
    ],
)
def test_requirements_are_read_through_what_lists_are_made_of(required: str) -> None:
    text = "from setuptools import setup\nOURS = ('torch==2.7.1',)\n"
    text += f"setup(install_requires={required})\n"
    assert "DP302" in build_rules(text)
    assert "DP302" not in build_rules(text.replace("torch==2.7.1", "numpy"))
