"""Judgements to the letter, over a table that one can see all of: tests/compat/small.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import MatrixError
from warpfront.matrix.compat import Compat, Contradicted
from warpfront.matrix.compat_table import Combination, read_table

TEXT = (Path(__file__).parents[2] / "compat" / "small.yaml").read_text(encoding="utf-8")
SMALL = Compat(read_table(TEXT, path="small.yaml"))
CUDA = Combination(
    vendor="nvidia",
    toolkit="12.4",
    targets=("sm_80",),
    python="3.11",
    torch="2.0.0",
    index="cu124",
    machine="x86_64",
)
LATER = replace(CUDA, torch="2.1.0", toolkit="12.6", index="cu126")
ROCM = replace(CUDA, vendor="amd", toolkit="6.3", targets=("gfx942",), index="rocm6.3")
CPU = replace(CUDA, vendor="cpu", toolkit="", targets=("x86_64",), index="cpu")
GAUDI = Combination(
    vendor="gaudi",
    toolkit="1.0",
    targets=("gaudi2",),
    python="3.12",
    torch="2.0.0",
    index="",
    machine="x86_64",
)


def denied(wanted: Combination) -> tuple[str, str]:
    judgement = SMALL.judge(wanted)
    assert isinstance(judgement, Contradicted), judgement
    return judgement.reason, judgement.fits


def open_questions(wanted: Combination) -> tuple[str, ...]:
    judgement = SMALL.judge(wanted)
    assert isinstance(judgement, tuple), judgement
    assert judgement
    return judgement


@pytest.mark.parametrize(
    "wanted",
    [
        CUDA,
        LATER,
        ROCM,
        CPU,
        GAUDI,
        replace(CPU, torch="2.1.0"),
        replace(CUDA, index="pypi"),
        replace(LATER, index="pypi"),
        replace(CUDA, companions=("torchvision", "torchaudio")),
        replace(LATER, companions=("torchvision",)),
        replace(GAUDI, torch="2.1.0", python="3.11"),
        replace(GAUDI, python="3.10"),
        replace(CUDA, targets=()),
        replace(LATER, targets=("sm_120", "sm_121")),
    ],
)
def test_what_the_table_has_is_supported(wanted: Combination) -> None:
    assert SMALL.judge(wanted) == ()


def test_a_sure_release_denies_an_index_that_it_does_not_list() -> None:
    wanted = replace(CUDA, toolkit="13.0", index="cu130")
    assert denied(wanted) == (
        "torch 2.0.0 has no wheels for cuda 13.0",
        "index cu124 for torch 2.0.0; index pypi for torch 2.0.0 with toolkit 12.4",
    )


def test_an_unsure_release_leaves_an_index_open_that_it_does_not_list() -> None:
    wanted = replace(LATER, toolkit="13.0", index="cu130", targets=())
    assert open_questions(wanted) == ("torch 2.1.0 on index cu130 is not evidenced",)


def test_an_unsure_release_still_denies_an_index_that_is_known_to_be_absent() -> None:
    assert denied(replace(LATER, toolkit="12.4", index="cu124")) == (
        "torch 2.1.0 has no wheels for cuda 12.4",
        (
            "torch 2.0.0 for nvidia 12.4; index cu126 for torch 2.1.0; "
            "index pypi for torch 2.1.0 with toolkit 12.6"
        ),
    )


def test_a_sure_release_leaves_an_index_open_that_was_seen() -> None:
    wanted = replace(CUDA, toolkit="12.6", index="cu126")
    assert open_questions(wanted) == ("torch 2.0.0 on index cu126 is not evidenced",)


def test_how_sure_a_release_is_decides_and_only_verified_and_high_are_sure() -> None:
    wanted = replace(CUDA, toolkit="13.0", index="cu130", targets=())
    for confidence, kind in (
        ("verified", Contradicted), ("high", Contradicted), ("medium", tuple), ("low", tuple)
    ):  # fmt: skip
        document = yaml.load(TEXT, yaml.CSafeLoader)
        document["releases"][0]["indexes"]["confidence"] = confidence
        judgement = changed(document).judge(wanted)
        assert isinstance(judgement, kind), confidence
        assert judgement


def changed(document: dict[str, Any]) -> Compat:
    return Compat(read_table(yaml.safe_dump(document, sort_keys=False), path="small.yaml"))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (replace(CUDA, index="rocm6.3"),
         "index rocm6.3 holds torch 2.0.0 for amd 6.3, not for nvidia 12.4"),
        (replace(CUDA, index="cpu"), "index cpu holds torch 2.0.0 for cpu, not for nvidia 12.4"),
        (replace(CPU, index="cu124"), "index cu124 holds torch 2.0.0 for nvidia 12.4, not for cpu"),
        (replace(CUDA, index="pypi", toolkit="12.6"),
         "index pypi holds torch 2.0.0 for nvidia 12.4, not for nvidia 12.6"),
        (replace(ROCM, index="rocm6.4"),
         "index rocm6.4 holds torch 2.0.0 for amd 6.4, not for amd 6.3"),
    ],
)  # fmt: skip
def test_an_index_of_something_else_is_denied(wanted: Combination, reason: str) -> None:
    assert denied(wanted)[0] == reason


def test_where_an_index_holds_something_else_those_that_fit_are_named() -> None:
    assert denied(replace(CUDA, index="rocm6.3", toolkit="12.6"))[1] == (
        "torch 2.1.0 for nvidia 12.6; index cu124 for torch 2.0.0; "
        "index pypi for torch 2.0.0 with toolkit 12.4"
    )


def test_a_release_that_only_pypi_has_for_a_toolkit_fits_too() -> None:
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["pypi"]["toolkit"] = "13.0"
    wanted = replace(CUDA, toolkit="13.0", torch="2.2.0")
    assert changed(document).contradiction_of_no_index(wanted) == Contradicted(
        reason="torch 2.2.0 has no wheels for cuda 13.0", fits="torch 2.1.0 for nvidia 13.0"
    )


def test_several_releases_that_would_do_are_listed() -> None:
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"].append(document["releases"][1] | {"torch": "2.1.5"})
    table = changed(document)
    judgement = table.judge(replace(CUDA, python="3.12"))
    assert isinstance(judgement, Contradicted)
    assert judgement.fits == "python 3.10, 3.11; torch 2.1.0, 2.1.5 for python 3.12"
    assert table.judge(replace(CUDA, torch="2.1.9")) == (
        "torch 2.1.9 is not in the compat table (2.1.0, 2.1.5 is)",
    )


@pytest.mark.parametrize(
    ("vendor", "toolkit", "torch", "reason", "fits"),
    [
        ("nvidia", "12.6", "2.0.0", "torch 2.0.0 has no wheels for cuda 12.6",
         ("torch 2.1.0 for nvidia 12.6; index cu124 for torch 2.0.0; "
         "index pypi for torch 2.0.0 with toolkit 12.4")),
        ("nvidia", "11.8", "2.2.0", "torch 2.2.0 has no wheels for cuda 11.8",
         "nothing in the table has nvidia 11.8"),
        ("amd", "6.3", "2.1.0", "torch 2.1.0 has no wheels for rocm 6.3",
         "torch 2.0.0 for amd 6.3"),
        ("amd", "7.0", "2.0.0", "torch 2.0.0 has no wheels for rocm 7.0",
         "index rocm6.3, rocm6.4 for torch 2.0.0"),
        ("cpu", "", "2.2.0", "torch 2.2.0 has no wheels for cpu",
         "torch 2.0.0, 2.1.0 for cpu"),
        ("gaudi", "", "2.0.0", "torch 2.0.0 has no wheels for synapseai",
         "nothing in the table has gaudi"),
    ],
)  # fmt: skip
def test_where_no_index_is_there_is_something_that_fits(
    vendor: str, toolkit: str, torch: str, reason: str, fits: str
) -> None:
    wanted = replace(CUDA, vendor=vendor, toolkit=toolkit, torch=torch)
    assert SMALL.contradiction_of_no_index(wanted) == Contradicted(reason=reason, fits=fits)


@pytest.mark.parametrize(
    ("vendor", "toolkit", "torch", "name"),
    [
        ("nvidia", "12.4", "2.0.0", "cu124"),
        ("nvidia", "12.6", "2.0.0", "cu126"),
        ("nvidia", "13.0", "2.0.0", ""),
        ("nvidia", "13.0", "2.9.9", "cu130"),
        ("nvidia", "12.4", "2.1.0", ""),
        ("amd", "6.4", "2.0.0", "rocm6.4"),
        ("cpu", "", "2.1.0", "cpu"),
        ("nvidia", "", "2.9.9", ""),
        ("amd", "12.4", "2.9.9", ""),
        ("gaudi", "1.0", "2.0.0", ""),
    ],
)
def test_an_index_is_found_by_what_it_holds_and_never_pypi(
    vendor: str, toolkit: str, torch: str, name: str
) -> None:
    assert SMALL.index_for(vendor, toolkit, torch) == name


def test_a_release_is_looked_up_by_its_name() -> None:
    release = SMALL.release("2.1.0")
    assert release is not None
    assert release.torch == "2.1.0"
    assert SMALL.release("2.2.0") is None


@pytest.mark.parametrize(
    ("wanted", "pins"),
    [
        (replace(CUDA, companions=("torchaudio", "torchvision")),
         ["torch==2.0.0+cu124", "torchaudio==2.0.0+cu124", "torchvision==0.15.0+cu124",
          "triton===3.0.0"]),
        (replace(CUDA, index="pypi"), ["torch===2.0.0", "triton===3.0.0"]),
        (ROCM, ["torch==2.0.0+rocm6.3", "pytorch-triton-rocm===3.0.1"]),
        (replace(ROCM, torch="2.1.0"), ["torch==2.1.0+rocm6.3"]),
        (replace(CPU, companions=("torchaudio",)), ["torch==2.0.0+cpu", "torchaudio==2.0.0+cpu"]),
        (replace(CUDA, torch="2.2.0"), ["torch==2.2.0+cu124"]),
        (GAUDI, []),
    ],
)  # fmt: skip
def test_the_stack_is_pinned_with_its_companions_and_its_triton(
    wanted: Combination, pins: list[str]
) -> None:
    assert [str(pin) for pin in SMALL.stack(wanted)] == pins


@pytest.mark.parametrize(
    ("wanted", "reason", "fits"),
    [
        (replace(CUDA, python="3.12"), "torch 2.0.0 has no wheels for python 3.12",
         "python 3.10, 3.11; torch 2.1.0 for python 3.12"),
        (replace(CUDA, python="3.9"), "torch 2.0.0 has no wheels for python 3.9",
         "python 3.10, 3.11"),
        (replace(CUDA, glibc="2.17"), "torch 2.0.0 needs glibc 2.28, the base has 2.17",
         "a base with glibc 2.28 or later"),
        (replace(CUDA, glibc="2.9"), "torch 2.0.0 needs glibc 2.28, the base has 2.9",
         "a base with glibc 2.28 or later"),
        (replace(CUDA, targets=("sm_80", "sm_120")),
         "sm_120 is not served by torch 2.0.0 from index cu124: compiled for 8.0, 9.0",
         "torch 2.1.0 on cu126"),
        (replace(CUDA, targets=("sm_70",)),
         "sm_70 is not served by torch 2.0.0 from index cu124: compiled for 8.0, 9.0",
         "no wheel in the table serves sm_70"),
        (replace(ROCM, targets=("gfx1100",)),
         "gfx1100 is not served by torch 2.0.0 from index rocm6.3: compiled for gfx906, gfx942",
         "no wheel in the table serves gfx1100"),
        (replace(ROCM, targets=("gfx906",), toolkit="6.4", index="rocm6.4"),
         "gfx906: no kernels (issue 1)", "a toolkit before 6.4"),
        (replace(CUDA, torch="2.2.0", companions=("torchvision", "torchaudio")),
         ("torch 2.2.0 is not in the compat table, so nothing says which torchvision and "
          "torchaudio "
         "belong to it"), "a release of the table (2.0.0, 2.1.0), or no companions"),
        (replace(GAUDI, python="3.11"), "gaudi 1.0 does not come with torch 2.0.0 on python 3.11",
         "torch 2.0.0 on python 3.10, 3.12; torch 2.1.0 on python 3.11"),
        (replace(GAUDI, torch="2.1.0"), "gaudi 1.0 does not come with torch 2.1.0 on python 3.12",
         "torch 2.0.0 on python 3.10, 3.12; torch 2.1.0 on python 3.11"),
    ],
)  # fmt: skip
def test_a_denial_says_what_and_what_would_fit(wanted: Combination, reason: str, fits: str) -> None:
    assert denied(wanted) == (reason, fits)


def test_where_other_wheels_serve_a_target_every_release_of_them_is_named() -> None:
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["indexes"]["names"].append("cu124")
    document["releases"][1]["indexes"]["absent"] = []
    document["releases"][1]["cuda_archs"]["sets"]["cu124"] = "new"
    document["releases"][0]["indexes"]["names"].append("cu126")
    judgement = changed(document).judge(replace(CUDA, targets=("sm_120",)))
    assert isinstance(judgement, Contradicted)
    assert judgement.fits == "torch 2.0.0 on cu126; torch 2.1.0 on cu126, cu124"


@pytest.mark.parametrize("glibc", ["2.28", "2.31", "2.100", ""])
def test_a_glibc_that_is_new_enough_or_not_known_does_not_stand_in_the_way(glibc: str) -> None:
    assert SMALL.judge(replace(CUDA, glibc=glibc)) == ()


def test_an_old_manylinux_runs_on_every_base() -> None:
    assert SMALL.judge(replace(LATER, glibc="2.17")) == ()


def test_an_arch_of_another_vendor_or_an_earlier_toolkit_is_usable() -> None:
    assert SMALL.judge(replace(ROCM, targets=("gfx906", "gfx942"))) == ()


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        (replace(CUDA, torch="2.0.1"),
         ("torch 2.0.1 is not in the compat table (2.0.0 is)",)),
        (replace(CUDA, torch="2.9.1"), ("torch 2.9.1 is not in the compat table",)),
        (replace(CUDA, torch="2.0.1", targets=("sm_999", "sm_998", "sm_80")),
         ("sm_999, sm_998: no nvidia hardware known by that name",
          "torch 2.0.1 is not in the compat table (2.0.0 is)")),
        (replace(GAUDI, toolkit="9.9"), ("gaudi 9.9 is not in the compat table",)),
        (replace(LATER, targets=("sm_70", "sm_80", "sm_75")),
         ("sm_70 is not served by torch 2.1.0 from index cu126, by an arch list of low confidence",
          ("sm_75 is not served by torch 2.1.0 from index cu126, by an arch list of low "
           "confidence"))),
        (replace(ROCM, torch="2.1.0"),
         ("torch 2.1.0 on index rocm6.3 is not evidenced",
          "the arch list of torch 2.1.0 on index rocm6.3 is not evidenced")),
        (replace(LATER, toolkit="13.0", index="cu130"),
         ("torch 2.1.0 on index cu130 is not evidenced",
          "the arch list of torch 2.1.0 on index cu130 is not evidenced")),
        (replace(LATER, companions=("torchvision", "torchaudio")),
         (("torchaudio 2.0.0, which torch 2.1.0 is paired with, is not evidenced on index cu126 "
          "for nvidia 12.6"),)),
        (replace(LATER, index="pypi", companions=("torchaudio",)),
         (("torchaudio 2.0.0, which torch 2.1.0 is paired with, is not evidenced on index pypi "
          "for nvidia 12.6"),)),
    ],
)  # fmt: skip
def test_what_the_table_does_not_say_is_asked_in_sentences(
    wanted: Combination, reasons: tuple[str, ...]
) -> None:
    assert open_questions(wanted) == reasons


def test_a_companion_of_another_time_is_there_where_its_own_release_is() -> None:
    assert SMALL.judge(replace(CPU, torch="2.1.0", companions=("torchaudio",))) == ()
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["pypi"]["toolkit"] = "12.4"
    same_cuda = replace(CUDA, torch="2.1.0", index="pypi", companions=("torchaudio",))
    assert changed(document).judge(replace(same_cuda, targets=())) == ()


def test_pypi_is_no_index_of_its_own_to_a_companion() -> None:
    """What an index lists says nothing about PyPI, and PyPI's toolkit nothing about an index."""
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["pypi"]["toolkit"] = "12.4"
    judgement = changed(document).judge(replace(LATER, companions=("torchaudio",)))
    assert isinstance(judgement, tuple)
    assert judgement
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][0]["indexes"]["names"].append("pypi")
    wanted = replace(LATER, index="pypi", companions=("torchaudio",))
    judgement = changed(document).judge(wanted)
    assert isinstance(judgement, tuple)
    assert judgement


