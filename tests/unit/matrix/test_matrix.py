"""matrix.yaml: what it makes, and every way in which it is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from warpfront.errors import MatrixError, NothingSelectedError
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.compat import Compat, packaged
from warpfront.matrix.language import MatrixText, SourceTree
from warpfront.matrix.reading import Matrix, read_matrix, removed, slim_recipes
from warpfront.matrix.selection import select
from warpfront.system.strict_values import extended
from warpfront.wheels.store.unpacked import stays

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "0" * 64
HEAD = f"""\
schema: 1
project:
  name: mine
  source: https://github.com/me/mine
  licenses: Apache-2.0
  repository: ghcr.io/me
bases:
  deb:
    reference: docker.io/library/python:3.11-slim-bookworm
    digest: {DIGEST}
    python: "3.11"
    interpreter: python3.11
    glibc: "2.36"
images:
  torch: {{template: torch, title: Runtime, packages: [numpy]}}
  devel: {{parent: torch, template: devel, title: Devel, packages: [ninja], compiler: true}}
  app: {{parent: torch, template: app, title: App, requirements: images/app/requirements.txt}}
defaults: {{python: "3.11", base: deb, images: [torch]}}
"""
CPU = "  - {vendor: cpu, targets: x86_64, torch: '2.13.0'}\n"
FIRST_ROW = HEAD.count("\n") + 2


def read(text: str) -> Matrix:
    return read_matrix(text, path="matrix.yaml", compat=packaged())


def made(rows: str) -> Matrix:
    return read(f"{HEAD}rows:\n{rows}")


def refused(text: str) -> list[str]:
    """Every problem as `line: message | hint`."""
    with pytest.raises(MatrixError) as caught:
        read(text)
    assert all(problem.path == "matrix.yaml" for problem in caught.value.problems)
    return [f"{p.line}: {p.message} | {p.hint}" for p in caught.value.problems]


def refused_rows(rows: str) -> list[str]:
    return refused(f"{HEAD}rows:\n{rows}")


def ids(matrix: Matrix) -> list[str]:
    return [cell.id for cell in matrix.cells]


# --- what it makes ---


def test_a_row_makes_a_cell_with_everything_that_later_steps_need() -> None:
    (cell,) = made(CPU).cells
    assert cell.id == "cpu-x86_64-py311-torch2130-torch"
    assert cell.tag == "2.13.0-cpu-py3.11"
    assert cell.line == FIRST_ROW
    assert cell.index is not None
    assert cell.index.url == "https://download.pytorch.org/whl/cpu"
    assert [str(pin) for pin in cell.stack] == ["torch==2.13.0+cpu"]
    assert (cell.toolkit, cell.parent, cell.compiler) == (None, None, None)
    assert cell.requirements == ("numpy",)
    assert cell.base.pinned.endswith(f"bookworm@{DIGEST}")


def test_a_machine_is_in_id_and_tag_where_it_is_not_the_default_and_once() -> None:
    row = "vendor: nvidia, toolkit: '13.0', index: cu130, targets: [sm_90], torch: '2.14.1'"
    rows = f"  - {{{row}, product: {{machine: [x86_64, aarch64]}}}}\n{CPU}"
    arm = "  - {vendor: cpu, machine: aarch64, targets: aarch64, torch: '2.13.0'}\n"
    cells = made(rows + arm).cells
    assert [(cell.machine, cell.id, cell.tag) for cell in cells] == [
        ("x86_64", "nvidia-cuda130-sm90-py311-torch2141-torch", "2.14.1-cuda13.0-py3.11"),
        (
            "aarch64",
            "nvidia-cuda130-sm90-aarch64-py311-torch2141-torch",
            "2.14.1-cuda13.0-aarch64-py3.11",
        ),
        ("x86_64", "cpu-x86_64-py311-torch2130-torch", "2.13.0-cpu-py3.11"),
        ("aarch64", "cpu-aarch64-py311-torch2130-torch", "2.13.0-cpu-aarch64-py3.11"),
    ]


def test_cells_of_one_machine_can_be_excluded() -> None:
    row = "  - {vendor: cpu, torch: '2.13.0', zip: {targets: [x86_64, aarch64], machine: [x86_64, "
    rows = f"rows:\n{row}aarch64]}}}}\nexclude:\n  - {{machine: x86_64}}\n"
    assert ids(read(HEAD + rows)) == ["cpu-aarch64-py311-torch2130-torch"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("targets: aarch64", "target `aarch64` is a machine, and the row is for x86_64"),
        ("targets: x86_64, machine: aarch64", "target `x86_64` is a machine, and the row is for"),
        ("targets: x86_64, machine: arm64", "write one of: x86_64, aarch64"),
        ("targets: x86_64, machine: 64", "write one of: x86_64, aarch64"),
        ("targets: arm64, machine: aarch64", "`arm64` is no target of cpu"),
    ],
)
def test_a_machine_that_is_not_known_or_not_the_target_is_refused(row: str, said: str) -> None:
    (problem,) = refused_rows(f"  - {{vendor: cpu, torch: '2.13.0', {row}}}\n")
    assert said in problem


def test_a_strict_matrix_refuses_a_machine_that_the_compat_table_does_not_know() -> None:
    arm = "  - {vendor: cpu, machine: aarch64, targets: aarch64, torch: '2.13.0'}\n"
    (problem,) = refused(f"{HEAD}strict: true\nrows:\n{arm}")
    assert "the compat table is about wheels for x86_64" in problem


def test_an_index_can_have_another_address_and_only_that_one_has() -> None:
    rows = CPU + (
        "  - {vendor: amd, toolkit: '6.4', targets: [gfx942], torch: '2.9.1'}\n"
        "  - {vendor: amd, toolkit: '6.3', targets: [gfx942], torch: '2.9.1'}\n"
    )
    text = (
        "indexes: {rocm6.4: 'http://127.0.0.1:8080/whl/rocm6.4', cpu: 'https://a.example/cpu/'}\n"
    )
    cells = read(f"{HEAD}{text}rows:\n{rows}").cells
    indexes = {cell.index.name: cell.index.url for cell in cells if cell.index}
    assert indexes == {
        "cpu": "https://a.example/cpu/",
        "rocm6.4": "http://127.0.0.1:8080/whl/rocm6.4",
        "rocm6.3": "https://download.pytorch.org/whl/rocm6.3",
    }


@pytest.mark.parametrize(
    "url",
    [
        "https://me:secret@a.example/cpu",
        "http://a.example/cpu",
        "http://127.0.0.1.a.example/cpu",
        "file:///wheels",
        "https://a.example/cpu?x=1",
        "https://a.example/cpu#egg",
        "https://a.example/$HOME",
        "https://a.example/cpu ",
    ],
)
def test_the_address_of_an_index_is_plain_and_safe(url: str) -> None:
    (problem,) = refused(f"{HEAD}indexes: {{cpu: {json.dumps(url)}}}\nrows:\n{CPU}")
    assert "is not an https:// address without user and password" in problem


def test_an_address_for_an_index_nobody_knows_is_refused_with_the_nearest() -> None:
    (problem,) = refused(f"{HEAD}indexes: {{rocm64: 'https://a.example/x'}}\nrows:\n{CPU}")
    assert problem.startswith(f"{FIRST_ROW - 1}: index `rocm64` is not in the compat table")
    assert "rocm6.4" in problem


def test_images_are_chained_and_parents_come_first() -> None:
    row = (
        "  - {vendor: nvidia, toolkit: '13.0', targets: [sm_90], torch: '2.14.1',"
        " images: [app, devel, torch]}\n"
    )
    cells = {cell.image: cell for cell in made(row).cells}
    assert list(cells) == ["torch", "devel", "app"]
    assert cells["devel"].parent == cells["app"].parent == cells["torch"].id
    assert cells["app"].requirements_file == "images/app/requirements.txt"
    assert cells["devel"].compiler is not None
    assert "cuda-toolkit[nvcc]==13.0.*" in cells["devel"].compiler.requirements
    assert cells["torch"].compiler is None


def test_product_crosses_and_zip_walks_together() -> None:
    row = """\
  - vendor: nvidia
    product:
      targets: [sm_80, [sm_86, sm_90]]
    zip:
      toolkit: ["12.6", "13.0"]
      torch: ["2.13.0", "2.14.1"]
