"""What a wheel leaves in site-packages is read from its own bytes, once, and its RECORD must say
the same.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from standins import stand_in_wheel

from warpfront.errors import StoreError, WheelError
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store import unpacked
from warpfront.wheels.store.unpacked import read_unpacked, unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse, sha256_of
from warpfront_checks.guard.measuring import measure

FILES: Mapping[str, str | bytes] = {
    "torch/__init__.py": "import os\n",
    "torch/lib/libtorch.so": b"\x7fELF" * 1000,
    "torch/__init__.pyc": b"x",
    "torch-2.13.0.data/purelib/torchgen/__init__.py": "",
    "torch-2.13.0.data/scripts/torchrun": "#!python\n",
    "torch-2.13.0.data/data/share/doc.txt": "x",
}
INFO = "torch-2.13.0.dist-info"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return stand_in_wheel(tmp_path / "wheels", "torch", "2.13.0", files=FILES)


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def kept(house: Wheelhouse, wheel: Path) -> LockedWheel:
    _, sha256 = house.keep(wheel)
    return LockedWheel(
        name="torch",
        version="2.13.0",
        filename=wheel.name,
        sha256=sha256,
        size_bytes=wheel.stat().st_size,
        index="",
    )


def rewritten(wheel: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The wheel with other members; its RECORD as `change` leaves it."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return wheel


def test_it_is_what_an_installer_leaves_below_site_packages(wheel: Path, tmp_path: Path) -> None:
    found = read_unpacked(wheel)
    assert sorted(found) == [
        "torch-2.13.0.dist-info/METADATA",
        "torch-2.13.0.dist-info/WHEEL",
        "torch/__init__.py",
        "torch/__init__.pyc",  # Python would load it: only `__pycache__` is made anew
        "torch/lib/libtorch.so",
        "torchgen/__init__.py",
    ]
    library = b"\x7fELF" * 1000
    assert found["torch/lib/libtorch.so"] == [4000, hashlib.sha256(library).hexdigest()]
    site_packages = tmp_path / "site-packages"
    plain = stand_in_wheel(tmp_path, "torch", "2.13.0", files={"torch/__init__.py": "import os\n"})
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(site_packages)
    installed = measure(site_packages, ["torch"]).files["torch"]
    assert {path: list(one) for path, one in installed.items()} == read_unpacked(plain)


def test_it_is_read_once_for_each_wheel(
    house: Wheelhouse, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = kept(house, wheel)
    first = unpacked_files(house, locked)
    monkeypatch.setattr(unpacked, "read_unpacked", None)
    assert unpacked_files(house, locked) == first


@pytest.mark.parametrize("damage", [b"", b"\xff", b"0" * 64 + b"\n{}"])
def test_what_was_kept_and_is_damaged_is_read_again(
    house: Wheelhouse, wheel: Path, damage: bytes
) -> None:
    locked = kept(house, wheel)
    first = unpacked_files(house, locked)
    [file] = house.path(locked).parent.glob(".*.unpacked-*")
    file.write_bytes(damage)
    assert unpacked_files(house, locked) == first
    assert file.read_bytes() != damage


def test_one_flipped_bit_in_what_was_kept_is_noticed(house: Wheelhouse, wheel: Path) -> None:
    locked = kept(house, wheel)
    first = unpacked_files(house, locked)
    [file] = house.path(locked).parent.glob(".*.unpacked-*")
    data = bytearray(file.read_bytes())
    data[data.index(b'"torch/lib') + 40] ^= 1
    file.write_bytes(data)
    assert unpacked_files(house, locked) == first


def test_a_read_only_wheelhouse_is_read_each_time(
    house: Wheelhouse, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("read-only file system")

    monkeypatch.setattr(unpacked, "write_text", refuse)
    assert unpacked_files(house, kept(house, wheel)) == read_unpacked(wheel)


def _forge_hash(members: dict[str, bytes]) -> None:
    members["torch/__init__.py"] = b"import re\n"


def _add_unlisted(members: dict[str, bytes]) -> None:
    members["torch/hook.py"] = b""


def _drop_listed(members: dict[str, bytes]) -> None:
    del members["torch/lib/libtorch.so"]


def _drop_record(members: dict[str, bytes]) -> None:
    del members[f"{INFO}/RECORD"]


def _break_record(members: dict[str, bytes]) -> None:
    members[f"{INFO}/RECORD"] = b'"torch'


def _second_record(members: dict[str, bytes]) -> None:
    members["other-1.dist-info/RECORD"] = b""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_forge_hash, r"its RECORD says sha256=.* of torch/__init__\.py, which has another"),
        (_add_unlisted, "its RECORD does not list torch/hook.py"),
        (_drop_listed, "its RECORD lists torch/lib/libtorch.so, which it does not hold"),
        (_drop_record, "holds 0 RECORDs, not one"),
        (_second_record, "holds 2 RECORDs, not one"),
        (_break_record, "its RECORD cannot be read"),
    ],
)
def test_a_record_that_is_not_true_is_refused(
    wheel: Path, change: Callable[[dict[str, bytes]], None], said: str
) -> None:
    with pytest.raises(WheelError, match=said) as raised:
        read_unpacked(rewritten(wheel, change))
    assert raised.value.hint


def test_two_members_of_one_name_are_refused(wheel: Path) -> None:
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(wheel, "a") as archive,
    ):
        archive.writestr("torch/__init__.py", "import re\n")
    with pytest.raises(WheelError, match=r"holds torch/__init__\.py 2 times"):
        read_unpacked(wheel)


def test_hashes_of_another_kind_are_left_to_whoever_wrote_them(wheel: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        rows = list(csv.reader(io.StringIO(members[f"{INFO}/RECORD"].decode())))
        digest = base64.urlsafe_b64encode(hashlib.sha512(b"").digest()).decode().rstrip("=")
        lines = [",".join([name, f"sha512={digest}", ""]) for name, *_ in rows]
        members[f"{INFO}/RECORD"] = "\n".join(lines).encode()

    before = read_unpacked(wheel)
    assert read_unpacked(rewritten(wheel, change)) == before


@pytest.mark.parametrize("data", [b"", b"no zip"])
def test_what_is_no_wheel_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "torch-1-py3-none-any.whl"
    path.write_bytes(data)
    with pytest.raises(WheelError, match=r"torch-1-py3-none-any\.whl: not a readable wheel"):
        read_unpacked(path)


def test_a_damaged_member_is_refused_by_name(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    data[len(data) // 4] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(WheelError, match="not a readable wheel"):
        read_unpacked(wheel)


def test_a_wheel_that_is_not_in_the_wheelhouse_is_said(house: Wheelhouse, wheel: Path) -> None:
    locked = LockedWheel(
        name="torch",
        version="2.13.0",
        filename=wheel.name,
        sha256=sha256_of(wheel),
        size_bytes=wheel.stat().st_size,
        index="",
    )
    with pytest.raises(WheelError, match="not in the wheelhouse"):
        unpacked_files(house, locked)
