"""The wheelhouse against a real index on loopback that misbehaves in every way we know of."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest
from raw_answers import an_answer, sending
from standins import Fault, Index, serve_index, stand_in_wheel

from warpfront.errors import StoreError, WheelError
from warpfront.system.store import place_program
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.sources import NoAnswer, Site, links, read_links
from warpfront.wheels.store import wheelhouse as wheelhouse_module
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront.wheels.transport import Transport

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse_module, "PAUSES_SECONDS", (0.01, 0.01, 0.02))


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    """A folder with five wheels of 200 kB that do not compress."""
    folder = tmp_path / "offered"
    for name in NAMES:
        noise = random.Random(name).randbytes(200_000)
        stand_in_wheel(folder, name, "1.0", files={f"{name}/data.bin": noise})
    return folder


@pytest.fixture
def index(offered: Path) -> Iterator[Index]:
    with serve_index(offered) as running:
        yield running


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house", stall_seconds=2.0)


def locked(index_url: str, folder: Path, *names: str) -> tuple[LockedWheel, ...]:
    return tuple(_locked(index_url, folder / f"{name}-1.0-py3-none-any.whl") for name in names)


def _locked(index_url: str, path: Path) -> LockedWheel:
    data = path.read_bytes()
    return LockedWheel(
        name=path.name.split("-")[0],
        version="1.0",
        filename=path.name,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        index=index_url,
    )


def only(index: Index, **changes: object) -> Site:
    site = Site(index_url=index.url)
    return dataclasses.replace(site, **changes)  # type: ignore[arg-type]


def quiet(_filename: str, _done: int, _total: int) -> None:
    """No progress wanted."""


def parts(house: Wheelhouse) -> list[str]:
    return sorted(path.name for path in house.root.rglob("*.part"))


def test_every_wheel_comes_with_progress_and_a_second_fetch_asks_nothing(
    house: Wheelhouse, index: Index
) -> None:
    wheels = locked(index.url, index.folder, *NAMES)
    seen: dict[str, list[tuple[int, int]]] = {}
    fetched = house.fetch(
        wheels,
        only(index),
        on_progress=lambda name, done, total: seen.setdefault(name, []).append((done, total)),
    )
    assert fetched == wheels
    assert house.missing(wheels) == ()
    for wheel in wheels:
        assert seen[wheel.filename][-1] == (wheel.size_bytes, wheel.size_bytes)
        assert house.path(wheel).read_bytes() == (index.folder / wheel.filename).read_bytes()
    asked = len(index.requests)
    assert house.fetch(wheels, only(index), on_progress=quiet) == ()
    assert len(index.requests) == asked
    assert parts(house) == []


def test_wrong_bytes_are_refused_removed_and_named(house: Wheelhouse, index: Index) -> None:
    index.fail("alpha-1.0", Fault(corrupt=True))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError) as caught:
        house.fetch((wheel,), only(index), on_progress=quiet)
    message = caught.value.message
    assert wheel.filename in message
    assert wheel.sha256 in message
    assert index.url in message
    bad = index.folder.joinpath(wheel.filename).read_bytes()
    bad = bad[:-1] + bytes([bad[-1] ^ 1])
    assert hashlib.sha256(bad).hexdigest() in message
    assert house.missing((wheel,)) == (wheel,)
    assert [path.stat().st_size for path in house.root.rglob("*.part")] in ([], [0])


def test_a_source_that_announces_other_bytes_is_not_even_downloaded(
    house: Wheelhouse, index: Index
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    other = dataclasses.replace(wheel, sha256="0" * 64)
    with pytest.raises(WheelError, match="offers other bytes"):
        house.fetch((other,), only(index), on_progress=quiet)
    assert index.downloads(wheel.filename) == []


def test_a_truncated_download_goes_on_by_range(house: Wheelhouse, index: Index) -> None:
    index.fail("alpha-1.0", Fault(truncate_at=70_000, times=2))
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert house.missing((wheel,)) == ()
    ranges = index.downloads(wheel.filename)
    assert ranges[0] == ""
    assert all(range_.startswith("bytes=") for range_ in ranges[1:])


def test_a_truncated_download_starts_over_where_there_are_no_ranges(
    house: Wheelhouse, index: Index
) -> None:
    index.ranges = False
    index.fail("alpha-1.0", Fault(truncate_at=70_000, times=2))
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert house.missing((wheel,)) == ()


def test_a_wheel_that_is_always_cut_at_the_start_is_given_up(
    house: Wheelhouse, index: Index
) -> None:
    index.fail("alpha-1.0", Fault(truncate_at=0))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match="broke off"):
        house.fetch((wheel,), only(index), on_progress=quiet)
    assert len(index.downloads(wheel.filename)) == 4


@pytest.mark.parametrize("cut", ["shorter", "longer"])
def test_another_file_under_the_same_name_is_refused(
    house: Wheelhouse, index: Index, cut: str
) -> None:
    index.hash_name = ""
    (wheel,) = locked(index.url, index.folder, "alpha")
    path = index.folder / wheel.filename
    data = path.read_bytes()
    path.write_bytes(data[:-10] if cut == "shorter" else data + b"more")
    with pytest.raises(WheelError, match=str(wheel.size_bytes)):
        house.fetch((wheel,), only(index), on_progress=quiet)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_tried_again(house: Wheelhouse, index: Index, status: int) -> None:
    index.fail("/alpha", Fault(status=status, retry_after=0, times=3))
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert house.missing((wheel,)) == ()


def test_retry_after_is_obeyed(
    house: Wheelhouse, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(
        wheelhouse_module._Fetching, "_pause", lambda _, seconds: pauses.append(seconds)
    )
    index.fail("alpha-1.0", Fault(status=429, retry_after=7, times=1))
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert pauses == [7.0]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_lasts_is_not_tried_again(house: Wheelhouse, index: Index, status: int) -> None:
    index.fail("alpha-1.0", Fault(status=status))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match=f"HTTP {status}"):
        house.fetch((wheel,), only(index), on_progress=quiet)
    assert len(index.downloads(wheel.filename)) == 1


def test_an_index_that_always_fails_is_given_up_with_its_status(
    house: Wheelhouse, index: Index
) -> None:
    index.fail("/alpha/", Fault(status=500))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match="HTTP 500"):
        house.fetch((wheel,), only(index), on_progress=quiet)


def test_a_login_page_is_called_one(house: Wheelhouse, index: Index) -> None:
    index.fail("/alpha/", Fault(login=True))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match="login page"):
        house.fetch((wheel,), only(index), on_progress=quiet)


def test_a_login_page_instead_of_a_wheel_is_refused(house: Wheelhouse, index: Index) -> None:
    index.fail("alpha-1.0", Fault(login=True))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match="a page, not a wheel"):
        house.fetch((wheel,), only(index), on_progress=quiet)


def test_an_index_that_is_down_is_named_with_the_reason(house: Wheelhouse, offered: Path) -> None:
    with serve_index(offered) as gone:
        (wheel,) = locked(gone.url, offered, "alpha")
    with pytest.raises(WheelError, match="connection refused") as caught:
        house.fetch((wheel,), only(gone), on_progress=quiet)
    assert gone.url in caught.value.message
    assert caught.value.hint


def test_an_index_that_hangs_is_given_up(tmp_path: Path, index: Index) -> None:
    house = Wheelhouse(tmp_path / "house", stall_seconds=0.05)
    index.fail("alpha-1.0", Fault(hang_seconds=30))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError, match=r"in time|for too long"):
        house.fetch((wheel,), only(index), on_progress=quiet)


def test_a_slow_index_is_slow_and_not_an_error(tmp_path: Path, index: Index) -> None:
    house = Wheelhouse(tmp_path / "house", stall_seconds=0.3)
    index.fail("alpha-1.0", Fault(bytes_per_second=500_000))
    (wheel,) = locked(index.url, index.folder, "alpha")
    started = time.monotonic()
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert time.monotonic() - started > 0.3


def test_bytes_left_by_an_earlier_run_are_used(house: Wheelhouse, index: Index) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    target = house.path(wheel)
    target.parent.mkdir(parents=True)
    data = (index.folder / wheel.filename).read_bytes()
    target.with_name(f"{wheel.filename}.part").write_bytes(data[:150_000])
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert index.downloads(wheel.filename) == ["bytes=150000-"]


def test_spoilt_bytes_left_by_an_earlier_run_are_thrown_away(
    house: Wheelhouse, index: Index
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    target = house.path(wheel)
    target.parent.mkdir(parents=True)
    target.with_name(f"{wheel.filename}.part").write_bytes(b"x" * 150_000)
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert index.downloads(wheel.filename) == ["bytes=150000-", ""]
    assert house.missing((wheel,)) == ()


def test_a_find_links_folder_comes_before_any_index(
    house: Wheelhouse, index: Index, offered: Path
) -> None:
    (wheel,) = locked(index.url, offered, "alpha")
    house.fetch((wheel,), only(index, find_links=(str(offered),)), on_progress=quiet)
    assert index.requests == []
    assert house.path(wheel).samefile(offered / wheel.filename)


def test_a_local_wheel_with_other_bytes_is_refused(house: Wheelhouse, offered: Path) -> None:
    (wheel,) = locked("https://index.invalid/simple", offered, "alpha")
    path = offered / wheel.filename
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    site = Site(no_index=True, find_links=(offered.as_uri(),))
    with pytest.raises(WheelError, match="wrong bytes"):
        house.fetch((wheel,), site, on_progress=quiet)
    assert house.missing((wheel,)) == (wheel,)


def test_a_json_index_is_read_too(house: Wheelhouse, index: Index) -> None:
    index.json = True
    wheels = locked(index.url, index.folder, "alpha", "beta")
    assert len(house.fetch(wheels, only(index), on_progress=quiet)) == 2


def test_a_proxy_is_used_except_where_the_site_says_not(house: Wheelhouse, index: Index) -> None:
    (wheel,) = locked("http://index.invalid/simple", index.folder, "alpha")
    behind = Site(
        index_url="http://index.invalid/simple",
        proxies={"HTTP_PROXY": f"http://127.0.0.1:{index.port}"},
    )
    with pytest.raises(WheelError, match="HTTP 404"):
        house.fetch((wheel,), behind, on_progress=quiet)
    assert index.requests == [("http://index.invalid/simple/alpha/", "")]
    (wheel,) = locked(index.url, index.folder, "alpha")
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    house.fetch((wheel,), only(index, proxies=proxies), on_progress=quiet)
    assert house.missing((wheel,)) == ()


def test_a_failed_handshake_is_called_one(house: Wheelhouse, index: Index) -> None:
    url = index.url.replace("http:", "https:")
    (wheel,) = locked(url, index.folder, "alpha")
    with pytest.raises(WheelError, match="TLS broke off"):
        house.fetch((wheel,), Site(index_url=url), on_progress=quiet)


def test_no_index_means_no_index(house: Wheelhouse, index: Index) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError):
        house.fetch((wheel,), only(index, no_index=True), on_progress=quiet)
    assert index.requests == []


def test_a_mirrors_password_is_sent_and_never_printed(house: Wheelhouse, index: Index) -> None:
    site = only(index, credentials={index.url: ("user", "canary")})
    index.fail("/alpha/", Fault(status=403))
    (wheel,) = locked(index.url, index.folder, "alpha")
    with pytest.raises(WheelError) as caught:
        house.fetch((wheel,), site, on_progress=quiet)
    assert site.credentials_for(index.url) == ("user", "canary")
    for text in (caught.value.message, caught.value.hint, repr(site)):
        assert "canary" not in text


def test_one_bad_wheel_stops_the_others_and_the_next_run_goes_on(
    house: Wheelhouse, index: Index
) -> None:
    wheels = locked(index.url, index.folder, *NAMES)
    index.fail("alpha-1.0", Fault(corrupt=True))
    for name in NAMES[1:]:
        index.fail(f"{name}-1.0", Fault(bytes_per_second=100_000))
    with pytest.raises(WheelError, match="alpha"):
        house.fetch(wheels, only(index), on_progress=quiet)
    assert set(house.missing(wheels)) == set(wheels)
    index.heal()
    assert len(house.fetch(wheels, only(index), on_progress=quiet)) == 5


def test_two_at_once_fetch_each_wheel_once(house: Wheelhouse, index: Index) -> None:
    wheels = locked(index.url, index.folder, *NAMES)
    for name in NAMES:
        index.fail(f"{name}-1.0", Fault(bytes_per_second=600_000))
    failures: list[BaseException] = []

    def fetch() -> None:
        try:
            Wheelhouse(house.root).fetch(wheels, only(index), on_progress=quiet)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [len(index.downloads(wheel.filename)) for wheel in wheels] == [1] * len(wheels)
    assert parts(house) == []


def test_a_read_only_wheelhouse_that_is_complete_works(house: Wheelhouse, index: Index) -> None:
    wheels = locked(index.url, index.folder, "alpha")
    house.fetch(wheels, only(index), on_progress=quiet)
    before = sorted(path.stat().st_mtime_ns for path in house.root.rglob("*"))
    assert house.fetch(wheels, only(index), on_progress=quiet) == ()
    assert sorted(path.stat().st_mtime_ns for path in house.root.rglob("*")) == before


def test_a_wheelhouse_that_cannot_be_written_is_a_store_error(tmp_path: Path, index: Index) -> None:
    (tmp_path / "file").write_text("in the way")
    wheels = locked(index.url, index.folder, "alpha")
    with pytest.raises(StoreError, match="file") as caught:
        Wheelhouse(tmp_path / "file" / "house").fetch(wheels, only(index), on_progress=quiet)
    assert caught.value.hint


def test_a_view_holds_exactly_the_wheels_asked_for(
    house: Wheelhouse, index: Index, tmp_path: Path
) -> None:
    wheels = locked(index.url, index.folder, *NAMES)
    house.fetch(wheels, only(index), on_progress=quiet)
    folder = house.view(wheels[:3], tmp_path / "view")
    assert {path.name for path in folder.iterdir()} == {wheel.filename for wheel in wheels[:3]}
    assert (folder / wheels[0].filename).samefile(house.path(wheels[0]))
    made = folder.stat().st_ino
    assert house.view(wheels[:3], folder).stat().st_ino == made
    (folder / "stray.whl").write_bytes(b"")
    house.view(wheels[2:], folder)
    assert {path.name for path in folder.iterdir()} == {wheel.filename for wheel in wheels[2:]}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_view_of_a_missing_wheel_is_refused(house: Wheelhouse, offered: Path) -> None:
    (wheel,) = locked("https://index.invalid", offered, "alpha")
    with pytest.raises(WheelError, match="not in the wheelhouse"):
        house.view((wheel,), house.root / "view")


SCRIPT = """\
import sys
from pathlib import Path
from warpfront.errors import WarpfrontError
from warpfront.wheels.lock.pylock import read_lock
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse

