"""What the sources of a site offer of a name: what is hidden, what does not exist, and the release
that still has a module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from standins import serve_index, stand_in_wheel

from warpfront.wheels.resolve.candidates import (
    Absence,
    Offered,
    absence_of,
    release_with_module,
)
from warpfront.wheels.sources import Site
from warpfront_port.preflight.metadata_index import MetadataIndex


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    whole, part, folder = tmp_path / "whole", tmp_path / "part", tmp_path / "folder"
    for version in ("1.0", "2.0", "3.0"):
        stand_in_wheel(whole, "lib", version)
    stand_in_wheel(part, "lib", "1.5")
    stand_in_wheel(folder, "other", "1.0")
    with serve_index(whole, name="simple") as index, serve_index(part, name="mirror") as mirror:
        yield Site(index_url=index.url, extra_index_urls=(mirror.url,), find_links=(str(folder),))


def offered(name: str, site: Site) -> Offered:
    with MetadataIndex(site, lambda _project, _name: None) as index:
        return index.versions(name)


def absence(text: str, site: Site) -> Absence | None:
    requirement = Requirement(text)
    return absence_of(requirement.specifier, offered(requirement.name, site))


def test_the_index_that_hides_a_version_is_named_with_the_one_that_has_it(site: Site) -> None:
    mirror, index = site.indexes
    found = absence("lib>=2", site)
    assert found is not None
    assert found.text.startswith(f"{index} has 3.0, and {mirror} hides it, which comes first")
    assert found.hidden == (index, Version("3.0"))
    assert absence("lib<2", site) is None
    assert absence("lib", site) is None


def test_what_no_index_has_is_told_from_what_none_has_in_that_version(site: Site) -> None:
    mirror, index = site.indexes
    assert absence("nothing>=1", site) == Absence(text="there is no package of that name")
    assert absence("lib==9", site) == Absence(
        text=f"no source has such a version: {mirror} has 1.5 at most, {index} has 3.0 at most"
    )
    assert absence("other", site) is None


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Site]:
    """`sub.gone` came with 3 and went with 7; `alone.py` and a compiled one with it."""
    for number in range(1, 10):
        files = {"sub/__init__.py": ""}
        if 3 <= number < 7:
            files |= {"sub/gone/__init__.py": "", "alone.py": "", "fast.cpython-311-x.so": ""}
        stand_in_wheel(tmp_path, "lib", f"{number}.0.0", files=dict(files))
    stand_in_wheel(tmp_path, "lib", "6.5rc1", files={"sub/gone/__init__.py": ""})
    with serve_index(tmp_path, name="simple") as index:
        yield Site(index_url=index.url)


@pytest.mark.parametrize(
    ("module", "accepted", "found"),
    [
        ("sub.gone", "", ("6.0.0", "7.0.0")),
        ("alone", "", ("6.0.0", "7.0.0")),
        ("fast", "", ("6.0.0", "7.0.0")),
        ("sub.gone", "<5", ("4.0.0", "9.0.0")),
        ("sub.gone", ">=7", None),
        ("sub.never", "", None),
        ("alon", "", None),
        ("sub", "", ("8.0.0", "9.0.0")),
    ],
)
def test_the_newest_release_that_has_a_module_is_found(
    releases: Site, module: str, accepted: str, found: tuple[str, str] | None
) -> None:
    with releases.transport() as transport:
        release = release_with_module(
            "lib",
            module,
            Version("9.0.0"),
            SpecifierSet(accepted),
            transport,
        )
    said = (str(release.version), str(release.below)) if release else None
    assert said == found
    if release:
        assert release.link.filename == f"lib-{found[0]}-py3-none-any.whl"  # type: ignore[index]
        assert release.source == releases.index_url
