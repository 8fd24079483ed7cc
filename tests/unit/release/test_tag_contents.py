"""What is in an image by its own SBOM, and what changed between two."""

from __future__ import annotations

import dataclasses
import json

import pytest
from bills import A_CONTENTS, a_bill

from warpfront.release.sbom.documents import cyclonedx_text
from warpfront.release.tag_contents import (
    Change,
    TagContents,
    TagPage,
    contents_by_sbom,
    difference,
    difference_text,
    tag_page,
)
from warpfront_checks.image_contents import Package

FOLDERS = {"/usr/lib": 300, "/usr/lib/python3/dist-packages/torch_x": 200}


def contents(text: str, reference: str = "r.test/a:1") -> TagContents:
    return contents_by_sbom(
        text.encode(),
        TagContents(reference=reference, digest="sha256:1", created="2026-11-01", size_bytes=9),
    )


def sbom(**changes: object) -> str:
    return cyclonedx_text(
        a_bill(contents=dataclasses.replace(A_CONTENTS, **{"folders": FOLDERS, **changes}))  # type: ignore[arg-type]
    )


def test_wheels_packages_and_folders_come_back_from_the_sbom_that_we_write() -> None:
    found = contents(sbom())
    assert found.wheels == {"numpy": "2.4.6", "torch": "2.13.0+cpu", "uv": "0.13.9"}
    assert found.packages == {"bash": "5.2.15-2+b13"}
    assert found.folders == FOLDERS
    assert found.unread == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "lists nothing"),
        ('{"components": 3, "metadata": {"component": []}}', "lists nothing"),
        (sbom(folders={}), "has no sizes of folders"),
    ],
)
def test_what_an_sbom_does_not_say_is_not_known_with_a_reason(text: str, reason: str) -> None:
    assert any(reason in one for one in contents(text).unread)


def test_the_difference_names_what_came_went_and_changed() -> None:
    before = contents(sbom(), "r.test/a:1")
    packages = (
        Package(name="bash", version="6", architecture="amd64"),
        Package(name="zlib1g", version="1", architecture="amd64"),
    )
    folders = {"/usr/lib": 900, "/opt/new": 10}
    now = contents(sbom(packages=packages, folders=folders), "r.test/a:2")
    found = difference(before, now)
    assert found.wheels == ()
    assert found.packages == (
        Change(name="bash", before="5.2.15-2+b13", now="6"),
        Change(name="zlib1g", before=None, now="1"),
    )
    assert [(one.name, one.before, one.now) for one in found.folders] == [
        ("/usr/lib", 300, 900),
        ("/usr/lib/python3/dist-packages/torch_x", 200, None),
        ("/opt/new", None, 10),
    ]
    assert found.undetermined == ()
    text = difference_text(found)
    assert "### Debian packages: 1 added, 0 removed, 1 changed" in text
    assert "| /usr/lib | 300 B | 900 B |" in text
    assert "### Wheels: no difference" in text


def test_without_an_sbom_no_difference_is_claimed() -> None:
    before, now = contents("{"), contents(sbom())
    found = difference(before, now)
    assert found.folders == ()
    assert len(found.undetermined) == 1
    assert "Not determined: the SBOM of r.test/a:1" in difference_text(found)


def test_a_page_shows_a_first_tag_and_one_with_another_before_it() -> None:
    now = contents(sbom())
    first = tag_page(TagPage(tags=("1", "latest"), now=now, before=None))
    assert "This is the first image of its tag." in first
    assert "Tags: `1`, `latest`." in first
    assert "| torch | 2.13.0+cpu |" in first.replace("\\", "")
    later = tag_page(TagPage(tags=("2",), now=now, before=contents(sbom(packages=()))))
    assert "### Debian packages: 1 added, 0 removed, 0 changed" in later


def test_a_strangers_sbom_writes_no_markdown_and_no_line_of_its_own() -> None:
    evil = "x](https://evil.test)\n# owned `rm` <b>|"
    document = {
        "components": [{"purl": "pkg:pypi/x@1", "name": evil, "version": evil}],
        "metadata": {"component": {"properties": []}},
    }
    found = contents(json.dumps(document).replace("\\n", "\\\\n"))
    text = tag_page(TagPage(tags=("1",), now=found, before=None))
    assert "\n# owned" not in text
    assert "](https" not in text.replace("\\](https", "")
    assert "<b>" not in text.replace("\\<b\\>", "")