lock = read_lock(Path(sys.argv[1]).read_text(), path=sys.argv[1])
print("started", flush=True)
try:
    fetched = Wheelhouse(Path(sys.argv[2])).fetch(
        lock.wheels, Site(index_url=sys.argv[3]), on_progress=lambda *_: None
    )
    print(len(fetched))
except WarpfrontError as error:
    print(type(error).__name__, error.message, error.hint)
    sys.exit(error.exit_code)
"""


def start(tmp_path: Path, root: Path, index: Index, *names: str) -> subprocess.Popen[str]:
    from warpfront.wheels.lock.pylock import dump_lock
    from warpfront.wheels.lock.values import WheelLock

    wheels = locked(index.url, index.folder, *names)
    lock = WheelLock(cell_id="cell", python="3.11", inputs_digest="0" * 64, wheels=wheels)
    path = tmp_path / "pylock.cell.toml"
    path.write_text(dump_lock(lock))
    argv = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), str(root), index.url]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_part(root: Path, size: int) -> None:
    for _ in range(2400):
        if any(path.stat().st_size >= size for path in root.rglob("*.part")):
            return
        time.sleep(0.05)
    raise AssertionError("no .part grew")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill"])
def test_an_interrupted_download_is_resumed(
    tmp_path: Path, house: Wheelhouse, index: Index, number: signal.Signals
) -> None:
    index.fail("alpha-1.0", Fault(bytes_per_second=40_000))
    child = start(tmp_path, house.root, index, "alpha")
    wait_for_part(house.root, 20_000)
    child.send_signal(number)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode != 0
    assert ("KeyboardInterrupt" in stderr) == (number == signal.SIGINT)
    (wheel,) = locked(index.url, index.folder, "alpha")
    assert house.missing((wheel,)) == (wheel,)
    assert [path.name for path in house.root.rglob("*") if path.is_file()] == [
        f"{wheel.filename}.part"
    ]
    index.heal()
    house.fetch((wheel,), only(index), on_progress=quiet)
    assert index.downloads(wheel.filename)[-1].startswith("bytes=")


@pytest.mark.process
def test_two_processes_fetch_each_wheel_once(
    tmp_path: Path, house: Wheelhouse, index: Index
) -> None:
    for name in NAMES:
        index.fail(f"{name}-1.0", Fault(bytes_per_second=800_000))
    children = [start(tmp_path, house.root, index, *NAMES) for _ in range(2)]
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, out + err
    wheels = locked(index.url, index.folder, *NAMES)
    assert [len(index.downloads(wheel.filename)) for wheel in wheels] == [1] * len(wheels)
    assert parts(house) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 256 kB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small filesystem needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.process
def test_a_full_disk_is_a_store_error_and_what_fitted_is_kept(
    small_disk: Path, index: Index
) -> None:
    wheels = locked(index.url, index.folder, "alpha", "beta")
    house = Wheelhouse(small_disk / "house")
    with pytest.raises(StoreError, match="No space left") as caught:
        house.fetch(wheels, only(index), on_progress=quiet)
    assert "free some space" in caught.value.hint
    assert len(house.missing(wheels)) >= 1


@pytest.mark.process
def test_a_disk_that_takes_a_part_of_the_last_piece_is_full_and_no_truncated_source(
    small_disk: Path, index: Index
) -> None:
    (small_disk / "full").write_bytes(bytes(100_000))
    with pytest.raises(StoreError, match="No space left"):
        Wheelhouse(small_disk / "house").fetch(
            locked(index.url, index.folder, "alpha"), only(index), on_progress=quiet
        )


@pytest.mark.process
def test_a_read_only_mount_serves_what_it_has_and_refuses_the_rest(
    small_disk: Path, index: Index, tmp_path: Path
) -> None:
    alpha, beta = locked(index.url, index.folder, "alpha", "beta")
    house = Wheelhouse(small_disk / "house")
    house.fetch((alpha,), only(index), on_progress=quiet)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert house.fetch((alpha,), only(index), on_progress=quiet) == ()
    view = house.view((alpha,), tmp_path / "view")
    assert (view / alpha.filename).read_bytes() == house.path(alpha).read_bytes()
    with pytest.raises(StoreError, match="Read-only file system"):
        house.fetch((beta,), only(index), on_progress=quiet)


@pytest.mark.parametrize("damage", ["a flipped bit", "an empty file"])
def test_a_damaged_wheel_is_found_and_fetched_again(
    house: Wheelhouse, index: Index, tmp_path: Path, damage: str
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    folder = house.view((wheel,), tmp_path / "view")
    good = house.path(wheel).read_bytes()
    house.path(wheel).chmod(0o644)
    bad = bytes([good[0] ^ 1]) + good[1:] if damage == "a flipped bit" else b""
    house.path(wheel).write_bytes(bad)
    assert house.missing((wheel,)) == (wheel,)
    assert len(house.fetch((wheel,), only(index), on_progress=quiet)) == 1
    assert (house.view((wheel,), folder) / wheel.filename).read_bytes() == good


@pytest.mark.parametrize("damage", [b"", b"\xb5", b"0 0 0"])
def test_a_damaged_note_that_a_wheel_is_intact_is_written_again(
    house: Wheelhouse, index: Index, damage: bytes
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)
    [note] = house.path(wheel).parent.glob(".*.intact")
    right = note.read_bytes()
    note.write_bytes(damage)
    assert house.missing((wheel,)) == ()
    assert note.read_bytes() == right


def test_a_wheel_is_hashed_once_as_long_as_nobody_writes_to_it(
    house: Wheelhouse, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    house.fetch((wheel,), only(index), on_progress=quiet)

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr("warpfront.wheels.store.wheelhouse.sha256_of", refuse)
    assert house.missing((wheel,)) == ()


@pytest.mark.parametrize("how", ["linked", "copied"])
def test_a_bit_that_a_disk_flipped_without_a_trace_is_found_by_reading(
    house: Wheelhouse, index: Index, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "copied":
        monkeypatch.setattr(os, "link", refuse_links)
    alpha, beta = locked(index.url, index.folder, "alpha", "beta")
    house.fetch((alpha, beta), only(index), on_progress=quiet)
    view = house.view((alpha, beta), tmp_path / "view")
    good = house.path(alpha).read_bytes()
    assert house.drop_damaged((alpha, beta), view) == ()
    tamper(view / alpha.filename)
    assert house.missing((alpha, beta)) == ()  # nothing that is cheap to ask for has changed
    assert house.drop_damaged((alpha, beta), view) == (alpha,)
    house.fetch((alpha, beta), only(index), on_progress=quiet)
    again = house.view((alpha, beta), tmp_path / "view")
    assert (again / alpha.filename).read_bytes() == house.path(alpha).read_bytes() == good


def refuse_links(*_: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def tamper(path: Path) -> None:
    """One bit of a file, and neither its size, time nor inode."""
    found = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(found.st_size // 2)
        byte = file.read(1)[0]
        file.seek(found.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_a_file_has_its_time_in_all_however_often_its_bytes_go_on(
    house: Wheelhouse, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = locked(index.url, index.folder, "alpha")
    index.fail(".whl", Fault(bytes_per_second=1_000_000))
    with monkeypatch.context() as patched, only(index).transport() as transport:
        patched.setattr(Transport, "deadline", lambda *_: 0.0)
        with pytest.raises(WheelError, match="its bytes come too slowly"):
            house.fetch((wheel,), only(index), on_progress=quiet)
        found = links(index.url, "alpha", transport, flat=False)
        assert isinstance(found, tuple)
        answer = wheelhouse_module.save(found[0], tmp_path / "file", transport)
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "its bytes come too slowly, or without end"
    assert Transport(only(index), connect_seconds=1, stall_seconds=1).deadline(655_360_000) == (
        pytest.approx(time.monotonic() + 900 + 10_000, abs=5)
    )


def test_a_head_that_comes_byte_by_byte_ends_after_its_time_in_all() -> None:
    """Each byte is in time; a time-out between bytes would wait for the last of them."""
    with (
        dripping("HTTP/1.1 200 OK\r\nX-Endless: ", "yes ") as url,
        Transport(Site(), connect_seconds=5, stall_seconds=0.2) as transport,
    ):
        answer = transport.open(url)
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "no answer, or too little of one, in time"
    gc.collect()  # which would warn of a line that is still open


def test_a_body_that_ends_in_lines_without_end_ends_after_its_time() -> None:
    head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
    with (
        dripping(head, "X: y\r\n") as url,
        Transport(Site(), connect_seconds=5, stall_seconds=0.2) as transport,
    ):
        answer = transport.read(url)
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "no answer, or too little of one, in time"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (an_answer("503 x", Retry_After="\xb2"), "HTTP 503 x"),
        (an_answer("307 x", Location="http://[::1"), "Invalid IPv6 URL"),
        (an_answer("307 x", Location="http://h:abc/x"), ""),
        (an_answer(body=b"ab", Content_Length="\xb2"), "does not say how long it is"),
        (an_answer(body=b"ab", Content_Type="text/html; charset=zlib"), ""),
        (an_answer(body=b"ab", Content_Type="text/html; charset=\xb2"), ""),
    ],
    ids=["a wait", "half an address", "no port", "a length", "no text", "no encoding"],
)
def test_what_no_index_would_send_is_no_crash(raw: bytes, reason: str) -> None:
    with (
        sending(lambda _: [raw]) as host,
        Transport(Site(), connect_seconds=5, stall_seconds=0.2) as transport,
    ):
        answers = (transport.read(f"http://{host}/"), transport.size_bytes(f"http://{host}/"))
    said = [answer.reason for answer in answers if isinstance(answer, NoAnswer)]
    assert reason in " ".join(said)
    assert said or answers == ((f"http://{host}/", ANY, "ab"), 2)


@contextlib.contextmanager
def dripping(head: str, drop: str) -> Iterator[str]:
    """A server that answers one request with `head`, and `drop` for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line, contextlib.suppress(OSError):
                line.sendall(head.encode())
                for _ in range(200):
                    line.sendall(drop.encode())
                    time.sleep(0.02)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple/"
        thread.join()


