"""Every rule sees what it is about, passes over what only looks like it, and knows its gate.

The examples are data, in the rules' files. What the scanner says of each is a golden per rule.
"""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import Any

import pytest
from rule_files import KINDS, read_examples

from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import Context, Gate, ScanFinding, Severity, SourceText
from warpfront_port.scan.severities import Judged
from warpfront_port.scan.targets import read_target

LEVELS = tuple(Severity)
EXAMPLES = read_examples(cuda=False)


@functools.cache
def judged(rule: str, kind: str, before: str = "") -> Judged:
    example = EXAMPLES[rule]
    target = example.get(f"{kind}_target", example.get("target", "gfx942"))
    path = example.get(f"{kind}_path", example.get("path", "module.py"))
    source = SourceText(path=PurePosixPath(path), text=before + example[kind])
    scope = Scope(target=read_target(target), context=Context())
    return scan_source(source, scope)


def of_rule(rule: str, kind: str) -> list[ScanFinding]:
    return [finding for finding in judged(rule, kind).findings if finding.rule == rule]


def worst(findings: list[ScanFinding]) -> int:
    return max((LEVELS.index(finding.severity) for finding in findings), default=0)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_sees_what_it_is_about_and_nothing_that_only_looks_so(rule: str) -> None:
    hits, gated = of_rule(rule, "hit"), of_rule(rule, "gated")
    assert hits
    assert of_rule(rule, "near") == []
    weaker = worst(gated) < worst(hits)
    assert weaker or (gated and all(finding.gate is not Gate.OPEN for finding in gated))
    moved = judged(rule, "hit", before="\n\n").findings
    assert {finding.fingerprint for finding in hits} <= {one.fingerprint for one in moved}


@pytest.mark.parametrize("rule", EXAMPLES)
def test_what_is_said_of_the_examples_is_reviewed(rule: str, golden: Any) -> None:
    lines = []
    for kind in KINDS:
        result = judged(rule, kind)
        lines.append(f"{kind}: {result.suppressed} suppressed")
        lines += [
            f"  {finding.line}:{finding.column}-{finding.end_line}:{finding.end_column}"
            f" {finding.severity} {finding.rule} {finding.message} [{finding.gate}]"
            for finding in result.findings
        ]
    golden(f"scan/{rule}.txt", "\n".join(lines) + "\n")


def found_in(name: str, text: str) -> tuple[ScanFinding, ...]:
    source = SourceText(path=PurePosixPath(name), text=text)
    scope = Scope(target=read_target("gfx942"), context=Context())
    return scan_source(source, scope).findings


def build_findings(name: str, text: str) -> list[tuple[str, str]]:
    return [(one.rule, one.severity.value) for one in found_in(name, text)]


def test_a_makefile_that_compiles_with_nvcc_alone_cannot_build() -> None:
    text = "NVCC = nvcc # the compiler\nall: a.o\n"
    assert build_findings("Makefile", text) == [("BL217", "error")]
    assert build_findings("Makefile", f"HIPCC = hipcc\n{text}") == []
    optional = f"ifdef WITH_GPU\n{text}endif\n"
    assert build_findings("Makefile", optional) == [("BL217", "warning")]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("NVCC := $(shell which nvcc)\nifeq ($(NVCC),)\nGPU = 0\nendif\n", set()),
        ("NVCC := $(shell which nvcc)\na: a.cu\n\t$(NVCC) -o a a.cu\n", {"BL217"}),
        ("VERSION := $(shell nvcc --version)\nall:\n\techo $(VERSION)\n", set()),
        ("VERSION := $(shell nvcc --version)\na: a.cu\n\t$(NVCC) -o a a.cu\n", {"BL217"}),
    ],
)
def test_a_makefile_that_only_asks_for_nvcc_compiles_nothing(text: str, rules: set[str]) -> None:
    assert {rule for rule, _ in build_findings("Makefile", text)} & {"BL217"} == rules


