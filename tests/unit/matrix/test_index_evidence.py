"""What indexes held: kept, compared, and held against the rows of the compat table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from packaging.version import Version

from warpfront.errors import MatrixError
from warpfront.matrix.compat import (
    Compat,
    Contradicted,
    packaged_contents,
    packaged_rows,
)
from warpfront.matrix.compat_table import PYPI, Combination, read_table
from warpfront.matrix.index_contents import Contents, IndexContents, IndexedRelease
from warpfront.matrix.index_evidence import (
    QUIET_DAYS,
    changes,
    contradictions,
    cuda_of,
    dump_contents,
    names_by_url,
    read_contents,
    updated,
    wanted_releases,
)

ROWS = read_table(
    (Path(__file__).parents[2] / "compat" / "small.yaml").read_text("utf-8"), path="small.yaml"
)
CU124, CU130 = "https://wheels.test/cu124", "https://wheels.test/cu130"
TODAY = "2026-11-27"


def a_release(**changes: object) -> IndexedRelease:
    plain = IndexedRelease(
        python=("3.10", "3.11"),
        machines=("x86_64",),
        platform="manylinux_2_28",
        files=2,
        hashes=2,
        requires={"x86_64": ()},
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def held(url: str, **wheels: dict[str, IndexedRelease]) -> Contents:
    return Contents(indexes={url: IndexContents(read=TODAY, wheels=wheels)})


def wanted(**changes: object) -> Combination:
    plain = Combination(
        vendor="nvidia",
        toolkit="12.4",
        targets=("sm_90",),
        machine="x86_64",
        python="3.11",
        torch="2.0.0",
        index="cu124",
        glibc="2.36",
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def said(contents: Contents, **changes: object) -> str:
    judgement = Compat(ROWS, contents).judge(wanted(**changes))
    assert isinstance(judgement, Contradicted), judgement
    return judgement.reason


WHOLE = held(
    CU124,
    torch={"2.0.0+cu124": a_release(python=("3.11", "3.12"), machines=("aarch64", "x86_64"))},
    torchvision={"0.15.0+cu124": a_release()},
)


def test_what_an_index_holds_goes_before_a_row() -> None:
    table = Compat(ROWS, WHOLE)
    assert table.judge(wanted()) == ()
    assert table.judge(wanted(python="3.12")) == (), "the row has 3.10 and 3.11"
    assert "no wheels for python 3.10" in said(WHOLE, python="3.10")
    assert table.judge(wanted(companions=("torchvision",))) == ()
    lacking = said(WHOLE, companions=("torchaudio",))
    assert lacking == "index cu124 has no torchaudio 2.0.0 for torch 2.0.0"


def test_an_index_says_for_which_machines_it_has_wheels_and_archs_stay_by_hand() -> None:
    judgement = Compat(ROWS, WHOLE).judge(wanted(machine="aarch64"))
    assert judgement == (
        "the arch list of torch 2.0.0 on index cu124 is not evidenced for aarch64",
    )
    alone = held(CU124, torch={"2.0.0+cu124": a_release()})
    assert said(alone, machine="aarch64") == "index cu124 has no torch 2.0.0 for aarch64"


def test_a_release_that_an_index_no_longer_has_is_contradicted_although_a_row_lists_it() -> None:
    gone = held(CU124, torch={"2.0.0+cu124": a_release(until="2026-11-20")})
    assert said(gone) == "torch 2.0.0 has no wheels for cuda 12.4"
    (line,) = contradictions(ROWS, gone)
    assert line == f"torch 2.0.0 on cu124: the row lists it, {CU124} has none"


def test_a_release_that_a_row_denies_is_supported_where_the_index_has_it() -> None:
    there = held(CU124, torch={"2.1.0+cu124": a_release()})
    table = Compat(ROWS, there)
    assert "cu124" in table.release("2.1.0").indexes.names  # type: ignore[union-attr]
    assert any("the row denies it" in line for line in contradictions(ROWS, there))


def test_only_wheels_of_an_indexs_own_label_are_its() -> None:
    """Two indexes of the table may be one URL, and a CUDA index may hold a CPU build."""
    other = held(CU124, torch={"2.0.0+cpu": a_release()})
    assert said(other) == "torch 2.0.0 has no wheels for cuda 12.4"


def of_pypi(**more: dict[str, IndexedRelease]) -> Contents:
    cuda = {"x86_64": ("nvidia-cuda-runtime-cu12==12.6.77", "triton==3.1.0"), "aarch64": ()}
    wheels = {
        "torch": {
            "2.1.0": a_release(
                python=("3.11", "3.12"), machines=("aarch64", "x86_64"), requires=cuda
            ),
            "2.2.0": a_release(
                python=("3.12",),
                requires={"x86_64": ("cuda-toolkit[cudart]==13.0.3", "triton~=3.2.0")},
            ),
        },
        "torchvision": {
            "0.17.0": a_release(requires={"x86_64": ("torch==2.2.0",)}),
            "0.18.0": a_release(requires={"x86_64": ("torch>=2.1.0",)}),
        },
        "torchaudio": {"2.2.0": a_release(requires={"x86_64": ("torch==2.2.0",)})},
        "triton": {"3.2.0": a_release(), "3.2.5": a_release(), "3.3.0": a_release()},
    }
    return held(ROWS.indexes[PYPI].url, **{**wheels, **more})


def test_a_release_without_a_row_is_known_by_the_metadata_that_pypi_has() -> None:
    release = Compat(ROWS, of_pypi()).release("2.2.0")
    assert release is not None
    assert (release.pypi.toolkit, release.pypi.triton) == ("13.0", "3.2.5")
    assert release.torchvision.version == "0.17.0", "the one that demands exactly this torch"
    assert release.torchaudio.version == "2.2.0"
    assert release.pypi.source == f"{ROWS.indexes[PYPI].url}, read {TODAY}"
    yanked = of_pypi(torch={"2.2.0": a_release(yanked="broken")})
    assert Compat(ROWS, yanked).release("2.2.0") is None


def test_a_wheel_of_pypi_for_a_machine_without_its_cuda_is_not_of_its_toolkit() -> None:
    """Up to 2.10 PyPI's aarch64 wheels demand no CUDA: they are builds for the CPU."""
    release = of_pypi().indexes[ROWS.indexes[PYPI].url].wheels["torch"]["2.1.0"]
    assert (cuda_of(release), cuda_of(release, "aarch64")) == ("12.6", "")
    arm = said(of_pypi(), torch="2.1.0", toolkit="12.6", index=PYPI, machine="aarch64")
    assert arm == "index pypi has no torch 2.1.0 for aarch64"