def test_a_page_that_comes_too_slowly_ends_after_its_time_in_all(index: Index) -> None:
    index.fail("/alpha/", Fault(bytes_per_second=40))
    transport = Transport(only(index), connect_seconds=5, stall_seconds=0.2)
    with transport:
        answer = transport.read(f"{index.url}/alpha/")
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "no whole page in 1.2 s"


def test_an_empty_program_is_placed_again(tmp_path: Path) -> None:
    program = tmp_path / "uv"
    program.write_bytes(b"#!/bin/sh\n")
    placed = place_program(program, tmp_path / "tools") / "uv"
    placed.write_bytes(b"")
    assert (place_program(program, tmp_path / "tools") / "uv").read_bytes() == program.read_bytes()


def test_a_page_that_is_no_index_is_no_answer() -> None:
    whole = {"filename": "app-1-py3-none-any.whl", "url": "app.whl"}
    wrong: list[dict[str, object]] = [
        {"filename": 5},
        {"filename": ["app"]},
        {"filename": "../app-1-py3-none-any.whl"},
        {"url": 5},
        {"url": "http://[x/app.whl"},
        {"size": "12"},
        {"size": -1},
        {"size": True},
        {"hashes": {"sha256": 5}},
        {"hashes": []},
    ]
    texts = [json.dumps({"files": [{**whole, **one}]}) for one in wrong]
    texts += ["[" * 100_000, '{"files": ' + "[" * 100_000, "9" * 10_000, "{}"]
    for text in texts:
        found = read_links("https://x.org/app/", "application/vnd.pypi.simple.v1+json", text)
        assert isinstance(found, NoAnswer), text[:80]
    for page in (
        '<a href="http://[x/a-1.whl">a</a>',
        '<base href="http://["><a href="a-1.whl">a</a>',
    ):
        assert isinstance(read_links("https://x.org/app/", "text/html", page), NoAnswer)
    assert read_links("https://x.org/app/", "text/html", '<a href="a%2F..%2Fb-1.whl">a</a>') == ()


