"""The program that removes the files of `slim:` in the step that installs wheels."""

from __future__ import annotations

import site
import sys
import zipfile
from pathlib import Path

import pytest
from standins import stand_in_wheel

from warpfront.images.slimming import slim_files


def test_what_is_left_out_is_gone_from_disk_and_record_with_its_empty_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, str | bytes] = {
        "lib/__init__.py": "",
        "lib/tests/test_a.py": "",
        "lib/deep/tests/data/a.txt": "a",
        "lib/deep/b.py": "",
        "only_tests/tests/c.py": "",
    }
    with zipfile.ZipFile(stand_in_wheel(tmp_path, "lib", "1.0", files=files)) as archive:
        archive.extractall(tmp_path / "site")
    for name, text in slim_files(["*/tests/*"]).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path / "site")])
    monkeypatch.setattr(sys, "argv", ["slim.py", str(tmp_path / "slim" / "globs.txt")])
    exec(compile((tmp_path / "slim" / "slim.py").read_text("utf-8"), "slim.py", "exec"), {})
    left = {path.relative_to(tmp_path / "site").as_posix() for path in tmp_path.glob("site/**/*")}
    assert {"lib/__init__.py", "lib/deep/b.py"} <= left
    assert not [path for path in left if "tests" in path], "nor a folder of what is gone"
    (record,) = (tmp_path / "site").glob("*.dist-info/RECORD")
    named = {line.partition(",")[0] for line in record.read_text("utf-8").splitlines()}
    assert named == {path for path in left if (tmp_path / "site" / path).is_file()}
    assert slim_files([]) == {}
