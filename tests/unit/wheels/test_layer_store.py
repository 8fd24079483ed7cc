"""Each wheel's layer is made once, and whatever breaks off the making leaves nothing of it."""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from standins import stand_in_wheel

from warpfront.errors import StoreError, WheelError
from warpfront.system.progress import Watch
from warpfront.wheels.layers import layer_store
from warpfront.wheels.layers.layer_store import Layer, LayerStore
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.unpacked import unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


@pytest.fixture
def store(tmp_path: Path, house: Wheelhouse) -> LayerStore:
    return LayerStore(tmp_path / "layers", house)


def a_wheel(house: Wheelhouse, name: str, content: bytes = b"x") -> LockedWheel:
    files: dict[str, str | bytes] = {f"{name}/__init__.py": "", f"{name}/lib.so": content}
    path = stand_in_wheel(house.root.parent / "wheels", name, "1.0", files=files)
    _, sha256 = house.keep(path)
    size = path.stat().st_size
    return LockedWheel(
        name=name, version="1.0", filename=path.name, sha256=sha256, size_bytes=size, index=""
    )


def a_watch(say: Callable[[str], None] = lambda _: None) -> Watch:
    return cast("Watch", SimpleNamespace(say=say, advance=lambda *_: None))


def made(store: LayerStore, *wheels: LockedWheel, python: str = "3.13") -> tuple[Layer, ...]:
    sets = [(wheel,) for wheel in wheels]
    return store.layers(sets, a_watch(), python=python)


def nobody_makes(*_: object, **__: object) -> None:
    raise AssertionError("a layer was made that is here already")


def left(store: LayerStore) -> set[str]:
    """Every file of the store, but its lock."""
    files = (path for path in store.root.rglob("*") if path.is_file())
    return {path.name for path in files if path.suffix not in {".lock", ".intact"}}