def test_torchvision_goes_with_its_torch_whatever_its_number() -> None:
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["torchvision"]["version"] = "2.0.0"
    assert changed(document).judge(replace(LATER, companions=("torchvision",))) == ()


def test_a_companion_whose_release_is_not_known_is_taken_as_paired() -> None:
    document = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["torchaudio"]["version"] = "1.9.9"
    assert changed(document).judge(replace(LATER, companions=("torchaudio",))) == ()


DAMAGE: list[tuple[tuple[str | int, ...], object, list[str]]] = [
    (("releases", 1, "torch"), "2.0.0", ["torch 2.0.0 is listed twice"]),
    (("releases", 1, "indexes", "names"), ["cu1"], ["index cu1 is not in indexes:"]),
    (("releases", 1, "indexes", "seen"), ["cu2"], ["index cu2 is not in indexes:"]),
    (("releases", 1, "indexes", "absent"), ["cu3"], ["index cu3 is not in indexes:"]),
    (("releases", 0, "rocm_archs", "sets"), {"rocm1": "amd"}, ["index rocm1 is not in indexes:"]),
    (("releases", 0, "cuda_archs", "sets"), {"cu124": "odd"},
     ["arch set odd is not in arch_sets:"]),
    (("releases", 0, "cuda_archs", "sets"), {"cu1": "odd"},
     ["arch set odd is not in arch_sets:", "index cu1 is not in indexes:"]),
]  # fmt: skip