@pytest.mark.parametrize(
    ("condition", "reached"),
    [
        ("ifneq ($(CUDA_DIR),)", False),
        ("ifeq ($(USE_CUDA),1)", False),
        ("ifdef USE_CUDA", False),
        ("ifndef ROCM", False),
        ("ifeq ($(DEBUG),1)", True),
        ("ifeq ($(CUDA_DIR),)", True),
        ("ifndef USE_CUDA", True),
        ("ifneq ($(USE_CUDA), 1)", True),
        ("ifeq ($(USE_CUDA),0)", True),
        ("ifdef USE_ROCM", True),
    ],
)
def test_a_makefile_s_condition_decides_who_links(condition: str, *, reached: bool) -> None:
    linked = ("BL207", "error")
    text = f"{condition}\nLIBS += -lcudart\nendif\n"
    assert (linked in build_findings("Makefile", text)) is reached
    other = f"{condition}\nelse\nLIBS += -lcudart\nendif\n"
    if "CUDA" in condition:
        assert (linked in build_findings("Makefile", other)) is not reached


def test_the_uses_of_a_makefile_for_nvcc_are_its_lines_for_cuda() -> None:
    text = "NVCC = nvcc\n# CUDA\nINC = -I$(CUDA)/include\nCFLAGS = -O3\na: a.cu\n\t$(NVCC) a.cu\n"
    found, part = found_in("Makefile", text)
    assert (found.rule, found.severity, found.line) == ("BL217", "error", 1)
    assert (part.rule, part.severity, part.uses) == ("CU124", "note", (3, 6))
    (found,) = found_in("Makefile", "ifdef HAVE_CUDA\nS += cuda_a.c\nendif\nT += b.c\n")
    assert (found.rule, found.severity, found.uses) == ("CU124", "note", (1, 2))
    assert found_in("Makefile", "ifdef HAVE_CUDA\nendif\nifdef HAVE_HIP\nendif\n") == ()


def test_a_configure_script_s_lines_for_cuda_are_one_note() -> None:
    text = "dnl CUDA\nAC_ARG_WITH([cuda], [x])\nAX_MPI\nAC_SUBST(CUDA_LIBS)\n"
    (found,) = found_in("configure.ac", text)
    assert (found.rule, found.severity, found.uses) == ("CU124", "note", (2, 4))
    assert found_in("configure.ac", f"{text}AC_ARG_WITH([rocm], [x])\n") == ()


def test_templates_and_arms_of_scripts_for_cuda_are_noted_too() -> None:
    (found,) = found_in("configure", "USE_CUDA=0\nUSE_MPI=0\n")
    assert (found.rule, found.severity, found.line) == ("CU124", "note", 1)
    (found,) = found_in("cmake/Config.cmake.in", "set(HAS_CUDA @CUDA@)\nset(B 1)\n")
    assert (found.rule, found.severity, found.line) == ("CU124", "note", 1)
    (found,) = found_in("src/made.h.in", "#ifdef HAVE_CUDA\nint a;\n#endif\n")
    assert (found.rule, found.severity) == ("CU124", "note")
    case = 'case $1 in\n  "cuda" ) SFX=cuda ;;\n  mpi ) ;;\nesac\n'
    script = f'if [ "$USE_CUDA" = 1 ]; then\n  echo CUDA\nfi\n{case}'
    (found,) = found_in("test/run.sh", script)
    assert (found.rule, found.severity, found.uses) == ("CU124", "note", (1, 2, 5))
    assert found_in("test/run.sh", f"{script}if [ $HIP = 1 ]; then\n  a\nfi\n") == ()
    assert found_in("run.sh", 'if [ -z "$CUDA_VISIBLE_DEVICES" ]; then\n  a\nfi\n') == ()


def test_an_argument_of_a_dockerfile_is_an_image_where_a_stage_begins_with_it() -> None:
    image = "ARG BASE=nvidia/cuda:12.4.1-devel\n"  # warpfront: ignore[CT401] an example
    assert [rule for rule, _ in build_findings("Dockerfile", f"{image}FROM ${{BASE}}\n")] == [
        "CT401"
    ]
    assert build_findings("Dockerfile", f"{image}FROM ubuntu\nRUN echo $BASE\n") == [
        ("CU124", "note")
    ]