@pytest.mark.parametrize(
    ("release", "line"),
    [
        (a_release(requires={"x86_64": ("nvidia-cuda-runtime==13.0.1",)}),
         "torch 2.1.0 on pypi: the row has CUDA 12.6, the index 13.0"),
        (a_release(python=("3.12", "3.13")),
         "torch 2.1.0 on pypi: the row has python 3.11 3.12, the index 3.12 3.13"),
        (a_release(python=("3.11", "3.12"), requires={"x86_64": ("triton==3.9.9",)}),
         "torch 2.1.0 on pypi: the row has triton triton==3.1.0, the index triton==3.9.9"),
    ],
)  # fmt: skip
def test_each_value_of_a_row_that_an_index_contradicts_is_named(
    release: IndexedRelease, line: str
) -> None:
    found = contradictions(ROWS, held(ROWS.indexes[PYPI].url, torch={"2.1.0": release}))
    assert line in found


def test_a_pair_whose_companion_refuses_the_torch_is_a_contradiction() -> None:
    refusing = held(
        CU124,
        torch={"2.0.0+cu124": a_release()},
        torchvision={"0.15.0+cu124": a_release(requires={"x86_64": ("torch==1.9.0",)})},
    )
    line = "torch 2.0.0 on cu124: the row pairs torchvision 0.15.0, which demands torch==1.9.0"
    assert line in contradictions(ROWS, refusing)