@pytest.mark.parametrize(("where", "value", "messages"), DAMAGE)
def test_a_reference_that_leads_nowhere_is_refused_at_its_line(
    where: tuple[str | int, ...], value: object, messages: list[str]
) -> None:
    document: Any = yaml.load(TEXT, yaml.CSafeLoader)
    inner = document
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(MatrixError) as caught:
        changed(document)
    assert [problem.message for problem in caught.value.problems] == messages
    lines = yaml.safe_dump(document, sort_keys=False).splitlines()
    starts = {problem.line for problem in caught.value.problems}
    assert {problem.path for problem in caught.value.problems} == {"small.yaml"}
    assert starts == {line_of(lines, where)}


def line_of(lines: list[str], where: tuple[str | int, ...]) -> int:
    """The line on which the part of the file stands that a problem is about."""
    top, key, *rest = where
    place = lines.index(f"{top}:")
    if isinstance(key, str):
        return next(n for n, line in enumerate(lines[place:], place + 1) if f"  {key}:" in line)
    starts = [n for n, line in enumerate(lines) if n > place and line.startswith("- ")]
    start = starts[key]
    if top == "base_torch":
        return start + 1
    return next(n for n, line in enumerate(lines[start:], start + 1) if f"{rest[0]}:" in line)


def test_a_release_that_is_listed_twice_is_refused_where_it_is_named() -> None:
    text = TEXT.replace('  - torch: "2.1.0"\n    python: ["3.11", "3.12"]\n',
                        '  - python: ["3.11", "3.12"]\n    torch: "2.0.0"\n')  # fmt: skip
    with pytest.raises(MatrixError) as caught:
        Compat(read_table(text, path="small.yaml"))
    (problem,) = caught.value.problems
    assert text.splitlines()[problem.line - 1] == '    torch: "2.0.0"'


