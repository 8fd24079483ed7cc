"""An index is a level of trust: what another one offers under a protected name is never taken,
built or run. By the real uv, against loopback indexes.
"""

from __future__ import annotations

import dataclasses
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Fault, Index, rocm64_stand_ins, serve_index, stand_in_wheel

from warpfront.errors import BlockedError, LockError
from warpfront.matrix.cell import Recipe, Source, WheelIndex
from warpfront.matrix.language import OwnIndex, Patch
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.pylock import dump_lock, read_lock, staleness
from warpfront.wheels.lock.values import PYPI, LockedWheel, LockInputs, WheelLock
from warpfront.wheels.resolve.resolver import (
    Contradiction,
    Resolution,
    Sdist,
    Terms,
    UvResolver,
    wheel_of,
)
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse, sha256_of

TORCH = "torch==2.8.0+rocm6.4"
TAG = "cp311-cp311-manylinux_2_28_x86_64"

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]


@pytest.fixture
def rocm(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm64_stand_ins(tmp_path / "rocm"), name="rocm6.4") as index:
        yield index


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Index]:
    """What anybody can publish to."""
    stand_in_wheel(tmp_path / "public", "numpy", "2.4.6")
    with serve_index(tmp_path / "public", name="simple") as index:
        yield index


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Index]:
    stand_in_wheel(tmp_path / "company", "acme-tools", "1.0")
    with serve_index(tmp_path / "company", name="company") as index:
        yield index


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def inputs_for(of: Index, **changes: object) -> LockInputs:
    inputs = LockInputs(
        cell_id="cell",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name=of.name, url=of.url),
        stack_requirements=(TORCH,),
        requirements=("numpy",),
        toolkit="rocm",
        protected=VENDORS["amd"].protected,
    )
    return dataclasses.replace(inputs, **changes)  # type: ignore[arg-type]


def locked(inputs: LockInputs, site: Site, house: Wheelhouse) -> WheelLock:
    return resolve_by_uv(inputs, site, on_line=lambda _: None, wheelhouse=house)


def by_name(lock: WheelLock) -> dict[str, LockedWheel]:
    return {wheel.name: wheel for wheel in lock.wheels}


