"""A wheel's layer holds what an installer leaves of it, and the same bytes on any machine."""

from __future__ import annotations

import io
import os
import site
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from standins import stand_in_wheel

from warpfront.errors import WheelError
from warpfront.images.render import slim_files
from warpfront.wheels.layers.layer_store import (
    AGE_SECONDS,
    SITE_PACKAGES,
    Layer,
    first_clash,
    has_headers,
    stream_wheels,
)

SITE = SITE_PACKAGES.removeprefix("/")
LIBRARY = os.urandom(700_001)
INFO = "torch-2.13.0.dist-info"
FILES: Mapping[str, str | bytes] = {
    "torch/__init__.py": "import os\n",
    "torch/lib/libtorch.so": LIBRARY,
    "torch/empty": b"",
    "torch/" + "long/" * 30 + "ä.txt": "x",
    "torch-2.13.0.data/purelib/torchgen/__init__.py": "",
    "torch-2.13.0.data/scripts/torchrun": "#!python\nprint(1)\n",
    "torch-2.13.0.data/data/share/doc.txt": "x",
    "torch-2.13.0.data/headers/torch.h": "int a;\n",
    f"{INFO}/entry_points.txt": "[console_scripts]\ntorchfr = torch.fr:main\n",
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return stand_in_wheel(tmp_path / "wheels", "torch", "2.13.0", files=FILES)


def streamed(*wheels: Path, slim: Sequence[str] = ()) -> tuple[Layer, bytes]:
    out = io.BytesIO()
    layer = stream_wheels(wheels, out, python="3.13", on_bytes=lambda _: None, slim=slim)
    return layer, out.getvalue()


def members(packed: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for member in archive:
            found = archive.extractfile(member)
            yield member, found.read() if found else b""


def rewritten(wheel: Path, changes: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w", method) as archive:
        for name, data in {**held, **changes}.items():
            archive.writestr(name, data)
    return wheel


def installed(wheel: Path, folder: Path) -> dict[str, bytes]:
    """What the installer's own destination leaves on disk."""
    python = "/opt/venv/bin/python"
    schemes = {
        "purelib": SITE_PACKAGES,
        "platlib": SITE_PACKAGES,
        "scripts": "/opt/venv/bin",
        "data": "/opt/venv",
        "headers": "/opt/venv/include/site/python3.13/torch",
    }
    own = SchemeDictionaryDestination(schemes, python, "posix", destdir=str(folder))
    with WheelFile.open(wheel) as source:
        install(source, own, {"INSTALLER": b"warpfront", "REQUESTED": b""})
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_it_holds_what_the_installer_leaves_on_disk(wheel: Path, tmp_path: Path) -> None:
    _, packed = streamed(wheel)
    files = {one.name: data for one, data in members(packed) if one.isreg()}
    theirs = installed(wheel, tmp_path / "there")
    record = f"{SITE}/{INFO}/RECORD"
    theirs[record] = theirs[record].replace(b"\n./", b"\n")  # of a scheme in the same folder
    assert files == theirs
    assert files["opt/venv/bin/torchrun"].startswith(b"#!/opt/venv/bin/python\n")
    assert b"../../../bin/torchfr,sha256=" in files[record]


def test_what_is_left_out_is_left_out_of_a_layer_and_by_a_run_alike(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RECORD too, and no folder stays for what is gone."""
    globs = ["torch/lib/*", "torch/long/*", "torchgen/*", "*.md"]
    there = tmp_path / "there"
    installed(wheel, there)
    for name, text in slim_files(globs).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(there / SITE)])
    monkeypatch.setattr(sys, "argv", ["slim.py", str(tmp_path / "slim" / "globs.txt")])
    record = there / SITE / INFO / "RECORD"
    record.write_text(record.read_text("utf-8").replace("\n./", "\n"), "utf-8")
    exec(compile((tmp_path / "slim" / "slim.py").read_text("utf-8"), "slim.py", "exec"), {})
    _, packed = streamed(wheel, slim=globs)
    found = {one.name: data for one, data in members(packed)}
    theirs = {str(path.relative_to(there)): path for path in there.rglob("*")}
    assert set(theirs) == set(found)
    assert all(path.read_bytes() == found[name] for name, path in theirs.items() if path.is_file())
    assert f"{SITE}/torch/empty" in found
    assert not {f"{SITE}/torch/lib", f"{SITE}/torchgen"} & set(found)
    assert slim_files([]) == {}


def test_everything_in_it_is_roots_and_as_old_as_byte_code_says(wheel: Path) -> None:
    seen: set[str] = set()
    for one, _ in members(streamed(wheel)[1]):
        assert (one.uid, one.gid, one.uname, one.gname) == (0, 0, "", "")
        assert one.mtime == AGE_SECONDS, one.name
        executable = one.isdir() or one.name.startswith("opt/venv/bin/")
        assert one.mode == (0o755 if executable else 0o644), one.name
        parent = one.name.rpartition("/")[0]
        assert parent in {"", *seen}, f"{one.name} comes before its folder"
        assert one.name not in seen
        seen.add(one.name)


def test_its_digests_and_sizes_are_those_of_its_bytes(wheel: Path) -> None:
    layer, packed = streamed(wheel)
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    assert layer.digest == f"sha256:{sha256(packed).hexdigest()}"
    assert layer.size_bytes == len(packed)
    assert layer.diff_id == f"sha256:{sha256(raw).hexdigest()}"


def test_it_is_the_same_whatever_packed_the_wheel_or_the_umask_is(
    wheel: Path, tmp_path: Path
) -> None:
    first, _ = streamed(wheel)
    before = os.umask(0o077)
    try:
        assert streamed(wheel)[0] == first
    finally:
        os.umask(before)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2):
        assert streamed(rewritten(wheel, {}, method))[0].digest == first.digest
    assert tmp_path.is_dir()


def test_headers_are_told_since_pythons_version_is_in_their_path(
    wheel: Path, tmp_path: Path
) -> None:
    assert has_headers(wheel)
    assert not has_headers(stand_in_wheel(tmp_path, "numpy", "2", files={"numpy/a.h": ""}))


def cut(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-600_000])


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        lambda wheel: rewritten(wheel, {"../out.py": b""}),
        lambda wheel: rewritten(wheel, {f"{INFO}/WHEEL": b"Wheel-Version: 9.0\n"}),
        lambda wheel: rewritten(wheel, {"torch-2.13.0.data/elsewhere/x": b""}),
        lambda wheel: rewritten(wheel, {f"{INFO}/INSTALLER": b"other"}),
    ],
    ids=["cut", "leads out", "of another kind", "unknown scheme", "written twice"],
)
def test_a_wheel_that_cannot_be_laid_out_is_refused_by_name(
    damage: Callable[[Path], object], wheel: Path
) -> None:
    damage(wheel)
    with pytest.raises(WheelError, match=wheel.name):
        streamed(wheel)


def test_a_full_disk_is_said_in_its_own_words(wheel: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="space"):
        stream_wheels([wheel], full, python="3.13", on_bytes=lambda _: None)


def pair(folder: Path, contents: Iterable[str]) -> list[Path]:
    return [
        stand_in_wheel(folder, f"nvidia-{index}", "1", files={"nvidia/__init__.py": text})
        for index, text in enumerate(contents)
    ]


def test_wheels_may_share_a_file_only_if_it_is_the_same(tmp_path: Path) -> None:
    same, other = pair(tmp_path / "same", ("", "")), pair(tmp_path / "other", ("", "x = 1\n"))
    assert not first_clash(same)
    names = [one.name for one, _ in members(streamed(*same)[1])]
    assert names.count(f"{SITE}/nvidia/__init__.py") == 1
    assert "nvidia_0-1" in first_clash(other)
    assert "nvidia/__init__.py" in first_clash(other)
    with pytest.raises(WheelError, match="nvidia_1"):
        streamed(*other)


def test_a_file_is_the_same_by_whatever_folder_of_a_wheel_it_comes(tmp_path: Path) -> None:
    """`.data/purelib/` and `.data/data/lib/python3.13/site-packages/` are site-packages, too."""
    torch = stand_in_wheel(tmp_path, "torch", "1", files={"torch/__init__.py": ""})
    assert not first_clash((torch,))
    for way in (
        "purelib",
        "platlib",
        "data/lib/python3.13/site-packages",
        "data/lib/../lib/python3/site-packages",
    ):
        inside = {f"app-1.data/{way}/torch/__init__.py": "x = 1\n"}
        app = stand_in_wheel(tmp_path / "app", "app", "1", files=inside)
        assert "both write torch/__init__.py" in first_clash((torch, app)), way
    script = {"app-1.data/scripts/run": "a", "torch-1.data/data/bin/run": "b"}
    both = [
        stand_in_wheel(tmp_path / "run", name, "1", files={path: text})
        for name, (path, text) in zip(("app", "torch"), script.items(), strict=True)
    ]
    assert "both write" in first_clash(both)
    apart = [
        stand_in_wheel(
            tmp_path / "apart",
            name,
            "1",
            files={f"{name}-1.data/data/share/x": name, f"{other}.py": name},
        )
        for name, other in (("a", "share"), ("b", "x"))
    ]
    assert "share/x" in first_clash(apart)


_LONG = 0x4A3B2C1


def test_a_member_that_is_longer_than_it_says_does_not_fill_the_disk(tmp_path: Path) -> None:
    """A deflated file of zeros takes a thousandth: a few megabytes would be gigabytes."""
    plain = stand_in_wheel(tmp_path, "bomb", "1")
    bomb = rewritten(plain, {"bomb/zeros": bytes(_LONG)}, zipfile.ZIP_DEFLATED)
    data = bomb.read_bytes()
    said = _LONG.to_bytes(4, "little")
    assert data.count(said) == 2  # in the member's own header, and in the directory at the end
    bomb.write_bytes(data.replace(said, (64).to_bytes(4, "little")))
    packed = io.BytesIO()
    seen: list[int] = []
    with pytest.raises(WheelError, match="bomb"):
        stream_wheels([bomb], packed, python="3.13", on_bytes=seen.append)
    assert max(seen, default=0) < 4 << 20


def test_no_link_of_the_environment_is_hidden_by_a_folder_of_a_wheel(tmp_path: Path) -> None:
    """`lib64` and `lib/python3.N` are links, and a layer with a folder in their place would hide
    the site-packages of all others.
    """
    ways = (
        "lib/python3.13/site-packages/a.py",
        "lib64/python3.13/site-packages/b.py",
        "lib64/c.so",
    )
    inside: dict[str, str | bytes] = {f"app-1.data/data/{way}": way for way in ways}
    app = stand_in_wheel(tmp_path, "app", "1", files=inside)
    names = {one.name.removeprefix("opt/venv/") for one, _ in members(streamed(app)[1])}
    assert {f"lib/python3/site-packages/{one}" for one in ("a.py", "b.py")} < names
    assert "lib/c.so" in names
    assert not [one for one in names if one.startswith(("lib64", "lib/python3.13"))]