def test_a_table_without_pypi_is_refused() -> None:
    document: Any = yaml.load(TEXT, yaml.CSafeLoader)
    del document["indexes"]["pypi"]
    with pytest.raises(MatrixError) as caught:
        changed(document)
    assert [problem.message for problem in caught.value.problems] == ["index pypi is missing"]
    assert caught.value.problems[0].line == TEXT_LINES.index("indexes:") + 1


TEXT_LINES = yaml.safe_dump(yaml.load(TEXT, yaml.CSafeLoader), sort_keys=False).splitlines()


def test_every_problem_of_a_table_is_told_at_once() -> None:
    document: Any = yaml.load(TEXT, yaml.CSafeLoader)
    document["releases"][1]["indexes"]["seen"] = ["cu2"]
    document["releases"][1]["torch"] = "2.0.0"
    with pytest.raises(MatrixError) as caught:
        changed(document)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("where", [("indexes", "cpu"), ("base_torch", 1)])
def test_every_vendor_that_is_not_known_is_refused_at_its_line(where: tuple[str, Any]) -> None:
    document: Any = yaml.load(TEXT, yaml.CSafeLoader)
    section, key = where
    document[section][key]["vendor"] = "cpuu"
    with pytest.raises(MatrixError, match="`vendor` cannot be `cpuu`") as caught:
        changed(document)
    (problem,) = caught.value.problems
    line = yaml.safe_dump(document, sort_keys=False).splitlines()[problem.line - 1]
    assert line.strip(" -") == "vendor: cpuu"


wanteds = st.builds(
    Combination,
    vendor=st.sampled_from(["nvidia", "amd", "cpu", "gaudi"]),
    toolkit=st.sampled_from(["", "1.0", "6.3", "6.4", "12.4", "12.6", "13.0"]),
    targets=st.just(()),
    python=st.sampled_from(["3.9", "3.10", "3.11", "3.12"]),
    torch=st.sampled_from(["2.0.0", "2.0.1", "2.1.0"]),
    index=st.sampled_from(sorted(SMALL.table.indexes)),
)


@given(wanteds)
def test_whatever_is_asked_is_answered_and_every_denial_offers_something(
    wanted: Combination,
) -> None:
    judgement = SMALL.judge(wanted)
    match judgement:
        case Contradicted():
            assert judgement.reason
            assert judgement.fits
        case ():
            listed = {name for row in SMALL.table.releases for name in row.indexes.names}
            assert wanted.vendor == "gaudi" or wanted.index in {"pypi", *listed}
        case reasons:
            assert all(reasons)