def hostile_sdist(folder: Path, name: str, version: str, mark: Path) -> Path:
    """A source archive whose setup.py leaves `mark`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    setup = (
        "from pathlib import Path\nfrom setuptools import setup\n"
        f"Path({str(mark)!r}).write_text('ran')\nsetup(name={name!r}, version={version!r})\n"
    )
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in (
            ("setup.py", setup),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            member = tarfile.TarInfo(f"{name}-{version}/{inside}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize(
    ("name", "version", "build"),
    [
        ("pytorch-triton-rocm", "3.4.0", "9"),
        ("pytorch-triton-rocm", "3.4.0.post1", ""),
        ("torch", "2.8.0+rocm6.4", "9"),
    ],
    ids=["a higher build tag", "a higher version", "torch itself"],
)
@pytest.mark.parametrize("where", ["index", "extra", "find-links page"])
def test_a_protected_name_never_comes_from_another_index(
    rocm: Index,
    public: Index,
    house: Wheelhouse,
    *,
    name: str,
    version: str,
    build: str,
    where: str,
) -> None:
    stand_in_wheel(public.folder, name, version, build=build, tag=TAG, files={"evil.py": ""})
    own = f"http://127.0.0.1:{rocm.port}/whl/{rocm.name}"
    site = {
        "index": Site(index_url=public.url),
        "extra": Site(index_url=public.url, extra_index_urls=(public.url,)),
        "find-links page": Site(
            index_url=public.url, find_links=(f"{public.url}/{name}/", f"{public.url}/numpy/")
        ),
    }[where]
    lock = by_name(locked(inputs_for(rocm), site, house))
    taken = rocm.folder / lock[name].filename
    assert taken.is_file(), "its file is one of the cell's index"
    assert lock[name].index == own
    assert not [path for path, _ in public.requests if path.endswith(f"{TAG}.whl")]


def test_a_name_that_the_cells_index_lacks_is_not_taken_from_another(
    rocm: Index, public: Index, house: Wheelhouse
) -> None:
    stand_in_wheel(public.folder, "rocm-sdk-core", "7.14.99")
    stand_in_wheel(public.folder, "app", "1.0", requires=["rocm-sdk-core"])
    with pytest.raises(
        LockError, match=f"rocm-sdk-core: there is no package of that name in {rocm.url}"
    ):
        locked(inputs_for(rocm, requirements=("app",)), Site(index_url=public.url), house)


def test_what_the_image_below_holds_is_found_wherever_the_site_has_it(
    rocm: Index, public: Index, company: Index, house: Wheelhouse
) -> None:
    """A mirror has older versions of some names; the lock of the image below came from elsewhere.
    The same file is taken by its hash, and no other of its version.
    """
    below = locked(inputs_for(rocm), Site(index_url=public.url), house)
    held = by_name(below)["numpy"]
    stand_in_wheel(company.folder, "numpy", "2.0")
    inputs = inputs_for(
        rocm,
        requirements=("acme-tools",),
        parent=tuple(f"{one.name}=={one.version}" for one in below.wheels),
    )
    site = Site(index_url=public.url, extra_index_urls=(company.url,))

    def above() -> WheelLock:
        return resolve_by_uv(inputs, site, on_line=lambda _: None, wheelhouse=house, parent=below)

    assert by_name(above())["numpy"] == held
    stand_in_wheel(public.folder, "numpy", held.version, files={"numpy/other.py": "1"})
    with pytest.raises(LockError, match=f"no version of numpy=={held.version}"):
        above()


def test_a_name_that_only_a_wrong_index_fits_is_found_on_the_right_one(
    rocm: Index, public: Index, house: Wheelhouse
) -> None:
    """A placeholder on PyPI contradicts before uv ever says which names it met."""
    stand_in_wheel(public.folder, "rocm-sdk-core", "0.1")
    stand_in_wheel(rocm.folder, "rocm-sdk-core", "7.14.0")
    stand_in_wheel(public.folder, "app", "1.0", requires=["rocm-sdk-core==7.14.*"])
    lock = locked(inputs_for(rocm, requirements=("app",)), Site(index_url=public.url), house)
    assert by_name(lock)["rocm-sdk-core"].index == rocm.url


@pytest.mark.parametrize("stack_in_folder", [True, False])
def test_a_silent_index_is_replaced_by_a_folder_and_by_no_other_index(
    rocm: Index, public: Index, house: Wheelhouse, *, stack_in_folder: bool
) -> None:
    """Of the wheels in the folder uv's cache keeps none unpacked."""
    for wheel in sorted(rocm.folder.glob("*.whl")):
        (public.folder / wheel.name).write_bytes(wheel.read_bytes())
    down = WheelIndex(name="rocm6.4", url="http://127.0.0.1:9/whl/rocm6.4")
    folders = (str(rocm.folder),) if stack_in_folder else ()
    site = Site(index_url=public.url, find_links=folders)
    inputs = inputs_for(rocm, index=down)
    if stack_in_folder:
        torch = by_name(locked(inputs, site, house))["torch"]
        assert torch.index == down.url
        assert torch.sha256 == sha256_of(rocm.folder / torch.filename)
        cache = Path(os.environ["UV_CACHE_DIR"])
        assert not list(cache.glob("archive-v0/*/torch-*"))
    else:
        with pytest.raises(BlockedError, match="connection refused"):
            locked(inputs, site, house)