"""
    rows = [
        "nvidia-cuda126-sm80-py311-torch2130-torch",
        "nvidia-cuda130-sm80-py311-torch2141-torch",
        "nvidia-cuda126-sm86_sm90-py311-torch2130-torch",
        "nvidia-cuda130-sm86_sm90-py311-torch2141-torch",
    ]
    assert refused_rows(row)[0].startswith(
        f"{FIRST_ROW}: a second cell of image `torch` with the tag `2.13.0-cuda12.6-py3.11`"
    )
    matrix = made(f"{row}    tag_targets: true\n")
    assert ids(matrix) == rows
    assert matrix.cells[2].tag == "2.13.0-cuda12.6-sm86_sm90-py3.11"


def test_a_row_overrides_defaults_and_environments_merge() -> None:
    text = HEAD.replace("images: [torch]}", "images: [torch], environment: {A: x, B: x}}")
    row = "  - {vendor: cpu, targets: x86_64, torch: '2.13.0', environment: {B: y}}\n"
    (cell,) = read(f"{text}rows:\n{row}").cells
    assert dict(cell.environment) == {"A": "x", "B": "y"}


def test_exclude_then_patches_then_rows() -> None:
    text = f"""{HEAD}
rows:
  - vendor: nvidia
    targets: [sm_80, sm_90]
    product: {{toolkit: ["12.6", "13.0"], torch: ["2.12.1", "2.13.0"]}}
exclude:
  - {{toolkit: "12.6", torch: "2.12.1"}}
  - {{vendor: nvidia, targets: sm_90, toolkit: "13.0", torch: "2.12.1"}}
include:
  - where: {{toolkit: "13.0"}}
    set: {{images: [torch, devel], environment: {{NCCL_DEBUG: WARN}}}}
  - row: {{vendor: nvidia, toolkit: "12.6", targets: [sm_90], torch: "2.12.1"}}