NEW = {"torch": {"2.14.1+cu130": a_release()}}


def test_the_same_contents_read_twice_are_the_same_file() -> None:
    first = updated(None, NEW, today="2026-11-01")
    again = updated(first, NEW, today="2026-11-08")
    assert again == first
    assert list(changes(CU130, first, again)) == []
    late = updated(first, NEW, today="2026-11-22")
    assert late.read == "2026-11-22", f"{QUIET_DAYS} days later its age has to be known"
    assert late.wheels == first.wheels


def lines(before: IndexContents, read: dict[str, dict[str, IndexedRelease]]) -> list[str]:
    after = updated(before, read, today="2026-11-08")
    return [line.removeprefix(f"{CU130}: ") for line in changes(CU130, before, after)]


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ({"2.14.1+cu130": a_release(), "2.15.0+cu130": a_release()},
         "torch 2.15.0+cu130: new (python 3.10 to 3.11, x86_64)"),
        ({}, "torch 2.14.1+cu130: gone (was there from 2026-11-01)"),
        ({"2.14.1+cu130": a_release(yanked="wrong triton")},
         "torch 2.14.1+cu130: yanked: wrong triton"),
        ({"2.14.1+cu130": a_release(python=("3.11",), files=1)},
         "torch 2.14.1+cu130: python 3.10 3.11 -> 3.11; files 2 -> 1"),
    ],
    ids=["new", "vanished", "yanked", "a wheel vanished"],
)  # fmt: skip
def test_each_change_of_an_index_is_one_line(release: dict[str, IndexedRelease], line: str) -> None:
    first = updated(None, NEW, today="2026-11-01")
    assert lines(first, {"torch": release}) == [line]


def test_a_release_that_vanished_stays_with_its_day_and_may_come_back() -> None:
    first = updated(None, NEW, today="2026-11-01")
    gone = updated(first, {"torch": {}}, today="2026-11-08")
    assert gone.wheels["torch"]["2.14.1+cu130"].until == "2026-11-08"
    assert updated(gone, {"torch": {}}, today="2026-11-09") == gone
    back = updated(gone, NEW, today="2026-11-10")
    (line,) = changes(CU130, gone, back)
    assert line.endswith("torch 2.14.1+cu130: back (was gone from 2026-11-08)")
    assert back.wheels == first.wheels


def test_contents_are_written_and_read_the_same_with_a_line_for_each_release() -> None:
    contents = of_pypi()
    text = dump_contents(contents)
    assert read_contents(text, path="x.json") == contents
    assert dump_contents(read_contents(text, path="x.json")) == text
    assert sum('"since"' in line or '"python"' in line for line in text.splitlines()) == 8
    assert read_contents(dump_contents(Contents()), path="x.json") == Contents()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": 2, "indexes": {}, "contradictions": []}',
        '{"schema": 1, "indexes": {"u": {"read": 3}}}',
    ],
)
def test_a_file_of_another_form_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(MatrixError, match=r"contents\.json"):
        read_contents(text, path="contents.json")


def test_torch_is_the_first_name_of_each_index_and_amds_have_rocm() -> None:
    names = names_by_url(packaged_rows())
    assert {one[0] for one in names.values()} == {"torch"}
    assert "rocm" in names["https://stable.repo.amd.com/rocm/whl-next"]
    of_pypi_itself = names["https://pypi.org/simple"]
    assert of_pypi_itself[:4] == ("torch", "torchvision", "torchaudio", "triton")


def test_final_releases_from_the_table_s_oldest_on_are_read() -> None:
    torches = {Version(one) for one in ("1.13.1", "2.0.0", "2.1.0", "2.2.0.dev20261101")}
    assert wanted_releases(ROWS, "torch", torches) == {Version("2.0.0"), Version("2.1.0")}


def test_no_row_is_contradicted_by_what_was_read() -> None:
    assert contradictions(packaged_rows(), packaged_contents()) == ()
    assert packaged_contents().contradictions == ()