def test_an_index_that_fails_for_one_name_blocks_the_cell(
    rocm: Index, public: Index, house: Wheelhouse
) -> None:
    rocm.fail("/pytorch-triton-rocm/", Fault(status=500))
    stand_in_wheel(public.folder, "pytorch-triton-rocm", "3.4.0", tag=TAG)
    with pytest.raises(BlockedError, match="HTTP 500"):
        locked(inputs_for(rocm), Site(index_url=public.url), house)


@pytest.mark.parametrize("name", ["rocm", "app"])
def test_no_setup_py_of_an_index_runs_while_locking(
    rocm: Index, public: Index, house: Wheelhouse, tmp_path: Path, name: str
) -> None:
    mark = tmp_path / "mark"
    hostile_sdist(public.folder, name, "7.14.99", mark)
    with pytest.raises(LockError):
        locked(inputs_for(rocm, requirements=(name,)), Site(index_url=public.url), house)
    assert not mark.exists()


def test_no_setup_py_runs_for_what_is_built_or_asked_before_an_install(
    rocm: Index, public: Index, house: Wheelhouse, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    hostile_sdist(public.folder, "app", "1.0", mark)
    hostile_sdist(public.folder, "rocm", "7.14.99", mark)
    site = Site(index_url=public.url)
    with site.transport() as transport:
        resolver = UvResolver(inputs_for(rocm), transport, on_line=lambda _: None, wheelhouse=house)
        found = resolver.resolution((TORCH, "app"), Terms(unread=("app",)))  # as `builds:` asks
        assert isinstance(found, Resolution)
        assert found.versions["app"] == "1.0"
        refused = resolver.resolution(("rocm",), Terms(unread=("rocm",)))
    assert isinstance(refused, Contradiction), "not even its archive is taken from elsewhere"
    assert not mark.exists()


class InContainer:
    """Has for every archive a wheel that demands einops, and asks no engine for it."""

    def __init__(self, house: Wheelhouse, folder: Path) -> None:
        self._house = house
        self._folder = folder

    def from_source(self, source: Source) -> tuple[LockedWheel, Recipe | None]:
        raise AssertionError(source)

    def from_wheel(self, original: LockedWheel, patches: tuple[Patch, ...]) -> LockedWheel:
        raise AssertionError((original, patches))

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, Recipe]:
        made = stand_in_wheel(self._folder, recipe.package, "1.0", requires=["einops"])
        kept, sha256 = self._house.keep(made)
        build = Recipe(package=recipe.package, tools=recipe.tools)
        return wheel_of(kept, sha256, sdist=sdist), build