"""
    matrix = read(text)
    assert ids(matrix) == [
        "nvidia-cuda126-sm80_sm90-py311-torch2130-torch",
        "nvidia-cuda130-sm80_sm90-py311-torch2130-torch",
        "nvidia-cuda130-sm80_sm90-py311-torch2130-devel",
        "nvidia-cuda126-sm90-py311-torch2121-torch",
    ]
    assert dict(matrix.cells[1].environment) == {"NCCL_DEBUG": "WARN"}
    assert dict(matrix.cells[0].environment) == {}


def test_an_image_alone_can_be_excluded() -> None:
    row = "  - {vendor: cpu, targets: x86_64, torch: '2.13.0', images: [torch, app]}\n"
    text = f"{HEAD}rows:\n{row}exclude:\n  - {{vendor: cpu, image: app}}\n"
    assert ids(read(text)) == ["cpu-x86_64-py311-torch2130-torch"]


def test_what_the_table_does_not_know_is_a_warning_or_by_strict_an_error() -> None:
    row = "  - {vendor: cpu, targets: x86_64, torch: '2.13.9'}\n"
    (warning,) = made(row).warnings
    assert str(warning) == (
        f"matrix.yaml:{FIRST_ROW}: torch 2.13.9 is not in the compat table (2.13.0 is)"
    )
    strict = refused(f"{HEAD}strict: true\nrows:\n{row}")
    assert strict[0].startswith(f"{FIRST_ROW + 1}: torch 2.13.9 is not in the compat table")


def test_a_base_that_no_registry_has_needs_its_bootstrap() -> None:
    text = HEAD.replace(DIGEST, "bootstrap")
    assert refused(f"{text}rows:\n{CPU}")[0].startswith("10: base `deb` has no `bootstrap:`")
    recipe = "\n    bootstrap: {suite: bookworm, include: [python3]}"
    matrix = read(f"{HEAD.replace(DIGEST, f'bootstrap{recipe}')}rows:\n{CPU}")
    base = matrix.cells[0].base
    assert (base.digest, base.unpinned, matrix.warnings) == ("", "", ())


def test_an_unpinned_base_is_a_warning_that_says_why() -> None:
    text = HEAD.replace(DIGEST, "unpinned\n    reason: the registry was down")
    matrix = read(f"{text}rows:\n{CPU}")
    assert str(matrix.warnings[0]) == (
        "matrix.yaml:10: base `deb` is unpinned and cannot be built on: the registry was down"
    )
    base = matrix.cells[0].base
    assert (base.digest, base.unpinned) == ("", "the registry was down")
    bare = refused(f"{HEAD.replace(DIGEST, 'unpinned')}rows:\n{CPU}")
    assert bare[0].startswith("10: base `deb` is unpinned without a `reason`")


def test_torch_that_comes_with_the_base_is_left_alone() -> None:
    text = HEAD.replace("3.11", "3.12")
    row = "  - {vendor: gaudi, toolkit: '1.24.1', targets: [gaudi2, gaudi3], torch: '2.11.0'}\n"
    (cell,) = read(f"{text}rows:\n{row}").cells
    assert (cell.stack, cell.index, cell.requirements) == ((), None, ())


# --- refusals: axes and names ---


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "{vendor: nvidai, targets: x86_64, torch: '2.13.0'}",
            "`vendor` cannot be `nvidai` | did you mean `nvidia`?",
        ),
        (
            "{vendor: nvidia, toolkit: '13.0', targets: [sm_9O], torch: '2.14.1'}",
            "'sm_9O' is not a target (sm_90, gfx942)",
        ),
        (
            "{vendor: amd, toolkit: '6.4', targets: [MI300X], torch: '2.9.1'}",
            "'MI300X' is not a target (sm_90, gfx942) in rows.targets | write `gfx942`",
        ),
        (
            "{vendor: nvidia, toolkit: '13.0', targets: [h100], torch: '2.14.1'}",
            "'h100' is not a target (sm_90, gfx942) in rows.targets | write `sm_90`",
        ),
        (
            "{vendor: nvidia, toolkit: '13.0', targets: [gfx942], torch: '2.14.1'}",
            "`gfx942` is no target of nvidia",
        ),
        (
            "{vendor: amd, toolkit: '6.4', targets: [gfx94], torch: '2.9.1'}",
            "`gfx94` is no target of amd | did you mean `gfx942`?",
        ),
        (
            "{vendor: nvidia, targets: [sm_90], torch: '2.14.1'}",
            "nvidia needs a `toolkit` (the cuda version)",
        ),
        (
            "{vendor: cpu, toolkit: '13.0', targets: x86_64, torch: '2.13.0'}",
            "cpu has no toolkit | remove `toolkit`",
        ),
        (
            "{vendor: cpu, targets: x86_64, torch: '2.13.0', base: dep}",
            "base `dep` is not in bases: | did you mean `deb`?",
        ),
        (
            "{vendor: cpu, targets: x86_64, torch: '2.13.0', python: '3.12'}",
            (
                "base `deb` has python 3.11, not 3.12 | no base has it: add one of "
                "docker.io/library/python:3.12-slim-bookworm with its digest, "
            ),
        ),
        (
            "{vendor: cpu, targets: x86_64, torch: '2.13.0', images: [troch]}",
            "image `troch` is not in images: | did you mean `torch`?",
        ),
        (
            "{vendor: cpu, targets: x86_64, torch: '2.13.0', images: [app]}",
            "image `app` is built on `torch`, which this row does not make",
        ),
        (
            (
                "{vendor: nvidia, toolkit: '12.8', targets: [sm_90], torch: '2.11.0',"
                " images: [torch, devel]}"
            ),
            "image `devel`: NVIDIA's wheels for cuda12.8 hold ptxas and no nvcc",
        ),
        (
            (
                "{vendor: amd, toolkit: '6.4', targets: [gfx942], torch: '2.9.1',"
                " images: [torch, devel]}"
            ),
            "and no wheel holds the compiler of rocm6.4 | leave devel out of this row's images:",
        ),
        (
            "{vendor: cpu, targets: x86_64, torch: '2.13.0', index: cpo}",
            "index `cpo` is not in the compat table | did you mean `cpu`?",
        ),
        (
            "{vendor: nvidia, toolkit: '13.0', targets: [sm_90, sm_90], torch: '2.14.1'}",
            "a target is listed twice: sm_90, sm_90",
        ),
        ("{vendor: cpu, targets: x86_64}", "the row has no `torch`"),
        (
            "{vendor: cpu, targets: [], torch: '2.13.0'}",
            "`targets` is empty | give at least one value",
        ),
        ("{vendor: cpu, targets: x86_64, torch: 2.13}", "`2.13` is a float to YAML"),
        ("{vendor: cpu, targets: x86_64, torch: '2.13'}", "'2.13' is not a full torch version"),
        ("{vendor: cpu, targets: x86_64, torch: '2.13.0', python: 3.10}", "`3.10` is a float"),
        ("{vendor: cpu, targets: x86_64, torch: '2.13.0', toolkit: 12}", "`12` is a number"),
        ("{vendor: cpu, targets: x86_64, torch: }", "the value is empty"),
        (
            "{vendor: cpu, targets: x86_64, troch: '2.13.0'}",
            "unknown key `troch` | did you mean `torch`?",
        ),
        ("{vendor: cpu, targets: x86_64, torch: '2.13.0', tag_targets: yes}", "`yes` is a bool"),
        ("{vendor: cpu, targets: x86_64, torch: '2.13.0', companions: [torchtext]}", "torchaudio"),
    ],
)
def test_a_mistaken_row_is_refused_on_its_line(row: str, message: str) -> None:
    problems = refused_rows(f"{CPU}  - {row}\n")
    assert any(message in problem for problem in problems), problems
    assert {problem.partition(":")[0] for problem in problems} == {str(FIRST_ROW + 1)}


def test_a_combination_that_the_table_contradicts_names_what_would_fit() -> None:
    (problem,) = refused_rows(
        "  - {vendor: nvidia, toolkit: '13.0', targets: [sm_90], torch: '2.8.0'}\n"
    )
    assert problem.startswith(f"{FIRST_ROW}: torch 2.8.0 has no wheels for cuda 13.0 | what fits: ")
    assert "torch 2.9.1" in problem
    assert "index cu126, cu128, cu129 for torch 2.8.0" in problem


def test_two_cells_with_one_id_are_refused() -> None:
    (problem,) = refused_rows(CPU + CPU)
    assert problem.startswith(
        f"{FIRST_ROW + 1}: a second cell with the id `cpu-x86_64-py311-torch2130-torch` "
        f"(the first is of line {FIRST_ROW})"
    )


def test_two_cells_with_one_tag_are_refused_and_the_way_out_named() -> None:
    row = (
        "  - {vendor: nvidia, toolkit: '13.0', torch: '2.14.1',"
        " product: {targets: [sm_80, sm_90]}}\n"
    )
    (problem,) = refused_rows(row)
    assert "a second cell of image `torch` with the tag `2.14.1-cuda13.0-py3.11`" in problem
    assert "tag_targets: true" in problem


def test_a_name_too_long_for_a_file_or_tag_is_refused() -> None:
    targets = ", ".join(f"sm_{number}" for number in range(100, 140))
    row = f"  - {{vendor: nvidia, toolkit: '13.0', torch: '2.99.0', targets: [{targets}]}}\n"
    assert any("is too long for a name" in problem for problem in refused_rows(row))


def test_an_exclude_or_include_that_matches_nothing_is_refused() -> None:
    text = f"""{HEAD}rows:
{CPU}exclude:
  - {{vendor: cpu, torch: "2.9.9"}}
