"""What is compiled, with which commands, and what the compilers' messages mean. The outputs in
tests/compile/said are the compilers' own, of the sources that their names say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import a_check

from warpfront.errors import InputError
from warpfront.matrix.vendors import VENDORS
from warpfront.verify.results import Outcome
from warpfront_port.compile.diagnostics import (
    MOST,
    Diagnostic,
    Place,
    place_of_function,
    place_of_line,
    read_diagnostics,
)
from warpfront_port.compile.job_document import CompileRequest, job_document
from warpfront_port.compile.outcomes import Message, judged
from warpfront_port.compile.units import SourceUnit, include_folders, units_of

RECORDED = Path(__file__).parents[2] / "compile" / "said"
KERNEL = "__global__ void k() {}\n"


def output(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8")


def messages(name: str, *kept: str) -> list[str]:
    """What a recorded output comes to, as people read it."""
    unit = name.rpartition("/")[2].replace("-", ".")
    folder = name.partition("/")[0]
    files = {one: (RECORDED / folder / one).read_text(encoding="utf-8") for one in kept}
    details = {"output": output(name), "kept": list(kept)}
    check = a_check(Outcome.FAILED, session="compile", name=unit, details=details)
    return [str(one) for one in judged(check, files=files, texts={unit: ""})[1]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "hipcc-5.7/axpy_bad-hip",
            ["axpy_bad.hip:5:23: error: use of undeclared identifier 'aa'"],
        ),
        (
            "hipcc-6.4/axpy_bad-hip",
            ["axpy_bad.hip:5:23: error: use of undeclared identifier 'aa'"],
        ),
        (
            "hipcc-5.7/tmpl-hip",
            ["inc.cuh:1:57: error: member reference base type 'float' is not a structure or union"],
        ),
        (
            "hipcc-5.7/lds-hip",
            ["lds.hip:2:17: error: local memory (160000) exceeds limit (65536) in 'lds(float*)'"],
        ),
        ("hipcc-6.4/ptx-hip", ["ptx.hip:2:59: error: invalid instruction"]),
        ("hipcc-5.7/und-hip", ["und.hip: error: undefined hidden symbol: missing(float)"]),
        ("hipcc-6.4/und-hip", ["und.hip: error: undefined hidden symbol: missing(float)"]),
        (
            "hipcc-5.7/warn-hip",
            [
                'warn.hip:2:2: warning: "look here" [-W#warnings]',
                "warn.hip:4:16: warning: non-void function does not return a value [-Wreturn-type]",
            ],
        ),
        (
            "nvcc-13.0/bad-cu",
            [
                'bad.cu:5: error: identifier "aa" is undefined',
                (
                    'bad.cu:8: error: a value of type "const char *" cannot be used to '
                    'initialize an entity of type "int"'
                ),
                'bad.cu:8: error: identifier "missing_function" is undefined',
            ],
        ),
        ("nvcc-13.0/hdr-cu", ["hdr.cu:1:10: error: none.h: No such file or directory"]),
        (
            "nvcc-13.0/tmpl-cu",
            ['incc.cuh:1: error: expression must have class type but it has type "float"'],
        ),
        ("nvcc-13.0/link-cu", ["link.cu: error: Unresolved extern function '_Z7missingf'"]),
        (
            "nvcc-13.0/warn-cu",
            [
                'warn.cu:2: warning: missing return statement at end of non-void function "f"',
                'warn.cu:1: warning: variable "unused" was declared but never referenced',
                (
                    "warn.cu:2:16: warning: no return statement in function returning non-void"
                    " [-Wreturn-type]"
                ),
            ],
        ),
    ],
)
def test_what_a_compiler_said_is_read_to_the_line(name: str, expected: list[str]) -> None:
    assert messages(name) == expected


def test_a_line_of_ptx_is_told_as_the_line_of_the_source() -> None:
    assert messages("nvcc-13.0/badptx-cu", "badptx.ptx") == [
        "badptx.cu:1:30: error: Arguments mismatch for instruction 'mov'",
        "badptx.cu:1:30: error: Unknown symbol '%laneidx'",
    ]


def test_a_function_that_ptxas_names_is_found_in_the_source() -> None:
    (said,) = messages("nvcc-13.0/smem-cu", "smem.ptx")
    assert said.startswith("smem.cu:1:41: error: Entry function '_Z3bigPf' uses too much") or (
        said.startswith("smem.cu:1") and "too much shared data" in said
    )


def test_without_the_ptx_the_unit_as_a_whole_is_named() -> None:
    (said,) = messages("nvcc-13.0/smem-cu")
    assert said.startswith("smem.cu: error: Entry function")


@pytest.mark.parametrize(
    ("name", "line"), [("hipcc-5.7/deep-hip", "deep.hip:4:34"), ("nvcc-13.0/deep-cu", "deep.cu:4")]
)
def test_an_error_in_a_system_header_is_told_where_the_tree_asked_for_it(
    name: str, line: str
) -> None:
    first = messages(name)[0]
    assert first.startswith(f"{line}: error: ")
    assert "predefined_ops.h:45)" in first


def test_ptx_without_positions_names_no_place() -> None:
    assert place_of_line(".visible .entry k()\n{\n}\n", 2) is None
    assert place_of_function(".visible .entry k()\n{\n}\n", "Entry function 'k' is odd") is None
    assert place_of_function("", "something else") is None
    ptx = '.file 1 "/source/a.cu"\n.loc 1 7 3\nmov;\n.loc 2 9 9\n'
    assert place_of_line(ptx, 3) == Place(path="/source/a.cu", line=7, column=3)
    # `.file 2` is not there: a position in a file without a name is none.
    assert place_of_line(ptx, 4) is None


def test_both_passes_of_hip_say_a_thing_once() -> None:
    twice = "/source/a.hip:1:2: error: wrong\n" * 2
    assert len(read_diagnostics(twice)) == 1


def test_what_only_repeats_that_something_was_wrong_is_left_out_if_something_else_was_said() -> (
    None
):
    echo = "clang++-17: error: amdgcn-link command failed with exit code 1"
    (one,) = read_diagnostics(f"lld: error: undefined symbol: f\n{echo}\n")
    assert one == Diagnostic(severity="error", message="undefined symbol: f", place=None)
    (alone,) = read_diagnostics(echo)
    assert alone.message.startswith("amdgcn-link command failed")


def test_a_flood_of_messages_is_cut_and_long_lines_take_no_time() -> None:
    flood = "".join(f"/source/a.cu({line}): error: wrong {line}\n" for line in range(1, 5000))
    assert len(read_diagnostics(flood)) == MOST
    assert read_diagnostics("(" * 1_000_000) == ()
    assert read_diagnostics("a:1" * 500_000 + "\n" + "x" * 1_000_000) == ()


def test_kernels_are_found_and_headers_that_somebody_includes_are_not() -> None:
    texts = {
        "a.cu": '#include "used.cuh"\n' + KERNEL,
        "b.hip": KERNEL,
        "c.cpp": "int x;\n",
        "alone.cuh": KERNEL,
        "used.cuh": KERNEL,
        "setup.py": "",
    }
    assert [unit.path for unit in units_of(texts)] == ["a.cu", "alone.cuh", "b.hip"]


def test_declared_sources_are_what_is_compiled() -> None:
    texts = {"a.cu": KERNEL, "csrc/b.cpp": "", "setup.py": "", "csrc/h.hpp": ""}
    units = units_of(texts, ("csrc/*", "setup.py"))
    assert [(unit.path, unit.kind) for unit in units] == [
        ("csrc/b.cpp", "plain"),
        ("setup.py", "extension"),
    ]
    assert units[1].torch
    with pytest.raises(InputError, match=r"no source of the tree matches 'src/\*'"):
        units_of(texts, ("src/*",))


def test_torch_is_needed_through_headers_of_the_tree_too() -> None:
    texts = {
        "csrc/a.cu": '#include "deep.h"\n',
        "csrc/deep.h": "#include <inner/last.h>\n",
        "include/inner/last.h": "#  include <torch/extension.h>\n",
        "csrc/b.cu": '#include "other/last.h"\n',
        "csrc/circle.h": '#include "circle.h"\n',
    }
    near = {unit.path: unit.torch for unit in units_of(texts)}
    assert near == {"csrc/a.cu": True, "csrc/b.cu": False}


def test_folders_that_builds_give_to_i_are_found() -> None:
    paths = ("include/a/b.h", "lib/csrc/x.cu", "docs/src/deep/er/z.md", "y.cu")
    assert include_folders(paths) == (".", "include", "docs/src", "lib/csrc")


def unit(path: str, *, torch: bool = False) -> SourceUnit:
    kernel = path.endswith((".cu", ".hip"))
    return SourceUnit(path=path, kind="kernel" if kernel else "plain", torch=torch)


def a_job(
    target: str,
    vendor: str,
    *units: SourceUnit,
    hipified: tuple[str, ...] = (),
    flags: tuple[str, ...] = ("-DFAST",),
) -> Any:
    call = VENDORS[vendor].compiler_call(target)
    assert call is not None
    folders = (".", "include")
    request = CompileRequest(repo=Path(), target=target, include=folders, flags=flags)
    return job_document(request, call, units, [one.path for one in units], hipified)


def test_a_unit_s_command_is_the_vendor_s_for_the_target() -> None:
    (one,) = a_job("gfx942", "amd", unit("a.hip"))["units"]
    argv = one["argv"]
    assert argv[:2] == ["hipcc", "--offload-arch=gfx942"]
    assert "-I/source/include" in argv
    assert argv[-7:] == ["-std=c++17", "-x", "hip", "-c", "{source}", "-o", "{output}"]
    (one,) = a_job("sm_90", "nvidia", unit("a.cpp"))["units"]
    argv = one["argv"]
    assert argv[argv.index("--keep-dir") + 1] == "{work}"
    assert argv[argv.index("-x") + 1] == "c++"


def test_the_standard_is_torch_s_where_torch_is_needed_and_the_user_s_where_one_is_named() -> None:
    (one,) = a_job("sm_90", "nvidia", unit("a.cu", torch=True))["units"]
    assert "{torch}" in one["argv"]
    assert "-std=c++17" not in one["argv"]
    (one,) = a_job("sm_90", "nvidia", unit("a.cu"), flags=("-std=c++20",))["units"]
    assert [word for word in one["argv"] if word.startswith("-std")] == ["-std=c++20"]


def test_a_compiler_without_kernels_gets_no_command_for_one() -> None:
    job = a_job("x86_64", "cpu", unit("a.cu"), unit("b.cpp"))
    commands = [one["argv"] for one in job["units"]]
    assert commands[0] == []
    assert commands[1][0] == "g++"


def test_after_hipify_sources_and_headers_are_those_of_the_copy() -> None:
    job = a_job("gfx942", "amd", unit("a.cu"), hipified=("a.cu",))
    (one,) = job["units"]
    assert "-I/tmp/warpfront/tree" in one["argv"]
    assert not any("/source" in word for word in one["argv"] if word != "{source}")


def test_lines_of_what_hipify_made_are_told_as_lines_of_the_source() -> None:
    said = "/tmp/warpfront/tree/a.cu:3:1: error: wrong\n/tmp/warpfront/tree/a.cu:1:1: error: top\n"
    check = a_check(Outcome.FAILED, session="compile", name="a.cu", details={"output": said})
    files = {"hipified/a.cu": '#include "hip/hip_runtime.h"\nint a;\nint b;\n'}
    better, found = judged(check, files=files, texts={"a.cu": "int a;\nint b;\n"})
    assert [(one.line, one.text) for one in found] == [(2, "wrong"), (1, "top")]
    assert better.reason == "a.cu:2:1: error: wrong (and 1 more)"


def test_what_torch_s_hipify_renamed_is_told_by_its_source_s_name() -> None:
    said = "/tmp/warpfront/tree/a.hip:3:1: error: wrong\n"
    check = a_check(Outcome.FAILED, session="compile", name="a.cu", details={"output": said})
    files = {"hipified/a.cu": "// made by hipify\nint a;\nint b;\n"}
    texts = {"a.cu": "int a;\nint b;\n"}
    (found,) = judged(check, files=files, texts=texts, renamed={"a.hip": "a.cu"})[1]
    assert (found.path, found.line) == ("a.cu", 2)


def test_a_setup_py_s_messages_are_told_by_the_path_in_the_tree() -> None:
    said = (
        "/tmp/warpfront/unit-3/tree/csrc/a.cpp:4:2: error: wrong\n"
        "csrc/b.cpp:5:1: error: near\n"
        "/usr/include/x.h:1:1: error: far\n"
    )
    check = a_check(
        Outcome.FAILED, session="compile", name="lib/setup.py", details={"output": said}
    )
    found = judged(check, files={}, texts={})[1]
    assert [(one.path, one.line) for one in found] == [
        ("csrc/a.cpp", 4),
        ("lib/csrc/b.cpp", 5),
        ("lib/setup.py", 0),
    ]
    assert found[2].text == "far (in /usr/include/x.h:1)"


def test_warnings_do_not_fail_a_check_and_are_counted() -> None:
    said = "/source/a.hip:2:2: warning: look\n"
    check = a_check(session="compile", name="a.hip", details={"output": said})
    better, found = judged(check, files={}, texts={})
    assert better.outcome is Outcome.PASSED
    assert better.reason == "1 warning"
    assert found == (
        Message(path="a.hip", line=2, column=2, severity="warning", text="look", unit="a.hip"),
    )


def test_a_failure_without_a_readable_message_keeps_what_was_printed() -> None:
    check = a_check(
        Outcome.FAILED,
        session="compile",
        name="a.cu",
        reason="Killed",
        details={"output": "Killed"},
    )
    better, found = judged(check, files={}, texts={})
    assert (better.reason, better.details["output"], found) == ("Killed", "Killed", ())
