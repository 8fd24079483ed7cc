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
    Offered,
    release_with_module,
    why_hidden,
    why_no_candidate,
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


def hidden(text: str, site: Site) -> str:
    requirement = Requirement(text)
    return why_hidden(requirement, offered(requirement.name, site))


def absent(text: str, site: Site) -> str:
    requirement = Requirement(text)
    return why_no_candidate(requirement, offered(requirement.name, site))


def test_the_index_that_hides_a_version_is_named_with_the_one_that_has_it(site: Site) -> None:
    mirror, index = site.indexes
    said = hidden("lib>=2", site)
    assert said.startswith(f"{mirror} has lib up to 1.5, which hides lib 3.0 of {index} from uv")
    assert hidden("lib<2", site) == ""
    assert hidden("lib", site) == ""
    assert hidden("lib>=9", site) == "", "no index has it"
    assert hidden("other==9", site) == ""


def test_what_no_index_has_is_told_from_what_none_has_in_that_version(site: Site) -> None:
    assert absent("nothing>=1", site) == "no index has a package nothing"
    assert absent("lib==9", site) == (
        f"no index has lib==9: the newest is 3.0, at {site.index_url}"
    )
    assert absent("lib>=2", site) == ""
    assert absent("other", site) == ""


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
            site=releases,
            transport=transport,
        )
    said = (str(release.version), str(release.below)) if release else None
    assert said == found
    if release:
        assert release.link.filename == f"lib-{found[0]}-py3-none-any.whl"  # type: ignore[index]
        assert release.source == releases.index_url
