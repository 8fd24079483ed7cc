"""Variables that hide devices, or have them say another arch, are refused on their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.runtime_policies import device_fault, device_variables
from warpfront.matrix.vendors import VENDORS

HEAD = f"""\
schema: 1
project:
  {{name: mine, source: https://github.com/me/mine, licenses: Apache-2.0, repository: ghcr.io/me}}
bases:
  debian-13:
    reference: docker.io/library/python:3.13-slim-trixie
    digest: sha256:{"0" * 64}
    python: "3.13"
    interpreter: python3.13
    glibc: "2.41"
    bootstrap: {{suite: trixie}}
images:
  torch:
    template: torch
    title: Runtime
"""
ROW = """\
rows:
  - vendor: amd
    toolkit: "6.4"
    torch: "2.9.1"
    targets: [{targets}]
    python: "3.13"
    base: debian-13
    images: [torch]
    environment: {{{environment}}}
"""
OVERRIDE = 'HSA_OVERRIDE_GFX_VERSION: "11.0.0"'


def problems(text: str) -> list[tuple[str, str]]:
    try:
        read_matrix(text, path="matrix.yaml", compat=packaged())
    except MatrixError as error:
        return [(f"{one.path}:{one.line}", one.message) for one in error.problems]
    return []


def row(targets: str, environment: str = "") -> str:
    return ROW.format(targets=targets, environment=environment)


def line_of(text: str, part: str) -> str:
    (line,) = [at for at, one in enumerate(text.splitlines(), 1) if part in one]
    return f"matrix.yaml:{line}"


@pytest.mark.parametrize("targets", ["gfx942, gfx1100", "gfx942", "gfx1102"])
@pytest.mark.parametrize("name", ["HSA_OVERRIDE_GFX_VERSION", "HSA_OVERRIDE_GFX_VERSION_1"])
def test_an_arch_that_not_every_target_has_is_refused_on_the_rows_line(
    targets: str, name: str
) -> None:
    text = HEAD + row(targets, f'{name}: "11.0.0"')
    ((where, message),) = problems(text)
    assert where == line_of(text, "vendor: amd")
    assert message.startswith(f"`{name}=11.0.0`: every device says that it is gfx1100")


def test_a_row_of_that_arch_alone_may_say_it() -> None:
    assert problems(HEAD + row("gfx1100", OVERRIDE)) == []


def test_a_variable_of_an_image_or_of_the_defaults_is_refused_on_its_own_line() -> None:
    of_image = f"{HEAD}    environment:\n      {OVERRIDE}\n{row('gfx942')}"
    of_defaults = f"{HEAD}defaults:\n  environment:\n    {OVERRIDE}\n{row('gfx942')}"
    for text in (of_image, of_defaults):
        ((where, _),) = problems(text)
        assert where == line_of(text, OVERRIDE)


def test_an_include_that_sets_it_is_seen() -> None:
    include = f"include:\n  - where: {{vendor: amd}}\n    set: {{environment: {{{OVERRIDE}}}}}\n"
    ((_, message),) = problems(HEAD + include + row("gfx942"))
    assert "HSA_OVERRIDE_GFX_VERSION" in message


@pytest.mark.parametrize(
    ("vendor", "name", "value", "targets", "why"),
    [
        ("amd", "HSA_OVERRIDE_GFX_VERSION", "9.0.10", "gfx90a", ""),
        ("amd", "HSA_OVERRIDE_GFX_VERSION", "9.4.2", "gfx942", ""),
        ("amd", "HSA_OVERRIDE_GFX_VERSION", "11", "gfx1100", "says that it is 11"),
        ("amd", "HSA_OVERRIDE_GFX_VERSION", "", "gfx1100", "says that it is nothing"),
        ("amd", "TRITON_OVERRIDE_ARCH", "gfx942", "gfx942", ""),
        ("amd", "TRITON_OVERRIDE_ARCH", "gfx942", "gfx90a gfx942", "for gfx90a too"),
        ("amd", "HSA_MODEL_LIB", "libhsakmtmodel.so", "gfx942", "no device answer for one"),
        ("amd", "HIP_VISIBLE_DEVICES", "-1", "gfx942", "hides devices"),
        ("amd", "CUDA_VISIBLE_DEVICES", "0", "gfx942", "hides devices"),
        ("amd", "ROCR_VISIBLE_DEVICES", "all", "gfx942", "hides devices"),
        ("nvidia", "TRITON_OVERRIDE_ARCH", "sm90", "sm_90", ""),
        ("nvidia", "TRITON_OVERRIDE_ARCH", "sm120", "sm_90", "says that it is sm120"),
        ("nvidia", "NUMBA_FORCE_CUDA_CC", "9.0", "sm_90", ""),
        ("nvidia", "NUMBA_FORCE_CUDA_CC", "8.0", "sm_80 sm_90", "for sm_90 too"),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "", "sm_90", "hides devices"),
        ("nvidia", "NVIDIA_VISIBLE_DEVICES", "all", "sm_90", ""),
        ("nvidia", "NVIDIA_VISIBLE_DEVICES", "void", "sm_90", "hides devices"),
        ("nvidia", "CUDA_FORCE_PTX_JIT", "1", "sm_90", "other code"),
        ("nvidia", "CUDA_FORCE_PTX_JIT", "0", "sm_90", ""),
        ("nvidia", "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "sm_90", ""),
        ("nvidia", "HSA_OVERRIDE_GFX_VERSION", "11.0.0", "sm_90", ""),
        ("gaudi", "HABANA_VISIBLE_MODULES", "0,1", "gaudi3", "hides devices"),
        ("intel", "ONEAPI_DEVICE_SELECTOR", "level_zero:gpu", "bmg", ""),
        ("intel", "ONEAPI_DEVICE_SELECTOR", "opencl:cpu", "bmg", "hides devices"),
        ("cpu", "CUDA_VISIBLE_DEVICES", "", "x86_64", ""),
    ],
)
def test_what_a_variable_does_to_devices_decides(
    vendor: str, name: str, value: str, targets: str, why: str
) -> None:
    found, hint = device_fault(name, value, vendor=vendor, targets=tuple(targets.split()))
    assert bool(found) == bool(why) == bool(hint)
    assert why in found


def test_every_variable_is_dated_sourced_and_of_a_vendor() -> None:
    for one in device_variables():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.dated)
        assert one.source
        assert set(one.vendors) <= set(VENDORS)
        re.compile(one.name)
        re.compile(one.allowed)


BASE = HEAD.partition("images:")[0]


@pytest.mark.parametrize(
    ("old", "new", "part", "says"),
    [
        ('python: "3.13"', 'python: "3.12"', "interpreter:", "says python 3.12, its interpreter"),
        ("interpreter: python3.13", "interpreter: /usr/bin/python3.11", "interpreter:", "3.11"),
        ("python:3.13-slim", "python:3.11-slim", "reference:", "its reference 3.11"),
        ("{suite: trixie}", "{suite: bookworm}", "suite:", "its suite"),
        ('glibc: "2.41"', 'glibc: "2.36"', "reference:", "says glibc 2.36, its reference 2.41"),
        ('glibc: "2.41"', 'glibc: "2.36"', "suite:", "says glibc 2.36, its suite 2.41"),
    ],
)
def test_a_bases_python_is_what_its_other_lines_say(
    old: str, new: str, part: str, says: str
) -> None:
    text = HEAD.replace(old, new) + row("gfx942")
    found = {
        where: message for where, message in problems(text) if "base `debian-13` says" in message
    }
    assert says in found[line_of(text, part)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("interpreter: python3.13", "interpreter: python3"),
        ("docker.io/library/python:3.13-slim-trixie", "example.test/cuda:13.0-ubuntu24.04"),
        ("docker.io/library/python:3.13-slim-trixie", "docker.io/library/python:slim"),
        ("suite: trixie", "suite: sid"),
    ],
)
def test_a_base_that_names_no_python_is_asked_where_it_is_built(old: str, new: str) -> None:
    assert problems(HEAD.replace(old, new) + row("gfx942")) == []
    template = Path(__file__).parents[3] / "images" / "_shared" / "wheels.j2"
    assert "sys.version_info[:2]" in template.read_text("utf-8")


def test_a_compilers_python_is_its_suites() -> None:
    compiler = (
        "compilers:\n  hip:\n    vendor: amd\n    toolkit: '5.7'\n    targets: [gfx942]\n"
        "    python: '3.11'\n    bootstrap: {suite: trixie, include: [hipcc]}\n"
    )
    text = HEAD + compiler + row("gfx942")
    assert problems(text) == [
        (line_of(text, "python: '3.11'"), "compiler `hip` says python 3.11, its suite has 3.13")
    ]