include:
  - where: {{vendor: amd}}
    set: {{python: "3.11"}}
  - where: {{vendor: cpu}}
  - where: {{image: torch}}
    set: {{python: "3.11"}}
"""
    problems = refused(text)
    line = FIRST_ROW + 2
    assert problems == [
        (
            f"{line}: this exclude matches no cell (vendor: cpu, torch: 2.9.9) | "
            "no cell has torch 2.9.9; there are 2.13.0"
        ),
        (
            f"{line + 2}: this include matches no cell (vendor: amd) | "
            "no cell has vendor amd; there are cpu"
        ),
        (
            f"{line + 4}: an include is either `row:`, or `where:` with `set:` | "
            "write `row:`, or both `where:` and `set:`"
        ),
        (
            f"{line + 5}: `image` is not an axis: a patch is for all images of a row | "
            "remove `image:` from `where:`"
        ),
    ]


def test_a_matrix_that_excludes_everything_is_refused() -> None:
    assert "the matrix has no cells" in refused(f"{HEAD}rows:\n{CPU}exclude:\n  - {{}}\n")[0]


def test_an_axis_given_twice_and_a_lame_zip_are_refused() -> None:
    row = """\
  - vendor: nvidia
    targets: sm_90
    torch: "2.14.1"
    product: {torch: ["2.14.1"]}
    zip: {toolkit: ["12.6", "13.0"], index: [cu126]}
