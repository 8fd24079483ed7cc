"""Names without a candidate: which source hides which version, and what nobody has. The real uv, on
indexes on loopback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Fault, Index, serve_index, stand_in_wheel

from warpfront.errors import BlockedError, LockError
from warpfront.matrix.cell import WheelIndex
from warpfront.matrix.language import OwnIndex
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import FLAT_PAGE, Site, probe
from warpfront.wheels.store.wheelhouse import Wheelhouse

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Index]:
    """A partial mirror."""
    folder = tmp_path / "mirror"
    stand_in_wheel(folder, "app", "1.0", requires=["lib>=2"])
    stand_in_wheel(folder, "lib", "1.5")
    with serve_index(folder, name="mirror") as index:
        yield index


@pytest.fixture
def pypi(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "pypi"
    for version in ("1.5", "2.0", "2.1", "3.0rc1"):
        stand_in_wheel(folder, "lib", version)
    stand_in_wheel(folder, "lib", "4.0", tag="cp27-cp27m-manylinux1_x86_64")
    stand_in_wheel(folder, "old", "1.0", tag="cp27-cp27m-manylinux1_x86_64")
    stand_in_wheel(folder, "both", "1.0", requires=["lib<2"])
    stand_in_wheel(folder, "torch", "2.13.0+cpu")
    with serve_index(folder, name="simple") as index:
        yield index


class Locks:
    def __init__(self, mirror: Index, pypi: Index, folder: Path) -> None:
        self.site = Site(index_url=pypi.url, extra_index_urls=(mirror.url,))
        self.folder = folder
        self.said: list[str] = []

    def lock(self, *requirements: str, **changes: object) -> WheelLock:
        inputs = LockInputs(
            cell_id="cell-torch2130",
            python="3.11",
            machine="x86_64",
            glibc="2.36",
            index=None,
            stack_requirements=(),
            requirements=requirements,
        )
        return resolve_by_uv(
            dataclasses.replace(inputs, **changes),  # type: ignore[arg-type]
            self.site,
            on_line=self.said.append,
            wheelhouse=Wheelhouse(self.folder / "house"),
        )

    def refusal(self, *requirements: str, **changes: object) -> LockError:
        with pytest.raises(LockError) as caught:
            self.lock(*requirements, **changes)
        return caught.value


@pytest.fixture
def locks(mirror: Index, pypi: Index, tmp_path: Path) -> Locks:
    return Locks(mirror, pypi, tmp_path)


@pytest.mark.parametrize("wanted", ["lib==2.1", "lib>=2", "lib>=2,<3"])
def test_a_version_that_an_earlier_index_hides_is_named_with_both(
    locks: Locks, mirror: Index, pypi: Index, wanted: str
) -> None:
    error = locks.refusal(wanted)
    assert f"{pypi.url} has 2.1, and {mirror.url} hides it" in error.message
    assert "something that it requires is not to be had" in error.message
    assert error.hint.startswith("ask for lib==1.5, or ")
    assert "matrix.yaml: change" not in error.hint


def test_a_demand_of_a_package_is_explained_as_the_images_own(locks: Locks, pypi: Index) -> None:
    assert f"{pypi.url} has 2.1" in locks.refusal("app").message


def test_the_line_of_the_hint_gives_the_name_to_the_other_index(locks: Locks, pypi: Index) -> None:
    own = (OwnIndex(name="own-lib", url=pypi.url, packages=("lib",)),)
    (wheel,) = locks.lock("lib==2.1", own_indexes=own).wheels
    assert (wheel.version, wheel.index) == ("2.1", pypi.url)


def test_a_package_that_no_source_has_is_said_to_be_so(
    locks: Locks, mirror: Index, pypi: Index
) -> None:
    error = locks.refusal("no-such-name>=1")
    said = f"no-such-name: there is no package of that name in {mirror.url}, {pypi.url}"
    assert said in error.message
    assert error.hint.startswith("correct the name, or give the index that has it")


@pytest.mark.parametrize(("wanted", "newest"), [("lib==9", "2.1"), ("lib==4.0", "2.1")])
def test_a_version_that_no_source_has_is_said_with_what_they_have(
    locks: Locks, pypi: Index, mirror: Index, wanted: str, newest: str
) -> None:
    error = locks.refusal(wanted)
    assert f"{wanted}: no source has such a version" in error.message
    assert f"{mirror.url} has 1.5 at most, {pypi.url} has {newest} at most" in error.message


def test_a_package_for_other_pythons_alone_is_said_so(locks: Locks, pypi: Index) -> None:
    error = locks.refusal("old==1.0")
    assert f"old==1.0: no source has such a version: {pypi.url} has no wheel" in error.message


def test_a_torch_that_the_cells_index_lacks_is_a_matter_of_the_row(
    locks: Locks, pypi: Index
) -> None:
    error = locks.refusal(
        index=WheelIndex(name="cpu", url=pypi.url), stack_requirements=("torch==2.14.0+cpu",)
    )
    assert f"torch==2.14.0+cpu: no source has such a version: {pypi.url} has 2.13.0+cpu" in (
        error.message
    )
    assert error.hint == "name another `torch:` or `index:` for the row in matrix.yaml"


def test_what_excludes_each_other_is_no_absence(locks: Locks) -> None:
    error = locks.refusal("lib<1.5", "lib>=1.5", "both")
    assert "its requirements cannot be met together" in error.message
    assert error.hint == "these requirements exclude each other: change one of them"


def test_a_source_that_fails_leaves_the_answer_open(locks: Locks, mirror: Index) -> None:
    mirror.fail("/lib/", Fault(status=500))
    with pytest.raises((LockError, BlockedError)) as caught:
        locks.lock("app")
    assert "hides" not in caught.value.message
    assert "there is no package" not in caught.value.message


@pytest.fixture
def flat(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "flat"
    wheel = stand_in_wheel(folder, "torch", "2.13.0+cpu")
    with serve_index(folder, name="flat") as index:
        index.root = f'<a href="{wheel.name}">{wheel.name}</a>'
        yield index


def test_a_page_of_wheels_given_as_the_cells_index_is_recognised(locks: Locks, flat: Index) -> None:
    flat.fail("/torch/", Fault(status=404))
    error = locks.refusal(
        "lib",
        index=WheelIndex(name="cpu", url=flat.url),
        stack_requirements=("torch==2.13.0+cpu",),
    )
    assert FLAT_PAGE in error.message
    assert "global.find-links FOLDER" in error.hint


def test_a_page_of_wheels_given_as_a_companys_index_is_recognised(
    locks: Locks, flat: Index
) -> None:
    flat.fail("/acme/", Fault(status=404))
    own = (OwnIndex(name="company", url=flat.url, packages=("acme",)),)
    error = locks.refusal("acme", own_indexes=own)
    assert f"acme: {flat.url}: {FLAT_PAGE}" in error.message
    assert "global.find-links FOLDER" in error.hint


def test_a_folder_of_wheels_given_as_an_index_is_recognised(flat: Index) -> None:
    assert probe(Site(), flat.folder.as_uri(), "torch") == FLAT_PAGE


def test_an_index_that_lacks_the_name_is_no_flat_page(pypi: Index) -> None:
    pypi.root = '<a href="/whl/simple/lib/">lib</a>'
    assert "HTTP 404" in probe(Site(), pypi.url, "nothing")