@pytest.mark.parametrize(("call", "severity"), [("launch", "error"), ("triton.Config", "note")])
def test_a_choice_of_an_autotuner_is_noted(call: str, severity: str) -> None:
    found = found_in(
        "m.py", f"import triton\na = [{call}({{}}, num_warps=32), {call}({{}}, num_warps=8)]\n"
    )
    assert [(one.rule, one.severity) for one in found] == [("PY038", severity)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/lib.rs", '// CUDA\n#[cfg(feature = "cuda")]\nmod fast;\n'),
        ("flake.nix", "{\n  cudaSupport = true;\n}\n"),
        ("src/run.ts", '// CUDA\nif (backend === "cuda") {\n}\n'),
        ("compose.yml", "a: 1\nb:\n  args: [USE_CUDA=1]\n"),
        ("run.sh", "# CUDA\nCUDA_VERSION=12\n"),
    ],
)
def test_a_part_for_cuda_without_a_twin_is_noted_in_every_language(path: str, text: str) -> None:
    (found,) = found_in(path, text)
    assert (found.rule, found.severity) == ("CU124", "note")
    assert found_in("a.yml", "device: cuda:0\n") == ()
    assert found_in("a.go", 'import (\n\t"github.com/NVIDIA/tool/internal/oci"\n)\n') == ()
    comment = "//" if "//" in text else "#"
    assert found_in(path, f"{text}{comment} ROCM_PATH\n") == ()


def test_an_arm_of_cmake_that_is_never_entered_is_no_finding() -> None:
    linked = "target_link_libraries(a CUDA::cudart)\n"
    assert build_findings("CMakeLists.txt", f"if(FALSE)\n{linked}endif()\n") == []
    option = f"option(FAST x OFF)\nif(FAST)\n{linked}endif()\n"
    assert build_findings("CMakeLists.txt", option) == [("BL207", "warning")]
    cached = f"set(FAST OFF CACHE BOOL fast)\nif(FAST)\n{linked}endif()\n"
    assert build_findings("CMakeLists.txt", cached) == [("BL207", "warning")]
    on = option.replace("OFF", "ON")
    assert build_findings("CMakeLists.txt", on) == [("BL207", "error")]
    forced = f"set(FAST ON)\n{option}"
    assert build_findings("CMakeLists.txt", forced) == [("BL207", "error")]


def test_an_option_that_a_generator_expression_gives_to_cuda_alone_reaches_no_hip() -> None:
    alone = "$<$<COMPILE_LANGUAGE:CUDA>:-O3 --use_fast_math>"
    for words, reached in (
        (alone, False),
        (f"{alone} --use_fast_math", True),
        ("$<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CUDA>>:--use_fast_math>", False),
        ("$<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:--use_fast_math>", True),
        ("$<$<CONFIG:Release>:--use_fast_math>", True),
    ):
        text = f"target_compile_options(a PRIVATE {words})\n"
        assert (("BL201", "error") in build_findings("CMakeLists.txt", text)) is reached, words


def test_a_variable_of_an_image_is_a_setting() -> None:
    text = "FROM debian\nENV PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n"
    assert [rule for rule, _ in build_findings("Dockerfile", text)] == ["PY010"]


def test_a_copy_to_where_python_finds_a_package_patches_it() -> None:
    told = "python -c 'import a; print(a.__file__)' | xargs dirname | xargs -I {} cp -R own/* {}"
    assert [rule for rule, _ in build_findings("Dockerfile", f"RUN {told}\n")] == ["PY060"]


def test_an_arm_for_cuda_is_to_check_where_the_build_names_nothing_of_amd() -> None:
    arm = "option(FAST_CUDA x OFF)\nif(FAST_CUDA)\n  target_sources(a PRIVATE a.cu)\nendif()\n"
    assert build_findings("CMakeLists.txt", arm) == [("CU124", "note")]
    assert found_in("CMakeLists.txt", arm)[0].uses == (1, 2)
    beside = f"{arm}if(FAST_HIP)\n  target_sources(a PRIVATE a.hip)\nendif()\n"
    assert build_findings("CMakeLists.txt", beside) == []
    assert build_findings("CMakeLists.txt", "option(FAST x OFF)\nif(FAST)\nendif()\n") == []
    asked = "execute_process(COMMAND ${PYTHON} -c 'print(torch.version.cuda)' OUTPUT_VARIABLE V)\n"
    assert build_findings("FindTorch.cmake", asked) == [("CU124", "note")]


def test_a_search_in_another_command_hides_nothing() -> None:
    assert build_findings("run.sh", "docker run --gpus all a | grep NVLink\n") == [
        ("CT402", "error")
    ]
