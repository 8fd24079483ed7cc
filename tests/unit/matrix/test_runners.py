"""`runners:`: the machines of CI, and every way in which the table is refused."""

from __future__ import annotations

import pytest
import yaml

from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import Matrix, read_matrix
from warpfront.matrix.scaffold import _project_files

UBUNTU = "  ubuntu: {labels: ubuntu-24.04, trust: hosted, builds: true}\n"
MINE = "  mine: {labels: [self-hosted, h100], trust: self-hosted, vendor: nvidia, targets: sm_90}\n"


def read(runners: str) -> Matrix:
    text = f"{_project_files()['matrix.yaml']}\nrunners:\n{runners}"
    return read_matrix(text, path="matrix.yaml", compat=packaged())


def test_a_runner_is_found_by_its_labels_and_verifies_what_it_has() -> None:
    ubuntu, mine = read(UBUNTU + MINE).runners
    assert (ubuntu.labels, ubuntu.builds, ubuntu.targets) == (("ubuntu-24.04",), True, ())
    assert mine.labels == ("self-hosted", "h100")
    assert mine.verifies("nvidia", "sm_90", "x86_64")
    assert not mine.verifies("nvidia", "sm_80", "x86_64")
    assert not mine.verifies("nvidia", "sm_90", "aarch64")
    assert not mine.verifies("amd", "sm_90", "x86_64")


def test_what_a_night_times_follows_from_the_devices_unless_it_is_said() -> None:
    ubuntu, mine = read(UBUNTU + MINE).runners
    assert (ubuntu.bench, mine.bench, mine.slower_share) == ("", "default", 0.05)
    (own,) = read(UBUNTU.replace("true", "true, vendor: cpu, targets: x86_64")).runners
    assert own.bench == "tiny"
    said = MINE.replace("sm_90", "sm_90, bench: seed, max_slower: 2.5%")
    assert [(one.bench, one.slower_share) for one in read(UBUNTU + said).runners][1] == (
        "seed",
        0.025,
    )
    none = MINE.replace("sm_90", "sm_90, bench: none")
    assert read(UBUNTU + none).runners[1].bench == ""
    with pytest.raises(MatrixError, match="no targets to time on"):
        read(UBUNTU.replace("true", "true, bench: tiny"))
    with pytest.raises(MatrixError, match="max_slower"):
        read(UBUNTU + MINE.replace("sm_90", "sm_90, max_slower: fast"))


def test_a_scale_set_is_found_by_its_name() -> None:
    (runner,) = read("  arc: {scale_set: linux-mi300, trust: self-hosted, builds: true}\n").runners
    assert (runner.labels, runner.group) == (("linux-mi300",), "")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("labels: [self-hosted, h100]", "is found by `labels` or by a `scale_set`"),
        ("targets: sm_90", "needs both `vendor` and `targets`"),
        ("vendor: nvidia, targets: sm_90", "neither builds nor verifies"),
    ],
)
def test_what_is_missing_is_said_with_its_line(changed: str, said: str) -> None:
    with pytest.raises(MatrixError, match=said) as caught:
        read(UBUNTU + MINE.replace(f"{changed}, ", "").replace(f", {changed}", ""))
    (problem,) = caught.value.problems
    lines = _project_files()["matrix.yaml"].count("\n") + 4
    assert problem.line == lines


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("sm_90", "gfx942", "`gfx942` is no target of nvidia"),
        ("vendor: nvidia", "vendor: nvidea", "`vendor` cannot be `nvidea`"),
        ("labels: [self-hosted, h100]", "labels: ['a b']", "is not a runner's label"),
        ("labels: [self-hosted, h100]", "scale_set: x, group: y", "needs no `group`"),
        ("trust: self-hosted", "trust: mine", "write one of: hosted, self-hosted"),
        ("vendor: nvidia, targets: sm_90", "vendor: cpu, targets: aarch64", "is a machine"),
    ],
)
def test_what_is_wrong_is_said(right: str, wrong: str, said: str) -> None:
    with pytest.raises(MatrixError, match=said):
        read(UBUNTU + MINE.replace(right, wrong))


def test_somebody_has_to_build() -> None:
    with pytest.raises(MatrixError, match="no runner builds images"):
        read(MINE)


def test_a_table_is_no_must() -> None:
    assert (
        read_matrix(_project_files()["matrix.yaml"], path="matrix.yaml", compat=packaged()).runners
        == ()
    )
    assert yaml.load(UBUNTU, yaml.CSafeLoader)