@pytest.mark.parametrize("address", ["file:///dev/zero/a-1-py3-none-any.whl", "x:a-1.tar.gz"])
def test_a_page_of_the_network_names_no_file_of_this_machine(address: str) -> None:
    anchor = f'<a href="{address}">a</a>'
    text = json.dumps({"files": [{"filename": "a-1-py3-none-any.whl", "url": address}]})
    assert read_links("https://x.org/a/", "text/html", anchor) == ()
    assert read_links("https://x.org/a/", "application/json", text) == ()
    local = read_links("file:///srv/a/", "text/html", anchor)
    assert not isinstance(local, NoAnswer)
    assert [link.url for link in local] == [address]


@pytest.mark.parametrize("page", ["<![", "<![x", "<![if"])
def test_a_page_that_is_no_html_has_no_files(page: str) -> None:
    """Pythons differ: some raise an `AssertionError` for the first two."""
    found = read_links("https://x.org/a/", "text/html", page * 9)
    assert isinstance(found, NoAnswer) or found == ()


@pytest.mark.parametrize("size", ["NaN", "1e300", "true", "-1", '"9"'])
def test_a_size_that_is_no_count_is_no_answer(size: str) -> None:
    text = f'{{"files": [{{"filename": "a.whl", "url": "https://x.org/a.whl", "size": {size}}}]}}'
    assert isinstance(read_links("https://x.org/a/", "application/json", text), NoAnswer)


def test_metadata_that_cannot_be_read_is_the_wheels_error(tmp_path: Path) -> None:
    wheel = stand_in_wheel(tmp_path, "app", "1.0", requires=["numpy" + " " * 4000])
    data = wheel.read_bytes()
    inside = data.index(b"METADATA") + len("METADATA") + 20
    packed = data[:inside] + bytes(16) + data[inside + 16 :]
    encrypted = bytearray(data)
    for at in (data.index(b"PK\3\4") + 6, data.index(b"PK\1\2") + 8):
        encrypted[at] |= 1
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("app-1.0.dist-info/METADATA", bytes(40 << 20))
    for content in (packed, bytes(encrypted), b"", huge.getvalue()):
        wheel.write_bytes(content)
        with pytest.raises(WheelError, match="app"):
            read_wheel_metadata(wheel)
