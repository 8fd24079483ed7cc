"""What an image says it holds: read to a limit inside, and believed in shape only outside."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

import pytest
from bills import A_CONTENTS, BASH, NUMPY

from warpfront_checks.image_contents import (
    LONGEST,
    MOST_PARTS,
    Contents,
    ContentsError,
    EmbeddedComponent,
    carried_by,
    contents_from,
    folder_sizes,
    found_in,
    packages_in,
    read_contents,
    with_licences,
)

STATUS = """\
Package: bash
Status: install ok installed
Architecture: amd64
Source: bash (5.2.15-2)
Version: 5.2.15-2+b13
Description: shell
 Version: 9
 .

Package: gone
Status: deinstall ok config-files
Version: 1

Package: bash
Status: install ok installed
Architecture: amd64
Source: bash (5.2.15-2)
Version: 5.2.15-2+b13

Package: without-a-version
Status: install ok installed
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
License: GPL-3+
 On Debian systems, the text of the licence is in

License:  GPL-3+

Files: x
License: permissive
"""


def through_json(document: object) -> Contents:
    return contents_from(json.loads(json.dumps(document)))


def test_what_is_written_is_read_back_equal() -> None:
    assert through_json(A_CONTENTS.document()) == A_CONTENTS


def test_installed_packages_are_read_once_each_and_others_not() -> None:
    (package,) = packages_in(STATUS)
    assert package == dataclasses.replace(BASH, licences=())


def test_a_package_has_the_licences_that_its_copyright_file_names_to_machines() -> None:
    package = dataclasses.replace(BASH, licences=())
    assert with_licences(package, COPYRIGHT) == BASH
    assert with_licences(package, "License: GPL-3+ it says somewhere in a letter").licences == ()


def test_a_hundred_thousand_fields_cost_a_second_at_most_and_add_nothing() -> None:
    began = time.process_time()
    field = "X-Field: y\n" * 100_000
    (package,) = packages_in(f"Package: bash\nVersion: 1\n{field}Version: 2\n")
    assert (package.version, package.licences) == ("1", ())
    assert time.process_time() - began < 1


def test_metadata_gives_its_three_ways_to_name_a_licence() -> None:
    found = found_in(
        "Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nLicense-Expression: MIT\n"
        "License: MIT License\n        text of it\nLicense-File: LICENSE\n"
        "Classifier: License :: OSI Approved :: MIT License\nClassifier: Topic :: Demo\n"
        "Requires-Dist: numpy\n\nLicense: of the description\n"
    )
    assert found is not None
    assert (found.expression, found.licence, found.licence_files) == (
        "MIT",
        "MIT License",
        ("LICENSE",),
    )
    assert (found.classifiers, found.requires) == (
        ("License :: OSI Approved :: MIT License",),
        ("numpy",),
    )
    assert found_in("Version: 1.0\n\nName: demo\n") is None


def test_a_licence_of_ten_megabytes_is_a_name_of_a_line() -> None:
    found = found_in(f"Name: demo\nVersion: 1\nLicense: {'all rights ' * 1_000_000}\n")
    assert found is not None
    assert len(found.licence) == LONGEST
    assert through_json(Contents(distributions=(found,)).document()).distributions == (found,)


def test_what_a_wheel_lists_of_itself_is_read_however_deep() -> None:
    inner = {"components": [{"purl": "pkg:cargo/aes@0.8.4?x=y"}, {"purl": 7}, "no component"]}
    bill = {"components": [{"purl": "pkg:npm/%40a/b@1%2B2", **inner}, {"name": "no purl"}]}
    assert set(carried_by(bill)) == {
        EmbeddedComponent(kind="cargo", name="aes", version="0.8.4"),
        EmbeddedComponent(kind="npm", name="@a/b", version="1+2"),
    }
    deep: dict[str, object] = {}
    for _ in range(10_000):
        deep = {"components": [deep]}
    assert list(carried_by(deep)) == []


def test_a_system_is_read_from_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    (tmp_path / "usr/share/doc/bash").mkdir(parents=True)
    (tmp_path / "usr/share/doc/bash/copyright").write_text(COPYRIGHT)
    found = read_contents(tmp_path)
    assert (found.system, found.release, found.packages) == ("debian", "12", (BASH,))
    assert read_contents(tmp_path / "nowhere").packages == ()


def test_a_package_named_like_a_path_reads_no_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("Package: ../../../secret\nVersion: 1\n")
    (tmp_path / "usr/share/doc").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "copyright").write_text(COPYRIGHT)
    (package,) = read_contents(tmp_path).packages
    assert package.licences == ()


def test_this_python_is_found_with_what_its_wheels_vendor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, inner = tmp_path / "demo-1.dist-info", tmp_path / "demo/_vendor/zipp-3.dist-info"
    (info / "sboms").mkdir(parents=True)
    inner.mkdir(parents=True)
    (inner / "METADATA").write_text("Name: zipp\nVersion: 3\n")
    bill = info / "sboms" / "demo.cdx.json"
    bill.write_text('{"components": [{"purl": "pkg:cargo/aes@0.8.4"}]}')
    (info / "METADATA").write_text("Name: demo\nVersion: 1\n")
    files = [inner / "METADATA", bill, info / "METADATA"]
    (info / "RECORD").write_text("".join(f"{one.relative_to(tmp_path)},,\n" for one in files))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (found,) = read_contents(tmp_path).distributions
    assert [(one.kind, one.name) for one in found.carried] == [("cargo", "aes"), ("pypi", "zipp")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one.update(schema=2),
        lambda one: one.update(more=1),
        lambda one: one.update(system=["debian"]),
        lambda one: one.update(packages={}),
        lambda one: one["packages"][0].update(name=7),
        lambda one: one["packages"][0].update(name=""),
        lambda one: one["packages"][0].update(name=["bash"]),
        lambda one: one["packages"][0].update(licences="GPL"),
        lambda one: one["packages"][0].update(shell="sh"),
        lambda one: one["packages"][0].update(name="x" * (LONGEST + 1)),
        lambda one: one["packages"][0].update(licences=["x"] * (MOST_PARTS + 1)),
        lambda one: one.update(packages=one["packages"] * (MOST_PARTS + 1)),
        lambda one: one["distributions"][2]["carried"][0].update(version=None),
        lambda one: one["distributions"].append(None),
        lambda one: one["distributions"].append({"carried": [], "name": "x", "version": {}}),
    ],
)
def test_a_document_of_another_shape_is_refused(damage: object) -> None:
    document = json.loads(json.dumps(A_CONTENTS.document()))
    assert callable(damage)
    damage(document)
    with pytest.raises(ContentsError):
        contents_from(document)
    assert contents_from(json.loads(json.dumps(A_CONTENTS.document()))).distributions[0] == NUMPY


def test_folders_are_measured_each_file_once_and_without_links(tmp_path: Path) -> None:
    packages = tmp_path / "usr/lib/python3/site-packages"
    for path, size in (
        ("usr/lib/a/b.so", 10),
        ("usr/lib/python3/site-packages/torch/lib/c.so", 100),
        ("usr/lib/python3/site-packages/six.py", 1),
        ("etc/x", 3),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * size)
    (packages / "torch" / "again.so").hardlink_to(packages / "torch" / "lib" / "c.so")
    (tmp_path / "usr/lib/loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "etc/big").symlink_to(packages / "torch" / "lib" / "c.so")
    assert folder_sizes(tmp_path) == {
        "/usr/lib": 10,
        "/usr/lib/python3/site-packages": 1,
        "/usr/lib/python3/site-packages/torch": 100,
        "/etc": 3,
    }
    assert folder_sizes(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("folders", [[], {"/a": "1"}, {"/a": -1}, {"/a": True}, {"x" * 3000: 1}])
def test_sizes_that_are_none_are_refused(folders: object) -> None:
    document = {**json.loads(json.dumps(A_CONTENTS.document())), "folders": folders}
    with pytest.raises(ContentsError, match="folders"):
        contents_from(document)
    del document["folders"]
    assert contents_from(document).folders == {}, "as results of before have it"