def test_what_may_be_built_is_resolved_again_with_what_its_wheel_demands(
    rocm: Index, public: Index, house: Wheelhouse, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    archive = hostile_sdist(public.folder, "app", "1.0", mark)
    stand_in_wheel(public.folder, "einops", "0.8.1")
    lock = resolve_by_uv(
        inputs_for(rocm, requirements=("app",), allow_builds=("app",)),
        Site(index_url=public.url),
        on_line=lambda _: None,
        wheelhouse=house,
        crafting=InContainer(house, tmp_path / "built"),
    )
    wheels = by_name(lock)
    assert wheels["einops"].version == "0.8.1"
    assert (wheels["app"].sdist, wheels["app"].index) == (archive.name, PYPI)
    assert [one.package for one in lock.builds] == ["app"]
    assert not mark.exists()


def test_a_companys_names_come_from_its_index_only(
    rocm: Index, public: Index, company: Index, house: Wheelhouse
) -> None:
    stand_in_wheel(public.folder, "acme-tools", "99.0")
    stand_in_wheel(public.folder, "acme-secret", "99.0")
    own = OwnIndex(name="company", url=company.url, packages=("acme-*",))
    inputs = inputs_for(rocm, requirements=("acme-tools",), own_indexes=(own,))
    wheel = by_name(locked(inputs, Site(index_url=public.url), house))["acme-tools"]
    assert (wheel.version, wheel.index) == ("1.0", company.url)
    absent = dataclasses.replace(inputs, requirements=("acme-secret",))
    with pytest.raises(
        LockError, match=f"acme-secret: there is no package of that name in {company.url}"
    ):
        locked(absent, Site(index_url=public.url), house)


def test_what_nobody_claimed_comes_from_the_first_index_that_has_it(
    rocm: Index, public: Index, company: Index, house: Wheelhouse
) -> None:
    stand_in_wheel(public.folder, "acme-tools", "99.0")
    site = Site(index_url=public.url, extra_index_urls=(company.url,))
    lock = by_name(locked(inputs_for(rocm, requirements=("acme-tools",)), site, house))
    assert lock["acme-tools"].version == "1.0"


@pytest.mark.parametrize(
    ("name", "index", "reason"),
    [
        ("torch", PYPI, "it claims torch from https://pypi.org/simple, which belongs to http"),
        ("acme-tools", PYPI, "it claims acme-tools from https://pypi.org/simple"),
        ("numpy", "https://elsewhere.test/simple", "it claims numpy from https://elsewhere.test"),
    ],
)
def test_a_lock_that_claims_another_index_is_refused(
    rocm: Index,
    public: Index,
    company: Index,
    house: Wheelhouse,
    *,
    name: str,
    index: str,
    reason: str,
) -> None:
    own = OwnIndex(name="company", url=company.url, packages=("acme-*",))
    inputs = inputs_for(rocm, requirements=("numpy", "acme-tools"), own_indexes=(own,))
    lock = locked(inputs, Site(index_url=public.url), house)
    assert staleness(lock, inputs) == ""
    edited = tuple(
        dataclasses.replace(wheel, index=index) if wheel.name == name else wheel
        for wheel in lock.wheels
    )
    assert staleness(dataclasses.replace(lock, wheels=edited), inputs).startswith(reason)


def test_the_libraries_of_torch_come_from_the_cells_index_where_it_has_them(
    public: Index, house: Wheelhouse, tmp_path: Path
) -> None:
    vendor = VENDORS["nvidia"]
    folder = tmp_path / "cu130"
    stand_in_wheel(folder, "torch", "2.9.0+cu130", requires=["nvidia-cublas"])
    stand_in_wheel(folder, "nvidia-cublas", "13.0")
    for name in ("nvidia-cublas", "nvidia-ml-py"):
        stand_in_wheel(public.folder, name, "99.0")
    with serve_index(folder, name="cu130") as index:
        inputs = inputs_for(
            index,
            stack_requirements=("torch==2.9.0+cu130",),
            requirements=("nvidia-ml-py",),
            toolkit="cuda",
            protected=vendor.protected,
            libraries=vendor.libraries,
        )
        lock = by_name(locked(inputs, Site(index_url=public.url), house))
    assert (lock["nvidia-cublas"].version, lock["nvidia-cublas"].index) == ("13.0", index.url)
    assert (lock["nvidia-ml-py"].version, lock["nvidia-ml-py"].index) == ("99.0", PYPI)


def test_a_variant_is_never_chosen_by_the_machine_that_locks(
    rocm: Index, public: Index, house: Wheelhouse
) -> None:
    plain = stand_in_wheel(public.folder, "app", "1.0", tag=TAG)
    for label in ("x86_64_v3", "cu130"):
        (public.folder / f"app-1.0-{TAG}-{label}.whl").write_bytes(plain.read_bytes())
        (public.folder / f"app-2.0-{TAG}-{label}.whl").write_bytes(plain.read_bytes())
    inputs = inputs_for(rocm, requirements=("app",))
    lock = locked(inputs, Site(index_url=public.url), house)
    assert by_name(lock)["app"].filename == plain.name
    swapped = dump_lock(lock).replace(plain.name, f"app-1.0-{TAG}-cu130.whl")
    with pytest.raises(LockError, match="app"):
        read_lock(swapped, path="pylock.cell.toml")