"""
    assert refused_rows(row) == [
        f"{FIRST_ROW}: `torch` is given twice: in the row and in product: | keep one of them",
        (
            f"{FIRST_ROW + 4}: lists of different length: toolkit has 2, index has 1 | "
            "the lists of zip: are walked together"
        ),
    ]


def test_a_product_that_explodes_is_refused_before_it_is_walked() -> None:
    versions = ", ".join(f"'2.0.{number}'" for number in range(200))
    toolkits = ", ".join(f"'13.{number}'" for number in range(200))
    row = (
        f"  - {{vendor: nvidia, targets: sm_90,"
        f" product: {{torch: [{versions}], toolkit: [{toolkits}]}}}}\n"
    )
    assert refused_rows(row)[0].startswith(f"{FIRST_ROW}: 40000 combinations are more than")


def test_whoever_writes_on_is_told_what_it_is_called() -> None:
    older = HEAD.replace("devel: {parent: torch", "devel: {on: torch")
    assert refused(f"{older}rows:\n{CPU}") == [
        "16: unknown key `on` | it is called `parent` now: `warpfront migrate` writes it"
    ]


def test_images_that_are_built_on_nothing_or_themselves_are_refused() -> None:
    text = HEAD.replace("devel: {parent: torch", "devel: {parent: app").replace(
        "app: {parent: torch", "app: {parent: devel"
    )
    assert [p for p in refused(f"{text}rows:\n{CPU}") if "built on itself" in p] == [
        f"{line}: image `{name}` is built on itself through `parent:` | "
        "give it another `parent:`, or none"
        for line, name in ((16, "devel"), (17, "app"))
    ]
    missing = HEAD.replace("app: {parent: torch", "app: {parent: troch")
    assert refused(f"{missing}rows:\n{CPU}")[0].startswith(
        "17: image `troch` is not in images: | did you mean `torch`?"
    )


def slimmed(names: str, image: str = "torch", template: str = "torch") -> str:
    before = f"{image}: {{template: {template}" if image == "torch" else f"{image}: {{parent: torch"
    return f"{HEAD.replace(before, f'{before}, slim: [{names}]')}rows:\n{CPU}"


def test_what_an_image_is_without_is_known_and_used_by_none_that_stands_on_it() -> None:
    (cell,) = read(slimmed("tests, protoc")).cells
    assert {"torch/test/*", "torch/bin/protoc*"} <= set(cell.slim)
    assert read(f"{HEAD}rows:\n{CPU}").cells[0].slim == ()
    (needed,) = refused(slimmed("tests, headers"))
    assert needed.startswith("15: headers is needed to compile in: devel | take it out of `slim:`")
    (unknown,) = refused(slimmed("testz"))
    assert unknown == "15: slim: `testz` is not known | did you mean `tests`?"
    (other,) = refused(slimmed("tests", image="app"))
    assert other.startswith("17: image `app` has its wheels from its parent | ")
    alone = slimmed("headers").replace(", compiler: true", "")
    assert "torch/include/*" in read(alone).cells[0].slim


def test_kernels_of_other_architectures_are_those_that_no_target_names() -> None:
    globs = removed(["other-gfx"], ["gfx90a", "gfx1100"])
    kept = stays(globs)
    folder = "torch/lib/rocblas/library"
    names = {
        "gfx90a": f"{folder}/TensileLibrary_Type_HH_fallback_gfx90a.hsaco",
        "gfx1100": f"{folder}/Kernels.so-000-gfx1100.hsaco",
        "gfx942": f"{folder}/TensileLibrary_lazy_gfx942.dat",
        "gfx908": f"{folder}/Kernels.so-000-gfx908-xnack+.hsaco",
    }
    assert [gfx for gfx, path in names.items() if kept(path)] == ["gfx90a", "gfx1100"]
    assert not kept("torch/lib/aotriton.images/amd-gfx942/flash.aks2")
    assert all(map(kept, ["torch/lib/rocblas/library/TensileManifest.txt", "torch/lib/libhip.so"]))
    assert all(recipe.why and recipe.removes for recipe in slim_recipes().values())
    assert not any(kept(path) for path in names.values() if "gfx942" in path)


def test_all_problems_of_the_file_come_at_once() -> None:
    text = HEAD.replace("licenses", "license").replace('glibc: "2.36"', "glibc: 2.36")
    assert len(refused(f"{text}rows:\n  - {{vendor: cpu, targets: x86_64, torch: 2.13}}\n")) == 4


# --- refusals: what is smuggled in a value ---

TEXT_FIELDS: dict[str, Callable[[str], str]] = {
    "project.name": lambda v: f"{HEAD.replace('name: mine', f'name: {v}')}rows:\n{CPU}",
    "project.source": lambda v: f"{HEAD.replace('https://github.com/me/mine', v)}rows:\n{CPU}",
    "project.licenses": lambda v: f"{HEAD.replace('Apache-2.0', v)}rows:\n{CPU}",
    "project.repository": lambda v: f"{HEAD.replace('ghcr.io/me', v)}rows:\n{CPU}",
    "base.name": lambda v: f"{HEAD.replace('  deb:', f'  ? {v}{chr(10)}  :')}rows:\n{CPU}",
    "base.reference": lambda v: (
        f"{HEAD.replace('docker.io/library/python:3.11-slim-bookworm', v)}rows:\n{CPU}"
    ),
    "base.digest": lambda v: f"{HEAD.replace(DIGEST, v)}rows:\n{CPU}",
    "base.interpreter": lambda v: f"{HEAD.replace('python3.11', v)}rows:\n{CPU}",
    "base.glibc": lambda v: f"""{HEAD.replace('"2.36"', v)}rows:\n{CPU}""",
    "image.template": lambda v: f"{HEAD.replace('template: torch', f'template: {v}')}rows:\n{CPU}",
    "image.title": lambda v: f"{HEAD.replace('Runtime', v)}rows:\n{CPU}",
    "image.packages": lambda v: f"{HEAD.replace('[numpy]', f'[{v}]')}rows:\n{CPU}",
    "image.requirements": lambda v: f"{HEAD.replace('images/app/requirements.txt', v)}rows:\n{CPU}",
    "row.vendor": lambda v: f"{HEAD}rows:\n{CPU.replace('cpu', v)}",
    "row.targets": lambda v: f"{HEAD}rows:\n{CPU.replace('x86_64', v)}",
    "row.torch": lambda v: f"""{HEAD}rows:\n{CPU.replace("'2.13.0'", v)}""",
    "row.index": lambda v: f"{HEAD}rows:\n{CPU.replace('}', f', index: {v}}}')}",
    "row.environment": lambda v: f"{HEAD}rows:\n{CPU.replace('}', f', environment: {{A: {v}}}}}')}",
    "row.environment name": lambda v: (
        f"{HEAD}rows:\n{CPU.replace('}', f', environment: {{? {v} : x}}}}')}"
    ),
}
SMUGGLED = {
    "newline": "a\nRUN evil",
    "trailing newline": "a\n",
    "carriage return": "a\rb",
    "quote": 'a" evil="b',
    "single quote": "a'b",
    "backslash": "a\\",
    "dollar": "a$PATH",
    "template": "{{ cell }}",
    "statement": "{% raw %}",
    "hash": "a #b",
    "backtick": "a`id`",
    "nul": "a\x00b",
    "escape": "a\x1b[31m",
    "line separator": "a\u2028b",
    "look-alike": "torch\u200b",
    "cyrillic": "t\u043erch",
    "fullwidth": "\uff54orch",
    "semicolon and pipe": "a | b && c",
    "too long": "a" * 5000,
}


def takes(text: str) -> bool:
    try:
        read(text)
    except MatrixError:
        return False
    return True


@pytest.mark.parametrize("kind", SMUGGLED)
def test_nothing_is_smuggled_through_a_value(kind: str) -> None:
    value = json.dumps(SMUGGLED[kind])
    assert [field for field, put in TEXT_FIELDS.items() if takes(put(value))] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("project.name", "../x"),
        ("project.name", "Mine"),
        ("project.name", "."),
        ("image.template", "../../etc"),
        ("image.template", "/etc"),
        ("image.template", "a/b"),
        ("image.requirements", "../secrets.txt"),
        ("image.requirements", "/etc/passwd"),
        ("image.requirements", "images/../../x"),
        ("image.requirements", ".git/config"),
        ("image.packages", "-r /etc/passwd"),
        ("image.packages", "--index-url=https://evil.example"),
        ("image.packages", "numpy @ https://evil.example/numpy.whl"),
        ("image.packages", "git+https://evil.example"),
        ("base.reference", "python:3.11"),
        ("base.reference", "library/python:3.11"),
        ("base.reference", "docker.io/library/python"),
        ("base.digest", "sha256:abc"),
        ("base.digest", "latest"),
        ("project.source", "http://github.com/me"),
        ("project.source", "https://user:pass@github.com/me"),
        ("project.repository", "ghcr.io/Me"),
        ("row.torch", "'2.13.0+cpu'"),
        ("row.torch", "'>=2.13.0'"),
    ],
)
def test_a_value_that_leads_elsewhere_is_refused(field: str, value: str) -> None:
    assert any("is not" in problem for problem in refused(TEXT_FIELDS[field](value)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(field=st.sampled_from(sorted(TEXT_FIELDS)), value=st.text(max_size=40))
def test_a_field_takes_any_text_or_refuses_it_and_what_it_takes_is_harmless(
    field: str, value: str
) -> None:
    try:
        matrix = read(TEXT_FIELDS[field](json.dumps(value)))
    except MatrixError:
        return
    shown = repr(matrix)
    assert not re.search(r"[\n\r$`\\#{}]", shown.replace("mappingproxy({", "").replace("})", ""))


@pytest.mark.parametrize(
    ("key", "value"),
    [("torch", "9" * 100_000), ("x" * 100_000, "1"), ("torch", "ab c " * 20_000)],
    ids=["a value", "a key", "words"],
)
def test_an_error_quotes_a_long_value_in_short(key: str, value: str) -> None:
    (problem, *_) = found = refused_rows(f'- {{"{key}": "{value}"}}\n')
    assert re.match(r"[0-9]+: .*\[\.\.\.\]", problem), "its place, and what was left out"
    assert sum(map(len, found)) < 10_000


# --- the real matrix, the schema, the docs ---


@pytest.fixture(scope="module")
def real() -> Matrix:
    return read((ROOT / "matrix.yaml").read_text(encoding="utf-8"))


def test_the_real_matrix_is_as_reviewed(real: Matrix, golden: Callable[[str, str], None]) -> None:
    lines = []
    for cell in real.cells:
        stack = " ".join(str(pin) for pin in cell.stack) or "(with the base)"
        lines += [cell.id, f"  tag {cell.tag}", f"  on {cell.parent or cell.base.name}"]
        lines += [f"  stack {stack}"]
    lines += [f"warning {warning.message}" for warning in real.warnings]
    golden("cells.txt", "\n".join(lines) + "\n")


def test_the_real_matrix_has_what_the_readme_promises(real: Matrix) -> None:
    assert {cell.vendor for cell in real.cells} == {"nvidia", "amd", "cpu", "gaudi", "intel"}
    toolkits = {str(cell.toolkit) for cell in real.cells}
    assert {"cuda12.6", "cuda12.8", "cuda13.0", "rocm6.3", "rocm6.4", "rocm7.2"} < toolkits
    targets = {target for cell in real.cells for target in cell.targets}
    assert {"sm_80", "sm_90", "sm_100", "sm_120", "gfx950", "gfx1100", "gaudi3"} < targets


def test_parents_stand_before_children_and_share_their_axes(real: Matrix) -> None:
    before: dict[str, Cell] = {}
    for cell in real.cells:
        if cell.parent is not None:
            parent = before[cell.parent]
            assert (parent.stack, parent.base, parent.tag) == (cell.stack, cell.base, cell.tag)
        before[cell.id] = cell


def test_files_that_the_real_matrix_names_exist(real: Matrix) -> None:
    for cell in real.cells:
        assert (ROOT / "images" / cell.template / "Dockerfile.j2").is_file()
        if cell.requirements_file:
            assert (ROOT / cell.requirements_file).is_file()


def json_schema() -> dict[str, object]:
    """The language as JSON Schema draft-07."""
    schema = TypeAdapter(MatrixText).json_schema(ref_template="#/definitions/{model}")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "matrix.yaml of warpfront",
        "definitions": schema.pop("$defs"),
        **schema,
    }


def test_the_editors_schema_is_current(request: pytest.FixtureRequest) -> None:
    path = ROOT / "src/warpfront/data/matrix.schema.json"
    text = json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run pytest --update-golden"


def test_the_schema_names_every_construct_and_closes_every_mapping() -> None:
    schema = json_schema()
    assert set(schema["properties"]) >= {"rows", "exclude", "include"}  # type: ignore[call-overload]
    definitions = schema["definitions"]
    assert isinstance(definitions, dict)
    assert all(part.get("additionalProperties") is False for part in definitions.values())


def documented(kind: str) -> list[str]:
    text = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    return re.findall(rf"<!-- example: {kind} -->\n```yaml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(
    ("place", "cells"), [(0, 2), (1, 4), (2, 3), (3, 2)], ids=["row", "product", "zip", "targets"]
)
def test_the_documented_rows_make_what_the_page_says(place: int, cells: int) -> None:
    (whole,) = documented("whole")
    rows = documented("rows")
    assert len(rows) == 4
    head = whole[: whole.index("rows:")]
    matrix = read(f"{head}rows:\n{rows[place]}")
    assert len(matrix.cells) == cells
    assert matrix.warnings == ()


def test_the_documented_rows_for_another_machine_make_a_cell_for_each() -> None:
    (whole,), (rows,) = documented("whole"), documented("machines")
    matrix = read(f"{whole[: whole.index('rows:')]}rows:\n{rows}")
    assert [(cell.vendor, cell.machine) for cell in matrix.cells] == [
        ("nvidia", "x86_64"),
        ("nvidia", "aarch64"),
        ("cpu", "x86_64"),
        ("cpu", "aarch64"),
    ]
    known = "the compat table is about wheels for x86_64"
    assert [warning.message.startswith(known) for warning in matrix.warnings] == [True, True]


def test_the_documented_matrices_are_read() -> None:
    (whole,) = documented("whole")
    (filtered,) = documented("whole-with")
    (indexes,) = documented("indexes")
    assert len(read(whole).cells) == 1
    assert len(read(indexes + whole).cells) == 1
    (compilers,) = documented("compilers")
    (compiler,) = read(compilers + whole).compilers
    assert (compiler.name, compiler.targets[0]) == ("hip-experimental", "gfx90a")
    assert len(read(whole[: whole.index("rows:")] + filtered).cells) == 6


def test_the_documented_second_python_is_a_base_that_rows_can_name() -> None:
    (whole,), (bases,) = documented("whole"), documented("pythons")
    text = whole.replace("bases:\n", bases)
    text = text.replace('    torch: "2.13.0"', '    torch: "2.13.0"\n    python: "3.12"')
    assert (
        "base `debian-12` has python 3.11, not 3.12 | bases with it: debian-12-py312"
        in (refused(text)[0])
    )
    (cell,) = read(f"{text.rstrip()}\n    base: debian-12-py312\n").cells
    assert (cell.python, cell.base.interpreter) == ("3.12", "python3.12")


def test_an_image_names_the_source_tree_that_it_is_for() -> None:
    (whole,) = documented("whole")
    tree = "    project: {path: kernels, sources: ['csrc/*.cu', setup.py], flags: [-DFAST]}\n"
    old = "    compiler: true\n"
    assert old in whole
    (cell,) = read(whole.replace(old, old + tree).replace("[torch]", "[torch, devel]")).cells[1:]
    assert cell.tree == SourceTree(
        path="kernels", sources=("csrc/*.cu", "setup.py"), flags=("-DFAST",)
    )
    for wrong in ("../other", "/etc", ".hidden"):
        with pytest.raises(MatrixError, match="a folder inside the repository"):
            read(whole.replace(old, old + tree.replace("kernels", wrong)))
    with pytest.raises(MatrixError, match="one option of a compiler"):
        read(whole.replace(old, old + tree.replace("-DFAST", "'-DA;rm'")))


def test_the_documented_error_is_the_real_one() -> None:
    row = "  - {vendor: nvidia, toolkit: '13.0', targets: [sm_90], torch: '2.8.0'}\n"
    (problem,) = refused_rows(row)
    message, hint = problem.partition(": ")[2].split(" | ")
    page = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    assert _without_releases(f": {message}\n    hint: {hint}\n") in _without_releases(page)


def _without_releases(text: str) -> str:
    """The text with a list of releases of torch cut to its first: each reading may add one."""
    return re.sub(r"torch (\d[\d.]+)(?:, \d[\d.]+)+ for", r"torch \1, ... for", text)


# --- selection ---


def test_nothing_given_selects_everything(real: Matrix) -> None:
    assert select(real.cells, Selection()) == real.cells


@pytest.mark.parametrize(
    ("selection", "of"),
    [
        (Selection(target="gfx950"), lambda cell: "gfx950" in cell.targets),
        (Selection(target="cpu"), lambda cell: cell.vendor == "cpu"),
        (
            Selection(target="nvidia", image="devel"),
            lambda c: (c.vendor, c.image) == ("nvidia", "devel"),
        ),
        (Selection(vendor="amd"), lambda cell: cell.vendor == "amd"),
        (
            Selection(only="*-rocm64-*-serve"),
            lambda cell: "rocm64" in cell.id and cell.image == "serve",
        ),
    ],
)
def test_options_select_the_cells_that_match_them_all(
    real: Matrix, selection: Selection, of: Callable[[Cell], bool]
) -> None:
    chosen = select(real.cells, selection)
    assert chosen
    assert chosen == tuple(cell for cell in real.cells if of(cell))


@pytest.mark.parametrize(
    ("selection", "message", "hint"),
    [
        (Selection(target="gfx924"), "no cell matches --target gfx924", "did you mean `gfx942`?"),
        (Selection(vendor="adm"), "no cell matches --vendor adm", "did you mean `amd`?"),
        (Selection(image="troch"), "no cell matches --image troch", "did you mean `torch`?"),
        (Selection(only="cpu-x*-toch"), "no cell matches --only cpu-x*-toch", "it is a glob"),
        (
            Selection(vendor="gaudi", image="devel"),
            "no cell has --image devel together with the other options",
            "with those there are: torch",
        ),
    ],
)
def test_a_selection_of_nothing_says_what_was_meant(
    real: Matrix, selection: Selection, message: str, hint: str
) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        select(real.cells, selection)
    assert caught.value.message == message
    assert hint in caught.value.hint


# --- size ---


SYNTHETIC_TARGETS = ", ".join(
    f"[sm_{major}{minor}, sm_{minor + 1}0]" for major in range(10, 20) for minor in range(10)
)


def synthetic(count: int) -> str:
    """A matrix of `count` cells: rows of 100, each crossing target lists."""
    row = """\
  - vendor: nvidia
    toolkit: "13.0"
    torch: "2.{number}.0"
    tag_targets: true
    product: {{targets: [{targets}]}}