def test_a_layer_is_made_once_whatever_the_python_and_kept_by_its_digest(
    store: LayerStore, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, numpy = a_wheel(house, "torch"), a_wheel(house, "numpy")
    first = made(store, torch, numpy)
    assert [layer.wheels for layer in first] == [("torch==1.0",), ("numpy==1.0",)]
    assert all(store.blob(layer.digest).stat().st_size == layer.size_bytes for layer in first)
    monkeypatch.setattr(layer_store, "stream_wheels", nobody_makes)
    assert made(store, numpy, torch, python="3.11") == first[::-1]


def test_no_layer_is_made_of_a_wheel_that_is_another_of_the_same_size_and_time(
    tmp_path: Path, store: LayerStore, house: Wheelhouse
) -> None:
    """It is whole, and its RECORD is true; only its hash says that nobody locked it."""
    torch = a_wheel(house, "torch", b"good")
    assert house.missing((torch,)) == ()  # read, and noted as what it should be
    files: dict[str, str | bytes] = {"torch/__init__.py": "", "torch/lib.so": b"evil"}
    other = stand_in_wheel(tmp_path / "other", "torch", "1.0", files=files).read_bytes()
    kept = house.path(torch)
    found = kept.stat()
    assert len(other) == found.st_size
    kept.chmod(0o644)
    with kept.open("r+b") as file:
        file.write(other)
    os.utime(kept, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert house.missing((torch,)) == ()
    with pytest.raises(WheelError, match="is not what its lock says"):
        made(store, torch)
    assert left(store) == set()


def test_two_stores_make_the_same_bytes(
    tmp_path: Path, store: LayerStore, house: Wheelhouse
) -> None:
    other = LayerStore(tmp_path / "elsewhere", house)
    torch = a_wheel(house, "torch", os.urandom(300_000))
    before = os.umask(0o077)
    try:
        assert made(other, torch) == made(store, torch)
    finally:
        os.umask(before)
    (layer,) = made(store, torch)
    assert other.blob(layer.digest).read_bytes() == store.blob(layer.digest).read_bytes()
    assert other.blob(layer.digest).stat().st_mode & 0o777 == 0o444


def test_the_guard_is_told_what_the_maker_measured(
    store: LayerStore, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = a_wheel(house, "torch")
    made(store, torch)
    monkeypatch.setattr("warpfront.wheels.store.unpacked.read_members", nobody_makes)
    assert "torch/lib.so" in unpacked_files(house, torch)


@pytest.mark.parametrize("keeps_size", [False, True])
def test_a_damaged_blob_is_made_again(
    *, keeps_size: bool, store: LayerStore, house: Wheelhouse
) -> None:
    torch = a_wheel(house, "torch", os.urandom(10_000))
    (layer,) = made(store, torch)
    blob = store.blob(layer.digest)
    whole = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if keeps_size else whole[:100])
    assert made(store, torch) == (layer,)
    assert blob.read_bytes() == whole


def test_an_unreadable_record_is_as_good_as_none(store: LayerStore, house: Wheelhouse) -> None:
    torch = a_wheel(house, "torch")
    (layer,) = made(store, torch)
    for text in ("", "{}", "[1]", '{"digest": 1, "wheels": 3}'):
        for record in (store.root / "made").iterdir():
            record.write_text(text, "utf-8")
        assert made(store, torch) == (layer,)


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StoreError),
        (WheelError("torch: it ends too early"), WheelError),
    ],
    ids=["Ctrl-C", "a full disk", "a damaged wheel"],
)
def test_what_breaks_off_leaves_nothing_and_the_next_run_makes_it(
    breaks: BaseException,
    expected: type[BaseException],
    store: LayerStore,
    house: Wheelhouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = a_wheel(house, "torch")

    def broken(_wheels: object, file: object, **_: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise breaks

    with monkeypatch.context() as patched:
        patched.setattr(layer_store, "stream_wheels", broken)
        with pytest.raises(expected) as raised:
            made(store, torch)
    assert left(store) == set()
    if expected is StoreError:
        assert "free some space" in raised.value.hint  # type: ignore[attr-defined]
    assert len(made(store, torch)) == 1


def test_the_first_failure_ends_the_other_layers(
    store: LayerStore, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one goes on for as long as nobody tells it to stop."""
    wheels = a_wheel(house, "bad"), a_wheel(house, "good", os.urandom(100_000))
    began = threading.Event()

    def streaming(paths: list[Path], _file: object, **options: object) -> None:
        if paths[0].name.startswith("bad"):
            began.wait(10)
            raise WheelError("bad")
        began.set()
        while True:
            options["on_bytes"](1)  # type: ignore[operator]

    monkeypatch.setattr(layer_store, "stream_wheels", streaming)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(WheelError, match="bad"):
        made(store, *wheels)
    assert left(store) == set()


def test_two_makers_at_once_make_it_once(
    store: LayerStore, house: Wheelhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, times, waits = a_wheel(house, "torch"), [0], threading.Event()
    real = layer_store.stream_wheels

    def counted(*arguments: object, **options: object) -> object:
        times[0] += 1
        waits.wait(10)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(layer_store, "stream_wheels", counted)
    answers: list[tuple[Layer, ...]] = []

    def make() -> None:
        sets = [(torch,)]
        answers.append(store.layers(sets, a_watch(lambda _: waits.set()), python="3.13"))

    makers = [threading.Thread(target=make) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(20)
    assert times == [1]
    assert answers[0] == answers[1]


def test_what_a_killed_maker_left_is_swept_by_the_next(
    store: LayerStore, house: Wheelhouse
) -> None:
    store.root.mkdir()
    (store.root / ".aside-1").write_bytes(b"half")
    made(store, a_wheel(house, "torch"))
    assert ".aside-1" not in left(store)


def test_layers_are_lent_by_links_and_what_was_lent_is_not_taken_back(
    store: LayerStore, house: Wheelhouse, tmp_path: Path
) -> None:
    (layer,) = made(store, a_wheel(house, "torch"))
    manifest, _ = store.write({"layers": [{"digest": layer.digest}]})
    folder = tmp_path / "aside"
    store.lend(manifest, folder)
    blobs = folder / "blobs" / "sha256"
    (lent,) = blobs.iterdir()
    before = store.blob(layer.digest).stat()
    assert lent.samefile(store.blob(layer.digest))
    (blobs / "0123").write_bytes(b"new")
    store.take(folder)
    assert store.blob("0123").read_bytes() == b"new"
    after = store.blob(layer.digest).stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    store.blob("0123").unlink()
    (blobs / "0123").write_bytes(b"newer")
    store.take(folder)
    assert store.blob("0123").read_bytes() == b"newer"


def test_a_layer_without_some_of_its_files_is_another_layer(
    store: LayerStore, house: Wheelhouse
) -> None:
    torch = a_wheel(house, "torch", os.urandom(10_000))
    (whole,) = made(store, torch)
    without = store.layers([(torch,)], a_watch(), python="3.13", slim=["torch/*.so"])
    assert without[0].size_bytes < whole.size_bytes / 2
    assert made(store, torch) == (whole,)
    assert "torch/lib.so" in unpacked_files(house, torch), "the guard is told of the whole wheel"


def test_a_file_that_is_no_wheel_is_its_cells_error_though_its_hash_is_right(
    store: LayerStore, house: Wheelhouse, tmp_path: Path
) -> None:
    """An index that gives metadata apart (PEP 658) may give anything under the wheel's name."""
    wheel = a_wheel(house, "torch")
    path = house.root.parent / "wheels" / wheel.filename
    odd = stand_in_wheel(tmp_path, "torch", "1.0", files={"torch-1.0.data/purelib": "x"})
    for data in (odd.read_bytes(), b"", b"<html>", path.read_bytes()[:-30]):
        path.write_bytes(data)
        _, sha256 = house.keep(path)
        one = dataclasses.replace(wheel, sha256=sha256, size_bytes=len(data))
        for read in (made, lambda at, it: at.refuse_clash([it])):
            if data == odd.read_bytes() and read is not made:
                read(store, one)
                continue
            with pytest.raises(WheelError, match="torch"):
                read(store, one)