"""
    rows = [
        row.format(number=number, targets=SYNTHETIC_TARGETS)
        for number in range(100, 100 + count // 100)
    ]
    return f"{HEAD}rows:\n{''.join(rows)}"


class Counted:
    """A callable that counts its calls."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.count = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.count += 1
        return self.call(*arguments, **named)


def counted(monkeypatch: pytest.MonkeyPatch, size: int) -> tuple[int, int, int]:
    """Cells, judgements and cell constructions of a synthetic matrix."""
    compat = read_compat_anew()
    judge, cell = Counted(compat.judge), Counted(extended)
    with monkeypatch.context() as patch:
        patch.setattr(compat, "judge", judge)
        patch.setattr("warpfront.matrix.reading.extended", cell)
        matrix = read_matrix(synthetic(size), path="matrix.yaml", compat=compat)
    assert len(set(ids(matrix))) == len(matrix.cells)
    # Each of these rows makes its base, too: a point has one image. The matrix is made once.
    return len(matrix.cells), judge.count, cell.count - judge.count - 1


def read_compat_anew() -> Compat:
    return Compat(packaged().table)


def test_work_grows_in_step_with_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, 200) == (200, 200, 200)
    assert counted(monkeypatch, 2_000) == (2_000, 2_000, 2_000)


def test_cells_of_one_combination_share_their_values() -> None:
    row = (
        "  - {vendor: nvidia, toolkit: '13.0', targets: [sm_90], torch: '2.14.1',"
        " images: [torch, devel, app]}\n"
    )
    first, *others = made(row).cells
    assert all(cell.stack is first.stack and cell.base is first.base for cell in others)
    assert replace(first, image="other") != first


def test_the_real_file_is_plain_yaml_to_everybody_else() -> None:
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    assert text.startswith(
        "# yaml-language-server: $schema=src/warpfront/data/matrix.schema.json\n"
    )
    sections = {
        "schema",
        "project",
        "bases",
        "images",
        "defaults",
        "rows",
        "compilers",
        "release",
        "runners",
    }
    assert set(yaml.load(text, yaml.CSafeLoader)) == sections


PATCH = (
    "{{file: patches/hpu.patch, package: lmcache, version: '0.3.9', sha256: "
    + "ab" * 32
    + ", reason: for Gaudi{more}}}"
)


def patched(*patches: str) -> str:
    app = "requirements: images/app/requirements.txt"
    return f"{HEAD}rows:\n{CPU}".replace(app, f"{app}, patches: [{', '.join(patches)}]")


def test_a_patch_is_of_one_version_and_ends_with_versions_of_its_own_package() -> None:
    (cell,) = read(patched(PATCH.format(more=", strip: 2, until: lmcache>=0.4"))).cells
    assert cell.image == "torch"
    assert cell.patches == ()
    text = patched(PATCH.format(more=", strip: 2, until: 'lmcache>=0.4'")).replace(
        "images: [torch]", "images: [torch, app]"
    )
    (patch,) = next(one for one in read(text).cells if one.image == "app").patches
    assert (patch.package, patch.strip, patch.until) == ("lmcache", 2, "lmcache>=0.4")
    first = PATCH.format(more="")
    for other, said in {
        PATCH.format(more=", until: vllm>=1"): "`until` of a patch of lmcache names vllm",
        first.replace("0.3.9", "0.4.0"): "lmcache is patched at 0.3.9 and at 0.4.0",
        first.replace("ab" * 32, "ab"): "is not a sha256",
        first.replace("patches/", "../"): "is not a path inside the repository",
        first.replace("0.3.9", ">=0.3"): "is not one version",
    }.items():
        assert said in "\n".join(refused(patched(first, other)))


def smoking(*entries: str) -> str:
    app = "requirements: images/app/requirements.txt"
    text = f"{HEAD}rows:\n{CPU}".replace(app, f"{app}, smoke: [{', '.join(entries)}]")
    return text.replace("images: [torch]", "images: [torch, app]")


def test_smoke_names_what_is_described_or_says_what_to_do() -> None:
    text = smoking(
        "{uses: lmcache}",
        "{uses: aiter, vendors: [amd], starts: [aiter-start.pth]}",
        "{name: serve, run: [python, -c, 'print(1)'], imports: [a.b], needs: device, "
        "expect: {exit: 3, prints: '^1$'}, timeout_seconds: 5}",
    )
    app = next(one for one in read(text).cells if one.image == "app")
    assert [one.name or one.uses for one in app.smoke] == ["lmcache", "aiter", "serve"]
    assert app.smoke[1].starts == ("aiter-start.pth",)
    serve = app.smoke[2]
    assert serve.run == ("python", "-c", "print(1)")
    assert (serve.expect.exit, serve.expect.prints, serve.timeout_seconds) == (3, "^1$", 5.0)
    for entries, said in {
        ("{uses: lmcash}",): "lmcash is not described",
        ("{name: nothing}",): "says nothing to do",
        ("{run: [true-program]}",): "says nothing to do",
        ("{uses: vllm}", "{uses: vllm}"): "`smoke:` has vllm twice",
        ("{uses: vllm, vendors: [and]}",): "`vendors` cannot be `and`",
        ("{name: x, run: [y], expect: {prints: '('}}",): "is no pattern",
        ("{name: x, run: [y], timeout_seconds: 0}",): "timeout_seconds",
        ("{name: x, run: [y], needs: gpu}",): "needs",
        ("{name: x, starts: [sitecustomize.py]}",): "the name of a .pth file",
    }.items():
        assert said in "\n".join(refused(smoking(*entries)))
